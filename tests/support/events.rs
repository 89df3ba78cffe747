//! An event stream, parsed by the rules of the HTML standard, but strict about line ends.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde_json::Value as Json;

use crate::TIMEOUT;
use crate::http::{Connection, Head, Request};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event name.
    pub event: String,
    /// The event ID, if there is one.
    pub id: Option<u64>,
    /// The data, parsed as JSON.
    pub data: Json,
}

/// One item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// An event.
    Event(Event),
    /// A comment line, which keeps the connection alive.
    Comment,
}

/// A stream that is being read.
pub struct Events {
    connection: Connection,
    /// The status and headers of the response.
    pub head: Head,
    raw: Vec<u8>,
    parts: VecDeque<Part>,
    event: String,
    id: Option<u64>,
    data: String,
}

impl Events {
    /// Opens a stream. Panics if the response is not one.
    pub async fn open(address: SocketAddr, request: &Request) -> Events {
        let opening = async {
            let mut connection = Connection::open(address).await.unwrap();
            connection.send(request).await.unwrap();
            let head = connection.head().await.unwrap();
            assert_eq!(head.status, 200, "the stream was refused");
            Events {
                connection,
                head,
                raw: Vec::new(),
                parts: VecDeque::new(),
                event: String::new(),
                id: None,
                data: String::new(),
            }
        };
        tokio::time::timeout(TIMEOUT, opening).await.unwrap()
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.part().await? {
                Part::Event(event) => return Some(event),
                Part::Comment => {}
            }
        }
    }

    /// The next event or comment; `None` at the end of the stream.
    pub async fn part(&mut self) -> Option<Part> {
        tokio::time::timeout(TIMEOUT, self.read()).await.unwrap()
    }

    /// All events up to the end of the stream.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    async fn read(&mut self) -> Option<Part> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Some(part);
            }
            let chunk = self.connection.chunk().await.unwrap()?;
            assert!(!chunk.contains(&b'\r'), "a stream has LF only");
            self.raw.extend_from_slice(&chunk);
            while let Some(end) = self.raw.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.raw.drain(..=end).collect();
                self.line(std::str::from_utf8(&line[..end]).unwrap());
            }
        }
    }

    fn line(&mut self, line: &str) {
        match line.split_once(": ") {
            _ if line.starts_with(':') => self.parts.push_back(Part::Comment),
            Some(("event", name)) => self.event = name.to_owned(),
            Some(("id", id)) => self.id = Some(id.parse().unwrap()),
            Some(("data", data)) => self.data.push_str(data),
            Some(("retry", ms)) => assert!(ms.parse::<u32>().is_ok(), "{ms}"),
            _ if line.is_empty() => {
                let data = serde_json::from_str(&std::mem::take(&mut self.data)).unwrap();
                let event = std::mem::take(&mut self.event);
                self.parts.push_back(Part::Event(Event { event, id: self.id.take(), data }));
            }
            _ => panic!("not a line of an event stream: {line:?}"),
        }
    }
}
