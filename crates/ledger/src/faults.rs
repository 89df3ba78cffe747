//! Fault injection: steps that durability relies on, left out on purpose.
//!
//! A simulator that finds no problem proves little unless it is seen to find one. Each fault leaves out one step; the
//! crash tests inject them one at a time and must notice. In a build without the `testing` feature the type has no
//! fields, and no fault can be injected.

#[cfg(any(test, feature = "testing"))]
pub use injected::Faults;
#[cfg(not(any(test, feature = "testing")))]
pub(crate) use none::Faults;

#[cfg(any(test, feature = "testing"))]
mod injected {
    /// Which steps to leave out. The default leaves out none.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Faults {
        skip_journal_sync: bool,
        skip_segment_dir_sync: bool,
        skip_generation_seed: bool,
        skip_replay_sync: bool,
    }

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

        pub(crate) fn skips_journal_sync(self) -> bool {
            self.skip_journal_sync
        }

        pub(crate) fn skips_segment_dir_sync(self) -> bool {
            self.skip_segment_dir_sync
        }

        pub(crate) fn skips_replay_sync(self) -> bool {
            self.skip_replay_sync
        }

        /// The generation that the checksums are seeded with.
        pub(crate) fn checksum_seed(self, generation: u64) -> u64 {
            if self.skip_generation_seed { 0 } else { generation }
        }
    }
}

#[cfg(not(any(test, feature = "testing")))]
mod none {
    /// No faults: production builds leave out no step.
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Faults;

    impl Faults {
        pub(crate) fn skips_journal_sync(self) -> bool {
            false
        }

        pub(crate) fn skips_segment_dir_sync(self) -> bool {
            false
        }

        pub(crate) fn skips_replay_sync(self) -> bool {
            false
        }

        /// The generation that the checksums are seeded with.
        pub(crate) fn checksum_seed(self, generation: u64) -> u64 {
            generation
        }
    }
}
