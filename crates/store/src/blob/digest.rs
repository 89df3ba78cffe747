//! Digests: the names of blobs.
//!
//! A digest is the SHA-256 of the bytes it names. Its text is `sha256:` and 64 lower-case hexadecimal digits, so that
//! another algorithm can be added later; digits without a prefix are accepted too, because file names and many tools use
//! them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;

/// Hexadecimal digits of a digest.
pub const DIGEST_DIGITS: usize = 2 * DIGEST_BYTES;

/// The prefix of the digits in the text form.
const ALGORITHM: &str = "sha256";

/// How much of an unknown algorithm's name an error repeats: enough to recognise it, not enough to flood a log.
const ALGORITHM_ECHO_CHARS: usize = 16;

/// The SHA-256 of a blob's bytes, which is also its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; DIGEST_BYTES]);

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Another algorithm than SHA-256.
    #[error("digest algorithm {algorithm:?} is not known, only sha256 is")]
    Algorithm {
        /// The algorithm's name, shortened.
        algorithm: String,
    },
    /// Too few or too many digits.
    #[error("a digest has {DIGEST_DIGITS} hexadecimal digits, this one has {found}")]
    Length {
        /// The length of the text in bytes.
        found: usize,
    },
    /// A character that is not a hexadecimal digit.
    #[error("byte {position} of the digits is not hexadecimal")]
    Digit {
        /// The position, counted from the first digit.
        position: usize,
    },
}

impl Digest {
    /// A digest from its bytes.
    pub const fn from_bytes(bytes: [u8; DIGEST_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; DIGEST_BYTES] {
        &self.0
    }

    /// The digest of `content`.
    pub fn from_content(content: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(content);
        hasher.finish()
    }

    /// The 64 digits in lower case, without a prefix: the name of the blob's file.
    pub fn to_hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(DIGEST_DIGITS);
        for byte in self.0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Parses a file name. `None` unless it is exactly what [`Digest::to_hex`] writes.
    pub(super) fn from_file_name(name: &str) -> Option<Self> {
        let is_ours = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if is_ours { parse_digits(name).ok() } else { None }
    }
}

fn parse_digits(digits: &str) -> Result<Digest, DigestError> {
    let digits = digits.as_bytes();
    if digits.len() != DIGEST_DIGITS {
        return Err(DigestError::Length { found: digits.len() });
    }
    let mut bytes = [0; DIGEST_BYTES];
    for (position, digit) in digits.iter().enumerate() {
        let value = hex_value(*digit).ok_or(DigestError::Digit { position })?;
        bytes[position / 2] = bytes[position / 2] << 4 | value;
    }
    Ok(Digest(bytes))
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        match text.split_once(':') {
            None => parse_digits(text),
            Some((algorithm, digits)) if algorithm.eq_ignore_ascii_case(ALGORITHM) => {
                parse_digits(digits)
            }
            Some((algorithm, _)) => Err(DigestError::Algorithm {
                algorithm: algorithm.chars().take(ALGORITHM_ECHO_CHARS).collect(),
            }),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{ALGORITHM}:{}", self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Computes a digest from content that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub struct Hasher {
    state: Sha256,
}

impl Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.state.update(piece);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        Digest(self.state.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_digest_of_abc_is_the_published_one() {
        assert_eq!(Digest::from_content(b"abc").to_string(), format!("sha256:{OF_ABC}"));
    }

    #[test]
    fn a_digest_is_read_with_and_without_its_algorithm_in_any_case() {
        let expected = Digest::from_content(b"abc");
        for text in [
            OF_ABC.to_owned(),
            OF_ABC.to_uppercase(),
            format!("sha256:{OF_ABC}"),
            format!("SHA256:{OF_ABC}"),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_digest_is_refused_with_the_reason() {
        let check = |text: &str, error: DigestError| {
            assert_eq!(text.parse::<Digest>(), Err(error), "{text}");
        };
        check("", DigestError::Length { found: 0 });
        check(&OF_ABC[1..], DigestError::Length { found: 63 });
        check(&format!("{OF_ABC}0"), DigestError::Length { found: 65 });
        check(&OF_ABC.replace('f', "g"), DigestError::Digit { position: 7 });
        check(&format!("md5:{OF_ABC}"), DigestError::Algorithm { algorithm: "md5".to_owned() });
        check(&format!("{}é", &OF_ABC[..62]), DigestError::Digit { position: 62 });
    }

    #[test]
    fn only_lower_case_digits_are_a_file_name() {
        assert_eq!(Digest::from_file_name(OF_ABC), Some(Digest::from_content(b"abc")));
        assert_eq!(Digest::from_file_name(&OF_ABC.to_uppercase()), None);
        assert_eq!(Digest::from_file_name(&format!("sha256:{OF_ABC}")), None);
    }

    proptest! {
        #[test]
        fn every_digest_reads_back_from_its_text(bytes: [u8; DIGEST_BYTES]) {
            let digest = Digest::from_bytes(bytes);
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
            prop_assert_eq!(Digest::from_file_name(&digest.to_hex()), Some(digest));
        }

        #[test]
        fn no_text_makes_reading_a_digest_fail_badly(text: String) {
            let _ = text.parse::<Digest>();
        }
    }
}
