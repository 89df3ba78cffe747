//! `waits`: what jobs that wait for their next attempt cost a venue.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use catena_auth::KeyPair;
use catena_auth::identity::self_issued;

use crate::Fault;
use crate::json::{member, read, text};
use crate::measure::{Round, median};
use crate::web::{
    Client, Load, Options, Until, Venue, WaitMode, core_seconds, drive, invocation, post,
    resident_kb, run_seconds,
};

/// Compares a venue with 50,000 jobs that wait for their next attempt with one without them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of waiting jobs.
    #[arg(long, default_value_t = 50_000)]
    jobs: u64,
    /// The number of callers that they belong to.
    #[arg(long, default_value_t = 20)]
    callers: u8,
    /// The number of rounds; the two venues alternate.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The duration of each measurement in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The smallest accepted rate with waiting jobs, as a share of the rate without them.
const RATE_MIN: f64 = 0.95;

/// The longest accepted start with waiting jobs, as a multiple of the time without them.
const START_MAX: f64 = 1.5;

/// The first attempts of all jobs must have failed within this time.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// The number of connections of every load.
const CONNECTIONS: usize = 64;

/// The operation of the waiting jobs: it fails at once and is tried again half a day later.
const RETRYING: &str = r#"{"operation":{"adapter":"test:error","timeoutMs":86400000,"retry":{"attempts":3,"backoffMs":43200000}}}"#;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (jobs, rounds, seconds) =
        if args.small { (500, 1, 0.2) } else { (args.jobs, args.rounds, args.seconds) };
    let (folder, _temporary) = args.options.folder()?;
    let binary = args.options.binary()?;
    let start = |name: &'static str| Site::start(&binary, folder.join(name), args.options.cores());
    let mut sites = [start("without")?, start("with")?];
    let took = fill(&sites[1], jobs, args.callers)?;
    println!("{jobs} jobs of {} callers wait for their next attempt ({took:.1} s)", args.callers);
    // A new venue is slower than one that has worked: the other one gets as many jobs, which end.
    sites[0].echo(Until::Asked(jobs), args.options.wait_mode())?;
    sites[1].check_waiting()?;

    let time = Duration::from_secs_f64(seconds);
    let mut figures = [Figures::default(), Figures::default()];
    for _ in 0..rounds {
        for (site, figures) in sites.iter().zip(&mut figures) {
            let (round, cost) = site.echo(Until::Passed(time), args.options.wait_mode())?;
            figures.rates.push(round.rate());
            figures.costs.push(cost);
            figures.memory.push(resident_kb(site.venue()?.pid()) as f64 / 1024.0);
        }
    }
    for _ in 0..rounds {
        for (site, figures) in sites.iter_mut().zip(&mut figures) {
            let (ready, recovered) = site.restart()?;
            figures.starts.push(ready.as_secs_f64() * 1e3);
            figures.recoveries.push(recovered.as_secs_f64() * 1e3);
            figures.start_costs.push(run_seconds(site.venue()?.pid()) * 1e3);
            figures.fresh.push(resident_kb(site.venue()?.pid()) as f64 / 1024.0);
        }
    }
    sites[1].check_waiting()?;
    report(&figures, args.small)
}

/// The measurements of one venue.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    /// Core time per echo job in seconds.
    costs: Vec<f64>,
    /// Memory in MB, after an echo round and after a start.
    memory: Vec<f64>,
    fresh: Vec<f64>,
    /// Milliseconds until the venue is ready, and until it has recovered.
    starts: Vec<f64>,
    recoveries: Vec<f64>,
    /// Milliseconds of core time until it has recovered.
    start_costs: Vec<f64>,
}

fn report([without, with]: &[Figures; 2], small: bool) -> Result<(), Fault> {
    let of = |all: &Vec<f64>| median(all.clone());
    let by_time = of(&with.rates) / of(&without.rates);
    let by_core = of(&without.costs) / of(&with.costs);
    println!(
        "submit_echo: {:.0}/s with them, {:.0}/s without: {by_time:.2} by time, {by_core:.2} by core (aim: at least {RATE_MIN})",
        of(&with.rates),
        of(&without.rates),
    );
    let starts = of(&with.starts) / of(&without.starts);
    let start_costs = of(&with.start_costs) / of(&without.start_costs);
    println!(
        "start after kill -9: ready after {:.0} ms with them, {:.0} ms without: {starts:.2} by time, {start_costs:.2} by core (aim: below {START_MAX}); recovered after {:.0} and {:.0} ms",
        of(&with.starts),
        of(&without.starts),
        of(&with.recoveries),
        of(&without.recoveries),
    );
    println!(
        "memory: {:.1} MB with them, {:.1} without, after a start; {:.1} and {:.1} after echo jobs",
        of(&with.fresh),
        of(&without.fresh),
        of(&with.memory),
        of(&without.memory),
    );
    // The ratios by core are the stable ones if something else uses the machine.
    let is_fast = by_time.max(by_core) >= RATE_MIN && starts.min(start_costs) < START_MAX;
    if !small && !is_fast {
        return Err("waiting jobs cost more than they may".into());
    }
    Ok(())
}

