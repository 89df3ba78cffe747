//! Sends queued jobs to the URLs of their operations, as many at a time as the limits allow.
//!
//! Only queues that may have something to send are read: those on which a job was queued, those on which
//! one has ended, and those whose next job has become ready. Each owner has a bound of its own, so that a
//! receiver that is slow to answer does not delay the jobs of others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::commands::Commands;
use crate::error::StoreError;
use crate::execution::workers::claims::Picked;
use crate::limits::{PUSHES_MAX, PUSHES_PER_OWNER_MAX};

/// How often the queues are read without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How long to wait after a failure, in ms.
const RETRY_DELAY_MS: i64 = 1_000;

/// Sends queued jobs, repeatedly.
pub(super) async fn push_jobs(commands: Arc<Commands>) {
    let pushes = Arc::clone(&commands.execution.workers.queues.pushes);
    let runtime = Arc::clone(&commands.runtime);
    let mut pusher = Pusher::new(commands);
    loop {
        let wait = pusher.send_ready(pushes.take()).await;
        tokio::select! {
            () = pushes.woken.notified() => {}
            () = runtime.env.sleep(wait) => {}
        }
    }
}

/// What is being sent, and which queues have more.
struct Pusher {
    commands: Arc<Commands>,
    all: Arc<Semaphore>,
    owners: HashMap<String, Arc<Semaphore>>,
    /// Queues that have more jobs than could be sent.
    stalled: HashSet<Arc<str>>,
    /// Queues whose next job becomes ready at a time (Unix time in ms).
    deferred: BTreeSet<(i64, Arc<str>)>,
}

/// What is left on a queue.
enum Left {
    /// Nothing that is ready.
    Nothing,
    /// As many jobs as allowed are being sent.
    More,
}

impl Pusher {
    fn new(commands: Arc<Commands>) -> Self {
        Pusher {
            commands,
            all: Arc::new(Semaphore::new(PUSHES_MAX)),
            owners: HashMap::new(),
            stalled: HashSet::new(),
            deferred: BTreeSet::new(),
        }
    }

    /// Starts to send what is ready on these queues and on those that were left. Returns how long there
    /// is nothing more to do unless something happens.
    async fn send_ready(&mut self, mut queues: HashSet<Arc<str>>) -> Duration {
        let now = self.commands.runtime.now();
        queues.extend(self.stalled.drain());
        while let Some((at, queue)) = self.deferred.pop_first() {
            if at > now {
                self.deferred.insert((at, queue));
                break;
            }
            queues.insert(queue);
        }
        for queue in queues {
            match self.send_from(&queue).await {
                Ok(Left::More) => {
                    self.stalled.insert(queue);
                }
                Ok(Left::Nothing) => {
                    let queues = &self.commands.execution.workers.queues;
                    let next = queues.get(&queue).next_ready();
                    self.deferred.extend(next.map(|at| (at, queue)));
                }
                Err(error) => {
                    tracing::error!(%error, "cannot read a queue of jobs to send");
                    self.deferred.insert((now + RETRY_DELAY_MS, queue));
                }
            }
        }
        self.owners.retain(|_, bound| bound.available_permits() < PUSHES_PER_OWNER_MAX);
        let next = self.deferred.first().map(|(at, _)| at.saturating_sub(now).max(1));
        let next = next.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        next.map_or(POLL_INTERVAL, |time| time.min(POLL_INTERVAL))
    }

    /// Starts to send the ready jobs of one queue.
    async fn send_from(&mut self, name: &str) -> Result<Left, StoreError> {
        let execution = Arc::clone(&self.commands.execution);
        let owner = name.rsplit_once('/').map_or("", |(owner, _)| owner);
        let bound = self.owners.entry(owner.to_owned());
        let bound = bound.or_insert_with(|| Arc::new(Semaphore::new(PUSHES_PER_OWNER_MAX)));
        let bound = Arc::clone(bound);
        let queue = execution.workers.queues.get(name);
        loop {
            let room = bound.available_permits().min(self.all.available_permits());
            if room == 0 {
                return Ok(Left::More);
            }
            let picked = execution.pick_jobs(&queue, room, None).await?;
            if picked.is_empty() {
                return Ok(Left::Nothing);
            }
            for picked in picked {
                // Permits are acquired by this task alone, so there is one for each of them.
                let permits =
                    [&bound, &self.all].map(|bound| Arc::clone(bound).try_acquire_owned());
                let permits = permits.into_iter().flatten().collect();
                self.send(picked, permits);
            }
        }
    }

    /// Sends a job on a task of its own.
    fn send(&self, picked: Picked, permits: Vec<OwnedSemaphorePermit>) {
        let commands = Arc::clone(&self.commands);
        let pushes = Arc::clone(&self.commands.execution.workers.queues.pushes);
        self.commands.runtime.spawn(async move {
            commands.push_job(picked).await;
            drop(permits);
            pushes.woken.notify_one();
        });
    }
}
