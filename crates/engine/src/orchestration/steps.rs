//! The steps of an orchestration as people see them.

use catena_job::plan::Plan;
use catena_job::{Job, Status};
use catena_value::{CellSource, Map, Value, Vector};

use crate::engine::Engine;
use crate::error::StoreTrouble;

impl Engine {
    /// One entry per step, from what the parent's chain and the sub-jobs say; nothing when the job
    /// is not an orchestration.
    pub(crate) async fn steps_of(&self, job: &Job) -> Result<Option<Value>, StoreTrouble> {
        let id = job.field("operation").and_then(Value::as_str).unwrap_or_default();
        if self.0.catalogue.is_plain(id) {
            return Ok(None);
        }
        Box::pin(self.steps_of_orchestration(job)).await
    }

    async fn steps_of_orchestration(&self, job: &Job) -> Result<Option<Value>, StoreTrouble> {
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

    async fn step(&self, job: &Job, plan: &Plan, index: usize) -> Result<Value, StoreTrouble> {
        let step = &plan.steps[index];
        let number = i64::try_from(index).unwrap_or(i64::MAX);
        let mut entry = vec![("index", Value::from(number)), ("op", step.op.as_str().into())];
        entry.extend(step.name.as_deref().map(|name| ("name", name.into())));
        entry.extend(step.venue.as_deref().map(|venue| ("venue", venue.into())));
        let state = u32::try_from(index).ok().and_then(|index| job.steps().get(&index));
        let Some(state) = state else {
            let reused = crate::rerun::reused_of(job.field("reused"));
            let earlier = reused.into_iter().find(|(step, _)| *step as usize == index);
            if let Some((_, earlier)) = earlier {
                entry.push(("id", earlier.into()));
                entry.push(("reused", true.into()));
                match self.current(earlier).await? {
                    Some(child) => self.describe(&child.job, child.cells.as_ref(), &mut entry)?,
                    None => entry.push(("status", Status::Complete.into())),
                }
                return Ok(entry.into_iter().collect::<Map>().into());
            }
            // A step of a job that has ended and that never began never will.
            let status = if job.status().is_terminal() { "SKIPPED" } else { "PENDING" };
            entry.push(("status", status.into()));
            return Ok(entry.into_iter().collect::<Map>().into());
        };
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        match self.current(state.start.job).await? {
            Some(child) => self.describe(&child.job, child.cells.as_ref(), &mut entry)?,
            None => {
                let status = state.end.as_ref().map_or(Status::Started, |end| end.status);
                entry.push(("status", status.into()));
                entry.extend(state.ended_at.map(|at| ("ended", at.into())));
                entry.extend(state.end.as_ref().map(|end| ("head", end.record.into())));
            }
        }
        Ok(entry.into_iter().collect::<Map>().into())
    }

    fn describe(
        &self,
        child: &Job,
        cells: Option<&catena_store::JobCells>,
        entry: &mut Vec<(&'static str, Value)>,
    ) -> Result<(), StoreTrouble> {
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
                let value = value.map_err(|error| StoreTrouble::Damaged(error.to_string()))?;
                entry.push((name, value));
            }
        }
        Ok(())
    }
}
