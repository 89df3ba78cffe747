//! What can be done with the store of a venue that is not running.
//!
//! An entry or a job that keeps a venue from starting can be inspected and stopped here. Nothing runs
//! and no request leaves the machine.

use std::sync::Arc;

use catena_auth::{KeyPair, SealKey};
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::{Effects, Store};

use crate::commands::schedule::find_listed;
use crate::error::{ControlError, StoreError};
use crate::execution::open_sub_jobs;
use crate::jobs::{Changed, Current, JOB_SECRETS_PURPOSE, Jobs, append_error, is_live, seal_key};
use crate::limits::{Limits, SCHEDULES_LISTED_MAX};
use crate::operations::Adapter;
use crate::orchestration::Drivers;
use crate::requests::{DUE, Entry, IDLE, Scheduled, StoredEntry, list_key, own_key};
use crate::runtime::{Env, Runtime};

/// A store that no venue uses.
pub struct Offline {
    store: Arc<dyn Store>,
    jobs: Jobs,
}

impl std::fmt::Debug for Offline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the store of a venue that is not running")
    }
}

impl Offline {
    /// Uses a store that no venue uses.
    pub fn new(store: Arc<dyn Store>, env: Arc<dyn Env>) -> Self {
        // Secrets are erased and never decrypted here, so any key will do.
        let key = KeyPair::from_seed(&[0; 32]).seal_key(JOB_SECRETS_PURPOSE);
        Offline::with_seal_key(store, env, key)
    }

    fn with_seal_key(store: Arc<dyn Store>, env: Arc<dyn Env>, key: SealKey) -> Self {
        let runtime = Runtime::new(env, Limits::default());
        let drivers = Arc::new(Drivers::default());
        let jobs = Jobs::new(runtime, Arc::clone(&store), "".into(), key, drivers);
        Offline { store, jobs }
    }

    /// Uses a store that no venue uses, with the keys that encrypt its secrets: the current one, and the
    /// one before it.
    pub fn with_keys(
        store: Arc<dyn Store>,
        env: Arc<dyn Env>,
        identity: &KeyPair,
        current: [u8; 32],
        previous: [u8; 32],
    ) -> Self {
        let identity = identity.seal_key(JOB_SECRETS_PURPOSE);
        let key = seal_key(Some(current), Some(&previous), identity);
        Offline::with_seal_key(store, env, key)
    }

    /// Encrypts all secrets again with the current key: those of users, those of live jobs and those in
    /// queued messages. It can be repeated; afterwards nothing needs the previous key. Returns the number
    /// of users' secrets that were encrypted again.
    pub async fn reseal(&self) -> Result<u64, StoreError> {
        self.jobs.reseal_secrets().await?;
        self.jobs.reseal_messages().await?;
        self.jobs.reseal_user_secrets().await
    }

    /// Uses these adapters to release what the jobs that are cancelled are bound to, such as agents.
    #[must_use]
    pub fn with_adapters(mut self, adapters: &[Arc<dyn Adapter>]) -> Self {
        self.jobs.set_adapters(adapters);
        self
    }

    /// Returns the schedules of all owners, ordered by time.
    pub async fn schedules(&self) -> Result<Vec<Scheduled>, StoreError> {
        let mut all = Vec::new();
        for list in [DUE, IDLE] {
            let space = catena_store::RootSpace::Schedule;
            for name in self.store.roots(space, list, None, SCHEDULES_LISTED_MAX).await? {
                let stored = self.stored(&list_key(list, &name)).await?;
                all.extend(stored.map(|stored| stored.entry.scheduled));
            }
        }
        all.sort_by_key(|scheduled| scheduled.time);
        Ok(all)
    }

    /// Removes a schedule. Returns it as it was, or `None` if there is none with this handle.
    pub async fn remove_schedule(&self, handle: &str) -> Result<Option<Scheduled>, StoreError> {
        self.change_schedule(handle, |_| None).await
    }

    /// Pauses a schedule. Returns it, or `None` if there is none with this handle.
    pub async fn pause_schedule(&self, handle: &str) -> Result<Option<Scheduled>, StoreError> {
        self.change_schedule(handle, |entry| Some(entry.paused())).await
    }

    async fn change_schedule(
        &self,
        handle: &str,
        change: impl Fn(&Entry) -> Option<Entry>,
    ) -> Result<Option<Scheduled>, StoreError> {
        let Some(listed) = find_listed(&*self.store, handle).await? else { return Ok(None) };
        let Some(found) = self.stored(&listed).await? else { return Ok(None) };
        let key = own_key(&found.entry.scheduled.owner, handle);
        let Some(stored) = self.stored(&key).await? else { return Ok(None) };
        let after = change(&stored.entry);
        self.store.commit(Effects(stored.replace(after.as_ref()))).await?;
        Ok(Some(after.unwrap_or(stored.entry).scheduled))
    }

    async fn stored(&self, key: &catena_store::RootKey) -> Result<Option<StoredEntry>, StoreError> {
        let Some(root) = self.store.root(key).await? else { return Ok(None) };
        let loaded = StoredEntry::load(&root.value, root.id, &*self.store.cells());
        loaded.map_err(|error| StoreError::Damaged(format!("{key}: {error}")))
    }

    /// Cancels a job and its sub-jobs, parents first. Returns the status of the job, which has not
    /// changed if it had ended, and the number of jobs that were cancelled. Remote steps are
    /// cancelled when the venue starts. If it is interrupted, it can be repeated.
    pub async fn cancel(&self, job: JobId, reason: &str) -> Result<(Status, u64), ControlError> {
        let mut cancelled = 0;
        let mut status = None;
        let mut open = vec![job];
        while let Some(id) = open.pop() {
            let Some(current) = self.jobs.current(id).await? else {
                if id == job {
                    return Err(ControlError::NotFound(job));
                }
                continue;
            };
            open.extend(open_sub_jobs(&current.job));
            let after = self.cancel_one(id, reason, &mut cancelled).await?;
            status = status.or(Some(after.unwrap_or(current.job.status())));
        }
        status.map(|status| (status, cancelled)).ok_or(ControlError::NotFound(job))
    }

    async fn cancel_one(
        &self,
        id: JobId,
        reason: &str,
        cancelled: &mut u64,
    ) -> Result<Option<Status>, StoreError> {
        let now = self.jobs.runtime.now();
        let decide = |current: &Current| {
            if !is_live(&current.job) {
                return Ok(None);
            }
            let mut draft = current.draft();
            let error = format!("Job cancelled: {reason}");
            draft.append(Change::new(Event::Cancelled { error }, now)).map_err(append_error)?;
            Ok::<_, StoreError>(Some(draft))
        };
        match self.jobs.change(id, None, decide).await? {
            Changed::Done(view) => {
                *cancelled += 1;
                Ok(Some(view.status()))
            }
            Changed::Unchanged(_) | Changed::Gone => Ok(None),
        }
    }
}
