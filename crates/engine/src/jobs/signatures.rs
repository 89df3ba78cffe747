//! The signatures of ends, which are kept next to the chain.
//!
//! A signature is stored in a root of the venue, in the commit that ends the job, and removed with the
//! job. Only jobs of workers have one.

// The name of the root and the form of its value are part of the data format.

use catena_job::signature::SignedEnd;
use catena_job::{Job, JobId};
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::Value;

use crate::error::StoreError;
use crate::jobs::{Draft, Jobs};
use crate::operations::QUEUE_NAME;

/// The owner of the roots.
const SIGNATURES: &str = "signatures";

fn key(job: JobId) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: SIGNATURES.to_owned(), name: job.to_hex() }
}

impl Jobs {
    /// Adds the signature of an end to the change that ends the job, if the record says what was signed:
    /// an output that violates the schema, for instance, is recorded as a failure, which nobody signed.
    pub(crate) fn keep_signature(&self, draft: &mut Draft, end: &SignedEnd, signature: &str) {
        let job = draft.job();
        if end.agrees_with(job.status(), |name| job.field(name).cloned()) {
            let value = Some(end.to_stored(signature));
            let effect = Effect::SetRoot { key: key(job.id()), expected: None, value };
            draft.add(effect);
        }
    }

    /// Returns the signature of the end of a job. `None` if there is none.
    pub(crate) async fn signature(&self, job: &Job) -> Result<Option<Value>, StoreError> {
        if !may_be_signed(job) {
            return Ok(None);
        }
        let Some(root) = self.store.root(&key(job.id())).await? else { return Ok(None) };
        let value = root.value.fully_loaded(&*self.store.cells());
        value.map(Some).map_err(|error| StoreError::Damaged(error.to_string()))
    }

    /// Returns the effect that removes the signature of a job, if it has one.
    pub(crate) async fn remove_signature(&self, job: &Job) -> Result<Option<Effect>, StoreError> {
        if !may_be_signed(job) {
            return Ok(None);
        }
        let root = self.store.root(&key(job.id())).await?;
        let remove = |expected| Effect::SetRoot { key: key(job.id()), expected, value: None };
        Ok(root.map(|root| remove(Some(root.id))))
    }
}

/// Returns true if a worker ended a job.
fn may_be_signed(job: &Job) -> bool {
    job.status().is_terminal() && job.field(QUEUE_NAME).is_some()
}
