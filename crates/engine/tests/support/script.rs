//! Stand-ins for operations that need a network, a model or an agent, and a record of what became
//! of them. They answer in the shapes that the examples of COG-12 read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use catena_engine::{Adapter, Call, ExecutionMode, Failure, Registration, Turn, TurnFuture};
use catena_value::{Map, Value};
use parking_lot::Mutex;

use super::value;

/// What the steps of an orchestration do, and what became of them; it outlives the venue.
#[derive(Default)]
pub struct Script {
    /// How long each step takes, in milliseconds.
    pub times: Mutex<Vec<u64>>,
    /// The steps that break at their end.
    pub breaks: Mutex<BTreeSet<usize>>,
    /// Every beginning: the step, and the input that it saw.
    pub begun: Mutex<Vec<(usize, Value)>>,
    /// Every end with a result.
    pub finished: Mutex<Vec<usize>>,
}

impl Script {
    pub fn time(&self, step: usize) -> Duration {
        Duration::from_millis(self.times.lock().get(step).copied().unwrap_or(0))
    }

    pub fn breaks(&self, step: usize) -> bool {
        self.breaks.lock().contains(&step)
    }

    /// How often a step began, and how often it finished.
    pub fn count(&self, step: usize) -> (usize, usize) {
        let begun = self.begun.lock().iter().filter(|(begun, _)| *begun == step).count();
        (begun, self.finished.lock().iter().filter(|finished| **finished == step).count())
    }
}

/// An adapter with one operation that does what the script says.
pub struct StandIn {
    name: &'static str,
    operation: &'static str,
    script: Arc<Script>,
}

/// The stand-ins for everything that the examples name.
pub fn stand_ins(script: &Arc<Script>) -> Vec<Arc<dyn Adapter>> {
    let operations =
        [("agent", "request"), ("covia", "read"), ("http", "get"), ("langchain", "openai")];
    let stand_in = |(name, operation)| -> Arc<dyn Adapter> {
        Arc::new(StandIn { name, operation, script: Arc::clone(script) })
    };
    operations.into_iter().map(stand_in).collect()
}

impl Adapter for StandIn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "Stands in for an operation that a test cannot have."
    }

    fn operations(&self) -> Vec<Registration> {
        let (name, operation) = (self.name, self.operation);
        let metadata = value(&format!(
            r#"{{"name":"{operation}","operation":{{"adapter":"{name}:{operation}","pure":true}}}}"#
        ));
        vec![Registration { name: operation, mode: ExecutionMode::Task, metadata }]
    }

    fn run(&self, call: Call) -> TurnFuture {
        let script = Arc::clone(&self.script);
        Box::pin(async move { act(&script, call).await })
    }
}

async fn act(script: &Script, call: Call) -> Turn {
    let view = call.host.job(&call.caller, call.job.unwrap()).await.unwrap();
    let step = view.job.parent().map_or(0, |parent| parent.step as usize);
    script.begun.lock().push((step, call.input.clone()));
    call.control.sleep(script.time(step)).await;
    if script.breaks(step) {
        return Turn::Failed(Failure::new("asked_for", "it broke"));
    }
    script.finished.lock().push(step);
    Turn::Complete(answer(call.operation.adapter_ref(), &call.input))
}

/// What an operation answers: `{value}`, `{output}`, `{content}` or `{body}`.
pub fn answer(operation: &str, input: &Value) -> Value {
    let said = |name: &str| input.as_map().and_then(|map| map.field(name)).cloned();
    let (member, of) = match operation {
        "agent:request" => ("output", said("agentId")),
        "covia:read" => ("value", said("path")),
        "http:get" => ("body", said("url")),
        _ => ("content", said("model")),
    };
    let of = of.as_ref().and_then(Value::to_text).unwrap_or_default().into_owned();
    let answer = Value::from(format!("from {of}"));
    [(member, answer)].into_iter().collect::<Map>().into()
}
