//! "Wake triggers — automatic run loop invocation on message delivery, timer events, or external signals",
//! and "recorded authority": what an agent may do.

use std::time::Duration;

use catena_tests::TIMEOUT;
use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

use super::{deliver, ended, ran, record, status};

async fn create(client: &Client, id: &str, config: Json) {
    ran(client, "agent:create", json!({"agentId": id, "config": config})).await;
}

/// The record of an agent once it has had so many turns and sleeps.
async fn after_turns(client: &Client, id: &str, turns: usize) -> Json {
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let record = record(client, id).await;
        let has_turns = record["timeline"].as_array().unwrap().len() >= turns;
        if has_turns && record["status"] == "SLEEPING" {
            return record;
        }
        assert!(tokio::time::Instant::now() < until, "{record}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_message_wakes_an_agent_that_wants_it() {
    let site = Site::start().await;
    create(&site, "a", json!({"operation": "test:tally", "wake": "message"})).await;
    deliver(&site, "a", json!("one")).await;
    let first = after_turns(&site, "a", 1).await;
    assert_eq!(first["timeline"][0]["result"], json!({"seen": ["one"]}));
    deliver(&site, "a", json!("two")).await;
    let second = after_turns(&site, "a", 2).await;
    assert_eq!((&second["state"]["n"], &second["inbox"]), (&json!(2), &json!([])));
    // Another one does not want it: "The agent is not automatically woken".
    super::tally(&site, "b").await;
    deliver(&site, "b", json!("one")).await;
    assert_eq!(record(&site, "b").await["inbox"].as_array().unwrap().len(), 1);
}

/// A wake that is due survives a restart, and happens once.
#[tokio::test]
async fn agents_are_woken_at_a_time_by_a_timer_and_after_a_restart() {
    let site = Site::start().await;
    create(&site, "timer", json!({"operation": "test:tally", "wake": {"everyMs": 1000}})).await;
    super::tally(&site, "at").await;
    super::tally(&site, "never").await;
    let now = after_turns(&site, "timer", 0).await["ts"].as_i64().unwrap();
    let set = ran(&site, "agent:wake", json!({"agentId": "at", "at": now + 4_000})).await;
    assert_eq!((&set["status"], &set["at"]), (&json!("SLEEPING"), &json!(now + 4_000)));
    ran(&site, "agent:wake", json!({"agentId": "never", "at": now + 4_000})).await;
    ran(&site, "agent:wake", json!({"agentId": "never", "at": null})).await;
    let site = site.restarted().await;
    let woken = after_turns(&site, "at", 1).await;
    assert_eq!(woken["timeline"][0]["messages"][0]["content"]["wake"], true, "{woken}");
    assert!(woken["timeline"][0]["start"].as_i64().unwrap() >= now + 4_000);
    let timer = after_turns(&site, "timer", 2).await;
    let starts: Vec<i64> = timer["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["start"].as_i64().unwrap())
        .collect();
    assert!(starts[1] - starts[0] >= 1_000, "{starts:?}");
    let turns = |record: &Json| record["timeline"].as_array().unwrap().len();
    assert_eq!(turns(&record(&site, "at").await), 1);
    assert_eq!(turns(&record(&site, "never").await), 0);
    // Without the timer it sleeps.
    ran(&site, "agent:update", json!({"agentId": "timer", "config": {"wake": null}})).await;
    let listed = ran(&site, "scheduler:list", json!({})).await;
    assert_eq!(listed["events"], json!([]), "{listed}");
    for wake in [json!("often"), json!({"everyMs": 5}), json!({"cron": "x"})] {
        let input = json!({"agentId": "x", "config": {"wake": wake}});
        let job = ended(&site, "agent:create", input).await;
        assert_eq!(job["errorCode"], "invalid_input", "{job}");
    }
}

/// A cron expression wakes an agent, time and again.
#[tokio::test]
async fn a_cron_expression_wakes_an_agent() {
    let site = Site::start().await;
    create(&site, "a", json!({"operation": "test:tally", "wake": {"cron": "* * * * * *"}})).await;
    let woken = after_turns(&site, "a", 2).await;
    let message = &woken["timeline"][1]["messages"][0]["content"];
    assert_eq!(message["wake"], true, "{woken}");
    let start = |turn: usize| woken["timeline"][turn]["start"].as_i64().unwrap();
    assert!(start(0).div_euclid(1_000) < start(1).div_euclid(1_000), "{woken}");
}

/// "Track consecutive failures and escalate".
#[tokio::test]
async fn a_failing_agent_is_not_woken_until_it_is_resumed() {
    let site = Site::start().await;
    create(&site, "a", json!({"operation": "test:tally", "wake": "message", "maxFailures": 2}))
        .await;
    deliver(&site, "a", json!({"fail": true})).await;
    let failed = |failures: u64| {
        let site = &site;
        async move {
            let until = tokio::time::Instant::now() + TIMEOUT;
            loop {
                let info = site.get("/api/v1/agents/a").await.expect(200).json();
                if info["status"] == "SUSPENDED" && info["failures"] == failures {
                    return;
                }
                assert!(tokio::time::Instant::now() < until, "{info}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    failed(1).await;
    // A resume without a wake leaves the messages where they are.
    ran(&site, "agent:resume", json!({"agentId": "a", "autoWake": false})).await;
    assert_eq!(status(&site, "a").await, "SLEEPING");
    ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    // By default `config.wake` decides, and a failure after a resume is consecutive.
    ran(&site, "agent:resume", json!({"agentId": "a"})).await;
    failed(2).await;
    let job = ended(&site, "agent:resume", json!({"agentId": "a"})).await;
    assert_eq!(job["errorCode"], "too_many_failures", "{job}");
    ran(&site, "agent:resume", json!({"agentId": "a", "force": true, "autoWake": false})).await;
    assert_eq!(status(&site, "a").await, "SLEEPING");
}

/// "Agent lifetime — to prevent indefinitely dormant agents from consuming resources".
#[tokio::test]
async fn an_agent_without_any_activity_is_terminated() {
    let site = Site::start().await;
    create(&site, "a", json!({"operation": "test:tally", "limits": {"idleMs": 700}})).await;
    create(&site, "b", json!({"operation": "test:tally"})).await;
    let until = tokio::time::Instant::now() + TIMEOUT;
    while status(&site, "a").await != "TERMINATED" {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status(&site, "b").await, "SLEEPING");
    let job = ended(&site, "agent:message", json!({"agentId": "a", "message": 1})).await;
    assert_eq!(job["status"], "REJECTED");
}

/// "caps … Capability sets": a run acts within them, whatever the transition is.
#[tokio::test]
async fn capabilities_bind_the_run_of_an_agent() {
    let site = Site::start().await;
    let config = json!({"operation": "llm:agent", "llmOperation": "test:toolllm",
        "tools": ["agent:create", "agent:request"]});
    let caps = json!([{"with": "w/", "can": "crud/read"}, {"with": "v/ops/agent", "can": "invoke"},
        {"with": "v/ops/llm/agent", "can": "invoke"}]);
    ran(&site, "agent:create", json!({"agentId": "a", "config": config, "caps": caps})).await;
    let said = |message: String| {
        let site = &site;
        async move {
            let input = json!({"agentId": "a", "message": message});
            ran(site, "agent:chat", input).await["response"].as_str().unwrap().to_owned()
        }
    };
    let write = r#"tool covia_write {"path":"w/x","value":1}"#;
    let denied = said(write.to_owned()).await;
    assert!(denied.contains("Capability denied") && denied.contains("crud/write"), "{denied}");
    ran(&site, "covia:write", json!({"path": "w/y", "value": 7})).await;
    let read = said(r#"tool covia_read {"path":"w/y"}"#.to_owned()).await;
    assert!(read.contains("\"value\":7"), "{read}");
    // A child never has more than its parent: an agent that it creates has the same bounds, also if its
    // owner runs it.
    let config = json!({"operation": "llm:agent", "llmOperation": "test:toolllm"});
    let child = json!({"agentId": "child", "config": config});
    let made = said(format!("tool agent_create {child}")).await;
    assert!(made.contains("\"created\":true"), "{made}");
    let chat = json!({"agentId": "child", "message": write});
    let denied = ran(&site, "agent:chat", chat).await["response"].as_str().unwrap().to_owned();
    assert!(denied.contains("Capability denied"), "{denied}");
    // An agent that the owner created has no bounds of its own, but those of who runs it.
    ran(&site, "agent:create", json!({"agentId": "free", "config": config})).await;
    let request = json!({"agentId": "free", "input": write});
    let through = said(format!("tool agent_request {request}")).await;
    assert!(through.contains("Capability denied"), "{through}");
    assert_eq!(site.get("/api/v1/values/read?path=w/x").await.expect(200).json()["exists"], false);
    let chat = json!({"agentId": "free", "message": write});
    ran(&site, "agent:chat", chat).await;
    assert_eq!(site.get("/api/v1/values/read?path=w/x").await.expect(200).json()["value"], 1);
}

/// "Apply rate limits on message delivery per agent".
#[tokio::test]
async fn deliveries_per_second_can_be_limited() {
    let site = Site::start().await;
    let limits = json!({"deliveriesPerSecond": 1});
    create(&site, "a", json!({"operation": "test:tally", "limits": limits})).await;
    let mut codes = Vec::new();
    for number in 0..10 {
        let job = ended(&site, "agent:message", json!({"agentId": "a", "message": number})).await;
        codes.push(job["errorCode"].as_str().unwrap_or("accepted").to_owned());
    }
    assert_eq!(codes[0], "accepted");
    assert!(codes.iter().any(|code| code == "too_fast"), "{codes:?}");
    let accepted = codes.iter().filter(|code| *code == "accepted").count();
    assert_eq!(record(&site, "a").await["inbox"].as_array().unwrap().len(), accepted);
}
