//! `auth`: who the caller is.
//!
//! **What it does:** returns the identity under which the venue knows the caller.
//!
//! **Cost:** none.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe, it only reads.

use catena_engine::{
    Adapter, Call, Caller, ExecutionMode, Failure, Operation, Registration, TurnFuture,
};
use catena_value::Value;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::object;
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Auth;

// Operations.

const OPERATIONS: &[Definition] = &[Definition {
    name: "whoami",
    title: "Who am I",
    description: "Returns the caller's DID, and whether the caller showed a token.",
    mode: ExecutionMode::Inline,
    marks: &[Mark::Idempotent, Mark::ReadOnly],
    input: Some("{}"),
    output: Some(
        r#"{"type":"object","required":["caller","authenticated","internal"],"properties":{
            "caller":{"type":"string","description":"The caller's DID"},
            "authenticated":{"type":"boolean"},
            "internal":{"type":"boolean","description":"Whether the venue itself is the caller"}}}"#,
    ),
}];

// Input: ignored.

// Output.

fn describe_caller(caller: &Caller) -> Value {
    object([
        ("caller", Value::from(&*caller.did)),
        ("authenticated", caller.is_authenticated().into()),
        ("internal", false.into()),
    ])
}

// Execution.

impl Adapter for Auth {
    fn name(&self) -> &'static str {
        "auth"
    }

    fn description(&self) -> &'static str {
        "Who the caller is."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        match call.operation.name() {
            "whoami" => Ok(describe_caller(&call.caller)),
            _ => Err(nested::unsupported_operation(call)),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(std::future::ready(self.run_inline(&call).into()))
    }
}

#[cfg(test)]
mod tests {
    use catena_engine::Role;

    use super::*;
    use crate::fields::value;

    #[test]
    fn a_caller_is_described_by_did_and_token() {
        let known = Caller::known("did:key:z6Mk");
        assert_eq!(
            describe_caller(&known),
            value(r#"{"caller":"did:key:z6Mk","authenticated":true,"internal":false}"#)
        );
        let anonymous = Caller { role: Role::Anonymous, ..Caller::known("did:x:public") };
        assert_eq!(
            describe_caller(&anonymous),
            value(r#"{"caller":"did:x:public","authenticated":false,"internal":false}"#)
        );
    }
}
