//! The API of workers `/worker/v1`, and named operations: what users' own processes rely on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "worker/library.rs"]
mod library;
#[path = "worker/names.rs"]
mod names;
#[path = "worker/push.rs"]
mod push;
#[path = "worker/queues.rs"]
mod queues;
#[path = "worker/secrets.rs"]
mod secrets;
#[path = "worker/signed.rs"]
mod signed;

use catena_auth::KeyPair;
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// Gives an operation of the queue `mail` a name. Returns its reference.
async fn define(client: &Client, more: Json) -> String {
    let mut operation = json!({"adapter": "worker", "queue": "mail"});
    for (name, value) in more.as_object().unwrap() {
        operation[name] = value.clone();
    }
    let body = json!({"name": "Mail", "operation": operation}).to_string();
    let request = client.request("PUT", "/api/v1/operations/mail").body(body.as_bytes());
    client.ask(request).await.expect(200);
    "o/mail".to_owned()
}

async fn claim(client: &Client, worker: &str, more: Json) -> Json {
    let mut body = json!({"worker": worker, "queues": ["mail"], "max": 10, "waitMs": 5_000});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    client.post("/worker/v1/claim", &body).await.expect(200).json()
}

/// Claims one job.
async fn claim_one(client: &Client, worker: &str) -> Json {
    let claimed = claim(client, worker, json!({"max": 1})).await;
    assert_eq!(claimed["jobs"].as_array().unwrap().len(), 1, "{claimed}");
    claimed["jobs"][0].clone()
}

