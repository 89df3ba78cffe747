//! Who somebody is: DIDs and signed tokens.
//!
//! Everything here is a pure function: keys, the time and this venue's name are arguments. A token
//! is believed because of the key that its issuer's DID contains, or because this venue signed it,
//! and for no other reason; one that does not hold is refused, it never makes its bearer
//! anonymous.
//!
//! Modules, in reading order: [`base`] (base58 and base64), [`did`] (did:key), [`key`] (key
//! pairs), [`jwt`] (compact EdDSA tokens), [`identity`] (what a token says about its bearer),
//! [`seal`] (secrets at rest), [`limits`].

pub mod base;
pub mod did;
pub mod identity;
pub mod jwt;
pub mod key;
pub mod limits;
pub mod seal;

pub use did::{DidError, did_key, public_key};
pub use identity::{Identity, TokenRefused, Venue};
pub use jwt::{Token, TokenError};
pub use key::KeyPair;
pub use seal::SealKey;