/// A venue that is started several times.
struct Site {
    binary: PathBuf,
    data: PathBuf,
    cores: Option<(usize, usize)>,
    venue: Option<Venue>,
}

impl Site {
    fn start(
        binary: &std::path::Path,
        data: PathBuf,
        cores: Option<(usize, usize)>,
    ) -> Result<Site, Fault> {
        let venue = Venue::start(binary, &data, cores)?;
        Ok(Site { binary: binary.to_path_buf(), data, cores, venue: Some(venue) })
    }

    fn venue(&self) -> Result<&Venue, Fault> {
        self.venue.as_ref().ok_or_else(|| "the venue was not started".into())
    }

    /// Kills the venue and starts it again. Returns the times until it is ready, and until it has
    /// recovered.
    fn restart(&mut self) -> Result<(Duration, Duration), Fault> {
        self.venue.take().map_or(Ok(()), Venue::kill)?;
        let begun = Instant::now();
        let venue = Venue::start(&self.binary, &self.data, self.cores)?;
        let ready = begun.elapsed();
        let mut client = Client::connect(venue.address)?;
        loop {
            let (_, body) = client.get("/readyz?verbose=true")?;
            let recovery = member(&read(&body)?, "recovery").unwrap_or_default();
            if text(&recovery, "status") == "done" {
                break;
            }
        }
        let recovered = begun.elapsed();
        self.venue = Some(venue);
        Ok((ready, recovered))
    }

    /// Measures plain echo jobs. Returns the round and the core time per job in seconds.
    fn echo(&self, until: Until, wait_mode: WaitMode) -> Result<(Round, f64), Fault> {
        let venue = self.venue()?;
        let body = invocation("test:echo", r#"{"text":"hello"}"#);
        let requests = vec![post(venue.address, "/api/v1/invoke", &body)];
        let mut load = Same { requests, next: 0, expected: r#""status":"COMPLETE""# };
        let spent = || {
            let (user, system) = core_seconds(venue.pid());
            user + system
        };
        let before = spent();
        let round = drive(venue.address, CONNECTIONS, until, wait_mode, &mut load)?;
        let cost = (spent() - before) / round.jobs as f64;
        Ok((round, cost))
    }

    /// Waits until no job runs or is due.
    fn check_waiting(&self) -> Result<(), Fault> {
        let venue = self.venue()?;
        let begun = Instant::now();
        loop {
            let metrics = venue.metrics()?;
            let names = ["catena_jobs_running", "catena_jobs_queued"];
            let busy: f64 = names.iter().map(|name| venue.metric(&metrics, name)).sum();
            if busy == 0.0 {
                return Ok(());
            }
            if begun.elapsed() > SETTLE_WITHIN {
                return Err(format!("{busy} jobs run or are due instead of waiting").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A load that repeats some requests.
struct Same {
    requests: Vec<Vec<u8>>,
    next: usize,
    expected: &'static str,
}

impl Load for Same {
    fn request(&mut self, _: usize) -> &[u8] {
        self.next = (self.next + 1) % self.requests.len();
        &self.requests[self.next]
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let body = std::str::from_utf8(body)?;
        if status != 201 || !body.contains(self.expected) {
            return Err(format!("{status}: {body}").into());
        }
        Ok(())
    }
}

/// Creates jobs that wait for their next attempt. Returns the time in seconds.
fn fill(site: &Site, jobs: u64, callers: u8) -> Result<f64, Fault> {
    let address = site.venue()?.address;
    let mut client = Client::connect(address)?;
    let (_, body) = client.get("/.well-known/did.json")?;
    let did = text(&read(&body)?, "id");
    let (_, body) = client.ask(&post(address, "/api/v1/assets", RETRYING))?;
    let operation = String::from_utf8(body)?.trim().trim_matches('"').to_owned();
    let body = invocation(&operation, r#"{"message":"not yet"}"#);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let now = i64::try_from(now)?;
    let requests = (0..callers).map(|caller| {
        let key = KeyPair::from_seed(&[caller.wrapping_add(1); 32]);
        let token = self_issued(&key, Some(&did), None, now);
        authorized_post(address, &body, &token)
    });
    let mut load =
        Same { requests: requests.collect(), next: 0, expected: r#""status":"STARTED""# };
    let begun = Instant::now();
    drive(address, CONNECTIONS, Until::Asked(jobs), WaitMode::Sleep, &mut load)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn authorized_post(address: SocketAddr, body: &str, token: &str) -> Vec<u8> {
    let request = post(address, "/api/v1/invoke", body);
    let head = format!("POST /api/v1/invoke HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
    let rest = request.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    [head.as_bytes(), &request[rest..]].concat()
}
