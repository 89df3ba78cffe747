//! Invoking and running: responses, waiting, idempotency keys, private jobs.

use catena_auth::KeyPair;
use catena_tests::http::Connection;
use catena_tests::site::{Site, delegation, id_of};
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

/// A read-only operation makes no job at `POST /run`, so its refusal names none.
#[tokio::test]
async fn the_hint_of_a_refused_read_names_no_job() {
    let site = Site::start().await;
    let body = json!({"operation": "covia:read", "input": {"path": 5}});
    let refused = site.post("/api/v1/run", &body).await.expect_error(400, "job_rejected");
    assert_eq!(refused["job"], json!(null), "{refused}");
    assert_eq!(refused["hint"], "Correct the input as `error` says.");
    let body = json!({"operation": "covia:read", "input": {"path": "x/y"}});
    let failed = site.post("/api/v1/run", &body).await.expect_error(422, "job_failed");
    assert!(!failed["hint"].as_str().unwrap().contains("`job`"), "{failed}");
    let body = json!({"operation": "test:delay", "input": {"delay": "long"}});
    let refused = site.post("/api/v1/run", &body).await.expect_error(400, "job_rejected");
    assert!(refused["job"].is_string() && refused["hint"].as_str().unwrap().contains("`job`"));
}

#[tokio::test]
async fn an_instant_operation_is_complete_in_the_201() {
    let site = Site::start().await;
    let body = json!({"operation": "test:random", "input": {"length": 4}});
    let job = site.post("/api/v1/invoke", &body).await.expect(201).json();
    assert_eq!(job["status"], "COMPLETE");
    assert_eq!(job["output"]["bytes"].as_str().unwrap().len(), 8);
}

#[tokio::test]
async fn every_form_of_reference_names_the_same_operation() {
    let site = Site::start().await;
    let id = site.invoke("test:echo", json!(1)).await["operation"].as_str().unwrap().to_owned();
    let asset = [id.clone(), format!("0x{id}"), format!("a/{id}"), format!("/a/{id}")];
    let named = ["test:echo", "v/test/ops/echo", "/v/test/ops/echo"].map(str::to_owned);
    for reference in asset.iter().chain(&named) {
        let job = site.invoke(reference, json!({"n": 1})).await;
        assert_eq!((&job["operation"], &job["op"]), (&json!(id), &json!(reference)));
        assert_eq!(job["output"], json!({"n": 1}));
    }
}

#[tokio::test]
async fn what_cannot_be_invoked_makes_no_job() {
    let site = Site::start().await;
    let error = site.post("/api/v1/invoke", &json!({"operation": "test:ecko"})).await;
    let error = error.expect_error(400, "operation_not_found");
    assert!(error["nearest"].as_array().unwrap().contains(&json!("test:echo")), "{error}");
    for body in [
        json!({}),
        json!([]),
        json!({"operation": 5}),
        json!({"operation": ""}),
        json!({"operation": "test:echo", "wait": "soon"}),
        json!({"operation": "test:echo", "wait": -1}),
        json!({"operation": "test:echo", "timeoutMs": 0}),
        json!({"operation": "test:echo", "private": "yes"}),
        json!({"operation": "test:echo", "ucans": "x"}),
        json!({"operation": "test:echo", "tags": [1]}),
    ] {
        site.post("/api/v1/invoke", &body).await.expect_error(400, "bad_request");
    }
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn a_wait_answers_when_the_job_is_complete() {
    let site = Site::start().await;
    let input = json!({"delay": 60, "input": 1});
    for (path, extra) in [
        ("/api/v1/invoke", json!({"wait": true})),
        ("/api/v1/invoke", json!({"wait": 10_000})),
        ("/api/v1/invoke?wait=true", json!({})),
        ("/api/v1/invoke?wait=10000", json!({})),
    ] {
        let mut body = json!({"operation": "test:delay", "input": input});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let job = site.post(path, &body).await.expect(200).json();
        assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(1)), "{path}");
    }
    let body = json!({"operation": "test:delay", "input": input});
    let request = site.request("POST", "/api/v1/invoke").header("prefer", "wait=10").json(&body);
    let reply = site.ask(request).await.expect(200);
    assert_eq!(reply.header("preference-applied"), Some("wait=10"));
    let failed = json!({"operation": "test:error", "input": {"message": "x"}, "wait": true});
    assert_eq!(site.post("/api/v1/invoke", &failed).await.expect(201).json()["status"], "FAILED");
}

