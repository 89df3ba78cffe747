//! Ed25519 key pairs. The secret key never leaves [`KeyPair`].

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::did::did_key;
use crate::seal::SealKey;
use crate::signed_url::UrlKey;

/// An Ed25519 key pair.
#[derive(Clone)]
pub struct KeyPair(SigningKey);

impl KeyPair {
    /// The key pair derived from 32 secret random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        KeyPair(SigningKey::from_bytes(seed))
    }

    /// The public key.
    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// The did:key of the public key: the identity of the holder.
    pub fn did(&self) -> String {
        did_key(&self.public())
    }

    /// Derives the key that seals secrets for one purpose.
    pub fn seal_key(&self, purpose: &str) -> SealKey {
        SealKey::derive(&self.0.to_bytes(), purpose)
    }

    /// Derives the key that signs URLs.
    pub fn url_key(&self) -> UrlKey {
        UrlKey::derive(&self.0.to_bytes())
    }

    /// Returns the Ed25519 signature over a message.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key pair of {}", self.did())
    }
}

/// Whether the signature over the message was made with this key. Weak keys and malleable
/// signatures are refused.
pub fn is_signed_by(public: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(public) else { return false };
    key.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_valid_for_its_message_and_key_alone() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let signature = pair.sign(b"message");
        assert!(is_signed_by(&pair.public(), b"message", &signature));
        assert!(!is_signed_by(&pair.public(), b"massage", &signature));
        assert!(!is_signed_by(&KeyPair::from_seed(&[2; 32]).public(), b"message", &signature));
        let mut changed = signature;
        changed[0] ^= 1;
        assert!(!is_signed_by(&pair.public(), b"message", &changed));
        assert!(
            !is_signed_by(&[0; 32], b"message", &[0; 64]),
            "a weak key would accept every message"
        );
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", KeyPair::from_seed(&[7; 32]));
        assert!(shown.starts_with("key pair of did:key:z6Mk"), "{shown}");
    }
}
