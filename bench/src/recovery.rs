//! `recovery`: how long it takes until live jobs are claimable again after a crash, and how recovery
//! affects new work.
//!
//! A separate process creates the jobs and is killed. Half of the jobs were running then, the other
//! half were queued.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use catena_auth::KeyPair;
use catena_engine::requests::Invoke;
use catena_engine::runtime::SystemEnv;
use catena_engine::{
    Adapter, Call, Caller, Engine, ExecutionMode, Failure, Limits, Registration, Setup, Turn,
    TurnFuture,
};
use catena_job::Status;
use catena_store::embedded::DataFolder;
use catena_value::{Value, json};
use tokio::runtime::Runtime;

use crate::Fault;
use crate::measure::{filled_and_killed, resident_kb};

/// Fill a store with live jobs, kill the process, start an engine on it, and measure recovery.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The data folder; a temporary folder by default.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The number of live jobs.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Only create the jobs and wait to be killed; used by the command itself.
    #[arg(long, hide = true)]
    fill: bool,
}

/// The number of concurrent invocations while filling.
const FILLERS: usize = 256;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let temporary = tempfile::tempdir()?;
    let folder = args.folder.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    if args.fill {
        let (_runtime, _engine) = fill(&folder, args.jobs)?;
        println!("filled");
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    fill_and_kill(&folder, args.jobs)?;
    measure(&folder, args.jobs)
}

fn fill_and_kill(folder: &Path, jobs: usize) -> Result<(), Fault> {
    let (_, seconds) = filled_and_killed("recovery", folder, jobs)?;
    println!("{jobs} live jobs in {seconds:.1} s, then SIGKILL");
    Ok(())
}

/// Creates the jobs, which stay live until the returned runtime is dropped.
fn fill(folder: &Path, jobs: usize) -> Result<(Runtime, Engine), Fault> {
    let runtime = two_cores()?;
    let limits = Limits {
        running_max: jobs / 2,
        live_jobs_per_caller_max: usize::MAX,
        grace: Duration::ZERO,
        ..Limits::default()
    };
    let engine = runtime.block_on(start(folder, limits))?;
    let tasks: Vec<_> = (0..FILLERS)
        .map(|first| {
            let engine = engine.clone();
            runtime.spawn(async move {
                for _ in (first..jobs).step_by(FILLERS) {
                    engine.invoke(request("bench:wait")).await?;
                }
                Ok::<_, Fault>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok((runtime, engine))
}

fn measure(folder: &Path, jobs: usize) -> Result<(), Fault> {
    let runtime = two_cores()?;
    let limits = Limits { live_jobs_per_caller_max: usize::MAX, ..Limits::default() };
    let started = Instant::now();
    let engine = runtime.block_on(start(folder, limits))?;
    let serving = started.elapsed();
    let recovering = runtime.spawn({
        let engine = engine.clone();
        async move {
            let summary = engine.recovered().await;
            (summary, started.elapsed())
        }
    });
    let (inline, running) = runtime.block_on(new_work(&engine))?;
    let (summary, claimable) = runtime.block_on(recovering)?;
    let jobs = jobs as u64;
    // New work starts meanwhile and may be found live as well; it is left alone.
    let is_complete = summary.found >= jobs && summary.requeued + summary.left == summary.found;
    if !is_complete {
        return Err(format!("not all were put back: {summary:?}").into());
    }
    println!("store open, engine takes work after {:.3} s", serving.as_secs_f64());
    println!(
        "all {jobs} claimable after {:.3} s from the start of the process's work, recovery itself \
         {:.3} s, {:.0} jobs/s",
        claimable.as_secs_f64(),
        summary.took.unwrap_or_default().as_secs_f64(),
        jobs as f64 / summary.took.unwrap_or_default().as_secs_f64()
    );
    println!("new inline jobs meanwhile: {}", latency_summary(inline));
    println!("new running jobs meanwhile: {}", latency_summary(running));
    println!("{} MB resident", resident_kb() / 1024);
    Ok(())
}

/// Invokes two kinds of jobs alternately until recovery is done, at least once. Returns their
/// latencies.
async fn new_work(engine: &Engine) -> Result<(Vec<Duration>, Vec<Duration>), Fault> {
    let mut inline = Vec::new();
    let mut running = Vec::new();
    loop {
        for (operation, times) in [("bench:echo", &mut inline), ("bench:brief", &mut running)] {
            let asked = Instant::now();
            let invoked = engine.invoke(request(operation)).await?;
            times.push(asked.elapsed());
            if invoked.view.status() != Status::Complete {
                return Err(format!("{operation} is {}", invoked.view.status()).into());
            }
        }
        if engine.recovery().is_done() {
            return Ok((inline, running));
        }
    }
}

fn latency_summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    format!("{} ended, p50 {p50:.1} ms, p99 {p99:.1} ms, longest {max:.1} ms", times.len())
}

fn two_cores() -> Result<Runtime, Fault> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?)
}

async fn start(folder: &Path, limits: Limits) -> Result<Engine, Fault> {
    let folder = DataFolder::open(folder)?;
    let key = KeyPair::from_seed(&[7; 32]);
    let engine = Engine::start(Setup {
        secrets_key: None,
        previous_secrets_key: None,
        store: folder.store.clone(),
        blobs: folder.blobs.clone(),
        env: Arc::new(SystemEnv::new()),
        did: key.did(),
        key,
        limits,
        adapters: vec![Arc::new(Bench)],
        assets: Vec::new(),
        admins: Vec::new(),
        aborts: Default::default(),
    });
    Ok(engine.await?)
}

fn request(operation: &str) -> Invoke {
    let input = json::read(br#"{"text":"hello","n":1}"#).unwrap_or_default();
    let caller = Caller::known("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK");
    let wait = (operation == "bench:brief").then_some(Duration::from_secs(60));
    Invoke { wait, ..Invoke::new(caller, operation, input) }
}

/// `bench:echo` runs inline, `bench:brief` runs as a task and ends at once, `bench:wait` does not end.
struct Bench;

impl Adapter for Bench {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn description(&self) -> &'static str {
        "Operations for this benchmark."
    }

    fn operations(&self) -> Vec<Registration> {
        let operation = |name: &'static str, mode: ExecutionMode| {
            let text = format!(
                r#"{{"name":"{name}","operation":{{"adapter":"bench:{name}","pure":true}}}}"#
            );
            let metadata = json::read(text.as_bytes()).unwrap_or_default();
            Registration { name, metadata, mode }
        };
        vec![
            operation("echo", ExecutionMode::Inline),
            operation("brief", ExecutionMode::Task),
            operation("wait", ExecutionMode::Task),
        ]
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        Ok(call.input.clone())
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            match call.operation.name() {
                "wait" => std::future::pending().await,
                _ => Turn::Complete(call.input),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_one_recovers() {
        let folder = tempfile::tempdir().unwrap();
        // Running jobs end with their runtime, as after a crash.
        drop(fill(folder.path(), 50).unwrap());
        measure(folder.path(), 50).unwrap();
    }
}
