//! Who wants to know what happens to which job.
//!
//! A change of a job is announced after it is durable, to those who watch it in this process. The
//! announcement carries the job as it then was; a watcher that comes late to it finds the newest
//! one and misses none that matters, because the chain has them all. Nobody who watches can hold
//! up whoever announces.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_job::JobId;
use catena_value::Value;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::request::JobView;

/// Parts of the table of topics, so that announcements of different jobs rarely meet.
const SHARDS: usize = 32;

/// The newest that is known of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct News {
    /// The job as of its newest record that was announced.
    pub(crate) view: Option<JobView>,
    /// The newest progress, and how often there was some.
    pub(crate) progress: Option<(u64, Value)>,
    /// Whether the job was deleted.
    pub(crate) is_gone: bool,
}

type Shard = Mutex<HashMap<JobId, watch::Sender<News>>>;

/// The table of topics.
pub(crate) struct Hub {
    shards: [Shard; SHARDS],
    watchers: AtomicU64,
}

impl Default for Hub {
    fn default() -> Self {
        Hub { shards: std::array::from_fn(|_| Shard::default()), watchers: AtomicU64::new(0) }
    }
}

impl Hub {
    fn shard(&self, job: JobId) -> &Shard {
        &self.shards[usize::from(job.as_bytes()[15]) % SHARDS]
    }

    /// Announces a job as it is after a commit.
    pub(crate) fn announce(&self, view: &JobView) {
        self.tell(view.job.id(), |news| match &news.view {
            // Announcements of two commits may overtake each other.
            Some(known) if known.job.count() > view.job.count() => false,
            _ => {
                news.view = Some(view.clone());
                true
            }
        });
    }

    /// Announces progress.
    pub(crate) fn announce_progress(&self, job: JobId, progress: &Value) {
        self.tell(job, |news| {
            let number = news.progress.as_ref().map_or(0, |(number, _)| *number);
            news.progress = Some((number + 1, progress.clone()));
            true
        });
    }

    /// Announces that something beside the chain changed.
    pub(crate) fn announce_beside(&self, job: JobId) {
        self.tell(job, |_| true);
    }

    /// Announces that a job was deleted.
    pub(crate) fn announce_gone(&self, job: JobId) {
        self.tell(job, |news| {
            news.is_gone = true;
            true
        });
    }

    fn tell(&self, job: JobId, change: impl FnOnce(&mut News) -> bool) {
        if self.watchers() == 0 {
            return;
        }
        if let Some(topic) = self.shard(job).lock().get(&job) {
            topic.send_if_modified(change);
        }
    }

    /// Watches a job from now on.
    pub(crate) fn watch(self: &Arc<Self>, job: JobId) -> Watch {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut topics = self.shard(job).lock();
        let topic = topics.entry(job).or_insert_with(|| watch::Sender::new(News::default()));
        Watch { hub: Arc::clone(self), job, news: topic.subscribe() }
    }

    /// How many watch now.
    pub(crate) fn watchers(&self) -> u64 {
        self.watchers.load(Ordering::SeqCst)
    }
}

/// Somebody who watches a job.
pub(crate) struct Watch {
    hub: Arc<Hub>,
    job: JobId,
    news: watch::Receiver<News>,
}

impl Watch {
    /// Returns when there is something that [`Watch::news`] has not given.
    pub(crate) async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            // The sender lives as long as anybody watches.
            std::future::pending::<()>().await;
        }
    }

    /// The newest.
    pub(crate) fn news(&mut self) -> News {
        self.news.borrow_and_update().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.watchers.fetch_sub(1, Ordering::SeqCst);
        let mut topics = self.hub.shard(self.job).lock();
        if topics.get(&self.job).is_some_and(|topic| topic.receiver_count() <= 1) {
            topics.remove(&self.job);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "watch of {}", self.job)
    }
}
