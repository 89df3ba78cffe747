//! `json`: small changes and choices on values, so that orchestrations need no code for them.
//!
//! **What it does:** merges values, chooses between values, sets or reads a member, and converts
//! between values and JSON texts.
//!
//! **Cost:** time in proportion to the merged values, the path or the text; the rest of a value is
//! shared and not copied.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe, it is pure.

use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_value::path::{Path, PathError};
use catena_value::{Map, NoCells, Value, json};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, invalid_input, items, load_failure, object, text};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json;

// Operations.

const MARKS: &[Mark] = &[Mark::Pure, Mark::Idempotent, Mark::ReadOnly];

const RESULT: Option<&str> =
    Some(r#"{"type":"object","required":["result"],"properties":{"result":{}}}"#);

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "merge",
        title: "Merge values",
        description: "Merges values into the first, one after the other: members of objects are merged, \
                      a null removes a member, everything else replaces (RFC 7396).",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["values"],"properties":{
                "values":{"type":"array","description":"What to merge, the first being changed by the others"}}}"#,
        ),
        output: RESULT,
    },
    Definition {
        name: "cond",
        title: "Choose by condition",
        description: "The `then` of the first case whose `when` is neither null nor false, else `default`.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["cases"],"properties":{
                "cases":{"type":"array","items":{"type":"object","properties":{"when":{},"then":{}}}},
                "default":{"description":"What to choose when no case holds"}}}"#,
        ),
        output: RESULT,
    },
    Definition {
        name: "assoc",
        title: "Set a member",
        description: "The target with a value at a path. Objects that are missing on the way are made; \
                      the position after the last of an array appends.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{
                "target":{"description":"What to change; an empty object when missing"},
                "path":{"type":["string","array"],"items":{"type":["string","integer"]},
                        "description":"Such as `a/b/0`, or as an array of names and positions"},
                "value":{"description":"What to put there"}}}"#,
        ),
        output: RESULT,
    },
    Definition {
        name: "select",
        title: "Choose by key",
        description: "The member of `cases` that `key` names, else `default`.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["key","cases"],"properties":{
                "key":{"type":["string","number","boolean","null"]},
                "cases":{"type":"object"},
                "default":{"description":"What to choose when there is no such member"}}}"#,
        ),
        output: RESULT,
    },
    Definition {
        name: "parse",
        title: "Parse JSON",
        description: "The value that a JSON text describes.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["text"],"properties":{
                "text":{"type":"string","description":"One JSON document"}}}"#,
        ),
        output: RESULT,
    },
    Definition {
        name: "stringify",
        title: "Write JSON",
        description: "A value as JSON text, without white space.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["value"],"properties":{
                "value":{"description":"What to write"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["result"],"properties":{"result":{"type":"string"}}}"#,
        ),
    },
    Definition {
        name: "path",
        title: "Read a member",
        description: "The part of a value at a path. If there is none, `default`; without a `default` \
                      the operation fails.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["value","path"],"properties":{
                "value":{"description":"What to read from"},
                "path":{"type":["string","array"],"items":{"type":["string","integer"]},
                        "description":"Such as `a/b/0`, or as an array of names and positions"},
                "default":{"description":"The result if nothing is at the path"}}}"#,
        ),
        output: RESULT,
    },
];

// Input.

fn parse_path(value: &Value) -> Result<Path, Failure> {
    let path = match value {
        Value::Vector(segments) => Path::from_values(&items(segments)?),
        other => match text(other) {
            Some(text) => Path::parse(&text),
            None => return Err(invalid_input("`path` must be a string or an array")),
        },
    };
    path.map_err(|error| Failure::new("invalid_path", error.to_string()))
}

/// The member name that a key selects: a string itself, or the JSON of any other value.
fn member_name(value: &Value) -> Result<Value, Failure> {
    match value {
        Value::String(_) => Ok(value.clone()),
        other => match json::to_string(other) {
            Ok(text) => Ok(text.into()),
            Err(error) => Err(invalid_input(format!("`key` cannot be written as JSON: {error}"))),
        },
    }
}

// Output.

fn result_output(value: Value) -> Value {
    object([("result", value)])
}

// Execution.

