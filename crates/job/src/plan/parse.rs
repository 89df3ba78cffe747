//! From metadata to a plan, telling every problem with its place.

use std::fmt;

use catena_value::path::Path;
use catena_value::{NoCells, Value, json};

use super::source::Source;
use super::{OnFailure, Plan, Step};
use crate::limits::STEPS_MAX;

/// Something that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: a JSON pointer into the metadata.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
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

const HINT_CONST: &str = "a literal is written as";

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
    /// Notes a problem; there is nothing to go on with.
    fn problem<T>(&mut self, pointer: &str, message: impl Into<String>) -> Option<T> {
        self.problem_with_hint(pointer, message, None)
    }

    fn problem_with_hint<T>(
        &mut self,
        pointer: &str,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Option<T> {
        let (pointer, message) = (pointer.to_owned(), message.into());
        self.problems.push(Problem { pointer, message, hint });
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
        let op = match step.field("op").map(Value::as_str) {
            Some(Some(op)) if !op.is_empty() => Some(op.to_owned()),
            None => self.problem(&format!("{pointer}/op"), "is missing"),
            Some(_) => self.problem(&format!("{pointer}/op"), "must be a string with a name in it"),
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

    /// A source that may refer to the steps before `limit`.
    fn source(&mut self, value: &Value, pointer: &str, limit: u64, who: &str) -> Option<Source> {
        match value {
            Value::Map(map) => {
                let mut members = Vec::new();
                for (key, member) in map.fields() {
                    let name = key.to_text().unwrap_or_default();
                    let source = self.source(member, &below(pointer, &name), limit, who);
                    members.push(source.map(|source| (name.into_owned(), source)));
                }
                let members: Option<Vec<_>> = members.into_iter().collect();
                members.map(Source::Object)
            }
            Value::Vector(vector) => {
                let items: Result<Vec<Value>, _> = vector.iter(&NoCells).collect();
                match items {
                    Ok(items) => self.list(value, &items, pointer, limit, who),
                    Err(_) => self.problem(pointer, "is not wholly here"),
                }
            }
            literal => self.bare(literal, pointer),
        }
    }

    /// Something that is no source: the hint shows the form that says what was probably meant.
    fn bare<T>(&mut self, literal: &Value, pointer: &str) -> Option<T> {
        let text = json::to_string(literal).unwrap_or_default();
        let shown = if text.len() > 60 { "…".to_owned() } else { text };
        let hint = Some(format!("{HINT_CONST} [\"const\", {shown}]"));
        self.problem_with_hint(pointer, "is not a source", hint)
    }

    fn list(
        &mut self,
        whole: &Value,
        items: &[Value],
        pointer: &str,
        limit: u64,
        who: &str,
    ) -> Option<Source> {
        let Some((first, rest)) = items.split_first() else { return self.bare(whole, pointer) };
        match first {
            Value::Integer(_) | Value::Double(_) => {
                self.reference(first, rest, pointer, limit, who)
            }
            first => match first.as_str() {
                Some("input") => self.path(rest, pointer).map(Source::Input),
                Some("const") => match rest {
                    [value] => Some(Source::Const(value.clone())),
                    _ => self.problem(pointer, "`const` takes exactly one value"),
                },
                Some("concat") => self.parts(rest, pointer, limit, who).map(Source::Concat),
                Some("array") => self.parts(rest, pointer, limit, who).map(Source::Array),
                _ => self.bare(whole, pointer),
            },
        }
    }

    fn reference(
        &mut self,
        index: &Value,
        rest: &[Value],
        pointer: &str,
        limit: u64,
        who: &str,
    ) -> Option<Source> {
        let place = below(pointer, "0");
        let whole = index.as_i64().and_then(|index| u64::try_from(index).ok());
        let Some(found) = whole else {
            return self.problem(&place, "a step is referred to by a whole number from zero");
        };
        if found >= limit {
            let message = match found == limit && who.starts_with("step") {
                true => format!("{who} refers to itself"),
                false if who.starts_with("step") => {
                    format!("{who} refers to step {found}, which does not come before it")
                }
                false => format!("{who} refers to step {found}; there are {limit}"),
            };
            return self.problem(&place, message);
        }
        let path = self.path(rest, pointer)?;
        Some(Source::Step { index: found as u32, path })
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
        who: &str,
    ) -> Option<Vec<Source>> {
        let mut sources = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            sources.push(self.source(part, &below(pointer, &(at + 1).to_string()), limit, who));
        }
        sources.into_iter().collect()
    }
}

/// The pointer to a member, escaped as JSON pointers are.
fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}
