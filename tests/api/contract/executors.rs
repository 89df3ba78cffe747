//! Which executors are connected, and which environments are known.

use std::time::Duration;

use catena_tests::site::Client;
use serde_json::{Value as Json, json};

use crate::{Bench, ENVIRONMENT, payload};

async fn list(client: &Client) -> Json {
    client.get("/contract/v1/executors").await.expect(200).json()
}

#[tokio::test]
async fn connected_executors_are_listed_with_tier_slots_heartbeat_and_environments() {
    let bench = Bench::start().await;
    let none = list(&bench.owner).await;
    assert_eq!(none, json!({"slots": 0, "running": 0, "executors": [], "environments": []}));
    let environment =
        json!({"version": ENVIRONMENT, "profile": "bare", "job_types": ["object_execute"]});
    let tiers = json!([{"tier": "T1", "available": false, "reason": "needs root"},
                       {"tier": "T2", "available": true, "reason": "a cell ran"}]);
    let body = json!({"worker": "e1", "slots": 3, "tier": "T2", "tiers": tiers,
                      "environments": [environment]});
    bench.executor.post("/contract/v1/executor/announce", &body).await.expect(200);
    let idle = json!({"worker": "e2", "slots": 1, "environments": [], "unavailable": "no Python"});
    bench.executor.post("/contract/v1/executor/announce", &idle).await.expect(200);
    let announced = list(&bench.owner).await;
    let [first, second] = announced["executors"].as_array().unwrap().as_slice() else {
        panic!("{announced}");
    };
    assert_eq!((&first["executor"], &first["tier"]), (&json!("e1"), &json!("T2")));
    assert_eq!((&first["tiers"], &first["environments"]), (&tiers, &json!([ENVIRONMENT])));
    assert_eq!((&first["slots"], &first["running"]), (&json!(3), &json!(0)));
    assert!(first["lease_until"].is_null() && first["unavailable"].is_null(), "{first}");
    assert_eq!((&second["tier"], &second["unavailable"]), (&json!(null), &json!("no Python")));
    let known = &announced["environments"][0];
    assert_eq!(
        (&known["env_version"], &known["is_default"], &known["executors"]),
        (&json!(ENVIRONMENT), &json!(true), &json!(1))
    );
    assert_eq!(known["job_types"], json!(["object_execute"]));
    // What runs is counted for its owner, and a claim is a sign of life.
    let (_, job) = bench.claimed(&payload("print(1)")).await;
    let busy = list(&bench.owner).await;
    let first = &busy["executors"][0];
    assert_eq!((&first["running"], &busy["running"]), (&json!(1), &json!(1)), "{busy}");
    assert!(first["heartbeat_at"].as_str() >= first["announced_at"].as_str(), "{first}");
    assert!(first["lease_until"].as_str() > first["heartbeat_at"].as_str(), "{first}");
    let other = bench.site.caller(2).await;
    assert_eq!(list(&other).await["running"], 0, "others see their own jobs");
    let stats = bench.owner.get("/api/v1/stats").await.expect(200).json();
    let short = &stats["executors"][0];
    assert_eq!(
        (&short["executor"], &short["tier"], &short["slots"], &short["running"]),
        (&json!("e1"), &json!("T2"), &json!(3), &json!(1))
    );
    assert!(short["heartbeatAt"].is_i64(), "{short}");
    let health = bench.owner.get("/canvas/v1/health").await.expect(200).json();
    let health = &health["executors"];
    assert_eq!(
        (&health[0]["executor"], &health[1]["slots"]),
        (&json!("e1"), &json!(1)),
        "{health}"
    );
    bench.succeed(&job).await;
    assert_eq!(list(&bench.owner).await["running"], 0);
}

#[tokio::test]
async fn an_executor_whose_lease_has_ended_is_not_listed_but_its_environment_is() {
    let bench = Bench::with_lease("300ms").await;
    bench.announce().await;
    let (_, job) = bench.claimed(&payload("print(1)")).await;
    bench.succeed(&job).await;
    let started = tokio::time::Instant::now();
    let gone = loop {
        let listed = list(&bench.owner).await;
        if listed["executors"] == json!([]) {
            break listed;
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "{listed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(gone["environments"][0]["executors"], 0, "{gone}");
    assert_eq!(gone["slots"], 0);
    let token = &bench.executor;
    assert_eq!(token.get("/contract/v1/executors").await.status(), 403, "it may only claim");
}

#[tokio::test]
async fn what_an_executor_says_about_tiers_is_checked_and_cut() {
    let bench = Bench::start().await;
    let post = |tiers: Json| {
        let executor = bench.executor.clone();
        let body = json!({"worker": "e1", "environments": [], "tiers": tiers});
        async move { executor.post("/contract/v1/executor/announce", &body).await.status() }
    };
    assert_eq!(post(json!("T1")).await, 400);
    assert_eq!(post(json!([{"tier": "T1"}])).await, 400);
    let tier = json!({"tier": "T1", "available": true, "reason": "é".repeat(2_000)});
    assert_eq!(post(json!(vec![&tier; 17])).await, 400);
    assert_eq!(post(json!([tier])).await, 200);
    let listed = list(&bench.owner).await;
    let reason = listed["executors"][0]["tiers"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "é".repeat(500));
}

/// "Known environments are stored durably": a venue that was restarted accepts jobs for them.
#[tokio::test]
async fn environments_are_known_after_a_restart() {
    let Bench { site, .. } = Bench::ready().await;
    let site = site.restarted().await;
    let owner = site.caller(1).await;
    let listed = list(&owner).await;
    assert_eq!(listed["executors"], json!([]), "none has announced itself since");
    let known = &listed["environments"][0];
    assert_eq!((&known["env_version"], &known["executors"]), (&json!(ENVIRONMENT), &json!(0)));
    let created = owner.post("/contract/v1/jobs", &payload("print(1)")).await.expect(202).json();
    assert!(created["hint"].as_str().unwrap().contains(ENVIRONMENT), "{created}");
}
