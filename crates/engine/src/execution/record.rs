//! Decides what the end of a turn changes in a job.
//!
//! This is a pure function of the current job, what the turn produced, and the time.

use std::time::Duration;

use catena_job::Status;
use catena_job::chain::{AppendError, Change};
use catena_job::note::{Note, Outcome};
use catena_job::record::EXECUTION;
use catena_job::state::{Ask, Event};
use catena_store::Hold;
use catena_value::{Map, NoCells, Value};

use crate::error::StoreError;
use crate::jobs::{Current, Draft, append_error, deadline, outcome_change};
use crate::operations::Failure;

/// What a turn produced.
#[derive(Debug, Clone)]
pub(crate) enum TurnOutcome {
    /// An output or a failure.
    Done(Result<Value, Failure>),
    /// The job waits for a message.
    NeedsInput(Ask),
    /// The job waits for authorisation.
    NeedsAuth(Ask),
    /// The job pauses itself.
    Pause,
    /// The turn exceeded its time limit, with this error.
    TimedOut(String),
}

impl TurnOutcome {
    /// Returns true if the job waits afterwards.
    pub(super) fn waits(&self) -> bool {
        matches!(self, TurnOutcome::NeedsInput(_) | TurnOutcome::NeedsAuth(_) | TurnOutcome::Pause)
    }
}

/// When and how an outcome is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordContext<'a> {
    /// Unix time in ms.
    pub(super) now: i64,
    /// How long the job may wait for people.
    pub(super) interactive: Duration,
    /// The fence under which the job runs.
    pub(super) fence: u64,
    /// The DID of the worker that ran the turn. `None` if this venue did.
    pub(super) by: Option<&'a str>,
    /// The end of what the worker has logged.
    pub(super) log: Option<&'a str>,
    /// What an executor says about the execution.
    pub(super) execution: Option<&'a Value>,
}

/// Returns the change that records an outcome. `None` if the outcome is discarded: the job has
/// ended, or another run of it has started.
pub(super) fn record_outcome(
    current: &Current,
    outcome: TurnOutcome,
    context: RecordContext<'_>,
) -> Result<Option<Draft>, StoreError> {
    let RecordContext { now, interactive, fence, by, log, execution } = context;
    let mut draft = current.draft();
    draft.set_hold(Hold::Under(fence));
    match current.job.status() {
        Status::Started => {}
        Status::Paused if current.job.held().is_none() => {
            let Some(mut held) = held_outcome(outcome) else { return Ok(None) };
            held.execution = execution.cloned();
            let note = Note::Held(Some(held));
            let mut change = Change::new(Event::Noted(note), now);
            change.by = by.map(str::to_owned);
            draft.append(change).map_err(append_error)?;
            draft.save_progress();
            draft.set_hold(Hold::Release(fence));
            return Ok(Some(draft));
        }
        _ => return Ok(None),
    }
    let waits = outcome.waits();
    let mut change = match outcome {
        TurnOutcome::Done(result) => outcome_change(result, now),
        TurnOutcome::TimedOut(error) => Change::new(Event::Expired { error }, now),
        TurnOutcome::NeedsInput(ask) => Change::new(Event::AskedForInput(ask), now),
        TurnOutcome::NeedsAuth(ask) => Change::new(Event::AskedForAuth(ask), now),
        TurnOutcome::Pause => {
            let mut change = Change::new(Event::Paused, now);
            let paused = PausedTurn::new(Status::Started, "ended");
            change.extra.push(("paused", paused_member(&paused, None)));
            change
        }
    };
    change.by = by.map(str::to_owned);
    if !waits {
        change.extra.extend(execution.map(|execution| (EXECUTION, execution.clone())));
    }
    if waits {
        draft.save_progress();
        change.extra.push(("deadline", deadline(now, interactive)));
        draft.set_hold(Hold::Release(fence));
    } else if let Some(log) = log {
        change.extra.push(("log", log.into()));
    }
    match draft.append(change) {
        Ok(()) => Ok(Some(draft)),
        Err(AppendError::HistoryFull) => {
            let mut draft = current.draft();
            draft.set_hold(Hold::Under(fence));
            let full = Failure::new("history_full", AppendError::HistoryFull.to_string());
            draft.append(outcome_change(Err(full), now)).map_err(append_error)?;
            Ok(Some(draft))
        }
        Err(error) => Err(append_error(error)),
    }
}

