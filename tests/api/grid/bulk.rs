//! Actions on many jobs: `jobs:control`.

use catena_auth::KeyPair;
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

async fn control(client: &Client, input: Json) -> Json {
    let id = id_of(&client.invoke("jobs:control", input).await);
    client.ended(&id).await
}

async fn start(client: &Client, jobs: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..jobs {
        ids.push(client.invoked("test:never", json!({}), "STARTED").await);
    }
    ids
}

#[tokio::test]
async fn all_jobs_that_match_a_filter_are_controlled() {
    let site = Site::start().await;
    let ids = start(&site, 3).await;
    let other = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let filter = json!({"status": "STARTED", "op": "test:never"});
    let input = |action: &str| json!({"filter": filter, "action": action, "expected": 3});
    let done = control(&site, input("pause")).await;
    assert_eq!(done["status"], "COMPLETE", "{done}");
    assert_eq!((&done["output"]["changed"], &done["output"]["total"]), (&json!(3), &json!(3)));
    for id in &ids {
        assert_eq!(site.job(id).await["status"], "PAUSED");
    }
    let done = control(&site, json!({"ids": ids, "action": "resume", "expected": 3})).await;
    assert_eq!(done["output"]["changed"], 3, "{done}");
    let done = control(&site, input("cancel")).await;
    assert_eq!(done["output"]["changed"], 3, "{done}");
    for id in &ids {
        let job = site.job(id).await;
        assert_eq!(job["status"], "CANCELLED");
        assert_eq!(site.history(id).await.last()["by"], job["caller"], "it is audited");
    }
    assert_eq!(site.job(&other).await["status"], "INPUT_REQUIRED");
    // The chain says which jobs it was about.
    site.history(&id_of(&done)).await;
    let selected = site.get(&format!("/api/v1/jobs?expand&parent={}", id_of(&done))).await;
    let selected = selected.expect(200).json()["items"][0].clone();
    assert_eq!(selected["op"], "jobs:select");
    let mut chosen = site.job(&id_of(&selected)).await["output"]["ids"].clone();
    assert_eq!(chosen.as_array_mut().unwrap().len(), 3);
}

#[tokio::test]
async fn nothing_changes_if_the_number_is_not_the_expected_one() {
    let site = Site::start().await;
    let ids = start(&site, 2).await;
    for input in [
        json!({"filter": {"op": "test:never"}, "action": "cancel", "expected": 3}),
        json!({"ids": ids, "action": "cancel", "expected": 1}),
    ] {
        let refused = control(&site, input).await;
        assert_eq!(
            (&refused["status"], &refused["errorCode"]),
            (&json!("FAILED"), &json!("count_changed"))
        );
        assert!(refused["error"].as_str().unwrap().contains("2 jobs match"), "{refused}");
    }
    for id in &ids {
        assert_eq!(site.job(id).await["status"], "STARTED");
    }
    for bad in [
        json!({"action": "cancel", "expected": 0}),
        json!({"ids": [], "action": "stop", "expected": 0}),
        json!({"filter": {"state": "x"}, "action": "cancel", "expected": 0}),
    ] {
        let refused = control(&site, bad).await;
        assert!(refused["status"] == "REJECTED" || refused["status"] == "FAILED", "{refused}");
    }
}

#[tokio::test]
async fn ended_jobs_are_rerun_and_deleted_and_others_are_skipped() {
    let site = Site::start().await;
    let ended = site.invoked("test:echo", json!({"n": 1}), "COMPLETE").await;
    let live = start(&site, 1).await.remove(0);
    let input = |action: &str| json!({"ids": [ended, live], "action": action, "expected": 2});
    let done = control(&site, input("rerun")).await;
    let count =
        |done: &Json| (done["output"]["changed"].clone(), done["output"]["skipped"].clone());
    assert_eq!(count(&done), (json!(1), json!(1)), "{done}");
    let list = site.get("/api/v1/jobs?expand&op=test:echo").await.expect(200).json();
    assert_eq!(list["total"], 2, "{list}");
    let done = control(&site, input("cancel")).await;
    assert_eq!(count(&done), (json!(1), json!(1)), "{done}");
    let done = control(&site, input("delete")).await;
    assert_eq!(count(&done), (json!(2), json!(0)), "{done}");
    site.get(&format!("/api/v1/jobs/{ended}")).await.expect_error(410, "job_deleted");
    let done = control(&site, input("delete")).await;
    assert_eq!(count(&done), (json!(0), json!(2)), "{done}");
}

