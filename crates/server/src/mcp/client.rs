//! The client of a request: the revision it speaks, and what it supports.
//!
//! Clients of the revisions with a handshake name the revision in a header afterwards. The handshake
//! is not remembered: what matters of their capabilities is the ID of their session, which they repeat in
//! every request. It is no secret and grants nothing. From 2026-07-28 on, each request declares
//! everything in `_meta` and repeats some of it in headers, for intermediaries. Headers that
//! contradict the body are refused.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use catena_value::{Map, Value};

use crate::mcp::json_rpc::{RpcError, RpcRequest};
use crate::mcp::revision::Revision;
use crate::values::object;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// How the IDs of sessions begin. Letters for what the client can be asked follow, then a random part.
const SESSION_PREFIX: &str = "catena-";
/// Stands for forms in the ID of a session.
const FORMS: char = 'f';
/// Stands for URLs in the ID of a session.
const URLS: char = 'u';

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The extension that lets the server return a task instead of a result.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) revision: Revision,
    /// Whether it can ask its user to fill in a form.
    pub(super) supports_forms: bool,
    /// Whether it can send its user to a URL.
    pub(super) supports_urls: bool,
    /// Whether it accepts a task instead of a result.
    pub(super) accepts_tasks: bool,
}

impl Client {
    /// A client that declares no capabilities.
    pub(super) fn without_capabilities(revision: Revision) -> Self {
        Client { revision, supports_forms: false, supports_urls: false, accepts_tasks: false }
    }

    /// The client that sent this request.
    pub(super) fn of_request(
        headers: &HeaderMap,
        request: &RpcRequest,
    ) -> Result<Client, RpcError> {
        // The handshake comes before the header that it negotiates.
        if request.method == "initialize" {
            // The stateless revision has no handshake: there is no such method.
            let stateless = revision_of_header(headers).ok().filter(|found| found.is_stateless());
            let revision = stateless.unwrap_or(Revision::NEWEST_WITH_HANDSHAKE);
            return Ok(Client::without_capabilities(revision));
        }
        let in_body = request.meta().and_then(|meta| meta.field(META_VERSION));
        let in_header = single_header(headers, &VERSION)?;
        let Some(in_body) = in_body else {
            let revision = revision_of_header(headers)?;
            return if revision.is_stateless() {
                Err(missing_meta(META_VERSION))
            } else {
                Ok(Client::in_session(revision, single_header(headers, &SESSION)?))
            };
        };
        let Some(in_body) = in_body.as_str() else {
            return Err(RpcError::invalid_params(format!("`{META_VERSION}` must be a string")));
        };
        if in_header != Some(in_body) {
            return Err(mismatch(&VERSION, in_header, in_body));
        }
        let revision = Revision::parse(in_body).filter(|revision| revision.is_stateless());
        let revision = revision.ok_or_else(|| RpcError::unsupported_version(in_body))?;
        check_headers(headers, request)?;
        let capabilities = request.meta().and_then(|meta| meta.field(META_CAPABILITIES));
        let capabilities = capabilities.ok_or_else(|| missing_meta(META_CAPABILITIES))?;
        let capabilities = capabilities.as_map().ok_or_else(|| {
            RpcError::invalid_params(format!("`{META_CAPABILITIES}` must be an object"))
        })?;
        Ok(Client::with_capabilities(revision, capabilities))
    }

    /// A client of a revision with a handshake that names this session.
    fn in_session(revision: Revision, session: Option<&str>) -> Client {
        let known = session.and_then(|id| id.strip_prefix(SESSION_PREFIX)?.split_once('-'));
        let abilities = known.map_or("", |(abilities, _)| abilities);
        Client {
            supports_forms: revision.has_forms() && abilities.contains(FORMS),
            supports_urls: revision.has_modes() && abilities.contains(URLS),
            ..Client::without_capabilities(revision)
        }
    }

    /// Whether its user is asked within the response of a call.
    pub(super) fn is_asked_in_stream(&self) -> bool {
        !self.revision.is_stateless() && (self.supports_forms || self.supports_urls)
    }

