//! Counters of the ledger's work since it was opened.
//!
//! Plain atomics, written with relaxed order and never read by the ledger itself, so that counting cannot change its
//! behaviour. A snapshot is not a consistent cut: neighbouring counters may differ by a batch in flight.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets of the batch-size histogram: bucket `n` counts batches of at most `2^n` entries; the last takes the rest.
pub const BATCH_BUCKETS: usize = 13;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters. See the module documentation.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
            pub(crate) batch_sizes: [AtomicU64; BATCH_BUCKETS],
        }

        /// The counters at one moment.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Batches by size: bucket `n` holds those of at most `2^n` entries.
            pub batch_sizes: [u64; BATCH_BUCKETS],
        }

        impl Counters {
            /// The current values of the counters.
            pub fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot {
                    $($name: self.$name.load(Relaxed),)*
                    batch_sizes: std::array::from_fn(|bucket| self.batch_sizes[bucket].load(Relaxed)),
                }
            }
        }
    };
}

counters! {
    /// Batches made durable.
    commits,
    /// Syncs waited for on the commit path.
    syncs,
    /// Entries completed as durable, including those without writes.
    entries,
    /// Single row changes made durable.
    writes,
    /// Bytes written to the journal, padding included.
    journal_bytes,
    /// Bytes of frame payload before padding.
    payload_bytes,
    /// The largest batch, in entries.
    batch_entries_max,
    /// Time spent waiting for syncs on the commit path, in nanoseconds.
    sync_nanos,
    /// The longest wait for a sync on the commit path, in nanoseconds.
    sync_nanos_max,
    /// Flushes of the overlay into the index.
    flushes,
    /// Rows put into the index by flushes.
    flush_rows_put,
    /// Rows removed from the index by flushes.
    flush_rows_removed,
    /// Deletions of rows that the index never held.
    flush_rows_skipped,
    /// Time spent flushing, in nanoseconds.
    flush_nanos,
    /// The longest flush, in nanoseconds.
    flush_nanos_max,
    /// Flushes that ended because the disk was full.
    flushes_full,
    /// Times the index was closed and opened again after a failure, which breaks earlier views.
    index_reopens,
    /// Segments that had to be created on the commit path because no spare was ready.
    inline_rotations,
    /// Times the commit path moved to another segment.
    rotations,
    /// Times the committer had to wait for the flusher.
    stalls,
    /// Entries refused because the ledger was full.
    refused_full,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Relaxed);
    }

    pub(crate) fn add_sync(&self, elapsed: Duration) {
        let nanos = nanos(elapsed);
        Self::add(&self.syncs, 1);
        Self::add(&self.sync_nanos, nanos);
        self.sync_nanos_max.fetch_max(nanos, Relaxed);
    }

    pub(crate) fn add_flush(&self, elapsed: Duration) {
        let nanos = nanos(elapsed);
        Self::add(&self.flushes, 1);
        Self::add(&self.flush_nanos, nanos);
        self.flush_nanos_max.fetch_max(nanos, Relaxed);
    }

    pub(crate) fn add_batch(&self, entries: usize, writes: usize) {
        let entries = entries as u64;
        Self::add(&self.commits, 1);
        Self::add(&self.writes, writes as u64);
        self.batch_entries_max.fetch_max(entries, Relaxed);
        let bucket =
            (entries.max(1).next_power_of_two().trailing_zeros() as usize).min(BATCH_BUCKETS - 1);
        Self::add(&self.batch_sizes[bucket], 1);
    }
}

fn nanos(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
