//! `cells`: Python cells through the sandbox and through a venue, against a plain interpreter.
//!
//! Every cell is checked: that it succeeded, and that it printed what it should.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use catena_sandbox::{
    Cell, Config, Control, Interpreter, Outcome, Profile, Sandbox, USUAL_PATHS, Verdict,
};

use crate::Fault;
use crate::measure::{Round, median};
use crate::web::{Client, Complete, Options, Until, Venue, drive, invocation, post};

/// Cells through the sandbox and over HTTP: latency, rate, and what is left after many.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Cells whose latency is measured, through the sandbox and over HTTP.
    #[arg(long, default_value_t = 2_000)]
    cells: usize,
    /// Cells after which memory, descriptors and processes are compared.
    #[arg(long, default_value_t = 10_000)]
    many: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// Threads that run cells at the same time.
const THREADS: usize = 2;

/// The number of connections of a load of echo jobs.
const CONNECTIONS: usize = 64;

/// How long the executor of a venue may take to announce itself.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (cells, many) = if args.small { (40, 200) } else { (args.cells, args.many) };
    let paths: Vec<PathBuf> = USUAL_PATHS.iter().map(PathBuf::from).collect();
    let interpreter = Interpreter::first_of(&paths)?;
    let profile = Profile {
        name: "bare".to_owned(),
        interpreter: interpreter.clone(),
        has_site: false,
        packages: None,
        preload: Vec::new(),
    };
    let sandbox = Sandbox::start(Config { pool: 8, ..Config::new(profile) })?;
    println!("tier {}, Python {}", sandbox.tier(), interpreter.version());
    let plain = measure((cells / 10).max(10), || plain_cell(&interpreter))?;
    print("python3 -I -c, no sandbox", &plain);
    let mut latencies = Vec::with_capacity(cells);
    let begun = Instant::now();
    for _ in 0..cells {
        sandbox.wait_ready(Duration::from_secs(10));
        let started = Instant::now();
        check(&sandbox)?;
        latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    let sandboxed = Round::from_latencies(latencies, begun.elapsed())?;
    print("print(1) through the sandbox", &sandboxed);
    let ratio = sandboxed.p50_us as f64 / plain.p50_us as f64;
    println!("  ratio of the medians {ratio:.2} (target 0.5)");
    many_cells(&sandbox, many)?;
    drop(sandbox);
    over_http(args, cells, &sandboxed)?;
    with_idle_executor(args)
}

/// Echo jobs of a venue with an executor that has nothing to do, against one without.
fn with_idle_executor(args: &Args) -> Result<(), Fault> {
    let (rounds, seconds) = if args.small { (1, 0.2) } else { (9, 2.0) };
    let (folder, _guard) = args.options.folder()?;
    let binary = args.options.binary()?;
    let start = |name: &str, count: &str| {
        Venue::start_with(&binary, &folder.join(name), None, &["--executors", count])
    };
    let (without, with) = (start("without", "0")?, start("with", "1")?);
    // The executor has started its interpreter by then.
    std::thread::sleep(Duration::from_secs(2));
    let bodies = [invocation("test:echo", r#"{"text":"hello"}"#)];
    let (mut without_rates, mut with_rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (venue, rates) in [(&without, &mut without_rates), (&with, &mut with_rates)] {
            let mut load = Complete::new(venue.address, &bodies);
            let until = Until::Passed(Duration::from_secs_f64(seconds));
            let mode = args.options.wait_mode();
            rates.push(drive(venue.address, CONNECTIONS, until, mode, &mut load)?.rate());
        }
    }
    let (alone, idle) = (median(without_rates), median(with_rates));
    let loss = (1.0 - idle / alone) * 100.0;
    println!(
        "submit_echo: {alone:.0}/s without an executor, {idle:.0}/s with one that idles: {loss:.1} % less (target: below 5 %)"
    );
    Ok(())
}

fn measure(count: usize, once: impl Fn() -> Result<(), Fault>) -> Result<Round, Fault> {
    let mut latencies = Vec::with_capacity(count);
    let begun = Instant::now();
    for _ in 0..count {
        let started = Instant::now();
        once()?;
        latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Round::from_latencies(latencies, begun.elapsed())
}

pub(crate) fn print(name: &str, round: &Round) {
    let ms = |us: u64| us as f64 / 1000.0;
    println!(
        "{name}: {} cells, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        round.jobs,
        ms(round.p50_us),
        ms(round.p99_us),
        ms(round.max_us)
    );
}

fn plain_cell(interpreter: &Interpreter) -> Result<(), Fault> {
    let output = Command::new(interpreter.executable()).args(["-I", "-c", "print(1)"]).output()?;
    if output.stdout == b"1\n" {
        Ok(())
    } else {
        Err("the interpreter printed something else".into())
    }
}

fn check(sandbox: &Sandbox) -> Result<(), Fault> {
    let Outcome { verdict, stdout, .. } = sandbox.run(&Cell::new("print(1)"), &Control::new()?)?;
    if verdict == Verdict::Succeeded && stdout.text == "1\n" {
        return Ok(());
    }
    Err(format!("a cell ended as {verdict:?} with {:?}", stdout.text).into())
}

/// Memory in kB, descriptors, and processes of this process.
pub(crate) fn used() -> Result<[u64; 3], Fault> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
    let descriptors = std::fs::read_dir("/proc/self/fd")?.count() as u64;
    let own = format!("PPid:\t{}", std::process::id());
    let is_child = |entry: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == own)
    };
    let children = std::fs::read_dir("/proc")?.flatten().filter(is_child).count() as u64;
    Ok([resident.ok_or("there is no VmRSS")?, descriptors, children])
}

