//! Events of all jobs that match a filter, as one stream.
//!
//! Readers with the same filter share a [`Topic`]: one task that reads the changes from the store, in
//! the order of commits, and sends each to all of them. A change in this process or a hint from
//! another one wakes it; with several processes it also looks once a second. A reader that is too slow
//! loses nothing but its place: it reads what it missed from the store and continues.
//!
//! A topic sends single events up to a rate; beyond that, it sends counts by status. It reads a
//! bounded number of rows at a time, so what it costs does not grow with the number of changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{ChangeQuery, JobChange, ListedJob};
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::error::StoreError;
use crate::limits::{EVENT_BACKLOG_MAX, EVENT_BURST_MAX, EVENT_ROWS_MAX};
use crate::requests::{Caller, JobFilter};
use crate::views::Views;

/// Rows that are read at a time.
const READ_BATCH: usize = 1_000;

/// The pause after counts: four a second, and fewer for many readers or topics.
const COUNTS_INTERVAL: Duration = Duration::from_millis(250);

/// How often the store is read if other processes may change it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Topics that read at full speed. More take turns, so that they cost no more together.
const FAST_TOPICS: usize = 16;

/// Readers of a topic that get counts at full speed. More get them less often, so that they cost no more together.
const FAST_READERS: usize = 256;

/// An event of the jobs that match a filter, and its position in the order of commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEvent {
    /// The position. Everything up to it has been sent.
    pub position: u64,
    /// What happened.
    pub kind: ListEventKind,
}

/// What happened to the jobs that match a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEventKind {
    /// The reader has everything up to the position; what follows is sent as it happens.
    Ready,
    /// A job was created or changed.
    Changed(ListedJob),
    /// A job was deleted. Its status and operation are not known any more, so this is sent whatever
    /// the filter says about them.
    Deleted(JobId),
    /// Many jobs changed.
    Counts(EventCounts),
    /// The store no longer has all changes since the reader's position: read the list again.
    Reset,
}

/// How many jobs changed, by their present status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Jobs that were created or changed.
    pub by_status: BTreeMap<Status, u64>,
    /// Jobs that were deleted.
    pub deleted: u64,
    /// True if there were more: not all of them were read.
    pub is_at_least: bool,
}

impl EventCounts {
    fn add(&mut self, change: &JobChange) {
        match &change.listed {
            Some(job) => *self.by_status.entry(job.status).or_default() += 1,
            None => self.deleted += 1,
        }
    }
}

/// The jobs that a stream is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TopicKey {
    /// The owner. `None` for all owners.
    owner: Option<String>,
    filter: JobFilter,
}

/// The topics that have readers.
#[derive(Default)]
pub(crate) struct Topics(Mutex<HashMap<TopicKey, Arc<Topic>>>);

struct Topic {
    key: TopicKey,
    /// Everything up to this position was sent. Locked while something is sent, so that a new reader
    /// knows from where on it receives.
    position: Mutex<u64>,
    events: broadcast::Sender<Arc<ListEvent>>,
}

/// A reader of events.
pub struct Events {
    views: Arc<Views>,
    topic: Arc<Topic>,
    receiver: broadcast::Receiver<Arc<ListEvent>>,
    /// Events that were read from the store.
    read: std::collections::VecDeque<Arc<ListEvent>>,
    /// Everything up to this position was returned.
    position: u64,
    /// The position up to which the store must be read before anything is received.
    missed: Option<u64>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "events after {}", self.position)
    }
}

impl Views {
    /// Follows the jobs that match a filter, from now on or from a position on. `None` if the caller
    /// may not see them.
    pub(crate) async fn events(
        self: &Arc<Self>,
        caller: &Caller,
        filter: &JobFilter,
        after: Option<u64>,
    ) -> Result<Option<Events>, StoreError> {
        if !filter.is_allowed(caller) {
            return Ok(None);
        }
        let owner = filter.owner_for(caller).map(str::to_owned);
        let key = TopicKey { owner, filter: JobFilter { owner: None, ..filter.clone() } };
        let now = self.jobs.store.position().await?;
        let (topic, receiver, start) = self.join_topic(key, now);
        let position = after.unwrap_or(start).min(start);
        let mut events = Events {
            views: Arc::clone(self),
            topic,
            receiver,
            read: Default::default(),
            position,
            missed: None,
        };
        events.read_until(start).await?;
        let ready = ListEvent { position: start, kind: ListEventKind::Ready };
        events.read.push_back(Arc::new(ready));
        Ok(Some(events))
    }

