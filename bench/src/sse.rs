//! `sse`: the memory of idle event streams, and the latency with which all subscribers see an event.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use catena_value::json;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Fault;
use crate::web::{Client, Options, Venue, get, invocation, post, put, resident_kb};

/// Idle subscribers and their memory; many subscribers of one job and when they see its end.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of idle subscribers.
    #[arg(long, default_value_t = 5_000)]
    idle: usize,
    /// The number of jobs that they follow.
    #[arg(long, default_value_t = 50)]
    jobs: usize,
    /// The number of subscribers of one job that ends.
    #[arg(long, default_value_t = 1_000)]
    watching: usize,
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long the idle streams are observed in seconds: longer than a heartbeat.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The accepted memory and latency.
const IDLE_MB_MAX: f64 = 100.0;
const SEEN_WITHIN: Duration = Duration::from_millis(250);

/// The benchmark fails if nothing happens for this long.
const SILENCE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (idle, watching, rounds, seconds) = if args.small {
        (100, 50, 1, 0)
    } else {
        (args.idle, args.watching, args.rounds, args.seconds)
    };
    raise_descriptors()?;
    let (folder, _temporary) = args.options.folder()?;
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), None)?;
    let mut client = Client::connect(venue.address)?;
    let mut jobs = Vec::new();
    for _ in 0..args.jobs.max(1) {
        jobs.push(begin(&mut client, venue.address)?);
    }
    let before = resident_kb(venue.pid());
    let mut subscribers = Subscribers::new()?;
    for at in 0..idle {
        subscribers.follow(venue.address, &jobs[at % jobs.len()])?;
    }
    subscribers.wait_for_all("\"status\":\"STARTED\"")?;
    let after = resident_kb(venue.pid());
    let megabytes = |kb: u64| kb.saturating_sub(before) as f64 / 1024.0;
    println!(
        "{idle} idle subscribers of {} jobs: venue {:.1} MB before, {:.1} MB more with them ({:.1} kB each)",
        jobs.len(),
        before as f64 / 1024.0,
        megabytes(after),
        (after.saturating_sub(before)) as f64 / idle as f64,
    );
    std::thread::sleep(Duration::from_secs(seconds));
    let later = resident_kb(venue.pid());
    println!("after {seconds} s of nothing but heartbeats: {:.1} MB more", megabytes(later));
    let mut worst = Duration::ZERO;
    for _ in 0..rounds {
        worst = worst.max(ending(&mut client, &venue, watching)?);
    }
    drop(subscribers);
    let fits = megabytes(later.max(after)) <= IDLE_MB_MAX && worst <= SEEN_WITHIN;
    println!("worst: the last of {watching} saw the end after {:.1} ms", worst.as_secs_f64() * 1e3);
    if !fits && !args.small {
        return Err(format!("more than {IDLE_MB_MAX} MB or {SEEN_WITHIN:?}").into());
    }
    Ok(())
}

/// A job that runs until it is cancelled.
fn begin(client: &mut Client, address: SocketAddr) -> Result<String, Fault> {
    let body = invocation("test:never", "{}");
    let (status, body) = client.ask(&post(address, "/api/v1/invoke", &body))?;
    let job = json::read(&body).map_err(|error| error.to_string())?;
    let id = job.as_map().and_then(|job| job.field("id")?.as_str().map(str::to_owned));
    id.filter(|_| status == 201).ok_or_else(|| format!("a job was answered with {status}").into())
}

/// Cancels a job that many subscribers follow. Returns the time from the request until the last of
/// them saw the end.
fn ending(client: &mut Client, venue: &Venue, watching: usize) -> Result<Duration, Fault> {
    let job = begin(client, venue.address)?;
    let mut subscribers = Subscribers::new()?;
    for _ in 0..watching {
        subscribers.follow(venue.address, &job)?;
    }
    subscribers.wait_for_all("\"status\":\"STARTED\"")?;
    let asked = Instant::now();
    let path = format!("/api/v1/jobs/{job}/cancel");
    let (status, _) = client.ask(&put(venue.address, &path, "{}"))?;
    let answered = asked.elapsed();
    if status != 200 {
        return Err(format!("the cancel was answered with {status}").into());
    }
    subscribers.wait_for_all("\"status\":\"CANCELLED\"")?;
    let seen = asked.elapsed();
    // The final chunk: the venue closes the stream.
    subscribers.wait_for_all("0\r\n\r\n")?;
    println!(
        "{watching} subscribers of one job: cancel answered after {:.1} ms, all saw the end after {:.1} ms, all streams ended after {:.1} ms",
        answered.as_secs_f64() * 1e3,
        seen.as_secs_f64() * 1e3,
        asked.elapsed().as_secs_f64() * 1e3,
    );
    Ok(seen)
}

struct Subscribers {
    epoll: OwnedFd,
    all: Vec<(TcpStream, String)>,
}

impl Subscribers {
    fn new() -> Result<Subscribers, Fault> {
        Ok(Subscribers { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, all: Vec::new() })
    }

    fn follow(&mut self, address: SocketAddr, job: &str) -> Result<(), Fault> {
        let mut stream = TcpStream::connect(address)?;
        let accept = "Accept: text/event-stream\r\n";
        stream.write_all(&get(address, &format!("/api/v1/jobs/{job}/sse"), accept))?;
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(self.all.len() as u64);
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        self.all.push((stream, String::new()));
        Ok(())
    }

    /// Reads until every subscriber has received this text.
    fn wait_for_all(&mut self, text: &str) -> Result<(), Fault> {
        let has = |(_, seen): &(TcpStream, String)| seen.contains(text);
        let mut left = self.all.iter().filter(|one| !has(one)).count();
        let mut ready = Vec::with_capacity(1_024);
        let mut part = [0; 16 * 1024];
        let silence = Timespec { tv_sec: SILENCE_MAX.as_secs().try_into()?, tv_nsec: 0 };
        while left > 0 {
            if epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&silence))? == 0 {
                return Err(format!("{left} subscribers were not sent {text}").into());
            }
            for event in ready.drain(..) {
                let one = &mut self.all[usize::try_from(event.data.u64())?];
                match one.0.read(&mut part) {
                    Ok(0) => return Err("a stream was closed too early".into()),
                    Ok(count) => {
                        let had = has(one);
                        one.1.push_str(std::str::from_utf8(&part[..count])?);
                        left -= usize::from(!had && has(one));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// Raises the limit of open files: every subscriber also needs a descriptor in this process.
fn raise_descriptors() -> Result<(), Fault> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
