//! `scheduler`: operations that are invoked later, once or repeatedly.
//!
//! **What it does:** creates, lists, removes and triggers scheduled invocations of the caller. The
//! engine stores them and invokes them with the authority that the caller had.
//!
//! **Cost:** one commit per change.
//!
//! **Cancellation:** its future is dropped. A change that was committed by then remains.
//!
//! **Repetition:** safe for `list` and `cancel`. `schedule` and `trigger` have an effect each time, so
//! recovery does not repeat them.

use catena_engine::requests::{Scheduled, When};
use catena_engine::{
    Adapter, Call, Caller, ExecutionMode, Failure, Operation, Registration, Role, TurnFuture,
};
use catena_job::JobId;
use catena_value::{Map, Value};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::failures::invoke_failure;
use crate::fields::{Fields, array, integer, invalid_input, object, text};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduler;

// Operations.

const HANDLE_INPUT: Option<&str> = Some(
    r#"{"type":"object","required":["handle"],"properties":{
    "owner":{"type":["string","null"],"description":"For admins: the DID of the owner, if it is another caller"},
        "handle":{"type":"string","description":"As `schedule` returned it"}}}"#,
);

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "schedule",
        title: "Schedule an operation",
        description: "Invokes an operation later: at a time, after a time, or again and again by a cron \
                      expression in UTC. Give one of `time`, `after` and `cron`.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: Some(
            r#"{"type":"object","required":["operation"],"properties":{
                "operation":{"type":"string","minLength":1,"description":"The operation, in any form of reference"},
                "input":{"description":"Its input"},
                "time":{"type":["integer","string","null"],"description":"Milliseconds since 1970, or such as 2026-01-31T09:00:00Z"},
                "after":{"type":["integer","null"],"minimum":0,"description":"Milliseconds from now"},
                "cron":{"type":["string","null"],"description":"Such as `0 9 * * 1-5`"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["handle","time"],"properties":{
                "handle":{"type":"string"},
                "time":{"type":"integer","description":"When it is next invoked, in milliseconds since 1970"}}}"#,
        ),
    },
    Definition {
        name: "cancel",
        title: "Cancel a scheduled invocation",
        description: "Removes a scheduled invocation. Jobs that it made stay.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: HANDLE_INPUT,
        output: Some(
            r#"{"type":"object","required":["cancelled"],"properties":{
                "cancelled":{"type":"boolean","description":"Whether there was one"}}}"#,
        ),
    },
    Definition {
        name: "list",
        title: "List scheduled invocations",
        description: "The caller's scheduled invocations, the next first.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(
            r#"{"type":["object","null"],"properties":{
                "owner":{"type":["string","null"],"description":"For admins: the DID of the owner, if it is another caller"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["events"],"properties":{
                "events":{"type":"array","items":{"type":"object","properties":{
                    "handle":{"type":"string"},"operation":{"type":"string"},"input":{},
                    "time":{"type":"integer"},"cron":{"type":"string"}}}}}}"#,
        ),
    },
    Definition {
        name: "trigger",
        title: "Trigger a scheduled invocation",
        description: "Invokes a scheduled operation now. One that was to be invoked once is then gone.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: HANDLE_INPUT,
        output: Some(
            r#"{"type":"object","required":["triggered"],"properties":{
                "triggered":{"type":"boolean","description":"Whether there was one"},
                "result":{"type":"string","description":"The job"}}}"#,
        ),
    },
];

// Input.

#[derive(Debug, PartialEq)]
struct ScheduleInput {
    operation: String,
    input: Value,
    when: When,
}

impl ScheduleInput {
    /// `now` is Unix time in ms.
    fn parse(input: &Value, now: i64) -> Result<Self, Failure> {
        let fields = Fields::from_value(input)?;
        let operation = fields.text("operation")?;
        let after = fields.integer("after", 0, i64::MAX)?;
        let when = match (fields.get("time"), after, fields.optional_text("cron")?) {
            (Some(time), None, None) => When::At(parse_time(time)?),
            (None, Some(after), None) => When::At(now.saturating_add(after)),
            (None, None, Some(cron)) => When::Cron(cron),
            _ => return Err(invalid_input("give one of `time`, `after` and `cron`")),
        };
        Ok(ScheduleInput { operation, input: fields.get_or_nil("input"), when })
    }
}

/// Unix time in ms, from a number in ms or an ISO 8601 text with an offset.
fn parse_time(time: &Value) -> Result<i64, Failure> {
    if let Some(ms) = integer(time) {
        return Ok(ms);
    }
    let parsed = text(time).and_then(|text| text.parse::<jiff::Timestamp>().ok());
    parsed.map(jiff::Timestamp::as_millisecond).ok_or_else(|| {
        invalid_input("`time` must be Unix time in ms, or a text such as 2026-01-31T09:00:00Z")
    })
}

// Output.

