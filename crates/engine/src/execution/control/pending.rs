//! A control request that is committed for a job and not yet carried out on everything below it.

// The names of the stored root and its members are part of the data format.

use catena_job::state::Event;
use catena_job::{Job, JobId, RecordId, Status};
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{CellSource, Map, NoCells, Value, ValueId};

use super::ControlAction;
use crate::error::StoreError;
use crate::jobs::{Current, Jobs};

/// The owner of the roots.
const PENDING_CONTROL: &str = "control";

/// The name of the request to delete a tree.
const DELETE: &str = "delete";

/// Roots that are read at a time.
const PAGE: usize = 256;

/// A request that is still to be carried out below a job.
#[derive(Debug, Clone)]
pub(crate) struct PendingControl {
    pub(crate) job: JobId,
    /// The record of the job that says so.
    pub(crate) control: RecordId,
    /// When it was requested, as Unix time in ms: pauses after it are not undone.
    pub(crate) at: i64,
    action: &'static str,
    /// The DID of who requested a deletion.
    pub(crate) by: Option<String>,
    /// The ID of the stored value.
    stored: Option<ValueId>,
}

fn key(job: JobId) -> RootKey {
    let name = job.to_hex();
    RootKey { space: RootSpace::Venue, owner: PENDING_CONTROL.to_owned(), name }
}

impl PendingControl {
    pub(super) fn new(job: &Job, action: &ControlAction) -> PendingControl {
        let action = match action {
            ControlAction::Pause => "pause",
            ControlAction::Resume => "resume",
            ControlAction::End(_) => "cancel",
        };
        PendingControl {
            job: job.id(),
            control: job.head(),
            at: job.updated(),
            action,
            by: None,
            stored: None,
        }
    }

    /// Creates the request to cancel everything below a job that has ended.
    pub(crate) fn cancel(job: &Job) -> PendingControl {
        PendingControl::new(job, &ControlAction::End(Event::Cancelled { error: String::new() }))
    }

    /// Creates the request to delete a job that has ended and everything below it. `by` is the DID of
    /// who requests it.
    pub(crate) fn delete(job: &Job, by: Option<&str>) -> PendingControl {
        let by = by.map(str::to_owned);
        PendingControl { action: DELETE, by, ..PendingControl::cancel(job) }
    }

    /// Returns true if everything is to be deleted, which is not the reconciler's work.
    pub(crate) fn is_deletion(&self) -> bool {
        self.action == DELETE
    }

    fn to_value(&self) -> Value {
        let mut members = vec![
            ("action", Value::from(self.action)),
            ("control", self.control.into()),
            ("at", self.at.into()),
        ];
        members.extend(self.by.as_deref().map(|by| ("by", by.into())));
        members.into_iter().collect::<Map>().into()
    }

    fn from_value(job: JobId, value: &Value, stored: ValueId) -> Option<PendingControl> {
        let member = |name: &str| value.as_map()?.get(&name.into(), &NoCells).ok()?;
        let text = |name: &str| member(name).and_then(|text| Some(text.to_text()?.into_owned()));
        let action = match text("action")?.as_str() {
            "pause" => "pause",
            "resume" => "resume",
            DELETE => DELETE,
            _ => "cancel",
        };
        let control = text("control")?.parse().ok()?;
        let at = member("at")?.as_i64()?;
        Some(PendingControl { job, control, at, action, by: text("by"), stored: Some(stored) })
    }

    /// Returns the effect that stores it in place of an earlier one.
    pub(crate) fn store(&self, earlier: Option<&PendingControl>) -> Effect {
        let expected = earlier.and_then(|earlier| earlier.stored);
        Effect::SetRoot { key: key(self.job), expected, value: Some(self.to_value()) }
    }

    /// Returns the effect that removes it, unless a later one has replaced it.
    pub(crate) fn clear(&self) -> Effect {
        Effect::SetRoot { key: key(self.job), expected: self.stored, value: None }
    }

    /// Returns the effect that changes nothing, and is refused if a later one has replaced it.
    pub(super) fn check(&self) -> Effect {
        Effect::SetRoot { key: key(self.job), expected: self.stored, value: Some(self.to_value()) }
    }

    /// Returns true if the other one is this one, as it is stored.
    pub(super) fn is_same(&self, other: &PendingControl) -> bool {
        self.job == other.job && self.stored == other.stored
    }

    /// Returns true if there is nothing left to carry out: a pause applies while its job is PAUSED.
    pub(super) fn is_over(&self, root: &Current) -> bool {
        self.action == "pause" && root.job.status() != Status::Paused
    }

    /// Returns what is requested, given the job as it is now.
    pub(super) fn action(&self, root: &Current) -> ControlAction {
        match self.action {
            "pause" => ControlAction::Pause,
            "resume" => ControlAction::Resume,
            _ => ControlAction::End(match root.job.status() {
                Status::Timeout => Event::Expired { error: String::new() },
                Status::Failed => Event::Erred { error: String::new() },
                _ => Event::Cancelled { error: String::new() },
            }),
        }
    }
}

impl Jobs {
    /// Returns the request that is still to be carried out below a job.
    pub(crate) async fn pending_control(
        &self,
        job: JobId,
    ) -> Result<Option<PendingControl>, StoreError> {
        let Some(root) = self.store.root(&key(job)).await? else { return Ok(None) };
        let cells = self.store.cells();
        let cells: &dyn CellSource = &*cells;
        let value = root.value.fully_loaded(cells);
        let value = value.map_err(|error| StoreError::Damaged(error.to_string()))?;
        Ok(PendingControl::from_value(job, &value, root.id))
    }

    /// Returns the jobs below which a request is still to be carried out.
    pub(crate) async fn all_pending_controls(&self) -> Result<Vec<JobId>, StoreError> {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let space = RootSpace::Venue;
            let names = self.store.roots(space, PENDING_CONTROL, after.as_deref(), PAGE).await?;
            let Some(last) = names.last() else { return Ok(found) };
            after = Some(last.clone());
            found.extend(names.iter().filter_map(|name| name.parse::<JobId>().ok()));
        }
    }
}
