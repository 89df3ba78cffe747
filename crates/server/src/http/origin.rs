//! Which `Host` and `Origin` may ask, and what is said to browsers about it.
//!
//! While anonymous access is on, whoever reaches the port may ask. A page on another site can make
//! a browser do so, by a name that resolves to this machine (then `Host` is foreign) or directly
//! (then `Origin` is). Both are refused. With tokens only, neither matters: no page has the token.
//! `Access-Control-Allow-Private-Network` is never sent.

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
     preference-applied, x-request-id",
);
/// How long a browser may remember the answer to a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// What the venue answers to, and whom.
#[derive(Debug, Clone)]
pub(crate) struct Origins {
    /// Whether foreign hosts and origins are refused.
    pub(crate) is_guarded: bool,
    /// The address that was bound.
    pub(crate) bound: SocketAddr,
    /// Names of this venue, in lower case, with or without a port.
    pub(crate) hostnames: Vec<String>,
    /// Origins of pages that may ask from a browser; `*` for all.
    pub(crate) allowed: Vec<String>,
}

impl Origins {
    /// Refuses a request that names somebody else.
    pub(crate) fn check(&self, headers: &HeaderMap) -> ApiResult<()> {
        if !self.is_guarded {
            return Ok(());
        }
        let host = text(headers, &header::HOST).unwrap_or_default();
        // Of two names it is not known which one was meant.
        let is_one = headers.get_all(header::HOST).iter().nth(1).is_none();
        if !is_one || !self.is_own_host(host) {
            let error = format!("this venue does not answer to the host {host:?}");
            return Err(ApiError::new(Code::ForeignHost, error));
        }
        match text(headers, &header::ORIGIN) {
            Some(origin) if !self.is_allowed(origin, host) => {
                let error = format!("pages of {origin} may not ask this venue");
                Err(ApiError::new(Code::ForeignOrigin, error))
            }
            _ => Ok(()),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        // Nearly always it is in lower case already.
        let host = match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        let (name, port) = split_port(&host);
        let is_configured = |own: &String| *own == host || own == name;
        if self.hostnames.iter().any(is_configured) {
            return true;
        }
        let is_bound_port = port.map_or(self.bound.port() == 80, |port| port == self.bound.port());
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_bound_address = match (self.bound.ip(), address) {
            // Bound to every address: any literal address of this machine will do, since a name
            // that was pointed here by somebody else is never a literal.
            (bound, Some(_)) if bound.is_unspecified() => true,
            (bound, Some(address)) => {
                bound == address || (bound.is_loopback() && address.is_loopback())
            }
            (bound, None) => name == "localhost" && (bound.is_loopback() || bound.is_unspecified()),
        };
        is_bound_port && is_bound_address
    }

    /// Whether pages of this origin may ask: the venue's own, and those that were configured.
    fn is_allowed(&self, origin: &str, host: &str) -> bool {
        self.is_configured(origin) || is_same(origin, host)
    }

    fn is_configured(&self, origin: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// What to tell a browser about whether the page may see the answer.
    pub(crate) fn mark(&self, headers: &HeaderMap) -> Mark {
        let Some(origin) = headers.get(header::ORIGIN) else { return Mark::Nothing };
        let host = text(headers, &header::HOST).unwrap_or_default();
        match origin.to_str().is_ok_and(|origin| self.is_allowed(origin, host)) {
            true => Mark::Allowed(origin.clone()),
            false => Mark::Foreign,
        }
    }

    /// Completes the answer to a preflight.
    pub(crate) fn mark_preflight(response: &mut Response) {
        let marks = response.headers_mut();
        marks.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOW_METHODS);
        marks.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS);
        marks.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
}

/// What a browser is told about whether the page may see the answer.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    /// No page asked.
    Nothing,
    /// It may not.
    Foreign,
    /// It may.
    Allowed(HeaderValue),
}

impl Mark {
    /// Tells it.
    pub(crate) fn put(self, response: &mut Response) {
        let marks = response.headers_mut();
        match self {
            Mark::Nothing => return,
            Mark::Foreign => {}
            Mark::Allowed(origin) => {
                marks.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                marks.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSE_HEADERS);
            }
        }
        marks.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// A host and its port, if it says one. IPv6 addresses keep their brackets.
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
fn is_same(origin: &str, host: &str) -> bool {
    let name = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(bound: &str) -> Origins {
        Origins {
            is_guarded: true,
            bound: bound.parse().unwrap(),
            hostnames: vec!["venue.example".to_owned(), "other.example:9000".to_owned()],
            allowed: vec!["https://app.example".to_owned()],
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
        let found = origins(bound).check(&headers(host, origin)).err().map(|error| error.code());
        assert_eq!(found, expected, "{host} {origin:?} at {bound}");
    }

    #[test]
    fn loopback_answers_to_its_own_names_and_port() {
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
        let refused = origins("127.0.0.1:8787").check(&two);
        assert_eq!(refused.err().map(|error| error.code()), Some(Code::ForeignHost));
    }

    #[test]
    fn configured_names_are_answered_on_every_port_unless_they_say_one() {
        check("127.0.0.1:8787", "venue.example", None, None);
        check("127.0.0.1:8787", "Venue.Example:443", None, None);
        check("127.0.0.1:8787", "other.example:9000", None, None);
        check("127.0.0.1:8787", "other.example", None, Some(Code::ForeignHost));
        check("127.0.0.1:8787", "venue.example.evil", None, Some(Code::ForeignHost));
    }

    #[test]
    fn bound_to_every_address_any_literal_address_will_do() {
        check("0.0.0.0:8787", "192.168.1.5:8787", None, None);
        check("0.0.0.0:8787", "localhost:8787", None, None);
        check("0.0.0.0:8787", "evil.example:8787", None, Some(Code::ForeignHost));
        check("192.168.1.5:8787", "192.168.1.5:8787", None, None);
        check("192.168.1.5:8787", "localhost:8787", None, Some(Code::ForeignHost));
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
    fn with_tokens_only_nothing_is_refused_but_browsers_are_told_the_same() {
        let open = Origins { is_guarded: false, ..origins("127.0.0.1:8787") };
        let asked = headers("evil.example", Some("https://evil.example:1"));
        assert!(open.check(&asked).is_ok());
        let mut response = crate::http::response::empty(axum::http::StatusCode::OK);
        open.mark(&asked).put(&mut response);
        assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        assert_eq!(response.headers()[header::VARY], "origin");
        let asked = headers("venue.example", Some("https://app.example"));
        let mut response = crate::http::response::empty(axum::http::StatusCode::OK);
        open.mark(&asked).put(&mut response);
        let marks = response.headers();
        assert_eq!(marks[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert!(!marks.contains_key("access-control-allow-private-network"));
    }
}
