//! Which revision a client speaks, and what it can do.
//!
//! The revisions up to 2025-11-25 begin with a handshake and name themselves in a header afterwards;
//! nothing of the handshake is remembered, so what those clients can do is not known. 2026-07-28 has
//! no handshake: each request says everything in `_meta`, and repeats in headers what others on the
//! way may want to read. Headers that say something else than the body are refused.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName};
use catena_auth::base::from_base64url;
use catena_value::{Map, Value};

use super::message::{Refusal, Request};
use crate::values::{list, object};

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The extension by which a job is handed out as a task.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A published revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    /// All of them, newest first.
    const ALL: [Revision; 5] = [
        Revision::V2026_07_28,
        Revision::V2025_11_25,
        Revision::V2025_06_18,
        Revision::V2025_03_26,
        Revision::V2024_11_05,
    ];

    /// The newest.
    pub(super) const NEWEST: Revision = Revision::V2026_07_28;

    /// The newest with a handshake.
    const NEWEST_WITH_HANDSHAKE: Revision = Revision::V2025_11_25;

    /// What a client speaks that does not say so: the last one that did not have to.
    pub(super) const WITHOUT_HEADER: Revision = Revision::V2025_03_26;

    /// Its date, which is its name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// The names of all of them, newest first.
    pub(super) fn supported() -> Value {
        list(Revision::ALL.map(|revision| revision.as_str().into()))
    }

    /// What a handshake agrees on: what was asked for, or else the newest that has one.
    pub(super) fn negotiated(asked: Option<&str>) -> Revision {
        let asked = asked.and_then(Revision::parse);
        asked.filter(|asked| !asked.is_stateless()).unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
    }

    /// Whether each request says all that there is to know.
    pub(super) fn is_stateless(self) -> bool {
        self >= Revision::V2026_07_28
    }

    /// Whether several messages may come in one body.
    pub(super) fn allows_batches(self) -> bool {
        self < Revision::V2025_06_18
    }

    /// Whether it has tasks, with or without an extension.
    pub(super) fn has_tasks(self) -> bool {
        self >= Revision::V2025_11_25
    }

    /// Whether a call says itself that it wants to be a task.
    pub(super) fn asks_for_tasks(self) -> bool {
        self.has_tasks() && !self.is_stateless()
    }

    /// The revision that the header names; without one, that of clients which send none.
    pub(super) fn of_header(headers: &HeaderMap) -> Result<Revision, Refusal> {
        match header(headers, &VERSION)? {
            None => Ok(Revision::WITHOUT_HEADER),
            Some(text) => Revision::parse(text).ok_or_else(|| Refusal::unsupported_version(text)),
        }
    }
}

/// What is known of whoever sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) revision: Revision,
    /// Whether it can ask its user to fill in a form.
    pub(super) has_forms: bool,
    /// Whether it can send its user to a page.
    pub(super) has_pages: bool,
    /// Whether it takes a task instead of a result.
    pub(super) takes_tasks: bool,
}

impl Client {
    /// One that says nothing about what it can do.
    pub(super) fn silent(revision: Revision) -> Self {
        Client { revision, has_forms: false, has_pages: false, takes_tasks: false }
    }

    /// Whoever sent a request.
    pub(super) fn of(headers: &HeaderMap, request: &Request) -> Result<Client, Refusal> {
        // The handshake comes before everything that is agreed on by it.
        if request.method == "initialize" {
            return Ok(Client::silent(Revision::NEWEST_WITH_HANDSHAKE));
        }
        let said = request.meta().and_then(|meta| meta.field(META_VERSION));
        let named = header(headers, &VERSION)?;
        let Some(said) = said else {
            let revision = Revision::of_header(headers)?;
            return match revision.is_stateless() {
                false => Ok(Client::silent(revision)),
                true => Err(missing(META_VERSION)),
            };
        };
        let Some(said) = said.as_str() else {
            return Err(Refusal::invalid_params(format!("`{META_VERSION}` must be a string")));
        };
        if named != Some(said) {
            return Err(mismatch(&VERSION, named, said));
        }
        let revision = Revision::parse(said).filter(|revision| revision.is_stateless());
        let revision = revision.ok_or_else(|| Refusal::unsupported_version(said))?;
        check_headers(headers, request)?;
        let capabilities = request.meta().and_then(|meta| meta.field(META_CAPABILITIES));
        let capabilities = capabilities.ok_or_else(|| missing(META_CAPABILITIES))?;
        let capabilities = capabilities.as_map().ok_or_else(|| {
            Refusal::invalid_params(format!("`{META_CAPABILITIES}` must be an object"))
        })?;
        Ok(Client::able(revision, capabilities))
    }

    fn able(revision: Revision, capabilities: &Map) -> Client {
        let member = |name: &str| capabilities.field(name).and_then(Value::as_map);
        let elicits = member("elicitation");
        let has = |mode: &str| elicits.is_some_and(|modes| modes.field(mode).is_some());
        Client {
            revision,
            // One that names no mode has forms.
            has_forms: has("form") || elicits.is_some_and(|_| !has("url")),
            has_pages: has("url"),
            takes_tasks: member("extensions").is_some_and(|all| all.field(TASKS).is_some()),
        }
    }

