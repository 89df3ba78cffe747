//! The steps of an orchestration as people see them.

use catena_job::chain::StepState;
use catena_job::plan::Plan;
use catena_job::{Job, Status};
use catena_value::{CellSource, Map, Value, Vector};

use super::elsewhere::RemoteSnapshot;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::federation::RemoteJob;
use crate::rerun::Earlier;

/// The members of an entry.
type Entry = Vec<(&'static str, Value)>;

impl Engine {
    /// One entry per step, from what the parent's chain and the sub-jobs say; nothing when the job
    /// is not an orchestration.
    pub(crate) async fn steps_of(&self, job: &Job) -> Result<Option<Value>, StoreError> {
        let id = job.field("operation").and_then(Value::as_str).unwrap_or_default();
        if self.0.catalogue.is_plain(id) {
            return Ok(None);
        }
        Box::pin(self.steps_of_orchestration(job)).await
    }

    async fn steps_of_orchestration(&self, job: &Job) -> Result<Option<Value>, StoreError> {
        let operation = match self.operation_of(job).await {
            Ok(operation) => operation,
            Err(crate::error::ResolveError::Store(trouble)) => return Err(trouble),
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
            (Some(state), true) => self.describe_away(job, at, state, &mut entry).await?,
            (Some(state), false) => self.describe_begun(state, &mut entry).await?,
            (None, is_away) => self.describe_unbegun(job, at, is_away, &mut entry).await?,
        }
        Ok(entry.into_iter().collect::<Map>().into())
    }

    /// A step that the chain says nothing of.
    async fn describe_unbegun(
        &self,
        job: &Job,
        step: u32,
        is_away: bool,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        let reused = crate::rerun::reused_of(job.field("reused"));
        if let Some(earlier) = reused.into_iter().find(|earlier| earlier.step == step) {
            entry.push(("id", earlier.job.into()));
            entry.push(("reused", true.into()));
            if earlier.is_away {
                return self.describe_reused_away(job, &earlier, entry).await;
            }
            match self.current(earlier.job).await? {
                Some(child) => self.describe(&child.job, child.cells.as_ref(), entry)?,
                None => entry.push(("status", Status::Complete.into())),
            }
            return Ok(());
        }
        // One that was given up while it was being begun elsewhere.
        if is_away
            && job.status().is_terminal()
            && let Some((known, _)) = self.snapshot(job.id(), step).await?
        {
            entry.push(("id", known.job.into()));
            describe_sighting(known, entry);
            return Ok(());
        }
        // A step of a job that has ended and that never began never will.
        let status = if job.status().is_terminal() { "SKIPPED" } else { "PENDING" };
        entry.push(("status", status.into()));
        Ok(())
    }

    async fn describe_begun(&self, state: &StepState, entry: &mut Entry) -> Result<(), StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        match self.current(state.start.job).await? {
            Some(child) => self.describe(&child.job, child.cells.as_ref(), entry),
            None => {
                let status = state.end.as_ref().map_or(Status::Started, |end| end.status);
                entry.push(("status", status.into()));
                describe_end(state, entry);
                Ok(())
            }
        }
    }

    /// A step on another venue: what the chain says of its end, or else where it was last seen.
    async fn describe_away(
        &self,
        job: &Job,
        step: u32,
        state: &StepState,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        let known = self.snapshot(job.id(), step).await?.map(|(known, _)| known);
        let Some(end) = &state.end else {
            describe_sighting(known.unwrap_or_else(|| RemoteSnapshot::of_chain(state, "")), entry);
            return Ok(());
        };
        entry.push(("status", end.status.into()));
        describe_end(state, entry);
        if let Some(known) = known.filter(|known| known.seen.record == end.record) {
            describe_said(known.seen, entry);
        }
        Ok(())
    }

    async fn describe_reused_away(
        &self,
        job: &Job,
        earlier: &Earlier,
        entry: &mut Entry,
    ) -> Result<(), StoreError> {
        entry.push(("status", Status::Complete.into()));
        entry.extend(earlier.record.map(|record| ("head", record.into())));
        if let Some((known, _)) = self.snapshot(job.id(), earlier.step).await? {
            describe_said(known.seen, entry);
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

/// How a step ended, as the chain says.
fn describe_end(state: &StepState, entry: &mut Entry) {
    entry.extend(state.ended_at.map(|at| ("ended", at.into())));
    entry.extend(state.end.as_ref().map(|end| ("head", end.record.into())));
}

/// Where a job on another venue was last seen, and when: nothing here proves that it still is there.
fn describe_sighting(known: RemoteSnapshot, entry: &mut Entry) {
    entry.push(("status", known.seen.status.into()));
    entry.push(("head", known.seen.record.into()));
    entry.push(("asOf", known.at.into()));
    describe_said(known.seen, entry);
}

/// What a job on another venue said.
fn describe_said(seen: RemoteJob, entry: &mut Entry) {
    entry.extend(seen.output.map(|output| ("output", output)));
    entry.extend(seen.error.map(|error| ("error", error.into())));
    entry.extend(seen.message.map(|message| ("message", message.into())));
}
