//! JSON Schemas, compiled once.
//!
//! Schemas are compiled without network access: a reference to another document is an error.
//! Numbers that do not fit 64 bits are compared as doubles.
//!
//! Schemas and values come from callers that are not trusted, and neither a compilation nor a check
//! can be interrupted. Both are therefore measured before they start, and refused if they exceed a
//! bound; `docs/decisions/0014-schema-cost.md` has the reasons. [`Schema::compile`] and
//! [`Schema::violations`] need the stack of a compute thread
//! ([`COMPUTE_STACK_BYTES`]); [`Schema::violations_inline`] is
//! the exception for small checks.
//!
//! Modules: `document` (the schemas of a schema as a graph, and the bounds of a compilation),
//! `pattern` (the size of a regular expression), `secret` (what is marked `writeOnly`), `cost` (the
//! cost of a check).

mod cost;
mod document;
mod pattern;
mod secret;

use std::sync::Arc;

use catena_value::{Extent, NoCells, Value};
use jsonschema::PatternOptions;
use parking_lot::Mutex;

use crate::limits::{
    COMPUTE_STACK_BYTES, PATTERN_BACKTRACKS_MAX, PATTERN_PROGRAM_BYTES_MAX, SCHEMA_BYTES_MAX,
    SCHEMA_CHECK_DEPTH_MAX, SCHEMA_CHECK_STEPS_MAX, SCHEMA_DROPPED_INLINE_MAX,
    SCHEMA_INLINE_BYTES_MAX, SCHEMA_INLINE_DEPTH_MAX, SCHEMA_INLINE_STEPS_MAX, SCHEMA_NESTING_MAX,
    SCHEMA_PATTERN_BYTES_MAX, VIOLATION_BYTES_MAX, VIOLATION_COPIES_BYTES_MAX,
    VIOLATION_QUOTE_BYTES_MAX,
};
use cost::Bounds;
use document::Document;
pub use secret::{Place, Secret};

/// The bounds of a check on a thread of the runtime.
const INLINE: Bounds = Bounds { steps: SCHEMA_INLINE_STEPS_MAX, depth: SCHEMA_INLINE_DEPTH_MAX };

/// A schema that values can be checked against.
pub struct Schema {
    compiled: Compiled,
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
    /// Compiles a schema. Fails with the reason if it is not a valid schema or too costly.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let bounds = Extent { bytes: SCHEMA_BYTES_MAX, depth: SCHEMA_NESTING_MAX };
        bounds.measure(schema, &NoCells).map_err(|error| format!("the schema {error}"))?;
        let as_json = to_serde(schema)?;
        let document = Document::new(&as_json)?;
        let secrets = secret::find_secrets(&document)?;
        let is_large = document.len() > SCHEMA_DROPPED_INLINE_MAX;
        let compiled = Compiled { validator: Some(build(&as_json)?), is_large };
        Ok(Schema { compiled, document, secrets })
    }

    /// Returns the violations of the schema by a value, at most `limit` of them. The descriptions do
    /// not quote values that are long, and none if the schema has secrets.
    pub fn violations(&self, value: &Value, limit: usize) -> Vec<Violation> {
        let mut steps = SCHEMA_CHECK_STEPS_MAX;
        self.violations_within(&mut steps, value, limit)
    }

    /// Returns the violations as [`Schema::violations`] does, if the check takes at most as many steps
    /// as are left, and subtracts them.
    pub fn violations_within(
        &self,
        steps_left: &mut u64,
        value: &Value,
        limit: usize,
    ) -> Vec<Violation> {
        let of_value = |problem: String| vec![Violation { place: String::new(), problem }];
        let value = match to_serde(value) {
            Ok(value) => value,
            Err(problem) => return of_value(problem),
        };
        let steps = (*steps_left).min(SCHEMA_CHECK_STEPS_MAX);
        let bounds = Bounds { steps, depth: SCHEMA_CHECK_DEPTH_MAX };
        let Some(taken) = cost::count_steps(&self.document, &value, bounds) else {
            return of_value(format!(
                "checking it against the schema takes more than {steps} steps"
            ));
        };
        *steps_left -= taken;
        self.find_violations(&value, limit)
    }

    /// Returns the violations if the check is small enough for a thread of the runtime. `None` if it
    /// needs a compute thread.
    pub fn violations_inline(&self, value: &Value, limit: usize) -> Option<Vec<Violation>> {
        let size = Extent { bytes: SCHEMA_INLINE_BYTES_MAX, depth: SCHEMA_INLINE_DEPTH_MAX };
        let bytes = size.measure(value, &NoCells).ok()?;
        let value = to_serde(value).ok()?;
        let is_known_small = self.document.depth().is_some_and(|depth| depth <= INLINE.depth)
            && self.document.steps_per_byte().is_some_and(|steps| {
                // Numbers are measured by less than a byte for each digit, everything else by more.
                steps.saturating_mul(bytes + 1) <= INLINE.steps
            });
        if !is_known_small {
            cost::count_steps(&self.document, &value, INLINE)?;
        }
        Some(self.find_violations(&value, limit))
    }

    /// Returns the violations of a check whose cost is bounded.
    fn find_violations(&self, value: &serde_json::Value, limit: usize) -> Vec<Violation> {
        // It is only taken when it is dropped.
        let Some(compiled) = &self.compiled.validator else { return Vec::new() };
        if compiled.is_valid(value) {
            return Vec::new();
        }
        // Each violation contains a copy of the part that it concerns, and all of them are made
        // before the first is returned.
        if !cost::fits_violations(&self.document, value, VIOLATION_COPIES_BYTES_MAX) {
            let problem = "it does not conform to the schema; the violations are not listed, \
                           because the value or the schema is too large";
            return vec![Violation { place: String::new(), problem: problem.to_owned() }];
        }
        let errors = compiled.iter_errors(value).take(limit);
        errors.map(|error| self.violation(&error)).collect()
    }

    /// Describes an error. The description quotes nothing of a value that may contain secrets.
    fn violation(&self, error: &jsonschema::ValidationError<'_>) -> Violation {
        let mut place = error.instance_path().to_string();
        truncate(&mut place, VIOLATION_BYTES_MAX);
        let problem = if self.secrets.is_empty() {
            describe(error)
        } else {
            let mut problem = error.masked().to_string();
            truncate(&mut problem, VIOLATION_BYTES_MAX);
            problem
        };
        Violation { place, problem }
    }

    /// Returns the paths that are marked `writeOnly`.
    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Returns an upper bound of the bytes that the compiled schema uses.
    pub fn bytes(&self) -> u64 {
        self.document.bytes()
    }
}

