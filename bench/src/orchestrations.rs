//! `orchestrations`: the cost of a step, compared with a plain job of the same venue in the same run.

use std::time::{Duration, Instant};

use crate::Fault;
use crate::measure::{Round, median};
use crate::web::{
    Client, Load, Options, Until, Venue, WaitMode, core_seconds, drive, invocation, pin, post,
};

/// Workflows over HTTP against plain echo jobs of the same venue, alternating.
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

/// Steps of the fan-out, and the join.
const FAN_STEPS: usize = 50;

/// The number of concurrent workflows.
pub(crate) const AT_ONCE: usize = 8;

/// A load that repeats one request.
struct Same {
    request: Vec<u8>,
}

impl Load for Same {
    fn request(&mut self, _connection: usize) -> &[u8] {
        &self.request
    }

    fn answer(&mut self, _connection: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        let start = std::str::from_utf8(&body[..body.len().min(400)])?;
        if !(200..=201).contains(&status) || !start.contains(r#""status":"COMPLETE""#) {
            return Err(format!("{status}: {start}").into());
        }
        Ok(())
    }
}

/// A measurement and its cost to the venue.
pub(crate) struct Measured {
    pub(crate) round: Round,
    /// Core time that the venue spent on a request, in seconds.
    pub(crate) cost: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds) = if args.small { (1, 0.2) } else { (args.rounds, args.seconds) };
    let (folder, _temporary) = args.options.folder()?;
    let cores = args.options.cores();
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), cores)?;
    if let Some((own, _)) = cores {
        pin(own)?;
    }
    let time = Duration::from_secs_f64(seconds);
    let bench = Bench { venue, time, wait_mode: args.options.wait_mode() };
    fan(&bench, rounds)?;
    growth(&bench, args.small)?;
    sleeps(&bench)
}

/// A venue whose workflows are measured.
pub(crate) struct Bench {
    pub(crate) venue: Venue,
    pub(crate) time: Duration,
    pub(crate) wait_mode: WaitMode,
}

impl Bench {
    /// Repeats one invocation on so many connections.
    pub(crate) fn measure(&self, body: &str, connections: usize) -> Result<Measured, Fault> {
        let address = self.venue.address;
        let pid = self.venue.pid();
        let mut load = Same { request: post(address, "/api/v1/invoke", body) };
        let before = core_seconds(pid);
        let until = Until::Passed(self.time);
        let round = drive(address, connections, until, self.wait_mode, &mut load)?;
        let after = core_seconds(pid);
        let cost = (after.0 + after.1 - before.0 - before.1) / round.jobs as f64;
        Ok(Measured { round, cost })
    }

