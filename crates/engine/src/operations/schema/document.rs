//! The structure of a schema: which keywords contain subschemas, and what a reference refers to.

use serde_json::Value;

/// Keywords whose schema applies to the same value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];

/// Keywords with a list of schemas that apply to the same value.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords whose schema applies to every member of an object.
const EACH_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];

/// Keywords whose schema applies to every item of an array.
const EACH_ITEM: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Part of the URLs of the published metaschemas. They mark nothing as secret and cost little.
const METASCHEMAS: &str = "json-schema.org/";

/// The part of a value that a subschema applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo<'a> {
    /// The value itself.
    SameValue,
    /// The member with this name.
    Member(&'a str),
    /// Every member.
    EachMember,
    /// The item at this index.
    Item(usize),
    /// Every item.
    EachItem,
}

/// A schema whose references can all be resolved.
#[derive(Debug)]
pub(super) struct Document {
    root: Value,
}

impl Document {
    /// Creates a document. Fails if it has a reference that cannot be resolved.
    pub(super) fn new(root: Value) -> Result<Document, String> {
        let document = Document { root };
        match document.find_unresolved(&document.root) {
            Some(reference) => Err(format!("`{reference}` refers to nothing in the schema")),
            None => Ok(document),
        }
    }

    /// Returns the schema itself.
    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// Returns the schemas that a schema contains or refers to, each with what it applies to.
    pub(super) fn subschemas<'a>(&'a self, schema: &'a Value) -> Vec<(AppliesTo<'a>, &'a Value)> {
        let mut found = Vec::new();
        let Some(keywords) = schema.as_object() else { return found };
        for (keyword, value) in keywords {
            let name = keyword.as_str();
            match (name, value) {
                (_, Value::String(reference)) if REFERENCES.contains(&name) => {
                    found.extend(self.resolve(reference).map(|each| (AppliesTo::SameValue, each)));
                }
                (_, Value::Array(all)) if SAME_VALUE_LISTS.contains(&name) => {
                    found.extend(all.iter().map(|each| (AppliesTo::SameValue, each)));
                }
                ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                    found.extend(all.values().map(|each| (AppliesTo::SameValue, each)));
                }
                ("properties", Value::Object(all)) => {
                    found.extend(all.iter().map(|(name, each)| (AppliesTo::Member(name), each)));
                }
                ("patternProperties", Value::Object(all)) => {
                    found.extend(all.values().map(|each| (AppliesTo::EachMember, each)));
                }
                ("prefixItems" | "items", Value::Array(all)) => {
                    let items = all.iter().enumerate();
                    found.extend(items.map(|(index, each)| (AppliesTo::Item(index), each)));
                }
                (_, each) if SAME_VALUE.contains(&name) => {
                    found.push((AppliesTo::SameValue, each));
                }
                (_, each) if EACH_MEMBER.contains(&name) => {
                    found.push((AppliesTo::EachMember, each));
                }
                (_, each) if EACH_ITEM.contains(&name) => found.push((AppliesTo::EachItem, each)),
                _ => {}
            }
        }
        found
    }

    /// Returns the schema that a reference names: by a pointer, an anchor or an `$id`, or within
    /// the schema with that `$id`. `None` if there is none.
    fn resolve(&self, reference: &str) -> Option<&Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let within = if base.is_empty() {
            &self.root
        } else {
            find(&self.root, &|schema| has_text(schema, "$id", |id| id.ends_with(base)))?
        };
        let fragment = percent_decode(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return within.pointer(&fragment);
        }
        find(within, &|schema| {
            ["$anchor", "$dynamicAnchor"]
                .iter()
                .any(|name| has_text(schema, name, |anchor| anchor == fragment))
                || has_text(schema, "$id", |id| id.strip_prefix('#') == Some(&fragment))
        })
    }

    /// Returns the first reference in a value that cannot be resolved. References to the published
    /// metaschemas always can.
    fn find_unresolved<'a>(&self, value: &'a Value) -> Option<&'a str> {
        match value {
            Value::Object(members) => members.iter().find_map(|(name, member)| match member {
                Value::String(reference) if REFERENCES.contains(&name.as_str()) => {
                    let is_resolved =
                        reference.contains(METASCHEMAS) || self.resolve(reference).is_some();
                    (!is_resolved).then_some(reference.as_str())
                }
                _ => self.find_unresolved(member),
            }),
            Value::Array(items) => items.iter().find_map(|item| self.find_unresolved(item)),
            _ => None,
        }
    }
}

/// Returns true if a schema has a text under a keyword that a predicate accepts.
fn has_text(schema: &Value, keyword: &str, is_match: impl Fn(&str) -> bool) -> bool {
    schema.get(keyword).and_then(Value::as_str).is_some_and(is_match)
}

/// Returns the first value in a document that a predicate accepts.
fn find<'a>(value: &'a Value, is_match: &dyn Fn(&Value) -> bool) -> Option<&'a Value> {
    match value {
        value if is_match(value) => Some(value),
        Value::Object(members) => members.values().find_map(|member| find(member, is_match)),
        Value::Array(items) => items.iter().find_map(|item| find(item, is_match)),
        _ => None,
    }
}

/// Decodes the percent-encoding of a URI fragment.
fn percent_decode(fragment: &str) -> String {
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
