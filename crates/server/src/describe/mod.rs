//! The description of the routes: the OpenAPI document for programs, and HTML pages for people.

pub(crate) mod openapi;
pub(crate) mod page;
