//! One commit, from the caller to the committer and back.
//!
//! 1. [`prepare()`] runs on the caller's thread: it encodes, hashes and measures, and returns a
//!    [`PreparedCommit`].
//! 2. [`EmbeddedStore::submit_commit`] submits it to the ledger as a [`PendingCommit`].
//! 3. The committer calls [`PendingCommit::run`], which checks what the effects rely on and writes
//!    their rows (`apply`).
//! 4. When they are durable, it calls [`PendingCommit::complete`], which invalidates caches and sends
//!    a [`CommitOutcome`] to the caller.

mod apply;
mod prepare;

use std::future::ready;
use std::sync::Arc;

use catena_job::JobId;
use catena_ledger::{Failure, LedgerError, Transaction, Tx, WorkOutcome};
use tokio::sync::oneshot;

use super::counts::ListCounts;
use super::driver::{self, Outcome};
use super::fronts::{QueueFronts, QueueKey};
use super::in_use::InUseCells;
use super::known_ids::KnownIds;
use super::known_state::KnownState;
use super::live::LiveCounts;
use super::recent::RecentJobs;
use super::sequence::CommitSequence;
use super::store::EmbeddedStore;
use super::usage::Usage;
use crate::effects::{CommitError, Effects, Receipt};
use crate::store::StoreFuture;
use prepare::{PreparedCommit, PreparedEffect, prepare};

impl EmbeddedStore {
    /// Prepares effects and submits them. The future resolves when they are durable.
    pub(super) fn submit_commit(
        &self,
        effects: Effects,
    ) -> StoreFuture<'static, Receipt, CommitError> {
        let PreparedCommit { ahead, effects } = match prepare(effects) {
            Ok(prepared) => prepared,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        for root in effects.iter().filter_map(PreparedEffect::new_root) {
            self.known_ids.insert(&root.encoding, root.id);
            self.known_ids.insert_cells(&root.cells);
        }
        // Large values are sent ahead in entries of their own. If the commit itself is refused,
        // nothing refers to them, and the collector removes them.
        for cells in ahead {
            let in_use = self.in_use.clone();
            drop(self.driver.submit(move |tx| apply::put_cells_ahead(tx, &cells, &in_use)));
        }
        let (sender, receiver) = oneshot::channel();
        let commit = PendingCommit::new(self, effects, sender);
        let submitted = self.driver.submit_transaction(Box::new(commit));
        Box::pin(async move {
            let CommitOutcome { receipt, spent } = driver::outcome(submitted, receiver).await?;
            drop(spent);
            Ok(receipt)
        })
    }
}

#[cfg(feature = "testing")]
impl EmbeddedStore {
    /// The bytes of effects on new jobs, encoded as a commit encodes them: what a bare log writes
    /// when the store is compared with one.
    pub fn as_log_entry(effects: Effects) -> Result<Vec<u8>, CommitError> {
        prepare::encode_log_entry(effects)
    }
}

/// A commit in the committer's queue.
struct PendingCommit {
    effects: Vec<PreparedEffect>,
    in_use: InUseCells,
    known_ids: Arc<KnownIds>,
    known_state: KnownState,
    sequence: CommitSequence,
    usage: Usage,
    live: LiveCounts,
    invalidation: Invalidation,
    applied: Option<Result<Receipt, CommitError>>,
    sender: Option<oneshot::Sender<Outcome<CommitOutcome>>>,
}

/// A commit that is durable.
struct CommitOutcome {
    receipt: Receipt,
    /// What is left of the effects. It goes back to the caller, because memory is cheapest to free on
    /// the thread that allocated it.
    spent: Vec<PreparedEffect>,
}

impl PendingCommit {
    fn new(
        store: &EmbeddedStore,
        effects: Vec<PreparedEffect>,
        sender: oneshot::Sender<Outcome<CommitOutcome>>,
    ) -> Self {
        PendingCommit {
            in_use: store.in_use.clone(),
            known_ids: Arc::clone(&store.known_ids),
            known_state: store.known_state.clone(),
            sequence: store.sequence.clone(),
            usage: store.usage.clone(),
            live: store.live.clone(),
            invalidation: Invalidation::new(store, &effects),
            effects,
            applied: None,
            sender: Some(sender),
        }
    }

