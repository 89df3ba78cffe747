//! `http`: jobs per second over real connections, compared with a no-op route of the same venue in the
//! same run.

use std::net::SocketAddr;
use std::time::Duration;

use catena_value::json;

use crate::Fault;
use crate::measure::{Round, median};
use crate::web::{
    Load, Options, Until, Venue, WaitMode, core_seconds, drive, get, invocation, pin, post,
};

/// Jobs over HTTP against a no-op route of the same venue, alternating.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The duration of each measurement in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The number of rounds; workloads alternate.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Only this workload in addition to the no-op, for a profiler: submit_echo, submit_delay0, poll
    /// or poll_wide.
    #[arg(long)]
    only: Option<String>,
    /// Only with this number of connections.
    #[arg(long)]
    connections: Option<usize>,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The no-op route, with the body of an echo.
    Noop,
    /// One commit: durable and COMPLETE in the response.
    Echo,
    /// Two commits: durably STARTED, then COMPLETE, and the response after that.
    Delay,
    /// Reading a few ended jobs repeatedly, as polling clients do.
    Poll,
    /// Reading many ended jobs, each rarely.
    PollWide,
}

impl Kind {
    const JOBS: [Kind; 4] = [Kind::Echo, Kind::Delay, Kind::Poll, Kind::PollWide];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Noop => "noop",
            Kind::Echo => "submit_echo",
            Kind::Delay => "submit_delay0",
            Kind::Poll => "poll",
            Kind::PollWide => "poll_wide",
        }
    }

    /// The numbers of connections with which it is measured.
    fn connections(self) -> &'static [usize] {
        match self {
            Kind::Noop | Kind::Echo => &[1, 64, 256],
            Kind::Delay => &[1, 64],
            Kind::Poll | Kind::PollWide => &[64],
        }
    }

    /// The number of jobs that it reads; 0 if it creates jobs.
    fn polled(self) -> usize {
        match self {
            Kind::Noop | Kind::Echo | Kind::Delay => 0,
            Kind::Poll => 256,
            Kind::PollWide => KEPT_IDS,
        }
    }

    fn body(self) -> String {
        match self {
            Kind::Delay => {
                let input = format!(r#"{{"delay":0,"input":{{"text":"{TEXT}"}}}}"#);
                let body = invocation("test:delay", &input);
                // Requests the response after the end of the job.
                body.replacen('{', r#"{"wait":10000,"#, 1)
            }
            _ => invocation("test:echo", &format!(r#"{{"text":"{TEXT}"}}"#)),
        }
    }
}

/// The text that is echoed. Its digits count requests, so that every response is unique.
const TEXT: &str = "hello, number 00000000";
const DIGITS: usize = 8;

/// How many IDs of created jobs are kept for reading: a sample of the complete run.
const KEPT_IDS: usize = 4_096;
const KEEP_EVERY: u64 = 16;

/// State that all measurements share.
#[derive(Default)]
struct Known {
    last: u64,
    ids: Vec<String>,
    last_body: Vec<u8>,
}

struct Jobs<'a> {
    kind: Kind,
    request: Vec<u8>,
    digits_at: usize,
    /// The text that the response on each connection must contain.
    expected: Vec<String>,
    polls: Vec<Vec<u8>>,
    known: &'a mut Known,
}

impl<'a> Jobs<'a> {
    fn new(kind: Kind, address: SocketAddr, connections: usize, known: &'a mut Known) -> Jobs<'a> {
        let path = if kind == Kind::Noop { "/bench/noop" } else { "/api/v1/invoke" };
        let request = post(address, path, &kind.body());
        let text = request.windows(TEXT.len()).rposition(|part| part == TEXT.as_bytes());
        let digits_at = text.unwrap_or(0) + TEXT.len() - DIGITS;
        let polled = known.ids.iter().take(kind.polled());
        let polls = polled.map(|id| get(address, &format!("/api/v1/jobs/{id}"), "")).collect();
        Jobs { kind, request, digits_at, expected: vec![String::new(); connections], polls, known }
    }
}

impl Load for Jobs<'_> {
    fn request(&mut self, connection: usize) -> &[u8] {
        use std::fmt::Write as _;
        self.known.last += 1;
        let expected = &mut self.expected[connection];
        expected.clear();
        if !self.polls.is_empty() {
            let at = (self.known.last % self.polls.len() as u64) as usize;
            // Writing to a string cannot fail.
            let _ = write!(expected, "{{\"id\":\"{}\"", self.known.ids[at]);
            return &self.polls[at];
        }
        let _ = write!(expected, "{:0DIGITS$}", self.known.last % 10_u64.pow(DIGITS as u32));
        self.request[self.digits_at..self.digits_at + DIGITS].copy_from_slice(expected.as_bytes());
        expected.insert_str(0, &TEXT[..TEXT.len() - DIGITS]);
        expected.insert_str(0, r#""output":{"text":""#);
        &self.request
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let body = std::str::from_utf8(body)?;
        let wanted =
            if matches!(self.kind, Kind::Poll | Kind::PollWide | Kind::Delay) { 200 } else { 201 };
        let expected = &self.expected[connection];
        let holds = match self.kind {
            Kind::Noop => body.starts_with("{\"bytes\":"),
            _ => body.contains(r#""status":"COMPLETE""#) && body.contains(expected.as_str()),
        };
        if status != wanted || !holds {
            return Err(format!("{}: {status} without {expected}: {body}", self.kind.name()).into());
        }
        if self.kind == Kind::Echo && self.known.last.is_multiple_of(KEEP_EVERY) {
            let id = body.split('"').nth(3).unwrap_or_default().to_owned();
            if self.known.ids.len() < KEPT_IDS {
                self.known.ids.push(id);
            } else {
                let at = self.known.last / KEEP_EVERY % KEPT_IDS as u64;
                self.known.ids[at as usize] = id;
            }
            self.known.last_body.clear();
            self.known.last_body.extend_from_slice(body.as_bytes());
        }
        Ok(())
    }
}

/// One measurement and its cost.
pub(crate) struct Measured {
    kind: Kind,
    connections: usize,
    pub(crate) round: Round,
    /// The rate as a share of that of the no-op with as many connections, measured just before.
    ratio: f64,
    /// Core time that the venue spent on a request, in seconds.
    pub(crate) cost: f64,
    /// The share that it would reach if only the venue's core limited both. On a busy machine this
    /// is the stable ratio.
    cost_ratio: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds) = if args.small { (1, 0.2) } else { (args.rounds, args.seconds) };
    let (folder, _temporary) = args.options.folder()?;
    let cores = args.options.cores();
    let binary = args.options.binary()?;
    let venue = Venue::start(&binary, &folder.join("venue"), cores)?;
    match cores {
        Some((own, its)) => {
            pin(own)?;
            println!("generator on core {own}, venue (pid {}) on core {its}", venue.pid());
        }
        None => println!("generator and venue (pid {}) on any core", venue.pid()),
    }
    let time = Duration::from_secs_f64(seconds);
    let mut bench = Bench::warmed_up(venue, time, args.options.wait_mode())?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        bench.round(args, &mut all)?;
    }
    summary(&all);
    println!("result ID (Value ID of the last output): {}", bench.result_id()?);
    Ok(())
}

/// A venue that is measured.
pub(crate) struct Bench {
    venue: Venue,
    time: Duration,
    wait_mode: WaitMode,
    known: Known,
}

impl Bench {
    /// Makes the venue run echo jobs before anything is measured, so that there are jobs to read.
    pub(crate) fn warmed_up(
        venue: Venue,
        time: Duration,
        wait_mode: WaitMode,
    ) -> Result<Bench, Fault> {
        let mut bench = Bench { venue, time, wait_mode, known: Known::default() };
        bench.measure(Kind::Echo, 64, None)?;
        println!("(that was to warm up)");
        Ok(bench)
    }

    /// Measures every workload once. The no-op is measured before each of the others, so that a
    /// ratio compares adjacent measurements.
    fn round(&mut self, args: &Args, all: &mut Vec<Measured>) -> Result<(), Fault> {
        for kind in Kind::JOBS {
            if args.only.as_deref().is_some_and(|only| only != kind.name()) {
                continue;
            }
            let asked = args.connections.as_ref().map(std::slice::from_ref);
            for connections in asked.unwrap_or(kind.connections()).iter().copied() {
                let noop = self.measure(Kind::Noop, connections, None)?;
                let base = Some((noop.round.rate(), noop.cost));
                let measured = self.measure(kind, connections, base)?;
                all.extend([noop, measured]);
            }
        }
        Ok(())
    }

    /// Measures a workload once. `noop` is the rate and the cost of the no-op, to which it is compared.
    pub(crate) fn measure(
        &mut self,
        kind: Kind,
        connections: usize,
        noop: Option<(f64, f64)>,
    ) -> Result<Measured, Fault> {
        let address = self.venue.address;
        let pid = self.venue.pid();
        let counted = self.venue.metrics()?;
        let (venue_before, own_before) = (core_seconds(pid), core_seconds(std::process::id()));
        let mut jobs = Jobs::new(kind, address, connections, &mut self.known);
        let round =
            drive(address, connections, Until::Passed(self.time), self.wait_mode, &mut jobs)?;
        let (venue_after, own_after) = (core_seconds(pid), core_seconds(std::process::id()));
        let after = self.venue.metrics()?;
        let per_job = |name| {
            let counted = self.venue.metric(&after, name) - self.venue.metric(&counted, name);
            counted / round.jobs as f64
        };
        let ratio = noop.map_or(1.0, |noop| round.rate() / noop.0);
        let (user, system) = (venue_after.0 - venue_before.0, venue_after.1 - venue_before.1);
        let cost = (user + system) / round.jobs as f64;
        let cost_ratio = noop.map_or(1.0, |noop| noop.1 / cost);
        println!(
            "{:>13} {connections:>3}: {:>6.0}/s  p50 {:>5.2} ms  p99 {:>5.2}  max {:>5.1}  {:.3} syncs/job  {:>5.0} bytes/job  venue {:.2}+{:.2} cores  generator {:.2}  {:>5.1} us of core/request  {}",
            kind.name(),
            round.rate(),
            round.p50_us as f64 / 1e3,
            round.p99_us as f64 / 1e3,
            round.max_us as f64 / 1e3,
            per_job("catena_store_syncs_total"),
            per_job("catena_store_journal_bytes_total"),
            user / round.seconds,
            system / round.seconds,
            (own_after.0 + own_after.1 - own_before.0 - own_before.1) / round.seconds,
            cost * 1e6,
            noop.map_or(String::new(), |_| {
                format!("{ratio:.2} of noop by time, {cost_ratio:.2} by cost")
            }),
        );
        Ok(Measured { kind, connections, round, ratio, cost, cost_ratio })
    }

    fn result_id(&self) -> Result<String, Fault> {
        let job = json::read(&self.known.last_body).map_err(|error| error.to_string())?;
        let output = job.as_map().and_then(|job| job.field("output"));
        Ok(output.ok_or("the last job has no output")?.id().to_string())
    }
}

/// The medians of every workload.
fn summary(all: &[Measured]) {
    println!("medians of the rounds:");
    let mut shown = Vec::new();
    for measured in all {
        let what = (measured.kind, measured.connections);
        if shown.contains(&what) {
            continue;
        }
        shown.push(what);
        let of = |figure: fn(&Measured) -> f64| {
            let same = all.iter().filter(|other| (other.kind, other.connections) == what);
            median(same.map(figure).collect())
        };
        println!(
            "{:>13} {:>3}: {:>6.0}/s  p50 {:>5.2} ms  p99 {:>5.2} ms  {:>5.1} us of core/request  {:.2} of noop by time, {:.2} by cost",
            measured.kind.name(),
            measured.connections,
            of(|one| one.round.rate()),
            of(|one| one.round.p50_us as f64 / 1e3),
            of(|one| one.round.p99_us as f64 / 1e3),
            of(|one| one.cost * 1e6),
            of(|one| one.ratio),
            of(|one| one.cost_ratio),
        );
    }
}
