//! Integers of any size up to [`INTEGER_BYTES_MAX`].
//!
//! Nearly every integer fits 64 bits and is stored as an `i64`. The others are stored as their
//! shortest two's-complement bytes, which are also their encoding. Decimal text is converted only
//! when JSON is read or written, in quadratic time over at most 9,864 digits (a fraction of a
//! millisecond).

use std::fmt;
use std::sync::Arc;

use crate::limits::{INTEGER_BYTES_MAX, INTEGER_DIGITS_MAX};

/// A mathematical integer, without a distinction of width.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Integer(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(i64),
    /// Nine or more bytes: two's complement, big-endian, in the shortest form.
    Big(Arc<[u8]>),
}

/// The reason why bytes or digits are not a supported integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntegerError {
    /// The integer needs more than [`INTEGER_BYTES_MAX`] bytes.
    #[error("integer needs more than {INTEGER_BYTES_MAX} bytes")]
    TooLarge,
    /// The bytes are not the shortest form of the integer.
    #[error("integer is not in its shortest form")]
    NotMinimal,
}

impl Integer {
    /// The integer as an `i64`. `None` if it does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Small(n) => Some(*n),
            Repr::Big(_) => None,
        }
    }

    /// An integer from its shortest two's-complement bytes, big-endian. No bytes means zero.
    pub fn from_minimal_bytes(bytes: &[u8]) -> Result<Self, IntegerError> {
        if bytes.len() > INTEGER_BYTES_MAX {
            return Err(IntegerError::TooLarge);
        }
        if shortest(bytes).len() != bytes.len() {
            return Err(IntegerError::NotMinimal);
        }
        Ok(Self::from_shortest(bytes))
    }

    fn from_shortest(bytes: &[u8]) -> Self {
        if bytes.len() > 8 {
            return Integer(Repr::Big(bytes.into()));
        }
        let negative = bytes.first().is_some_and(|b| b & 0x80 != 0);
        let seed = if negative { -1i64 } else { 0 };
        Integer(Repr::Small(bytes.iter().fold(seed, |n, b| n << 8 | i64::from(*b))))
    }

    /// An integer from ASCII decimal digits. The caller has checked that there is at least one.
    pub(crate) fn from_digits(negative: bool, digits: &[u8]) -> Result<Self, IntegerError> {
        let digits = &digits[digits.iter().take_while(|d| **d == b'0').count()..];
        if digits.len() <= 18 {
            let n = digits.iter().fold(0i64, |n, d| n * 10 + i64::from(d - b'0'));
            return Ok(Integer(Repr::Small(if negative { -n } else { n })));
        }
        if digits.len() > INTEGER_DIGITS_MAX {
            return Err(IntegerError::TooLarge);
        }
        let mut bytes = magnitude_bytes(&limbs_from_digits(digits));
        if negative {
            negate(&mut bytes);
        }
        let bytes = shortest(&bytes);
        if bytes.len() > INTEGER_BYTES_MAX {
            return Err(IntegerError::TooLarge);
        }
        Ok(Self::from_shortest(bytes))
    }

    /// Appends the complete encoding of the integer: tag and bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::Small(n) => {
                let bytes = n.to_be_bytes();
                let bytes = if *n == 0 { &[][..] } else { shortest(&bytes) };
                out.push(0x10 + bytes.len() as u8);
                out.extend_from_slice(bytes);
            }
            Repr::Big(bytes) => {
                out.push(0x19);
                crate::encode::write_count(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// `bytes` without superfluous sign bytes. Zero has no bytes.
fn shortest(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        let superfluous = (*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80);
        if !superfluous {
            return rest;
        }
        rest = &rest[1..];
    }
    if rest == [0] { &[] } else { rest }
}

/// Converts decimal digits to base 2^64 limbs, least significant first.
fn limbs_from_digits(digits: &[u8]) -> Vec<u64> {
    let mut limbs: Vec<u64> = Vec::with_capacity(digits.len() / 19 + 1);
    let head = digits.len() % 19;
    let (first, rest) = digits.split_at(head);
    for group in std::iter::once(first).filter(|g| !g.is_empty()).chain(rest.chunks_exact(19)) {
        let scale = 10u128.pow(group.len() as u32);
        let mut carry = group.iter().fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
        for limb in &mut limbs {
            let wide = u128::from(*limb) * scale + carry;
            *limb = wide as u64;
            carry = wide >> 64;
        }
        if carry != 0 {
            limbs.push(carry as u64);
        }
    }
    limbs
}

/// The big-endian bytes of a magnitude, with a leading zero so that the sign bit is clear.
fn magnitude_bytes(limbs: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()));
    bytes
}

