//! What a definition says about its queue: priority, limits and rates; whose turn it is; with whom a name is
//! shared; and the blobs of workers.

use std::time::Duration;

use catena_auth::KeyPair;
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{claim, claim_one, define, path};

/// Gives an operation of the queue `mail` this name.
async fn define_as(client: &Client, name: &str, more: Json) -> String {
    let mut operation = json!({"adapter": "worker", "queue": "mail"});
    for (name, value) in more.as_object().unwrap() {
        operation[name] = value.clone();
    }
    let body = json!({"name": name, "operation": operation}).to_string();
    let request = client.request("PUT", &format!("/api/v1/operations/{name}"));
    client.ask(request.body(body.as_bytes())).await.expect(200);
    format!("o/{name}")
}

fn inputs(claimed: &Json) -> Vec<Json> {
    claimed["jobs"].as_array().unwrap().iter().map(|job| job["input"].clone()).collect()
}

async fn end(client: &Client, job: &Json) {
    let body = json!({"fence": job["fence"], "output": null});
    client.post(&path(job, "end"), &body).await.expect(200);
}

#[tokio::test]
async fn a_job_of_higher_priority_is_claimed_first() {
    let site = Site::start().await;
    let low = define_as(&site, "low", json!({"priority": -10})).await;
    let high = define_as(&site, "high", json!({"priority": 10})).await;
    for (operation, input) in [(&low, 1), (&low, 2), (&high, 3)] {
        site.invoke(operation, json!(input)).await;
    }
    let claimed = claim(&site, "w1", json!({"max": 1})).await;
    assert_eq!(inputs(&claimed), [json!(3)]);
    let rest = claim(&site, "w1", json!({})).await;
    assert_eq!(
        inputs(&rest),
        [json!(1), json!(2)],
        "the order of equal priorities is that of time"
    );
    for priority in [json!(11), json!(-11), json!(1.5), json!("high")] {
        let body = json!({"operation": {"adapter": "worker", "queue": "q", "priority": priority}});
        let request = site.request("PUT", "/api/v1/operations/bad").json(&body);
        site.ask(request).await.expect(400);
    }
}

#[tokio::test]
async fn a_limit_counts_what_runs_on_the_queue_or_for_each_value() {
    let site = Site::start().await;
    let all = define(&site, json!({"limit": {"running": 2}})).await;
    for number in 0..4 {
        site.invoke(&all, json!(number)).await;
    }
    let first = claim(&site, "w1", json!({})).await;
    assert_eq!(inputs(&first), [json!(0), json!(1)]);
    assert_eq!(inputs(&claim(&site, "w2", json!({"waitMs": 0})).await), [] as [Json; 0]);
    // A waiting claim is answered when one of them has ended.
    let waiting = claim(&site, "w2", json!({"waitMs": 20_000}));
    let (second, ()) = tokio::join!(waiting, end(&site, &first["jobs"][0]));
    assert_eq!(inputs(&second), [json!(2)]);
    end(&site, &first["jobs"][1]).await;
    end(&site, &second["jobs"][0]).await;
    end(&site, &claim_one(&site, "w1").await).await;

    let by_tenant = json!({"limit": {"running": 1, "by": ["tenant", "id"]}});
    let each = define(&site, by_tenant).await;
    for tenant in ["a", "a", "b"] {
        site.invoke(&each, json!({"tenant": {"id": tenant}})).await;
    }
    let claimed = claim(&site, "w1", json!({})).await;
    let mut tenants: Vec<_> = inputs(&claimed).iter().map(|i| i["tenant"]["id"].clone()).collect();
    tenants.sort_by_key(Json::to_string);
    assert_eq!(tenants, [json!("a"), json!("b")], "one of each");
}

#[tokio::test]
async fn a_rate_bounds_how_many_jobs_start_in_a_second() {
    const PER_SECOND: usize = 20;
    const JOBS: usize = 10;
    let site = Site::start().await;
    let operation = define(&site, json!({"rate": {"perSecond": PER_SECOND}})).await;
    for number in 0..JOBS {
        site.invoke(&operation, json!(number)).await;
    }
    let begun = Instant::now();
    let mut started = 0;
    while started < JOBS {
        started += inputs(&claim(&site, "w1", json!({})).await).len();
        // A tenth of a second's jobs may start at once, and the one that begins the next tenth. The
        // venue counts whole milliseconds.
        let passed = begun.elapsed() + Duration::from_millis(101);
        let allowed = passed.as_secs_f64() * PER_SECOND as f64 + 1.0;
        assert!(started as f64 <= allowed, "{started} after {:?}", begun.elapsed());
    }
    let least = Duration::from_secs_f64((JOBS - 4) as f64 / PER_SECOND as f64);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
}

