//! Hand-written histories: what verification reports for each kind of fault, and for trees of jobs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_job::chain::{Change, Job, NewJob};
use catena_job::note::{Note, StepEnd, StepStart};
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::verify::{Code, Expected, verify};
use catena_job::{JobId, Record, RecordId, Status};
use catena_value::{Map, Value, json};

const VENUE: &str = "did:key:z6MkVenue";

/// A history from records written by hand; `prev` and the IDs are filled in.
fn history(records: &[&str]) -> Value {
    let mut prev = "null".to_owned();
    let mut entries = Vec::new();
    for record in records {
        let record = record.replace("PREV", &prev);
        let id = json::read(record.as_bytes()).unwrap().id();
        prev = format!("\"{id}\"");
        entries.push(format!(r#"{{"id":{prev},"record":{record}}}"#));
    }
    let text = format!(r#"{{"records":[{}],"total":{}}}"#, entries.join(","), entries.len());
    json::read(text.as_bytes()).unwrap()
}

const FIRST: &str = r#"{"status":"PENDING","prev":PREV,"updated":10,"created":10,"id":"0x019c095e8e4a70000000000000000001","venue":"did:key:z6MkVenue","op":"test:echo","input":{"text":"hello"},"caller":"did:key:z6MkCaller","operation":"ab"}"#;
const STARTED: &str = r#"{"status":"STARTED","prev":PREV,"updated":11}"#;
const COMPLETE: &str = r#"{"status":"COMPLETE","prev":PREV,"updated":12,"output":null}"#;

#[track_caller]
fn check(records: &[&str], expected: &str) {
    let found = match verify(&history(records), &Expected::default()) {
        Ok(report) => format!("{} after {}", report.status, report.records),
        Err(fault) => format!("{}: {fault}", fault.code.as_str()),
    };
    assert_eq!(found, expected);
}

#[test]
fn a_complete_history_verifies() {
    check(&[FIRST, STARTED, COMPLETE], "COMPLETE after 3");
    check(&[FIRST], "PENDING after 1");
}

#[test]
fn a_chain_must_say_which_job_of_which_venue_it_is() {
    for name in ["id", "venue", "op", "caller", "created"] {
        let first = FIRST.replace(&format!("\"{name}\":"), &format!("\"x{name}\":"));
        check(&[&first], &format!("bad_start: record 0: `{name}` is missing"));
    }
    let first = FIRST.replace("0x019c", "0x01zz");
    check(&[&first], "bad_start: record 0: `id` must be a job ID");
    check(&[STARTED], "bad_start: record 0: a chain cannot start with status STARTED");
    check(&[], "bad_start: the history has no records");
}

#[test]
fn later_records_cannot_change_what_the_job_is() {
    let other = r#"{"status":"STARTED","prev":PREV,"updated":11,"venue":"did:key:other"}"#;
    check(
        &[FIRST, other],
        "binding: record 1: `venue` is part of the job's identity and cannot change",
    );
    let same = r#"{"status":"STARTED","prev":PREV,"updated":11,"venue":"did:key:z6MkVenue","op":"test:echo"}"#;
    check(&[FIRST, same], "STARTED after 2");
}

#[test]
fn only_the_table_decides_what_may_follow() {
    check(
        &[FIRST, COMPLETE],
        "illegal_transition: record 1: status COMPLETE cannot follow PENDING",
    );
    let rejected = r#"{"status":"REJECTED","prev":PREV,"updated":11,"error":"no"}"#;
    check(&[FIRST, rejected], "REJECTED after 2");
    check(
        &[FIRST, STARTED, rejected],
        "illegal_transition: record 2: status REJECTED cannot follow STARTED",
    );
    let pending = r#"{"status":"PENDING","prev":PREV,"updated":12}"#;
    check(
        &[FIRST, STARTED, pending],
        "illegal_transition: record 2: status PENDING cannot follow STARTED",
    );
}

#[test]
fn an_ending_says_how_it_ended_and_is_the_end() {
    let bare = r#"{"status":"COMPLETE","prev":PREV,"updated":12}"#;
    check(&[FIRST, STARTED, bare], "malformed_record: record 2: `output` is missing");
    for status in ["FAILED", "CANCELLED", "TIMEOUT"] {
        let bare = format!(r#"{{"status":"{status}","prev":PREV,"updated":12}}"#);
        check(&[FIRST, STARTED, &bare], "malformed_record: record 2: `error` is missing");
    }
    let again = r#"{"status":"STARTED","prev":PREV,"updated":13}"#;
    check(
        &[FIRST, STARTED, COMPLETE, again],
        "finality: record 3: the job has already ended as COMPLETE; no record may follow",
    );
}

#[test]
fn time_never_runs_backwards() {
    let early = r#"{"status":"STARTED","prev":PREV,"updated":9}"#;
    check(
        &[FIRST, early],
        "time_reversed: record 1: `updated` is 9, which is earlier than 10 in the previous record",
    );
    let same = r#"{"status":"STARTED","prev":PREV,"updated":10}"#;
    check(&[FIRST, same], "STARTED after 2");
    let first = FIRST.replace("\"created\":10", "\"created\":11");
    check(&[&first], "bad_start: record 0: `created` must be a time that is not after `updated`");
}

#[test]
fn annotations_keep_to_their_rules() {
    let note = |rest: &str| format!(r#"{{"status":"STARTED","prev":PREV,"updated":12{rest}}}"#);
    let check = |rest: &str, expected: &str| check(&[FIRST, STARTED, &note(rest)], expected);
    check(r#","note":{"kind":"attempt","attempt":2}"#, "STARTED after 3");
    check("", "bad_annotation: record 2: the record keeps status STARTED but has no `note`");
    check(
        r#","note":{"kind":"held","outcome":{"status":"FAILED","error":"x"}}"#,
        "bad_annotation: record 2: a note of kind held is not allowed while the job is STARTED",
    );
    check(
        r#","note":{"kind":"gossip"}"#,
        "malformed_record: record 2: `note.kind` must be one of step, call, attempt, message, held, recovered",
    );
    check(
        r#","note":{"kind":"attempt","attempt":2},"output":1"#,
        "bad_annotation: record 2: a note of kind attempt cannot set \"output\"",
    );
    check(
        r#","note":{"kind":"message"},"output":1,"message":"m","trigger":{"messageId":"a","from":"did:x"}"#,
        "STARTED after 3",
    );
    check(r#","note":{"kind":"message"},"by":"did:x","deadline":99"#, "STARTED after 3");
    check(
        r#","note":{"kind":"message"},"tags":["x"]"#,
        "bad_annotation: record 2: a note of kind message cannot set \"tags\"",
    );
}

#[test]
fn a_change_of_status_has_no_note() {
    let failed =
        r#"{"status":"FAILED","prev":PREV,"updated":12,"error":"x","note":{"kind":"message"}}"#;
    check(
        &[FIRST, STARTED, failed],
        "bad_annotation: record 2: a record that changes the status cannot have a `note`",
    );
    let first = FIRST.replace("\"op\":", "\"note\":{\"kind\":\"message\"},\"op\":");
    check(&[&first], "bad_annotation: record 0: the first record cannot be an annotation");
}

#[test]
fn a_resumed_job_carries_on_with_what_was_held() {
    let paused = r#"{"status":"PAUSED","prev":PREV,"updated":12}"#;
    let held = r#"{"status":"PAUSED","prev":PREV,"updated":12,"note":{"kind":"held","outcome":{"status":"COMPLETE","output":7}}}"#;
    let resumed = r#"{"status":"STARTED","prev":PREV,"updated":13}"#;
    let chain = [FIRST, STARTED, paused, held, resumed];
    let with = |last: &'static str| [&chain[..], &[last]].concat();
    check(
        &with(r#"{"status":"COMPLETE","prev":PREV,"updated":13,"output":7}"#),
        "COMPLETE after 6",
    );
    check(
        &with(r#"{"status":"COMPLETE","prev":PREV,"updated":13,"output":8}"#),
        "illegal_transition: record 5: this record must carry the COMPLETE outcome that was held during the pause",
    );
    check(
        &chain,
        "incomplete: record 5: the job was resumed, but its held outcome COMPLETE is missing",
    );
}

#[test]
fn a_document_that_is_not_a_history_is_refused() {
    let refused = |text: &str| {
        let document = json::read(text.as_bytes()).unwrap();
        verify(&document, &Expected::default()).unwrap_err().to_string()
    };
    assert_eq!(refused("[]"), "not a history document: expected an object with `records`");
    assert_eq!(refused("{}"), "not a history document: `records` is missing");
    assert_eq!(refused(r#"{"records":{}}"#), "not a history document: `records` must be an array");
    assert_eq!(
        refused(r#"{"records":[1]}"#),
        "record 0: expected an object with `id` and `record`"
    );
    assert_eq!(refused(r#"{"records":[{"id":1}]}"#), "record 0: `id` must be a string");
    assert_eq!(
        refused(r#"{"records":[],"total":-1}"#),
        "not a history document: `total` must be a whole number of at least 0"
    );
}

#[test]
fn a_cut_history_is_incomplete() {
    let complete = history(&[FIRST, STARTED]);
    let refused_with = |name: &str, value: Value| {
        let map =
            complete.as_map().unwrap().insert(name.into(), value, &catena_value::NoCells).unwrap();
        verify(&map.into(), &Expected::default()).unwrap_err().to_string()
    };
    assert_eq!(refused_with("total", 3.into()), "record 2: the history has 2 of 3 records");
    assert_eq!(
        refused_with("next", 2.into()),
        "record 2: the history has 2 records and says that more follow"
    );
}

#[test]
fn what_was_expected_is_compared() {
    let complete = history(&[FIRST]);
    let other = JobId::new(5, [5; 10]);
    let refused = |expected: Expected| {
        let fault = verify(&complete, &expected).unwrap_err();
        assert_eq!(fault.code, Code::Unexpected);
        fault.to_string()
    };
    let job = Expected { job: Some(other), ..Default::default() };
    assert_eq!(
        refused(job),
        format!("expected job {other}, found 0x019c095e8e4a70000000000000000001")
    );
    let venue = Expected { venue: Some("did:key:other".into()), ..Default::default() };
    assert_eq!(refused(venue), "expected venue did:key:other, found did:key:z6MkVenue");
    let head = RecordId::new(Value::Nil.id());
    assert!(
        refused(Expected { head: Some(head), ..Default::default() }).starts_with("expected head")
    );
}

/// A parent of two steps and the histories of both, as one document.
struct Tree {
    parent: Vec<Record>,
    children: Vec<(JobId, Vec<Record>)>,
}

fn new_job(id: JobId, parent: Option<Parent>) -> NewJob {
    NewJob {
        id,
        venue: VENUE.into(),
        op: "test:echo".into(),
        operation: None,
        input: Value::Nil,
        caller: "did:key:z6MkCaller".into(),
        parent,
        extra: vec![],
    }
}

fn run_child(id: JobId, parent: Option<Parent>) -> Vec<Record> {
    let (mut job, first) = Job::create(new_job(id, parent), 20, None).unwrap();
    let started = job.append(Change::new(Event::Started, 21)).unwrap();
    let finished = Event::Finished { output: Value::Nil };
    vec![first, started, job.append(Change::new(finished, 22)).unwrap()]
}

fn tree(children: Vec<(JobId, Vec<Record>)>) -> Tree {
    let (mut job, first) = Job::create(new_job(JobId::new(1, [1; 10]), None), 10, None).unwrap();
    let mut parent = vec![first, job.append(Change::new(Event::Started, 11)).unwrap()];
    let started = children.iter().zip(0..).map(|((id, records), step)| StepStart {
        step,
        job: *id,
        record: records[0].id(),
        venue: None,
    });
    let ended = children.iter().zip(0..).map(|((_, records), step)| {
        let last = records.last().unwrap();
        StepEnd { step, status: last.status(), record: last.id() }
    });
    let note = Note::Step { started: started.collect(), ended: ended.collect() };
    parent.push(job.append(Change::new(Event::Noted(note), 23)).unwrap());
    let finished = Event::Finished { output: Value::Nil };
    parent.push(job.append(Change::new(finished, 24)).unwrap());
    Tree { parent, children }
}

fn document(records: &[Record], children: &[(JobId, Vec<Record>)]) -> Value {
    let entry = |record: &Record| -> Value {
        let fields = [("id", Value::from(record.id())), ("record", record.to_value())];
        fields.into_iter().collect::<Map>().into()
    };
    let records: catena_value::Vector = records.iter().map(entry).collect();
    let child = |(id, records): &(JobId, Vec<Record>)| (Value::from(*id), document(records, &[]));
    let children: Map = children.iter().map(child).collect();
    let fields = [("records", Value::from(records)), ("children", children.into())];
    fields.into_iter().collect::<Map>().into()
}

fn ids() -> [JobId; 2] {
    [JobId::new(2, [2; 10]), JobId::new(3, [3; 10])]
}

fn complete_tree() -> Tree {
    let parent = |step| Some(Parent::of_step(JobId::new(1, [1; 10]), step));
    let [a, b] = ids();
    tree(vec![(a, run_child(a, parent(0))), (b, run_child(b, parent(1)))])
}

#[test]
fn verifying_a_parent_verifies_its_tree() {
    let tree = complete_tree();
    let report = verify(&document(&tree.parent, &tree.children), &Expected::default()).unwrap();
    assert_eq!((report.subjobs_verified, report.subjobs_unavailable), (2, 0));
    let report =
        verify(&document(&tree.parent, &tree.children[..1]), &Expected::default()).unwrap();
    assert_eq!((report.subjobs_verified, report.subjobs_unavailable), (1, 1));
}

#[test]
fn a_sub_job_that_is_not_what_the_parent_committed_to_is_found() {
    let tree = complete_tree();
    let [a, b] = ids();
    let refused = |children: &[(JobId, Vec<Record>)]| {
        let fault = verify(&document(&tree.parent, children), &Expected::default()).unwrap_err();
        (fault.subjob, fault.record, fault.code)
    };
    // Its history is cut short.
    let cut = vec![(a, tree.children[0].1[..2].to_vec())];
    assert_eq!(refused(&cut), (Some(a), Some(1), Code::Commitment));
    // Another job's history under its name.
    let swapped = vec![(a, tree.children[1].1.clone())];
    assert_eq!(refused(&swapped), (Some(a), None, Code::Unexpected));
    // Another run of the same job.
    let parent = Some(Parent::of_step(JobId::new(1, [1; 10]), 1));
    let (mut job, first) = Job::create(new_job(b, parent), 99, None).unwrap();
    let rerun = vec![first, job.append(Change::new(Event::Started, 99)).unwrap()];
    assert_eq!(refused(&[(b, rerun)]), (Some(b), Some(0), Code::Commitment));
    // A record of it was changed.
    let mut records = tree.children[1].1.clone();
    records.swap(1, 2);
    assert_eq!(refused(&[(b, records)]), (Some(b), Some(1), Code::BrokenLink));
}

#[test]
fn a_sub_job_names_its_parent() {
    let [a, _] = ids();
    let orphan = tree(vec![(a, run_child(a, None))]);
    let fault =
        verify(&document(&orphan.parent, &orphan.children), &Expected::default()).unwrap_err();
    let parent = JobId::new(1, [1; 10]);
    let expected = format!("sub-job {a}, record 0: `parent` must name step 0 of job {parent}");
    assert_eq!(fault.to_string(), expected);
    assert_eq!(orphan.parent.last().unwrap().status(), Status::Complete);
}

/// A rerun that claims to have reused the output of step 0 and runs the steps in `starts`. `outputs`
/// are the outputs that its first record carries.
fn rerun_of(earlier: &[Record], outputs: Option<Vec<Value>>, starts: &[u32]) -> Vec<Record> {
    let claim: Map = [
        ("step", Value::from(0)),
        ("job", JobId::new(2, [2; 10]).into()),
        ("record", earlier.last().unwrap().id().into()),
    ]
    .into_iter()
    .collect();
    let list = |values: Vec<Value>| Value::from(catena_value::Vector::from_items(values));
    let mut new = new_job(JobId::new(9, [9; 10]), None);
    new.extra.push(("reused", list(vec![claim.into()])));
    new.extra.extend(outputs.map(|outputs| ("reusedOutputs", list(outputs))));
    let (mut job, first) = Job::create(new, 30, None).unwrap();
    let mut records = vec![first, job.append(Change::new(Event::Started, 31)).unwrap()];
    for step in starts {
        let id = JobId::new(u64::from(*step), [4; 10]);
        let record = RecordId::new(Value::from(*step).id());
        let start = StepStart { step: *step, job: id, record, venue: None };
        let note = Note::Step { started: vec![start], ended: vec![] };
        records.push(job.append(Change::new(Event::Noted(note), 32)).unwrap());
    }
    records
}

fn earlier_step(step: u32) -> (JobId, Vec<Record>) {
    let id = JobId::new(2, [2; 10]);
    (id, run_child(id, Some(Parent::of_step(JobId::new(1, [1; 10]), step))))
}

#[test]
fn a_rerun_that_starts_a_step_it_claims_to_have_reused_is_refused() {
    let (_, earlier) = earlier_step(0);
    let verified = |outputs: Option<Vec<Value>>, starts: &[u32]| {
        let records = rerun_of(&earlier, outputs, starts);
        verify(&document(&records, &[]), &Expected::default())
    };
    assert!(verified(Some(vec![Value::Nil]), &[1]).is_ok());
    let fault = verified(Some(vec![Value::Nil]), &[1, 0]).unwrap_err();
    assert_eq!((fault.record, fault.code), (Some(3), Code::Commitment));
    assert_eq!(fault.to_string(), "record 3: step 0 starts although its output was reused");
    // Venues that wrote no outputs could run the step after all.
    assert!(verified(None, &[1, 0]).is_ok());
    let fault = verified(Some(vec![]), &[]).unwrap_err();
    assert_eq!((fault.record, fault.code), (Some(0), Code::MalformedRecord));
}

#[test]
fn what_a_rerun_reused_is_compared_with_the_earlier_run() {
    let (id, earlier) = earlier_step(0);
    let records = rerun_of(&earlier, Some(vec![Value::Nil]), &[]);
    let check = |records: &[Record], children: &[(JobId, Vec<Record>)]| {
        verify(&document(records, children), &Expected::default())
    };
    let report = check(&records, &[]).unwrap();
    assert_eq!((report.subjobs_verified, report.subjobs_unavailable), (0, 1));
    let report = check(&records, &[(id, earlier.clone())]).unwrap();
    assert_eq!((report.subjobs_verified, report.subjobs_unavailable), (1, 0));
    let refused = |records: &[Record], child: &[Record]| {
        let fault = check(records, &[(id, child.to_vec())]).unwrap_err();
        assert_eq!((fault.subjob, fault.code), (Some(id), Code::Commitment));
        fault.reason
    };
    // Its history is cut short, is that of another step, or has another output.
    assert!(refused(&records, &earlier[..2]).contains("as the last record"));
    let other = rerun_of(&earlier, Some(vec![Value::from(7)]), &[]);
    assert!(refused(&other, &earlier).contains("another output"));
    let (_, step_one) = earlier_step(1);
    let other = rerun_of(&step_one, Some(vec![Value::Nil]), &[]);
    assert!(refused(&other, &step_one).contains("`parent` must name step 0"));
    // Chains without outputs are compared with the earlier run, too.
    let without = rerun_of(&earlier, None, &[]);
    assert_eq!(check(&without, &[(id, earlier.clone())]).unwrap().subjobs_verified, 1);
    assert!(refused(&without, &earlier[..2]).contains("as the last record"));
}
