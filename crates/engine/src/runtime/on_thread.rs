//! Which jobs the threads of this process are working on at this moment.
//!
//! If the process aborts, a signal handler writes this table to a file, and the next process knows which
//! jobs are suspects. The table itself can be in a file that outlives the process, for ends that no handler
//! sees. Each thread has an entry of the table, a line of the processor's cache. Entering and leaving a job are
//! three stores each; operations that run inside a request, whose jobs are not stored yet, do neither.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use catena_job::JobId;
use parking_lot::Mutex;

use crate::limits::TRACKED_THREADS_MAX;

/// Words of an entry: the ID of the job in two, and since when the process has been working on it as Unix time
/// in ms. The others are unused.
pub const ENTRY_WORDS: usize = 8;

/// Words of the table.
pub const TABLE_WORDS: usize = ENTRY_WORDS * TRACKED_THREADS_MAX;

/// The table of a process that was given no other.
static OWN_TABLE: [AtomicU64; TABLE_WORDS] = [const { AtomicU64::new(0) }; TABLE_WORDS];

static TABLE: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// A job that a thread is working on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The job.
    pub job: JobId,
    /// When this process started to work on it, as Unix time in ms.
    pub since: i64,
}

/// Makes this process note its work in a table that outlives it. Must be called before any work. Returns
/// false if it is too late or the table is too small.
pub fn track_work_in(table: &'static [AtomicU64]) -> bool {
    table.len() >= TABLE_WORDS && TABLE.set(table).is_ok()
}

/// Returns what the threads of a process were working on, from the table that it left.
pub fn tracked_work(table: &[AtomicU64]) -> Vec<Work> {
    table.chunks_exact(ENTRY_WORDS).filter_map(load).collect()
}

fn table() -> &'static [AtomicU64] {
    TABLE.get_or_init(|| &OWN_TABLE)
}

/// Which entries of the table belong to no thread.
static FREE: Mutex<FreeEntries> = Mutex::new(FreeEntries { returned: Vec::new(), fresh: 0 });

struct FreeEntries {
    returned: Vec<usize>,
    /// Entries from this one on were never used.
    fresh: usize,
}

/// A thread's entry of the table. `None` if there are too many threads.
struct Entry(Option<usize>);

thread_local! {
    static ENTRY: Entry = Entry::claim();
}

impl Entry {
    fn claim() -> Entry {
        let mut free = FREE.lock();
        if let Some(entry) = free.returned.pop() {
            return Entry(Some(entry));
        }
        if free.fresh == TRACKED_THREADS_MAX {
            return Entry(None);
        }
        free.fresh += 1;
        Entry(Some(free.fresh - 1))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        FREE.lock().returned.extend(self.0);
    }
}

/// Returns the table: an entry for each thread, zero if it is working on no job.
pub fn work_on_threads() -> &'static [AtomicU64] {
    table()
}

/// Says that this thread is working on a job, until it is dropped.
pub(crate) struct Working {
    entry: Option<usize>,
    /// What the thread was working on before.
    before: Option<Work>,
}

impl Working {
    pub(crate) fn on(work: Work) -> Working {
        let entry = own_entry();
        let before = entry.and_then(|entry| load(words(entry)));
        if let Some(entry) = entry {
            store(entry, Some(work));
        }
        Working { entry, before }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            store(entry, self.before);
        }
    }
}

/// Returns what this thread is working on.
pub(crate) fn current_work() -> Option<Work> {
    load(words(own_entry()?))
}

/// A future that is attributed to a job whenever it is polled.
pub(crate) struct WorkOn<'a, T> {
    work: Work,
    /// Boxed, because what works on a job is large and would be copied whenever this is moved.
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
}

/// Attributes a future to a job whenever it is polled.
pub(crate) fn work_on<'a, T>(
    work: Work,
    future: impl Future<Output = T> + Send + 'a,
) -> WorkOn<'a, T> {
    WorkOn { work, future: Box::pin(future) }
}

impl<T> Future for WorkOn<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let _working = Working::on(self.work);
        self.future.as_mut().poll(context)
    }
}

fn own_entry() -> Option<usize> {
    // A thread that ends has none.
    ENTRY.try_with(|entry| entry.0).ok().flatten()
}

fn words(entry: usize) -> &'static [AtomicU64] {
    &table()[ENTRY_WORDS * entry..][..ENTRY_WORDS]
}

fn load(words: &[AtomicU64]) -> Option<Work> {
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let number = u128::from(word(0)) << 64 | u128::from(word(1));
    let job = (number != 0).then(|| JobId::from_bytes(number.to_be_bytes()))?;
    Some(Work { job, since: word(2).cast_signed() })
}

fn store(entry: usize, work: Option<Work>) {
    let number = work.map_or(0, |work| u128::from_be_bytes(*work.job.as_bytes()));
    let since = work.map_or(0, |work| work.since.cast_unsigned());
    for (word, value) in words(entry).iter().zip([(number >> 64) as u64, number as u64, since]) {
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_says_which_job_it_works_on() {
        let outer = Work { job: JobId::from_bytes([7; 16]), since: 5 };
        let inner = Work { job: JobId::from_bytes([9; 16]), since: 6 };
        assert_eq!(current_work(), None);
        let working = Working::on(outer);
        assert_eq!(current_work(), Some(outer));
        let nested = Working::on(inner);
        assert_eq!(current_work(), Some(inner));
        assert!(tracked_work(work_on_threads()).contains(&inner));
        drop(nested);
        assert_eq!(current_work(), Some(outer));
        drop(working);
        assert_eq!(current_work(), None);
    }

    #[tokio::test]
    async fn a_future_is_attributed_only_while_it_is_polled() {
        let work = Work { job: JobId::from_bytes([3; 16]), since: 7 };
        let seen = work_on(work, async {
            tokio::task::yield_now().await;
            current_work()
        });
        assert_eq!(seen.await, Some(work));
        assert_eq!(current_work(), None);
    }
}
