//! The slots of executors: how many there are, and how many of them the jobs of each owner use.
//!
//! One owner holds at most half of all slots while others wait. A job that runs is never interrupted:
//! a slot that becomes free goes to an owner below its share first, and beyond it only if nobody else has
//! a job that the executor could run. Each process counts what it knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catena_store::{Holder, HolderKey};
use parking_lot::Mutex;

use crate::execution::registry::half_of;
use crate::jobs::milliseconds;
use crate::limits::EXECUTORS_MAX;
use crate::requests::AnnouncedExecutor;

/// How long an executor counts that has announced itself and was not heard of otherwise.
const SILENCE: Duration = Duration::from_secs(30);

/// The executors that this process has heard of, and what runs on them.
#[derive(Default)]
pub(crate) struct ExecutorSlots {
    executors: Mutex<HashMap<HolderKey, Announced>>,
    /// The number of running jobs by owner.
    running: Mutex<HashMap<String, usize>>,
}

/// What an executor said about itself.
#[derive(Clone)]
pub(super) struct Announced {
    pub(super) executor: AnnouncedExecutor,
    /// Unix time in ms.
    pub(super) at: i64,
}

impl ExecutorSlots {
    /// Notes what an executor has. `leases` says when those of workers end.
    pub(super) fn announce(
        &self,
        holder: &Holder,
        executor: AnnouncedExecutor,
        leases: &HashMap<HolderKey, i64>,
        now: i64,
    ) {
        let mut executors = self.executors.lock();
        executors.retain(|key, known| known.is_alive(leases.get(key), now));
        if executors.len() < EXECUTORS_MAX || executors.contains_key(&holder.key()) {
            executors.insert(holder.key(), Announced { executor, at: now });
        }
    }

    /// Returns the executors that are connected, by name.
    pub(super) fn connected(
        &self,
        leases: &HashMap<HolderKey, i64>,
        now: i64,
    ) -> Vec<(HolderKey, Announced)> {
        let executors = self.executors.lock();
        let alive = executors.iter().filter(|(key, known)| known.is_alive(leases.get(*key), now));
        let mut connected: Vec<_> = alive.map(|(key, known)| (*key, known.clone())).collect();
        connected.sort_by(|(_, one), (_, other)| one.executor.worker.cmp(&other.executor.worker));
        connected
    }

    /// Returns how many slots one owner may use while others wait. `None` if no executor is known.
    pub(super) fn share(&self, leases: &HashMap<HolderKey, i64>, now: i64) -> Option<usize> {
        let executors = self.executors.lock();
        let alive = executors.iter().filter(|(key, known)| known.is_alive(leases.get(*key), now));
        let total: usize = alive.map(|(_, known)| known.executor.slots).sum();
        (total > 0).then(|| half_of(total))
    }

    /// Returns the number of slots of an executor. `None` if it has not announced itself.
    pub(super) fn slots_of(&self, worker: HolderKey) -> Option<usize> {
        self.executors.lock().get(&worker).map(|known| known.executor.slots)
    }

    /// Returns the executors that have announced themselves.
    pub(super) fn known(&self) -> Vec<HolderKey> {
        self.executors.lock().keys().copied().collect()
    }

    /// Returns true if an executor with this version of an environment is connected.
    pub(super) fn has_version(
        &self,
        version: &str,
        leases: &HashMap<HolderKey, i64>,
        now: i64,
    ) -> bool {
        let executors = self.executors.lock();
        let mut alive =
            executors.iter().filter(|(key, known)| known.is_alive(leases.get(*key), now));
        alive.any(|(_, known)| known.executor.versions.iter().any(|known| known == version))
    }

    /// Returns the number of slots that the jobs of an owner use.
    pub(super) fn used_by(&self, owner: &str) -> usize {
        self.running.lock().get(owner).copied().unwrap_or(0)
    }

    /// Counts a slot that a job of this owner uses.
    pub(super) fn take(self: &Arc<Self>, owner: &str) -> OwnerSlot {
        let mut slot =
            OwnerSlot { slots: Arc::clone(self), owner: owner.to_owned(), is_counted: false };
        slot.count();
        slot
    }
}

impl Announced {
    fn is_alive(&self, lease_until: Option<&i64>, now: i64) -> bool {
        match lease_until {
            Some(until) => *until > now,
            None => self.at + milliseconds(SILENCE) > now,
        }
    }
}

/// A slot of an executor that a job uses unless it is paused. It is counted until this is dropped.
pub(crate) struct OwnerSlot {
    slots: Arc<ExecutorSlots>,
    owner: String,
    is_counted: bool,
}

impl OwnerSlot {
    /// Counts the slot again: the job was resumed.
    pub(super) fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            *self.slots.running.lock().entry(self.owner.clone()).or_default() += 1;
        }
    }

    /// Does not count the slot any more: the job is paused.
    pub(super) fn discount(&mut self) {
        if !std::mem::replace(&mut self.is_counted, false) {
            return;
        }
        let mut running = self.slots.running.lock();
        if let Some(count) = running.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.owner);
            }
        }
    }
}

impl Drop for OwnerSlot {
    fn drop(&mut self) {
        self.discount();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    #[test]
    fn the_share_is_half_of_the_slots_of_executors_that_are_alive() {
        let slots = ExecutorSlots::default();
        let mut leases = HashMap::new();
        assert_eq!(slots.share(&leases, NOW), None);
        let holder = |name: &str| Holder::worker("did:key:venue", name);
        let executor = |name: &str, slots: usize, version: &str| AnnouncedExecutor {
            worker: name.to_owned(),
            slots,
            versions: vec![version.to_owned()],
            tier: Some("T2".to_owned()),
            tiers: Vec::new(),
            unavailable: None,
        };
        slots.announce(&holder("a"), executor("a", 1, "v1"), &leases, NOW);
        assert_eq!(slots.share(&leases, NOW), Some(1), "never none at all");
        slots.announce(&holder("b"), executor("b", 6, "v2"), &leases, NOW);
        assert_eq!(slots.share(&leases, NOW), Some(3));
        assert!(slots.has_version("v2", &leases, NOW));
        assert_eq!(slots.connected(&leases, NOW).len(), 2);
        leases.insert(holder("b").key(), NOW - 1);
        assert_eq!(slots.share(&leases, NOW), Some(1), "the lease of one has ended");
        assert!(!slots.has_version("v2", &leases, NOW));
        let connected = slots.connected(&leases, NOW);
        assert_eq!(connected.len(), 1, "those whose lease has ended are not connected");
        assert_eq!(connected[0].1.executor, executor("a", 1, "v1"));
        assert_eq!(slots.share(&leases, NOW + 60_000), None);
    }

    #[test]
    fn a_slot_is_counted_until_it_is_dropped_unless_its_job_is_paused() {
        let slots = Arc::new(ExecutorSlots::default());
        let mut one = slots.take("a");
        let two = slots.take("a");
        assert_eq!((slots.used_by("a"), slots.used_by("b")), (2, 0));
        one.discount();
        one.discount();
        assert_eq!(slots.used_by("a"), 1);
        one.count();
        assert_eq!(slots.used_by("a"), 2);
        drop(one);
        assert_eq!(slots.used_by("a"), 1);
        drop(two);
        assert!(slots.running.lock().is_empty());
    }
}
