//! Identities: the callers of requests, the tokens that authenticate them, and the venue's own key.

pub(crate) mod authenticate;
pub mod key;
pub mod tokens;
