//! Runs a job again, from the start or from a step on. Nothing of the earlier run changes.

use std::sync::Arc;

use catena_job::JobId;
use catena_value::{NoCells, Value};

use crate::commands::Commands;
use crate::error::{ControlError, InvokeError, RerunError, ResolveError};
use crate::jobs::{Current, DELEGATED, Rerun, ReusedStep, check_control};
use crate::operations::Operation;
use crate::requests::{Caller, IdempotencyKey, Invoke, Invoked};

impl Commands {
    /// Runs a job that has ended again. An orchestration can be run from a step on.
    pub(crate) async fn rerun(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        from: Option<u32>,
        key: Option<IdempotencyKey>,
    ) -> Result<Invoked, RerunError> {
        self.execution.check_recorded(id, "be rerun")?;
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
        let reused = self.reusable(&current, &operation, from.unwrap_or(0)).await?;
        let runs_remote_steps = operation.plan().is_some_and(|plan| {
            plan.steps.iter().skip(reused.len()).any(|step| step.venue.is_some())
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

    /// Returns the outputs of all steps before `from`.
    async fn reusable(
        &self,
        current: &Current,
        operation: &Arc<Operation>,
        from: u32,
    ) -> Result<Vec<ReusedStep>, RerunError> {
        let invalid = |text: String| RerunError::Control(ControlError::Invalid(text));
        let steps = operation.plan().map_or(0, |plan| plan.steps.len());
        if from as usize > steps {
            return Err(invalid(format!("there is no step {from}: the job has {steps} steps")));
        }
        let mut reused = Vec::new();
        for step in 0..from {
            let earlier = self.jobs.output_of_step(current, step).await?;
            let earlier = earlier.ok_or_else(|| {
                invalid(format!(
                    "step {step} did not complete here; start from it or an earlier step"
                ))
            })?;
            reused.push(earlier);
        }
        Ok(reused)
    }
}

fn tags_of(current: &Current) -> Vec<String> {
    let tags = current.member("tags").ok().flatten();
    let Some(list) = tags.as_ref().and_then(Value::as_vector) else { return Vec::new() };
    list.iter(&NoCells).flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}
