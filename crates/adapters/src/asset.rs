//! `asset`: assets of the caller.
//!
//! **What it does:** `pin` registers the value at a path as an asset of the caller, under its Value ID.
//!
//! **Cost:** one commit with its job.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe: the ID determines the asset.

use catena_engine::operations::HostReply;
use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Need, Operation, Registration, RootId, Roots, Turn,
    TurnFuture,
};
use catena_value::Value;

use crate::covia::{Covia, located, query};
use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, object};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset;

// Operations.

const OPERATIONS: &[Definition] = &[Definition {
    name: "pin",
    title: "Pin a value",
    description: "Registers the object at a path as an asset of the caller, which later changes of the path \
                  do not affect.",
    mode: ExecutionMode::Roots,
    marks: &[Mark::Idempotent],
    input: Some(r#"{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}"#),
    output: Some(
        r#"{"type":"object","required":["path","hash"],"properties":{
            "path":{"type":"string","description":"The path of the asset"},
            "hash":{"type":"string","description":"Its ID: 64 hex digits"}}}"#,
    ),
}];

// Execution.

fn pin(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let found = located(call, roots)?.into_iter().next().and_then(|(_, value)| value);
    let Some(value) = found else {
        let path = Fields::from_value(&call.input)?.text("path")?;
        return Err(Failure::new("not_found", format!("there is nothing at `{path}`")));
    };
    let value = value.fully_loaded(roots.cells()).map_err(|error| query::load_failure(&error))?;
    if value.as_map().is_none() {
        let text = format!("an asset is an object, and the value is of type {}", value.kind());
        return Err(Failure::new("invalid_input", text));
    }
    let hash = value.id().to_string().trim_start_matches("0x").to_owned();
    roots.store_asset(value);
    Ok(object([("path", format!("a/{hash}").into()), ("hash", hash.into())]))
}

impl Adapter for Asset {
    fn name(&self) -> &'static str {
        "asset"
    }

    fn description(&self) -> &'static str {
        "Registers values of the caller as assets."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn needs(&self, operation: &Operation, input: &Value) -> Vec<Need> {
        let mut needs = Covia.needs(operation, input);
        needs.push(Need::new("asset/store", "a"));
        needs
    }

    fn roots_owner(&self, call: &Call) -> Option<String> {
        Covia.roots_owner(call)
    }

    fn roots(&self, call: &Call) -> Result<Vec<RootId>, Failure> {
        Covia.roots(call)
    }

    fn prepare(&self, call: &Call) -> Option<HostReply<Value, Failure>> {
        Covia.prepare(call)
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        pin(call, roots)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let failure = nested::unsupported_operation(&call);
        Box::pin(std::future::ready(Turn::Failed(failure)))
    }
}
