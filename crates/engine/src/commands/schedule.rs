//! Schedules: operations that are invoked later, once or repeatedly.
//!
//! A schedule is durable and holds the authority of its creator. It is stored twice: under its
//! owner, and in a list by time that a background task reads. Invocations that were missed while
//! the venue was down are made up for by one. An invocation carries an idempotency key made of the
//! schedule's handle and time, so that a crash between the job and the schedule's next time creates
//! no second job.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::{Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, NoCells, Value};

use crate::commands::Commands;
use crate::error::{IdempotencyError, InvokeError, StoreError};
use crate::jobs::{redact, unless_overtaken};
use crate::limits::SCHEDULES_MAX;
use crate::requests::{Caller, IdempotencyKey, Invoke, Role, Scheduled, When};

/// How often the list is read if nothing is due.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The list by time.
const DUE: &str = "due";

/// A schedule and its owner.
#[derive(Debug, Clone)]
struct Entry {
    scheduled: Scheduled,
    owner: String,
    is_anonymous: bool,
}

impl Entry {
    fn to_value(&self) -> Value {
        let Scheduled { handle, operation, input, time, cron } = &self.scheduled;
        let mut members = vec![
            ("handle", Value::from(handle.as_str())),
            ("operation", operation.as_str().into()),
            ("input", input.clone()),
            ("time", (*time).into()),
            ("owner", self.owner.as_str().into()),
            ("anonymous", self.is_anonymous.into()),
        ];
        members.extend(cron.as_deref().map(|cron| ("cron", cron.into())));
        members.into_iter().collect::<Map>().into()
    }

    fn from_value(value: &Value) -> Option<Entry> {
        let map = value.as_map()?;
        let field = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
        let text = |name: &str| field(name).as_ref().and_then(Value::as_str).map(str::to_owned);
        Some(Entry {
            scheduled: Scheduled {
                handle: text("handle")?,
                operation: text("operation")?,
                input: field("input").unwrap_or_default(),
                time: field("time")?.as_i64()?,
                cron: text("cron"),
            },
            owner: text("owner")?,
            is_anonymous: field("anonymous") == Some(Value::Bool(true)),
        })
    }

    fn key(&self) -> RootKey {
        own_key(&self.owner, &self.scheduled.handle)
    }

    /// Returns its key in the list by time. Times of equal length sort as text.
    fn due_key(&self) -> RootKey {
        let name = format!("{:020}-{}", self.scheduled.time.max(0), self.scheduled.handle);
        RootKey { space: RootSpace::Schedule, owner: DUE.to_owned(), name }
    }

    fn caller(&self) -> Caller {
        let role = if self.is_anonymous { Role::Anonymous } else { Role::Known };
        Caller { did: self.owner.as_str().into(), role, delegations: Vec::new() }
    }

    /// Returns the effects that store it in place of its previous version.
    fn store(&self, before: Option<&Entry>) -> Vec<Effect> {
        let mut effects = before.map_or_else(Vec::new, Entry::remove);
        let value = self.to_value();
        for key in [self.key(), self.due_key()] {
            let is_replaced = effects.iter().any(
                |effect| matches!(effect, Effect::SetRoot { key: other, .. } if *other == key),
            );
            if is_replaced {
                effects.retain(
                    |effect| !matches!(effect, Effect::SetRoot { key: other, .. } if *other == key),
                );
            }
            let expected = before.filter(|_| is_replaced).map(|before| before.to_value().id());
            effects.push(Effect::SetRoot { key, expected, value: Some(value.clone()) });
        }
        effects
    }

    /// Returns the effects that remove it.
    fn remove(&self) -> Vec<Effect> {
        let expected = Some(self.to_value().id());
        let gone = |key| Effect::SetRoot { key, expected, value: None };
        vec![gone(self.key()), gone(self.due_key())]
    }
}

fn own_key(owner: &str, handle: &str) -> RootKey {
    let owner = format!("of:{owner}");
    RootKey { space: RootSpace::Schedule, owner, name: handle.to_owned() }
}

/// Returns the next time of a cron expression in UTC after a time. Both are Unix times in ms.
fn next_time(cron: &str, after: i64) -> Result<i64, String> {
    let pattern: croner::Cron = cron.parse().map_err(|error: croner::errors::CronError| {
        format!("`cron` is not a cron expression: {error}")
    })?;
    let after = jiff::Timestamp::from_millisecond(after).map_err(|error| error.to_string())?;
    let after = after.to_zoned(jiff::tz::TimeZone::UTC);
    let next = pattern.find_next_occurrence(&after, false);
    let next = next.map_err(|error| format!("`cron` has no next time: {error}"))?;
    Ok(next.timestamp().as_millisecond())
}

