//! Messages as they are queued and recorded.
//!
//! A queued message is `{from, message, sealed?}`: the sender's DID, the message without its
//! credentials, and the sealed credentials. Credentials are never stored in plaintext, neither in
//! the queue nor in the chain. An answer to a job that asks for authorisation may contain them
//! anywhere and is sealed as a whole: `message` is then `{"redacted": true}`.

use catena_job::JobId;
use catena_store::Message;
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

/// Returns the body of a message for another job: credentials are sealed for a single job.
pub(crate) fn reseal_message(
    jobs: &Jobs,
    from: JobId,
    to: JobId,
    body: Value,
) -> Result<Value, StoreError> {
    let Some(sealed) = sealed_credentials(&body) else { return Ok(body) };
    let secret = jobs.unseal(from, &sealed).unwrap_or_default();
    let sealed = Value::from(jobs.seal(to, &secret)?);
    let map = body.as_map().cloned().unwrap_or_default();
    let map = map.insert("sealed".into(), sealed, &NoCells);
    map.map(Value::from).map_err(|error| StoreError::Damaged(error.to_string()))
}

impl Jobs {
    /// Returns the number of queued messages whose credentials were sealed with an older key.
    pub(crate) async fn outdated_messages(&self) -> Result<u64, StoreError> {
        let mut after = None;
        let mut outdated = 0;
        loop {
            let live = self.store.live(after, PAGE_MAX).await?;
            let Some(last) = live.last() else { return Ok(outdated) };
            after = Some(last.job);
            for job in live {
                let messages = self.store.messages(job.job, MESSAGES_READ_MAX).await?;
                let sealed =
                    messages.iter().filter_map(|message| sealed_credentials(&message.body));
                outdated +=
                    sealed.filter(|sealed| self.seal_key.is_outdated(sealed)).count() as u64;
            }
        }
    }

    /// Returns the body of a message as it is queued. `is_secret` says that all of it is secret.
    pub(crate) fn seal_message(
        &self,
        job: JobId,
        sender: &Caller,
        message: Map,
        is_secret: bool,
    ) -> Result<Value, StoreError> {
        let mut members = vec![("from", Value::from(&*sender.did))];
        let message = Value::from(message);
        if is_secret {
            members.push(("sealed", self.seal(job, &message)?.into()));
            members.push(("message", redacted()));
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

    /// Decrypts the credentials of a queued message.
    pub(crate) fn open_message(&self, job: JobId, message: &Message) -> OpenedMessage {
        let (trigger, public) = message_record(message);
        let sealed = sealed_credentials(&message.body);
        let secret = sealed.as_ref().and_then(|sealed| self.unseal(job, sealed));
        let complete = with_credentials(public.clone(), secret);
        OpenedMessage { trigger, public, sealed, complete }
    }
}
