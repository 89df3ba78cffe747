//! The facts of the suite for every backend, and those that only one of them can have.

mod conformance;
mod crash;
mod local;
mod object;
mod serve;
