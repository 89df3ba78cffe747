//! Base58 (the bitcoin alphabet) and base64 (URL form, no padding), strict both ways.

const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Longest text that is decoded as base58: decoding is quadratic, and keys are short.
pub const BASE58_TEXT_MAX: usize = 128;

/// Encodes as base58.
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

/// Decodes base58; nothing for what is not, or is too long.
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

/// Encodes as base64, URL form, without padding.
pub fn to_base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for letter in 0..=chunk.len() {
            text.push(char::from(BASE64[(group >> (18 - 6 * letter)) as usize & 63]));
        }
    }
    text
}

/// Decodes base64 in URL form without padding. Bits that no byte uses must be zero, so that every
/// text has one meaning and every meaning one text.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0u32;
        for letter in chunk {
            group = group << 6 | BASE64.iter().position(|known| known == letter)? as u32;
        }
        let unused = match chunk.len() {
            4 => 0,
            3 => 2,
            2 => 4,
            _ => return None,
        };
        if group & ((1 << unused) - 1) != 0 {
            return None;
        }
        let used = group >> unused;
        let count = chunk.len() * 6 / 8;
        bytes.extend_from_slice(&used.to_be_bytes()[4 - count..]);
    }
    Some(bytes)
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
        for bad in ["Zg==", "Z", "Zh", "Z+", "Zm9v!"] {
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
