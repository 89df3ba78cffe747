//! What is left of a job that was deleted: its ID, its head, who deleted it, and when.
//!
//! The head is that of every complete copy of the history that somebody kept, so such a copy can
//! still be proved to be the job's. Nothing of the job's content remains.

// The names of the stored roots and their members are part of the data format.

use catena_job::{Job, JobId, RecordId};
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{Map, Value};

use crate::error::StoreError;
use crate::jobs::Jobs;
use crate::requests::Caller;

/// The owner of the roots that are found by the ID of a job.
const ALL: &str = "tombstones";

/// What is left of a deleted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The job.
    pub job: JobId,
    /// The ID of its last record.
    pub head: RecordId,
    /// The DID of the caller that it belonged to.
    pub owner: String,
    /// The DID of the caller that deleted it.
    pub by: String,
    /// When it was deleted, as Unix time in ms.
    pub at: i64,
}

/// The owner of the roots that are found by the owner of a job.
fn of_owner(owner: &str) -> String {
    format!("{ALL} {owner}")
}

fn key(owner: String, name: String) -> RootKey {
    RootKey { space: RootSpace::Venue, owner, name }
}

impl Tombstone {
    /// Describes a job that is deleted now.
    pub(crate) fn new(job: &Job, by: &str, at: i64) -> Tombstone {
        let owner = job.field("caller").and_then(Value::as_str).unwrap_or_default().to_owned();
        Tombstone { job: job.id(), head: job.head(), owner, by: by.to_owned(), at }
    }

    /// Returns the effects that store it.
    pub(crate) fn store(&self) -> Vec<Effect> {
        let name = self.job.to_hex();
        let store = |owner: String, value: Value| Effect::SetRoot {
            key: key(owner, name.clone()),
            expected: None,
            value: Some(value),
        };
        let members = [
            ("head", Value::from(self.head)),
            ("owner", self.owner.as_str().into()),
            ("by", self.by.as_str().into()),
            ("at", self.at.into()),
        ];
        let value: Map = members.into_iter().collect();
        vec![store(ALL.to_owned(), value.into()), store(of_owner(&self.owner), true.into())]
    }

    fn from_value(job: JobId, value: &Value) -> Option<Tombstone> {
        let members = value.as_map()?;
        let text = |name: &str| Some(members.field(name)?.to_text()?.into_owned());
        Some(Tombstone {
            job,
            head: text("head")?.parse().ok()?,
            owner: text("owner")?,
            by: text("by")?,
            at: members.field("at")?.as_i64()?,
        })
    }
}

impl Jobs {
    /// Returns what is left of a deleted job. `None` if nothing is.
    pub(crate) async fn tombstone(&self, job: JobId) -> Result<Option<Tombstone>, StoreError> {
        let Some(root) = self.store.root(&key(ALL.to_owned(), job.to_hex())).await? else {
            return Ok(None);
        };
        let value = root.value.fully_loaded(&*self.store.cells());
        let value = value.map_err(|error| StoreError::Damaged(error.to_string()))?;
        Ok(Tombstone::from_value(job, &value))
    }

    /// Returns tombstones of jobs of the caller, of another owner or, for the owner `*`, of all, in the
    /// order of their IDs.
    pub(crate) async fn tombstones(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        let owner = match owner {
            Some("*") => ALL.to_owned(),
            Some(owner) => of_owner(owner),
            None => of_owner(&caller.did),
        };
        let after = after.map(|after| after.to_hex());
        let space = RootSpace::Venue;
        let names = self.store.roots(space, &owner, after.as_deref(), limit).await?;
        let mut found = Vec::with_capacity(names.len());
        for job in names.iter().filter_map(|name| name.parse().ok()) {
            found.extend(self.tombstone(job).await?);
        }
        Ok(found)
    }
}
