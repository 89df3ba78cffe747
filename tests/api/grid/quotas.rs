//! What callers together may use, and what one of them leaves to the others.

use catena_tests::site::{Site, id_of};
use serde_json::json;

#[tokio::test]
async fn all_callers_together_have_a_limit_of_live_jobs() {
    let site = Site::with(|flags| flags.live_jobs_total = Some("2".to_owned())).await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let first = alice.invoked("test:never", json!({}), "STARTED").await;
    bob.invoked("test:never", json!({}), "STARTED").await;
    let body = json!({"operation": "test:never", "input": {}});
    for client in [&alice, &bob, &*site] {
        let reply = client.post("/api/v1/invoke", &body).await;
        assert!(reply.header("retry-after").is_some());
        reply.expect_error(429, "venue_full");
        // What ends at once is not live.
        assert_eq!(client.invoke("test:echo", json!({})).await["status"], "COMPLETE");
    }
    alice.control(&first, "cancel").await.expect(200);
    bob.invoked("test:never", json!({}), "STARTED").await;
}

#[tokio::test]
async fn one_caller_leaves_slots_to_others() {
    let site = Site::with(|flags| flags.running = Some("8".to_owned())).await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(id_of(&alice.invoke("test:never", json!({})).await));
    }
    let mut started = 0;
    for job in &jobs {
        started += usize::from(alice.job(job).await["status"] == "STARTED");
    }
    assert_eq!(started, 6, "a quarter of the slots is left");
    let done = bob.invoked("test:delay", json!({"delay": 1}), "COMPLETE").await;
    bob.control(&done, "delete").await.expect(200);
    // What waits is started when a slot is free that its owner may have, and not before.
    assert_eq!(alice.job(&jobs[9]).await["status"], "PENDING");
    for job in &jobs[..4] {
        alice.control(job, "cancel").await.expect(200);
    }
    alice.until(&jobs[9], "STARTED").await;
}
