//! One request as handlers see it: the caller, the route, parameters, headers and body.
//!
//! Parsing is strict: a parameter that is present but malformed is an error that names it, never a
//! default.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::request::Parts;
use axum::http::{HeaderName, header};
use bytes::BytesMut;
use catena_engine::Caller;
use catena_engine::limits::{IDEMPOTENCY_KEY_BYTES_MAX, PAGE_MAX, UNCOUNTED_BYTES_MAX, WAIT_MAX};
use catena_engine::operations::federation::DEPTH_HEADER;
use catena_engine::requests::IdempotencyKey;
use catena_engine::runtime::Reservation;
use catena_job::JobId;
use catena_job::limits::MEMBER_CHARS_MAX;
use catena_job::members::nearest;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::rate::BodyRate;
use crate::http::route::{Parameter, ParameterLocation, Route};
use crate::http::state::ServerState;
use crate::identity::authenticate::Admission;
use crate::limits::{
    DECODED_BYTES_PER_COMMA, DECODED_BYTES_PER_NODE, DISCARD_BYTES_MAX, DISCARD_TIME_MAX,
};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DEPTH: HeaderName = HeaderName::from_static(DEPTH_HEADER);

/// One request.
pub(crate) struct ApiRequest {
    pub(crate) state: Arc<ServerState>,
    /// The caller. On public routes always the anonymous identity, without authentication.
    pub(crate) caller: Caller,
    /// Whether the caller may use the venue.
    pub(crate) admission: Admission,
    /// Whether knowledge of the job's ID is all that authorises this request.
    pub(crate) is_job_id_bearer: bool,
    pub(crate) route: &'static Route,
    pub(crate) head: Parts,
    /// The lock is never taken: it only makes the request `Sync`, which a body is not and which
    /// handlers need to lend the request to a future.
    pub(crate) body: Mutex<Body>,
    /// The memory of the body and of what is parsed from it.
    pub(crate) memory: Reservation,
    /// What is reserved for the content of the body besides its text, once it was read.
    pub(crate) content_bytes: ContentBytes,
}

/// How many bytes the content of a body takes in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ContentBytes {
    /// The values.
    decoded: u64,
    /// Their encoding for the store.
    encoded: u64,
}

/// The memory that is reserved for the content of a body.
#[derive(Debug)]
pub(crate) struct ContentMemory {
    /// For the values.
    pub(crate) decoded: Reservation,
    /// For their encoding, until it is durable.
    pub(crate) encoded: Reservation,
}

