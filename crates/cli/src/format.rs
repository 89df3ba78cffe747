//! Text forms of jobs, times and tables.

use catena_api::wire::{member, text};
use catena_value::{Value, json};

use crate::output::printable;

/// A text member of an object; empty if there is none.
pub(crate) fn text_of(value: &Value, name: &str) -> String {
    member(value, name).and_then(text).unwrap_or_default()
}

/// The ID of a job.
pub(crate) fn id_of(job: &Value) -> String {
    // Some venues list bare IDs.
    text(job).unwrap_or_else(|| text_of(job, "id"))
}

/// The status of a job.
pub(crate) fn status_of(job: &Value) -> String {
    text_of(job, "status")
}

/// The reason of a job's status: why it failed, or what it waits for. `None` if it gives none.
pub(crate) fn reason_of(job: &Value) -> Option<String> {
    let reason = ["error", "message"].into_iter().find_map(|name| {
        let value = member(job, name).filter(|value| !value.is_nil())?;
        Some(text(value).unwrap_or_else(|| json::to_string(value).unwrap_or_default()))
    });
    reason.map(|reason| printable(&reason).replace('\n', " "))
}

/// Why a job is as it is or, until it ends, why its last attempt failed.
pub(crate) fn latest_reason_of(job: &Value) -> Option<String> {
    let last = || {
        let reason = text(member(job, "lastError").filter(|value| !value.is_nil())?)?;
        Some(printable(&reason).replace('\n', " "))
    };
    reason_of(job).or_else(last)
}

/// The number of a job's attempt as a remark behind its status; empty if it is the first.
pub(crate) fn attempt_of(job: &Value) -> String {
    match member(job, "attempt").and_then(Value::as_i64) {
        Some(attempt) if attempt > 1 => format!(" (attempt {attempt})"),
        _ => String::new(),
    }
}

/// A member that is Unix time in ms, as a date in UTC; empty if there is none.
pub(crate) fn time_of(value: &Value, name: &str) -> String {
    let ms = member(value, name).and_then(Value::as_i64);
    ms.map(time).unwrap_or_default()
}

/// Unix time in ms as a date in UTC with milliseconds.
pub(crate) fn time(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => ms.to_string(),
    }
}

/// Rows as lines with aligned columns. The last column is not padded.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| chars(cell)).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or_default()).collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += &printable(cell).replace('\n', " ");
        line += &" ".repeat(width.saturating_sub(chars(cell)) + 2);
    }
    line.trim_end().to_owned()
}

fn chars(cell: &str) -> usize {
    printable(cell).chars().count()
}

/// Progress in percent, from bytes or else from items; `None` if there is neither. It is at most 99,
/// because 100 means that the job has ended.
pub(crate) fn percent(progress: &Value) -> Option<u8> {
    let share = |of: &Value, done: &str, total: &str| {
        let number = |name| member(of, name).and_then(Value::as_i64);
        let done = number(done)?;
        let total = number(total).filter(|total| *total > 0)?;
        u8::try_from((done.max(0).saturating_mul(100) / total).min(99)).ok()
    };
    let bytes =
        member(progress, "outputStats").and_then(|of| share(of, "bytesProcessed", "bytesTotal"));
    bytes.or_else(|| share(progress, "processedItems", "totalItems"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn progress_is_bytes_first_and_never_complete_before_the_end() {
        for (text, expected) in [
            (r#"{"processedItems":1,"totalItems":4}"#, Some(25)),
            (r#"{"processedItems":4,"totalItems":4}"#, Some(99)),
            (r#"{"processedItems":1,"totalItems":0}"#, None),
            (r#"{"processedItems":-5,"totalItems":5}"#, Some(0)),
            (
                r#"{"processedItems":1,"totalItems":4,"outputStats":{"bytesProcessed":1,"bytesTotal":2}}"#,
                Some(50),
            ),
            ("{}", None),
            ("7", None),
        ] {
            assert_eq!(percent(&value(text)), expected, "{text}");
        }
    }

    #[test]
    fn times_are_dates_and_tables_line_up() {
        assert_eq!(time(1_769_683_717_706), "2026-01-29T10:48:37.706Z");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
        let cells = |row: &[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        let rows = [cells(&["a", "bb", "c"]), cells(&["aaa", "\u{1b}[2J", ""])];
        assert_eq!(table(&rows), ["a    bb         c", "aaa  \\u{1b}[2J"]);
    }

    #[test]
    fn texts_of_a_job_cannot_control_the_terminal() {
        let job = value(r#"{"error":"bad\u001b[2Jthing\nmore","message":null}"#);
        assert_eq!(reason_of(&job).unwrap(), "bad\\u{1b}[2Jthing more");
        assert_eq!(reason_of(&value("{}")), None);
    }
}
