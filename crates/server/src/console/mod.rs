//! The web console: files that are built from `ui/` and embedded in the binary.
//!
//! The console is at `/` and its pages are under `/ui/`; every other path keeps its meaning. A client
//! that does not accept HTML, such as curl, gets the plain front page at `/`.

mod files;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::describe::page;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{Access, ROUTE, Reply, Route};
use files::FILES;

/// One file of the console.
struct File {
    /// The path below `/ui/`.
    path: &'static str,
    media_type: &'static str,
    etag: &'static str,
    bytes: &'static [u8],
    /// The same, compressed.
    gzip: &'static [u8],
}

/// The page that every path of the console starts with.
const PAGE: &str = "index.html";

/// The folder whose files have a hash of their content in the name and never change.
const HASHED: &str = "files/";

/// Scripts, styles and requests of the venue's own origin only; no script may be made from text, and the
/// one worker has a policy of its own.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
     connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
     require-trusted-types-for 'script'; trusted-types catena-worker",
);
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const VARY: HeaderValue = HeaderValue::from_static("accept, accept-encoding");
const REFERRER_POLICY: HeaderName = header::REFERRER_POLICY;

const HTML: &[Reply] =
    &[Reply { status: 200, about: "A page.", body: Some(("text/html", r#"{"type":"string"}"#)) }];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/",
        tag: "Documents",
        summary: "The web console",
        about: "A client that does not accept `text/html` gets the plain front page.",
        access: Access::Public,
        replies: HTML,
        handler: |request| Box::pin(front(request)),
        ..ROUTE
    },
    Route {
        path: "/ui/",
        tag: "Documents",
        summary: "The web console (alternative path)",
        access: Access::Public,
        replies: HTML,
        handler: |request| Box::pin(start(request)),
        ..ROUTE
    },
    Route {
        path: "/ui/{*path}",
        path_parameter: "A page or a file of the console.",
        tag: "Documents",
        summary: "A page or a file of the web console",
        access: Access::Public,
        replies: HTML,
        errors: &[Code::EndpointNotFound],
        handler: |request| Box::pin(serve(request)),
        ..ROUTE
    },
];

async fn front(request: ApiRequest) -> ApiResult<Response> {
    let accept = request.header(&header::ACCEPT).unwrap_or_default();
    if accept.contains("text/html") {
        return file_response(&request, find(PAGE));
    }
    let state = &request.state;
    let text = page::front(&state.name, state.engine.did(), &request.base_url());
    let mut response = page::response(text);
    response.headers_mut().insert(header::VARY, VARY);
    Ok(response)
}

async fn start(request: ApiRequest) -> ApiResult<Response> {
    file_response(&request, find(PAGE))
}

async fn serve(request: ApiRequest) -> ApiResult<Response> {
    let path = request.path_argument()?;
    let file = match find(&path) {
        // A file that is missing is an error; any other path is a page, which the script draws.
        None if path.starts_with(HASHED) => None,
        None => find(PAGE),
        found => found,
    };
    file_response(&request, file)
}

fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

fn file_response(request: &ApiRequest, file: Option<&'static File>) -> ApiResult<Response> {
    let Some(file) = file else {
        let path = request.head.uri.path();
        let error = format!("Endpoint {} {path} not found", request.head.method);
        return Err(ApiError::new(Code::EndpointNotFound, error));
    };
    let mut response = if request.matches_etag(file.etag) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        let is_compressed = accepts_gzip(request.header(&header::ACCEPT_ENCODING));
        let bytes = Bytes::from_static(if is_compressed { file.gzip } else { file.bytes });
        let media_type = HeaderValue::from_static(file.media_type);
        let mut response = response::with_type(StatusCode::OK, media_type, Body::from(bytes));
        if is_compressed {
            response.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
        }
        response
    };
    let headers = response.headers_mut();
    let caching = if file.path.starts_with(HASHED) { IMMUTABLE } else { REVALIDATE };
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::ETAG, HeaderValue::from_static(file.etag));
    headers.insert(header::VARY, VARY);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    headers.insert(REFERRER_POLICY, NO_REFERRER);
    Ok(response)
}

/// Whether a client accepts gzip: the coding is named and not refused with `q=0`.
fn accepts_gzip(accepted: Option<&str>) -> bool {
    accepted.unwrap_or_default().split(',').any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.trim().strip_prefix("q=");
        let is_refused = weight.is_some_and(|weight| weight.trim().parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for accepted in ["gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.5"] {
            assert!(accepts_gzip(Some(accepted)), "{accepted}");
        }
        for refused in ["", "br", "gzip;q=0", "identity"] {
            assert!(!accepts_gzip(Some(refused)), "{refused}");
        }
        assert!(!accepts_gzip(None));
    }

    #[test]
    fn the_first_load_is_less_than_200_kb() {
        let is_initial = |file: &&File| !file.path.contains("worker");
        let bytes: usize = FILES.iter().filter(is_initial).map(|file| file.gzip.len()).sum();
        assert!(bytes < 200_000, "{bytes}");
    }

    #[test]
    fn the_page_names_only_files_that_exist() {
        let page = find(PAGE).map(|file| String::from_utf8_lossy(file.bytes)).unwrap_or_default();
        let named: Vec<&str> =
            page.split('"').filter_map(|part| part.strip_prefix("/ui/")).collect();
        assert!(named.len() >= 3, "{page}");
        for path in named {
            assert!(find(path).is_some(), "{path}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    }
}
