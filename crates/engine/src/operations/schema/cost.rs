//! The cost of checking a value against a schema.
//!
//! A schema of one kilobyte can take practically for ever to check: thirty definitions, each of
//! which refers to the next one twice. A check that has started cannot be interrupted. It is
//! therefore simulated first: every schema that would be applied to every part of the value is
//! counted, and the count stops at a limit. The simulation keeps its own stack, so that its depth
//! is a number to compare and not a danger.
//!
//! An `unevaluated…` keyword needs to know what the other keywords leave. To find out, the validator
//! *marks* the schemas that apply to the same value, and validates each of them again on the way: a
//! schema that is marked once and validated once has its subschemas validated twice.

use std::collections::HashMap;

use serde_json::Value;

use super::document::{AppliesTo, Document, Index, weight};

/// Bytes of a violation without the value that it quotes.
const VIOLATION_BYTES: u64 = 512;

/// Instructions of a pattern that are executed in the time of one step, for one byte of text.
const INSTRUCTIONS_PER_STEP: u64 = 64;

/// How much a simulation may count before it gives up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Applications of schemas, and what they compare.
    pub(super) steps: u64,
    /// Schemas that are applied within each other.
    pub(super) depth: usize,
}

/// A part of a value, or the name of a member.
#[derive(Clone, Copy)]
enum Part<'v> {
    Value(&'v Value),
    Name(&'v str),
}

struct Application<'v> {
    schema: Index,
    part: Part<'v>,
    depth: usize,
    /// How often the schema is validated for this part.
    validations: u64,
    /// How often it is marked for this part, including by itself.
    marks: u64,
}

impl Application<'_> {
    fn times(&self) -> u64 {
        self.validations.saturating_add(self.marks)
    }
}

/// Returns the number of steps of a check. `None` if it exceeds the bounds.
pub(super) fn count_steps(document: &Document, value: &Value, bounds: Bounds) -> Option<u64> {
    let mut steps = 0_u64;
    simulate(document, value, bounds.depth, |application| {
        let node = document.node(application.schema);
        let mut own = node.steps;
        let edges = |each: &[AppliesTo]| {
            node.edges.iter().filter(|(target, _)| each.contains(target)).count() as u64 + 1
        };
        let per_byte = |bytes: usize, program: u64| {
            (bytes as u64).saturating_mul(program) / INSTRUCTIONS_PER_STEP
        };
        match application.part {
            Part::Value(Value::String(text)) => own += per_byte(text.len(), node.text_program),
            Part::Name(name) => own += per_byte(name.len(), node.text_program),
            Part::Value(Value::Object(members)) => {
                let each = edges(&[AppliesTo::EachMember, AppliesTo::EachName]);
                own += members.len() as u64 * each;
                if node.name_program > 0 {
                    let bytes: usize = members.keys().map(|name| name.len() + 64).sum();
                    own = own.saturating_add(per_byte(bytes, node.name_program));
                }
            }
            Part::Value(value @ Value::Array(_)) if node.hashes_part => own += weight(value),
            Part::Value(Value::Array(items)) => {
                own += items.len() as u64 * edges(&[AppliesTo::EachItem]);
            }
            Part::Value(_) => {}
        }
        steps = steps.saturating_add(own.saturating_mul(application.times()));
        steps <= bounds.steps
    })
    .then_some(steps)
}

/// Returns true if the violations of a value use at most this many bytes, each with a copy of the
/// part that it concerns, even if every keyword of every schema is violated.
pub(super) fn fits_violations(document: &Document, value: &Value, bytes_max: u64) -> bool {
    let sizes = sizes(value);
    let mut bytes = 0_u64;
    simulate(document, value, usize::MAX, |application| {
        let size = match application.part {
            Part::Value(value) => sizes.get(&std::ptr::from_ref(value)).copied().unwrap_or(64),
            Part::Name(name) => name.len() as u64 + 64,
        };
        let violations = document.node(application.schema).violations;
        bytes = bytes.saturating_add(violations.saturating_mul(size + VIOLATION_BYTES));
        bytes <= bytes_max
    })
}

/// Visits every application of a schema to a part of a value. Stops, and returns false, if the
/// visitor returns false or schemas are applied deeper within each other than `depth_max`.
fn simulate<'v>(
    document: &Document,
    value: &'v Value,
    depth_max: usize,
    mut visit: impl FnMut(&Application<'v>) -> bool,
) -> bool {
    let root = Part::Value(value);
    let mut open = vec![Application { schema: 0, part: root, depth: 0, validations: 1, marks: 0 }];
    while let Some(mut application) = open.pop() {
        let node = document.node(application.schema);
        if node.repeats {
            application.marks = application.times();
        }
        if application.depth >= depth_max || !visit(&application) {
            return false;
        }
        let validations = application.times();
        let depth = application.depth + 1;
        for (target, schema) in &node.edges {
            let schema = *schema;
            let apply = |part| Application { schema, part, depth, validations, marks: 0 };
            match (target, application.part) {
                (AppliesTo::SameValue, part) => {
                    open.push(Application { marks: application.marks, ..apply(part) });
                }
                (AppliesTo::Member(name), Part::Value(Value::Object(members))) => {
                    open.extend(members.get(&**name).map(|member| apply(Part::Value(member))));
                }
                (AppliesTo::EachMember, Part::Value(Value::Object(members))) => {
                    open.extend(members.values().map(|member| apply(Part::Value(member))));
                }
                (AppliesTo::EachName, Part::Value(Value::Object(members))) => {
                    open.extend(members.keys().map(|name| apply(Part::Name(name))));
                }
                (AppliesTo::Item(index), Part::Value(Value::Array(items))) => {
                    open.extend(items.get(*index).map(|item| apply(Part::Value(item))));
                }
                (AppliesTo::EachItem, Part::Value(Value::Array(items))) => {
                    open.extend(items.iter().map(|item| apply(Part::Value(item))));
                }
                _ => {}
            }
        }
    }
    true
}

/// Returns the bytes that a copy of each text and container in a value uses.
fn sizes(value: &Value) -> HashMap<*const Value, u64> {
    let mut sizes: HashMap<*const Value, u64> = HashMap::new();
    // Each value comes after the container that contains it.
    let mut order: Vec<(&Value, Option<&Value>)> = vec![(value, None)];
    let mut at = 0;
    while let Some((value, _)) = order.get(at).copied() {
        let own = match value {
            Value::String(text) => text.len() as u64 + 64,
            Value::Object(members) => {
                order.extend(members.values().map(|member| (member, Some(value))));
                members.keys().map(|name| name.len() as u64 + 64).sum::<u64>() + 64
            }
            Value::Array(items) => {
                order.extend(items.iter().map(|item| (item, Some(value))));
                64
            }
            _ => 64,
        };
        sizes.insert(std::ptr::from_ref(value), own);
        at += 1;
    }
    for (value, parent) in order.into_iter().rev() {
        let Some(parent) = parent else { continue };
        let size = sizes.get(&std::ptr::from_ref(value)).copied().unwrap_or(0);
        if let Some(sum) = sizes.get_mut(&std::ptr::from_ref(parent)) {
            *sum += size;
        }
    }
    sizes
}
