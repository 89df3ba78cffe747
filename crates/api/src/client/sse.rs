//! An incremental parser of event streams.
//!
//! It follows the HTML standard: lines end with LF, CRLF or CR, wherever the stream is split into
//! chunks; a blank line ends an event; an event without data is dropped. Pure: bytes in, events out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::ANSWER_BYTES_MAX;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Its name; empty if it has none.
    pub event: String,
    /// Its data.
    pub data: String,
    /// The ID of this event, or else of the last event before it that had one.
    pub id: Option<String>,
}

/// A violation of the format of event streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An event exceeds the size limit.
    #[error("an event has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// A line is not UTF-8.
    #[error("an event is not UTF-8")]
    Utf8,
}

/// Parses one stream.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a CR, so that a following LF belongs to the same line end.
    has_cr: bool,
    /// Whether the first line has ended. Only that line may start with a byte order mark.
    is_started: bool,
    event: Event,
    has_data: bool,
    retry: Option<Duration>,
    events: VecDeque<Event>,
}

impl Parser {
    /// Parses the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let before = &rest[..at];
            let ending = rest[at];
            rest = &rest[at + 1..];
            let belongs_to_cr = self.has_cr && before.is_empty() && self.line.is_empty();
            let is_second_half = ending == b'\n' && belongs_to_cr;
            self.has_cr = ending == b'\r';
            if !is_second_half {
                self.extend(before)?;
                self.end_line()?;
            }
        }
        if !rest.is_empty() {
            self.has_cr = false;
        }
        self.extend(rest)
    }

    /// The next complete event; `None` if more bytes are needed.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The reconnection delay that the stream asked for; `None` if it did not.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if self.line.len() + self.event.data.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(StreamError::TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), StreamError> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8(line).map_err(|_| StreamError::Utf8)?;
        let line = if std::mem::replace(&mut self.is_started, true) {
            line.as_str()
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(&line)
        };
        if line.is_empty() {
            self.end_event();
            return Ok(());
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        self.field(name, value.strip_prefix(' ').unwrap_or(value));
        Ok(())
    }

    fn field(&mut self, name: &str, value: &str) {
        match name {
            "event" => self.event.event = value.to_owned(),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // A comment has no name before its colon. Unknown fields are ignored by the standard.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let id = self.event.id.clone();
        let event = std::mem::replace(&mut self.event, Event { id, ..Event::default() });
        if std::mem::take(&mut self.has_data) {
            self.events.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &[u8], piece: usize) -> Vec<Event> {
        let mut parser = Parser::default();
        stream.chunks(piece).for_each(|piece| parser.push(piece).unwrap());
        std::iter::from_fn(|| parser.next_event()).collect()
    }

    fn event(event: &str, data: &str, id: Option<&str>) -> Event {
        Event { event: event.into(), data: data.into(), id: id.map(str::to_owned) }
    }

    #[test]
    fn lines_end_in_any_way_wherever_a_chunk_ends() {
        let stream = "retry: 1000\nevent: job-update\nid: 3\ndata: {\"a\":1}\n\n: alive\n\
            event: progress\ndata: one\ndata: two\n\ndata\n\n";
        let expected = [
            event("job-update", "{\"a\":1}", Some("3")),
            event("progress", "one\ntwo", Some("3")),
            event("", "", Some("3")),
        ];
        for ending in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ending);
            for piece in 1..=stream.len() {
                assert_eq!(events(stream.as_bytes(), piece), expected, "{ending:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_not_an_event_is_dropped() {
        assert_eq!(events(b"\n\nid: 1\n\n: x\n\nevent: a\n\ndata: unfinished\n", 4), []);
        assert_eq!(events("\u{feff}data:x\n\n".as_bytes(), 2), [event("", "x", None)]);
        assert_eq!(events(b"data:  x\nother: y\n\n", 9), [event("", " x", None)]);
    }

    #[test]
    fn the_reconnection_delay_is_remembered() {
        let mut parser = Parser::default();
        parser.push(b"retry: 250\nretry: soon\n").unwrap();
        assert_eq!(parser.retry(), Some(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_not_a_stream_is_an_error() {
        let mut parser = Parser::default();
        assert_eq!(parser.push(b"data: \xff\n"), Err(StreamError::Utf8));
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let pushed = (0..=ANSWER_BYTES_MAX / piece.len()).try_for_each(|_| parser.push(&piece));
        assert_eq!(pushed, Err(StreamError::TooLarge));
    }
}
