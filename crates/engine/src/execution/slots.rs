//! Slots: how many jobs run in this process at a time, and how they are shared.
//!
//! One caller may use every slot but a few. Who occupies half of them leaves the last ones to others, so
//! that another caller's job starts at once even if the first one's never end.
//!
//! Jobs that control others have slots of their own, because they are what helps a caller whose jobs
//! occupy all others.

use std::collections::HashMap;
use std::sync::Arc;

use catena_store::owner_key;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CONTROL_SLOTS_MAX, SLOTS_RESERVED_MAX, SLOTS_SHARED_MIN};

type Held = Mutex<HashMap<[u8; 8], usize>>;

/// The slots of a process.
pub(crate) struct Slots {
    /// One permit for every job that may run in this process at a time.
    pub(crate) permits: Arc<Semaphore>,
    max: usize,
    /// How many each owner occupies. An owner that occupies none has no entry.
    held: Arc<Held>,
    /// Whether they are those of jobs that control others.
    is_for_control: bool,
}

/// A slot that is occupied until this is dropped.
pub(crate) struct RunSlot {
    _permit: Option<OwnedSemaphorePermit>,
    owner: Option<([u8; 8], Arc<Held>)>,
    is_for_control: bool,
}

impl RunSlot {
    /// Returns true if it is one of those for jobs that control others.
    pub(crate) fn is_for_control(&self) -> bool {
        self.is_for_control
    }

    /// The slot of a call by a job that controls others. The caller keeps its own meanwhile, so the two
    /// occupy one.
    pub(crate) fn of_caller() -> Self {
        RunSlot { _permit: None, owner: None, is_for_control: true }
    }
}

impl From<OwnedSemaphorePermit> for RunSlot {
    /// A slot that is not counted for an owner: that of a run which had one before.
    fn from(permit: OwnedSemaphorePermit) -> Self {
        RunSlot { _permit: Some(permit), owner: None, is_for_control: false }
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        let Some((owner, held)) = self.owner.take() else { return };
        let mut held = held.lock();
        if let Some(count) = held.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                held.remove(&owner);
            }
        }
    }
}

impl Slots {
    pub(crate) fn new(max: usize) -> Slots {
        let permits = Arc::new(Semaphore::new(max));
        Slots { permits, max, held: Arc::default(), is_for_control: false }
    }

    /// The slots of jobs that control others.
    pub(crate) fn for_control() -> Slots {
        Slots { is_for_control: true, ..Slots::new(CONTROL_SLOTS_MAX) }
    }

    /// Claims a slot for a job of this owner, if one is free that the owner may have.
    pub(crate) fn try_claim(&self, owner: &str) -> Option<RunSlot> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.assign(permit, owner).ok()
    }

    /// Makes a permit the slot of an owner. Returns it if the owner must leave it to others.
    pub(crate) fn assign(
        &self,
        permit: OwnedSemaphorePermit,
        owner: &str,
    ) -> Result<RunSlot, OwnedSemaphorePermit> {
        let owner = owner_key(owner);
        let is_shared = self.max >= SLOTS_SHARED_MIN;
        let reserved = if is_shared { (self.max / 4).min(SLOTS_RESERVED_MAX) } else { 0 };
        let mut held = self.held.lock();
        let count = held.get(&owner).copied().unwrap_or(0);
        if count >= self.max.div_ceil(2) && self.permits.available_permits() < reserved {
            return Err(permit);
        }
        held.insert(owner, count + 1);
        drop(held);
        Ok(RunSlot {
            _permit: Some(permit),
            owner: Some((owner, Arc::clone(&self.held))),
            is_for_control: self.is_for_control,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_all(slots: &Slots, owner: &str) -> Vec<RunSlot> {
        std::iter::from_fn(|| slots.try_claim(owner)).collect()
    }

    #[test]
    fn one_owner_leaves_some_slots_to_others() {
        let slots = Slots::new(100);
        let first = claim_all(&slots, "a");
        assert_eq!(first.len(), 75);
        assert_eq!(claim_all(&slots, "b").len(), 25);
        let second = claim_all(&slots, "b");
        assert_eq!(second.len(), 25, "they were given back");
        drop(first);
        assert_eq!(slots.permits.available_permits(), 75);
        assert_eq!(claim_all(&slots, "b").len(), 50);
        drop(second);
        assert!(slots.held.lock().is_empty());
    }

    #[test]
    fn few_slots_are_not_shared() {
        for max in 1..SLOTS_SHARED_MIN {
            assert_eq!(claim_all(&Slots::new(max), "a").len(), max);
        }
    }
}
