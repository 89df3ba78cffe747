//! Messages as they are queued and recorded.
//!
//! A queued message is `{from, message, sealed?}`: the sender's DID, the message without its
//! credentials, and the sealed credentials. Credentials are never stored in plaintext, neither in
//! the queue nor in the chain. An answer to a job that asks for authorisation may contain them
//! anywhere and is sealed as a whole: `message` is then `{"redacted": true}`. A message to a job that
//! asks for nothing yet is sealed as a whole and `undecided`, because the job may ask for
//! authorisation when it consumes the message.

use catena_job::{JobId, Status};
use catena_store::{Effect, Effects, Message};
use catena_value::path::Path;
use catena_value::{Map, NoCells, Value};

use crate::error::StoreError;
use crate::jobs::secrets::redacted;
use crate::jobs::{Jobs, redact};
use crate::limits::{MESSAGES_READ_MAX, PAGE_MAX};
use crate::operations::schema::Place;
use crate::requests::Caller;

/// The member of a message that is never stored in plaintext.
pub(crate) const CREDENTIALS: &str = "credentials";

/// The member of a queued message whose job has not asked for it yet.
const UNDECIDED: &str = "undecided";

/// How much of a message is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Its credentials.
    Credentials,
    /// All of it: it answers a request for authorisation.
    Whole,
    /// All of it, until the job that consumes it shows what it answers.
    Undecided,
}

/// A message from the queue, with its credentials decrypted.
pub(crate) struct OpenedMessage {
    /// The `trigger` member of the record that consumes the message.
    pub(crate) trigger: Value,
    /// The message without credentials.
    pub(crate) public: Value,
    /// The sealed credentials.
    pub(crate) sealed: Option<String>,
    /// The message with credentials.
    pub(crate) complete: Value,
}

/// Adds credentials to a message.
pub(super) fn with_credentials(public: Value, secret: Option<Value>) -> Value {
    let Some(secret) = secret else { return public };
    if public == redacted() {
        return secret;
    }
    let at = Path::from_segments([CREDENTIALS.to_owned()]);
    at.ok().and_then(|at| at.set(&public, &secret, &NoCells).ok()).unwrap_or(public)
}

/// Returns what a record shows of a message: its trigger, and the message without credentials.
pub(crate) fn message_record(message: &Message) -> (Value, Value) {
    let member =
        |name: &str| message.body.as_map().and_then(|map| map.get(&name.into(), &NoCells).ok()?);
    let public = member("message").unwrap_or_default();
    let role = public.as_map().and_then(|map| map.get(&"role".into(), &NoCells).ok()?);
    let mut trigger = vec![("messageId", Value::from(message.id.as_str()))];
    trigger.extend(member("from").map(|from| ("from", from)));
    trigger.extend(role.filter(|role| role.as_str().is_some()).map(|role| ("role", role)));
    (trigger.into_iter().collect::<Map>().into(), public)
}

fn sealed_credentials(body: &Value) -> Option<String> {
    let sealed = body.as_map().and_then(|map| map.get(&"sealed".into(), &NoCells).ok()?);
    sealed.as_ref().and_then(|sealed| Some(sealed.to_text()?.into_owned()))
}

