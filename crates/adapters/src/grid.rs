//! `grid`: operations and jobs of this venue and of others.
//!
//! What it does: runs or invokes an operation, looks at a job, waits for its result; here, or at
//! the venue that `venue` names. What it costs: a job over there, and a look at it every 0.3 to
//! 10 seconds. Which venues can be named is the operator's decision.
//! How it is cancelled: its future is dropped; the job that `run` waits for is then cancelled, over
//! there as well as it can be. A request that was on its way may have made a job that nobody knows.
//! Whether a repeat is safe: of `job-status` and `job-result` yes; `run` and `invoke` make a job
//! each time, so recovery does not repeat them.

use std::sync::Arc;
use std::time::Duration;

use catena_engine::federation::Federation;
use catena_engine::limits::WAIT_MAX;
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_job::JobId;
use catena_value::Value;

use crate::definition::{Definition, Mark, check, registrations};
use crate::failures::of_job;
use crate::federation::OverHttp;
use crate::fields::{Fields, invalid};
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

const READS: &[Mark] = &[Mark::Idempotent, Mark::ReadOnly];

const OF_AN_OPERATION: Option<&str> = Some(
    r#"{"type":"object","required":["operation"],"properties":{
        "operation":{"type":"string","minLength":1,"description":"The operation, in any form of reference"},
        "input":{"description":"Its input"},
        "venue":{"type":["string","null"],"description":"URL or did:web of another venue; this one when missing"}}}"#,
);

const OF_A_JOB: &str = r#"{"type":"object","required":["id"],"properties":{
    "id":{"type":"string","description":"The job"},
    "timeout":{"type":["integer","null"],"minimum":0,"maximum":120000,
               "description":"For job-result: how long to wait for the end, in milliseconds"},
    "venue":{"type":["string","null"],"description":"URL or did:web of another venue; this one when missing"}}}"#;

const A_JOB: Option<&str> = Some(
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
        input: OF_AN_OPERATION,
        output: Some("{}"),
    },
    Definition {
        name: "invoke",
        title: "Invoke an operation",
        description: "Makes a job of an operation and returns the job without waiting for its end.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: OF_AN_OPERATION,
        output: A_JOB,
    },
    Definition {
        name: "job-status",
        title: "Look at a job",
        description: "Returns a job as it stands.",
        mode: ExecutionMode::Task,
        marks: READS,
        input: Some(OF_A_JOB),
        output: A_JOB,
    },
    Definition {
        name: "job-result",
        title: "Result of a job",
        description: "Waits for the end of a job and returns its output.",
        mode: ExecutionMode::Task,
        marks: READS,
        input: Some(OF_A_JOB),
        output: Some("{}"),
    },
];

// Input.

#[derive(Debug, PartialEq)]
struct Asked {
    operation: String,
    input: Value,
    venue: Option<String>,
}

impl Asked {
    fn read(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::of(input)?;
        Ok(Asked {
            operation: fields.text("operation")?,
            input: fields.or_nil("input"),
            venue: fields.optional_text("venue")?,
        })
    }
}

#[derive(Debug, PartialEq)]
struct Named {
    id: String,
    time: Duration,
    venue: Option<String>,
}

impl Named {
    fn read(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::of(input)?;
        let most = i64::try_from(WAIT_MAX.as_millis()).unwrap_or(i64::MAX);
        let time = fields.integer("timeout", 0, most)?;
        Ok(Named {
            id: fields.text("id")?,
            time: time.map_or(WAIT_MAX, |ms| Duration::from_millis(ms.unsigned_abs())),
            venue: fields.optional_text("venue")?,
        })
    }

    fn local_id(&self) -> Result<JobId, Failure> {
        self.id.parse().map_err(|_| invalid(format!("{:?} is not the ID of a job", self.id)))
    }
}

// Output.

fn not_ended(named: &Named) -> Failure {
    let (id, ms) = (&named.id, named.time.as_millis());
    Failure::transient("timeout", format!("job {id} has not ended within {ms} ms"))
}

// Running.