/// A value at its rate does not delay the jobs of another value.
#[tokio::test]
async fn a_rate_can_be_counted_for_each_value() {
    const JOBS: usize = 3;
    let site = Site::start().await;
    let rate = json!({"rate": {"perSecond": 2, "by": ["tenant", "id"]}});
    let operation = define(&site, rate).await;
    for tenant in ["a", "b", "c"] {
        for _ in 0..JOBS {
            site.invoke(&operation, json!({"tenant": {"id": tenant}})).await;
        }
    }
    let begun = Instant::now();
    let first = inputs(&claim(&site, "w1", json!({"waitMs": 0})).await);
    let mut tenants: Vec<_> = first.iter().map(|input| input["tenant"]["id"].clone()).collect();
    tenants.sort_by_key(Json::to_string);
    assert_eq!(tenants, [json!("a"), json!("b"), json!("c")], "one of each at once");
    let mut started = first.len();
    while started < 3 * JOBS {
        started += inputs(&claim(&site, "w1", json!({})).await).len();
    }
    // Two more of each, at two in a second; the venue counts whole milliseconds.
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn callers_of_a_shared_name_take_turns() {
    const MANY: usize = 60;
    let site = Site::start().await;
    let (ann, bob, eve) = (site.caller(1).await, site.caller(2).await, site.caller(3).await);
    define(&ann, json!({})).await;
    let request = ann.request("PUT", "/api/v1/operations/mail?share=everyone");
    ann.ask(request).await.expect(200);
    let shared = format!("{}/o/mail", KeyPair::from_seed(&[1; 32]).did());
    for _ in 0..MANY {
        bob.invoke(&shared, json!("bob")).await;
    }
    for _ in 0..3 {
        eve.invoke(&shared, json!("eve")).await;
    }
    // Eve came last, and does not wait for what Bob has queued.
    let claimed = claim(&ann, "w1", json!({"max": 6})).await;
    let of_eve = inputs(&claimed).iter().filter(|input| **input == json!("eve")).count();
    assert_eq!((inputs(&claimed).len(), of_eve), (6, 3), "{claimed}");
    // Neither does another queue.
    let other = json!({"queue": "other"});
    let other = define_as(&ann, "other", other).await;
    let id = id_of(&ann.invoke(&other, json!(1)).await);
    let body = json!({"worker": "w2", "queues": ["other"], "max": 1});
    let claimed = ann.post("/worker/v1/claim", &body).await.expect(200).json();
    assert_eq!(claimed["jobs"][0]["id"], json!(id));
}

#[tokio::test]
async fn the_end_of_a_jobs_time_reaches_a_waiting_beat() {
    let site = Site::start().await;
    let operation = define(&site, json!({"timeoutMs": 1_500})).await;
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = claim_one(&site, "w1").await;
    let claimed = Instant::now();
    let mention = json!([{"id": id, "fence": job["fence"]}]);
    let beat = json!({"worker": "w1", "waitMs": 20_000, "jobs": mention});
    let reply = site.post("/worker/v1/beat", &beat).await.expect(200).json();
    assert_eq!(reply["signals"], json!([{"id": id, "signal": "stop"}]));
    // The job's time began before the claim was answered.
    assert!(claimed.elapsed() < Duration::from_millis(2_500), "{:?}", claimed.elapsed());
    assert_eq!(site.job(&id).await["status"], "TIMEOUT");
    let late = json!({"fence": job["fence"], "output": 1});
    site.post(&path(&job, "end"), &late).await.expect_error(409, "fenced");
}

#[tokio::test]
async fn a_name_is_shared_with_those_whom_its_owner_names() {
    let site = Site::start().await;
    let (ann, bob, eve) = (site.caller(1).await, site.caller(2).await, site.caller(3).await);
    define(&ann, json!({})).await;
    let did_of = |seed: u8| KeyPair::from_seed(&[seed; 32]).did();
    let shared = format!("{}/o/mail", did_of(1));
    let body = json!({"operation": shared, "input": 1});
    let share = async |with: &str| {
        let request = ann.request("PUT", &format!("/api/v1/operations/mail?share={with}"));
        ann.ask(request).await.expect(200);
    };
    share(&did_of(2)).await;
    bob.post("/api/v1/invoke", &body).await.expect(201);
    eve.post("/api/v1/invoke", &body).await.expect(400);
    share(&format!("{},{}", did_of(2), did_of(3))).await;
    eve.post("/api/v1/invoke", &body).await.expect(201);
    share("nobody").await;
    for other in [&bob, &eve] {
        other.post("/api/v1/invoke", &body).await.expect(400);
    }
    let claimed = claim(&ann, "w1", json!({})).await;
    assert_eq!(inputs(&claimed).len(), 2, "what was invoked meanwhile stays queued");
}

#[tokio::test]
async fn a_worker_stores_and_reads_blobs_by_their_digest() {
    const HELLO: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let site = Site::start().await;
    let key = KeyPair::from_seed(&[1; 32]);
    let worker = site.worker(&key.did(), &["mail"]);
    let blob = format!("/worker/v1/blobs/{HELLO}");
    let put = |content: &'static str| worker.ask(worker.request("PUT", &blob).body(content));
    put("hallo").await.expect_error(400, "digest_mismatch");
    worker.get(&blob).await.expect_error(404, "blob_not_found");
    put("hello").await.expect(200);
    put("hello").await.expect(200);
    assert_eq!(worker.get(&blob).await.expect(200).text(), "hello");
    // Larger ones are streamed.
    let large: String = (0..500_000).map(|number| format!("{number:>10}")).collect();
    let digest: String =
        Sha256::digest(large.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let large_blob = format!("/worker/v1/blobs/sha256:{digest}");
    let request = worker.request("PUT", &large_blob).body(large.as_str());
    worker.ask(request).await.expect(200);
    assert!(
        worker.get(&large_blob).await.expect(200).text() == large,
        "5 MB come back as they were"
    );
    let cut = worker.request("PUT", &large_blob).body(&large[1..]);
    worker.ask(cut).await.expect_error(400, "digest_mismatch");
    // A worker of another user does not see it.
    let other = site.worker(&KeyPair::from_seed(&[2; 32]).did(), &["mail"]);
    other.get(&blob).await.expect_error(404, "blob_not_found");
}
