//! Reading JSON text into a value.

use std::fmt;

use crate::bytes::Text;
use crate::hashed::HashNode;
use crate::integer::{Integer, IntegerError};
use crate::limits::{INTEGER_BYTES_MAX, JSON_DEPTH_MAX, PENDING_ITEMS_MAX};
use crate::map::{Map, MapEntry};
use crate::value::{Double, Value};
use crate::vector::{Vector, VectorBuilder};

/// The reason why a text is not a supported JSON document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at line {line} column {column}")]
pub struct JsonError {
    /// What is wrong at the position.
    pub fault: JsonFault,
    /// Offset in bytes, from zero.
    pub offset: usize,
    /// Line number, from one.
    pub line: usize,
    /// Column in bytes, from one.
    pub column: usize,
}

/// The kinds of errors in a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFault {
    /// The text ends before the document is complete.
    UnexpectedEnd,
    /// A character that the grammar does not allow; contains what was expected instead.
    Expected(&'static str),
    /// The document is followed by other text.
    Trailing,
    /// The text is not valid UTF-8.
    Utf8,
    /// A byte-order mark before the document.
    ByteOrderMark,
    /// A raw control character in a string.
    ControlCharacter,
    /// An unknown escape.
    Escape,
    /// An escape for only half of a surrogate pair.
    LoneSurrogate,
    /// A number with a superfluous leading zero.
    LeadingZero,
    /// A number that is too large for a double.
    NumberOverflow,
    /// An integer of more than 4,096 bytes.
    IntegerTooLarge,
    /// The document nests deeper than this.
    TooDeep(usize),
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonFault::UnexpectedEnd => f.write_str("unexpected end of document"),
            JsonFault::Expected(what) => write!(f, "expected {what}"),
            JsonFault::Trailing => f.write_str("unexpected text after the document"),
            JsonFault::Utf8 => f.write_str("invalid UTF-8"),
            JsonFault::ByteOrderMark => f.write_str("unexpected byte-order mark"),
            JsonFault::ControlCharacter => f.write_str("unescaped control character in a string"),
            JsonFault::Escape => f.write_str("invalid escape sequence"),
            JsonFault::LoneSurrogate => f.write_str("lone surrogate in a string"),
            JsonFault::LeadingZero => f.write_str("number with a leading zero"),
            JsonFault::NumberOverflow => f.write_str("number too large for a double"),
            JsonFault::IntegerTooLarge => {
                write!(f, "integer of more than {INTEGER_BYTES_MAX} bytes")
            }
            JsonFault::TooDeep(max) => write!(f, "more than {max} nested arrays and objects"),
        }
    }
}

/// Reads one document, nested at most [`JSON_DEPTH_MAX`] levels deep.
pub fn read(text: &[u8]) -> Result<Value, JsonError> {
    read_nested(text, JSON_DEPTH_MAX)
}

/// Reads one document, nested at most `depth_max` levels deep.
pub fn read_nested(text: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    if let Err(error) = str::from_utf8(text) {
        return Err(located(text, error.valid_up_to(), JsonFault::Utf8));
    }
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(located(text, 0, JsonFault::ByteOrderMark));
    }
    let mut reader = Reader {
        text,
        at: 0,
        depth_left: depth_max,
        depth_max,
        items: Vec::new(),
        entries: Vec::new(),
        unescaped: Vec::new(),
    };
    let document = reader.document();
    document.map_err(|Stop(fault)| located(text, reader.at, fault))
}

fn located(text: &[u8], offset: usize, fault: JsonFault) -> JsonError {
    let before = &text[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    JsonError { fault, offset, line, column: before.len() - start + 1 }
}

/// An error at the current position of the reader.
struct Stop(JsonFault);

type Step<T> = Result<T, Stop>;

struct Reader<'a> {
    /// The text, which is valid UTF-8.
    text: &'a [u8],
    at: usize,
    depth_left: usize,
    depth_max: usize,
    /// Elements of the arrays being read, innermost last, so that each array is built once and with
    /// its exact size.
    items: Vec<Value>,
    /// Members of the objects being read, likewise.
    entries: Vec<MapEntry>,
    /// The string being unescaped.
    unescaped: Vec<u8>,
}

