//! What can be known of an orchestration before it runs, given this venue: whether its operations
//! exist, whether constant inputs are what they take, how deep it is nested.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use catena_job::plan::{Outputs, Plan};
use catena_value::{NoCells, Value, ValueId};

use super::NESTING_MAX;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{ResolveError, StoreError};
use crate::operation::Operation;
use crate::submit::refusal;

/// Problems that are told at once; of the others only their number.
const PROBLEMS_MAX: usize = 100;

/// Definitions that are looked at on one level below an orchestration.
const DEFINITIONS_MAX: usize = 1_000;

/// The operation of each step; none for one that runs elsewhere.
pub(crate) type Targets = Vec<Option<Arc<Operation>>>;

/// Steps of definitions below an orchestration that are looked at, whatever their nesting: wide
/// definitions of wide definitions would otherwise keep the venue busy with one request.
const NESTED_STEPS_MAX: usize = 100_000;

/// What references mean, for whoever asks.
pub(crate) trait Definitions: Sync {
    /// The operation that a reference leads to.
    fn find(
        &self,
        reference: &str,
    ) -> impl Future<Output = Result<Arc<Operation>, ResolveError>> + Send;
}

/// What they mean at this venue.
struct Here<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
}

impl Definitions for Here<'_> {
    async fn find(&self, reference: &str) -> Result<Arc<Operation>, ResolveError> {
        self.engine.resolve(self.caller, reference).await
    }
}

/// A definition below one of the steps of the whole.
#[derive(Clone)]
struct Nested {
    /// The step of the whole.
    step: usize,
    operation: Arc<Operation>,
    /// The definitions that it is nested in.
    within: Vec<ValueId>,
}

/// The orchestrations among some operations, each once: one that is reached again on a deeper level
/// counts there.
fn nested(level: Vec<Nested>) -> Vec<Nested> {
    let mut seen: HashSet<ValueId> = HashSet::new();
    let is_new =
        |nested: &Nested| nested.operation.plan().is_some() && seen.insert(nested.operation.id());
    level.into_iter().filter(is_new).collect()
}

/// All problems in one text, which does not grow with them.
fn told(mut problems: Vec<String>) -> String {
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("invalid orchestration: {}{more}", problems.join("; "))
}

fn too_deep() -> String {
    format!("orchestrations are nested deeper than {NESTING_MAX}")
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
    /// The operations of an orchestration's steps, or everything that is wrong with them.
    pub(crate) async fn targets(
        &self,
        caller: &Caller,
        whole: &Operation,
        depth: u32,
    ) -> Result<Result<Targets, String>, StoreError> {
        Survey::new(Here { engine: self, caller }).of(whole, depth).await
    }
}

/// Looks at everything that an orchestration leads to.
struct Survey<D> {
    definitions: D,
    /// What references were found to mean: most stand in many steps.
    known: HashMap<String, Arc<Operation>>,
    problems: Vec<String>,
    /// How many steps were looked at.
    steps: usize,
}

impl<D: Definitions> Survey<D> {
    fn new(definitions: D) -> Self {
        Survey { definitions, known: HashMap::new(), problems: Vec::new(), steps: 0 }
    }

    /// Looks at an orchestration that is itself nested in so many.
    async fn of(
        mut self,
        whole: &Operation,
        depth: u32,
    ) -> Result<Result<Targets, String>, StoreError> {
        let Some(plan) = whole.plan() else { return Ok(Ok(Targets::new())) };
        if depth as usize >= NESTING_MAX {
            return Ok(Err(told(vec![too_deep()])));
        }
        let targets = self.resolve_steps(plan, "").await?;
        let mut level: Vec<Nested> = Vec::new();
        for (step, target) in targets.iter().enumerate() {
            let Some(operation) = target.clone() else { continue };
            self.descend(step, operation, &[whole.id()], &mut level);
        }
        let mut depth = 1 + depth as usize;
        let mut level = nested(level);
        while self.problems.is_empty() && !level.is_empty() {
            depth += 1;
            if depth > NESTING_MAX {
                self.blame(&level, &too_deep());
                break;
            }
            if level.len() > DEFINITIONS_MAX {
                let text = format!("more than {DEFINITIONS_MAX} orchestrations are on one level");
                self.blame(&level, &text);
                break;
            }
            level = self.below(level).await?;
        }
        Ok(match self.problems.is_empty() {
            true => Ok(targets),
            false => Err(told(self.problems)),
        })
    }

    /// The orchestrations one level deeper.
    async fn below(&mut self, level: Vec<Nested>) -> Result<Vec<Nested>, StoreError> {
        let mut below = Vec::new();
        for Nested { step, operation, mut within } in level {
            let Some(plan) = operation.plan() else { continue };
            let inside = format!(" (within {})", operation.id_text());
            within.push(operation.id());
            for target in self.resolve_steps(plan, &inside).await?.into_iter().flatten() {
                self.descend(step, target, &within, &mut below);
            }
            if self.steps > NESTED_STEPS_MAX {
                let text = format!("what is nested has more than {NESTED_STEPS_MAX} steps in all");
                self.problems.push(format!("/operation/steps/{step}/op: {text}"));
                break;
            }
        }
        Ok(nested(below))
    }

    /// Goes one level deeper, unless that leads back.
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

    fn blame(&mut self, level: &[Nested], text: &str) {
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
                Err(ResolveError::Store(trouble)) => return Err(trouble),
                Err(error) => {
                    self.problems.push(format!("/operation/steps/{index}/op{within}: {error}"));
                    continue;
                }
            };
            // A source that needs nothing has its value already.
            if let Ok(input) = step.input.evaluate(&Nothing, &NoCells)
                && is_constant(&step.input)
                && let Some(refused) = refusal(&operation, &input.value)
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
        let found = self.definitions.find(reference).await?;
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
    use crate::adapter::{Adapter, Call, ExecutionMode, Failure, Registration, Turn, TurnFuture};
    use crate::orchestration::Orchestrator;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An operation without steps.
    struct Leaf;

