//! Steps on another venue: what is stored about them, messages to them, and failures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_auth::{KeyPair, Token};
use catena_engine::error::SendError;
use catena_engine::requests::JobView;
use catena_engine::{Engine, limits};
use catena_job::{JobId, Status};
use catena_store::{RootSpace, Store as _};
use catena_value::{Map, Value};
use support::harness::{children, register, step_members, verify_tree};
use support::remote::FakeJob;
use support::*;

/// A remote step, and a local step that depends on it.
const REMOTE_STEP: &str = r#"[
  {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"],"input":["input"]}},
  {"op":"t:echo","input":{"said":[0,"output"]}}
]"#;

/// Creates a venue whose remote venue answers with this latency and takes this long to run the first
/// step.
fn venue_with_remote(latency_ms: u64, work_ms: u64) -> TestVenue {
    let venue = TestVenue::new();
    *venue.remote.latency.lock() = Duration::from_millis(latency_ms);
    *venue.script.durations_ms.lock() = vec![work_ms];
    venue
}

#[test]
fn a_pause_during_the_start_of_a_remote_step_starts_it_once() {
    // A job of 20 ms has ended before the repeated start is answered.
    for (resumed_at, work) in [60, 150, 500].into_iter().flat_map(|at| [(at, 20), (at, 300)]) {
        let venue = venue_with_remote(100, work);
        venue.run_process(async |engine| {
            let op = register(&engine, REMOTE_STEP, "[1]", "").await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            sleep(50).await;
            engine.pause(&alice(), id).await.unwrap();
            tokio::time::sleep(Duration::from_millis(resumed_at - 50)).await;
            engine.resume(&alice(), id).await.unwrap();
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            assert_eq!(venue.script.count(0), (1, 1), "resumed at {resumed_at}, {work} ms");
            verify_tree(&engine, id).await;
        });
    }
}

#[test]
fn a_remote_step_whose_parent_job_is_cancelled_during_its_start_is_cancelled() {
    let venue = venue_with_remote(100, 1000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(50).await;
        engine.cancel(&alice(), id, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(venue.remote.statuses(), [Status::Cancelled]);
    });
}

