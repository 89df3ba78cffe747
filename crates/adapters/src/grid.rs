//! `grid`: operations and jobs of this venue and of others.
//!
//! **What it does:** runs or invokes an operation, reads a job, waits for its result; on this venue,
//! or on the one that `venue` names. The operator decides which venues can be input.
//!
//! **Cost:** a job on the other venue, which is read every 0.3 to 10 seconds.
//!
//! **Cancellation:** its future is dropped. The job that `run` waits for is then cancelled; on another
//! venue this is best effort. A request that was in flight may have created a job that stays unknown.
//!
//! **Repetition:** safe for `job-status` and `job-result`. `run` and `invoke` create a job each time,
//! so recovery does not repeat them.

use std::sync::Arc;
use std::time::Duration;

use catena_api::client::jobs::Invocation;
use catena_engine::limits::WAIT_MAX;
use catena_engine::operations::federation::Federation;
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_job::JobId;
use catena_value::Value;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::failures::job_failure;
use crate::federation::HttpFederation;
use crate::fields::{Fields, invalid_input};
use crate::nested;
use crate::outbound::Outbound;
use crate::venue_client::{RemoteGuard, VenueClient};

/// The adapter.
#[derive(Debug)]
pub(crate) struct Grid {
    outbound: Arc<Outbound>,
}

impl Grid {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        Grid { outbound }
    }
}

// Operations.

const READ_ONLY: &[Mark] = &[Mark::Idempotent, Mark::ReadOnly];

const OPERATION_INPUT: Option<&str> = Some(
    r#"{"type":"object","required":["operation"],"properties":{
        "operation":{"type":"string","minLength":1,"description":"The operation, in any form of reference"},
        "input":{"description":"Its input"},
        "venue":{"type":["string","null"],"description":"URL or did:web of another venue; this one when missing"}}}"#,
);

const JOB_INPUT: &str = r#"{"type":"object","required":["id"],"properties":{
    "id":{"type":"string","description":"The job"},
    "timeout":{"type":["integer","null"],"minimum":0,"maximum":120000,
               "description":"For job-result: how long to wait for the end, in milliseconds"},
    "venue":{"type":["string","null"],"description":"URL or did:web of another venue; this one when missing"}}}"#;

const JOB_OUTPUT: Option<&str> = Some(
    r#"{"type":"object","required":["id","status"],"properties":{
        "id":{"type":"string"},"status":{"type":"string"},"output":{},"error":{"type":"string"}}}"#,
);

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "run",
        title: "Run an operation",
        description: "Runs an operation, waits for its end and returns its output.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: OPERATION_INPUT,
        output: Some("{}"),
    },
    Definition {
        name: "invoke",
        title: "Invoke an operation",
        description: "Makes a job of an operation and returns the job without waiting for its end.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: OPERATION_INPUT,
        output: JOB_OUTPUT,
    },
    Definition {
        name: "job-status",
        title: "Look at a job",
        description: "Returns a job as it stands.",
        mode: ExecutionMode::Task,
        marks: READ_ONLY,
        input: Some(JOB_INPUT),
        output: JOB_OUTPUT,
    },
    Definition {
        name: "job-result",
        title: "Result of a job",
        description: "Waits for the end of a job and returns its output.",
        mode: ExecutionMode::Task,
        marks: READ_ONLY,
        input: Some(JOB_INPUT),
        output: Some("{}"),
    },
];

// Input.

#[derive(Debug, PartialEq)]
struct OperationInput {
    operation: String,
    input: Value,
    venue: Option<String>,
}

impl OperationInput {
    fn parse(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::from_value(input)?;
        Ok(OperationInput {
            operation: fields.text("operation")?,
            input: fields.get_or_nil("input"),
            venue: fields.optional_text("venue")?,
        })
    }

    /// The invocation of the operation on another venue.
    fn into_invocation(self, call: &Call) -> Invocation {
        Invocation {
            operation: self.operation,
            input: Some(self.input),
            depth: call.depth.saturating_add(1),
            ..Invocation::default()
        }
    }
}

#[derive(Debug, PartialEq)]
struct JobInput {
    id: String,
    time: Duration,
    venue: Option<String>,
}

impl JobInput {
    fn parse(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::from_value(input)?;
        let max = i64::try_from(WAIT_MAX.as_millis()).unwrap_or(i64::MAX);
        let time = fields.integer("timeout", 0, max)?;
        Ok(JobInput {
            id: fields.text("id")?,
            time: time.map_or(WAIT_MAX, |ms| Duration::from_millis(ms.unsigned_abs())),
            venue: fields.optional_text("venue")?,
        })
    }

    fn local_id(&self) -> Result<JobId, Failure> {
        self.id.parse().map_err(|_| invalid_input(format!("{:?} is not a job ID", self.id)))
    }
}

