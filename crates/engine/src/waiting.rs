//! What waits on the queue, as far as this process knows: for those who watch the venue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catena_job::{Job, JobId};
use catena_value::Value;
use parking_lot::Mutex;

use crate::engine::Engine;

/// How this process does.
#[derive(Debug, Clone)]
pub struct Health {
    /// The name of this process among workers.
    pub worker: String,
    /// Jobs that run here.
    pub running: u64,
    /// Places for jobs that run here.
    pub slots: u64,
    /// When it last showed that it lives, in milliseconds since 1970.
    pub heartbeat: i64,
    /// What waits.
    pub queue: Depths,
}

/// How many jobs wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Depths {
    /// In all.
    pub total: u64,
    /// By priority.
    pub by_priority: BTreeMap<u8, u64>,
    /// By operation, as callers named it; most first.
    pub by_op: Vec<(String, u64)>,
    /// The one that has waited longest.
    pub oldest: Option<Oldest>,
}

/// The job that has waited longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oldest {
    /// The job.
    pub job: JobId,
    /// Its operation, as the caller named it.
    pub op: String,
    /// Since when it waits.
    pub since: i64,
}

/// Jobs on the queue.
#[derive(Default)]
pub(crate) struct Waiting {
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: HashMap<JobId, Place>,
    depths: HashMap<Arc<str>, BTreeMap<u8, u64>>,
}

struct Place {
    op: Arc<str>,
    priority: u8,
    since: i64,
}

impl Waiting {
    /// A job was put on the queue.
    pub(crate) fn put(&self, job: &Job, priority: u8, since: i64) {
        let op = job.field("op").and_then(Value::as_str).unwrap_or_default();
        let mut state = self.state.lock();
        state.forget(job.id());
        let op = match state.depths.get_key_value(op) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(op),
        };
        *state.depths.entry(Arc::clone(&op)).or_default().entry(priority).or_default() += 1;
        state.jobs.insert(job.id(), Place { op, priority, since });
        self.count.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// A job is no longer there, if it was.
    pub(crate) fn take(&self, job: JobId) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut state = self.state.lock();
            state.forget(job);
            self.count.store(state.jobs.len(), Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    fn depths(&self) -> Depths {
        let state = self.state.lock();
        let mut depths = Depths { total: state.jobs.len() as u64, ..Depths::default() };
        for (op, counts) in &state.depths {
            depths.by_op.push((op.to_string(), counts.values().sum()));
            for (priority, count) in counts {
                *depths.by_priority.entry(*priority).or_default() += count;
            }
        }
        depths.by_op.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let oldest = state.jobs.iter().min_by_key(|(job, place)| (place.since, **job));
        depths.oldest = oldest.map(|(job, place)| Oldest {
            job: *job,
            op: place.op.to_string(),
            since: place.since,
        });
        depths
    }
}

impl State {
    fn forget(&mut self, job: JobId) {
        let Some(place) = self.jobs.remove(&job) else { return };
        let Some(counts) = self.depths.get_mut(&place.op) else { return };
        if let Some(count) = counts.get_mut(&place.priority) {
            *count = count.saturating_sub(1);
        }
        counts.retain(|_, count| *count > 0);
        if counts.is_empty() {
            self.depths.remove(&place.op);
        }
    }
}

impl Engine {
    /// How this process does.
    pub fn health(&self) -> Health {
        Health {
            worker: self.0.worker.clone(),
            running: self.0.running.count() as u64,
            slots: self.0.limits.running_max as u64,
            heartbeat: self.0.heartbeat.load(Ordering::Relaxed),
            queue: self.0.waiting.depths(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::NewJob;

    fn job(number: u8, op: &str) -> Job {
        let opening = NewJob {
            id: JobId::from_bytes([number; 16]),
            venue: "did:key:venue".into(),
            op: op.into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        Job::open(opening, 1, None).unwrap().0
    }

    #[test]
    fn depths_follow_what_comes_and_goes() {
        let waiting = Waiting::default();
        for (number, op, priority, since) in
            [(1, "a", 0, 30), (2, "b", 0, 20), (3, "b", 7, 10), (3, "b", 5, 40)]
        {
            waiting.put(&job(number, op), priority, since);
        }
        let depths = waiting.depths();
        assert_eq!((depths.total, waiting.count()), (3, 3));
        assert_eq!(depths.by_priority, BTreeMap::from([(0, 2), (5, 1)]));
        assert_eq!(depths.by_op, [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        let oldest = depths.oldest.unwrap();
        assert_eq!((oldest.job, oldest.since), (JobId::from_bytes([2; 16]), 20));
        for number in [1, 2, 3, 9] {
            waiting.take(JobId::from_bytes([number; 16]));
        }
        assert_eq!(waiting.depths(), Depths::default());
    }
}
