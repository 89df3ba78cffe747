//! Security Considerations: limits, timeouts, visibility, secrets.

use catena_tests::QUIET_PERIOD;
use catena_tests::site::{Site, id_of};
use serde_json::json;

/// "Impose limits on the number of concurrent jobs per client."
/// A read-only operation leaves no record, so no definition can make one of an operation that acts.
#[tokio::test]
async fn a_definition_cannot_declare_an_acting_operation_read_only() {
    let site = Site::start().await;
    for (adapter, is_usable) in [("test:delay", false), ("grid:run", false), ("auth:whoami", true)]
    {
        let metadata =
            json!({"name": "quiet", "operation": {"adapter": adapter, "readOnly": true}});
        let reply = site.post("/api/v1/assets", &metadata).await;
        let Some(id) = reply.json().as_str().map(str::to_owned) else {
            assert!(!is_usable && reply.status() == 400, "{adapter}: {}", reply.text());
            continue;
        };
        let body = json!({"operation": id, "input": {}});
        let reply = site.post("/api/v1/run", &body).await;
        if is_usable {
            reply.expect(200);
        } else {
            reply.expect_error(400, "operation_unusable");
        }
    }
    let steps = json!([{"op": "test:echo", "input": ["input"]}]);
    for operation in [
        json!({"adapter": "worker", "queue": "a", "readOnly": true}),
        json!({"adapter": "orchestrator", "steps": steps, "result": [0], "readOnly": true}),
    ] {
        let metadata = json!({"name": "quiet", "operation": operation});
        let request = site.request("PUT", "/api/v1/operations/quiet").json(&metadata);
        site.ask(request).await.expect(400);
        let reply = site.post("/api/v1/assets", &metadata).await;
        if let Some(id) = reply.json().as_str() {
            let body = json!({"operation": id, "input": {}});
            let invoked = site.post("/api/v1/invoke", &body).await;
            invoked.expect_error(400, "operation_unusable");
        }
    }
}

/// How callers name their operations is nobody else's business.
#[tokio::test]
async fn health_names_only_operations_that_everybody_can_list() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    let owner = site.caller(1).await;
    let definition = json!({"name": "Secret", "operation": {"adapter": "test:never"}});
    let input = json!({"path": "w/acme:merger", "value": definition});
    owner.invoked("covia:write", input, "COMPLETE").await;
    owner.invoked("test:never", json!({}), "STARTED").await;
    for operation in ["w/acme:merger", "test:never"] {
        owner.invoke(operation, json!({})).await;
    }
    let health = site.get("/canvas/v1/health").await.expect(200);
    assert!(!health.text().contains("merger"), "{}", health.text());
    let queue = &health.json()["queue"];
    assert_eq!((&queue["total"], &queue["otherTypes"]), (&json!(2), &json!(1)), "{queue}");
    assert_eq!(queue["byType"], json!([{"type": "test:never", "jobs": 1}]));
}

#[tokio::test]
async fn a_caller_has_so_many_live_jobs_and_no_more() {
    let site = Site::with(|flags| flags.live_jobs = Some("2".to_owned())).await;
    let first = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    site.invoked("test:never", json!({}), "STARTED").await;
    let body = json!({"operation": "test:never"});
    let reply = site.post("/api/v1/invoke", &body).await;
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let error = reply.expect_error(429, "too_many_jobs");
    assert_eq!(error["retry"], "later");
    assert_eq!(site.job_count().await, 2, "nothing happened");
    let other = site.caller(1).await;
    other.invoked("test:never", json!({}), "STARTED").await;
    site.control(&first, "cancel").await.expect(200);
    site.post("/api/v1/invoke", &body).await.expect(201);
}

/// Live jobs are counted again after a restart.
#[tokio::test]
async fn live_jobs_are_counted_after_a_restart() {
    let site = Site::with(|flags| flags.live_jobs = Some("1".to_owned())).await;
    site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let site = site.restarted().await;
    let body = json!({"operation": "test:never"});
    site.post("/api/v1/invoke", &body).await.expect_error(429, "too_many_jobs");
}

/// "Enforce execution timeouts for all jobs." "STARTED → TIMEOUT: execution exceeds time limit."
#[tokio::test]
async fn a_job_that_runs_too_long_is_ended() {
    let site = Site::with(|flags| flags.execution = Some("50ms".to_owned())).await;
    let id = id_of(&site.invoke("test:never", json!({})).await);
    let job = site.ended(&id).await;
    assert_eq!(job["status"], "TIMEOUT");
    assert!(job["error"].as_str().unwrap().contains("50 ms"), "{job}");
    assert_eq!(site.history(&id).await.statuses(), "PENDING STARTED TIMEOUT");
    let asked = json!({"operation": "test:never", "timeoutMs": 20});
    let asked = id_of(&site.post("/api/v1/invoke", &asked).await.expect(201).json());
    assert_eq!(site.ended(&asked).await["status"], "TIMEOUT");
}

/// "Enforce timeouts on interactive states." "PAUSED / INPUT_REQUIRED / AUTH_REQUIRED → TIMEOUT".
#[tokio::test]
async fn a_job_that_waits_too_long_is_ended() {
    let site = Site::with(|flags| flags.interactive = Some("100ms".to_owned())).await;
    for (operation, status) in
        [("test:chat", "INPUT_REQUIRED"), ("test:auth", "AUTH_REQUIRED"), ("test:pause", "PAUSED")]
    {
        let id = id_of(&site.invoke(operation, json!({})).await);
        assert_eq!(site.ended(&id).await["status"], "TIMEOUT", "{operation}");
        let chain = site.history(&id).await;
        assert_eq!(chain.statuses(), format!("PENDING STARTED {status} TIMEOUT"));
        chain.verify();
    }
}

