//! The `steps` member of an orchestration's JSON.

use catena_job::chain::StepState;
use catena_job::plan::Plan;
use catena_job::{Job, Status};
use catena_value::{CellSource, Map, Value, Vector};

use crate::error::{ResolveError, StoreError};
use crate::jobs::{RemoteSnapshot, ReusedEntry, reused_steps};
use crate::operations::federation::RemoteJob;
use crate::views::Views;

/// The members of a step's entry.
type Entry = Vec<(&'static str, Value)>;

impl Views {
    /// Returns one entry per step, from the parent's chain and the sub-jobs. `None` if the job is
    /// not an orchestration.
    pub(crate) async fn steps_of(&self, job: &Job) -> Result<Option<Value>, StoreError> {
        if self.has_no_steps(job) {
            return Ok(None);
        }
        Box::pin(self.steps_of_orchestration(job)).await
    }

    async fn steps_of_orchestration(&self, job: &Job) -> Result<Option<Value>, StoreError> {
        let operation = match self.operations.operation_of(job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let Some(plan) = operation.plan() else { return Ok(None) };
        let mut entries = Vec::with_capacity(plan.steps.len());
        for index in 0..plan.steps.len() {
            entries.push(self.step(job, plan, index).await?);
        }
        Ok(Some(Vector::from_items(entries).into()))
    }

    async fn step(&self, job: &Job, plan: &Plan, index: usize) -> Result<Value, StoreError> {
        let step = &plan.steps[index];
        let number = i64::try_from(index).unwrap_or(i64::MAX);
        let mut entry = vec![("index", Value::from(number)), ("op", step.op.as_str().into())];
        entry.extend(step.name.as_deref().map(|name| ("name", name.into())));
        entry.extend(step.venue.as_deref().map(|venue| ("venue", venue.into())));
        let at = u32::try_from(index).unwrap_or(u32::MAX);
        match (job.steps().get(&at), step.venue.is_some()) {
            (Some(state), true) => self.describe_remote(job, at, state, &mut entry).await?,
            (Some(state), false) => self.describe_started(state, &mut entry).await?,
            (None, is_remote) => self.describe_not_started(job, at, is_remote, &mut entry).await?,
        }
        Ok(entry.into_iter().collect::<Map>().into())
    }

    /// Describes a step that the chain does not name.
    async fn describe_not_started(
        &self,
        job: &Job,
        step: u32,
        is_remote: bool,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        let reused = reused_steps(job.field("reused"));
        if let Some(earlier) = reused.into_iter().find(|earlier| earlier.step == step) {
            entry.push(("id", earlier.job.into()));
            entry.push(("reused", true.into()));
            if earlier.is_remote {
                return self.describe_reused_remote(job, &earlier, entry).await;
            }
            match self.jobs.current(earlier.job).await? {
                Some(child) => self.describe(&child.job, child.cells.as_ref(), entry)?,
                None => entry.push(("status", Status::Complete.into())),
            }
            return Ok(());
        }
        // The job ended while the step was being started on its venue.
        if is_remote
            && job.status().is_terminal()
            && let Some((known, _)) = self.jobs.remote_snapshot(job.id(), step).await?
        {
            entry.push(("id", known.job.into()));
            describe_snapshot(known, entry);
            return Ok(());
        }
        // If the job has ended, the step will never start.
        let status = if job.status().is_terminal() { "SKIPPED" } else { "PENDING" };
        entry.push(("status", status.into()));
        Ok(())
    }

    async fn describe_started(
        &self,
        state: &StepState,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        match self.jobs.current(state.start.job).await? {
            Some(child) => self.describe(&child.job, child.cells.as_ref(), entry),
            None => {
                let status = state.end.as_ref().map_or(Status::Started, |end| end.status);
                entry.push(("status", status.into()));
                describe_end(state, entry);
                Ok(())
            }
        }
    }

    /// Describes a remote step by its end in the chain, or else by its last known state.
    async fn describe_remote(
        &self,
        job: &Job,
        step: u32,
        state: &StepState,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        let known = self.jobs.remote_snapshot(job.id(), step).await?.map(|(known, _)| known);
        let Some(end) = &state.end else {
            describe_snapshot(
                known.unwrap_or_else(|| RemoteSnapshot::from_chain(state, "")),
                entry,
            );
            return Ok(());
        };
        entry.push(("status", end.status.into()));
        describe_end(state, entry);
        if let Some(known) = known.filter(|known| known.state.record == end.record) {
            describe_output(known.state, entry);
        }
        Ok(())
    }

    async fn describe_reused_remote(
        &self,
        job: &Job,
        earlier: &ReusedEntry,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("status", Status::Complete.into()));
        entry.extend(earlier.record.map(|record| ("head", record.into())));
        if let Some((known, _)) = self.jobs.remote_snapshot(job.id(), earlier.step).await? {
            describe_output(known.state, entry);
        }
        Ok(())
    }

    fn describe(
        &self,
        child: &Job,
        cells: Option<&catena_store::JobCells>,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("status", child.status().into()));
        entry.push(("head", child.head().into()));
        if child.status().is_terminal() {
            entry.push(("ended", child.updated().into()));
        }
        let cells: &dyn CellSource = match cells {
            Some(cells) => cells,
            None => &catena_value::NoCells,
        };
        for name in ["output", "error", "message"] {
            if let Some(value) = child.field(name) {
                let value = value.fully_loaded(cells);
                let value = value.map_err(|error| StoreError::Damaged(error.to_string()))?;
                entry.push((name, value));
            }
        }
        Ok(())
    }
}

/// Describes the end of a step by the chain.
fn describe_end(state: &StepState, entry: &mut Entry) {
    entry.extend(state.ended_at.map(|at| ("ended", at.into())));
    entry.extend(state.end.as_ref().map(|end| ("head", end.record.into())));
}

/// Describes the last known state of a remote job, and when it was observed. Nothing here proves
/// that it is still current.
fn describe_snapshot(known: RemoteSnapshot, entry: &mut Entry) {
    entry.push(("status", known.state.status.into()));
    entry.push(("head", known.state.record.into()));
    entry.push(("asOf", known.at.into()));
    describe_output(known.state, entry);
}

/// Describes what a remote job returned.
fn describe_output(state: RemoteJob, entry: &mut Entry) {
    entry.extend(state.output.map(|output| ("output", output)));
    entry.extend(state.error.map(|error| ("error", error.into())));
    entry.extend(state.message.map(|message| ("message", message.into())));
}
