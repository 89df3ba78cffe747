//! Where in a schema other schemas stand, and how a reference within it is followed.

use serde_json::Value;

/// Keywords whose schema is for the same value.
const SAME: [&str; 4] = ["not", "if", "then", "else"];

/// Keywords with a list of schemas for the same value.
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords whose schema is for every member of an object.
const EACH_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];

/// Keywords whose schema is for every item of an array.
const EACH_ITEM: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Where the schemas of schemas are published. They hold no secrets and cost little.
const PUBLISHED: &str = "json-schema.org/";

/// What a schema within a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For<'a> {
    /// The value itself.
    Same,
    /// A member of it.
    Member(&'a str),
    /// Every member of it.
    EachMember,
    /// An item of it.
    Item(usize),
    /// Every item of it.
    EachItem,
}

/// A schema with all that it refers to.
#[derive(Debug)]
pub(super) struct Document {
    root: Value,
}

impl Document {
    /// A document. What is wrong with it, when it has a reference that cannot be followed.
    pub(super) fn new(root: Value) -> Result<Document, String> {
        let document = Document { root };
        match document.lost(&document.root) {
            Some(reference) => Err(format!("{reference} refers to nothing in the schema")),
            None => Ok(document),
        }
    }

    /// The schema itself.
    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// The schemas that stand in a schema or are referred to by it, with what each is for.
    pub(super) fn below<'a>(&'a self, schema: &'a Value) -> Vec<(For<'a>, &'a Value)> {
        let mut found = Vec::new();
        let Some(keywords) = schema.as_object() else { return found };
        for (keyword, value) in keywords {
            let name = keyword.as_str();
            match (name, value) {
                (_, Value::String(reference)) if REFERENCES.contains(&name) => {
                    found.extend(self.followed(reference).map(|each| (For::Same, each)));
                }
                (_, Value::Array(all)) if SAME_LISTS.contains(&name) => {
                    found.extend(all.iter().map(|each| (For::Same, each)));
                }
                ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                    found.extend(all.values().map(|each| (For::Same, each)));
                }
                ("properties", Value::Object(all)) => {
                    found.extend(all.iter().map(|(name, each)| (For::Member(name), each)));
                }
                ("patternProperties", Value::Object(all)) => {
                    found.extend(all.values().map(|each| (For::EachMember, each)));
                }
                ("prefixItems" | "items", Value::Array(all)) => {
                    found.extend(all.iter().enumerate().map(|(at, each)| (For::Item(at), each)));
                }
                (_, each) if SAME.contains(&name) => found.push((For::Same, each)),
                (_, each) if EACH_MEMBER.contains(&name) => found.push((For::EachMember, each)),
                (_, each) if EACH_ITEM.contains(&name) => found.push((For::EachItem, each)),
                _ => {}
            }
        }
        found
    }

    /// What a reference leads to: a pointer, an anchor, or something with an `$id`, and within it.
    fn followed(&self, reference: &str) -> Option<&Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let within = match base.is_empty() {
            true => &self.root,
            false => find(&self.root, &|schema| is(schema, "$id", |id| id.ends_with(base)))?,
        };
        let fragment = decoded(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return within.pointer(&fragment);
        }
        find(within, &|schema| {
            ["$anchor", "$dynamicAnchor"].iter().any(|name| is(schema, name, |at| at == fragment))
                || is(schema, "$id", |id| id.strip_prefix('#') == Some(&fragment))
        })
    }

    /// A reference that cannot be followed. Those to the published schemas of schemas can.
    fn lost<'a>(&self, value: &'a Value) -> Option<&'a str> {
        match value {
            Value::Object(members) => members.iter().find_map(|(name, member)| {
                match (REFERENCES.contains(&name.as_str()), member) {
                    (true, Value::String(to)) => {
                        let is_lost = !to.contains(PUBLISHED) && self.followed(to).is_none();
                        is_lost.then_some(to.as_str())
                    }
                    _ => self.lost(member),
                }
            }),
            Value::Array(items) => items.iter().find_map(|item| self.lost(item)),
            _ => None,
        }
    }
}

fn is(schema: &Value, name: &str, like: impl Fn(&str) -> bool) -> bool {
    schema.get(name).and_then(Value::as_str).is_some_and(like)
}

/// The first value in a document that is like this.
fn find<'a>(value: &'a Value, like: &dyn Fn(&Value) -> bool) -> Option<&'a Value> {
    match value {
        value if like(value) => Some(value),
        Value::Object(members) => members.values().find_map(|member| find(member, like)),
        Value::Array(items) => items.iter().find_map(|item| find(item, like)),
        _ => None,
    }
}

/// A fragment of a URI without its percent-encoding.
fn decoded(fragment: &str) -> String {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
