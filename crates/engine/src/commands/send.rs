//! Sends a message to a job.
//!
//! A job has one durable message queue, first in, first out. A message is acknowledged when it is
//! durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::{JobId, Status};
use catena_store::{CommitError, Effect, Effects, Message};
use catena_value::{Map, NoCells, Value, json};

use crate::commands::Commands;
use crate::error::{SendError, StoreError};
use crate::jobs::{CREDENTIALS, Current, Secrecy};
use crate::limits::MESSAGE_ID_BYTES_MAX;
use crate::requests::{Caller, IdempotencyKey, KeyLookup, MessageReceipt, commit_error};

impl Commands {
    /// Sends a message to a job.
    pub(crate) async fn send(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        message: Value,
        key: Option<IdempotencyKey>,
    ) -> Result<MessageReceipt, SendError> {
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let sending = async move { commands.send_recorded(&caller, id, message, key).await };
        self.runtime.finish_even_if_dropped(sending).await
    }

    async fn send_recorded(
        &self,
        caller: &Caller,
        id: JobId,
        message: Value,
        key: Option<IdempotencyKey>,
    ) -> Result<MessageReceipt, SendError> {
        if let Some(private) = self.execution.private.get(id) {
            // Only its owner may learn that there is such a job.
            let view = private.view();
            let owner = view.job.field("caller").and_then(Value::as_str).unwrap_or_default();
            let is_visible = caller.may_touch(owner);
            return Err(if is_visible { SendError::Private(id) } else { SendError::NotFound(id) });
        }
        let current = self.jobs.current(id).await?.ok_or(SendError::NotFound(id))?;
        if !caller.may_touch(current.text("caller")) {
            return Err(SendError::NotFound(id));
        }
        self.admission.admit(caller).map_err(SendError::RateLimited)?;
        self.operations.check_stored_bytes(current.text("caller")).await?;
        let claimed = match &key {
            None => None,
            Some(key) => match self.keys.look_up::<SendError>(caller, key).await? {
                KeyLookup::First(claimed) => Some(claimed),
                KeyLookup::Answered(answer) => return Ok(replayed_receipt(&current, &answer)),
            },
        };
        let status = current.job.status();
        if status.is_terminal() {
            return Err(SendError::Ended { job: id, status });
        }
        let message = self.checked_message(&current, message).await?;
        let message_id = self.message_id(&message)?;
        let secrecy = self.secrecy_of_message(&current).await?;
        let body = self.jobs.seal_message(id, caller, message, secrecy)?;
        let message = Message { number: 0, id: message_id.clone(), body };
        let mut effects = vec![Effect::SendMessage { job: id, message }];
        if let Some(key) = &claimed {
            let answer: Map = [("message", Value::from(message_id.as_str()))].into_iter().collect();
            effects.push(key.remember(answer.into()));
        }
        let receipt = |queue_depth, is_duplicate| MessageReceipt {
            job: id,
            status,
            queue_depth,
            message_id: message_id.clone(),
            is_duplicate,
            is_replay: false,
        };
        match self.jobs.store.commit(Effects(effects)).await {
            Ok(committed) => {
                self.runtime.counters.messages.fetch_add(1, Ordering::Relaxed);
                self.jobs.watchers.announce_off_chain(id);
                self.jobs.hint_changed(&current.job);
                self.runtime.spawn(self.execution.wake(id));
                Ok(receipt(committed.queue_depths.first().copied().unwrap_or(1), false))
            }
            Err(CommitError::DuplicateMessage { queue_depth, .. }) => {
                Ok(receipt(queue_depth, true))
            }
            Err(CommitError::MessagesFull { waiting, .. }) => {
                Err(SendError::QueueFull { job: id, waiting })
            }
            Err(CommitError::NoSuchJob { .. }) => Err(SendError::NotFound(id)),
            Err(CommitError::Ended { .. }) => {
                let current = self.jobs.current(id).await?.ok_or(SendError::NotFound(id))?;
                Err(SendError::Ended { job: id, status: current.job.status() })
            }
            Err(error) => match key.filter(|_| matches!(error, CommitError::KeyTaken(_))) {
                Some(key) => {
                    drop(claimed);
                    // Another process received the same request and committed it first.
                    match self.keys.look_up::<SendError>(caller, &key).await? {
                        KeyLookup::Answered(answer) => Ok(replayed_receipt(&current, &answer)),
                        KeyLookup::First(_) => Err(commit_error(error)),
                    }
                }
                None => Err(commit_error(error)),
            },
        }
    }

    /// Returns how much of a message to a job is secret. An answer to a request for authorisation is
    /// secret wherever its secrets are. A step on another venue gets what its venue would get from any
    /// client.
    async fn secrecy_of_message(&self, current: &Current) -> Result<Secrecy, StoreError> {
        Ok(match current.job.status() {
            Status::InputRequired => Secrecy::Credentials,
            Status::AuthRequired => match self.orchestration.remote_recipient(current).await? {
                Some(_) => Secrecy::Credentials,
                None => Secrecy::Whole,
            },
            _ => Secrecy::Undecided,
        })
    }

    /// Checks the size of a message and that its credentials do not leave this venue. A message that
    /// is not an object becomes the `content` of one.
    async fn checked_message(&self, current: &Current, message: Value) -> Result<Map, SendError> {
        let bytes = json::to_string(&message).map(|text| text.len()).unwrap_or(usize::MAX);
        let max = self.runtime.limits.message_bytes_max;
        if bytes > max {
            return Err(SendError::TooLarge { bytes, max });
        }
        let message = match message {
            Value::Map(map) => map,
            other => [("content", other)].into_iter().collect(),
        };
        if message.field(CREDENTIALS).is_some()
            && let Some((asking, venue)) = self.orchestration.remote_recipient(current).await?
        {
            return Err(SendError::CredentialsStay { job: current.job.id(), asking, venue });
        }
        Ok(message)
    }

    /// Returns the ID that the sender gave, or a new one.
    fn message_id(&self, message: &Map) -> Result<String, SendError> {
        let given = message.get(&"messageId".into(), &NoCells).ok().flatten();
        match given.as_ref().and_then(Value::to_text) {
            Some(id) if id.is_empty() || id.len() > MESSAGE_ID_BYTES_MAX => {
                let text = format!("`messageId` must have 1 to {MESSAGE_ID_BYTES_MAX} bytes");
                Err(SendError::Invalid(text))
            }
            Some(id) => Ok(id.into_owned()),
            None => Ok(self.runtime.new_id().to_uuid()),
        }
    }
}

/// Returns the receipt for a request whose idempotency key was used before.
fn replayed_receipt(current: &Current, answer: &Value) -> MessageReceipt {
    let id = answer.as_map().and_then(|map| map.field("message")).and_then(Value::as_str);
    MessageReceipt {
        job: current.job.id(),
        status: current.job.status(),
        queue_depth: current.queue_depth,
        message_id: id.unwrap_or_default().to_owned(),
        is_duplicate: true,
        is_replay: true,
    }
}
