//! Sealing: secrets at rest, readable by whoever holds the venue's key.
//!
//! XChaCha20-Poly1305 with a random nonce. What a sealed text belongs to is bound into it, so that
//! it cannot be moved from one place to another.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

use crate::base::{from_base64url, to_base64url};

/// Bytes of a nonce. So many can be drawn at random without ever meeting.
pub const NONCE_BYTES: usize = 24;

/// The key that seals and opens.
#[derive(Clone)]
pub struct SealKey(XChaCha20Poly1305);

impl SealKey {
    /// The key that belongs to 32 secret random bytes and a purpose.
    pub fn derive(seed: &[u8; 32], purpose: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"catena seal 1\0");
        hasher.update(purpose.as_bytes());
        hasher.update([0]);
        hasher.update(seed);
        SealKey(XChaCha20Poly1305::new(&hasher.finalize()))
    }

    /// Seals a text for a place. The nonce must be random.
    pub fn seal(&self, place: &str, text: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<String> {
        let payload = Payload { msg: text, aad: place.as_bytes() };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some(to_base64url(&[nonce.as_slice(), &sealed].concat()))
    }

    /// Opens what was sealed for this place; nothing when it was not, or not by this key.
    pub fn open(&self, place: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = from_base64url(sealed)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: place.as_bytes() };
        self.0.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seal key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let key = SealKey::derive(&[7; 32], "jobs");
        let sealed = key.seal("job 1", b"secret", [3; 24]).unwrap();
        assert!(!sealed.contains("secret"));
        assert_eq!(key.open("job 1", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(key.open("job 2", &sealed), None);
        assert_eq!(SealKey::derive(&[7; 32], "secrets").open("job 1", &sealed), None);
        assert_eq!(SealKey::derive(&[8; 32], "jobs").open("job 1", &sealed), None);
        assert_eq!(key.open("job 1", &sealed[..sealed.len() - 4]), None);
        assert_eq!(key.open("job 1", "not sealed"), None);
    }
}
