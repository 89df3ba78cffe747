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
    for more in [json!({}), json!({"remove": true})] {
        tally(&site, "b").await;
        let job = attached(&site, "b").await;
        let mut input = json!({"agentId": "b"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ran(&site, "agent:delete", input).await;
        let ended_job = site.ended(&job).await;
        assert_eq!(
            (&ended_job["status"], &ended_job["output"]["status"]),
            (&json!("COMPLETE"), &json!("TERMINATED"))
        );
        site.history(&job).await.verify();
        ended(&site, "agent:delete", json!({"agentId": "b", "remove": true})).await;
    }
    let missing = ended(&site, "agent:attach", json!({"agentId": "nobody"})).await;
    assert_eq!(missing["errorCode"], "agent_not_found");
}

/// "SLEEPING … INPUT_REQUIRED", "SUSPENDED … PAUSED" and "TERMINATED … COMPLETE", whoever changes the agent, and
/// however many jobs are attached.
#[tokio::test]
async fn attached_jobs_follow_what_others_do_to_the_agent() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let first = attached(&site, "a").await;
    let second = attached(&site, "a").await;
    ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    for job in [&first, &second] {
        let paused = site.until(job, "PAUSED").await;
        assert_eq!(paused["queueDepth"].as_u64().unwrap_or(0), 0, "{paused}");
    }
    // One of them is resumed, which resumes the agent, and so the other one.
    site.control(&first, "resume").await.expect(200);
    for job in [&first, &second] {
        site.until(job, "INPUT_REQUIRED").await;
    }
    assert_eq!(status(&site, "a").await, "SLEEPING");
    // A turn that somebody else made fails.
    super::deliver(&site, "a", json!({"fail": true})).await;
    ended(&site, "agent:run", json!({"agentId": "a"})).await;
    for job in [&first, &second] {
        site.until(job, "PAUSED").await;
        let chain = site.history(job).await;
        chain.verify();
    }
    // A turn of one of them fails: it knows, and the other one is told.
    ran(&site, "agent:update", json!({"agentId": "a", "config": {"operation": "test:slowtally"}}))
        .await;
    // Somebody else resumes the agent.
    ran(&site, "agent:resume", json!({"agentId": "a", "autoWake": false})).await;
    for job in [&first, &second] {
        site.until(job, "INPUT_REQUIRED").await;
    }
    site.send(&first, &json!({"content": {"fail": true}})).await.expect(202);
    for job in [&first, &second] {
        let paused = site.until(job, "PAUSED").await;
        assert_eq!(paused["queueDepth"].as_u64().unwrap_or(0), 0, "{paused}");
    }
    // Somebody else ends the agent.
    ran(&site, "agent:delete", json!({"agentId": "a"})).await;
    for job in [&first, &second] {
        assert_eq!(site.ended(job).await["status"], "COMPLETE");
        site.history(job).await.verify();
    }
}

/// A job that is paused because of the agent takes the messages that were sent meanwhile once somebody else has
/// resumed the agent, also one whose queue was full, and ends if the agent is removed.
#[tokio::test]
async fn a_paused_job_continues_when_somebody_else_resumes_or_removes_the_agent() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let job = attached(&site, "a").await;
    // The failure of a turn of its own pauses it, and the next turn makes calls of its own.
    site.send(&job, &json!({"content": {"fail": true}})).await.expect(202);
    site.until(&job, "PAUSED").await;
    site.send(&job, &json!({"content": "later"})).await.expect(202);
    tally(&site, "b").await;
    ran(&site, "agent:fork", json!({"sourceId": "b", "agentId": "a", "overwrite": true})).await;
    after(&site, &job, json!({"seen": ["later"]})).await;
    // The pause of a person stays.
    site.control(&job, "pause").await.expect(200);
    ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    ran(&site, "agent:resume", json!({"agentId": "a"})).await;
    assert_eq!(site.job(&job).await["status"], "PAUSED");
    site.control(&job, "resume").await.expect(200);
    site.until(&job, "INPUT_REQUIRED").await;
    // A full queue has no room for a notice.
    ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    site.until(&job, "PAUSED").await;
    // Notices of what happened before may wait there as well.
    let mut number = 0;
    while site.send(&job, &json!({"content": number})).await.status() == 202 {
        number += 1;
    }
    assert!((990..=1_000).contains(&number), "{number}");
    ran(&site, "agent:delete", json!({"agentId": "a", "remove": true})).await;
    assert_eq!(site.ended(&job).await["status"], "COMPLETE");
    site.history(&job).await.verify();
}

/// The number of attached jobs is bounded, and those that have ended do not count.
#[tokio::test]
async fn the_number_of_attached_jobs_is_bounded() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let mut jobs = Vec::new();
    for _ in 0..16 {
        jobs.push(attached(&site, "a").await);
    }
    let job = ended(&site, "agent:attach", json!({"agentId": "a"})).await;
    assert_eq!(
        (&job["status"], &job["errorCode"]),
        (&json!("FAILED"), &json!("too_many_attached"))
    );
    site.control(&jobs[3], "cancel").await.expect(200);
    site.control(&jobs[4], "delete").await.expect(200);
    attached(&site, "a").await;
    attached(&site, "a").await;
    // A job whose queue is full does not keep anybody from suspending the agent.
    site.control(&jobs[0], "pause").await.expect(200);
    for number in 0..1_000 {
        site.send(&jobs[0], &json!({"content": number})).await.expect(202);
    }
    let suspended = ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    assert_eq!(suspended["status"], "SUSPENDED");
}
