//! How a ledger is opened: every limit that a caller may choose, with its default and its reason.
//!
//! The defaults were measured. Limits are checked against each other once, at open, so that no part of the ledger has to
//! check later whether a frame fits a segment. Options that only tests use exist in test builds only.

use std::time::Duration;

use crate::faults::Faults;
use crate::layout::{BLOCK_BYTES, FRAME_HEADER_BYTES};
use crate::limits::SEGMENT_BYTES_MAX;
use crate::types::Table;

/// Where the sync of a commit happens. Production always uses the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One journal frame per batch; rows reach the index later.
    Journal,
    /// One durable index transaction per batch and no journal. Slower; the same folder opens in either mode. Tests compare
    /// the two.
    Direct,
}

/// How a ledger is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tables. IDs are part of the stored format.
    pub tables: Vec<Table>,
    /// Submissions that may wait for the committer; beyond it `try_submit` returns `Busy`. Default: 8,192, twice a batch,
    /// so that the next batch can gather while one is being synced.
    pub queue_entries_max: usize,
    /// Entries in one batch. Default: 4,096.
    pub batch_entries_max: usize,
    /// Payload bytes after which a batch takes no further entry. Default: 1 MiB; a larger frame would only add latency.
    pub batch_bytes_max: usize,
    /// Payload bytes of a single entry. Default: 4 MiB. Larger values belong in blobs.
    pub entry_bytes_max: usize,
    /// Size of a journal segment in bytes. Default: 16 MiB; with 64 MiB a restart reads far more than it needs.
    pub segment_bytes: u64,
    /// Empty segments kept ready by the flusher. Default: 3.
    pub spare_segments: usize,
    /// Segments that may exist in total; bounds the journal's disk use and the time of a restart. Default: 16.
    pub segments_max: usize,
    /// Overlay bytes that start a flush. Default: 16 MiB.
    pub flush_bytes: usize,
    /// Time after which a flush starts anyway. Default: 250 ms. Measured: four times as long costs more than it saves,
    /// because the rows in memory then no longer fit the processor's cache.
    pub flush_interval: Duration,
    /// Overlay bytes at which the committer waits for the flusher. Default: 64 MiB. Bounds memory.
    pub overlay_bytes_max: usize,
    /// Size of the index's page cache in bytes. Default: 256 MiB.
    pub index_cache_bytes: usize,
    /// Where the sync of a commit happens. Default: [`Mode::Journal`].
    #[cfg(any(test, feature = "testing"))]
    pub mode: Mode,
    /// Whether frames are written past the system's cache if the file system supports it. Default: yes. Benchmarks compare
    /// the two.
    #[cfg(any(test, feature = "testing"))]
    pub uncached_journal: bool,
    /// Seed for the random half of segment generations. Default: `None`, which draws from the system; the simulator sets
    /// it so that a run can be repeated.
    #[cfg(any(test, feature = "testing"))]
    pub generation_seed: Option<u64>,
    /// Faults to inject. Default: none.
    #[cfg(any(test, feature = "testing"))]
    pub faults: Faults,
}

/// Why a set of options cannot work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionsError {
    /// Two tables share an ID or a name.
    #[error("table {name} (id {id}) is declared twice or uses a reserved name")]
    TableClash {
        /// The table's ID.
        id: u8,
        /// The table's name.
        name: &'static str,
    },
    /// A limit that must be at least one is zero.
    #[error("{name} must not be zero")]
    Zero {
        /// The option's name.
        name: &'static str,
    },
    /// The largest frame does not fit a segment.
    #[error("a frame may take {frame_bytes} bytes but a segment holds only {segment_bytes}")]
    SegmentTooSmall {
        /// The largest frame, padded.
        frame_bytes: u64,
        /// The segment's size without its header block.
        segment_bytes: u64,
    },
    /// A segment is larger than replay can take.
    #[error("segment_bytes ({segment_bytes}) is above the limit of {SEGMENT_BYTES_MAX}")]
    SegmentTooLarge {
        /// The size requested.
        segment_bytes: u64,
    },
    /// A flush would start only after the committer begins to wait for it.
    #[error("flush_bytes ({flush_bytes}) must be below overlay_bytes_max ({overlay_bytes_max})")]
    FlushAboveLimit {
        /// Overlay bytes at which a flush starts.
        flush_bytes: usize,
        /// Overlay bytes at which the committer waits.
        overlay_bytes_max: usize,
    },
    /// Rotation needs at least two segments.
    #[error(
        "segments_max ({segments_max}) must be above spare_segments ({spare_segments}) and at least 2"
    )]
    TooFewSegments {
        /// The number of segments that may exist.
        segments_max: usize,
        /// The number of spares requested.
        spare_segments: usize,
    },
}

const MIB: usize = 1 << 20;

/// Table names with this prefix are reserved for the index itself.
pub(crate) const RESERVED_TABLE_PREFIX: &str = "catena.";

