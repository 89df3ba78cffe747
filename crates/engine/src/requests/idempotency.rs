//! Idempotency keys: requests that may arrive twice.
//!
//! A key is committed together with what its request created, so a client that did not receive the
//! response can repeat the request and gets the same response. While the first request is in
//! flight, a second one with the same key is refused.

use std::collections::HashSet;
use std::sync::Arc;

use catena_job::JobId;
use catena_store::{CommitError, Effect, Effects, Idempotency, Store};
use catena_value::{Map, Value};
use parking_lot::Mutex;

use crate::error::{IdempotencyError, StoreError};
use crate::requests::{Caller, IdempotencyKey};
use crate::runtime::Runtime;

/// Keys that are removed in one commit.
const EXPIRE_BATCH: usize = 1_000;

/// Owner, endpoint and key.
type Scope = (String, &'static str, String);

/// The idempotency keys of all callers.
pub(crate) struct IdempotencyKeys {
    runtime: Arc<Runtime>,
    store: Arc<dyn Store>,
    /// Keys of requests that are in flight in this process.
    in_flight: Arc<Mutex<HashSet<Scope>>>,
}

/// What is stored under a key.
pub(crate) enum KeyLookup {
    /// Nothing: this request is the first. The key is claimed until the value is dropped.
    First(ClaimedKey),
    /// The response to an earlier request.
    Answered(Value),
}

/// A key whose request is in flight.
pub(crate) struct ClaimedKey {
    in_flight: Arc<Mutex<HashSet<Scope>>>,
    scope: Scope,
    body_digest: [u8; 32],
    /// When the key expires, as Unix time in ms.
    expires: i64,
}

impl ClaimedKey {
    /// Returns the effect that stores the response under the key.
    pub(crate) fn remember(&self, answer: Value) -> Effect {
        let (owner, endpoint, key) = &self.scope;
        Effect::StoreIdempotency(Idempotency {
            owner: owner.clone(),
            endpoint: (*endpoint).to_owned(),
            key: key.clone(),
            body_digest: self.body_digest,
            answer,
            expires: self.expires,
        })
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        self.in_flight.lock().remove(&self.scope);
    }
}

/// Returns what is stored as the response to a request that created a job.
pub(crate) fn response_for_job(job: JobId) -> Value {
    [("job", Value::from(job))].into_iter().collect::<Map>().into()
}

/// Returns the job that a stored response names.
pub(crate) fn job_from_response(answer: &Value) -> Option<JobId> {
    answer.as_map()?.field("job")?.as_str()?.parse().ok()
}

/// Maps the failure of a commit that carried an idempotency key.
pub(crate) fn commit_error<E: From<IdempotencyError> + From<StoreError>>(error: CommitError) -> E {
    match error {
        // Another process received the same request.
        CommitError::KeyTaken(_) => IdempotencyError::InFlight.into(),
        CommitError::KeysFull { .. } => IdempotencyError::TooMany.into(),
        error => StoreError::from(error).into(),
    }
}

impl IdempotencyKeys {
    pub(crate) fn new(runtime: Arc<Runtime>, store: Arc<dyn Store>) -> Self {
        IdempotencyKeys { runtime, store, in_flight: Arc::default() }
    }

    /// Looks up a caller's key, and claims it if it is new.
    pub(crate) async fn look_up<E: From<IdempotencyError> + From<StoreError>>(
        &self,
        caller: &Caller,
        key: &IdempotencyKey,
    ) -> Result<KeyLookup, E> {
        let scope = (caller.did.to_string(), key.endpoint, key.key.clone());
        if !self.in_flight.lock().insert(scope.clone()) {
            return Err(IdempotencyError::InFlight.into());
        }
        let lifetime = self.runtime.limits.idempotency.as_millis();
        let lifetime = i64::try_from(lifetime).unwrap_or(i64::MAX);
        let claimed = ClaimedKey {
            in_flight: Arc::clone(&self.in_flight),
            scope,
            body_digest: key.body_digest,
            expires: self.runtime.now().saturating_add(lifetime),
        };
        let stored = self.store.find_idempotency(&caller.did, key.endpoint, &key.key).await;
        match stored.map_err(StoreError::from)? {
            None => Ok(KeyLookup::First(claimed)),
            Some(stored) if stored.expires <= self.runtime.now() => {
                self.remove_expired().await?;
                Ok(KeyLookup::First(claimed))
            }
            Some(stored) if stored.body_digest != key.body_digest => {
                Err(IdempotencyError::Reused.into())
            }
            Some(stored) => Ok(KeyLookup::Answered(stored.answer)),
        }
    }

    /// Removes expired keys and returns how many there were.
    pub(crate) async fn remove_expired(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let effect =
                Effect::ExpireIdempotency { before: self.runtime.now() + 1, limit: EXPIRE_BATCH };
            let receipt = self.store.commit(Effects::one(effect)).await?;
            removed += receipt.expired;
            if receipt.expired < EXPIRE_BATCH as u64 {
                return Ok(removed);
            }
        }
    }
}
