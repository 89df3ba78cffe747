//! Steps that run on another venue, between two real ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::time::Duration;

use catena_adapters::{Options, demo_assets};
use catena_engine::request::{Invoke, JobView, Recording};
use catena_engine::{Caller, Engine, Standing};
use catena_job::{JobId, Status};
use catena_server::config::Flags;
use catena_server::{Config, Venue};
use catena_value::{NoCells, Value, json};

async fn venue(folder: &tempfile::TempDir, allowed: &[String]) -> Venue {
    let mut flags = Flags::default();
    flags.set("listen", "127.0.0.1:0".to_owned());
    flags.set("data", folder.path().display().to_string());
    let config = Config::layered(&flags, &|_| None, None).unwrap();
    let allow_venues = allowed.iter().map(|venue| venue.parse().unwrap()).collect();
    let options = Options { allow_venues, ..Options::default() };
    Venue::start(config, catena_adapters::all(options), demo_assets()).await.unwrap()
}

fn caller() -> Caller {
    Caller::known("did:key:alice")
}

async fn invoke(engine: &Engine, steps: &str, result: &str) -> JobView {
    let text = format!(
        r#"{{"operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}}}}}"#
    );
    let (id, _) = engine.register(&caller(), &text, None).await.unwrap();
    let request = Invoke {
        caller: caller(),
        operation: id.to_string(),
        input: json::read(br#"{"x":1}"#).unwrap(),
        wait: Some(Duration::from_secs(30)),
        timeout: None,
        tags: Vec::new(),
        recording: Recording::Durable,
        idempotency: None,
    };
    engine.invoke(request).await.unwrap().view
}

fn text(view: &JobView, name: &str) -> String {
    let value = view.job.field(name).unwrap_or_else(|| panic!("no `{name}` in {:?}", view.job));
    json::to_string(&value.fully_loaded(view.cells()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_runs_on_the_venue_it_names_and_is_committed_to() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remote = venue(&there, &[]).await;
    let url = format!("http://{}", remote.address());
    let local = venue(&here, std::slice::from_ref(&url)).await;
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
    let public = Caller {
        did: format!("{}:public", remote.engine().did()).as_str().into(),
        standing: Standing::Anonymous,
        delegations: Vec::new(),
    };
    let held = remote.engine().job(&public, step.start.job).await.unwrap();
    assert_eq!(held.job.first_record(), step.start.record);
    assert_eq!(held.job.head(), step.end.as_ref().unwrap().record);
    local.stop().await.unwrap();
    remote.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_elsewhere_fails_here_and_says_where() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remote = venue(&there, &[]).await;
    let url = format!("http://{}", remote.address());
    let local = venue(&here, std::slice::from_ref(&url)).await;
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
async fn a_cancel_here_reaches_the_job_there() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remote = venue(&there, &[]).await;
    let url = format!("http://{}", remote.address());
    let local = venue(&here, std::slice::from_ref(&url)).await;
    let steps = format!(r#"[{{"op":"test:never","venue":"{url}","input":["const",{{}}]}}]"#);
    let text =
        format!(r#"{{"operation":{{"adapter":"orchestrator","steps":{steps},"result":[0]}}}}"#);
    let (operation, _) = local.engine().register(&caller(), &text, None).await.unwrap();
    let request = Invoke {
        caller: caller(),
        operation: operation.to_string(),
        input: Value::Nil,
        wait: None,
        timeout: None,
        tags: Vec::new(),
        recording: Recording::Durable,
        idempotency: None,
    };
    let id = local.engine().invoke(request).await.unwrap().view.job.id();
    let reader = catena_engine::follow::Reader::Bearer;
    let mut follow = local.engine().follow(reader, id, None).await.unwrap();
    let child: JobId = loop {
        follow.next().await.unwrap().expect("the step begins");
        let view = local.engine().job(&caller(), id).await.unwrap();
        let steps = view.steps.unwrap();
        let step = steps.as_vector().unwrap().get(0, &NoCells).unwrap().unwrap();
        if let Some(id) = step.as_map().unwrap().get(&"id".into(), &NoCells).unwrap() {
            break id.as_str().unwrap().parse().unwrap();
        }
    };
    let mut there = remote.engine().follow(reader, child, None).await.unwrap();
    local.engine().cancel(&caller(), id, None).await.unwrap();
    let mut last = None;
    while let Some(happening) = there.next().await.unwrap() {
        if let catena_engine::follow::Happening::Record { job, .. } = happening {
            last = Some(job.status());
        }
    }
    assert_eq!(last, Some(Status::Cancelled));
    local.stop().await.unwrap();
    remote.stop().await.unwrap();
}
