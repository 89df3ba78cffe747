//! `http`: requests to other services.
//!
//! **What it does:** sends one request, follows redirects, and returns status, headers and body, and
//! the parsed body if it is JSON. An error status is a result and not a failure, because the caller
//! decides what it means, unless the definition says otherwise: `failOn` lists statuses that are
//! failures, and a definition with `retry` treats those as failures that a later request may not get.
//!
//! **Cost:** one connection per request, and the response in memory. The operator decides where a
//! request may go (see [`crate::outbound`]).
//!
//! **Cancellation:** its future is dropped, which closes the connection. Effects that the request has
//! had by then remain. While the job is paused, no further request is sent.
//!
//! **Repetition:** safe for `get` and `head`. The others are not repeated by recovery.

pub(crate) mod policy;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use catena_engine::operations::Problem;
use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Operation, Registration, SecretPurpose, TurnFuture,
};
use catena_job::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use catena_value::{Extent, Map, NoCells, Value, json};
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, invalid_input, items, object, text};
use crate::http::policy::{Policy, add_job_headers, is_json, status_failure};
use crate::limits::{
    REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX, REQUEST_TIME, REQUEST_TIME_MAX,
    RESPONSE_JSON_BYTES_MAX,
};
use crate::outbound::{Gate, Outbound, Request, Response, is_harmless};

/// The adapter.
#[derive(Debug)]
pub(crate) struct Http {
    outbound: Arc<Outbound>,
}

impl Http {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        Http { outbound }
    }
}

// Operations.

const SAFE: &[Mark] = &[Mark::Idempotent];

const OPERATIONS: &[Definition] = &[
    operation("get", "HTTP GET", "Fetches a URL.", SAFE),
    operation("head", "HTTP HEAD", "Fetches the headers of a URL.", SAFE),
    operation("post", "HTTP POST", "Sends a body to a URL.", &[]),
    operation("put", "HTTP PUT", "Puts a body at a URL.", &[]),
    operation("patch", "HTTP PATCH", "Sends a change to a URL.", &[]),
    operation("delete", "HTTP DELETE", "Deletes what is at a URL.", &[]),
    operation("request", "HTTP request", "Sends a request with the method in `method`.", &[]),
];

const fn operation(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    marks: &'static [Mark],
) -> Definition {
    let mode = ExecutionMode::Task;
    Definition { name, title, description, mode, marks, input: Some(INPUT), output: Some(OUTPUT) }
}

/// Any header may carry a secret, whatever its name. All are `writeOnly`, so that records do not
/// contain them, except those that the schema lists as harmless.
const INPUT: &str = r#"{"type":"object","required":["url"],"properties":{
    "url":{"type":"string","description":"http or https, without credentials"},
    "method":{"enum":[null,"GET","HEAD","POST","PUT","PATCH","DELETE","OPTIONS",
                                      "get","head","post","put","patch","delete","options"],
              "description":"For http:request; GET when missing"},
    "headers":{"type":["object","null"],"description":"Names and values; an array sends a header several times. Only the values of harmless headers, such as Accept, are recorded",
        "additionalProperties":{"writeOnly":true},
        "x-harmless":["accept","accept-charset","accept-encoding","accept-language","cache-control",
            "content-encoding","content-language","content-type","date","dnt","if-match",
            "if-modified-since","if-none-match","if-range","if-unmodified-since","pragma","prefer",
            "range","user-agent"]},
    "queryParams":{"type":["object","null"],"description":"Added to the URL; an array adds a name several times"},
    "body":{"description":"A string is sent as it is, anything else as JSON"},
    "timeoutMs":{"type":["integer","null"],"minimum":1,"maximum":120000,"description":"30000 when missing"},
    "bearerSecret":{"type":["string","null"],"writeOnly":true,"description":"The name of a secret of the caller, which is sent as a bearer token"}}}"#;

const OUTPUT: &str = r#"{"type":"object","required":["status","headers"],"properties":{
    "status":{"type":"integer"},
    "headers":{"type":"object","description":"Names in lower case; values of equal names joined by commas"},
    "body":{"type":"string","description":"When it is text"},
    "bodyBase64":{"type":"string","description":"When it is not text"},
    "json":{"description":"The body as a value, when its content type is JSON and it can be parsed"}}}"#;

