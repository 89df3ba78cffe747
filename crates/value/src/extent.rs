//! The extent of a value: its size and depth if it were written out as JSON.
//!
//! Values share common parts, so a value that is small in memory can expand to more than any
//! machine can hold: forty lists, each containing the previous one twice, take a few kilobytes in
//! memory and a terabyte as JSON. Code that assembles values checks them here before anything
//! traverses them. The check stops at the limit, so its cost is bounded by the limit.

use crate::cell::{CellSource, LoadError, NoCells};
use crate::value::Value;

/// The maximum extent of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Maximum size in bytes, approximately that of the shortest JSON text.
    pub bytes: u64,
    /// Maximum nesting depth of containers.
    pub depth: usize,
}

/// The reason why a value exceeds an extent or could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ExtentError {
    /// The value is larger than this many bytes.
    #[error("has more than {0} bytes")]
    Bytes(u64),
    /// The value nests deeper than this.
    #[error("nests deeper than {0} arrays and objects")]
    Depth(usize),
    /// A part of the value could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Assumed size in bytes of a number that is not a 64-bit integer.
const NUMBER_BYTES: u64 = 3;

/// Assumed size in bytes of any other value that is not a text or container.
const WORD_BYTES: u64 = 4;

impl Extent {
    /// Returns the size of a value in bytes. An error if the value exceeds this extent.
    pub fn measure(&self, value: &Value, cells: &dyn CellSource) -> Result<u64, ExtentError> {
        let mut walk = Walk { limit: *self, bytes: 0, cells };
        walk.value(value, 0)?;
        Ok(walk.bytes)
    }
}

/// Bytes of the handle of a value.
const HANDLE_BYTES: u64 = 24;

/// Bytes of a map's entry besides the handles of its key and its value: the hash of the key, and its share of a node.
const ENTRY_BYTES: u64 = 48;

/// Bytes of an element of a vector besides its handle: its share of a node.
const ELEMENT_BYTES: u64 = 8;

/// Most bytes of the encoding of a value that is not a text: a number with its tag.
const ENCODED_BYTES: u64 = 9;

impl Value {
    /// Returns about how many bytes a value takes in memory. Parts that are not loaded take none, and
    /// parts that occur several times count several times. Counting stops at `limit`.
    pub fn memory_bytes(&self, limit: u64) -> u64 {
        MemoryCount::new(limit, Forms::Decoded).count(self)
    }

    /// Returns about how many bytes a value and its encoding take in memory together, counted in the same way.
    pub fn memory_bytes_with_encoding(&self, limit: u64) -> u64 {
        MemoryCount::new(limit, Forms::DecodedAndEncoded).count(self)
    }
}

/// The forms of a value that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forms {
    Decoded,
    DecodedAndEncoded,
}

/// The bytes of the parts of a value that were counted so far.
struct MemoryCount {
    bytes: u64,
    limit: u64,
    forms: Forms,
    /// Containers whose items are not counted yet. Most values have none below the first level.
    pending: Vec<Value>,
}

impl MemoryCount {
    fn new(limit: u64, forms: Forms) -> Self {
        MemoryCount { bytes: 0, limit, forms, pending: Vec::new() }
    }

    /// Counts a value with all of its items.
    fn count(mut self, value: &Value) -> u64 {
        let mut is_within = self.add(value);
        while is_within && let Some(value) = self.pending.pop() {
            is_within = self.add(&value);
        }
        if is_within { self.bytes } else { self.limit }
    }

    /// Counts a value, and its items if they are no containers. Returns false at the limit.
    fn add(&mut self, value: &Value) -> bool {
        if !self.add_own(value) {
            return false;
        }
        match value {
            Value::Vector(items) => {
                if items.len() > (self.limit - self.bytes) / HANDLE_BYTES {
                    return false;
                }
                match items.as_leaf() {
                    Some(items) => items.iter().all(|item| self.add_item(item)),
                    None => {
                        items.iter(&NoCells).map_while(Result::ok).all(|item| self.add_item(&item))
                    }
                }
            }
            Value::Map(members) => {
                if members.len() > (self.limit - self.bytes) / (2 * HANDLE_BYTES) {
                    return false;
                }
                match members.as_leaf() {
                    Some(mut members) => members.all(|(key, member)| self.add_member(key, member)),
                    None => members
                        .iter(&NoCells)
                        .map_while(Result::ok)
                        .all(|(key, member)| self.add_member(&key, &member)),
                }
            }
            _ => true,
        }
    }