/// Negates a two's-complement number in place.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes.iter_mut().rev() {
        let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
        *byte = sum;
        carry = over;
    }
}

impl From<i64> for Integer {
    fn from(n: i64) -> Self {
        Integer(Repr::Small(n))
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match &self.0 {
            Repr::Small(n) => return fmt::Display::fmt(n, f),
            Repr::Big(bytes) => bytes,
        };
        let negative = bytes[0] & 0x80 != 0;
        let mut magnitude = bytes.to_vec();
        if negative {
            // One more byte, so that the most negative number of a width does not overflow.
            magnitude.insert(0, 0xff);
            negate(&mut magnitude);
        }
        f.pad_integral(!negative, "", &decimal(&magnitude))
    }
}

/// Decimal digits of a big-endian magnitude.
fn decimal(magnitude: &[u8]) -> String {
    const GROUP: u64 = 10_000_000_000_000_000_000;
    let mut limbs: Vec<u64> = magnitude
        .rchunks(8)
        .map(|chunk| chunk.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)))
        .collect();
    let mut groups = Vec::new();
    while limbs.last().is_some_and(|top| *top == 0) {
        limbs.pop();
    }
    while !limbs.is_empty() {
        let mut rest = 0u64;
        for limb in limbs.iter_mut().rev() {
            let wide = u128::from(rest) << 64 | u128::from(*limb);
            *limb = (wide / u128::from(GROUP)) as u64;
            rest = (wide % u128::from(GROUP)) as u64;
        }
        groups.push(rest);
        while limbs.last().is_some_and(|top| *top == 0) {
            limbs.pop();
        }
    }
    let mut text = groups.pop().unwrap_or(0).to_string();
    for group in groups.iter().rev() {
        text.push_str(&format!("{group:019}"));
    }
    text
}

impl fmt::Debug for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, encoding: &str) {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
        let integer = Integer::from_digits(negative, digits.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        integer.write(&mut bytes);
        assert_eq!(crate::id::hex(&bytes), encoding, "{text}");
        assert_eq!(integer.to_string(), text);
    }

    #[test]
    fn integers_take_their_shortest_form() {
        check("0", "10");
        check("1", "1101");
        check("127", "117f");
        check("128", "120080");
        check("-1", "11ff");
        check("-128", "1180");
        check("-129", "12ff7f");
        check("9223372036854775807", "187fffffffffffffff");
        check("9223372036854775808", "1909008000000000000000");
        check("-9223372036854775808", "188000000000000000");
        check("-9223372036854775809", "1909ff7fffffffffffffff");
        check("18446744073709551616", "1909010000000000000000");
        check("-18446744073709551616", "1909ff0000000000000000");
    }

    #[test]
    fn minus_zero_and_leading_zeros_are_the_same_integer() {
        assert_eq!(Integer::from_digits(true, b"0"), Ok(Integer::from(0)));
        assert_eq!(Integer::from_digits(false, b"0000000000000000000000007"), Ok(7.into()));
    }

    #[test]
    fn the_largest_integer_is_accepted_and_the_next_refused() {
        let mut largest = vec![0xff; INTEGER_BYTES_MAX];
        largest[0] = 0x7f;
        let largest = Integer::from_minimal_bytes(&largest).unwrap();
        let text = largest.to_string();
        assert_eq!(text.len(), INTEGER_DIGITS_MAX);
        assert_eq!(Integer::from_digits(false, text.as_bytes()), Ok(largest));
        let next = text[..text.len() - 1].to_owned() + "8";
        assert!(text.ends_with('7'));
        assert_eq!(Integer::from_digits(false, next.as_bytes()), Err(IntegerError::TooLarge));
        assert!(Integer::from_digits(true, next.as_bytes()).is_ok());
    }

    #[test]
    fn longer_than_needed_bytes_are_refused() {
        for bytes in [&[0][..], &[0, 1], &[0xff, 0x80], &[0, 0x7f, 1]] {
            assert_eq!(Integer::from_minimal_bytes(bytes), Err(IntegerError::NotMinimal));
        }
    }
}
