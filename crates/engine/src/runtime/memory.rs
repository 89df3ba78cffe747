//! Memory in flight: what requests, runs and responses hold, per process and per caller.
//!
//! Whoever is about to hold something large reserves its decoded size first and holds the
//! [`Reservation`] as long as the value. A reservation that would exceed a bound is refused, so a
//! request is refused or a job fails instead of the process being killed. Small values are not
//! counted: their number is bounded by other limits, and most requests take no lock here.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use catena_value::Value;
use parking_lot::Mutex;

use crate::error::TooMuchMemory;
use crate::limits::{Limits, UNCOUNTED_BYTES_MAX};

/// What all reservations of a process hold.
pub struct MemoryBudget {
    process_max: u64,
    caller_max: u64,
    held: Mutex<Held>,
    /// What the store holds of commits that are over.
    of_store: OnceLock<StoreMemory>,
}

/// Returns the bytes that the store holds in memory of commits that are over.
type StoreMemory = Box<dyn Fn() -> u64 + Send + Sync>;

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.held(), self.process_max)
    }
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    /// Bytes by caller. A caller that holds nothing has no entry.
    callers: HashMap<Arc<str>, u64>,
}

impl MemoryBudget {
    /// Creates a budget of which nothing is reserved.
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(MemoryBudget {
            process_max: limits.memory_bytes_max,
            caller_max: limits.memory_per_caller_bytes_max,
            held: Mutex::default(),
            of_store: OnceLock::new(),
        })
    }

    /// Counts what the store holds of commits that are over as a part of the budget of the process: their callers
    /// have released it.
    pub fn count_store(&self, held: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.of_store.set(Box::new(held));
    }

    /// Returns a reservation of nothing, which can grow.
    pub fn open(self: &Arc<Self>, caller: &Arc<str>) -> Reservation {
        Reservation { budget: Arc::clone(self), caller: Arc::clone(caller), bytes: 0, uncounted: 0 }
    }

    /// Returns the number of bytes that are reserved.
    pub fn held(&self) -> u64 {
        self.held.lock().total
    }

    fn add(&self, caller: &Arc<str>, bytes: u64) -> Result<(), TooMuchMemory> {
        let mut held = self.held.lock();
        let of_caller = held.callers.get(caller).copied().unwrap_or(0).saturating_add(bytes);
        if of_caller > self.caller_max {
            return Err(TooMuchMemory::OfCaller { max: self.caller_max });
        }
        let total = held.total.saturating_add(bytes);
        let of_store = self.of_store.get().map_or(0, |of_store| of_store());
        if total.saturating_add(of_store) > self.process_max {
            return Err(TooMuchMemory::OfProcess { max: self.process_max });
        }
        held.total = total;
        held.callers.insert(Arc::clone(caller), of_caller);
        Ok(())
    }

    fn remove(&self, caller: &Arc<str>, bytes: u64) {
        let mut held = self.held.lock();
        held.total = held.total.saturating_sub(bytes);
        if let Some(of_caller) = held.callers.get_mut(caller) {
            *of_caller = of_caller.saturating_sub(bytes);
            if *of_caller == 0 {
                held.callers.remove(caller);
            }
        }
    }
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    caller: Arc<str>,
    bytes: u64,
    /// Bytes that are not counted yet because they are few.
    uncounted: u64,
}

impl Reservation {
    /// Reserves so many bytes more. If that is refused, what was reserved before still is.
    pub fn grow(&mut self, bytes: u64) -> Result<(), TooMuchMemory> {
        let more = self.uncounted.saturating_add(bytes);
        if more <= UNCOUNTED_BYTES_MAX {
            self.uncounted = more;
            return Ok(());
        }
        self.budget.add(&self.caller, more)?;
        self.bytes += more;
        self.uncounted = 0;
        Ok(())
    }

    /// Reserves the memory of a value. Nothing is read to measure it: parts that are not loaded take
    /// none.
    pub fn grow_for(&mut self, value: &Value) -> Result<(), TooMuchMemory> {
        self.grow(value.memory_bytes(self.budget.caller_max.saturating_add(1)))
    }

    /// Reserves the memory of a value and that of its encoding, which a commit holds until it is durable.
    pub fn grow_for_stored(&mut self, value: &Value) -> Result<(), TooMuchMemory> {
        self.grow(value.memory_bytes_with_encoding(self.budget.caller_max.saturating_add(1)))
    }

    /// Splits off a reservation of at most so many bytes.
    pub fn split_off(&mut self, bytes: u64) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut other = self.open_another();
        other.bytes = bytes;
        other
    }

    /// Returns what is reserved and leaves a reservation of nothing.
    pub fn take(&mut self) -> Reservation {
        let empty = self.open_another();
        std::mem::replace(self, empty)
    }

    /// Returns a reservation of nothing for the same caller.
    pub fn open_another(&self) -> Reservation {
        self.budget.open(&self.caller)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.remove(&self.caller, self.bytes);
        }
    }
}

/// Returns true if an output is large and is the input, so that it takes no memory of its own.
pub(crate) fn is_same_large(output: &Value, input: &Value) -> bool {
    let is_large = output.memory_bytes(UNCOUNTED_BYTES_MAX + 1) > UNCOUNTED_BYTES_MAX;
    is_large && output.id() == input.id()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(&Limits {
            memory_bytes_max: 10 * MIB,
            memory_per_caller_bytes_max: 6 * MIB,
            ..Limits::default()
        })
    }

    #[test]
    fn a_caller_and_the_process_hold_no_more_than_they_may() {
        let budget = budget();
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let mut first = budget.open(&alice);
        first.grow(4 * MIB).unwrap();
        let mut second = budget.open(&alice);
        let refused = TooMuchMemory::OfCaller { max: 6 * MIB };
        assert_eq!(second.grow(3 * MIB), Err(refused));
        second.grow(2 * MIB).unwrap();
        let mut other = budget.open(&bob);
        assert_eq!(other.grow(5 * MIB), Err(TooMuchMemory::OfProcess { max: 10 * MIB }));
        drop(first);
        other.grow(5 * MIB).unwrap();
        drop((second, other));
        assert_eq!(budget.held(), 0);
        assert!(budget.held.lock().callers.is_empty());
    }

    #[test]
    fn what_the_store_holds_of_earlier_commits_is_a_part_of_the_budget() {
        let budget = budget();
        let of_store = Arc::new(AtomicU64::new(7 * MIB));
        let held = Arc::clone(&of_store);
        budget.count_store(move || held.load(Ordering::Relaxed));
        let mut reservation = budget.open(&"alice".into());
        let refused = TooMuchMemory::OfProcess { max: 10 * MIB };
        assert_eq!(reservation.grow(4 * MIB), Err(refused));
        of_store.store(6 * MIB, Ordering::Relaxed);
        reservation.grow(4 * MIB).unwrap();
    }

    #[test]
    fn small_values_are_not_counted() {
        let budget = budget();
        let mut reservation = budget.open(&"alice".into());
        reservation.grow(UNCOUNTED_BYTES_MAX).unwrap();
        assert_eq!(budget.held(), 0);
        reservation.grow(1).unwrap();
        assert_eq!(budget.held(), UNCOUNTED_BYTES_MAX + 1, "many of them are");
    }
}