/// The compiled form of a schema. A large one is dropped on a thread with a large stack, because a
/// chain of definitions is dropped recursively and the last reference to it may be anywhere.
struct Compiled {
    validator: Option<jsonschema::Validator>,
    is_large: bool,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if !self.is_large {
            return;
        }
        let shared = Arc::new(Mutex::new(self.validator.take()));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().stack_size(COMPUTE_STACK_BYTES);
        if thread.spawn(move || drop(of_thread.lock().take())).is_err() {
            // Losing some memory is better than overflowing the stack.
            std::mem::forget(shared);
        }
    }
}

/// Compiles a schema whose cost is bounded.
fn build(schema: &serde_json::Value) -> Result<jsonschema::Validator, String> {
    let options = jsonschema::options()
        .with_pattern_options(pattern_options())
        // By default, this compiles a text of any length as a pattern of any size.
        .with_format("regex", |text: &str| {
            text.len() <= SCHEMA_PATTERN_BYTES_MAX
                && jsonschema::options()
                    .with_pattern_options(pattern_options())
                    .build(&serde_json::json!({ "pattern": text }))
                    .is_ok()
        });
    options.build(schema).map_err(|error| describe(&error))
}

fn pattern_options() -> PatternOptions<jsonschema::FancyRegex> {
    PatternOptions::fancy_regex()
        .backtrack_limit(PATTERN_BACKTRACKS_MAX)
        .size_limit(PATTERN_PROGRAM_BYTES_MAX)
        .dfa_size_limit(PATTERN_PROGRAM_BYTES_MAX)
}

/// Describes an error without a copy of a long value.
fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let instance: &serde_json::Value = error.instance();
    let mut problem = match long_value(instance) {
        Some(description) => error.masked_with(description).to_string(),
        None => error.to_string(),
    };
    truncate(&mut problem, VIOLATION_BYTES_MAX);
    problem
}

/// Describes a value that is too long to be quoted. `None` if it is short.
fn long_value(value: &serde_json::Value) -> Option<String> {
    let mut bytes = 0;
    let mut open = vec![value];
    while let Some(part) = open.pop() {
        bytes += match part {
            serde_json::Value::String(text) => text.len() + 2,
            serde_json::Value::Array(items) => {
                open.extend(items.iter().take(VIOLATION_QUOTE_BYTES_MAX));
                2
            }
            serde_json::Value::Object(members) => {
                let members = members.iter().take(VIOLATION_QUOTE_BYTES_MAX);
                members.fold(2, |sum, (name, member)| {
                    open.push(member);
                    sum + name.len() + 4
                })
            }
            _ => 4,
        };
        if bytes > VIOLATION_QUOTE_BYTES_MAX {
            return Some(match value {
                serde_json::Value::String(text) => format!("a string of {} bytes", text.len()),
                serde_json::Value::Array(items) => format!("an array of {} items", items.len()),
                serde_json::Value::Object(all) => format!("an object of {} members", all.len()),
                _ => "a long value".to_owned(),
            });
        }
    }
    None
}