    /// Joins a topic, or starts one at position `now`. Returns the position from which on the
    /// receiver receives.
    fn join_topic(
        self: &Arc<Self>,
        key: TopicKey,
        now: u64,
    ) -> (Arc<Topic>, broadcast::Receiver<Arc<ListEvent>>, u64) {
        let mut topics = self.topics.0.lock();
        if let Some(topic) = topics.get(&key) {
            let position = topic.position.lock();
            return (Arc::clone(topic), topic.events.subscribe(), *position);
        }
        let (events, receiver) = broadcast::channel(EVENT_BACKLOG_MAX);
        let topic = Arc::new(Topic { key: key.clone(), position: Mutex::new(now), events });
        topics.insert(key, Arc::clone(&topic));
        let changed = self.jobs.changes.subscribe();
        let views = Arc::clone(self);
        let own = Arc::clone(&topic);
        self.runtime.spawn(async move { views.run_topic(own, changed).await });
        (topic, receiver, now)
    }

    /// Removes a topic that has no readers. Returns true if it was removed.
    fn leave_topic(&self, topic: &Topic) -> bool {
        let mut topics = self.topics.0.lock();
        let is_unread = topic.events.receiver_count() == 0;
        if is_unread {
            topics.remove(&topic.key);
        }
        is_unread
    }

    async fn run_topic(
        self: Arc<Self>,
        topic: Arc<Topic>,
        mut changed: tokio::sync::watch::Receiver<()>,
    ) {
        let mut rate = Rate::new(self.runtime.env.monotonic());
        while !self.leave_topic(&topic) {
            if self.runtime.is_stopping() {
                self.topics.0.lock().remove(&topic.key);
                break;
            }
            changed.mark_unchanged();
            match self.send_changes(&topic, &mut rate).await {
                Ok(Sent::Counts) => {
                    let topics = self.topics.0.lock().len();
                    let readers = topic.events.receiver_count();
                    self.runtime.env.sleep(counts_pause(topics, readers)).await;
                    continue;
                }
                Ok(Sent::Few) => {}
                Err(error) => tracing::warn!(%error, "cannot read the changes of jobs"),
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = self.runtime.env.sleep(POLL_INTERVAL) => {}
                () = self.runtime.stopping() => {}
            }
        }
        self.jobs.changes.unsubscribe();
    }

    /// Sends what has changed.
    async fn send_changes(&self, topic: &Topic, rate: &mut Rate) -> Result<Sent, StoreError> {
        let after = *topic.position.lock();
        let topics = self.topics.0.lock().len().max(1);
        let rows = (2 * EVENT_ROWS_MAX / topics).clamp(READ_BATCH, EVENT_ROWS_MAX);
        let newest = self.jobs.store.position().await?;
        let read = self.read_changes(&topic.key, after, newest, rows).await?;
        let now = self.runtime.env.monotonic();
        let is_single = !read.is_cut && rate.take(read.changes.len(), now);
        let sent = if is_single { Sent::Few } else { Sent::Counts };
        let events = read.into_events(is_single);
        let mut position = topic.position.lock();
        for event in events {
            // It fails if there is no reader, and then nobody misses it.
            let _ = topic.events.send(Arc::new(event));
        }
        *position = newest.max(after);
        Ok(sent)
    }

    /// Reads changes that match after a position and up to another one, at most so many rows.
    async fn read_changes(
        &self,
        key: &TopicKey,
        after: u64,
        until: u64,
        rows: usize,
    ) -> Result<Read, StoreError> {
        let mut read = Read { changes: Vec::new(), until, is_cut: false, is_incomplete: false };
        let mut query = ChangeQuery {
            owner: key.owner.clone(),
            parent: key.filter.parent,
            after,
            limit: READ_BATCH,
        };
        for _ in 0..rows.div_ceil(READ_BATCH) {
            if query.after >= until {
                return Ok(read);
            }
            let page = self.jobs.store.changes(&query).await?;
            read.is_incomplete |= page.is_incomplete && query.after == after;
            for change in page.changes.into_iter().filter(|change| change.position <= until) {
                if self.matches_change(&key.filter, &change).await? {
                    read.changes.push(change);
                }
            }
            query.after = page.until;
            tokio::task::yield_now().await;
        }
        read.is_cut = query.after < until;
        Ok(read)
    }

    async fn matches_change(
        &self,
        filter: &JobFilter,
        change: &JobChange,
    ) -> Result<bool, StoreError> {
        let Some(job) = &change.listed else { return Ok(true) };
        if let Some(tag) = &filter.tag
            && !self.carries_tag(job.id, tag).await?
        {
            return Ok(false);
        }
        self.matches(filter, job).await
    }
}

