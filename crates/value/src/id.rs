//! Value IDs: the SHA3-256 of a cell's encoding, and its text form.

use std::fmt;
use std::str::FromStr;

use sha3::{Digest, Sha3_256};

/// The identity of a value: SHA3-256 of the canonical encoding of its root cell.
///
/// Displayed as `0x` and 64 lower-case hex digits; parsed with or without `0x`, in any case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId([u8; 32]);

impl ValueId {
    /// The ID of the cell with this encoding.
    pub fn of_encoding(encoding: &[u8]) -> Self {
        ValueId(Sha3_256::digest(encoding).into())
    }

    /// The ID with these 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        ValueId(bytes)
    }

    /// The 32 bytes of the ID.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Hex digits without a prefix: the form of asset IDs in lists and paths.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// `0x` and the hex digits, without an allocation.
    pub fn text(&self) -> IdText<66> {
        IdText::new(&self.0)
    }

    /// The `i`-th hex digit, counted from the left.
    pub(crate) fn nibble(&self, i: usize) -> u8 {
        nibble(&self.0, i)
    }

    /// Number of leading hex digits that two IDs share.
    pub(crate) fn common_nibbles(&self, other: &ValueId) -> usize {
        common_nibbles(&self.0, &other.0)
    }
}

/// The `i`-th hex digit of `bytes`, high half first.
pub(crate) fn nibble(bytes: &[u8], i: usize) -> u8 {
    let byte = bytes[i / 2];
    if i.is_multiple_of(2) { byte >> 4 } else { byte & 0x0f }
}

/// Number of leading hex digits that two byte strings share.
pub(crate) fn common_nibbles(a: &[u8], b: &[u8]) -> usize {
    let equal = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    match (a.get(equal), b.get(equal)) {
        (Some(x), Some(y)) if x >> 4 == y >> 4 => equal * 2 + 1,
        _ => equal * 2,
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Lower-case hex digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The text of an ID: `0x` and lower-case hex digits, `LENGTH` characters in total. It is stored
/// inline, because IDs are written several times for every record.
#[derive(Clone, Copy)]
pub struct IdText<const LENGTH: usize>([u8; LENGTH]);

impl<const LENGTH: usize> IdText<LENGTH> {
    /// The text of these bytes; there must be half as many as digits.
    pub fn new(bytes: &[u8]) -> Self {
        let mut text = [b'0'; LENGTH];
        if let Some(([_, x], digits)) = text.split_first_chunk_mut() {
            *x = b'x';
            for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
                pair[0] = DIGITS[usize::from(byte >> 4)];
                pair[1] = DIGITS[usize::from(byte & 15)];
            }
        }
        IdText(text)
    }

    /// The text as a string slice.
    pub fn as_str(&self) -> &str {
        // Hex digits are always valid UTF-8.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The reason why a text is not a Value ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    /// The text has the wrong number of hex digits.
    #[error("expected 64 hex digits, found {found}")]
    Length {
        /// Number of digits found.
        found: usize,
    },
    /// A character is not a hex digit.
    #[error("not a hex digit at position {at}")]
    Digit {
        /// Position within the digits, from zero.
        at: usize,
    },
}

impl FromStr for ValueId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
        if let Some(at) = digits.bytes().position(|b| !b.is_ascii_hexdigit()) {
            return Err(ParseIdError::Digit { at });
        }
        if digits.len() != 64 {
            return Err(ParseIdError::Length { found: digits.len() });
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = hex_digit(pair[0]) << 4 | hex_digit(pair[1]);
        }
        Ok(ValueId(bytes))
    }
}

/// The value of an ASCII hex digit that has already been checked.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_parses_from_any_spelling() {
        let id = ValueId::of_encoding(&[0]);
        let text = id.to_string();
        assert_eq!(text, "0x5d53469f20fef4f8eab52b88044ede69c77a6a68a60728609fc4a65ff531e7d0");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text[2..].to_uppercase().parse(), Ok(id));
        assert_eq!((id.text().as_str(), &text[2..]), (text.as_str(), id.to_hex().as_str()));
        assert_eq!("0x12".parse::<ValueId>(), Err(ParseIdError::Length { found: 2 }));
        assert_eq!("0x1g".parse::<ValueId>(), Err(ParseIdError::Digit { at: 1 }));
    }

    #[test]
    fn nibbles_count_from_the_left() {
        assert_eq!((nibble(&[0x1f], 0), nibble(&[0x1f], 1)), (1, 15));
        assert_eq!(common_nibbles(&[0x12, 0x34], &[0x12, 0x3f]), 3);
        assert_eq!(common_nibbles(&[0x12], &[0x12, 0x3f]), 2);
        assert_eq!(common_nibbles(&[0x12], &[0x22]), 0);
    }
}
