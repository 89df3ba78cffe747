//! Whether two venues tell the same history of a job.

use catena_api::wire::{member, text};
use catena_value::{NoCells, Value, Vector};

use crate::exit::Exit;
use crate::output::Failure;

/// Nothing when two histories have the same records; else the first in which they differ.
pub(super) fn compare(here: &Value, there: &Value, other: &str) -> Result<(), Failure> {
    let (ours, theirs) = (records(here), records(there));
    let (ours_len, theirs_len) = (ours.len(), theirs.len());
    let pairs = ours.iter(&NoCells).flatten().zip(theirs.iter(&NoCells).flatten());
    for (at, (ours, theirs)) in (0u64..).zip(pairs) {
        if let Some(difference) = difference(&ours, &theirs, other) {
            return Err(differs(at, &difference));
        }
    }
    let held = |count: u64, total: u64, place: &str| {
        format!("it is missing at {place}, which has {count} of {total} records")
    };
    match ours_len.cmp(&theirs_len) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(differs(theirs_len, &held(theirs_len, ours_len, other))),
        std::cmp::Ordering::Less => {
            Err(differs(ours_len, &held(ours_len, theirs_len, "the first venue")))
        }
    }
}

fn records(history: &Value) -> Vector {
    member(history, "records").and_then(Value::as_vector).cloned().unwrap_or_default()
}

/// In what two entries differ. IDs are computed, not believed.
fn difference(ours: &Value, theirs: &Value, other: &str) -> Option<String> {
    let id = |entry: &Value| member(entry, "record").map(|record| record.id().to_string());
    let claimed = |entry: &Value| member(entry, "id").and_then(text);
    let (our_id, their_id) = (id(ours).unwrap_or_default(), id(theirs).unwrap_or_default());
    if our_id == their_id && claimed(theirs).as_deref() == Some(&*their_id) {
        return None;
    }
    match our_id == their_id {
        true => Some(format!("{other} gives it under another ID than its own")),
        false if claimed(ours) == claimed(theirs) => {
            Some(format!("{other} gives another record under the same ID {our_id}"))
        }
        false => Some(format!("it is {our_id} here and {their_id} at {other}")),
    }
}

fn differs(record: u64, what: &str) -> Failure {
    let message = format!("the venues disagree: record {record} differs: {what}");
    let record = i64::try_from(record).unwrap_or(i64::MAX);
    Failure::new(Exit::VerificationFailed, "histories_differ", message).with("record", record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    /// A history of these records, each under its own ID.
    fn history(records: &[&str]) -> Value {
        let entry = |text: &&str| format!(r#"{{"id":"{}","record":{text}}}"#, value(text).id());
        let entries: Vec<_> = records.iter().map(entry).collect();
        value(&format!(r#"{{"records":[{}]}}"#, entries.join(",")))
    }

    fn told(here: &Value, there: &Value) -> String {
        format!("{:?}", compare(here, there, "http://b").unwrap_err())
    }

    #[test]
    fn the_first_record_that_differs_is_named() {
        let a = history(&[r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
        assert!(compare(&a, &a, "http://b").is_ok());
        let b = history(&[r#"{"n":0}"#, r#"{"n":9}"#, r#"{"n":2}"#]);
        assert!(told(&a, &b).contains("record 1 differs: it is 0x"), "{}", told(&a, &b));
        let short = history(&[r#"{"n":0}"#]);
        assert!(told(&a, &short).contains("record 1 differs: it is missing at http://b"));
        assert!(told(&short, &a).contains("missing at the first venue, which has 1 of 3"));
    }

    #[test]
    fn ids_are_computed_and_not_believed() {
        let a = history(&[r#"{"n":0}"#]);
        let forged = value(&json::to_string(&a).unwrap().replace(r#""n":0"#, r#""n":1"#));
        assert!(told(&a, &forged).contains("another record under the same ID"));
        let id = value(r#"{"n":0}"#).id().to_string();
        let renamed = value(&json::to_string(&a).unwrap().replace(&id, "0x00"));
        assert!(told(&a, &renamed).contains("under another ID than its own"));
    }
}