fn path(job: &Json, verb: &str) -> String {
    format!("/worker/v1/jobs/{}/{verb}", job["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_job_is_claimed_reported_and_ended() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let id = id_of(&site.invoke(&operation, json!({"to": "ann"})).await);
    let job = claim_one(&site, "w1").await;
    assert_eq!((&job["id"], &job["op"]), (&json!(id), &json!("o/mail")));
    assert_eq!((&job["input"], &job["attempt"]), (&json!({"to": "ann"}), &json!(1)));
    assert!(job["deadline"].is_i64() && job["idempotencyKey"].is_string(), "{job}");
    let progress = json!({"processedItems": 1, "totalItems": 4});
    let report = json!({"id": id, "fence": job["fence"], "progress": progress});
    let beat = json!({"worker": "w1", "jobs": [report]});
    let reply = site.post("/worker/v1/beat", &beat).await.expect(200).json();
    assert_eq!(reply["signals"], json!([]));
    assert!(reply["leaseUntil"].as_i64().unwrap() > 0);
    let end = json!({"fence": job["fence"], "output": {"sent": true}});
    site.post(&path(&job, "end"), &end).await.expect(200);
    let again = site.post(&path(&job, "end"), &end).await.expect(200).json();
    assert_eq!(again["repeated"], true);
    let other = json!({"fence": job["fence"], "output": {"sent": false}});
    let refused = site.post(&path(&job, "end"), &other).await.expect(409).json();
    assert_eq!(refused["code"], "fenced");
    let ended = site.job(&id).await;
    assert_eq!((&ended["status"], &ended["output"]), (&json!("COMPLETE"), &json!({"sent": true})));
    let chain = site.history(&id).await;
    chain.verify();
    let by: Vec<_> = chain.entries.iter().map(|entry| entry["record"]["by"].clone()).collect();
    assert_eq!(by, [Json::Null, ended["caller"].clone(), ended["caller"].clone()]);
}

#[tokio::test]
async fn a_claim_ends_earlier_jobs_and_says_what_became_of_each() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    for number in 0..3 {
        site.invoke(&operation, json!(number)).await;
    }
    let claimed = claim(&site, "w1", json!({"max": 2})).await;
    let jobs = claimed["jobs"].as_array().unwrap();
    let done = json!([
        {"id": jobs[0]["id"], "fence": jobs[0]["fence"], "output": "first"},
        {"id": jobs[1]["id"], "fence": 99, "output": "late"},
    ]);
    let next = claim(&site, "w1", json!({"done": done})).await;
    assert_eq!(next["done"][0]["ok"], true, "{next}");
    assert_eq!(next["done"][1]["code"], "fenced", "{next}");
    assert_eq!(next["jobs"].as_array().unwrap().len(), 1);
    let first = site.job(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!(first["output"], "first");
    // Nothing is left to claim, and what became of the ends is told within a second.
    let last = &next["jobs"][0];
    let done = json!([{"id": last["id"], "fence": last["fence"], "output": "last"}]);
    let begun = tokio::time::Instant::now();
    let empty = claim(&site, "w1", json!({"done": done, "waitMs": 30_000})).await;
    assert_eq!((&empty["done"][0]["ok"], &empty["jobs"]), (&json!(true), &json!([])), "{empty}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn steps_and_calls_are_sub_jobs_that_the_chain_commits_to() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = claim_one(&site, "w1").await;
    let fence = job["fence"].clone();
    let step = json!({"fence": fence, "key": "charge", "output": {"receipt": 7}});
    let reply = site.post(&path(&job, "step"), &step).await.expect(200).json();
    assert_eq!((&reply["status"], &reply["output"]), (&json!("COMPLETE"), &json!({"receipt": 7})));
    let call = json!({"fence": fence, "key": "echo", "operation": "test:echo", "input": {"a": 1}});
    let reply = site.post(&path(&job, "call"), &call).await.expect(200).json();
    assert_eq!(reply["output"], json!({"a": 1}));
    let changed = json!({"fence": fence, "key": "echo", "operation": "test:echo", "input": 2});
    let refused = site.post(&path(&job, "call"), &changed).await.expect(422).json();
    assert_eq!(
        (&refused["code"], &refused["failure"]),
        (&json!("call_failed"), &json!("call_changed"))
    );
    // Giving the job back offers it again, with what was recorded.
    let back = json!({"fence": fence, "awaiting": []});
    site.post(&path(&job, "end"), &back).await.expect(200);
    let again = claim_one(&site, "w2").await;
    let keys: Vec<_> =
        again["steps"].as_array().unwrap().iter().map(|s| s["key"].clone()).collect();
    assert_eq!((keys, &again["attempt"]), (vec![json!("charge"), json!("echo")], &json!(1)));
    let end = json!({"fence": again["fence"], "output": null});
    site.post(&path(&again, "end"), &end).await.expect(200);
    let chain = site.history(&id).await;
    chain.verify();
    let kinds = chain.entries.iter().filter(|entry| entry["record"]["note"]["kind"] == "call");
    assert_eq!(kinds.count(), 2);
}

#[tokio::test]
async fn a_pause_and_a_cancel_reach_a_waiting_beat() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = claim_one(&site, "w1").await;
    let mention = json!([{"id": id, "fence": job["fence"]}]);
    let beat = json!({"worker": "w1", "waitMs": 20_000, "jobs": mention});
    for (action, signal) in [("pause", "pause"), ("resume", "go"), ("cancel", "stop")] {
        let (reply, _) = tokio::join!(site.post("/worker/v1/beat", &beat), async {
            if action == "pause" {
                // Any moment will do; this one is usually while the beat waits.
                tokio::task::yield_now().await;
            }
            site.control(&id, action).await.expect(200)
        });
        let mut reply = reply.expect(200).json();
        // While a job is paused, every beat says so.
        if action == "resume" && reply["signals"][0]["signal"] == "pause" {
            reply = site.post("/worker/v1/beat", &beat).await.expect(200).json();
        }
        assert_eq!(reply["signals"], json!([{"id": id, "signal": signal}]), "{action}");
    }
}

#[tokio::test]
async fn a_question_of_a_worker_is_answered_by_a_message() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = claim_one(&site, "w1").await;
    let ask = json!({"message": "which colour?", "schema": {"type": "string"}});
    site.post(&path(&job, "end"), &json!({"fence": job["fence"], "ask": ask})).await.expect(200);
    let waiting = site.until(&id, "INPUT_REQUIRED").await;
    assert_eq!(waiting["message"], "which colour?");
    site.send(&id, &json!({"content": "blue"})).await.expect(202);
    let again = claim_one(&site, "w1").await;
    assert_eq!(again["message"], "blue");
    let end = json!({"fence": again["fence"], "output": "blue"});
    site.post(&path(&again, "end"), &end).await.expect(200);
    site.history(&id).await.verify();
}

#[tokio::test]
async fn a_restart_does_not_disturb_workers_and_loses_no_queued_job() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    for number in 0..20 {
        site.invoke(&operation, json!(number)).await;
    }
    let held = claim(&site, "w1", json!({"max": 5})).await;
    let site = site.restarted().await;
    for job in held["jobs"].as_array().unwrap() {
        let end = json!({"fence": job["fence"], "output": "done"});
        site.post(&path(job, "end"), &end).await.expect(200);
        let chain = site.history(job["id"].as_str().unwrap()).await;
        assert_eq!(chain.entries.len(), 3, "the restart is not in the chain");
    }
    let rest = claim(&site, "w2", json!({"max": 50})).await;
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 15);
}

