//! Requests that may come twice.
//!
//! A key is committed together with what the request made, so a client that did not get its answer
//! may ask again and get the same. While the first request is being worked on a second one with
//! its key is refused.

use std::collections::HashSet;
use std::sync::Arc;

use catena_job::JobId;
use catena_store::{CommitError, Effect, Effects, Idempotency};
use catena_value::{Map, Value};
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{IdempotencyError, StoreError};
use crate::request::IdempotencyKey;

/// Keys forgotten in one commit.
const EXPIRE_BATCH: usize = 1_000;

type Place = (String, &'static str, String);

/// Keys of requests that are being worked on in this process.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<HashSet<Place>>);

/// What a key led to.
pub(crate) enum Known {
    /// Nothing yet: the request is the first. Holds the key until it is dropped.
    First(Claimed),
    /// An earlier request had this answer.
    Answered(Value),
}

/// A key that is being worked on.
pub(crate) struct Claimed {
    in_flight: Arc<InFlight>,
    place: Place,
    body_digest: [u8; 32],
    expires: i64,
}

impl Claimed {
    /// The effect that remembers the answer.
    pub(crate) fn remember(&self, answer: Value) -> Effect {
        let (owner, endpoint, key) = &self.place;
        Effect::Remember(Idempotency {
            owner: owner.clone(),
            endpoint: (*endpoint).to_owned(),
            key: key.clone(),
            body_digest: self.body_digest,
            answer,
            expires: self.expires,
        })
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.in_flight.0.lock().remove(&self.place);
    }
}

/// The answer that is remembered of a request that made a job.
pub(crate) fn answer_of(job: JobId) -> Value {
    [("job", Value::from(job))].into_iter().collect::<Map>().into()
}

/// The job of a remembered answer.
pub(crate) fn job_of(answer: &Value) -> Option<JobId> {
    answer.as_map()?.field("job")?.as_str()?.parse().ok()
}

/// Why something with a key could not be committed.
pub(crate) fn uncommitted<E: From<IdempotencyError> + From<StoreError>>(error: CommitError) -> E {
    match error {
        // Another process had the same request.
        CommitError::KeyTaken(_) => IdempotencyError::InFlight.into(),
        CommitError::KeysFull { .. } => IdempotencyError::TooMany.into(),
        error => StoreError::from(error).into(),
    }
}

impl Engine {
    /// What is known of a key.
    pub(crate) async fn look_up<E: From<IdempotencyError> + From<StoreError>>(
        &self,
        caller: &Caller,
        key: &IdempotencyKey,
    ) -> Result<Known, E> {
        let place = (caller.did.to_string(), key.endpoint, key.key.clone());
        if !self.0.in_flight.0.lock().insert(place.clone()) {
            return Err(IdempotencyError::InFlight.into());
        }
        let lifetime = i64::try_from(self.0.limits.idempotency.as_millis()).unwrap_or(i64::MAX);
        let claimed = Claimed {
            in_flight: Arc::clone(&self.0.in_flight),
            place,
            body_digest: key.body_digest,
            expires: self.now().saturating_add(lifetime),
        };
        let remembered = self.0.store.remembered(&caller.did, key.endpoint, &key.key).await;
        match remembered.map_err(StoreError::from)? {
            None => Ok(Known::First(claimed)),
            Some(known) if known.expires <= self.now() => {
                self.forget_keys().await?;
                Ok(Known::First(claimed))
            }
            Some(known) if known.body_digest != key.body_digest => {
                Err(IdempotencyError::Reused.into())
            }
            Some(known) => Ok(Known::Answered(known.answer)),
        }
    }

    /// Forgets keys whose time is over.
    pub(crate) async fn forget_keys(&self) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let effect = Effect::Expire { before: self.now() + 1, limit: EXPIRE_BATCH };
            let receipt = self.0.store.commit(Effects::one(effect)).await?;
            forgotten += receipt.expired;
            if receipt.expired < EXPIRE_BATCH as u64 {
                return Ok(forgotten);
            }
        }
    }
}
