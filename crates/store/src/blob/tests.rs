//! The conformance suite on every backend, and tests of single backends.

mod conformance;
mod crash;
mod local;
#[cfg(feature = "s3")]
mod object;
#[cfg(feature = "s3")]
mod object_conformance;
mod serve;