// Input.

fn parse_request(operation: &str, input: &Value) -> Result<Request, Failure> {
    let fields = Fields::from_value(input)?;
    let mut request = Request::new(method(operation, &fields)?, url(&fields)?);
    request.headers = headers(&fields)?;
    if let Some(body) = fields.get("body") {
        let (bytes, content_type) = encode_body(body)?;
        request.body = bytes;
        request.headers.entry(CONTENT_TYPE).or_insert(content_type);
    }
    let most = i64::try_from(REQUEST_TIME_MAX.as_millis()).unwrap_or(i64::MAX);
    let time = fields.integer("timeoutMs", 1, most)?;
    request.time = time.map_or(REQUEST_TIME, |ms| Duration::from_millis(ms.unsigned_abs()));
    Ok(request)
}

/// The header that presents a token.
fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    // The library's error would contain the token.
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value
        .map_err(|_| Failure::new("invalid_header", "the secret is not a valid header value"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn method(operation: &str, fields: &Fields<'_>) -> Result<Method, Failure> {
    const METHODS: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    let asked = fields.optional_text("method")?.map(|word| word.to_ascii_uppercase());
    let own = operation.to_ascii_uppercase();
    let word = match (operation, asked) {
        ("request", asked) => asked.unwrap_or_else(|| "GET".to_owned()),
        (_, Some(asked)) if asked != own => {
            let hint = "use http:request to choose a method";
            return Err(invalid_input(format!("http:{operation} cannot send {asked}; {hint}")));
        }
        _ => own,
    };
    let known = METHODS.into_iter().find(|method| method.as_str() == word);
    known.ok_or_else(|| invalid_input(format!("{word} is not a supported method")))
}

fn url(fields: &Fields<'_>) -> Result<Url, Failure> {
    let text = fields.text("url")?;
    let parsed = Url::parse(&text);
    let mut url = parsed.map_err(|error| Failure::new("invalid_url", format!("`url`: {error}")))?;
    if let Some(params) = fields.map("queryParams")? {
        for (name, value) in string_members("queryParams", params)? {
            url.query_pairs_mut().append_pair(&name, &value);
        }
    }
    Ok(url)
}

/// Headers that frame the message or manage the connection. A caller cannot set them.
const RESERVED_HEADERS: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
];

fn headers(fields: &Fields<'_>) -> Result<HeaderMap, Failure> {
    let wrong = |error: String| Failure::new("invalid_header", error);
    let mut headers = HeaderMap::new();
    let given = fields.map("headers")?.map(|map| string_members("headers", map)).transpose()?;
    let mut bytes = 0;
    for (name, value) in given.unwrap_or_default() {
        bytes += name.len() + value.len();
        if bytes > REQUEST_HEADER_BYTES_MAX || headers.len() == REQUEST_HEADERS_MAX {
            let error = format!(
                "`headers` has more than {REQUEST_HEADERS_MAX} headers or \
                 {REQUEST_HEADER_BYTES_MAX} bytes"
            );
            return Err(wrong(error));
        }
        let header = HeaderName::try_from(&name);
        let header = header.map_err(|_| wrong(format!("{name:?} is not a valid header name")))?;
        if RESERVED_HEADERS.contains(&header.as_str()) || header.as_str().starts_with("proxy-") {
            return Err(wrong(format!("the header {header} is set by the venue")));
        }
        let value = HeaderValue::try_from(value);
        let mut value = value
            .map_err(|_| wrong(format!("the value of {header} is not a valid header value")))?;
        value.set_sensitive(!is_harmless(&header));
        headers.append(header, value);
    }
    Ok(headers)
}

/// The members of an object as texts, sorted by name. An array yields one entry per item.
fn string_members(of: &str, map: &Map) -> Result<Vec<(String, String)>, Failure> {
    let mut texts = Vec::new();
    for (name, value) in map.fields() {
        let name = text(name)
            .ok_or_else(|| invalid_input(format!("`{of}` has a name that is not a string")))?;
        let values = match value {
            Value::Vector(vector) => items(vector)?,
            other => vec![other.clone()],
        };
        for value in values {
            let value = match &value {
                Value::Nil => continue,
                Value::String(_) => text(&value),
                Value::Bool(_) | Value::Integer(_) | Value::Double(_) => {
                    json::to_string(&value).ok()
                }
                _ => None,
            };
            let wrong =
                || invalid_input(format!("`{name}` in `{of}` must be a string, number or boolean"));
            texts.push((name.clone(), value.ok_or_else(wrong)?));
        }
    }
    texts.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(texts)
}

fn encode_body(body: &Value) -> Result<(Bytes, HeaderValue), Failure> {
    if let Some(text) = text(body) {
        return Ok((text.into(), HeaderValue::from_static("text/plain; charset=utf-8")));
    }
    let text = json::to_string(body).map_err(|error| invalid_input(format!("`body`: {error}")))?;
    Ok((text.into(), HeaderValue::from_static("application/json")))
}

// Output.

fn output(response: Response) -> Value {
    let status = i64::from(response.status.as_u16());
    let json = parsed_body(&response);
    let body = match String::from_utf8(response.body) {
        Ok(text) => ("body", Value::from(text)),
        Err(error) => ("bodyBase64", STANDARD.encode(error.as_bytes()).into()),
    };
    let plain =
        object([("status", status.into()), ("headers", join_headers(&response.headers)), body]);
    match json {
        Some(json) => with_json(plain, json),
        None => plain,
    }
}

/// Adds the parsed body, unless the output would be too large to be stored with it.
fn with_json(plain: Value, json: Value) -> Value {
    let bounds = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };
    let complete = plain.as_map().and_then(|map| map.insert("json".into(), json, &NoCells).ok());
    match complete.map(Value::from) {
        Some(complete) if bounds.measure(&complete, &NoCells).is_ok() => complete,
        _ => plain,
    }
}

