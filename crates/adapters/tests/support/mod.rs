//! Real venues that run each other's steps.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test target uses a part of it"
)]

pub mod fake;

use std::time::Duration;

use catena_adapters::{Options, demo_assets};
use catena_auth::{KeyPair, Token};
use catena_engine::requests::{Invoke, JobView};
use catena_engine::views::Reader;
use catena_engine::{
    Adapter, Call, Caller, Engine, ExecutionMode, Failure, Registration, Role, TurnFuture,
};
use catena_job::{JobId, Status};
use catena_server::config::Flags;
use catena_server::{Config, Venue};
use catena_value::{Map, Value, Vector, json};
use tempfile::TempDir;

/// Longest time that a test waits for a condition that must become true.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A venue on this data folder that may run steps on these other venues.
pub async fn venue(folder: &TempDir, allowed: &[String]) -> Venue {
    venue_with(folder, allowed, &[]).await
}

/// The same with further settings.
pub async fn venue_with(folder: &TempDir, allowed: &[String], more: &[(&str, &str)]) -> Venue {
    let mut flags = Flags::default();
    for (name, value) in more {
        assert!(flags.set(name, (*value).to_owned()), "there is no setting {name}");
    }
    flags.set("listen", "127.0.0.1:0".to_owned());
    flags.set("data", folder.path().display().to_string());
    let config = Config::layered(&flags, &|_| None, None).unwrap();
    let allow_venues = allowed.iter().map(|venue| venue.parse().unwrap()).collect();
    let options = Options { allow_venues, ..Options::default() };
    let mut adapters = catena_adapters::all(options);
    adapters.push(std::sync::Arc::new(Agent));
    Venue::start(config, adapters, demo_assets()).await.unwrap()
}

/// An ordinary caller.
pub fn caller() -> Caller {
    Caller::known("did:key:alice")
}

/// A caller with admin rights.
pub fn operator() -> Caller {
    Caller::new("operator".into(), Role::Admin)
}

/// Two venues. The local one may run steps on the remote one.
pub struct Pair {
    pub local: Venue,
    pub remote: Venue,
    /// The URL of the remote venue.
    pub url: String,
    _folders: [TempDir; 2],
}

impl Pair {
    pub async fn start() -> Pair {
        Pair::with(&[]).await
    }

    /// The same with further settings of the remote venue.
    pub async fn with(more: &[(&str, &str)]) -> Pair {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let remote = venue_with(&folders[1], &[], more).await;
        let url = format!("http://{}", remote.address());
        let local = venue(&folders[0], std::slice::from_ref(&url)).await;
        Pair { local, remote, url, _folders: folders }
    }

    pub async fn stop(self) {
        self.local.stop().await.unwrap();
        self.remote.stop().await.unwrap();
    }

