//! Requests whose bodies and parameters are extreme.

use catena_tests::http::{Reply, Request};
use catena_tests::site::id_of;
use serde_json::{Value as Json, json};

use super::Victim;

/// Checks that a request was refused or done, and never broke anything.
fn check(name: &str, reply: &Reply) {
    let is_fine = reply.status() < 500 || reply.status() == 503 || reply.status() == 504;
    assert!(is_fine, "{name}: {} {}", reply.status(), String::from_utf8_lossy(&reply.body));
}

fn invocation(input: &str) -> Vec<u8> {
    format!(r#"{{"operation":"test:echo","input":{input}}}"#).into_bytes()
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

/// Bodies that no reader of JSON likes.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let keys: Vec<String> = (0..100_000).map(|_| r#""k":1"#.to_owned()).collect();
    let members: Vec<String> = (0..100_000).map(|n| format!(r#""{n}":1"#)).collect();
    vec![
        ("100,000 open brackets", invocation(&"[".repeat(100_000))),
        ("100,000 nested arrays", invocation(&nested("[", "]", 100_000))),
        ("100,000 nested objects", invocation(&nested(r#"{"a":"#, "}", 100_000))),
        ("129 nested arrays", invocation(&nested("[", "]", 129))),
        ("a number beyond doubles", invocation("1e999999999")),
        ("a number of 1 MB", invocation(&"9".repeat(1_000_000))),
        ("a fraction of 1 MB", invocation(&format!("0.{}", "9".repeat(1_000_000)))),
        ("an exponent of 1 MB", invocation(&format!("1e{}", "9".repeat(1_000_000)))),
        ("one key 100,000 times", invocation(&format!("{{{}}}", keys.join(",")))),
        ("100,000 members", invocation(&format!("{{{}}}", members.join(",")))),
        ("a lone surrogate", invocation(r#""\ud800""#)),
        ("a million escapes", invocation(&format!("\"{}\"", r"\u0000".repeat(1_000_000)))),
        ("no UTF-8", [&b"{\"operation\":\"test:echo\",\"input\":\"\xff\xfe\"}"[..]].concat()),
        ("a million spaces", [" ".repeat(1_000_000).as_bytes(), &invocation("1")].concat()),
        ("two documents", [invocation("1"), invocation("2")].concat()),
        ("nothing", Vec::new()),
        ("a text", b"\"test:echo\"".to_vec()),
        ("a reference of 1 MB", format!(r#"{{"operation":"{}"}}"#, "a:".repeat(500_000)).into()),
        (
            "10,000 tags",
            json!({"operation": "test:echo", "tags": vec!["t"; 10_000]}).to_string().into(),
        ),
        ("a negative time limit", br#"{"operation":"test:echo","timeoutMs":-1}"#.to_vec()),
        ("an endless time limit", br#"{"operation":"test:never","timeoutMs":1e300}"#.to_vec()),
        ("an endless wait", br#"{"operation":"test:echo","wait":1e300}"#.to_vec()),
        (
            "unknown members",
            format!("{{{},\"operation\":\"test:echo\"}}", members[..10_000].join(",")).into(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    for (name, body) in bodies() {
        for path in ["/api/v1/invoke", "/api/v1/run", "/api/v1/assets", "/mcp", "/canvas/v1/jobs"] {
            let request = Request::new("POST", path)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .body(body.clone());
            check(name, &venue.under(name, venue.attacker.ask(request)).await);
        }
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_parameter_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    for n in 0..20 {
        venue.attacker.invoke("test:echo", json!({"n": n})).await;
    }
    let job = id_of(&venue.attacker.invoke("test:echo", json!({})).await);
    let long = "x".repeat(4_000);
    let segments = vec!["a"; 3_000].join("/");
    let paths = [
        "/api/v1/jobs?limit=1000000000".to_owned(),
        "/api/v1/jobs?limit=-1".to_owned(),
        "/api/v1/jobs?limit=10&offset=18446744073709551615".to_owned(),
        "/api/v1/jobs?limit=10&cursor=99999999999999999999999".to_owned(),
        format!("/api/v1/jobs?limit=10&cursor={long}"),
        format!("/api/v1/jobs?limit=10&text={long}"),
        "/api/v1/jobs?limit=10&text=%28a%2B%29%2B%24".to_owned(),
        format!("/api/v1/jobs?limit=10&status={}", vec!["FAILED"; 500].join(",")),
        format!("/api/v1/jobs?{}", vec!["tag=a"; 2_000].join("&")),
        "/api/v1/jobs?limit=10&from=-99999999999999999999&to=99999999999999999999".to_owned(),
        "/api/v1/jobs?owner=*".to_owned(),
        "/api/v1/tombstones?limit=1000000000".to_owned(),
        format!("/api/v1/tombstones?after={long}"),
        format!("/api/v1/jobs/{job}/history?from=18446744073709551615&limit=1000"),
        format!("/api/v1/jobs/{job}/history?from=-1&limit=0"),
        format!("/api/v1/values/read?path=w/{segments}&maxSize=99999999999999"),
        format!("/api/v1/values/read?path={long}"),
        "/api/v1/values/slice?path=w/a&offset=18446744073709551615&limit=18446744073709551615"
            .to_owned(),
        "/api/v1/values/inspect?path=w&budget=999999999999".to_owned(),
        "/api/v1/assets?limit=1000000000&offset=18446744073709551615".to_owned(),
        "/canvas/v1/jobs?limit=1000000000&offset=1000000000000".to_owned(),
        format!("/canvas/v1/jobs?type={long}&createdById={long}"),
        format!("/api/v1/users/{long}/jobs"),
        format!("/api/v1/operations/{long}"),
    ];
    for path in &paths {
        let name = &path[..path.len().min(80)];
        check(name, &venue.under(name, venue.attacker.get(path)).await);
    }
    let queues: Vec<String> = (0..10_000).map(|n| format!("q{n}")).collect();
    let jobs = vec![json!({"id": job, "fence": 1}); 20_000];
    let posts = [
        ("/worker/v1/claim", json!({"worker": "w", "queues": queues, "max": 1})),
        (
            "/worker/v1/claim",
            json!({"worker": "w", "queues": ["q"], "max": 1_000_000_000, "waitMs": 0}),
        ),
        ("/worker/v1/claim", json!({"worker": "w", "queues": ["q"], "max": 1, "waitMs": -1})),
        ("/worker/v1/claim", json!({"worker": "x".repeat(100_000), "queues": ["q"], "max": 1})),
        ("/worker/v1/beat", json!({"worker": "w", "jobs": jobs})),
        ("/mcp", json!(vec![json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}); 5_000])),
        ("/mcp", json!([[[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]]])),
        ("/mcp", json!({"jsonrpc": "2.0", "id": "x".repeat(100_000), "method": "tools/list"})),
        (
            "/mcp",
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": long}}),
        ),
        ("/canvas/v1/jobs", json!({"type": long, "data": {}})),
    ];
    for (path, body) in &posts {
        let request = Request::new("POST", path).json(body);
        let request = request.header("accept", "application/json, text/event-stream");
        check(path, &venue.under(path, venue.attacker.ask(request)).await);
    }
    victim.restart().await;
}

/// Inputs of operations that ask for too much.
fn inputs() -> Vec<(&'static str, Json)> {
    let text = "x".repeat(100_000);
    let catastrophic = json!({"type": "string", "pattern": "^(a+)+$"});
    let lookaround = json!({"type": "string", "pattern": "^(?=(a+)+$)a*b\\1$"});
    let a = "a".repeat(50_000);
    let deep = vec!["k"; 5_000].join("/");
    vec![
        ("test:random", json!({"length": 1_000_000_000_000i64})),
        ("test:random", json!({"length": "9999"})),
        ("test:delay", json!({"delay": -1})),
        ("test:delay", json!({"delay": 1e300})),
        ("test:progress", json!({"totalItems": 1_000_000_000, "itemMs": 0})),
        ("test:progress", json!({"totalItems": 1e18, "itemMs": 1e-9})),
        ("schema:validate", json!({"schema": catastrophic, "value": format!("{a}b")})),
        ("schema:validate", json!({"schema": lookaround, "value": a})),
        ("schema:validate", json!({"schema": {"enum": vec![json!({"a": text}); 50]}, "value": 1})),
        ("json:parse", json!({"text": "[".repeat(100_000)})),
        ("json:parse", json!({"text": format!("[{}1]", "1,".repeat(1_000_000))})),
        ("json:path", json!({"value": {}, "path": vec!["a"; 100_000]})),
        ("json:merge", json!({"values": vec![json!({"a": text}); 50]})),
        ("json:stringify", json!({"value": "\"".repeat(1_000_000)})),
        ("covia:write", json!({"path": format!("w/{deep}"), "value": 1})),
        ("covia:write", json!({"path": format!("w/{text}"), "value": 1})),
        ("covia:write", json!({"path": "w/../../s/x", "value": 1})),
        ("covia:write", json!({"path": "w/99999999999999999999", "value": 1})),
        ("covia:append", json!({"path": "w/list", "value": vec![0; 100_000]})),
        ("covia:slice", json!({"path": "w/list", "offset": 1e18, "limit": 1e18})),
        ("covia:inspect", json!({"paths": vec!["w"; 10_000], "budget": 1e12})),
        ("covia:aggregate", json!({"path": "w", "depth": 1e9, "groupBy": text})),
        ("jobs:control", json!({"filter": {}, "action": "cancel", "expected": 1e18})),
        ("jobs:control", json!({"filter": {"text": text}, "action": "delete"})),
        ("jobs:select", json!({"filter": {}, "limit": 1e18})),
        ("scheduler:schedule", json!({"operation": "test:echo", "cron": "* * * * * * * * *"})),
        ("scheduler:schedule", json!({"operation": "test:echo", "cron": "*/0 0 31 2 *"})),
        ("scheduler:schedule", json!({"operation": "test:echo", "cron": text})),
        ("scheduler:schedule", json!({"operation": "test:echo", "at": 1e300})),
        (
            "scheduler:schedule",
            json!({"operation": "test:echo", "cron": "0 0 30 2 *", "timezone": text}),
        ),
        ("http:get", json!({"url": "http://127.0.0.1:1/"})),
        ("http:get", json!({"url": "http://[::ffff:169.254.169.254]/"})),
        ("http:get", json!({"url": "http://0x7f.1/"})),
        ("http:get", json!({"url": "file:///etc/passwd"})),
        ("http:get", json!({"url": format!("http://{text}/")})),
        ("http:post", json!({"url": "http://localhost/", "headers": {"a\r\nb": "c\r\nd"}})),
        ("grid:run", json!({"operation": "grid:run", "input": {"operation": "grid:run"}})),
        ("grid:job-result", json!({"id": text})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_input_of_an_operation_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    for (operation, input) in inputs() {
        let body = json!({"operation": operation, "input": input, "wait": 2_000});
        let attack = venue.attacker.post("/api/v1/invoke", &body);
        check(operation, &venue.under(operation, attack).await);
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_contains_itself_can_be_neither_read_nor_grown_without_end() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let write = json!({"path": "w/x/a", "value": "x".repeat(1_000)});
    assert_eq!(venue.attack("covia:write", &write).await.json()["status"], "COMPLETE");
    // Each copy doubles what the value would take as JSON, and takes next to nothing in the store.
    for step in 0..60 {
        for (from, to) in [("w/x", "w/y/a"), ("w/x", "w/y/b"), ("w/y", "w/x")] {
            let input = json!({"from": from, "to": to});
            let reply = venue.under("a copy", venue.attack("covia:copy", &input)).await;
            check(&format!("copy {step}"), &reply);
        }
    }
    for path in [
        "/api/v1/values/read?path=w/x",
        "/api/v1/values/read?path=w/x&maxSize=100000000",
        "/api/v1/values/list?path=w/x",
        "/api/v1/values/slice?path=w/x",
        "/api/v1/values/count?path=w/x",
        "/api/v1/values/inspect?path=w/x",
    ] {
        check(path, &venue.under(path, venue.attacker.get(path)).await);
    }
    for (operation, input) in [
        ("covia:read", json!({"path": "w/x"})),
        ("covia:read", json!({"path": "w/x", "maxSize": 16_000_000})),
        ("covia:count", json!({"path": "w/x", "depth": 16})),
        ("covia:aggregate", json!({"path": "w/x", "depth": 16})),
    ] {
        check(operation, &venue.under(operation, venue.attack(operation, &input)).await);
    }
    victim.restart().await;
}
