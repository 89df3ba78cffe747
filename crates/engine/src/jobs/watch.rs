//! Watchers: who is notified of changes of which job in this process.
//!
//! A change is announced after it is durable. The announcement carries the job as of that change; a
//! slow watcher finds only the newest one, which is enough because the chain has them all. A
//! watcher can never delay an announcement.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_value::Value;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::jobs::Jobs;
use crate::requests::JobView;

/// Shards of the table, so that announcements of different jobs rarely contend.
const SHARDS: usize = 32;

/// The newest that was announced of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Update {
    /// The job as of the newest announced record.
    pub(crate) view: Option<JobView>,
    /// The newest progress report, and the number of reports so far.
    pub(crate) progress: Option<(u64, Value)>,
    /// True if the job was deleted.
    pub(crate) is_deleted: bool,
}

/// What is announced of one job to its watchers. A `watch` channel of tokio would do, but has eight lists
/// of waiters, and most watches are those of single requests.
#[derive(Default)]
struct Topic {
    update: Mutex<Update>,
    /// Counts announcements.
    version: AtomicU64,
    changed: Notify,
}

impl Topic {
    /// Changes the newest announcement and notifies the watchers, if `change` returns true.
    fn announce(&self, change: impl FnOnce(&mut Update) -> bool) {
        if !change(&mut self.update.lock()) {
            return;
        }
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// The topics of jobs, each with the number of its watches.
type Shard = Mutex<HashMap<JobId, (usize, Arc<Topic>), RandomState>>;

/// The watched jobs.
pub(crate) struct Watchers {
    shards: [Shard; SHARDS],
    count: AtomicU64,
}

impl Default for Watchers {
    fn default() -> Self {
        Watchers { shards: std::array::from_fn(|_| Shard::default()), count: AtomicU64::new(0) }
    }
}

impl Watchers {
    fn shard(&self, job: JobId) -> &Shard {
        &self.shards[usize::from(job.as_bytes()[15]) % SHARDS]
    }

    /// Announces a job as of a commit.
    pub(crate) fn announce(&self, view: &JobView) {
        self.update(view.job.id(), |update| match &update.view {
            // Announcements of two commits may arrive out of order.
            Some(known) if known.job.count() > view.job.count() => false,
            Some(known) if known.job.head() == view.job.head() && known.changes == view.changes => {
                false
            }
            _ => {
                update.view = Some(view.clone());
                true
            }
        });
    }

    /// Announces a progress report.
    pub(crate) fn announce_progress(&self, job: JobId, progress: &Value) {
        self.update(job, |update| {
            let number = update.progress.as_ref().map_or(0, |(number, _)| *number);
            update.progress = Some((number + 1, progress.clone()));
            true
        });
    }

    /// Announces a change outside the chain.
    pub(crate) fn announce_off_chain(&self, job: JobId) {
        self.update(job, |_| true);
    }

    /// Announces that a job was deleted.
    pub(crate) fn announce_deleted(&self, job: JobId) {
        self.update(job, |update| {
            update.is_deleted = true;
            true
        });
    }

    fn update(&self, job: JobId, change: impl FnOnce(&mut Update) -> bool) {
        if self.count() == 0 {
            return;
        }
        let topic = self.shard(job).lock().get(&job).map(|(_, topic)| Arc::clone(topic));
        if let Some(topic) = topic {
            topic.announce(change);
        }
    }

    /// Starts watching a job.
    pub(crate) fn watch(self: &Arc<Self>, job: JobId) -> Watch {
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut topics = self.shard(job).lock();
        let (watches, topic) = topics.entry(job).or_default();
        *watches += 1;
        let topic = Arc::clone(topic);
        Watch { watchers: Arc::clone(self), job, seen: topic.version.load(Ordering::SeqCst), topic }
    }

    /// Returns true if somebody watches a job.
    pub(crate) fn is_watched(&self, job: JobId) -> bool {
        self.count() > 0 && self.shard(job).lock().contains_key(&job)
    }

    /// Returns the jobs that are watched.
    pub(crate) fn watched(&self) -> Vec<JobId> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the number of watches.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// A watch of one job. It ends when it is dropped.
pub(crate) struct Watch {
    watchers: Arc<Watchers>,
    job: JobId,
    topic: Arc<Topic>,
    /// The version that [`Watch::latest`] returned last.
    seen: u64,
}

impl Watch {
    /// Returns once there is something that [`Watch::latest`] has not returned.
    pub(crate) async fn changed(&mut self) {
        loop {
            // Created before the version is read, so that no announcement is missed.
            let changed = self.topic.changed.notified();
            if self.topic.version.load(Ordering::SeqCst) != self.seen {
                return;
            }
            changed.await;
        }
    }

    /// Returns the newest announcement.
    pub(crate) fn latest(&mut self) -> Update {
        // Read first: an announcement in between is returned now and once more.
        self.seen = self.topic.version.load(Ordering::SeqCst);
        self.topic.update.lock().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.count.fetch_sub(1, Ordering::SeqCst);
        let mut topics = self.watchers.shard(self.job).lock();
        if let Entry::Occupied(mut topic) = topics.entry(self.job) {
            topic.get_mut().0 -= 1;
            if topic.get().0 == 0 {
                topic.remove();
            }
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "watch of {}", self.job)
    }
}

impl Jobs {
    /// Returns the newest view of a job as soon as `is_enough` accepts its status, when `time` is
    /// over, when the job is deleted or when the process stops.
    pub(crate) async fn watch_until(
        &self,
        view: JobView,
        watch: &mut Watch,
        time: Duration,
        is_enough: impl Fn(Status) -> bool,
    ) -> JobView {
        let mut view = view;
        let mut timer = self.runtime.env.sleep(time);
        let mut stopping = Box::pin(self.runtime.stopping());
        loop {
            let update = watch.latest();
            let newer = update.view.filter(|newer| newer.job.count() > view.job.count());
            if let Some(newer) = newer {
                view = newer;
            }
            if is_enough(view.status()) || update.is_deleted {
                return view;
            }
            tokio::select! {
                () = watch.changed() => {}
                () = &mut timer => return view,
                () = &mut stopping => return view,
            }
        }
    }
}
