//! "an agent is simply a job whose transition function never reaches a terminal state", and "Messages delivered
//! via COG-9 endpoints reach the agent's inbox through the job message queue".

use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

use super::{ended, ran, record, status, tally};

/// Attaches to an agent and returns the job once it waits for messages.
async fn attached(client: &Client, id: &str) -> String {
    let job = client.invoke("agent:attach", json!({"agentId": id})).await;
    let job = job["id"].as_str().unwrap().to_owned();
    client.until(&job, "INPUT_REQUIRED").await;
    job
}

/// The job once its output is the result of a turn.
async fn after(client: &Client, job: &str, result: Json) -> Json {
    let waits =
        |view: &Json| view["status"] == "INPUT_REQUIRED" && view["output"]["result"] == result;
    client.until_that(job, waits).await
}

#[tokio::test]
async fn an_agent_is_a_job_that_takes_messages() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let job = attached(&site, "a").await;
    site.send(&job, &json!({"content": "one", "messageId": "m-1"})).await.expect(202);
    after(&site, &job, json!({"seen": ["one"]})).await;
    // Sent again, it is not delivered again.
    site.send(&job, &json!({"content": "one", "messageId": "m-1"})).await;
    site.send(&job, &json!({"content": "two"})).await.expect(202);
    after(&site, &job, json!({"seen": ["two"]})).await;
    let timeline = record(&site, "a").await["timeline"].clone();
    assert_eq!(timeline.as_array().unwrap().len(), 2, "{timeline}");
    assert_eq!(timeline[0]["messages"][0]["id"], "m-1");
    site.history(&job).await.verify();
    // "SUSPENDED … FAILED or PAUSED".
    site.send(&job, &json!({"content": {"fail": true}})).await.expect(202);
    site.until(&job, "PAUSED").await;
    assert_eq!(status(&site, "a").await, "SUSPENDED");
    site.control(&job, "resume").await.expect(200);
    site.until(&job, "INPUT_REQUIRED").await;
    assert_eq!(status(&site, "a").await, "SLEEPING");
    assert_eq!(record(&site, "a").await["error"], Json::Null);
    // Cancelling the job does not affect the agent.
    site.control(&job, "cancel").await.expect(200);
    assert_eq!(status(&site, "a").await, "SLEEPING");
    // "TERMINATED … COMPLETE".
    tally(&site, "b").await;
    let job = attached(&site, "b").await;
    ran(&site, "agent:delete", json!({"agentId": "b"})).await;
    site.send(&job, &json!({"content": "hello?"})).await.expect(202);
    let ended_job = site.ended(&job).await;
    assert_eq!(
        (&ended_job["status"], &ended_job["output"]["status"]),
        (&json!("COMPLETE"), &json!("TERMINATED"))
    );
    let missing = ended(&site, "agent:attach", json!({"agentId": "nobody"})).await;
    assert_eq!(missing["errorCode"], "agent_not_found");
}
