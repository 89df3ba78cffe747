//! `schema`: JSON Schemas of values, and values by JSON Schemas.
//!
//! What it does: infers a schema, checks values against one, makes a value fit one, checks a
//! schema. What it costs: time in proportion to the value and the schema; a schema is compiled for
//! each call. Nothing is fetched: a reference to a schema elsewhere is an error.
//! How it is cancelled: it is not, it ends at once. Whether a repeat is safe: yes, it is pure.

mod coerce;
mod infer;

use catena_engine::schema::{Schema, Violation};
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_value::Value;

use crate::definition::{Definition, Mark, check, registrations};
use crate::fields::{Fields, array, invalid, object};
use crate::limits::VIOLATIONS_MAX;
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaAdapter;

const MARKS: &[Mark] = &[Mark::Pure, Mark::Idempotent, Mark::ReadOnly];

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "infer",
        title: "Infer a schema",
        description: "A JSON Schema (2020-12) that the value fits. Items of an array share one schema; \
                      members that all of them have are required.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["value"],"properties":{
                "value":{"description":"What to describe"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["schema"],"properties":{"schema":{"type":"object"}}}"#,
        ),
    },
    Definition {
        name: "validate",
        title: "Check a value",
        description: "Whether a value fits a JSON Schema, and where it does not.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["value","schema"],"properties":{
                "value":{"description":"What to check"},
                "schema":{"type":["object","boolean"],"description":"The JSON Schema"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["valid","errors"],"properties":{
                "valid":{"type":"boolean"},
                "errors":{"type":"array","items":{"type":"object","properties":{
                    "path":{"type":"string","description":"Where, as a JSON pointer"},
                    "message":{"type":"string"}}}}}}"#,
        ),
    },
    Definition {
        name: "validate-all",
        title: "Check many values",
        description: "Whether each of many values fits a JSON Schema, and where it does not.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["values","schema"],"properties":{
                "values":{"type":"array"},
                "schema":{"type":["object","boolean"],"description":"The JSON Schema"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["valid","results"],"properties":{
                "valid":{"type":"boolean","description":"Whether all of them fit"},
                "results":{"type":"array","items":{"type":"object","properties":{
                    "valid":{"type":"boolean"},"errors":{"type":"array"}}}}}}"#,
        ),
    },
    Definition {
        name: "coerce",
        title: "Make a value fit",
        description: "The value with what a JSON Schema lets guess put right: texts that are numbers or \
                      booleans, numbers that should be texts, single values that should be arrays, \
                      defaults of members that are missing.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["value","schema"],"properties":{
                "value":{"description":"What to change"},
                "schema":{"type":["object","boolean"],"description":"The JSON Schema"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["value","changes","valid"],"properties":{
                "value":{},
                "changes":{"type":"array","items":{"type":"object","properties":{
                    "path":{"type":"string","description":"Where, as a JSON pointer"},
                    "from":{"description":"What was there; absent when nothing was"},
                    "to":{}}}},
                "valid":{"type":"boolean","description":"Whether the value fits now"},
                "errors":{"type":"array"}}}"#,
        ),
    },
    Definition {
        name: "check",
        title: "Check a schema",
        description: "Whether a JSON Schema is one.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["schema"],"properties":{
                "schema":{"description":"What to check"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["valid"],"properties":{
                "valid":{"type":"boolean"},"error":{"type":"string"}}}"#,
        ),
    },
];

// Input.

fn given(fields: &Fields<'_>, name: &str) -> Result<Value, Failure> {
    fields.any(name).cloned().ok_or_else(|| invalid(format!("`{name}` is missing")))
}

fn compiled(schema: &Value) -> Result<Schema, Failure> {
    Schema::compile(schema)
        .map_err(|error| Failure::new("invalid_schema", format!("`schema` is no schema: {error}")))
}

// Output.

fn verdict(violations: Vec<Violation>) -> Value {
    let is_valid = violations.is_empty();
    object([("valid", is_valid.into()), ("errors", errors(violations))])
}

