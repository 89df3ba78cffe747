//! The places of secrets: fields that a schema marks `writeOnly`.

use serde_json::Value;

use super::document::{Document, For};

/// How deep in a value secrets are told apart. What could have one deeper is secret as a whole.
const DEPTH_MAX: usize = 16;

/// Schemas that are looked at to find them.
const LOOKS_MAX: usize = 10_000;

/// One step on the way to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A member of an object, or an item of an array.
    At(String),
    /// Every member or item.
    Each,
}

/// The way to a secret. The empty way is the whole value.
pub type Secret = Vec<Place>;

/// Every place that a schema marks secret. What is wrong with it, when they cannot be found.
pub(super) fn secrets(document: &Document) -> Result<Vec<Secret>, String> {
    let mut search = Search { document, looks: 0, at: Vec::new(), found: Vec::new() };
    // Most schemas have none, which is soon seen.
    if mentions(document.root()) {
        search.look(document.root(), &mut Vec::new())?;
    }
    Ok(search.found)
}

/// Whether something in it might be a mark.
fn mentions(value: &Value) -> bool {
    match value {
        Value::Object(members) => is_marked(value) || members.values().any(mentions),
        Value::Array(items) => items.iter().any(mentions),
        _ => false,
    }
}

fn is_marked(schema: &Value) -> bool {
    schema.get("writeOnly") == Some(&Value::Bool(true))
}

struct Search<'a> {
    document: &'a Document,
    looks: usize,
    at: Secret,
    found: Vec<Secret>,
}

impl<'a> Search<'a> {
    /// Looks at a schema. `same` are those that are for the same value and led here.
    fn look(&mut self, schema: &'a Value, same: &mut Vec<&'a Value>) -> Result<(), String> {
        self.count()?;
        if is_marked(schema) || (self.at.len() == DEPTH_MAX && self.leads_to_one(schema)?) {
            if !self.found.contains(&self.at) {
                self.found.push(self.at.clone());
            }
            return Ok(());
        }
        if self.at.len() == DEPTH_MAX || same.iter().any(|seen| std::ptr::eq(*seen, schema)) {
            return Ok(());
        }
        same.push(schema);
        for (what, below) in self.document.below(schema) {
            let place = match what {
                For::Same => {
                    self.look(below, same)?;
                    continue;
                }
                For::Member(name) => Place::At(name.to_owned()),
                For::Item(at) => Place::At(at.to_string()),
                For::EachMember | For::EachItem => Place::Each,
            };
            self.at.push(place);
            let looked = self.look(below, &mut Vec::new());
            self.at.pop();
            looked?;
        }
        same.pop();
        Ok(())
    }

    /// Whether a mark can be reached from a schema.
    fn leads_to_one(&mut self, schema: &'a Value) -> Result<bool, String> {
        let (mut seen, mut next): (Vec<&Value>, _) = (Vec::new(), vec![schema]);
        while let Some(schema) = next.pop() {
            self.count()?;
            if is_marked(schema) {
                return Ok(true);
            }
            if !seen.iter().any(|other| std::ptr::eq(*other, schema)) {
                seen.push(schema);
                next.extend(self.document.below(schema).into_iter().map(|(_, below)| below));
            }
        }
        Ok(false)
    }

    fn count(&mut self) -> Result<(), String> {
        self.looks += 1;
        match self.looks <= LOOKS_MAX {
            true => Ok(()),
            false => Err("it is too large to find what is `writeOnly` in it".to_owned()),
        }
    }
}