#[tokio::test]
async fn a_wait_that_ends_changes_nothing() {
    let site = Site::start().await;
    let body = json!({"operation": "test:never", "wait": 30});
    let job = site.post("/api/v1/invoke", &body).await.expect(201).json();
    assert_eq!(job["status"], "STARTED");
    assert_eq!(site.job(&id_of(&job)).await["status"], "STARTED");
    assert_eq!(site.history(&id_of(&job)).await.len(), 2);
}

#[tokio::test]
async fn a_run_gives_the_bare_output_or_says_why_not() {
    let site = Site::start().await;
    for value in [json!(null), json!(1), json!(1.0), json!("x"), json!([1]), json!({"a": {}})] {
        let body = json!({"operation": "test:echo", "input": value});
        assert_eq!(site.post("/api/v1/run", &body).await.expect(200).json(), value);
    }
    let run = async |body: Json| site.post("/api/v1/run", &body).await;
    let rejected = run(json!({"operation": "test:error", "input": {}})).await;
    let rejected = rejected.expect_error(400, "job_rejected");
    assert_eq!(site.job(rejected["job"].as_str().unwrap()).await["status"], "REJECTED");
    let failed = run(json!({"operation": "test:error", "input": {"message": "no"}})).await;
    let failed = failed.expect_error(422, "job_failed");
    assert_eq!(failed["error"], "no");
    assert_eq!(site.job(failed["job"].as_str().unwrap()).await["status"], "FAILED");
    let late = run(json!({"operation": "test:never", "timeoutMs": 30})).await;
    let late = late.expect_error(504, "job_timeout");
    assert_eq!(site.job(late["job"].as_str().unwrap()).await["status"], "TIMEOUT");
    run(json!({"operation": "test:nothing"})).await.expect_error(400, "operation_not_found");
}

#[tokio::test]
async fn a_run_whose_job_is_cancelled_is_answered_at_once() {
    let site = Site::start().await;
    let body = json!({"operation": "test:never"});
    let cancelling = async {
        loop {
            let listed = site.get("/api/v1/jobs?status=STARTED").await.json();
            if let Some(id) = listed["items"][0].as_str() {
                return site.control(id, "cancel").await.expect(200);
            }
        }
    };
    let (reply, _) = tokio::join!(site.post("/api/v1/run", &body), cancelling);
    reply.expect_error(422, "job_cancelled");
}

#[tokio::test]
async fn a_run_of_a_read_only_operation_makes_no_job() {
    let site = Site::start().await;
    let whoami = site.post("/api/v1/run", &json!({"operation": "auth:whoami"})).await.expect(200);
    assert!(whoami.json()["caller"].as_str().unwrap().ends_with(":public"));
    assert_eq!(whoami.header("location"), None);
    assert_eq!(site.job_count().await, 0);
    site.invoke("auth:whoami", json!({})).await;
    assert_eq!(site.job_count().await, 1, "an invocation always makes one");
    let echo = site.post("/api/v1/run", &json!({"operation": "test:echo"})).await.expect(200);
    let location = echo.header("location").unwrap().to_owned();
    assert_eq!(site.get(&location).await.expect(200).json()["status"], "COMPLETE");
}