fn errors(violations: Vec<Violation>) -> Value {
    let error = |violation: Violation| {
        object([("path", violation.place.into()), ("message", violation.problem.into())])
    };
    array(violations.into_iter().map(error).collect())
}

fn verdicts(each: Vec<Vec<Violation>>) -> Value {
    let all = each.iter().all(Vec::is_empty);
    let results = each.into_iter().map(verdict).collect();
    object([("valid", all.into()), ("results", array(results))])
}

fn soundness(compiled: Result<(), String>) -> Value {
    match compiled {
        Ok(()) => object([("valid", true.into())]),
        Err(error) => object([("valid", false.into()), ("error", error.into())]),
    }
}

// Running.

impl Adapter for SchemaAdapter {
    fn name(&self) -> &'static str {
        "schema"
    }

    fn description(&self) -> &'static str {
        "JSON Schemas of values, and values by JSON Schemas."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check(operation.adapter(), OPERATIONS)
    }

    fn compute(&self, call: &Call) -> Result<Value, Failure> {
        let fields = Fields::of(&call.input)?;
        match call.operation.name() {
            "infer" => Ok(object([("schema", infer::schema_of(&given(&fields, "value")?)?)])),
            "validate" => {
                let schema = compiled(&given(&fields, "schema")?)?;
                Ok(verdict(schema.violations(&given(&fields, "value")?, VIOLATIONS_MAX)))
            }
            "validate-all" => validate_all(&fields),
            "coerce" => coerce(&fields),
            "check" => {
                Ok(soundness(Schema::compile(&given(&fields, "schema")?).map(|_compiled| ())))
            }
            _ => Err(nested::unsupported(call)),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(std::future::ready(self.compute(&call).into()))
    }
}

/// The bound on violations is for all values together: so is the output that they go to.
fn validate_all(fields: &Fields<'_>) -> Result<Value, Failure> {
    let schema = compiled(&given(fields, "schema")?)?;
    let mut left = VIOLATIONS_MAX;
    let each = fields.items("values")?.into_iter().map(|value| {
        let violations = schema.violations(&value, left.max(1));
        left = left.saturating_sub(violations.len());
        violations
    });
    Ok(verdicts(each.collect()))
}

fn coerce(fields: &Fields<'_>) -> Result<Value, Failure> {
    let schema = given(fields, "schema")?;
    let compiled = compiled(&schema)?;
    let coerced = coerce::coerce(&given(fields, "value")?, &schema)?;
    let violations = compiled.violations(&coerced.value, VIOLATIONS_MAX);
    Ok(object([
        ("changes", array(coerced.changes)),
        ("valid", violations.is_empty().into()),
        ("errors", errors(violations)),
        ("value", coerced.value),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn violation(place: &str) -> Violation {
        Violation { place: place.to_owned(), problem: "wrong".to_owned() }
    }

    #[test]
    fn a_verdict_names_every_place() {
        assert_eq!(verdict(Vec::new()), value(r#"{"valid":true,"errors":[]}"#));
        assert_eq!(
            verdict(vec![violation("/a/0")]),
            value(r#"{"valid":false,"errors":[{"path":"/a/0","message":"wrong"}]}"#)
        );
    }

    #[test]
    fn all_are_valid_when_each_is() {
        assert_eq!(verdicts(Vec::new()), value(r#"{"valid":true,"results":[]}"#));
        let mixed = verdicts(vec![Vec::new(), vec![violation("")]]);
        assert_eq!(
            mixed,
            value(
                r#"{"valid":false,"results":[{"valid":true,"errors":[]},
                    {"valid":false,"errors":[{"path":"","message":"wrong"}]}]}"#
            )
        );
    }

    #[test]
    fn a_schema_is_sound_or_told_why_not() {
        assert_eq!(soundness(Ok(())), value(r#"{"valid":true}"#));
        let unsound = soundness(Err("no such type".to_owned()));
        assert_eq!(unsound, value(r#"{"valid":false,"error":"no such type"}"#));
    }
}
