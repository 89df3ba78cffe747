//! Sections 6.3 and 10.1: what the plan allows, quotas, and the shares of owners.
//!
//! Section 6.3: "platform must not allow user overrides beyond plan/quota". Section 10.1: "quota enforcement
//! triggers cancellation".

use std::collections::HashMap;

use catena_tests::site::Client;
use serde_json::{Value as Json, json};

use crate::{Bench, ENVIRONMENT, changed, payload, text};

impl Bench {
    /// Claims up to `max` jobs at once without waiting.
    async fn claim_now(&self, max: usize) -> Vec<Json> {
        let queue = format!("exec.{}", ENVIRONMENT.replace('@', "."));
        let body = json!({"worker": "e1", "queues": [queue], "max": max, "waitMs": 0,
                          "about": {"tier": "T2"}});
        let reply = self.executor.post("/worker/v1/claim", &body).await.expect(200).json();
        reply["jobs"].as_array().unwrap().clone()
    }

    async fn announce_slots(&self, slots: usize) {
        let environment =
            json!({"version": ENVIRONMENT, "profile": "bare", "job_types": ["object_execute"]});
        let body = json!({"worker": "e1", "slots": slots, "environments": [environment]});
        self.executor.post("/contract/v1/executor/announce", &body).await.expect(200);
    }
}

async fn submit(owner: &Client, source: &str) -> String {
    text(&owner.post("/contract/v1/jobs", &payload(source)).await.expect(202).json(), "job_id")
}

/// How many of these claimed jobs belong to an owner, whose sources begin with its name.
fn count_of(jobs: &[Json], name: &str) -> usize {
    let source = |job: &Json| text(&job["input"]["inputs"]["object"]["content"], "value");
    jobs.iter().filter(|job| source(job).starts_with(name)).count()
}

#[tokio::test]
async fn one_owner_holds_at_most_half_of_the_slots_while_others_wait() {
    let bench = Bench::start().await;
    bench.announce_slots(4).await;
    let (anna, ben) = (bench.site.caller(2).await, bench.site.caller(3).await);
    for number in 0..8 {
        submit(&anna, &format!("anna = {number}")).await;
    }
    let first = bench.claim_now(2).await;
    assert_eq!(count_of(&first, "anna"), 2);
    for number in 0..3 {
        submit(&ben, &format!("ben = {number}")).await;
    }
    let second = bench.claim_now(2).await;
    assert_eq!(count_of(&second, "ben"), 2, "anna has her half: {second:?}");
    // A slot that becomes free goes to whoever is below the share.
    bench.succeed(&second[0]).await;
    let third = bench.claim_now(1).await;
    assert_eq!(count_of(&third, "ben"), 1);
    // Nobody else waits: the rest is free for all.
    bench.succeed(&second[1]).await;
    bench.succeed(&third[0]).await;
    let fourth = bench.claim_now(2).await;
    assert_eq!(count_of(&fourth, "anna"), 2);
    // She is beyond her share now, so that the next free slot is for him.
    submit(&ben, "ben = 9").await;
    bench.succeed(&first[0]).await;
    assert_eq!(count_of(&bench.claim_now(1).await, "ben"), 1);
}

/// Reports claimed jobs of the executor, and returns what the venue wants of each, by job. It may also repeat
/// that another one is to be stopped.
async fn signals(bench: &Bench, jobs: &[&Json]) -> HashMap<String, String> {
    let reports: Vec<Json> =
        jobs.iter().map(|job| json!({"id": job["id"], "fence": job["fence"]})).collect();
    let body = json!({"worker": "e1", "waitMs": 0, "jobs": reports});
    let reply = bench.executor.post("/worker/v1/beat", &body).await.expect(200).json();
    let is_reported = |signal: &&Json| jobs.iter().any(|job| job["id"] == signal["id"]);
    let signals = reply["signals"].as_array().unwrap().iter().filter(is_reported);
    signals.map(|signal| (text(signal, "id"), text(signal, "signal"))).collect()
}

