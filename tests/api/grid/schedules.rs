//! `scheduler:*` and the demo assets, from the user's point of view.

use std::time::Duration;

use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

/// The longest wait for a scheduled job.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn run(client: &Client, operation: &str, input: Json) -> Json {
    let body = json!({"operation": operation, "input": input});
    client.post("/api/v1/run", &body).await.expect(200).json()
}

async fn events(client: &Client) -> Vec<Json> {
    run(client, "scheduler:list", json!({})).await["events"].as_array().unwrap().clone()
}

/// The number of jobs of an operation that the caller has.
async fn count(client: &Client, op: &str) -> u64 {
    let path = format!("/api/v1/jobs?op={op}&limit=0");
    client.get(&path).await.expect(200).json()["total"].as_u64().unwrap()
}

/// Waits until nothing is scheduled any more. A schedule is deleted after its invocation.
async fn until_over(client: &Client) {
    let looking = async {
        while !events(client).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, looking).await.unwrap();
}

#[tokio::test]
async fn what_is_scheduled_once_is_invoked_once_by_its_owner() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let bob = site.caller(2).await;
    let soon = json!({"operation": "test:random", "input": {"length": 4}, "after": 300});
    let made = run(&alice, "scheduler:schedule", soon).await;
    let known = events(&alice).await;
    assert_eq!((&known[0]["handle"], &known[0]["time"]), (&made["handle"], &made["time"]));
    assert_eq!(known[0]["operation"], "test:random");
    assert!(events(&bob).await.is_empty(), "others do not see it");
    let handle = json!({"handle": made["handle"]});
    assert_eq!(run(&bob, "scheduler:cancel", handle.clone()).await, json!({"cancelled": false}));
    assert_eq!(run(&bob, "scheduler:trigger", handle).await, json!({"triggered": false}));
    until_over(&alice).await;
    assert_eq!((count(&alice, "test:random").await, count(&bob, "test:random").await), (1, 0));
}

#[tokio::test]
async fn what_is_scheduled_again_and_again_is_listed_triggered_and_cancelled() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let yearly = json!({"operation": "test:echo", "input": 7, "cron": "0 9 1 1 *"});
    let handle = json!({"handle": run(&alice, "scheduler:schedule", yearly).await["handle"]});
    let listed = events(&alice).await;
    assert_eq!((&listed[0]["cron"], &listed[0]["input"]), (&json!("0 9 1 1 *"), &json!(7)));
    let triggered = run(&alice, "scheduler:trigger", handle.clone()).await;
    let job = alice.ended(triggered["result"].as_str().unwrap()).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(7)));
    let tag = format!("schedule:{}", handle["handle"].as_str().unwrap());
    assert_eq!(job["tags"], json!(["scheduled", tag]), "a run names its schedule");
    let runs = alice.get(&format!("/api/v1/jobs?tag={tag}&expand")).await.expect(200).json();
    assert_eq!((&runs["total"], &runs["items"][0]["id"]), (&json!(1), &job["id"]));
    assert_eq!(events(&alice).await, listed, "it stays as it was");
    assert_eq!(run(&alice, "scheduler:cancel", handle.clone()).await, json!({"cancelled": true}));
    assert_eq!(run(&alice, "scheduler:cancel", handle).await, json!({"cancelled": false}));
    assert!(events(&alice).await.is_empty());
}

#[tokio::test]
async fn what_was_due_while_the_venue_stood_still_is_caught_up_once() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let soon = json!({"operation": "test:random", "input": {"length": 1}, "after": 300});
    run(&alice, "scheduler:schedule", soon).await;
    let site = site.restarted_after(Duration::from_millis(600)).await;
    let alice = site.caller(1).await;
    until_over(&alice).await;
    assert_eq!(count(&alice, "test:random").await, 1);
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused_and_says_why() {
    let site = Site::start().await;
    for (when, said) in [
        (json!({}), "give one of"),
        (json!({"after": 1, "cron": "* * * * *"}), "give one of"),
        (json!({"cron": "every day"}), "cron"),
        (json!({"time": "tomorrow"}), "`time` must be"),
    ] {
        let mut input = json!({"operation": "test:echo"});
        input.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
        let job = site.invoke("scheduler:schedule", input).await;
        let job = site.ended(job["id"].as_str().unwrap()).await;
        assert!(job["error"].as_str().unwrap().contains(said), "{job}");
    }
    assert!(events(&site).await.is_empty());
}

#[tokio::test]
async fn a_trigger_is_a_separate_run_and_changes_nothing_about_the_schedule() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let later = json!({"operation": "test:echo", "input": 7, "after": 3_600_000});
    let handle = json!({"handle": run(&alice, "scheduler:schedule", later).await["handle"]});
    let before = events(&alice).await;
    let one = run(&alice, "scheduler:trigger", handle.clone()).await;
    let two = run(&alice, "scheduler:trigger", handle).await;
    assert_ne!(one["result"], two["result"]);
    assert_eq!(events(&alice).await, before, "also one that does not repeat stays");
    assert_eq!(count(&alice, "test:echo").await, 2);
}

