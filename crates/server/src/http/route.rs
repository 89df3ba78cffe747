//! One route: its path, its handler, and everything that its description needs.
//!
//! The router, the OpenAPI document and the `/docs` page are all made from these entries, so a route
//! that is mounted is also described. The table of all routes is [`crate::routes`].

use std::future::Future;
use std::pin::Pin;

use axum::http::{Method, StatusCode};
use axum::response::Response;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::ApiRequest;

/// The response of a handler, in progress.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = ApiResult<Response>> + Send>>;

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The path, with at most two parameters: `{name}`; or with one `{*name}`, which may contain slashes.
    pub(crate) path: &'static str,
    /// Describes the first parameter in the path.
    pub(crate) path_parameter: &'static str,
    /// Describes the second parameter in the path.
    pub(crate) second_parameter: &'static str,
    /// The group under which the route is listed.
    pub(crate) tag: &'static str,
    /// The title of the route, without a full stop.
    pub(crate) summary: &'static str,
    /// Further description, in sentences; may be empty.
    pub(crate) about: &'static str,
    pub(crate) access: Access,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) body: Option<RequestBody>,
    /// The responses other than errors.
    pub(crate) replies: &'static [Reply],
    /// The error codes that are specific to this route.
    pub(crate) errors: &'static [Code],
    pub(crate) handler: fn(ApiRequest) -> ResponseFuture,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everyone, under any `Host`: for monitoring.
    Probe,
    /// Everyone.
    Public,
    /// Everyone. A token is checked if there is one, but need not name an audience: this is where
    /// clients learn the venue's DID.
    Status,
    /// Identities that may use the venue, and the anonymous identity if anyone may.
    Caller,
    /// The same, and identities that present delegations of others; the handler checks these.
    Delegated,
    /// The same and, if the operator allows it, clients that know the job's ID.
    JobId,
    /// Everyone or admins only, depending on the configuration.
    Metrics,
}

/// A parameter in the query or in a header.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) location: ParameterLocation,
    pub(crate) about: &'static str,
    /// Its JSON Schema.
    pub(crate) schema: &'static str,
}

/// Where a parameter is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterLocation {
    Query,
    Header,
}

/// The request body of a route.
pub(crate) struct RequestBody {
    pub(crate) about: &'static str,
    /// Its media type.
    pub(crate) media: &'static str,
    /// Its JSON Schema.
    pub(crate) schema: &'static str,
    pub(crate) is_required: bool,
}

/// A response of a route that is not an error.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    /// Media type and JSON Schema of the body, if there is one.
    pub(crate) body: Option<(&'static str, &'static str)>,
}

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The schema of a job.
pub(crate) const JOB: &str = r##"{"$ref":"#/components/schemas/Job"}"##;
/// The schema that every value satisfies.
pub(crate) const ANY: &str = "{}";

/// A query parameter.
pub(crate) const fn query(
    name: &'static str,
    schema: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, location: ParameterLocation::Query, about, schema }
}

/// A parameter in a header.
pub(crate) const fn in_header(
    name: &'static str,
    schema: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, location: ParameterLocation::Header, about, schema }
}

/// A response with a JSON body.
pub(crate) const fn reply(status: u16, about: &'static str, schema: &'static str) -> Reply {
    Reply { status, about, body: Some((JSON, schema)) }
}

/// A response without a body.
pub(crate) const fn empty_reply(status: u16, about: &'static str) -> Reply {
    Reply { status, about, body: None }
}

pub(crate) const IDEMPOTENCY_KEY: Parameter = in_header(
    "Idempotency-Key",
    r#"{"type":"string","minLength":1,"maxLength":255}"#,
    "Makes a repeated request safe: the same key with the same body gets the same response for 24 hours.",
);
pub(crate) const DEPTH: Parameter = in_header(
    "Catena-Depth",
    r#"{"type":"integer","minimum":0}"#,
    "The number of orchestrations on other venues that this request comes from. They count against the nesting limit.",
);
pub(crate) const PREFER: Parameter = in_header(
    "Prefer",
    r#"{"type":"string"}"#,
    "`wait=N` waits up to N seconds, at most 120. `Preference-Applied` in the response confirms it.",
);
pub(crate) const IF_NONE_MATCH: Parameter = in_header(
    "If-None-Match",
    r#"{"type":"string"}"#,
    "An `ETag`. The response is 304 while it is still current.",
);
pub(crate) const OFFSET: Parameter =
    query("offset", r#"{"type":"integer","minimum":0}"#, "The number of entries to skip.");
pub(crate) const LIMIT: Parameter = query(
    "limit",
    r#"{"type":"integer","minimum":0,"maximum":1000}"#,
    "The maximum number of entries to return. Defaults to 1000.",
);

/// The defaults of a table entry.
pub(crate) const ROUTE: Route = Route {
    method: Method::GET,
    path: "",
    path_parameter: "",
    second_parameter: "",
    tag: "",
    summary: "",
    about: "",
    access: Access::Caller,
    parameters: &[],
    body: None,
    replies: &[],
    errors: &[],
    handler: |_| Box::pin(async { Err(ApiError::new(Code::Internal, "no handler")) }),
};

impl Route {
    /// The status of an error of this route. An unresolvable reference in the body makes the request
    /// invalid; one in the path names a thing that does not exist.
    pub(crate) fn status_of(&self, code: Code) -> StatusCode {
        match (code, &self.body) {
            (Code::OperationNotFound, Some(_)) => StatusCode::BAD_REQUEST,
            (code, _) => code.status(),
        }
    }

    /// The parts of the path before and after the parameter.
    fn around_parameter(&self) -> Option<(&'static str, &'static str)> {
        let (before, rest) = self.path.split_once('{')?;
        let (_, after) = rest.split_once('}')?;
        Some((before, after))
    }

    /// The value of the first path parameter in a path of this form, not decoded.
    pub(crate) fn raw_path_argument<'a>(&self, path: &'a str) -> Option<&'a str> {
        if !self.second_parameter.is_empty() {
            return self.raw_path_arguments(path)?.first().copied();
        }
        let (before, after) = self.around_parameter()?;
        path.strip_prefix(before)?.strip_suffix(after)
    }

    /// The values of all path parameters in a path of this form, not decoded. No parameter may contain
    /// slashes.
    pub(crate) fn raw_path_arguments<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let mut arguments = Vec::new();
        let mut expected = self.path.split('/');
        let mut found = path.split('/');
        loop {
            match (expected.next(), found.next()) {
                (None, None) => return Some(arguments),
                (Some(part), Some(argument)) if part.starts_with('{') => arguments.push(argument),
                (Some(part), Some(argument)) if part == argument => {}
                _ => return None,
            }
        }
    }

    /// Whether a path leads to this route, regardless of the router.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        let allows_slashes = self.path.contains("{*");
        let has_slash = || {
            let argument = self.raw_path_argument(path);
            argument.is_some_and(|argument| argument.contains('/'))
        };
        self.matches(path) && (allows_slashes || !has_slash())
    }

    /// Whether a path that the router assigned to this route's mount has the form of this route.
    pub(crate) fn matches(&self, path: &str) -> bool {
        match self.around_parameter() {
            Some(_) => self.raw_path_argument(path).is_some_and(|argument| !argument.is_empty()),
            None => path == self.path,
        }
    }

    /// The path to register with the router, which allows nothing after a parameter that may contain
    /// slashes.
    pub(crate) fn router_path(&self) -> &'static str {
        match self.path.find("{*").and_then(|at| Some(at + self.path[at..].find('}')?)) {
            Some(end) => &self.path[..=end],
            None => self.path,
        }
    }
}
