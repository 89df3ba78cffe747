//! The cost of checking a value against a schema.
//!
//! A schema of one kilobyte can take practically for ever to check: thirty definitions, each of
//! which refers to the next one twice. Schemas come from callers that are not trusted, and a check
//! that has started cannot be interrupted. The check is therefore simulated first: every schema
//! that would be applied to every part of the value is counted, and the count stops at the limit.

use serde_json::Value;

use super::document::{AppliesTo, Document};
use crate::limits::{SCHEMA_CHECK_DEPTH_MAX, SCHEMA_CHECK_STEPS_MAX};

/// Returns the number of steps of a check. `None` if it exceeds [`SCHEMA_CHECK_STEPS_MAX`] or
/// [`SCHEMA_CHECK_DEPTH_MAX`].
pub(super) fn count_steps(document: &Document, value: &Value) -> Option<u64> {
    let mut counter = StepCounter { document, steps: 0 };
    counter.apply(document.root(), value, &mut Vec::new(), 0).map(|()| counter.steps)
}

struct StepCounter<'a> {
    document: &'a Document,
    steps: u64,
}

impl<'a> StepCounter<'a> {
    /// Counts the application of a schema to a part of the value. `path` contains the schemas that
    /// are being applied to the same part and led here. `None` if a limit is exceeded.
    fn apply(
        &mut self,
        schema: &'a Value,
        part: &Value,
        path: &mut Vec<&'a Value>,
        depth: usize,
    ) -> Option<()> {
        self.count(1 + listed_entries(schema))?;
        if depth == SCHEMA_CHECK_DEPTH_MAX {
            return None;
        }
        // The check itself also stops at a definition that leads back to itself.
        if path.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            return Some(());
        }
        path.push(schema);
        for _ in 0..passes(schema) {
            for (target, subschema) in self.document.subschemas(schema) {
                self.apply_subschema(target, subschema, part, path, depth + 1)?;
            }
        }
        path.pop();
        Some(())
    }

    fn apply_subschema(
        &mut self,
        target: AppliesTo<'_>,
        schema: &'a Value,
        part: &Value,
        path: &mut Vec<&'a Value>,
        depth: usize,
    ) -> Option<()> {
        match (target, part) {
            (AppliesTo::SameValue, part) => self.apply(schema, part, path, depth),
            (AppliesTo::Member(name), Value::Object(members)) => match members.get(name) {
                Some(member) => self.apply(schema, member, &mut Vec::new(), depth),
                None => Some(()),
            },
            (AppliesTo::EachMember, Value::Object(members)) => members
                .values()
                .try_for_each(|member| self.apply(schema, member, &mut Vec::new(), depth)),
            (AppliesTo::Item(index), Value::Array(items)) => match items.get(index) {
                Some(item) => self.apply(schema, item, &mut Vec::new(), depth),
                None => Some(()),
            },
            (AppliesTo::EachItem, Value::Array(items)) => {
                items.iter().try_for_each(|item| self.apply(schema, item, &mut Vec::new(), depth))
            }
            _ => Some(()),
        }
    }

    fn count(&mut self, steps: u64) -> Option<()> {
        self.steps = self.steps.saturating_add(steps);
        (self.steps <= SCHEMA_CHECK_STEPS_MAX).then_some(())
    }
}

/// Returns the number of list entries that a part is compared with.
fn listed_entries(schema: &Value) -> u64 {
    let entries = |name: &str| schema.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    (entries("enum") + entries("required")) as u64
}

/// Returns how often the subschemas of a schema are applied: the `unevaluated…` keywords concern what
/// the other keywords leave, so these are applied once more.
fn passes(schema: &Value) -> usize {
    let repeating = ["unevaluatedProperties", "unevaluatedItems"];
    if repeating.iter().any(|name| schema.get(name).is_some()) { 2 } else { 1 }
}
