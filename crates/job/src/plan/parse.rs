//! Parsing metadata into a plan, reporting every problem with its JSON pointer.

use std::fmt;

use catena_value::path::Path;
use catena_value::{NoCells, Value, json};

use super::source::Source;
use super::{OnFailure, Plan, Step};
use crate::limits::STEPS_MAX;
use crate::members::Members;

/// The members of a step.
const STEP: Members = Members {
    known: &["op", "input", "name", "venue"],
    mistaken: &[
        ("operation", Some("op")),
        ("id", Some("name")),
        ("after", None),
        ("condition", None),
        ("dependsOn", None),
        ("if", None),
        ("needs", None),
        ("retries", None),
        ("retry", None),
        ("timeout", None),
        ("timeoutMs", None),
        ("when", None),
    ],
};

/// A problem in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer into the metadata.
    pub pointer: String,
    /// What is wrong at the pointer.
    pub message: String,
    /// What to write instead, if that is known.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

pub(super) fn parse(metadata: &Value) -> Result<Plan, Vec<Problem>> {
    let mut parser = Parser { problems: Vec::new() };
    let plan = parser.plan(metadata);
    match plan {
        Some(plan) if parser.problems.is_empty() => Ok(plan),
        _ => Err(parser.problems),
    }
}

struct Parser {
    problems: Vec<Problem>,
}

impl Parser {
    /// Records a problem and returns `None`, since there is no value to continue with.
    fn problem<T>(&mut self, pointer: &str, message: impl Into<String>) -> Option<T> {
        self.problem_with_hint(pointer, message, None)
    }

