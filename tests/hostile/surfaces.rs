//! Attacks on the interfaces beyond jobs: histories, workspaces, agents, secrets, workers, executions,
//! resources of MCP, content and compression.

use std::time::Duration;

use catena_tests::http::{Reply, Request};
use catena_tests::site::id_of;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Victim, is_release};

/// Nearly as many bytes as a request may have.
const LARGE: usize = 9_000_000;

/// Checks that a request was refused or done, and never broke anything.
fn check(name: &str, reply: &Reply) {
    let is_fine = reply.status() < 500 || reply.status() == 503 || reply.status() == 504;
    assert!(is_fine, "{name}: {} {}", reply.status(), String::from_utf8_lossy(&reply.body));
}

fn nested(depth: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))
}

/// The routes that take JSON, with a job in place of `JOB`.
const ROUTES: [(&str, &str); 21] = [
    ("POST", "/api/v1/invoke"),
    ("POST", "/api/v1/run"),
    ("POST", "/api/v1/assets"),
    ("POST", "/api/v1/histories"),
    ("POST", "/contract/v1/jobs/JOB/cancel"),
    ("POST", "/api/v1/jobs/JOB"),
    ("POST", "/api/v1/jobs/JOB/rerun"),
    ("PUT", "/api/v1/jobs/JOB/cancel"),
    ("PUT", "/api/v1/operations/name"),
    ("PUT", "/api/v1/secrets/name"),
    ("POST", "/worker/v1/jobs/JOB/step"),
    ("POST", "/api/v1/requests/JOB"),
    ("POST", "/canvas/v1/jobs"),
    ("POST", "/canvas/v1/jobs/JOB/control"),
    ("POST", "/contract/v1/jobs"),
    ("POST", "/contract/v1/executor/announce"),
    ("POST", "/worker/v1/claim"),
    ("POST", "/worker/v1/beat"),
    ("POST", "/worker/v1/jobs/JOB/end"),
    ("POST", "/worker/v1/jobs/JOB/call"),
    ("POST", "/mcp"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_json_harms_any_interface() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let job = id_of(&venue.attacker.invoke("test:chat", json!({})).await);
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("127 nested objects", nested(127).into()),
        ("10,000 nested objects", nested(10_000).into()),
        ("an array", b"[]".to_vec()),
        ("null", b"null".to_vec()),
        ("no JSON", b"\xff\xfe{".to_vec()),
        ("a text of 1 MB", format!("\"{}\"", "x".repeat(1_000_000)).into()),
    ];
    for (method, path) in ROUTES {
        let path = path.replace("JOB", &job);
        for (name, body) in &bodies {
            let request = Request::new(method, &path)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .body(body.clone());
            let name = format!("{name} to {path}");
            check(&name, &venue.under(&name, venue.attacker.ask(request)).await);
        }
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_history_that_is_imported_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let job = id_of(&venue.attacker.invoke("test:echo", json!({"a": 1})).await);
    let path = format!("/api/v1/jobs/{job}/history");
    let real = venue.attacker.get(&path).await.expect(200).json();
    let record = |n: usize| {
        json!({"id": format!("0x{n:064x}"),
            "record": {"status": "STARTED", "prev": format!("0x{n:064x}"), "updated": n}})
    };
    let records: Vec<Json> = (0..20_000).map(record).collect();
    let documents = [
        ("a real one a thousand times", json!({"histories": vec![real.clone(); 1_000]})),
        ("20,000 records that belong nowhere", json!({"job": job, "records": records})),
        ("records that follow themselves", json!({"job": job, "records": vec![record(1); 5_000]})),
        ("2,000 empty histories", json!({"histories": vec![json!({}); 2_000]})),
        ("a venue of 1 MB", json!({"venue": "v".repeat(1_000_000), "records": []})),
    ];
    for (name, document) in &documents {
        let attack = venue.attacker.post("/api/v1/histories", document);
        check(name, &venue.under(name, attack).await);
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_agent_secret_or_workspace_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let text = "x".repeat(200_000);
    let inputs = [
        ("agent:create", json!({"agentId": text})),
        ("agent:create", json!({"agentId": "../../x", "config": {"operation": "agent:run"}})),
        ("agent:create", json!({"agentId": "a", "config": {"operation": "agent:request"}})),
        ("agent:create", json!({"agentId": "b", "state": {"big": text}})),
        (
            "agent:create",
            json!({"agentId": "c", "caps": {"grant": vec![json!({"with": "w/", "can": "*"}); 5_000]}}),
        ),
        ("agent:request", json!({"agentId": "a", "input": {"agentId": "a"}, "wait": false})),
        ("agent:message", json!({"agentId": "nobody", "message": text})),
        ("agent:message", json!({"agentId": "b", "message": {"a": text}})),
        ("agent:trigger", json!({"agentId": "a"})),
        ("agent:wake", json!({"agentId": "b", "at": 1e300})),
        ("agent:list", json!({"limit": 1e18})),
        ("agent:delete", json!({"agentId": "a"})),
        ("secret:set", json!({"name": text, "value": "1"})),
        ("secret:set", json!({"name": "\u{1b}[2J", "value": "1"})),
        ("secret:set", json!({"name": "a/../b", "value": text})),
        ("secret:get", json!({"name": "../venue.key"})),
        ("secret:grant", json!({"name": "a", "to": text})),
        ("covia:write", json!({"path": "s/x", "value": 1})),
        ("covia:write", json!({"path": "g/x", "value": 1})),
        ("covia:read", json!({"path": "s/OPENAI_API_KEY"})),
        ("covia:read", json!({"path": "did:key:z6Mk/w/x"})),
        ("covia:copy", json!({"from": "w", "to": "w/w/w/w"})),
        ("covia:list", json!({"path": "j", "limit": 1e18, "offset": -5})),
        ("covia:inspect", json!({"path": "w", "budget": -1})),
        ("ucan:issue", json!({"audience": text, "capabilities": []})),
        ("ucan:revoke", json!({"token": text})),
        ("llm:chat", json!({"messages": [], "model": "m", "url": "http://169.254.169.254/"})),
        (
            "llm:chat",
            json!({"messages": vec![json!({"role": "user", "content": "x"}); 20_000], "model": "m", "url": "http://127.0.0.1:1"}),
        ),
        ("llm:agent", json!({"state": {"config": {"tools": vec!["test:echo"; 5_000]}}})),
        ("exec:python", json!({"code": text, "timeout": -1})),
        ("exec:python", json!({"code": "1", "limits": {"memory_mb": 1e12, "timeout_ms": 1e18}})),
    ];
    for (operation, input) in &inputs {
        let body = json!({"operation": operation, "input": input, "wait": 2_000});
        let attack = venue.attacker.post("/api/v1/invoke", &body);
        check(operation, &venue.under(operation, attack).await);
    }
    // Questions that take much more memory than their JSON, all of which a list has.
    let question = json!(vec![0; 31_000]);
    for _ in 0..if is_release() { 400 } else { 40 } {
        let body = json!({"operation": "jobs:ask", "input": {"question": question}, "wait": 0});
        check("a question", &venue.attacker.post("/api/v1/invoke", &body).await);
    }
    let lists = venue.send_all(vec![Request::new("GET", "/api/v1/requests"); 8]);
    for reply in venue.under("8 lists of long questions", lists).await {
        check("a list of questions", &reply);
        assert!([200, 429].contains(&reply.status()), "{}", reply.text());
    }
    // Many small ones.
    for n in 0..200 {
        let input = json!({"agentId": format!("many{n}")});
        let body = json!({"operation": "agent:create", "input": input});
        check("many agents", &venue.attacker.post("/api/v1/invoke", &body).await);
    }
    let list = json!({"operation": "agent:list", "input": {}});
    check(
        "agent:list",
        &venue.under("200 agents", venue.attacker.post("/api/v1/run", &list)).await,
    );
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_execution_or_file_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let digest = format!("sha256:{}", "0".repeat(64));
    let requests = [
        ("PUT", format!("/contract/v1/datasets/{digest}"), "x".repeat(1_000_000)),
        ("PUT", "/contract/v1/datasets/sha256:../../etc/passwd".to_owned(), "x".to_owned()),
        ("PUT", "/contract/v1/datasets/md5:0".to_owned(), "x".to_owned()),
        ("GET", "/contract/v1/datasets/sha256:0".to_owned(), String::new()),
        ("GET", format!("/contract/v1/jobs/0/artifacts/{}", "a".repeat(3_000)), String::new()),
        (
            "GET",
            "/contract/v1/jobs/00000000-0000-7000-8000-000000000000/artifacts/a/content?expires=99999999999999999999&signature=%ff".to_owned(),
            String::new(),
        ),
        ("GET", "/contract/v1/jobs?limit=-1&cursor=%00".to_owned(), String::new()),
        ("PUT", format!("/contract/v1/executor/jobs/0/artifacts/{digest}?fence=-1"), "x".to_owned()),
        ("PUT", format!("/worker/v1/blobs/{digest}"), "x".repeat(100_000)),
        ("GET", format!("/worker/v1/blobs/{digest}"), String::new()),
    ];
    for (method, path, body) in requests {
        let request = Request::new(method, &path).body(body);
        let name = &path[..path.len().min(60)];
        let reply = venue.under(name, venue.attacker.ask(request)).await;
        check(name, &reply);
        assert!(!String::from_utf8_lossy(&reply.body).contains("root:"), "{name}");
    }
    let limits = json!({"timeout_ms": -1, "cpu_ms": 1e18, "memory_mb": 0, "max_output_kb": 1e18});
    let bodies = [
        ("impossible limits", json!({"job_type": "object_execute", "limits": limits})),
        (
            "10,000 targets",
            json!({"job_type": "object_execute", "target_object_ids": vec!["a"; 10_000]}),
        ),
        ("an unknown type", json!({"job_type": "../../x", "inputs": {}})),
        (
            "code of 5 MB",
            json!({"job_type": "object_execute", "inputs": {"object": {"code": "x".repeat(5_000_000)}}}),
        ),
        (
            "5,000 dependencies",
            json!({"job_type": "object_execute", "inputs": {"object": {"dependencies": vec![json!({"kind": "dataset", "digest": digest}); 5_000]}}}),
        ),
    ];
    for (name, body) in &bodies {
        let attack = venue.attacker.post("/contract/v1/jobs", body);
        check(name, &venue.under(name, attack).await);
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_range_compression_or_upload_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let asset = venue.attacker.post("/api/v1/assets", &json!({"name": "large"})).await.expect(201);
    let asset = asset.json().as_str().unwrap().to_owned();
    let path = format!("/api/v1/assets/{asset}/content");
    let upload = Request::new("PUT", &path).body(vec![b'x'; 5_000_000]);
    check("an upload", &venue.under("an upload", venue.attacker.ask(upload)).await);
    let many = format!("bytes={}", vec!["0-1"; 1_000].join(","));
    for range in [
        "bytes=0-",
        "bytes=-5",
        "bytes=5-1",
        "bytes=18446744073709551615-",
        "bytes=-0",
        "bytes=",
        "lines=1-2",
        "bytes=0-18446744073709551616",
        many.as_str(),
    ] {
        let request = Request::new("GET", &path).header("range", range);
        let name = format!("range {}", &range[..range.len().min(30)]);
        check(&name, &venue.under(&name, venue.attacker.ask(request)).await);
    }
    for _ in 0..3 {
        // It belongs to its content, and the method does not exist.
        let remove = venue.attacker.ask(Request::new("DELETE", &path)).await;
        remove.expect_error(405, "method_not_allowed");
    }
    let job = venue.attacker.invoke("test:echo", json!("x".repeat(3_000_000))).await;
    let path = format!("/api/v1/jobs/{}", id_of(&job));
    let compressed = |n: usize| {
        let accepted =
            ["gzip", "gzip;q=0", "gzip, gzip, gzip", "*;q=0.5", "br, zstd", "\u{1}"][n % 6];
        Request::new("GET", &path).header("accept-encoding", accepted)
    };
    let reads = venue.send_all((0..64).map(compressed).collect());
    for reply in venue.under("64 compressed reads", reads).await {
        check("a compressed read", &reply);
    }
    // A compressed request is not decompressed: nothing can explode.
    let bomb = Request::new("POST", "/api/v1/invoke")
        .header("content-encoding", "gzip")
        .header("content-type", "application/json")
        .body(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0]);
    let reply = venue.under("a compressed request", venue.attacker.ask(bomb)).await;
    assert!((400..500).contains(&reply.status()), "{}", reply.text());
    let form = Request::new("POST", "/api/v1/assets")
        .header("content-type", "multipart/form-data; boundary=x")
        .body("--x\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n".repeat(20_000));
    let reply = venue.under("a form of 20,000 parts", venue.attacker.ask(form)).await;
    assert!((400..500).contains(&reply.status()), "{}", reply.text());
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_model_client_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let call = |method: &str, params: Json| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let deep: Json = serde_json::from_str(&nested(100)).unwrap();
    let calls = [
        ("resources/read", call("resources/read", json!({"uri": "file:///etc/passwd"}))),
        ("resources/read", call("resources/read", json!({"uri": "x".repeat(100_000)}))),
        ("resources/read", call("resources/read", json!({"uri": "catena://assets/../../x"}))),
        ("resources/list", call("resources/list", json!({"cursor": "x".repeat(100_000)}))),
        ("resources/templates", call("resources/templates/list", json!({"cursor": -1}))),
        ("resources/subscribe", call("resources/subscribe", json!({"uri": "*"}))),
        ("tools/call", call("tools/call", json!({"name": "x".repeat(100_000)}))),
        ("tools/call", call("tools/call", json!({"name": "test_echo", "arguments": deep}))),
        ("tools/call", call("tools/call", json!({"name": "test_echo", "arguments": [1, 2]}))),
        ("tasks/get", call("tasks/get", json!({"taskId": "0x0"}))),
        ("tasks/result", call("tasks/result", json!({"taskId": "\u{0}"}))),
        ("initialize", call("initialize", json!({"protocolVersion": "9999-99-99"}))),
        ("completion", call("completion/complete", json!({"ref": {}, "argument": {}}))),
        ("logging", call("logging/setLevel", json!({"level": 7}))),
        ("a method of 100 kB", call(&"m".repeat(100_000), json!({}))),
        ("no version", json!({"id": 1, "method": "ping"})),
        ("an ID that is an object", json!({"jsonrpc": "2.0", "id": {}, "method": "ping"})),
        ("a response", json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
    ];
    for (name, body) in &calls {
        let request = Request::new("POST", "/mcp")
            .header("accept", "application/json, text/event-stream")
            .json(body);
        let reply = venue.under(name, venue.attacker.ask(request)).await;
        check(name, &reply);
        assert!(!String::from_utf8_lossy(&reply.body).contains("root:"), "{name}");
    }
    for (name, header, value) in [
        ("an unknown version", "mcp-protocol-version", "1.0".to_owned()),
        ("a session of 8 kB", "mcp-session-id", "s".repeat(8_000)),
        ("an event from nowhere", "last-event-id", "x".repeat(1_000)),
    ] {
        let request = Request::new("POST", "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header(header, &value)
            .json(&call("tools/list", json!({})));
        check(name, &venue.under(name, venue.attacker.ask(request)).await);
    }
    victim.restart().await;
}

/// Prompts and lists of assets do more than their small requests seem to ask for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_prompt_or_list_of_assets_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let register = async |metadata: &Json| {
        let reply = venue.attacker.post("/api/v1/assets", metadata).await.expect(201);
        reply.json().as_str().unwrap().to_owned()
    };
    let call = |method: &str, params: Json| {
        Request::new("POST", "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-06-18")
            .json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    };
    let prompt =
        |name: &str, messages: Json| json!({"name": name, "prompt": {"messages": messages}});
    // An argument that is inserted many times.
    let text = "{{a}}".repeat(10_000);
    register(&prompt("insert", json!([{"role": "user", "content": text}]))).await;
    for argument in [json!("x".repeat(LARGE)), json!(vec![0; 500_000])] {
        let get = call("prompts/get", json!({"name": "insert", "arguments": {"a": argument}}));
        let reply = venue.under("an argument 10,000 times", venue.attacker.ask(get)).await;
        assert!(reply.text().contains("more than"), "{}", &reply.text()[..200]);
    }
    // A resource that is embedded many times.
    let asset = register(&json!({"name": "resource"})).await;
    let path = format!("/api/v1/assets/{asset}/content");
    venue.attacker.ask(Request::new("PUT", &path).body(vec![b'x'; 690_000])).await.expect(200);
    let did = venue.attacker.get("/.well-known/did.json").await.json()["id"].clone();
    let uri = format!("{}/a/{asset}", did.as_str().unwrap());
    let message =
        json!({"role": "user", "content": {"type": "resource", "resource": {"uri": uri}}});
    register(&prompt("embed", json!(vec![message; 300]))).await;
    let get = call("prompts/get", json!({"name": "embed"}));
    let reply = venue.under("a resource 300 times", venue.attacker.ask(get)).await;
    assert!(reply.text().contains("more than"), "{}", &reply.text()[..200]);
    // Assets with long metadata, which lists have to parse.
    let count = if is_release() { 60 } else { 12 };
    for number in 0..count {
        let numbers = vec![number; if is_release() { 300_000 } else { 100_000 }];
        register(&json!({"name": format!("long {number}"), "prompt": {"messages": numbers}})).await;
        let long = "d".repeat(1_000_000);
        register(&json!({"name": format!("described {number}"), "description": long})).await;
    }
    for (name, request) in [
        ("8 lists of prompts", call("prompts/list", json!({}))),
        ("8 lists of resources", call("resources/list", json!({}))),
        ("8 lists of assets", Request::new("GET", "/api/v1/assets?limit=1000")),
        ("8 lists of operations", Request::new("GET", "/api/v1/assets?type=operation&limit=1000")),
        (
            "8 completions",
            call(
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "long_1"}, "argument": {"name": "a", "value": ""}}),
            ),
        ),
    ] {
        let replies = venue.under(name, venue.send_all(vec![request; 8])).await;
        replies.iter().for_each(|reply| check(name, reply));
    }
    // A part of the workspace that is larger than what is allowed in memory, taken for the metadata of an asset.
    for number in 0..if is_release() { 30 } else { 6 } {
        let value = number.to_string().repeat(if is_release() { 4_500_000 } else { 200_000 });
        let write = json!({"path": format!("w/large/k{number}"), "value": value});
        assert_eq!(venue.attack("covia:write", &write).await.json()["status"], "COMPLETE");
    }
    let create = json!({"operation": "agent:create",
        "input": {"agentId": "large", "definition": "w/large", "config": "w/large"}});
    for (name, request) in [
        ("a large asset", Request::new("GET", "/api/v1/assets/w%2Flarge")),
        ("a large operation", Request::new("GET", "/api/v1/operations/w%2Flarge")),
        ("a large definition", Request::new("POST", "/api/v1/run").json(&create)),
    ] {
        let replies = venue.under(name, venue.send_all(vec![request; 16])).await;
        replies.iter().for_each(|reply| check(name, reply));
        assert!(replies.iter().all(|reply| reply.status() >= 400), "{name}");
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_lie_end_nothing_and_harm_nobody() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let definition = json!({"name": "q", "operation": {"adapter": "worker", "queue": "q"}});
    let operation = venue.attacker.post("/api/v1/assets", &definition).await.expect(201).json();
    let job = id_of(&venue.attacker.invoke(operation.as_str().unwrap(), json!({})).await);
    let posts = [
        (
            "an end without a claim",
            format!("/worker/v1/jobs/{job}/end"),
            json!({"worker": "w", "fence": 1, "output": 1}),
        ),
        (
            "an end with a great fence",
            format!("/worker/v1/jobs/{job}/end"),
            json!({"worker": "w", "fence": u64::MAX, "output": 1}),
        ),
        (
            "a call without a claim",
            format!("/worker/v1/jobs/{job}/call"),
            json!({"worker": "w", "fence": 1, "key": "k", "operation": "test:echo", "input": 1}),
        ),
        (
            "a beat for everything",
            "/worker/v1/beat".to_owned(),
            json!({"worker": "w", "jobs": vec![json!({"id": job, "fence": 1, "progress": {"a": "x".repeat(1_000)}}); 5_000]}),
        ),
        (
            "a worker with a colon",
            "/worker/v1/claim".to_owned(),
            json!({"worker": "push:x", "queues": ["q"], "max": 1, "waitMs": 0}),
        ),
        (
            "a foreign queue",
            "/worker/v1/claim".to_owned(),
            json!({"worker": "w", "queues": ["did:key:z6Mkother/q"], "max": 1, "waitMs": 0}),
        ),
        (
            "the queue of executors",
            "/worker/v1/claim".to_owned(),
            json!({"worker": "w", "queues": ["exec.bare"], "max": 1, "waitMs": 0}),
        ),
    ];
    for (name, path, body) in &posts {
        check(name, &venue.under(name, venue.attacker.post(path, body)).await);
    }
    assert_eq!(venue.attacker.job(&job).await["status"], "PENDING");
    // As many waiting claims as a client can open.
    let claim = json!({"worker": "w", "queues": ["nothing"], "max": 1, "waitMs": 1_500});
    let claims = venue.send_all(vec![Request::new("POST", "/worker/v1/claim").json(&claim); 200]);
    for reply in venue.under("200 claims that wait", claims).await {
        check("a claim", &reply);
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_events_are_left_behind() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let input = json!({"totalItems": 100_000, "itemMs": 1});
    let job = id_of(&venue.attacker.invoke("test:progress", input).await);
    let mut streams = Vec::new();
    for number in 0..40 {
        let path = if number % 2 == 0 {
            "/api/v1/events".to_owned()
        } else {
            format!("/api/v1/jobs/{job}/sse?progress=1")
        };
        let mut stream = tokio::net::TcpStream::connect(venue.attacker.address).await.unwrap();
        let host = venue.attacker.address;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    // Each reads a byte at a time, while much happens.
    let reading = async {
        let mut byte = [0];
        for _ in 0..20 {
            for stream in &mut streams {
                let _ =
                    tokio::time::timeout(Duration::from_millis(5), stream.read(&mut byte)).await;
            }
            for n in 0..5 {
                venue.attacker.invoke("test:echo", json!({"n": n, "t": "x".repeat(10_000)})).await;
            }
        }
    };
    venue.under("40 readers of a byte at a time", reading).await;
    drop(streams);
    venue.attacker.control(&job, "cancel").await.expect(200);
    victim.restart().await;
}
