//! When a request that was refused because of its rate is sent again: as the published SDKs do.

use std::time::{Duration, SystemTime};

use hyper::header::{HeaderMap, RETRY_AFTER};

use crate::limits::{RATE_ATTEMPTS_MAX, RATE_BUDGET, RATE_DELAY_FIRST, RATE_DELAY_MAX};

/// What a client does if the venue refuses a request because of its rate (429).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRateLimit {
    /// Return the refusal. For callers that have their own backoff.
    Fail,
    /// Send the request again after a delay, a bounded number of times.
    Retry,
}

/// The delay after an attempt, counted from one; `None` if it was the last. `random` is from 0 to 1
/// and spreads clients that were refused at the same moment.
pub(super) fn delay(
    attempt: u32,
    after: Option<Duration>,
    spent: Duration,
    random: f64,
) -> Option<Duration> {
    if attempt >= RATE_ATTEMPTS_MAX {
        return None;
    }
    let longest = RATE_DELAY_FIRST.saturating_mul(1 << (attempt - 1)).min(RATE_DELAY_MAX);
    let delay = longest.mul_f64(random.clamp(0.0, 1.0)).max(after.unwrap_or_default());
    (spent.saturating_add(delay) <= RATE_BUDGET).then_some(delay)
}

/// The delay in the `Retry-After` header, given in seconds or as a date; `None` if there is none.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    #[expect(clippy::disallowed_methods, reason = "a date must be compared with the current time")]
    let now = SystemTime::now();
    parse_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

fn parse_after(text: &str, now: SystemTime) -> Option<Duration> {
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text.trim()).ok()?;
            Some(date.duration_since(now).unwrap_or_default())
        }
    }
}

/// A random number from 0 to 1, or 1 if there is no randomness: every client then waits longest.
pub(super) fn random_fraction() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn delays_double_and_are_spread() {
        assert_eq!(delay(1, None, NONE, 1.0), Some(ms(200)));
        assert_eq!(delay(2, None, NONE, 1.0), Some(ms(400)));
        assert_eq!(delay(3, None, NONE, 0.5), Some(ms(400)));
        assert_eq!(delay(4, None, NONE, 1.0), None, "four attempts in all");
        assert_eq!(delay(1, None, NONE, 0.0), Some(NONE));
    }

    #[test]
    fn the_venue_sets_the_shortest_delay() {
        assert_eq!(delay(1, Some(ms(3_000)), NONE, 0.3), Some(ms(3_000)));
        assert_eq!(delay(1, Some(ms(29_000)), NONE, 1.0), Some(ms(29_000)));
        assert_eq!(delay(1, Some(ms(31_000)), NONE, 1.0), None, "beyond the budget");
        assert_eq!(delay(2, Some(ms(20_000)), ms(20_000), 1.0), None);
    }

    #[test]
    fn a_venue_asks_in_seconds_or_with_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(parse_after("2", now), Some(ms(2_000)));
        assert_eq!(parse_after("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(ms(3_000)));
        assert_eq!(parse_after("Sun, 06 Nov 1994 08:49:30 GMT", now), Some(NONE));
        assert_eq!(parse_after("soon", now), None);
    }
}