    fn with_capabilities(revision: Revision, capabilities: &Map) -> Client {
        let member = |name: &str| capabilities.field(name).and_then(Value::as_map);
        let elicitation = member("elicitation");
        let has_mode = |mode: &str| elicitation.is_some_and(|modes| modes.field(mode).is_some());
        let extensions = member("extensions");
        Client {
            revision,
            // A client that names no mode supports forms.
            supports_forms: has_mode("form") || elicitation.is_some_and(|_| !has_mode("url")),
            supports_urls: has_mode("url"),
            accepts_tasks: extensions.is_some_and(|all| all.field(TASKS_EXTENSION).is_some()),
        }
    }

    /// Refuses a client that did not declare the tasks extension where it is needed.
    pub(super) fn check_tasks(&self) -> Result<(), RpcError> {
        if !self.revision.is_stateless() || self.accepts_tasks {
            return Ok(());
        }
        let tasks = object([(TASKS_EXTENSION, object::<&str>([]))]);
        Err(RpcError::missing_capability(object([("extensions", tasks)])))
    }
}

/// The ID of a new session, for a client whose user can be asked. Others need none.
pub(super) fn new_session(params: &Map, random: u64) -> Option<String> {
    let requested = params.field("protocolVersion").and_then(Value::as_str);
    let revision = Revision::negotiate(requested);
    let capabilities = params.field("capabilities").and_then(Value::as_map)?;
    let client = Client::with_capabilities(revision, capabilities);
    let mut abilities = String::new();
    if revision.has_forms() && client.supports_forms {
        abilities.push(FORMS);
    }
    if revision.has_modes() && client.supports_urls {
        abilities.push(URLS);
    }
    (!abilities.is_empty()).then(|| format!("{SESSION_PREFIX}{abilities}-{random:016x}"))
}

/// The revision that the header names, or that of clients which send no header.
pub(super) fn revision_of_header(headers: &HeaderMap) -> Result<Revision, RpcError> {
    match single_header(headers, &VERSION)? {
        None => Ok(Revision::WITHOUT_HEADER),
        Some(text) => Revision::parse(text).ok_or_else(|| RpcError::unsupported_version(text)),
    }
}

/// Compares the headers that repeat the body with the body.
fn check_headers(headers: &HeaderMap, request: &RpcRequest) -> Result<(), RpcError> {
    let method = single_header(headers, &METHOD)?;
    if method != Some(&request.method) {
        return Err(mismatch(&METHOD, method, &request.method));
    }
    let (member, is_required) = match request.method.as_str() {
        "tools/call" | "prompts/get" => ("name", true),
        "resources/read" => ("uri", true),
        "tasks/get" | "tasks/update" | "tasks/cancel" => ("taskId", false),
        _ => return Ok(()),
    };
    let Some(expected) = request.params.field(member).and_then(Value::as_str) else {
        return Ok(());
    };
    match single_header(headers, &NAME)? {
        None if !is_required => Ok(()),
        Some(name) if decode_header(name).as_deref() == Some(expected) => Ok(()),
        name => Err(mismatch(&NAME, name, expected)),
    }
}

/// A header that may occur once.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RpcError::header_mismatch(format!("{name} occurs more than once")));
    }
    let value = value.to_str().map_err(|_| {
        RpcError::header_mismatch(format!("{name} contains characters that are not allowed"))
    })?;
    Ok(Some(value))
}

