//! Who may ask for how much.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::RateLimited;
use crate::limits::Rate;

/// Callers whose rates are remembered; when there are more, those that have rested longest are
/// forgotten, which costs nothing but their patience.
const RATES_MAX: usize = 100_000;

/// What every caller has used.
#[derive(Default)]
pub(crate) struct Admission {
    live: Mutex<HashMap<Arc<str>, usize>>,
    rates: Mutex<HashMap<Arc<str>, Bucket>>,
}

/// How much of a rate is left.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Duration,
}

impl Admission {
    /// Notes that a job of this owner lives.
    pub(crate) fn enter(&self, owner: &str) {
        let mut live = self.live.lock();
        match live.get_mut(owner) {
            Some(count) => *count += 1,
            None => {
                live.insert(owner.into(), 1);
            }
        }
    }

    /// Notes that a job of this owner has ended.
    pub(crate) fn leave(&self, owner: &str) {
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                live.remove(owner);
            }
        }
    }

    /// How many jobs of this owner live.
    pub(crate) fn live(&self, owner: &str) -> usize {
        self.live.lock().get(owner).copied().unwrap_or(0)
    }

    /// Takes one request of a caller off its rate. `now` is monotonic.
    pub(crate) fn take(
        &self,
        caller: &Arc<str>,
        rate: Rate,
        now: Duration,
    ) -> Result<(), RateLimited> {
        let burst = f64::from(rate.burst.max(1));
        let mut rates = self.rates.lock();
        if rates.len() >= RATES_MAX && !rates.contains_key(caller) {
            rates.retain(|_, bucket| bucket.refilled(rate, now).left < burst);
        }
        let fresh = Bucket { left: burst, at: now };
        let bucket = rates.entry(Arc::clone(caller)).or_insert(fresh);
        *bucket = bucket.refilled(rate, now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - bucket.left) / rate.per_second.max(f64::MIN_POSITIVE);
        let after = Duration::from_secs_f64(seconds.min(3600.0));
        Err(RateLimited { after, burst: rate.burst.max(1) })
    }
}

impl Bucket {
    fn refilled(self, rate: Rate, now: Duration) -> Bucket {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let left = (self.left + passed * rate.per_second).min(f64::from(rate.burst.max(1)));
        Bucket { left, at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_through_its_burst_and_then_its_pace() {
        let admission = Admission::default();
        let caller: Arc<str> = "somebody".into();
        let rate = Rate { per_second: 2.0, burst: 3 };
        let at = |ms: u64| admission.take(&caller, rate, Duration::from_millis(ms));
        assert!(at(0).is_ok() && at(0).is_ok() && at(0).is_ok());
        assert_eq!(at(0), Err(RateLimited { after: Duration::from_millis(500), burst: 3 }));
        assert!(at(500).is_ok());
        assert!(at(600).is_err());
        let other: Arc<str> = "somebody else".into();
        assert!(admission.take(&other, rate, Duration::ZERO).is_ok());
    }

    #[test]
    fn live_jobs_are_counted_by_owner() {
        let admission = Admission::default();
        admission.enter("a");
        admission.enter("a");
        admission.enter("b");
        admission.leave("a");
        assert_eq!((admission.live("a"), admission.live("b"), admission.live("c")), (1, 1, 0));
        admission.leave("b");
        admission.leave("b");
        assert_eq!(admission.live("b"), 0);
    }
}
