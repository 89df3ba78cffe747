//! Coercion of a value to a schema, as far as there is one safe interpretation.
//!
//! It follows `type`, `properties`, `additionalProperties`, `items`, `prefixItems`, `default`, `allOf`
//! and references within the schema. It ignores alternatives (`anyOf`, `oneOf`, `if`), because it
//! cannot know which one was meant. Defaults that are filled in are not coerced themselves.
//!
//! What a coercion adds is measured before it is built: one default of 200 kB, filled into each of a
//! thousand items, is small in memory because the items share it, and 200 MB as soon as it is stored.

use catena_engine::Failure;
use catena_value::{Extent, Map, NoCells, Value, json};

use super::infer::type_of;
use crate::fields::{array, integer, items, load_failure, object, text};
use crate::limits::{COERCE_ADDED_BYTES_MAX, COERCE_DEPTH_MAX, COERCE_STEPS_MAX};

/// A coerced value and the changes.
#[derive(Debug)]
pub(super) struct Coerced {
    pub(super) value: Value,
    /// Each change as `{path, from?, to}`.
    pub(super) changes: Vec<Value>,
}

/// Coerces a value to a schema.
pub(super) fn coerce(value: &Value, schema: &Value) -> Result<Coerced, Failure> {
    let left = COERCE_ADDED_BYTES_MAX;
    let mut coercion =
        Coercion { root: schema, path: Vec::new(), changes: Vec::new(), steps: 0, left };
    let value = coercion.coerce_value(value.clone(), schema, 0)?;
    Ok(Coerced { value, changes: coercion.changes })
}

struct Coercion<'a> {
    root: &'a Value,
    /// Names and positions of the path to the current location.
    path: Vec<String>,
    changes: Vec<Value>,
    steps: usize,
    /// Bytes that may still be added to the value and to the list of changes.
    left: u64,
}

