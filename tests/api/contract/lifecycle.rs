//! Sections 3, 8, 9 and 10: statuses, results, failures, retries and cancellation.
//!
//! Section 9.3, "Retry policy by category":
//!
//! - `USER_CODE_ERROR`, `VALIDATION_ERROR`, `SANDBOX_VIOLATION`: "no automatic retry"
//! - `RESOURCE_LIMIT`: "no automatic retry (unless limits changed)"; other limits are another key
//! - `DEPENDENCY_ERROR`: "retry only if dependency becomes available"; the same request is then a new job
//! - `INTERNAL_ERROR`: "eligible for retry (bounded attempts)"
//!
//! Section 10.1: "Platform may mark a job as `CANCELLED` if: user explicitly cancels; job is superseded
//! (see `dedupe`); quota enforcement triggers cancellation (see `shares`)".
//!
//! Section 10.2: "If not, platform treats it as cancelled and discards late results".

use serde_json::{Value as Json, json};

use crate::{Bench, ENVIRONMENT, changed, payload, text, uuid};

/// The records of a job, which are checked on the way.
async fn records(bench: &Bench, id: &str) -> Vec<Json> {
    let chain = bench.owner.history(id).await;
    chain.entries.iter().map(|entry| entry["record"].clone()).collect()
}

#[tokio::test]
async fn a_job_is_queued_runs_and_succeeds_and_its_result_is_part_of_the_proof() {
    let bench = Bench::ready().await;
    let created = bench.submit(&payload("print(1)")).await;
    let id = text(&created, "job_id");
    assert_eq!(created["status"], "QUEUED");
    let job = bench.claim("e1").await;
    let running = bench.read(&id).await;
    assert_eq!((&running["status"], &running["attempt"]), (&json!("RUNNING"), &json!(1)));
    bench.succeed(&job).await;
    let result = bench.read(&id).await;
    assert_eq!(result["status"], "SUCCEEDED");
    assert_eq!(result["outputs"]["stdout"], "1\n");
    assert_eq!((&result["tier"], &result["duration_ms"]), (&json!("T2"), &json!(5)));
    assert_eq!(result["environment"]["env_version"], ENVIRONMENT);
    for name in ["workspace_id", "project_id", "document_id", "document_revision_id", "object_id"] {
        assert!(result[name].is_string(), "{name}");
    }
    for name in ["execution_key", "input_hash", "head", "created_at"] {
        assert!(result[name].is_string(), "{name}");
    }
    let records = records(&bench, &id).await;
    let first = &records[0];
    assert_eq!(first["executionKey"], result["execution_key"]);
    assert_eq!(first["input"], payload("print(1)"), "the input is the payload as given");
    assert_eq!((&records[1]["status"], &records[1]["tier"]), (&json!("STARTED"), &json!("T2")));
    assert!(records[1]["executor"].as_str().unwrap().contains("e1"));
    let last = records.last().unwrap();
    assert_eq!((&last["status"], &last["execution"]["tier"]), (&json!("COMPLETE"), &json!("T2")));
    // It is a job at every other API.
    assert_eq!(bench.owner.job(&id).await["status"], "COMPLETE");
}

#[tokio::test]
async fn only_internal_errors_are_retried_and_at_most_three_times_in_all() {
    let bench = Bench::ready().await;
    for category in [
        "USER_CODE_ERROR",
        "VALIDATION_ERROR",
        "RESOURCE_LIMIT",
        "SANDBOX_VIOLATION",
        "DEPENDENCY_ERROR",
    ] {
        let (id, job) = bench.claimed(&payload(category)).await;
        bench.fail(&job, category).await;
        let result = bench.read(&id).await;
        assert_eq!(result["status"], "FAILED", "{category}");
        assert_eq!(result["error"]["category"], category);
        assert_eq!(result["attempt"], 1, "no automatic retry");
    }
    let (id, mut job) = bench.claimed(&payload("internal")).await;
    for attempt in 1..=3 {
        assert_eq!(job["attempt"], attempt);
        bench.fail(&job, "INTERNAL_ERROR").await;
        if attempt < 3 {
            assert_eq!(bench.read(&id).await["status"], "RUNNING", "it never moves backwards");
            job = bench.claim("e1").await;
        }
    }
    let result = bench.read(&id).await;
    assert_eq!((&result["status"], &result["attempt"]), (&json!("FAILED"), &json!(3)));
    assert_eq!(result["error"]["category"], "INTERNAL_ERROR");
}

