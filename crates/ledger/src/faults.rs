//! Negative controls: promises of the ledger, broken on purpose.
//!
//! A simulator that finds nothing proves little unless it is seen finding something. Each fault leaves out one step that
//! durability rests on; the crash tests switch them on one at a time and must notice. In a build without the `testing`
//! feature no fault can be switched on.

/// Which promise to break. The default breaks none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    skip_journal_sync: bool,
    skip_segment_dir_sync: bool,
    skip_generation_seed: bool,
    skip_replay_sync: bool,
}

#[cfg(any(test, feature = "testing"))]
impl Faults {
    /// Acknowledge batches without syncing the journal.
    pub fn without_journal_sync() -> Self {
        Self { skip_journal_sync: true, ..Self::default() }
    }

    /// Use new segments without syncing the folder that names them.
    pub fn without_segment_dir_sync() -> Self {
        Self { skip_segment_dir_sync: true, ..Self::default() }
    }

    /// Leave the segment's generation out of the checksums.
    pub fn without_generation_seed() -> Self {
        Self { skip_generation_seed: true, ..Self::default() }
    }

    /// Serve replayed frames without making sure that they are on the disk.
    pub fn without_replay_sync() -> Self {
        Self { skip_replay_sync: true, ..Self::default() }
    }
}

impl Faults {
    pub(crate) fn journal_sync_skipped(self) -> bool {
        self.skip_journal_sync
    }

    pub(crate) fn segment_dir_sync_skipped(self) -> bool {
        self.skip_segment_dir_sync
    }

    pub(crate) fn replay_sync_skipped(self) -> bool {
        self.skip_replay_sync
    }

    /// The generation as the checksums see it.
    pub(crate) fn seed(self, generation: u64) -> u64 {
        if self.skip_generation_seed { 0 } else { generation }
    }
}