impl Reader<'_> {
    fn document(&mut self) -> Step<Value> {
        self.skip_space();
        let value = self.value()?;
        self.skip_space();
        if self.at < self.text.len() {
            return Err(Stop(JsonFault::Trailing));
        }
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// An error at the current byte, or at the end of the text.
    fn expected<T>(&self, what: &'static str) -> Step<T> {
        Err(Stop(match self.peek() {
            Some(_) => JsonFault::Expected(what),
            None => JsonFault::UnexpectedEnd,
        }))
    }

    fn value(&mut self) -> Step<Value> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Nil),
            _ => self.expected("a value"),
        }
    }

    fn word(&mut self, word: &'static [u8], value: Value) -> Step<Value> {
        for letter in word {
            if self.peek() != Some(*letter) {
                return self.expected("a value");
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Step<Value>) -> Step<Value> {
        if self.depth_left == 0 {
            return Err(Stop(JsonFault::TooDeep(self.depth_max)));
        }
        self.depth_left -= 1;
        self.at += 1;
        let value = inner(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    fn array(&mut self) -> Step<Value> {
        let first = self.items.len();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Vector(Vector::new()));
        }
        let mut earlier = VectorBuilder::default();
        loop {
            self.skip_space();
            let item = self.value()?;
            self.items.push(item);
            if self.read_separator(b']', "`,` or `]`")? {
                return Ok(Value::Vector(earlier.finish(self.items.drain(first..))));
            }
            // The elements of a long array would otherwise be in memory twice.
            if self.items.len() - first == PENDING_ITEMS_MAX {
                earlier.extend(self.items.drain(first..));
            }
        }
    }

    fn object(&mut self) -> Step<Value> {
        let first = self.entries.len();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(Map::new()));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.expected("a member name");
            }
            let key = Value::String(self.string()?);
            self.skip_space();
            if self.peek() != Some(b':') {
                return self.expected("`:`");
            }
            self.at += 1;
            self.skip_space();
            let value = self.value()?;
            self.entries.push(MapEntry::new(key, value));
            if self.read_separator(b'}', "`,` or `}`")? {
                let entries = self.take_entries(first);
                return Ok(Value::Map(Map(HashNode::from_entries(entries).into())));
            }
        }
    }

    /// Takes the members of the innermost object, which begin at `first`. Those of a large object are not copied.
    fn take_entries(&mut self, first: usize) -> Vec<MapEntry> {
        if self.entries.len() - first <= PENDING_ITEMS_MAX {
            return self.entries.drain(first..).collect();
        }
        let outer = self.entries.drain(..first).collect();
        std::mem::replace(&mut self.entries, outer)
    }

    /// Reads a comma or the end of the container. Returns true at the end.
    fn read_separator(&mut self, close: u8, what: &'static str) -> Step<bool> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(true)
            }
            _ => self.expected(what),
        }
    }

    fn string(&mut self) -> Step<Text> {
        self.at += 1;
        let start = self.at;
        match self.plain_run()? {
            b'"' => {
                let text = Text::from_bytes(&self.text[start..self.at]);
                self.at += 1;
                Ok(text)
            }
            _ => self.escaped_string(start),
        }
    }

    /// Advances to the next quote or backslash and returns it.
    fn plain_run(&mut self) -> Step<u8> {
        let rest = &self.text[self.at..];
        match rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            None => {
                self.at = self.text.len();
                Err(Stop(JsonFault::UnexpectedEnd))
            }
            Some(run) => {
                self.at += run;
                match rest[run] {
                    stop @ (b'"' | b'\\') => Ok(stop),
                    _ => Err(Stop(JsonFault::ControlCharacter)),
                }
            }
        }
    }

    /// Reads the rest of a string with a backslash at the current position.
    fn escaped_string(&mut self, start: usize) -> Step<Text> {
        self.unescaped.clear();
        self.unescaped.extend_from_slice(&self.text[start..self.at]);
        loop {
            self.escape()?;
            let run = self.at;
            let stop = self.plain_run()?;
            self.unescaped.extend_from_slice(&self.text[run..self.at]);
            if stop == b'"' {
                self.at += 1;
                return Ok(Text::from_bytes(&self.unescaped));
            }
        }
    }

    fn escape(&mut self) -> Step<()> {
        let plain = match self.text.get(self.at + 1) {
            Some(b'"') => b'"',
            Some(b'\\') => b'\\',
            Some(b'/') => b'/',
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(Stop(JsonFault::Escape)),
            None => return Err(Stop(JsonFault::UnexpectedEnd)),
        };
        self.at += 2;
        self.unescaped.push(plain);
        Ok(())
    }

    /// Reads a `\u` escape, or two of them that form a surrogate pair.
    fn unicode_escape(&mut self) -> Step<()> {
        let unit = self.hex_unit(self.at)?;
        let (code, len) = match unit {
            0xd800..0xdc00 => {
                let low = match self.text.get(self.at + 6..self.at + 8) {
                    Some(b"\\u") => self.hex_unit(self.at + 6)?,
                    _ => return Err(Stop(JsonFault::LoneSurrogate)),
                };
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(Stop(JsonFault::LoneSurrogate));
                }
                (0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00), 12)
            }
            _ => (unit, 6),
        };
        let Some(character) = char::from_u32(code) else {
            return Err(Stop(JsonFault::LoneSurrogate));
        };
        self.at += len;
        let mut utf8 = [0; 4];
        self.unescaped.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
        Ok(())
    }

    /// Reads the four hex digits of the escape that starts at `at`.
    fn hex_unit(&self, at: usize) -> Step<u32> {
        let digits = self.text.get(at + 2..at + 6).ok_or(Stop(JsonFault::Escape))?;
        digits.iter().try_fold(0u32, |unit, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(Stop(JsonFault::Escape))?;
            Ok(unit << 4 | digit)
        })
    }

    fn number(&mut self) -> Step<Value> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let digits_start = self.at;
        self.digits()?;
        let digits = &self.text[digits_start..self.at];
        if digits.len() > 1 && digits[0] == b'0' {
            self.at = digits_start;
            return Err(Stop(JsonFault::LeadingZero));
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return self.integer(start, negative, digits);
        }
        self.double(start)
    }

    fn integer(&mut self, start: usize, negative: bool, digits: &[u8]) -> Step<Value> {
        Integer::from_digits(negative, digits).map(Value::Integer).map_err(|error| {
            self.at = start;
            Stop(match error {
                IntegerError::TooLarge | IntegerError::NotMinimal => JsonFault::IntegerTooLarge,
            })
        })
    }

    /// Reads the rest of a number that has a fraction or an exponent.
    fn double(&mut self, start: usize) -> Step<Value> {
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let literal = str::from_utf8(&self.text[start..self.at]).unwrap_or("");
        match literal.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Double(Double::new(number))),
            _ => {
                self.at = start;
                Err(Stop(JsonFault::NumberOverflow))
            }
        }
    }

    fn digits(&mut self) -> Step<()> {
        let run = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += run;
        if run == 0 { self.expected("a digit") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_problem_and_its_position() {
        assert_eq!(refused("{\n  \"a\": 1,\n}"), "expected a member name at line 3 column 1");
        assert_eq!(refused("[1, 2"), "unexpected end of document at line 1 column 6");
        assert_eq!(refused("[01]"), "number with a leading zero at line 1 column 2");
        assert_eq!(refused("{\"a\":1e400}"), "number too large for a double at line 1 column 6");
        assert_eq!(refused("\"\\ud800x\""), "lone surrogate in a string at line 1 column 2");
        assert_eq!(refused("\"a\\q\""), "invalid escape sequence at line 1 column 3");
        assert_eq!(
            refused("\"a\tb\""),
            "unescaped control character in a string at line 1 column 3"
        );
        assert_eq!(refused("1 2"), "unexpected text after the document at line 1 column 3");
        assert_eq!(refused("\u{feff}1"), "unexpected byte-order mark at line 1 column 1");
        assert_eq!(refused("nul"), "unexpected end of document at line 1 column 4");
        assert_eq!(refused("1."), "unexpected end of document at line 1 column 3");
        assert_eq!(refused("-x"), "expected a digit at line 1 column 2");
        assert_eq!(refused(""), "unexpected end of document at line 1 column 1");
        let error = read(b"\"a\n\xff\"").unwrap_err();
        assert_eq!(error.to_string(), "invalid UTF-8 at line 2 column 1");
        assert_eq!(error.offset, 3);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        let error = refused(&nested(JSON_DEPTH_MAX + 1));
        assert_eq!(error, "more than 128 nested arrays and objects at line 1 column 129");
        assert!(read(&[b'['; 1_000_000]).is_err());
    }

    #[test]
    fn integers_beyond_the_limit_are_refused() {
        let longest = "9".repeat(9_863);
        assert!(read(longest.as_bytes()).is_ok());
        let error = refused(&"9".repeat(9_865));
        assert_eq!(error, "integer of more than 4096 bytes at line 1 column 1");
    }

    #[test]
    fn large_containers_in_each_other_are_read_as_small_ones_are() {
        let len = PENDING_ITEMS_MAX + 17;
        let array = |item: &str| format!("[{}]", vec![item; len].join(","));
        let text = format!(r#"[{{"a":1}},{},[2]]"#, array("[1,{}]"));
        assert_eq!(crate::json::to_string(&read(text.as_bytes()).unwrap()).unwrap(), text);
        let members =
            |value: &str| -> String { (0..len).map(|n| format!(r#""{n}":{value},"#)).collect() };
        // The last of several members with the same name wins, in a large object, too.
        let text = format!(r#"[{{"x":0,{}"y":[1]}},{{"z":2}}]"#, members("1") + &members("3"));
        let value = read(text.as_bytes()).unwrap();
        let large = value.as_vector().unwrap().get(0, &crate::NoCells).unwrap().unwrap();
        let large = large.as_map().unwrap();
        assert_eq!(large.len() as usize, len + 2);
        for name in ["0", "17", "4096"] {
            assert_eq!(large.get(&name.into(), &crate::NoCells).unwrap(), Some(3.into()));
        }
        let text = format!("[{}]", array("7"));
        assert_eq!(crate::json::to_string(&read(text.as_bytes()).unwrap()).unwrap(), text);
    }

    #[test]
    fn siblings_do_not_count_as_nesting() {
        let wide = format!("[{}[]]", "[],".repeat(1_000));
        assert!(read(wide.as_bytes()).is_ok());
    }
}
