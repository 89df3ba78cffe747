//! What earlier processes of a venue left when they died.
//!
//! Three files of the data folder: `abort-mark`, which the handler of a fatal signal writes; `work-table`, which
//! the process shares with the kernel and which therefore says what its threads were working on even if
//! it was killed; and `suspects`, which has a line for each job that was being worked on, with the number of
//! deaths. They are read once, when the venue starts. An idle venue writes none of them.
//!
//! A process that was killed once, by whomever, says nothing about its work. If a second one dies within a
//! minute after it started to work on the same job, that is how the kernel ends a process that takes
//! too much memory, and both deaths count as aborts.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_engine::Engine;
use catena_engine::limits::{ABORTS_ALONE, SUSPECT_TIME};
use catena_engine::runtime::{
    Aborts, ENTRY_WORDS, Env, TABLE_WORDS, Work, track_work_in, tracked_work, work_on_threads,
};
use catena_job::JobId;

use crate::limits::{SUSPECTS_CHECK, SUSPECTS_MAX, WORK_TICK};

const MARK_FILE: &str = "abort-mark";
const TABLE_FILE: &str = "work-table";
const SUSPECTS_FILE: &str = "suspects";

/// Words of the work table before the entries of the threads.
const HEADER_WORDS: usize = 8;

/// The first word of a table, which changes with its form.
const TABLE_FORM: u64 = u64::from_be_bytes(*b"work/1\0\0");

/// Words of the header: the form, 1 while the process has not stopped as planned, the boot of the machine in
/// two words, and when the process was last seen working as Unix time in ms.
const FORM: usize = 0;
const IS_RUNNING: usize = 1;
const BOOT: usize = 2;
const SEEN: usize = 4;

/// A mark: the number of the signal, and the IDs of jobs.
pub type Mark = (u64, Vec<[u8; 16]>);

/// How a process leaves a mark when it aborts, and how the next one reads it. The binary provides it,
/// because this crate contains no handlers of signals.
#[derive(Clone, Copy)]
pub struct AbortWatch {
    /// Makes this process write a mark to a file if it aborts: which signal it was, and the jobs in the
    /// table, whose entries have so many words and begin with the two of a job's ID.
    pub start: fn(File, &'static [AtomicU64], usize) -> io::Result<()>,
    /// Shares the words at the beginning of a file with the kernel.
    pub share: fn(&File, usize) -> io::Result<&'static [AtomicU64]>,
    /// Reads a mark. `None` if there is none.
    pub parse: fn(&[u8]) -> Option<Mark>,
}

/// The work table of this process. Nothing is kept if the file system cannot be trusted with it.
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkTable {
    header: Option<&'static [AtomicU64]>,
}

impl WorkTable {
    /// Notes that the process stops as planned, so that nothing that it does from now on is suspected.
    pub(crate) fn stop(self) {
        if let Some(header) = self.header {
            header[IS_RUNNING].store(0, Ordering::Relaxed);
        }
    }

    /// Notes the time while threads are working on jobs: what is in the table when the process dies has been
    /// there since its entry says, or for so long.
    pub(crate) async fn keep_time(self, env: Arc<dyn Env>) {
        let Some(header) = self.header else { return };
        loop {
            env.sleep(WORK_TICK).await;
            if !tracked_work(work_on_threads()).is_empty() {
                header[SEEN].store(env.now().cast_unsigned(), Ordering::Relaxed);
            }
        }
    }
}

/// Reads what earlier processes left, and starts to watch this one.
pub(crate) fn begin(data: &Path, watch: AbortWatch) -> io::Result<(Aborts, WorkTable)> {
    let mut by_job = parse_suspects(&read(&data.join(SUSPECTS_FILE))?);
    let mut was_last = false;
    let mark = data.join(MARK_FILE);
    let (left, table) = open_table(data, watch);
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
    } else if !left.is_empty() {
        for job in left {
            let deaths = by_job.entry(job).or_default();
            *deaths += 1;
            was_last |= *deaths >= ABORTS_ALONE;
            tracing::warn!(%job, deaths, "the previous process died while it was working on a job");
        }
        write_suspects(data, &by_job)?;
    }
    (watch.start)(File::create(&mark)?, work_on_threads(), ENTRY_WORDS)?;
    Ok((Aborts { by_job, was_last }, table))
}

