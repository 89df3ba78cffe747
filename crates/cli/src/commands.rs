//! One file per command, all of one shape: its arguments, and `run`.

pub(crate) mod id;
pub(crate) mod plan;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod verify;
