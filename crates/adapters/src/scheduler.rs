//! `scheduler`: operations that are invoked later, once or repeatedly.
//!
//! **What it does:** creates, lists, pauses, resumes, removes and triggers schedules of the caller. The
//! engine stores them and starts their runs with the authority that the caller had. Admins may list
//! and change the schedules of all owners.
//!
//! **Cost:** one commit per change.
//!
//! **Cancellation:** its future is dropped. A change that was committed by then remains.
//!
//! **Repetition:** safe for `list`, `cancel`, `pause` and `resume`. `schedule` and `trigger` have an
//! effect each time, so recovery does not repeat them.

use catena_engine::limits::SCHEDULE_JITTER_MAX_MS;
use catena_engine::requests::{NewSchedule, Overlap, Scheduled, When};
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_job::JobId;
use catena_job::members::Members;
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
                      expression. Give one of `time`, `after` and `cron`.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: Some(
            r#"{"type":"object","required":["operation"],"properties":{
                "operation":{"type":"string","minLength":1,"description":"The operation, in any form of reference"},
                "input":{"description":"Its input"},
                "time":{"type":["integer","string","null"],"description":"Milliseconds since 1970, or such as 2026-01-31T09:00:00Z"},
                "after":{"type":["integer","null"],"minimum":0,"description":"Milliseconds from now"},
                "cron":{"type":["string","null"],"description":"Such as `0 9 * * 1-5`"},
                "timeZone":{"type":["string","null"],"description":"The time zone of `cron`, by its IANA name, such as Europe/Zurich; UTC by default"},
                "overlap":{"enum":["allow","skip","queue",null],"description":"If the previous run has not ended: start another one (the default), leave this one out, or start it afterwards"},
                "jitterMs":{"type":["integer","null"],"minimum":0,"maximum":86400000,"description":"Each run is delayed by a random time of at most this many milliseconds"}}}"#,
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
        description: "The caller's schedules, the next first.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(
            r#"{"type":"object","properties":{
                "owner":{"type":["string","null"],"description":"For admins: the DID of another owner, or * for all"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["events"],"properties":{
                "events":{"type":"array","items":{"type":"object","properties":{
                    "handle":{"type":"string"},"operation":{"type":"string"},"input":{},
                    "time":{"type":"integer"},"cron":{"type":"string"},"timeZone":{"type":"string"},
                    "overlap":{"type":"string"},"jitterMs":{"type":"integer"},"owner":{"type":"string"},
                    "state":{"enum":["active","paused","set_aside"]},
                    "reason":{"type":"string","description":"Why it was set aside, or why its last run was delayed or failed to start"},
                    "lastJob":{"type":"string"},"lastTime":{"type":"integer"},
                    "skipped":{"type":"integer","description":"Runs that were left out because the previous one had not ended"}}}}}}"#,
        ),
    },
    Definition {
        name: "trigger",
        title: "Trigger a scheduled invocation",
        description: "Starts a run of a schedule now, in addition to those at its times.",
        mode: ExecutionMode::Task,
        marks: &[],
        input: HANDLE_INPUT,
        output: Some(
            r#"{"type":"object","required":["triggered"],"properties":{
                "triggered":{"type":"boolean","description":"Whether there was one"},
                "result":{"type":"string","description":"The job"}}}"#,
        ),
    },
    Definition {
        name: "pause",
        title: "Pause a schedule",
        description: "Pauses a schedule: no run starts until it is resumed. Jobs that it started go on.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: HANDLE_INPUT,
        output: Some(
            r#"{"type":"object","required":["paused"],"properties":{
                "paused":{"type":"boolean","description":"Whether there was one"}}}"#,
        ),
    },
    Definition {
        name: "resume",
        title: "Resume a schedule",
        description: "Resumes a schedule that is paused or was set aside. Times that it missed are left \
                      out, except for the only time of one that does not repeat.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: HANDLE_INPUT,
        output: Some(
            r#"{"type":"object","required":["resumed"],"properties":{
                "resumed":{"type":"boolean","description":"Whether there was one"},
                "time":{"type":"integer","description":"When it is next invoked, in milliseconds since 1970"}}}"#,
        ),
    },
];

// Input.

/// The members of a schedule.
const MEMBERS: Members = Members {
    known: &["operation", "input", "time", "after", "cron", "timeZone", "overlap", "jitterMs"],
    mistaken: &[
        ("at", Some("time")),
        ("delay", Some("after")),
        ("every", Some("cron")),
        ("interval", Some("cron")),
        ("op", Some("operation")),
        ("when", Some("time")),
    ],
};

