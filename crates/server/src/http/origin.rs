//! Which `Host` and `Origin` are accepted, and the CORS headers of responses.
//!
//! While anonymous access is on, every client that reaches the port is accepted. A page on another
//! site can make a browser send requests, through a name that resolves to this machine (then `Host`
//! is foreign) or directly (then `Origin` is). Both are refused. If every request needs a token,
//! neither matters, because no such page has one. `Access-Control-Allow-Private-Network` is never
//! sent.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use crate::http::error::{ApiError, ApiResult, Code};

const ALLOW_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE, OPTIONS");
const ALLOW_HEADERS: HeaderValue = HeaderValue::from_static(
    "content-type, authorization, x-covia-user, idempotency-key, prefer, if-none-match, \
     last-event-id, x-request-id, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id",
);
const EXPOSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "location, etag, retry-after, ratelimit, ratelimit-policy, idempotent-replayed, \
     preference-applied, catena-warnings, x-request-id, mcp-session-id",
);
/// How long a browser may cache the response to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Which hosts and origins are accepted.
#[derive(Debug, Clone)]
pub(crate) struct OriginPolicy {
    /// Whether foreign hosts and origins are refused.
    pub(crate) is_guarded: bool,
    /// The address that the server listens on.
    pub(crate) bound: SocketAddr,
    /// Host names of this venue, in lower case, with or without a port.
    pub(crate) hostnames: Vec<String>,
    /// Origins of web pages that may send requests; `*` allows all.
    pub(crate) allowed: Vec<String>,
    /// The URL under which clients reach the venue, if the operator configured one.
    pub(crate) public_url: Option<String>,
    /// `https` if the venue serves TLS itself, otherwise `http`.
    pub(crate) scheme: &'static str,
}

impl OriginPolicy {
    /// Refuses a request with a foreign `Host` or `Origin`.
    pub(crate) fn check(&self, headers: &HeaderMap) -> ApiResult<()> {
        if !self.is_guarded {
            return Ok(());
        }
        let host = text(headers, &header::HOST).unwrap_or_default();
        // With two names it is unclear which one is meant.
        let has_one_host = headers.get_all(header::HOST).iter().nth(1).is_none();
        if !has_one_host || !self.is_own_host(host) {
            let error = format!("the host {host:?} is not one of this venue's names");
            return Err(ApiError::new(Code::ForeignHost, error));
        }
        match text(headers, &header::ORIGIN) {
            Some(origin) if !self.is_allowed(origin, host) => {
                let error = format!("pages of {origin} are not allowed to use this venue");
                Err(ApiError::new(Code::ForeignOrigin, error))
            }
            _ => Ok(()),
        }
    }

    /// Whether a URL is the one under which the venue was reached with these headers: its public URL,
    /// or the name in `Host` if that is a name of the venue. A proxy may have terminated TLS, so the
    /// scheme of the latter does not matter.
    pub(crate) fn is_own_url(&self, url: &str, headers: &HeaderMap) -> bool {
        let Some(authority) = authority(url) else { return false };
        if self.public_url.as_deref().and_then(authority_of) == Some(authority.clone()) {
            return true;
        }
        let host = text(headers, &header::HOST).unwrap_or_default();
        let scheme = url.split_once("://").map_or("http", |(scheme, _)| scheme);
        self.is_own_host(host) && authority_of(&format!("{scheme}://{host}")) == Some(authority)
    }

    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        // It is almost always in lower case already.
        let host = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(host.to_ascii_lowercase())
        } else {
            Cow::Borrowed(host)
        };
        let (name, port) = split_port(&host);
        let is_configured = |own: &String| *own == host || own == name;
        if self.hostnames.iter().any(is_configured) {
            return true;
        }
        let is_bound_port = port.map_or(self.bound.port() == 80, |port| port == self.bound.port());
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_bound_address = match (self.bound.ip(), address) {
            // Bound to every address: any literal address is accepted, because a foreign name that
            // resolves to this machine is never a literal address.
            (bound, Some(_)) if bound.is_unspecified() => true,
            (bound, Some(address)) => {
                bound == address || (bound.is_loopback() && address.is_loopback())
            }
            (bound, None) => name == "localhost" && (bound.is_loopback() || bound.is_unspecified()),
        };
        is_bound_port && is_bound_address
    }

    /// Whether pages of this origin may send requests: the venue's own and the configured ones.
    fn is_allowed(&self, origin: &str, host: &str) -> bool {
        self.is_configured(origin) || is_same_origin(origin, host)
    }

    fn is_configured(&self, origin: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// The CORS headers of the response to a request with these headers.
    pub(crate) fn cors_headers(&self, headers: &HeaderMap) -> CorsHeaders {
        let Some(origin) = headers.get(header::ORIGIN) else { return CorsHeaders::None };
        let host = text(headers, &header::HOST).unwrap_or_default();
        if origin.to_str().is_ok_and(|origin| self.is_allowed(origin, host)) {
            CorsHeaders::Allow(origin.clone())
        } else {
            CorsHeaders::Deny
        }
    }

    /// Adds the headers of the response to a preflight request.
    pub(crate) fn add_preflight_headers(response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOW_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
}

/// The headers that tell a browser whether the page may read the response.
#[derive(Debug, Clone)]
pub(crate) enum CorsHeaders {
    /// The request does not come from a web page.
    None,
    /// The page may not read the response.
    Deny,
    /// Pages of this origin may read the response.
    Allow(HeaderValue),
}

impl CorsHeaders {
    pub(crate) fn add_to(self, response: &mut Response) {
        let headers = response.headers_mut();
        match self {
            CorsHeaders::None => return,
            CorsHeaders::Deny => {}
            CorsHeaders::Allow(origin) => {
                headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSE_HEADERS);
            }
        }
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

/// Host and port of the URL of a venue in lower case, without the port that its scheme implies. `None`
/// if it is no such URL.
fn authority(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_base = matches!(path.trim_end_matches('/'), "" | "api/v1");
    if !is_base || authority.is_empty() || authority.contains(['@', '?', '#']) {
        return None;
    }
    let authority = authority.to_ascii_lowercase();
    let implied = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    Some(authority.strip_suffix(implied).unwrap_or(&authority).to_owned())
}

/// The same for a configured URL, whose path does not matter.
fn authority_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    authority(&format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Splits a host into its name and its port, if it has one. IPv6 addresses keep their brackets.
fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && !port.is_empty() => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (host, None),
        },
        _ => (host, None),
    }
}