#[tokio::test]
async fn malformed_requests_are_refused_and_change_nothing() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    site.invoke(&operation, json!(1)).await;
    for body in [
        json!({}),
        json!({"worker": "w1"}),
        json!({"worker": "w1", "queues": []}),
        json!({"worker": "a b", "queues": ["mail"]}),
        json!({"worker": "w1", "queues": ["a b"]}),
        json!({"worker": "w1", "queues": ["mail"], "max": 1_000}),
        json!({"worker": "w1", "queues": ["mail"], "max": -1}),
        json!({"worker": "w1", "queues": ["mail"], "wait": 1}),
        json!({"worker": "w1", "queues": ["mail"], "done": [{}]}),
        json!({"worker": "w1", "queues": vec!["mail"; 17]}),
    ] {
        let refused = site.post("/worker/v1/claim", &body).await.expect(400).json();
        assert_eq!(refused["code"], "bad_request", "{body}");
    }
    let job = claim_one(&site, "w1").await;
    for body in [
        json!({"output": 1}),
        json!({"fence": 1}),
        json!({"fence": 1, "output": 1, "error": "both"}),
        json!({"fence": 1, "error": 5}),
        json!({"fence": 1, "error": "x", "retry": "soon"}),
        json!({"fence": 1, "ask": "what?"}),
        json!({"fence": 1, "awaiting": ["never-called"]}),
        json!({"fence": 1, "outptu": 1}),
    ] {
        site.post(&path(&job, "end"), &body).await.expect(400);
    }
    let absent = "/worker/v1/jobs/00000000000000000000000000000000/end";
    site.post(absent, &json!({"fence": 1, "output": 1})).await.expect(404);
    let end = json!({"fence": job["fence"], "output": 1});
    site.post(&path(&job, "end"), &end).await.expect(200);
}

#[tokio::test]
async fn a_worker_never_sees_the_input_of_another_owner() {
    let site = Site::start().await;
    let (ann, bob) = (site.caller(1).await, site.caller(2).await);
    let operation = define(&ann, json!({})).await;
    let id = id_of(&ann.invoke(&operation, json!({"secret": "of ann"})).await);
    let ann_did = ann.job(&id).await["caller"].as_str().unwrap().to_owned();
    let nothing = claim(&bob, "w1", json!({"waitMs": 0})).await;
    assert_eq!(nothing["jobs"], json!([]));
    let body = json!({"worker": "w1", "queues": [format!("{ann_did}/mail")]});
    let refused = bob.post("/worker/v1/claim", &body).await.expect(404).json();
    assert_eq!(refused["code"], "queue_not_found");
    let job = claim_one(&ann, "w1").await;
    let end = json!({"fence": job["fence"], "output": "of bob"});
    bob.post(&path(&job, "end"), &end).await.expect(404);
    let step = json!({"fence": job["fence"], "key": "k", "output": 1});
    bob.post(&path(&job, "step"), &step).await.expect(404);
    // The asset is public; invoked by its ID, the job goes to the queue of whoever invokes it.
    let asset = job["operation"].as_str().unwrap();
    let own = id_of(&bob.invoke(asset, json!("of bob")).await);
    assert_eq!(claim_one(&bob, "w1").await["id"], json!(own));
    // Bob cannot use Ann's name until she shares it. Then his jobs go to her workers.
    let shared = format!("{ann_did}/o/mail");
    let body = json!({"operation": shared, "input": "for ann"});
    bob.post("/api/v1/invoke", &body).await.expect(400);
    let request = ann.request("PUT", "/api/v1/operations/mail?share=everyone");
    ann.ask(request).await.expect(200);
    let id = id_of(&bob.post("/api/v1/invoke", &body).await.expect(201).json());
    let claimed = claim(&ann, "w2", json!({})).await;
    assert_eq!(claimed["jobs"][0]["id"], json!(id));
    assert_eq!(claimed["jobs"][0]["input"], "for ann");
}

#[tokio::test]
async fn secret_input_is_unsealed_for_the_worker_alone() {
    let site = Site::start().await;
    let schema = json!({"properties": {"key": {"type": "string", "writeOnly": true}}});
    let operation = define(&site, json!({"input": schema})).await;
    let id = id_of(&site.invoke(&operation, json!({"key": "s3cret"})).await);
    let job = claim_one(&site, "w1").await;
    assert_eq!(job["input"], json!({"key": "s3cret"}));
    assert_eq!(site.job(&id).await["input"], json!({"key": {"redacted": true}}));
    let end = json!({"fence": job["fence"], "output": null});
    site.post(&path(&job, "end"), &end).await.expect(200);
    assert!(
        !site
            .get(&format!("/api/v1/jobs/{id}/history"))
            .await
            .expect(200)
            .text()
            .contains("s3cret")
    );
}

