//! What every request goes through before and after its handler.
//!
//! In order: a request ID, the `Host` and `Origin` rules, authentication, the handler; then metrics,
//! the access log, and the headers that every response has. A handler that panics costs one
//! response, not the process.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::Role;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::http::compress::{self, Compressible};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::origin::{CorsHeaders, OriginPolicy};
use crate::http::request::{ApiRequest, ContentBytes};
use crate::http::request_id::REQUEST_ID;
use crate::http::response;
use crate::http::route::{Access, Route};
use crate::http::router::{MountedRoute, Router};
use crate::http::state::ServerState;
use crate::http::{memory, rate, stream_end};
use crate::identity::authenticate::{Admission, AuthError, Authenticated};

/// Responds to requests.
pub(crate) trait Respond: Send + Sync + 'static {
    fn respond(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// Serves the requests of all connections.
pub(crate) struct Service {
    state: Arc<ServerState>,
    router: Router,
}

/// What is known about a request until its response is complete.
struct RequestTrace {
    started: Instant,
    request_id: HeaderValue,
    cors: CorsHeaders,
    /// Method and path, if the access log is enabled.
    line: Option<Box<(Method, String)>>,
}

impl Respond for Service {
    async fn respond(&self, request: Request) -> Response {
        let is_head = request.method() == Method::HEAD;
        let mut response = match self.router.find(request.method(), request.uri().path()) {
            Ok(mounted) => self.serve_route(mounted, request).await,
            Err(code) => self.refuse(code, request),
        };
        if is_head {
            let bytes = response.body().size_hint().exact();
            if let Some(bytes) =
                bytes.filter(|_| !response.headers().contains_key(header::CONTENT_LENGTH))
            {
                response.headers_mut().insert(header::CONTENT_LENGTH, bytes.into());
            }
            *response.body_mut() = Body::empty();
        }
        response
    }
}

impl Service {
    /// Serves these routes.
    pub(crate) fn new(
        state: Arc<ServerState>,
        routes: impl Iterator<Item = &'static Route>,
    ) -> Self {
        Service { state, router: Router::new(routes) }
    }

    async fn serve_route(&self, mounted: &MountedRoute, request: Request) -> Response {
        let route = mounted.route;
        let (head, body) = request.into_parts();
        let trace = self.begin(&head.method, head.uri.path(), &head.headers);
        let compressible = compress::for_request(route, &head.headers);
        let admitted = match self.admit(route, &head.headers) {
            Ok(admitted) if needs_delegation(route, &admitted.0) => {
                // Boxed, because this is rare and would make the future of every request larger.
                Box::pin(self.admit_delegated(route, head.uri.path(), admitted)).await
            }
            admitted => admitted,
        };
        let admitted = admitted.and_then(|found| refuse_worker(route, &found.0).map(|()| found));
        let result = match admitted {
            Ok((Authenticated { caller, admission, subject }, is_job_id_bearer)) => {
                if caller.role == Role::Admin && route.method != Method::GET {
                    let (did, method, path) = (&*caller.did, &route.method, head.uri.path());
                    tracing::info!(target: "catena::audit", did, %method, path, "an admin's request");
                }
                let state = Arc::clone(&self.state);
                let body = body.into();
                let response_memory = state.engine.reserve_memory(&caller);
                let memory = response_memory.open_another();
                let response_memory = Arc::new(Mutex::new(response_memory));
                let request = ApiRequest {
                    state,
                    caller,
                    admission,
                    is_job_id_bearer,
                    route,
                    head,
                    body,
                    memory,
                    content_bytes: ContentBytes::default(),
                };
                let handling = memory::counting(&response_memory, (route.handler)(request));
                let handling = AssertUnwindSafe(handling).catch_unwind();
                let is_public = matches!(route.access, Access::Probe | Access::Public);
                let mut response = flatten_panic(handling.await);
                if compressible != Compressible::No
                    && let Ok(plain) = response
                {
                    // Boxed, because it would make the future of every request larger.
                    response = Ok(Box::pin(compress::compress(plain, compressible)).await);
                }
                match response {
                    Ok(response) if !is_public && stream_end::is_stream(&response) => {
                        Ok(stream_end::end_with(response, Arc::clone(&self.state), subject))
                    }
                    Ok(response) => Ok(rate::in_chunks(response, response_memory)),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let response = result.unwrap_or_else(|error| error.into_response_for(route.path));
        self.finish(trace, mounted.number, response)
    }

    /// Responds to a request that no route matches: with a preflight response or an error.
    fn refuse(&self, code: Code, request: Request) -> Response {
        let method = request.method();
        let path = request.uri().path();
        let trace = self.begin(method, path, request.headers());
        let result = self.state.origins.check(request.headers()).map(|()| {
            if method == Method::OPTIONS {
                let mut response = response::empty(StatusCode::NO_CONTENT);
                OriginPolicy::add_preflight_headers(&mut response);
                return response;
            }
            let error = match code {
                Code::MethodNotAllowed => format!("{path} does not support {method}"),
                _ => format!("Endpoint {method} {path} not found"),
            };
            ApiError::new(code, error).into_response_for(path)
        });
        let mut response = result.unwrap_or_else(|error| error.into_response_for(path));
        let allowed = self.router.allowed_methods(path);
        if !allowed.is_empty() {
            response::set_header(&mut response, header::ALLOW, allowed);
        }
        self.finish(trace, self.state.metrics.unmatched(), response)
    }

    /// The caller, if it may use the route, and whether the job's ID is all that authorises it.
    fn admit(&self, route: &Route, headers: &HeaderMap) -> ApiResult<(Authenticated, bool)> {
        let state = &self.state;
        let public = || state.authenticator.public();
        if route.access == Access::Probe {
            return Ok((public(), false));
        }
        state.origins.check(headers)?;
        let has_token = headers.contains_key(header::AUTHORIZATION);
        match route.access {
            Access::Probe | Access::Public => Ok((public(), false)),
            Access::Status => {
                let now = state.engine.env().now();
                let is_own_url = |url: &str| state.origins.is_own_url(url, headers);
                let found = state.authenticator.authenticate_first(headers, is_own_url, now);
                Ok((found.map_err(|error| refuse_identity(&error, route))?, false))
            }
            Access::JobId if state.sse_by_job_id && !has_token => {
                Ok((Authenticated { admission: Admission::Admitted, ..public() }, true))
            }
            Access::Metrics if state.has_public_metrics => Ok((public(), false)),
            Access::Metrics => match self.authenticate(route, headers)? {
                found if found.caller.role == Role::Admin => Ok((found, false)),
                _ => Err(ApiError::new(Code::Forbidden, "admin access required")),
            },
            Access::Caller | Access::Delegated | Access::JobId => {
                Ok((self.authenticate(route, headers)?, false))
            }
        }
    }

    fn authenticate(&self, route: &Route, headers: &HeaderMap) -> ApiResult<Authenticated> {
        let now = self.state.engine.env().now();
        let is_own_url = |url: &str| self.state.origins.is_own_url(url, headers);
        let found = self.state.authenticator.authenticate(headers, is_own_url, now);
        found.map_err(|error| refuse_identity(&error, route))
    }

    /// Refuses an identity that is not on the access list, except for a job that it started under the
    /// delegation of one that is.
    async fn admit_delegated(
        &self,
        route: &Route,
        path: &str,
        (found, is_job_id_bearer): (Authenticated, bool),
    ) -> ApiResult<(Authenticated, bool)> {
        let job = route.raw_path_argument(path).filter(|_| route.path.starts_with(JOB_PATHS));
        if let Some(job) = job.and_then(|job| job.parse().ok())
            && let Ok(view) = self.state.engine.job(&found.caller, job).await
            && let Some(owner) = view.job.field("caller").and_then(|owner| owner.to_text())
            && let Some(user) = found.caller.user_of_scoped(&owner)
            && self.state.authenticator.is_listed(user, Role::Known)
        {
            return Ok((
                Authenticated { admission: Admission::Admitted, ..found },
                is_job_id_bearer,
            ));
        }
        Err(refuse_identity(&AuthError::NotListed(found.caller.did.to_string()), route))
    }

    fn begin(&self, method: &Method, path: &str, headers: &HeaderMap) -> RequestTrace {
        let is_logged = tracing::enabled!(target: "catena::access", tracing::Level::DEBUG);
        RequestTrace {
            started: Instant::now(),
            request_id: self.state.request_ids.for_request(headers),
            cors: self.state.origins.cors_headers(headers),
            line: is_logged.then(|| Box::new((method.clone(), path.to_owned()))),
        }
    }

    fn finish(&self, trace: RequestTrace, number: usize, mut response: Response) -> Response {
        let took = trace.started.elapsed();
        let status = response.status();
        self.state.metrics.record_response(number, status, took);
        if let Some(line) = trace.line {
            let (method, path) = *line;
            let request = trace.request_id.to_str().unwrap_or_default();
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(
                target: "catena::access",
                %method, path, status = status.as_u16(), micros, request, "request completed"
            );
        }
        trace.cors.add_to(&mut response);
        response.headers_mut().insert(REQUEST_ID, trace.request_id);
        response
    }
}

/// Whether an identity that is not on the access list needs a reason to be admitted. Where
/// delegations can be presented, they are checked later.
fn needs_delegation(route: &Route, found: &Authenticated) -> bool {
    found.admission == Admission::NeedsDelegation
        && !matches!(route.access, Access::Delegated | Access::Status)
}

/// The routes of workers.
const WORKER_PATHS: &str = "/worker/v1/";

/// The routes of executors, which check that the caller is one.
const EXECUTOR_PATHS: &str = "/contract/v1/executor/";

/// The routes about one job, which a venue uses to watch a job that it started for a user.
const JOB_PATHS: &str = "/api/v1/jobs/{";

/// Refuses a token for workers on all routes but those of workers and those that are public.
fn refuse_worker(route: &Route, found: &Authenticated) -> ApiResult<()> {
    let is_open = matches!(route.access, Access::Probe | Access::Public | Access::Status);
    let is_for_workers =
        route.path.starts_with(WORKER_PATHS) || route.path.starts_with(EXECUTOR_PATHS);
    if found.caller.queues.is_none() || is_open || is_for_workers {
        return Ok(());
    }
    let text = "the token is for workers: it can claim and end jobs, and nothing else";
    Err(ApiError::new(Code::Forbidden, text))
}

/// The response to a request whose identity was refused, which is logged.
fn refuse_identity(error: &AuthError, route: &Route) -> ApiError {
    let reason = error.to_string();
    tracing::info!(
        target: "catena::audit", method = %route.method, route = route.path, reason,
        "refused an identity"
    );
    error.clone().into()
}

/// Turns a handler's panic into an error response.
fn flatten_panic(result: Result<ApiResult<Response>, Box<dyn Any + Send>>) -> ApiResult<Response> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = text.unwrap_or("unknown"), "a request handler panicked");
        Err(ApiError::new(Code::Internal, "internal error"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_response() {
        let error = flatten_panic(Err(Box::new("oh"))).unwrap_err();
        assert_eq!(
            (error.code(), error.status()),
            (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR)
        );
    }
}
