//! What earlier processes of a venue left when they aborted.
//!
//! Two files of the data folder: `abort-mark`, which the handler of a fatal signal writes, and `suspects`,
//! which has a line for each job that was being worked on at an abort, with the number of aborts. They are
//! read once, when the venue starts; an idle venue writes neither.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use catena_engine::Engine;
use catena_engine::runtime::Aborts;
use catena_job::JobId;

use crate::limits::{SUSPECTS_CHECK, SUSPECTS_MAX};

const MARK_FILE: &str = "abort-mark";
const SUSPECTS_FILE: &str = "suspects";

/// A mark: the number of the signal, and the IDs of jobs.
pub type Mark = (u64, Vec<[u8; 16]>);

/// How a process leaves a mark when it aborts, and how the next one reads it. The binary provides it,
/// because this crate contains no handlers of signals.
#[derive(Clone, Copy)]
pub struct AbortWatch {
    /// Makes this process write a mark to a file if it aborts: which signal it was, and the jobs in the
    /// table, two words for each thread.
    pub start: fn(File, &'static [AtomicU64]) -> io::Result<()>,
    /// Reads a mark. `None` if there is none.
    pub parse: fn(&[u8]) -> Option<Mark>,
}

/// Reads what earlier processes left, and starts to watch this one.
pub(crate) fn begin(data: &Path, watch: AbortWatch) -> io::Result<Aborts> {
    let mut by_job = parse_suspects(&read(&data.join(SUSPECTS_FILE))?);
    let mut was_last = false;
    let mark = data.join(MARK_FILE);
    if let Some((signal, jobs)) = (watch.parse)(&read(&mark)?) {
        // Two threads may have been working on the same job.
        let jobs: HashSet<JobId> = jobs.into_iter().map(JobId::from_bytes).collect();
        tracing::error!(
            signal,
            ?jobs,
            "the previous process aborted while it was working on these jobs"
        );
        for job in jobs {
            *by_job.entry(job).or_default() += 1;
        }
        write_suspects(data, &by_job)?;
        was_last = true;
    }
    (watch.start)(File::create(&mark)?, catena_engine::runtime::work_on_threads())?;
    Ok(Aborts { by_job, was_last })
}

/// Removes jobs from the file that are no longer suspects. Returns when there are none.
pub(crate) async fn forget_acquitted(data: PathBuf, engine: Engine) {
    let mut known = engine.suspects();
    while !known.is_empty() {
        tokio::time::sleep(SUSPECTS_CHECK).await;
        let now = engine.suspects();
        if now == known {
            continue;
        }
        match write_suspects(&data, &now) {
            Ok(()) => known = now,
            Err(error) => tracing::warn!(%error, "could not write the list of suspects"),
        }
    }
}

/// Returns the content of a file, which is empty if there is no file.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

fn parse_suspects(text: &[u8]) -> HashMap<JobId, u32> {
    let text = String::from_utf8_lossy(text);
    let parse = |line: &str| {
        let (job, count) = line.split_once(' ')?;
        Some((job.parse().ok()?, count.parse().ok()?))
    };
    text.lines().filter_map(parse).take(SUSPECTS_MAX).collect()
}

fn write_suspects(data: &Path, by_job: &HashMap<JobId, u32>) -> io::Result<()> {
    let mut text = String::new();
    for (job, count) in by_job.iter().take(SUSPECTS_MAX) {
        let _ = writeln!(text, "{job} {count}");
    }
    let temporary = data.join(format!("{SUSPECTS_FILE}.new"));
    let mut file = File::create(&temporary)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, data.join(SUSPECTS_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: AbortWatch = AbortWatch {
        start: |_, _| Ok(()),
        parse: |bytes| {
            let (jobs, _) = bytes.as_chunks::<16>();
            (!jobs.is_empty()).then(|| (6, jobs.to_vec()))
        },
    };

    fn suspects(data: &Path) -> HashMap<JobId, u32> {
        begin(data, WATCH).unwrap().by_job
    }

    #[test]
    fn aborts_are_counted_for_each_job() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert!(suspects(data).is_empty());
        let (guilty, other) = (JobId::from_bytes([7; 16]), JobId::from_bytes([8; 16]));
        fs::write(data.join(MARK_FILE), [[7; 16], [8; 16]].concat()).unwrap();
        assert_eq!(suspects(data), HashMap::from([(guilty, 1), (other, 1)]));
        assert_eq!(suspects(data).len(), 2, "a mark counts once");
        fs::write(data.join(MARK_FILE), [7; 16]).unwrap();
        assert_eq!(suspects(data), HashMap::from([(guilty, 2), (other, 1)]));
        write_suspects(data, &HashMap::from([(guilty, 2)])).unwrap();
        assert_eq!(suspects(data), HashMap::from([(guilty, 2)]));
    }
}
