//! `agents`: what messages and turns of agents cost, and what agents that sleep cost at a start.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Fault;
use crate::measure::median;
use crate::web::{Client, Complete, Options, Until, Venue, WaitMode, drive, invocation, post};

/// Compares deliveries with echo jobs, turns with a long timeline with turns with a short one, and the start of
/// a venue with many agents with that of one without.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of rounds; what is compared alternates.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The duration of each measurement of a rate in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The number of turns that the old agent has made.
    #[arg(long, default_value_t = 10_000)]
    turns: u64,
    /// The number of agents that sleep during a start.
    #[arg(long, default_value_t = 100_000)]
    sleeping: u64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The smallest accepted rate of deliveries, as a share of the rate of echo jobs.
const MESSAGE_MIN: f64 = 0.4;

/// The largest accepted cost of a late turn, as a multiple of an early one, in time and in bytes.
const TURN_MAX: f64 = 1.5;

/// The longest accepted start with agents, as a multiple of one without.
const START_MAX: f64 = 1.2;

/// The number of connections of a load.
const CONNECTIONS: usize = 64;

/// Agents to which messages are delivered in turn. None of them receives more than fit into an inbox.
const RECEIVERS: usize = 1_000;

/// Turns that are measured together: those after the fifth of a new agent, so that the tenth is among them.
const MEASURED_TURNS: u64 = 10;
const EARLIER_TURNS: u64 = 5;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds, turns, sleeping) = if args.small {
        (1, 0.2, 30, 300)
    } else {
        (args.rounds, args.seconds, args.turns, args.sleeping)
    };
    let (folder, _temporary) = args.options.folder()?;
    let binary = args.options.binary()?;
    let cores = args.options.cores();
    let venue = Venue::start(&binary, &folder.join("venue"), cores)?;
    let bench = Bench {
        venue,
        time: Duration::from_secs_f64(seconds),
        wait_mode: args.options.wait_mode(),
    };
    let messages = bench.messages(rounds)?;
    let turns = bench.turns(rounds, turns)?;
    drop(bench);
    let starts = starts(&binary, &folder, rounds, sleeping)?;
    let all_met = messages && turns && starts;
    if !args.small && !all_met {
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
    /// Compares deliveries with echo jobs. Returns true if the aim is met.
    fn messages(&self, rounds: usize) -> Result<bool, Fault> {
        let receivers = create_bodies(RECEIVERS as u64);
        self.repeat(receivers, Until::Asked(RECEIVERS as u64))?;
        let (mut echo, mut message) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let bodies = vec![invocation("test:echo", r#"{"text":"hello"}"#)];
            echo.push(self.repeat(bodies, Until::Passed(self.time))?);
            let bodies = (0..RECEIVERS).map(|n| {
                let input = format!(r#"{{"agentId":"a{n}","message":{{"text":"hello"}}}}"#);
                invocation("agent:message", &input)
            });
            message.push(self.repeat(bodies.collect(), Until::Passed(self.time))?);
        }
        let share = median(message.clone()) / median(echo.clone());
        println!(
            "agent:message: {:.0}/s, submit_echo: {:.0}/s: {share:.2} (aim: at least {MESSAGE_MIN})",
            median(message),
            median(echo)
        );
        Ok(share >= MESSAGE_MIN)
    }

    /// Repeats invocations, each of which must be complete in its response. Returns the rate.
    fn repeat(&self, bodies: Vec<String>, until: Until) -> Result<f64, Fault> {
        let address = self.venue.address;
        let mut load = Complete::new(address, &bodies);
        Ok(drive(address, CONNECTIONS, until, self.wait_mode, &mut load)?.rate())
    }

    /// Compares turns of an old agent with turns of new ones. Returns true if the aim is met.
    fn turns(&self, rounds: usize, turns: u64) -> Result<bool, Fault> {
        let mut client = Client::connect(self.venue.address)?;
        self.create(&mut client, "old")?;
        let begun = Instant::now();
        for _ in 0..turns.saturating_sub(MEASURED_TURNS * rounds as u64) {
            self.turn(&mut client, "old")?;
        }
        println!("the first turns of the old agent took {:.1} s", begun.elapsed().as_secs_f64());
        let [mut new_ms, mut old_ms, mut new_bytes, mut old_bytes] = [const { Vec::new() }; 4];
        for round in 0..rounds {
            let name = format!("new-{round}");
            self.create(&mut client, &name)?;
            for _ in 0..EARLIER_TURNS {
                self.turn(&mut client, &name)?;
            }
            for (agent, times, bytes) in
                [(name.as_str(), &mut new_ms, &mut new_bytes), ("old", &mut old_ms, &mut old_bytes)]
            {
                let before = self.metric("catena_store_journal_bytes_total")?;
                let mut each = Vec::new();
                for _ in 0..MEASURED_TURNS {
                    let begun = Instant::now();
                    self.turn(&mut client, agent)?;
                    each.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                times.push(median(each));
                let written = self.metric("catena_store_journal_bytes_total")? - before;
                bytes.push(written / MEASURED_TURNS as f64);
            }
        }
        let (new_ms, old_ms) = (median(new_ms), median(old_ms));
        let (new_bytes, old_bytes) = (median(new_bytes), median(old_bytes));
        let (by_time, by_bytes) = (old_ms / new_ms, old_bytes / new_bytes);
        println!(
            "turn 10: {new_ms:.2} ms, {new_bytes:.0} journal bytes; turn {turns}: {old_ms:.2} ms, {old_bytes:.0} journal bytes: {by_time:.2} and {by_bytes:.2} (aim: below {TURN_MAX})"
        );
        Ok(by_time < TURN_MAX && by_bytes < TURN_MAX)
    }

    fn create(&self, client: &mut Client, id: &str) -> Result<(), Fault> {
        let input = format!(r#"{{"agentId":"{id}","config":{{"operation":"test:tally"}}}}"#);
        complete(client, self.venue.address, "agent:create", &input)
    }

    fn turn(&self, client: &mut Client, id: &str) -> Result<(), Fault> {
        let input = format!(r#"{{"agentId":"{id}","input":{{"n":1}}}}"#);
        complete(client, self.venue.address, "agent:request", &input)
    }

    fn metric(&self, name: &str) -> Result<f64, Fault> {
        Ok(self.venue.metric(&self.venue.metrics()?, name))
    }
}

/// Runs an operation and waits for its end, which must be a complete one.
fn complete(
    client: &mut Client,
    address: SocketAddr,
    operation: &str,
    input: &str,
) -> Result<(), Fault> {
    let body = invocation(operation, input).replacen('{', r#"{"wait":60000,"#, 1);
    let (status, reply) = client.ask(&post(address, "/api/v1/invoke", &body))?;
    let text = String::from_utf8_lossy(&reply);
    // A request that waits for the end is answered with 200.
    if (200..=201).contains(&status) && text.contains(r#""status":"COMPLETE""#) {
        return Ok(());
    }
    Err(format!("{operation}: {status}: {text}").into())
}

/// The bodies that create agents.
fn create_bodies(count: u64) -> Vec<String> {
    let body = |n| invocation("agent:create", &format!(r#"{{"agentId":"a{n}"}}"#));
    (0..count).map(body).collect()
}

/// Compares the start of a venue with agents with the start of one with as many echo jobs. Returns true if
/// the aim is met.
fn starts(binary: &Path, folder: &Path, rounds: usize, sleeping: u64) -> Result<bool, Fault> {
    let fill = |name: &str, bodies: Vec<String>| -> Result<PathBuf, Fault> {
        let data = folder.join(name);
        let most = sleeping.to_string();
        let venue = Venue::start_with(binary, &data, None, &["--agents-per-user", &most])?;
        let mut load = Complete::new(venue.address, &bodies);
        let until = Until::Asked(sleeping);
        drive(venue.address, CONNECTIONS, until, WaitMode::Sleep, &mut load)?;
        venue.stop()?;
        Ok(data)
    };
    let with = fill("with", create_bodies(sleeping))?;
    let without = fill("without", vec![invocation("test:echo", "{}")])?;
    let (mut with_ms, mut without_ms) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (data, times) in [(&without, &mut without_ms), (&with, &mut with_ms)] {
            let begun = Instant::now();
            let venue = Venue::start(binary, data, None)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            venue.stop()?;
        }
    }
    let (with_ms, without_ms) = (median(with_ms), median(without_ms));
    let share = with_ms / without_ms;
    println!(
        "start with {sleeping} agents: {with_ms:.1} ms, with as many other jobs: {without_ms:.1} ms: {share:.2} (aim: below {START_MAX})"
    );
    Ok(share < START_MAX)
}
