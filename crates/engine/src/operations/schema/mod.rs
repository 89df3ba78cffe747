//! JSON Schemas, compiled once.
//!
//! Schemas are compiled without network access: a reference to another document is an error.
//! Numbers that do not fit 64 bits are compared as doubles.
//!
//! Modules: `document` (subschemas and references), `secret` (what is marked `writeOnly`), `cost`
//! (the cost of a check).

mod cost;
mod document;
mod secret;

use catena_value::{NoCells, Value};

use crate::limits::{
    SCHEMA_CHECK_STEPS_MAX, SCHEMA_LIST_VIOLATIONS_STEPS_MAX, VIOLATION_BYTES_MAX,
};
use document::Document;
pub use secret::{Place, Secret};

/// A schema that values can be checked against.
pub struct Schema {
    compiled: jsonschema::Validator,
    document: Document,
    secrets: Vec<Secret>,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("schema")
    }
}

/// A violation of a schema by a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The location in the value, as a JSON pointer.
    pub place: String,
    /// A description of the violation.
    pub problem: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{} at {}", self.problem, self.place)
        }
    }
}

impl Schema {
    /// Compiles a schema. Fails with the reason if it is not a valid schema.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let as_json = to_serde(schema)?;
        let compiled = jsonschema::validator_for(&as_json).map_err(|error| error.to_string())?;
        let document = Document::new(as_json)?;
        let secrets = secret::find_secrets(&document)?;
        Ok(Schema { compiled, document, secrets })
    }

    /// Returns the violations of the schema by a value, at most `limit` of them. The descriptions do
    /// not quote values if the schema has secrets.
    pub fn violations(&self, value: &Value, limit: usize) -> Vec<Violation> {
        let of_value = |problem: String| vec![Violation { place: String::new(), problem }];
        let value = match to_serde(value) {
            Ok(value) => value,
            Err(problem) => return of_value(problem),
        };
        let Some(steps) = cost::count_steps(&self.document, &value) else {
            return of_value(format!(
                "checking it against the schema takes more than {SCHEMA_CHECK_STEPS_MAX} steps"
            ));
        };
        if self.compiled.is_valid(&value) {
            return Vec::new();
        }
        if steps > SCHEMA_LIST_VIOLATIONS_STEPS_MAX {
            let first = self.compiled.validate(&value).err();
            return first.iter().map(|error| self.violation(error)).collect();
        }
        let errors = self.compiled.iter_errors(&value).take(limit);
        errors.map(|error| self.violation(&error)).collect()
    }

    /// Describes an error. The description quotes nothing of a value that may contain secrets.
    fn violation(&self, error: &jsonschema::ValidationError<'_>) -> Violation {
        let mut problem =
            if self.secrets.is_empty() { error.to_string() } else { error.masked().to_string() };
        if problem.len() > VIOLATION_BYTES_MAX {
            problem.truncate(problem.floor_char_boundary(VIOLATION_BYTES_MAX));
            problem.push('…');
        }
        Violation { place: error.instance_path().to_string(), problem }
    }

    /// Returns the paths that are marked `writeOnly`.
    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }
}

/// Converts a value to `serde_json`. Integers that do not fit 64 bits become doubles. Fails if the
/// value is not completely in memory or has no JSON form.
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
                let Some(key) = key.to_text() else {
                    return Err("a member name is not text".to_owned());
                };
                object.insert(key.into_owned(), to_serde(&value)?);
            }
            object.into()
        }
        other => return Err(format!("{} is not a JSON type", other.kind())),
    })
}

fn double(number: f64) -> serde_json::Value {
    serde_json::Number::from_f64(number).map_or(serde_json::Value::Null, Into::into)
}

