//! One file per command, all of one shape: its arguments, then `run`.

pub(crate) mod access;
pub(crate) mod agents;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod env;
pub(crate) mod executor;
pub(crate) mod id;
pub(crate) mod jobs;
pub(crate) mod ops;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod schedules;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod verify;
pub(crate) mod work;