/// Returns what is held of an outcome while the job is paused. `None` if nothing is: a turn that
/// timed out, or paused itself, follows the recovery rule on resume.
fn held_outcome(outcome: TurnOutcome) -> Option<Outcome> {
    let ask = |status, ask: Ask| {
        let Ask { message, output } = ask;
        Some(Outcome { status, output, error: None, message, execution: None })
    };
    match outcome {
        TurnOutcome::Done(Ok(output)) => Some(Outcome::complete(output)),
        TurnOutcome::Done(Err(failure)) => Some(Outcome::failed(&failure.error)),
        TurnOutcome::NeedsInput(asked) => ask(Status::InputRequired, asked),
        TurnOutcome::NeedsAuth(asked) => ask(Status::AuthRequired, asked),
        TurnOutcome::Pause | TurnOutcome::TimedOut(_) => None,
    }
}

/// What a resume continues with: the `paused` member of a record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PausedTurn {
    /// The status from which the job was paused.
    pub(crate) from: Status,
    /// `open` if a turn was in progress, `ended` if none was, `waiting` if the job waited for its next
    /// attempt.
    pub(crate) turn: String,
    /// The execution time that was left, in ms.
    pub(crate) left_ms: Option<i64>,
    /// When the next attempt was due, as Unix time in ms.
    pub(crate) ready_at: Option<i64>,
    /// True if the turn answers a message.
    pub(crate) is_answering: bool,
    /// When the job was paused, as Unix time in ms.
    pub(crate) since: Option<i64>,
}

impl PausedTurn {
    pub(crate) fn new(from: Status, turn: &str) -> PausedTurn {
        let turn = turn.to_owned();
        PausedTurn { from, turn, left_ms: None, ready_at: None, is_answering: false, since: None }
    }

    /// Reads the member of a job that is or was paused.
    pub(crate) fn from_job(current: &Current) -> Option<PausedTurn> {
        let paused = current.member("paused").ok()??;
        let map = paused.as_map()?;
        let member = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
        let text = |name: &str| member(name).and_then(|value| Some(value.as_str()?.to_owned()));
        Some(PausedTurn {
            from: text("from").and_then(|word| Status::parse(&word)).unwrap_or(Status::Started),
            turn: text("turn").unwrap_or_else(|| "open".to_owned()),
            left_ms: member("leftMs").and_then(|left| left.as_i64()),
            ready_at: member("readyAt").and_then(|at| at.as_i64()),
            is_answering: member("trigger").is_some(),
            since: member("since").and_then(|at| at.as_i64()),
        })
    }
}

/// Returns the `paused` member of a record. `trigger` identifies the message that the turn answers.
pub(crate) fn paused_member(paused: &PausedTurn, trigger: Option<&Value>) -> Value {
    let mut members =
        vec![("from", Value::from(paused.from)), ("turn", paused.turn.as_str().into())];
    members.extend(paused.left_ms.map(|left| ("leftMs", left.into())));
    members.extend(paused.ready_at.map(|at| ("readyAt", at.into())));
    members.extend(paused.since.map(|at| ("since", at.into())));
    members.extend(trigger.map(|trigger| ("trigger", trigger.clone())));
    members.into_iter().collect::<Map>().into()
}

#[cfg(test)]
mod tests {
    use catena_job::chain::NewJob;
    use catena_job::{Job, JobId};
    use catena_store::Effect;

    use super::*;

    const NOW: i64 = 1_000;

