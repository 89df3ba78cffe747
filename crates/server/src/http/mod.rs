//! HTTP: connections, requests, responses and errors.

pub mod error;
pub(crate) mod listen;
pub(crate) mod origin;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod response_cache;
pub(crate) mod service;
pub(crate) mod sse;
