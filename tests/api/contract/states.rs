//! Section 3.1: "`PENDING` — created, not yet queued", "`QUEUED` — placed on queue for workers", "`RUNNING` —
//! worker claimed and started execution", "`SUCCEEDED` — completed successfully", "`FAILED` — completed with an
//! error", "`CANCELLED` — cancelled by user/system", "`TIMED_OUT` — hit runtime/resource deadline".
//!
//! Section 3.2, "Allowed transitions": every one of them, and no other.
//!
//! - `PENDING → QUEUED`
//! - `QUEUED → RUNNING`
//! - `RUNNING → SUCCEEDED | FAILED | CANCELLED | TIMED_OUT`
//! - `QUEUED → CANCELLED` (if cancelled before claim)
//!
//! "Workers must not move jobs backwards."

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::{Bench, payload, text};

/// What can be done to a job.
const ACTIONS: [&str; 9] =
    ["claim", "succeed", "fail", "time out", "retry", "give back", "cancel", "pause", "resume"];

impl Bench {
    /// Does something to a job, as far as it is allowed. `held` is the job as it was claimed last.
    async fn act(&self, action: &str, id: &str, held: &mut Option<Json>) {
        let unclaimed = json!({"id": id, "fence": 0});
        let job = held.clone().unwrap_or(unclaimed);
        match action {
            "claim" => {
                let claimed = self.try_claim("e1", 0).await["jobs"][0].clone();
                if claimed.is_object() {
                    *held = Some(claimed);
                }
            }
            "succeed" => drop(self.end(&job, json!({"output": {}})).await),
            "fail" => drop(self.end(&job, json!({"error": "e", "code": "USER_CODE_ERROR"})).await),
            "time out" => drop(self.end(&job, json!({"timedOut": "t"})).await),
            "retry" => drop(self.end(&job, json!({"error": "e", "code": "INTERNAL_ERROR"})).await),
            "give back" => drop(self.end(&job, json!({"awaiting": []})).await),
            "cancel" => {
                let path = format!("/contract/v1/jobs/{id}/cancel");
                self.owner.post(&path, &json!({})).await.expect(200);
            }
            action => drop(self.owner.control(id, action).await),
        }
    }

    /// A job in a status.
    async fn job_in(&self, status: &str, source: &str) -> (String, Option<Json>) {
        let id = text(&self.submit(&payload(source)).await, "job_id");
        let mut held = None;
        let actions: &[&str] = match status {
            "QUEUED" => &[],
            "RUNNING" => &["claim"],
            "SUCCEEDED" => &["claim", "succeed"],
            "FAILED" => &["claim", "fail"],
            "TIMED_OUT" => &["claim", "time out"],
            _ => &["cancel"],
        };
        for action in actions {
            self.act(action, &id, &mut held).await;
        }
        assert_eq!(self.read(&id).await["status"], status);
        (id, held)
    }
}

#[tokio::test]
async fn a_job_makes_every_allowed_transition_and_no_other() {
    let bench = Bench::ready().await;
    let mut seen = BTreeSet::new();
    for from in ["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"] {
        for action in ACTIONS {
            let (id, mut held) = bench.job_in(from, &format!("{from} {action}")).await;
            bench.act(action, &id, &mut held).await;
            let to = text(&bench.read(&id).await, "status");
            if to != from {
                seen.insert(format!("{from} {to}"));
            }
            // Nothing may be left for the next job to find on the queue.
            bench
                .owner
                .post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({}))
                .await
                .expect(200);
        }
    }
    // A job is created and queued in one commit, so that nobody sees it PENDING.
    let allowed = [
        "QUEUED CANCELLED",
        "QUEUED RUNNING",
        "RUNNING CANCELLED",
        "RUNNING FAILED",
        "RUNNING SUCCEEDED",
        "RUNNING TIMED_OUT",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), allowed);
}

/// "`QUEUED → CANCELLED` (if cancelled before claim)", here by the system.
#[tokio::test]
async fn a_job_that_no_executor_claims_in_time_is_cancelled_as_expired() {
    let bench = Bench::with(|flags| flags.queue_time = Some("2s".to_owned())).await;
    bench.announce().await;
    let waiting = text(&bench.submit(&payload("print('waiting')")).await, "job_id");
    let paused = text(&bench.submit(&payload("print('paused')")).await, "job_id");
    bench.owner.control(&paused, "pause").await.expect(200);
    bench.owner.until(&waiting, "CANCELLED").await;
    let read = bench.read(&waiting).await;
    assert_eq!((&read["status"], &read["result"]), (&json!("CANCELLED"), &Json::Null), "{read}");
    assert_eq!(read["reason"], "queue_expired", "{read}");
    assert_eq!(bench.owner.job(&waiting).await["error"], "queue_expired");
    let history = bench.owner.history(&waiting).await;
    history.verify();
    assert_eq!(history.entries.len(), 2, "it never ran");
    // A paused job stays, and has the rest of its time when it is resumed.
    assert_eq!(bench.read(&paused).await["status"], "QUEUED");
    bench.owner.control(&paused, "resume").await.expect(200);
    bench.owner.until(&paused, "CANCELLED").await;
    assert_eq!(bench.read(&paused).await["reason"], "queue_expired");
    assert_eq!(bench.try_claim("e1", 0).await["jobs"], json!([]));
    // What is claimed in time is not cancelled by the limit of the queue.
    let (id, job) = bench.claimed(&payload("print('claimed')")).await;
    tokio::time::sleep(std::time::Duration::from_millis(2_200)).await;
    assert_eq!(bench.read(&id).await["status"], "RUNNING");
    bench.succeed(&job).await;
    assert_eq!(bench.read(&id).await["status"], "SUCCEEDED");
}
