//! Operations that are invoked later, once or again and again.
//!
//! A schedule is durable and holds the authority of who made it. It is kept twice: under its owner,
//! and in a list by time that the duty reads. What was missed while the venue was down is caught up
//! once. An invocation carries an idempotency key of its handle and its time, so that a crash
//! between the job and the schedule's next time makes no second job.

use std::time::Duration;

use catena_job::JobId;
use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, NoCells, Value};

use crate::caller::{Caller, Role};
use crate::engine::Engine;
use crate::error::{IdempotencyError, InvokeError, StoreError};
use crate::request::{IdempotencyKey, Invoke};

/// Schedules of one caller.
const SCHEDULES_MAX: usize = 1_000;

/// How often the list is looked at when nothing is due.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long after a failure an invocation is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The list by time.
const DUE: &str = "due";

/// When to invoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this time in milliseconds since 1970.
    At(i64),
    /// Again and again, by a cron expression in UTC.
    Cron(String),
}

/// An invocation that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled {
    /// By which it is cancelled or triggered.
    pub handle: String,
    /// The operation as the caller named it.
    pub operation: String,
    /// Its input.
    pub input: Value,
    /// When it is next invoked.
    pub time: i64,
    /// The cron expression, when it repeats.
    pub cron: Option<String>,
}

/// A schedule and whose it is.
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

    fn read(value: &Value) -> Option<Entry> {
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

    /// Its place in the list by time: times of the same length sort as text.
    fn due_key(&self) -> RootKey {
        let name = format!("{:020}-{}", self.scheduled.time.max(0), self.scheduled.handle);
        RootKey { space: RootSpace::Schedule, owner: DUE.to_owned(), name }
    }

    fn caller(&self) -> Caller {
        let role = if self.is_anonymous { Role::Anonymous } else { Role::Known };
        Caller { did: self.owner.as_str().into(), role, delegations: Vec::new() }
    }

    /// The effects that put it, in place of what it was.
    fn put(&self, before: Option<&Entry>) -> Vec<Effect> {
        let mut effects = before.map_or_else(Vec::new, Entry::remove);
        let value = self.to_value();
        for key in [self.key(), self.due_key()] {
            let is_replaced = effects
                .iter()
                .any(|effect| matches!(effect, Effect::Root { key: other, .. } if *other == key));
            if is_replaced {
                effects.retain(
                    |effect| !matches!(effect, Effect::Root { key: other, .. } if *other == key),
                );
            }
            let expected = before.filter(|_| is_replaced).map(|before| before.to_value().id());
            effects.push(Effect::Root { key, expected, value: Some(value.clone()) });
        }
        effects
    }

    /// The effects that remove it.
    fn remove(&self) -> Vec<Effect> {
        let expected = Some(self.to_value().id());
        let gone = |key| Effect::Root { key, expected, value: None };
        vec![gone(self.key()), gone(self.due_key())]
    }
}

fn own_key(owner: &str, handle: &str) -> RootKey {
    let owner = format!("of:{owner}");
    RootKey { space: RootSpace::Schedule, owner, name: handle.to_owned() }
}

/// The next time of a cron expression after a time, in UTC.
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

impl Engine {
    /// Schedules an operation with the caller's authority.
    pub async fn schedule(
        &self,
        caller: &Caller,
        operation: &str,
        input: Value,
        when: When,
    ) -> Result<Scheduled, InvokeError> {
        let resolved = self.resolve(caller, operation).await?;
        if let Some(refusal) = crate::submit::refusal(&resolved, &input) {
            return Err(InvokeError::Invalid(refusal));
        }
        if !crate::sealed::part(&input, resolved.secrets(), "").places.is_empty() {
            let text = "an input with secret fields cannot be scheduled".to_owned();
            return Err(InvokeError::Invalid(text));
        }
        if self.scheduled(caller).await?.len() >= SCHEDULES_MAX {
            let text = format!("you have {SCHEDULES_MAX} schedules; there is no room for more");
            return Err(InvokeError::Invalid(text));
        }
        let (time, cron) = match when {
            When::At(time) => (time, None),
            When::Cron(cron) => {
                let time = next_time(&cron, self.now()).map_err(InvokeError::Invalid)?;
                (time, Some(cron))
            }
        };
        let handle = self.new_id().to_hex();
        let scheduled = Scheduled { handle, operation: operation.to_owned(), input, time, cron };
        let entry = Entry {
            scheduled,
            owner: caller.did.to_string(),
            is_anonymous: !caller.is_authenticated(),
        };
        let put = self.0.store.commit(Effects(entry.put(None))).await;
        put.map_err(StoreError::from)?;
        self.0.scheduled.notify_one();
        Ok(entry.scheduled)
    }