    fn add_member(&mut self, key: &Value, member: &Value) -> bool {
        self.add_item(key) && self.add_item(member)
    }

    fn add_item(&mut self, item: &Value) -> bool {
        if matches!(item, Value::Vector(_) | Value::Map(_)) {
            self.pending.push(item.clone());
            return true;
        }
        self.add_own(item)
    }

    /// Counts a value without its items.
    fn add_own(&mut self, value: &Value) -> bool {
        let text = match value {
            Value::String(text) => text.len(),
            Value::Blob(blob) => blob.len(),
            _ => 0,
        };
        let nodes = match value {
            Value::Vector(items) => items.len().saturating_mul(ELEMENT_BYTES),
            Value::Map(members) => members.len().saturating_mul(ENTRY_BYTES),
            _ => 0,
        };
        let encoding = match self.forms {
            Forms::Decoded => 0,
            Forms::DecodedAndEncoded => text.saturating_add(ENCODED_BYTES),
        };
        let own = text.saturating_add(nodes).saturating_add(encoding);
        self.bytes = self.bytes.saturating_add(HANDLE_BYTES).saturating_add(own);
        self.bytes < self.limit
    }
}

struct Walk<'a> {
    limit: Extent,
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
                // Most containers are small: their items need not be cloned.
                if let Some(items) = items.as_leaf() {
                    return items.iter().try_for_each(|item| self.item(item, depth));
                }
                for item in items.iter(self.cells) {
                    self.item(&item?, depth)?;
                }
                Ok(())
            }
            Value::Map(members) => {
                self.enter(depth)?;
                if let Some(mut members) = members.as_leaf() {
                    return members.try_for_each(|(key, member)| self.member(key, member, depth));
                }
                for entry in members.iter(self.cells) {
                    let (key, member) = entry?;
                    self.member(&key, &member, depth)?;
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

    fn item(&mut self, item: &Value, depth: usize) -> Result<(), ExtentError> {
        self.add(1)?;
        self.value(item, depth + 1)
    }

    fn member(&mut self, key: &Value, member: &Value, depth: usize) -> Result<(), ExtentError> {
        self.add(2)?;
        self.value(key, depth + 1)?;
        self.value(member, depth + 1)
    }

    fn enter(&mut self, depth: usize) -> Result<(), ExtentError> {
        if depth >= self.limit.depth {
            return Err(ExtentError::Depth(self.limit.depth));
        }
        self.add(2)
    }

    fn add(&mut self, bytes: u64) -> Result<(), ExtentError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit.bytes {
            return Err(ExtentError::Bytes(self.limit.bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn memory_is_counted_by_items_and_texts_up_to_a_limit() {
        let bytes = |text: &str| json::read(text.as_bytes()).unwrap().memory_bytes(1_000_000);
        assert_eq!(bytes("1"), 24);
        assert_eq!(bytes("[1,2]"), 3 * 24 + 2 * 8);
        assert_eq!(bytes(r#"{"abc":"def"}"#), 3 * 24 + 48 + 6);
        let encoded = json::read(br#"{"abc":"def"}"#).unwrap().memory_bytes_with_encoding(1_000);
        assert_eq!(encoded, 3 * 24 + 48 + 6 + 3 * 9 + 6);
        assert_eq!(bytes(&format!("[{}0]", "0,".repeat(100_000))), 1_000_000);
        let mut value = Value::from("x");
        for _ in 0..60 {
            value = Vector::from_items(vec![value.clone(), value]).into();
        }
        assert_eq!(value.memory_bytes(1_000_000), 1_000_000, "it would be 2^60");
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
    fn a_value_that_is_too_deep_is_refused() {
        let deep = json::read(b"[[[1]]]").unwrap();
        assert!(measured(&deep, 1_000, 3).is_ok());
        let refused = measured(&deep, 1_000, 2);
        assert_eq!(refused, Err("nests deeper than 2 arrays and objects".to_owned()));
    }

    #[test]
    fn measuring_a_value_that_expands_beyond_memory_stops_at_the_limit() {
        let mut doubled = Value::from("x");
        for _ in 0..100 {
            doubled = Vector::from_items(vec![doubled.clone(), doubled]).into();
        }
        let refused = measured(&doubled, 100_000, 200);
        assert_eq!(refused, Err("has more than 100000 bytes".to_owned()));
    }
}
