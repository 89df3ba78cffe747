//! The requests that the published SDKs make, and the members that their models require.

use catena_tests::site::Site;
use serde_json::{Value as Json, json};

use super::{deliver, ended, endless_run, ran, record, slow, tally};

#[tokio::test]
async fn agents_are_listed_and_described_without_jobs() {
    let site = Site::start().await;
    tally(&site, "b").await;
    tally(&site, "a").await;
    tally(&site, "c").await;
    ran(&site, "agent:delete", json!({"agentId": "c"})).await;
    let jobs = site.job_count().await;
    let list = site.get("/api/v1/agents").await.expect(200).json();
    assert_eq!(
        list,
        json!({"agents": [
            {"agentId": "a", "status": "SLEEPING", "tasks": 0},
            {"agentId": "b", "status": "SLEEPING", "tasks": 0},
        ]})
    );
    let all = site.get("/api/v1/agents?includeTerminated=true&status=false").await.expect(200);
    assert_eq!(all.json(), json!({"agents": ["a", "b", "c"]}));
    let info = site.get("/api/v1/agents/c").await.expect(200).json();
    assert_eq!(info["status"], "TERMINATED");
    assert_eq!(info["config"], json!({"operation": "test:tally"}));
    assert_eq!((&info["timelineLength"], &info["tasks"]), (&json!(0), &json!(0)));
    assert_eq!(site.job_count().await, jobs);
    let catalogue = site.get("/api/v1/adapters/agent/operations").await.expect(200).json();
    let mut operations = catalogue.as_object().unwrap().values();
    let is_query = |entry: &Json| entry["operation"]["adapter"] == "agent:query";
    assert!(operations.any(is_query), "{catalogue}");
}

#[tokio::test]
async fn requests_and_chats_return_what_the_models_need() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let answer =
        ran(&site, "v/ops/agent/request", json!({"agentId": "a", "input": {"q": 1}})).await;
    assert_eq!(answer["status"], "COMPLETE");
    assert_eq!(answer["output"], json!({"seen": [{"q": 1}]}));
    assert!(answer["id"].is_string() && answer["sessionId"].is_string(), "{answer}");
    let chat = ran(&site, "v/ops/agent/chat", json!({"agentId": "a", "message": "hi"})).await;
    assert_eq!(chat["response"], json!({"seen": ["hi"]}));
    let session = chat["sessionId"].as_str().unwrap().to_owned();
    let input = json!({"agentId": "a", "message": "again", "sessionId": session});
    let chat = ran(&site, "v/ops/agent/chat", input).await;
    assert_eq!(chat["sessionId"], session.as_str());
    let input = json!({"agentId": "a", "message": "x", "sessionId": "unknown"});
    let job = ended(&site, "v/ops/agent/chat", input).await;
    assert_eq!(job["errorCode"], "session_not_found", "{job}");
    let input = json!({"agentId": "a", "sessionId": session, "title": "First"});
    let renamed = ran(&site, "v/ops/agent/rename-session", input).await;
    assert_eq!(renamed["title"], "First");
    let sessions = ran(&site, "v/ops/agent/sessions", json!({"agentId": "a"})).await;
    assert_eq!(sessions["total"], 2);
    assert_eq!(sessions["sessions"][0]["sessionId"], session.as_str());
    assert_eq!(sessions["sessions"][0]["turnCount"], 2);
    let triggered = ran(&site, "v/ops/agent/trigger", json!({"agentId": "a"})).await;
    assert_eq!(triggered["status"], "SLEEPING");
}

#[tokio::test]
async fn a_request_may_return_before_its_end() {
    let site = Site::start().await;
    slow(&site, "a").await;
    let input = json!({"agentId": "a", "input": {"delay": 3_600_000}, "timeout": 0});
    let answer = ran(&site, "v/ops/agent/request", input).await;
    assert!(answer["status"] == "PENDING" || answer["status"] == "STARTED", "{answer}");
    let task = answer["id"].as_str().unwrap().to_owned();
    site.until(&task, "STARTED").await;
    let input = json!({"agentId": "a", "taskId": task});
    let cancelled = ran(&site, "v/ops/agent/cancel-task", input).await;
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(site.job(&task).await["status"], "CANCELLED");
    assert_eq!(record(&site, "a").await["status"], "SUSPENDED");
    let input = json!({"agentId": "a", "input": 1, "wait": false});
    let job = ended(&site, "agent:request", input).await;
    assert!(job["status"] == "COMPLETE" || job["status"] == "FAILED", "{job}");
}

#[tokio::test]
async fn an_agent_can_be_copied_and_updated() {
    let site = Site::start().await;
    tally(&site, "a").await;
    ran(&site, "agent:request", json!({"agentId": "a", "input": 1})).await;
    deliver(&site, "a", json!("waiting")).await;
    let forked = ran(&site, "agent:fork", json!({"sourceId": "a", "agentId": "b"})).await;
    assert_eq!((&forked["created"], &forked["forkedFrom"]), (&json!(true), &json!("a")));
    let copy = record(&site, "b").await;
    assert_eq!((&copy["state"], &copy["timeline"]), (&json!({"n": 1}), &json!([])));
    assert_eq!(copy["inbox"], json!([]));
    let again = ended(&site, "agent:fork", json!({"sourceId": "a", "agentId": "b"})).await;
    assert_eq!(again["errorCode"], "agent_exists");
    let input =
        json!({"sourceId": "a", "agentId": "b", "includeTimeline": true, "overwrite": true});
    ran(&site, "agent:fork", input).await;
    assert_eq!(record(&site, "b").await["timeline"].as_array().unwrap().len(), 1);
    let input = json!({"agentId": "b", "config": {"extra": 1}, "state": {"m": 2}});
    let updated = ran(&site, "agent:update", input).await;
    assert_eq!(updated["status"], "SLEEPING");
    let copy = record(&site, "b").await;
    assert_eq!(copy["config"], json!({"operation": "test:tally", "extra": 1}));
    assert_eq!(copy["state"], json!({"n": 1, "m": 2}));
    slow(&site, "c").await;
    endless_run(&site, "c").await;
    let job = ended(&site, "agent:update", json!({"agentId": "c", "state": 1})).await;
    assert_eq!(job["errorCode"], "agent_running", "{job}");
}
