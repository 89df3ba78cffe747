//! Which jobs the threads of this process are working on at this moment.
//!
//! If the process aborts, a signal handler writes this table to a file, and the next process knows which
//! jobs are suspects. Each thread has two words of the table. Entering and leaving a job are two stores
//! each; operations that run inside a request, whose jobs are not stored yet, do neither.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_job::JobId;
use parking_lot::Mutex;

use crate::limits::TRACKED_THREADS_MAX;

static WORDS: [AtomicU64; 2 * TRACKED_THREADS_MAX] =
    [const { AtomicU64::new(0) }; 2 * TRACKED_THREADS_MAX];

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

/// Returns the table: two words for each thread, the ID of the job that it is working on or zero.
pub fn work_on_threads() -> &'static [AtomicU64] {
    &WORDS
}

/// Says that this thread is working on a job, until it is dropped.
pub(crate) struct Working {
    entry: Option<usize>,
    /// What the thread was working on before.
    before: [u64; 2],
}

impl Working {
    pub(crate) fn on(job: JobId) -> Working {
        let entry = own_entry();
        let before = entry.map_or([0; 2], load);
        if let Some(entry) = entry {
            store(entry, words_of(job));
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

/// Returns the job that this thread is working on.
pub(crate) fn current_job() -> Option<JobId> {
    let [first, second] = load(own_entry()?);
    let number = u128::from(first) << 64 | u128::from(second);
    (number != 0).then(|| JobId::from_bytes(number.to_be_bytes()))
}

/// Attributes a future to a job whenever it is polled.
pub(crate) async fn work_on<T>(job: JobId, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _working = Working::on(job);
        work.as_mut().poll(context)
    })
    .await
}

fn own_entry() -> Option<usize> {
    // A thread that ends has none.
    ENTRY.try_with(|entry| entry.0).ok().flatten()
}

fn words_of(job: JobId) -> [u64; 2] {
    let number = u128::from_be_bytes(*job.as_bytes());
    [(number >> 64) as u64, number as u64]
}

fn load(entry: usize) -> [u64; 2] {
    [0, 1].map(|word| WORDS[2 * entry + word].load(Ordering::Relaxed))
}

fn store(entry: usize, words: [u64; 2]) {
    WORDS[2 * entry].store(words[0], Ordering::Relaxed);
    WORDS[2 * entry + 1].store(words[1], Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_says_which_job_it_works_on() {
        let outer = JobId::from_bytes([7; 16]);
        let inner = JobId::from_bytes([9; 16]);
        assert_eq!(current_job(), None);
        let working = Working::on(outer);
        assert_eq!(current_job(), Some(outer));
        let nested = Working::on(inner);
        assert_eq!(current_job(), Some(inner));
        drop(nested);
        assert_eq!(current_job(), Some(outer));
        drop(working);
        assert_eq!(current_job(), None);
    }

    #[tokio::test]
    async fn a_future_is_attributed_only_while_it_is_polled() {
        let job = JobId::from_bytes([3; 16]);
        let seen = work_on(job, async {
            tokio::task::yield_now().await;
            current_job()
        });
        assert_eq!(seen.await, Some(job));
        assert_eq!(current_job(), None);
    }
}
