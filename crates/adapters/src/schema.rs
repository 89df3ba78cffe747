//! `schema`: JSON Schemas of values, and validation and coercion of values with JSON Schemas.
//!
//! **What it does:** infers a schema, validates values, coerces a value, checks a schema.
//!
//! **Cost:** time in proportion to the value and the schema. A schema is compiled for each call, on a
//! compute thread; one that is too costly is refused before that. Nothing is fetched: a reference to
//! another document is an error.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe, it is pure.

mod coerce;
mod infer;

use catena_engine::limits::SCHEMA_CHECK_ALL_STEPS_MAX;
use catena_engine::operations::schema::{Schema, Violation};
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_value::{Map, Value};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, array, invalid_input, object};
use crate::limits::VIOLATIONS_MAX;
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaAdapter;

// Operations.

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
                "error":{"type":"string","description":"The first violation, if there is one"},
                "errors":{"type":"array","items":{"type":"object","properties":{
                    "path":{"type":"string","description":"Where, as a JSON pointer"},
                    "message":{"type":"string"}}}}}}"#,
        ),
    },
    Definition {
        name: "validate-all",
        title: "Find all violations",
        description: "All violations of a JSON Schema by a value or, with `values`, by each of many.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["schema"],"properties":{
                "value":{"description":"What to check"},
                "values":{"type":["array","null"],"description":"What to check, instead of one value"},
                "schema":{"type":["object","boolean"],"description":"The JSON Schema"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["valid"],"properties":{
                "valid":{"type":"boolean","description":"Whether the value fits, or all of them do"},
                "errors":{"type":"array","items":{"type":"string"},"description":"For one value"},
                "violations":{"type":"array","description":"The same as `{path, message}`"},
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

fn required_value(fields: &Fields<'_>, name: &str) -> Result<Value, Failure> {
    fields.get_nullable(name).cloned().ok_or_else(|| invalid_input(format!("`{name}` is missing")))
}

fn compile(schema: &Value) -> Result<Schema, Failure> {
    Schema::compile(schema).map_err(|error| {
        Failure::new("invalid_schema", format!("`schema` is not a valid JSON Schema: {error}"))
    })
}

// Output.

fn validation_output(violations: Vec<Violation>) -> Value {
    let first = violations.first().map(ToString::to_string);
    let mut members = vec![("valid", first.is_none().into()), ("errors", errors(violations))];
    members.extend(first.map(|first| ("error", first.into())));
    members.into_iter().collect::<Map>().into()
}

/// All violations by one value, as texts and with their places.
fn violations_output(violations: Vec<Violation>) -> Value {
    let texts = violations.iter().map(|violation| violation.to_string().into()).collect();
    object([
        ("valid", violations.is_empty().into()),
        ("errors", array(texts)),
        ("violations", errors(violations)),
    ])
}

fn errors(violations: Vec<Violation>) -> Value {
    let error = |violation: Violation| {
        object([("path", violation.place.into()), ("message", violation.problem.into())])
    };
    array(violations.into_iter().map(error).collect())
}

fn validations_output(each: Vec<Vec<Violation>>) -> Value {
    let all = each.iter().all(Vec::is_empty);
    let results = each.into_iter().map(validation_output).collect();
    object([("valid", all.into()), ("results", array(results))])
}

fn check_output(compiled: Result<(), String>) -> Value {
    match compiled {
        Ok(()) => object([("valid", true.into())]),
        Err(error) => object([("valid", false.into()), ("error", error.into())]),
    }
}

// Execution.

impl Adapter for SchemaAdapter {
    fn name(&self) -> &'static str {
        "schema"
    }

    fn description(&self) -> &'static str {
        "Infers and checks JSON Schemas, and validates and coerces values with them."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        let fields = Fields::from_value(&call.input)?;
        match call.operation.name() {
            "infer" => {
                Ok(object([("schema", infer::infer_schema(&required_value(&fields, "value")?)?)]))
            }
            "validate" => {
                let schema = compile(&required_value(&fields, "schema")?)?;
                Ok(validation_output(
                    schema.violations(&required_value(&fields, "value")?, VIOLATIONS_MAX),
                ))
            }
            "validate-all" => validate_all(&fields),
            "coerce" => coerce(&fields),
            "check" => Ok(check_output(
                Schema::compile(&required_value(&fields, "schema")?).map(|_compiled| ()),
            )),
            _ => Err(nested::unsupported_operation(call)),
        }
    }

    /// All but the inference compile a schema.
    fn needs_compute_thread(&self, name: &str) -> bool {
        name != "infer"
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(std::future::ready(self.run_inline(&call).into()))
    }
}

/// The bounds on violations and on the steps of a check apply to all values together, because they
/// share one output and one call.
fn validate_all(fields: &Fields<'_>) -> Result<Value, Failure> {
    let schema = compile(&required_value(fields, "schema")?)?;
    if fields.get("values").is_none() {
        let value = fields.get_or_nil("value");
        return Ok(violations_output(schema.violations(&value, VIOLATIONS_MAX)));
    }
    let mut left = VIOLATIONS_MAX;
    let mut steps = SCHEMA_CHECK_ALL_STEPS_MAX;
    let each = fields.items("values")?.into_iter().map(|value| {
        let violations = schema.violations_within(&mut steps, &value, left.max(1));
        left = left.saturating_sub(violations.len());
        violations
    });
    Ok(validations_output(each.collect()))
}

fn coerce(fields: &Fields<'_>) -> Result<Value, Failure> {
    let schema = required_value(fields, "schema")?;
    let compiled = compile(&schema)?;
    let coerced = coerce::coerce(&required_value(fields, "value")?, &schema)?;
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
    fn every_violation_is_reported_with_its_location() {
        assert_eq!(validation_output(Vec::new()), value(r#"{"valid":true,"errors":[]}"#));
        assert_eq!(
            validation_output(vec![violation("/a/0")]),
            value(
                r#"{"valid":false,"error":"wrong at /a/0",
                    "errors":[{"path":"/a/0","message":"wrong"}]}"#
            )
        );
    }

    #[test]
    fn all_values_are_valid_if_each_is() {
        assert_eq!(validations_output(Vec::new()), value(r#"{"valid":true,"results":[]}"#));
        let mixed = validations_output(vec![Vec::new(), vec![violation("")]]);
        assert_eq!(
            mixed,
            value(
                r#"{"valid":false,"results":[{"valid":true,"errors":[]},
                    {"valid":false,"error":"wrong","errors":[{"path":"","message":"wrong"}]}]}"#
            )
        );
    }

    #[test]
    fn an_invalid_schema_is_reported_with_its_error() {
        assert_eq!(check_output(Ok(())), value(r#"{"valid":true}"#));
        let unsound = check_output(Err("no such type".to_owned()));
        assert_eq!(unsound, value(r#"{"valid":false,"error":"no such type"}"#));
    }
}
