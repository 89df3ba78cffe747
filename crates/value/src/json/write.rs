//! Writing a value as JSON text.

use std::borrow::Borrow;
use std::fmt::Write as _;

use crate::bytes::{Blob, Text};
use crate::cell::{CellSource, LoadError};
use crate::id::hex;
use crate::limits::{CHUNK_BYTES, VALUE_DEPTH_MAX};
use crate::value::{Double, Value};

/// The reason why a value could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A branch could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The text would be longer than allowed.
    #[error("the JSON text has more than {max} bytes")]
    TooLarge {
        /// Maximum length in bytes.
        max: usize,
    },
}

/// Returns the JSON text of a value that is entirely in memory.
pub fn to_string(value: &Value) -> Result<String, WriteError> {
    let mut text = String::new();
    write(value, &crate::NoCells, usize::MAX, &mut text)?;
    Ok(text)
}

/// Appends the JSON text of `value`, loading what is not in memory. An error if the text has more
/// than `bytes_max` bytes.
///
/// Cells without a JSON form are written as the closest JSON value, which does not read back as
/// the same value: keywords, symbols and characters as strings, blobs as `"0x…"`, lists and sets
/// as arrays, an index as an object, records as arrays of their fields, extension values and
/// flags as integers, NaN and infinities as `null`, and a signed value, coded value or syntax as
/// the value inside it. A key that is not a string is written as the text of its JSON.
pub fn write(
    value: &Value,
    cells: &dyn CellSource,
    bytes_max: usize,
    text: &mut String,
) -> Result<(), WriteError> {
    let end = text.len().saturating_add(bytes_max);
    let mut writer = Writer { cells, text, end, bytes_max, depth: 0 };
    writer.value(value)
}

struct Writer<'a> {
    cells: &'a dyn CellSource,
    text: &'a mut String,
    end: usize,
    bytes_max: usize,
    depth: usize,
}

