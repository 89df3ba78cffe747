//! Starts the runs of schedules that are due.
//!
//! A run is started in three commits. The first marks the schedule, which counts a start; of two
//! processes that see the same schedule, the store accepts the mark of one. The second creates the
//! job, whose ID follows from the schedule and the time for which the run is scheduled, so that it
//! is created once, however often a process dies in between. The third removes the mark and sets
//! the next time. A mark that is still there when it ends belongs to a process that died: the next
//! process finds the job, or creates it.
//!
//! Each schedule is started by a task of its own, and each owner has a bounded number of these, so
//! that no owner waits for another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::{Effect, Effects, RootSpace};
use parking_lot::Mutex;

use crate::commands::Commands;
use crate::commands::schedule::{Decision, run_request};
use crate::error::{InvokeError, ResolveError, StoreError};
use crate::jobs::{is_live, unless_overtaken};
use crate::limits::{
    PAGE_MAX, SCHEDULE_ABORTS_ALONE, SCHEDULE_ABORTS_MAX, SCHEDULE_STARTS_MAX, SUSPECT_ALONE_TIME,
    SUSPECT_TIME,
};
use crate::requests::{
    Caller, DUE, Entry, IDLE, Invoke, Overlap, ScheduleState, StoredEntry, list_key, name_after,
    own_key, time_of_name,
};
use crate::runtime::Alone;

/// The longest time between two reads of the list: another process may have changed it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a mark is valid, in ms: much longer than three commits take, and not much longer than
/// a restart.
const MARK_MS: i64 = 10_000;

/// The schedules that this process is starting, by owner.
#[derive(Default)]
pub(crate) struct ScheduleStarts {
    owners: Mutex<HashMap<String, OwnerStarts>>,
}

#[derive(Default)]
struct OwnerStarts {
    handles: HashSet<String>,
    /// True if a schedule was left for later because there were too many.
    has_waiting: bool,
}

/// A schedule that this process is starting.
struct StartGuard {
    commands: Arc<Commands>,
    owner: String,
    handle: String,
}

/// What remains to be done after a start, while other schedules of the owner can start.
enum FollowUp {
    Nothing,
    /// The job runs: the process is to survive its start.
    ConfirmSurvival(Entry, JobId),
    /// The run waits for the end of the previous one.
    AwaitPreviousRun(Entry),
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        let mut owners = self.commands.schedule_starts.owners.lock();
        let Some(starts) = owners.get_mut(&self.owner) else { return };
        starts.handles.remove(&self.handle);
        if std::mem::take(&mut starts.has_waiting) {
            self.commands.jobs.schedule_changed.notify_one();
        }
        if starts.handles.is_empty() {
            owners.remove(&self.owner);
        }
    }
}

impl Commands {
    /// Starts everything that is due. Returns the time until the list has to be read again.
    pub(crate) async fn start_due_schedules(self: &Arc<Self>) -> Result<Duration, StoreError> {
        let store = &self.jobs.store;
        let now = self.runtime.now();
        let mut after: Option<String> = None;
        loop {
            let page = store.roots(RootSpace::Schedule, DUE, after.as_deref(), PAGE_MAX).await?;
            let due: Vec<&String> =
                page.iter().take_while(|name| time_of_name(name) <= now).collect();
            for name in &due {
                self.start_due_schedule(name, now).await?;
            }
            if due.len() < page.len() || page.is_empty() {
                break;
            }
            after = page.into_iter().next_back();
        }
        let later = name_after(self.runtime.now());
        let next = store.roots(RootSpace::Schedule, DUE, Some(&later), 1).await?;
        let Some(next) = next.first() else { return Ok(POLL_INTERVAL) };
        let wait = time_of_name(next).saturating_sub(self.runtime.now());
        Ok(Duration::from_millis(u64::try_from(wait).unwrap_or(0)).min(POLL_INTERVAL))
    }

