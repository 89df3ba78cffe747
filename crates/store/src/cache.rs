//! A cache of values derived from jobs: bounded in size, set-associative, a newer entry replaces an
//! older one of its set.

use catena_job::JobId;
use parking_lot::Mutex;

/// Entries of a set.
const WAYS: usize = 4;

/// A bounded cache from jobs to values derived from them.
pub struct RecentCache<V> {
    sets: Box<[Mutex<Set<V>>]>,
}

/// The entries that some jobs compete for.
struct Set<V> {
    entries: [Option<(JobId, V)>; WAYS],
    /// The entry that was replaced last.
    next: usize,
}

impl<V> Default for Set<V> {
    fn default() -> Self {
        Set { entries: [const { None }; WAYS], next: 0 }
    }
}

impl<V> Set<V> {
    fn position(&self, id: JobId) -> Option<usize> {
        let is_own = |entry: &Option<(JobId, V)>| entry.as_ref().is_some_and(|(job, _)| *job == id);
        self.entries.iter().position(is_own)
    }
}

impl<V> RecentCache<V> {
    /// A cache for about `jobs` jobs.
    pub fn new(jobs: usize) -> Self {
        let sets = jobs.div_ceil(WAYS).next_power_of_two();
        RecentCache { sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// The set of a job. The last bytes of an ID are random, so jobs spread evenly.
    fn set(&self, id: JobId) -> &Mutex<Set<V>> {
        let [.., high, middle, low] = *id.as_bytes();
        let number = u32::from_be_bytes([0, high, middle, low]);
        &self.sets[number as usize & (self.sets.len() - 1)]
    }

    /// The result of `read` on the entry of a job. `None` if there is no entry.
    pub fn get<R>(&self, id: JobId, read: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let set = self.set(id).lock();
        let (_, value) = set.entries[set.position(id)?].as_ref()?;
        read(value)
    }

    /// Inserts an entry if `is_allowed` returns true. It is called while no other thread can insert or
    /// remove an entry of this job.
    pub fn insert_if(&self, id: JobId, value: V, is_allowed: impl FnOnce() -> bool) {
        let mut set = self.set(id).lock();
        if !is_allowed() {
            return;
        }
        let at = set.position(id).unwrap_or_else(|| {
            set.next = (set.next + 1) % WAYS;
            set.next
        });
        let replaced = set.entries[at].replace((id, value));
        drop(set);
        // Freed without the lock.
        drop(replaced);
    }

    /// Removes the entry of a job.
    pub fn remove(&self, id: JobId) {
        let mut set = self.set(id).lock();
        if let Some(at) = set.position(id) {
            set.entries[at] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u8) -> JobId {
        let mut bytes = [7; 16];
        bytes[0] = first;
        JobId::from_bytes(bytes)
    }

    #[test]
    fn an_entry_is_found_until_it_is_removed() {
        let cache = RecentCache::new(16);
        cache.insert_if(id(1), "one", || true);
        cache.insert_if(id(2), "two", || false);
        assert_eq!(cache.get(id(1), |value| Some(*value)), Some("one"));
        assert_eq!(cache.get(id(1), |value| (*value == "other").then_some(())), None);
        assert_eq!(cache.get(id(2), |value| Some(*value)), None, "it was not allowed");
        cache.insert_if(id(1), "uno", || true);
        assert_eq!(cache.get(id(1), |value| Some(*value)), Some("uno"));
        cache.remove(id(1));
        assert_eq!(cache.get(id(1), |value| Some(*value)), None);
    }

    #[test]
    fn jobs_of_one_set_make_room_for_each_other() {
        let cache = RecentCache::new(16);
        // They differ in their first byte only, so they share a set.
        for first in 1..=4 {
            cache.insert_if(id(first), first, || true);
        }
        let found = || (1..=5).filter(|first| cache.get(id(*first), |_| Some(())).is_some());
        assert_eq!(found().count(), 4);
        cache.insert_if(id(5), 5, || true);
        assert_eq!((found().count(), found().next_back()), (4, Some(5)));
    }
}
