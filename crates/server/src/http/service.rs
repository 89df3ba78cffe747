//! The door: what every request goes through, before and after its handler.
//!
//! In order: a request id, the `Host` and `Origin` rules, who is asking, the handler; then metrics,
//! the access log, and the headers that every answer has. A handler that panics costs one answer,
//! not the process.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::{Caller, Engine, Role};
use catena_store::embedded::EmbeddedStore;
use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::origin::{Mark, Origins};
use crate::http::request::Call;
use crate::http::response;
use crate::http::response_cache::Answers;
use crate::identity::authenticate::Identities;
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::mcp::Tools;
use crate::metrics::Metrics;
use crate::routes::{self, Access, Mount, Mounted, Route};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What all requests share.
pub(crate) struct Door {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) identities: Identities,
    pub(crate) origins: Origins,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) request_ids: RequestIds,
    /// Answers that were made lately.
    pub(crate) answers: Answers,
    /// What the venue calls itself.
    pub(crate) name: String,
    /// Where it is reached, when the operator said so.
    pub(crate) public_url: Option<String>,
    /// The venue's public key in multibase, as it stands in its DID document.
    pub(crate) public_key: String,
    pub(crate) body_bytes_max: usize,
    /// Whether a job's ID is enough to follow it.
    pub(crate) sse_by_job_id: bool,
    /// Whether anybody may read metrics.
    pub(crate) has_public_metrics: bool,
    /// Operations as MCP tools.
    pub(crate) mcp_tools: Tools,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
    /// The same for people.
    pub(crate) docs: Bytes,
}

/// The methods that a path takes, as `Allow` names them.
fn allowed(path: &str) -> String {
    let routes = routes::all().filter(|route| route.is_at(path));
    let mut methods: BTreeSet<&str> = routes.map(|route| route.method.as_str()).collect();
    if methods.contains("GET") {
        methods.insert("HEAD");
    }
    methods.into_iter().collect::<Vec<_>>().join(",")
}

/// What is known of a request while it is answered.
struct Visit {
    begun: Instant,
    request_id: HeaderValue,
    mark: Mark,
    /// For the access log, when there is one.
    line: Option<Box<(Method, String)>>,
}

impl Door {
    /// Serves a request to one of the routes that share a mount.
    pub(crate) async fn serve(self: Arc<Self>, mount: Arc<Mount>, request: Request) -> Response {
        let path = request.uri().path();
        match mount.routes.iter().find(|mounted| mounted.route.matches(path)) {
            Some(mounted) => self.serve_route(mounted, request).await,
            None => self.refuse(Code::MethodNotAllowed, request),
        }
    }

    async fn serve_route(self: Arc<Self>, mounted: &Mounted, request: Request) -> Response {
        let (route, number) = (mounted.route, mounted.number);
        let (head, body) = request.into_parts();
        let visit = self.begin(&head.method, head.uri.path(), &head.headers);
        let answered = match self.admit(route, &head.headers) {
            Ok((caller, is_bearer)) => {
                let door = Arc::clone(&self);
                let call = Call { door, caller, is_bearer, route, head, body: body.into() };
                answer_of(AssertUnwindSafe((route.handler)(call)).catch_unwind().await)
            }
            Err(error) => Err(error),
        };
        self.end(visit, number, answered.unwrap_or_else(ApiError::into_response))
    }

    /// Answers a request that no route is for: a preflight, or an error.
    pub(crate) fn refuse(&self, code: Code, request: Request) -> Response {
        let (method, path) = (request.method(), request.uri().path());
        let visit = self.begin(method, path, request.headers());
        let allowed = allowed(path);
        let answered = self.origins.check(request.headers()).map(|()| {
            if method == Method::OPTIONS {
                let mut response = response::empty(StatusCode::NO_CONTENT);
                Origins::mark_preflight(&mut response);
                return response;
            }
            let error = match code {
                Code::MethodNotAllowed => format!("{path} does not take {method}"),
                _ => format!("Endpoint {method} {path} not found"),
            };
            ApiError::new(code, error).into_response()
        });
        let mut response = answered.unwrap_or_else(ApiError::into_response);
        if !allowed.is_empty() {
            response::set(&mut response, header::ALLOW, allowed);
        }
        self.end(visit, self.metrics.unmatched(), response)
    }