    fn problem_with_hint<T>(
        &mut self,
        pointer: &str,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Option<T> {
        let pointer = pointer.to_owned();
        self.problems.push(Problem { pointer, message: message.into(), hint });
        None
    }

    fn plan(&mut self, metadata: &Value) -> Option<Plan> {
        let operation = metadata.as_map().and_then(|map| map.field("operation"));
        let Some(operation) = operation.and_then(Value::as_map) else {
            return self.problem("/operation", "must be an object");
        };
        if operation.field("adapter").and_then(Value::as_str) != Some("orchestrator") {
            self.problem::<()>("/operation/adapter", "must be \"orchestrator\"");
        }
        let on_failure = self.on_failure(operation.field("onFailure"));
        let steps = self.steps(operation.field("steps"));
        let count = match operation.field("steps") {
            Some(Value::Vector(steps)) => steps.len(),
            _ => 0,
        };
        let result = match operation.field("result") {
            None => self.problem("/operation/result", "is missing"),
            Some(result @ (Value::Map(_) | Value::Vector(_))) => {
                self.source(result, "/operation/result", count, "the result")
            }
            Some(_) => self.problem("/operation/result", "must be an object or an array"),
        };
        Some(Plan { steps: steps?, result: result?, on_failure: on_failure? })
    }

    fn on_failure(&mut self, value: Option<&Value>) -> Option<OnFailure> {
        match value.map(Value::as_str) {
            None => Some(OnFailure::Cancel),
            Some(Some("cancel")) => Some(OnFailure::Cancel),
            Some(Some("leave")) => Some(OnFailure::Leave),
            Some(_) => self.problem("/operation/onFailure", "must be \"cancel\" or \"leave\""),
        }
    }

    fn steps(&mut self, value: Option<&Value>) -> Option<Vec<Step>> {
        const POINTER: &str = "/operation/steps";
        let Some(Value::Vector(steps)) = value else {
            return self.problem(POINTER, "must be an array of steps");
        };
        if steps.is_empty() {
            return self.problem(POINTER, "must have at least one step");
        }
        if steps.len() > u64::from(STEPS_MAX) {
            let message = format!("has {} steps; at most {STEPS_MAX} are allowed", steps.len());
            return self.problem(POINTER, message);
        }
        let mut parsed = Vec::new();
        for (index, step) in steps.iter(&NoCells).enumerate() {
            let step = step.unwrap_or(Value::Nil);
            parsed.push(self.step(&step, index as u64));
        }
        parsed.into_iter().collect()
    }

    fn step(&mut self, value: &Value, index: u64) -> Option<Step> {
        let pointer = format!("/operation/steps/{index}");
        let Some(step) = value.as_map() else {
            return self.problem(&pointer, "must be an object with `op` and `input`");
        };
        for unknown in STEP.unknown(step) {
            self.problem::<()>(&child_pointer(&pointer, &unknown.name), unknown.to_string());
        }
        let op = match step.field("op").map(Value::as_str) {
            Some(Some(op)) if !op.is_empty() => Some(op.to_owned()),
            None => self.problem(&format!("{pointer}/op"), "is missing"),
            Some(_) => self.problem(&format!("{pointer}/op"), "must be a non-empty string"),
        };
        let input = match step.field("input") {
            None => self.problem(&format!("{pointer}/input"), "is missing"),
            Some(input) => {
                self.source(input, &format!("{pointer}/input"), index, &format!("step {index}"))
            }
        };
        let name = self.text(step.field("name"), &format!("{pointer}/name"));
        let venue = self.text(step.field("venue"), &format!("{pointer}/venue"));
        Some(Step { op: op?, input: input?, name: name?, venue: venue? })
    }

    fn text(&mut self, value: Option<&Value>, pointer: &str) -> Option<Option<String>> {
        match value {
            None | Some(Value::Nil) => Some(None),
            Some(value) => match value.as_str() {
                Some(text) => Some(Some(text.to_owned())),
                None => self.problem(pointer, "must be a string"),
            },
        }
    }

    /// Parses a source that may refer to the steps before `limit`. `referrer` names the part of the
    /// definition in messages.
    fn source(
        &mut self,
        value: &Value,
        pointer: &str,
        limit: u64,
        referrer: &str,
    ) -> Option<Source> {
        match value {
            Value::Map(map) => {
                let mut members = Vec::new();
                for (key, member) in map.fields() {
                    let name = key.to_text().unwrap_or_default();
                    let source =
                        self.source(member, &child_pointer(pointer, &name), limit, referrer);
                    members.push(source.map(|source| (name.into_owned(), source)));
                }
                let members: Option<Vec<_>> = members.into_iter().collect();
                members.map(Source::Object)
            }
            Value::Vector(vector) => {
                let items: Result<Vec<Value>, _> = vector.iter(&NoCells).collect();
                match items {
                    Ok(items) => self.array(value, &items, pointer, limit, referrer),
                    Err(_) => self.problem(pointer, "is not entirely in memory"),
                }
            }
            literal => self.not_a_source(literal, pointer),
        }
    }

    /// Records that a value is not a source. The hint shows the form that was probably meant.
    fn not_a_source<T>(&mut self, literal: &Value, pointer: &str) -> Option<T> {
        let text = json::to_string(literal).unwrap_or_default();
        let shown = if text.len() > 60 { "…".to_owned() } else { text };
        let hint = Some(format!("write a literal as [\"const\", {shown}]"));
        self.problem_with_hint(pointer, "is not a source", hint)
    }

    /// Parses an array source such as `["input", …]`; `items` are the elements of `array`.
    fn array(
        &mut self,
        array: &Value,
        items: &[Value],
        pointer: &str,
        limit: u64,
        referrer: &str,
    ) -> Option<Source> {
        let Some((first, rest)) = items.split_first() else {
            return self.not_a_source(array, pointer);
        };
        match first {
            Value::Integer(_) | Value::Double(_) => {
                self.reference(first, rest, pointer, limit, referrer)
            }
            first => match first.as_str() {
                Some("input") => self.path(rest, pointer).map(Source::Input),
                Some("const") => match rest {
                    [value] => Some(Source::Const(value.clone())),
                    _ => self.problem(pointer, "`const` takes exactly one value"),
                },
                Some("concat") => self.parts(rest, pointer, limit, referrer).map(Source::Concat),
                Some("array") => self.parts(rest, pointer, limit, referrer).map(Source::Array),
                _ => self.not_a_source(array, pointer),
            },
        }
    }

    fn reference(
        &mut self,
        index: &Value,
        rest: &[Value],
        pointer: &str,
        limit: u64,
        referrer: &str,
    ) -> Option<Source> {
        let index_pointer = child_pointer(pointer, "0");
        let index = index.as_i64().and_then(|index| u64::try_from(index).ok());
        let Some(index) = index else {
            let message = "must be the index of a step: a whole number of at least 0";
            return self.problem(&index_pointer, message);
        };
        if index >= limit {
            let message = if !referrer.starts_with("step") {
                format!("{referrer} refers to step {index}, which does not exist")
            } else if index == limit {
                format!("{referrer} refers to itself")
            } else {
                format!("{referrer} refers to step {index}, which does not come before it")
            };
            return self.problem(&index_pointer, message);
        }
        let path = self.path(rest, pointer)?;
        Some(Source::Step { index: index as u32, path })
    }

    fn path(&mut self, segments: &[Value], pointer: &str) -> Option<Path> {
        match Path::from_values(segments) {
            Ok(path) => Some(path),
            Err(error) => self.problem(pointer, error.to_string()),
        }
    }

    fn parts(
        &mut self,
        parts: &[Value],
        pointer: &str,
        limit: u64,
        referrer: &str,
    ) -> Option<Vec<Source>> {
        let mut sources = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            sources.push(self.source(
                part,
                &child_pointer(pointer, &(at + 1).to_string()),
                limit,
                referrer,
            ));
        }
        sources.into_iter().collect()
    }
}

/// The JSON pointer to a member of the container at `pointer`, with the name escaped.
fn child_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}