impl Adapter for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn description(&self) -> &'static str {
        "Small changes and choices on values, and conversion from and to JSON text."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        let fields = Fields::from_value(&call.input)?;
        let computed = match call.operation.name() {
            "merge" => merge(&fields),
            "cond" => cond(&fields),
            "assoc" => assoc(&fields),
            "select" => select(&fields),
            "parse" => parse(&fields),
            "stringify" => stringify(&fields),
            "path" => path(&fields),
            _ => Err(nested::unsupported_operation(call)),
        };
        computed.map(result_output)
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(std::future::ready(self.run_inline(&call).into()))
    }
}

fn merge(fields: &Fields<'_>) -> Result<Value, Failure> {
    let mut values = fields.items("values")?.into_iter();
    let first = values.next().unwrap_or(Value::Nil);
    values.try_fold(first, |target, patch| apply_patch(&target, &patch))
}

/// Applies a merge patch (RFC 7396). Recurses as deep as the patch, which is as deep as a JSON text
/// may be.
fn apply_patch(target: &Value, patch: &Value) -> Result<Value, Failure> {
    let Value::Map(patch) = patch else { return Ok(patch.clone()) };
    let mut result = target.as_map().cloned().unwrap_or_default();
    for (name, change) in patch.fields() {
        result = if change.is_nil() {
            result.remove(name, &NoCells)
        } else {
            let current = result.get(name, &NoCells).map_err(load_failure)?;
            let change = apply_patch(&current.unwrap_or(Value::Nil), change)?;
            result.insert(name.clone(), change, &NoCells)
        }
        .map_err(load_failure)?;
    }
    Ok(result.into())
}

fn cond(fields: &Fields<'_>) -> Result<Value, Failure> {
    for case in fields.items("cases")? {
        let case = Fields::from_value(&case)?;
        let is_true = case.get("when").is_some_and(|when| when.as_bool() != Some(false));
        if is_true {
            return Ok(case.get_or_nil("then"));
        }
    }
    Ok(fields.get_or_nil("default"))
}

fn assoc(fields: &Fields<'_>) -> Result<Value, Failure> {
    let at = fields.get("path").ok_or_else(|| invalid_input("`path` is missing"))?;
    let target = fields.get("target").cloned().unwrap_or_else(|| Map::new().into());
    parse_path(at)?
        .set(&target, &fields.get_or_nil("value"), &NoCells)
        .map_err(|error| Failure::new("invalid_path", error.to_string()))
}

fn select(fields: &Fields<'_>) -> Result<Value, Failure> {
    let cases = fields.map("cases")?.ok_or_else(|| invalid_input("`cases` is missing"))?;
    let chosen = member_name(&fields.get_or_nil("key"))?;
    let chosen = cases.get(&chosen, &NoCells).map_err(load_failure)?;
    Ok(chosen.unwrap_or_else(|| fields.get_or_nil("default")))
}

fn parse(fields: &Fields<'_>) -> Result<Value, Failure> {
    let text = fields.text("text")?;
    json::read(text.as_bytes())
        .map_err(|error| Failure::new("invalid_json", format!("`text` is not JSON: {error}")))
}

fn stringify(fields: &Fields<'_>) -> Result<Value, Failure> {
    match json::to_string(&fields.get_or_nil("value")) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(invalid_input(format!("`value` cannot be written as JSON: {error}"))),
    }
}

