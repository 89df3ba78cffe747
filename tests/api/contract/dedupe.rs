//! Section 5: deduplication and idempotency keys. The key itself is in `sections`.
//!
//! Section 5.2: "If an existing job exists with the same `execution_key` and a terminal state: If `SUCCEEDED`:
//! return the previous job’s outputs/artifacts. If `FAILED`: return the previous failure **only** if
//! requested via a `reuse_failed` flag (default false)".
//!
//! Section 5.3: "accept `Idempotency-Key` header (opaque string); store it for a bounded time window (e.g.,
//! 24h); same key + same user + same endpoint + same body → same response".
//!
//! Section 10.1: "job is superseded (optional policy)".

use serde_json::json;

use crate::{Bench, changed, payload, text, uuid};

#[tokio::test]
async fn of_equal_requests_at_the_same_time_one_creates_a_job() {
    let bench = Bench::ready().await;
    let body = payload("print(1)");
    let posts = (0..8).map(|_| {
        let (owner, body) = (bench.owner.clone(), body.clone());
        tokio::spawn(async move { owner.post("/contract/v1/jobs", &body).await })
    });
    let mut ids = std::collections::BTreeSet::new();
    let mut created = 0;
    for post in posts.collect::<Vec<_>>() {
        let reply = post.await.unwrap();
        let job = reply.json();
        created += u32::from(reply.status() == 202);
        assert_eq!(job["deduplicated"], json!(reply.status() == 200), "{job}");
        ids.insert(text(&job, "job_id"));
    }
    assert_eq!((ids.len(), created), (1, 1));
    let job = bench.claim("e1").await;
    bench.succeed(&job).await;
    let nothing = bench.try_claim("e1", 0).await;
    assert_eq!(nothing["jobs"], json!([]), "the job runs once");
}

#[tokio::test]
async fn what_is_reused_depends_on_how_the_earlier_job_ended() {
    let bench = Bench::ready().await;
    let post = |body| {
        let owner = bench.owner.clone();
        async move {
            let reply = owner.post("/contract/v1/jobs", &body).await;
            (reply.status(), text(&reply.json(), "job_id"))
        }
    };
    // SUCCEEDED: the earlier job.
    let (id, job) = bench.claimed(&payload("a")).await;
    assert_eq!(post(payload("a")).await, (200, id.clone()), "still running: that job");
    bench.succeed(&job).await;
    assert_eq!(post(payload("a")).await, (200, id.clone()));
    // Another workspace and another owner have jobs of their own.
    assert_eq!(post(changed("a", &[("/workspace_id", json!(uuid(77)))])).await.0, 202);
    let stranger = bench.site.caller(2).await;
    assert_eq!(stranger.post("/contract/v1/jobs", &payload("a")).await.status(), 202);
    // FAILED: only with `reuse_failed`.
    let (_, other) = (bench.claim("e1").await, bench.claim("e1").await);
    bench.succeed(&other).await;
    let (failed, job) = bench.claimed(&payload("b")).await;
    bench.fail(&job, "USER_CODE_ERROR").await;
    assert_eq!(post(changed("b", &[("/reuse_failed", json!(true))])).await, (200, failed.clone()));
    let (status, again) = post(payload("b")).await;
    assert!(status == 202 && again != failed);
    // CANCELLED: never. Deleted: never.
    bench.owner.post(&format!("/contract/v1/jobs/{again}/cancel"), &json!({})).await.expect(200);
    assert_eq!(post(changed("b", &[("/reuse_failed", json!(true))])).await.0, 202);
    bench.owner.put(&format!("/api/v1/jobs/{id}/delete")).await;
    assert_eq!(post(payload("a")).await.0, 202);
}

#[tokio::test]
async fn an_idempotency_key_repeats_the_response() {
    let bench = Bench::ready().await;
    let post = |key: &'static str, source: &'static str| {
        let owner = bench.owner.clone();
        async move {
            let request = owner.request("POST", "/contract/v1/jobs");
            let request = request.header("idempotency-key", key).json(&payload(source));
            owner.ask(request).await
        }
    };
    let first = post("k1", "x").await.expect(202);
    let again = post("k1", "x").await.expect(202);
    assert_eq!(text(&first.json(), "job_id"), text(&again.json(), "job_id"));
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let reused = post("k2", "x").await.expect(200);
    assert_eq!(reused.json()["deduplicated"], json!(true));
    post("k2", "x").await.expect(200);
    assert_eq!(post("k1", "y").await.status(), 422);
}

#[tokio::test]
async fn a_superseding_job_names_what_it_cancelled() {
    let bench = Bench::ready().await;
    let first = text(&bench.submit(&payload("one")).await, "job_id");
    let body = changed("two", &[("/supersede", json!(true))]);
    let second = bench.submit(&body).await;
    assert_eq!(second["superseded"], json!([first]));
    let cancelled = bench.read(&first).await;
    assert_eq!(cancelled["status"], "CANCELLED");
    assert_eq!(cancelled["reason"], format!("superseded by {}", text(&second, "job_id")));
    assert_eq!(bench.read(&text(&second, "job_id")).await["status"], "QUEUED");
}
