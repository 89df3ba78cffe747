//! Compares the histories of one job on two venues.

use catena_api::wire::{member, text};
use catena_value::{NoCells, Value, Vector};

use crate::exit::Exit;
use crate::output::Failure;

/// Fails with the first record in which two histories differ. `other` names the second venue.
pub(super) fn compare(first: &Value, second: &Value, other: &str) -> Result<(), Failure> {
    let ours = records(first);
    let theirs = records(second);
    let ours_len = ours.len();
    let theirs_len = theirs.len();
    let pairs = ours.iter(&NoCells).flatten().zip(theirs.iter(&NoCells).flatten());
    for (at, (ours, theirs)) in (0u64..).zip(pairs) {
        if let Some(difference) = difference(&ours, &theirs, other) {
            return Err(differs(at, &difference));
        }
    }
    let missing = |count: u64, total: u64, venue: &str| {
        format!("it is missing at {venue}, which has {count} of {total} records")
    };
    match ours_len.cmp(&theirs_len) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => {
            Err(differs(theirs_len, &missing(theirs_len, ours_len, other)))
        }
        std::cmp::Ordering::Less => {
            Err(differs(ours_len, &missing(ours_len, theirs_len, "the first venue")))
        }
    }
}

fn records(history: &Value) -> Vector {
    member(history, "records").and_then(Value::as_vector).cloned().unwrap_or_default()
}

/// How two entries differ; `None` if they are the same. IDs are recomputed and not trusted.
fn difference(ours: &Value, theirs: &Value, other: &str) -> Option<String> {
    let id = |entry: &Value| member(entry, "record").map(|record| record.id().to_string());
    let claimed = |entry: &Value| member(entry, "id").and_then(text);
    let our_id = id(ours).unwrap_or_default();
    let their_id = id(theirs).unwrap_or_default();
    if our_id == their_id && claimed(theirs).as_deref() == Some(&*their_id) {
        return None;
    }
    Some(if our_id == their_id {
        format!("{other} returns it with a wrong ID")
    } else if claimed(ours) == claimed(theirs) {
        format!("{other} returns another record with the same ID {our_id}")
    } else {
        format!("it is {our_id} at the first venue and {their_id} at {other}")
    })
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

    /// A history of these records, each with its own ID.
    fn history(records: &[&str]) -> Value {
        let entry = |text: &&str| format!(r#"{{"id":"{}","record":{text}}}"#, value(text).id());
        let entries: Vec<_> = records.iter().map(entry).collect();
        value(&format!(r#"{{"records":[{}]}}"#, entries.join(",")))
    }

    fn error_of(first: &Value, second: &Value) -> String {
        format!("{:?}", compare(first, second, "http://b").unwrap_err())
    }

    #[test]
    fn the_first_record_that_differs_is_reported() {
        let a = history(&[r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
        assert!(compare(&a, &a, "http://b").is_ok());
        let b = history(&[r#"{"n":0}"#, r#"{"n":9}"#, r#"{"n":2}"#]);
        assert!(error_of(&a, &b).contains("record 1 differs: it is 0x"), "{}", error_of(&a, &b));
        let short = history(&[r#"{"n":0}"#]);
        assert!(error_of(&a, &short).contains("record 1 differs: it is missing at http://b"));
        assert!(error_of(&short, &a).contains("missing at the first venue, which has 1 of 3"));
    }

    #[test]
    fn ids_are_recomputed_and_not_trusted() {
        let a = history(&[r#"{"n":0}"#]);
        let forged = value(&json::to_string(&a).unwrap().replace(r#""n":0"#, r#""n":1"#));
        assert!(error_of(&a, &forged).contains("another record with the same ID"));
        let id = value(r#"{"n":0}"#).id().to_string();
        let renamed = value(&json::to_string(&a).unwrap().replace(&id, "0x00"));
        assert!(error_of(&a, &renamed).contains("with a wrong ID"));
    }
}
