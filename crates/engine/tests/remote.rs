//! Steps that run on another venue: what is known of them here, messages to them, and trouble.
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
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::stepped::SteppedStore;
use catena_store::{RootSpace, Store as _};
use catena_value::{Map, Value};
use support::harness::{children, define, of_steps, tree_verified};
use support::remote::Guest;
use support::*;

/// One step at another venue, and one here that needs it.
const AWAY: &str = r#"[
  {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"],"input":["input"]}},
  {"op":"t:echo","input":{"said":[0,"output"]}}
]"#;

/// A world whose other venue takes this long to answer, and this long for its work.
fn far_away(latency_ms: u64, work_ms: u64) -> World {
    let world = World::new();
    *world.remote.latency.lock() = Duration::from_millis(latency_ms);
    *world.script.times.lock() = vec![work_ms];
    world
}

#[test]
fn a_pause_while_a_step_is_being_begun_elsewhere_begins_it_once() {
    // What takes 20 ms has ended before somebody who is sent again is answered.
    for (resumed_at, work) in [60, 150, 500].into_iter().flat_map(|at| [(at, 20), (at, 300)]) {
        let world = far_away(100, work);
        world.live(async |engine| {
            let op = define(&engine, AWAY, "[1]", "").await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            tokio::time::sleep(Duration::from_millis(50)).await;
            engine.pause(&alice(), id).await.unwrap();
            tokio::time::sleep(Duration::from_millis(resumed_at - 50)).await;
            engine.resume(&alice(), id).await.unwrap();
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            assert_eq!(world.script.count(0), (1, 1), "resumed at {resumed_at}, {work} ms");
            tree_verified(&engine, id).await;
        });
    }
}

#[test]
fn a_step_that_is_given_up_while_it_is_being_begun_elsewhere_is_cancelled_there() {
    let world = far_away(100, 1000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        tokio::time::sleep(Duration::from_millis(50)).await;
        engine.cancel(&alice(), id, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let there: Vec<Status> = world.remote.jobs().iter().map(|job| job.status()).collect();
        assert_eq!(there, [Status::Cancelled]);
    });
}