impl Coercion<'_> {
    fn coerce_value(
        &mut self,
        value: Value,
        schema: &Value,
        depth: usize,
    ) -> Result<Value, Failure> {
        self.steps += 1;
        if depth > COERCE_DEPTH_MAX || self.steps > COERCE_STEPS_MAX {
            let error = "the value or its schema is too deep or too large to coerce";
            return Err(Failure::new("too_deep", error));
        }
        // A boolean schema does not say which value is expected.
        let Value::Map(schema) = schema else { return Ok(value) };
        let mut value = value;
        if let Some(target) = schema.field("$ref").and_then(|reference| self.resolve(reference)) {
            value = self.coerce_value(value, &target, depth + 1)?;
        }
        if let Some(Value::Vector(all)) = schema.field("allOf") {
            for part in items(all)? {
                value = self.coerce_value(value, &part, depth + 1)?;
            }
        }
        let value = self.coerce_type(value, schema)?;
        match value {
            Value::Map(map) => self.coerce_members(map, schema, depth),
            Value::Vector(_) => self.coerce_items(value, schema, depth),
            other => Ok(other),
        }
    }

    /// The target of a reference such as `#/$defs/name`; `None` if there is none.
    fn resolve(&self, reference: &Value) -> Option<Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        let mut target = self.root;
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            target = match target {
                Value::Map(map) => map.field(&name)?,
                Value::Vector(vector) => vector.as_leaf()?.get(name.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(target.clone())
    }

    /// Converts the value to the first type of the schema that it can be converted to.
    fn coerce_type(&mut self, value: Value, schema: &Map) -> Result<Value, Failure> {
        let types = match schema.field("type") {
            Some(Value::Vector(types)) => items(types)?,
            Some(one) => vec![one.clone()],
            None => return Ok(value),
        };
        let words: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        if words.is_empty() || words.iter().any(|word| is_of_type(&value, word)) {
            return Ok(value);
        }
        match words.iter().find_map(|word| convert(&value, word)) {
            Some(converted) => {
                self.record_change(Some(value), converted.clone())?;
                Ok(converted)
            }
            None => Ok(value),
        }
    }

    fn coerce_members(&mut self, map: Map, schema: &Map, depth: usize) -> Result<Value, Failure> {
        let properties = schema.field("properties").and_then(Value::as_map);
        let additional = schema.field("additionalProperties");
        let mut result = map.clone();
        for (name, member) in map.fields() {
            let Some(name_text) = text(name) else { continue };
            let Some(of) = properties.and_then(|p| p.field(&name_text)).or(additional) else {
                continue;
            };
            self.path.push(name_text);
            let coerced = self.coerce_value(member.clone(), of, depth + 1)?;
            self.path.pop();
            if coerced != *member {
                result = result.insert(name.clone(), coerced, &NoCells).map_err(load_failure)?;
            }
        }
        for (name, of) in properties.map(Map::fields).unwrap_or_default() {
            let default = of.as_map().and_then(|of| of.field("default"));
            let is_absent = result.get(name, &NoCells).map_err(load_failure)?.is_none();
            let (Some(default), true, Some(name_text)) = (default, is_absent, text(name)) else {
                continue;
            };
            self.path.push(name_text);
            // It becomes part of the value, too.
            self.reserve(default)?;
            self.record_change(None, default.clone())?;
            self.path.pop();
            result =
                result.insert(name.clone(), default.clone(), &NoCells).map_err(load_failure)?;
        }
        Ok(result.into())
    }

    fn coerce_items(&mut self, value: Value, schema: &Map, depth: usize) -> Result<Value, Failure> {
        let prefix = match schema.field("prefixItems") {
            Some(Value::Vector(prefix)) => items(prefix)?,
            _ => Vec::new(),
        };
        let rest = schema.field("items");
        let Value::Vector(vector) = &value else { return Ok(value) };
        if prefix.is_empty() && rest.is_none() {
            return Ok(value);
        }
        let mut coerced = Vec::new();
        for (at, item) in items(vector)?.into_iter().enumerate() {
            self.path.push(at.to_string());
            coerced.push(match prefix.get(at).or(rest) {
                Some(of) => self.coerce_value(item, of, depth + 1)?,
                None => item,
            });
            self.path.pop();
        }
        Ok(array(coerced))
    }

    /// Counts bytes that are added. Fails if there were too many.
    fn reserve(&mut self, value: &Value) -> Result<(), Failure> {
        let limit = Extent { bytes: self.left, depth: usize::MAX };
        match limit.measure(value, &NoCells) {
            Ok(bytes) => self.reserve_bytes(bytes),
            Err(_) => Err(too_large()),
        }
    }

    fn reserve_bytes(&mut self, bytes: u64) -> Result<(), Failure> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn record_change(&mut self, from: Option<Value>, to: Value) -> Result<(), Failure> {
        let path_bytes: usize = self.path.iter().map(|name| name.len() * 2 + 1).sum();
        // Names and punctuation of a change.
        self.reserve_bytes(path_bytes as u64 + 64)?;
        self.reserve(&to)?;
        if let Some(from) = &from {
            self.reserve(from)?;
        }
        let escaped = |name: &String| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let path = Value::from(self.path.iter().map(escaped).collect::<String>());
        self.changes.push(match from {
            Some(from) => object([("path", path), ("from", from), ("to", to)]),
            None => object([("path", path), ("to", to)]),
        });
        Ok(())
    }
}

fn too_large() -> Failure {
    let error = format!(
        "the coerced value and its changes have more than {COERCE_ADDED_BYTES_MAX} bytes more than the value"
    );
    Failure::new("output_too_large", error)
}

fn is_of_type(value: &Value, word: &str) -> bool {
    match (type_of(value), word) {
        (Some("integer"), "number") => true,
        (Some("number"), "integer") => integer(value).is_some(),
        (Some(own), word) => own == word,
        (None, _) => false,
    }
}