type Step = Result<(), WriteError>;

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Step {
        match value {
            Value::Nil => self.text.push_str("null"),
            Value::Bool(true) => self.text.push_str("true"),
            Value::Bool(false) => self.text.push_str("false"),
            Value::Flag(flag) => self.display(flag),
            Value::Integer(integer) => self.display(integer),
            Value::Double(double) => self.double(*double),
            Value::Extension(extension) => self.display(extension.number()),
            Value::Unloaded(id) => {
                let loaded = self.cells.load(id)?;
                return self.value(&loaded);
            }
            Value::Vector(vector) => {
                return match vector.as_leaf() {
                    Some(items) => self.array(items.iter().map(Ok)),
                    None => self.array(vector.iter(self.cells)),
                };
            }
            Value::Record(record) => return self.array(record.fields().iter(self.cells)),
            Value::List(list) => {
                let items = (0..list.len()).filter_map(|at| list.get(at, self.cells).transpose());
                return self.array(items);
            }
            Value::Set(set) => return self.array(set.iter(self.cells)),
            Value::Map(map) => {
                return match map.0.as_leaf() {
                    Some(entries) => self.object(entries.iter().map(|e| Ok((&e.key, &e.value)))),
                    None => self.object(map.iter(self.cells)),
                };
            }
            Value::Index(index) => return self.object(index.iter(self.cells)),
            Value::Signed(signed) => return self.inner(signed.value()),
            Value::Coded(coded) => return self.inner(coded.value()),
            Value::Syntax(syntax) => return self.inner(syntax.datum()),
            other => self.string(other)?,
        }
        self.check_length()
    }

    /// Writes a value in the form of a string.
    fn string(&mut self, value: &Value) -> Step {
        match value.as_str() {
            Some(text) => self.quoted(text),
            None => match value {
                Value::String(text) => return self.long_string(text),
                Value::Blob(blob) => return self.blob(blob),
                other => {
                    let text = self.plain_text(other)?;
                    self.quoted(&text);
                }
            },
        }
        Ok(())
    }

    /// Writes a string that is not one flat piece of UTF-8, one part at a time: a long one is not copied.
    fn long_string(&mut self, text: &Text) -> Step {
        self.text.push('"');
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < text.len() {
            bytes.extend_from_slice(&text.read(at, at + PART_BYTES, self.cells)?);
            at = text.len().min(at + PART_BYTES);
            // A character may continue in the next part.
            let kept = if at < text.len() { unfinished_bytes(&bytes) } else { 0 };
            let whole = bytes.len() - kept;
            self.escaped(&String::from_utf8_lossy(&bytes[..whole]));
            bytes.drain(..whole);
            // No more is read than is still allowed, so that a huge string costs no more.
            self.check_length()?;
        }
        self.text.push('"');
        Ok(())
    }

    /// Writes a blob as hex digits, one part at a time.
    fn blob(&mut self, blob: &Blob) -> Step {
        self.text.push_str("\"0x");
        let mut at = 0;
        while at < blob.len() {
            self.text.push_str(&hex(&blob.read(at, at + PART_BYTES, self.cells)?));
            at += PART_BYTES;
            self.check_length()?;
        }
        self.text.push('"');
        Ok(())
    }

    fn display(&mut self, number: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
    }

    fn double(&mut self, double: Double) {
        let number = double.get();
        if number.is_finite() {
            // This format always has a point or an exponent, and reads back as the same bits.
            let _ = write!(self.text, "{number:?}");
        } else {
            self.text.push_str("null");
        }
    }

    fn check_length(&self) -> Step {
        if self.text.len() > self.end {
            return Err(WriteError::TooLarge { max: self.bytes_max });
        }
        Ok(())
    }

    fn descend(&mut self) -> Step {
        if self.depth == VALUE_DEPTH_MAX {
            return Err(LoadError::TooDeep.into());
        }
        self.depth += 1;
        Ok(())
    }

    fn inner(&mut self, value: &Value) -> Step {
        self.descend()?;
        self.value(value)?;
        self.depth -= 1;
        Ok(())
    }

    fn array<V: Borrow<Value>>(
        &mut self,
        items: impl Iterator<Item = Result<V, LoadError>>,
    ) -> Step {
        self.descend()?;
        self.text.push('[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            self.value(item?.borrow())?;
        }
        self.text.push(']');
        self.depth -= 1;
        self.check_length()
    }

    fn object<V: Borrow<Value>>(
        &mut self,
        entries: impl Iterator<Item = Result<(V, V), LoadError>>,
    ) -> Step {
        self.descend()?;
        self.text.push('{');
        for (at, entry) in entries.enumerate() {
            let (key, value) = entry?;
            if at > 0 {
                self.text.push(',');
            }
            self.string(key.borrow())?;
            self.text.push(':');
            self.value(value.borrow())?;
        }
        self.text.push('}');
        self.depth -= 1;
        self.check_length()
    }

    /// The characters of a value that is written as a string but is neither a string nor a blob.
    fn plain_text(&self, value: &Value) -> Result<String, WriteError> {
        Ok(match value {
            Value::Keyword(name) | Value::Symbol(name) => name.to_string(),
            Value::Character(character) => {
                char::from_u32(character.code()).unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            other => {
                let mut text = String::new();
                write(other, self.cells, self.bytes_max, &mut text)?;
                text
            }
        })
    }

    fn quoted(&mut self, plain: &str) {
        self.text.push('"');
        self.escaped(plain);
        self.text.push('"');
    }

    /// Appends the characters of a string, with escapes where they are needed.
    fn escaped(&mut self, plain: &str) {
        let mut done = 0;
        // Few texts have anything to escape, and checking many bytes at once is fast.
        let is_plain = plain.as_bytes().chunks(SCAN_BYTES).all(|bytes| !has_special(bytes));
        let bytes = if is_plain { &[] } else { plain.as_bytes() };
        for (at, &byte) in bytes.iter().enumerate() {
            if !is_special(byte) {
                continue;
            }
            self.text.push_str(&plain[done..at]);
            done = at + 1;
            match byte {
                b'"' => self.text.push_str("\\\""),
                b'\\' => self.text.push_str("\\\\"),
                b'\n' => self.text.push_str("\\n"),
                b'\r' => self.text.push_str("\\r"),
                b'\t' => self.text.push_str("\\t"),
                _ => {
                    let _ = write!(self.text, "\\u{byte:04x}");
                }
            }
        }
        self.text.push_str(&plain[done..]);
    }
}

