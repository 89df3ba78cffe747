//! Reading an operation's input and making its output.
//!
//! The engine has checked an input against the operation's schema and holds it wholly in memory
//! before an adapter sees it. What is read here is checked once more all the same: an operation
//! that somebody registers for an adapter may have a schema of its own, or none.

use catena_engine::Failure;
use catena_value::{LoadError, Map, NoCells, Value, Vector};

/// The members of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(Option<&'a Map>);

impl<'a> Fields<'a> {
    /// The members of an object; none when there is no input at all.
    pub(crate) fn of(input: &'a Value) -> Result<Self, Failure> {
        match input {
            Value::Nil => Ok(Fields(None)),
            Value::Map(map) => Ok(Fields(Some(map))),
            other => Err(invalid(format!("the input is of type {}, not object", other.kind()))),
        }
    }

    /// A member that is there, null or not.
    pub(crate) fn any(&self, name: &str) -> Option<&'a Value> {
        self.0.and_then(|map| map.field(name))
    }

    /// A member that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.any(name).filter(|value| !value.is_nil())
    }

    /// A member that is there, or null.
    pub(crate) fn or_nil(&self, name: &str) -> Value {
        self.any(name).cloned().unwrap_or(Value::Nil)
    }

    /// A text that must be there.
    pub(crate) fn text(&self, name: &str) -> Result<String, Failure> {
        self.optional_text(name)?.ok_or_else(|| missing(name))
    }

    /// A text.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        text(value).map(Some).ok_or_else(|| wrong(name, value, "a string"))
    }

    /// An integer between two others.
    pub(crate) fn integer(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = integer(value).ok_or_else(|| wrong(name, value, "an integer"))?;
        if (min..=max).contains(&number) {
            return Ok(Some(number));
        }
        Err(invalid(format!("`{name}` is {number}; it can be {min} to {max}")))
    }

    /// An object.
    pub(crate) fn map(&self, name: &str) -> Result<Option<&'a Map>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_map().map(Some).ok_or_else(|| wrong(name, value, "an object"))
    }

    /// The items of an array that must be there.
    pub(crate) fn items(&self, name: &str) -> Result<Vec<Value>, Failure> {
        let value = self.get(name).ok_or_else(|| missing(name))?;
        items(value.as_vector().ok_or_else(|| wrong(name, value, "an array"))?)
    }
}

/// The text of a string, however long it is.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => String::from_utf8(text.to_bytes(&NoCells).ok()?).ok(),
        _ => None,
    }
}

/// The integer that a number is: JSON Schema takes `2.0` for one.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    const EXACT: f64 = (1_i64 << 53) as f64;
    match value {
        Value::Double(double) if double.get().fract() == 0.0 && double.get().abs() <= EXACT => {
            Some(double.get() as i64)
        }
        other => other.as_i64(),
    }
}

/// The items of an array.
pub(crate) fn items(vector: &Vector) -> Result<Vec<Value>, Failure> {
    vector.iter(&NoCells).collect::<Result<_, _>>().map_err(not_in_memory)
}

/// An object.
pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members.into_iter().collect::<Map>().into()
}

/// An array.
pub(crate) fn array(items: Vec<Value>) -> Value {
    Vector::from_items(items).into()
}

/// An input that an operation cannot use.
pub(crate) fn invalid(error: impl Into<String>) -> Failure {
    Failure::new("invalid_input", error)
}

/// A value that is not in memory though it should be.
pub(crate) fn not_in_memory(error: LoadError) -> Failure {
    Failure::new("internal", format!("the input could not be read: {error}"))
}

fn missing(name: &str) -> Failure {
    invalid(format!("`{name}` is missing"))
}

fn wrong(name: &str, value: &Value, expected: &str) -> Failure {
    invalid(format!("`{name}` is of type {}; it must be {expected}", value.kind()))
}

/// Test values as JSON.
#[cfg(test)]
pub(crate) fn value(text: &str) -> Value {
    catena_value::json::read(text.as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_apart_by_absence_null_and_type() {
        let input = value(r#"{"a":null,"b":"x","n":3.0,"far":1e300}"#);
        let fields = Fields::of(&input).unwrap();
        assert_eq!(fields.any("a"), Some(&Value::Nil));
        assert_eq!(fields.get("a"), None);
        assert_eq!(fields.text("b").unwrap(), "x");
        assert_eq!(fields.text("a").unwrap_err().error, "`a` is missing");
        assert_eq!(
            fields.text("n").unwrap_err().error,
            "`n` is of type number; it must be a string"
        );
        assert_eq!(fields.integer("n", 0, 5).unwrap(), Some(3));
        assert_eq!(fields.integer("n", 4, 5).unwrap_err().error, "`n` is 3; it can be 4 to 5");
        assert_eq!(fields.integer("absent", 0, 1).unwrap(), None);
        assert!(fields.integer("far", 0, 5).is_err());
        assert!(Fields::of(&value("[]")).is_err());
        assert!(Fields::of(&Value::Nil).unwrap().get("a").is_none());
    }

    #[test]
    fn a_text_longer_than_one_cell_is_read_whole() {
        let long = "é".repeat(10_000);
        assert_eq!(text(&Value::from(long.as_str())), Some(long));
    }
}
