//! Orchestrations: jobs whose steps are jobs.
//!
//! What a definition says is a pure value, `catena_job::plan`. Here it is run: each step is a
//! sub-job with its own chain, begun the moment its last dependency ended. Whatever can be done at
//! once is one commit: a fan-out, the ends of its steps, and the join that follows from them, with
//! the records of parent and children together.
//!
//! Modules: `weave` (the state of one run, and what follows from it), `weaver` (the task that runs
//! it), `targets` (what is checked before anything runs), `remote` (those who are sent to other
//! venues), `elsewhere` (what is known of the jobs there), `letters` (messages to steps there),
//! `steps` (what people see).

pub(crate) mod elsewhere;
pub(crate) mod letters;
pub(crate) mod remote;
pub(crate) mod steps;
pub(crate) mod targets;
pub(crate) mod weave;
pub(crate) mod weaver;

use catena_job::Job;
use catena_job::plan::Plan;
use catena_value::Value;

use crate::adapter::{Adapter, Call, Failure, Registration, Turn, TurnFuture};
use crate::operation::{Operation, Problem};

/// Sub-jobs of one root that may run at a time, nested ones included.
pub(crate) const CONCURRENT_MAX: usize = 256;

/// How deep orchestrations may be nested, those on other venues included that say so.
pub(crate) const NESTING_MAX: usize = 8;

/// The member of a first record that says how many orchestrations one is nested in.
pub(crate) const DEPTH: &str = "depth";

/// How many orchestrations one is nested in.
pub(crate) fn depth_of(job: &Job) -> u32 {
    let depth = job.field(DEPTH).and_then(Value::as_i64);
    depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(0)
}

/// Makes orchestrations operations like all others.
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

    fn plan(&self, operation: &Operation) -> Option<Result<Plan, Vec<Problem>>> {
        let told = |problem: catena_job::plan::Problem| {
            let hint = problem.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
            (problem.pointer, format!("{}{hint}", problem.message))
        };
        let plan = Plan::parse(operation.metadata());
        Some(plan.map_err(|problems| problems.into_iter().map(told).collect()))
    }

    /// Plans are run by the engine, which commits for parent and children together.
    fn run(&self, _call: Call) -> TurnFuture {
        let failure = Failure::new("needs_a_job", "an orchestration is invoked as a recorded job");
        Box::pin(async { Turn::Failed(failure) })
    }
}
