//! `http-million`: compares a venue that has a million jobs with a new one.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Fault;
use crate::measure::median;
use crate::web::{Load, Options, Until, Venue, core_seconds, drive, invocation, post, resident_kb};

/// Throughput and memory of a venue from its first job to its millionth.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The total number of jobs.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u64,
    /// Jobs between two lines of the report.
    #[arg(long, default_value_t = 50_000)]
    step: u64,
    /// The number of connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The largest accepted loss of throughput.
const SLOWER_MAX: f64 = 0.20;

/// The number of rounds at the start and at the end whose medians are compared.
const COMPARED: usize = 4;

/// How long the no-op is measured before every round, to distinguish a slower venue from a busier
/// machine.
const NOOP_TIME: Duration = Duration::from_millis(700);

struct Fixed {
    request: Vec<u8>,
    expected: &'static str,
}

impl Load for Fixed {
    fn request(&mut self, _: usize) -> &[u8] {
        &self.request
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let body = std::str::from_utf8(body)?;
        if status != 201 || !body.contains(self.expected) {
            return Err(format!("{status}: {body}").into());
        }
        Ok(())
    }
}

fn loads(address: SocketAddr) -> (Fixed, Fixed) {
    let body = invocation("test:echo", r#"{"text":"hello"}"#);
    let of = |path, expected| Fixed { request: post(address, path, &body), expected };
    (of("/api/v1/invoke", r#""output":{"text":"hello"}"#), of("/bench/noop", r#""bytes":"#))
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (jobs, step) = if args.small { (4_000, 1_000) } else { (args.jobs, args.step.max(1)) };
    let (folder, _temporary) = args.options.folder()?;
    let cores = args.options.cores();
    let wait_mode = args.options.wait_mode();
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), cores)?;
    let (mut echo, mut noop) = loads(venue.address);
    drive(venue.address, args.connections, Until::Passed(NOOP_TIME), wait_mode, &mut noop)?;
    let (mut rates, mut costs, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut made = 0;
    let spent = || {
        let (user, system) = core_seconds(venue.pid());
        user + system
    };
    while made < jobs {
        let begun = spent();
        let base =
            drive(venue.address, args.connections, Until::Passed(NOOP_TIME), wait_mode, &mut noop)?;
        let between = spent();
        let round =
            drive(venue.address, args.connections, Until::Asked(step), wait_mode, &mut echo)?;
        let ended = spent();
        let cost = (ended - between) / round.jobs as f64;
        let relative = cost / ((between - begun) / base.jobs as f64);
        made += round.jobs;
        rates.push(round.rate());
        costs.push(relative);
        memory.push(resident_kb(venue.pid()) as f64 / 1024.0);
        println!(
            "{made:>8} jobs: {:>6.0}/s  p50 {:.2} ms  p99 {:.2} ms  {:.2} of noop  {:>5.1} us of core/job, {relative:.2} noops  {:>6.1} MB",
            round.rate(),
            round.p50_us as f64 / 1e3,
            round.p99_us as f64 / 1e3,
            round.rate() / base.rate(),
            cost * 1e6,
            memory.last().copied().unwrap_or_default(),
        );
    }
    let first = |all: &[f64]| median(all.iter().take(COMPARED).copied().collect());
    let last = |all: &[f64]| median(all.iter().rev().take(COMPARED).copied().collect());
    println!("jobs/s: {:.0} at first, {:.0} at last", first(&rates), last(&rates));
    println!("cost in noops: {:.2} at first, {:.2} at last", first(&costs), last(&costs));
    let middle = memory.get(memory.len() / 2).copied().unwrap_or_default();
    let end = memory.last().copied().unwrap_or_default();
    println!("memory: {middle:.1} MB after half, {end:.1} MB after all");
    // Only the rate is judged, so this needs an idle machine. The cost printed above distinguishes
    // a slow venue from a slow machine.
    let kept = last(&rates) / first(&rates);
    if kept < 1.0 - SLOWER_MAX && !args.small {
        return Err(format!("{:.0} % slower at the end", (1.0 - kept) * 100.0).into());
    }
    Ok(())
}
