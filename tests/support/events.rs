//! An event stream, taken apart by the rules of the HTML standard but strict about line ends.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde_json::Value as Json;

use crate::PATIENCE;
use crate::http::{Connection, Head, Request};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name.
    pub event: String,
    /// Its ID, when it has one.
    pub id: Option<u64>,
    /// Its data.
    pub data: Json,
}

/// What came.
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
    /// The answer's head.
    pub head: Head,
    raw: Vec<u8>,
    parts: VecDeque<Part>,
    event: String,
    id: Option<u64>,
    data: String,
}

impl Events {
    /// Opens a stream, which must be given.
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
        tokio::time::timeout(PATIENCE, opening).await.unwrap()
    }

    /// The next event; nothing at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.part().await? {
                Part::Event(event) => return Some(event),
                Part::Comment => {}
            }
        }
    }

    /// The next event or comment; nothing at the end of the stream.
    pub async fn part(&mut self) -> Option<Part> {
        tokio::time::timeout(PATIENCE, self.read()).await.unwrap()
    }

    /// Every event to the end.
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