/// Converts from `serde_json` to a value.
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
    fn violations_name_the_problem_and_its_location() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        assert!(problems(schema, r#"{"n":1,"more":true}"#).is_empty());
        assert_eq!(problems(schema, r#"{"n":"x"}"#), [r#""x" is not of type "integer" at /n"#]);
        assert_eq!(problems(schema, "{}"), [r#""n" is a required property"#]);
        assert_eq!(problems(schema, "[]"), [r#"[] is not of type "object""#]);
    }

    /// The secrets of a schema, as paths with `/` and `*`.
    fn secrets(schema: &str) -> Vec<String> {
        let schema = Schema::compile(&value(schema)).unwrap();
        let step = |place: &Place| match place {
            Place::At(name) => name.clone(),
            Place::Each | Place::EachExcept(_) => "*".to_owned(),
        };
        let path = |secret: &Secret| secret.iter().map(step).collect::<Vec<_>>().join("/");
        schema.secrets().iter().map(path).collect()
    }

    #[test]
    fn the_value_of_a_secret_field_is_not_repeated() {
        let key = r#""key":{"type":"string","writeOnly":true}"#;
        for (schema, instance) in [
            (format!(r#"{{"properties":{{{key}}}}}"#), r#"{"key":54321}"#),
            (format!(r#"{{"type":"array","properties":{{{key}}}}}"#), r#"{"key":"54321"}"#),
            (
                format!(r#"{{"properties":{{{key}}},"oneOf":[{{"required":["a"]}}]}}"#),
                r#"{"key":"54321"}"#,
            ),
            (
                r#"{"properties":{"a/b":{"type":"array","writeOnly":true}}}"#.into(),
                r#"{"a/b":54321}"#,
            ),
        ] {
            let found = problems(&schema, instance);
            assert_eq!(found.len(), 1, "{schema}");
            assert!(!found[0].contains("54321"), "{found:?}");
        }
    }

    #[test]
    fn a_secret_is_found_under_every_keyword_that_can_mark_it() {
        let secret = r#"{"writeOnly":true}"#;
        for (schema, expected) in [
            (secret.to_owned(), vec![""]),
            (r#"{"properties":{"a":{"properties":{"k":S}}}}"#.into(), vec!["a/k"]),
            (r##"{"properties":{"a":{"$ref":"#/$defs/s"}},"$defs":{"s":S}}"##.into(), vec!["a"]),
            (
                r##"{"properties":{"a":{"$ref":"#s"}},"$defs":{"s":{"$anchor":"s","writeOnly":true}}}"##.into(),
                vec!["a"],
            ),
            (r#"{"allOf":[{"anyOf":[{"properties":{"k":S}}]}]}"#.into(), vec!["k"]),
            (r#"{"if":true,"then":{"properties":{"k":S}}}"#.into(), vec!["k"]),
            (r#"{"properties":{"l":{"items":S}}}"#.into(), vec!["l/*"]),
            (r#"{"prefixItems":[true,S]}"#.into(), vec!["1"]),
            (r#"{"additionalProperties":S}"#.into(), vec!["*"]),
            (r#"{"const":S,"default":S}"#.into(), vec![]),
        ] {
            assert_eq!(secrets(&schema.replace('S', secret)), expected, "{schema}");
        }
    }

    #[test]
    fn a_part_at_the_depth_limit_that_may_contain_secrets_is_a_secret() {
        let schema = r##"{"properties":{"next":{"$ref":"#"},"key":{"writeOnly":true}}}"##;
        let found = secrets(schema);
        assert!(found.contains(&"next/next/key".to_owned()), "{found:?}");
        assert!(found.contains(&vec!["next"; 16].join("/")), "{found:?}");
    }

    #[test]
    fn a_check_that_would_take_too_long_is_not_started() {
        let twice = |next: usize| format!(r##"{{"$ref":"#/$defs/d{next}"}}"##);
        let mut defs: Vec<_> =
            (0..40).map(|n| format!(r#""d{n}":{{"allOf":[{0},{0}]}}"#, twice(n + 1))).collect();
        defs.push(r#""d40":{"type":"integer"}"#.to_owned());
        let schema = format!(r##"{{"$defs":{{{}}},"$ref":"#/$defs/d0"}}"##, defs.join(","));
        assert_eq!(
            problems(&schema, "1"),
            ["checking it against the schema takes more than 2000000 steps"]
        );
        let chain: Vec<_> = (0..5_000).map(|n| format!(r#""d{n}":{}"#, twice(n + 1))).collect();
        let schema =
            format!(r##"{{"$defs":{{{},"d5000":true}},"$ref":"#/$defs/d0"}}"##, chain.join(","));
        assert_eq!(
            problems(&schema, "1"),
            ["checking it against the schema takes more than 2000000 steps"]
        );
    }

    #[test]
    fn a_definition_that_leads_back_to_itself_costs_little() {
        let schema = r##"{"properties":{"next":{"$ref":"#"},"n":{"type":"integer"}}}"##;
        assert!(problems(schema, r#"{"next":{"next":{"n":1}}}"#).is_empty());
        assert_eq!(
            problems(schema, r#"{"next":{"n":"x"}}"#),
            [r#""x" is not of type "integer" at /next/n"#]
        );
    }

    #[test]
    fn the_description_of_a_violation_is_truncated() {
        let long = format!(r#""{}""#, "x".repeat(100_000));
        let found = problems(r#"{"type":"integer"}"#, &long);
        assert!(found[0].len() < 2_010 && found[0].ends_with('…'), "{}", found[0].len());
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        assert!(Schema::compile(&value(r#"{"type":"objekt"}"#)).is_err());
        assert!(Schema::compile(&value(r#"{"$ref":"https://example.invalid/x"}"#)).is_err());
        assert!(Schema::compile(&value(r##"{"$ref":"#/$defs/none"}"##)).is_err());
    }

    #[test]
    fn json_survives_a_conversion_to_serde_and_back() {
        for text in ["null", "1", "1.5", "18446744073709551615", r#""é""#, r#"{"a":[1,{"b":{}}]}"#]
        {
            let before = value(text);
            assert_eq!(from_serde(&to_serde(&before).unwrap()), before, "{text}");
        }
    }
}
