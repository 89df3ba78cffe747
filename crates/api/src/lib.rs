//! What clients of a venue share, and a Rust client.
//!
//! Without features this crate is facts: where routes are ([`wire`]), what a job's statuses mean to
//! whoever waits for it, how a venue is named ([`venue`]). With the feature `client` it is also a
//! small async client of one venue ([`client`]): JSON in and out as values, so that numbers stay
//! exact; requests that were refused because of their rate are sent again as the published SDKs
//! do; jobs are followed by events, or by polling where there are none.
//!
//! There is no engine inside, and nothing here reads a file or the environment.

pub mod limits;
pub mod venue;
pub mod wire;

#[cfg(feature = "client")]
pub mod client;

pub use venue::{VenueUrl, VenueUrlError};

#[cfg(feature = "client")]
pub use client::{Client, ClientError, Credentials};
