//! Checks an orchestration against this venue before it runs: whether its operations exist, whether
//! constant inputs conform to their schemas, and how deep it is nested.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use catena_job::plan::{Outputs, Plan};
use catena_value::{NoCells, Value, ValueId};

use crate::error::{ResolveError, StoreError};
use crate::limits::{
    NESTED_DEFINITIONS_MAX, NESTED_STEPS_MAX, NESTING_MAX, PREFLIGHT_PROBLEMS_MAX,
};
use crate::operations::{Operation, Operations, input_refusal};
use crate::orchestration::Orchestration;
use crate::requests::Caller;

/// The operation of each step. `None` for a remote step.
pub(crate) type Targets = Vec<Option<Arc<Operation>>>;

/// Resolves references to operations.
trait Resolver: Sync {
    /// Returns the operation that a reference names.
    fn resolve(
        &self,
        reference: &str,
    ) -> impl Future<Output = Result<Arc<Operation>, ResolveError>> + Send;
}

/// Resolves the references of a caller at this venue.
struct VenueResolver<'a> {
    operations: &'a Operations,
    caller: &'a Caller,
}

impl Resolver for VenueResolver<'_> {
    async fn resolve(&self, reference: &str) -> Result<Arc<Operation>, ResolveError> {
        self.operations.resolve(self.caller, reference).await
    }
}

/// An operation that one of the steps leads to.
#[derive(Clone)]
struct Nested {
    /// The step of the orchestration that is checked.
    step: usize,
    operation: Arc<Operation>,
    /// The definitions that enclose it.
    within: Vec<ValueId>,
}

/// Returns the orchestrations among some operations, each once. One that is reached again on a deeper
/// level is checked there too.
fn orchestrations(level: Vec<Nested>) -> Vec<Nested> {
    let mut seen: HashSet<ValueId> = HashSet::new();
    let is_new =
        |nested: &Nested| nested.operation.plan().is_some() && seen.insert(nested.operation.id());
    level.into_iter().filter(is_new).collect()
}

/// Returns all problems as one text of bounded length.
fn describe(mut problems: Vec<String>) -> String {
    let more = problems.len().saturating_sub(PREFLIGHT_PROBLEMS_MAX);
    problems.truncate(PREFLIGHT_PROBLEMS_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("invalid orchestration: {}{more}", problems.join("; "))
}

fn too_deep() -> String {
    format!("orchestrations are nested deeper than {NESTING_MAX}")
}

/// The outputs before anything has run: only constants have values.
struct NoOutputs;

impl Outputs for NoOutputs {
    fn input(&self) -> &Value {
        &Value::Nil
    }

    fn output(&self, _step: u32) -> Option<&Value> {
        None
    }
}

impl Orchestration {
    /// Returns the operations of an orchestration's steps, or all of its problems as one text.
    /// `depth` is the number of jobs that enclose it.
    pub(crate) async fn preflight(
        &self,
        caller: &Caller,
        orchestration: &Operation,
        depth: u32,
    ) -> Result<Result<Targets, String>, StoreError> {
        let total_max = self.runtime.limits.sub_jobs_per_root_max;
        self.preflight_within(caller, orchestration, depth, total_max).await
    }

    /// The same for an orchestration that has started: it may have been started under another limit,
    /// and what it starts is counted anyway.
    pub(super) async fn preflight_started(
        &self,
        caller: &Caller,
        orchestration: &Operation,
        depth: u32,
    ) -> Result<Result<Targets, String>, StoreError> {
        self.preflight_within(caller, orchestration, depth, u64::MAX).await
    }

    async fn preflight_within(
        &self,
        caller: &Caller,
        orchestration: &Operation,
        depth: u32,
        total_max: u64,
    ) -> Result<Result<Targets, String>, StoreError> {
        let resolver = VenueResolver { operations: &self.operations, caller };
        let checked = Preflight::new(resolver, total_max).check(orchestration, depth).await?;
        let problems = match orchestration.plan() {
            Some(plan) if checked.is_ok() => self.check_venues(caller, plan).await,
            _ => Vec::new(),
        };
        Ok(if problems.is_empty() { checked } else { Err(describe(problems)) })
    }

    /// Returns the problems with sending steps to the venues that they name.
    async fn check_venues(&self, caller: &Caller, plan: &Plan) -> Vec<String> {
        let Ok(federation) = self.operations.federation() else { return Vec::new() };
        let presents_delegations = !caller.delegations_for(&self.jobs.did).is_empty();
        let mut checked = HashSet::new();
        let mut problems = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let Some(venue) = step.venue.as_deref().filter(|venue| checked.insert(*venue)) else {
                continue;
            };
            let control = self.execution.unpaused.clone();
            let reply = federation.check_venue(venue, presents_delegations, control);
            if let Err(failure) = reply.await {
                problems.push(format!("/operation/steps/{index}/venue: {}", failure.error));
            }
        }
        problems
    }
}

