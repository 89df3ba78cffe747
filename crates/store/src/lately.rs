//! Things that were made of jobs lately, so that they need not be made again: a table of bounded
//! size in which a newer entry takes the place of an older one.

use catena_job::JobId;
use parking_lot::Mutex;

/// Places of a set.
const PLACES: usize = 4;

/// A bounded table from jobs to what was made of them.
pub struct Lately<V> {
    sets: Box<[Mutex<Set<V>>]>,
}

/// Places that some jobs share.
struct Set<V> {
    places: [Option<(JobId, V)>; PLACES],
    /// The place that is given away next.
    next: usize,
}

impl<V> Default for Set<V> {
    fn default() -> Self {
        Set { places: [const { None }; PLACES], next: 0 }
    }
}

impl<V> Set<V> {
    fn place(&self, id: JobId) -> Option<usize> {
        let is_own = |place: &Option<(JobId, V)>| place.as_ref().is_some_and(|(of, _)| *of == id);
        self.places.iter().position(is_own)
    }
}

impl<V> Lately<V> {
    /// Room for about so many jobs.
    pub fn new(jobs: usize) -> Self {
        let sets = jobs.div_ceil(PLACES).next_power_of_two();
        Lately { sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// The last bytes of an ID are random, so jobs spread evenly.
    fn set(&self, id: JobId) -> &Mutex<Set<V>> {
        let [.., high, middle, low] = *id.as_bytes();
        let number = u32::from_be_bytes([0, high, middle, low]);
        &self.sets[number as usize & (self.sets.len() - 1)]
    }

    /// What `look` finds in the entry of a job, if there is one.
    pub fn get<R>(&self, id: JobId, look: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let set = self.set(id).lock();
        let (_, value) = set.places[set.place(id)?].as_ref()?;
        look(value)
    }

    /// Makes an entry, unless `may` says no when nobody else can make or remove one for this job.
    pub fn put(&self, id: JobId, value: V, may: impl FnOnce() -> bool) {
        let mut set = self.set(id).lock();
        if !may() {
            return;
        }
        let at = set.place(id).unwrap_or_else(|| {
            set.next = (set.next + 1) % PLACES;
            set.next
        });
        let before = set.places[at].replace((id, value));
        drop(set);
        // Freed without the lock.
        drop(before);
    }

    /// Removes the entry of a job.
    pub fn remove(&self, id: JobId) {
        let mut set = self.set(id).lock();
        if let Some(at) = set.place(id) {
            set.places[at] = None;
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
        let lately = Lately::new(16);
        lately.put(id(1), "one", || true);
        lately.put(id(2), "two", || false);
        assert_eq!(lately.get(id(1), |value| Some(*value)), Some("one"));
        assert_eq!(lately.get(id(1), |value| (*value == "other").then_some(())), None);
        assert_eq!(lately.get(id(2), |value| Some(*value)), None, "it was not to be made");
        lately.put(id(1), "uno", || true);
        assert_eq!(lately.get(id(1), |value| Some(*value)), Some("uno"));
        lately.remove(id(1));
        assert_eq!(lately.get(id(1), |value| Some(*value)), None);
    }

    #[test]
    fn jobs_of_one_set_make_room_for_each_other() {
        let lately = Lately::new(16);
        // They differ in their first byte only, so they share a set.
        for first in 1..=4 {
            lately.put(id(first), first, || true);
        }
        let found = || (1..=5).filter(|first| lately.get(id(*first), |_| Some(())).is_some());
        assert_eq!(found().count(), 4);
        lately.put(id(5), 5, || true);
        assert_eq!((found().count(), found().next_back()), (4, Some(5)));
    }
}