#[tokio::test]
async fn an_action_does_not_apply_to_itself_and_takes_batches() {
    const JOBS: usize = 450;
    let site = Site::start().await;
    for _ in 0..JOBS {
        site.invoke("test:echo", json!({})).await;
    }
    let done = control(&site, json!({"filter": {}, "action": "delete", "expected": JOBS})).await;
    assert_eq!(done["output"]["changed"], JOBS, "{done}");
    assert_eq!(done["progress"]["processedItems"], JOBS, "{done}");
    assert_eq!(site.job_count().await, 1, "only the action itself is left");
    let parts = site.get(&format!("/api/v1/jobs?parent={}", id_of(&done))).await.expect(200);
    assert_eq!(parts.json()["total"], 4, "one selection and three batches");
}

#[tokio::test]
async fn jobs_of_others_need_an_admin() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let (alice, bob, admin) = (site.caller(1).await, site.caller(2).await, site.caller(9).await);
    let id = start(&alice, 1).await.remove(0);
    let all =
        json!({"filter": {"owner": "*", "op": "test:never"}, "action": "cancel", "expected": 1});
    let refused = control(&bob, all.clone()).await;
    assert_eq!(refused["status"], "FAILED", "{refused}");
    let none = control(&bob, json!({"ids": [id], "action": "cancel", "expected": 1})).await;
    assert_eq!(none["output"]["skipped"], 1, "what may not be seen is not there: {none}");
    assert_eq!(alice.job(&id).await["status"], "STARTED");
    let done = control(&admin, all).await;
    assert_eq!(done["output"]["changed"], 1, "{done}");
    assert_eq!(alice.job(&id).await["status"], "CANCELLED");
}

/// What ends jobs runs even if those jobs are all that the caller and the venue have room for.
#[tokio::test]
async fn a_caller_whose_jobs_occupy_every_slot_can_still_cancel_them() {
    let site = Site::with(|flags| {
        flags.running = Some("4".to_owned());
        flags.live_jobs = Some("10".to_owned());
        flags.live_jobs_total = Some("10".to_owned());
    })
    .await;
    start(&site, 4).await;
    for _ in 4..10 {
        site.invoked("test:never", json!({}), "PENDING").await;
    }
    let full = json!({"operation": "test:never", "input": {}});
    site.post("/api/v1/invoke", &full).await.expect_error(429, "too_many_jobs");
    let input = json!({"filter": {"op": "test:never"}, "action": "cancel", "expected": 10});
    let done = control(&site, input).await;
    assert_eq!(done["status"], "COMPLETE", "{done}");
    assert_eq!(done["output"]["changed"], 10, "{done}");
    assert_eq!(site.get("/api/v1/jobs?expand&status=CANCELLED").await.json()["total"], 10);
}

/// A bulk action of many batches, each of which is a job, with no slot but those for such actions.
#[tokio::test]
async fn batches_of_an_action_need_no_slots_of_jobs() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    let busy = site.invoked("test:never", json!({}), "STARTED").await;
    for _ in 0..450 {
        site.invoked("test:never", json!({}), "PENDING").await;
    }
    let input = json!({"filter": {"status": "PENDING"}, "action": "cancel", "expected": 450});
    let done = control(&site, input).await;
    assert_eq!(done["output"]["changed"], 450, "{done}");
    assert_eq!(site.job(&busy).await["status"], "STARTED");
}
