//! Tests of the complete ledger, most of them on the simulated disk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod crashes;
mod damage;
mod failures;
mod full;
mod killed;
mod merging;
mod modes;
mod running;
mod support;
