//! Operations as tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use catena_engine::{Adapter, Call, ExecutionMode, Failure, Registration, Turn, TurnFuture};
use catena_tests::mcp::{McpClient, STATELESS};
use catena_tests::site::Site;
use catena_value::{Value, json as value_json};
use serde_json::{Value as Json, json};

fn names(result: &Json) -> Vec<String> {
    let tools = result["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn tool<'a>(result: &'a Json, name: &str) -> &'a Json {
    let tools = result["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap()
}

#[tokio::test]
async fn every_operation_of_the_catalogue_is_a_tool_with_a_portable_name() {
    let site = Site::start().await;
    let catalogue = site.get("/api/v1/operations").await.expect(200).json();
    let result = McpClient::new(&site, "2025-06-18").result("tools/list", json!({})).await;
    let names = names(&result);
    assert_eq!(names.len(), catalogue.as_array().unwrap().len());
    let unique: BTreeSet<&String> = names.iter().collect();
    assert!(unique.into_iter().eq(names.iter()), "unique and in order: {names:?}");
    for name in &names {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        assert!((1..=64).contains(&name.len()) && name.bytes().all(is_plain), "{name}");
    }
    for tool in result["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        let output = &tool["outputSchema"];
        assert!(output.is_null() || output["type"] == "object", "{tool}");
        assert!(tool["title"].is_string() && tool["description"].is_string(), "{tool}");
        assert!(tool["execution"].is_null(), "{tool}");
    }
    let echo = tool(&result, "test_echo");
    assert_eq!(echo["inputSchema"], json!({"type": "object"}));
    let hints = &echo["annotations"];
    assert_eq!((&hints["readOnlyHint"], &hints["idempotentHint"]), (&json!(true), &json!(true)));
    assert_eq!(tool(&result, "http_post")["annotations"]["readOnlyHint"], false);
    let random = &tool(&result, "test_random")["outputSchema"];
    assert_eq!(random["required"], json!(["bytes"]));
}

#[tokio::test]
async fn the_list_differs_only_in_what_a_revision_has() {
    let site = Site::start().await;
    let list =
        async |revision| McpClient::new(&site, revision).result("tools/list", json!({})).await;
    let old = list("2025-11-25").await;
    let new = list(STATELESS).await;
    assert_eq!(names(&old), names(&new));
    assert_eq!(tool(&old, "test_echo")["execution"]["taskSupport"], "optional");
    assert!(tool(&new, "test_echo")["execution"].is_null());
    assert_eq!((&old["ttlMs"], &old["resultType"]), (&Json::Null, &Json::Null));
    assert_eq!((&new["cacheScope"], &new["resultType"]), (&json!("public"), &json!("complete")));
    assert!(new["ttlMs"].as_i64().unwrap() > 0);
    assert_eq!(old, list("2025-11-25").await, "the list is the same every time");
}

#[tokio::test]
async fn a_cursor_goes_on_where_a_page_ended() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    let all = names(&client.result("tools/list", json!({})).await);
    let middle = all.len() / 2;
    let rest = client.result("tools/list", json!({"cursor": all[middle]})).await;
    assert_eq!(names(&rest), all[middle + 1..]);
    assert!(rest["nextCursor"].is_null());
    let end = client.result("tools/list", json!({"cursor": all.last()})).await;
    assert!(names(&end).is_empty());
    for bad in [json!("nothing"), json!(5)] {
        let (status, code, _) = client.refusal("tools/list", json!({"cursor": bad})).await;
        assert_eq!((status, code), (400, -32602));
    }
}

#[tokio::test]
async fn an_operator_may_show_less() {
    let wanted = "json,test:echo,v/test/ops/error,no:such";
    let site = Site::with(|flags| flags.mcp_tools = Some(wanted.to_owned())).await;
    let client = McpClient::new(&site, STATELESS);
    let listed = names(&client.result("tools/list", json!({})).await);
    assert_eq!(
        listed,
        [
            "json_assoc",
            "json_cond",
            "json_merge",
            "json_parse",
            "json_path",
            "json_select",
            "json_stringify",
            "test_echo",
            "test_error",
        ]
    );
    let (_, code, error) =
        client.refusal("tools/call", json!({"name": "test_random", "arguments": {}})).await;
    assert_eq!(code, -32602);
    assert_eq!(error["message"], "Unknown tool: test_random");
    let none = Site::with(|flags| flags.mcp_tools = Some(String::new())).await;
    let none = McpClient::new(&none, STATELESS).result("tools/list", json!({})).await;
    assert_eq!(none["tools"], json!([]));
}

/// Operations whose inputs and outputs are not objects, and whose names contain special characters.
struct Odd;

impl Adapter for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn description(&self) -> &'static str {
        "Operations that are unlike tools."
    }

    fn operations(&self) -> Vec<Registration> {
        let registration = |name: &'static str, operation: Json| {
            let metadata = json!({"name": name, "description": name, "operation": operation});
            let metadata = value_json::read(metadata.to_string().as_bytes()).unwrap();
            Registration { name, metadata, mode: ExecutionMode::Inline }
        };
        let text = json!({"type": "string"});
        let texts =
            json!({"type": "array", "items": {"$ref": "#/$defs/text"}, "$defs": {"text": text}});
        vec![
            registration(
                "one",
                json!({"adapter": "odd:one", "toolName": "my tool!",
                "input": text, "output": texts}),
            ),
            registration(
                "two",
                json!({"adapter": "odd:two", "toolName": "my tool?",
                "input": {"type": ["object", "null"], "properties": {"ucans": {}}}}),
            ),
        ]
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        Ok(match call.operation.name() {
            "one" => Value::Vector([call.input.clone()].into_iter().collect()),
            _ => call.input.clone(),
        })
    }

    fn run(&self, call: Call) -> TurnFuture {
        let done = self.run_inline(&call);
        Box::pin(async move { done.map_or_else(Turn::Failed, Turn::Complete) })
    }
}

