//! JSON Schemas, compiled once.
//!
//! Schemas are read without a network: a reference that leads out of the schema is an error when
//! it is compiled. Numbers are compared as doubles where they do not fit 64 bits.

use catena_value::{NoCells, Value};

/// How deep fields marked `writeOnly` are looked for.
const SECRET_DEPTH_MAX: usize = 8;

/// A schema that values can be checked against.
pub struct Schema {
    compiled: jsonschema::Validator,
    secret: Vec<Vec<String>>,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("schema")
    }
}

/// How a value violates a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where in the value, as a JSON pointer.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place.is_empty() {
            true => f.write_str(&self.problem),
            false => write!(f, "{} at {}", self.problem, self.place),
        }
    }
}

impl Schema {
    /// Compiles a schema. What is wrong with it, if it is none.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let as_json = to_serde(schema)?;
        let compiled = jsonschema::validator_for(&as_json).map_err(|error| error.to_string())?;
        let mut secret = Vec::new();
        find_secret(&as_json, &mut Vec::new(), &mut secret);
        Ok(Schema { compiled, secret })
    }

    /// Every violation, at most so many. The values of secret fields are not repeated.
    pub fn violations(&self, value: &Value, limit: usize) -> Vec<Violation> {
        let value = match to_serde(value) {
            Ok(value) => value,
            Err(problem) => return vec![Violation { place: String::new(), problem }],
        };
        if self.compiled.is_valid(&value) {
            return Vec::new();
        }
        let violation = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string();
            let problem = match self.is_secret(&place) {
                true => "the value of a secret field does not match the schema".to_owned(),
                false => error.to_string(),
            };
            Violation { place, problem }
        };
        self.compiled.iter_errors(&value).take(limit).map(violation).collect()
    }

    /// The paths of fields that are marked `writeOnly`.
    pub fn secret_paths(&self) -> &[Vec<String>] {
        &self.secret
    }

    fn is_secret(&self, place: &str) -> bool {
        self.secret.iter().any(|path| {
            place.strip_prefix('/').is_some_and(|place| {
                let path = path.join("/");
                place == path || place.starts_with(&format!("{path}/"))
            })
        })
    }
}

fn find_secret(schema: &serde_json::Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let Some(properties) = schema.get("properties").and_then(|value| value.as_object()) else {
        return;
    };
    for (name, property) in properties {
        at.push(name.clone());
        if property.get("writeOnly") == Some(&serde_json::Value::Bool(true)) {
            found.push(at.clone());
        } else if at.len() < SECRET_DEPTH_MAX {
            find_secret(property, at, found);
        }
        at.pop();
    }
}

/// A value as `serde_json` has it. Integers that it cannot hold become doubles.
pub fn to_serde(value: &Value) -> Result<serde_json::Value, String> {
    let load = |error: catena_value::LoadError| error.to_string();
    Ok(match value {
        Value::Nil => serde_json::Value::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Integer(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => {
                let text = catena_value::json::to_string(value).map_err(|e| e.to_string())?;
                match text.parse::<u64>() {
                    Ok(number) => number.into(),
                    Err(_) => double(text.parse().unwrap_or(f64::MAX)),
                }
            }
        },
        Value::Double(number) => double(number.get()),
        Value::String(text) => {
            let bytes = text.to_bytes(&NoCells).map_err(load)?;
            String::from_utf8_lossy(&bytes).into_owned().into()
        }
        Value::Vector(items) => {
            let mut list = Vec::new();
            for item in items.iter(&NoCells) {
                list.push(to_serde(&item.map_err(load)?)?);
            }
            list.into()
        }
        Value::Map(map) => {
            let mut object = serde_json::Map::new();
            for entry in map.iter(&NoCells) {
                let (key, value) = entry.map_err(load)?;
                let Some(key) = key.as_str() else {
                    return Err("a member's name is not text, or too long".to_owned());
                };
                object.insert(key.to_owned(), to_serde(&value)?);
            }
            object.into()
        }
        other => return Err(format!("{} is not JSON", other.kind())),
    })
}

fn double(number: f64) -> serde_json::Value {
    serde_json::Number::from_f64(number).map_or(serde_json::Value::Null, Into::into)
}

/// And back.
pub fn from_serde(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(truth) => (*truth).into(),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None if number.is_f64() => number.as_f64().unwrap_or_default().into(),
            None => catena_value::json::read(number.to_string().as_bytes()).unwrap_or_default(),
        },
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Array(items) => {
            items.iter().map(from_serde).collect::<catena_value::Vector>().into()
        }
        serde_json::Value::Object(members) => members
            .iter()
            .map(|(name, value)| (Value::from(name.as_str()), from_serde(value)))
            .collect::<catena_value::Map>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    fn problems(schema: &str, instance: &str) -> Vec<String> {
        let schema = Schema::compile(&value(schema)).unwrap();
        schema.violations(&value(instance), 10).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn violations_say_what_and_where() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        assert!(problems(schema, r#"{"n":1,"more":true}"#).is_empty());
        assert_eq!(problems(schema, r#"{"n":"x"}"#), [r#""x" is not of type "integer" at /n"#]);
        assert_eq!(problems(schema, "{}"), [r#""n" is a required property"#]);
        assert_eq!(problems(schema, "[]"), [r#"[] is not of type "object""#]);
    }

    #[test]
    fn the_value_of_a_secret_field_is_not_repeated() {
        let schema =
            r#"{"properties":{"a":{"properties":{"key":{"type":"string","writeOnly":true}}}}}"#;
        let found = problems(schema, r#"{"a":{"key":12345}}"#);
        assert_eq!(found, ["the value of a secret field does not match the schema at /a/key"]);
        let schema = Schema::compile(&value(schema)).unwrap();
        assert_eq!(schema.secret_paths(), [["a".to_owned(), "key".to_owned()]]);
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert!(Schema::compile(&value(r#"{"type":"objekt"}"#)).is_err());
        assert!(Schema::compile(&value(r#"{"$ref":"https://example.invalid/x"}"#)).is_err());
    }

    #[test]
    fn json_goes_there_and_back() {
        for text in ["null", "1", "1.5", "18446744073709551615", r#""é""#, r#"{"a":[1,{"b":{}}]}"#]
        {
            let before = value(text);
            assert_eq!(from_serde(&to_serde(&before).unwrap()), before, "{text}");
        }
    }
}
