//! Properties of every history: a real one verifies, a tampered one does not, and the fault is
//! reported at the record that was changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_job::chain::{Change, Job, NewJob};
use catena_job::note::{Attempt, Note, Outcome, StepEnd, StepStart};
use catena_job::record::Parent;
use catena_job::state::{Ask, Event};
use catena_job::verify::{Code, Expected, Fault, verify};
use catena_job::vocabulary::{Phase, State};
use catena_job::{JobId, Record, RecordId, Status};
use catena_value::{Map, Value, Vector, json};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn new_job(parent: Option<Parent>) -> NewJob {
    NewJob {
        id: JobId::new(1_769_683_717_706, [7; 10]),
        venue: "did:key:z6MkVenue".into(),
        op: "test:echo".into(),
        operation: Some("cd".repeat(32).into()),
        input: json::read(br#"{"text":"hello","n":[1,2.5,null]}"#).unwrap(),
        caller: "did:key:z6MkCaller".into(),
        parent,
        extra: vec![],
    }
}

/// An event from a number, not necessarily one that is allowed.
fn event(pick: u8, job: &Job) -> Event {
    let text = || format!("because of {pick}");
    let ask = Ask { message: Some(text()), output: (pick & 1 == 0).then(|| Value::from(text())) };
    let step = job.steps().len() as u32;
    let open = job.steps().iter().find(|(_, state)| state.end.is_none()).map(|(step, _)| *step);
    let record = RecordId::new(Value::from(text()).id());
    match pick % 18 {
        0..=2 => Event::Started,
        3 => Event::Refused { error: text() },
        4 => Event::Finished { output: text().into() },
        5 => Event::Erred { error: text() },
        6 | 7 => Event::AskedForInput(ask),
        8 => Event::AskedForAuth(ask),
        9 => Event::Paused,
        10 => Event::Resumed,
        11 => Event::Answered,
        12 => Event::Cancelled { error: text() },
        13 => Event::Expired { error: text() },
        14 => {
            let attempt = Some(job.attempt() + 1);
            let note = Attempt { attempt, reason: Some(text()), ..Attempt::default() };
            Event::Noted(Note::Attempt(note))
        }
        15 => Event::Noted(Note::Held(Some(Outcome::complete(text().into())))),
        16 => Event::Noted(Note::Recovered {
            attempt: Some(job.attempt() + 1),
            reason: None,
            interruptions: None,
        }),
        _ => Event::Noted(match open {
            Some(step) => {
                let ended = vec![StepEnd { step, status: Status::Complete, record }];
                Note::Step { started: vec![], ended }
            }
            None => {
                let sub = JobId::new(u64::from(step), [step as u8; 10]);
                let started = vec![StepStart { step, job: sub, record, venue: None }];
                Note::Step { started, ended: vec![] }
            }
        }),
    }
}

/// The chain made by those of these events that are allowed.
fn chain(picks: &[u8]) -> Vec<Record> {
    let (mut job, first) = Job::create(new_job(None), 1_769_683_717_706, None).unwrap();
    let mut records = vec![first];
    for (at, pick) in picks.iter().enumerate() {
        let event = match job.due() {
            Some(due) => due.clone().event(),
            None => event(*pick, &job),
        };
        let mut change = Change::new(event, 1_769_683_717_706 + at as i64 * i64::from(*pick));
        change.by = (pick % 5 == 0 && !matches!(change.event, Event::Noted(_)))
            .then(|| "did:key:z6MkClient".to_owned());
        if let Ok(record) = job.append(change) {
            records.push(record);
        }
    }
    if let Some(due) = job.due().cloned() {
        records.push(job.append(Change::new(due.event(), 0)).unwrap());
    }
    records
}

/// The entries of a history document.
fn entries(records: &[Record]) -> Vec<Value> {
    let entry = |record: &Record| entry(&record.id().to_string(), record.to_value());
    records.iter().map(entry).collect()
}

fn entry(id: &str, record: Value) -> Value {
    [("id", Value::from(id)), ("record", record)].into_iter().collect::<Map>().into()
}

fn document(entries: Vec<Value>, total: usize) -> Value {
    let fields = [
        ("records", Value::from(Vector::from_items(entries))),
        ("total", Value::from(total as i64)),
    ];
    fields.into_iter().collect::<Map>().into()
}

fn check(entries: Vec<Value>, total: usize) -> Result<(), Fault> {
    verify(&document(entries, total), &Expected::default()).map(drop)
}

fn picks() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_history_that_happened_verifies(picks in picks()) {
        let records = chain(&picks);
        let total = records.len();
        // Through JSON text, as another party would receive it.
        let text = json::to_string(&document(entries(&records), total)).unwrap();
        let document = json::read(text.as_bytes()).unwrap();
        let head = records.last().unwrap();
        let expected = Expected {
            job: Some(JobId::new(1_769_683_717_706, [7; 10])),
            venue: Some("did:key:z6MkVenue".into()),
            head: Some(head.id()),
        };
        let report = verify(&document, &expected).unwrap();
        prop_assert_eq!(report.records, total as u64);
        prop_assert_eq!(report.status, head.status());
        prop_assert_eq!(report.head, head.id());
    }

    #[test]
    fn a_changed_field_is_found_in_its_record(picks in picks(), at in any::<Index>(), member in any::<Index>()) {
        let records = chain(&picks);
        let at = at.index(records.len());
        let fields = records[at].fields().clone();
        let names = fields.fields();
        let (name, value) = names[member.index(names.len())];
        let changed = if *value == Value::from("changed") { Value::Nil } else { "changed".into() };
        let map = fields.insert(name.clone(), changed, &catena_value::NoCells).unwrap();
        let mut tampered = entries(&records);
        tampered[at] = entry(&records[at].id().to_string(), map.into());
        let fault = check(tampered, records.len()).unwrap_err();
        prop_assert_eq!((fault.record, fault.code), (Some(at as u64), Code::HashMismatch));
    }

    #[test]
    fn a_changed_record_with_a_new_id_breaks_its_own_rules_or_the_next_link(
        picks in picks(), at in any::<Index>(), extra in any::<i64>(),
    ) {
        let records = chain(&picks);
        let at = at.index(records.len());
        let map = records[at].fields().insert("extra".into(), extra.into(), &catena_value::NoCells).unwrap();
        let id = Value::from(map.clone()).id().to_string();
        let mut tampered = entries(&records);
        tampered[at] = entry(&id, map.into());
        let last = at + 1 == records.len();
        let expected = Expected { head: Some(records.last().unwrap().id()), ..Default::default() };
        let fault = verify(&document(tampered, records.len()), &expected).unwrap_err();
        if fault.code == Code::BadAnnotation {
            prop_assert_eq!(fault.record, Some(at as u64));
        } else if last {
            prop_assert_eq!(fault.code, Code::Unexpected);
        } else {
            prop_assert_eq!((fault.record, fault.code), (Some(at as u64 + 1), Code::BrokenLink));
        }
    }

    #[test]
    fn a_changed_id_is_found(picks in picks(), at in any::<Index>()) {
        let records = chain(&picks);
        let at = at.index(records.len());
        let mut tampered = entries(&records);
        let other = Value::from("other").id().to_string();
        tampered[at] = entry(&other, records[at].to_value());
        let fault = check(tampered, records.len()).unwrap_err();
        prop_assert_eq!((fault.record, fault.code), (Some(at as u64), Code::HashMismatch));
    }

    #[test]
    fn a_missing_record_is_found(picks in picks(), at in any::<Index>()) {
        let records = chain(&picks);
        let at = at.index(records.len());
        let mut tampered = entries(&records);
        tampered.remove(at);
        let fault = check(tampered, records.len()).unwrap_err();
        let code = match at {
            _ if at + 1 == records.len() && records.len() == 1 => Code::Incomplete,
            0 => Code::BadStart,
            _ if at + 1 == records.len() => Code::Incomplete,
            _ => Code::BrokenLink,
        };
        prop_assert_eq!((fault.record, fault.code), (Some(at as u64), code));
    }

    #[test]
    fn a_repeated_record_is_found(picks in picks(), at in any::<Index>(), to in any::<Index>()) {
        let records = chain(&picks);
        let at = at.index(records.len());
        let mut tampered = entries(&records);
        let to = at + 1 + to.index(records.len() - at);
        tampered.insert(to, tampered[at].clone());
        let fault = check(tampered, records.len() + 1).unwrap_err();
        prop_assert_eq!((fault.record, fault.code), (Some(to as u64), Code::Duplicate));
    }

    #[test]
    fn reordered_records_are_found(picks in vec(any::<u8>(), 10..60), a in any::<Index>(), b in any::<Index>()) {
        let records = chain(&picks);
        let (a, b) = (a.index(records.len()), b.index(records.len()));
        prop_assume!(a != b);
        let mut tampered = entries(&records);
        tampered.swap(a, b);
        let fault = check(tampered, records.len()).unwrap_err();
        prop_assert_eq!(fault.record, Some(a.min(b) as u64), "{}", fault);
    }

    #[test]
    fn two_futures_of_one_record_are_a_fork(picks in vec(any::<u8>(), 10..60), at in any::<Index>()) {
        let records = chain(&picks);
        prop_assume!(records.len() > 2);
        // Cancel the job as it was after some record, and add that to its real history.
        let at = at.index(records.len() - 2);
        let mut earlier = Job::fold(&records[..=at]).unwrap().unwrap();
        prop_assume!(earlier.due().is_none());
        let change = Change::new(Event::Cancelled { error: "another future".into() }, i64::MAX);
        let other = earlier.append(change).unwrap();
        let mut tampered = entries(&records[..=at + 1]);
        tampered.extend(entries(&[other]));
        let fault = check(tampered, at + 3).unwrap_err();
        prop_assert_eq!((fault.record, fault.code), (Some(at as u64 + 2), Code::Fork));
    }

    #[test]
    fn contract_status_never_moves_backwards(picks in picks(), phases in vec(0usize..3, 60)) {
        let records = chain(&picks);
        let mut job = Job::from_first_record(&records[0]).unwrap();
        // A contract job is queued in the commit that creates it.
        let state = |job: &Job, phase| State { status: job.status(), phase, has_started: job.has_started() };
        let mut reached = state(&job, Phase::Queued).contract();
        for (record, phase) in records[1..].iter().zip(phases) {
            job.follow(record).unwrap();
            let phase = [Phase::Queued, Phase::Queued, Phase::Leased][phase];
            let now = state(&job, phase).contract();
            prop_assert!(now >= reached, "{} after {}", now.as_str(), reached.as_str());
            reached = now;
        }
    }
}

