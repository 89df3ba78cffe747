//! Which routes are mounted under which path of the router.
//!
//! The router cannot distinguish routes that differ only after a parameter which may contain slashes.
//! Such routes share one mount, and the end of the path decides between them.

use std::cmp::Reverse;

use axum::http::Method;

use crate::http::route::Route;

/// A route with its row number in the metrics.
pub(crate) struct MountedRoute {
    pub(crate) route: &'static Route,
    pub(crate) number: usize,
}

/// Routes that the router cannot distinguish, more specific ones first.
pub(crate) struct Mount {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) routes: Vec<MountedRoute>,
}

/// The mounts for these routes.
pub(crate) fn mounts(routes: impl Iterator<Item = &'static Route>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for (number, route) in routes.enumerate() {
        let path = route.router_path();
        let mounted = MountedRoute { route, number };
        match mounts.iter_mut().find(|mount| mount.path == path && mount.method == route.method) {
            Some(mount) => mount.routes.push(mounted),
            None => {
                mounts.push(Mount { method: route.method.clone(), path, routes: vec![mounted] });
            }
        }
    }
    for mount in &mut mounts {
        mount.routes.sort_by_key(|mounted| Reverse(mounted.route.path.len()));
    }
    mounts
}