/// "no automatic retry (unless limits changed)", "retry only if dependency becomes available": the request
/// decides, and is then another job.
#[tokio::test]
async fn what_failed_runs_again_if_it_is_requested_again() {
    let bench = Bench::ready().await;
    for category in ["RESOURCE_LIMIT", "DEPENDENCY_ERROR"] {
        let (id, job) = bench.claimed(&payload(category)).await;
        bench.fail(&job, category).await;
        assert_eq!(bench.try_claim("e1", 0).await["jobs"], json!([]), "{category}");
        let reused = changed(category, &[("/reuse_failed", json!(true))]);
        let reused = bench.owner.post("/contract/v1/jobs", &reused).await.expect(200).json();
        assert_eq!(reused["job_id"], json!(id));
        let more = changed(category, &[("/limits", json!({"memory_mb": 1024}))]);
        for again in [payload(category), more] {
            let (other, job) = bench.claimed(&again).await;
            assert!(other != id && job["attempt"] == 1, "{category}");
            bench.succeed(&job).await;
        }
    }
}

#[tokio::test]
async fn a_lost_executor_is_an_internal_error_and_its_late_result_is_refused() {
    let bench = Bench::with_lease("300ms").await;
    bench.announce().await;
    let (id, first) = bench.claimed(&payload("lost")).await;
    // Nobody hears of the first executor again.
    let second = bench.claim("e2").await;
    assert_eq!((&second["id"], &second["attempt"]), (&first["id"], &json!(2)));
    let late = bench.end(&first, json!({"output": {"stdout": "late"}})).await;
    assert_eq!((late.status(), &late.json()["code"]), (409, &json!("fenced")));
    let third = bench.claim("e3").await;
    assert_eq!(third["attempt"], 3);
    let result = loop {
        let path = format!("/contract/v1/jobs/{id}?wait=20000");
        let result = bench.owner.get(&path).await.expect(200).json();
        if result["status"] != "RUNNING" {
            break result;
        }
    };
    assert_eq!((&result["status"], &result["attempt"]), (&json!("FAILED"), &json!(3)), "{result}");
    assert_eq!(result["error"]["category"], "INTERNAL_ERROR");
    let late = bench.end(&third, json!({"output": {"stdout": "late"}})).await;
    assert_eq!(late.status(), 409);
    assert!(bench.read(&id).await["outputs"]["stdout"].is_null(), "it leaves nothing behind");
}

#[tokio::test]
async fn a_cell_that_ran_too_long_is_timed_out_with_what_the_executor_knows() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("while True: pass")).await;
    let error =
        json!({"category": "RESOURCE_LIMIT", "code": "TIME_LIMIT", "message": "m", "details": {}});
    let end =
        json!({"timedOut": "m", "execution": {"error": error, "outputs": {"stdout": "so far"}}});
    bench.end(&job, end.clone()).await.expect(200);
    assert_eq!(bench.end(&job, end).await.expect(200).json()["repeated"], json!(true));
    let result = bench.read(&id).await;
    assert_eq!(
        (&result["status"], &result["error"]["code"]),
        (&json!("TIMED_OUT"), &json!("TIME_LIMIT"))
    );
    assert_eq!(result["outputs"]["stdout"], "so far");
    let records = records(&bench, &id).await;
    assert_eq!(records.last().unwrap()["execution"]["error"]["category"], "RESOURCE_LIMIT");
}

