//! What happened in the last hour, by minute: in memory, for the whole venue and for each owner.
//!
//! Only the newest [`MINUTES`] minutes and [`STATS_OWNERS_MAX`] owners are kept, and durations are
//! counted in buckets, so the memory is bounded whatever happens. A process knows what it did itself,
//! since it started.

use std::collections::{HashMap, VecDeque};

use catena_job::{JobId, Status};
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::limits::{STATS_OWNERS_MAX, STATS_RUNNING_MAX};

/// Minutes that are kept.
const MINUTES: usize = 60;

/// A minute, in ms.
const MINUTE_MS: i64 = 60_000;

/// Buckets of durations: four for each power of two, up to twelve days.
const BUCKETS: u8 = 120;

/// The statistics of a process.
#[derive(Default)]
pub(crate) struct Stats(Mutex<State>);

#[derive(Default)]
struct State {
    everyone: Series,
    owners: HashMap<String, Series, RandomState>,
    /// When jobs that run were started, as Unix time in ms.
    running: HashMap<JobId, i64, RandomState>,
}

/// A committed change of a job, as far as statistics need it.
pub(crate) struct CountedChange<'a> {
    pub(crate) job: JobId,
    pub(crate) owner: &'a str,
    pub(crate) status: Status,
    /// True if the job was created by this commit.
    pub(crate) is_new: bool,
    /// True if this commit has the job's first STARTED record.
    pub(crate) is_start: bool,
    /// When the job was created, as Unix time in ms.
    pub(crate) created: i64,
    /// When its last record was made, as Unix time in ms.
    pub(crate) updated: i64,
}

/// The minutes of one owner, or of all.
#[derive(Debug, Clone, Default)]
struct Series(VecDeque<Minute>);

/// What happened in one minute.
#[derive(Debug, Clone, Default)]
struct Minute {
    number: i64,
    created: u64,
    started: u64,
    ended: [u64; 5],
    waiting: Histogram,
    running: Histogram,
    queue_depth: Option<u64>,
}

/// What happened in one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteStats {
    /// When the minute began, as Unix time in ms.
    pub at: i64,
    /// Jobs created.
    pub created: u64,
    /// Jobs started for the first time.
    pub started: u64,
    /// Jobs ended, by status, in the order COMPLETE, FAILED, CANCELLED, REJECTED, TIMEOUT.
    pub ended: [u64; 5],
    /// The time from the creation of jobs to their start.
    pub waiting: Option<Percentiles>,
    /// The time from the start of jobs to their end.
    pub running: Option<Percentiles>,
    /// The largest number of queued jobs that was seen.
    pub queue_depth: Option<u64>,
}

/// Percentiles of a duration, in ms. They are upper bounds, at most a fifth too high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the durations are not longer.
    pub p50_ms: u64,
    /// 99 of 100 durations are not longer.
    pub p99_ms: u64,
}

impl Stats {
    /// Counts a change of a job.
    pub(crate) fn count(&self, change: &CountedChange<'_>) {
        let mut state = self.0.lock();
        let state = &mut *state;
        let ended = ended_index(change.status);
        let started = if ended.is_some() {
            // A job that starts and ends in one commit was never among them.
            let known = if change.is_new { None } else { state.running.remove(&change.job) };
            known.or(change.is_start.then_some(change.created))
        } else {
            if change.is_start && state.running.len() < STATS_RUNNING_MAX {
                state.running.insert(change.job, change.updated);
            }
            None
        };
        let number = change.updated.div_euclid(MINUTE_MS);
        let own = owner_series(&mut state.owners, change.owner);
        for series in [Some(&mut state.everyone), own].into_iter().flatten() {
            let Some(minute) = series.minute(number) else { continue };
            minute.created += u64::from(change.is_new);
            if change.is_start {
                minute.started += 1;
                // A job that starts and ends in one commit did not wait.
                let wait = if ended.is_some() { 0 } else { change.updated - change.created };
                minute.waiting.add(wait);
            }
            if let Some(index) = ended {
                minute.ended[index] += 1;
                if let Some(started) = started {
                    minute.running.add(change.updated - started);
                }
            }
        }
    }

    /// Records the number of queued jobs.
    pub(crate) fn set_queue_depth(&self, now: i64, depth: u64) {
        let mut state = self.0.lock();
        if let Some(minute) = state.everyone.minute(now.div_euclid(MINUTE_MS)) {
            minute.queue_depth = Some(minute.queue_depth.map_or(depth, |known| known.max(depth)));
        }
    }

    /// Returns the last hour of an owner, or of all owners: one entry for each minute, oldest first.
    pub(crate) fn last_hour(&self, owner: Option<&str>, now: i64) -> Vec<MinuteStats> {
        let state = self.0.lock();
        let series = match owner {
            None => Some(&state.everyone),
            Some(owner) => state.owners.get(owner),
        };
        let last = now.div_euclid(MINUTE_MS);
        let first = last - MINUTES as i64 + 1;
        (first..=last)
            .map(|number| {
                let known = series.and_then(|series| {
                    series.0.iter().find(|minute| minute.number == number).cloned()
                });
                known.unwrap_or_default().to_stats(number)
            })
            .collect()
    }
}

/// Returns the series of an owner. If there are too many, the owner that was idle longest is dropped.
fn owner_series<'a>(
    owners: &'a mut HashMap<String, Series, RandomState>,
    owner: &str,
) -> Option<&'a mut Series> {
    if !owners.contains_key(owner) {
        if owners.len() >= STATS_OWNERS_MAX {
            let idle = owners.iter().min_by_key(|(_, series)| series.last_number());
            let idle = idle.map(|(name, _)| name.clone());
            owners.remove(&idle?);
        }
        owners.insert(owner.to_owned(), Series::default());
    }
    owners.get_mut(owner)
}