    /// Who may go through to a route.
    fn admit(&self, route: &Route, headers: &HeaderMap) -> ApiResult<(Caller, bool)> {
        if route.access == Access::Probe {
            return Ok((self.identities.anonymous(), false));
        }
        self.origins.check(headers)?;
        let has_token = headers.contains_key(header::AUTHORIZATION);
        match route.access {
            Access::Probe | Access::Public => Ok((self.identities.anonymous(), false)),
            Access::JobId if self.sse_by_job_id && !has_token => {
                Ok((self.identities.anonymous(), true))
            }
            Access::Metrics if self.has_public_metrics => Ok((self.identities.anonymous(), false)),
            Access::Metrics => match self.identify(headers)? {
                caller if caller.role == Role::Admin => Ok((caller, false)),
                _ => Err(ApiError::new(Code::Forbidden, "this is for admins")),
            },
            Access::Caller | Access::JobId => Ok((self.identify(headers)?, false)),
        }
    }

    fn identify(&self, headers: &HeaderMap) -> ApiResult<Caller> {
        self.identities.identify(headers, self.engine.env().now())
    }

    fn begin(&self, method: &Method, path: &str, headers: &HeaderMap) -> Visit {
        let is_logged = tracing::enabled!(target: "catena::access", tracing::Level::DEBUG);
        Visit {
            begun: Instant::now(),
            request_id: self.request_ids.of(headers),
            mark: self.origins.mark(headers),
            line: is_logged.then(|| Box::new((method.clone(), path.to_owned()))),
        }
    }

    fn end(&self, visit: Visit, number: usize, mut response: Response) -> Response {
        let took = visit.begun.elapsed();
        let status = response.status();
        self.metrics.answered(number, status, took);
        if let Some(line) = visit.line {
            let (method, path) = *line;
            let request = visit.request_id.to_str().unwrap_or_default();
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(
                target: "catena::access",
                %method, path, status = status.as_u16(), micros, request, "answered"
            );
        }
        visit.mark.put(&mut response);
        response.headers_mut().insert(REQUEST_ID, visit.request_id);
        response
    }
}

fn answer_of(
    ended: Result<ApiResult<Response>, Box<dyn std::any::Any + Send>>,
) -> ApiResult<Response> {
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = text.unwrap_or("unknown"), "a handler panicked");
        Err(ApiError::new(Code::Internal, "internal error"))
    })
}

/// Gives every request an id: the client's own, or one that is unique to this process and request.
pub(crate) struct RequestIds {
    process: u32,
    last: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(random: [u8; 4]) -> Self {
        RequestIds { process: u32::from_be_bytes(random), last: AtomicU64::new(0) }
    }

    fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let is_usable = |value: &&HeaderValue| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&value.len())
                && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        match headers.get(REQUEST_ID).filter(is_usable) {
            Some(own) => own.clone(),
            None => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        // In a buffer of fixed size: every request has one.
        let (mut buffer, mut length) = ([0; 25], 0);
        let mut rest = &mut buffer[..];
        if write!(rest, "{:08x}-{number:x}", self.process).is_ok() {
            let left = rest.len();
            length = buffer.len() - left;
        }
        // Hex digits and a hyphen are always a header's value.
        HeaderValue::from_bytes(&buffer[..length]).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_the_id_it_came_with_unless_it_is_unusable() {
        let ids = RequestIds::new([0, 0, 0, 10]);
        let of = |id: &str| {
            let value = HeaderValue::from_str(id).unwrap();
            ids.of(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(of("abc-1"), "abc-1");
        assert_eq!(of("two words"), "0000000a-0");
        assert_eq!(of(&"a".repeat(REQUEST_ID_BYTES_MAX + 1)), "0000000a-1");
        assert_eq!(ids.of(&HeaderMap::new()), "0000000a-2");
    }

    #[test]
    fn a_panic_becomes_an_answer() {
        let error = answer_of(Err(Box::new("oh"))).unwrap_err();
        assert_eq!(
            (error.code(), error.status()),
            (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR)
        );
    }
}