#[tokio::test]
async fn a_private_job_is_nowhere_and_forgotten() {
    let site = Site::start().await;
    let body = |operation: &str, input: Json| json!({"operation": operation, "input": input, "private": true, "wait": true});
    let ran = site.post("/api/v1/run", &body("test:echo", json!({"s": 1}))).await.expect(200);
    assert_eq!(ran.json(), json!({"s": 1}));
    let input = json!({"delay": 30, "input": 2});
    let job = site.post("/api/v1/invoke", &body("test:delay", input)).await.expect(200).json();
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(2)));
    let path = format!("/api/v1/jobs/{}", id_of(&job));
    site.get(&path).await.expect_error(404, "job_not_found");
    let never = json!({"operation": "test:never", "private": true});
    let never = site.post("/api/v1/invoke", &never).await.expect(201).json();
    let path = format!("/api/v1/jobs/{}", id_of(&never));
    assert_eq!(site.get(&path).await.expect(200).json()["status"], "STARTED", "while it runs");
    site.control(&id_of(&never), "pause").await.expect_error(409, "private_job");
    let stranger = site.caller(1).await;
    for action in ["pause", "resume", "cancel", "delete"] {
        let refused = stranger.control(&id_of(&never), action).await;
        refused.expect_error(404, "job_not_found");
    }
    let rerun = stranger.post(&format!("{path}/rerun"), &json!({})).await;
    rerun.expect_error(404, "job_not_found");
    site.control(&id_of(&never), "cancel").await.expect(200);
    let forgotten = async {
        while site.get(&path).await.status() != 404 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, forgotten).await.unwrap();
    assert_eq!(site.job_count().await, 0);
    let site = site.restarted().await;
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn a_repeated_key_gets_the_same_answer() {
    let site = Site::start().await;
    let invoke = async |key: &str, n: u32| {
        let body = json!({"operation": "test:echo", "input": {"n": n}});
        let request = site.request("POST", "/api/v1/invoke").header("idempotency-key", key);
        site.ask(request.json(&body)).await
    };
    let first = invoke("k1", 1).await.expect(201);
    assert_eq!(first.header("idempotent-replayed"), None);
    let again = invoke("k1", 1).await.expect(201);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(id_of(&again.json()), id_of(&first.json()));
    invoke("k1", 2).await.expect_error(422, "idempotency_key_reused");
    let other = invoke("k2", 1).await.expect(201);
    assert_ne!(id_of(&other.json()), id_of(&first.json()));
    assert_eq!(site.job_count().await, 2);
    let somebody = site.caller(1).await;
    let body = json!({"operation": "test:echo", "input": {"n": 9}});
    let request = somebody.request("POST", "/api/v1/invoke").header("idempotency-key", "k1");
    let theirs = somebody.ask(request.json(&body)).await.expect(201);
    assert_eq!(theirs.header("idempotent-replayed"), None, "keys are a caller's own");
    for key in ["", " ", &"x".repeat(256)] {
        invoke(key, 1).await.expect_error(400, "bad_request");
    }
}

#[tokio::test]
async fn a_key_is_remembered_after_a_restart_and_for_a_rejected_job() {
    let site = Site::start().await;
    let body = json!({"operation": "test:error", "input": {}});
    let ask = async |site: &Site| {
        let request = site.request("POST", "/api/v1/invoke").header("idempotency-key", "k");
        site.ask(request.json(&body)).await.expect(201)
    };
    let first = ask(&site).await.json();
    assert_eq!(first["status"], "REJECTED");
    let site = site.restarted().await;
    let again = ask(&site).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json(), first);
}

#[tokio::test]
async fn keys_work_for_runs_and_assets() {
    let site = Site::start().await;
    let ask = async |path: &str, body: Json| {
        let request = site.request("POST", path).header("idempotency-key", "k");
        site.ask(request.json(&body)).await
    };
    let body = json!({"operation": "test:random", "input": {"length": 8}});
    let first = ask("/api/v1/run", body.clone()).await.expect(200);
    let again = ask("/api/v1/run", body).await.expect(200);
    assert_eq!((again.header("idempotent-replayed"), again.json()), (Some("true"), first.json()));
    assert_eq!(site.job_count().await, 1);
    let metadata = json!({"name": "One"});
    let first = ask("/api/v1/assets", metadata.clone()).await.expect(201);
    let again = ask("/api/v1/assets", metadata).await.expect(201);
    assert_eq!((again.header("location"), again.json()), (first.header("location"), first.json()));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = ask("/api/v1/assets", json!({"name": "Two"})).await;
    other.expect_error(422, "idempotency_key_reused");
}

/// The first of several concurrent requests creates the job; the others get it or must retry.
#[tokio::test]
async fn one_key_at_the_same_moment_makes_one_job() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let body = json!({"operation": "http:get", "input": {"url": target.url("/a")}, "wait": true});
    let ask = || {
        let request = site.request("POST", "/api/v1/invoke").header("idempotency-key", "k");
        site.ask(request.json(&body))
    };
    let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
    let mut ids = Vec::new();
    for reply in [a, b, c, d] {
        match reply.status() {
            409 => {
                assert!(reply.header("retry-after").is_some());
                reply.expect_error(409, "idempotency_key_in_flight");
            }
            _ => ids.push(id_of(&reply.json())),
        }
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    site.ended(&ids[0]).await;
    assert_eq!((site.job_count().await, target.count("/a")), (1, 1));
}

