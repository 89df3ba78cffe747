//! Shared by the HTTP benchmarks: a venue in a separate process, and a load generator.

mod load;
mod venue;
mod wire;

pub(crate) use load::{Complete, Load, Until, WaitMode, drive};
pub(crate) use venue::{Options, Venue, core_seconds, pin, resident_kb, run_seconds};
pub(crate) use wire::{Client, get, invocation, post, put};
