//! `workspace`: what writes into a workspace cost, compared with jobs that change nothing.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Fault;
use crate::measure::{Round, median};
use crate::web::{Client, Complete, Options, Until, Venue, WaitMode, drive, invocation, post};

/// Compares writes with echo jobs, 200 writers of one path with writers of 200 paths, and writes into a large
/// object with writes into a small one.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of rounds; what is compared alternates.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The duration of each measurement in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The number of entries of the large object.
    #[arg(long, default_value_t = 100_000)]
    entries: u64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The smallest accepted rate of writes, as a share of the rate of echo jobs.
const WRITE_MIN: f64 = 0.5;

/// The smallest accepted rate of writers of one path, as a share of the rate of as many paths.
const ONE_PATH_MIN: f64 = 0.5;

/// The most syncs that a write of one of many writers may cost.
const SYNCS_MAX: f64 = 0.3;

/// The longest accepted write into a large object, as a multiple of one into a small object.
const DEEP_MAX: f64 = 1.5;

/// The number of connections of a load, and of concurrent writers.
const CONNECTIONS: usize = 64;
const WRITERS: usize = 200;

/// The number of entries of the small object.
const FEW: u64 = 100;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds, entries) =
        if args.small { (1, 0.2, 2_000) } else { (args.rounds, args.seconds, args.entries) };
    let (folder, _temporary) = args.options.folder()?;
    let binary = args.options.binary()?;
    let venue = Venue::start(&binary, &folder.join("venue"), args.options.cores())?;
    let bench = Bench {
        venue,
        time: Duration::from_secs_f64(seconds),
        wait_mode: args.options.wait_mode(),
    };
    bench.write_object("w/few", FEW)?;
    bench.write_object("w/many", entries)?;
    let mut figures = Figures::default();
    for round in 0..rounds {
        let echo = [invocation("test:echo", r#"{"text":"hello"}"#)];
        figures.echo.push(bench.measure(&echo, CONNECTIONS)?.rate());
        let notes: Vec<String> =
            (0..1_000).map(|n| write(&format!("w/notes/n{n}"), &round.to_string())).collect();
        figures.write.push(bench.measure(&notes, CONNECTIONS)?.rate());

        let syncs = bench.metric("catena_store_syncs_total")?;
        let one = bench.measure(&[write("w/one/path", &round.to_string())], WRITERS)?;
        let syncs = bench.metric("catena_store_syncs_total")? - syncs;
        figures.syncs.push(syncs / one.jobs as f64);
        figures.one_path.push(one.rate());
        let paths: Vec<String> =
            (0..WRITERS).map(|n| write(&format!("w/paths/p{n}"), &round.to_string())).collect();
        figures.paths.push(bench.measure(&paths, WRITERS)?.rate());

        for (object, count, times, bytes) in [
            ("w/few", FEW, &mut figures.few, &mut figures.few_bytes),
            ("w/many", entries, &mut figures.many, &mut figures.many_bytes),
        ] {
            let step = (count / 100).max(1);
            let deep: Vec<String> = (0..count)
                .step_by(usize::try_from(step)?)
                .map(|n| write(&format!("{object}/k{n}/v"), &(round + 1).to_string()))
                .collect();
            let before = bench.metric("catena_store_journal_bytes_total")?;
            let round = bench.measure(&deep, 1)?;
            let written = bench.metric("catena_store_journal_bytes_total")? - before;
            times.push(1e3 / round.rate());
            bytes.push(written / round.jobs as f64);
        }
    }
    report(&figures, args.small)
}

/// The measurements: rates per second, milliseconds and bytes per write.
#[derive(Default)]
struct Figures {
    echo: Vec<f64>,
    write: Vec<f64>,
    one_path: Vec<f64>,
    syncs: Vec<f64>,
    paths: Vec<f64>,
    few: Vec<f64>,
    many: Vec<f64>,
    few_bytes: Vec<f64>,
    many_bytes: Vec<f64>,
}

fn report(figures: &Figures, small: bool) -> Result<(), Fault> {
    let of = |all: &Vec<f64>| median(all.clone());
    let by_rate = of(&figures.write) / of(&figures.echo);
    println!(
        "covia:write: {:.0}/s, submit_echo: {:.0}/s: {by_rate:.2} (aim: at least {WRITE_MIN})",
        of(&figures.write),
        of(&figures.echo)
    );
    let by_path = of(&figures.one_path) / of(&figures.paths);
    let syncs = of(&figures.syncs);
    println!(
        "{WRITERS} writers: {:.0}/s on one path, {:.0}/s on {WRITERS} paths: {by_path:.2} (aim: at least {ONE_PATH_MIN}); {syncs:.3} syncs per write (aim: at most {SYNCS_MAX})",
        of(&figures.one_path),
        of(&figures.paths)
    );
    let deep = of(&figures.many) / of(&figures.few);
    println!(
        "a deep write: {:.2} ms into the large object, {:.2} ms into {FEW} entries: {deep:.2} (aim: below {DEEP_MAX}); {:.0} and {:.0} journal bytes",
        of(&figures.many),
        of(&figures.few),
        of(&figures.many_bytes),
        of(&figures.few_bytes)
    );
    let is_met =
        by_rate >= WRITE_MIN && by_path >= ONE_PATH_MIN && syncs <= SYNCS_MAX && deep < DEEP_MAX;
    if !small && !is_met {
        return Err("an aim is missed".into());
    }
    Ok(())
}

struct Bench {
    venue: Venue,
    time: Duration,
    wait_mode: WaitMode,
}

impl Bench {
    /// Repeats invocations, each of which must be complete in its response.
    fn measure(&self, bodies: &[String], connections: usize) -> Result<Round, Fault> {
        let address = self.venue.address;
        let mut load = Complete::new(address, bodies);
        drive(address, connections, Until::Passed(self.time), self.wait_mode, &mut load)
    }

    /// Writes an object whose entries are objects.
    fn write_object(&self, path: &str, entries: u64) -> Result<(), Fault> {
        let mut value = String::from("{");
        for n in 0..entries {
            let comma = if n == 0 { "" } else { "," };
            write!(value, "{comma}\"k{n}\":{{\"v\":0}}")?;
        }
        value.push('}');
        let address = self.venue.address;
        let mut client = Client::connect(address)?;
        let (status, body) = client.ask(&post(address, "/api/v1/invoke", &write(path, &value)))?;
        if status != 201 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(())
    }

    fn metric(&self, name: &str) -> Result<f64, Fault> {
        Ok(self.venue.metric(&self.venue.metrics()?, name))
    }
}

fn write(path: &str, value: &str) -> String {
    invocation("covia:write", &format!(r#"{{"path":"{path}","value":{value}}}"#))
}
