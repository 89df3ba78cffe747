//! What every request goes through before and after its handler.
//!
//! In order: a request ID, the `Host` and `Origin` rules, authentication, the handler; then metrics,
//! the access log, and the headers that every response has. A handler that panics costs one
//! response, not the process.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use catena_engine::{Caller, Role};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::origin::{CorsHeaders, OriginPolicy};
use crate::http::request::ApiRequest;
use crate::http::request_id::REQUEST_ID;
use crate::http::response;
use crate::http::route::{Access, Route};
use crate::http::router::{Mount, MountedRoute, mounts};
use crate::http::state::ServerState;

/// Serves the requests of all connections.
pub(crate) struct Service {
    state: Arc<ServerState>,
    /// The routes that are mounted.
    routes: Vec<&'static Route>,
}

/// What is known about a request until its response is complete.
struct RequestTrace {
    started: Instant,
    request_id: HeaderValue,
    cors: CorsHeaders,
    /// Method and path, if the access log is enabled.
    line: Option<Box<(Method, String)>>,
}

impl Service {
    /// The router that serves these routes.
    pub(crate) fn router(
        state: Arc<ServerState>,
        routes: impl Iterator<Item = &'static Route> + Clone,
    ) -> Router {
        let service = Arc::new(Service { state, routes: routes.clone().collect() });
        let mut router = Router::new();
        for mount in mounts(routes) {
            let Ok(filter) = MethodFilter::try_from(mount.method.clone()) else { continue };
            let service = Arc::clone(&service);
            let mount = Arc::new(mount);
            let path = mount.path;
            let serve = move |request: Request| {
                let service = Arc::clone(&service);
                let mount = Arc::clone(&mount);
                async move { service.serve(&mount, request).await }
            };
            router = router.route(path, on(filter, serve));
        }
        let refuse = |code: Code| {
            let service = Arc::clone(&service);
            move |request: Request| std::future::ready(service.refuse(code, request))
        };
        router
            .method_not_allowed_fallback(refuse(Code::MethodNotAllowed))
            .fallback(refuse(Code::EndpointNotFound))
    }

    /// Serves a request to one of the routes that share a mount.
    async fn serve(&self, mount: &Mount, request: Request) -> Response {
        let path = request.uri().path();
        match mount.routes.iter().find(|mounted| mounted.route.matches(path)) {
            Some(mounted) => self.serve_route(mounted, request).await,
            None => self.refuse(Code::MethodNotAllowed, request),
        }
    }

    async fn serve_route(&self, mounted: &MountedRoute, request: Request) -> Response {
        let route = mounted.route;
        let (head, body) = request.into_parts();
        let trace = self.begin(&head.method, head.uri.path(), &head.headers);
        let result = match self.admit(route, &head.headers) {
            Ok((caller, is_job_id_bearer)) => {
                let state = Arc::clone(&self.state);
                let body = body.into();
                let request = ApiRequest { state, caller, is_job_id_bearer, route, head, body };
                flatten_panic(AssertUnwindSafe((route.handler)(request)).catch_unwind().await)
            }
            Err(error) => Err(error),
        };
        self.finish(trace, mounted.number, result.unwrap_or_else(ApiError::into_response))
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
            ApiError::new(code, error).into_response()
        });
        let mut response = result.unwrap_or_else(ApiError::into_response);
        let allowed = self.allowed_methods(path);
        if !allowed.is_empty() {
            response::set_header(&mut response, header::ALLOW, allowed);
        }
        self.finish(trace, self.state.metrics.unmatched(), response)
    }

    /// The methods that a path supports, in the form of the `Allow` header.
    fn allowed_methods(&self, path: &str) -> String {
        let routes = self.routes.iter().filter(|route| route.is_at(path));
        let mut methods: BTreeSet<&str> = routes.map(|route| route.method.as_str()).collect();
        if methods.contains("GET") {
            methods.insert("HEAD");
        }
        methods.into_iter().collect::<Vec<_>>().join(",")
    }

    /// The caller, if it may use the route, and whether the job's ID is all that authorises it.
    fn admit(&self, route: &Route, headers: &HeaderMap) -> ApiResult<(Caller, bool)> {
        let state = &self.state;
        let anonymous = || state.authenticator.anonymous();
        if route.access == Access::Probe {
            return Ok((anonymous(), false));
        }
        state.origins.check(headers)?;
        let has_token = headers.contains_key(header::AUTHORIZATION);
        match route.access {
            Access::Probe | Access::Public => Ok((anonymous(), false)),
            Access::JobId if state.sse_by_job_id && !has_token => Ok((anonymous(), true)),
            Access::Metrics if state.has_public_metrics => Ok((anonymous(), false)),
            Access::Metrics => match self.authenticate(headers)? {
                caller if caller.role == Role::Admin => Ok((caller, false)),
                _ => Err(ApiError::new(Code::Forbidden, "admin access required")),
            },
            Access::Caller | Access::JobId => Ok((self.authenticate(headers)?, false)),
        }
    }

    fn authenticate(&self, headers: &HeaderMap) -> ApiResult<Caller> {
        let now = self.state.engine.env().now();
        Ok(self.state.authenticator.authenticate(headers, now)?)
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
