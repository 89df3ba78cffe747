//! Outputs that a rerun takes over from an earlier run.
//!
//! The first record of a rerun names the earlier run, and in `reused` the sub-jobs whose outputs it
//! reuses by the IDs of their last records, so that they can be verified with it. It carries the
//! outputs themselves in `reusedOutputs`, in the same order, because the earlier run may be deleted.
//! Reruns of earlier versions have no `reusedOutputs`; they read the outputs from the earlier run.

use catena_job::{JobId, RecordId, Status};
use catena_value::{Map, NoCells, Value, Vector};

use crate::error::StoreError;
use crate::jobs::{Current, Jobs, RemoteSnapshot};

/// The member of a first record with the outputs that a rerun reuses, in the order of `reused`.
pub(crate) const REUSED_OUTPUTS: &str = "reusedOutputs";

/// A step whose output is reused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReusedStep {
    pub(crate) step: u32,
    /// The sub-job of the earlier run.
    pub(crate) job: JobId,
    /// The ID of its last record.
    pub(crate) record: RecordId,
    pub(crate) output: Value,
    /// Its snapshot, if it ran on another venue.
    pub(crate) remote: Option<Box<RemoteSnapshot>>,
}

/// What a job's first record says of a step whose output it reuses.
pub(crate) struct ReusedEntry {
    pub(crate) step: u32,
    /// The sub-job of the earlier run.
    pub(crate) job: JobId,
    /// The ID of its last record.
    pub(crate) record: Option<RecordId>,
    /// True if it ran on another venue.
    pub(crate) is_remote: bool,
}

/// What a rerun takes over from an earlier run.
#[derive(Debug, Clone)]
pub(crate) struct Rerun {
    pub(crate) job: JobId,
    /// The head of the earlier run.
    pub(crate) head: RecordId,
    pub(crate) reused: Vec<ReusedStep>,
}

impl Rerun {
    /// Returns the members of the first record that name the earlier run and what is reused.
    pub(crate) fn record_members(&self) -> Vec<(&'static str, Value)> {
        let of: Map =
            [("job", Value::from(self.job)), ("head", self.head.into())].into_iter().collect();
        let mut members = vec![("rerunOf", Value::from(of))];
        if !self.reused.is_empty() {
            let entry = |reused: &ReusedStep| -> Value {
                let mut members = vec![
                    ("step", Value::from(reused.step)),
                    ("job", reused.job.into()),
                    ("record", reused.record.into()),
                ];
                let venue = reused.remote.as_ref().map(|remote| remote.venue.as_str());
                members.extend(venue.map(|venue| ("venue", venue.into())));
                members.into_iter().collect::<Map>().into()
            };
            let reused: Vector = self.reused.iter().map(entry).collect();
            members.push(("reused", reused.into()));
            let outputs: Vector = self.reused.iter().map(|reused| reused.output.clone()).collect();
            members.push((REUSED_OUTPUTS, outputs.into()));
        }
        members
    }
}

impl Jobs {
    /// Returns the output of a completed step, which may itself be reused. `None` if the step did
    /// not complete or its output is no longer stored.
    pub(crate) async fn output_of_step(
        &self,
        current: &Current,
        step: u32,
    ) -> Result<Option<ReusedStep>, StoreError> {
        let (job, is_remote) = match current.job.steps().get(&step) {
            Some(state) => (state.start.job, state.start.venue.is_some()),
            None => {
                let taken = reused_steps(current.member("reused")?.as_ref());
                let taken = taken.into_iter().enumerate().find(|(_, earlier)| earlier.step == step);
                let Some((at, taken)) = taken else { return Ok(None) };
                if !taken.is_remote
                    && let Some(record) = taken.record
                    && let Some(output) = kept_output(current, at)?
                {
                    let job = taken.job;
                    return Ok(Some(ReusedStep { step, job, record, output, remote: None }));
                }
                (taken.job, taken.is_remote)
            }
        };
        if is_remote {
            return self.output_of_remote_step(current, step, job).await;
        }
        let Some(child) = self.current(job).await? else { return Ok(None) };
        if child.job.status() != Status::Complete {
            return Ok(None);
        }
        let record = child.job.head();
        let output = child.member("output")?.unwrap_or_default();
        Ok(Some(ReusedStep { step, job, record, output, remote: None }))
    }

    /// Returns the output of a remote step, as it is stored here. Unless the step was reused, the
    /// chain must name the record that the stored state has.
    async fn output_of_remote_step(
        &self,
        current: &Current,
        step: u32,
        job: JobId,
    ) -> Result<Option<ReusedStep>, StoreError> {
        let Some((known, _)) = self.remote_snapshot(current.job.id(), step).await? else {
            return Ok(None);
        };
        let record = known.state.record;
        let is_recorded = current
            .job
            .steps()
            .get(&step)
            .is_none_or(|state| state.end.as_ref().is_some_and(|end| end.record == record));
        if known.state.status != Status::Complete || !is_recorded {
            return Ok(None);
        }
        let output = known.state.output.clone().unwrap_or_default();
        Ok(Some(ReusedStep { step, job, record, output, remote: Some(Box::new(known)) }))
    }

    /// Returns what a rerun reuses, read from the store. A step whose output is missing is returned as
    /// an error.
    pub(crate) async fn reused_outputs(
        &self,
        current: &Current,
    ) -> Result<Vec<Result<ReusedStep, u32>>, StoreError> {
        let mut all = Vec::new();
        for earlier in reused_steps(current.member("reused")?.as_ref()) {
            let found = self.output_of_step(current, earlier.step).await?;
            all.push(found.ok_or(earlier.step));
        }
        Ok(all)
    }
}

/// Returns an output that a rerun carries. `None` if it was created by an earlier version.
pub(crate) fn kept_output(current: &Current, at: usize) -> Result<Option<Value>, StoreError> {
    let outputs = current.member(REUSED_OUTPUTS)?;
    let Some(outputs) = outputs.as_ref().and_then(Value::as_vector) else { return Ok(None) };
    let output = outputs.iter(&NoCells).nth(at).transpose();
    output.map_err(|error| StoreError::Damaged(format!("`{REUSED_OUTPUTS}`: {error}")))
}

/// Parses the `reused` member of a first record.
pub(crate) fn reused_steps(member: Option<&Value>) -> Vec<ReusedEntry> {
    let Some(list) = member.and_then(Value::as_vector) else { return Vec::new() };
    let read = |entry: Value| {
        let field = |name: &str| entry.as_map()?.get(&name.into(), &NoCells).ok()?;
        let step = u32::try_from(field("step")?.as_i64()?).ok()?;
        let job = field("job")?.as_str()?.parse().ok()?;
        let record = field("record").and_then(|record| record.as_str()?.parse().ok());
        Some(ReusedEntry { step, job, record, is_remote: field("venue").is_some() })
    };
    list.iter(&NoCells).flatten().filter_map(read).collect()
}
