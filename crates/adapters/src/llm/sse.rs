//! A stream of events that a service has sent, once it is complete.

use catena_engine::Failure;
use catena_value::{Value, json};

use super::wire::invalid_reply;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Its data. `None` if it says that the stream is complete.
    pub(super) data: Option<Value>,
}

/// The data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// Reads the events of a stream. What follows the last complete event is ignored: it was cut off.
pub(super) fn parse(stream: &str) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    let mut data = String::new();
    for line in stream.split_inclusive('\n') {
        // A line without an end was cut off.
        let Some(line) = line.strip_suffix('\n') else { break };
        let line = line.strip_suffix('\r').unwrap_or(line);
        if let Some(part) = line.strip_prefix("data:") {
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(part.strip_prefix(' ').unwrap_or(part));
        } else if line.is_empty() && !data.is_empty() {
            events.push(event(&std::mem::take(&mut data))?);
        }
    }
    // Some services leave out the empty line after the last event.
    if data == DONE {
        events.push(Event { data: None });
    }
    Ok(events)
}

fn event(data: &str) -> Result<Event, Failure> {
    if data == DONE {
        return Ok(Event { data: None });
    }
    let wrong = |error| invalid_reply(format!("an event of the reply is not JSON: {error}"));
    let data = json::read(data.as_bytes()).map_err(wrong)?;
    Ok(Event { data: Some(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_separated_by_empty_lines() {
        let parse = |text: &str| parse(text).map(|events| events.len()).ok();
        assert_eq!(parse("data: 1\n\ndata: [1,\ndata: 2]\n\n: ping\n\ndata: [DONE]\n"), Some(3));
        assert_eq!(parse("data: {\"a\":1}\n\ndata: {\"b\""), Some(1));
        assert_eq!(parse("data: {\"a\"\n\n"), None);
        assert_eq!(parse(""), Some(0));
    }
}