/// Checks everything that an orchestration leads to.
struct Preflight<R> {
    resolver: R,
    /// The resolved references: most occur in many steps.
    known: HashMap<String, Arc<Operation>>,
    problems: Vec<String>,
    /// The number of steps that were checked.
    steps: usize,
    /// The largest number of sub-jobs.
    total_max: u64,
}

impl<R: Resolver> Preflight<R> {
    fn new(resolver: R, total_max: u64) -> Self {
        Preflight { resolver, known: HashMap::new(), problems: Vec::new(), steps: 0, total_max }
    }

    /// Checks an orchestration that `depth` others enclose.
    async fn check(
        mut self,
        orchestration: &Operation,
        depth: u32,
    ) -> Result<Result<Targets, String>, StoreError> {
        let Some(plan) = orchestration.plan() else { return Ok(Ok(Targets::new())) };
        if depth as usize >= NESTING_MAX {
            return Ok(Err(describe(vec![too_deep()])));
        }
        let targets = self.resolve_steps(plan, "").await?;
        let mut level: Vec<Nested> = Vec::new();
        for (step, target) in targets.iter().enumerate() {
            let Some(operation) = target.clone() else { continue };
            self.descend(step, operation, &[orchestration.id()], &mut level);
        }
        let mut depth = 1 + depth as usize;
        let mut level = orchestrations(level);
        while self.problems.is_empty() && !level.is_empty() {
            depth += 1;
            if depth > NESTING_MAX {
                self.report(&level, &too_deep());
                break;
            }
            if level.len() > NESTED_DEFINITIONS_MAX {
                let text =
                    format!("more than {NESTED_DEFINITIONS_MAX} orchestrations are on one level");
                self.report(&level, &text);
                break;
            }
            level = self.next_level(level).await?;
        }
        if self.problems.is_empty() {
            let total = self.total_of(orchestration, &mut HashMap::new());
            if total > self.total_max {
                let max = self.total_max;
                let text = format!("{total} sub-jobs in total, and a root has at most {max}");
                self.problems.push(format!("/operation/steps: the orchestration has {text}"));
            }
        }
        Ok(if self.problems.is_empty() { Ok(targets) } else { Err(describe(self.problems)) })
    }

    /// Returns the number of sub-jobs that an orchestration is known to have if all of its steps start:
    /// one for each step, and those of nested orchestrations. They are not nested in themselves and at
    /// most [`NESTING_MAX`] deep.
    fn total_of(&self, orchestration: &Operation, known: &mut HashMap<ValueId, u64>) -> u64 {
        let Some(plan) = orchestration.plan() else { return 0 };
        if let Some(total) = known.get(&orchestration.id()) {
            return *total;
        }
        let mut total = 0_u64;
        for step in &plan.steps {
            let target = self.known.get(&step.op).filter(|_| step.venue.is_none());
            let below = target.map_or(0, |target| self.total_of(target, known));
            total = total.saturating_add(1).saturating_add(below);
        }
        known.insert(orchestration.id(), total);
        total
    }