    impl Adapter for Leaf {
        fn name(&self) -> &'static str {
            "leaf"
        }

        fn description(&self) -> &'static str {
            "Does nothing."
        }

        fn operations(&self) -> Vec<Registration> {
            Vec::new()
        }

        fn run(&self, _call: Call) -> TurnFuture {
            Box::pin(async { Turn::Failed(Failure::new("no", "it does nothing")) })
        }
    }

    /// Names that can mean anything, also what refers back to them.
    #[derive(Default)]
    struct Names {
        meanings: HashMap<String, Arc<Operation>>,
        asked: AtomicUsize,
    }

    impl Names {
        fn name(mut self, name: &str, operation: Arc<Operation>) -> Self {
            self.meanings.insert(name.to_owned(), operation);
            self
        }
    }

    impl Definitions for &Names {
        async fn find(&self, reference: &str) -> Result<Arc<Operation>, ResolveError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let unknown = || ResolveError::Unknown { reference: reference.into(), nearest: vec![] };
            self.meanings.get(reference).cloned().ok_or_else(unknown)
        }
    }

    fn operation(metadata: &str) -> Arc<Operation> {
        let metadata = catena_value::json::read(metadata.as_bytes()).unwrap();
        let find = |adapter: &str| -> Option<(Arc<dyn Adapter>, ExecutionMode)> {
            match adapter {
                "orchestrator" => Some((Arc::new(Orchestrator), ExecutionMode::Task)),
                _ => Some((Arc::new(Leaf), ExecutionMode::Task)),
            }
        };
        Arc::new(Operation::read(metadata, find).unwrap())
    }

    fn leaf() -> Arc<Operation> {
        operation(r#"{"operation":{"adapter":"leaf:nothing"}}"#)
    }

    /// An orchestration of these steps.
    fn of_steps(steps: &[&str]) -> Arc<Operation> {
        let step = |op: &&str| format!(r#"{{"op":"{op}","input":["const",1]}}"#);
        let steps: Vec<String> = steps.iter().map(step).collect();
        operation(&format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{}],"result":[0]}}}}"#,
            steps.join(",")
        ))
    }

    fn survey(names: &Names, whole: &Operation) -> Result<Targets, String> {
        let survey = Survey::new(names).of(whole, 0);
        futures_util::FutureExt::now_or_never(survey).unwrap().unwrap()
    }

    fn refused(names: &Names, whole: &Operation) -> String {
        survey(names, whole).unwrap_err()
    }

    #[test]
    fn what_is_nested_in_itself_is_refused_by_name() {
        let whole = of_steps(&["leaf", "o/again"]);
        let names = Names::default().name("leaf", leaf()).name("o/again", Arc::clone(&whole));
        let expected = format!(
            "invalid orchestration: /operation/steps/1/op: orchestration {} is nested in itself",
            whole.id_text()
        );
        assert_eq!(refused(&names, &whole), expected);
        // However many it goes through.
        let (one, two) = (of_steps(&["o/two"]), of_steps(&["leaf", "o/one"]));
        let names = Names::default()
            .name("leaf", leaf())
            .name("o/one", Arc::clone(&one))
            .name("o/two", two);
        let problems = refused(&names, &one);
        assert!(
            problems.contains("/operation/steps/0/op: ") && problems.contains("nested in itself"),
            "{problems}"
        );
        // Also below what is not part of the ring.
        let problems = refused(&names, &of_steps(&["leaf", "leaf", "o/one"]));
        assert!(problems.contains("/operation/steps/2/op: "), "{problems}");
        assert!(problems.contains("nested in itself"), "{problems}");
    }

    #[test]
    fn the_same_definition_in_many_places_is_no_ring() {
        let inner = of_steps(&["leaf"]);
        let middle = of_steps(&["o/inner", "o/inner"]);
        let names =
            Names::default().name("leaf", leaf()).name("o/inner", inner).name("o/middle", middle);
        let whole = of_steps(&["o/inner", "o/middle", "o/inner", "o/middle"]);
        assert_eq!(survey(&names, &whole).unwrap().len(), 4);
        assert_eq!(names.asked.load(Ordering::Relaxed), 3, "each name is looked up once");
    }

    #[test]
    fn eight_levels_are_enough_and_nine_are_too_many() {
        let mut names = Names::default().name("o/0", leaf());
        for depth in 1..=9 {
            names = names.name(&format!("o/{depth}"), of_steps(&[&format!("o/{}", depth - 1)]));
        }
        assert!(survey(&names, &names.meanings["o/8"]).is_ok());
        // What it is nested in elsewhere counts, too.
        let nested = |depth| {
            let survey = Survey::new(&names).of(&names.meanings["o/3"], depth);
            futures_util::FutureExt::now_or_never(survey).unwrap().unwrap()
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
    fn wide_definitions_of_wide_definitions_are_refused_before_they_are_all_looked_at() {
        let mut names = Names::default().name("leaf", leaf()).name("other", leaf());
        let wide: Vec<String> = (0..101).map(|n| format!("o/{n}")).collect();
        for (n, name) in wide.iter().enumerate() {
            let mut steps = vec!["leaf"; 1_000];
            // Each a definition of its own.
            steps[n] = "other";
            names = names.name(name, of_steps(&steps));
        }
        let whole: Vec<&str> = wide.iter().map(String::as_str).collect();
        let told = survey(&names, &of_steps(&whole)).err().unwrap_or_default();
        assert!(told.contains("has more than 100000 steps in all"), "{told}");
    }
}
