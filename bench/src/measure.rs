//! Runs a workload from many writers and measures its cost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::Fault;

/// The measurements of one round.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) jobs: u64,
    pub(crate) seconds: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

impl Round {
    /// The measurements of a round, from the latency of each request in microseconds.
    pub(crate) fn from_latencies(mut latencies: Vec<u32>, took: Duration) -> Result<Round, Fault> {
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len().saturating_sub(1)) as f64 * share;
            latencies.get(place as usize).copied().map(u64::from).ok_or("nothing was done")
        };
        Ok(Round {
            jobs: latencies.len() as u64,
            seconds: took.as_secs_f64(),
            p50_us: at(0.5)?,
            p99_us: at(0.99)?,
            max_us: at(1.0)?,
        })
    }

    pub(crate) fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds
    }
}

/// Runs `once` in a loop on `writers` tasks for the given time.
pub(crate) fn drive<F>(
    runtime: &Runtime,
    writers: usize,
    time: Duration,
    once: impl Fn() -> F + Send + Sync + 'static,
) -> Result<Round, Fault>
where
    F: Future<Output = Result<(), Fault>> + Send,
{
    let once = Arc::new(once);
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let once = Arc::clone(&once);
            let stop = Arc::clone(&stop);
            runtime.spawn(async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    once().await?;
                    let micros = began.elapsed().as_micros();
                    latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
                }
                Ok::<_, Fault>(latencies)
            })
        })
        .collect();
    runtime.block_on(async { tokio::time::sleep(time).await });
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(runtime.block_on(task)??);
    }
    Round::from_latencies(latencies, started.elapsed())
}

/// The median of several rates.
pub(crate) fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

/// The resident memory of this process in kB.
pub(crate) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Runs this program in a child process that fills a folder with jobs, and kills it with SIGKILL when
/// it reports that it is done. Returns its report and the time in seconds.
pub(crate) fn filled_and_killed(
    command: &str,
    folder: &Path,
    jobs: usize,
) -> Result<(String, f64), Fault> {
    let started = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .args([command, "--fill", "--jobs", &jobs.to_string(), "--folder"])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    if !line.starts_with("filled") {
        return Err("the child did not fill the store".into());
    }
    Ok((line.trim().to_owned(), started.elapsed().as_secs_f64()))
}
