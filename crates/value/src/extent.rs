//! How much a value would be if it were written out.
//!
//! Values share what they have in common, so a small one can spell out to more than any machine
//! holds: forty lists, each with the one before it in it twice, are a few kilobytes and a terabyte.
//! Whoever puts values together checks them here before anybody walks over them. The walk ends at
//! the bound, so it never costs more than what is allowed.

use crate::cell::{CellSource, LoadError};
use crate::value::Value;

/// How much a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, about as many as its shortest JSON has.
    pub bytes: u64,
    /// Containers within each other.
    pub depth: usize,
}

/// Why a value is more than it may be.
#[derive(Debug, thiserror::Error)]
pub enum ExtentError {
    /// It is too large.
    #[error("has more than {0} bytes")]
    Bytes(u64),
    /// It is too deep.
    #[error("nests deeper than {0} arrays and objects")]
    Depth(usize),
    /// A part of it could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Bytes of a number that has no shorter text.
const NUMBER_BYTES: u64 = 3;

/// Bytes of anything else that is no text and no container.
const WORD_BYTES: u64 = 4;

impl Extent {
    /// How many bytes a value has, if it is no more than this.
    pub fn measure(&self, value: &Value, cells: &dyn CellSource) -> Result<u64, ExtentError> {
        let mut walk = Walk { most: *self, bytes: 0, cells };
        walk.value(value, 0)?;
        Ok(walk.bytes)
    }
}

struct Walk<'a> {
    most: Extent,
    bytes: u64,
    cells: &'a dyn CellSource,
}

impl Walk<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), ExtentError> {
        match value {
            Value::String(text) => self.add(text.len() + 2),
            Value::Blob(blob) => self.add(blob.len() * 2 + 4),
            Value::Vector(items) => {
                self.enter(depth)?;
                for item in items.iter(self.cells) {
                    self.add(1)?;
                    self.value(&item?, depth + 1)?;
                }
                Ok(())
            }
            Value::Map(members) => {
                self.enter(depth)?;
                for entry in members.iter(self.cells) {
                    let (key, member) = entry?;
                    self.add(2)?;
                    self.value(&key, depth + 1)?;
                    self.value(&member, depth + 1)?;
                }
                Ok(())
            }
            Value::Unloaded(id) => {
                let loaded = self.cells.load(id)?;
                self.value(&loaded, depth)
            }
            Value::Integer(number) => {
                let digits = number.as_i64().map(|number| number.unsigned_abs().checked_ilog10());
                self.add(digits.map_or(NUMBER_BYTES, |digits| 1 + u64::from(digits.unwrap_or(0))))
            }
            Value::Double(_) => self.add(NUMBER_BYTES),
            _ => self.add(WORD_BYTES),
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), ExtentError> {
        match depth < self.most.depth {
            true => self.add(2),
            false => Err(ExtentError::Depth(self.most.depth)),
        }
    }

    fn add(&mut self, bytes: u64) -> Result<(), ExtentError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes <= self.most.bytes {
            true => Ok(()),
            false => Err(ExtentError::Bytes(self.most.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::NoCells;
    use crate::{Vector, json};

    fn measured(value: &Value, bytes: u64, depth: usize) -> Result<u64, String> {
        Extent { bytes, depth }.measure(value, &NoCells).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_has_about_the_bytes_of_its_json() {
        let text = r#"{"name":"a text of some length","list":[12345678,87654321,true]}"#;
        let bytes = measured(&json::read(text.as_bytes()).unwrap(), 1_000, 8).unwrap();
        assert!(bytes.abs_diff(text.len() as u64) < 10, "{bytes} of {}", text.len());
    }

    #[test]
    fn a_value_is_never_much_more_than_the_text_it_was_read_from() {
        for item in ["1", "0", "-7", "true", "null", "1.0", "[]", "{}", r#""""#] {
            let text = format!("[{}]", vec![item; 1_000].join(","));
            let bytes = measured(&json::read(text.as_bytes()).unwrap(), 100_000, 8).unwrap();
            assert!(bytes <= text.len() as u64 + 2, "{bytes} of {} of {item}", text.len());
        }
    }

    #[test]
    fn what_is_too_deep_is_told() {
        let deep = json::read(b"[[[1]]]").unwrap();
        assert!(measured(&deep, 1_000, 3).is_ok());
        let told = measured(&deep, 1_000, 2);
        assert_eq!(told, Err("nests deeper than 2 arrays and objects".to_owned()));
    }

    #[test]
    fn what_spells_out_to_more_than_memory_costs_no_more_than_the_bound() {
        let mut doubled = Value::from("x");
        for _ in 0..100 {
            doubled = Vector::from_items(vec![doubled.clone(), doubled]).into();
        }
        let told = measured(&doubled, 100_000, 200);
        assert_eq!(told, Err("has more than 100000 bytes".to_owned()));
    }
}
