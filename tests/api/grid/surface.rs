//! The complete surface: routes, documents, bounds, errors.

use std::collections::BTreeSet;

use catena_tests::http::{Connection, Request};
use catena_tests::site::Site;
use serde_json::{Value as Json, json};

/// Routes that clients rely on.
const ROUTES: [&str; 44] = [
    "GET /api/v1/status",
    "POST /api/v1/invoke",
    "POST /api/v1/run",
    "GET /api/v1/jobs",
    "GET /api/v1/tombstones",
    "GET /api/v1/jobs/{id}",
    "POST /api/v1/jobs/{id}",
    "PUT /api/v1/jobs/{id}/cancel",
    "PUT /api/v1/jobs/{id}/pause",
    "PUT /api/v1/jobs/{id}/resume",
    "PUT /api/v1/jobs/{id}/delete",
    "GET /api/v1/jobs/{id}/sse",
    "GET /api/v1/jobs/{id}/history",
    "GET /api/v1/jobs/{id}/log",
    "GET /api/v1/jobs/{id}/records/{record}",
    "GET /api/v1/records/{record}",
    "POST /api/v1/histories",
    "GET /api/v1/histories",
    "GET /api/v1/histories/{venue}/{job}",
    "DELETE /api/v1/histories/{venue}/{job}",
    "GET /api/v1/assets",
    "POST /api/v1/assets",
    "GET /api/v1/assets/{ref}",
    "GET /api/v1/assets/{ref}/content",
    "PUT /api/v1/assets/{ref}/content",
    "GET /api/v1/values/read",
    "GET /api/v1/values/list",
    "GET /api/v1/values/slice",
    "GET /api/v1/values/inspect",
    "GET /api/v1/values/count",
    "GET /api/v1/values/aggregate",
    "GET /api/v1/operations",
    "GET /api/v1/operations/{name}",
    "GET /api/v1/adapters/{name}/operations",
    "GET /.well-known/did.json",
    "GET /a/{id}/did.json",
    "GET /u/{id}/did.json",
    "GET /.well-known/mcp",
    "GET /.well-known/mcp.json",
    "POST /mcp",
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /openapi.json",
];

#[tokio::test]
async fn an_unknown_route_says_so_in_the_words_that_sdks_look_for() {
    let site = Site::start().await;
    for (method, path) in [
        ("GET", "/api/v1/nothing"),
        ("POST", "/api/v1/nothing/at/all"),
        ("GET", "/nothing"),
        ("DELETE", "/api/v2/jobs"),
    ] {
        let reply = site.ask(site.request(method, path)).await;
        let error = reply.expect_error(404, "endpoint_not_found");
        assert_eq!(error["error"], format!("Endpoint {method} {path} not found"));
    }
    let reply = site.ask(site.request("DELETE", "/api/v1/invoke")).await;
    assert!(reply.header("allow").unwrap().contains("POST"));
    reply.expect_error(405, "method_not_allowed");
}

