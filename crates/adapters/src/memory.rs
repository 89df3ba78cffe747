//! `memory`: a numbered list of facts, which agents read and edit.
//!
//! **What it does:** remembers, updates, forgets and recalls entries of a list in the caller's workspace,
//! `w/memory` by default. Entries are `{text, ts, updated?}` and are numbered from 1.
//!
//! **Cost:** a change loads and stores the cells on the path to it, and is one commit with its job.
//! `forget` and `recall` read the complete list.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe: a change is committed together with its job, so it is made once.

use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Need, Operation, Registration, RootId, Roots, Turn,
    TurnFuture,
};
use catena_value::path::Path;
use catena_value::{Map, Value, Vector};

use crate::covia::address::Address;
use crate::covia::{self, query};
use crate::definition::{Definition, check_reference, registrations};
use crate::fields::{Fields, invalid_input, object, text};
use crate::limits::{MEMORY_ENTRIES_MAX, MEMORY_TEXT_BYTES_MAX};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory;

// Operations.

const OPERATIONS: &[Definition] = &[Definition {
    name: "memory",
    title: "Memory",
    description: "A numbered list of facts: `recall` returns it as text, `remember` appends one, `update` \
                  replaces one, and `forget` removes one.",
    mode: ExecutionMode::Roots,
    marks: &[],
    input: Some(
        r#"{"type":"object","required":["command"],"properties":{
            "command":{"enum":["recall","remember","update","forget"]},
            "text":{"type":["string","null"]},
            "n":{"type":["integer","null"],"minimum":1,"description":"The number of the entry, from 1"},
            "path":{"type":["string","null"],"description":"The list; w/memory by default"}}}"#,
    ),
    output: Some(
        r#"{"type":["object","string","null"],"properties":{
            "n":{"type":"integer","description":"The number of the entry"},
            "count":{"type":"integer","description":"The number of entries"}}}"#,
    ),
}];

/// Where the list is by default.
const PATH: &str = "w/memory";

// Input.

fn list_path(fields: &Fields<'_>) -> Result<String, Failure> {
    Ok(fields.optional_text("path")?.unwrap_or_else(|| PATH.to_owned()))
}

