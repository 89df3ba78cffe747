//! The locations of secrets: fields that a schema marks `writeOnly`.

use serde_json::Value;

use super::document::{AppliesTo, Document};
use crate::limits::{SECRET_DEPTH_MAX, SECRET_SEARCH_SCHEMAS_MAX};

/// One segment of the path to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The member with this name, or the item at this index.
    At(String),
    /// Every member or item.
    Each,
    /// Every member but those with these names, which are compared without regard to case.
    EachExcept(Vec<String>),
}

/// The path to a secret. The empty path is the value itself.
pub type Secret = Vec<Place>;

/// Returns every path that a schema marks as secret. Fails if the schema is too large to search.
pub(super) fn find_secrets(document: &Document) -> Result<Vec<Secret>, String> {
    let mut search = Search { document, visited: 0, path: Vec::new(), found: Vec::new() };
    // Most schemas mark nothing, which is cheap to see.
    if contains_mark(document.root()) {
        search.visit(document.root(), &mut Vec::new())?;
    }
    Ok(search.found)
}

/// Returns true if any object in a value looks like a marked schema.
fn contains_mark(value: &Value) -> bool {
    match value {
        Value::Object(members) => is_marked(value) || members.values().any(contains_mark),
        Value::Array(items) => items.iter().any(contains_mark),
        _ => false,
    }
}

fn is_marked(schema: &Value) -> bool {
    schema.get("writeOnly") == Some(&Value::Bool(true))
}

/// The member of a schema that lists names of members which are never secret, although all others
/// are. JSON Schema cannot say this without regard to case.
const HARMLESS: &str = "x-harmless";

fn harmless_members(schema: &Value) -> Vec<String> {
    let names = schema.get(HARMLESS).and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

struct Search<'a> {
    document: &'a Document,
    /// The number of schemas that were visited.
    visited: usize,
    /// The path of the part that the current schema applies to.
    path: Secret,
    found: Vec<Secret>,
}

impl<'a> Search<'a> {
    /// Visits a schema and its subschemas. `applied` contains the schemas that apply to the same
    /// part and led here.
    fn visit(&mut self, schema: &'a Value, applied: &mut Vec<&'a Value>) -> Result<(), String> {
        self.count()?;
        let is_deepest = self.path.len() == SECRET_DEPTH_MAX;
        if is_marked(schema) || (is_deepest && self.reaches_mark(schema)?) {
            if !self.found.contains(&self.path) {
                self.found.push(self.path.clone());
            }
            return Ok(());
        }
        if is_deepest || applied.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            return Ok(());
        }
        applied.push(schema);
        for (target, subschema) in self.document.subschemas(schema) {
            let place = match target {
                AppliesTo::SameValue => {
                    self.visit(subschema, applied)?;
                    continue;
                }
                AppliesTo::Member(name) => Place::At(name.to_owned()),
                AppliesTo::Item(index) => Place::At(index.to_string()),
                AppliesTo::EachMember if schema.get(HARMLESS).is_some() => {
                    Place::EachExcept(harmless_members(schema))
                }
                AppliesTo::EachMember | AppliesTo::EachItem => Place::Each,
            };
            self.path.push(place);
            let visited = self.visit(subschema, &mut Vec::new());
            self.path.pop();
            visited?;
        }
        applied.pop();
        Ok(())
    }

    /// Returns true if a marked schema can be reached from a schema.
    fn reaches_mark(&mut self, schema: &'a Value) -> Result<bool, String> {
        let mut seen: Vec<&Value> = Vec::new();
        let mut next = vec![schema];
        while let Some(schema) = next.pop() {
            self.count()?;
            if is_marked(schema) {
                return Ok(true);
            }
            if !seen.iter().any(|other| std::ptr::eq(*other, schema)) {
                seen.push(schema);
                let subschemas = self.document.subschemas(schema).into_iter();
                next.extend(subschemas.map(|(_, subschema)| subschema));
            }
        }
        Ok(false)
    }

    /// Counts a visited schema. Fails if there were too many.
    fn count(&mut self) -> Result<(), String> {
        self.visited += 1;
        if self.visited > SECRET_SEARCH_SCHEMAS_MAX {
            return Err("the schema is too large to search for `writeOnly` fields".to_owned());
        }
        Ok(())
    }
}
