//! Doors that speak a protocol of somebody else's: each in its own words, all on the same engine.

pub(crate) mod mcp;
