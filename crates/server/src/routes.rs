//! The table of routes: the one place from which both the router and the OpenAPI document are made,
//! so that a route which is mounted is also described.
//!
//! One file per resource. An entry says what a route is for, what it takes and what it answers;
//! its handler decodes, calls the engine, and encodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, on};

use crate::http::error::{ApiResult, Code};
use crate::http::request::Call;
use crate::http::service::Door;

/// A request that is being answered.
pub(crate) type Answering = Pin<Box<dyn Future<Output = ApiResult<Response>> + Send>>;

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With at most one parameter, `{name}`, or `{*name}` for one that may have slashes.
    pub(crate) path: &'static str,
    /// What the parameter in the path is.
    pub(crate) argument: &'static str,
    /// The group it is listed in.
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    /// What else there is to know.
    pub(crate) about: &'static str,
    pub(crate) access: Access,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) body: Option<Taken>,
    pub(crate) replies: &'static [Reply],
    /// What can go wrong beyond what can go wrong everywhere.
    pub(crate) errors: &'static [Code],
    pub(crate) handler: fn(Call) -> Answering,
}

impl Route {
    /// The status of an error of this route. A reference in a body that leads nowhere makes the
    /// request wrong; one in the path is a thing that does not exist.
    pub(crate) fn status_of(&self, code: Code) -> StatusCode {
        match (code, &self.body) {
            (Code::OperationNotFound, Some(_)) => StatusCode::BAD_REQUEST,
            (code, _) => code.status(),
        }
    }
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody, under any name: what monitors ask.
    Probe,
    /// Anybody.
    Public,
    /// Whoever the venue knows, and the anonymous if they may.
    Caller,
    /// The same; or, if the operator wishes, whoever knows the job's ID.
    JobId,
    /// Anybody or admins, as the operator wishes.
    Metrics,
}

/// A parameter in the query or a header.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) about: &'static str,
    /// Its JSON Schema.
    pub(crate) schema: &'static str,
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Query,
    Header,
}

/// What a route takes as its body.
pub(crate) struct Taken {
    pub(crate) about: &'static str,
    pub(crate) media: &'static str,
    /// Its JSON Schema.
    pub(crate) schema: &'static str,
    pub(crate) is_required: bool,
}

/// What a route answers when all is well.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    /// Type and JSON Schema of the body, if there is one.
    pub(crate) body: Option<(&'static str, &'static str)>,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const JOB: &str = r##"{"$ref":"#/components/schemas/Job"}"##;
pub(crate) const ANY: &str = "{}";

pub(crate) const fn query(
    name: &'static str,
    schema: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, place: Place::Query, about, schema }
}

pub(crate) const fn in_header(
    name: &'static str,
    schema: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, place: Place::Header, about, schema }
}

pub(crate) const fn reply(status: u16, about: &'static str, schema: &'static str) -> Reply {
    Reply { status, about, body: Some((JSON, schema)) }
}

pub(crate) const fn bare(status: u16, about: &'static str) -> Reply {
    Reply { status, about, body: None }
}

pub(crate) const IDEMPOTENCY: Parameter = in_header(
    "Idempotency-Key",
    r#"{"type":"string","minLength":1,"maxLength":255}"#,
    "Makes a repeated request harmless: the same key and body get the same answer for 24 hours.",
);
pub(crate) const DEPTH: Parameter = in_header(
    "Catena-Depth",
    r#"{"type":"integer","minimum":0}"#,
    "How many orchestrations of other venues the request comes from; they count against the nesting limit.",
);
pub(crate) const PREFER: Parameter = in_header(
    "Prefer",
    r#"{"type":"string"}"#,
    "`wait=N` waits up to N seconds (at most 120); `Preference-Applied` says so.",
);
pub(crate) const IF_NONE_MATCH: Parameter = in_header(
    "If-None-Match",
    r#"{"type":"string"}"#,
    "An `ETag`; the answer is 304 while it still holds.",
);
pub(crate) const OFFSET: Parameter =
    query("offset", r#"{"type":"integer","minimum":0}"#, "How many to leave out at the beginning.");
pub(crate) const LIMIT: Parameter = query(
    "limit",
    r#"{"type":"integer","minimum":0,"maximum":1000}"#,
    "At most so many; 1000 when not said.",
);

/// What most entries of the table have in common.
pub(crate) const ROUTE: Route = Route {
    method: Method::GET,
    path: "",
    argument: "",
    tag: "",
    summary: "",
    about: "",
    access: Access::Caller,
    parameters: &[],
    body: None,
    replies: &[],
    errors: &[],
    handler: |_| {
        Box::pin(async { Err(crate::http::error::ApiError::new(Code::Internal, "no handler")) })
    },
};

/// Every route, in the order of the document.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> + Clone {
    let tables = [
        crate::grid::invoke::ROUTES,
        crate::grid::jobs::ROUTES,
        crate::canvas::routes::ROUTES,
        crate::mcp::routes::ROUTES,
        crate::grid::operations::ROUTES,
        crate::grid::assets::ROUTES,
        crate::grid::identity::ROUTES,
        crate::grid::health::ROUTES,
        crate::grid::documents::ROUTES,
    ];
    tables.into_iter().flatten()
}

