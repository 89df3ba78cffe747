//! Runs a job again, from the start or from a step on.
//!
//! The new job names the run it repeats, and the sub-jobs whose outputs it takes over by their last
//! records: whoever checks it can check those too. Nothing of the old run changes.

use std::sync::Arc;

use catena_job::{JobId, RecordId, Status};
use catena_value::{Map, NoCells, Value, Vector};

use crate::caller::Caller;
use crate::change::Current;
use crate::engine::Engine;
use crate::error::{ControlError, InvokeError, ResolveError, StoreError};
use crate::operation::Operation;
use crate::orchestration::elsewhere::RemoteSnapshot;
use crate::pause::may_control;
use crate::request::{IdempotencyKey, Invoke, Invoked};
use crate::sealed;

/// A step whose output is taken over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reused {
    pub(crate) step: u32,
    /// The sub-job of the earlier run.
    pub(crate) job: JobId,
    /// Its last record.
    pub(crate) record: RecordId,
    pub(crate) output: Value,
    /// What is known of it, when it is on another venue.
    pub(crate) away: Option<Box<RemoteSnapshot>>,
}

/// What a job's first record says of a step whose output was taken over.
pub(crate) struct Earlier {
    pub(crate) step: u32,
    /// The sub-job of the earlier run.
    pub(crate) job: JobId,
    /// Its last record.
    pub(crate) record: Option<RecordId>,
    /// Whether it is on another venue.
    pub(crate) is_away: bool,
}

/// What a run takes over from an earlier one.
#[derive(Debug, Clone)]
pub(crate) struct Rerun {
    job: JobId,
    head: RecordId,
    pub(crate) reused: Vec<Reused>,
}

impl Rerun {
    /// The members of the first record that say so.
    pub(crate) fn members(&self) -> Vec<(&'static str, Value)> {
        let of: Map =
            [("job", Value::from(self.job)), ("head", self.head.into())].into_iter().collect();
        let mut members = vec![("rerunOf", Value::from(of))];
        if !self.reused.is_empty() {
            let entry = |reused: &Reused| -> Value {
                let mut members = vec![
                    ("step", Value::from(reused.step)),
                    ("job", reused.job.into()),
                    ("record", reused.record.into()),
                ];
                let venue = reused.away.as_ref().map(|away| away.venue.as_str());
                members.extend(venue.map(|venue| ("venue", venue.into())));
                members.into_iter().collect::<Map>().into()
            };
            let reused: Vector = self.reused.iter().map(entry).collect();
            members.push(("reused", reused.into()));
        }
        members
    }
}

/// Why a job was not run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    /// The job cannot be seen, or stands where it cannot be run again.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No job was made.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
}

impl From<StoreError> for RerunError {
    fn from(trouble: StoreError) -> Self {
        RerunError::Control(trouble.into())
    }
}

