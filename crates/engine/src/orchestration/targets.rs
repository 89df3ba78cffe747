//! What can be known of an orchestration before it runs, given this venue: whether its operations
//! exist, whether constant inputs are what they take, how deep it is nested.

use std::collections::HashSet;
use std::sync::Arc;

use catena_job::plan::{Outputs, Plan};
use catena_value::{NoCells, Value, ValueId};

use super::NESTING_MAX;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{ResolveError, StoreTrouble};
use crate::operation::Operation;
use crate::submit::refusal;

/// Problems that are told at once; of the others only their number.
const PROBLEMS_MAX: usize = 100;

/// Definitions that are looked at on one level below an orchestration.
const DEFINITIONS_MAX: usize = 1_000;

/// The operation of each step; none for one that runs elsewhere.
pub(crate) type Targets = Vec<Option<Arc<Operation>>>;

/// A definition below one of the steps of the whole.
type Nested = (usize, Arc<Operation>);

/// The orchestrations among some operations, each once: one that is reached again on a deeper level
/// counts there.
fn nested(level: Vec<Nested>) -> Vec<Nested> {
    let mut seen: HashSet<ValueId> = HashSet::new();
    let is_new =
        |(_, operation): &Nested| operation.plan().is_some() && seen.insert(operation.id());
    level.into_iter().filter(is_new).collect()
}

/// All problems in one text, which does not grow with them.
fn told(mut problems: Vec<String>) -> String {
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("invalid orchestration: {}{more}", problems.join("; "))
}

/// Nothing has run: only constants have values.
struct Nothing;

impl Outputs for Nothing {
    fn input(&self) -> &Value {
        &Value::Nil
    }

    fn output(&self, _step: u32) -> Option<&Value> {
        None
    }
}

impl Engine {
    /// The operations of a plan's steps, or everything that is wrong with them.
    pub(crate) async fn targets(
        &self,
        caller: &Caller,
        plan: &Plan,
    ) -> Result<Result<Targets, String>, StoreTrouble> {
        let mut problems = Vec::new();
        let targets = self.resolve_steps(caller, plan, "", &mut problems).await?;
        let level = targets.iter().enumerate();
        let level = level.filter_map(|(step, target)| Some((step, Arc::clone(target.as_ref()?))));
        let mut level = nested(level.collect());
        let mut depth = 1;
        while problems.is_empty() && !level.is_empty() {
            depth += 1;
            if depth > NESTING_MAX || level.len() > DEFINITIONS_MAX {
                let too_deep = |(step, _): &Nested| {
                    let text = format!("orchestrations are nested deeper than {NESTING_MAX}");
                    format!("/operation/steps/{step}/op: {text}")
                };
                problems.extend(level.iter().map(too_deep));
                break;
            }
            let mut below = Vec::new();
            for (step, operation) in &level {
                let Some(plan) = operation.plan() else { continue };
                let within = format!(" (within {})", operation.id_text());
                let steps = self.resolve_steps(caller, plan, &within, &mut problems).await?;
                below.extend(steps.into_iter().flatten().map(|operation| (*step, operation)));
            }
            level = nested(below);
        }
        Ok(match problems.is_empty() {
            true => Ok(targets),
            false => Err(told(problems)),
        })
    }

    async fn resolve_steps(
        &self,
        caller: &Caller,
        plan: &Plan,
        within: &str,
        problems: &mut Vec<String>,
    ) -> Result<Targets, StoreTrouble> {
        let mut targets = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.iter().enumerate() {
            if step.venue.is_some() {
                targets.push(None);
                continue;
            }
            let operation = match self.resolve(caller, &step.op).await {
                Ok(operation) => operation,
                Err(ResolveError::Store(trouble)) => return Err(trouble),
                Err(error) => {
                    problems.push(format!("/operation/steps/{index}/op{within}: {error}"));
                    continue;
                }
            };
            // A source that needs nothing has its value already.
            if let Ok(input) = step.input.evaluate(&Nothing, &NoCells)
                && is_constant(&step.input)
                && let Some(refused) = refusal(&operation, &input.value)
            {
                problems.push(format!("/operation/steps/{index}/input{within}: {refused}"));
            }
            targets.push(Some(operation));
        }
        Ok(targets)
    }
}

fn is_constant(source: &catena_job::plan::Source) -> bool {
    use catena_job::plan::Source;
    match source {
        Source::Const(_) => true,
        Source::Input(_) | Source::Step { .. } => false,
        Source::Concat(parts) | Source::Array(parts) => parts.iter().all(is_constant),
        Source::Object(members) => members.iter().all(|(_, member)| is_constant(member)),
    }
}