/// The body as a value; `None` if it is not JSON, or too large to be parsed here.
fn parsed_body(response: &Response) -> Option<Value> {
    let is_json = response.headers.get(CONTENT_TYPE).is_some_and(is_json);
    if !is_json || response.body.len() > RESPONSE_JSON_BYTES_MAX {
        return None;
    }
    let text = response.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&response.body);
    json::read(text).ok()
}

fn join_headers(headers: &HeaderMap) -> Value {
    let joined = |name: &HeaderName| {
        let values = headers.get_all(name).iter();
        let values: Vec<_> =
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        (name.as_str().to_owned(), values.join(", "))
    };
    headers.keys().map(joined).collect::<Map>().into()
}

// Execution.

impl Adapter for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn description(&self) -> &'static str {
        "Requests to other services over HTTP, within what the operator allows."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<Problem> {
        let mut problems = check_reference(operation.adapter_ref(), OPERATIONS);
        problems.extend(Policy::from_operation(operation).err().unwrap_or_default());
        problems
    }

    fn run(&self, call: Call) -> TurnFuture {
        let outbound = self.outbound.clone();
        Box::pin(async move { run(&outbound, &call).await.into() })
    }
}

async fn run(outbound: &Outbound, call: &Call) -> Result<Value, Failure> {
    // The definition was checked when it was read.
    let policy = Policy::from_operation(&call.operation).unwrap_or_default();
    let mut request = parse_request(call.operation.name(), &call.input)?;
    if let Some(name) = Fields::from_value(&call.input)?.optional_text("bearerSecret")? {
        let found = call.secret(&name, SecretPurpose::send(request.host())).await?;
        // What was meant as a name may be a token: it is not repeated here.
        let missing = "the caller has no secret with the name in `bearerSecret`; store it with \
                       secret:set, or send a token in `headers`";
        let token = found.ok_or_else(|| Failure::new("secret_not_found", missing))?;
        request.headers.insert(AUTHORIZATION, bearer(&token)?);
    }
    if let (true, Some(job)) = (policy.job_headers, call.job) {
        add_job_headers(&mut request.headers, job, call.attempt);
    }
    send(outbound, request, &policy, &call.control, || call.control.now()).await
}

