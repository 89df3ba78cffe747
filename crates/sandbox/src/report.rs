//! Reads the report of a cell. Everything in it was written by untrusted code.
//!
//! A report is `CR1\n`, the length of a header and of a result as big-endian `u32`, the header as
//! JSON, and the result as JSON. Reports of progress may come before it, each `CP1\n` and two `u64`. Only the first message is looked at; what does not parse exactly is
//! malformed, and nothing of it is used.

use serde_json::Value;

use crate::control::Progress;
use crate::limits::{MESSAGE_BYTES_MAX, REPORT_HEADER_BYTES_MAX, TRACEBACK_BYTES_MAX};
use crate::outcome::{Report, ReportState, ReportedError};

const MAGIC: &[u8; 4] = b"CR1\n";
const PREFIX: usize = 12;
const PROGRESS_MAGIC: &[u8; 4] = b"CP1\n";
const PROGRESS_BYTES: usize = 20;

/// Collects the bytes of a report as they arrive.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    result_max: usize,
    progress: Option<Progress>,
}

impl Reader {
    pub(crate) fn new(result_bytes_max: u64) -> Self {
        let result_max = usize::try_from(result_bytes_max).unwrap_or(usize::MAX);
        Reader { bytes: Vec::new(), result_max, progress: None }
    }

    /// Whether nothing more is wanted.
    pub(crate) fn is_complete(&self) -> bool {
        match self.lengths() {
            Lengths::Unknown => false,
            Lengths::Invalid => true,
            Lengths::Known(header, result) => self.bytes.len() >= PREFIX + header + result,
        }
    }

    /// Takes more bytes; drops what comes after the first message.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.take_progress_reports();
        if let Lengths::Known(header, result) = self.lengths() {
            self.bytes.truncate(PREFIX + header + result);
        }
    }

    /// Takes the last report of progress that has arrived.
    pub(crate) fn take_progress(&mut self) -> Option<Progress> {
        self.progress.take()
    }

    /// Removes the reports of progress at the beginning, and keeps the last one.
    fn take_progress_reports(&mut self) {
        let mut at = 0;
        while let Some(report) = self.bytes.get(at..at + PROGRESS_BYTES) {
            let Some(numbers) = report.strip_prefix(PROGRESS_MAGIC) else { break };
            let number = |at: usize| {
                let bytes = numbers.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                u64::from_be_bytes(bytes.unwrap_or_default())
            };
            let total = Some(number(8)).filter(|total| *total > 0);
            self.progress = Some(Progress { done: number(0), total });
            at += PROGRESS_BYTES;
        }
        self.bytes.drain(..at);
    }

    /// Whether what has arrived is the beginning of a report of progress.
    fn is_progress_begun(&self) -> bool {
        let seen = self.bytes.len().min(PROGRESS_MAGIC.len());
        seen > 1 && self.bytes[..seen] == PROGRESS_MAGIC[..seen]
    }

    pub(crate) fn finish(self) -> ReportState {
        if self.bytes.is_empty() || self.is_progress_begun() {
            return ReportState::Missing;
        }
        match self.lengths() {
            Lengths::Known(header, result) if self.bytes.len() == PREFIX + header + result => {
                let (header, result) = self.bytes[PREFIX..].split_at(header);
                parse(header, result).map_or(ReportState::Malformed, ReportState::Received)
            }
            _ => ReportState::Malformed,
        }
    }

    fn lengths(&self) -> Lengths {
        if self.is_progress_begun() {
            return Lengths::Unknown;
        }
        let seen = self.bytes.len().min(MAGIC.len());
        if self.bytes[..seen] != MAGIC[..seen] {
            return Lengths::Invalid;
        }
        let number = |at: usize| {
            let word: [u8; 4] = self.bytes.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(word)).ok()
        };
        match (number(4), number(8)) {
            (Some(header), Some(result))
                if header <= REPORT_HEADER_BYTES_MAX && result <= self.result_max =>
            {
                Lengths::Known(header, result)
            }
            (Some(_), Some(_)) => Lengths::Invalid,
            _ => Lengths::Unknown,
        }
    }
}

enum Lengths {
    Unknown,
    Invalid,
    Known(usize, usize),
}