impl Commands {
    /// Schedules an operation on the caller's authority.
    pub(crate) async fn schedule(
        &self,
        caller: &Caller,
        operation: &str,
        input: Value,
        when: When,
    ) -> Result<Scheduled, InvokeError> {
        let resolved = self.operations.resolve(caller, operation).await?;
        if let Some(refusal) = self.operations.refusal(&caller.did, &resolved, &input).await? {
            return Err(InvokeError::Invalid(refusal));
        }
        if !redact(&input, resolved.secrets(), "").paths.is_empty() {
            let text = "an input with secret fields cannot be scheduled".to_owned();
            return Err(InvokeError::Invalid(text));
        }
        if self.scheduled(caller).await?.len() >= SCHEDULES_MAX {
            let text = format!("you have {SCHEDULES_MAX} schedules, which is the maximum");
            return Err(InvokeError::Invalid(text));
        }
        let (time, cron) = match when {
            When::At(time) => (time, None),
            When::Cron(cron) => {
                let time = next_time(&cron, self.runtime.now()).map_err(InvokeError::Invalid)?;
                (time, Some(cron))
            }
        };
        let handle = self.runtime.new_id().to_hex();
        let scheduled = Scheduled { handle, operation: operation.to_owned(), input, time, cron };
        let entry = Entry {
            scheduled,
            owner: caller.did.to_string(),
            is_anonymous: !caller.is_authenticated(),
        };
        let stored = self.jobs.store.commit(Effects(entry.store(None))).await;
        stored.map_err(StoreError::from)?;
        self.schedule_changed.notify_one();
        Ok(entry.scheduled)
    }

    async fn entry(&self, key: &RootKey) -> Result<Option<Entry>, StoreError> {
        let Some(root) = self.jobs.store.root(key).await? else { return Ok(None) };
        let value = root.value.fully_loaded(&*self.jobs.store.cells());
        let value = value.map_err(|error| StoreError::Damaged(format!("{key}: {error}")))?;
        Ok(Entry::from_value(&value))
    }

    /// Removes a scheduled invocation of the caller. Returns false if there was none.
    pub(crate) async fn unschedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<bool, InvokeError> {
        let Some(entry) = self.entry(&own_key(&caller.did, handle)).await? else {
            return Ok(false);
        };
        let committed = self.jobs.store.commit(Effects(entry.remove())).await;
        Ok(unless_overtaken(committed)?.is_some())
    }

    /// Returns the caller's scheduled invocations, ordered by time.
    pub(crate) async fn scheduled(&self, caller: &Caller) -> Result<Vec<Scheduled>, InvokeError> {
        let owner = format!("of:{}", caller.did);
        let roots = self.jobs.store.roots(RootSpace::Schedule, &owner, None, SCHEDULES_MAX).await;
        let mut all = Vec::new();
        for handle in roots.map_err(StoreError::from)? {
            let entry = self.entry(&own_key(&caller.did, &handle)).await?;
            all.extend(entry.map(|entry| entry.scheduled));
        }
        all.sort_by_key(|scheduled| scheduled.time);
        Ok(all)
    }

    /// Invokes a scheduled operation now. Returns its job, or `None` if there is no such schedule. A
    /// schedule that is not repeated is removed.
    pub(crate) async fn trigger(
        self: &Arc<Self>,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<JobId>, InvokeError> {
        match self.entry(&own_key(&caller.did, handle)).await? {
            Some(entry) => self.invoke_scheduled(&entry).await.map(Some),
            None => Ok(None),
        }
    }

    async fn invoke_scheduled(self: &Arc<Self>, entry: &Entry) -> Result<JobId, InvokeError> {
        let Scheduled { handle, operation, input, time, cron } = &entry.scheduled;
        let invoked = self
            .invoke(Invoke {
                wait: Some(Duration::ZERO),
                tags: vec!["scheduled".to_owned()],
                idempotency: Some(IdempotencyKey {
                    endpoint: "schedule",
                    key: format!("{handle}-{time}"),
                    body_digest: [0; 32],
                }),
                ..Invoke::new(entry.caller(), operation.as_str(), input.clone())
            })
            .await?;
        let next = cron.as_deref().and_then(|cron| next_time(cron, self.runtime.now()).ok());
        let effects = match next {
            None => entry.remove(),
            Some(time) => {
                let mut later = entry.clone();
                later.scheduled.time = time;
                later.store(Some(entry))
            }
        };
        // If it was removed or triggered concurrently, there is nothing to update.
        unless_overtaken(self.jobs.store.commit(Effects(effects)).await)?;
        Ok(invoked.view.job.id())
    }

    /// Invokes everything that is due. Returns the time until the next schedule.
    pub(crate) async fn invoke_due_schedules(self: &Arc<Self>) -> Result<Duration, InvokeError> {
        loop {
            let first = self.jobs.store.roots(RootSpace::Schedule, DUE, None, 1).await;
            let first = first.map_err(StoreError::from)?;
            let Some(name) = first.into_iter().next() else { return Ok(POLL_INTERVAL) };
            let at = name.split('-').next().and_then(|at| at.parse::<i64>().ok()).unwrap_or(0);
            let now = self.runtime.now();
            if at > now {
                let wait = Duration::from_millis(u64::try_from(at - now).unwrap_or(0));
                return Ok(wait.min(POLL_INTERVAL));
            }
            let key = RootKey { space: RootSpace::Schedule, owner: DUE.to_owned(), name };
            let Some(entry) = self.entry(&key).await? else { continue };
            match self.invoke_scheduled(&entry).await {
                Ok(job) => {
                    tracing::info!(%job, handle = entry.scheduled.handle, "invoked a scheduled operation");
                }
                Err(
                    error @ (InvokeError::Store(_)
                    | InvokeError::ShuttingDown
                    | InvokeError::RateLimited(_)
                    | InvokeError::TooManyJobs { .. }
                    | InvokeError::Key(IdempotencyError::InFlight)),
                ) => return Err(error),
                Err(reason) => {
                    let handle = &entry.scheduled.handle;
                    tracing::warn!(handle, %reason, "removing a schedule that cannot be invoked");
                    let removed = self.jobs.store.commit(Effects(entry.remove())).await;
                    removed.map_err(StoreError::from)?;
                }
            }
        }
    }
}