    /// Updates what other commits and readers share, now that this commit is durable.
    fn publish(&mut self, receipt: Receipt) -> CommitOutcome {
        self.invalidation.invalidate_caches();
        self.live.add(&receipt.live);
        if !receipt.orders.is_empty() {
            self.sequence.mark_durable();
        }
        CommitOutcome { receipt, spent: std::mem::take(&mut self.effects) }
    }
}

impl PendingCommit {
    fn apply_effects(&mut self, tx: &mut Tx<'_>) -> Result<Receipt, CommitError> {
        let charges = self.usage.charges();
        let shared = apply::Shared {
            in_use: &self.in_use,
            known_ids: &self.known_ids,
            known_state: &self.known_state,
            sequence: &self.sequence,
        };
        self.known_state.begin();
        let receipt = apply::apply(tx, &mut self.effects, &shared, charges)?;
        self.known_state.confirm();
        Ok(receipt)
    }
}

impl Transaction for PendingCommit {
    fn run(&mut self, tx: &mut Tx<'_>) -> WorkOutcome {
        let applied = self.apply_effects(tx);
        let decision = if applied.is_ok() { WorkOutcome::Accepted } else { WorkOutcome::Refused };
        self.applied = Some(applied);
        decision
    }

    fn on_rollback(&mut self) {
        self.known_state.clear();
    }

    fn complete(&mut self, durability: Result<(), LedgerError>) {
        if durability.is_err() {
            self.known_state.clear();
        }
        let outcome = match (durability, self.applied.take()) {
            (Ok(()), Some(Ok(receipt))) => Ok(self.publish(receipt)),
            (Ok(()), Some(Err(refusal))) => Err(Failure::Work(refusal)),
            (Ok(()), None) => Err(Failure::Ledger(LedgerError::Closed)),
            (Err(error), _) => Err(Failure::Ledger(error)),
        };
        if let Some(sender) = self.sender.take() {
            // The caller may have stopped waiting; the effects are durable all the same.
            drop(sender.send(outcome));
        }
    }
}

/// The caches that a commit makes stale.
struct Invalidation {
    /// Jobs that are deleted, or whose off-chain state changes.
    touched: Vec<JobId>,
    /// `None` if no job is touched.
    recent: Option<Arc<RecentJobs>>,
    /// `None` if nothing is deleted.
    counts: Option<ListCounts>,
    /// The lowest keys that its entries of queues can have.
    queued: Vec<QueueKey>,
    /// `None` if nothing is queued.
    fronts: Option<QueueFronts>,
}

impl Invalidation {
    fn new(store: &EmbeddedStore, effects: &[PreparedEffect]) -> Self {
        let touched: Vec<JobId> = effects.iter().filter_map(PreparedEffect::touched_job).collect();
        let deletes = effects.iter().any(|effect| matches!(effect, PreparedEffect::Delete { .. }));
        let queued: Vec<QueueKey> = effects.iter().filter_map(PreparedEffect::queue_key).collect();
        Invalidation {
            fronts: (!queued.is_empty()).then(|| store.fronts.clone()),
            queued,
            recent: (!touched.is_empty()).then(|| Arc::clone(&store.recent)),
            counts: deletes.then(|| store.counts.clone()),
            touched,
        }
    }

    /// Drops what was read or counted before the commit became visible: it may be wrong now.
    fn invalidate_caches(&self) {
        if let Some(recent) = &self.recent {
            recent.invalidate(&self.touched);
        }
        if let Some(counts) = &self.counts {
            counts.invalidate();
        }
        if let Some(fronts) = &self.fronts {
            self.queued.iter().for_each(|key| fronts.add(*key));
        }
    }
}