    async fn entry(&self, key: &RootKey) -> Result<Option<Entry>, StoreError> {
        let Some(root) = self.0.store.root(key).await? else { return Ok(None) };
        let value = root.value.fully_loaded(&*self.0.store.cells());
        let value = value.map_err(|error| StoreError::Damaged(format!("{key}: {error}")))?;
        Ok(Entry::read(&value))
    }

    /// Forgets a scheduled invocation of the caller; whether there was one.
    pub async fn unschedule(&self, caller: &Caller, handle: &str) -> Result<bool, InvokeError> {
        let Some(entry) = self.entry(&own_key(&caller.did, handle)).await? else {
            return Ok(false);
        };
        match self.0.store.commit(Effects(entry.remove())).await {
            Ok(_) => Ok(true),
            Err(CommitError::RootMoved { .. }) => Ok(false),
            Err(error) => Err(StoreError::from(error).into()),
        }
    }

    /// The caller's scheduled invocations, the next first.
    pub async fn scheduled(&self, caller: &Caller) -> Result<Vec<Scheduled>, InvokeError> {
        let owner = format!("of:{}", caller.did);
        let roots = self.0.store.roots(RootSpace::Schedule, &owner, None, SCHEDULES_MAX).await;
        let mut all = Vec::new();
        for handle in roots.map_err(StoreError::from)? {
            let entry = self.entry(&own_key(&caller.did, &handle)).await?;
            all.extend(entry.map(|entry| entry.scheduled));
        }
        all.sort_by_key(|scheduled| scheduled.time);
        Ok(all)
    }

    /// Invokes a scheduled operation now, and gives the job; nothing when there is none. One that
    /// was to be invoked once is then gone.
    pub async fn trigger(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<JobId>, InvokeError> {
        match self.entry(&own_key(&caller.did, handle)).await? {
            Some(entry) => self.invoke_scheduled(&entry).await.map(Some),
            None => Ok(None),
        }
    }

    async fn invoke_scheduled(&self, entry: &Entry) -> Result<JobId, InvokeError> {
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
        let next = cron.as_deref().and_then(|cron| next_time(cron, self.now()).ok());
        let effects = match next {
            None => entry.remove(),
            Some(time) => {
                let mut later = entry.clone();
                later.scheduled.time = time;
                later.put(Some(entry))
            }
        };
        match self.0.store.commit(Effects(effects)).await {
            // Cancelled, or triggered by hand, at the same time.
            Ok(_) | Err(CommitError::RootMoved { .. }) => Ok(invoked.view.job.id()),
            Err(error) => Err(StoreError::from(error).into()),
        }
    }

    /// Invokes everything that is due; how long until the next.
    async fn invoke_what_is_due(&self) -> Result<Duration, InvokeError> {
        loop {
            let first = self.0.store.roots(RootSpace::Schedule, DUE, None, 1).await;
            let first = first.map_err(StoreError::from)?;
            let Some(name) = first.into_iter().next() else { return Ok(LOOK_EVERY) };
            let at = name.split('-').next().and_then(|at| at.parse::<i64>().ok()).unwrap_or(0);
            let now = self.now();
            if at > now {
                let wait = Duration::from_millis(u64::try_from(at - now).unwrap_or(0));
                return Ok(wait.min(LOOK_EVERY));
            }
            let key = RootKey { space: RootSpace::Schedule, owner: DUE.to_owned(), name };
            let Some(entry) = self.entry(&key).await? else { continue };
            match self.invoke_scheduled(&entry).await {
                Ok(job) => tracing::info!(%job, handle = entry.scheduled.handle, "scheduled"),
                Err(
                    error @ (InvokeError::Store(_)
                    | InvokeError::ShuttingDown
                    | InvokeError::RateLimited(_)
                    | InvokeError::TooManyJobs { .. }
                    | InvokeError::Key(IdempotencyError::InFlight)),
                ) => return Err(error),
                Err(reason) => {
                    let handle = &entry.scheduled.handle;
                    tracing::warn!(handle, %reason, "a schedule cannot be invoked; it is dropped");
                    let removed = self.0.store.commit(Effects(entry.remove())).await;
                    removed.map_err(StoreError::from)?;
                }
            }
        }
    }
}

/// Invokes what is due, again and again.
pub(crate) async fn invoke_due(engine: Engine) {
    loop {
        let wait = match engine.invoke_what_is_due().await {
            Ok(wait) => wait,
            Err(trouble) => {
                tracing::warn!(%trouble, "a scheduled operation waits");
                AGAIN_AFTER
            }
        };
        tokio::select! {
            () = engine.0.scheduled.notified() => {}
            () = engine.0.env.sleep(wait) => {}
        }
    }
}
