//! Positions in the order of commits.
//!
//! A position is a run and a number: runs are counted across restarts, numbers within one run. Only
//! the run has to be durable, so assigning a position writes nothing, except in the first commits of
//! a run: until one of them is known to be durable, each writes the run's number again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use catena_ledger::Tx;

use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::META;

/// Bits of a position that number the commits of one run: enough for a trillion.
const NUMBER_BITS: u32 = 40;

pub(super) const RUN: &[u8] = b"run";

/// Present if the index of the jobs of all owners is complete. Stores of earlier versions lack it.
pub(super) const EVERYONE_LISTED: &[u8] = b"everyone";

/// Assigns positions; used by the committer only.
#[derive(Clone, Default)]
pub(super) struct CommitSequence(Arc<SequenceState>);

#[derive(Default)]
struct SequenceState {
    /// This run's number; zero before it is known.
    run: AtomicU64,
    is_run_durable: AtomicBool,
    next: AtomicU64,
}

impl CommitSequence {
    /// Assigns the next position.
    pub(super) fn next_position(&self, tx: &mut Tx<'_>) -> Result<u64, CommitError> {
        let state = &*self.0;
        if !state.is_run_durable.load(Ordering::Acquire) {
            self.write_run(tx)?;
        }
        let number = state.next.fetch_add(1, Ordering::Relaxed);
        Ok(state.run.load(Ordering::Acquire) << NUMBER_BITS | number)
    }

    fn write_run(&self, tx: &mut Tx<'_>) -> Result<(), CommitError> {
        if self.0.run.load(Ordering::Acquire) == 0 {
            let last = match tx.get(META, RUN)? {
                Some(row) => u64::from_be_bytes(row[..].try_into().map_err(|_| DamagedRow("run"))?),
                // A new store has the list of all jobs from its first commit on.
                None => {
                    tx.put(META, EVERYONE_LISTED, 1_u64.to_be_bytes());
                    0
                }
            };
            self.0.run.store(last + 1, Ordering::Release);
        }
        tx.put(META, RUN, self.0.run.load(Ordering::Acquire).to_be_bytes());
        Ok(())
    }

    /// Records that a commit with a position is durable, and with it the run's number.
    pub(super) fn mark_durable(&self) {
        self.0.is_run_durable.store(true, Ordering::Release);
    }
}