/// `now` returns Unix time in ms.
async fn send(
    outbound: &Outbound,
    request: Request,
    policy: &Policy,
    gate: &impl Gate,
    now: impl FnOnce() -> i64,
) -> Result<Value, Failure> {
    let host = request.host();
    let response = outbound.send(request, gate).await?;
    if policy.fails_on(response.status) {
        return Err(status_failure(&host, &response, now()));
    }
    Ok(output(response))
}

#[cfg(test)]
mod tests {
    use catena_engine::RetryAdvice;
    use catena_engine::runtime::SystemEnv;
    use hyper::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::fields::value;
    use crate::options::Options;
    use crate::outbound::OpenGate;

    fn refused(operation: &str, input: &str) -> Failure {
        parse_request(operation, &value(input)).unwrap_err()
    }

    #[test]
    fn a_request_is_made_of_its_input() {
        let input = r#"{"url":"https://x.example/a?b=1","queryParams":{"c":[2,"d e"],"a":true,"n":null},
            "headers":{"Accept":"text/plain","X-Many":["1","2"]},"body":{"k":1},"timeoutMs":5000,"extra":0}"#;
        let request = parse_request("post", &value(input)).unwrap();
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.url.as_str(), "https://x.example/a?b=1&a=true&c=2&c=d+e");
        assert_eq!(request.headers["accept"], "text/plain");
        assert_eq!(request.headers.get_all("x-many").iter().count(), 2);
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.body, r#"{"k":1}"#);
        assert_eq!(request.time, Duration::from_secs(5));
    }

    #[test]
    fn a_text_is_sent_as_it_is_and_named_as_the_caller_says() {
        let plain = parse_request("put", &value(r#"{"url":"http://x/","body":"a,b"}"#)).unwrap();
        assert_eq!((&plain.body[..], plain.time), (&b"a,b"[..], REQUEST_TIME));
        assert_eq!(plain.headers["content-type"], "text/plain; charset=utf-8");
        let input = r#"{"url":"http://x/","body":"a,b","headers":{"Content-Type":"text/csv"}}"#;
        assert_eq!(
            parse_request("put", &value(input)).unwrap().headers["content-type"],
            "text/csv"
        );
    }

    #[test]
    fn the_method_is_that_of_the_operation() {
        let method =
            |operation: &str, input: &str| parse_request(operation, &value(input)).unwrap().method;
        assert_eq!(method("get", r#"{"url":"http://x/"}"#), Method::GET);
        assert_eq!(method("get", r#"{"url":"http://x/","method":"get"}"#), Method::GET);
        assert_eq!(method("request", r#"{"url":"http://x/"}"#), Method::GET);
        assert_eq!(method("request", r#"{"url":"http://x/","method":"patch"}"#), Method::PATCH);
        let other = refused("get", r#"{"url":"http://x/","method":"POST"}"#);
        assert_eq!(other.error, "http:get cannot send POST; use http:request to choose a method");
        refused("request", r#"{"url":"http://x/","method":"CONNECT"}"#);
    }

    #[test]
    fn a_bearer_token_is_sent_and_never_shown() {
        let header = bearer("s3cret").unwrap();
        assert_eq!(header, "Bearer s3cret");
        assert!(!format!("{header:?}").contains("s3cret"), "{header:?}");
        let wrong = bearer("s3\ncret").unwrap_err();
        assert!(!wrong.error.contains("cret\""), "{}", wrong.error);
    }

    #[test]
    fn headers_that_frame_the_message_are_refused() {
        for name in ["Host", "Content-Length", "transfer-encoding", "Proxy-Authorization"] {
            let failure =
                refused("get", &format!(r#"{{"url":"http://x/","headers":{{"{name}":"1"}}}}"#));
            assert_eq!(failure.code, "invalid_header", "{name}");
        }
        refused("get", r#"{"url":"http://x/","headers":{"a b":"1"}}"#);
        refused("get", r#"{"url":"http://x/","headers":{"a":"1\r\nb: 2"}}"#);
        refused("get", r#"{"url":"http://x/","headers":{"a":{}}}"#);
        let many: Vec<_> = (0..200).map(|i| format!("\"x-{i}\":1")).collect();
        refused("get", &format!(r#"{{"url":"http://x/","headers":{{{}}}}}"#, many.join(",")));
    }

    #[test]
    fn an_invalid_request_is_refused() {
        assert_eq!(refused("get", r#"{"url":"not a url"}"#).code, "invalid_url");
        assert_eq!(refused("get", "{}").error, "`url` is missing");
        refused("get", r#"{"url":"http://x/","timeoutMs":120001}"#);
        refused("get", r#"{"url":"http://x/","timeoutMs":0}"#);
    }

    /// Sends a request to a server that gives this answer. Returns the result and what the server got.
    async fn exchange(answer: &str, policy: &Policy) -> (Result<Value, Failure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        let outbound = Outbound::new(Options::parse([host.as_str()], []).unwrap());
        let gate = OpenGate(Arc::new(SystemEnv::new()));
        let input = value(&format!(r#"{{"url":"http://{host}/","body":{{"a":1}}}}"#));
        let request = parse_request("post", &input).unwrap();
        tokio::join!(send(&outbound, request, policy, &gate, || 0), server)
    }

    const BUSY: &str = "HTTP/1.1 503 X\r\nContent-Length: 4\r\nRetry-After: 7\r\n\r\nbusy";

    #[tokio::test]
    async fn an_error_status_is_a_result() {
        let (ended, seen) = exchange(BUSY, &Policy::default()).await;
        let expected =
            r#"{"status":503,"headers":{"content-length":"4","retry-after":"7"},"body":"busy"}"#;
        assert_eq!(ended.unwrap(), value(expected));
        assert!(seen.starts_with("POST / HTTP/1.1\r\n") && seen.ends_with(r#"{"a":1}"#), "{seen}");
    }

    #[tokio::test]
    async fn a_definition_with_retry_fails_at_a_transient_status() {
        let policy = Policy::parse(None, None, true).unwrap();
        let (ended, _) = exchange(BUSY, &policy).await;
        let failure = ended.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retry), ("http_503", RetryAdvice::MaySucceed));
        assert_eq!(failure.after, Some(Duration::from_secs(7)));
        assert!(failure.error.ends_with("answered with status 503: busy"), "{}", failure.error);
    }

    #[test]
    fn a_json_response_is_parsed() {
        let parsed = |content_type: &'static str, body: &str| {
            let mut response = response(body.as_bytes());
            response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            let output = output(response);
            let map = output.as_map().unwrap();
            assert_eq!(map.field("body"), Some(&body.into()));
            map.field("json").cloned()
        };
        for content_type in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
            "text/json",
        ] {
            assert_eq!(parsed(content_type, r#"{"a":[1]}"#), Some(value(r#"{"a":[1]}"#)));
        }
        assert_eq!(parsed("application/json", "null"), Some(Value::Nil));
        assert_eq!(parsed("application/json", "\u{feff}1"), Some(value("1")));
        assert_eq!(parsed("application/json", r#"{"a":"#), None, "malformed");
        assert_eq!(parsed("application/json", ""), None);
        assert_eq!(parsed("text/plain", "1"), None);
        assert_eq!(parsed("application/jsonl", "1"), None);
        let large = format!("[{}1]", "1,".repeat(RESPONSE_JSON_BYTES_MAX / 2));
        assert_eq!(parsed("application/json", &large), None, "too large");
        let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert_eq!(parsed("application/json", &deep), Some(value(&deep)));
    }

    fn response(body: &[u8]) -> Response {
        let mut headers = HeaderMap::new();
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_static("2"));
        Response { status: StatusCode::NOT_FOUND, headers, body: body.to_vec() }
    }

    #[test]
    fn a_response_is_text_or_base64() {
        assert_eq!(
            output(response("né".as_bytes())),
            value(r#"{"status":404,"headers":{"x-a":"1, 2"},"body":"né"}"#)
        );
        assert_eq!(
            output(response(&[0xff, 0x00])),
            value(r#"{"status":404,"headers":{"x-a":"1, 2"},"bodyBase64":"/wA="}"#)
        );
    }
}