    /// Starts an orchestration whose only step runs on the remote venue and never ends. Returns the
    /// local and the remote job.
    pub async fn start_endless(&self, caller: &Caller) -> (JobId, JobId) {
        let engine = self.local.engine();
        let steps =
            format!(r#"[{{"op":"test:never","venue":"{}","input":["const",{{}}]}}]"#, self.url);
        let operation = define(engine, &steps, "[0]").await;
        let mut invocation = request(&operation, "null");
        invocation.caller = caller.clone();
        invocation.wait = None;
        let id = engine.invoke(invocation).await.unwrap().view.job.id();
        let mut follow = engine.follow(Reader::Bearer, id, None).await.unwrap();
        loop {
            follow.next().await.unwrap().expect("the step begins");
            let view = engine.job(caller, id).await.unwrap();
            if let Some(step) = view.job.steps().get(&0) {
                return (id, step.start.job);
            }
        }
    }

    /// Waits until a job of the remote venue has this status.
    pub async fn wait_for_remote(&self, job: JobId, status: Status) {
        let mut follow = self.remote.engine().follow(Reader::Bearer, job, None).await.unwrap();
        while self.remote_job(job).await.status() != status {
            follow.next().await.unwrap().unwrap_or_else(|| panic!("it never was {status}"));
        }
    }

    /// A job of the remote venue, as its operator sees it.
    pub async fn remote_job(&self, job: JobId) -> JobView {
        self.remote.engine().job(&operator(), job).await.unwrap()
    }
}

/// Registers an orchestration.
pub async fn define(engine: &Engine, steps: &str, result: &str) -> String {
    let text = format!(
        r#"{{"operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}}}}}"#
    );
    engine.register(&caller(), &text, None).await.unwrap().0.to_string()
}

/// An invocation that waits for the job's end.
pub fn request(operation: &str, input: &str) -> Invoke {
    let input = json::read(input.as_bytes()).unwrap();
    let wait = Some(Duration::from_secs(30));
    Invoke { wait, ..Invoke::new(caller(), operation, input) }
}

/// Invokes an orchestration and waits for its end.
pub async fn invoke(engine: &Engine, steps: &str, result: &str) -> JobView {
    let operation = define(engine, steps, result).await;
    engine.invoke(request(&operation, r#"{"x":1}"#)).await.unwrap().view
}

/// A member of a job, as JSON.
pub fn text(view: &JobView, name: &str) -> String {
    let value = view.job.field(name).unwrap_or_else(|| panic!("no `{name}` in {:?}", view.job));
    json::to_string(&value.fully_loaded(view.cells()).unwrap()).unwrap()
}

/// The entries of a job's steps, as JSON.
pub fn steps(view: &JobView) -> serde_json::Value {
    serde_json::from_str(&json::to_string(view.steps.as_ref().unwrap()).unwrap()).unwrap()
}

/// The job as soon as a condition holds.
pub async fn until(engine: &Engine, id: JobId, holds: impl Fn(&JobView) -> bool) -> JobView {
    let waiting = async {
        loop {
            let view = engine.job(&caller(), id).await.unwrap();
            if holds(&view) {
                return view;
            }
            let known = view.etag();
            let is_known = |view: &JobView| view.etag() == known;
            let time = Duration::from_secs(1);
            engine.wait_for_change(&caller(), id, time, is_known).await.unwrap();
        }
    };
    match tokio::time::timeout(TEST_TIMEOUT, waiting).await {
        Ok(view) => view,
        Err(_) => panic!("waited too long for {:?}", engine.job(&caller(), id).await.unwrap()),
    }
}

/// A delegation to this DID, as the SDKs issue it.
pub fn delegation(audience: &str) -> String {
    delegation_of(77, audience)
}

/// A delegation of the user with this key.
pub fn delegation_of(seed: u8, audience: &str) -> String {
    let key = KeyPair::from_seed(&[seed; 32]);
    let capability: Map = [("with", key.did()), ("can", "invoke".to_owned())].into_iter().collect();
    let claims = [
        ("iss", Value::from(key.did())),
        ("aud", audience.into()),
        ("ucv", "0.10.0".into()),
        ("att", Vector::from_items(vec![capability.into()]).into()),
        ("prf", Vector::from_items(Vec::new()).into()),
        ("exp", Value::Nil),
    ];
    Token::mint(&claims.into_iter().collect::<Map>(), &key)
}

/// A stand-in for agents that returns which agent was called with which input.
struct Agent;

impl Adapter for Agent {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn description(&self) -> &'static str {
        "A stand-in for agents."
    }

    fn operations(&self) -> Vec<Registration> {
        let metadata = r#"{"name":"Request","operation":{"adapter":"agent:request","pure":true}}"#;
        let metadata = json::read(metadata.as_bytes()).unwrap();
        vec![Registration { name: "request", mode: ExecutionMode::Inline, metadata }]
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        let member = |name: &str| call.input.as_map().unwrap().field(name).cloned().unwrap();
        let saw = json::to_string(&member("input")).unwrap();
        let said = format!("{} saw {saw}", member("agentId").as_str().unwrap());
        Ok([("output", Value::from(said))].into_iter().collect::<Map>().into())
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move { Agent.run_inline(&call).into() })
    }
}