    /// Registers an orchestration and returns its ID.
    fn define(&self, steps: &[String], result: &str) -> Result<String, Fault> {
        let steps = steps.join(",");
        let text = format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{steps}],"result":{result}}}}}"#
        );
        let address = self.venue.address;
        let answer = Client::connect(address)?.ask(&post(address, "/api/v1/assets", &text))?;
        match answer {
            (201, body) => Ok(String::from_utf8(body)?.trim().trim_matches('"').to_owned()),
            (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
        }
    }

    /// Registers the fan-out with its join, and returns the body that invokes it.
    pub(crate) fn fan_invocation(&self) -> Result<String, Fault> {
        let mut steps: Vec<String> =
            (0..FAN_STEPS).map(|n| echo(&format!(r#"{{"n":["const",{n}]}}"#))).collect();
        let all: Vec<String> = (0..FAN_STEPS).map(|n| format!(r#"[{n},"n"]"#)).collect();
        steps.push(echo(&format!(r#"["array",{}]"#, all.join(","))));
        let operation = self.define(&steps, &format!("[{FAN_STEPS}]"))?;
        Ok(invocation(&operation, "{}"))
    }

    /// The time of one invocation, up to the end of the job.
    fn time_of(&self, operation: &str) -> Result<Duration, Fault> {
        let body = invocation(operation, "{}").replacen('{', r#"{"wait":60000,"#, 1);
        let address = self.venue.address;
        let mut client = Client::connect(address)?;
        let begun = Instant::now();
        let (status, body) = client.ask(&post(address, "/api/v1/invoke", &body))?;
        let took = begun.elapsed();
        let text = String::from_utf8_lossy(&body);
        if status != 200 || !text.contains(r#""status":"COMPLETE""#) {
            let start: String = text.chars().take(400).collect();
            return Err(format!("{status}: {start}").into());
        }
        Ok(took)
    }
}

fn echo(input: &str) -> String {
    format!(r#"{{"op":"test:echo","input":{input}}}"#)
}

/// A fan-out of echo steps and a join, against plain echo jobs.
fn fan(bench: &Bench, rounds: usize) -> Result<(), Fault> {
    let workflow = bench.fan_invocation()?;
    let plain = invocation("test:echo", r#"{"n":1}"#);
    let (mut by_time, mut by_cost, mut rates, mut alone) = (vec![], vec![], vec![], vec![]);
    let parts = (FAN_STEPS + 1) as f64;
    for _ in 0..rounds {
        let jobs = bench.measure(&plain, AT_ONCE)?;
        let workflows = bench.measure(&workflow, AT_ONCE)?;
        let single = bench.measure(&workflow, 1)?;
        let time = jobs.round.rate() / (workflows.round.rate() * parts);
        let cost = workflows.cost / parts / jobs.cost;
        println!(
            "{FAN_STEPS} echo steps and a join, {AT_ONCE} at once: {:.0} workflows/s, p50 {:.2} ms, p99 {:.2} ms; one alone: p50 {:.2} ms; plain echo {:.0}/s; a step costs {time:.2} of a job by time, {cost:.2} by core",
            workflows.round.rate(),
            workflows.round.p50_us as f64 / 1e3,
            workflows.round.p99_us as f64 / 1e3,
            single.round.p50_us as f64 / 1e3,
            jobs.round.rate(),
        );
        by_time.push(time);
        by_cost.push(cost);
        rates.push(workflows.round.rate());
        alone.push(single.round.p50_us as f64 / 1e3);
    }
    println!(
        "medians: {:.0} workflows/s, one alone {:.2} ms, a step costs {:.2} of a plain job by time (aim: 0.70 at most), {:.2} by core",
        median(rates),
        median(alone),
        median(by_time),
        median(by_cost)
    );
    Ok(())
}

/// The cost of a step in long chains and wide fans, compared with short ones.
fn growth(bench: &Bench, small: bool) -> Result<(), Fault> {
    let tries = if small { 1 } else { 15 };
    let large = if small { 100 } else { 1_000 };
    let chain = |length: usize| -> Vec<String> {
        let step = |n: usize| match n {
            0 => echo(r#"{"n":["const",0]}"#),
            n => echo(&format!(r#"{{"n":[{},"n"]}}"#, n - 1)),
        };
        (0..length).map(step).collect()
    };
    let wide = |width: usize| -> Vec<String> {
        (0..width).map(|n| echo(&format!(r#"{{"n":["const",{n}]}}"#))).collect()
    };
    for (name, few, many) in [("chain", chain(10), chain(large)), ("fan", wide(10), wide(large))] {
        let per_step = |steps: &[String]| -> Result<f64, Fault> {
            let result = format!("[{}]", steps.len() - 1);
            let operation = bench.define(steps, &result)?;
            bench.time_of(&operation)?;
            let times: Result<Vec<f64>, Fault> =
                (0..tries).map(|_| Ok(bench.time_of(&operation)?.as_secs_f64())).collect();
            Ok(median(times?) / steps.len() as f64)
        };
        let short = per_step(&few)?;
        let long = per_step(&many)?;
        println!(
            "{name}: {:.1} us a step of 10, {:.1} us a step of {large}: {:.2} of it (aim: 1.5 at most)",
            short * 1e6,
            long * 1e6,
            long / short
        );
    }
    Ok(())
}

/// The time that scheduling adds to steps that sleep.
fn sleeps(bench: &Bench) -> Result<(), Fault> {
    let step = r#"{"op":"test:delay","input":{"delay":["const",400]}}"#.to_owned();
    let operation = bench.define(&vec![step; 20], r#"["const","done"]"#)?;
    let mut extra = Vec::new();
    for _ in 0..5 {
        extra.push((bench.time_of(&operation)?.as_secs_f64() - 0.4) * 1e3);
    }
    println!(
        "20 steps that sleep 400 ms each: {:.1} ms more than 400 (aim: 60 at most)",
        median(extra)
    );
    Ok(())
}