impl ApiRequest {
    /// The value of the parameter in the route's path, decoded.
    pub(crate) fn path_argument(&self) -> ApiResult<Cow<'_, str>> {
        let raw = self.route.raw_path_argument(self.head.uri.path()).unwrap_or_default();
        percent_decode_str(raw)
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the path is not valid UTF-8"))
    }

    /// The value of the second parameter in the route's path, decoded.
    pub(crate) fn second_path_argument(&self) -> ApiResult<Cow<'_, str>> {
        let raw = self.route.raw_path_arguments(self.head.uri.path()).unwrap_or_default();
        percent_decode_str(raw.get(1).copied().unwrap_or_default())
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the path is not valid UTF-8"))
    }

    /// The job that the path names.
    pub(crate) fn job_id(&self) -> ApiResult<JobId> {
        let text = self.path_argument()?;
        text.parse().map_err(|error: catena_job::ids::ParseJobIdError| {
            ApiError::new(Code::InvalidJobId, error.to_string())
        })
    }

    /// A query parameter, decoded. If it is repeated, its first value.
    pub(crate) fn parameter(&self, name: &str) -> ApiResult<Option<Cow<'_, str>>> {
        let Some(query) = self.head.uri.query() else { return Ok(None) };
        query_parameter(query, name)
    }

    /// Refuses query parameters that the route does not have.
    pub(crate) fn refuse_unknown_parameters(&self) -> ApiResult<()> {
        let Some(query) = self.head.uri.query() else { return Ok(()) };
        let is_query = |parameter: &&Parameter| parameter.location == ParameterLocation::Query;
        let parameters = self.route.parameters.iter().filter(is_query);
        let known: Vec<&'static str> = parameters.map(|parameter| parameter.name).collect();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            let name = decode_form(name).unwrap_or_default();
            if known.contains(&&*name) {
                continue;
            }
            let near = nearest(&name, known.iter().copied()).map(|(near, _)| near);
            let shown: String = name.chars().take(MEMBER_CHARS_MAX).collect();
            let meant = near.map(|near| format!("; the nearest is `{near}`"));
            let text = format!("unknown query parameter `{shown}`{}", meant.unwrap_or_default());
            let error = ApiError::new(Code::UnknownMember, text).member("member", shown.as_str());
            return Err(match near {
                Some(near) => error.member("nearest", near),
                None => error,
            });
        }
        Ok(())
    }

    /// A query parameter as an owned string.
    pub(crate) fn text_parameter(&self, name: &str) -> ApiResult<Option<String>> {
        Ok(self.parameter(name)?.map(Cow::into_owned))
    }

    /// A query parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<u64>> {
        let Some(text) = self.parameter(name)? else { return Ok(None) };
        parse_whole_number(&text)
            .map(Some)
            .ok_or_else(|| ApiError::bad_request(format!("`{name}` must be a whole number")))
    }

    /// The query parameters `offset` and `limit`.
    pub(crate) fn page(&self) -> ApiResult<(u64, usize)> {
        let offset = self.number("offset")?.unwrap_or(0);
        Ok((offset, self.limit()?))
    }

    /// The query parameter `limit`. The largest page is also the default.
    pub(crate) fn limit(&self) -> ApiResult<usize> {
        match self.number("limit")? {
            None => Ok(PAGE_MAX),
            Some(limit) => {
                usize::try_from(limit).ok().filter(|limit| *limit <= PAGE_MAX).ok_or_else(|| {
                    ApiError::bad_request(format!("`limit` must be at most {PAGE_MAX}"))
                })
            }
        }
    }

    /// A boolean query parameter; present without a value, it is true.
    pub(crate) fn flag(&self, name: &str) -> ApiResult<bool> {
        match self.parameter(name)?.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(ApiError::bad_request(format!("`{name}` must be true or false"))),
        }
    }

    /// A header, if it is text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The URL under which the venue is reached: as configured, otherwise as this client reached it
    /// if that is a name of the venue, otherwise the address that it listens on.
    pub(crate) fn base_url(&self) -> String {
        let origins = &self.state.origins;
        if let Some(url) = &origins.public_url {
            return url.clone();
        }
        let host = self.header(&header::HOST).filter(|host| origins.is_own_host(host));
        let host = host.map_or_else(|| origins.bound.to_string(), str::to_owned);
        format!("{}://{host}", origins.scheme)
    }

    /// The caller as which the request acts with these delegations, which are verified.
    pub(crate) fn act_under(&self, delegations: Vec<String>) -> ApiResult<Caller> {
        act_under(&self.state, &self.caller, self.admission, delegations)
    }

    /// `Prefer: wait=N`: the time to wait, and the value of `Preference-Applied`. Other preferences
    /// are ignored, as the specification allows.
    pub(crate) fn preferred_wait(&self) -> Option<(Duration, String)> {
        let seconds = self.head.headers.get_all(PREFER).iter().find_map(|value| {
            let preferences = value.to_str().ok()?.split([',', ';']);
            preferences.filter_map(|one| one.trim().split_once('=')).find_map(|(name, value)| {
                let is_wait = name.trim().eq_ignore_ascii_case("wait");
                parse_whole_number(value.trim().trim_matches('"')).filter(|_| is_wait)
            })
        })?;
        let wait = Duration::from_secs(seconds).min(WAIT_MAX);
        Some((wait, format!("wait={}", wait.as_secs())))
    }

    /// The client's idempotency key with the digest of this body. `salt` keeps requests apart that
    /// differ in their path only.
    pub(crate) fn idempotency_key(
        &self,
        endpoint: &'static str,
        salt: &[u8],
        body: &[u8],
    ) -> ApiResult<Option<IdempotencyKey>> {
        let Some(key) = self.head.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let key = key.to_str().ok().filter(|key| {
            (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) && !key.trim().is_empty()
        });
        let key = key.ok_or_else(|| {
            let most = IDEMPOTENCY_KEY_BYTES_MAX;
            ApiError::bad_request(format!("`Idempotency-Key` must have 1 to {most} characters"))
        })?;
        let body_digest = Sha256::new().chain_update(salt).chain_update(body).finalize().into();
        Ok(Some(IdempotencyKey { endpoint, key: key.to_owned(), body_digest }))
    }

    /// The number of orchestrations on other venues that this request comes from.
    pub(crate) fn depth(&self) -> ApiResult<u32> {
        let Some(depth) = self.head.headers.get(&DEPTH) else { return Ok(0) };
        let depth = depth.to_str().ok().and_then(|depth| depth.trim().parse().ok());
        depth.ok_or_else(|| ApiError::bad_request("`Catena-Depth` must be a whole number"))
    }

    /// Whether `If-None-Match` names this entity tag.
    pub(crate) fn matches_etag(&self, etag: impl AsRef<[u8]>) -> bool {
        let etag = etag.as_ref();
        let values = self.head.headers.get_all(header::IF_NONE_MATCH).iter();
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(
            |known| {
                let known = known.trim();
                known == "*" || known.strip_prefix("W/").unwrap_or(known).as_bytes() == etag
            },
        )
    }

    /// Drops everything that came over the connection and keeps the shared state. A handler that has
    /// read the whole request calls this before it waits for something else: the connection is read
    /// in the meantime, and what was received before would keep its buffer alive. The memory that is
    /// returned is reserved for the content of the body.
    pub(crate) fn into_state(mut self) -> (Arc<ServerState>, ContentMemory) {
        let ContentBytes { decoded, encoded } = self.content_bytes;
        let decoded = self.memory.split_off(decoded);
        (self.state, ContentMemory { decoded, encoded: self.memory.split_off(encoded) })
    }

    /// Takes the body, to be read as a stream.
    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut())
    }

    /// Reads the whole body, up to the configured size.
    pub(crate) async fn read_body(&mut self) -> ApiResult<Bytes> {
        let mut body = self.take_body();
        let result = read_body(&mut body, self.state.body_bytes_max, &mut self.memory).await;
        match result {
            Ok(text) => {
                self.content_bytes = content_bytes(&text);
                let ContentBytes { decoded, encoded } = self.content_bytes;
                self.memory.grow(decoded.saturating_add(encoded))?;
                Ok(text)
            }
            Err(error) => {
                self.discard(body);
                Err(error)
            }
        }
    }

    /// Reads and drops the rest of a refused body, within bounds, while the response is sent: a
    /// client that reads only after it has written everything then gets to read the response. A
    /// client that waits for permission to send the body has not started.
    pub(crate) fn discard(&self, body: Body) {
        if !self.head.headers.contains_key(header::EXPECT) {
            tokio::spawn(tokio::time::timeout(DISCARD_TIME_MAX, discard(body)));
        }
    }
}

