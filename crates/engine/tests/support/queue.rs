//! An adapter whose operations workers run, and a worker for tests.

use std::time::Duration;

use catena_engine::error::WorkerError;
use catena_engine::operations::{Problem, QueueOwner, QueueSpec, Recovery, RunningLimit};
use catena_engine::requests::{
    Beat, BeatJob, BeatReply, CallIdentity, Claim, Claimed, ClaimedJob, EndTurn, Ended, JobView,
    RetryRequest, WorkerCall, WorkerEnd,
};
use catena_engine::{
    Adapter, Call, Caller, Engine, ExecutionMode, Failure, Operation, Registration, TurnFuture,
};
use catena_value::{NoCells, Value};

use super::{alice, value};

/// The adapter `q`: `queue` names the queue, `running` and `by` its limit.
pub struct QueueAdapter;

impl Adapter for QueueAdapter {
    fn name(&self) -> &'static str {
        "q"
    }

    fn description(&self) -> &'static str {
        "Operations that workers run."
    }

    fn operations(&self) -> Vec<Registration> {
        let metadata =
            value(r#"{"name":"step","operation":{"adapter":"q:step","pure":true,"input":{}}}"#);
        vec![Registration { name: "step", mode: ExecutionMode::Inline, metadata }]
    }

    fn default_recovery(&self) -> Option<Recovery> {
        Some(Recovery::Rerun)
    }

    fn queue(&self, operation: &Operation) -> Option<Result<QueueSpec, Vec<Problem>>> {
        let queue = operation.member("queue")?.as_str()?.to_owned();
        let number = |name: &str| operation.member(name).and_then(|value| value.as_i64());
        let by = operation
            .member("by")
            .map_or_else(Vec::new, |by| by.as_vector().unwrap().iter(&NoCells).flatten().collect());
        let limit = number("running").map(|running| RunningLimit { running: running as u32, by });
        Some(Ok(QueueSpec {
            owner: match operation.member("executed") {
                Some(_) => QueueOwner::Venue,
                None => QueueOwner::Reference,
            },
            queue,
            url: None,
            priority: number("priority").unwrap_or(0),
            limit,
            rate: None,
            secrets: Vec::new(),
        }))
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        Ok(call.input.as_map().unwrap().field("output").cloned().unwrap_or_default())
    }

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async { Err(Failure::new("needs_a_job", "workers run recorded jobs")).into() })
    }
}

/// Registers an operation of the queue `mail`. `more` is appended to its members.
pub async fn register_queue(engine: &Engine, more: &str) -> String {
    let text = format!(r#"{{"name":"mail","operation":{{"adapter":"q","queue":"mail"{more}}}}}"#);
    let (id, _) = engine.register(&alice(), &text, None).await.unwrap();
    id.to_string()
}

/// A worker.
pub struct Worker {
    pub caller: Caller,
    pub name: &'static str,
}

impl Worker {
    pub fn new(name: &'static str) -> Worker {
        Worker { caller: alice(), name }
    }

    /// Claims up to `max` jobs, and waits for the first.
    pub async fn claim_up_to(&self, engine: &Engine, max: usize, wait_ms: u64) -> Claimed {
        let claim = Claim {
            caller: self.caller.clone(),
            worker: self.name.to_owned(),
            queues: vec!["mail".to_owned()],
            max,
            wait: Duration::from_millis(wait_ms),
            done: Vec::new(),
            about: None,
        };
        engine.claim(claim).await.unwrap()
    }

    /// Claims one job.
    pub async fn claim(&self, engine: &Engine) -> ClaimedJob {
        let mut claimed = self.claim_up_to(engine, 1, 20_000).await;
        assert_eq!(claimed.jobs.len(), 1, "no job was offered");
        claimed.jobs.remove(0)
    }

    /// Expects that there is nothing to claim now.
    pub async fn expect_nothing(&self, engine: &Engine) {
        let claimed = self.claim_up_to(engine, 1, 0).await;
        assert!(claimed.jobs.is_empty(), "{:?}", claimed.jobs);
    }

    pub async fn end(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        end: WorkerEnd,
    ) -> Result<Ended, WorkerError> {
        let (signature, execution) = (None, None);
        let turn = EndTurn { job: job.id, fence: job.fence, end, signature, execution };
        engine.end_turn(&self.caller, turn).await
    }

    pub async fn complete(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        output: &str,
    ) -> Result<Ended, WorkerError> {
        self.end(engine, job, WorkerEnd::Output(value(output))).await
    }

    pub async fn fail(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        error: &str,
    ) -> Result<Ended, WorkerError> {
        let (error, code) = (error.to_owned(), None);
        self.end(engine, job, WorkerEnd::Error { error, code, retry: RetryRequest::May }).await
    }

    pub async fn beat(&self, engine: &Engine, jobs: &[&ClaimedJob], wait_ms: u64) -> BeatReply {
        let mention = |job: &&ClaimedJob| BeatJob {
            job: job.id,
            fence: job.fence,
            progress: None,
            log: None,
        };
        let beat = Beat {
            caller: self.caller.clone(),
            worker: self.name.to_owned(),
            wait: Duration::from_millis(wait_ms),
            jobs: jobs.iter().map(mention).collect(),
        };
        engine.beat(beat).await.unwrap()
    }

    pub async fn call(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        key: &str,
        operation: &str,
        input: &str,
    ) -> Result<JobView, WorkerError> {
        self.make_call(engine, job, key, (operation, input), CallIdentity::KeyAndInput).await
    }

    pub async fn step(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        key: &str,
        output: &str,
    ) -> Result<JobView, WorkerError> {
        let input = format!(r#"{{"output":{output}}}"#);
        self.make_call(engine, job, key, ("q:step", &input), CallIdentity::Key).await
    }

    async fn make_call(
        &self,
        engine: &Engine,
        job: &ClaimedJob,
        key: &str,
        (operation, input): (&str, &str),
        identity: CallIdentity,
    ) -> Result<JobView, WorkerError> {
        let call = WorkerCall {
            caller: self.caller.clone(),
            job: job.id,
            fence: job.fence,
            key: key.to_owned(),
            operation: operation.to_owned(),
            input: value(input),
            wait: Duration::ZERO,
            identity,
        };
        engine.worker_call(call).await
    }
}