#[tokio::test]
async fn too_many_requests_are_refused_and_nothing_happens() {
    let site = Site::with(|flags| {
        flags.rate = Some("0.01".to_owned());
        flags.burst = Some("2".to_owned());
    })
    .await;
    for _ in 0..2 {
        site.invoke("test:echo", json!({})).await;
    }
    let body = json!({"operation": "test:echo"});
    for path in ["/api/v1/invoke", "/api/v1/run"] {
        let reply = site.post(path, &body).await;
        assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        assert!(reply.header("ratelimit").is_some() && reply.header("ratelimit-policy").is_some());
        assert_eq!(reply.expect_error(429, "rate_limited")["retry"], "later");
    }
    assert_eq!(site.job_count().await, 2);
    site.caller(1).await.invoke("test:echo", json!({})).await;
}

#[tokio::test]
async fn tags_find_jobs() {
    let site = Site::start().await;
    let body = json!({"operation": "test:echo", "tags": ["red", "round"]});
    let id = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    site.invoke("test:echo", json!({})).await;
    let found = site.get("/api/v1/jobs?tag=red").await.expect(200).json();
    assert_eq!(found["items"], json!([id.trim_start_matches("0x")]));
    assert_eq!(site.job(&id).await["tags"], json!(["red", "round"]));
}

/// A client that disconnects during a request leaves no job half started: a committed job runs.
#[tokio::test]
async fn jobs_run_although_their_clients_left() {
    let site = Site::start().await;
    let body = r#"{"operation":"test:delay","input":{"delay":1}}"#;
    let host = site.address;
    let length = body.len();
    let request = format!(
        "POST /api/v1/invoke HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    for _ in 0..50 {
        let mut connection = Connection::open(site.address).await.unwrap();
        connection.send_bytes(request.as_bytes()).await.unwrap();
    }
    let mut seen = 0;
    loop {
        let page = site.get("/api/v1/jobs").await.expect(200).json();
        let jobs = page["items"].as_array().unwrap();
        if seen > 0 && jobs.len() == seen {
            break;
        }
        seen = jobs.len();
        for job in jobs {
            let ended = site.ended(job.as_str().unwrap()).await;
            assert_eq!(ended["status"], "COMPLETE", "{ended}");
        }
    }
}

#[tokio::test]
async fn texts_may_be_longer_than_one_cell() {
    let site = Site::start().await;
    let long = "x".repeat(5_000);
    let did = site.get("/api/v1/status").await.json()["did"].as_str().unwrap().to_owned();
    let ucan = delegation(&KeyPair::from_seed(&[1; 32]), &did, &[("fct", long.as_str().into())]);
    let body = json!({"operation": "test:echo", "ucans": [ucan]});
    site.caller(1).await.post("/api/v1/invoke", &body).await.expect(201);
    let body = json!({"operation": "test:error", "input": {"message": long.clone()}});
    let error = site.post("/api/v1/run", &body).await.expect_error(422, "job_failed");
    assert_eq!(error["error"], json!(long));
    let id = id_of(&site.invoke("test:never", json!({})).await);
    let long_id = json!({"messageId": long.clone()});
    site.send(&id, &long_id).await.expect_error(400, "bad_request");
    let request = site.request("PUT", &format!("/api/v1/jobs/{id}/cancel"));
    let reply = site.ask(request.json(&json!({"reason": long}))).await;
    let error = reply.expect_error(400, "bad_request");
    assert_eq!(error["error"], "a reason must have at most 4096 bytes");
}

#[tokio::test]
async fn a_run_that_failed_is_replayed_like_any_other() {
    let site = Site::start().await;
    let body = json!({"operation": "test:error", "input": {"message": "x"}});
    let run = || site.request("POST", "/api/v1/run").header("idempotency-key", "k").json(&body);
    let first = site.ask(run()).await.expect(422);
    assert_eq!(first.header("idempotent-replayed"), None);
    let again = site.ask(run()).await.expect(422);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("location"), first.header("location"));
    assert!(first.header("location").is_some());
    assert_eq!(again.json()["job"], first.json()["job"]);
}

#[tokio::test]
async fn a_private_job_takes_no_idempotency_key() {
    let site = Site::start().await;
    let body = json!({"operation": "test:echo", "private": true});
    for path in ["/api/v1/invoke", "/api/v1/run"] {
        let request = site.request("POST", path).header("idempotency-key", "k").json(&body);
        site.ask(request).await.expect_error(400, "bad_request");
    }
}