/// Waits until the executor is told to stop a job.
async fn until_stopped(bench: &Bench, job: &Json) {
    let started = tokio::time::Instant::now();
    while signals(bench, &[job]).await.get(&text(job, "id")).map(String::as_str) != Some("stop") {
        assert!(started.elapsed() < catena_tests::TIMEOUT, "{job} is kept");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Submits a job, claims and pauses it.
async fn paused(bench: &Bench, owner: &Client, source: &str) -> Json {
    let id = submit(owner, source).await;
    let mut claimed = bench.claim_now(1).await;
    let job = claimed.pop().unwrap_or_else(|| panic!("no slot for {source}"));
    assert_eq!(text(&job["input"], "job_id"), id);
    owner.control(&id, "pause").await.expect(200);
    job
}

/// "Cap: each executor has at most as many frozen processes as slots, and each owner at most half of them.
/// Beyond either bound, the oldest is released."
#[tokio::test]
async fn an_executor_keeps_as_many_paused_cells_as_it_has_slots_and_half_of_them_of_one_owner() {
    let bench = Bench::start().await;
    bench.announce_slots(4).await;
    let mut owners = Vec::new();
    for number in 2..5 {
        owners.push(bench.site.caller(number).await);
    }
    let [anna, ben, carl] = owners.as_slice() else { panic!("three owners") };
    let first = paused(&bench, anna, "anna = 1").await;
    let second = paused(&bench, anna, "anna = 2").await;
    let told = signals(&bench, &[&first, &second]).await;
    assert!(told.len() == 2 && told.values().all(|signal| signal == "pause"), "{told:?}");
    let third = paused(&bench, anna, "anna = 3").await;
    until_stopped(&bench, &first).await;
    assert_eq!(bench.end(&first, json!({"output": {}})).await.status(), 409, "it is not held");
    // Others fill the rest, and the next one replaces the oldest of all.
    let fourth = paused(&bench, ben, "ben = 1").await;
    let fifth = paused(&bench, ben, "ben = 2").await;
    let kept = [&second, &third, &fourth, &fifth];
    let told = signals(&bench, &kept).await;
    assert!(told.len() == 4 && told.values().all(|signal| signal == "pause"), "{told:?}");
    let sixth = paused(&bench, carl, "carl = 1").await;
    until_stopped(&bench, &second).await;
    // What was kept continues under its fence; what was released runs again.
    let kept = [(anna, third), (ben, fourth), (ben, fifth), (carl, sixth)];
    for (owner, job) in &kept {
        owner.control(&text(job, "id"), "resume").await.expect(200);
        assert_eq!(signals(&bench, &[job]).await[&text(job, "id")], "go");
        bench.succeed(job).await;
    }
    for job in [first, second] {
        let id = text(&job["input"], "job_id");
        assert_eq!(bench.claim_now(1).await, [] as [Json; 0], "it is paused");
        anna.control(&id, "resume").await.expect(200);
        let again = bench.claim_now(1).await;
        assert_eq!((&again[0]["id"], &again[0]["attempt"]), (&job["id"], &json!(2)));
        bench.succeed(&again[0]).await;
        let result = anna.get(&format!("/contract/v1/jobs/{id}")).await.expect(200).json();
        assert_eq!(result["status"], "SUCCEEDED", "{result}");
    }
}

/// A paused cell is none of those that its owner runs.
#[tokio::test]
async fn a_paused_cell_does_not_count_for_the_share_of_its_owner() {
    let bench = Bench::start().await;
    bench.announce_slots(2).await;
    let (anna, ben) = (bench.site.caller(2).await, bench.site.caller(3).await);
    submit(&ben, "ben = 1").await;
    let bens = bench.claim_now(1).await;
    let job = paused(&bench, &anna, "anna = 1").await;
    let running = async || {
        let listed = anna.get("/contract/v1/executors").await.expect(200).json();
        listed["executors"][0]["running"].clone()
    };
    assert_eq!(running().await, 0, "it occupies no slot");
    submit(&ben, "ben = 2").await;
    submit(&anna, "anna = 2").await;
    let annas = bench.claim_now(1).await;
    assert_eq!(count_of(&annas, "anna"), 1, "he has his share, she has nothing: {annas:?}");
    // One that is resumed counts again.
    bench.succeed(&annas[0]).await;
    bench.succeed(&bens[0]).await;
    anna.control(&text(&job, "id"), "resume").await.expect(200);
    assert_eq!(running().await, 1);
    submit(&anna, "anna = 3").await;
    assert_eq!(count_of(&bench.claim_now(1).await, "ben"), 1, "she has her share");
}

#[tokio::test]
async fn queued_jobs_beyond_the_quota_are_cancelled() {
    let bench = Bench::with(|flags| flags.cpu_per_day = Some("1s".to_owned())).await;
    bench.announce().await;
    let end = |ms: i64| json!({"output": {"stdout": ""}, "execution": {"resource_usage": {"cpu_ms": ms}}});
    let (_, job) = bench.claimed(&payload("1")).await;
    bench.end(&job, end(600)).await.expect(200);
    let (_, job) = bench.claimed(&payload("2")).await;
    bench.end(&job, end(600)).await.expect(200);
    let ids = [bench.submit(&payload("3")).await, bench.submit(&payload("4")).await];
    let other = bench.site.caller(5).await;
    let others = submit(&other, "5").await;
    let claimed = bench.claim_now(3).await;
    assert_eq!(claimed.len(), 1, "only the job of another owner runs");
    assert_eq!(other.get(&format!("/contract/v1/jobs/{others}")).await.json()["status"], "RUNNING");
    for created in ids {
        let result = bench.read(&text(&created, "job_id")).await;
        assert_eq!(
            (&result["status"], &result["reason"]),
            (&json!("CANCELLED"), &json!("quota")),
            "{result}"
        );
    }
}

#[tokio::test]
async fn the_operator_sets_the_plan_and_the_default_environment() {
    let bench = Bench::with(|flags| {
        flags.plan_timeout_ms = Some("1000".to_owned());
        flags.default_environment = Some("sci".to_owned());
    })
    .await;
    bench.announce().await;
    let reply = bench.owner.post("/contract/v1/jobs", &payload("1")).await;
    let error = reply.expect(400).json()["error"].clone();
    assert_eq!(error["code"], "UNKNOWN_ENV_VERSION", "there is no sci yet");
    let version = "py-sci@0123456789ab";
    let environment =
        json!({"version": version, "profile": "sci", "job_types": ["object_execute"]});
    let body = json!({"worker": "e2", "slots": 1, "environments": [environment]});
    bench.executor.post("/contract/v1/executor/announce", &body).await.expect(200);
    let above = changed("1", &[("/limits", json!({"timeout_ms": 1001}))]);
    let error =
        bench.owner.post("/contract/v1/jobs", &above).await.expect(400).json()["error"].clone();
    assert_eq!(
        (&error["code"], &error["details"]["maximum"]),
        (&json!("LIMIT_ABOVE_PLAN"), &json!(1000))
    );
    let id = text(&bench.submit(&payload("1")).await, "job_id");
    let path = format!("/contract/v1/jobs/{id}/payload");
    let sent = bench.owner.get(&path).await.expect(200).json();
    assert_eq!(sent["limits"]["timeout_ms"], 1000, "the default is not above the plan");
    assert_eq!(sent["environment"]["env_version"], version);
    let wrong = json!({"code": "1", "limits": {"timeout_ms": 1001}});
    assert_eq!(bench.owner.invoke("exec:python", wrong).await["status"], "REJECTED");
}

#[tokio::test]
async fn a_job_without_a_connected_executor_says_so() {
    let bench = Bench::with_lease("300ms").await;
    bench.announce().await;
    let created = bench.submit(&payload("1")).await;
    assert!(created["hint"].is_null(), "{created}");
    bench.succeed(&bench.claim("e1").await).await;
    // The lease of the executor ends, but its environment stays known.
    let started = tokio::time::Instant::now();
    for number in 2.. {
        let created = bench.submit(&payload(&number.to_string())).await;
        if let Some(hint) = created["hint"].as_str() {
            assert!(hint.contains(ENVIRONMENT), "{hint}");
            let read = bench.read(&text(&created, "job_id")).await;
            assert_eq!((&read["status"], &read["hint"]), (&json!("QUEUED"), &json!(hint)));
            break;
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "no hint");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn progress_of_a_cell_is_shown_everywhere() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("progress(1, 4)")).await;
    let report = json!({"id": job["id"], "fence": job["fence"],
                        "progress": {"processedItems": 1, "totalItems": 4}});
    let body = json!({"worker": "e1", "waitMs": 0, "jobs": [report]});
    bench.executor.post("/worker/v1/beat", &body).await.expect(200);
    // It is stored without making the executor wait.
    let started = tokio::time::Instant::now();
    let shown = loop {
        let shown = bench.read(&id).await["progress"].clone();
        if shown.is_object() {
            break shown;
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "no progress is shown");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!((&shown["processedItems"], &shown["totalItems"]), (&json!(1), &json!(4)), "{shown}");
    let canvas =
        bench.owner.get(&format!("/canvas/v1/jobs/{id}/progress")).await.expect(200).json();
    assert_eq!((&canvas["progress"], &canvas["totalItems"]), (&json!(25), &json!(4)), "{canvas}");
    let grid = bench.owner.job(&id).await;
    assert_eq!(grid["progress"]["processedItems"], 1, "{grid}");
}
