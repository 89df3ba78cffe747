//! Reads an operation's input and builds its output.
//!
//! The engine has validated an input against the operation's schema and holds all of it in memory
//! before an adapter gets it. Fields are checked here once more, because an operation that a caller
//! registers for an adapter may have a schema of its own, or none.

pub(crate) use catena_api::wire::text;
use catena_engine::Failure;
use catena_job::members::Members;
use catena_value::{LoadError, Map, NoCells, Value, Vector};

/// The members of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(Option<&'a Map>);

impl<'a> Fields<'a> {
    /// The members of an object. A null input has no members.
    pub(crate) fn from_value(input: &'a Value) -> Result<Self, Failure> {
        match input {
            Value::Nil => Ok(Fields(None)),
            Value::Map(map) => Ok(Fields(Some(map))),
            other => {
                Err(invalid_input(format!("the input is of type {}, not object", other.kind())))
            }
        }
    }

    /// Fails if there is a member that is not known.
    pub(crate) fn refuse_unknown(&self, members: Members) -> Result<(), Failure> {
        match self.0.and_then(|map| members.unknown(map).into_iter().next()) {
            Some(unknown) => Err(Failure::new("unknown_member", unknown.to_string())),
            None => Ok(()),
        }
    }

    /// A member, null or not; `None` if it is absent.
    pub(crate) fn get_nullable(&self, name: &str) -> Option<&'a Value> {
        self.0.and_then(|map| map.field(name))
    }

    /// A member; `None` if it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.get_nullable(name).filter(|value| !value.is_nil())
    }

    /// A member, or nil if it is absent.
    pub(crate) fn get_or_nil(&self, name: &str) -> Value {
        self.get_nullable(name).cloned().unwrap_or(Value::Nil)
    }

    /// A required text.
    pub(crate) fn text(&self, name: &str) -> Result<String, Failure> {
        self.optional_text(name)?.ok_or_else(|| missing_field(name))
    }

    /// A text; `None` if it is absent or null.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        text(value).map(Some).ok_or_else(|| wrong_type(name, value, "a string"))
    }

    /// An integer from `min` to `max`; `None` if it is absent or null.
    pub(crate) fn integer(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = integer(value).ok_or_else(|| wrong_type(name, value, "an integer"))?;
        if (min..=max).contains(&number) {
            return Ok(Some(number));
        }
        Err(invalid_input(format!("`{name}` is {number}; it must be from {min} to {max}")))
    }

    /// An object; `None` if it is absent or null.
    pub(crate) fn map(&self, name: &str) -> Result<Option<&'a Map>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_map().map(Some).ok_or_else(|| wrong_type(name, value, "an object"))
    }

    /// The items of a required array.
    pub(crate) fn items(&self, name: &str) -> Result<Vec<Value>, Failure> {
        let value = self.get(name).ok_or_else(|| missing_field(name))?;
        items(value.as_vector().ok_or_else(|| wrong_type(name, value, "an array"))?)
    }
}

/// The integer value of a number; `None` if it has a fraction. As in JSON Schema, `2.0` is an
/// integer.
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
    vector.iter(&NoCells).collect::<Result<_, _>>().map_err(load_failure)
}

/// An object with these members.
pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members.into_iter().collect::<Map>().into()
}

/// An array with these items.
pub(crate) fn array(items: Vec<Value>) -> Value {
    Vector::from_items(items).into()
}

/// The failure of an operation whose input is invalid.
pub(crate) fn invalid_input(error: impl Into<String>) -> Failure {
    Failure::new("invalid_input", error)
}

/// The failure of an operation whose input is not completely in memory, although it should be.
pub(crate) fn load_failure(error: LoadError) -> Failure {
    Failure::new("internal", format!("the input could not be read: {error}"))
}

fn missing_field(name: &str) -> Failure {
    invalid_input(format!("`{name}` is missing"))
}

fn wrong_type(name: &str, value: &Value, expected: &str) -> Failure {
    invalid_input(format!("`{name}` is of type {}; it must be {expected}", value.kind()))
}

/// Parses the JSON of a test value.
#[cfg(test)]
pub(crate) fn value(text: &str) -> Value {
    catena_value::json::read(text.as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_distinguished_by_absence_null_and_type() {
        let input = value(r#"{"a":null,"b":"x","n":3.0,"far":1e300}"#);
        let fields = Fields::from_value(&input).unwrap();
        assert_eq!(fields.get_nullable("a"), Some(&Value::Nil));
        assert_eq!(fields.get("a"), None);
        assert_eq!(fields.text("b").unwrap(), "x");
        assert_eq!(fields.text("a").unwrap_err().error, "`a` is missing");
        assert_eq!(
            fields.text("n").unwrap_err().error,
            "`n` is of type number; it must be a string"
        );
        assert_eq!(fields.integer("n", 0, 5).unwrap(), Some(3));
        assert_eq!(
            fields.integer("n", 4, 5).unwrap_err().error,
            "`n` is 3; it must be from 4 to 5"
        );
        assert_eq!(fields.integer("absent", 0, 1).unwrap(), None);
        assert!(fields.integer("far", 0, 5).is_err());
        assert!(Fields::from_value(&value("[]")).is_err());
        assert!(Fields::from_value(&Value::Nil).unwrap().get("a").is_none());
    }

    #[test]
    fn a_text_longer_than_one_cell_is_read_completely() {
        let long = "é".repeat(10_000);
        assert_eq!(text(&Value::from(long.as_str())), Some(long));
    }
}
