//! Statistics of the queue, as far as this process knows: for operators.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catena_job::{Job, JobId};
use catena_value::Value;
use parking_lot::Mutex;

/// The number of queued jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueDepths {
    /// All queued jobs.
    pub total: u64,
    /// Queued jobs by priority.
    pub by_priority: BTreeMap<u8, u64>,
    /// Queued jobs by operation reference, largest count first.
    pub by_op: Vec<(String, u64)>,
    /// The job that has waited longest.
    pub oldest: Option<OldestQueued>,
}

/// The job that has waited longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestQueued {
    /// The job.
    pub job: JobId,
    /// Its operation reference, as the caller wrote it.
    pub op: String,
    /// Since when it waits, as Unix time in ms.
    pub since: i64,
}

/// The queued jobs.
#[derive(Default)]
pub(crate) struct QueueStats {
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: HashMap<JobId, QueuedJob>,
    depths: HashMap<Arc<str>, BTreeMap<u8, u64>>,
}

struct QueuedJob {
    op: Arc<str>,
    priority: u8,
    since: i64,
}

impl QueueStats {
    /// Counts a job that was queued.
    pub(crate) fn add(&self, job: &Job, priority: u8, since: i64) {
        let op = job.field("op").and_then(Value::as_str).unwrap_or_default();
        let mut state = self.state.lock();
        state.remove(job.id());
        let op = match state.depths.get_key_value(op) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(op),
        };
        *state.depths.entry(Arc::clone(&op)).or_default().entry(priority).or_default() += 1;
        state.jobs.insert(job.id(), QueuedJob { op, priority, since });
        self.count.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// Removes a job that is no longer queued.
    pub(crate) fn remove(&self, job: JobId) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut state = self.state.lock();
            state.remove(job);
            self.count.store(state.jobs.len(), Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// Returns the depths of the queue.
    pub(crate) fn depths(&self) -> QueueDepths {
        let state = self.state.lock();
        let mut depths = QueueDepths { total: state.jobs.len() as u64, ..QueueDepths::default() };
        for (op, counts) in &state.depths {
            depths.by_op.push((op.to_string(), counts.values().sum()));
            for (priority, count) in counts {
                *depths.by_priority.entry(*priority).or_default() += count;
            }
        }
        depths.by_op.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let oldest = state.jobs.iter().min_by_key(|(job, queued)| (queued.since, **job));
        depths.oldest = oldest.map(|(job, queued)| OldestQueued {
            job: *job,
            op: queued.op.to_string(),
            since: queued.since,
        });
        depths
    }
}

impl State {
    fn remove(&mut self, job: JobId) {
        let Some(queued) = self.jobs.remove(&job) else { return };
        let Some(counts) = self.depths.get_mut(&queued.op) else { return };
        if let Some(count) = counts.get_mut(&queued.priority) {
            *count = count.saturating_sub(1);
        }
        counts.retain(|_, count| *count > 0);
        if counts.is_empty() {
            self.depths.remove(&queued.op);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::NewJob;

    fn job(number: u8, op: &str) -> Job {
        let new_job = NewJob {
            id: JobId::from_bytes([number; 16]),
            venue: "did:key:venue".into(),
            op: op.into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        Job::create(new_job, 1, None).unwrap().0
    }

    #[test]
    fn depths_follow_jobs_that_enter_and_leave_the_queue() {
        let stats = QueueStats::default();
        for (number, op, priority, since) in
            [(1, "a", 0, 30), (2, "b", 0, 20), (3, "b", 7, 10), (3, "b", 5, 40)]
        {
            stats.add(&job(number, op), priority, since);
        }
        let depths = stats.depths();
        assert_eq!((depths.total, stats.count()), (3, 3));
        assert_eq!(depths.by_priority, BTreeMap::from([(0, 2), (5, 1)]));
        assert_eq!(depths.by_op, [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        let oldest = depths.oldest.unwrap();
        assert_eq!((oldest.job, oldest.since), (JobId::from_bytes([2; 16]), 20));
        for number in [1, 2, 3, 9] {
            stats.remove(JobId::from_bytes([number; 16]));
        }
        assert_eq!(stats.depths(), QueueDepths::default());
    }
}