// Output.

fn wait_timeout(job: &JobInput) -> Failure {
    let ms = job.time.as_millis();
    Failure::transient("timeout", format!("job {} has not ended within {ms} ms", job.id))
}

// Execution.

impl Adapter for Grid {
    fn name(&self) -> &'static str {
        "grid"
    }

    fn description(&self) -> &'static str {
        "Runs operations and reads jobs, on this venue and on others."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn federation(&self) -> Option<Arc<dyn Federation>> {
        Some(Arc::new(HttpFederation::new(self.outbound.clone())))
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let outbound = self.outbound.clone();
        Box::pin(async move {
            let outcome = match call.operation.name() {
                "run" => run(outbound, &call).await,
                "invoke" => invoke(outbound, &call).await,
                "job-status" => job_status(outbound, &call).await,
                "job-result" => job_result(outbound, &call).await,
                _ => Err(nested::unsupported_operation(&call)),
            };
            outcome.into()
        })
    }
}

async fn run(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let input = OperationInput::parse(&call.input)?;
    let Some(venue) = &input.venue else {
        return nested::run(call, input.operation, input.input).await;
    };
    let client = VenueClient::new(outbound, venue)?;
    let job = client.invoke(&input.into_invocation(call), &call.control).await?;
    let host = Arc::clone(&call.host);
    let env = call.host.env().clone();
    let guard = RemoteGuard::new(client.clone(), job.id.clone(), env, move || host.is_ready());
    let job = client.wait(job, &call.control).await?;
    guard.disarm();
    job.outcome()
}

async fn invoke(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let input = OperationInput::parse(&call.input)?;
    let Some(venue) = &input.venue else {
        let view = nested::invoke(call, input.operation, input.input).await?;
        return nested::job_document(&view);
    };
    let client = VenueClient::new(outbound, venue)?;
    let job = client.invoke(&input.into_invocation(call), &call.control).await?;
    Ok(job.document)
}

async fn job_status(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let input = JobInput::parse(&call.input)?;
    let Some(venue) = &input.venue else {
        let view = call.host.job(&call.caller, input.local_id()?).await.map_err(job_failure)?;
        return nested::job_document(&view);
    };
    let client = VenueClient::new(outbound, venue)?;
    Ok(client.job(&input.id, &call.control).await?.document)
}

async fn job_result(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let input = JobInput::parse(&call.input)?;
    let Some(venue) = &input.venue else { return local_result(call, &input).await };
    let client = VenueClient::new(outbound, venue)?;
    let job = client.job(&input.id, &call.control).await?;
    tokio::select! {
        biased;
        ended = client.wait(job, &call.control) => ended?.outcome(),
        () = call.control.sleep(input.time) => Err(wait_timeout(&input)),
    }
}

async fn local_result(call: &Call, input: &JobInput) -> Result<Value, Failure> {
    let id = input.local_id()?;
    let view = call.host.job(&call.caller, id).await.map_err(job_failure)?;
    let ended = async {
        let mut view = view;
        while !view.status().is_terminal() {
            view = call.host.wait(&call.caller, id, WAIT_MAX).await.map_err(job_failure)?;
        }
        nested::outcome(&view.job, view.cells())
    };
    tokio::select! {
        biased;
        ended = ended => ended,
        () = call.control.sleep(input.time) => Err(wait_timeout(input)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_operation_runs_on_this_venue_unless_another_is_named() {
        let local =
            OperationInput::parse(&value(r#"{"operation":"test:echo","input":[1],"venue":null}"#));
        let operation = "test:echo".to_owned();
        let input = value("[1]");
        assert_eq!(local.unwrap(), OperationInput { operation, input, venue: None });
        assert_eq!(
            OperationInput::parse(&value("{}")).unwrap_err().error,
            "`operation` is missing"
        );
        assert!(OperationInput::parse(&value(r#"{"operation":"x","venue":1}"#)).is_err());
    }

    #[test]
    fn a_wait_for_a_result_is_bounded() {
        let read = |text: &str| JobInput::parse(&value(text));
        assert_eq!(read(r#"{"id":"0x01"}"#).unwrap().time, WAIT_MAX);
        assert_eq!(read(r#"{"id":"0x01","timeout":0}"#).unwrap().time, Duration::ZERO);
        assert!(read(r#"{"id":"0x01","timeout":120001}"#).is_err());
        assert!(read(r#"{"id":"nonsense"}"#).unwrap().local_id().is_err());
        let failure = wait_timeout(&read(r#"{"id":"0x01","timeout":5}"#).unwrap());
        assert_eq!(failure.error, "job 0x01 has not ended within 5 ms");
    }
}
