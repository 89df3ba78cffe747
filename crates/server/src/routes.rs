//! The table of all routes, from which the router, the OpenAPI document and the `/docs` page are made.

use crate::grid::{
    agents, assets, bench, documents, events, health, histories, identity, invoke, job_history,
    jobs, operations, secrets, stats, values,
};
use crate::http::route::Route;
use crate::{canvas, console, contract, mcp, worker};

/// All routes, in the order in which they are documented.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> + Clone {
    let tables = [
        invoke::ROUTES,
        jobs::ROUTES,
        job_history::ROUTES,
        events::ROUTES,
        canvas::routes::ROUTES,
        worker::routes::ROUTES,
        contract::routes::ROUTES,
        mcp::routes::ROUTES,
        operations::ROUTES,
        assets::ROUTES,
        values::ROUTES,
        histories::ROUTES,
        secrets::ROUTES,
        agents::ROUTES,
        identity::ROUTES,
        health::ROUTES,
        stats::ROUTES,
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
