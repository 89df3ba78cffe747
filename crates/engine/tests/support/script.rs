//! Fake operations in place of those that need a network, a model or an agent, and a log of their
//! runs. They answer in the shapes that the examples of COG-12 read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use catena_engine::{Adapter, Call, ExecutionMode, Failure, Registration, Turn, TurnFuture};
use catena_value::{Map, Value};
use parking_lot::Mutex;

use super::value;

/// How the steps of an orchestration behave, and a log of their runs. It outlives the processes of
/// the venue.
#[derive(Default)]
pub struct Script {
    /// How long each step takes, in ms.
    pub durations_ms: Mutex<Vec<u64>>,
    /// The steps that fail at their end.
    pub failing: Mutex<BTreeSet<usize>>,
    /// Every start: the step and its input.
    pub started: Mutex<Vec<(usize, Value)>>,
    /// Every end with an output, by step.
    pub finished: Mutex<Vec<usize>>,
}

impl Script {
    pub fn duration(&self, step: usize) -> Duration {
        Duration::from_millis(self.durations_ms.lock().get(step).copied().unwrap_or(0))
    }

    pub fn fails(&self, step: usize) -> bool {
        self.failing.lock().contains(&step)
    }

    /// Returns how often a step started and how often it finished.
    pub fn count(&self, step: usize) -> (usize, usize) {
        let started = self.started.lock().iter().filter(|(other, _)| *other == step).count();
        let finished = self.finished.lock().iter().filter(|other| **other == step).count();
        (started, finished)
    }
}

/// An adapter with one operation, which behaves as the script says.
pub struct FakeAdapter {
    name: &'static str,
    operation: &'static str,
    script: Arc<Script>,
}

/// Returns the fake adapters of all operations that the examples use.
pub fn fake_adapters(script: &Arc<Script>) -> Vec<Arc<dyn Adapter>> {
    let operations =
        [("agent", "request"), ("covia", "read"), ("http", "get"), ("langchain", "openai")];
    let adapter = |(name, operation)| -> Arc<dyn Adapter> {
        Arc::new(FakeAdapter { name, operation, script: Arc::clone(script) })
    };
    operations.into_iter().map(adapter).collect()
}

impl Adapter for FakeAdapter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "Replaces an adapter that a test cannot use."
    }

    fn operations(&self) -> Vec<Registration> {
        let name = self.name;
        let operation = self.operation;
        let metadata = value(&format!(
            r#"{{"name":"{operation}","operation":{{"adapter":"{name}:{operation}","pure":true}}}}"#
        ));
        vec![Registration { name: operation, mode: ExecutionMode::Task, metadata }]
    }

    fn run(&self, call: Call) -> TurnFuture {
        let script = Arc::clone(&self.script);
        Box::pin(async move { run_step(&script, call).await })
    }
}

async fn run_step(script: &Script, call: Call) -> Turn {
    let view = call.host.job(&call.caller, call.job.unwrap()).await.unwrap();
    let step = view.job.parent().map_or(0, |parent| parent.step().unwrap() as usize);
    script.started.lock().push((step, call.input.clone()));
    call.control.sleep(script.duration(step)).await;
    if script.fails(step) {
        return Turn::Failed(Failure::new("asked_for", "it broke"));
    }
    script.finished.lock().push(step);
    Turn::Complete(output_of(call.operation.adapter_ref(), &call.input))
}

/// Returns the output of an operation: `{value}`, `{output}`, `{content}` or `{body}`.
pub fn output_of(operation: &str, input: &Value) -> Value {
    let member = |name: &str| input.as_map().and_then(|map| map.field(name)).cloned();
    let (name, source) = match operation {
        "agent:request" => ("output", member("agentId")),
        "covia:read" => ("value", member("path")),
        "http:get" => ("body", member("url")),
        _ => ("content", member("model")),
    };
    let source = source.as_ref().and_then(Value::to_text).unwrap_or_default().into_owned();
    let output = Value::from(format!("from {source}"));
    [(name, output)].into_iter().collect::<Map>().into()
}