    /// Returns the orchestrations one level deeper.
    async fn next_level(&mut self, level: Vec<Nested>) -> Result<Vec<Nested>, StoreError> {
        let mut below = Vec::new();
        for Nested { step, operation, mut within } in level {
            let Some(plan) = operation.plan() else { continue };
            let inside = format!(" (within {})", operation.id_text());
            within.push(operation.id());
            for target in self.resolve_steps(plan, &inside).await?.into_iter().flatten() {
                self.descend(step, target, &within, &mut below);
            }
            if self.steps > NESTED_STEPS_MAX {
                let text = format!(
                    "the nested orchestrations have more than {NESTED_STEPS_MAX} steps in total"
                );
                self.problems.push(format!("/operation/steps/{step}/op: {text}"));
                break;
            }
        }
        Ok(orchestrations(below))
    }

    /// Adds an orchestration to the next level, unless it is nested in itself.
    fn descend(
        &mut self,
        step: usize,
        operation: Arc<Operation>,
        within: &[ValueId],
        level: &mut Vec<Nested>,
    ) {
        if within.contains(&operation.id()) {
            let text = format!("orchestration {} is nested in itself", operation.id_text());
            self.problems.push(format!("/operation/steps/{step}/op: {text}"));
        } else if operation.plan().is_some() {
            level.push(Nested { step, operation, within: within.to_vec() });
        }
    }

    fn report(&mut self, level: &[Nested], text: &str) {
        let steps: BTreeSet<usize> = level.iter().map(|nested| nested.step).collect();
        let problem = |step: usize| format!("/operation/steps/{step}/op: {text}");
        self.problems.extend(steps.into_iter().map(problem));
    }

    async fn resolve_steps(&mut self, plan: &Plan, within: &str) -> Result<Targets, StoreError> {
        let mut targets = Vec::with_capacity(plan.steps.len());
        self.steps += plan.steps.len();
        for (index, step) in plan.steps.iter().enumerate() {
            if step.venue.is_some() {
                targets.push(None);
                continue;
            }
            let operation = match self.find(&step.op).await {
                Ok(operation) => operation,
                Err(ResolveError::Store(error)) => return Err(error),
                Err(error) => {
                    self.problems.push(format!("/operation/steps/{index}/op{within}: {error}"));
                    continue;
                }
            };
            // A constant input is known before anything runs.
            if let Ok(input) = step.input.evaluate(&NoOutputs, &NoCells)
                && is_constant(&step.input)
                // A large one is checked when the step starts.
                && let Some(conformity) = operation.check_input_inline(&input.value)
                && let Some(refused) = input_refusal(conformity)
            {
                self.problems.push(format!("/operation/steps/{index}/input{within}: {refused}"));
            }
            targets.push(Some(operation));
        }
        Ok(targets)
    }

