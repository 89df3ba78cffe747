//! Runs a job again, completely or in part. Nothing of the earlier run changes.
//!
//! What runs is selected by dependency: the steps that did not complete or that the caller names, and
//! everything that depends on them. The outputs of all other steps are reused, and the new job keeps
//! them, because the earlier run may be deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use catena_job::plan::Graph;
use catena_job::{JobId, Status};
use catena_value::{NoCells, Value};

use crate::commands::Commands;
use crate::error::{ControlError, InvokeError, RerunError, ResolveError};
use crate::jobs::{Current, DELEGATED, Rerun, ReusedStep, check_control, reused_steps};
use crate::operations::Operation;
use crate::requests::{Caller, IdempotencyKey, Invoke, Invoked, RerunScope};

impl Commands {
    /// Runs a job that has ended again, or those of its steps that the scope selects.
    pub(crate) async fn rerun(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        scope: RerunScope,
        key: Option<IdempotencyKey>,
    ) -> Result<Invoked, RerunError> {
        self.execution.check_recorded(caller, id, "be rerun")?;
        let current = self.jobs.current(id).await?.ok_or(ControlError::NotFound(id))?;
        check_control(caller, &current)?;
        let status = current.job.status();
        if !status.is_terminal() {
            let action = "be rerun";
            return Err(ControlError::Conflict { job: id, status, action }.into());
        }
        if let Some(parent) = current.job.parent() {
            return Err(ControlError::SubJob { job: id, root: parent.job }.into());
        }
        if current.job.field("redacted").is_some() {
            let text = "its input had secret fields, which were erased when it ended; invoke the operation again";
            return Err(ControlError::Invalid(text.to_owned()).into());
        }
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(InvokeError::from(error).into()),
        };
        let reused = self.reusable(&current, &operation, scope).await?;
        let is_reused = |step: u32| reused.iter().any(|reused| reused.step == step);
        let runs_remote_steps = operation.plan().is_some_and(|plan| {
            (0..).zip(&plan.steps).any(|(at, step)| step.venue.is_some() && !is_reused(at))
        });
        if runs_remote_steps
            && current.job.field(DELEGATED).is_some()
            && caller.delegations_for(&self.jobs.did).is_empty()
        {
            let text = "its remote steps ran with delegations, which were erased when it ended; \
                invoke the operation again with `ucans`";
            return Err(ControlError::Invalid(text.to_owned()).into());
        }
        let input = current.member("input")?.unwrap_or_default();
        let request = Invoke {
            tags: tags_of(&current),
            idempotency: key,
            ..Invoke::new(caller.clone(), current.text("op"), input)
        };
        let rerun = Rerun { job: id, head: current.job.head(), reused };
        Ok(self.invoke_rerun(request, operation, rerun).await?)
    }

    /// Returns the outputs of the steps that do not run again.
    async fn reusable(
        &self,
        current: &Current,
        operation: &Arc<Operation>,
        scope: RerunScope,
    ) -> Result<Vec<ReusedStep>, RerunError> {
        let steps = operation.plan().map_or(0, |plan| plan.steps.len());
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        if let RerunScope::From(from) = scope
            && from > steps
        {
            let text = format!("there is no step {from}: the job has {steps} steps");
            return Err(ControlError::Invalid(text).into());
        }
        let Some(plan) = operation.plan() else { return Ok(Vec::new()) };
        let graph = operation.graph().unwrap_or_else(|| Arc::new(plan.graph()));
        let rerun = self.steps_to_run(current, &graph, steps, scope).await?;
        let mut reused = Vec::new();
        for step in (0..steps).filter(|step| !rerun.contains(step)) {
            let earlier = self.jobs.output_of_step(current, step).await?;
            reused.push(earlier.ok_or(RerunError::StepGone { step })?);
        }
        Ok(reused)
    }

    /// Returns the steps that run again: those that the scope selects, and what depends on them.
    async fn steps_to_run(
        &self,
        current: &Current,
        graph: &Graph,
        steps: u32,
        scope: RerunScope,
    ) -> Result<BTreeSet<u32>, RerunError> {
        let is_complete = current.job.status() == Status::Complete;
        let mut open: Vec<u32> = match scope {
            RerunScope::Everything => return Ok((0..steps).collect()),
            // If nothing is left to be done, everything is done again.
            RerunScope::Unfinished if is_complete => return Ok((0..steps).collect()),
            RerunScope::Unfinished => Vec::new(),
            RerunScope::From(from) => (from..steps).take(1).collect(),
        };
        let reused = reused_steps(current.member("reused")?.as_ref());
        for step in 0..steps {
            let is_reused = reused.iter().any(|earlier| earlier.step == step);
            if !is_reused && !self.check_step_complete(current, step).await? {
                open.push(step);
            }
        }
        let mut found = BTreeSet::new();
        while let Some(step) = open.pop() {
            if found.insert(step) {
                open.extend(graph.dependents(step));
            }
        }
        Ok(found)
    }

    /// Returns true if a step has completed, and fails if it still runs. A step that its parent left running may complete after
    /// the parent's end; until it has ended, it can be neither reused nor run a second time.
    async fn check_step_complete(&self, current: &Current, step: u32) -> Result<bool, RerunError> {
        let Some(state) = current.job.steps().get(&step) else { return Ok(false) };
        if let Some(end) = &state.end {
            return Ok(end.status == Status::Complete);
        }
        if state.start.venue.is_some() {
            return Ok(false);
        }
        match self.jobs.current(state.start.job).await?.map(|child| child.job.status()) {
            None => Ok(false),
            Some(status) if status.is_terminal() => Ok(status == Status::Complete),
            Some(status) => {
                let text = format!(
                    "step {step} is still {status} in job {}; wait for its end or cancel it",
                    state.start.job
                );
                Err(ControlError::Invalid(text).into())
            }
        }
    }
}

fn tags_of(current: &Current) -> Vec<String> {
    let tags = current.member("tags").ok().flatten();
    let Some(list) = tags.as_ref().and_then(Value::as_vector) else { return Vec::new() };
    list.iter(&NoCells).flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}