#[tokio::test]
async fn a_schedule_has_a_time_zone_an_overlap_policy_and_jitter() {
    let site = Site::start().await;
    let daily = json!({"operation": "test:echo", "cron": "30 9 * * *", "timeZone": "Asia/Kathmandu",
        "overlap": "skip", "jitterMs": 1000});
    let made = run(&site, "scheduler:schedule", daily).await;
    // Nepal is five hours and three quarters ahead of UTC all year: 03:45 UTC.
    let of_day = made["time"].as_i64().unwrap() % 86_400_000;
    assert!((13_500_000..=13_501_000).contains(&of_day), "{made}");
    let listed = &events(&site).await[0];
    assert_eq!(listed["timeZone"], "Asia/Kathmandu");
    assert_eq!((&listed["overlap"], &listed["jitterMs"]), (&json!("skip"), &json!(1000)));
    assert_eq!(listed["state"], "active");
}

#[tokio::test]
async fn a_schedule_is_paused_and_resumed_also_across_a_restart() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let soon = json!({"operation": "test:random", "input": {"length": 1}, "after": 500});
    let handle = json!({"handle": run(&alice, "scheduler:schedule", soon).await["handle"]});
    assert_eq!(run(&alice, "scheduler:pause", handle.clone()).await, json!({"paused": true}));
    let bob = site.caller(2).await;
    assert_eq!(run(&bob, "scheduler:resume", handle.clone()).await, json!({"resumed": false}));
    let site = site.restarted_after(Duration::from_millis(600)).await;
    let alice = site.caller(1).await;
    assert_eq!(events(&alice).await[0]["state"], "paused");
    assert_eq!(count(&alice, "test:random").await, 0);
    assert_eq!(run(&alice, "scheduler:resume", handle).await["resumed"], true);
    until_over(&alice).await;
    assert_eq!(count(&alice, "test:random").await, 1, "its only time is made up for");
}

#[tokio::test]
async fn a_schedule_whose_operation_asks_for_more_than_the_quota_delays_nobody() {
    let site = Site::with(|flags| flags.live_jobs = Some("1".to_owned())).await;
    let alice = site.caller(1).await;
    let bob = site.caller(2).await;
    for caller in [&alice, &bob] {
        let soon = json!({"operation": "test:random", "input": {"length": 1}, "after": 300});
        run(caller, "scheduler:schedule", soon).await;
    }
    let running = alice.invoked("test:never", json!({}), "STARTED").await;
    until_over(&bob).await;
    assert_eq!(count(&bob, "test:random").await, 1);
    let waiting = &events(&alice).await[0];
    assert_eq!(waiting["state"], "active");
    alice.control(&running, "cancel").await.expect(200);
    until_over(&alice).await;
    assert_eq!(count(&alice, "test:random").await, 1, "it starts when there is room");
}

#[tokio::test]
async fn an_unknown_member_of_a_schedule_is_refused_by_name() {
    let site = Site::start().await;
    let input = json!({"operation": "test:echo", "crom": "* * * * *"});
    let body = json!({"operation": "scheduler:schedule", "input": input});
    for path in ["/api/v1/invoke", "/api/v1/run"] {
        let error = site.post(path, &body).await.expect_error(400, "unknown_member");
        assert_eq!(error["error"], "unknown member `crom`; the nearest is `cron`", "{error}");
        assert_eq!((&error["member"], &error["nearest"]), (&json!("crom"), &json!("cron")));
    }
    assert_eq!(site.job_count().await, 0);
    let free = json!({"operation": "test:echo", "after": 3_600_000, "x-team": "blue"});
    run(&site, "scheduler:schedule", free).await;
}

#[tokio::test]
async fn an_admin_lists_and_removes_the_schedules_of_others() {
    let admin_key = catena_auth::KeyPair::from_seed(&[9; 32]);
    let site = Site::with(|flags| flags.admins = Some(admin_key.did())).await;
    let alice = site.caller(1).await;
    let admin = site.caller(9).await;
    let later = json!({"operation": "test:echo", "after": 3_600_000});
    let handle = run(&alice, "scheduler:schedule", later).await["handle"].clone();
    let all = |caller: Client| async move {
        let listed = run(&caller, "scheduler:list", json!({"owner": "*"})).await;
        listed["events"].as_array().unwrap().clone()
    };
    assert_eq!(all(admin.clone()).await[0]["handle"], handle);
    assert!(all(alice.clone()).await.is_empty(), "only admins see those of all owners");
    let owner = all(admin.clone()).await[0]["owner"].clone();
    let of_alice = run(&admin, "scheduler:list", json!({"owner": owner})).await;
    assert_eq!(of_alice["events"].as_array().unwrap().len(), 1);
    let removed = run(&admin, "scheduler:cancel", json!({"handle": handle})).await;
    assert_eq!(removed, json!({"cancelled": true}));
    assert!(events(&alice).await.is_empty());
}

#[tokio::test]
async fn every_venue_has_the_demo_assets() {
    let site = Site::start().await;
    let page = site.get("/api/v1/assets?kind=data").await.expect(200).json();
    let mut names = Vec::new();
    for id in page["items"].as_array().unwrap() {
        let id = id.as_str().unwrap().rsplit('/').next().unwrap();
        let metadata = site.get(&format!("/api/v1/assets/{id}")).await.expect(200).json();
        if metadata["name"] == "Iris Dataset" {
            let content = site.get(&format!("/api/v1/assets/{id}/content")).await.expect(200);
            assert_eq!(content.text().lines().count(), 151, "a head and 150 flowers");
        }
        names.push(metadata["name"].as_str().unwrap().to_owned());
    }
    assert!(names.iter().any(|name| name == "Iris Dataset"), "{names:?}");
}
