//! Signed URLs: whoever has one may read one thing until it expires.
//!
//! The signature is HMAC-SHA256 (RFC 2104) over the path, the digest of what is read and the time of
//! expiry, with a key that is derived for this purpose alone.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// A key that signs URLs.
#[derive(Clone)]
pub struct UrlKey([u8; 32]);

/// Why a signed URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlRefused {
    /// The signature does not belong to the URL.
    Invalid,
    /// The URL has expired.
    Expired,
}

impl std::fmt::Debug for UrlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key that signs URLs")
    }
}

impl UrlKey {
    /// Derives the key from 32 secret random bytes.
    pub fn derive(seed: &[u8; 32]) -> Self {
        UrlKey(hmac(seed, b"catena signed urls 1"))
    }

    /// Returns the signature of a URL, in hex. `expires` is Unix time in seconds.
    pub fn sign(&self, path: &str, digest: &str, expires: i64) -> String {
        let mut text = String::new();
        for byte in self.mac(path, digest, expires) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Checks the signature of a URL, and then whether it has expired. Both times are Unix time in
    /// seconds.
    pub fn check(
        &self,
        path: &str,
        digest: &str,
        expires: i64,
        signature: &str,
        now: i64,
    ) -> Result<(), UrlRefused> {
        let expected = self.sign(path, digest, expires);
        // Compared in constant time: how long it takes says nothing about where they differ.
        let is_equal = expected.len() == signature.len()
            && expected.bytes().zip(signature.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0;
        match (is_equal, now < expires) {
            (false, _) => Err(UrlRefused::Invalid),
            (true, false) => Err(UrlRefused::Expired),
            (true, true) => Ok(()),
        }
    }

    fn mac(&self, path: &str, digest: &str, expires: i64) -> [u8; 32] {
        hmac(&self.0, format!("{path}\n{digest}\n{expires}").as_bytes())
    }
}

/// HMAC-SHA256 with a key that is not longer than a block.
fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK];
        block.iter_mut().zip(key).for_each(|(padded, key)| *padded ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_the_published_one() {
        // RFC 4231, test case 1, whose key of 20 bytes is padded with zeros in any case.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let found: String =
            hmac(&key, b"Hi There").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn a_url_is_valid_for_one_path_one_digest_and_a_time() {
        let key = UrlKey::derive(&[1; 32]);
        let signature = key.sign("/a", "sha256:1", 100);
        assert_eq!(key.check("/a", "sha256:1", 100, &signature, 99), Ok(()));
        assert_eq!(key.check("/a", "sha256:1", 100, &signature, 100), Err(UrlRefused::Expired));
        let invalid = Err(UrlRefused::Invalid);
        assert_eq!(key.check("/b", "sha256:1", 100, &signature, 99), invalid);
        assert_eq!(key.check("/a", "sha256:2", 100, &signature, 99), invalid);
        assert_eq!(key.check("/a", "sha256:1", 101, &signature, 99), invalid);
        assert_eq!(key.check("/a", "sha256:1", 100, &signature[1..], 99), invalid);
        let other = UrlKey::derive(&[2; 32]);
        assert_eq!(other.check("/a", "sha256:1", 100, &signature, 99), invalid);
    }
}
