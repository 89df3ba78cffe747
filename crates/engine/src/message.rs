//! Messages to a job: one durable queue, first in, first out.
//!
//! A message is acknowledged when it is durable, and taken when the job waits for one: the record
//! that makes the job STARTED again names it and what it said, and the message leaves the queue in
//! the same commit. Credentials never stand in the clear, neither in the queue nor in the chain.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, JobId};
use catena_store::{CommitError, Effect, Effects, Message};
use catena_value::path::Path;
use catena_value::{Map, NoCells, Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::adapter::Cause;
use crate::caller::Caller;
use crate::change::{Current, waits_for_message};
use crate::engine::Engine;
use crate::env::Task;
use crate::error::{InvokeError, ResolveError, SendError, StoreError};
use crate::idempotency::{Known, uncommitted};
use crate::limits::MESSAGE_ID_BYTES_MAX;
use crate::orchestration::weaver::News;
use crate::request::{IdempotencyKey, Sent};
use crate::run::{Run, unwritten};
use crate::running::Held;
use crate::schema::Place;
use crate::sealed;
use crate::submit::{deadline, offer};

/// The member of a message that is never kept in the clear.
const CREDENTIALS: &str = "credentials";

impl Engine {
    /// Sends a job a message.
    pub async fn send(
        &self,
        caller: &Caller,
        id: JobId,
        message: Value,
        key: Option<IdempotencyKey>,
    ) -> Result<Sent, SendError> {
        let (engine, caller) = (self.clone(), caller.clone());
        self.surely(async move { engine.send_now(&caller, id, message, key).await }).await
    }

    async fn send_now(
        &self,
        caller: &Caller,
        id: JobId,
        message: Value,
        key: Option<IdempotencyKey>,
    ) -> Result<Sent, SendError> {
        if self.0.private.get(id).is_some() {
            return Err(SendError::Private(id));
        }
        let current = self.current(id).await?.ok_or(SendError::NotFound(id))?;
        if !caller.may_touch(current.text("caller")) {
            return Err(SendError::NotFound(id));
        }
        self.admit(caller).map_err(|error| match error {
            InvokeError::RateLimited(too_fast) => SendError::RateLimited(too_fast),
            other => SendError::Invalid(other.to_string()),
        })?;
        let claimed = match &key {
            None => None,
            Some(key) => match self.look_up::<SendError>(caller, key).await? {
                Known::First(claimed) => Some(claimed),
                Known::Answered(answer) => return Ok(replayed(&current, &answer)),
            },
        };
        let status = current.job.status();
        if status.is_terminal() {
            return Err(SendError::Ended { job: id, status });
        }
        let bytes = json::to_string(&message).map(|text| text.len()).unwrap_or(usize::MAX);
        let max = self.0.limits.message_bytes_max;
        if bytes > max {
            return Err(SendError::TooLarge { bytes, max });
        }
        let body = as_map(message);
        let message_id = self.message_id(&body)?;
        if body.field(CREDENTIALS).is_some()
            && let Some((asking, venue)) = self.asks_from_elsewhere(&current).await?
        {
            return Err(SendError::CredentialsStay { job: id, asking, venue });
        }
        let body = self.envelope(id, caller, body)?;
        let message = Message { number: 0, id: message_id.clone(), body };
        let mut effects = vec![Effect::Send { job: id, message }];
        if let Some(claimed) = &claimed {
            let answer: Map = [("message", Value::from(message_id.as_str()))].into_iter().collect();
            effects.push(claimed.remember(answer.into()));
        }
        let sent = |queue_depth, is_duplicate| Sent {
            job: id,
            status,
            queue_depth,
            message_id: message_id.clone(),
            is_duplicate,
            is_replay: false,
        };
        match self.0.store.commit(Effects(effects)).await {
            Ok(receipt) => {
                self.0.counts.messages.fetch_add(1, Ordering::Relaxed);
                self.0.hub.announce_beside(id);
                self.spawn(self.wake(id, None));
                Ok(sent(receipt.queue_depths.first().copied().unwrap_or(1), false))
            }
            Err(CommitError::DuplicateMessage { queue_depth, .. }) => Ok(sent(queue_depth, true)),
            Err(CommitError::MessagesFull { waiting, .. }) => {
                Err(SendError::QueueFull { job: id, waiting })
            }
            Err(CommitError::NoSuchJob { .. }) => Err(SendError::NotFound(id)),
            Err(CommitError::Ended { .. }) => {
                let current = self.current(id).await?.ok_or(SendError::NotFound(id))?;
                Err(SendError::Ended { job: id, status: current.job.status() })
            }
            Err(error) => Err(uncommitted(error)),
        }
    }

    /// The sender's ID of a message, or a new one.
    fn message_id(&self, body: &Map) -> Result<String, SendError> {
        let given = body.get(&"messageId".into(), &NoCells).ok().flatten();
        match given.as_ref().and_then(Value::to_text) {
            Some(id) if id.is_empty() || id.len() > MESSAGE_ID_BYTES_MAX => Err(
                SendError::Invalid(format!("`messageId` has 1 to {MESSAGE_ID_BYTES_MAX} bytes")),
            ),
            Some(id) => Ok(id.into_owned()),
            None => Ok(self.new_id().to_uuid()),
        }
    }

    /// What is put on the queue: the message without its credentials, these sealed, and who sent
    /// it.
    fn envelope(&self, id: JobId, caller: &Caller, body: Map) -> Result<Value, StoreError> {
        let mut members = vec![("from", Value::from(&*caller.did))];
        let body = Value::from(body);
        let parted = sealed::part(&body, &[vec![Place::At(CREDENTIALS.to_owned())]], "/received");
        if !parted.places.is_empty() {
            let at = Path::from_segments([CREDENTIALS.to_owned()]);
            let secret = at.ok().and_then(|at| at.get(&body, &NoCells).ok()?).unwrap_or_default();
            members.push(("sealed", sealed::seal(self, id, &secret)?.into()));
        }
        members.push(("message", parted.open));
        Ok(members.into_iter().collect::<Map>().into())
    }

    /// Goes on with a job that waits for a message, when there is one. Boxed, because what it
    /// begins may end here again.
    pub(crate) fn wake(&self, id: JobId, slot: Option<OwnedSemaphorePermit>) -> Task {
        let engine = self.clone();
        Box::pin(async move { engine.go_on_with_messages(id, slot).await })
    }

    async fn go_on_with_messages(&self, id: JobId, slot: Option<OwnedSemaphorePermit>) {
        let mut slot = slot;
        loop {
            // Somebody who has the reins looks for messages before and after letting go.
            let Some(held) = self.0.running.take_to_look(id) else {
                self.0.weavers.tell(id, News::Message);
                return;
            };
            match self.take_message(id, held, &mut slot).await {
                Ok(Taken::Run(run)) => {
                    run.held.reins.begin();
                    return self.spawn(run.carry_out(self.clone()));
                }
                Ok(Taken::Nothing) => {}
                // Whoever made the job wait meanwhile found the reins taken, and left it to us.
                Ok(Taken::NotWaiting) => match self.current(id).await {
                    Ok(Some(current)) if waits_for_message(current.job.status()) => {}
                    _ => return,
                },
                Ok(Taken::NotNow) => return,
                Err(trouble) => {
                    tracing::error!(job = %id, %trouble, "a message could not be taken");
                    return;
                }
            }
            match self.0.store.messages(id, 1).await {
                Ok(waiting) if !waiting.is_empty() => {}
                _ => return,
            }
        }
    }

    async fn take_message(
        &self,
        id: JobId,
        held: Held,
        slot: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Taken, StoreError> {
        let Some(current) = self.current(id).await? else { return Ok(Taken::NotNow) };
        if self.is_stopping() {
            return Ok(Taken::NotNow);
        }
        if !waits_for_message(current.job.status()) {
            return Ok(Taken::NotWaiting);
        }
        let waiting = self.0.store.messages(id, 1).await?;
        let Some(message) = waiting.into_iter().next() else { return Ok(Taken::Nothing) };
        if slot.is_none() {
            *slot = Arc::clone(&self.0.slots).try_acquire_owned().ok();
        }
        if slot.is_none() {
            self.0.store.commit(Effects::one(offer(id, self.now()))).await?;
            self.has_queued(&current.job);
            return Ok(Taken::NotNow);
        }
        let operation = match self.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(trouble)) => return Err(trouble),
            Err(reason) => {
                tracing::warn!(job = %id, %reason, "a job waits whose operation is not here");
                return Ok(Taken::NotNow);
            }
        };
        match self.answered(current, message, held, operation).await? {
            Some(mut run) => {
                run.slot = slot.take();
                Ok(Taken::Run(Box::new(run)))
            }
            // Somebody else changed the job meanwhile.
            None => Ok(Taken::Nothing),
        }
    }

    /// Commits that a message is taken; nothing when the job is no longer what it was.
    pub(crate) async fn answered(
        &self,
        current: Current,
        message: Message,
        held: Held,
        operation: Arc<crate::operation::Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let id = current.job.id();
        let letter = Letter::open(self, id, &message);
        let now = self.now();
        let left = self.limit_of(&current.job, &operation);
        let mut change = Change::new(Event::Answered, now);
        change.trigger = Some(letter.trigger);
        change.extra.push(("received", letter.open));
        change.extra.push(("deadline", deadline(now, left)));
        let mut draft = current.draft();
        if let Some(sealed) = &letter.sealed {
            let places = vec![Value::from(format!("/received/{CREDENTIALS}"))];
            change.extra.push(("redacted", sealed::places(current.job.field("redacted"), places)));
            draft.with(sealed::keep_more(self, id, CREDENTIALS, sealed).await?);
        }
        draft.fenced(held.reins.fence);
        draft.append(change).map_err(unwritten)?;
        draft.with(Effect::Take { job: id, number: message.number });
        let input = self.input_of(&current).await?;
        match self.commit(draft).await {
            Ok((view, _)) => Ok(Some(Run {
                job: (*view.job).clone(),
                cells: view.cells,
                operation,
                caller: self.owner_of(&current.job),
                input,
                cause: Cause::Message(letter.whole),
                left,
                held,
                slot: None,
            })),
            Err(
                CommitError::HeadMoved { .. }
                | CommitError::NotNext { .. }
                | CommitError::RootMoved { .. }
                | CommitError::NoSuchJob { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A job's input, with the values of its secret fields.
    pub(crate) async fn input_of(&self, current: &Current) -> Result<Value, StoreError> {
        if sealed::has_secret_input(&current.job) {
            let whole = sealed::find(self, current.job.id(), sealed::WHOLE_INPUT).await?;
            return whole.ok_or_else(|| {
                StoreError::Damaged("the secret values of its input cannot be opened".into())
            });
        }
        Ok(current.member("input")?.unwrap_or_default())
    }

    /// The message whose turn was interrupted, credentials included.
    pub(crate) async fn last_message(
        &self,
        current: &Current,
    ) -> Result<Option<Value>, StoreError> {
        let Some(open) = current.member("received")? else { return Ok(None) };
        let secret = match current.job.field("redacted") {
            Some(_) => sealed::find(self, current.job.id(), CREDENTIALS).await?,
            None => None,
        };
        Ok(Some(with_credentials(open, secret)))
    }
}

/// What came of the attempt to take a message.
enum Taken {
    /// A turn to carry out.
    Run(Box<Run>),
    /// There was none, or somebody else took it.
    Nothing,
    /// The job does not wait for one.
    NotWaiting,
    /// It waits for its turn in the queue, or the venue stops.
    NotNow,
}

/// A message from the queue.
struct Letter {
    trigger: Value,
    open: Value,
    sealed: Option<String>,
    whole: Value,
}

impl Letter {
    fn open(engine: &Engine, job: JobId, message: &Message) -> Letter {
        let (trigger, open) = shown(message);
        let sealed =
            message.body.as_map().and_then(|map| map.get(&"sealed".into(), &NoCells).ok()?);
        let sealed = sealed.as_ref().and_then(|sealed| Some(sealed.to_text()?.into_owned()));
        let secret = sealed.as_ref().and_then(|sealed| sealed::open(engine, job, sealed));
        let whole = with_credentials(open.clone(), secret);
        Letter { trigger, open, sealed, whole }
    }
}

fn with_credentials(open: Value, secret: Option<Value>) -> Value {
    let Some(secret) = secret else { return open };
    let at = Path::from_segments([CREDENTIALS.to_owned()]);
    at.ok().and_then(|at| at.set(&open, &secret, &NoCells).ok()).unwrap_or(open)
}

/// A message that is not an object is the content of one.
fn as_map(message: Value) -> Map {
    match message {
        Value::Map(map) => map,
        other => [("content", other)].into_iter().collect(),
    }
}

fn replayed(current: &Current, answer: &Value) -> Sent {
    let id = answer.as_map().and_then(|map| map.field("message")).and_then(Value::as_str);
    Sent {
        job: current.job.id(),
        status: current.job.status(),
        queue_depth: current.queue_depth,
        message_id: id.unwrap_or_default().to_owned(),
        is_duplicate: true,
        is_replay: true,
    }
}

/// What a record shows of a message: its trigger, and what it said without credentials.
pub(crate) fn shown(message: &Message) -> (Value, Value) {
    let member =
        |name: &str| message.body.as_map().and_then(|map| map.get(&name.into(), &NoCells).ok()?);
    let open = member("message").unwrap_or_default();
    let role = open.as_map().and_then(|map| map.get(&"role".into(), &NoCells).ok()?);
    let mut trigger = vec![("messageId", Value::from(message.id.as_str()))];
    trigger.extend(member("from").map(|from| ("from", from)));
    trigger.extend(role.filter(|role| role.as_str().is_some()).map(|role| ("role", role)));
    (trigger.into_iter().collect::<Map>().into(), open)
}

/// The body of a message for another job: credentials are sealed for one job alone.
pub(crate) fn resealed(
    engine: &Engine,
    from: JobId,
    to: JobId,
    body: Value,
) -> Result<Value, StoreError> {
    let sealed = body.as_map().and_then(|map| map.get(&"sealed".into(), &NoCells).ok()?);
    let Some(sealed) = sealed.as_ref().and_then(Value::to_text) else { return Ok(body) };
    let secret = sealed::open(engine, from, &sealed).unwrap_or_default();
    let sealed = Value::from(sealed::seal(engine, to, &secret)?);
    let map = body.as_map().cloned().unwrap_or_default();
    let map = map.insert("sealed".into(), sealed, &NoCells);
    map.map(Value::from).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// Whether a job is in the middle of a turn that a message began.
pub(crate) fn is_answering(job: &Job) -> bool {
    job.field("trigger").is_some()
}
