//! What it costs to check a value against a schema.
//!
//! A schema of a kilobyte can take for ever: thirty definitions, each of which asks for the next one
//! twice. Whoever writes a schema need not be trusted, and nobody can stop a check that has begun,
//! so it is walked through here first: every schema that would be applied to every part of the
//! value is counted, and the walk ends at the bound.

use serde_json::Value;

use super::document::{Document, For};

/// Schemas that may be applied to parts of one value.
pub(super) const STEPS_MAX: u64 = 2_000_000;

/// How deep a check may go: schemas within schemas, references included.
const DEPTH_MAX: usize = 512;

/// The steps of a check; nothing when there are more than [`STEPS_MAX`].
pub(super) fn steps(document: &Document, value: &Value) -> Option<u64> {
    let mut walk = Walk { document, steps: 0 };
    walk.apply(document.root(), value, &mut Vec::new(), 0).map(|()| walk.steps)
}

struct Walk<'a> {
    document: &'a Document,
    steps: u64,
}

impl<'a> Walk<'a> {
    /// Applies a schema to a part. `same` are those that are for the same part and led here.
    fn apply(
        &mut self,
        schema: &'a Value,
        part: &Value,
        same: &mut Vec<&'a Value>,
        depth: usize,
    ) -> Option<()> {
        self.count(1 + listed(schema))?;
        if depth == DEPTH_MAX {
            return None;
        }
        // A definition that leads back to itself is noticed when it is checked, too.
        if same.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            return Some(());
        }
        same.push(schema);
        for _ in 0..rounds(schema) {
            for (what, below) in self.document.below(schema) {
                self.apply_below(what, below, part, same, depth + 1)?;
            }
        }
        same.pop();
        Some(())
    }

    fn apply_below(
        &mut self,
        what: For<'_>,
        schema: &'a Value,
        part: &Value,
        same: &mut Vec<&'a Value>,
        depth: usize,
    ) -> Option<()> {
        match (what, part) {
            (For::Same, part) => self.apply(schema, part, same, depth),
            (For::Member(name), Value::Object(members)) => match members.get(name) {
                Some(member) => self.apply(schema, member, &mut Vec::new(), depth),
                None => Some(()),
            },
            (For::EachMember, Value::Object(members)) => members
                .values()
                .try_for_each(|member| self.apply(schema, member, &mut Vec::new(), depth)),
            (For::Item(at), Value::Array(items)) => match items.get(at) {
                Some(item) => self.apply(schema, item, &mut Vec::new(), depth),
                None => Some(()),
            },
            (For::EachItem, Value::Array(items)) => {
                items.iter().try_for_each(|item| self.apply(schema, item, &mut Vec::new(), depth))
            }
            _ => Some(()),
        }
    }

    fn count(&mut self, steps: u64) -> Option<()> {
        self.steps = self.steps.saturating_add(steps);
        (self.steps <= STEPS_MAX).then_some(())
    }
}

/// Entries of lists that a part is compared with.
fn listed(schema: &Value) -> u64 {
    let entries = |name: &str| schema.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    (entries("enum") + entries("required")) as u64
}

/// What is left over by other keywords is only known after these were applied once more.
fn rounds(schema: &Value) -> usize {
    let looks_again = ["unevaluatedProperties", "unevaluatedItems"];
    match looks_again.iter().any(|name| schema.get(name).is_some()) {
        true => 2,
        false => 1,
    }
}