    /// Refuses a client that did not say that it knows what tasks are.
    pub(super) fn check_tasks(&self) -> Result<(), Refusal> {
        if !self.revision.is_stateless() || self.takes_tasks {
            return Ok(());
        }
        let tasks = object([(TASKS, object::<&str>([]))]);
        Err(Refusal::missing_capability(object([("extensions", tasks)])))
    }
}

/// Compares what the headers repeat with the body.
fn check_headers(headers: &HeaderMap, request: &Request) -> Result<(), Refusal> {
    let method = header(headers, &METHOD)?;
    if method != Some(&request.method) {
        return Err(mismatch(&METHOD, method, &request.method));
    }
    let (member, must_be_there) = match request.method.as_str() {
        "tools/call" => ("name", true),
        "tasks/get" | "tasks/update" | "tasks/cancel" => ("taskId", false),
        _ => return Ok(()),
    };
    let Some(expected) = request.params.field(member).and_then(Value::as_str) else {
        return Ok(());
    };
    match header(headers, &NAME)? {
        None if !must_be_there => Ok(()),
        Some(name) if decoded(name).as_deref() == Some(expected) => Ok(()),
        name => Err(mismatch(&NAME, name, expected)),
    }
}

/// A header that may come once.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::header_mismatch(format!("{name} comes more than once")));
    }
    let value = value.to_str().map_err(|_| {
        Refusal::header_mismatch(format!("{name} has characters that no header has"))
    })?;
    Ok(Some(value))
}

/// A header's value; what a header cannot carry comes as `=?base64?…?=`.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = from_base64url(&url_form(encoded)?)?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Base64 with padding in the form for URLs, which has none.
fn url_form(padded: &str) -> Option<String> {
    let text = padded.trim_end_matches('=');
    let is_padded = padded.len().is_multiple_of(4) && padded.len() - text.len() <= 2;
    let is_plain = is_padded && !text.contains(['-', '_']);
    is_plain.then(|| text.replace('+', "-").replace('/', "_"))
}

fn mismatch(name: &HeaderName, found: Option<&str>, expected: &str) -> Refusal {
    Refusal::header_mismatch(match found {
        None => format!("{name} is missing; the body says '{expected}'"),
        Some(found) => format!("{name} is '{found}', but the body says '{expected}'"),
    })
}

fn missing(name: &str) -> Refusal {
    Refusal::invalid_params(format!("`params._meta` has no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::message::{Incoming, Message};
    use axum::http::HeaderValue;
    use catena_value::json;

    fn request(text: &str) -> Request {
        match Incoming::read(json::read(text.as_bytes()).unwrap()) {
            Incoming::One(Ok(Message::Request(request))) => request,
            _ => panic!("{text} is no request"),
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
        Client::of(&headers, &request).map_err(|refusal| refusal.rendered(None).text)
    }

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":{}}"#;
    const HEADERS: [(&str, &str); 3] = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?w6k=?="),
    ];

    #[test]
    fn a_handshake_agrees_on_what_was_asked_for_if_it_has_one() {
        for (asked, agreed) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1900-01-01", "2025-11-25"),
        ] {
            assert_eq!(Revision::negotiated(Some(asked)).as_str(), agreed);
        }
        assert_eq!(Revision::negotiated(None), Revision::V2025_11_25);
    }

    #[test]
    fn old_clients_are_known_by_a_header_or_by_having_none() {
        assert_eq!(client("{}", &[]), Ok(Client::silent(Revision::V2025_03_26)));
        let named = client("{}", &[("mcp-protocol-version", "2025-06-18")]);
        assert_eq!(named, Ok(Client::silent(Revision::V2025_06_18)));
        let unknown = client("{}", &[("mcp-protocol-version", "2030-01-01")]).unwrap_err();
        assert!(unknown.contains("-32022") && unknown.contains("2025-11-25"), "{unknown}");
    }

    #[test]
    fn the_headers_of_a_stateless_request_repeat_its_body() {
        assert_eq!(client(META, &HEADERS), Ok(Client::silent(Revision::V2026_07_28)));
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
    fn a_stateless_request_says_everything() {
        let refused = client("{}", &HEADERS).unwrap_err();
        assert!(refused.contains("-32602") && refused.contains("protocolVersion"), "{refused}");
        let without = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let refused = client(without, &HEADERS).unwrap_err();
        assert!(refused.contains("-32602") && refused.contains("clientCapabilities"), "{refused}");
    }

    #[test]
    fn what_a_client_can_do_is_what_it_says() {
        let able = |capabilities: &str| {
            let meta = META.replace("{}", capabilities);
            let client = client(&meta, &HEADERS).unwrap();
            (client.has_forms, client.has_pages, client.takes_tasks)
        };
        assert_eq!(able("{}"), (false, false, false));
        assert_eq!(able(r#"{"elicitation":{}}"#), (true, false, false));
        assert_eq!(able(r#"{"elicitation":{"url":{}}}"#), (false, true, false));
        assert_eq!(able(r#"{"elicitation":{"form":{},"url":{}}}"#), (true, true, false));
        let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(able(tasks), (false, false, true));
    }
}
