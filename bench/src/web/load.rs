//! The load generator: one thread, one `epoll`, and a number of kept-alive connections.
//!
//! Every connection has one request in flight. A request is one write and its response usually one
//! read; beyond that the generator only finds the end of the head, checks the body and records the
//! time, so that it does not limit a no-op route. Every response is checked.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use super::wire::{head_of, post};
use crate::Fault;
use crate::measure::Round;

/// The size of the buffer for one response.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The generator fails if there is no response for this long.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A workload: its requests and the check of their responses.
pub(crate) trait Load {
    /// The bytes of the next request of a connection.
    fn request(&mut self, connection: usize) -> &[u8];

    /// Checks the response to the last request of a connection.
    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<(), Fault>;
}

/// A load that repeats invocations whose jobs are complete at once.
pub(crate) struct Complete {
    requests: Vec<Vec<u8>>,
    next: usize,
}

impl Complete {
    /// A load of invocations with these bodies, in turn.
    pub(crate) fn new(address: SocketAddr, bodies: &[String]) -> Complete {
        let requests = bodies.iter().map(|body| post(address, "/api/v1/invoke", body)).collect();
        Complete { requests, next: 0 }
    }
}

impl Load for Complete {
    fn request(&mut self, _: usize) -> &[u8] {
        self.next = (self.next + 1) % self.requests.len();
        &self.requests[self.next]
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let body = std::str::from_utf8(body)?;
        if status != 201 || !body.contains(r#""status":"COMPLETE""#) {
            return Err(format!("{status}: {body}").into());
        }
        Ok(())
    }
}

/// When to stop sending requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Passed(Duration),
    Asked(u64),
}

/// How the generator waits for responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// Sleeps, like a real client. Waking it costs the venue's core several microseconds on a
    /// virtual machine, and more often for a slow route than for a fast one.
    Sleep,
    /// Polls continuously, so that only the work of the route itself is measured.
    Spin,
}

struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    filled: usize,
    sent: Instant,
}

/// Opens the connections and keeps one request in flight on each. Requests that are in flight at the
/// end are completed, checked and counted.
pub(crate) fn drive(
    address: SocketAddr,
    connections: usize,
    until: Until,
    wait_mode: WaitMode,
    load: &mut dyn Load,
) -> Result<Round, Fault> {
    let mut generator = Generator::connect(address, connections, wait_mode)?;
    let begun = Instant::now();
    for at in 0..connections {
        generator.send(at, load.request(at))?;
    }
    let mut asked = connections as u64;
    let mut latencies = Vec::with_capacity(1 << 20);
    let mut ready = Vec::with_capacity(1_024);
    let mut answered = 0;
    while answered < asked {
        generator.wait(&mut ready)?;
        for event in ready.drain(..) {
            let at = usize::try_from(event.data.u64())?;
            let Some(now) = generator.receive(at, load)? else { continue };
            answered += 1;
            let took = now.duration_since(generator.connections[at].sent);
            latencies.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
            let goes_on = match until {
                Until::Passed(time) => now.duration_since(begun) < time,
                Until::Asked(most) => asked < most,
            };
            if goes_on {
                asked += 1;
                generator.send(at, load.request(at))?;
            }
        }
    }
    Round::from_latencies(latencies, begun.elapsed())
}

struct Generator {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    wait_mode: WaitMode,
}

impl Generator {
    fn connect(
        address: SocketAddr,
        connections: usize,
        wait_mode: WaitMode,
    ) -> Result<Generator, Fault> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut opened = Vec::with_capacity(connections);
        for at in 0..connections {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            let answer = vec![0; ANSWER_BYTES_MAX];
            opened.push(Connection { stream, answer, filled: 0, sent: Instant::now() });
        }
        Ok(Generator { epoll, connections: opened, wait_mode })
    }

    fn wait(&self, ready: &mut Vec<epoll::Event>) -> Result<(), Fault> {
        let whole = Timespec { tv_sec: SILENCE_MAX.as_secs().try_into()?, tv_nsec: 0 };
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = if self.wait_mode == WaitMode::Spin { none } else { whole };
        let begun = Instant::now();
        while epoll::wait(&self.epoll, spare_capacity(ready), Some(&time))? == 0 {
            if begun.elapsed() >= SILENCE_MAX {
                return Err("the venue does not answer".into());
            }
        }
        Ok(())
    }

    fn send(&mut self, at: usize, request: &[u8]) -> Result<(), Fault> {
        let connection = &mut self.connections[at];
        connection.filled = 0;
        connection.sent = Instant::now();
        // A small request always fits into an empty socket buffer.
        Ok(connection.stream.write_all(request)?)
    }

    /// Reads available bytes. When the response is complete, checks it and returns the time.
    fn receive(&mut self, at: usize, load: &mut dyn Load) -> Result<Option<Instant>, Fault> {
        let Connection { stream, answer, filled, .. } = &mut self.connections[at];
        match stream.read(&mut answer[*filled..]) {
            Ok(0) => return Err("the venue closed a connection".into()),
            Ok(count) => *filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Some(head) = head_of(&answer[..*filled])? else { return Ok(None) };
        let end = head.body_at + head.length;
        if *filled < end {
            return Ok(None);
        }
        let now = Instant::now();
        load.answer(at, head.status, &answer[head.body_at..end])?;
        Ok(Some(now))
    }
}
