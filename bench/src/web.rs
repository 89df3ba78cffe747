//! What the benchmarks over HTTP share: a venue in a process of its own, and a load generator.

mod load;
mod venue;
mod wire;

pub(crate) use load::{Load, Patience, Until, drive};
pub(crate) use venue::{Options, Venue, core_seconds, pin, resident_kb};
pub(crate) use wire::{Client, get, invocation, post, put};