/// Those that are there for benchmarks only.
pub(crate) fn for_benchmarks() -> impl Iterator<Item = &'static Route> + Clone {
    crate::grid::bench::ROUTES.iter()
}

impl Route {
    /// What stands before and after the parameter.
    fn around(&self) -> Option<(&'static str, &'static str)> {
        let (before, rest) = self.path.split_once('{')?;
        let (_, after) = rest.split_once('}')?;
        Some((before, after))
    }

    /// What stands for the parameter in a path of this form.
    pub(crate) fn argument<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (before, after) = self.around()?;
        path.strip_prefix(before)?.strip_suffix(after)
    }

    /// Whether a path leads here, whatever the router says.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        let takes_slashes = self.path.contains("{*");
        let has_slash = || self.argument(path).is_some_and(|argument| argument.contains('/'));
        self.matches(path) && (takes_slashes || !has_slash())
    }

    /// Whether a path that the router took for this form or a neighbour's is of this form.
    pub(crate) fn matches(&self, path: &str) -> bool {
        match self.around() {
            Some(_) => self.argument(path).is_some_and(|argument| !argument.is_empty()),
            None => path == self.path,
        }
    }

    /// The path as the router knows it: nothing can follow a parameter that may have slashes.
    fn mounted_at(&self) -> &'static str {
        match self.path.find("{*").and_then(|at| Some(at + self.path[at..].find('}')?)) {
            Some(end) => &self.path[..=end],
            None => self.path,
        }
    }
}

/// A route with its number among the metrics.
pub(crate) struct Mounted {
    pub(crate) route: &'static Route,
    pub(crate) number: usize,
}

/// Routes that the router cannot tell apart, more specific ones first.
pub(crate) struct Mount {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) routes: Vec<Mounted>,
}

/// What to mount for these routes.
pub(crate) fn mounts(routes: impl Iterator<Item = &'static Route>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for (number, route) in routes.enumerate() {
        let path = route.mounted_at();
        let mounted = Mounted { route, number };
        match mounts.iter_mut().find(|own| own.path == path && own.method == route.method) {
            Some(mount) => mount.routes.push(mounted),
            None => {
                mounts.push(Mount { method: route.method.clone(), path, routes: vec![mounted] });
            }
        }
    }
    for mount in &mut mounts {
        mount.routes.sort_by_key(|mounted| std::cmp::Reverse(mounted.route.path.len()));
    }
    mounts
}

/// The router for these routes.
pub(crate) fn router(door: &Arc<Door>, routes: impl Iterator<Item = &'static Route>) -> Router {
    let mut router = Router::new();
    for mount in mounts(routes) {
        let Ok(filter) = MethodFilter::try_from(mount.method.clone()) else { continue };
        let (door, mount) = (Arc::clone(door), Arc::new(mount));
        let path = mount.path;
        let serve = move |request: Request| Arc::clone(&door).serve(Arc::clone(&mount), request);
        router = router.route(path, on(filter, serve));
    }
    let refuse = |code: Code| {
        let door = Arc::clone(door);
        move |request: Request| std::future::ready(door.refuse(code, request))
    };
    router
        .method_not_allowed_fallback(refuse(Code::MethodNotAllowed))
        .fallback(refuse(Code::EndpointNotFound))
}

#[cfg(test)]
mod tests;
