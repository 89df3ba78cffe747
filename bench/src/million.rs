//! `store-million`: what a large history costs.
//!
//! The filling runs in a process of its own, which is killed without warning, so that the opening
//! that is measured is one after a crash.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use catena_job::state::Event;
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::jobs::{Draft, echo, hello, job_id, opening};
use catena_store::{Effects, Filter, ListOrder, ListQuery, Store};
use tokio::runtime::Runtime;

use crate::Fault;
use crate::measure::{filled_and_killed, resident_kb};

/// Fill a store with finished jobs, kill the process, open it again, and compare costs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder to work in [default: a temporary folder].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Number of jobs.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: u64,
    /// Only fill, then wait to be killed; used by the command itself.
    #[arg(long, hide = true)]
    fill: bool,
}

/// Jobs of the small store that costs are compared with.
const FEW: u64 = 1_000;

/// Measurements of each kind.
const SAMPLES: u64 = 1_000;

const OWNERS: u64 = 100;

/// Jobs of one page; as many as an owner has in the small store.
const LISTED: usize = 10;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let temporary = tempfile::tempdir()?;
    let folder = args.folder.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    if args.fill {
        return fill_and_wait(&folder, args.jobs);
    }
    for (name, jobs) in [("few", FEW), ("many", args.jobs)] {
        fill_and_kill(&folder.join(name), jobs)?;
    }
    let few = measure(&folder.join("few"), FEW)?;
    let many = measure(&folder.join("many"), args.jobs)?;
    println!("ratio of {} jobs to {FEW}:", args.jobs);
    for ((name, few), (_, many)) in few.iter().zip(&many) {
        println!("  {name}: {:.2}", many / few);
    }
    Ok(())
}

fn fill_and_kill(folder: &Path, jobs: u64) -> Result<(), Fault> {
    let (said, seconds) = filled_and_killed("store-million", folder, jobs as usize)?;
    println!("{jobs} jobs in {seconds:.1} s, then killed: {said}");
    Ok(())
}

fn fill_and_wait(folder: &Path, jobs: u64) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let store = EmbeddedStore::open(folder)?;
    runtime.block_on(fill(&store, jobs))?;
    println!("filled, {} MB resident", resident_kb() / 1024);
    // The parent kills this process now; work goes on so that there is something to interrupt.
    for number in 0.. {
        runtime.block_on(commit(&store, jobs + number))?;
    }
    Ok(())
}

async fn fill(store: &EmbeddedStore, jobs: u64) -> Result<(), Fault> {
    const PER_COMMIT: u64 = 50;
    const IN_FLIGHT: usize = 32;
    let mut answers = std::collections::VecDeque::new();
    for first in (0..jobs).step_by(PER_COMMIT as usize) {
        let numbers = first..(first + PER_COMMIT).min(jobs);
        let effects = numbers.map(|n| echo(job_id(n), &owner(n)).effect());
        answers.push_back(store.commit(Effects(effects.collect())));
        if answers.len() > IN_FLIGHT
            && let Some(answer) = answers.pop_front()
        {
            answer.await?;
        }
    }
    for answer in answers {
        answer.await?;
    }
    Ok(())
}

fn owner(number: u64) -> String {
    format!("did:key:z6Mk{:02}", number % OWNERS)
}

async fn commit(store: &EmbeddedStore, number: u64) -> Result<(), Fault> {
    store.commit(Effects::one(echo(job_id(number), &owner(number)).effect())).await?;
    Ok(())
}

/// Opens the store and measures single operations, in microseconds.
fn measure(folder: &Path, jobs: u64) -> Result<Vec<(&'static str, f64)>, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let started = Instant::now();
    let store = EmbeddedStore::open(folder)?;
    let opened = started.elapsed();
    println!(
        "{jobs} jobs: opened after SIGKILL in {:.3} s ({:?})",
        opened.as_secs_f64(),
        store.report()
    );
    // What was replayed moves into the index first, so that both are read from there.
    while store.counters().flushes == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Every job once, in no order: the store caches jobs that were read recently, and a thousand jobs all fit.
    let spread = |sample: u64| sample * 617 % SAMPLES * (jobs / SAMPLES).max(1) % jobs;
    let read_job = |sample: u64| {
        let answer = store.job(job_id(spread(sample)));
        async { answer.await?.map(drop).ok_or_else(|| "a job is missing".into()) }
    };
    // The first time from the file or the system's cache, the second from the store's own.
    let first_read = timed(&runtime, read_job)?;
    let read = timed(&runtime, read_job)?;
    let list = timed(&runtime, |sample| {
        let query = ListQuery {
            owner: Some(owner(sample)),
            filter: Filter::All,
            order: ListOrder::Newest,
            after: None,
            limit: LISTED,
        };
        let answer = store.list(&query);
        async {
            answer.await?;
            Ok(())
        }
    })?;
    let append = timed(&runtime, |sample| append(&store, (1 << 40) + sample))?;
    println!(
        "{jobs} jobs: first read {first_read:.1} us, read again {read:.1} us, newest {LISTED} of an owner {list:.1} us, new job and append to it {append:.0} us, {} MB resident",
        resident_kb() / 1024
    );
    store.close()?;
    let costs = [
        ("first read", first_read),
        ("read again", read),
        ("list", list),
        ("new job and append", append),
    ];
    Ok(costs.to_vec())
}

/// A job that stays, and a change to it: two commits.
async fn append(store: &EmbeddedStore, number: u64) -> Result<(), Fault> {
    let draft = Draft::open(opening(job_id(number), &owner(number), hello()), 5);
    let mut next = Draft::from_job(draft.job.clone());
    store.commit(Effects::one(draft.effect())).await?;
    next.change(Event::Started);
    store.commit(Effects::one(next.effect())).await?;
    Ok(())
}

/// The median time of one operation, in microseconds.
fn timed<F>(runtime: &Runtime, mut once: impl FnMut(u64) -> F) -> Result<f64, Fault>
where
    F: Future<Output = Result<(), Fault>>,
{
    let mut times = Vec::new();
    for sample in 0..SAMPLES {
        let started = Instant::now();
        runtime.block_on(once(sample))?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(crate::measure::median(times))
}