/// `now` is Unix time in ms.
fn parse_schedule(input: &Value, now: i64) -> Result<NewSchedule, Failure> {
    let fields = Fields::from_value(input)?;
    fields.refuse_unknown(MEMBERS)?;
    let operation = fields.text("operation")?;
    let after = fields.integer("after", 0, i64::MAX)?;
    let time_zone = fields.optional_text("timeZone")?;
    let when = match (fields.get("time"), after, fields.optional_text("cron")?) {
        (Some(time), None, None) => When::At(parse_time(time)?),
        (None, Some(after), None) => When::At(now.saturating_add(after)),
        (None, None, Some(expression)) => When::Cron { expression, time_zone: time_zone.clone() },
        _ => return Err(invalid_input("give one of `time`, `after` and `cron`")),
    };
    if let (When::At(_), Some(_)) = (&when, &time_zone) {
        let text = "`timeZone` is the time zone of `cron`; give `time` with an offset instead";
        return Err(invalid_input(text));
    }
    let overlap = match fields.optional_text("overlap")? {
        None => Overlap::default(),
        Some(name) => Overlap::parse(&name).ok_or_else(|| {
            let names = Overlap::ALL.map(|policy| format!("`{}`", policy.as_str())).join(", ");
            invalid_input(format!("`overlap` is {name:?}; it must be one of {names}"))
        })?,
    };
    Ok(NewSchedule {
        overlap,
        jitter_ms: fields.integer("jitterMs", 0, SCHEDULE_JITTER_MAX_MS)?.unwrap_or(0),
        ..NewSchedule::new(operation, fields.get_or_nil("input"), when)
    })
}

/// Unix time in ms, from a number in ms or an ISO 8601 text with an offset.
pub(crate) fn parse_time(time: &Value) -> Result<i64, Failure> {
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
        ("owner", scheduled.owner.into()),
        ("operation", scheduled.operation.into()),
        ("input", scheduled.input),
        ("time", scheduled.time.into()),
        ("overlap", scheduled.overlap.as_str().into()),
        ("state", scheduled.state.as_str().into()),
    ];
    members.extend(scheduled.cron.map(|cron| ("cron", cron.into())));
    members.extend(scheduled.time_zone.map(|zone| ("timeZone", zone.into())));
    members.extend(scheduled.reason.map(|reason| ("reason", reason.into())));
    members.extend(scheduled.last_job.map(|job| ("lastJob", job.into())));
    members.extend(scheduled.last_time.map(|time| ("lastTime", time.into())));
    let counts = [("jitterMs", scheduled.jitter_ms), ("skipped", scheduled.skipped)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    members.extend(counts.map(|(name, count)| (name, count.into())));
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

    fn input_members(&self, name: &str) -> Option<Members> {
        (name == "schedule").then_some(MEMBERS)
    }

    fn deferred(&self, operation: &Operation, input: &Value) -> Option<(String, Value)> {
        if operation.name() != "schedule" {
            return None;
        }
        let fields = Fields::from_value(input).ok()?;
        Some((fields.text("operation").ok()?, fields.get_or_nil("input")))
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move { run(&call).await.into() })
    }
}