#[test]
fn a_running_remote_step_is_cancelled_or_left_running_when_another_step_fails() {
    for (policy, expected) in
        [("", Status::Cancelled), (r#","onFailure":"leave""#, Status::Started)]
    {
        let venue = venue_with_remote(0, 10_000);
        venue.run_process(async |engine| {
            let steps = r#"[
              {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"]}},
              {"op":"t:breaks","input":{"ms":["const",100]}}
            ]"#;
            let op = register(&engine, steps, "[0]", policy).await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            assert_eq!(wait_for_end(&engine, id).await.status(), Status::Failed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(venue.remote.statuses(), [expected], "{policy}");
        });
    }
}

#[test]
fn a_path_into_a_secret_fails_the_remote_step_that_would_receive_it() {
    let venue = venue_with_remote(0, 10);
    venue.run_process(async |engine| {
        let steps = REMOTE_STEP.replace(r#"["input"]"#, r#"["input","key","part"]"#);
        let schema =
            r#","input":{"type":"object","properties":{"key":{"type":"object","writeOnly":true}}}"#;
        let op = register(&engine, &steps, "[1]", schema).await;
        let id = invoke(&engine, &op, r#"{"key":{"part":"hush"}}"#).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let error = member(&view, "error");
        assert!(
            error.contains("step 0 cannot start: the input has nothing at `key/part`"),
            "{error}"
        );
        // The secret itself is not sent either.
        let steps = REMOTE_STEP.replace(r#"["input"]"#, r#"["input","key"]"#);
        let op = register(&engine, &steps, "[1]", schema).await;
        let id = invoke(&engine, &op, r#"{"key":{"part":"hush"}}"#).await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        let sent = venue.remote.calls.lock()[0].input.clone();
        assert_eq!(sent, value(r#"{"agentId":"A","input":{"redacted":true}}"#));
    });
    assert!(!venue.disk_contains("hush"));
}

/// Creates a delegation for the identity with this DID.
fn delegation(audience: &str) -> String {
    let key = KeyPair::from_seed(&[77; 32]);
    let did = key.did();
    let claims = [("iss", Value::from(did.as_str())), ("aud", audience.into()), ("exp", 1.into())];
    Token::mint(&claims.into_iter().collect::<Map>(), &key)
}

#[test]
fn delegations_are_sent_to_the_remote_venue_only() {
    let venue = venue_with_remote(0, 10);
    let token = delegation(&KeyPair::from_seed(&[venue.seed; 32]).did());
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let run_with = async |delegations: Vec<String>| {
            let mut invocation = request(&op, "{}");
            invocation.caller.delegations = delegations;
            let id = engine.invoke(invocation).await.unwrap().view.job.id();
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            (venue.remote.calls.lock().last().unwrap().delegations.clone(), view)
        };
        let (sent, view) = run_with(vec![token.clone(), delegation("did:key:other")]).await;
        assert_eq!(
            sent,
            std::slice::from_ref(&token),
            "delegations for another audience are not sent"
        );
        assert_eq!(member(&view, "delegated"), "true");
        // Without a delegation for this venue, none is sent, and the job is requested anonymously.
        for none in [vec![], vec!["rubbish".to_owned()], vec![delegation("did:key:other")]] {
            let has_some = !none.is_empty();
            let (sent, view) = run_with(none).await;
            assert!(sent.is_empty());
            // Delegations for others may open data to the job itself, so they are kept with it.
            assert_eq!(view.job.field("delegated").is_some(), has_some);
        }
    });
    assert!(!venue.disk_contains(&token), "delegations are not stored in the clear");
    assert!(venue.roots("sealed").is_empty(), "they are erased at the end");
}

/// A job that calls others keeps the delegations of its request, and its calls find them.
#[test]
fn delegations_of_a_job_that_calls_others_survive_a_crash() {
    let venue = venue_with_remote(0, 10);
    let token = delegation(&KeyPair::from_seed(&[venue.seed; 32]).did());
    let ids = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let wait = r#"{"op":"t:wait","input":{"ms":500}}"#;
        let input = format!(r#"{{"calls":[{wait},{{"op":"{op}","input":{{}}}}]}}"#);
        let nested = format!(r#"{{"calls":[{{"op":"t:caller","input":{input}}}]}}"#);
        let mut ids = Vec::new();
        for input in [input, nested] {
            let mut invocation = request("t:caller", &input);
            invocation.caller.delegations = vec![token.clone()];
            ids.push(engine.invoke(invocation).await.unwrap().view.job.id());
        }
        sleep(100).await;
        ids
    });
    assert!(venue.remote.calls.lock().is_empty(), "no remote step has started");
    venue.run_process(async |engine| {
        for id in ids {
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            assert_eq!(member(&view, "delegated"), "true");
        }
    });
    let calls = venue.remote.calls.lock();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.delegations == [token.clone()]), "{calls:?}");
    assert!(!venue.disk_contains(&token), "delegations are not stored in the clear");
    assert!(venue.roots("sealed").is_empty(), "they are erased at the end");
}

/// A restart during the start of a remote step creates no second remote job, and none under another
/// identity.
#[test]
fn delegations_survive_a_crash() {
    let venue = venue_with_remote(100, 10);
    let token = delegation(&KeyPair::from_seed(&[venue.seed; 32]).did());
    let (id, nested) = venue.run_process(async |engine| {
        let inner = register(&engine, REMOTE_STEP, "[1]", "").await;
        let steps = format!(
            r#"[
          {{"op":"t:wait","input":{{"ms":["const",200]}}}},
          {{"op":"{inner}","input":{{"after":[0]}}}}
        ]"#
        );
        let outer = register(&engine, &steps, "[1]", "").await;
        let start = async |op: &str| {
            let mut invocation = request(op, "{}");
            invocation.caller.delegations = vec![token.clone()];
            engine.invoke(invocation).await.unwrap().view.job.id()
        };
        let nested = start(&outer).await;
        let id = start(&inner).await;
        sleep(50).await;
        (id, nested)
    });
    assert_eq!(venue.remote.calls.lock().len(), 1, "requested but not answered");
    assert_eq!(venue.roots("sealed").len(), 2);
    venue.run_process(async |engine| {
        for id in [id, nested] {
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            verify_tree(&engine, id).await;
        }
        // They are erased at the end, so a rerun would have another identity and is refused.
        let error = engine.rerun(&alice(), id, None, None).await.unwrap_err();
        assert!(error.to_string().contains("invoke the operation again with `ucans`"), "{error}");
        engine.rerun(&alice(), id, Some(1), None).await.unwrap();
    });
    let calls = venue.remote.calls.lock();
    assert!(calls.iter().all(|call| call.delegations == [token.clone()]), "{calls:?}");
    assert_eq!(venue.remote.jobs().len(), 2, "one for each orchestration");
    assert!(venue.roots("sealed").is_empty());
}

#[test]
fn secrets_of_an_orchestration_are_erased_when_it_ends() {
    let venue = venue_with_remote(0, 10);
    let schema =
        r#","input":{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}"#;
    venue.run_process(async |engine| {
        for steps in [REMOTE_STEP, r#"[{"op":"t:echo","input":["const",1]}]"#] {
            let op = register(&engine, steps, r#"["const",1]"#, schema).await;
            let id = invoke(&engine, &op, r#"{"key":"hush"}"#).await.job.id();
            assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        }
    });
    assert!(venue.roots("sealed").is_empty());
}

/// A remote step, a slow local step after it, and one that depends on both.
const REMOTE_THEN_SLOW: &str = r#"[
  {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"]}},
  {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}},
  {"op":"t:echo","input":["array",[0,"output"],[1,"ms"]]}
]"#;

/// A remote step that asks for input, and a local step that depends on it.
const REMOTE_CHAT: &str = r#"[
  {"op":"remote:chat","name":"talk","venue":"https://other.example","input":["const",{}]},
  {"op":"t:echo","input":{"said":[0]}}
]"#;

impl TestVenue {
    /// Returns the only job of the remote venue.
    fn remote_job(&self) -> Arc<FakeJob> {
        let mut jobs = self.remote.jobs();
        assert_eq!(jobs.len(), 1, "the remote venue has one job");
        jobs.remove(0)
    }

    /// Returns the number of requests of a kind that the remote venue received.
    fn request_count(&self, kind: &str) -> usize {
        self.remote.requests.lock().iter().filter(|other| *other == kind).count()
    }

    /// Returns the names of the stored snapshots of remote steps. Only between two processes.
    fn stored_snapshots(&self) -> Vec<String> {
        self.roots("elsewhere")
    }

    /// Returns the names of the venue's roots of an owner after a garbage collection. Only between
    /// two processes.
    fn roots(&self, owner: &str) -> Vec<String> {
        let store = self.open_store();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            store.collect().await.unwrap();
            store.roots(RootSpace::Venue, owner, None, 100).await.unwrap()
        })
    }
}

/// Returns a member of the entry of a step as JSON. `None` if the entry does not have it.
fn step_member(view: &JobView, step: u64, name: &str) -> Option<String> {
    let entry = view.steps.as_ref()?.as_vector()?.get(step, &catena_value::NoCells).unwrap()?;
    let member = entry.as_map()?.get(&name.into(), &catena_value::NoCells).unwrap()?;
    Some(catena_value::json::to_string(&member).unwrap())
}

async fn send(engine: &Engine, id: JobId, message: &str) {
    engine.send(&alice(), id, value(message), None).await.unwrap();
}

async fn read_job(engine: &Engine, id: JobId) -> JobView {
    engine.job(&alice(), id).await.unwrap()
}

#[test]
fn the_output_of_a_remote_step_is_stored_and_not_requested_again_after_a_crash() {
    let venue = venue_with_remote(0, 10);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_THEN_SLOW, "[2]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        let view = read_job(&engine, id).await;
        assert_eq!(step_member(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        assert_eq!(step_member(&view, 0, "status").unwrap(), r#""COMPLETE""#);
        assert_eq!(step_member(&view, 0, "asOf"), None, "the chain contains its end");
        id
    });
    // The remote venue is down, and its job has another history.
    venue.remote.set_down(true);
    venue.remote_job().rewrite_history("another end");
    let requests = venue.remote.requests.lock().len();
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        assert_eq!(member(&view, "output"), r#"["from A",1000]"#);
        assert_eq!(step_member(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        verify_tree(&engine, id).await;
    });
    assert_eq!(venue.remote.requests.lock().len(), requests, "no request was sent");
}

#[test]
fn the_snapshot_of_a_remote_step_is_deleted_with_its_parent_job() {
    let venue = venue_with_remote(0, 10);
    // Too long to be embedded in the root.
    let name = "A".repeat(10_000);
    let id = venue.run_process(async |engine| {
        let steps = REMOTE_STEP.replace(r#""A""#, &format!("\"{name}\""));
        let op = register(&engine, &steps, r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        id
    });
    assert_eq!(venue.stored_snapshots(), [format!("{}-0", id.to_hex())]);
    venue.run_process(async |engine| {
        let view = read_job(&engine, id).await;
        assert!(step_member(&view, 0, "output").unwrap().contains(&name));
        engine.delete(&alice(), id).await.unwrap();
    });
    assert!(venue.stored_snapshots().is_empty());
    // A state that becomes known after the job was deleted is not stored either.
    let venue = venue_with_remote(0, 10_000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        venue.remote.set_down(true);
        engine.delete(&alice(), id).await.unwrap();
        sleep(1_500).await;
        venue.remote.set_down(false);
        sleep(60_000).await;
        assert_eq!(venue.remote_job().status(), Status::Cancelled);
    });
    assert!(venue.stored_snapshots().is_empty());
}

#[test]
fn a_remote_step_that_asks_for_input_receives_the_messages_of_the_parent_job_once() {
    let venue = venue_with_remote(0, 0);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: what?""#);
        assert_eq!(step_member(&view, 0, "status").unwrap(), r#""INPUT_REQUIRED""#);
        assert_eq!(step_member(&view, 0, "message").unwrap(), r#""what?""#);
        assert!(step_member(&view, 0, "asOf").is_some());
        send(&engine, id, r#"{"content":"hi","messageId":"m1"}"#).await;
        sleep(50).await;
        let view = read_job(&engine, id).await;
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(step_member(&view, 0, "output").unwrap(), r#""hi""#);
        assert_eq!(member(&view, "output"), r#""hi""#, "the parent job shows it too");
        let expected =
            ["PENDING", "STARTED", "(step)", "INPUT_REQUIRED", "STARTED", "INPUT_REQUIRED"];
        assert_eq!(record_kinds(&engine, id).await, expected);
        assert_eq!(venue.remote_job().messages.lock()[0].0, "m1");
        // The next message is sent, and the venue is killed before its delivery is recorded.
        *venue.remote.latency.lock() = Duration::from_millis(100);
        send(&engine, id, r#"{"content":"again","messageId":"m2"}"#).await;
        sleep(50).await;
        assert_eq!(venue.remote_job().messages.lock().len(), 2);
        id
    });
    venue.run_process(async |engine| {
        sleep(1_000).await;
        let view = read_job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
        assert_eq!(step_member(&view, 0, "output").unwrap(), r#""again""#);
        assert_eq!(
            venue.remote_job().messages.lock().len(),
            2,
            "a repeated message is accepted once"
        );
        assert_eq!(venue.request_count("send"), 3);
        send(&engine, id, r#"{"content":"done"}"#).await;
        let view = wait_for_end(&engine, id).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"{"said":"bye"}"#.into())
        );
        assert!(view.job.field("discarded").is_none(), "every message was accepted");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_message_for_a_venue_that_is_down_stays_queued() {
    let venue = venue_with_remote(0, 0);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        wait_for_status(&engine, id, Status::InputRequired).await;
        venue.remote.set_down(true);
        send(&engine, id, r#"{"content":"done","messageId":"m1"}"#).await;
        sleep(30_000).await;
        let view = read_job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 1));
        id
    });
    venue.run_process(async |engine| {
        sleep(10_000).await;
        assert_eq!(
            read_job(&engine, id).await.status(),
            Status::InputRequired,
            "nothing has changed"
        );
        venue.remote.set_down(false);
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_message_that_the_remote_venue_refuses_does_not_block_the_next() {
    let venue = venue_with_remote(0, 0);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        wait_for_status(&engine, id, Status::InputRequired).await;
        send(&engine, id, r#"{"content":"refuse me","messageId":"m1"}"#).await;
        sleep(50).await;
        let view = read_job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
        let message = member(&view, "message");
        assert_eq!(
            message,
            r#""step 0 (talk) waits: what?; the last message was refused: not now""#
        );
        assert_eq!(record_kinds(&engine, id).await.last().unwrap(), "(message)");
        send(&engine, id, r#"{"content":"done"}"#).await;
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn credentials_do_not_leave_the_venue() {
    let venue = venue_with_remote(0, 0);
    venue.run_process(async |engine| {
        let steps = REMOTE_CHAT.replace("remote:chat", "remote:auth");
        let op = register(&engine, &steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_status(&engine, id, Status::AuthRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: who?""#);
        let secret = value(r#"{"type":"auth/complete","credentials":"hush-hush"}"#);
        let error = engine.send(&alice(), id, secret.clone(), None).await.unwrap_err();
        let SendError::CredentialsStay { asking, venue: waiting, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((asking, waiting.as_str()), (children(&view)[0], "https://other.example"));
        assert_eq!(read_job(&engine, id).await.queue_depth, 0);
        // Nor do credentials that were queued before the step asked for them.
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"remote:auth","venue":"https://other.example","input":{"after":[0]}}
        ]"#;
        let op = register(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        engine.send(&alice(), id, secret, None).await.unwrap();
        wait_for_status(&engine, id, Status::AuthRequired).await;
        sleep(100).await;
        let view = read_job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::AuthRequired, 0));
        let message = member(&view, "message");
        assert!(message.contains("credentials are not sent to other venues"), "{message}");
        verify_tree(&engine, id).await;
        // A message without secrets is sent.
        send(&engine, id, r#"{"type":"auth/complete","content":"done"}"#).await;
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
    });
    assert_eq!(venue.request_count("send"), 1);
    assert!(!venue.disk_contains("hush-hush"));
}

#[test]
fn the_end_of_a_remote_step_is_stored_even_if_the_parent_job_ended_first() {
    let venue = venue_with_remote(0, 100_000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        assert_eq!(step_member(&read_job(&engine, id).await, 0, "status").unwrap(), r#""STARTED""#);
        let tag = engine.cancel(&alice(), id, None).await.unwrap().etag();
        sleep(10).await;
        let view = read_job(&engine, id).await;
        assert_eq!(step_members(&view, "status"), ["CANCELLED", "SKIPPED"]);
        let head = venue.remote_job().record(Status::Cancelled).to_string();
        assert_eq!(step_member(&view, 0, "head").unwrap(), format!("\"{head}\""));
        assert!(step_member(&view, 0, "asOf").is_some(), "the chain does not contain its end");
        assert_ne!(view.etag(), tag, "a client that caches the job reads it again");
        verify_tree(&engine, id).await;
    });
    // The last known state of a step that cannot be reached is returned with its time.
    let venue = venue_with_remote(0, 100_000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        venue.remote.set_down(true);
        let ended = engine.cancel(&alice(), id, None).await.unwrap().job.updated();
        sleep(600_000).await;
        let view = read_job(&engine, id).await;
        assert_eq!(step_members(&view, "status"), ["STARTED", "SKIPPED"]);
        let seen: i64 = step_member(&view, 0, "asOf").unwrap().parse().unwrap();
        assert!(seen < ended, "{seen} {ended}");
    });
}

#[test]
fn a_remote_step_that_was_cancelled_during_its_start_is_not_reported_as_skipped() {
    let venue = venue_with_remote(100, 1000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(50).await;
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["SKIPPED", "SKIPPED"], "nothing is known yet");
        sleep(10_000).await;
        let view = read_job(&engine, id).await;
        assert_eq!(step_members(&view, "status"), ["CANCELLED", "SKIPPED"]);
        assert_eq!(children(&view).len(), 1, "its job is named");
    });
}

#[test]
fn a_remote_job_that_paused_itself_is_not_resumed_with_the_parent_job() {
    let venue = venue_with_remote(0, 100);
    let id = venue.run_process(async |engine| {
        let steps = REMOTE_STEP.replace("agent:request", "remote:pause");
        let op = register(&engine, &steps, r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        assert_eq!(step_member(&read_job(&engine, id).await, 0, "status").unwrap(), r#""PAUSED""#);
        engine.pause(&alice(), id).await.unwrap();
        sleep(100).await;
        engine.resume(&alice(), id).await.unwrap();
        sleep(60_000).await;
        assert_eq!(venue.remote_job().status(), Status::Paused);
        id
    });
    venue.run_process(async |engine| {
        sleep(60_000).await;
        assert_eq!(
            venue.remote_job().status(),
            Status::Paused,
            "the next process does not resume it either"
        );
        assert_eq!(venue.request_count("resume"), 0);
        assert_eq!(read_job(&engine, id).await.status(), Status::Started);
    });
}

#[test]
fn a_paused_remote_step_is_resumed_even_after_a_crash_or_an_outage_of_its_venue() {
    let venue = venue_with_remote(0, 1_000);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        engine.pause(&alice(), id).await.unwrap();
        sleep(10).await;
        assert_eq!(venue.remote_job().status(), Status::Paused);
        id
    });
    venue.remote.set_down(true);
    venue.run_process(async |engine| {
        engine.resume(&alice(), id).await.unwrap();
        sleep(30_000).await;
        assert_eq!(venue.remote_job().status(), Status::Paused);
        venue.remote.set_down(false);
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        verify_tree(&engine, id).await;
    });
    // A job that another caller paused after it had been resumed there is not resumed.
    let venue = venue_with_remote(0, 1_000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        engine.pause(&alice(), id).await.unwrap();
        sleep(10).await;
        venue.remote_job().status.send_replace(Status::Started);
        venue.remote_job().rewrite_history("paused by another caller");
        venue.remote_job().status.send_replace(Status::Paused);
        engine.resume(&alice(), id).await.unwrap();
        sleep(60_000).await;
        assert_eq!(venue.remote_job().status(), Status::Paused);
    });
}

#[test]
fn a_rerun_reuses_the_outputs_of_remote_steps() {
    let venue = venue_with_remote(0, 10);
    let (first, again) = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_THEN_SLOW, "[2]", "").await;
        let first = invoke(&engine, &op, "{}").await.job.id();
        assert_eq!(wait_for_end(&engine, first).await.status(), Status::Complete);
        venue.remote.set_down(true);
        let again = engine.rerun(&alice(), first, Some(1), None).await.unwrap().view;
        let end = read_job(&engine, first).await.job.steps()[&0].end.clone();
        let id = again.job.id();
        let reused = member(&again, "reused");
        assert!(reused.contains(&end.unwrap().record.to_string()), "{reused}");
        assert!(reused.contains(r#""venue":"https://other.example""#), "{reused}");
        // The reused output is kept when the earlier run is deleted.
        engine.delete(&alice(), first).await.unwrap();
        sleep(500).await;
        (first, id)
    });
    venue.run_process(async |engine| {
        assert!(engine.job(&alice(), first).await.is_err());
        let view = wait_for_end(&engine, again).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"["from A",1000]"#.into())
        );
        assert_eq!(step_member(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        assert_eq!(step_member(&view, 0, "reused").unwrap(), "true");
        // A rerun of the rerun reuses the same output.
        let third = engine.rerun(&alice(), again, Some(2), None).await.unwrap().view;
        assert_eq!(
            (third.status(), member(&third, "output")),
            (Status::Complete, r#"["from A",1000]"#.into())
        );
        verify_tree(&engine, again).await;
    });
    assert_eq!(venue.remote.calls.lock().len(), 1, "it ran once");
}

#[test]
fn a_remote_step_fails_if_its_venue_stays_unreachable() {
    let venue = venue_with_remote(0, 1_000_000);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let mut invocation = request(&op, "{}");
        invocation.timeout = Some(limits::TIMEOUT_MAX);
        let id = engine.invoke(invocation).await.unwrap().view.job.id();
        sleep(100).await;
        venue.remote.set_down(true);
        // A pause and a resume make it poll again.
        engine.pause(&alice(), id).await.unwrap();
        engine.resume(&alice(), id).await.unwrap();
        venue.remote_job().status.send_replace(Status::Started);
        sleep(1_000_000).await;
        let view = read_job(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let error = member(&view, "error");
        assert!(error.contains("step 0 failed on its venue: it cannot be reached"), "{error}");
        assert_eq!(step_members(&view, "status"), ["STARTED", "SKIPPED"]);
    });
}

#[test]
fn a_pending_cancel_of_a_remote_step_is_retried_after_a_crash() {
    let venue = venue_with_remote(0, 1_000_000);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        venue.remote.set_down(true);
        engine.cancel(&alice(), id, None).await.unwrap();
        id
    });
    assert_eq!(venue.roots("unwanted").len(), 1);
    venue.remote.set_down(false);
    venue.run_process(async |engine| {
        sleep(1_000).await;
        assert_eq!(venue.remote_job().status(), Status::Cancelled);
        assert_eq!(step_members(&read_job(&engine, id).await, "status"), ["CANCELLED", "SKIPPED"]);
    });
    assert!(venue.roots("unwanted").is_empty());
}

#[test]
fn a_remote_step_of_a_job_that_was_paused_during_a_restart_is_cancelled_with_it() {
    let venue = venue_with_remote(0, 1_000_000);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_STEP, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        engine.pause(&alice(), id).await.unwrap();
        sleep(100).await;
        id
    });
    venue.run_process(async |engine| {
        sleep(100).await;
        engine.cancel(&alice(), id, None).await.unwrap();
        sleep(1_000).await;
        assert_eq!(venue.remote_job().status(), Status::Cancelled);
        assert_eq!(step_members(&read_job(&engine, id).await, "status"), ["CANCELLED", "SKIPPED"]);
    });
    assert!(venue.roots("unwanted").is_empty());
}

#[test]
fn a_remote_job_that_changes_all_the_time_is_polled_at_a_limited_rate() {
    let venue = venue_with_remote(0, 0);
    venue.remote.changes_on_every_poll.store(true, Ordering::SeqCst);
    venue.run_process(async |engine| {
        let op = register(&engine, REMOTE_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(30_000).await;
        let polls = venue.request_count("poll");
        let view = read_job(&engine, id).await;
        assert!((90..=110).contains(&polls), "{polls} polls in 30 s");
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(record_kinds(&engine, id).await.len(), 4, "the changes create no records");
        // Of a long output, the step shows the size; it is not recorded in the parent job.
        let long = "x".repeat(100_000);
        venue.remote.changes_on_every_poll.store(false, Ordering::SeqCst);
        send(&engine, id, &format!(r#"{{"content":"{long}"}}"#)).await;
        sleep(1_000).await;
        let view = read_job(&engine, id).await;
        assert!(step_member(&view, 0, "output").is_none());
        let bytes: u64 = step_member(&view, 0, "outputBytes").unwrap().parse().unwrap();
        assert!(bytes >= 100_000, "{bytes}");
        assert!(view.job.field("output").is_none());
        verify_tree(&engine, id).await;
    });
}