/// A call is made on the authority of the job's caller, which the worker does not widen.
#[tokio::test]
async fn a_call_that_the_caller_of_the_job_may_not_make_is_denied() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let operation = define(&alice, json!({})).await;
    let id = id_of(&alice.invoke(&operation, json!(1)).await);
    let job = claim_one(&alice, "w1").await;
    let other = KeyPair::from_seed(&[2; 32]).did();
    let input = json!({"path": format!("{other}/w/private")});
    let call =
        json!({"fence": job["fence"], "key": "read", "operation": "covia:read", "input": input});
    let reply = alice.post(&path(&job, "call"), &call).await;
    let denial = reply.text().to_owned();
    assert!(denial.contains("Capability denied: covia:read needs crud/read on"), "{denial}");
    assert_eq!(alice.job_count().await, 1, "a denial creates no job");
    let end = json!({"fence": job["fence"], "output": 1});
    alice.post(&path(&job, "end"), &end).await.expect(200);
    assert_eq!(alice.job(&id).await["status"], "COMPLETE");
}

#[tokio::test]
async fn a_token_for_workers_claims_its_queues_and_does_nothing_else() {
    let site = Site::start().await;
    let key = KeyPair::from_seed(&[1; 32]);
    let owner = site.caller(1).await;
    let operation = define(&owner, json!({})).await;
    owner.invoke(&operation, json!(1)).await;
    let worker = site.worker(&key.did(), &["mai*"]);
    worker.get("/api/v1/jobs").await.expect(403);
    let body = json!({"operation": "test:echo", "input": 1});
    assert_eq!(worker.post("/api/v1/invoke", &body).await.expect(403).json()["code"], "forbidden");
    let other = json!({"worker": "w1", "queues": ["other"]});
    worker.post("/worker/v1/claim", &other).await.expect(404);
    let job = claim_one(&worker, "w1").await;
    let end = json!({"fence": job["fence"], "output": 1});
    // Another token of the same owner, for another queue, cannot end it.
    let stranger = site.worker(&key.did(), &["other"]);
    stranger.post(&path(&job, "end"), &end).await.expect(404);
    worker.post(&path(&job, "end"), &end).await.expect(200);
}

#[tokio::test]
async fn a_name_has_versions_and_a_job_keeps_the_one_it_started_with() {
    let site = Site::start().await;
    for (delay, version) in [(1, 1), (2, 2), (2, 2)] {
        let metadata =
            json!({"name": "Wait", "operation": {"adapter": "test:echo", "x-delay": delay}});
        let body = metadata.to_string();
        let request = site.request("PUT", "/api/v1/operations/wait").body(body.as_bytes());
        let named = site.ask(request).await.expect(200).json();
        assert_eq!((&named["name"], &named["version"]), (&json!("o/wait"), &json!(version)));
    }
    let described = site.get("/api/v1/operations/o/wait").await.expect(200).json();
    assert_eq!(described["versions"].as_array().unwrap().len(), 2);
    let newest = site.invoke("o/wait", json!(1)).await;
    let first = site.invoke("o/wait@1", json!(1)).await;
    assert_eq!(newest["operation"], described["versions"][1]["id"]);
    assert_eq!(first["operation"], described["versions"][0]["id"]);
    let listed = site.get("/api/v1/operations").await.expect(200).json();
    assert!(listed.as_array().unwrap().iter().any(|entry| entry["name"] == "o/wait"));
    let missing = json!({"operation": "o/wait@3", "input": 1});
    site.post("/api/v1/invoke", &missing).await.expect(400);
    site.ask(site.request("DELETE", "/api/v1/operations/wait")).await.expect(200);
    site.ask(site.request("DELETE", "/api/v1/operations/wait")).await.expect(404);
    let gone = json!({"operation": "o/wait", "input": 1});
    site.post("/api/v1/invoke", &gone).await.expect(400);
    let misspelt = json!({"operation": {"adapter": "test:echo", "retries": 3}}).to_string();
    let request = site.request("PUT", "/api/v1/operations/x").body(misspelt.as_bytes());
    let refused = site.ask(request).await.expect(400).json();
    assert!(refused["error"].as_str().unwrap().contains("retries"), "{refused}");
    for (name, body) in [("a b", "{}"), ("x", "{}"), ("x", r#"{"operation":{"adapter":"worker"}}"#)]
    {
        let path = format!("/api/v1/operations/{}", name.replace(' ', "%20"));
        let request = site.request("PUT", &path).body(body.as_bytes());
        site.ask(request).await.expect(400);
    }
}