#[test]
fn what_runs_elsewhere_when_a_step_fails_is_cancelled_or_left_too() {
    for (policy, expected) in
        [("", Status::Cancelled), (r#","onFailure":"leave""#, Status::Started)]
    {
        let world = far_away(0, 10_000);
        world.live(async |engine| {
            let steps = r#"[
              {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"]}},
              {"op":"t:breaks","input":{"ms":["const",100]}}
            ]"#;
            let op = define(&engine, steps, "[0]", policy).await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            assert_eq!(ended(&engine, id).await.status(), Status::Failed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let there: Vec<Status> = world.remote.jobs().iter().map(|job| job.status()).collect();
            assert_eq!(there, [expected], "{policy}");
        });
    }
}

#[test]
fn a_path_into_a_secret_fails_the_step_that_would_send_it_away() {
    let world = far_away(0, 10);
    world.live(async |engine| {
        let steps = AWAY.replace(r#"["input"]"#, r#"["input","key","part"]"#);
        let schema =
            r#","input":{"type":"object","properties":{"key":{"type":"object","writeOnly":true}}}"#;
        let op = define(&engine, &steps, "[1]", schema).await;
        let id = invoke(&engine, &op, r#"{"key":{"part":"hush"}}"#).await.job.id();
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let error = member(&view, "error");
        assert!(
            error.contains("step 0 cannot begin: the input has nothing at `key/part`"),
            "{error}"
        );
        // The secret itself is not sent either.
        let steps = AWAY.replace(r#"["input"]"#, r#"["input","key"]"#);
        let op = define(&engine, &steps, "[1]", schema).await;
        let id = invoke(&engine, &op, r#"{"key":{"part":"hush"}}"#).await.job.id();
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        let sent = world.remote.calls.lock()[0].input.clone();
        assert_eq!(sent, value(r#"{"agentId":"A","input":{"redacted":true}}"#));
    });
    assert!(!world.disk_contains("hush"));
}

/// A delegation for whoever has this DID.
fn delegation(audience: &str) -> String {
    let key = KeyPair::from_seed(&[77; 32]);
    let did = key.did();
    let claims = [("iss", Value::from(did.as_str())), ("aud", audience.into()), ("exp", 1.into())];
    Token::mint(&claims.into_iter().collect::<Map>(), &key)
}

#[test]
fn delegations_go_to_the_other_venue_and_nowhere_else() {
    let world = far_away(0, 10);
    let token = delegation(&KeyPair::from_seed(&[world.seed; 32]).did());
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let with = async |delegations: Vec<String>| {
            let mut asked = request(&op, "{}");
            asked.caller.delegations = delegations;
            let id = engine.invoke(asked).await.unwrap().view.job.id();
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            (world.remote.calls.lock().last().unwrap().delegations.clone(), view)
        };
        let (sent, view) = with(vec![token.clone(), delegation("did:key:other")]).await;
        assert_eq!(sent, std::slice::from_ref(&token), "one for somebody else is not ours to show");
        assert_eq!(member(&view, "delegated"), "true");
        // Without any for this venue, none are made up, and it is asked as nobody.
        for none in [vec![], vec!["rubbish".to_owned()], vec![delegation("did:key:other")]] {
            let (sent, view) = with(none).await;
            assert!(sent.is_empty());
            assert!(view.job.field("delegated").is_none());
        }
    });
    assert!(!world.disk_contains(&token), "delegations are not stored in the clear");
    assert!(world.roots("sealed").is_empty(), "and erased at the end");
}

/// A restart in the middle makes no second job over there, and none of somebody else.
#[test]
fn delegations_outlive_a_crash() {
    let world = far_away(100, 10);
    let token = delegation(&KeyPair::from_seed(&[world.seed; 32]).did());
    let (id, nested) = world.live(async |engine| {
        let inner = define(&engine, AWAY, "[1]", "").await;
        let steps = format!(
            r#"[
          {{"op":"t:wait","input":{{"ms":["const",200]}}}},
          {{"op":"{inner}","input":{{"after":[0]}}}}
        ]"#
        );
        let outer = define(&engine, &steps, "[1]", "").await;
        let begun = async |op: &str| {
            let mut asked = request(op, "{}");
            asked.caller.delegations = vec![token.clone()];
            engine.invoke(asked).await.unwrap().view.job.id()
        };
        let nested = begun(&outer).await;
        let id = begun(&inner).await;
        pass(50).await;
        (id, nested)
    });
    assert_eq!(world.remote.calls.lock().len(), 1, "asked for, and not answered");
    assert_eq!(world.roots("sealed").len(), 2);
    world.live(async |engine| {
        for id in [id, nested] {
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
            tree_verified(&engine, id).await;
        }
        // Once it has ended they are gone, and nobody runs it again as somebody else.
        let error = engine.rerun(&alice(), id, None, None).await.unwrap_err();
        assert!(error.to_string().contains("invoke it anew with `ucans`"), "{error}");
        engine.rerun(&alice(), id, Some(1), None).await.unwrap();
    });
    let calls = world.remote.calls.lock();
    assert!(calls.iter().all(|call| call.delegations == [token.clone()]), "{calls:?}");
    assert_eq!(world.remote.jobs().len(), 2, "one for each");
    assert!(world.roots("sealed").is_empty());
}

#[test]
fn secrets_of_an_orchestration_are_erased_when_it_ends() {
    let world = far_away(0, 10);
    let schema =
        r#","input":{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}"#;
    world.live(async |engine| {
        for steps in [AWAY, r#"[{"op":"t:echo","input":["const",1]}]"#] {
            let op = define(&engine, steps, r#"["const",1]"#, schema).await;
            let id = invoke(&engine, &op, r#"{"key":"hush"}"#).await.job.id();
            assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        }
    });
    assert!(world.roots("sealed").is_empty());
}

/// A step at another venue that has ended, a slow one here, and one that needs both.
const AWAY_THEN_SLOW: &str = r#"[
  {"op":"agent:request","venue":"https://other.example","input":{"agentId":["const","A"]}},
  {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}},
  {"op":"t:echo","input":["array",[0,"output"],[1,"ms"]]}
]"#;

/// A step at another venue that asks, and one here that needs what it gives.
const AWAY_CHAT: &str = r#"[
  {"op":"far:chat","name":"talk","venue":"https://other.example","input":["const",{}]},
  {"op":"t:echo","input":{"said":[0]}}
]"#;

impl World {
    /// The only job of the other venue.
    fn guest(&self) -> Arc<Guest> {
        let mut jobs = self.remote.jobs();
        assert_eq!(jobs.len(), 1, "one job there");
        jobs.remove(0)
    }

    /// How often the other venue was asked something about a job.
    fn asked(&self, what: &str) -> usize {
        self.remote.asked.lock().iter().filter(|asked| *asked == what).count()
    }

    /// The names of what is kept of steps elsewhere, after everything that is not needed was
    /// removed. Only between two lives.
    fn kept(&self) -> Vec<String> {
        self.roots("elsewhere")
    }

    fn roots(&self, owner: &str) -> Vec<String> {
        let disk = Arc::clone(&self.disk);
        let store = EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap();
        let store = SteppedStore(store);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            store.collect().await.unwrap();
            store.roots(RootSpace::Venue, owner, None, 100).await.unwrap()
        })
    }
}

/// A member of the entry of a step, as JSON.
fn of_step(view: &JobView, step: u64, name: &str) -> Option<String> {
    let entry = view.steps.as_ref()?.as_vector()?.get(step, &catena_value::NoCells).unwrap()?;
    let member = entry.as_map()?.get(&name.into(), &catena_value::NoCells).unwrap()?;
    Some(catena_value::json::to_string(&member).unwrap())
}

async fn say(engine: &Engine, id: JobId, message: &str) {
    engine.send(&alice(), id, value(message), None).await.unwrap();
}

async fn job(engine: &Engine, id: JobId) -> JobView {
    engine.job(&alice(), id).await.unwrap()
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[test]
fn what_a_step_elsewhere_gave_is_shown_and_not_asked_for_again_after_a_crash() {
    let world = far_away(0, 10);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY_THEN_SLOW, "[2]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(500).await;
        let view = job(&engine, id).await;
        assert_eq!(of_step(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        assert_eq!(of_step(&view, 0, "status").unwrap(), r#""COMPLETE""#);
        assert_eq!(of_step(&view, 0, "asOf"), None, "the chain says how it ended");
        id
    });
    // The other venue is gone, and so is what it had.
    world.remote.set_down(true);
    world.guest().rewrite("another end");
    let asked = world.remote.asked.lock().len();
    world.live(async |engine| {
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        assert_eq!(member(&view, "output"), r#"["from A",1000]"#);
        assert_eq!(of_step(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        tree_verified(&engine, id).await;
    });
    assert_eq!(world.remote.asked.lock().len(), asked, "nobody asked");
}

#[test]
fn what_is_kept_of_a_step_elsewhere_goes_with_its_job() {
    let world = far_away(0, 10);
    // Too long to stand in the root itself.
    let name = "A".repeat(10_000);
    let id = world.live(async |engine| {
        let steps = AWAY.replace(r#""A""#, &format!("\"{name}\""));
        let op = define(&engine, &steps, r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        id
    });
    assert_eq!(world.kept(), [format!("{}-0", id.to_hex())]);
    world.live(async |engine| {
        let view = job(&engine, id).await;
        assert!(of_step(&view, 0, "output").unwrap().contains(&name));
        engine.delete(&alice(), id).await.unwrap();
    });
    assert!(world.kept().is_empty());
    // What is learnt after the job is gone is not kept either.
    let world = far_away(0, 10_000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        world.remote.set_down(true);
        engine.delete(&alice(), id).await.unwrap();
        pass(1_500).await;
        world.remote.set_down(false);
        pass(60_000).await;
        assert_eq!(world.guest().status(), Status::Cancelled);
    });
    assert!(world.kept().is_empty());
}

#[test]
fn a_step_elsewhere_that_asks_makes_the_whole_ask_and_messages_reach_it_once() {
    let world = far_away(0, 0);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = role(&engine, id, Status::InputRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: what?""#);
        assert_eq!(of_step(&view, 0, "status").unwrap(), r#""INPUT_REQUIRED""#);
        assert_eq!(of_step(&view, 0, "message").unwrap(), r#""what?""#);
        assert!(of_step(&view, 0, "asOf").is_some());
        say(&engine, id, r#"{"content":"hi","messageId":"m1"}"#).await;
        pass(50).await;
        let view = job(&engine, id).await;
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(of_step(&view, 0, "output").unwrap(), r#""hi""#);
        assert_eq!(member(&view, "output"), r#""hi""#, "whoever talks to the whole sees it, too");
        let expected =
            ["PENDING", "STARTED", "(step)", "INPUT_REQUIRED", "STARTED", "INPUT_REQUIRED"];
        assert_eq!(story(&engine, id).await, expected);
        assert_eq!(world.guest().messages.lock()[0].0, "m1");
        // The next is on its way, and the venue is killed before that is recorded.
        *world.remote.latency.lock() = Duration::from_millis(100);
        say(&engine, id, r#"{"content":"again","messageId":"m2"}"#).await;
        pass(50).await;
        assert_eq!(world.guest().messages.lock().len(), 2);
        id
    });
    world.live(async |engine| {
        pass(1_000).await;
        let view = job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
        assert_eq!(of_step(&view, 0, "output").unwrap(), r#""again""#);
        assert_eq!(world.guest().messages.lock().len(), 2, "the same message twice is one");
        assert_eq!(world.asked("send"), 3);
        say(&engine, id, r#"{"content":"done"}"#).await;
        let view = ended(&engine, id).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"{"said":"bye"}"#.into())
        );
        assert!(view.job.field("discarded").is_none(), "every message was taken");
        tree_verified(&engine, id).await;
    });
}

#[test]
fn a_message_for_a_venue_that_is_down_waits_and_is_not_lost() {
    let world = far_away(0, 0);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        role(&engine, id, Status::InputRequired).await;
        world.remote.set_down(true);
        say(&engine, id, r#"{"content":"done","messageId":"m1"}"#).await;
        pass(30_000).await;
        let view = job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 1));
        id
    });
    world.live(async |engine| {
        pass(10_000).await;
        assert_eq!(job(&engine, id).await.status(), Status::InputRequired, "as it was");
        world.remote.set_down(false);
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        tree_verified(&engine, id).await;
    });
}

#[test]
fn a_message_that_is_refused_elsewhere_holds_nothing_up() {
    let world = far_away(0, 0);
    world.live(async |engine| {
        let op = define(&engine, AWAY_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        role(&engine, id, Status::InputRequired).await;
        say(&engine, id, r#"{"content":"refuse me","messageId":"m1"}"#).await;
        pass(50).await;
        let view = job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
        let message = member(&view, "message");
        assert_eq!(
            message,
            r#""step 0 (talk) waits: what?; the last message was not taken: it was refused""#
        );
        assert_eq!(story(&engine, id).await.last().unwrap(), "(message)");
        say(&engine, id, r#"{"content":"done"}"#).await;
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        tree_verified(&engine, id).await;
    });
}

#[test]
fn credentials_do_not_leave_the_venue() {
    let world = far_away(0, 0);
    world.live(async |engine| {
        let steps = AWAY_CHAT.replace("far:chat", "far:auth");
        let op = define(&engine, &steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = role(&engine, id, Status::AuthRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: who?""#);
        let secret = value(r#"{"type":"auth/complete","credentials":"hush-hush"}"#);
        let error = engine.send(&alice(), id, secret.clone(), None).await.unwrap_err();
        let SendError::CredentialsStay { asking, venue, .. } = error else { panic!("{error}") };
        assert_eq!((asking, venue.as_str()), (children(&view)[0], "https://other.example"));
        assert_eq!(job(&engine, id).await.queue_depth, 0);
        // Nor those that were on the queue before anybody asked.
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"far:auth","venue":"https://other.example","input":{"after":[0]}}
        ]"#;
        let op = define(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        engine.send(&alice(), id, secret, None).await.unwrap();
        role(&engine, id, Status::AuthRequired).await;
        pass(100).await;
        let view = job(&engine, id).await;
        assert_eq!((view.status(), view.queue_depth), (Status::AuthRequired, 0));
        let message = member(&view, "message");
        assert!(message.contains("credentials are not sent to other venues"), "{message}");
        tree_verified(&engine, id).await;
        // What is not secret may go.
        say(&engine, id, r#"{"type":"auth/complete","content":"done"}"#).await;
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
    });
    assert_eq!(world.asked("send"), 1);
    assert!(!world.disk_contains("hush-hush"));
}

#[test]
fn the_end_of_a_step_elsewhere_is_known_when_the_whole_ended_first() {
    let world = far_away(0, 100_000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(500).await;
        assert_eq!(of_step(&job(&engine, id).await, 0, "status").unwrap(), r#""STARTED""#);
        let tag = engine.cancel(&alice(), id, None).await.unwrap().etag();
        pass(10).await;
        let view = job(&engine, id).await;
        assert_eq!(of_steps(&view, "status"), ["CANCELLED", "SKIPPED"]);
        let head = world.guest().record(Status::Cancelled).to_string();
        assert_eq!(of_step(&view, 0, "head").unwrap(), format!("\"{head}\""));
        assert!(of_step(&view, 0, "asOf").is_some(), "the chain does not say so");
        assert_ne!(view.etag(), tag, "whoever knew the job asks again");
        tree_verified(&engine, id).await;
    });
    // One that cannot be reached any more is shown as it was last seen, and when.
    let world = far_away(0, 100_000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(500).await;
        world.remote.set_down(true);
        let ended = engine.cancel(&alice(), id, None).await.unwrap().job.updated();
        pass(600_000).await;
        let view = job(&engine, id).await;
        assert_eq!(of_steps(&view, "status"), ["STARTED", "SKIPPED"]);
        let seen: i64 = of_step(&view, 0, "asOf").unwrap().parse().unwrap();
        assert!(seen < ended, "{seen} {ended}");
    });
}

#[test]
fn a_step_that_was_given_up_while_it_was_begun_elsewhere_is_not_called_skipped() {
    let world = far_away(100, 1000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(50).await;
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["SKIPPED", "SKIPPED"], "nothing is known yet");
        pass(10_000).await;
        let view = job(&engine, id).await;
        assert_eq!(of_steps(&view, "status"), ["CANCELLED", "SKIPPED"]);
        assert_eq!(children(&view).len(), 1, "and its job is named");
    });
}

#[test]
fn a_job_that_paused_itself_elsewhere_is_not_resumed_with_the_whole() {
    let world = far_away(0, 100);
    let id = world.live(async |engine| {
        let steps = AWAY.replace("agent:request", "far:pause");
        let op = define(&engine, &steps, r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        assert_eq!(of_step(&job(&engine, id).await, 0, "status").unwrap(), r#""PAUSED""#);
        engine.pause(&alice(), id).await.unwrap();
        pass(100).await;
        engine.resume(&alice(), id).await.unwrap();
        pass(60_000).await;
        assert_eq!(world.guest().status(), Status::Paused);
        id
    });
    world.live(async |engine| {
        pass(60_000).await;
        assert_eq!(world.guest().status(), Status::Paused, "nor by the next life");
        assert_eq!(world.asked("resume"), 0);
        assert_eq!(job(&engine, id).await.status(), Status::Started);
    });
}

#[test]
fn what_was_paused_elsewhere_is_resumed_even_after_a_crash_or_by_a_venue_that_was_down() {
    let world = far_away(0, 1_000);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        engine.pause(&alice(), id).await.unwrap();
        pass(10).await;
        assert_eq!(world.guest().status(), Status::Paused);
        id
    });
    world.remote.set_down(true);
    world.live(async |engine| {
        engine.resume(&alice(), id).await.unwrap();
        pass(30_000).await;
        assert_eq!(world.guest().status(), Status::Paused);
        world.remote.set_down(false);
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        tree_verified(&engine, id).await;
    });
    // Somebody else's pause, after ours was lifted there, is not ours to lift.
    let world = far_away(0, 1_000);
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        engine.pause(&alice(), id).await.unwrap();
        pass(10).await;
        world.guest().status.send_replace(Status::Started);
        world.guest().rewrite("paused by somebody else");
        world.guest().status.send_replace(Status::Paused);
        engine.resume(&alice(), id).await.unwrap();
        pass(60_000).await;
        assert_eq!(world.guest().status(), Status::Paused);
    });
}

#[test]
fn a_rerun_takes_over_what_steps_elsewhere_gave() {
    let world = far_away(0, 10);
    let (first, again) = world.live(async |engine| {
        let op = define(&engine, AWAY_THEN_SLOW, "[2]", "").await;
        let first = invoke(&engine, &op, "{}").await.job.id();
        assert_eq!(ended(&engine, first).await.status(), Status::Complete);
        world.remote.set_down(true);
        let again = engine.rerun(&alice(), first, Some(1), None).await.unwrap().view;
        let (end, id) = (job(&engine, first).await.job.steps()[&0].end.clone(), again.job.id());
        let reused = member(&again, "reused");
        assert!(reused.contains(&end.unwrap().record.to_string()), "{reused}");
        assert!(reused.contains(r#""venue":"https://other.example""#), "{reused}");
        // What it relies on stays when the other run goes.
        engine.delete(&alice(), first).await.unwrap();
        pass(500).await;
        (first, id)
    });
    world.live(async |engine| {
        assert!(engine.job(&alice(), first).await.is_err());
        let view = ended(&engine, again).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"["from A",1000]"#.into())
        );
        assert_eq!(of_step(&view, 0, "output").unwrap(), r#"{"output":"from A"}"#);
        assert_eq!(of_step(&view, 0, "reused").unwrap(), "true");
        // And once more, from what was itself taken over.
        let third = engine.rerun(&alice(), again, Some(2), None).await.unwrap().view;
        assert_eq!(
            (third.status(), member(&third, "output")),
            (Status::Complete, r#"["from A",1000]"#.into())
        );
        tree_verified(&engine, again).await;
    });
    assert_eq!(world.remote.calls.lock().len(), 1, "it ran once");
}

#[test]
fn a_venue_that_never_comes_back_fails_the_step_in_the_end() {
    let world = far_away(0, 1_000_000);
    let mut asked = None;
    world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let mut request = request(&op, "{}");
        request.timeout = Some(limits::TIMEOUT_MAX);
        let id = engine.invoke(request).await.unwrap().view.job.id();
        pass(100).await;
        world.remote.set_down(true);
        // It looks again when there is reason to.
        engine.pause(&alice(), id).await.unwrap();
        engine.resume(&alice(), id).await.unwrap();
        asked = Some(id);
        world.guest().status.send_replace(Status::Started);
        pass(1_000_000).await;
        let view = job(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let error = member(&view, "error");
        assert!(error.contains("step 0 failed remote: it cannot be reached"), "{error}");
        assert_eq!(of_steps(&view, "status"), ["STARTED", "SKIPPED"]);
    });
}

#[test]
fn what_was_given_up_is_cancelled_elsewhere_even_after_a_crash() {
    let world = far_away(0, 1_000_000);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        world.remote.set_down(true);
        engine.cancel(&alice(), id, None).await.unwrap();
        id
    });
    assert_eq!(world.roots("unwanted").len(), 1);
    world.remote.set_down(false);
    world.live(async |engine| {
        pass(1_000).await;
        assert_eq!(world.guest().status(), Status::Cancelled);
        assert_eq!(of_steps(&job(&engine, id).await, "status"), ["CANCELLED", "SKIPPED"]);
    });
    assert!(world.roots("unwanted").is_empty());
}

#[test]
fn a_step_elsewhere_of_a_job_that_was_paused_when_the_venue_stopped_is_cancelled_with_it() {
    let world = far_away(0, 1_000_000);
    let id = world.live(async |engine| {
        let op = define(&engine, AWAY, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(100).await;
        engine.pause(&alice(), id).await.unwrap();
        pass(100).await;
        id
    });
    world.live(async |engine| {
        pass(100).await;
        engine.cancel(&alice(), id, None).await.unwrap();
        pass(1_000).await;
        assert_eq!(world.guest().status(), Status::Cancelled);
        assert_eq!(of_steps(&job(&engine, id).await, "status"), ["CANCELLED", "SKIPPED"]);
    });
    assert!(world.roots("unwanted").is_empty());
}

#[test]
fn a_job_elsewhere_that_never_stands_still_keeps_nobody_busy() {
    let world = far_away(0, 0);
    world.remote.is_restless.store(true, Ordering::SeqCst);
    world.live(async |engine| {
        let op = define(&engine, AWAY_CHAT, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        pass(30_000).await;
        let (looks, view) = (world.asked("look"), job(&engine, id).await);
        assert!((90..=110).contains(&looks), "{looks} looks in 30 s");
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(story(&engine, id).await.len(), 4, "and makes no records");
        // What it says at length is shown, and not recorded.
        let long = "x".repeat(100_000);
        world.remote.is_restless.store(false, Ordering::SeqCst);
        say(&engine, id, &format!(r#"{{"content":"{long}"}}"#)).await;
        pass(1_000).await;
        let view = job(&engine, id).await;
        assert!(of_step(&view, 0, "output").unwrap().contains(&long));
        assert!(view.job.field("output").is_none());
        tree_verified(&engine, id).await;
    });
}
