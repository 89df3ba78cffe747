//! Schedules: operations that are invoked later, once or repeatedly.
//!
//! A schedule is durable and holds the authority of its creator. Every change names the stored
//! schedule that it was decided on, so that it does not matter which process makes it.
//! `commands/due_schedules.rs` starts the runs.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::{Effects, RootKey, RootSpace};

use crate::commands::Commands;
use crate::error::{InvokeError, StoreError};
use crate::jobs::{redact, unless_overtaken};
use crate::limits::{
    CONTENTION_TRIES_MAX, PAGE_MAX, SCHEDULE_JITTER_MAX_MS, SCHEDULES_LISTED_MAX, SCHEDULES_MAX,
};
use crate::requests::{
    Caller, DUE, Entry, IDLE, Invoke, NewSchedule, Role, Scheduled, StoredEntry, list_key, own_key,
    owner_list,
};

/// The tag of every job that a schedule started. A second tag names the schedule: with it, its runs
/// can be listed, and a run leads to its schedule.
const TAG: &str = "scheduled";
const HANDLE_TAG_PREFIX: &str = "schedule:";

/// What becomes of a schedule.
pub(super) enum Decision {
    /// It stays as it is.
    Keep,
    /// It is replaced.
    Store(Box<Entry>),
    /// It is removed.
    Remove,
}

impl Decision {
    /// Replaces the schedule.
    pub(super) fn store(entry: Entry) -> Self {
        Decision::Store(Box::new(entry))
    }
}

impl From<Option<Entry>> for Decision {
    fn from(entry: Option<Entry>) -> Self {
        entry.map_or(Decision::Remove, Decision::store)
    }
}

impl Commands {
    /// Schedules an operation on the caller's authority.
    pub(crate) async fn schedule(
        &self,
        caller: &Caller,
        request: NewSchedule,
    ) -> Result<Scheduled, InvokeError> {
        let resolved = self.operations.resolve(caller, &request.operation).await?;
        let NewSchedule { operation: reference, input, .. } = &request;
        let permission = self.operations.authorise(caller, &resolved, reference, input).await?;
        permission.map_err(InvokeError::Forbidden)?;
        let refusal = self.operations.refusal(&caller.did, &resolved, &request.input).await?;
        if let Some(refusal) = refusal {
            return Err(InvokeError::Invalid(refusal));
        }
        if !redact(&request.input, resolved.secrets(), "").paths.is_empty() {
            let text = "an input with secret fields cannot be scheduled".to_owned();
            return Err(InvokeError::Invalid(text));
        }
        if !(0..=SCHEDULE_JITTER_MAX_MS).contains(&request.jitter_ms) {
            let text = format!("`jitterMs` must be from 0 to {SCHEDULE_JITTER_MAX_MS}");
            return Err(InvokeError::Invalid(text));
        }
        if self.handles_of(&caller.did).await?.len() >= SCHEDULES_MAX {
            let text = format!("you have {SCHEDULES_MAX} schedules, which is the maximum");
            return Err(InvokeError::Invalid(text));
        }
        let handle = self.runtime.new_id().to_hex();
        let entry = Entry::new(handle, caller, request, self.runtime.now(), self.random());
        let entry = entry.map_err(InvokeError::Invalid)?;
        let stored = self.jobs.store.commit(Effects(entry.create())).await;
        stored.map_err(StoreError::from)?;
        self.jobs.schedule_changed.notify_one();
        Ok(entry.scheduled)
    }

    /// Removes a schedule. Returns false if the caller has none with this handle.
    pub(crate) async fn unschedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<bool, InvokeError> {
        Ok(self.change_schedule(caller, handle, |_| Decision::Remove).await?.is_some())
    }

    /// Pauses a schedule: none of its runs starts until it is resumed. Returns `None` if the caller
    /// has none with this handle.
    pub(crate) async fn pause_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<Scheduled>, InvokeError> {
        let decide = |entry: &Entry| Decision::store(entry.paused());
        Ok(self.change_schedule(caller, handle, decide).await?)
    }

    /// Resumes a schedule that is paused or was set aside. Returns `None` if the caller has none
    /// with this handle.
    pub(crate) async fn resume_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<Scheduled>, InvokeError> {
        let now = self.runtime.now();
        let random = self.random();
        let decide = |entry: &Entry| match entry.scheduled.state {
            crate::requests::ScheduleState::Active => Decision::Keep,
            _ => Decision::store(entry.resumed(now, random)),
        };
        let changed = self.change_schedule(caller, handle, decide).await?;
        self.jobs.schedule_changed.notify_one();
        Ok(changed)
    }