/// "Pause, resume, cancel and timeout … must hold even when it is unreachable."
#[tokio::test]
async fn a_job_whose_executor_is_silent_is_timed_out_and_cancelled_nevertheless() {
    let bench = Bench::ready().await;
    let body = json!({"operation": "exec:python", "input": {"code": "while True: pass"},
                      "timeoutMs": 300});
    let created = bench.owner.post("/api/v1/invoke", &body).await.expect(201).json();
    let timed_out = bench.claim("e1").await;
    let job = bench.owner.until(&text(&created, "id"), "TIMEOUT").await;
    assert!(text(&job, "error").contains("longer than its limit"), "{job}");
    let (id, cancelled) = bench.claimed(&payload("while True: pass")).await;
    bench.owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    assert_eq!(bench.read(&id).await["status"], "CANCELLED");
    // When it is heard of again, it is told, and its results are refused.
    let jobs = [timed_out, cancelled];
    let reports = jobs.each_ref().map(|job| json!({"id": job["id"], "fence": job["fence"]}));
    let beat = json!({"worker": "e1", "waitMs": 0, "jobs": reports});
    let reply = bench.executor.post("/worker/v1/beat", &beat).await.expect(200).json();
    for job in &jobs {
        let signals = reply["signals"].as_array().unwrap();
        let told = signals.iter().find(|signal| signal["id"] == job["id"]);
        assert_eq!(told.map(|told| &told["signal"]), Some(&json!("stop")), "{reply}");
        assert_eq!(bench.end(job, json!({"output": {}})).await.status(), 409);
    }
}

#[tokio::test]
async fn an_outcome_that_is_held_during_a_pause_keeps_what_the_executor_said() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("held")).await;
    bench.owner.control(&id, "pause").await.expect(200);
    bench.succeed(&job).await;
    assert_eq!(bench.read(&id).await["status"], "RUNNING");
    bench.owner.control(&id, "resume").await.expect(200);
    let result = bench.read(&id).await;
    assert_eq!(
        (&result["status"], &result["tier"]),
        (&json!("SUCCEEDED"), &json!("T2")),
        "{result}"
    );
}

#[tokio::test]
async fn a_cancelled_job_discards_its_result() {
    let bench = Bench::ready().await;
    let queued = text(&bench.submit(&payload("q")).await, "job_id");
    let cancelled =
        bench.owner.post(&format!("/contract/v1/jobs/{queued}/cancel"), &json!({})).await;
    assert_eq!(cancelled.expect(200).json()["status"], "CANCELLED", "QUEUED to CANCELLED");
    let (id, job) = bench.claimed(&payload("r")).await;
    bench.owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    assert_eq!(bench.end(&job, json!({"output": {}})).await.status(), 409);
    assert_eq!(bench.read(&id).await["status"], "CANCELLED");
}

#[tokio::test]
async fn jobs_are_listed_by_workspace_document_and_status() {
    let bench = Bench::ready().await;
    let (one, job) = bench.claimed(&payload("1")).await;
    bench.succeed(&job).await;
    let two =
        text(&bench.submit(&changed("2", &[("/document_id", json!(uuid(30)))])).await, "job_id");
    let other = changed("3", &[("/workspace_id", json!(uuid(10)))]);
    let three = text(&bench.submit(&other).await, "job_id");
    let list = |query: String| {
        let owner = bench.owner.clone();
        async move {
            let page = owner.get(&format!("/contract/v1/jobs?{query}")).await.expect(200).json();
            let ids = page["jobs"].as_array().unwrap().iter().map(|job| text(job, "job_id"));
            (ids.collect::<Vec<_>>(), page["next"].as_str().map(str::to_owned))
        }
    };
    assert_eq!(list(String::new()).await.0, [three.clone(), two.clone(), one.clone()]);
    assert_eq!(list(format!("workspace_id={}", uuid(1))).await.0, [two.clone(), one.clone()]);
    let both = format!("workspace_id={}&document_id={}", uuid(1), uuid(30));
    assert_eq!(list(both).await.0, std::slice::from_ref(&two));
    assert_eq!(list("status=SUCCEEDED".into()).await.0, std::slice::from_ref(&one));
    let (first, next) = list("limit=2".into()).await;
    assert_eq!(first.len(), 2);
    assert_eq!(
        list(format!("limit=2&cursor={}", next.unwrap())).await.0,
        std::slice::from_ref(&one)
    );
    let stranger = bench.site.caller(9).await;
    assert_eq!(stranger.get(&format!("/contract/v1/jobs/{one}")).await.status(), 404);
    // Any other job has its operation as type and a null identity.
    let echo = bench.owner.invoke("test:echo", json!({"a": 1})).await;
    let shown = bench.read(&catena_tests::site::id_of(&echo)).await;
    assert_eq!((&shown["job_type"], &shown["workspace_id"]), (&json!("test:echo"), &json!(null)));
}
