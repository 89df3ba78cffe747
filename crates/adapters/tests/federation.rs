//! Steps that run on another venue, between real venues.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_auth::KeyPair;
use catena_engine::requests::{Invoke, JobView};
use catena_engine::{Caller, Engine, Role};
use catena_job::{JobId, Status};
use catena_value::json;
use support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_runs_on_the_venue_it_names_and_is_committed_to() {
    let local_folder = tempfile::tempdir().unwrap();
    let remote_folder = tempfile::tempdir().unwrap();
    let remote = venue(&remote_folder, &[]).await;
    let url = format!("http://{}", remote.address());
    let local = venue(&local_folder, std::slice::from_ref(&url)).await;
    let steps = format!(
        r#"[
          {{"op":"test:echo","input":{{"v":["input","x"]}}}},
          {{"op":"test:delay","venue":"{url}","input":{{"delay":["const",50],"input":[0,"v"]}}}},
          {{"op":"test:echo","input":{{"back":[1]}}}}
        ]"#
    );
    let view = invoke(local.engine(), &steps, "[2]").await;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    assert_eq!(text(&view, "output"), r#"{"back":1}"#);
    let step = &view.job.steps()[&1];
    assert_eq!(step.start.venue.as_deref(), Some(remote.engine().did()));
    // The other venue holds the job, and its chain is the one that was committed to.
    let did = format!("{}:public", remote.engine().did());
    let public = Caller::new(did.into(), Role::Anonymous);
    let held = remote.engine().job(&public, step.start.job).await.unwrap();
    assert_eq!(held.job.first_record(), step.start.record);
    assert_eq!(held.job.head(), step.end.as_ref().unwrap().record);
    local.stop().await.unwrap();
    remote.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_failure_fails_the_local_job_with_its_reason() {
    let local_folder = tempfile::tempdir().unwrap();
    let remote_folder = tempfile::tempdir().unwrap();
    let remote = venue(&remote_folder, &[]).await;
    let url = format!("http://{}", remote.address());
    let local = venue(&local_folder, std::slice::from_ref(&url)).await;
    let step = |op: &str, venue: &str| {
        format!(r#"[{{"op":"{op}","venue":"{venue}","input":{{"message":["const","no"]}}}}]"#)
    };
    let view = invoke(local.engine(), &step("test:error", &url), "[0]").await;
    assert_eq!(view.status(), Status::Failed);
    assert_eq!(text(&view, "error"), r#""step 0 ended as FAILED: no""#);
    let view = invoke(local.engine(), &step("test:nothing", &url), "[0]").await;
    assert!(text(&view, "error").contains("no operation test:nothing"), "{}", text(&view, "error"));
    let view = invoke(local.engine(), &step("test:echo", "http://127.0.0.1:9"), "[0]").await;
    assert!(text(&view, "error").contains("allow-venue"), "{}", text(&view, "error"));
    local.stop().await.unwrap();
    remote.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_resume_and_cancel_reach_the_remote_job() {
    let pair = Pair::start().await;
    let mut bearer = caller();
    bearer.delegations = vec![delegation(pair.local.engine().did())];
    for caller in [caller(), bearer] {
        let (local, remote) = pair.start_endless(&caller).await;
        let engine = pair.local.engine();
        pair.wait_for_remote(remote, Status::Started).await;
        let view = engine.pause(&caller, local).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        pair.wait_for_remote(remote, Status::Paused).await;
        engine.resume(&caller, local).await.unwrap();
        pair.wait_for_remote(remote, Status::Started).await;
        engine.cancel(&caller, local, None).await.unwrap();
        pair.wait_for_remote(remote, Status::Cancelled).await;
    }
    pair.stop().await;
}

/// "authorised only by the UCANs the caller sent for it; without any it is sent anonymously".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_invoked_anonymously_without_delegations() {
    let pair = Pair::start().await;
    let steps = format!(
        r#"[{{"op":"test:delay","venue":"{}","input":{{"delay":["const",5],"input":["const",3]}}}}]"#,
        pair.url
    );
    let operation = define(pair.local.engine(), &steps, "[0]").await;
    for (delegations, requester) in [
        (vec![], format!("{}:public", pair.remote.engine().did())),
        (
            vec![delegation(pair.local.engine().did())],
            format!("{}:for:{}", pair.local.engine().did(), KeyPair::from_seed(&[77; 32]).did()),
        ),
    ] {
        let mut invocation = request(&operation, "{}");
        invocation.caller.delegations = delegations;
        let view = pair.local.engine().invoke(invocation).await.unwrap().view;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let step = &view.job.steps()[&0];
        let held = pair.remote_job(step.start.job).await;
        assert_eq!(text(&held, "caller"), format!("\"{requester}\""));
        assert_eq!(held.job.first_record(), step.start.record, "its true first record");
        assert_eq!(held.job.head(), step.end.as_ref().unwrap().record);
    }
    pair.stop().await;
}

/// The Federated Pipeline of COG-12, with the URL of the other venue in place of its DID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_federated_pipeline_of_the_specification_runs_on_two_venues() {
    let pair = Pair::start().await;
    let text_of_cog12 = include_str!("../../engine/tests/cog12/federated_pipeline.json");
    let definition = text_of_cog12.replace("did:web:compliance.example.com", &pair.url);
    let engine = pair.local.engine();
    let (operation, _) = engine.register(&caller(), &definition, None).await.unwrap();
    let invocation = request(&operation.to_string(), r#"{"page":1}"#);
    let view = engine.invoke(invocation).await.unwrap().view;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    let expected = r#"{"scanned":"Scanner saw {\"page\":1}","validated":"Validator saw \"Scanner saw {\\\"page\\\":1}\""}"#;
    let output = json::read(text(&view, "output").as_bytes()).unwrap();
    assert_eq!(output, json::read(expected.as_bytes()).unwrap());
    let venues: Vec<_> =
        view.job.steps().values().map(|step| step.start.venue.as_deref()).collect();
    assert_eq!(venues, [None, Some(pair.remote.engine().did())]);
    pair.stop().await;
}

/// The definition of one step that runs an operation on the venue with this URL.
fn remote_step(op: &str, url: &str) -> String {
    format!(r#"[{{"op":"{op}","name":"talk","venue":"{url}","input":["const",{{}}]}}]"#)
}

async fn start(engine: &Engine, steps: &str) -> JobId {
    let operation = define(engine, steps, "[0]").await;
    let invocation = Invoke { wait: None, ..request(&operation, "{}") };
    engine.invoke(invocation).await.unwrap().view.job.id()
}

async fn send(engine: &Engine, id: JobId, message: &str) {
    let message = json::read(message.as_bytes()).unwrap();
    engine.send(&caller(), id, message, None).await.unwrap();
}

/// COG-12, Step Status Tracking: "a vector of per-step job data", on whichever venue a step ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_show_the_results_of_remote_jobs() {
    let pair = Pair::start().await;
    let defined = format!(
        r#"[{{"op":"test:echo","venue":"{url}","input":["const",{{"n":1}}]}},
            {{"op":"test:error","venue":"{url}","input":{{"message":["concat",["const","no "],[0,"n"]]}}}}]"#,
        url = pair.url
    );
    let view = invoke(pair.local.engine(), &defined, "[1]").await;
    let shown = steps(&view);
    assert_eq!(shown[0]["status"], "COMPLETE", "{shown}");
    assert_eq!(shown[0]["output"], serde_json::json!({"n": 1}));
    assert_eq!((&shown[1]["status"], &shown[1]["error"]), (&"FAILED".into(), &"no 1".into()));
    for (step, shown) in shown.as_array().unwrap().iter().enumerate() {
        let state = &view.job.steps()[&u32::try_from(step).unwrap()];
        assert_eq!(shown["head"], state.end.as_ref().unwrap().record.to_string());
        assert_eq!(shown["venue"], *pair.url);
        assert!(shown["ended"].is_i64() && shown["asOf"].is_null(), "{shown}");
    }
    pair.stop().await;
}

/// An orchestration whose step is an orchestration on a second venue, whose step is a chat on a third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_goes_through_a_chain_of_venues() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let third = venue(&folders[2], &[]).await;
    let second = venue(&folders[1], &[format!("http://{}", third.address())]).await;
    let first = venue(&folders[0], &[format!("http://{}", second.address())]).await;
    let inner = remote_step("test:chat", &format!("http://{}", third.address()));
    let inner = define(second.engine(), &inner, "[0]").await;
    let id =
        start(first.engine(), &remote_step(&inner, &format!("http://{}", second.address()))).await;
    let asks = |view: &JobView| view.status() == Status::InputRequired;
    let view = until(first.engine(), id, asks).await;
    let message = text(&view, "message");
    assert!(message.starts_with(r#""step 0 (talk) waits: step 0 (talk) waits"#), "{message}");
    let shown = steps(&view);
    assert_eq!(shown[0]["status"], "INPUT_REQUIRED", "{shown}");
    send(first.engine(), id, r#"{"content":"hello","messageId":"m-1"}"#).await;
    let replied = |view: &JobView| asks(view) && steps(view)[0]["output"].is_object();
    let view = until(first.engine(), id, replied).await;
    assert!(text(&view, "output").contains("hello"), "{}", text(&view, "output"));
    // The message has the same ID on every venue.
    let remote = view.job.steps()[&0].start.job;
    let admin = operator();
    let middle = second.engine().job(&admin, remote).await.unwrap();
    let end = middle.job.steps()[&0].start.job;
    for (engine, job) in [(first.engine(), id), (second.engine(), remote), (third.engine(), end)] {
        let history = engine.history(&admin, job, 0, 100).await.unwrap();
        let took = |record: &&catena_job::Record| record.field("received").is_some();
        let taken: Vec<_> = history.records.iter().filter(took).collect();
        assert_eq!(taken.len(), 1);
        let trigger = json::to_string(taken[0].field("trigger").unwrap()).unwrap();
        assert!(trigger.contains(r#""messageId":"m-1""#), "{trigger}");
    }
    send(first.engine(), id, r#"{"content":"done"}"#).await;
    let view = until(first.engine(), id, |view| view.status().is_terminal()).await;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    for venue in [first, second, third] {
        venue.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_message_does_not_end_the_conversation() {
    let pair = Pair::with(&[("limits.message_bytes", "100")]).await;
    let engine = pair.local.engine();
    let id = start(engine, &remote_step("test:chat", &pair.url)).await;
    until(engine, id, |view| view.status() == Status::InputRequired).await;
    send(engine, id, &format!(r#"{{"content":"{}"}}"#, "x".repeat(200))).await;
    let view = until(engine, id, |view| text(view, "message").contains("was refused")).await;
    assert!(text(&view, "message").contains("answered 413"), "{}", text(&view, "message"));
    assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
    send(engine, id, r#"{"content":"done"}"#).await;
    let view = until(engine, id, |view| view.status().is_terminal()).await;
    assert_eq!(view.status(), Status::Complete);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_remote_step_is_shown_after_the_parent_was_cancelled() {
    let pair = Pair::start().await;
    let (local, remote) = pair.start_endless(&caller()).await;
    pair.local.engine().cancel(&caller(), local, None).await.unwrap();
    let ended = |view: &JobView| steps(view)[0]["status"] == "CANCELLED";
    let view = until(pair.local.engine(), local, ended).await;
    let shown = steps(&view);
    assert_eq!(shown[0]["head"], pair.remote_job(remote).await.job.head().to_string());
    assert!(shown[0]["asOf"].is_i64(), "{shown}");
    assert!(view.job.steps()[&0].end.is_none(), "the chain had ended before");
    pair.stop().await;
}

/// `test:pause` pauses itself. Pausing and resuming the parent job must not resume it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_job_that_paused_itself_stays_paused() {
    let pair = Pair::start().await;
    let engine = pair.local.engine();
    let id = start(engine, &remote_step("test:pause", &pair.url)).await;
    let view = until(engine, id, |view| steps(view)[0]["status"] == "PAUSED").await;
    let remote = view.job.steps()[&0].start.job;
    let head = pair.remote_job(remote).await.job.head();
    engine.pause(&caller(), id).await.unwrap();
    engine.resume(&caller(), id).await.unwrap();
    // The next pause is handled after that resume.
    engine.pause(&caller(), id).await.unwrap();
    engine.resume(&caller(), id).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(pair.remote_job(remote).await.job.head(), head, "it was not changed");
    pair.remote.engine().resume(&operator(), remote).await.unwrap();
    let view = until(engine, id, |view| view.status().is_terminal()).await;
    assert_eq!(view.status(), Status::Complete);
    pair.stop().await;
}

/// DESIGN, Orchestrations: "authorised only by the UCANs the caller sent for it; without any it is
/// sent anonymously. The venue's own rights are never used."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_without_anonymous_access_accepts_only_delegations() {
    let pair = Pair::with(&[("public_access", "off")]).await;
    let engine = pair.local.engine();
    let echo = remote_step("test:echo", &pair.url);
    let view = invoke(engine, &echo, "[0]").await;
    let error = text(&view, "error");
    assert_eq!(view.status(), Status::Failed);
    assert!(error.contains("answered 401") && error.contains("ucans"), "{error}");
    // A delegation to another DID does not authorise the request.
    let mut bearer = caller();
    let operation = define(engine, &echo, "[0]").await;
    for (audience, expected) in
        [("did:key:other", Status::Failed), (engine.did(), Status::Complete)]
    {
        bearer.delegations = vec![delegation(audience)];
        let invocation = Invoke { caller: bearer.clone(), ..request(&operation, "{}") };
        let view = engine.invoke(invocation).await.unwrap().view;
        assert_eq!(view.status(), expected, "{:?}", view.job.field("error"));
    }
    // Reads, pause, resume and cancel reach a job that was started with delegations.
    let (local, remote) = pair.start_endless(&bearer).await;
    pair.wait_for_remote(remote, Status::Started).await;
    engine.pause(&bearer, local).await.unwrap();
    pair.wait_for_remote(remote, Status::Paused).await;
    engine.resume(&bearer, local).await.unwrap();
    pair.wait_for_remote(remote, Status::Started).await;
    engine.cancel(&bearer, local, None).await.unwrap();
    pair.wait_for_remote(remote, Status::Cancelled).await;
    pair.stop().await;
}

/// Two users of one venue are two accounts at another, which need not know the venue but the users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_users_of_one_venue_are_two_accounts_at_the_next() {
    let alice = KeyPair::from_seed(&[77; 32]).did();
    let bob = KeyPair::from_seed(&[78; 32]).did();
    let members = format!("{alice},{bob}");
    let pair = Pair::with(&[("access", "listed"), ("members", &members)]).await;
    let engine = pair.local.engine();
    let operation = define(engine, &remote_step("test:echo", &pair.url), "[0]").await;
    let mut accounts = Vec::new();
    for (seed, status) in [(77, Status::Complete), (78, Status::Complete), (79, Status::Failed)] {
        let mut invocation = request(&operation, "{}");
        invocation.caller.delegations = vec![delegation_of(seed, engine.did())];
        let view = engine.invoke(invocation).await.unwrap().view;
        assert_eq!(view.status(), status, "{:?}", view.job.field("error"));
        if let Some(step) = view.job.steps().get(&0).filter(|_| status == Status::Complete) {
            accounts.push(text(&pair.remote_job(step.start.job).await, "caller"));
        } else {
            assert!(text(&view, "error").contains("not on this venue's access list"));
        }
    }
    assert_eq!(accounts[0], format!("\"{}:for:{alice}\"", engine.did()));
    assert_eq!(accounts[1], format!("\"{}:for:{bob}\"", engine.did()));
    pair.stop().await;
}