impl Engine {
    /// Runs a job that has ended again; from a step on, when it is an orchestration.
    pub async fn rerun(
        &self,
        caller: &Caller,
        id: JobId,
        from: Option<u32>,
        key: Option<IdempotencyKey>,
    ) -> Result<Invoked, RerunError> {
        self.check_recorded(id, "be run again")?;
        let current = self.current(id).await?.ok_or(ControlError::NotFound(id))?;
        may_control(caller, &current)?;
        let status = current.job.status();
        if !status.is_terminal() {
            let action = "be run again";
            return Err(ControlError::Conflict { job: id, status, action }.into());
        }
        if let Some(parent) = current.job.parent() {
            return Err(ControlError::SubJob { job: id, root: parent.job }.into());
        }
        if current.job.field("redacted").is_some() {
            let text = "its input had secret fields, which are erased at the end; invoke it anew";
            return Err(ControlError::Invalid(text.to_owned()).into());
        }
        let operation = match self.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(trouble)) => return Err(trouble.into()),
            Err(error) => return Err(InvokeError::from(error).into()),
        };
        let reused = self.reusable(&current, &operation, from.unwrap_or(0)).await?;
        let runs_away = operation.plan().is_some_and(|plan| {
            plan.steps.iter().skip(reused.len()).any(|step| step.venue.is_some())
        });
        if runs_away
            && current.job.field(sealed::DELEGATED).is_some()
            && self.delegated(caller).is_empty()
        {
            let text = "its steps on other venues ran with delegations, which are erased at the end; \
                invoke it anew with `ucans`";
            return Err(ControlError::Invalid(text.to_owned()).into());
        }
        let input = current.member("input")?.unwrap_or_default();
        let request = Invoke {
            tags: tags(&current),
            idempotency: key,
            ..Invoke::new(caller.clone(), current.text("op"), input)
        };
        let rerun = Rerun { job: id, head: current.job.head(), reused };
        Ok(self.invoke_again(request, operation, rerun).await?)
    }

    /// The outputs of all steps before one.
    async fn reusable(
        &self,
        current: &Current,
        operation: &Arc<Operation>,
        from: u32,
    ) -> Result<Vec<Reused>, RerunError> {
        let invalid = |text: String| RerunError::Control(ControlError::Invalid(text));
        let steps = operation.plan().map_or(0, |plan| plan.steps.len());
        if from as usize > steps {
            return Err(invalid(format!("there is no step {from}: the job has {steps}")));
        }
        let mut reused = Vec::new();
        for step in 0..from {
            let earlier = self.output_of_step(current, step).await?;
            let earlier = earlier.ok_or_else(|| {
                invalid(format!("step {step} did not complete here; begin at it or before"))
            })?;
            reused.push(earlier);
        }
        Ok(reused)
    }

    /// What a step of a run gave, or took over itself.
    async fn output_of_step(
        &self,
        current: &Current,
        step: u32,
    ) -> Result<Option<Reused>, StoreError> {
        let (job, is_away) = match current.job.steps().get(&step) {
            Some(state) => (state.start.job, state.start.venue.is_some()),
            None => {
                let taken = reused_of(current.member("reused")?.as_ref());
                let Some(taken) = taken.into_iter().find(|earlier| earlier.step == step) else {
                    return Ok(None);
                };
                (taken.job, taken.is_away)
            }
        };
        if is_away {
            return self.output_from_away(current, step, job).await;
        }
        let Some(child) = self.current(job).await? else { return Ok(None) };
        if child.job.status() != Status::Complete {
            return Ok(None);
        }
        let (record, output) = (child.job.head(), child.member("output")?.unwrap_or_default());
        Ok(Some(Reused { step, job, record, output, away: None }))
    }

    /// What a step on another venue gave, as it is kept here. Unless the step was taken over, its
    /// end stands in the chain, by the record that is kept with it.
    async fn output_from_away(
        &self,
        current: &Current,
        step: u32,
        job: JobId,
    ) -> Result<Option<Reused>, StoreError> {
        let Some((known, _)) = self.snapshot(current.job.id(), step).await? else {
            return Ok(None);
        };
        let record = known.seen.record;
        let is_recorded = current
            .job
            .steps()
            .get(&step)
            .is_none_or(|state| state.end.as_ref().is_some_and(|end| end.record == record));
        if known.seen.status != Status::Complete || !is_recorded {
            return Ok(None);
        }
        let output = known.seen.output.clone().unwrap_or_default();
        Ok(Some(Reused { step, job, record, output, away: Some(Box::new(known)) }))
    }

    /// What a run took over, read again from the store.
    pub(crate) async fn taken_over(&self, current: &Current) -> Result<Vec<Reused>, StoreError> {
        let mut all = Vec::new();
        for earlier in reused_of(current.member("reused")?.as_ref()) {
            all.extend(self.output_of_step(current, earlier.step).await?);
        }
        Ok(all)
    }
}

/// What a `reused` member says.
pub(crate) fn reused_of(member: Option<&Value>) -> Vec<Earlier> {
    let Some(list) = member.and_then(Value::as_vector) else { return Vec::new() };
    let read = |entry: Value| {
        let field = |name: &str| entry.as_map()?.get(&name.into(), &NoCells).ok()?;
        let step = u32::try_from(field("step")?.as_i64()?).ok()?;
        let job = field("job")?.as_str()?.parse().ok()?;
        let record = field("record").and_then(|record| record.as_str()?.parse().ok());
        Some(Earlier { step, job, record, is_away: field("venue").is_some() })
    };
    list.iter(&NoCells).flatten().filter_map(read).collect()
}

fn tags(current: &Current) -> Vec<String> {
    let tags = current.member("tags").ok().flatten();
    let Some(list) = tags.as_ref().and_then(Value::as_vector) else { return Vec::new() };
    list.iter(&NoCells).flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}
