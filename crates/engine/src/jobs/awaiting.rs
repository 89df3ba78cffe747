//! The calls that a job waits for which its worker has given back.
//!
//! They are stored in a root of the venue, in the commit that releases the job, and removed in the
//! commit that offers it again or ends it.

// The name of the root and the form of its value are part of the data format.

use catena_job::JobId;
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{Value, ValueId, Vector};

use crate::error::StoreError;
use crate::jobs::Jobs;

/// The owner of the roots.
const AWAITING: &str = "awaiting";

/// The calls that a job waits for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    pub(crate) keys: Vec<String>,
    /// The ID of the stored value.
    stored: ValueId,
    job: JobId,
}

impl Awaited {
    /// Returns the effect that removes it.
    pub(crate) fn clear(&self) -> Effect {
        Effect::SetRoot { key: key(self.job), expected: Some(self.stored), value: None }
    }
}

fn key(job: JobId) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: AWAITING.to_owned(), name: job.to_hex() }
}

impl Jobs {
    /// Returns the effect that stores what a job waits for, in place of what it waited for before.
    pub(crate) fn store_awaited(
        &self,
        job: JobId,
        keys: &[String],
        earlier: Option<&Awaited>,
    ) -> Effect {
        let keys: Vector = keys.iter().map(|key| Value::from(key.as_str())).collect();
        let expected = earlier.map(|earlier| earlier.stored);
        Effect::SetRoot { key: key(job), expected, value: Some(keys.into()) }
    }

    /// Returns what a job waits for. `None` if its worker has not given it back.
    pub(crate) async fn awaited(&self, job: JobId) -> Result<Option<Awaited>, StoreError> {
        let Some(root) = self.store.root(&key(job)).await? else { return Ok(None) };
        let cells = self.store.cells();
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let value = root.value.fully_loaded(&*cells).map_err(damaged)?;
        let mut keys = Vec::new();
        if let Some(items) = value.as_vector() {
            for item in items.iter(&*cells) {
                keys.extend(item.map_err(damaged)?.as_str().map(str::to_owned));
            }
        }
        Ok(Some(Awaited { keys, stored: root.id, job }))
    }
}
