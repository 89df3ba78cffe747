//! JSON Schemas, compiled once.
//!
//! Schemas are read without a network: a reference that leads out of the schema is an error when
//! it is compiled. Numbers are compared as doubles where they do not fit 64 bits.
//!
//! Modules: `document` (what stands where in a schema), `secret` (what it marks `writeOnly`), `cost`
//! (what a check costs).

mod cost;
mod document;
mod secret;

use catena_value::{NoCells, Value};

use document::Document;
pub use secret::{Place, Secret};

/// Steps of a check whose violations are all told. Of a longer one only the first is: each that is
/// found takes memory, however few are told.
const TOLD_STEPS_MAX: u64 = 100_000;

/// Bytes of what is told about one violation.
const PROBLEM_BYTES_MAX: usize = 2_000;

/// A schema that values can be checked against.
pub struct Schema {
    compiled: jsonschema::Validator,
    document: Document,
    secret: Vec<Secret>,
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
        let document = Document::new(as_json)?;
        let secret = secret::secrets(&document)?;
        Ok(Schema { compiled, document, secret })
    }

    /// Every violation, at most so many. The values of secret fields are not repeated.
    pub fn violations(&self, value: &Value, limit: usize) -> Vec<Violation> {
        let whole = |problem: String| vec![Violation { place: String::new(), problem }];
        let value = match to_serde(value) {
            Ok(value) => value,
            Err(problem) => return whole(problem),
        };
        let Some(steps) = cost::steps(&self.document, &value) else {
            return whole(format!("checking it takes more than {} steps", cost::STEPS_MAX));
        };
        if self.compiled.is_valid(&value) {
            return Vec::new();
        }
        match steps <= TOLD_STEPS_MAX {
            true => {
                let errors = self.compiled.iter_errors(&value).take(limit);
                errors.map(|error| self.violation(&error)).collect()
            }
            false => {
                self.compiled.validate(&value).err().iter().map(|e| self.violation(e)).collect()
            }
        }
    }

    /// What is told about an error. It repeats nothing of a value that may have secrets in it.
    fn violation(&self, error: &jsonschema::ValidationError<'_>) -> Violation {
        let mut problem = match self.secret.is_empty() {
            true => error.to_string(),
            false => error.masked().to_string(),
        };
        if problem.len() > PROBLEM_BYTES_MAX {
            problem.truncate(problem.floor_char_boundary(PROBLEM_BYTES_MAX));
            problem.push('…');
        }
        Violation { place: error.instance_path().to_string(), problem }
    }

    /// The places that are marked `writeOnly`.
    pub fn secrets(&self) -> &[Secret] {
        &self.secret
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
                let Some(key) = key.to_text() else {
                    return Err("a member's name is not text".to_owned());
                };
                object.insert(key.into_owned(), to_serde(&value)?);
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

    /// The places that a schema marks, written as paths.
    fn secrets(schema: &str) -> Vec<String> {
        let schema = Schema::compile(&value(schema)).unwrap();
        let step = |place: &Place| match place {
            Place::At(name) => name.clone(),
            Place::Each => "*".to_owned(),
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
    fn a_secret_is_found_wherever_a_schema_can_mark_it() {
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
    fn what_can_have_a_secret_too_deep_to_tell_is_secret_as_a_whole() {
        let schema = r##"{"properties":{"next":{"$ref":"#"},"key":{"writeOnly":true}}}"##;
        let found = secrets(schema);
        assert!(found.contains(&"next/next/key".to_owned()), "{found:?}");
        assert!(found.contains(&vec!["next"; 16].join("/")), "{found:?}");
    }

    #[test]
    fn a_check_that_would_take_too_long_is_not_begun() {
        let twice = |next: usize| format!(r##"{{"$ref":"#/$defs/d{next}"}}"##);
        let mut defs: Vec<_> =
            (0..40).map(|n| format!(r#""d{n}":{{"allOf":[{0},{0}]}}"#, twice(n + 1))).collect();
        defs.push(r#""d40":{"type":"integer"}"#.to_owned());
        let schema = format!(r##"{{"$defs":{{{}}},"$ref":"#/$defs/d0"}}"##, defs.join(","));
        assert_eq!(problems(&schema, "1"), ["checking it takes more than 2000000 steps"]);
        let chain: Vec<_> = (0..5_000).map(|n| format!(r#""d{n}":{}"#, twice(n + 1))).collect();
        let schema =
            format!(r##"{{"$defs":{{{},"d5000":true}},"$ref":"#/$defs/d0"}}"##, chain.join(","));
        assert_eq!(problems(&schema, "1"), ["checking it takes more than 2000000 steps"]);
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
    fn what_is_told_about_a_violation_is_short() {
        let long = format!(r#""{}""#, "x".repeat(100_000));
        let found = problems(r#"{"type":"integer"}"#, &long);
        assert!(found[0].len() < 2_010 && found[0].ends_with('…'), "{}", found[0].len());
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert!(Schema::compile(&value(r#"{"type":"objekt"}"#)).is_err());
        assert!(Schema::compile(&value(r#"{"$ref":"https://example.invalid/x"}"#)).is_err());
        assert!(Schema::compile(&value(r##"{"$ref":"#/$defs/none"}"##)).is_err());
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