#[tokio::test]
async fn operations_that_are_unlike_tools_are_tools_all_the_same() {
    let site = Site::with_adapters(|_| {}, vec![Arc::new(Odd)]).await;
    let client = McpClient::new(&site, "2025-06-18");
    let result = client.result("tools/list", json!({})).await;
    let one = tool(&result, "my_tool_");
    assert_eq!(
        one["inputSchema"],
        json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})
    );
    assert_eq!(one["outputSchema"]["properties"]["result"]["type"], "array");
    let answer = client.call("my_tool_", json!({"input": "a"})).await;
    assert_eq!(answer["structuredContent"], json!({"result": ["a"]}));
    assert_eq!(answer["content"][0]["text"], r#"["a"]"#);
    let refused = client.call("my_tool_", json!({"input": 5})).await;
    assert_eq!(refused["_meta"]["catena/status"], "REJECTED");

    let two = tool(&result, "my_tool__2");
    assert_eq!(two["inputSchema"]["type"], "object");
    let answer = client.call("my_tool__2", json!({"ucans": 5})).await;
    assert_eq!(answer["structuredContent"], json!({"ucans": 5}), "a member of its own");
}

#[tokio::test]
async fn the_named_operations_of_a_caller_are_its_tools() {
    let site = Site::start().await;
    let (ann, bob) = (site.caller(1).await, site.caller(2).await);
    let input = json!({"type": "object", "required": ["text"]});
    let operation = json!({"adapter": "test:echo", "input": input});
    let body = json!({"name": "Shout", "description": "Says it.", "operation": operation});
    let body = body.to_string();
    let request = ann.request("PUT", "/api/v1/operations/shout.v2").body(body.as_bytes());
    ann.ask(request).await.expect(200);
    let client = McpClient::new(&ann, STATELESS);
    let listed = client.result("tools/list", json!({})).await;
    let shout = tool(&listed, "o_shout_v2");
    assert_eq!((&shout["title"], &shout["description"]), (&json!("Shout"), &json!("Says it.")));
    assert_eq!(shout["inputSchema"]["required"], json!(["text"]));
    assert_eq!(listed["cacheScope"], "private");
    let called = client.call("o_shout_v2", json!({"text": "hello"})).await;
    assert_eq!(called["structuredContent"], json!({"text": "hello"}));
    let job = called["_meta"]["catena/job"].as_str().unwrap();
    assert_eq!(ann.job(job).await["op"], "o/shout.v2");
    let other = McpClient::new(&bob, STATELESS);
    assert!(
        !names(&other.result("tools/list", json!({})).await).contains(&"o_shout_v2".to_owned())
    );
    let unknown = json!({"name": "o_shout_v2", "arguments": {"text": "x"}});
    let (_, code, _) = other.refusal("tools/call", unknown).await;
    assert_eq!(code, -32602);
}

#[tokio::test]
async fn the_operator_selects_which_named_operations_are_tools() {
    let site = Site::with(|flags| flags.mcp_tools = Some("json,o/one".to_owned())).await;
    for name in ["one", "two"] {
        let body = json!({"name": name, "operation": {"adapter": "test:echo"}}).to_string();
        let request = site.request("PUT", &format!("/api/v1/operations/{name}"));
        site.ask(request.body(body.as_bytes())).await.expect(200);
    }
    let listed = McpClient::new(&site, STATELESS).result("tools/list", json!({})).await;
    let names = names(&listed);
    assert!(
        names.contains(&"o_one".to_owned()) && !names.contains(&"o_two".to_owned()),
        "{names:?}"
    );
}