fn new_text(fields: &Fields<'_>) -> Result<String, Failure> {
    let text = fields.text("text")?;
    if text.trim().is_empty() || text.len() > MEMORY_TEXT_BYTES_MAX {
        return Err(invalid_input(format!("`text` must have 1 to {MEMORY_TEXT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Returns the position of the entry that `n` names.
fn position(fields: &Fields<'_>, count: usize) -> Result<usize, Failure> {
    let n = fields.integer("n", 1, i64::MAX)?;
    let n = n.ok_or_else(|| invalid_input("`n` is missing"))?;
    let at = usize::try_from(n - 1).ok().filter(|at| *at < count);
    at.ok_or_else(|| Failure::new("not_found", format!("there is no entry {n}; there are {count}")))
}

// Output.

fn entry(text: &str, created: i64, updated: Option<i64>) -> Value {
    let mut members = vec![("text", Value::from(text)), ("ts", created.into())];
    members.extend(updated.map(|updated| ("updated", updated.into())));
    members.into_iter().collect::<Map>().into()
}

/// Returns the list as numbered lines; null if it is empty.
fn recalled(entries: &[Value]) -> Value {
    let line = |(at, entry): (usize, &Value)| {
        let fact = entry.as_map().and_then(|entry| entry.field("text")).unwrap_or(entry);
        format!("{}. {}", at + 1, text(fact).unwrap_or_default())
    };
    let lines: Vec<String> = entries.iter().enumerate().map(line).collect();
    if lines.is_empty() { Value::Nil } else { lines.join("\n").into() }
}

// Execution.

/// Returns the entries of the list.
fn load(current: &Value, path: &Path, roots: &Roots) -> Result<Vec<Value>, Failure> {
    let Some(list) = query::find(current, path, roots.cells())? else { return Ok(Vec::new()) };
    let list = list.fully_loaded(roots.cells()).map_err(|error| query::load_failure(&error))?;
    match list {
        Value::Nil => Ok(Vec::new()),
        Value::Vector(entries) => crate::fields::items(&entries),
        other => Err(invalid_input(format!("the memory is of type {}, not array", other.kind()))),
    }
}

/// Changes the entries. Returns the number of the entry that changed.
fn change(
    command: &str,
    fields: &Fields<'_>,
    entries: &mut Vec<Value>,
    now: i64,
) -> Result<usize, Failure> {
    let count = entries.len();
    match command {
        "remember" if count >= MEMORY_ENTRIES_MAX => {
            let text = format!("a memory has at most {MEMORY_ENTRIES_MAX} entries");
            Err(Failure::new("too_many_entries", text))
        }
        "remember" => {
            entries.push(entry(&new_text(fields)?, now, None));
            Ok(count + 1)
        }
        "update" => {
            let at = position(fields, count)?;
            let known = entries.get(at).and_then(|entry| entry.as_map()?.field("ts")?.as_i64());
            let changed = entry(&new_text(fields)?, known.unwrap_or(now), Some(now));
            entries.splice(at..=at, [changed]);
            Ok(at + 1)
        }
        "forget" => {
            let at = position(fields, count)?;
            entries.remove(at);
            Ok(at + 1)
        }
        other => Err(invalid_input(format!("`command` is {other:?}"))),
    }
}

fn run(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let path = list_path(&fields)?;
    let (root, path) = Address::parse(&path, &call.caller.did)?.writable(&path)?;
    let current = roots.get(&root)?.cloned().unwrap_or_else(|| Map::new().into());
    let mut entries = load(&current, &path, roots)?;
    let command = fields.text("command")?;
    if command == "recall" {
        return Ok(recalled(&entries));
    }
    let n = change(&command, &fields, &mut entries, roots.now())?;
    let number = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    let output = object([("n", number(n)), ("count", number(entries.len()))]);
    covia::store(roots, (root, path), &Vector::from_items(entries).into())?;
    Ok(output)
}

impl Adapter for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn description(&self) -> &'static str {
        "A numbered list of facts in the caller's workspace."
    }

    fn folder(&self) -> String {
        "v/ops".to_owned()
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn needs(&self, _operation: &Operation, input: &Value) -> Vec<Need> {
        let Ok(fields) = Fields::from_value(input) else { return Vec::new() };
        let Ok(path) = list_path(&fields) else { return Vec::new() };
        let is_read = fields.get("command") == Some(&"recall".into());
        vec![Need::new(if is_read { "crud/read" } else { "crud/write" }, path)]
    }

    fn roots(&self, call: &Call) -> Result<Vec<RootId>, Failure> {
        let path = list_path(&Fields::from_value(&call.input)?)?;
        let root = Address::parse(&path, &call.caller.did)?.writable(&path)?.0;
        Ok(vec![root, RootId::entry_counts()])
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        run(call, roots)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let failure = nested::unsupported_operation(&call);
        Box::pin(std::future::ready(Turn::Failed(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn entries_are_numbered_from_one() {
        let mut entries = Vec::new();
        let mut apply = |command: &str, input: &str| {
            let input = value(input);
            let fields = Fields::from_value(&input).unwrap();
            let n = change(command, &fields, &mut entries, 7).map_err(|failure| failure.code);
            (n, text(&recalled(&entries)).unwrap_or_default())
        };
        assert_eq!(apply("remember", r#"{"text":"a"}"#), (Ok(1), "1. a".to_owned()));
        assert_eq!(apply("remember", r#"{"text":"b"}"#), (Ok(2), "1. a\n2. b".to_owned()));
        assert_eq!(apply("update", r#"{"n":1,"text":"c"}"#), (Ok(1), "1. c\n2. b".to_owned()));
        assert_eq!(apply("forget", r#"{"n":1}"#), (Ok(1), "1. b".to_owned()));
        let missing = apply("forget", r#"{"n":2}"#);
        assert_eq!(missing, (Err("not_found".to_owned()), "1. b".to_owned()));
        assert_eq!(apply("remember", r#"{"text":" "}"#).0, Err("invalid_input".to_owned()));
    }
}