/// Whether an origin is that of a page served under this host.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let name = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::response;
    use axum::http::StatusCode;

    fn policy(bound: &str) -> OriginPolicy {
        OriginPolicy {
            is_guarded: true,
            bound: bound.parse().unwrap(),
            hostnames: vec!["venue.example".to_owned(), "other.example:9000".to_owned()],
            allowed: vec!["https://app.example".to_owned()],
            public_url: Some("https://public.example/base".to_owned()),
            scheme: "http",
        }
    }

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let value = |text| HeaderValue::from_str(text).unwrap();
        let mut headers = HeaderMap::from_iter([(header::HOST, value(host))]);
        headers.extend(origin.map(|origin| (header::ORIGIN, value(origin))));
        headers
    }

    #[track_caller]
    fn check(bound: &str, host: &str, origin: Option<&str>, expected: Option<Code>) {
        let found = policy(bound).check(&headers(host, origin)).err().map(|error| error.code());
        assert_eq!(found, expected, "{host} {origin:?} at {bound}");
    }

    #[test]
    fn loopback_accepts_its_own_names_and_port() {
        for host in ["localhost:8787", "LOCALHOST:8787", "127.0.0.1:8787", "[::1]:8787"] {
            check("127.0.0.1:8787", host, None, None);
        }
        for host in ["localhost", "localhost:80", "127.0.0.1", "evil.example:8787", "", "[::1"] {
            check("127.0.0.1:8787", host, None, Some(Code::ForeignHost));
        }
        check("127.0.0.1:80", "localhost", None, None);
        check("127.0.0.1:8787", "192.168.1.5:8787", None, Some(Code::ForeignHost));
    }

    #[test]
    fn a_request_with_two_names_is_refused() {
        let mut two = headers("localhost:8787", None);
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        let refused = policy("127.0.0.1:8787").check(&two);
        assert_eq!(refused.err().map(|error| error.code()), Some(Code::ForeignHost));
    }

    #[test]
    fn configured_names_are_accepted_on_every_port_unless_they_have_one() {
        check("127.0.0.1:8787", "venue.example", None, None);
        check("127.0.0.1:8787", "Venue.Example:443", None, None);
        check("127.0.0.1:8787", "other.example:9000", None, None);
        check("127.0.0.1:8787", "other.example", None, Some(Code::ForeignHost));
        check("127.0.0.1:8787", "venue.example.evil", None, Some(Code::ForeignHost));
    }

    #[test]
    fn bound_to_every_address_any_literal_address_is_accepted() {
        check("0.0.0.0:8787", "192.168.1.5:8787", None, None);
        check("0.0.0.0:8787", "localhost:8787", None, None);
        check("0.0.0.0:8787", "evil.example:8787", None, Some(Code::ForeignHost));
        check("192.168.1.5:8787", "192.168.1.5:8787", None, None);
        check("192.168.1.5:8787", "localhost:8787", None, Some(Code::ForeignHost));
    }

    #[test]
    fn a_url_of_the_venue_is_the_public_one_or_the_one_that_was_used() {
        let policy = policy("127.0.0.1:8787");
        let is_own = |url: &str, host: &str| policy.is_own_url(url, &headers(host, None));
        assert!(is_own("http://127.0.0.1:8787", "127.0.0.1:8787"));
        assert!(is_own("http://127.0.0.1:8787/api/v1/", "127.0.0.1:8787"));
        assert!(is_own("https://Venue.example:443", "venue.example"));
        assert!(is_own("https://public.example", "127.0.0.1:8787"));
        assert!(!is_own("http://127.0.0.1:8787", "localhost:8787"), "not the name that was used");
        assert!(!is_own("http://evil.example", "evil.example"), "not a name of the venue");
        assert!(!is_own("http://127.0.0.1:8787/other", "127.0.0.1:8787"));
        assert!(!is_own("http://evil@127.0.0.1:8787", "127.0.0.1:8787"));
        assert!(!is_own("did:web:venue.example", "venue.example"));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = "127.0.0.1:8787";
        check(host, host, Some("http://127.0.0.1:8787"), None);
        check(host, host, Some("https://app.example"), None);
        for origin in ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1"]
        {
            check(host, host, Some(origin), Some(Code::ForeignOrigin));
        }
    }

    #[test]
    fn with_tokens_only_nothing_is_refused_but_the_cors_headers_are_the_same() {
        let open = OriginPolicy { is_guarded: false, ..policy("127.0.0.1:8787") };
        let request = headers("evil.example", Some("https://evil.example:1"));
        assert!(open.check(&request).is_ok());
        let mut response = response::empty(StatusCode::OK);
        open.cors_headers(&request).add_to(&mut response);
        assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        assert_eq!(response.headers()[header::VARY], "origin");
        let request = headers("venue.example", Some("https://app.example"));
        let mut response = response::empty(StatusCode::OK);
        open.cors_headers(&request).add_to(&mut response);
        let cors = response.headers();
        assert_eq!(cors[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert!(!cors.contains_key("access-control-allow-private-network"));
    }
}