    async fn find(&mut self, reference: &str) -> Result<Arc<Operation>, ResolveError> {
        if let Some(known) = self.known.get(reference) {
            return Ok(Arc::clone(known));
        }
        let found = self.resolver.resolve(reference).await?;
        self.known.insert(reference.to_owned(), Arc::clone(&found));
        Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orchestration::test_operations::operation;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A resolver whose names can form cycles.
    #[derive(Default)]
    struct Names {
        meanings: HashMap<String, Arc<Operation>>,
        lookups: AtomicUsize,
    }

    impl Names {
        fn name(mut self, name: &str, operation: Arc<Operation>) -> Self {
            self.meanings.insert(name.to_owned(), operation);
            self
        }
    }

    impl Resolver for &Names {
        async fn resolve(&self, reference: &str) -> Result<Arc<Operation>, ResolveError> {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            let unknown = || ResolveError::Unknown { reference: reference.into(), nearest: vec![] };
            self.meanings.get(reference).cloned().ok_or_else(unknown)
        }
    }

    fn leaf() -> Arc<Operation> {
        operation(r#"{"operation":{"adapter":"leaf:nothing"}}"#)
    }

    /// An orchestration whose steps have these operations.
    fn orchestration(steps: &[&str]) -> Arc<Operation> {
        let step = |op: &&str| format!(r#"{{"op":"{op}","input":["const",1]}}"#);
        let steps: Vec<String> = steps.iter().map(step).collect();
        operation(&format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{}],"result":[0]}}}}"#,
            steps.join(",")
        ))
    }

    fn check(names: &Names, orchestration: &Operation) -> Result<Targets, String> {
        let check = Preflight::new(names, u64::MAX).check(orchestration, 0);
        futures_util::FutureExt::now_or_never(check).unwrap().unwrap()
    }

    fn refused(names: &Names, orchestration: &Operation) -> String {
        check(names, orchestration).unwrap_err()
    }

    #[test]
    fn an_orchestration_nested_in_itself_is_refused_by_name() {
        let outer = orchestration(&["leaf", "o/again"]);
        let names = Names::default().name("leaf", leaf()).name("o/again", Arc::clone(&outer));
        let expected = format!(
            "invalid orchestration: /operation/steps/1/op: orchestration {} is nested in itself",
            outer.id_text()
        );
        assert_eq!(refused(&names, &outer), expected);
        // Through any number of definitions.
        let one = orchestration(&["o/two"]);
        let two = orchestration(&["leaf", "o/one"]);
        let names = Names::default()
            .name("leaf", leaf())
            .name("o/one", Arc::clone(&one))
            .name("o/two", two);
        let problems = refused(&names, &one);
        assert!(
            problems.contains("/operation/steps/0/op: ") && problems.contains("nested in itself"),
            "{problems}"
        );
        // Also below a definition that is not part of the cycle.
        let problems = refused(&names, &orchestration(&["leaf", "leaf", "o/one"]));
        assert!(problems.contains("/operation/steps/2/op: "), "{problems}");
        assert!(problems.contains("nested in itself"), "{problems}");
    }

    #[test]
    fn the_same_definition_in_many_places_is_no_cycle() {
        let inner = orchestration(&["leaf"]);
        let middle = orchestration(&["o/inner", "o/inner"]);
        let names =
            Names::default().name("leaf", leaf()).name("o/inner", inner).name("o/middle", middle);
        let outer = orchestration(&["o/inner", "o/middle", "o/inner", "o/middle"]);
        assert_eq!(check(&names, &outer).unwrap().len(), 4);
        assert_eq!(names.lookups.load(Ordering::Relaxed), 3, "each name is looked up once");
    }

    #[test]
    fn eight_levels_are_enough_and_nine_are_too_many() {
        let mut names = Names::default().name("o/0", leaf());
        for depth in 1..=9 {
            names =
                names.name(&format!("o/{depth}"), orchestration(&[&format!("o/{}", depth - 1)]));
        }
        assert!(check(&names, &names.meanings["o/8"]).is_ok());
        // Enclosing orchestrations on other venues count too.
        let nested = |depth| {
            let check = Preflight::new(&names, u64::MAX).check(&names.meanings["o/3"], depth);
            futures_util::FutureExt::now_or_never(check).unwrap().unwrap()
        };
        assert!(nested(5).is_ok());
        for depth in [6, 7, 8, u32::MAX] {
            assert!(
                nested(depth).unwrap_err().ends_with("orchestrations are nested deeper than 8")
            );
        }
        let problems = refused(&names, &names.meanings["o/9"]);
        assert_eq!(
            problems,
            "invalid orchestration: /operation/steps/0/op: orchestrations are nested deeper than 8"
        );
    }

    #[test]
    fn wide_definitions_of_wide_definitions_are_refused_before_all_are_checked() {
        let mut names = Names::default().name("leaf", leaf()).name("other", leaf());
        let wide: Vec<String> = (0..101).map(|n| format!("o/{n}")).collect();
        for (n, name) in wide.iter().enumerate() {
            let mut steps = vec!["leaf"; 1_000];
            // Each is a different definition.
            steps[n] = "other";
            names = names.name(name, orchestration(&steps));
        }
        let steps: Vec<&str> = wide.iter().map(String::as_str).collect();
        let problems = check(&names, &orchestration(&steps)).err().unwrap_or_default();
        assert!(problems.contains("more than 100000 steps in total"), "{problems}");
    }
}