    /// Returns schedules, ordered by time: those of the caller, those of another owner or, for the
    /// owner `*`, all. Without the role of an admin, other owners have none.
    pub(crate) async fn scheduled(
        &self,
        caller: &Caller,
        owner: Option<&str>,
    ) -> Result<Vec<Scheduled>, InvokeError> {
        let owner = owner.unwrap_or(&caller.did);
        if !caller.may_touch(owner) {
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        if owner == "*" {
            for list in [DUE, IDLE] {
                let names = self.names(list, SCHEDULES_LISTED_MAX).await?;
                keys.extend(names.iter().map(|name| list_key(list, name)));
            }
        } else {
            let handles = self.handles_of(owner).await?;
            keys.extend(handles.iter().map(|handle| own_key(owner, handle)));
        }
        let mut all = Vec::new();
        for key in keys {
            let stored = self.stored_schedule(&key).await?;
            all.extend(stored.map(|stored| stored.entry.scheduled));
        }
        all.sort_by_key(|scheduled| scheduled.time);
        Ok(all)
    }

    /// Starts a run of a schedule now, in addition to those at its times. Returns its job, or `None`
    /// if the caller has no schedule with this handle.
    pub(crate) async fn trigger(
        self: &Arc<Self>,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<JobId>, InvokeError> {
        let Some(key) = self.find_schedule(caller, handle).await? else { return Ok(None) };
        let Some(stored) = self.stored_schedule(&key).await? else { return Ok(None) };
        let invoked = self.invoke(run_request(&stored.entry)).await?;
        Ok(Some(invoked.view.job.id()))
    }

    /// Reads a schedule. `None` if there is none, or if it cannot be read by this version.
    pub(super) async fn stored_schedule(
        &self,
        key: &RootKey,
    ) -> Result<Option<StoredEntry>, StoreError> {
        let Some(root) = self.jobs.store.root(key).await? else { return Ok(None) };
        let loaded = StoredEntry::load(&root.value, root.id, &*self.jobs.store.cells());
        loaded.map_err(|error| StoreError::Damaged(format!("{key}: {error}")))
    }

    /// Changes a schedule as `decide` says, which is called again if the schedule has changed
    /// meanwhile. Returns the schedule after the change, or as it was before it was removed. `None` if
    /// there is none.
    pub(super) async fn change_entry(
        &self,
        key: &RootKey,
        decide: impl Fn(&Entry) -> Decision,
    ) -> Result<Option<Entry>, StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(stored) = self.stored_schedule(key).await? else { return Ok(None) };
            let after = match decide(&stored.entry) {
                Decision::Keep => return Ok(Some(stored.entry)),
                Decision::Store(entry) => Some(*entry),
                Decision::Remove => None,
            };
            let effects = stored.replace(after.as_ref());
            if unless_overtaken(self.jobs.store.commit(Effects(effects)).await)?.is_some() {
                return Ok(Some(after.unwrap_or(stored.entry)));
            }
        }
        Err(StoreError::Contended)
    }

    async fn change_schedule(
        &self,
        caller: &Caller,
        handle: &str,
        decide: impl Fn(&Entry) -> Decision,
    ) -> Result<Option<Scheduled>, StoreError> {
        let Some(key) = self.find_schedule(caller, handle).await? else { return Ok(None) };
        Ok(self.change_entry(&key, decide).await?.map(|entry| entry.scheduled))
    }

    /// Returns the key of a schedule that the caller may change. An admin may change those of all
    /// owners.
    async fn find_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<RootKey>, StoreError> {
        let own = own_key(&caller.did, handle);
        if caller.role != Role::Admin || self.jobs.store.root(&own).await?.is_some() {
            return Ok(Some(own));
        }
        let listed = find_listed(&*self.jobs.store, handle).await?;
        let Some(listed) = listed else { return Ok(None) };
        let stored = self.stored_schedule(&listed).await?;
        Ok(stored.map(|stored| own_key(&stored.entry.scheduled.owner, handle)))
    }

    async fn handles_of(&self, owner: &str) -> Result<Vec<String>, StoreError> {
        self.names(&owner_list(owner), SCHEDULES_MAX).await
    }

    async fn names(&self, list: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        Ok(self.jobs.store.roots(RootSpace::Schedule, list, None, limit).await?)
    }

    /// Returns random bits.
    pub(super) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.runtime.env.random(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Returns the request that starts a run of a schedule.
pub(super) fn run_request(entry: &Entry) -> Invoke {
    let Scheduled { handle, operation, input, .. } = &entry.scheduled;
    Invoke {
        wait: Some(Duration::ZERO),
        tags: vec![TAG.to_owned(), format!("{HANDLE_TAG_PREFIX}{handle}")],
        ..Invoke::new(entry.caller(), operation.as_str(), input.clone())
    }
}

/// Returns the key of a schedule of any owner in one of the two lists of the venue.
pub(super) async fn find_listed(
    store: &dyn catena_store::Store,
    handle: &str,
) -> Result<Option<RootKey>, StoreError> {
    let idle = list_key(IDLE, handle);
    if store.root(&idle).await?.is_some() {
        return Ok(Some(idle));
    }
    let mut after: Option<String> = None;
    loop {
        let page = store.roots(RootSpace::Schedule, DUE, after.as_deref(), PAGE_MAX).await?;
        let has_handle = |name: &&String| name.split_once('-').is_some_and(|(_, h)| h == handle);
        if let Some(name) = page.iter().find(has_handle) {
            return Ok(Some(list_key(DUE, name)));
        }
        match page.into_iter().next_back() {
            Some(last) => after = Some(last),
            None => return Ok(None),
        }
    }
}