fn truncate(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
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
        let inline = Schema::compile(&value(&schema)).unwrap();
        assert_eq!(inline.violations_inline(&value("1"), 1), None);
    }

    /// A chain of definitions; `%` is replaced by a reference to the next one.
    fn chain(len: usize, each: &str) -> String {
        let reference = |n: usize| format!(r##"{{"$ref":"#/$defs/d{n}"}}"##);
        let mut defs: Vec<String> = Vec::new();
        for n in 0..len {
            defs.push(format!(r#""d{n}":{}"#, each.replace('%', &reference(n + 1))));
        }
        format!(r##"{{"$defs":{{{},"d{len}":true}},"$ref":"#/$defs/d0"}}"##, defs.join(","))
    }

    fn refusal(schema: &str) -> String {
        Schema::compile(&value(schema)).unwrap_err()
    }

    #[test]
    fn a_costly_schema_is_refused_before_it_is_compiled() {
        let too_deep = "its references and combinations nest deeper than 128 schemas";
        for each in ["%", r#"{"allOf":[%]}"#, r#"{"allOf":[%],"unevaluatedProperties":false}"#] {
            assert_eq!(refusal(&chain(500, each)), too_deep, "{each}");
        }
        let twice = r#"{"allOf":[%,%],"unevaluatedProperties":false}"#;
        assert_eq!(
            refusal(&chain(20, twice)),
            "its `unevaluated…` keywords lead to more than 20000 schemas"
        );
        let endless = "its references lead back to themselves without descending into the value";
        assert_eq!(refusal(r##"{"$ref":"#"}"##), endless);
        assert_eq!(refusal(r##"{"allOf":[{"not":{"$ref":"#"}}]}"##), endless);
        let name = "n".repeat(100_000);
        let members: Vec<String> = (0..1_000).map(|n| format!(r#""p{n}":{{}}"#)).collect();
        let long =
            format!(r#"{{"properties":{{"{name}":{{"properties":{{{}}}}}}}}}"#, members.join(","));
        assert!(refusal(&long).contains("names in the schema are too long"), "{}", refusal(&long));
        let patterns: Vec<String> = (0..200).map(|n| format!(r#"{{"pattern":"{n}"}}"#)).collect();
        let many = format!(r#"{{"allOf":[{}]}}"#, patterns.join(","));
        assert_eq!(refusal(&many), "the schema has more than 128 patterns");
        let items = format!(r#"{{"enum":[{}0]}}"#, "0,".repeat(60_000));
        assert_eq!(refusal(&items), "the schema has more than 50000 values");
        assert!(refusal(r#"{"pattern":"((a{100}){100}){100}"}"#).contains("not a"));
    }

    #[test]
    fn a_long_chain_that_descends_into_the_value_is_compiled() {
        let schema = chain(2_000, r#"{"properties":{"a":%}}"#);
        assert!(problems(&schema, r#"{"a":{"a":{}}}"#).is_empty());
    }

    #[test]
    fn violations_that_would_copy_gigabytes_are_not_listed() {
        let branches: Vec<String> = (0..9_000).map(|n| format!(r#"{{"const":{n}}}"#)).collect();
        let text = format!(r#""{}""#, "x".repeat(400_000));
        let found = problems(&format!(r#"{{"oneOf":[{}]}}"#, branches.join(",")), &text);
        assert!(found[0].contains("the violations are not listed"), "{found:?}");
    }

    #[test]
    fn a_small_check_needs_no_other_thread() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        let schema = Schema::compile(&value(schema)).unwrap();
        assert_eq!(schema.violations_inline(&value(r#"{"n":1}"#), 1), Some(Vec::new()));
        assert_eq!(schema.violations_inline(&value("{}"), 1).unwrap().len(), 1);
        let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(100_000));
        assert_eq!(schema.violations_inline(&value(&long), 1), None);
        let heavy = r#"{"items":{"pattern":"(a{50}|b{50}){10}"}}"#;
        let heavy = Schema::compile(&value(heavy)).unwrap();
        let text = format!(r#"["{}"]"#, "a".repeat(50_000));
        assert_eq!(heavy.violations_inline(&value(&text), 1), None);
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
    fn a_long_value_is_described_and_not_quoted() {
        let long = format!(r#""{}""#, "x".repeat(100_000));
        assert_eq!(
            problems(r#"{"type":"integer"}"#, &long),
            [r#"a string of 100000 bytes is not of type "integer""#]
        );
        let list = format!("[{}1]", "1,".repeat(9_999));
        assert_eq!(
            problems(r#"{"type":"integer"}"#, &list),
            [r#"an array of 10000 items is not of type "integer""#]
        );
        let names = format!(r#"{{"enum":["{}"]}}"#, "x".repeat(100_000));
        let found = problems(&names, "1");
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
