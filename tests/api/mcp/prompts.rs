//! Prompts, which are assets with a template, and outputs that clients can show.

use catena_tests::mcp::{McpClient, STATELESS};
use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

async fn register(client: &Client, metadata: Json) -> String {
    client.post("/api/v1/assets", &metadata).await.json().as_str().unwrap().to_owned()
}

fn review() -> Json {
    json!({
        "name": "Review code",
        "description": "Asks for a review",
        "prompt": {
            "arguments": [
                { "name": "code", "description": "The code", "required": true },
                { "name": "tone", "values": ["kind", "keen", "strict"] },
            ],
            "messages": [
                { "role": "assistant", "content": "I review {{tone}}ly." },
                { "role": "user", "content": { "type": "text", "text": "Review {{ code }}!" } },
            ],
        },
    })
}

#[tokio::test]
async fn assets_with_a_template_are_prompts_of_their_owner() {
    let site = Site::start().await;
    let (ann, bob) = (site.caller(1).await, site.caller(2).await);
    register(&ann, review()).await;
    register(&ann, json!({ "name": "no prompt", "prompt": "only a text" })).await;
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25", STATELESS] {
        let client = McpClient::new(&ann, revision);
        let listed = client.result("prompts/list", json!({})).await;
        let arguments = json!([
            { "name": "code", "description": "The code", "required": true }, { "name": "tone" }
        ]);
        let expected = json!([{ "name": "Review_code", "title": "Review code",
            "description": "Asks for a review", "arguments": arguments }]);
        assert_eq!(listed["prompts"], expected);
        let given = json!({ "code": "x = {{tone}}", "tone": "kind" });
        let params = json!({ "name": "Review_code", "arguments": given });
        let got = client.result("prompts/get", params).await;
        assert_eq!(got["description"], "Asks for a review");
        let text = |at: usize| got["messages"][at]["content"]["text"].as_str().unwrap();
        assert_eq!((text(0), text(1)), ("I review kindly.", "Review x = {{tone}}!"));
        for wrong in [
            json!({ "name": "Review_code", "arguments": { "tone": "kind" } }),
            json!({ "name": "other" }),
        ] {
            let (_, code, _) = client.refusal("prompts/get", wrong).await;
            assert_eq!(code, -32602);
        }
        let params = json!({ "ref": { "type": "ref/prompt", "name": "Review_code" },
            "argument": { "name": "tone", "value": "K" } });
        let completed = client.result("completion/complete", params).await;
        let expected = json!({ "values": ["kind", "keen"], "total": 2, "hasMore": false });
        assert_eq!(completed["completion"], expected);
    }
    let client = McpClient::new(&bob, STATELESS);
    assert_eq!(client.result("prompts/list", json!({})).await["prompts"], json!([]));
    let params = json!({ "name": "Review_code", "arguments": { "code": "x" } });
    let (_, code, _) = client.refusal("prompts/get", params).await;
    assert_eq!(code, -32602, "as if it did not exist");
}

#[tokio::test]
async fn a_prompt_embeds_the_content_of_an_asset() {
    let site = Site::start().await;
    let notes = json!({ "name": "notes", "content": { "contentType": "text/plain" } });
    let notes = register(&site, notes).await;
    let path = format!("/api/v1/assets/{notes}/content");
    site.ask(site.request("PUT", &path).body(b"hello".as_slice())).await.expect(200);
    let did = site.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned();
    let resource = json!({ "type": "resource", "resource": { "uri": "{{uri}}" } });
    let prompt = json!({ "name": "embed", "prompt": {
        "messages": [{ "role": "user", "content": resource }] } });
    register(&site, prompt).await;
    let client = McpClient::new(&site, "2025-11-25");
    let uri = format!("{did}/a/{}", notes.trim_start_matches("0x"));
    let params = json!({ "name": "embed", "arguments": { "uri": uri } });
    let got = client.result("prompts/get", params).await;
    let expected = json!({ "uri": uri, "mimeType": "text/plain", "text": "hello" });
    assert_eq!(got["messages"][0]["content"]["resource"], expected);
    let params = json!({ "name": "embed", "arguments": { "uri": "file:///etc/passwd" } });
    let (_, code, _) = client.refusal("prompts/get", params).await;
    assert_eq!(code, -32002);
}

#[tokio::test]
async fn an_output_with_a_media_type_is_content_that_a_client_can_show() {
    let site = Site::start().await;
    let png = json!({ "contentMediaType": "image/png", "contentEncoding": "base64" });
    let output = json!({ "type": "object", "properties": { "plot": png, "note": {} } });
    let result = json!({ "plot": ["const", "AAAA"], "note": ["const", "n"] });
    let define = async |name: &str, output: &Json, result: &Json| {
        let operation = json!({ "adapter": "orchestrator", "output": output, "result": result,
            "steps": [{ "op": "v/test/ops/echo", "input": {} }] });
        let body = json!({ "name": name, "operation": operation }).to_string();
        let path = format!("/api/v1/operations/{name}");
        site.ask(site.request("PUT", &path).body(body.as_bytes())).await.expect(200);
    };
    define("plot", &output, &result).await;
    define("image", &png, &json!(["const", "A".repeat(8_000)])).await;
    let client = McpClient::new(&site, "2025-11-25");
    let call = async |name: &str| {
        client.result("tools/call", json!({ "name": name, "arguments": {} })).await
    };
    let plotted = call("o_plot").await;
    assert_eq!(plotted["structuredContent"], json!({ "plot": "AAAA", "note": "n" }));
    assert_eq!(plotted["content"][0]["type"], "text");
    let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
    assert_eq!(plotted["content"][1], image);
    let image = call("o_image").await;
    assert_eq!(image["content"].as_array().unwrap().len(), 1, "{image}");
    assert_eq!(image["content"][0]["data"].as_str().unwrap().len(), 8_000);
}