/// The execution time does not advance while a job is paused.
#[tokio::test]
async fn a_paused_job_loses_no_time() {
    let site = Site::start().await;
    let body = json!({"operation": "test:delay", "input": {"delay": 100, "input": 1},
        "timeoutMs": 250});
    let id = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    site.control(&id, "pause").await.expect(200);
    tokio::time::sleep(QUIET_PERIOD).await;
    site.control(&id, "resume").await.expect(200);
    let job = site.ended(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(1)), "{job}");
}

/// "Clean up resources promptly when jobs reach terminal states."
#[tokio::test]
async fn a_job_that_ended_holds_nothing() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    for _ in 0..20 {
        let id = site.invoked("test:never", json!({}), "STARTED").await;
        site.control(&id, "cancel").await.expect(200);
    }
    let metrics = site.get("/metrics").await;
    let line = metrics.text().lines().find(|line| line.starts_with("catena_jobs_running "));
    assert_eq!(line, Some("catena_jobs_running 0"), "{}", metrics.text());
}

/// "Apply access control so that only the submitting client (or authorised parties) can query a
/// job." For all other callers it does not exist.
#[tokio::test]
async fn a_job_is_its_owners_alone() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let id = alice.invoked("test:chat", json!({"mine": 1}), "INPUT_REQUIRED").await;
    let unknown = "ab".repeat(16);
    for other in [&bob, &*site] {
        assert_eq!(other.job_count().await, 0);
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/history"),
            ("GET", "/sse"),
            ("POST", ""),
            ("PUT", "/pause"),
            ("PUT", "/resume"),
            ("PUT", "/cancel"),
            ("PUT", "/delete"),
        ] {
            let ask = |id: &str| {
                let request = other.request(method, &format!("/api/v1/jobs/{id}{rest}"));
                other.ask(request.json(&json!({"content": "done"})))
            };
            let mut theirs = ask(&id).await.expect_error(404, "job_not_found");
            let mut nobodys = ask(&unknown).await.expect_error(404, "job_not_found");
            for (error, id) in [(&mut theirs, id.as_str()), (&mut nobodys, &format!("0x{unknown}"))]
            {
                let text = error["error"].as_str().unwrap().replace(id, "…");
                error["error"] = text.into();
            }
            assert_eq!(theirs, nobodys, "{method} {rest} tells them apart");
        }
    }
    assert_eq!(alice.job(&id).await["status"], "INPUT_REQUIRED", "nobody touched it");
    let mut events = alice.follow(&id).await;
    assert_eq!(events.next().await.unwrap().data["input"], json!({"mine": 1}));
    alice.send(&id, &json!({"content": "done"})).await.expect(202);
    alice.ended(&id).await;
}

/// "Redact or encrypt sensitive fields in stored job records."
#[tokio::test]
async fn what_a_schema_marks_as_secret_is_in_no_record() {
    let site = Site::start().await;
    let metadata = json!({"name": "Delay with a key", "operation": {"adapter": "test:delay",
        "input": {"type": "object", "properties": {
            "delay": {"type": "integer"}, "key": {"type": "string", "writeOnly": true}}}}});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let input = json!({"delay": 1, "key": "very-secret"});
    let id = id_of(&site.invoke(asset.as_str().unwrap(), input).await);
    let job = site.ended(&id).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    assert_eq!(job["input"]["key"], json!({"redacted": true}));
    for rest in ["", "/history", "/sse"] {
        let text = site.get(&format!("/api/v1/jobs/{id}{rest}")).await.expect(200);
        assert!(!text.text().contains("very-secret"), "{rest}");
    }
    site.history(&id).await.verify();
}

/// "Support job deletion to allow clients to remove HEAD pointers for records containing sensitive
/// data": only the owner can.
#[tokio::test]
async fn an_owner_removes_what_is_theirs() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let id = alice.invoked("test:echo", json!({"secret": 1}), "COMPLETE").await;
    bob.control(&id, "delete").await.expect_error(404, "job_not_found");
    alice.control(&id, "delete").await.expect(200);
    alice.get(&format!("/api/v1/jobs/{id}")).await.expect_error(410, "job_deleted");
    bob.get(&format!("/api/v1/jobs/{id}")).await.expect_error(404, "job_not_found");
}

/// A secret that a plan passes into a secret field of a step is secret in the orchestration, too.
#[tokio::test]
async fn a_secret_that_flows_into_a_header_is_in_no_record_of_the_orchestration() {
    let site = Site::start().await;
    let definition = json!({"operation": {"adapter": "orchestrator", "steps": [
        {"op": "http:get", "input": {"url": ["input", "url"],
            "headers": {"PRIVATE-token": ["input", "token"], "accept": ["input", "accept"]}}}],
        "result": ["const", 1]}});
    let reply = site.post("/api/v1/assets", &definition).await.expect(201);
    let input = json!({"url": "http://127.0.0.1:9/", "token": "hush-hush", "accept": "text/plain"});
    let id = id_of(&site.invoke(reply.json().as_str().unwrap(), input).await);
    let job = site.ended(&id).await;
    assert_eq!(job["input"]["token"], json!({"redacted": true}), "{job}");
    assert_eq!(job["input"]["accept"], "text/plain");
    let step = site.job(job["steps"][0]["id"].as_str().unwrap()).await;
    assert_eq!(step["input"]["headers"]["PRIVATE-token"], json!({"redacted": true}), "{step}");
    assert_eq!(step["input"]["headers"]["accept"], "text/plain");
    for path in [format!("/api/v1/jobs/{id}"), format!("/api/v1/jobs/{id}/history")] {
        assert!(!site.get(&path).await.expect(200).text().contains("hush-hush"));
    }
}
