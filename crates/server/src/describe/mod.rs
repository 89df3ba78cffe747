//! The routes described for programs and for people.

pub(crate) mod openapi;
pub(crate) mod page;
