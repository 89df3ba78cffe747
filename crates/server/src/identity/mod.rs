//! Identities: who sends a request, the tokens that say so, and the venue's own key.

pub(crate) mod authenticate;
pub mod key;
pub mod tokens;