/// The caller as which a request acts with these delegations, which are verified.
pub(crate) fn act_under(
    state: &ServerState,
    caller: &Caller,
    admission: Admission,
    delegations: Vec<String>,
) -> ApiResult<Caller> {
    let now = state.engine.env().now();
    let acting = state.authenticator.act_under(caller, admission, delegations, now);
    acting.map_err(|error| {
        let reason = error.to_string();
        let did = &*caller.did;
        tracing::info!(target: "catena::audit", did, reason, "refused a delegation");
        error.into()
    })
}

async fn read_body(
    body: &mut Body,
    bytes_max: usize,
    memory: &mut Reservation,
) -> ApiResult<Bytes> {
    let too_large = || {
        let error = format!("the body has more than {bytes_max} bytes");
        ApiError::new(Code::BodyTooLarge, error)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let announced = body.size_hint().exact().map_or(0, |length| length as usize);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut rate = BodyRate::start();
    while let Some(data) = rate.next_data(body).await? {
        if first.len() + whole.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        memory.grow(data.len() as u64)?;
        // Nearly every body is a single frame, which is passed on without copying. For a longer one the announced
        // length is allocated, because a buffer that doubles takes up to twice as much.
        match (first.is_empty(), whole.is_empty()) {
            (true, true) => first = data,
            (false, _) => {
                whole.reserve(announced.max(first.len() + data.len()));
                whole.extend_from_slice(&std::mem::take(&mut first));
                whole.extend_from_slice(&data);
            }
            (true, false) => whole.extend_from_slice(&data),
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// About how many bytes the content of a JSON text takes, at most. Separators in strings count too, which makes it more.
/// Short texts are not counted.
fn content_bytes(text: &[u8]) -> ContentBytes {
    if text.len() as u64 <= UNCOUNTED_BYTES_MAX {
        return ContentBytes::default();
    }
    let decoded = text.iter().map(|byte| match byte {
        b',' => DECODED_BYTES_PER_COMMA,
        b':' | b'[' | b'{' => DECODED_BYTES_PER_NODE,
        _ => 1,
    });
    ContentBytes { decoded: decoded.sum(), encoded: text.len() as u64 }
}

async fn discard(mut body: Body) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > DISCARD_BYTES_MAX {
            return;
        }
    }
}

/// The first value of a parameter in a query string.
fn query_parameter<'a>(query: &'a str, name: &str) -> ApiResult<Option<Cow<'a, str>>> {
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode_form(key).is_some_and(|key| key == name) {
            let value = decode_form(value);
            let error = || ApiError::bad_request(format!("`{name}` is not valid UTF-8"));
            return value.ok_or_else(error).map(Some);
        }
    }
    Ok(None)
}