    /// Starts the run of one schedule in a task, unless one is starting it.
    async fn start_due_schedule(self: &Arc<Self>, name: &str, now: i64) -> Result<(), StoreError> {
        let key = list_key(DUE, name);
        let Some(root) = self.jobs.store.root(&key).await? else { return Ok(()) };
        let loaded = StoredEntry::load(&root.value, root.id, &*self.jobs.store.cells());
        let Ok(Some(stored)) = loaded else {
            // It is kept for the version that can read it, where it delays nothing.
            tracing::warn!(name, "setting aside a schedule that cannot be read");
            let handle = name.split_once('-').map_or(name, |(_, handle)| handle);
            let expected = Some(root.id);
            let moved = vec![
                Effect::SetRoot { key, expected, value: None },
                Effect::SetRoot {
                    key: list_key(IDLE, handle),
                    expected: None,
                    value: Some(root.value),
                },
            ];
            unless_overtaken(self.jobs.store.commit(Effects(moved)).await)?;
            return Ok(());
        };
        if stored.entry.listed_at() > now {
            return Ok(());
        }
        let Some(guard) = self.try_begin(&stored.entry) else { return Ok(()) };
        let commands = Arc::clone(self);
        self.runtime.spawn(async move {
            let handle = stored.entry.scheduled.handle.clone();
            let started = commands.start_scheduled_run(stored).await;
            drop(guard);
            let done = match started {
                Ok(FollowUp::Nothing) => Ok(()),
                Ok(FollowUp::ConfirmSurvival(marked, job)) => {
                    commands.confirm_survival(&marked, job).await
                }
                Ok(FollowUp::AwaitPreviousRun(waiting)) => {
                    commands.wake_after_previous_run(&waiting).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::warn!(handle, %error, "a scheduled run is delayed");
            }
        });
        Ok(())
    }

    /// Returns `None` if this process is starting the schedule, or too many of the same owner.
    fn try_begin(self: &Arc<Self>, entry: &Entry) -> Option<StartGuard> {
        let owner = entry.scheduled.owner.clone();
        let handle = entry.scheduled.handle.clone();
        let mut owners = self.schedule_starts.owners.lock();
        let starts = owners.entry(owner.clone()).or_default();
        if starts.handles.contains(&handle) {
            return None;
        }
        if starts.handles.len() >= SCHEDULE_STARTS_MAX {
            starts.has_waiting = true;
            return None;
        }
        starts.handles.insert(handle.clone());
        drop(owners);
        Some(StartGuard { commands: Arc::clone(self), owner, handle })
    }

    async fn start_scheduled_run(
        self: &Arc<Self>,
        stored: StoredEntry,
    ) -> Result<FollowUp, StoreError> {
        let entry = &stored.entry;
        if entry.starts >= SCHEDULE_ABORTS_MAX {
            self.set_aside_after_aborts(&stored).await?;
            return Ok(FollowUp::Nothing);
        }
        let was_marked = entry.marked_until.is_some();
        if !was_marked && self.overlaps(entry).await? {
            return self.apply_overlap(&stored).await;
        }
        // Nothing else starts while a schedule is started that earlier processes did not survive.
        let alone = if entry.starts >= SCHEDULE_ABORTS_ALONE {
            self.runtime.gate.start_alone(entry.run_id()).await
        } else {
            None
        };
        let now = self.runtime.now();
        let process = self.jobs.process.epoch.cast_signed();
        let marked = entry.marked(process, now, now.saturating_add(MARK_MS));
        let is_counted = marked.starts > entry.starts;
        if !self.replace_entry(&stored, Some(&marked)).await? {
            // Another process was first, or the schedule was changed.
            return Ok(FollowUp::Nothing);
        }
        let id = marked.run_id();
        if was_marked && self.jobs.current(id).await?.is_some() {
            // The process that created the job died before it removed its mark.
            self.finish_start(&marked, id, marked.starts - 1).await?;
            return Ok(FollowUp::Nothing);
        }
        let request = Invoke { id: Some(id), ..run_request(&marked) };
        match self.invoke(request).await {
            Ok(invoked) => {
                tracing::info!(job = %id, handle = marked.scheduled.handle, "started a scheduled run");
                let has_ended = invoked.view.status().is_terminal();
                let unsurvived = if has_ended { 0 } else { marked.starts };
                self.finish_start(&marked, id, unsurvived).await?;
                if !has_ended && let Some(alone) = alone {
                    self.keep_alone(marked.caller(), id, alone);
                }
                // Another task waits for what was counted before.
                if !has_ended && is_counted {
                    return Ok(FollowUp::ConfirmSurvival(marked, id));
                }
            }
            Err(InvokeError::Store(StoreError::Contended))
                if self.jobs.current(id).await?.is_some() =>
            {
                self.finish_start(&marked, id, marked.starts - 1).await?;
            }
            Err(error) => self.handle_refusal(&marked, error).await?,
        }
        Ok(FollowUp::Nothing)
    }

    /// Lets nothing else start until a job has ended or has run for long enough.
    fn keep_alone(self: &Arc<Self>, caller: Caller, job: JobId, alone: Alone) {
        let commands = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::select! {
                _ = commands.views.wait(&caller, job, SUSPECT_ALONE_TIME) => {}
                () = commands.runtime.stopping() => {}
            }
            drop(alone);
        });
    }

    /// Removes the mark and sets the next time. A schedule that does not repeat is removed.
    async fn finish_start(
        &self,
        marked: &Entry,
        job: JobId,
        unsurvived: i64,
    ) -> Result<(), StoreError> {
        let now = self.runtime.now();
        let random = self.random();
        self.change_marked(marked, |current| current.with_run(job, unsurvived, now, random).into())
            .await
    }

    /// Resets the count of starts once the process has survived this one.
    async fn confirm_survival(&self, marked: &Entry, job: JobId) -> Result<(), StoreError> {
        if marked.scheduled.cron.is_none() {
            return Ok(());
        }
        // The end of the job, the time or a planned stop: in each case the process is still there.
        let caller = marked.caller();
        tokio::select! {
            _ = self.views.wait(&caller, job, SUSPECT_TIME) => {}
            () = self.runtime.stopping() => {}
        }
        let decide = |entry: &Entry| match entry.starts {
            0 => Decision::Keep,
            _ => Decision::store(Entry { starts: 0, ..entry.clone() }),
        };
        let key = own_key(&marked.scheduled.owner, &marked.scheduled.handle);
        self.change_entry(&key, decide).await?;
        Ok(())
    }

    /// Puts a run off, or reports why it cannot be created.
    async fn handle_refusal(&self, marked: &Entry, error: InvokeError) -> Result<(), StoreError> {
        let now = self.runtime.now();
        let random = self.random();
        let reason = error.to_string();
        let at_least_ms = match &error {
            InvokeError::RateLimited(limited) => {
                Some(i64::try_from(limited.after.as_millis()).unwrap_or(i64::MAX))
            }
            InvokeError::Store(StoreError::Damaged(_) | StoreError::TooLarge(_)) => None,
            InvokeError::TooManyJobs { .. }
            | InvokeError::VenueFull { .. }
            | InvokeError::Key(_)
            | InvokeError::Store(_)
            | InvokeError::Resolve(ResolveError::Store(_))
            | InvokeError::TooMuchMemory(_)
            | InvokeError::ShuttingDown => Some(0),
            InvokeError::Resolve(_)
            | InvokeError::Invalid(_)
            | InvokeError::UnknownMember(_)
            | InvokeError::Forbidden(_) => None,
        };
        // What the owner can do nothing about is only logged.
        let is_quota =
            matches!(error, InvokeError::RateLimited(_) | InvokeError::TooManyJobs { .. });
        let shown = is_quota.then(|| reason.clone());
        let handle = &marked.scheduled.handle;
        match at_least_ms {
            Some(_) => tracing::info!(handle, reason, "a scheduled run is put off"),
            None => tracing::warn!(handle, reason, "a scheduled run could not be created"),
        }
        self.change_marked(marked, |current| {
            Decision::store(match at_least_ms {
                Some(ms) => current.delayed(now, ms, shown.clone()),
                None => current.failed(reason.clone(), now, random),
            })
        })
        .await
    }

    /// Changes a schedule that this process has marked, unless the mark is gone.
    async fn change_marked(
        &self,
        marked: &Entry,
        decide: impl Fn(&Entry) -> Decision,
    ) -> Result<(), StoreError> {
        let key = own_key(&marked.scheduled.owner, &marked.scheduled.handle);
        let is_ours = |current: &Entry| {
            current.marked_until == marked.marked_until && current.due == marked.due
        };
        let decide = |current: &Entry| {
            if is_ours(current) { decide(current) } else { Decision::Keep }
        };
        self.change_entry(&key, decide).await?;
        Ok(())
    }

    /// Sets a schedule aside whose last starts no process has survived.
    async fn set_aside_after_aborts(&self, stored: &StoredEntry) -> Result<(), StoreError> {
        let entry = &stored.entry;
        let now = self.runtime.now();
        let known_at = entry.started_at.saturating_add(MARK_MS);
        if now < known_at {
            // A process that started it may still be there.
            let mut later = entry.clone();
            later.retry_at = Some(known_at);
            self.replace_entry(stored, Some(&later)).await?;
            return Ok(());
        }
        let text = format!(
            "the venue stopped at {} consecutive starts of this schedule; resume it to try again",
            entry.starts
        );
        tracing::warn!(handle = entry.scheduled.handle, text, "set a schedule aside");
        self.replace_entry(stored, Some(&entry.set_aside(text))).await?;
        Ok(())
    }

    /// Returns true if the previous run has not ended and the policy does not allow both.
    async fn overlaps(&self, entry: &Entry) -> Result<bool, StoreError> {
        let (Overlap::Skip | Overlap::Queue, Some(job)) =
            (entry.scheduled.overlap, entry.scheduled.last_job)
        else {
            return Ok(false);
        };
        let current = self.jobs.current(job).await?;
        Ok(current.is_some_and(|current| is_live(&current.job)))
    }

    async fn apply_overlap(&self, stored: &StoredEntry) -> Result<FollowUp, StoreError> {
        let entry = &stored.entry;
        let now = self.runtime.now();
        if entry.scheduled.overlap == Overlap::Skip {
            let later = entry.skipped(now, self.random());
            self.replace_entry(stored, later.as_ref()).await?;
            return Ok(FollowUp::Nothing);
        }
        let text = "waits for the end of the previous run".to_owned();
        let waiting = entry.delayed(now, 0, Some(text));
        let is_stored = self.replace_entry(stored, Some(&waiting)).await?;
        Ok(if is_stored { FollowUp::AwaitPreviousRun(waiting) } else { FollowUp::Nothing })
    }

    /// Waits for the previous run and makes the schedule due. If this process stops first, the
    /// schedule is read again at its next try.
    async fn wake_after_previous_run(&self, waiting: &Entry) -> Result<(), StoreError> {
        let Some(job) = waiting.scheduled.last_job else { return Ok(()) };
        let now = self.runtime.now();
        let time = waiting.listed_at().saturating_sub(now);
        let time = Duration::from_millis(u64::try_from(time).unwrap_or(0));
        let caller = waiting.caller();
        let ended = tokio::select! {
            ended = self.views.wait(&caller, job, time) => ended,
            () = self.runtime.stopping() => return Ok(()),
        };
        if ended.is_ok_and(|view| is_live(&view.job)) {
            return Ok(());
        }
        let now = self.runtime.now();
        let key = own_key(&waiting.scheduled.owner, &waiting.scheduled.handle);
        let decide = |entry: &Entry| {
            if entry.retry_at != waiting.retry_at || entry.scheduled.state != ScheduleState::Active
            {
                return Decision::Keep;
            }
            Decision::store(Entry { retry_at: Some(now), ..entry.clone() })
        };
        self.change_entry(&key, decide).await?;
        self.jobs.schedule_changed.notify_one();
        Ok(())
    }

    /// Replaces a schedule. Returns false if it has changed.
    async fn replace_entry(
        &self,
        stored: &StoredEntry,
        with: Option<&Entry>,
    ) -> Result<bool, StoreError> {
        let committed = self.jobs.store.commit(Effects(stored.replace(with))).await;
        Ok(unless_overtaken(committed)?.is_some())
    }
}