/// A pseudo-random byte from a number.
fn mixed(seed: u64) -> u8 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_be_bytes()[0]
}

/// Every pair of statuses that the table allows occurs in the chains these tests make.
#[test]
fn every_allowed_transition_is_exercised() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..4_000u32 {
        let picks: Vec<u8> = (0..40).map(|i| mixed(u64::from(seed) << 8 | i)).collect();
        let records = chain(&picks);
        for pair in records.windows(2) {
            seen.insert((pair[0].status().as_str(), pair[1].status().as_str()));
        }
    }
    let mut expected = std::collections::BTreeSet::new();
    for (from, to) in [
        ("PENDING", "PENDING STARTED REJECTED PAUSED CANCELLED TIMEOUT"),
        (
            "STARTED",
            "STARTED COMPLETE FAILED INPUT_REQUIRED AUTH_REQUIRED PAUSED CANCELLED TIMEOUT",
        ),
        ("PAUSED", "PAUSED STARTED CANCELLED TIMEOUT"),
        ("INPUT_REQUIRED", "INPUT_REQUIRED STARTED PAUSED CANCELLED TIMEOUT"),
        ("AUTH_REQUIRED", "AUTH_REQUIRED STARTED PAUSED CANCELLED TIMEOUT"),
    ] {
        expected.extend(to.split(' ').map(|to| (from, to)));
    }
    assert_eq!(seen, expected);
}
