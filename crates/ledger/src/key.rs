//! Row keys: bytes, stored inline while they are short.
//!
//! Nearly every key has at most 32 bytes. Storing those inline saves an allocation per row and, more
//! importantly, a cache miss per comparison in the overlay's ordered maps.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The longest key that is stored inline, in bytes.
const INLINE_BYTES: usize = 38;

/// A row's key, ordered bytewise.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Shared(Arc<[u8]>),
}

impl Key {
    /// The first 16 bytes as a big-endian number, padded with zeros. Keys whose numbers differ are ordered like them.
    pub fn leading(&self) -> u128 {
        let mut leading = [0; 16];
        let len = self.len().min(leading.len());
        leading[..len].copy_from_slice(&self[..len]);
        u128::from_be_bytes(leading)
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..key.len()) {
            Some(inline) => {
                inline.copy_from_slice(key);
                Key(Repr::Inline { len: key.len() as u8, bytes })
            }
            None => Key(Repr::Shared(key.into())),
        }
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(key: [u8; N]) -> Self {
        Key::from(&key[..])
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        Key::from(&key[..])
    }
}

impl FromIterator<u8> for Key {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        Key::from(bytes.into_iter().collect::<Vec<_>>())
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_are_ordered_as_bytes() {
        let mut keys: Vec<Vec<u8>> =
            (0..80).map(|len| vec![7; len]).chain([vec![], vec![6; 50], vec![8]]).collect();
        let mut ordered: Vec<Key> = keys.iter().cloned().map(Key::from).collect();
        keys.sort();
        ordered.sort();
        let back: Vec<Vec<u8>> = ordered.iter().map(|key| key.to_vec()).collect();
        assert_eq!(back, keys);
    }
}