/// Number of bytes of a long string or blob that are read together: whole chunks.
const PART_BYTES: u64 = 16 * CHUNK_BYTES as u64;

/// The number of bytes at the end that may be the beginning of a character.
fn unfinished_bytes(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map(|chunk| chunk.invalid());
    let is_unfinished =
        |end: &&[u8]| str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    last.filter(is_unfinished).map_or(0, <[u8]>::len)
}

/// Number of bytes that are checked together.
const SCAN_BYTES: usize = 32;

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether any byte must be escaped. Checks all bytes without a branch, so that the compiler can
/// vectorize the loop.
fn has_special(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_special(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;
    use crate::{Blob, Name, NoCells, Set};

    #[test]
    fn a_text_is_written_as_it_was_read() {
        for text in [
            "null",
            "[true,false]",
            "0",
            "-12345678901234567890123",
            "1.0",
            "-0.0",
            "1e300",
            "5e-324",
            "[]",
            "{}",
            r#"{"a":[1,{"b":null}]}"#,
            r#""a\"\\\n\r\t\u0001é😀""#,
        ] {
            assert_eq!(to_string(&read(text.as_bytes()).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn cells_without_a_json_form_are_written_as_the_closest_json_value() {
        let keyword = Value::Keyword(Name::new(b"foo").unwrap());
        let set: Set = [Value::from(7)].into_iter().collect();
        for (value, text) in [
            (keyword, "\"foo\""),
            (Value::Blob(Blob::from_bytes(&[0x12, 0xab])), "\"0x12ab\""),
            (Value::from(f64::INFINITY), "null"),
            (Value::Set(set), "[7]"),
            (Value::Map([(1, 2)].into_iter().collect()), r#"{"1":2}"#),
        ] {
            assert_eq!(to_string(&value).unwrap(), text);
        }
    }

    #[test]
    fn a_long_text_is_written_as_a_short_one_wherever_its_characters_are_cut() {
        let part = PART_BYTES as usize;
        for character in ["a", "é", "€", "😀", "\"", "\n"] {
            for before in part - 4..part + 1 {
                let text = format!("{}{character}{}", "x".repeat(before), "y".repeat(part));
                let written = to_string(&Value::from(text.as_str())).unwrap();
                assert!(
                    written == serde_json::to_string(&text).unwrap(),
                    "{character} at {before}"
                );
            }
        }
    }

    #[test]
    fn a_long_text_that_is_not_utf_8_is_written_with_replacements() {
        let part = PART_BYTES as usize;
        for invalid in [&b"\xff"[..], b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3("] {
            for before in part - 3..part + 1 {
                for after in [0, 1, part] {
                    let bytes = [&vec![b'x'; before], invalid, &vec![b'y'; after]].concat();
                    let value = Value::String(Text::from_bytes(&bytes));
                    let expected = String::from_utf8_lossy(&bytes);
                    assert!(to_string(&value).unwrap() == format!("\"{expected}\""));
                }
            }
        }
    }

    #[test]
    fn a_long_blob_is_written_as_digits() {
        let bytes: Vec<u8> = (0..3 * PART_BYTES + 5).map(|at| at as u8).collect();
        let written = to_string(&Value::Blob(Blob::from_bytes(&bytes))).unwrap();
        assert!(written == format!("\"0x{}\"", hex(&bytes)));
    }

    #[test]
    fn a_text_longer_than_allowed_is_refused() {
        let value = read(br#"{"a":[1,2,3],"b":"some text"}"#).unwrap();
        let mut text = String::new();
        assert!(write(&value, &NoCells, 29, &mut text).is_ok());
        assert_eq!(text.len(), 29);
        let refused = write(&value, &NoCells, 28, &mut String::new());
        assert!(matches!(refused, Err(WriteError::TooLarge { max: 28 })));
        let long = Value::from("x".repeat(100_000));
        assert!(write(&long, &NoCells, 10, &mut String::new()).is_err());
    }
}
