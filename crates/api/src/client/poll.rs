//! Intervals between two reads of a job that is polled, as COG-8 asks of clients.

use std::time::Duration;

use crate::limits::{POLL_GROWTH_HALVES, POLL_MAX};

/// The interval that follows this one: longer by half, up to [`POLL_MAX`].
pub fn next_interval(interval: Duration) -> Duration {
    (interval * POLL_GROWTH_HALVES / 2).min(POLL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::POLL_FIRST;

    #[test]
    fn intervals_grow_by_half_up_to_a_bound() {
        let intervals = std::iter::successors(Some(POLL_FIRST), |last| Some(next_interval(*last)));
        let ms: Vec<_> = intervals.take(11).map(|interval| interval.as_millis()).collect();
        assert_eq!(ms[..4], [300, 450, 675, 1012]);
        assert_eq!(ms[9..], [10_000, 10_000]);
    }
}