#[tokio::test]
async fn bodies_are_bounded_in_size_and_depth() {
    let site = Site::start().await;
    let post =
        async |body: String| site.ask(site.request("POST", "/api/v1/invoke").body(body)).await;
    let with_input = |input: String| format!(r#"{{"operation":"test:echo","input":{input}}}"#);
    let frame = with_input("\"\"".to_owned()).len();
    let largest = with_input(format!("\"{}\"", "x".repeat(10_000_000 - frame)));
    assert_eq!(largest.len(), 10_000_000);
    post(largest).await.expect(201);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    post(with_input(nested(127))).await.expect(201);
    post(with_input(nested(128))).await.expect_error(400, "invalid_json");
    post(nested(100_000)).await.expect_error(400, "invalid_json");
    assert_eq!(site.job_count().await, 2);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_words() {
    let site = Site::start().await;
    let body = format!(r#"{{"operation":"test:echo","input":"{}"}}"#, "x".repeat(10_000_000));
    let reply = site.ask(site.request("POST", "/api/v1/invoke").body(body)).await;
    reply.expect_error(413, "body_too_large");
}

/// A client that waits for the response before it sends the body gets one: the length is enough to
/// refuse it.
#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let site = Site::start().await;
    for length in ["content-length: 99999999999", "transfer-encoding: chunked"] {
        let begun = tokio::time::Instant::now();
        let mut connection = Connection::open(site.address).await.unwrap();
        let host = site.address;
        let head = format!("POST /api/v1/invoke HTTP/1.1\r\nhost: {host}\r\n{length}\r\n\r\n");
        connection.send_bytes(head.as_bytes()).await.unwrap();
        if length.ends_with("chunked") {
            let piece = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
            for _ in 0..12 {
                connection.send_bytes(piece.as_bytes()).await.unwrap();
            }
        }
        connection.reply().await.unwrap().expect_error(413, "body_too_large");
        assert!(begun.elapsed().as_secs() < 5, "{length}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn json_is_strict_and_errors_name_the_place() {
    let site = Site::start().await;
    let post =
        async |body: &[u8]| site.ask(site.request("POST", "/api/v1/invoke").body(body)).await;
    for (body, place) in [
        (&b"{\"operation\":}"[..], "line 1 column 14"),
        (b"", "line 1 column 1"),
        (b"{'operation':1}", "line 1 column 2"),
        (b"{\"operation\":\"test:echo\",}", "line 1 column 26"),
        (b"{\"operation\":\"test:echo\"} x", "line 1 column 27"),
        (b"{\"operation\":\"test:echo\",\n\"input\":1e999}", "line 2"),
        (b"{\"operation\":\"test:echo\",\"input\":\"\\ud800\"}", "line 1"),
        (b"{\"operation\":\"test:echo\",\"input\":\"\xff\"}", "line 1"),
        (b"// comment\n{}", "line 1 column 1"),
    ] {
        let error = post(body).await.expect_error(400, "invalid_json");
        assert!(error["error"].as_str().unwrap().contains(place), "{place}: {error}");
    }
    let twice = post(br#"{"operation":"test:never","operation":"test:echo","input":7}"#).await;
    assert_eq!(twice.expect(201).json()["output"], 7, "the last one counts");
    let exact = br#"{"operation":"test:echo","input":[1,1.0,123456789012345678901234567890]}"#;
    let reply = post(exact).await.expect(201);
    assert!(reply.text().contains("[1,1.0,123456789012345678901234567890]"), "{}", reply.text());
}

/// Every route is in the OpenAPI document, and every path of the document is routed.
#[tokio::test]
async fn the_openapi_document_lists_every_route() {
    let site = Site::start().await;
    let document = site.get("/openapi.json").await.expect(200).json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap().iter();
    let listed = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let listed: BTreeSet<String> = listed.collect();
    for route in ROUTES {
        assert!(listed.contains(route), "{route} is not in the document");
    }
    let docs = site.get("/docs").await.expect(200);
    for route in &listed {
        let (method, path) = route.split_once(' ').unwrap();
        assert!(docs.text().contains(path), "{path} is not on the page");
        let concrete = path.replace("{id}", &"a".repeat(32)).replace(['{', '}'], "");
        let reply = site.ask(site.request("PATCH", &concrete)).await;
        assert_eq!(reply.status(), 405, "{path} is in the document, but not mounted");
        assert!(reply.header("allow").unwrap().contains(method), "{route}");
    }
}

/// An unknown reference is 400 in a body and 404 in a path, also in the documents.
#[tokio::test]
async fn the_documents_have_the_status_of_each_route() {
    let site = Site::start().await;
    let document = site.get("/openapi.json").await.expect(200).json();
    let has = |path: &str, method: &str, status: &str| {
        let response = &document["paths"][path][method]["responses"][status];
        response["description"].as_str().unwrap_or_default().contains("operation_not_found")
    };
    for path in ["/api/v1/invoke", "/api/v1/run", "/canvas/v1/jobs"] {
        assert!(has(path, "post", "400") && !has(path, "post", "404"), "{path}");
    }
    assert!(has("/api/v1/operations/{name}", "get", "404"));
    let page = site.get("/docs").await.expect(200);
    let of_invoke = page.text().split("<h3>").find(|part| part.contains("/api/v1/invoke")).unwrap();
    assert!(of_invoke.contains("400 operation_not_found"), "{of_invoke}");
}

/// The response of each route to a plain request is documented for it.
#[tokio::test]
async fn answers_are_those_of_the_document() {
    let site = Site::start().await;
    let id = site.invoked("test:echo", json!({}), "COMPLETE").await;
    let document = site.get("/openapi.json").await.expect(200).json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let concrete = path.replace("{id}", &id).replace("{name}", "test");
            let concrete = concrete.replace("{ref}", "x");
            let mut request = site.request(&method.to_uppercase(), &concrete);
            if path == "/api/v1/events" {
                // A stream has no end.
                request = request.header("accept", "application/json");
            }
            let reply = site.ask(request).await;
            let responses = operation["responses"].as_object().unwrap();
            let status = reply.status().to_string();
            let is_known = responses.contains_key(&status) || responses.contains_key("default");
            assert!(is_known, "{method} {path} answered {status}: {}", reply.text());
            if reply.status() >= 400 && method != "head" {
                let mut error: Json = reply.json();
                // The contract API has its own form.
                if path.starts_with("/contract/v1/") {
                    error = error["error"].take();
                    assert!(error["category"].is_string(), "{error}");
                    error["error"] = error["message"].take();
                }
                // JSON-RPC has its own form, which contains ours.
                if error["jsonrpc"] == "2.0" {
                    error = error["error"]["data"].take();
                }
                assert!(error["error"].is_string() && error["code"].is_string(), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let site = Site::start().await;
    let reply = site.get("/api/v1/status").await;
    let other = site.get("/nothing").await;
    assert_ne!(reply.header("x-request-id").unwrap(), other.header("x-request-id").unwrap());
    let request = site.request("GET", "/api/v1/status").header("x-request-id", "mine-1");
    assert_eq!(site.ask(request).await.header("x-request-id"), Some("mine-1"));
}

#[tokio::test]
async fn a_connection_is_used_again_and_again() {
    let site = Site::start().await;
    let mut connection = Connection::open(site.address).await.unwrap();
    for n in 0..20 {
        let body = json!({"operation": "test:echo", "input": n});
        let request = Request::new("POST", "/api/v1/invoke").json(&body);
        assert_eq!(connection.ask(&request).await.unwrap().expect(201).json()["output"], n);
        let bad = Request::new("POST", "/api/v1/invoke").body("{");
        connection.ask(&bad).await.unwrap().expect_error(400, "invalid_json");
    }
}

#[tokio::test]
async fn health_is_told_to_monitors() {
    let site = Site::start().await;
    site.get("/livez").await.expect(200);
    site.get("/readyz").await.expect(200);
    site.invoke("test:echo", json!({})).await;
    let metrics = site.get("/metrics").await.expect(200);
    for name in
        ["catena_http_requests_total", "catena_jobs_invoked_total 1", "catena_store_syncs_total"]
    {
        assert!(metrics.text().contains(name), "{name}");
    }
}

/// `Allow` names the methods of the path, not those of similar paths.
#[tokio::test]
async fn the_methods_of_a_path_are_its_own() {
    let site = Site::start().await;
    for (path, methods) in [
        ("/api/v1/assets/0", "DELETE,GET,HEAD"),
        ("/api/v1/assets/0/content", "GET,HEAD,PUT"),
        ("/api/v1/invoke", "POST"),
    ] {
        let preflight = site.ask(site.request("OPTIONS", path)).await.expect(204);
        assert_eq!(preflight.header("allow"), Some(methods), "{path}");
        let refused = site.ask(site.request("PATCH", path)).await;
        assert_eq!(refused.header("allow"), Some(methods), "{path}");
        refused.expect_error(405, "method_not_allowed");
    }
}

/// A venue stops within its grace period and releases its folder, whatever still runs.
#[tokio::test]
async fn a_venue_stops_while_jobs_run() {
    let site = Site::start().await;
    let never = site.invoked("test:never", json!({}), "STARTED").await;
    let paused = site.invoked("test:delay", json!({"delay": 60_000}), "STARTED").await;
    site.control(&paused, "pause").await.expect(200);
    let site = site.restarted().await;
    assert_eq!(site.job(&never).await["status"], "STARTED", "it is left to recovery");
    assert_eq!(site.job(&paused).await["status"], "PAUSED");
    site.history(&never).await.verify();
}

#[tokio::test]
async fn filters_of_assets_are_all_applied() {
    let site = Site::start().await;
    site.post("/api/v1/assets", &json!({"name": "data"})).await.expect(201);
    let operation = json!({"name": "operation", "operation": {"adapter": "test:echo"}});
    site.post("/api/v1/assets", &operation).await.expect(201);
    for kind in ["data", "operation"] {
        let page = site.get(&format!("/api/v1/assets?scope=own&kind={kind}")).await.expect(200);
        let page = page.json();
        assert_eq!((&page["total"], &page["items"][0]["name"]), (&json!(1), &json!(kind)));
    }
}

#[tokio::test]
async fn the_openapi_document_has_patterns_examples_and_links() {
    let site = Site::start().await;
    let text = site.get("/openapi.json").await.expect(200);
    assert!(!text.text().contains("\"*/*\""), "every media type is named");
    let document = text.json();
    let paths = &document["paths"];
    let pattern = &paths["/api/v1/jobs/{id}"]["get"]["parameters"][0]["schema"]["pattern"];
    assert!(pattern.as_str().unwrap().contains("{32}"));
    let invoke = &paths["/api/v1/invoke"]["post"];
    let example = &invoke["requestBody"]["content"]["application/json"]["example"];
    let job = site.post("/api/v1/invoke", example).await;
    let job = job.expect(200).json();
    let links = invoke["responses"]["200"]["links"].as_object().unwrap();
    let mut operations = std::collections::BTreeSet::new();
    for methods in paths.as_object().unwrap().values() {
        operations.extend(
            methods.as_object().unwrap().values().map(|one| one["operationId"].as_str().unwrap()),
        );
    }
    for link in links.values() {
        assert!(operations.contains(link["operationId"].as_str().unwrap()), "{link}");
        assert_eq!(link["parameters"]["id"], "$response.body#/id");
    }
    assert_eq!(job["status"], "COMPLETE", "the example runs");
    let mut lacking = Vec::new();
    for (path, methods) in paths.as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().unwrap() {
                if parameter["in"] == "path" && !parameter["schema"]["pattern"].is_string() {
                    lacking.push(format!("{method} {path}: the pattern of {}", parameter["name"]));
                }
            }
            let media = operation["requestBody"]["content"].as_object();
            let examples = media.into_iter().flatten().filter(|(_, one)| one["example"].is_null());
            lacking
                .extend(examples.map(|(media, _)| format!("{method} {path}: an example, {media}")));
        }
    }
    assert_eq!(lacking, [] as [String; 0]);
}