impl Jobs {
    /// Seals the credentials of queued messages again that were sealed with an older key.
    pub(crate) async fn reseal_messages(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let live = self.store.live(after, PAGE_MAX).await?;
            let Some(last) = live.last() else { return Ok(()) };
            after = Some(last.job);
            for job in live {
                for message in self.store.messages(job.job, MESSAGES_READ_MAX).await? {
                    self.reseal_queued(job.job, message).await?;
                }
            }
        }
    }

    /// Seals the credentials of a queued message with the current key.
    async fn reseal_queued(&self, job: JobId, message: Message) -> Result<(), StoreError> {
        let sealed = sealed_credentials(&message.body);
        let Some(sealed) = sealed.filter(|sealed| self.seal_key.is_outdated(sealed)) else {
            return Ok(());
        };
        let Some(secret) = self.unseal(job, &sealed) else {
            tracing::warn!(%job, message = message.id, "a queued message cannot be decrypted");
            return Ok(());
        };
        let body = message.body.as_map().cloned().unwrap_or_default();
        let sealed = Value::from(self.seal(job, &secret)?);
        let body = body.insert("sealed".into(), sealed, &NoCells);
        let body = body.map_err(|error| StoreError::Damaged(error.to_string()))?.into();
        let message = Message { body, ..message };
        self.store.commit(Effects::one(Effect::ReplaceMessage { job, message })).await?;
        Ok(())
    }

    /// Returns the body of a message as it is queued.
    pub(crate) fn seal_message(
        &self,
        job: JobId,
        sender: &Caller,
        message: Map,
        secrecy: Secrecy,
    ) -> Result<Value, StoreError> {
        self.message_body(job, Value::from(&*sender.did), message.into(), secrecy)
    }

    fn message_body(
        &self,
        job: JobId,
        from: Value,
        message: Value,
        secrecy: Secrecy,
    ) -> Result<Value, StoreError> {
        let mut members = vec![("from", from)];
        if secrecy != Secrecy::Credentials {
            members.push(("sealed", self.seal(job, &message)?.into()));
            members.push(("message", redacted()));
            let is_undecided = secrecy == Secrecy::Undecided;
            members.extend(is_undecided.then_some((UNDECIDED, true.into())));
            return Ok(members.into_iter().collect::<Map>().into());
        }
        let secrets = [vec![Place::At(CREDENTIALS.to_owned())]];
        let redacted = redact(&message, &secrets, "/received");
        if !redacted.paths.is_empty() {
            let at = Path::from_segments([CREDENTIALS.to_owned()]);
            let secret = at.ok().and_then(|at| at.get(&message, &NoCells).ok()?);
            members.push(("sealed", self.seal(job, &secret.unwrap_or_default())?.into()));
        }
        members.push(("message", redacted.public));
        Ok(members.into_iter().collect::<Map>().into())
    }

    /// Decides how much of a queued message is secret, now that a job asks for it: all of it if the job
    /// asks for authorisation.
    pub(crate) fn settle_message(
        &self,
        job: JobId,
        asks_for: Status,
        message: Message,
    ) -> Result<Message, StoreError> {
        let (_, public) = message_record(&message);
        let is_undecided =
            message.body.as_map().is_some_and(|body| body.field(UNDECIDED).is_some());
        let secrecy = match asks_for {
            Status::AuthRequired if public != redacted() || is_undecided => Secrecy::Whole,
            Status::AuthRequired => return Ok(message),
            _ if is_undecided => Secrecy::Credentials,
            _ => return Ok(message),
        };
        let body = self.body_for(job, job, &message, secrecy)?;
        Ok(Message { body, ..message })
    }

    /// Returns the body of a message that is forwarded: what is secret is sealed for a single job. The
    /// recipient of an answer to a request for authorisation decides for itself.
    pub(crate) fn forwarded_body(
        &self,
        from: JobId,
        to: JobId,
        asks_for: Status,
        message: &Message,
    ) -> Result<Value, StoreError> {
        let secrecy = match asks_for {
            Status::AuthRequired => Secrecy::Undecided,
            _ => Secrecy::Credentials,
        };
        self.body_for(from, to, message, secrecy)
    }

    fn body_for(
        &self,
        from: JobId,
        to: JobId,
        message: &Message,
        secrecy: Secrecy,
    ) -> Result<Value, StoreError> {
        let sender = message.body.as_map().and_then(|body| body.field("from").cloned());
        let complete = self.open_message(from, message).complete;
        self.message_body(to, sender.unwrap_or_default(), complete, secrecy)
    }

    /// Decrypts the credentials of a queued message.
    pub(crate) fn open_message(&self, job: JobId, message: &Message) -> OpenedMessage {
        let (trigger, public) = message_record(message);
        let sealed = sealed_credentials(&message.body);
        let secret = sealed.as_ref().and_then(|sealed| self.unseal(job, sealed));
        let complete = with_credentials(public.clone(), secret);
        OpenedMessage { trigger, public, sealed, complete }
    }
}
