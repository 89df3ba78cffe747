//! `store`: how fast echo jobs become durable, against a bare log in the same run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catena_job::state::Event;
use catena_ledger::RealDisk;
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::jobs::{Draft, echo, hello, job_id, opening};
use catena_store::{Effects, Store};
use tokio::runtime::Runtime;

use crate::Fault;
use crate::bare::BareLog;
use crate::measure::{Round, drive, median};

/// 64 writers commit echo jobs, with one commit per job and with two, against a bare log.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder to work in [default: a temporary folder].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Writers at a time.
    #[arg(long, default_value_t = 64)]
    writers: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Rounds of each kind, alternating.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds after which rows in memory are flushed to the index [default: that of the store].
    #[arg(long)]
    flush_ms: Option<u64>,
    /// Size of the index's page cache in MiB [default: that of the store].
    #[arg(long)]
    cache_mib: Option<usize>,
    /// Write through the system's cache and sync, store and bare log alike.
    #[arg(long)]
    cached: bool,
    /// Only the first workload, for a profiler.
    #[arg(long)]
    one_commit_only: bool,
}

/// The owner of a job: one of a hundred callers.
fn owner(number: u64) -> String {
    format!("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2d{:02}", number % 100)
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let temporary = tempfile::tempdir()?;
    let folder = args.folder.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let bench = Bench {
        runtime,
        store: Arc::new(open(&folder.join("store"), args)?),
        bare: Arc::new(BareLog::start(&folder.join("bare"), args.cached)?),
        numbers: Arc::new(AtomicU64::new(1)),
        args,
    };
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        let (round, bytes) = bench.store_round("one commit", one_commit)?;
        rates[0].push(round.rate());
        if args.one_commit_only {
            continue;
        }
        rates[1].push(bench.bare_round(bytes)?.rate());
        rates[2].push(bench.store_round("two commits", two_commits)?.0.rate());
    }
    // A share is taken within each round, between neighbours in time: what else the machine does
    // then weighs on both.
    let share = |at: usize| {
        let pairs = rates[at].iter().zip(&rates[1]);
        median(pairs.map(|(rate, bare)| rate / bare).collect())
    };
    let (one_share, two_share) = (share(0), share(2));
    let [one, bare, two] = rates.map(median);
    println!(
        "median: one commit {one:.0} jobs/s, two commits {two:.0} jobs/s, bare log {bare:.0} jobs/s"
    );
    println!("ratio to the bare log: one commit {one_share:.2}, two commits {two_share:.2}");
    println!("last head: {}", bench.last_head()?);
    bench.store.close()?;
    Ok(())
}

fn open(folder: &Path, args: &Args) -> Result<EmbeddedStore, Fault> {
    let mut options = EmbeddedStore::options();
    if let Some(ms) = args.flush_ms {
        options.flush_interval = Duration::from_millis(ms);
    }
    if let Some(mib) = args.cache_mib {
        options.index_cache_bytes = mib << 20;
    }
    options.uncached_journal = !args.cached;
    Ok(EmbeddedStore::open_on(Arc::new(RealDisk::new(folder)?), options)?)
}

struct Bench<'a> {
    runtime: Runtime,
    store: Arc<EmbeddedStore>,
    bare: Arc<BareLog>,
    numbers: Arc<AtomicU64>,
    args: &'a Args,
}

impl Bench<'_> {
    fn time(&self) -> Duration {
        Duration::from_secs(self.args.seconds)
    }

    /// One round against the store; also the bytes that each job put into the journal.
    fn store_round<F>(
        &self,
        name: &str,
        job: fn(Arc<EmbeddedStore>, u64) -> F,
    ) -> Result<(Round, u64), Fault>
    where
        F: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let before = self.store.counters();
        let (store, numbers) = (Arc::clone(&self.store), Arc::clone(&self.numbers));
        let once = move || job(Arc::clone(&store), numbers.fetch_add(1, Ordering::Relaxed));
        let round = drive(&self.runtime, self.args.writers, self.time(), once)?;
        let after = self.store.counters();
        let bytes = (after.payload_bytes - before.payload_bytes) / round.jobs;
        let written = (after.journal_bytes - before.journal_bytes) / round.jobs;
        print(name, &round, after.syncs - before.syncs, bytes, written);
        Ok((round, bytes))
    }

    /// The same jobs, encoded the same way, but only appended to a log.
    fn bare_round(&self, bytes: u64) -> Result<Round, Fault> {
        let before = self.bare.syncs.load(Ordering::Relaxed);
        let (bare, numbers) = (Arc::clone(&self.bare), Arc::clone(&self.numbers));
        let once = move || {
            let bare = Arc::clone(&bare);
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            async move {
                let draft = echo(job_id(number), &owner(number));
                let mut entry = EmbeddedStore::as_log_entry(Effects::one(draft.effect()))?;
                // The store's frames have a few bytes more for each row.
                entry.resize(entry.len().max(bytes as usize), 0);
                bare.append(entry).await
            }
        };
        let round = drive(&self.runtime, self.args.writers, self.time(), once)?;
        let syncs = self.bare.syncs.load(Ordering::Relaxed) - before;
        print("bare log", &round, syncs, bytes, bytes);
        Ok(round)
    }

    fn last_head(&self) -> Result<String, Fault> {
        let stored = self.runtime.block_on(self.store.job(job_id(1)))?;
        Ok(stored.ok_or("the first job is missing")?.job.head().to_string())
    }
}

async fn one_commit(store: Arc<EmbeddedStore>, number: u64) -> Result<(), Fault> {
    let draft = echo(job_id(number), &owner(number));
    store.commit(Effects::one(draft.effect())).await?;
    Ok(())
}

async fn two_commits(store: Arc<EmbeddedStore>, number: u64) -> Result<(), Fault> {
    let mut draft = Draft::open(opening(job_id(number), &owner(number), hello()), 5);
    draft.change(Event::Started);
    let mut next = Draft::from_job(draft.job.clone());
    store.commit(Effects::one(draft.effect())).await?;
    next.change(Event::Finished { output: hello() });
    store.commit(Effects::one(next.effect())).await?;
    Ok(())
}

fn print(name: &str, round: &Round, syncs: u64, bytes: u64, written: u64) {
    println!(
        "{name:>11}: {:>7.0} jobs/s  p50 {:.2} ms  p99 {:.2} ms  max {:.1} ms  {:.3} syncs/job  {bytes} bytes/job ({written} with padding)",
        round.rate(),
        round.p50_us as f64 / 1e3,
        round.p99_us as f64 / 1e3,
        round.max_us as f64 / 1e3,
        syncs as f64 / round.jobs as f64,
    );
}