fn parse(header: &[u8], result: &[u8]) -> Option<Report> {
    let header: Value = serde_json::from_slice(header).ok()?;
    let object = header.as_object()?;
    let error = match object.get("error")? {
        Value::Null => None,
        error => Some(parse_error(error)?),
    };
    let result = match (result, &error) {
        ([], _) => None,
        (_, Some(_)) => return None,
        (text, None) => {
            // Checks the syntax, and that it is nested at most 127 deep; the text itself is kept, so
            // that no number changes.
            serde_json::from_slice::<Value>(text).ok()?;
            Some(std::str::from_utf8(text).ok()?.to_owned())
        }
    };
    Some(Report { error, result })
}

fn parse_error(error: &Value) -> Option<ReportedError> {
    let object = error.as_object()?;
    let text = |name: &str, most: usize| match object.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(printable(text, most))),
        Some(_) => None,
    };
    let number = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => Some(Some(u32::try_from(value.as_u64()?).ok()?)),
    };
    let flag = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Some(false),
        Some(value) => value.as_bool(),
    };
    Some(ReportedError {
        kind: text("kind", 20)??,
        type_name: text("type", 200)??,
        code: text("code", 60)?,
        message: text("message", MESSAGE_BYTES_MAX)?.unwrap_or_default(),
        traceback: text("traceback", TRACEBACK_BYTES_MAX)?,
        line: number("line")?,
        column: number("column")?.filter(|column| *column > 0),
        block: text("block", 200)?,
        errno: number("errno")?.and_then(|number| i32::try_from(number).ok()),
        path: text("path", MESSAGE_BYTES_MAX)?,
        is_memory: flag("memory")?,
        is_module: flag("module")?,
    })
}

/// The text without control characters other than line breaks and tabs, cut at a character.
fn printable(text: &str, most: usize) -> String {
    let mut kept = String::with_capacity(text.len().min(most));
    for character in text.chars() {
        let character = match character {
            '\n' | '\t' => character,
            other if other.is_control() => '\u{fffd}',
            other => other,
        };
        if kept.len() + character.len_utf8() > most {
            break;
        }
        kept.push(character);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(header: &str, result: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((header.len() as u32).to_be_bytes());
        bytes.extend((result.len() as u32).to_be_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(result.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> ReportState {
        let mut reader = Reader::new(1000);
        bytes.chunks(3).for_each(|chunk| reader.extend(chunk));
        reader.finish()
    }

    #[test]
    fn only_the_first_message_counts() {
        let mut bytes = message(r#"{"error":null}"#, "12345678901234567890");
        bytes.extend(message(r#"{"error":null}"#, "2"));
        let result = Some("12345678901234567890".to_owned());
        assert_eq!(read(&bytes), ReportState::Received(Report { error: None, result }));
    }

    #[test]
    fn forgeries_are_malformed() {
        assert_eq!(read(b""), ReportState::Missing);
        let huge = [MAGIC.as_slice(), &[0xff; 8]].concat();
        let two = message(r#"{"error":{"kind":"exception","type":"E"}}"#, "1");
        let wrong_type = message(r#"{"error":{"kind":7,"type":"E"}}"#, "");
        let big_line = message(r#"{"error":{"kind":"a","type":"E","line":-1}}"#, "");
        let not_json = message(r#"{"error":null}"#, "{]");
        let deep = message(r#"{"error":null}"#, &"[".repeat(900));
        let cut = &message(r#"{"error":null}"#, "1")[..20];
        let all: [&[u8]; 8] = [b"{}", &huge, &two, &wrong_type, &big_line, &not_json, &deep, cut];
        for bytes in all {
            assert_eq!(read(bytes), ReportState::Malformed, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn progress_comes_before_the_report() {
        let progress = |done: u64, total: u64| {
            [PROGRESS_MAGIC.as_slice(), &done.to_be_bytes(), &total.to_be_bytes()].concat()
        };
        let bytes = [progress(1, 0), progress(2, 5), message(r#"{"error":null}"#, "7")].concat();
        let mut reader = Reader::new(1000);
        bytes.chunks(3).for_each(|chunk| reader.extend(chunk));
        assert_eq!(reader.take_progress(), Some(Progress { done: 2, total: Some(5) }));
        let result = Some("7".to_owned());
        assert_eq!(reader.finish(), ReportState::Received(Report { error: None, result }));
        assert_eq!(read(&progress(1, 2)[..10]), ReportState::Missing);
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        assert_eq!(printable("a\u{1b}[31mü", 20), "a\u{fffd}[31mü");
        assert_eq!(printable("üü", 3), "ü");
    }
}
