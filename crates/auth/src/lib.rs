//! Identities: DIDs and signed tokens.
//!
//! Everything here is a pure function: keys, the time and this venue's DID are arguments. A token
//! is accepted if it is signed with the key that its issuer's DID contains, or by this venue, and
//! for no other reason. An invalid token is refused; it never makes its bearer anonymous.
//!
//! Modules, in reading order: [`base`] (base58 and base64), [`did`] (did:key), [`key`] (key
//! pairs), [`jwt`] (compact EdDSA tokens), [`identity`] (which identity a token proves),
//! [`capability`] (abilities on resources), [`delegation`] (who may act for whom), [`seal`] (encryption
//! of secrets at rest), [`signed_url`], [`signed_end`] (what workers sign), [`webhook`] (requests that a
//! venue signs), [`limits`].

pub mod base;
pub mod capability;
pub mod delegation;
pub mod did;
pub mod identity;
pub mod jwt;
pub mod key;
pub mod limits;
pub mod seal;
pub mod signed_end;
pub mod signed_url;
pub mod webhook;

pub use delegation::{Delegation, DelegationError};
pub use did::{DidError, did_key, public_key};
pub use identity::{Identity, TokenRefused, Venue};
pub use jwt::{TimeError, Token, TokenError};
pub use key::KeyPair;
pub use seal::SealKey;
pub use signed_url::{UrlKey, UrlRefused};