/// Reads the table that the previous process left and makes it that of this one. Returns the jobs that the
/// previous process died with. A failure is logged: the venue works without a table.
fn open_table(data: &Path, watch: AbortWatch) -> (HashSet<JobId>, WorkTable) {
    match try_open_table(data, watch) {
        Ok((left, header)) => (left, WorkTable { header: Some(header) }),
        Err(error) => {
            tracing::info!(%error, "what this process works on is not known if it is killed");
            (HashSet::new(), WorkTable::default())
        }
    }
}

type OpenTable = (HashSet<JobId>, &'static [AtomicU64]);

fn try_open_table(data: &Path, watch: AbortWatch) -> io::Result<OpenTable> {
    let path = data.join(TABLE_FILE);
    let bytes = (HEADER_WORDS + TABLE_WORDS) * size_of::<u64>();
    if fs::metadata(&path).map_or(0, |found| found.len()) != bytes as u64 {
        // All of it is written once, so that a full disk is noticed here and not later.
        let mut file = File::create(&path)?;
        io::Write::write_all(&mut file, &vec![0; bytes])?;
        file.sync_all()?;
    }
    let file = File::options().read(true).write(true).open(&path)?;
    let words = (watch.share)(&file, HEADER_WORDS + TABLE_WORDS)?;
    let (header, entries) = words.split_at(HEADER_WORDS);
    let boot = boot_id()?;
    let left = jobs_left(header, entries, boot);
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
    header[BOOT].store(boot[0], Ordering::Relaxed);
    header[BOOT + 1].store(boot[1], Ordering::Relaxed);
    header[FORM].store(TABLE_FORM, Ordering::Relaxed);
    header[IS_RUNNING].store(1, Ordering::Relaxed);
    if !track_work_in(entries) {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    Ok((left, header))
}

/// Returns the jobs on which the process that left a table had been working for less than a minute when it
/// died. A process that the machine took with it did not die of its work.
fn jobs_left(header: &[AtomicU64], entries: &[AtomicU64], boot: [u64; 2]) -> HashSet<JobId> {
    let word = |at: usize| header[at].load(Ordering::Relaxed);
    let is_ours = word(FORM) == TABLE_FORM && [word(BOOT), word(BOOT + 1)] == boot;
    if !is_ours || word(IS_RUNNING) == 0 {
        return HashSet::new();
    }
    let seen = word(SEEN).cast_signed();
    let limit = i64::try_from(SUSPECT_TIME.as_millis()).unwrap_or(i64::MAX);
    let is_young = |work: &Work| seen.saturating_sub(work.since) < limit;
    tracked_work(entries).into_iter().filter(is_young).map(|work| work.job).collect()
}

/// Returns what distinguishes this boot of the machine from others.
fn boot_id() -> io::Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16);
    let number = number.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok([(number >> 64) as u64, number as u64])
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
        start: |_, _, _| Ok(()),
        share: |_, _| Err(io::Error::from(io::ErrorKind::Unsupported)),
        parse: |bytes| {
            let (jobs, _) = bytes.as_chunks::<16>();
            (!jobs.is_empty()).then(|| (6, jobs.to_vec()))
        },
    };

    fn suspects(data: &Path) -> HashMap<JobId, u32> {
        begin(data, WATCH).unwrap().0.by_job
    }

    #[test]
    fn a_job_is_left_if_its_process_died_soon_after_it_began() {
        let words = |words: Vec<u64>| words.into_iter().map(AtomicU64::new).collect::<Vec<_>>();
        let header = |running, boot, seen| words(vec![TABLE_FORM, running, boot, 2, seen, 0, 0, 0]);
        let entry = |job: u8, since| {
            let id = u64::from_be_bytes([job; 8]);
            [id, id, since, 0, 0, 0, 0, 0]
        };
        let entries = words([entry(7, 1_000), entry(0, 0), entry(8, 50_000)].concat());
        let left = |header: Vec<AtomicU64>| {
            let left = jobs_left(&header, &entries, [1, 2]);
            let mut left: Vec<u8> = left.iter().map(|job| job.as_bytes()[0]).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(left(header(1, 1, 51_000)), [7, 8]);
        assert_eq!(left(header(1, 1, 0)), [7, 8], "it died before it was seen working");
        assert_eq!(left(header(1, 1, 61_000)), [8], "the other one has run for a minute");
        assert!(left(header(0, 1, 51_000)).is_empty(), "it stopped as planned");
        assert!(left(header(1, 9, 51_000)).is_empty(), "the machine was started again");
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
