//! Operations for tests of orchestrations, which need no running engine.

use std::sync::Arc;

use catena_value::json;

use crate::operations::{
    Adapter, Call, ExecutionMode, Failure, Operation, Registration, Turn, TurnFuture,
};
use crate::orchestration::Orchestrator;

/// An adapter whose operations do nothing by themselves.
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

/// Parses a definition. `leaf:inline` and `leaf:fail` run inline, all others as tasks.
pub(super) fn operation(metadata: &str) -> Arc<Operation> {
    let metadata = json::read(metadata.as_bytes()).unwrap();
    let find = |adapter: &str| -> Option<(Arc<dyn Adapter>, ExecutionMode)> {
        match adapter {
            "orchestrator" => Some((Arc::new(Orchestrator), ExecutionMode::Task)),
            "leaf:inline" | "leaf:fail" => Some((Arc::new(Leaf), ExecutionMode::Inline)),
            _ => Some((Arc::new(Leaf), ExecutionMode::Task)),
        }
    };
    Arc::new(Operation::read(metadata, find).unwrap())
}
