//! Quotas: live jobs and request rate per caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catena_store::{Store, owner_key};
use parking_lot::Mutex;

use crate::error::RateLimited;
use crate::limits::{RATES_MAX, Rate};
use crate::requests::Caller;
use crate::runtime::Runtime;

/// What every caller has used of its quotas.
pub(crate) struct Admission {
    runtime: Arc<Runtime>,
    /// Counts live jobs.
    store: Arc<dyn Store>,
    /// Private jobs by the key of their owner. They are in no store, so they are counted apart.
    private: Arc<PrivateCounts>,
    rates: Mutex<HashMap<Arc<str>, Bucket>>,
}

/// The number of private jobs of each owner.
#[derive(Default)]
struct PrivateCounts {
    by_owner: Mutex<HashMap<[u8; 8], usize>>,
    /// Usually 0, so that no lock is taken.
    total: AtomicUsize,
}

/// Counts a private job while it exists.
pub(crate) struct PrivateLive {
    private: Arc<PrivateCounts>,
    owner: [u8; 8],
}

impl Drop for PrivateLive {
    fn drop(&mut self) {
        let mut by_owner = self.private.by_owner.lock();
        if let Some(count) = by_owner.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                by_owner.remove(&self.owner);
            }
        }
        self.private.total.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A token bucket. `updated` is monotonic time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    updated: Duration,
}

impl Admission {
    pub(crate) fn new(runtime: Arc<Runtime>, store: Arc<dyn Store>) -> Self {
        Admission { runtime, store, private: Arc::default(), rates: Mutex::default() }
    }

    /// Admits one request of a caller, or refuses it because the caller's rate is used up.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), RateLimited> {
        let Some(rate) = self.runtime.limits.rate else { return Ok(()) };
        self.spend(caller.did.text(), rate, self.runtime.env.monotonic())
    }

    /// Counts a private job of this owner until the guard is dropped.
    pub(crate) fn add_private(&self, owner: &str) -> PrivateLive {
        let owner = owner_key(owner);
        *self.private.by_owner.lock().entry(owner).or_default() += 1;
        self.private.total.fetch_add(1, Ordering::Relaxed);
        PrivateLive { private: Arc::clone(&self.private), owner }
    }

    /// Returns the number of live jobs of all owners.
    pub(crate) fn total_live(&self) -> usize {
        self.private.total.load(Ordering::Relaxed) + self.store.live_total()
    }

    /// Returns the number of live jobs of this owner.
    pub(crate) fn live_count(&self, owner: &str) -> usize {
        let private = self.private_count(owner);
        // The usual case for a venue of inline operations.
        if self.store.live_total() == 0 {
            return private;
        }
        private + self.store.live_count(owner_key(owner))
    }

    fn private_count(&self, owner: &str) -> usize {
        if self.private.total.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.private.by_owner.lock().get(&owner_key(owner)).copied().unwrap_or(0)
    }

    /// Spends one token of a caller's bucket. `now` is monotonic time.
    fn spend(&self, caller: &Arc<str>, rate: Rate, now: Duration) -> Result<(), RateLimited> {
        let burst = f64::from(rate.burst.max(1));
        let mut rates = self.rates.lock();
        if rates.len() >= RATES_MAX && !rates.contains_key(caller) {
            rates.retain(|_, bucket| bucket.refilled(rate, now).tokens < burst);
        }
        let fresh = Bucket { tokens: burst, updated: now };
        let bucket = rates.entry(Arc::clone(caller)).or_insert(fresh);
        *bucket = bucket.refilled(rate, now);
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - bucket.tokens) / rate.per_second.max(f64::MIN_POSITIVE);
        let after = Duration::from_secs_f64(seconds.min(3600.0));
        Err(RateLimited { after, burst: rate.burst.max(1) })
    }
}

impl Bucket {
    fn refilled(self, rate: Rate, now: Duration) -> Bucket {
        let passed = now.saturating_sub(self.updated).as_secs_f64();
        let tokens = (self.tokens + passed * rate.per_second).min(f64::from(rate.burst.max(1)));
        Bucket { tokens, updated: now }
    }
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests {
    use catena_store::embedded::EmbeddedStore;
    use catena_store::testing::SimDisk;
    use catena_store::testing::stepped::SteppedStore;

    use super::*;
    use crate::limits::Limits;
    use crate::runtime::PausedEnv;

    fn admission() -> Admission {
        let disk = Arc::new(SimDisk::new(1));
        let store = EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap();
        let runtime = Runtime::new(Arc::new(PausedEnv::new()), Limits::default());
        Admission::new(runtime, Arc::new(SteppedStore::new(store)))
    }

    #[tokio::test]
    async fn a_rate_lets_through_its_burst_and_then_its_rate() {
        let admission = admission();
        let caller: Arc<str> = "did:key:alice".into();
        let rate = Rate { per_second: 2.0, burst: 3 };
        let at = |ms: u64| admission.spend(&caller, rate, Duration::from_millis(ms));
        assert!(at(0).is_ok() && at(0).is_ok() && at(0).is_ok());
        assert_eq!(at(0), Err(RateLimited { after: Duration::from_millis(500), burst: 3 }));
        assert!(at(500).is_ok());
        assert!(at(600).is_err());
        let other: Arc<str> = "did:key:bob".into();
        assert!(admission.spend(&other, rate, Duration::ZERO).is_ok());
    }

    #[tokio::test]
    async fn private_jobs_are_counted_while_they_exist() {
        let admission = admission();
        let first = admission.add_private("a");
        let second = admission.add_private("a");
        assert_eq!((admission.live_count("a"), admission.live_count("b")), (2, 0));
        drop(first);
        assert_eq!((admission.live_count("a"), admission.total_live()), (1, 1));
        drop(second);
        assert_eq!(admission.total_live(), 0);
    }
}
