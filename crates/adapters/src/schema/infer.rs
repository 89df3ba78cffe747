//! Inference of a schema from a value. The items of an array share one schema.

use std::collections::{BTreeMap, BTreeSet};

use catena_engine::Failure;
use catena_value::{Map, Value};

use crate::fields::{array, items, text};

/// A JSON Schema that the value satisfies.
pub(crate) fn infer_schema(value: &Value) -> Result<Value, Failure> {
    let draft = ("$schema", Value::from("https://json-schema.org/draft/2020-12/schema"));
    let members = Shape::from_value(value)?.members();
    Ok(members.into_iter().chain([draft]).collect::<Map>().into())
}

/// The common structure of some values.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    types: BTreeSet<&'static str>,
    properties: BTreeMap<String, Shape>,
    required: BTreeSet<String>,
    items: Option<Box<Shape>>,
}

impl Shape {
    fn from_value(value: &Value) -> Result<Shape, Failure> {
        let mut shape = Shape::default();
        shape.types.extend(type_of(value));
        match value {
            Value::Map(map) => {
                for (name, member) in map.fields() {
                    let Some(name) = text(name) else { continue };
                    shape.required.insert(name.clone());
                    shape.properties.insert(name, Shape::from_value(member)?);
                }
            }
            Value::Vector(vector) => {
                for item in items(vector)? {
                    let item = Shape::from_value(&item)?;
                    shape.items = Some(Box::new(match shape.items.take() {
                        Some(others) => others.join(item),
                        None => item,
                    }));
                }
            }
            _ => {}
        }
        Ok(shape)
    }

    /// The common structure of two groups of values.
    fn join(mut self, other: Shape) -> Shape {
        let object = "object";
        self.required = match (self.types.contains(object), other.types.contains(object)) {
            (true, true) => self.required.intersection(&other.required).cloned().collect(),
            (true, false) => self.required,
            (false, _) => other.required,
        };
        self.types.extend(other.types);
        if self.types.contains("number") {
            self.types.remove("integer");
        }
        for (name, shape) in other.properties {
            let joined = match self.properties.remove(&name) {
                Some(own) => own.join(shape),
                None => shape,
            };
            self.properties.insert(name, joined);
        }
        self.items = match (self.items, other.items) {
            (Some(own), Some(other)) => Some(Box::new(own.join(*other))),
            (own, other) => own.or(other),
        };
        self
    }

    fn members(self) -> Vec<(&'static str, Value)> {
        let mut members = Vec::new();
        let types: Vec<Value> = self.types.iter().map(|word| Value::from(*word)).collect();
        match types.as_slice() {
            [] => {}
            [one] => members.push(("type", one.clone())),
            _ => members.push(("type", array(types))),
        }
        if self.types.contains("object") {
            let properties =
                self.properties.into_iter().map(|(name, shape)| (name, shape.schema()));
            members.push(("properties", properties.collect::<Map>().into()));
        }
        if !self.required.is_empty() {
            members.push(("required", array(self.required.into_iter().map(Value::from).collect())));
        }
        members.extend(self.items.map(|items| ("items", items.schema())));
        members
    }

    fn schema(self) -> Value {
        self.members().into_iter().collect::<Map>().into()
    }
}

/// The JSON type of a value; `None` if JSON cannot represent it.
pub(super) fn type_of(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Nil => "null",
        Value::Bool(_) => "boolean",
        Value::Integer(_) => "integer",
        Value::Double(_) => "number",
        Value::String(_) => "string",
        Value::Vector(_) => "array",
        Value::Map(_) => "object",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn check(of: &str, expected: &str) {
        assert_eq!(Shape::from_value(&value(of)).unwrap().schema(), value(expected), "{of}");
    }

    #[test]
    fn scalars_have_their_type() {
        check("null", r#"{"type":"null"}"#);
        check("true", r#"{"type":"boolean"}"#);
        check("1", r#"{"type":"integer"}"#);
        check("1.5", r#"{"type":"number"}"#);
        check("123456789012345678901234567890", r#"{"type":"integer"}"#);
        check(r#""x""#, r#"{"type":"string"}"#);
    }

    #[test]
    fn objects_list_their_members() {
        check("{}", r#"{"type":"object","properties":{}}"#);
        check(
            r#"{"name":"Ada","age":36,"tags":[]}"#,
            r#"{"type":"object","required":["age","name","tags"],"properties":{
                "name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array"}}}"#,
        );
    }

    #[test]
    fn items_of_an_array_share_one_schema() {
        check("[1,2]", r#"{"type":"array","items":{"type":"integer"}}"#);
        check("[1,2.5]", r#"{"type":"array","items":{"type":"number"}}"#);
        check(
            r#"[1,"x",null]"#,
            r#"{"type":"array","items":{"type":["integer","null","string"]}}"#,
        );
        check(
            r#"[{"a":1,"b":2},{"a":2.5,"c":[1]},{"a":1,"c":["x"]}]"#,
            r#"{"type":"array","items":{"type":"object","required":["a"],"properties":{
                "a":{"type":"number"},"b":{"type":"integer"},
                "c":{"type":"array","items":{"type":["integer","string"]}}}}}"#,
        );
        check(
            r#"[null,{"a":1}]"#,
            r#"{"type":"array","items":{"type":["null","object"],"required":["a"],
                "properties":{"a":{"type":"integer"}}}}"#,
        );
    }

    #[test]
    fn the_schema_names_its_draft() {
        let schema = infer_schema(&value("1")).unwrap();
        let draft = "https://json-schema.org/draft/2020-12/schema";
        assert_eq!(schema.as_map().unwrap().field("$schema"), Some(&draft.into()));
    }
}