impl Adapter for Grid {
    fn name(&self) -> &'static str {
        "grid"
    }

    fn description(&self) -> &'static str {
        "Operations and jobs of this venue and of others."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn federation(&self) -> Option<Arc<dyn Federation>> {
        Some(Arc::new(OverHttp::new(self.outbound.clone())))
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check(operation.adapter(), OPERATIONS)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let outbound = self.outbound.clone();
        Box::pin(async move {
            let ended = match call.operation.name() {
                "run" => run(outbound, &call).await,
                "invoke" => invoke(outbound, &call).await,
                "job-status" => job_status(outbound, &call).await,
                "job-result" => job_result(outbound, &call).await,
                _ => Err(nested::unsupported(&call)),
            };
            ended.into()
        })
    }
}

async fn run(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let asked = Asked::read(&call.input)?;
    let Some(venue) = asked.venue else {
        return nested::run(call, asked.operation, asked.input).await;
    };
    let client = VenueClient::new(outbound, &venue)?;
    let job = client.invoke(&asked.operation, asked.input, &call.control).await?;
    let engine = call.engine.clone();
    let env = call.engine.env().clone();
    let guard = RemoteGuard::new(client.clone(), job.id.clone(), env, move || engine.is_ready());
    let job = client.wait(job, &call.control).await?;
    guard.disarm();
    job.outcome()
}

async fn invoke(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let asked = Asked::read(&call.input)?;
    let Some(venue) = asked.venue else {
        let view = nested::invoke(call, asked.operation, asked.input).await?;
        return nested::record(&view);
    };
    let client = VenueClient::new(outbound, &venue)?;
    let job = client.invoke(&asked.operation, asked.input, &call.control).await?;
    Ok(job.record)
}

async fn job_status(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let named = Named::read(&call.input)?;
    let Some(venue) = &named.venue else {
        let view = call.engine.job(&call.caller, named.local_id()?).await.map_err(of_job)?;
        return nested::record(&view);
    };
    let client = VenueClient::new(outbound, venue)?;
    Ok(client.job(&named.id, &call.control).await?.record)
}

async fn job_result(outbound: Arc<Outbound>, call: &Call) -> Result<Value, Failure> {
    let named = Named::read(&call.input)?;
    let Some(venue) = &named.venue else { return local_result(call, &named).await };
    let client = VenueClient::new(outbound, venue)?;
    let job = client.job(&named.id, &call.control).await?;
    tokio::select! {
        biased;
        ended = client.wait(job, &call.control) => ended?.outcome(),
        () = call.control.sleep(named.time) => Err(not_ended(&named)),
    }
}

async fn local_result(call: &Call, named: &Named) -> Result<Value, Failure> {
    let id = named.local_id()?;
    let view = call.engine.job(&call.caller, id).await.map_err(of_job)?;
    let ended = async {
        let mut view = view;
        while !view.status().is_terminal() {
            view = call.engine.wait(&call.caller, id, WAIT_MAX).await.map_err(of_job)?;
        }
        nested::outcome(&view.job, view.cells())
    };
    tokio::select! {
        biased;
        ended = ended => ended,
        () = call.control.sleep(named.time) => Err(not_ended(named)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_operation_is_here_unless_a_venue_is_named() {
        let here = Asked::read(&value(r#"{"operation":"test:echo","input":[1],"venue":null}"#));
        let (operation, input) = ("test:echo".to_owned(), value("[1]"));
        assert_eq!(here.unwrap(), Asked { operation, input, venue: None });
        assert_eq!(Asked::read(&value("{}")).unwrap_err().error, "`operation` is missing");
        assert!(Asked::read(&value(r#"{"operation":"x","venue":1}"#)).is_err());
    }

    #[test]
    fn a_wait_for_a_result_is_bounded() {
        let read = |text: &str| Named::read(&value(text));
        assert_eq!(read(r#"{"id":"0x01"}"#).unwrap().time, WAIT_MAX);
        assert_eq!(read(r#"{"id":"0x01","timeout":0}"#).unwrap().time, Duration::ZERO);
        assert!(read(r#"{"id":"0x01","timeout":120001}"#).is_err());
        assert!(read(r#"{"id":"nonsense"}"#).unwrap().local_id().is_err());
        let failure = not_ended(&read(r#"{"id":"0x01","timeout":5}"#).unwrap());
        assert_eq!(failure.error, "job 0x01 has not ended within 5 ms");
    }
}
