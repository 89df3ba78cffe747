//! `consoles`: what open consoles, each of which follows all jobs, cost the venue in memory and in the
//! time of an echo job.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Fault;
use crate::measure::median;
use crate::web::{
    Load, Options, Until, Venue, core_seconds, drive, get, invocation, post, resident_kb,
};

/// Echo jobs with and without open consoles, in turn.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of open consoles.
    #[arg(long, default_value_t = 1_000)]
    consoles: usize,
    /// The number of rounds with and without them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The length of a round in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of connections that submit jobs.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The accepted memory, and the accepted loss of the venue's time per job.
const MB_MAX: f64 = 100.0;
const DEARER_MAX: f64 = 0.10;

/// Jobs that all consoles have seen before their memory is measured.
const SHOWN_JOBS: u64 = 500;

/// All consoles must have been told of something within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

struct Echo(Vec<u8>);

impl Load for Echo {
    fn request(&mut self, _: usize) -> &[u8] {
        &self.0
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        if status == 201 && body.windows(8).any(|part| part == b"COMPLETE") {
            return Ok(());
        }
        Err(format!("{status}: {}", String::from_utf8_lossy(body)).into())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (consoles, rounds, seconds) =
        if args.small { (50, 1, 1) } else { (args.consoles, args.rounds.max(1), args.seconds) };
    let (folder, _temporary) = args.options.folder()?;
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), None)?;
    let body = invocation("test:echo", r#"{"text":"hello"}"#);
    let mut echo = Echo(post(venue.address, "/api/v1/invoke", &body));
    let time = Until::Passed(Duration::from_secs(seconds));
    let wait_mode = args.options.wait_mode();
    let mut measure = |connections: usize, until: Until| -> Result<Measured, Fault> {
        let spent = || core_seconds(venue.pid()).0 + core_seconds(venue.pid()).1;
        let before = spent();
        let round = drive(venue.address, connections, until, wait_mode, &mut echo)?;
        let cost_us = (spent() - before) / round.jobs as f64 * 1e6;
        Ok(Measured { rate: round.rate(), cost_us })
    };
    measure(args.connections, time)?;
    let (mut alone, mut watched, mut memory) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..rounds {
        let Measured { rate, cost_us } = measure(args.connections, time)?;
        println!("no console:     {rate:>6.0} jobs/s  {cost_us:>6.1} us of core/job");
        alone.push(cost_us);
        // Jobs fill the caches of the store, so memory is compared after a few of them, which every console has seen.
        let before = resident_kb(venue.pid());
        let open = Consoles::open(venue.address, consoles)?;
        measure(1, Until::Asked(SHOWN_JOBS))?;
        open.wait_for_frames(2 * consoles as u64)?;
        let more = resident_kb(venue.pid()).saturating_sub(before) as f64 / 1024.0;
        let shown = open.frames();
        let Measured { rate, cost_us } = measure(args.connections, time)?;
        // Later rounds use again what earlier ones have released.
        memory = memory.max(more);
        let frames = open.close()? - shown;
        println!(
            "{consoles:>4} consoles:  {rate:>6.0} jobs/s  {cost_us:>6.1} us of core/job  {more:>5.1} MB more  {:.1} frames/s each",
            frames as f64 / consoles as f64 / seconds as f64,
        );
        watched.push(cost_us);
    }
    let dearer = median(watched) / median(alone) - 1.0;
    println!("core time of a job with consoles: {:+.1} %; memory: {memory:.1} MB", dearer * 100.0);
    if (dearer > DEARER_MAX || memory > MB_MAX) && !args.small {
        return Err(format!("more than {:.0} % or {MB_MAX} MB", DEARER_MAX * 100.0).into());
    }
    Ok(())
}

/// The rate of echo jobs, and the time of a core that each takes in the venue.
struct Measured {
    rate: f64,
    cost_us: f64,
}

/// How often the streams are read.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Streams of all jobs, and the thread that reads them.
struct Consoles {
    is_closed: Arc<AtomicBool>,
    frames: Arc<AtomicU64>,
    reader: std::thread::JoinHandle<()>,
}

impl Consoles {
    fn open(address: SocketAddr, count: usize) -> Result<Consoles, Fault> {
        let mut streams = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&get(address, "/api/v1/events", "Accept: text/event-stream\r\n"))?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let is_closed = Arc::new(AtomicBool::new(false));
        let frames = Arc::new(AtomicU64::new(0));
        let (closed, counted) = (Arc::clone(&is_closed), Arc::clone(&frames));
        let reader = std::thread::spawn(move || {
            let mut part = vec![0; 64 * 1024];
            while !closed.load(Ordering::SeqCst) {
                for stream in &mut streams {
                    while let Ok(count @ 1..) = stream.read(&mut part) {
                        let ids = part[..count].windows(4).filter(|text| *text == b"\nid:").count();
                        counted.fetch_add(ids as u64, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(READ_EVERY);
            }
        });
        Ok(Consoles { is_closed, frames, reader })
    }

    /// The number of frames that all streams have received.
    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    fn wait_for_frames(&self, count: u64) -> Result<(), Fault> {
        let begun = Instant::now();
        while self.frames() < count {
            if begun.elapsed() > TOLD_WITHIN {
                return Err(format!("{} of {count} frames have arrived", self.frames()).into());
            }
            std::thread::sleep(READ_EVERY);
        }
        Ok(())
    }

    /// Closes the streams. Returns the number of frames that they received.
    fn close(self) -> Result<u64, Fault> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.reader.join().map_err(|_| "the reader of the streams failed")?;
        Ok(self.frames.load(Ordering::Relaxed))
    }
}
