//! Sealing: encryption of secrets at rest.
//!
//! XChaCha20-Poly1305 with a random nonce. The context that a secret belongs to is authenticated
//! with it, so that a sealed text cannot be moved from one context to another. A sealed text names its
//! key, `NAME.BASE64`, so that a text of a key that is not at hand can be told from a damaged one.
//! Texts without a name were sealed before there were names, with a key that is derived from the
//! venue's identity key.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

use crate::base::{from_base64url, to_base64url};

/// Length of a nonce in bytes. 24 bytes can be drawn at random without a realistic risk of
/// collision.
pub const NONCE_BYTES: usize = 24;

/// A symmetric key that seals and opens secrets, and optionally older ones that only open.
#[derive(Clone)]
pub struct SealKey {
    current: Cipher,
    /// The last one opens texts that name no key.
    older: Vec<Cipher>,
}

#[derive(Clone)]
struct Cipher {
    /// Identifies the key without revealing it: 16 hex digits.
    name: String,
    cipher: XChaCha20Poly1305,
}

impl SealKey {
    /// Derives the key for a purpose from 32 secret random bytes.
    pub fn derive(seed: &[u8; 32], purpose: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"catena seal 1\0");
        hasher.update(purpose.as_bytes());
        hasher.update([0]);
        hasher.update(seed);
        let key = hasher.finalize();
        let digest =
            Sha256::new().chain_update(b"catena seal name 1\0").chain_update(key).finalize();
        let name = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        SealKey {
            current: Cipher { name, cipher: XChaCha20Poly1305::new(&key) },
            older: Vec::new(),
        }
    }

    /// The same key, which also opens what was sealed with an older one. Of several, the last one opens
    /// texts that name no key.
    pub fn with_older(mut self, older: SealKey) -> Self {
        self.older.push(older.current);
        self
    }

    /// Encrypts a secret for a context. The nonce must be random. `None` if encryption fails.
    pub fn seal(&self, context: &str, secret: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<String> {
        let payload = Payload { msg: secret, aad: context.as_bytes() };
        let sealed = self.current.cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        let text = to_base64url(&[nonce.as_slice(), &sealed].concat());
        Some(format!("{}.{text}", self.current.name))
    }

    /// Decrypts what was sealed for this context. `None` if it was sealed for another context, with
    /// another key, or not at all.
    pub fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let (_, text) = split_name(sealed);
        let bytes = from_base64url(text)?;
        let (nonce, sealed_bytes) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed_bytes, aad: context.as_bytes() };
        self.cipher_of(sealed)?.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
    }

    /// Whether a text names a key that is not at hand.
    pub fn lacks_key_of(&self, sealed: &str) -> bool {
        self.cipher_of(sealed).is_none()
    }

    /// Whether a text should be sealed again: it can be opened, but not with the current key.
    pub fn is_outdated(&self, sealed: &str) -> bool {
        self.cipher_of(sealed).is_some_and(|cipher| cipher.name != self.current.name)
            || split_name(sealed).0.is_none()
    }

    fn cipher_of(&self, sealed: &str) -> Option<&Cipher> {
        match split_name(sealed).0 {
            None => Some(self.older.last().unwrap_or(&self.current)),
            Some(name) if name == self.current.name => Some(&self.current),
            Some(name) => self.older.iter().find(|older| older.name == name),
        }
    }
}

/// The name of the key in a sealed text, if it has one, and the rest.
fn split_name(sealed: &str) -> (Option<&str>, &str) {
    sealed.split_once('.').map_or((None, sealed), |(name, text)| (Some(name), text))
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seal key {}", self.current.name)
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

    #[test]
    fn a_sealed_text_names_its_key() {
        let older = SealKey::derive(&[1; 32], "jobs");
        let newer = SealKey::derive(&[2; 32], "jobs").with_older(older.clone());
        let by_older = older.seal("job 1", b"secret", [3; 24]).unwrap();
        let nameless = by_older.split_once('.').unwrap().1;
        // From before texts named their key.
        for text in [by_older.as_str(), nameless] {
            assert_eq!(newer.open("job 1", text).as_deref(), Some(&b"secret"[..]), "{text}");
            assert!(newer.is_outdated(text) && !newer.lacks_key_of(text));
        }
        let by_newer = newer.seal("job 1", b"secret", [3; 24]).unwrap();
        assert!(!newer.is_outdated(&by_newer));
        assert!(older.lacks_key_of(&by_newer) && !older.is_outdated(&by_newer));
        assert_eq!(older.open("job 1", &by_newer), None);
    }
}
