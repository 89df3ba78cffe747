//! Messages, revisions, headers and access control.

use catena_tests::TIMEOUT;
use catena_tests::mcp::{McpClient, STATELESS, WITH_HANDSHAKE, last_message};
use catena_tests::site::Site;
use serde_json::{Value as Json, json};

#[tokio::test]
async fn every_revision_with_a_handshake_gets_what_it_asks_for_and_no_session() {
    let site = Site::start().await;
    for revision in WITH_HANDSHAKE {
        let client = McpClient::new(&site, revision);
        let params = json!({"protocolVersion": revision, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        let reply = client.reply("initialize", params).await.expect(200);
        assert_eq!(reply.header("mcp-session-id"), None);
        let result = last_message(reply)["result"].clone();
        assert_eq!(result["protocolVersion"], revision);
        assert_eq!(result["serverInfo"]["name"], "catena");
        assert!(result["capabilities"]["tools"].is_object(), "{result}");
        let has_tasks = result["capabilities"]["tasks"].is_object();
        assert_eq!(has_tasks, revision == "2025-11-25", "{result}");
        assert_eq!(client.result("ping", json!({})).await, json!({}));
    }
    let client = McpClient::new(&site, "2025-11-25");
    for other in [json!({"protocolVersion": STATELESS}), json!({"protocolVersion": "x"}), json!({})]
    {
        let result = client.result("initialize", other).await;
        assert_eq!(result["protocolVersion"], "2025-11-25");
    }
}

#[tokio::test]
async fn the_stateless_revision_is_discovered_without_a_handshake() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    let result = client.result("server/discover", json!({})).await;
    assert_eq!(result["supportedVersions"][0], STATELESS);
    assert_eq!(result["supportedVersions"].as_array().unwrap().len(), 5);
    assert!(result["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["cacheScope"], "public");
    assert!(result["ttlMs"].as_i64().unwrap() > 0);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "catena");
    for gone in ["ping", "tasks/list", "tasks/result", "initialized"] {
        let (status, code, _) = client.refusal(gone, json!({})).await;
        assert_eq!((status, code), (404, -32601), "{gone}");
    }
    // There is no handshake either.
    let handshake = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    let request = site.request("POST", "/mcp").json(&handshake);
    let request = request.header("mcp-protocol-version", STATELESS);
    let reply = site.ask(request.header("accept", "application/json, text/event-stream")).await;
    assert_eq!(reply.expect(404).json()["error"]["code"], -32601);
}

#[tokio::test]
async fn notifications_and_responses_are_taken_and_change_nothing() {
    let site = Site::start().await;
    let post = async |body: &Json, version: &str| {
        let request = site.request("POST", "/mcp").header("mcp-protocol-version", version);
        site.ask(request.json(body)).await
    };
    for version in WITH_HANDSHAKE.into_iter().chain([STATELESS]) {
        for body in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        ] {
            let reply = post(&body, version).await.expect(202);
            assert!(reply.body.is_empty());
        }
    }
    let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    post(&body, "2030-01-01").await.expect(400);
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn there_is_no_stream_of_the_servers_own_and_no_session_to_end() {
    let site = Site::start().await;
    for method in ["GET", "DELETE", "PUT"] {
        let request = site.request(method, "/mcp").header("accept", "text/event-stream");
        let reply = site.ask(request).await;
        assert_eq!(reply.header("allow"), Some("POST"));
        reply.expect_error(405, "method_not_allowed");
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_the_numbers_of_json_rpc() {
    let site = Site::start().await;
    let post = async |body: &str| site.ask(site.request("POST", "/mcp").body(body)).await;
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("5", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":[],"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, -32602),
    ] {
        let reply = post(body).await.expect(400).json();
        assert_eq!(reply["error"]["code"], code, "{body}: {reply}");
        assert!(reply["error"]["data"]["hint"].is_string(), "{reply}");
    }
    let unknown = post(r#"{"jsonrpc":"2.0","id":"a","method":"roots/list"}"#).await;
    let unknown = unknown.expect(200).json();
    assert_eq!((&unknown["error"]["code"], &unknown["id"]), (&json!(-32601), &json!("a")));
}

#[tokio::test]
async fn a_stateless_request_must_agree_with_its_headers() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    let check = async |change: fn(String) -> String, code: i64| {
        let params = json!({"name": "test_echo", "arguments": {}});
        let bytes = client.message("tools/call", params).to_bytes(site.address);
        let text = change(String::from_utf8(bytes).unwrap());
        let mut connection = catena_tests::http::Connection::open(site.address).await.unwrap();
        connection.send_bytes(text.as_bytes()).await.unwrap();
        let reply = tokio::time::timeout(TIMEOUT, connection.reply()).await.unwrap();
        let reply = reply.unwrap().expect(400).json();
        assert_eq!(reply["error"]["code"], code, "{reply}");
        assert_eq!(reply["id"], 1, "{reply}");
        reply
    };
    check(|text| text.replace("mcp-method: tools/call", "mcp-method: tools/list"), -32020).await;
    check(|text| text.replace("mcp-method: tools/call", "x-other: 1"), -32020).await;
    check(|text| text.replace("mcp-name: test_echo", "mcp-name: test_error"), -32020).await;
    check(|text| text.replace("mcp-name: test_echo", "x-other: 1"), -32020).await;
    check(|text| text.replace("version: 2026-07-28", "version: 2025-11-25"), -32020).await;
    check(|text| text.replace("mcp-name: ", "mcp-name: a\r\nmcp-name: "), -32020).await;
    check(|text| text.replace("clientCapabilities\"", "clientCapabilitiez\""), -32602).await;
    let reply = check(|text| text.replace("2026-07-28", "2030-01-01"), -32022).await;
    assert_eq!(reply["error"]["data"]["requested"], "2030-01-01");
    assert_eq!(reply["error"]["data"]["supported"][0], STATELESS);
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn batches_are_for_the_revisions_that_have_them() {
    let site = Site::start().await;
    let post = async |body: &Json, version: Option<&str>| {
        let request = site.request("POST", "/mcp").json(body);
        site.ask(match version {
            Some(version) => request.header("mcp-protocol-version", version),
            None => request,
        })
        .await
    };
    let ping = |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
        "params": {"name": "test_echo", "arguments": {"a": 1}}});
    let start = json!({"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {}});
    let several = json!([ping(1), note, 5, call, start]);
    for version in [None, Some("2024-11-05"), Some("2025-03-26")] {
        let answers = post(&several, version).await.expect(200).json();
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert_eq!((&answers[0]["id"], &answers[0]["result"]), (&json!(1), &json!({})));
        assert_eq!(answers[1]["error"]["code"], -32600);
        assert_eq!(answers[2]["result"]["structuredContent"], json!({"a": 1}));
        assert_eq!(answers[3]["error"]["code"], -32600);
    }
    post(&json!([note, note]), None).await.expect(202);
    let many: Vec<Json> = (0..65).map(ping).collect();
    let refused = [
        (&several, Some("2025-06-18")),
        (&several, Some(STATELESS)),
        (&json!([]), None),
        (&json!(many), None),
    ];
    for (body, version) in refused {
        let reply = post(body, version).await.expect(400).json();
        assert_eq!(reply["error"]["code"], -32600, "{reply}");
    }
}

#[tokio::test]
async fn the_endpoint_is_protected_like_the_other_apis() {
    let site = Site::start().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let request = || site.request("POST", "/mcp").json(&ping);
    site.ask(request().header("origin", "https://evil.example"))
        .await
        .expect_error(403, "foreign_origin");
    site.ask(request().header("host", "evil.example")).await.expect_error(403, "foreign_host");
    site.ask(request().header("authorization", "Bearer nonsense"))
        .await
        .expect_error(401, "token_invalid");
    let large = site.request("POST", "/mcp").body("x".repeat(10_000_001));
    site.ask(large).await.expect_error(413, "body_too_large");

    let closed = Site::with(|flags| flags.public_access = Some("off".to_owned())).await;
    let refused = closed.post("/mcp", &ping).await;
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    refused.expect_error(401, "token_missing");
    let caller = closed.caller(1).await;
    caller.post("/mcp", &ping).await.expect(200);
    let result = McpClient::new(&caller, STATELESS).result("tools/list", json!({})).await;
    assert_eq!(result["cacheScope"], "private");
}

#[tokio::test]
async fn too_many_calls_are_refused_as_by_the_other_apis() {
    let site = Site::with(|flags| {
        flags.rate = Some("0.01".to_owned());
        flags.burst = Some("1".to_owned());
    })
    .await;
    let old = McpClient::new(&site, "2025-11-25");
    old.call("test_echo", json!({})).await;
    for (client, status) in [(old, 200), (McpClient::new(&site, STATELESS), 429)] {
        let params = json!({"name": "test_echo", "arguments": {}});
        let reply = client.reply("tools/call", params).await.expect(status);
        assert!(reply.header("retry-after").is_some());
        let error = reply.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(-32603), &json!("rate_limited"))
        );
    }
    assert_eq!(site.job_count().await, 1);
}

#[tokio::test]
async fn the_endpoint_is_found_under_the_name_that_clients_use() {
    let site = Site::start().await;
    for path in ["/.well-known/mcp", "/.well-known/mcp.json"] {
        let found = site.get(path).await.expect(200).json();
        let url = format!("http://{}/mcp", site.address);
        assert_eq!(found["mcp_version"], STATELESS);
        assert_eq!(found["tools_endpoint"], url.as_str());
        assert_eq!(found["endpoint"], json!({"type": "streamable-http", "url": url}));
    }
    let public = "https://venue.example";
    let site = Site::with(|flags| flags.public_url = Some(public.to_owned())).await;
    let found = site.get("/.well-known/mcp").await.expect(200).json();
    assert_eq!(found["server_url"], format!("{public}/mcp"));
    assert_eq!(found["endpoint"]["url"], format!("{public}/mcp"));
}

#[tokio::test]
async fn assets_of_the_caller_are_resources() {
    let site = Site::start().await;
    let register = async |metadata: Json, content: Option<&[u8]>| {
        let id = site.post("/api/v1/assets", &metadata).await.json().as_str().unwrap().to_owned();
        if let Some(content) = content {
            let path = format!("/api/v1/assets/{id}/content");
            site.ask(site.request("PUT", &path).body(content)).await.expect(200);
        }
        id
    };
    let text = json!({ "name": "notes", "description": "Some notes", "content": { "contentType": "text/plain" } });
    register(text, Some(b"hello")).await;
    let bytes = json!({ "name": "bytes", "content": { "contentType": "image/png" } });
    register(bytes, Some(&[0xff, 0, 1])).await;
    register(json!({ "name": "plain" }), None).await;
    for revision in ["2025-06-18", "2025-11-25", STATELESS] {
        let client = McpClient::new(&site, revision);
        let listed = client.result("resources/list", json!({})).await;
        let resources = listed["resources"].as_array().unwrap();
        assert_eq!(resources.len(), 3, "{listed}");
        assert_eq!(listed["cacheScope"].is_string(), revision == STATELESS);
        let uri = |name: &str| {
            let found = resources.iter().find(|resource| resource["name"] == name).unwrap();
            found["uri"].as_str().unwrap().to_owned()
        };
        let read = async |uri: String| {
            let result = client.result("resources/read", json!({ "uri": uri })).await;
            assert_eq!(result["contents"][0]["uri"], uri);
            result["contents"][0].clone()
        };
        let notes = read(uri("notes")).await;
        assert_eq!((&notes["text"], &notes["mimeType"]), (&json!("hello"), &json!("text/plain")));
        assert_eq!(read(uri("bytes")).await["blob"], "/wAB");
        let plain = read(uri("plain")).await;
        assert_eq!(plain["mimeType"], "application/json");
        assert!(plain["text"].as_str().unwrap().contains("plain"));
        let templates = client.result("resources/templates/list", json!({})).await;
        assert!(
            templates["resourceTemplates"][0]["uriTemplate"].as_str().unwrap().ends_with("/a/{id}")
        );
        for uri in [uri("plain").replace("/a/", "/b/"), "file:///etc/passwd".to_owned()] {
            let (_, code, _) = client.refusal("resources/read", json!({ "uri": uri })).await;
            assert_eq!(code, -32002);
        }
    }
}