/// Decodes a part of a query string, in which `+` is a space. `None` if the result is not UTF-8.
fn decode_form(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let text = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&text).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// Parses decimal digits and nothing else: `+1` and ` 1` are refused.
pub(crate) fn parse_whole_number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_engine::Limits;
    use catena_engine::runtime::MemoryBudget;

    fn memory() -> Reservation {
        MemoryBudget::new(&Limits::default()).open(&"alice".into())
    }

    #[test]
    fn a_query_is_decoded_and_the_first_of_several_counts() {
        let get = |query, name| query_parameter(query, name).unwrap().map(Cow::into_owned);
        assert_eq!(get("a=1&b=2&a=3", "a").as_deref(), Some("1"));
        assert_eq!(get("wait", "wait").as_deref(), Some(""));
        assert_eq!(get("op=v%2Fops%2fhttp+x%zz", "op").as_deref(), Some("v/ops/http x%zz"));
        assert_eq!(get("%6fp=1", "op").as_deref(), Some("1"));
        assert_eq!(get("", "op"), None);
        assert!(query_parameter("op=%ff", "op").is_err());
    }

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        assert_eq!(parse_whole_number("007"), Some(7));
        for bad in ["", "+1", "-1", " 1", "1.0", "1e3", "18446744073709551616", "٣"] {
            assert_eq!(parse_whole_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_plus_in_a_path_is_a_plus_and_an_incomplete_escape_stays() {
        let decode_path = |text| percent_decode_str(text).decode_utf8().unwrap();
        assert_eq!(decode_path("a+b%20c"), "a+b c");
        assert_eq!(decode_path("100%"), "100%");
        assert_eq!(decode_path("%f"), "%f");
    }

    #[tokio::test]
    async fn a_body_within_its_bound_is_read_and_one_beyond_is_refused() {
        assert_eq!(read_body(&mut Body::from("12345"), 5, &mut memory()).await.unwrap(), "12345");
        let refused = read_body(&mut Body::from("123456"), 5, &mut memory()).await.unwrap_err();
        assert_eq!(refused.code(), Code::BodyTooLarge);
        let pieces = || {
            let pieces = ["12", "34", "56"].map(Ok::<_, std::io::Error>);
            Body::from_stream(futures_util::stream::iter(pieces))
        };
        assert_eq!(read_body(&mut pieces(), 6, &mut memory()).await.unwrap(), "123456");
        assert_eq!(
            read_body(&mut pieces(), 5, &mut memory()).await.unwrap_err().code(),
            Code::BodyTooLarge
        );
    }
}