impl Options {
    /// The measured defaults, for these tables.
    pub fn new(tables: impl Into<Vec<Table>>) -> Self {
        Self {
            tables: tables.into(),
            queue_entries_max: 8_192,
            batch_entries_max: 4_096,
            batch_bytes_max: MIB,
            entry_bytes_max: 4 * MIB,
            segment_bytes: 16 * MIB as u64,
            spare_segments: 3,
            segments_max: 16,
            flush_bytes: 16 * MIB,
            flush_interval: Duration::from_millis(250),
            overlay_bytes_max: 64 * MIB,
            index_cache_bytes: 256 * MIB,
            #[cfg(any(test, feature = "testing"))]
            mode: Mode::Journal,
            #[cfg(any(test, feature = "testing"))]
            uncached_journal: true,
            #[cfg(any(test, feature = "testing"))]
            generation_seed: None,
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        }
    }

    /// The largest frame a batch can become, padded to whole blocks: a batch just below its limit, one more entry of the
    /// largest size, and as much again from the observer.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        let payload = self.batch_bytes_max.saturating_add(self.entry_bytes_max.saturating_mul(2));
        (FRAME_HEADER_BYTES.saturating_add(payload) as u64).next_multiple_of(BLOCK_BYTES as u64)
    }

    /// One more than the largest table id: the length of per-table arrays.
    pub(crate) fn table_slots(&self) -> usize {
        self.tables.iter().map(|table| usize::from(table.id.0) + 1).max().unwrap_or(0)
    }

    /// Checks the limits against each other.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        self.check_tables()?;
        self.check_not_zero()?;
        if self.segment_bytes > SEGMENT_BYTES_MAX {
            return Err(OptionsError::SegmentTooLarge { segment_bytes: self.segment_bytes });
        }
        let segment_bytes = self.segment_bytes.saturating_sub(BLOCK_BYTES as u64);
        if self.frame_bytes_max() > segment_bytes {
            return Err(OptionsError::SegmentTooSmall {
                frame_bytes: self.frame_bytes_max(),
                segment_bytes,
            });
        }
        if self.flush_bytes >= self.overlay_bytes_max {
            return Err(OptionsError::FlushAboveLimit {
                flush_bytes: self.flush_bytes,
                overlay_bytes_max: self.overlay_bytes_max,
            });
        }
        if self.segments_max < 2 || self.segments_max <= self.spare_segments {
            return Err(OptionsError::TooFewSegments {
                segments_max: self.segments_max,
                spare_segments: self.spare_segments,
            });
        }
        Ok(())
    }

    fn check_tables(&self) -> Result<(), OptionsError> {
        for (position, table) in self.tables.iter().enumerate() {
            let clash = self.tables[..position]
                .iter()
                .any(|other| other.id == table.id || other.name == table.name);
            if clash || table.name.starts_with(RESERVED_TABLE_PREFIX) {
                return Err(OptionsError::TableClash { id: table.id.0, name: table.name });
            }
        }
        Ok(())
    }

    fn check_not_zero(&self) -> Result<(), OptionsError> {
        let limits = [
            ("tables", self.tables.len()),
            ("queue_entries_max", self.queue_entries_max),
            ("batch_entries_max", self.batch_entries_max),
            ("batch_bytes_max", self.batch_bytes_max),
            ("entry_bytes_max", self.entry_bytes_max),
            ("flush_bytes", self.flush_bytes),
        ];
        match limits.iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => Err(OptionsError::Zero { name }),
            None => Ok(()),
        }
    }
}

/// The test-only options as they are in a test build.
#[cfg(any(test, feature = "testing"))]
impl Options {
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn uncached_journal(&self) -> bool {
        self.uncached_journal
    }

    pub(crate) fn generation_seed(&self) -> Option<u64> {
        self.generation_seed
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }
}

/// The test-only options as they are in production.
#[cfg(not(any(test, feature = "testing")))]
impl Options {
    pub(crate) fn mode(&self) -> Mode {
        Mode::Journal
    }

    pub(crate) fn uncached_journal(&self) -> bool {
        true
    }

    pub(crate) fn generation_seed(&self) -> Option<u64> {
        None
    }

    pub(crate) fn faults(&self) -> Faults {
        Faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TableId;

    fn options() -> Options {
        Options::new([Table { id: TableId(1), name: "jobs" }])
    }

    #[test]
    fn the_defaults_agree_with_each_other() {
        assert_eq!(options().check(), Ok(()));
    }

    #[test]
    fn a_frame_that_cannot_fit_a_segment_is_refused_at_open() {
        let small = Options { segment_bytes: 1 << 20, ..options() };
        assert!(matches!(small.check(), Err(OptionsError::SegmentTooSmall { .. })));
    }

    #[test]
    fn two_tables_cannot_share_a_number() {
        let mut clash = options();
        clash.tables.push(Table { id: TableId(1), name: "owners" });
        assert!(matches!(clash.check(), Err(OptionsError::TableClash { id: 1, .. })));
    }
}