fn path(fields: &Fields<'_>) -> Result<Value, Failure> {
    let at = fields.get("path").ok_or_else(|| invalid_input("`path` is missing"))?;
    let path = parse_path(at)?;
    let found = match path.get(&fields.get_or_nil("value"), &NoCells) {
        Ok(found) => found,
        Err(PathError::NotAContainer { .. }) => None,
        Err(error) => return Err(Failure::new("invalid_path", error.to_string())),
    };
    let default = || fields.get_nullable("default").cloned();
    found.or_else(default).ok_or_else(|| {
        let text = path.segments().join("/");
        Failure::new("path_not_found", format!("there is nothing at the path `{text}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    type Compute = fn(&Fields<'_>) -> Result<Value, Failure>;

    fn check(compute: Compute, input: &str, expected: &str) {
        let input = value(input);
        let computed = compute(&Fields::from_value(&input).unwrap());
        assert_eq!(computed.unwrap(), value(expected), "{input:?}");
    }

    fn refused(compute: Compute, input: &str) -> Failure {
        compute(&Fields::from_value(&value(input)).unwrap()).unwrap_err()
    }

    #[test]
    fn merging_follows_the_examples_of_rfc_7396() {
        for (target, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(
                apply_patch(&value(target), &value(patch)).unwrap(),
                value(expected),
                "{patch}"
            );
        }
        check(merge, r#"{"values":[{"a":1},{"b":2},{"a":null}]}"#, r#"{"b":2}"#);
        check(merge, r#"{"values":[]}"#, "null");
        assert_eq!(refused(merge, r#"{"values":{}}"#).code, "invalid_input");
    }

    #[test]
    fn the_first_case_that_is_neither_null_nor_false_is_chosen() {
        let cases = r#""cases":[{"when":null,"then":1},{"when":false,"then":2},{"when":0,"then":3},{"when":true,"then":4}]"#;
        check(cond, &format!("{{{cases}}}"), "3");
        check(cond, r#"{"cases":[{"then":1}],"default":"d"}"#, r#""d""#);
        check(cond, r#"{"cases":[]}"#, "null");
        check(cond, r#"{"cases":[{"when":""}],"default":1}"#, "null");
    }

    #[test]
    fn a_member_is_set_at_a_path_of_either_form() {
        check(assoc, r#"{"target":{"a":1},"path":"b/c","value":2}"#, r#"{"a":1,"b":{"c":2}}"#);
        check(assoc, r#"{"target":{"a":[1]},"path":["a",1],"value":2}"#, r#"{"a":[1,2]}"#);
        check(assoc, r#"{"path":["a/b"],"value":2}"#, r#"{"a/b":2}"#);
        check(assoc, r#"{"target":[1],"path":"","value":2}"#, "2");
        let wrong = refused(assoc, r#"{"target":{"a":1},"path":"a/b","value":2}"#);
        assert_eq!(
            wrong.error,
            "cannot descend into `a`: found integer, expected an object or array"
        );
        assert_eq!(refused(assoc, r#"{"path":1}"#).code, "invalid_input");
        assert_eq!(refused(assoc, "{}").error, "`path` is missing");
    }

    #[test]
    fn a_key_selects_by_its_text() {
        check(select, r#"{"key":"a","cases":{"a":1},"default":2}"#, "1");
        check(select, r#"{"key":"b","cases":{"a":1},"default":2}"#, "2");
        check(select, r#"{"key":1,"cases":{"1":"one"}}"#, r#""one""#);
        check(select, r#"{"key":true,"cases":{"true":null},"default":2}"#, "null");
        check(select, r#"{"key":"x","cases":{}}"#, "null");
    }

    #[test]
    fn a_text_is_parsed_and_a_value_is_written() {
        check(parse, r#"{"text":" {\"a\":[1,2.0]} "}"#, r#"{"a":[1,2.0]}"#);
        check(parse, r#"{"text":"null"}"#, "null");
        assert_eq!(refused(parse, r#"{"text":"{\"a\":"}"#).code, "invalid_json");
        assert_eq!(refused(parse, r#"{"text":"1 2"}"#).code, "invalid_json");
        assert_eq!(refused(parse, "{}").error, "`text` is missing");
        check(stringify, r#"{"value":{"a":[1,2.0,"é"]}}"#, r#""{\"a\":[1,2.0,\"é\"]}""#);
        check(stringify, r#"{"value":null}"#, r#""null""#);
    }

    #[test]
    fn a_member_is_read_or_replaced_by_the_default() {
        check(path, r#"{"value":{"a":[1,{"b":2}]},"path":"a/1/b"}"#, "2");
        check(path, r#"{"value":{"a/b":2},"path":["a/b"]}"#, "2");
        check(path, r#"{"value":{"a":null},"path":"a","default":1}"#, "null");
        check(path, r#"{"value":{},"path":"a","default":null}"#, "null");
        check(path, r#"{"value":5,"path":"a","default":1}"#, "1");
        check(path, r#"{"value":5,"path":""}"#, "5");
        let missing = refused(path, r#"{"value":[1],"path":"1/x"}"#);
        assert_eq!(missing.code, "path_not_found");
        assert_eq!(missing.error, "there is nothing at the path `1/x`");
        assert_eq!(refused(path, r#"{"value":1,"path":[{}]}"#).code, "invalid_path");
    }
}