/// The value converted to a type; `None` unless there is exactly one way to do so.
fn convert(value: &Value, word: &str) -> Option<Value> {
    match (value, word) {
        (Value::String(_), "integer" | "number" | "boolean") => {
            let read = json::read(text(value)?.trim().as_bytes()).ok()?;
            is_of_type(&read, word).then_some(read)
        }
        (Value::Integer(_) | Value::Double(_) | Value::Bool(_), "string") => {
            json::to_string(value).ok().map(Value::from)
        }
        (Value::Nil, "array") => None,
        (_, "array") => Some(array(vec![value.clone()])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn check(from: &str, schema: &str, expected: &str, changes: &str) {
        let coerced = coerce(&value(from), &value(schema)).unwrap();
        assert_eq!(coerced.value, value(expected), "{from} by {schema}");
        assert_eq!(array(coerced.changes), value(changes), "{from} by {schema}");
    }

    #[test]
    fn texts_become_what_they_spell() {
        check(r#""42""#, r#"{"type":"integer"}"#, "42", r#"[{"path":"","from":"42","to":42}]"#);
        check(
            r#"" 1.5 ""#,
            r#"{"type":"number"}"#,
            "1.5",
            r#"[{"path":"","from":" 1.5 ","to":1.5}]"#,
        );
        check(
            r#""true""#,
            r#"{"type":"boolean"}"#,
            "true",
            r#"[{"path":"","from":"true","to":true}]"#,
        );
        check(r#""1.5""#, r#"{"type":"integer"}"#, r#""1.5""#, "[]");
        check(r#""yes""#, r#"{"type":"boolean"}"#, r#""yes""#, "[]");
        check(r#""7""#, r#"{"type":["string","integer"]}"#, r#""7""#, "[]");
    }

    #[test]
    fn numbers_become_texts_and_single_values_arrays() {
        check("7", r#"{"type":"string"}"#, r#""7""#, r#"[{"path":"","from":7,"to":"7"}]"#);
        check("1", r#"{"type":"number"}"#, "1", "[]");
        check("2.0", r#"{"type":"integer"}"#, "2.0", "[]");
        check(
            r#"{"tags":"a"}"#,
            r#"{"properties":{"tags":{"type":"array","items":{"type":"string"}}}}"#,
            r#"{"tags":["a"]}"#,
            r#"[{"path":"/tags","from":"a","to":["a"]}]"#,
        );
        check("null", r#"{"type":"array"}"#, "null", "[]");
    }

    #[test]
    fn members_and_items_are_followed_and_defaults_filled() {
        let schema = r#"{"type":"object","additionalProperties":{"type":"integer"},"properties":{
            "list":{"prefixItems":[{"type":"integer"}],"items":{"type":"string"}},
            "size":{"type":"integer","default":10}}}"#;
        check(
            r#"{"list":["2",3],"size":1}"#,
            schema,
            r#"{"list":[2,"3"],"size":1}"#,
            r#"[{"path":"/list/0","from":"2","to":2},{"path":"/list/1","from":3,"to":"3"}]"#,
        );
        check(
            r#"{"other":"4","size":1}"#,
            schema,
            r#"{"other":4,"size":1}"#,
            r#"[{"path":"/other","from":"4","to":4}]"#,
        );
        check("{}", schema, r#"{"size":10}"#, r#"[{"path":"/size","to":10}]"#);
        let escaped = r#"{"properties":{"a/b":{"default":1}}}"#;
        check("{}", escaped, r#"{"a/b":1}"#, r#"[{"path":"/a~1b","to":1}]"#);
    }

    #[test]
    fn references_within_the_schema_are_followed() {
        let schema = r##"{"$defs":{"n":{"type":"integer"}},"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}}]}"##;
        check(r#"{"a":"1"}"#, schema, r#"{"a":1}"#, r#"[{"path":"/a","from":"1","to":1}]"#);
        check("1", r##"{"$ref":"#/$defs/absent"}"##, "1", "[]");
    }

    #[test]
    fn what_would_be_added_is_measured_before_it_is_built() {
        let default = "x".repeat(200_000);
        let schema = format!(r#"{{"items":{{"properties":{{"a":{{"default":"{default}"}}}}}}}}"#);
        let list = format!("[{}{{}}]", "{},".repeat(9_999));
        let refused = coerce(&value(&list), &value(&schema)).unwrap_err();
        assert_eq!(refused.code, "output_too_large");
        let name = "n".repeat(3_000);
        let schema = format!(r#"{{"properties":{{"{name}":{{"items":{{"type":"string"}}}}}}}}"#);
        let list = format!(r#"{{"{name}":[{}1]}}"#, "1,".repeat(9_999));
        let refused = coerce(&value(&list), &value(&schema)).unwrap_err();
        assert_eq!(refused.code, "output_too_large");
    }

    #[test]
    fn an_endless_schema_is_refused() {
        for schema in [
            r##"{"$ref":"#"}"##,
            r##"{"allOf":[{"$ref":"#"},{"$ref":"#"}]}"##,
            r##"{"type":"array","items":{"$ref":"#"}}"##,
        ] {
            let refused = coerce(&value("1"), &value(schema)).unwrap_err();
            assert_eq!(refused.code, "too_deep", "{schema}");
        }
    }
}
