use super::*;
use crate::note::{StepEnd, StepStart};
use crate::state::Ask;

fn new_job() -> NewJob {
    NewJob {
        id: JobId::new(1_000, [1; 10]),
        venue: "did:key:venue".into(),
        op: "test:echo".into(),
        operation: Some("ab".repeat(32).into()),
        input: Value::from("in"),
        caller: "did:key:caller".into(),
        parent: None,
        extra: vec![("tags", Value::from("t"))],
    }
}

fn created() -> (Job, Record) {
    Job::create(new_job(), 1_000, None).unwrap()
}

fn append(job: &mut Job, event: Event) -> Record {
    let now = job.updated() + 1;
    job.append(Change::new(event, now)).unwrap()
}

fn finished(output: &str) -> Event {
    Event::Finished { output: output.into() }
}

#[test]
fn a_job_is_the_fold_of_its_records() {
    let (mut job, first) = created();
    let records = [first, append(&mut job, Event::Started), append(&mut job, finished("out"))];
    assert_eq!(job.status(), Status::Complete);
    assert_eq!(job.count(), 3);
    assert_eq!(job.head(), records[2].id());
    assert_eq!(records[2].prev(), Some(records[1].id()));
    let folded = Job::fold(&records).unwrap().unwrap();
    assert_eq!(folded.to_value(), job.to_value());
    let json = catena_value::json::to_string(&job.to_value()).unwrap();
    for part in [r#""op":"test:echo""#, r#""input":"in""#, r#""output":"out""#, r#""tags":"t""#] {
        assert!(json.contains(part), "{json}");
    }
    assert!(!json.contains("prev"), "{json}");
}

