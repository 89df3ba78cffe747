//! Orchestrations: jobs whose steps are jobs.
//!
//! A definition is a pure value, `catena_job::plan`. Each step runs as a sub-job with its own chain
//! and starts as soon as the last step it depends on has ended. Whatever can be decided at once is
//! one commit: a fan-out, the ends of its steps and the join that follows from them, with the
//! records of the parent and its children together.
//!
//! In reading order: [`preflight`] (what is checked before anything runs), [`state`] (one run of an
//! orchestration, and what follows from it), [`driver`] (the task that commits what the state
//! decides), [`drivers`] (the drivers of this process) and [`remote`] (steps on other venues).

mod budget;
mod driver;
mod drivers;
mod park;
mod preflight;
mod remote;
mod share;
mod state;
#[cfg(test)]
mod test_operations;

use std::sync::Arc;

use catena_auth::KeyPair;
use catena_job::plan::Plan;
use catena_job::{Job, JobId};

use crate::error::StoreError;
use crate::execution::{Execution, PlanRunner, Run, RunGuard};
use crate::jobs::{Draft, Jobs, NewSecrets, run_inline};
use crate::limits::Limits;
use crate::operations::federation::{Identity, RemoteCall};
use crate::operations::schema::Secret;
use crate::operations::{
    Adapter, Call, Failure, Operation, Operations, Problem, Registration, RunControl, Turn,
    TurnFuture,
};
use crate::orchestration::state::StepHost;
use crate::requests::{Caller, Invoke};
use crate::runtime::{Runtime, Task};
use crate::views::Views;

pub(crate) use driver::StartOptions;
pub(crate) use drivers::Drivers;

/// The orchestrations of a venue.
pub(crate) struct Orchestration {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) execution: Arc<Execution>,
    pub(crate) views: Arc<Views>,
    drivers: Arc<Drivers>,
    /// Issues the tokens by which this venue identifies itself to others.
    identity: Identity,
}

impl Orchestration {
    /// Creates the component, and makes it run the plans of `execution`.
    pub(crate) fn new(views: Arc<Views>, drivers: Arc<Drivers>, key: KeyPair) -> Arc<Self> {
        let execution = Arc::clone(&views.execution);
        let runtime = Arc::clone(&views.runtime);
        let orchestration = Arc::new(Orchestration {
            identity: Identity::new(Arc::new(key), Arc::clone(&runtime.env)),
            operations: Arc::clone(&views.operations),
            jobs: Arc::clone(&views.jobs),
            execution: Arc::clone(&execution),
            runtime,
            views,
            drivers,
        });
        let plans: Arc<dyn PlanRunner> = Arc::clone(&orchestration) as Arc<dyn PlanRunner>;
        execution.set_plan_runner(Arc::downgrade(&plans));
        orchestration.drivers.set_orchestration(Arc::downgrade(&orchestration));
        orchestration
    }

    /// Returns what signs as the venue.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the control of a run, for tasks that work for it.
    fn control_of(&self, guard: &RunGuard) -> RunControl {
        guard.handle.control(&self.runtime.env)
    }
}

impl PlanRunner for Orchestration {
    fn resume(self: Arc<Self>, run: Run) -> Task {
        Box::pin(async move {
            let id = run.job.id();
            if let Err(error) = self.resume_driver(run).await {
                tracing::error!(job = %id, %error, "an orchestration cannot continue");
            }
        })
    }

    fn drive(self: Arc<Self>, job: JobId) -> Task {
        Box::pin(async move { self.drive_job(job).await })
    }

    fn cancel_unfollowed(self: Arc<Self>, job: Arc<Job>) -> Task {
        Box::pin(async move { self.cancel_unfollowed_steps(&job).await })
    }
}

impl StepHost for Orchestration {
    fn now(&self) -> i64 {
        self.runtime.now()
    }

    fn new_id(&self) -> JobId {
        self.runtime.new_id()
    }

    fn limits(&self) -> &Limits {
        &self.runtime.limits
    }

    fn new_job(
        &self,
        id: JobId,
        request: &Invoke,
        operation: &Operation,
        passed_on: &[Secret],
    ) -> (catena_job::chain::NewJob, NewSecrets) {
        self.jobs.new_job(id, request, operation, passed_on)
    }

    fn store_secrets(
        &self,
        job: JobId,
        secrets: &NewSecrets,
    ) -> Result<Option<catena_store::Effect>, StoreError> {
        self.jobs.store_secrets(job, secrets)
    }

    fn run_inline(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        job: JobId,
    ) -> Option<Result<catena_value::Value, Failure>> {
        let Invoke { caller, operation: reference, input, .. } = request;
        let permission = self.operations.authorise_inline(caller, &operation, reference, input);
        if let Err(denial) = permission {
            return Some(Err(Failure::new("capability_denied", denial)));
        }
        match self.execution.unpaused_call(request, operation, Some(job)) {
            Some(call) => run_inline(&call),
            None => Some(Err(Failure::transient("shutting_down", "the venue is shutting down"))),
        }
    }

    fn claim_slot(&self, owner: &str) -> Option<crate::execution::RunSlot> {
        self.execution.try_claim_slot(owner)
    }

    fn acquire(&self, draft: &mut Draft) -> RunGuard {
        self.execution.acquire(draft)
    }

    fn remote_call(
        &self,
        caller: &Caller,
        venue: &str,
        operation: &str,
        input: catena_value::Value,
    ) -> RemoteCall {
        RemoteCall {
            venue: venue.to_owned(),
            operation: operation.to_owned(),
            input,
            key: String::new(),
            depth: 0,
            delegations: caller.delegations_for(&self.jobs.did),
            identity: self.identity.clone(),
            control: self.execution.unpaused.clone(),
            unpaused: self.execution.unpaused.clone(),
        }
    }
}

/// The adapter that makes orchestrations operations like all others.
pub(crate) struct Orchestrator;

impl Adapter for Orchestrator {
    fn name(&self) -> &'static str {
        "orchestrator"
    }

    fn description(&self) -> &'static str {
        "Runs the steps of a workflow, each as a job of its own."
    }

    fn operations(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn has_plans(&self) -> bool {
        true
    }

    fn plan(&self, operation: &Operation) -> Option<Result<Plan, Vec<Problem>>> {
        let describe = |problem: catena_job::plan::Problem| {
            let hint = problem.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
            (problem.pointer, format!("{}{hint}", problem.message))
        };
        let plan = Plan::parse(operation.metadata());
        Some(plan.map_err(|problems| problems.into_iter().map(describe).collect()))
    }

    /// Plans are run by the engine, which commits the records of parent and children together.
    fn run(&self, _call: Call) -> TurnFuture {
        let failure = Failure::new("needs_a_job", "invoke an orchestration as a recorded job");
        Box::pin(async { Turn::Failed(failure) })
    }
}