async fn run(call: &Call) -> Result<Value, Failure> {
    let host = &call.host;
    let caller = &call.caller;
    call.control.proceed().await;
    match call.operation.name() {
        "schedule" => {
            let request = parse_schedule(&call.input, call.control.now())?;
            let scheduled = host.schedule(caller, request).await;
            scheduled.map(|scheduled| schedule_output(&scheduled)).map_err(invoke_failure)
        }
        "cancel" => {
            let handle = Fields::from_value(&call.input)?.text("handle")?;
            let was_scheduled = host.unschedule(caller, &handle).await.map_err(invoke_failure)?;
            Ok(object([("cancelled", was_scheduled.into())]))
        }
        "list" => {
            let owner = Fields::from_value(&call.input)?.optional_text("owner")?;
            let events = host.scheduled(caller, owner.as_deref()).await.map_err(invoke_failure)?;
            Ok(object([("events", array(events.into_iter().map(event_output).collect()))]))
        }
        "pause" => {
            let handle = Fields::from_value(&call.input)?.text("handle")?;
            let paused = host.pause_schedule(caller, &handle).await.map_err(invoke_failure)?;
            Ok(object([("paused", paused.is_some().into())]))
        }
        "resume" => {
            let handle = Fields::from_value(&call.input)?.text("handle")?;
            let resumed = host.resume_schedule(caller, &handle).await.map_err(invoke_failure)?;
            Ok(match resumed {
                Some(schedule) => {
                    object([("resumed", true.into()), ("time", schedule.time.into())])
                }
                None => object([("resumed", false.into())]),
            })
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
    use catena_engine::requests::ScheduleState;

    const NOW: i64 = 1_769_683_717_000;

    fn parse(input: &str) -> Result<NewSchedule, Failure> {
        parse_schedule(&value(input), NOW)
    }

    fn when(input: &str) -> Result<When, Failure> {
        parse(input).map(|schedule| schedule.when)
    }

    #[test]
    fn a_time_is_given_in_one_of_several_ways() {
        assert_eq!(when(r#"{"operation":"x","time":5}"#).unwrap(), When::At(5));
        assert_eq!(when(r#"{"operation":"x","after":5}"#).unwrap(), When::At(NOW + 5));
        let iso = r#"{"operation":"x","time":"1970-01-01T01:00:00.5+01:00"}"#;
        assert_eq!(when(iso).unwrap(), When::At(500));
        let expression = "0 9 * * 1-5".to_owned();
        let cron = when(r#"{"operation":"x","cron":"0 9 * * 1-5"}"#).unwrap();
        assert_eq!(cron, When::Cron { expression: expression.clone(), time_zone: None });
        let zoned = r#"{"operation":"x","cron":"0 9 * * 1-5","timeZone":"Europe/Zurich"}"#;
        let time_zone = Some("Europe/Zurich".to_owned());
        assert_eq!(when(zoned).unwrap(), When::Cron { expression, time_zone });
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
        assert!(when(r#"{"operation":"x","time":1,"timeZone":"UTC"}"#).is_err());
    }

    #[test]
    fn policies_have_defaults_and_bounds() {
        let plain = parse(r#"{"operation":"x","time":1}"#).unwrap();
        assert_eq!((plain.overlap, plain.jitter_ms), (Overlap::Allow, 0));
        let full = r#"{"operation":"x","cron":"* * * * *","overlap":"queue","jitterMs":1000}"#;
        let full = parse(full).unwrap();
        assert_eq!((full.overlap, full.jitter_ms), (Overlap::Queue, 1000));
        let wrong = parse(r#"{"operation":"x","time":1,"overlap":"never"}"#).unwrap_err();
        assert!(wrong.error.contains("`allow`, `skip`, `queue`"), "{}", wrong.error);
        assert!(parse(r#"{"operation":"x","time":1,"jitterMs":86400001}"#).is_err());
    }

    #[test]
    fn an_unknown_member_is_refused_by_name() {
        let refused = parse(r#"{"operation":"x","crom":"* * * * *"}"#).unwrap_err();
        assert_eq!(refused.code, "unknown_member");
        assert_eq!(refused.error, "unknown member `crom`; the nearest is `cron`");
        assert!(parse(r#"{"operation":"x","time":1,"x-team":"a"}"#).is_ok());
    }

    #[test]
    fn a_schedule_is_returned_completely() {
        let kept = Scheduled {
            handle: "h".to_owned(),
            owner: "did:key:a".to_owned(),
            operation: "test:echo".to_owned(),
            input: value("[1]"),
            time: 5,
            cron: Some("* * * * *".to_owned()),
            time_zone: Some("Europe/Zurich".to_owned()),
            overlap: Overlap::Skip,
            jitter_ms: 7,
            state: ScheduleState::SetAside,
            reason: Some("why".to_owned()),
            last_job: Some(JobId::from_bytes([1; 16])),
            last_time: Some(4),
            skipped: 2,
        };
        assert_eq!(schedule_output(&kept), value(r#"{"handle":"h","time":5}"#));
        let shown = r#"{"handle":"h","owner":"did:key:a","operation":"test:echo","input":[1],"time":5,
            "cron":"* * * * *","timeZone":"Europe/Zurich","overlap":"skip","jitterMs":7,
            "state":"set_aside","reason":"why","lastTime":4,"skipped":2,
            "lastJob":"0x01010101010101010101010101010101"}"#;
        assert_eq!(event_output(kept), value(shown));
        assert_eq!(trigger_output(None), value(r#"{"triggered":false}"#));
    }
}