#[test]
fn a_record_carries_only_what_changed() {
    let (mut job, _) = created();
    let started = append(&mut job, Event::Started);
    let names: Vec<_> =
        started.fields().fields().iter().map(|(k, _)| k.as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_refused_job_has_exactly_one_record() {
    let (job, record) = Job::create(new_job(), 5, Some("input must be a string")).unwrap();
    assert_eq!(job.status(), Status::Rejected);
    assert_eq!(record.field("error").unwrap().as_str(), Some("input must be a string"));
}

#[test]
fn an_illegal_change_changes_nothing() {
    let (mut job, _) = created();
    let before = job.to_value();
    let refused = job.append(Change::new(finished("x"), 2_000)).unwrap_err();
    assert_eq!(refused.to_string(), "event `finish` is not allowed while the job is PENDING");
    assert_eq!(job.to_value(), before);
}

#[test]
fn a_clock_that_went_back_is_corrected() {
    let (mut job, _) = created();
    let record = job.append(Change::new(Event::Started, 10)).unwrap();
    assert_eq!(record.updated(), 1_000);
}

#[test]
fn transient_fields_are_cleared_by_the_next_change() {
    let (mut job, _) = created();
    append(&mut job, Event::Started);
    let ask = Ask { message: Some("which one?".into()), output: Some("turn 1".into()) };
    append(&mut job, Event::AskedForInput(ask));
    assert_eq!(job.field("message").unwrap().as_str(), Some("which one?"));
    append(&mut job, Event::Answered);
    assert_eq!(job.field("message"), None);
    assert_eq!(job.field("output").unwrap().as_str(), Some("turn 1"));
}

#[test]
fn a_held_outcome_is_not_shown_and_must_follow_the_resume() {
    let (mut job, _) = created();
    append(&mut job, Event::Started);
    append(&mut job, Event::Paused);
    append(&mut job, Event::Noted(Note::Held(Some(Outcome::complete("late".into())))));
    assert_eq!(job.field("output"), None);
    assert!(job.held().is_some());
    let again = Change::new(Event::Noted(Note::Held(Some(Outcome::failed("x")))), 9_000);
    assert!(job.append(again).is_err());
    append(&mut job, Event::Resumed);
    let mut cancelled = job.clone();
    let refused = cancelled.append(Change::new(Event::Cancelled { error: "no".into() }, 9_000));
    assert!(matches!(refused, Err(AppendError::Invalid(ChainError::Held { .. }))));
    let due = job.due().cloned().unwrap().event();
    append(&mut job, due);
    assert_eq!(job.field("output").unwrap().as_str(), Some("late"));
}

#[test]
fn a_cancel_during_the_pause_drops_the_held_outcome() {
    let (mut job, _) = created();
    append(&mut job, Event::Started);
    append(&mut job, Event::Paused);
    append(&mut job, Event::Noted(Note::Held(Some(Outcome::complete("late".into())))));
    append(&mut job, Event::Cancelled { error: "enough".into() });
    assert_eq!((job.status(), job.held()), (Status::Cancelled, None));
}

#[test]
fn steps_start_once_end_once_and_before_the_job_completes() {
    let (mut job, first) = created();
    append(&mut job, Event::Started);
    let start =
        |step| StepStart { step, job: JobId::new(2, [2; 10]), record: first.id(), venue: None };
    let end = |step, status| StepEnd { step, status, record: first.id() };
    let step = |started, ended| Event::Noted(Note::Step { started, ended });
    append(&mut job, step(vec![start(0), start(1)], vec![]));
    append(&mut job, step(vec![], vec![end(0, Status::Complete)]));
    let refused = |job: &Job, event: Event| {
        let error = job.clone().append(Change::new(event, 9_000)).unwrap_err();
        let AppendError::Invalid(ChainError::Commitment(why)) = error else { panic!("{error}") };
        why
    };
    assert_eq!(refused(&job, step(vec![start(1)], vec![])), "step 1 starts a second time");
    assert_eq!(
        refused(&job, step(vec![], vec![end(0, Status::Failed)])),
        "step 0 ends a second time"
    );
    assert_eq!(
        refused(&job, step(vec![], vec![end(7, Status::Failed)])),
        "step 7 ends without having started"
    );
    assert_eq!(refused(&job, finished("x")), "the job is COMPLETE, but step 1 has not ended");
    let mut failed = job.clone();
    append(&mut failed, step(vec![], vec![end(1, Status::Failed)]));
    assert_eq!(refused(&failed, finished("x")), "the job is COMPLETE, but step 1 ended as FAILED");
    append(
        &mut job,
        step(vec![start(2)], vec![end(1, Status::Complete), end(2, Status::Complete)]),
    );
    append(&mut job, finished("x"));
    assert_eq!(job.steps().len(), 3);
}

#[test]
fn the_last_records_of_a_history_are_reserved_for_its_ending() {
    let (mut job, _) = created();
    append(&mut job, Event::Started);
    job.count = HISTORY_RECORDS_MAX - HISTORY_RECORDS_RESERVED - 1;
    append(&mut job, Event::Paused);
    let mut full = job.clone();
    let noted = Event::Noted(Note::Held(Some(Outcome::failed("x"))));
    assert_eq!(full.append(Change::new(noted, 9_000)).unwrap_err(), AppendError::HistoryFull);
    append(&mut job, Event::Resumed);
    let attempt = Event::Noted(Note::Attempt(Attempt::default()));
    assert_eq!(job.append(Change::new(attempt, 9_000)).unwrap_err(), AppendError::HistoryFull);
    append(&mut job, Event::Erred { error: "history_full".into() });
    assert_eq!(job.count(), HISTORY_RECORDS_MAX);
}

#[test]
fn fields_the_record_sets_itself_cannot_be_given() {
    let (mut job, _) = created();
    let mut change = Change::new(Event::Started, 2_000);
    change.extra = vec![("status", "COMPLETE".into())];
    assert!(job.append(change).is_err());
    let mut change = Change::new(Event::Started, 2_000);
    change.extra = vec![("caller", "did:key:other".into())];
    let refused = job.append(change).unwrap_err();
    assert_eq!(refused, AppendError::Invalid(ChainError::Identity("caller")));
}

#[test]
fn chains_merge_by_union_and_forks_are_refused() {
    let (mut job, first) = created();
    let mut other = job.clone();
    let chain = [first.clone(), append(&mut job, Event::Started), append(&mut job, finished("a"))];
    let shorter = &chain[..2];
    assert_eq!(merge(&chain, shorter).unwrap().len(), 3);
    assert_eq!(merge(shorter, &chain).unwrap().len(), 3);
    assert_eq!(merge(&chain, &chain).unwrap().len(), 3);
    let fork = [first, append(&mut other, Event::Cancelled { error: "no".into() })];
    let refused = merge(&chain, &fork).unwrap_err();
    assert_eq!(refused, Fork { at: 1, left: chain[1].id(), right: fork[1].id() });
}

#[test]
fn a_fold_can_be_restored_from_its_parts_and_continued() {
    let (mut job, first) = created();
    append(&mut job, Event::Started);
    let start = StepStart { step: 3, job: JobId::new(2, [2; 10]), record: first.id(), venue: None };
    append(&mut job, Event::Noted(Note::Step { started: vec![start], ended: vec![] }));
    append(&mut job, Event::Paused);
    append(&mut job, Event::Noted(Note::Held(Some(Outcome::failed("late")))));
    let mut restored = Job::from_parts(job.to_parts());
    assert_eq!(restored.to_value(), job.to_value());
    for job in [&mut job, &mut restored] {
        append(job, Event::Resumed);
        append(job, Outcome::failed("late").event());
    }
    assert_eq!(restored.head(), job.head());
    assert_eq!(restored.steps(), job.steps());
}
