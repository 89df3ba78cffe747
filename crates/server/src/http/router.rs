//! Which route serves a request.
//!
//! Paths are found in a radix tree, which cannot distinguish routes that differ only after a parameter which
//! may contain slashes. Such routes share one entry of the tree, and the end of the path decides between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;

use crate::http::error::Code;
use crate::http::route::Route;

/// A route with its row number in the metrics.
pub(crate) struct MountedRoute {
    pub(crate) route: &'static Route,
    pub(crate) number: usize,
}

/// All routes of the server.
pub(crate) struct Router {
    routes: Vec<&'static Route>,
    /// The routes with the same path in the tree, more specific ones first.
    paths: matchit::Router<Vec<MountedRoute>>,
}

impl Router {
    pub(crate) fn new(routes: impl Iterator<Item = &'static Route>) -> Self {
        let routes: Vec<&Route> = routes.collect();
        let mut by_path: BTreeMap<&str, Vec<MountedRoute>> = BTreeMap::new();
        for (number, &route) in routes.iter().enumerate() {
            let mounted = by_path.entry(route.router_path()).or_default();
            mounted.push(MountedRoute { route, number });
        }
        let mut paths = matchit::Router::new();
        for (path, mut mounted) in by_path {
            mounted.sort_by_key(|mounted| Reverse(mounted.route.path.len()));
            if let Err(error) = paths.insert(path, mounted) {
                tracing::error!(path, %error, "a route cannot be reached");
            }
        }
        Router { routes, paths }
    }

    /// The route of a request. `HEAD` is served by the route of `GET`.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<&MountedRoute, Code> {
        let Ok(matched) = self.paths.at(path) else { return Err(Code::EndpointNotFound) };
        let find = |method: &Method| {
            let mut mounted = matched.value.iter();
            mounted.find(|mounted| mounted.route.method == *method && mounted.route.matches(path))
        };
        let found = match *method {
            Method::HEAD => find(&Method::HEAD).or_else(|| find(&Method::GET)),
            _ => find(method),
        };
        found.filter(|mounted| !self.is_hidden(mounted.route, path)).ok_or(Code::MethodNotAllowed)
    }

    /// Returns true if a more specific path, which supports other methods, is meant: a parameter that may
    /// contain slashes also takes what such a path ends with.
    fn is_hidden(&self, route: &Route, path: &str) -> bool {
        let hides = |other: &&Route| is_specific(other) && other.is_at(path);
        !is_specific(route) && self.routes.iter().any(hides)
    }

    /// The methods that a path supports, in the form of the `Allow` header.
    pub(crate) fn allowed_methods(&self, path: &str) -> String {
        let routes = self.routes.iter().copied().filter(|route| route.is_at(path));
        let routes: Vec<&Route> = routes.collect();
        let has_specific = routes.iter().any(|route| is_specific(route));
        let routes = routes.iter().filter(|route| !has_specific || is_specific(route));
        let mut methods: BTreeSet<&str> = routes.map(|route| route.method.as_str()).collect();
        if methods.contains("GET") {
            methods.insert("HEAD");
        }
        methods.into_iter().collect::<Vec<_>>().join(",")
    }
}

/// Returns true if a route does not end with a parameter that takes everything that follows.
fn is_specific(route: &Route) -> bool {
    !route.path.ends_with('}') || !route.path.contains("{*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::ROUTE;

    static ROUTES: [Route; 6] = [
        Route { path: "/jobs", ..ROUTE },
        Route { path: "/jobs", method: Method::POST, ..ROUTE },
        Route { path: "/jobs/{id}", ..ROUTE },
        Route { path: "/jobs/{id}/cancel", method: Method::PUT, ..ROUTE },
        Route { path: "/assets/{*id}", ..ROUTE },
        Route { path: "/assets/{*id}/content", method: Method::PUT, ..ROUTE },
    ];

    fn found(method: Method, path: &str) -> Result<&'static str, Code> {
        let router = Router::new(ROUTES.iter());
        router.find(&method, path).map(|mounted| mounted.route.path)
    }

    #[test]
    fn a_request_is_served_by_the_route_of_its_path_and_method() {
        for (method, path, expected) in [
            (Method::GET, "/jobs", Ok("/jobs")),
            (Method::HEAD, "/jobs", Ok("/jobs")),
            (Method::GET, "/jobs/7", Ok("/jobs/{id}")),
            (Method::PUT, "/jobs/7/cancel", Ok("/jobs/{id}/cancel")),
            (Method::GET, "/assets/v/test/echo", Ok("/assets/{*id}")),
            (Method::PUT, "/assets/v/echo/content", Ok("/assets/{*id}/content")),
            (Method::GET, "/assets/v/echo/content", Err(Code::MethodNotAllowed)),
            (Method::DELETE, "/jobs", Err(Code::MethodNotAllowed)),
            (Method::HEAD, "/jobs/7/cancel", Err(Code::MethodNotAllowed)),
            (Method::GET, "/jobs/", Err(Code::EndpointNotFound)),
            (Method::GET, "/jobs/7/8", Err(Code::EndpointNotFound)),
            (Method::GET, "/", Err(Code::EndpointNotFound)),
        ] {
            assert_eq!(found(method.clone(), path), expected, "{method} {path}");
        }
    }
}