/// The decoded value of a header. Text that a header cannot carry comes as `=?base64?…?=`.
fn decode_header(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn mismatch(name: &HeaderName, found: Option<&str>, expected: &str) -> RpcError {
    RpcError::header_mismatch(match found {
        None => format!("{name} is missing; the body has '{expected}'"),
        Some(found) => format!("{name} is '{found}', but the body has '{expected}'"),
    })
}

fn missing_meta(name: &str) -> RpcError {
    RpcError::invalid_params(format!("`params._meta` has no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json_rpc::{RpcBody, RpcMessage};
    use axum::http::HeaderValue;
    use catena_value::json;

    fn request(text: &str) -> RpcRequest {
        match RpcBody::parse(json::read(text.as_bytes()).unwrap()) {
            RpcBody::Single(Ok(RpcMessage::Request(request))) => request,
            _ => panic!("{text} is not a request"),
        }
    }

    /// A call with this `_meta`, and these headers.
    fn client(meta: &str, headers: &[(&'static str, &str)]) -> Result<Client, String> {
        let request = request(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"é","_meta":{meta}}}}}"#
        ));
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers = headers.iter().map(header).collect();
        Client::of_request(&headers, &request).map_err(|error| error.into_rpc_response(None).text)
    }

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":{}}"#;
    const HEADERS: [(&str, &str); 3] = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?w6k=?="),
    ];

    #[test]
    fn old_clients_are_known_by_a_header_or_by_having_none() {
        assert_eq!(client("{}", &[]), Ok(Client::without_capabilities(Revision::V2025_03_26)));
        let named = client("{}", &[("mcp-protocol-version", "2025-06-18")]);
        assert_eq!(named, Ok(Client::without_capabilities(Revision::V2025_06_18)));
        let unknown = client("{}", &[("mcp-protocol-version", "2030-01-01")]).unwrap_err();
        assert!(unknown.contains("-32022") && unknown.contains("2025-11-25"), "{unknown}");
    }

    #[test]
    fn a_session_says_what_a_client_can_be_asked() {
        let session = |version: &str, capabilities: &str| {
            let text =
                format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities}}}"#);
            let params = json::read(text.as_bytes()).unwrap();
            new_session(params.as_map().unwrap(), 7)
        };
        let both = r#"{"elicitation":{"form":{},"url":{}}}"#;
        assert_eq!(session("2025-11-25", "{}"), None);
        assert_eq!(session("2025-03-26", both), None);
        let forms = session("2025-06-18", both).unwrap();
        assert_eq!(forms, "catena-f-0000000000000007");
        assert_eq!(session("2025-11-25", r#"{"elicitation":{}}"#), Some(forms));
        let all = session("2025-11-25", both).unwrap();
        let asked = |version: &'static str, session: &str| {
            let headers = [("mcp-protocol-version", version), ("mcp-session-id", session)];
            let client = client("{}", &headers).unwrap();
            (client.supports_forms, client.supports_urls)
        };
        assert_eq!(asked("2025-11-25", &all), (true, true));
        assert_eq!(asked("2025-06-18", &all), (true, false));
        assert_eq!(asked("2025-03-26", &all), (false, false));
        for other in ["", "catena-", "catena", "another-fu-1", "catena--1"] {
            assert_eq!(asked("2025-11-25", other), (false, false), "{other}");
        }
    }

    #[test]
    fn the_headers_of_a_stateless_request_repeat_its_body() {
        assert_eq!(client(META, &HEADERS), Ok(Client::without_capabilities(Revision::V2026_07_28)));
        for left_out in 0..HEADERS.len() {
            let mut headers = HEADERS.to_vec();
            headers.remove(left_out);
            let refused = client(META, &headers).unwrap_err();
            assert!(refused.contains("-32020"), "{refused}");
        }
        for other in [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "e"),
            ("mcp-name", "=?base64?w6k?="),
            ("mcp-name", "=?base64?_6k=?="),
        ] {
            let mut headers = HEADERS.to_vec();
            headers.retain(|(name, _)| *name != other.0);
            headers.push(other);
            let refused = client(META, &headers).unwrap_err();
            assert!(refused.contains("-32020"), "{other:?}: {refused}");
        }
        let twice = [&HEADERS[..], &[HEADERS[1]]].concat();
        assert!(client(META, &twice).unwrap_err().contains("more than once"));
    }

    #[test]
    fn a_stateless_request_must_be_complete() {
        let refused = client("{}", &HEADERS).unwrap_err();
        assert!(refused.contains("-32602") && refused.contains("protocolVersion"), "{refused}");
        let without = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let refused = client(without, &HEADERS).unwrap_err();
        assert!(refused.contains("-32602") && refused.contains("clientCapabilities"), "{refused}");
    }

    #[test]
    fn a_client_supports_what_it_declares() {
        let able = |capabilities: &str| {
            let meta = META.replace("{}", capabilities);
            let client = client(&meta, &HEADERS).unwrap();
            (client.supports_forms, client.supports_urls, client.accepts_tasks)
        };
        assert_eq!(able("{}"), (false, false, false));
        assert_eq!(able(r#"{"elicitation":{}}"#), (true, false, false));
        assert_eq!(able(r#"{"elicitation":{"url":{}}}"#), (false, true, false));
        assert_eq!(able(r#"{"elicitation":{"form":{},"url":{}}}"#), (true, true, false));
        let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(able(tasks), (false, false, true));
    }
}
