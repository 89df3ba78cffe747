//! The table of all routes, from which the router, the OpenAPI document and the `/docs` page are made.

use crate::grid::{assets, bench, documents, health, identity, invoke, jobs, operations};
use crate::http::route::Route;
use crate::{canvas, console, mcp};

/// All routes, in the order in which they are documented.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> + Clone {
    let tables = [
        invoke::ROUTES,
        jobs::ROUTES,
        canvas::routes::ROUTES,
        mcp::routes::ROUTES,
        operations::ROUTES,
        assets::ROUTES,
        identity::ROUTES,
        health::ROUTES,
        documents::ROUTES,
        console::ROUTES,
    ];
    tables.into_iter().flatten()
}

/// The routes that exist only for benchmarks.
pub(crate) fn benchmarks() -> impl Iterator<Item = &'static Route> + Clone {
    bench::ROUTES.iter()
}

#[cfg(test)]
mod tests;
