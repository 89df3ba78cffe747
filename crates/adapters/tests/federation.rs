//! Steps that run on another venue, between two real ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::time::Duration;

use catena_adapters::{Options, demo_assets};
use catena_engine::follow::Reader;
use catena_engine::request::{Invoke, JobView};
use catena_engine::{
    Adapter, Call, Caller, Engine, Failure, Pace, Registration, Standing, Turning,
};
use catena_job::{JobId, Status};
use catena_server::config::Flags;
use catena_server::{Config, Venue};
use catena_value::{Map, Value, json};

async fn venue(folder: &tempfile::TempDir, allowed: &[String]) -> Venue {
    let mut flags = Flags::default();
    flags.set("listen", "127.0.0.1:0".to_owned());
    flags.set("data", folder.path().display().to_string());
    let config = Config::layered(&flags, &|_| None, None).unwrap();
    let allow_venues = allowed.iter().map(|venue| venue.parse().unwrap()).collect();
    let options = Options { allow_venues, ..Options::default() };
    let mut adapters = catena_adapters::all(options);
    adapters.push(std::sync::Arc::new(Agent));
    Venue::start(config, adapters, demo_assets()).await.unwrap()
}

fn caller() -> Caller {
    Caller::known("did:key:alice")
}

/// Two venues, of which the first may send steps to the second.
struct Pair {
    here: Venue,
    there: Venue,
    url: String,
    _folders: [tempfile::TempDir; 2],
}

impl Pair {
    async fn start() -> Pair {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let there = venue(&folders[1], &[]).await;
        let url = format!("http://{}", there.address());
        let here = venue(&folders[0], std::slice::from_ref(&url)).await;
        Pair { here, there, url, _folders: folders }
    }

    async fn stop(self) {
        self.here.stop().await.unwrap();
        self.there.stop().await.unwrap();
    }

    /// Invokes an orchestration of one step over there that never ends; the job here, and there.
    async fn begun(&self, caller: &Caller) -> (JobId, JobId) {
        let engine = self.here.engine();
        let steps =
            format!(r#"[{{"op":"test:never","venue":"{}","input":["const",{{}}]}}]"#, self.url);
        let operation = define(engine, &steps, "[0]").await;
        let mut asked = request(&operation, "null");
        asked.caller = caller.clone();
        asked.wait = None;
        let id = engine.invoke(asked).await.unwrap().view.job.id();
        let mut follow = engine.follow(Reader::Bearer, id, None).await.unwrap();
        loop {
            follow.next().await.unwrap().expect("the step begins");
            let view = engine.job(caller, id).await.unwrap();
            if let Some(step) = view.job.steps().get(&0) {
                return (id, step.start.job);
            }
        }
    }

    /// Waits until a job over there stands like this.
    async fn there_is(&self, job: JobId, status: Status) {
        let mut follow = self.there.engine().follow(Reader::Bearer, job, None).await.unwrap();
        while self.there(job).await.status() != status {
            follow.next().await.unwrap().unwrap_or_else(|| panic!("it never was {status}"));
        }
    }

    /// A job over there, as its operator sees it.
    async fn there(&self, job: JobId) -> JobView {
        let standing = Standing::Admin;
        let operator = Caller { did: "operator".into(), standing, delegations: Vec::new() };
        self.there.engine().job(&operator, job).await.unwrap()
    }
}

async fn define(engine: &Engine, steps: &str, result: &str) -> String {
    let text = format!(
        r#"{{"operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}}}}}"#
    );
    engine.register(&caller(), &text, None).await.unwrap().0.to_string()
}

fn request(operation: &str, input: &str) -> Invoke {
    let input = json::read(input.as_bytes()).unwrap();
    let wait = Some(Duration::from_secs(30));
    Invoke { wait, ..Invoke::new(caller(), operation, input) }
}

async fn invoke(engine: &Engine, steps: &str, result: &str) -> JobView {
    let operation = define(engine, steps, result).await;
    engine.invoke(request(&operation, r#"{"x":1}"#)).await.unwrap().view
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
async fn pause_resume_and_cancel_here_reach_the_job_there() {
    let pair = Pair::start().await;
    let mut bearer = caller();
    bearer.delegations = vec!["a-delegation".to_owned()];
    for caller in [caller(), bearer] {
        let (here, there) = pair.begun(&caller).await;
        let engine = pair.here.engine();
        pair.there_is(there, Status::Started).await;
        let view = engine.pause(&caller, here).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        pair.there_is(there, Status::Paused).await;
        engine.resume(&caller, here).await.unwrap();
        pair.there_is(there, Status::Started).await;
        engine.cancel(&caller, here, None).await.unwrap();
        pair.there_is(there, Status::Cancelled).await;
    }
    pair.stop().await;
}

/// "authorised only by the UCANs the caller sent for it; without any it is sent anonymously".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_asked_for_anonymously_unless_delegations_came_along() {
    let pair = Pair::start().await;
    let steps = format!(
        r#"[{{"op":"test:delay","venue":"{}","input":{{"delay":["const",5],"input":["const",3]}}}}]"#,
        pair.url
    );
    let operation = define(pair.here.engine(), &steps, "[0]").await;
    for (delegations, asker) in [
        (vec![], format!("{}:public", pair.there.engine().did())),
        (vec!["a-delegation".to_owned()], pair.here.engine().did().to_owned()),
    ] {
        let mut asked = request(&operation, "{}");
        asked.caller.delegations = delegations;
        let view = pair.here.engine().invoke(asked).await.unwrap().view;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let step = &view.job.steps()[&0];
        let held = pair.there(step.start.job).await;
        assert_eq!(text(&held, "caller"), format!("\"{asker}\""));
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
    let engine = pair.here.engine();
    let (operation, _) = engine.register(&caller(), &definition, None).await.unwrap();
    let asked = request(&operation.to_string(), r#"{"page":1}"#);
    let view = engine.invoke(asked).await.unwrap().view;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    let expected = r#"{"scanned":"Scanner saw {\"page\":1}","validated":"Validator saw \"Scanner saw {\\\"page\\\":1}\""}"#;
    let output = json::read(text(&view, "output").as_bytes()).unwrap();
    assert_eq!(output, json::read(expected.as_bytes()).unwrap());
    let venues: Vec<_> =
        view.job.steps().values().map(|step| step.start.venue.as_deref()).collect();
    assert_eq!(venues, [None, Some(pair.there.engine().did())]);
    pair.stop().await;
}

/// Stands in for agents: says who was asked, and what.
struct Agent;

impl Adapter for Agent {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn description(&self) -> &'static str {
        "Stands in for agents."
    }

    fn operations(&self) -> Vec<Registration> {
        let metadata = r#"{"name":"Request","operation":{"adapter":"agent:request","pure":true}}"#;
        let metadata = json::read(metadata.as_bytes()).unwrap();
        vec![Registration { name: "request", pace: Pace::Instant, metadata }]
    }

    fn compute(&self, call: &Call) -> Result<Value, Failure> {
        let member = |name: &str| call.input.as_map().unwrap().field(name).cloned().unwrap();
        let saw = json::to_string(&member("input")).unwrap();
        let said = format!("{} saw {saw}", member("agentId").as_str().unwrap());
        Ok([("output", Value::from(said))].into_iter().collect::<Map>().into())
    }

    fn run(&self, call: Call) -> Turning {
        Box::pin(async move { Agent.compute(&call).into() })
    }
}
