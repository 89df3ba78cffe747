//! COG-8 Jobs, sentence by sentence: what it asks of a venue, over HTTP.
//!
//! Each test quotes what it checks. What a whole test run cannot hold (a history of 100,000 records,
//! seven days of waiting) is checked in `crates/engine` with a clock of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "cog8/chain.rs"]
mod chain;
#[path = "cog8/control.rs"]
mod control;
#[path = "cog8/observe.rs"]
mod observe;
#[path = "cog8/security.rs"]
mod security;