fn ended_index(status: Status) -> Option<usize> {
    match status {
        Status::Complete => Some(0),
        Status::Failed => Some(1),
        Status::Cancelled => Some(2),
        Status::Rejected => Some(3),
        Status::Timeout => Some(4),
        _ => None,
    }
}

impl Series {
    fn last_number(&self) -> i64 {
        self.0.back().map_or(i64::MIN, |minute| minute.number)
    }

    /// Returns a minute. `None` if it is too long ago.
    fn minute(&mut self, number: i64) -> Option<&mut Minute> {
        if number > self.last_number() {
            self.0.push_back(Minute { number, ..Minute::default() });
            let first = number - MINUTES as i64 + 1;
            while self.0.front().is_some_and(|minute| minute.number < first) {
                self.0.pop_front();
            }
        }
        self.0.iter_mut().rev().find(|minute| minute.number == number)
    }
}

impl Minute {
    fn to_stats(&self, number: i64) -> MinuteStats {
        MinuteStats {
            at: number * MINUTE_MS,
            created: self.created,
            started: self.started,
            ended: self.ended,
            waiting: self.waiting.percentiles(),
            running: self.running.percentiles(),
            queue_depth: self.queue_depth,
        }
    }
}

/// Durations by bucket. Most minutes have a few.
#[derive(Debug, Clone, Default)]
struct Histogram(Vec<(u8, u32)>);

impl Histogram {
    fn add(&mut self, ms: i64) {
        let bucket = bucket_of(u64::try_from(ms).unwrap_or(0));
        match self.0.binary_search_by_key(&bucket, |(own, _)| *own) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(1),
            Err(at) => self.0.insert(at, (bucket, 1)),
        }
    }

    fn percentiles(&self) -> Option<Percentiles> {
        let total: u64 = self.0.iter().map(|(_, count)| u64::from(*count)).sum();
        if total == 0 {
            return None;
        }
        let at = |percent: u64| {
            let rank = (total * percent).div_ceil(100);
            let mut passed = 0;
            let found = self.0.iter().find(|(_, count)| {
                passed += u64::from(*count);
                passed >= rank
            });
            found.map_or(0, |(bucket, _)| upper_bound_ms(*bucket))
        };
        Some(Percentiles { p50_ms: at(50), p99_ms: at(99) })
    }
}

/// The first bucket whose bound is not less.
fn bucket_of(ms: u64) -> u8 {
    (0..BUCKETS).find(|bucket| upper_bound_ms(*bucket) >= ms).unwrap_or(BUCKETS - 1)
}

/// The longest duration of a bucket, in ms: 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …
fn upper_bound_ms(bucket: u8) -> u64 {
    if bucket < 4 {
        return u64::from(bucket);
    }
    let (octave, quarter) = (u64::from(bucket / 4), u64::from(bucket % 4));
    (4 + quarter) << (octave - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_769_850_000_000;

    fn change(number: u8, status: Status, at: i64) -> CountedChange<'static> {
        CountedChange {
            job: JobId::from_bytes([number; 16]),
            owner: "did:a",
            status,
            is_new: false,
            is_start: false,
            created: NOW,
            updated: at,
        }
    }

    #[test]
    fn buckets_are_in_order_and_close_to_what_they_hold() {
        for bucket in 1..BUCKETS {
            assert!(upper_bound_ms(bucket) > upper_bound_ms(bucket - 1), "{bucket}");
        }
        for ms in [0, 1, 3, 9, 100, 12_345, 86_400_000] {
            let bound = upper_bound_ms(bucket_of(ms));
            assert!(bound >= ms && bound <= ms + ms / 4 + 1, "{ms}: {bound}");
        }
    }

    #[test]
    fn waiting_and_running_are_told_apart() {
        let stats = Stats::default();
        stats.count(&CountedChange { is_new: true, ..change(1, Status::Pending, NOW) });
        stats.count(&CountedChange { is_start: true, ..change(1, Status::Started, NOW + 8) });
        stats.count(&change(1, Status::Complete, NOW + 40));
        for owner in [None, Some("did:a")] {
            let hour = stats.last_hour(owner, NOW);
            assert_eq!(hour.len(), MINUTES);
            let minute = hour.last().unwrap();
            assert_eq!((minute.created, minute.started, minute.ended), (1, 1, [1, 0, 0, 0, 0]));
            assert_eq!(minute.waiting.unwrap().p50_ms, 8);
            assert_eq!(minute.running.unwrap().p99_ms, 32);
        }
        assert_eq!(stats.last_hour(Some("did:b"), NOW).last().unwrap().created, 0);
        let later = stats.last_hour(None, NOW + 3_600_000);
        assert!(later.iter().all(|minute| minute.created == 0), "an hour later it is forgotten");
    }

    #[test]
    fn memory_is_bounded() {
        let stats = Stats::default();
        for number in 0..2 * STATS_OWNERS_MAX {
            let owner = format!("did:{number}");
            let at = NOW + i64::try_from(number).unwrap() * MINUTE_MS;
            stats.count(&CountedChange { owner: &owner, ..change(1, Status::Complete, at) });
        }
        let state = stats.0.lock();
        assert_eq!(state.owners.len(), STATS_OWNERS_MAX);
        assert!(state.everyone.0.len() <= MINUTES);
    }
}
