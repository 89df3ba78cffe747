//! `did:key` for Ed25519: an identity that contains its own public key.

use crate::base::{from_base58, to_base58};

const PREFIX: &str = "did:key:z";

/// The multicodec prefix of an Ed25519 public key.
const ED25519: [u8; 2] = [0xed, 0x01];

/// The reason why a text is not a usable did:key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DidError {
    /// The text has another DID method, or is not a DID.
    #[error("not a did:key")]
    NotDidKey,
    /// The key part is not base58, or has the wrong length.
    #[error("the key in the did:key is malformed")]
    Malformed,
    /// The key is of another type than Ed25519.
    #[error("the key in the did:key is not an Ed25519 key")]
    NotEd25519,
}

/// Returns the did:key of a public key.
pub fn did_key(public: &[u8; 32]) -> String {
    let mut bytes = ED25519.to_vec();
    bytes.extend_from_slice(public);
    format!("{PREFIX}{}", to_base58(&bytes))
}

/// Returns the public key that a did:key contains.
pub fn public_key(did: &str) -> Result<[u8; 32], DidError> {
    let text = did.strip_prefix(PREFIX).ok_or(DidError::NotDidKey)?;
    let bytes = from_base58(text).ok_or(DidError::Malformed)?;
    let (kind, key) = bytes.split_at_checked(2).ok_or(DidError::Malformed)?;
    if kind != ED25519 {
        return Err(DidError::NotEd25519);
    }
    key.try_into().map_err(|_| DidError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_did_has_its_published_key() {
        // From the did:key specification's Ed25519 examples.
        let did = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
        let key = public_key(did).unwrap();
        assert_eq!(key[..4], [0x2e, 0x6f, 0xcc, 0xe3]);
        assert_eq!(did_key(&key), did);
    }

    #[test]
    fn other_identities_are_refused() {
        assert_eq!(public_key("did:web:example.org"), Err(DidError::NotDidKey));
        assert_eq!(public_key("did:key:z6Mk"), Err(DidError::NotEd25519));
        assert_eq!(public_key("did:key:z0"), Err(DidError::Malformed));
        assert_eq!(public_key("did:key:z"), Err(DidError::Malformed));
        let x25519 =
            format!("did:key:z{}", to_base58(&[[0xec, 0x01].as_slice(), &[7; 32]].concat()));
        assert_eq!(public_key(&x25519), Err(DidError::NotEd25519));
        let short =
            format!("did:key:z{}", to_base58(&[[0xed, 0x01].as_slice(), &[7; 31]].concat()));
        assert_eq!(public_key(&short), Err(DidError::Malformed));
    }
}
