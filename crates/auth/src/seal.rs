//! Sealing: encryption of secrets at rest with a key derived from the venue's key.
//!
//! XChaCha20-Poly1305 with a random nonce. The context that a secret belongs to is authenticated
//! with it, so that a sealed text cannot be moved from one context to another.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

use crate::base::{from_base64url, to_base64url};

/// Length of a nonce in bytes. 24 bytes can be drawn at random without a realistic risk of
/// collision.
pub const NONCE_BYTES: usize = 24;

/// A symmetric key that seals and opens secrets.
#[derive(Clone)]
pub struct SealKey(XChaCha20Poly1305);

impl SealKey {
    /// Derives the key for a purpose from 32 secret random bytes.
    pub fn derive(seed: &[u8; 32], purpose: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"catena seal 1\0");
        hasher.update(purpose.as_bytes());
        hasher.update([0]);
        hasher.update(seed);
        SealKey(XChaCha20Poly1305::new(&hasher.finalize()))
    }

    /// Encrypts a secret for a context. The nonce must be random. `None` if encryption fails.
    pub fn seal(&self, context: &str, secret: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<String> {
        let payload = Payload { msg: secret, aad: context.as_bytes() };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some(to_base64url(&[nonce.as_slice(), &sealed].concat()))
    }

    /// Decrypts what was sealed for this context. `None` if it was sealed for another context, with
    /// another key, or not at all.
    pub fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = from_base64url(sealed)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: context.as_bytes() };
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
    fn a_sealed_secret_opens_in_its_context_alone() {
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