    fn job(events: &[Event]) -> Current {
        let new_job = NewJob {
            id: JobId::from_bytes([7; 16]),
            venue: "did:key:venue".into(),
            op: "test:any".into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        let (mut job, _) = Job::create(new_job, 1, None).unwrap();
        for event in events {
            job.append(Change::new(event.clone(), 2)).unwrap();
        }
        Current::from_job(std::sync::Arc::new(job), 4)
    }

    fn held(outcome: Outcome) -> Event {
        Event::Noted(Note::Held(Some(outcome)))
    }

    /// What is recorded of an outcome: the job's status afterwards and the kind of its held outcome.
    fn check(events: &[Event], outcome: TurnOutcome, expected: Option<(Status, Option<Status>)>) {
        let context = RecordContext {
            now: NOW,
            interactive: Duration::from_secs(60),
            fence: 4,
            by: None,
            log: None,
            execution: None,
        };
        let current = job(events);
        let draft = record_outcome(&current, outcome, context).unwrap();
        let found = draft.map(|draft| {
            let job = draft.job();
            (job.status(), job.held().map(|held| held.status))
        });
        assert_eq!(found, expected, "after {events:?}");
    }

    fn output() -> TurnOutcome {
        TurnOutcome::Done(Ok(1i64.into()))
    }

    fn failure() -> TurnOutcome {
        TurnOutcome::Done(Err(Failure::new("no", "it failed")))
    }

    fn ask() -> Ask {
        Ask { message: Some("which?".into()), output: None }
    }

    #[test]
    fn a_started_job_takes_the_status_of_its_outcome() {
        use Status::*;
        let started = &[Event::Started];
        check(started, output(), Some((Complete, None)));
        check(started, failure(), Some((Failed, None)));
        check(started, TurnOutcome::NeedsInput(ask()), Some((InputRequired, None)));
        check(started, TurnOutcome::NeedsAuth(ask()), Some((AuthRequired, None)));
        check(started, TurnOutcome::Pause, Some((Paused, None)));
        check(started, TurnOutcome::TimedOut("too long".into()), Some((Timeout, None)));
    }

    #[test]
    fn a_paused_job_holds_its_first_outcome() {
        use Status::*;
        let paused = &[Event::Started, Event::Paused];
        check(paused, output(), Some((Paused, Some(Complete))));
        check(paused, failure(), Some((Paused, Some(Failed))));
        check(paused, TurnOutcome::NeedsInput(ask()), Some((Paused, Some(InputRequired))));
        check(paused, TurnOutcome::NeedsAuth(ask()), Some((Paused, Some(AuthRequired))));
        check(paused, TurnOutcome::Pause, None);
        check(paused, TurnOutcome::TimedOut("too long".into()), None);
        let holding = &[Event::Started, Event::Paused, held(Outcome::complete(1i64.into()))];
        check(holding, output(), None);
    }

    #[test]
    fn a_late_outcome_is_discarded() {
        let cancelled = Event::Cancelled { error: "enough".into() };
        check(&[Event::Started, cancelled], output(), None);
        check(&[Event::Started, Event::AskedForInput(ask())], output(), None);
        check(&[], output(), None);
    }

    #[test]
    fn a_job_that_waits_gets_a_deadline_and_is_released() {
        let context = RecordContext {
            now: NOW,
            interactive: Duration::from_secs(60),
            fence: 4,
            by: None,
            log: None,
            execution: None,
        };
        let current = job(&[Event::Started]);
        let draft = record_outcome(&current, TurnOutcome::NeedsInput(ask()), context).unwrap();
        let (effects, view) = draft.unwrap().into_parts();
        assert_eq!(view.job.field("deadline").and_then(Value::as_i64), Some(NOW + 60_000));
        let holds = effects.into_iter().filter_map(|effect| match effect {
            Effect::Append { hold, .. } => Some(hold),
            _ => None,
        });
        assert_eq!(holds.collect::<Vec<_>>(), [Hold::Release(4)]);
    }
}
