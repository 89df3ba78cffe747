//! JSON Schemas, compiled once.

use catena_value::Value;

/// A schema that values can be checked against.
pub struct Schema {
    compiled: jsonschema::Validator,
    secret: Vec<Vec<String>>,
}

/// How a value violates a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where in the value, as a JSON pointer.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

impl Schema {
    /// Compiles a schema. What is wrong with it, if it is none.
    pub fn compile(_schema: &Value) -> Result<Schema, String> { unimplemented!() }
    /// Every violation, at most so many.
    pub fn violations(&self, _value: &Value, _limit: usize) -> Vec<Violation> { unimplemented!() }
}

/// A value as `serde_json` has it. Integers that it cannot hold become doubles.
pub fn to_serde(_value: &Value) -> Result<serde_json::Value, String> { unimplemented!() }
/// And back.
pub fn from_serde(_value: &serde_json::Value) -> Value { unimplemented!() }
