//! Text forms of bytes: base58 (the Bitcoin alphabet) and base64 (URL-safe, no padding).
//!
//! Both decoders accept only canonical texts. Base58 is implemented here because no crate in the
//! dependency tree provides it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::BASE58_TEXT_MAX;

const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Encodes bytes as base58.
pub fn to_base58(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut digits: Vec<u8> = Vec::new();
    for byte in &bytes[zeros..] {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58) as u8;
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    let letters = digits.iter().rev().map(|digit| char::from(BASE58[usize::from(*digit)]));
    std::iter::repeat_n('1', zeros).chain(letters).collect()
}

/// Decodes base58. `None` if the text contains another character or is longer than
/// [`BASE58_TEXT_MAX`].
pub fn from_base58(text: &str) -> Option<Vec<u8>> {
    if text.len() > BASE58_TEXT_MAX {
        return None;
    }
    let zeros = text.bytes().take_while(|letter| *letter == b'1').count();
    let mut bytes: Vec<u8> = Vec::new();
    for letter in text.bytes().skip(zeros) {
        let mut carry = BASE58.iter().position(|known| *known == letter)? as u32;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 58;
            *byte = carry as u8;
            carry >>= 8;
        }
        while carry > 0 {
            bytes.push(carry as u8);
            carry >>= 8;
        }
    }
    bytes.resize(bytes.len() + zeros, 0);
    bytes.reverse();
    Some(bytes)
}

/// Encodes bytes in the URL-safe base64 alphabet, without padding.
pub fn to_base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes URL-safe base64 without padding. Trailing bits that belong to no byte must be zero, so
/// that every byte string has exactly one accepted text. `None` if the text is not canonical.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_texts() {
        assert_eq!(to_base58(b"Hello World!"), "2NEpo7TZRRrLZSi2U");
        assert_eq!(to_base58(&[0, 0, 0x28, 0x7f, 0xb4, 0xcd]), "11233QC4");
        assert_eq!(from_base58("11233QC4"), Some(vec![0, 0, 0x28, 0x7f, 0xb4, 0xcd]));
        assert_eq!(from_base58("0OIl"), None);
        assert_eq!(to_base64url(b"\xfb\xff\xfe"), "-__-");
        assert_eq!(to_base64url(b"f"), "Zg");
        assert_eq!(from_base64url("Zg"), Some(b"f".to_vec()));
        for bad in ["Zg==", "Z", "Zh", "Zm9", "Zm9vZ", "Z+", "Z/", "Zm9v!", "Zm9v\n", "Zm 9v"] {
            assert_eq!(from_base64url(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(from_base58(&to_base58(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(from_base64url(&to_base64url(&bytes)), Some(bytes));
        }
    }
}