impl Events {
    /// Returns the next event. `None` if the venue stops. It may be dropped halfway: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Arc<ListEvent>>, StoreError> {
        loop {
            if let Some(until) = self.missed {
                self.read_until(until).await?;
                self.missed = None;
            }
            if let Some(event) = self.read.pop_front() {
                self.position = self.position.max(event.position);
                return Ok(Some(event));
            }
            let received = tokio::select! {
                received = self.receiver.recv() => received,
                () = self.views.runtime.stopping() => return Ok(None),
            };
            match received {
                Ok(event) => {
                    self.position = event.position;
                    return Ok(Some(event));
                }
                Err(RecvError::Lagged(_)) => {
                    let position = self.topic.position.lock();
                    self.receiver = self.topic.events.subscribe();
                    self.missed = Some(*position);
                }
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// Reads from the store what this reader has not received, up to a position.
    async fn read_until(&mut self, until: u64) -> Result<(), StoreError> {
        if self.position >= until {
            return Ok(());
        }
        let (key, after) = (&self.topic.key, self.position);
        let read = self.views.read_changes(key, after, until, EVENT_ROWS_MAX).await?;
        let is_single = !read.is_cut && read.changes.len() <= EVENT_BURST_MAX as usize;
        self.read.extend(read.into_events(is_single).into_iter().map(Arc::new));
        Ok(())
    }
}

/// Returns the pause after counts of a topic.
fn counts_pause(topics: usize, readers: usize) -> Duration {
    let slower = (topics / FAST_TOPICS).max(readers / FAST_READERS);
    COUNTS_INTERVAL * u32::try_from(1 + slower).unwrap_or(1)
}

/// What was sent.
enum Sent {
    /// Nothing, or single events.
    Few,
    /// Counts.
    Counts,
}

/// Changes that match.
struct Read {
    changes: Vec<JobChange>,
    /// The position up to which the store was read.
    until: u64,
    /// True if there are more changes than were read.
    is_cut: bool,
    /// True if the store no longer has all changes.
    is_incomplete: bool,
}

impl Read {
    fn into_events(self, is_single: bool) -> Vec<ListEvent> {
        let Read { changes, until, is_cut, is_incomplete } = self;
        if is_incomplete {
            return vec![ListEvent { position: until, kind: ListEventKind::Reset }];
        }
        if is_single {
            let event = |change: JobChange| ListEvent {
                position: change.position,
                kind: match change.listed {
                    Some(job) => ListEventKind::Changed(job),
                    None => ListEventKind::Deleted(change.job),
                },
            };
            return changes.into_iter().map(event).collect();
        }
        let mut counts = EventCounts { is_at_least: is_cut, ..EventCounts::default() };
        changes.iter().for_each(|change| counts.add(change));
        vec![ListEvent { position: until, kind: ListEventKind::Counts(counts) }]
    }
}

/// Limits single events: a token bucket.
struct Rate {
    tokens: f64,
    at: Duration,
}

impl Rate {
    fn new(now: Duration) -> Self {
        Rate { tokens: f64::from(EVENT_BURST_MAX), at: now }
    }

    /// Returns true if so many events may be sent one by one now.
    fn take(&mut self, events: usize, now: Duration) -> bool {
        let full = f64::from(EVENT_BURST_MAX);
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * full).min(full);
        self.at = now;
        let events = events as f64;
        let may = events <= self.tokens;
        if may {
            self.tokens -= events;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_topics_and_readers_get_counts_less_often() {
        let pause = |topics, readers| counts_pause(topics, readers).as_millis();
        assert_eq!(pause(1, 1), 250);
        assert_eq!(pause(15, 255), 250);
        assert_eq!(pause(16, 1), 500);
        assert_eq!(pause(1, 1_000), 1_000);
        assert_eq!(pause(160, 256), 2_750);
    }

    #[test]
    fn no_second_has_more_than_twenty_frames() {
        let mut rate = Rate::new(Duration::ZERO);
        let mut sent: Vec<u64> = Vec::new();
        let mut now = 0;
        while now < 5_000 {
            // One change every millisecond: single events while they last, then counts.
            let is_single = rate.take(1, Duration::from_millis(now));
            sent.push(now);
            now += if is_single { 1 } else { 250 };
        }
        for start in 0..4_000 {
            let frames = sent.iter().filter(|at| (start..start + 1_000).contains(*at)).count();
            assert!(frames <= 20, "{frames} frames from {start} ms on");
        }
        assert!(sent.len() > 20);
    }
}
