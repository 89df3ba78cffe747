//! Quotas: live jobs and request rate per caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use catena_store::owner_key;
use parking_lot::Mutex;

use crate::error::RateLimited;
use crate::limits::{RATES_MAX, Rate};
use crate::requests::Caller;
use crate::runtime::Runtime;

/// What every caller has used of its quotas.
pub(crate) struct Admission {
    runtime: Arc<Runtime>,
    /// Live jobs by the key of their owner.
    live: Mutex<HashMap<[u8; 8], usize>>,
    /// Private jobs by the key of their owner. They are in no store, so they are counted apart.
    private: Arc<PrivateCounts>,
    /// True if nobody has a live job, which is the usual case for a venue of inline operations.
    is_idle: AtomicBool,
    /// Live jobs of all owners.
    total: AtomicUsize,
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
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        Admission {
            runtime,
            live: Mutex::default(),
            private: Arc::default(),
            is_idle: AtomicBool::new(true),
            total: AtomicUsize::new(0),
            rates: Mutex::default(),
        }
    }

    /// Admits one request of a caller, or refuses it because the caller's rate is used up.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), RateLimited> {
        let Some(rate) = self.runtime.limits.rate else { return Ok(()) };
        self.spend(caller.did.text(), rate, self.runtime.env.monotonic())
    }

    /// Counts a live job of this owner.
    pub(crate) fn add_live(&self, owner: &str) {
        let mut live = self.live.lock();
        *live.entry(owner_key(owner)).or_default() += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Counts the end of a live job of this owner.
    pub(crate) fn remove_live(&self, owner: &str) {
        let key = owner_key(owner);
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                live.remove(&key);
            }
            self.total.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_idle.store(live.is_empty(), Ordering::Relaxed);
    }

    /// Replaces all numbers of live jobs, by owner key.
    pub(crate) fn set_live(&self, counts: HashMap<[u8; 8], usize>) {
        let mut live = self.live.lock();
        self.is_idle.store(counts.is_empty(), Ordering::Relaxed);
        self.total.store(counts.values().sum(), Ordering::Relaxed);
        *live = counts;
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
        let private = self.private.total.load(Ordering::Relaxed);
        private + self.total.load(Ordering::Relaxed)
    }

    /// Returns the number of live jobs of this owner.
    pub(crate) fn live_count(&self, owner: &str) -> usize {
        let private = self.private_count(owner);
        if self.is_idle.load(Ordering::Relaxed) {
            return private;
        }
        private + self.live.lock().get(&owner_key(owner)).copied().unwrap_or(0)
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::runtime::PausedEnv;

    fn admission() -> Admission {
        Admission::new(Runtime::new(Arc::new(PausedEnv::new()), Limits::default()))
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
    async fn live_jobs_are_counted_by_owner() {
        let admission = admission();
        admission.add_live("a");
        admission.add_live("a");
        admission.add_live("b");
        admission.remove_live("a");
        assert_eq!(
            (admission.live_count("a"), admission.live_count("b"), admission.live_count("c")),
            (1, 1, 0)
        );
        admission.remove_live("b");
        admission.remove_live("b");
        assert_eq!(admission.live_count("b"), 0);
    }
}
