//! `workers`: jobs that a worker in another process than the venue echoes.
//!
//! The worker is a thread of the benchmark that claims in batches and ends each batch with its next
//! claim, as the libraries do. Everything is durable: the job before the invocation is answered, its
//! start before the worker sees it, and its end before the caller does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use catena_value::{NoCells, Value, json};

use crate::Fault;
use crate::measure::{Round, median};
use crate::web::{
    Client, Load, Options, Until, Venue, WaitMode, core_seconds, drive, invocation, pin, post,
};

/// Echo by a worker in another process: submit to start, submit to end, and batches.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The duration of each measurement in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The number of rounds; workloads alternate.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// Submitters that wait for the end of their jobs.
const SUBMITTERS: usize = 64;

/// Jobs of one claim.
const BATCH: usize = 64;

/// How many recent jobs have their time of start remembered.
const STARTS: usize = 4_096;

/// A load of invocations with a running number as their input.
struct Numbered {
    address: SocketAddr,
    operation: String,
    wait: bool,
    next: u64,
    request: Vec<u8>,
}

impl Load for Numbered {
    fn request(&mut self, _connection: usize) -> &[u8] {
        let mut body = invocation(&self.operation, &self.next.to_string());
        if self.wait {
            body = body.replacen('{', r#"{"wait":60000,"#, 1);
        }
        self.next += 1;
        self.request = post(self.address, "/api/v1/invoke", &body);
        &self.request
    }

    fn answer(&mut self, _connection: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let start = std::str::from_utf8(&body[..body.len().min(400)])?;
        let expected = if self.wait { r#""status":"COMPLETE""# } else { r#""status":"PENDING""# };
        if !(200..=201).contains(&status) || self.wait && !start.contains(expected) {
            return Err(format!("{status}: {start}").into());
        }
        Ok(())
    }
}

/// A worker that echoes, until it is stopped.
struct EchoWorker {
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    starts: Arc<Vec<AtomicU64>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl EchoWorker {
    fn start(address: SocketAddr, name: &str, begun: Instant) -> Result<EchoWorker, Fault> {
        let stop: Arc<AtomicBool> = Arc::default();
        let ended: Arc<AtomicU64> = Arc::default();
        let starts: Arc<Vec<AtomicU64>> =
            Arc::new((0..STARTS).map(|_| AtomicU64::new(0)).collect());
        let mut client = Client::connect(address)?;
        let (stopping, count, seen, name) =
            (Arc::clone(&stop), Arc::clone(&ended), Arc::clone(&starts), name.to_owned());
        let thread = std::thread::spawn(move || {
            let mut done = String::new();
            while !stopping.load(Ordering::Relaxed) {
                let body = format!(
                    r#"{{"worker":"{name}","queues":["bench"],"max":{BATCH},"waitMs":200,"done":[{done}]}}"#
                );
                let (status, reply) = client
                    .ask(&post(address, "/worker/v1/claim", &body))
                    .map_err(|error| error.to_string())?;
                let now = begun.elapsed().as_micros() as u64;
                let text = String::from_utf8_lossy(&reply).into_owned();
                if status != 200 || text.contains(r#""code""#) {
                    return Err(format!("{status}: {text}"));
                }
                count.fetch_add(done.matches(r#""output""#).count() as u64, Ordering::Relaxed);
                done = echo(&reply, |number| {
                    seen[number as usize % STARTS].store(now, Ordering::Relaxed);
                })
                .ok_or("a claim cannot be understood")?;
            }
            Ok(())
        });
        Ok(EchoWorker { stop, ended, starts, thread: Some(thread) })
    }

    fn stop(mut self) -> Result<(), Fault> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(ended)) => ended.map_err(Into::into),
            _ => Err("the worker panicked".into()),
        }
    }
}

impl Drop for EchoWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The ends of the jobs of a claim, each with its input as its output.
fn echo(reply: &[u8], mut started: impl FnMut(u64)) -> Option<String> {
    let reply = json::read(reply).ok()?;
    let mut done = Vec::new();
    for job in reply.as_map()?.field("jobs")?.as_vector()?.iter(&NoCells).flatten() {
        let job = job.as_map()?;
        let id = job.field("id")?.to_text()?.into_owned();
        let fence = job.field("fence")?.as_i64()?;
        let number = job.field("input").and_then(Value::as_i64)?;
        started(number.unsigned_abs());
        done.push(format!(r#"{{"id":"{id}","fence":{fence},"output":{number}}}"#));
    }
    Some(done.join(","))
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds) = if args.small { (1, 0.3) } else { (args.rounds, args.seconds) };
    let (folder, _temporary) = args.options.folder()?;
    let cores = args.options.cores();
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), cores)?;
    if let Some((own, _)) = cores {
        pin(own)?;
    }
    let bench = Bench {
        operation: define(venue.address)?,
        venue,
        time: Duration::from_secs_f64(seconds),
        wait_mode: args.options.wait_mode(),
    };
    let (mut starts, mut alone, mut many, mut batches, mut shares) =
        (vec![], vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        let plain = bench.plain()?;
        let (start, one) = bench.one_submitter(round)?;
        let (end, cost) = bench.many_submitters(round)?;
        let batch = bench.batches(round, args.small)?;
        println!(
            "round {}: echo in the venue {:.0}/s; 1 submitter: start p50 {} us, end p50 {} us; \
             {SUBMITTERS} submitters: {:.0}/s, end p50 {} us, p99 {} us, {:.0} us of a core; batches: {batch:.0}/s",
            round + 1,
            plain.rate(),
            start,
            one.p50_us,
            end.rate(),
            end.p50_us,
            end.p99_us,
            cost * 1e6,
        );
        starts.push(start as f64);
        alone.push(one.p50_us as f64);
        many.push(end.rate());
        batches.push(batch);
        shares.push(end.rate() / plain.rate());
    }
    println!(
        "workers: submit to start p50 {:.0} us, submit to end p50 {:.0} us alone; {:.0} jobs/s with \
         {SUBMITTERS} submitters, {:.2} of an echo in the venue; {:.0} jobs/s in batches",
        median(starts),
        median(alone),
        median(many),
        median(shares),
        median(batches),
    );
    Ok(())
}

fn define(address: SocketAddr) -> Result<String, Fault> {
    let text = r#"{"name":"bench","operation":{"adapter":"worker","queue":"bench"}}"#;
    match Client::connect(address)?.ask(&post(address, "/api/v1/assets", text))? {
        (201, body) => Ok(String::from_utf8(body)?.trim().trim_matches('"').to_owned()),
        (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

struct Bench {
    venue: Venue,
    operation: String,
    time: Duration,
    wait_mode: WaitMode,
}

impl Bench {
    fn load(&self, wait: bool) -> Numbered {
        let operation = self.operation.clone();
        Numbered { address: self.venue.address, operation, wait, next: 0, request: Vec::new() }
    }

    /// Echo jobs that the venue runs itself, for comparison.
    fn plain(&self) -> Result<Round, Fault> {
        let mut load = Numbered { operation: "test:echo".to_owned(), ..self.load(true) };
        let until = Until::Passed(self.time);
        drive(self.venue.address, SUBMITTERS, until, self.wait_mode, &mut load)
    }

    /// One submitter and a waiting worker. Returns the median time from the submission to the arrival at
    /// the worker, in microseconds, and the round.
    fn one_submitter(&self, round: usize) -> Result<(u64, Round), Fault> {
        let begun = Instant::now();
        let worker = EchoWorker::start(self.venue.address, &format!("one-{round}"), begun)?;
        let mut client = Client::connect(self.venue.address)?;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        while begun.elapsed() < self.time {
            let number = starts.len();
            let body = invocation(&self.operation, &number.to_string());
            let body = body.replacen('{', r#"{"wait":60000,"#, 1);
            let sent = begun.elapsed();
            let (status, reply) = client.ask(&post(self.venue.address, "/api/v1/invoke", &body))?;
            if status != 200 {
                return Err(format!("{status}: {}", String::from_utf8_lossy(&reply)).into());
            }
            ends.push(u32::try_from((begun.elapsed() - sent).as_micros()).unwrap_or(u32::MAX));
            let started = worker.starts[number % STARTS].load(Ordering::Relaxed);
            starts.push(started.saturating_sub(sent.as_micros() as u64));
        }
        worker.stop()?;
        starts.sort_unstable();
        let start = starts.get(starts.len() / 2).copied().ok_or("nothing was done")?;
        Ok((start, Round::from_latencies(ends, begun.elapsed())?))
    }

    /// Many submitters that wait for the end. Returns the round, and what a job costs the venue in
    /// seconds of a core.
    fn many_submitters(&self, round: usize) -> Result<(Round, f64), Fault> {
        let name = format!("many-{round}");
        let worker = EchoWorker::start(self.venue.address, &name, Instant::now())?;
        let before = core_seconds(self.venue.pid());
        let until = Until::Passed(self.time);
        let mut load = self.load(true);
        let measured = drive(self.venue.address, SUBMITTERS, until, self.wait_mode, &mut load)?;
        let after = core_seconds(self.venue.pid());
        worker.stop()?;
        let cost = (after.0 + after.1 - before.0 - before.1) / measured.jobs as f64;
        Ok((measured, cost))
    }

    /// Jobs that were queued before: two workers claim and end them in batches. Returns the rate of
    /// ends.
    fn batches(&self, round: usize, is_small: bool) -> Result<f64, Fault> {
        let count = if is_small { 500 } else { 9_000 };
        let until = Until::Asked(count);
        drive(self.venue.address, SUBMITTERS, until, self.wait_mode, &mut self.load(false))?;
        let begun = Instant::now();
        let workers = (0..2)
            .map(|n| EchoWorker::start(self.venue.address, &format!("batch-{round}-{n}"), begun))
            .collect::<Result<Vec<_>, Fault>>()?;
        let ended = || workers.iter().map(|w| w.ended.load(Ordering::Relaxed)).sum::<u64>();
        while ended() < count {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(format!("only {} of {count} jobs ended", ended()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        for worker in workers {
            worker.stop()?;
        }
        Ok(rate)
    }
}