fn schedule_output(scheduled: &Scheduled) -> Value {
    object([("handle", scheduled.handle.as_str().into()), ("time", scheduled.time.into())])
}

fn event_output(scheduled: Scheduled) -> Value {
    let mut members = vec![
        ("handle", Value::from(scheduled.handle)),
        ("operation", scheduled.operation.into()),
        ("input", scheduled.input),
        ("time", scheduled.time.into()),
    ];
    members.extend(scheduled.cron.map(|cron| ("cron", cron.into())));
    members.into_iter().collect::<Map>().into()
}

fn trigger_output(job: Option<JobId>) -> Value {
    match job {
        Some(job) => object([("triggered", true.into()), ("result", job.into())]),
        None => object([("triggered", false.into())]),
    }
}

// Execution.

impl Adapter for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn description(&self) -> &'static str {
        "Invokes operations later, once or repeatedly."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move { run(&call).await.into() })
    }
}

/// Whose schedules a call is about: the caller's or, for admins, those of the owner that it names.
fn owner(call: &Call) -> Result<Caller, Failure> {
    let named = match &call.input {
        Value::Nil => None,
        input => Fields::from_value(input)?.optional_text("owner")?,
    };
    match named {
        Some(owner) if owner != *call.caller.did => {
            if call.caller.role != Role::Admin {
                let error = "only an admin may use the schedules of another caller";
                return Err(Failure::new("forbidden", error));
            }
            Ok(Caller::known(&owner))
        }
        _ => Ok(call.caller.clone()),
    }
}

async fn run(call: &Call) -> Result<Value, Failure> {
    let host = &call.host;
    let caller = &call.caller;
    call.control.proceed().await;
    match call.operation.name() {
        "schedule" => {
            let ScheduleInput { operation, input, when } =
                ScheduleInput::parse(&call.input, call.control.now())?;
            let scheduled = host.schedule(caller, &operation, input, when).await;
            scheduled.map(|scheduled| schedule_output(&scheduled)).map_err(invoke_failure)
        }
        "cancel" => {
            let handle = Fields::from_value(&call.input)?.text("handle")?;
            let owner = owner(call)?;
            let was_scheduled = host.unschedule(&owner, &handle).await.map_err(invoke_failure)?;
            Ok(object([("cancelled", was_scheduled.into())]))
        }
        "list" => {
            let events = host.scheduled(&owner(call)?).await.map_err(invoke_failure)?;
            Ok(object([("events", array(events.into_iter().map(event_output).collect()))]))
        }
        "trigger" => {
            let handle = Fields::from_value(&call.input)?.text("handle")?;
            host.trigger(caller, &handle).await.map(trigger_output).map_err(invoke_failure)
        }
        _ => Err(nested::unsupported_operation(call)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    const NOW: i64 = 1_769_683_717_000;

    fn when(input: &str) -> Result<When, Failure> {
        ScheduleInput::parse(&value(input), NOW).map(|schedule| schedule.when)
    }

    #[test]
    fn a_time_is_given_in_one_of_several_ways() {
        assert_eq!(when(r#"{"operation":"x","time":5}"#).unwrap(), When::At(5));
        assert_eq!(when(r#"{"operation":"x","after":5}"#).unwrap(), When::At(NOW + 5));
        let iso = r#"{"operation":"x","time":"1970-01-01T01:00:00.5+01:00"}"#;
        assert_eq!(when(iso).unwrap(), When::At(500));
        let cron = when(r#"{"operation":"x","cron":"0 9 * * 1-5"}"#).unwrap();
        assert_eq!(cron, When::Cron("0 9 * * 1-5".to_owned()));
    }

    #[test]
    fn a_time_that_is_missing_or_double_is_refused() {
        let one = "give one of `time`, `after` and `cron`";
        assert_eq!(when(r#"{"operation":"x"}"#).unwrap_err().error, one);
        assert_eq!(when(r#"{"operation":"x","time":1,"after":1}"#).unwrap_err().error, one);
        assert!(when(r#"{"operation":"x","time":"tomorrow"}"#).is_err());
        assert!(when(r#"{"operation":"x","time":"2026-01-31T09:00:00"}"#).is_err());
        assert!(when(r#"{"operation":"x","after":-1}"#).is_err());
        assert!(when(r#"{"time":1}"#).is_err());
    }

    #[test]
    fn a_scheduled_invocation_is_returned_completely() {
        let kept = Scheduled {
            handle: "h".to_owned(),
            operation: "test:echo".to_owned(),
            input: value("[1]"),
            time: 5,
            cron: Some("* * * * *".to_owned()),
        };
        assert_eq!(schedule_output(&kept), value(r#"{"handle":"h","time":5}"#));
        let shown =
            r#"{"handle":"h","operation":"test:echo","input":[1],"time":5,"cron":"* * * * *"}"#;
        assert_eq!(event_output(kept), value(shown));
        assert_eq!(trigger_output(None), value(r#"{"triggered":false}"#));
    }
}
