//! What callers together may use, and what one of them leaves to the others.

use catena_auth::KeyPair;
use catena_tests::site::{Client, Site, id_of};
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

/// Ten bytes for each number. No two parts of it are equal, so that nothing of it is stored only once.
fn distinct_text(from: usize, count: usize) -> String {
    (from..from + count).map(|number| format!("{number:>10}")).collect()
}

#[tokio::test]
async fn what_is_stored_for_a_caller_has_a_quota() {
    let site = Site::with(|flags| flags.stored_bytes = Some("1MB".to_owned())).await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let text = |n: usize| json!({"text": distinct_text(n * 40_000, 40_000)});
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(alice.invoked("test:echo", text(n), "COMPLETE").await);
    }
    // Everything that stores more is refused, and says what to do.
    let body = json!({"operation": "test:echo", "input": {}});
    let refused = alice.post("/api/v1/invoke", &body).await;
    assert!(refused.header("retry-after").is_some());
    assert!(refused.expect_error(429, "storage_full")["hint"].as_str().unwrap().contains("Delete"));
    alice.post("/api/v1/assets", &json!({"name": "more"})).await.expect_error(429, "storage_full");
    let write = json!({"operation": "covia:write", "input": {"path": "w/a", "value": 1}});
    alice.post("/api/v1/invoke", &write).await.expect_error(429, "storage_full");
    // Others are not affected, and what only reads or deletes is allowed.
    assert_eq!(bob.invoke("test:echo", json!({})).await["status"], "COMPLETE");
    alice.get(&format!("/api/v1/jobs/{}", jobs[0])).await.expect(200);
    let delete = json!({"path": "w/nothing"});
    assert_eq!(alice.invoke("covia:delete", delete).await["status"], "COMPLETE");
    // A restart knows the numbers.
    let site = site.restarted().await;
    let alice = site.caller(1).await;
    alice.post("/api/v1/invoke", &body).await.expect_error(429, "storage_full");
    for job in &jobs {
        alice.control(job, "delete").await.expect(200);
    }
}

#[tokio::test]
async fn an_imported_history_counts_as_stored_bytes() {
    let site = Site::with(|flags| flags.stored_bytes = Some("1MB".to_owned())).await;
    let other = Site::start().await;
    let (alice, remote) = (site.caller(1).await, other.caller(1).await);
    let mut stored = 0;
    for n in 0..5 {
        let input = json!({"text": distinct_text(n * 40_000, 40_000)});
        let job = remote.invoked("test:echo", input, "COMPLETE").await;
        let history = remote.get(&format!("/api/v1/jobs/{job}/history")).await.expect(200).json();
        let reply = alice.post("/api/v1/histories", &history).await;
        if reply.status() == 429 {
            reply.expect_error(429, "storage_full");
            break;
        }
        reply.expect(200);
        stored += 1;
    }
    assert!((1..5).contains(&stored), "{stored} histories of 400 kB were stored");
    let body = json!({"operation": "test:echo", "input": {}});
    alice.post("/api/v1/invoke", &body).await.expect_error(429, "storage_full");
}

#[tokio::test]
async fn what_is_stored_for_all_callers_together_has_a_quota() {
    let site = Site::with(|flags| flags.stored_bytes_total = Some("1MB".to_owned())).await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let text = |n: usize| json!({"text": distinct_text(n * 40_000, 40_000)});
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(alice.invoked("test:echo", text(n), "COMPLETE").await);
    }
    let body = json!({"operation": "test:echo", "input": {}});
    for client in [&alice, &bob] {
        let refused = client.post("/api/v1/invoke", &body).await.expect_error(429, "storage_full");
        assert!(refused["error"].as_str().unwrap().contains("all callers together"), "{refused}");
    }
    // What frees space is accepted, and a restart knows the number.
    let delete = json!({"path": "w/nothing"});
    assert_eq!(bob.invoke("covia:delete", delete).await["status"], "COMPLETE");
    let site = site.restarted().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    bob.post("/api/v1/invoke", &body).await.expect_error(429, "storage_full");
    for job in &jobs {
        alice.control(job, "delete").await.expect(200);
    }
}

#[tokio::test]
async fn a_workflow_that_stores_too_much_fails() {
    let site = Site::with(|flags| flags.stored_bytes = Some("1MB".to_owned())).await;
    let alice = site.caller(1).await;
    // Each step moves the text by a character, so that no two outputs share a part.
    let step = |from: serde_json::Value| {
        let text = json!({"text": ["concat", ["const", "x"], from]});
        json!({"op": "test:delay", "input": {"delay": ["const", 1], "input": text}})
    };
    let mut steps = vec![step(json!(["input", "text"]))];
    steps.extend((1..20).map(|n| step(json!([n - 1, "text"]))));
    let definition = json!({
        "name": "grow",
        "operation": {"adapter": "orchestrator", "steps": steps, "result": {"n": ["const", 1]}},
    });
    let asset = alice.post("/api/v1/assets", &definition).await.expect(201).json();
    let asset = asset.as_str().unwrap().to_owned();
    let job = alice.invoked(&asset, json!({"text": distinct_text(0, 20_000)}), "FAILED").await;
    let job = alice.job(&job).await;
    assert!(job["error"].as_str().unwrap().contains("stored"), "{}", job["error"]);
    assert!(job["steps"].as_array().unwrap().iter().any(|step| step["status"] == "SKIPPED"));
}

#[tokio::test]
async fn an_admin_can_remove_anybodys_asset() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let (alice, admin) = (site.caller(1).await, site.caller(9).await);
    let definition = json!({"name": "mine", "operation": {"adapter": "test:echo"}});
    let id = alice.post("/api/v1/assets", &definition).await.expect(201).json();
    let path = format!("/api/v1/assets/{}", id.as_str().unwrap());
    let remove = async |client: &Client| client.ask(client.request("DELETE", &path)).await;
    remove(&alice).await.expect_error(403, "forbidden");
    alice.invoked(id.as_str().unwrap(), json!({}), "COMPLETE").await;
    remove(&admin).await.expect(204);
    alice.get(&path).await.expect_error(404, "asset_not_found");
    let body = json!({"operation": id, "input": {}});
    alice.post("/api/v1/invoke", &body).await.expect_error(400, "operation_not_found");
    remove(&admin).await.expect_error(404, "asset_not_found");
    alice.post("/api/v1/assets", &definition).await.expect(201);
    alice.get(&path).await.expect(200);
}
