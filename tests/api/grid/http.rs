//! HTTP requests as steps: JSON responses, statuses that are failures, retries, and headers that name the
//! job.

use catena_tests::service::{ReceivedRequest, Service, json_response, response};
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// A venue that may send requests to a service with these answers.
async fn site_and_service(
    answer: impl Fn(&ReceivedRequest) -> String + Send + Sync + 'static,
) -> (Site, Service) {
    let service = Service::start(answer).await;
    let host = service.host();
    (Site::with(|flags| flags.allow_hosts = Some(host)).await, service)
}

async fn register(site: &Client, operation: Json) -> String {
    let metadata = json!({"name": "Test", "operation": operation});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    asset.as_str().unwrap().to_owned()
}

async fn output(site: &Client, operation: &str, input: Json) -> Json {
    let body = json!({"operation": operation, "input": input});
    site.post("/api/v1/run", &body).await.expect(200).json()
}

#[tokio::test]
async fn a_later_step_uses_json_received_over_http() {
    let (site, service) = site_and_service(|request| match request.path.as_str() {
        "/rates" => json_response(200, r#"{"base": "USD", "rates": {"EUR": 0.5, "CHF": 0.8}}"#),
        _ => response(200, "content-type: text/plain\r\n", r#"{"EUR": 0.25}"#),
    })
    .await;
    let operation = register(
        &site,
        json!({
            "adapter": "orchestrator",
            "steps": [
                {"op": "http:get", "input": {"url": ["input", "rates"]}},
                {"op": "test:echo", "input": {"eur": [0, "json", "rates", "EUR"]}},
                {"op": "http:get", "input": {"url": ["input", "text"]}},
                {"op": "json:parse", "input": {"text": [2, "body"]}},
                {"op": "json:path", "input": {"value": [3, "result"], "path": ["const", "EUR"]}},
            ],
            "result": {"json": [1, "eur"], "parsed": [4, "result"], "base": [0, "json", "base"]},
        }),
    )
    .await;
    let input = json!({"rates": service.url("/rates"), "text": service.url("/text")});
    let id = id_of(&site.invoke(&operation, input).await);
    let job = site.ended(&id).await;
    assert_eq!(job["output"], json!({"json": 0.5, "parsed": 0.25, "base": "USD"}), "{job}");
    site.history(&id).await.verify();
}

#[tokio::test]
async fn only_valid_json_of_a_json_type_is_parsed() {
    let (site, service) = site_and_service(|request| match request.path.as_str() {
        "/problem" => response(404, "content-type: application/problem+json\r\n", r#"{"a":1}"#),
        "/text" => response(200, "content-type: text/plain\r\n", "1"),
        _ => json_response(200, r#"{"a":"#),
    })
    .await;
    let get = async |path: &str| output(&site, "http:get", json!({"url": service.url(path)})).await;
    let problem = get("/problem").await;
    assert_eq!((&problem["status"], &problem["json"]), (&json!(404), &json!({"a": 1})));
    assert_eq!(problem["body"], r#"{"a":1}"#);
    for (path, body) in [("/text", "1"), ("/malformed", r#"{"a":"#)] {
        let plain = get(path).await;
        assert_eq!((&plain["body"], plain.get("json")), (&json!(body), None), "{path}");
    }
}

#[tokio::test]
async fn json_texts_are_converted_without_a_job() {
    let site = Site::start().await;
    let parsed = output(&site, "json:parse", json!({"text": "{\"a\": [1, 2.0]}"})).await;
    assert_eq!(parsed.to_string(), r#"{"result":{"a":[1,2.0]}}"#);
    let text = output(&site, "json:stringify", json!({"value": {"a": [1, 2.0]}})).await;
    assert_eq!(text, json!({"result": r#"{"a":[1,2.0]}"#}));
    let input = json!({"value": {"a": [{"b": true}]}, "path": ["a", 0, "b"]});
    assert_eq!(output(&site, "json:path", input).await, json!({"result": true}));
    let missing = json!({"operation": "json:path", "input": {"value": {}, "path": "a/b"}});
    let error = site.post("/api/v1/run", &missing).await.expect_error(422, "job_failed");
    assert_eq!(error["errorCode"], "path_not_found", "{error}");
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn a_definition_with_retry_repeats_what_may_succeed_later() {
    let (site, service) = site_and_service(|request| match request.number {
        1 => response(503, "retry-after: 1\r\n", "busy"),
        2 => response(429, "", "slow down"),
        _ => json_response(200, r#"{"ok":true}"#),
    })
    .await;
    let retry = json!({"attempts": 5, "backoffMs": 1});
    let operation = register(&site, json!({"adapter": "http:get", "retry": retry})).await;
    let id = id_of(&site.invoke(&operation, json!({"url": service.url("/a")})).await);
    let job = site.ended(&id).await;
    assert_eq!(job["output"]["json"], json!({"ok": true}), "{job}");
    assert_eq!(service.received("/a").len(), 3);
    let records: Vec<Json> =
        site.history(&id).await.entries.iter().map(|entry| entry["record"].clone()).collect();
    let attempts: Vec<&Json> =
        records.iter().filter(|record| record["note"]["kind"] == "attempt").collect();
    let codes: Vec<&Json> = attempts.iter().map(|record| &record["note"]["code"]).collect();
    assert_eq!(codes, ["http_503", "http_429"]);
    let reason = attempts[0]["note"]["reason"].as_str().unwrap();
    assert!(reason.ends_with("answered with status 503: busy"), "{reason}");
    let time = |record: &Json| record["updated"].as_i64().unwrap();
    assert!(time(attempts[1]) - time(attempts[0]) >= 1_000, "Retry-After is honoured: {records:?}");
    site.history(&id).await.verify();
}

#[tokio::test]
async fn a_job_that_waits_for_its_next_attempt_says_when_and_why() {
    let (site, service) = site_and_service(|_| response(503, "", "busy")).await;
    let retry = json!({"attempts": 3, "backoffMs": 60_000});
    let operation = register(&site, json!({"adapter": "http:get", "retry": retry})).await;
    let id = id_of(&site.invoke(&operation, json!({"url": service.url("/a")})).await);
    let job = site.until_that(&id, |job| job.get("nextAttemptAt").is_some()).await;
    let wait = job["nextAttemptAt"].as_i64().unwrap() - job["updated"].as_i64().unwrap();
    assert!((40_000..=80_000).contains(&wait), "the delay, with jitter: {job}");
    assert!(job["lastError"].as_str().unwrap().contains("status 503"), "{job}");
    assert_eq!((&job["lastErrorCode"], &job["attempt"]), (&json!("http_503"), &json!(2)));
    assert_eq!(site.control(&id, "cancel").await.status(), 200);
    assert_eq!(site.job(&id).await.get("nextAttemptAt"), None, "an ended job has no attempts left");
}

#[tokio::test]
async fn a_definition_decides_which_statuses_are_failures() {
    let (site, service) = site_and_service(|request| {
        response(request.path.trim_start_matches('/').parse().unwrap(), "", "no")
    })
    .await;
    let retry = json!({"attempts": 2, "backoffMs": 1});
    for (definition, status, ended, requests) in [
        (json!({}), 503, "COMPLETE", 1),
        (json!({"retry": retry}), 404, "COMPLETE", 1),
        (json!({"retry": retry}), 500, "FAILED", 2),
        (json!({"retry": retry, "failOn": []}), 502, "COMPLETE", 1),
        (json!({"failOn": [404]}), 404, "FAILED", 1),
        (json!({"failOn": ["4xx"], "retry": retry}), 403, "FAILED", 1),
        (
            json!({"failOn": ["400-409"], "retry": {"attempts": 2, "backoffMs": 1, "on": ["http_409"]}}),
            409,
            "FAILED",
            2,
        ),
    ] {
        let mut operation = definition.clone();
        operation["adapter"] = json!("http:get");
        let operation = register(&site, operation).await;
        let path = format!("/{status}");
        let before = service.received(&path).len();
        let id = id_of(&site.invoke(&operation, json!({"url": service.url(&path)})).await);
        let job = site.ended(&id).await;
        assert_eq!(job["status"], ended, "{definition} {job}");
        if ended == "FAILED" {
            assert_eq!(job["errorCode"], format!("http_{status}"), "{job}");
        }
        assert_eq!(service.received(&path).len() - before, requests, "{definition}");
    }
    let wrong =
        json!({"operation": {"adapter": "http:get", "failOn": ["6xx"], "jobHeaders": "yes"}});
    let request = site.request("PUT", "/api/v1/operations/wrong").json(&wrong);
    let error = site.ask(request).await.expect_error(400, "asset_invalid");
    let problems = error["problems"].to_string();
    for pointer in ["/operation/failOn", "/operation/jobHeaders"] {
        assert!(problems.contains(pointer), "{error}");
    }
}

#[tokio::test]
async fn every_attempt_names_its_job_and_has_the_same_key() {
    let (site, service) = site_and_service(|request| match request.number {
        1 => response(500, "", ""),
        _ => response(200, "", "ok"),
    })
    .await;
    let retry = json!({"attempts": 2, "backoffMs": 1});
    let definition = json!({"adapter": "http:post", "retry": retry, "jobHeaders": true});
    let operation = register(&site, definition).await;
    let id = id_of(&site.invoke(&operation, json!({"url": service.url("/a")})).await);
    assert_eq!(site.ended(&id).await["status"], "COMPLETE");
    let received = service.received("/a");
    let header = |at: usize, name: &str| received[at].headers.get(name).cloned();
    for at in 0..2 {
        assert_eq!(header(at, "catena-job").as_deref(), Some(id.as_str()));
        assert_eq!(header(at, "idempotency-key").as_deref(), Some(id.as_str()));
        assert_eq!(header(at, "catena-attempt"), Some((at + 1).to_string()));
    }
    output(&site, "http:post", json!({"url": service.url("/b")})).await;
    let plain = &service.received("/b")[0].headers;
    assert!(!plain.keys().any(|name| name.starts_with("catena-") || name == "idempotency-key"));
}

#[tokio::test]
async fn json_is_compressed_for_clients_that_accept_it() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let items: Vec<_> = (0..200).map(|n| json!({ "number": n, "text": "the same text" })).collect();
    let input = json!({ "path": "w/list", "value": items });
    alice
        .post("/api/v1/run", &json!({ "operation": "covia:write", "input": input }))
        .await
        .expect(200);
    let path = "/api/v1/values/read?path=w/list";
    let get =
        |path: &str, accept: &str| alice.request("GET", path).header("accept-encoding", accept);
    let plain = alice.ask(get(path, "identity")).await.expect(200);
    assert_eq!(plain.header("content-encoding"), None);
    let tag = plain.header("etag").unwrap().to_owned();
    let packed = alice.ask(get(path, "br, gzip;q=0.8")).await.expect(200);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.header("vary").unwrap().contains("accept-encoding"));
    assert_eq!(packed.header("etag").unwrap(), format!("W/{tag}"), "other bytes have a weak tag");
    assert!(
        packed.body.len() * 4 < plain.body.len(),
        "{} of {}",
        packed.body.len(),
        plain.body.len()
    );
    assert_eq!(packed.body[..2], [0x1f, 0x8b]);
    let known = get(path, "gzip").header("if-none-match", &format!("W/{tag}"));
    assert_eq!(alice.ask(known).await.status(), 304);
    // Small responses and those about secrets are sent as they are.
    for n in 0..100 {
        let input = json!({ "name": format!("KEY_{n}"), "value": "v" });
        let body = json!({ "operation": "secret:set", "input": input });
        alice.post("/api/v1/run", &body).await.expect(200);
    }
    for path in ["/api/v1/values/count?path=w/list", "/api/v1/secrets"] {
        let reply = alice.ask(get(path, "gzip")).await.expect(200);
        assert_eq!(reply.header("content-encoding"), None, "{path}");
    }
    // Clients compare the tag of an asset with its ID and accept that there is none.
    let metadata = json!({ "name": "long", "text": "the same text ".repeat(200) });
    let asset = alice.post("/api/v1/assets", &metadata).await.json();
    let path = format!("/api/v1/assets/{}", asset.as_str().unwrap());
    assert!(alice.ask(get(&path, "identity")).await.expect(200).header("etag").is_some());
    for path in [path.as_str(), "/api/v1/operations", "/openapi.json"] {
        let reply = alice.ask(get(path, "gzip")).await.expect(200);
        assert_eq!(reply.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(reply.header("etag").filter(|tag| !tag.starts_with("W/")), None, "{path}");
    }
    let body = json!({ "operation": "covia:read", "input": { "path": "w/list" } }).to_string();
    let run = alice.request("POST", "/api/v1/run").header("accept-encoding", "gzip");
    let run =
        alice.ask(run.header("content-type", "application/json").body(body)).await.expect(200);
    assert_eq!(run.header("content-encoding"), Some("gzip"), "responses to POST, too");
}

#[tokio::test]
async fn a_range_of_an_assets_content_is_read() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    let asset = alice.post("/api/v1/assets", &json!({ "name": "bytes", "content": {} })).await;
    let path = format!("/api/v1/assets/{}/content", asset.json().as_str().unwrap());
    alice.ask(alice.request("PUT", &path).body(bytes.clone())).await.expect(200);
    let whole = alice.get(&path).await.expect(200);
    assert_eq!((whole.header("accept-ranges"), whole.body.len()), (Some("bytes"), 100_000));
    let tag = whole.header("etag").unwrap().to_owned();
    let range = |range: &str| alice.request("GET", &path).header("range", range);
    let part = alice.ask(range("bytes=70000-70009")).await.expect(206);
    assert_eq!(part.header("content-range"), Some("bytes 70000-70009/100000"));
    assert_eq!(part.body, bytes[70_000..70_010]);
    let end = alice.ask(range("bytes=-5").header("if-range", &tag)).await.expect(206);
    assert_eq!(end.body, bytes[99_995..]);
    let other = alice.ask(range("bytes=0-4").header("if-range", "\"other\"")).await.expect(200);
    assert_eq!(other.body.len(), 100_000, "the client has other bytes");
    let beyond = alice.ask(range("bytes=100000-")).await;
    assert_eq!((beyond.status(), beyond.header("content-range")), (416, Some("bytes */100000")));
}