/// Runs many cells on two threads, and compares what is used after a tenth of them and at the end.
fn many_cells(sandbox: &Sandbox, many: usize) -> Result<(), Fault> {
    let spin = |count: usize| -> Result<Duration, Fault> {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| (0..count / THREADS).try_for_each(|_| check(sandbox))))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread ended early".into()))
            })
        })?;
        let took = begun.elapsed();
        // The pool is full again, and what ended is reaped.
        sandbox.wait_ready(Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(300));
        Ok(took)
    };
    spin(many / 10)?;
    let before = used()?;
    let took = spin(many)?;
    let after = used()?;
    println!("{many} cells on {THREADS} threads: {:.0} cells/s", many as f64 / took.as_secs_f64());
    for (name, (before, after)) in
        ["kB resident", "descriptors", "processes"].iter().zip(before.iter().zip(&after))
    {
        let change = (*after as f64 / *before as f64 - 1.0) * 100.0;
        println!("  {name}: {before} after a tenth, {after} at the end ({change:+.1} %)");
    }
    Ok(())
}

/// Cells as jobs of a venue with one executor, one at a time and several at a time.
fn over_http(args: &Args, cells: usize, sandboxed: &Round) -> Result<(), Fault> {
    let (folder, _guard) = args.options.folder()?;
    let binary = args.options.binary()?;
    let venue = Venue::start_with(&binary, &folder.join("data"), None, &["--executors", "1"])?;
    let address = venue.address;
    let body = invocation("exec:python", r#"{"code":"print(1)"}"#);
    let request = post(address, "/api/v1/invoke", &body.replacen('{', r#"{"wait":60000,"#, 1));
    let ask = |client: &mut Client| -> Result<bool, Fault> {
        let (status, reply) = client.ask(&request)?;
        let text = String::from_utf8_lossy(&reply);
        if status == 201 && text.contains(r#""status":"REJECTED""#) {
            return Ok(false);
        }
        if text.contains(r#""status":"COMPLETE""#) && text.contains(r#""stdout":"1\n""#) {
            return Ok(true);
        }
        Err(format!("{status}: {text}").into())
    };
    let mut client = Client::connect(address)?;
    let begun = Instant::now();
    // Code is refused until the executor has announced itself.
    while !ask(&mut client)? {
        if begun.elapsed() > ANNOUNCED_WITHIN {
            return Err("the executor did not announce itself".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut latencies = Vec::with_capacity(cells);
    let begun = Instant::now();
    for _ in 0..cells {
        let started = Instant::now();
        if !ask(&mut client)? {
            return Err("a cell was rejected".into());
        }
        latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    let alone = Round::from_latencies(latencies, begun.elapsed())?;
    print("print(1) over HTTP, submit to result", &alone);
    let more = (alone.p50_us as f64 - sandboxed.p50_us as f64) / 1000.0;
    println!("  {more:.2} ms more than the sandbox at the median (target 6)");
    let begun = Instant::now();
    let clients = 4 * THREADS;
    std::thread::scope(|scope| {
        let one = || -> Result<(), Fault> {
            let mut client = Client::connect(address)?;
            (0..cells / clients).try_for_each(|_| ask(&mut client).map(drop))
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread ended early".into()))
        })
    })?;
    let rate = (cells / clients * clients) as f64 / begun.elapsed().as_secs_f64();
    println!("print(1) over HTTP, {clients} at a time: {rate:.0} cells/s (target 200)");
    Ok(())
}
