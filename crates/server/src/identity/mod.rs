//! Identities: the callers of requests, the tokens that authenticate them, the lists that admit or
//! exclude them, and the venue's own keys.

pub(crate) mod authenticate;
pub(crate) mod delegate;
pub mod key;
pub mod lists;
pub mod tokens;
