//! One request as handlers see it: who asks, for what, with which parameters and body.
//!
//! Reading is strict: a parameter that is there and cannot be understood is an error that names it,
//! never a default.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::request::Parts;
use axum::http::{HeaderName, header};
use bytes::BytesMut;
use catena_engine::Caller;
use catena_engine::federation::DEPTH_HEADER;
use catena_engine::limits::{IDEMPOTENCY_KEY_BYTES_MAX, PAGE_MAX, WAIT_MAX};
use catena_engine::request::IdempotencyKey;
use catena_job::JobId;
use catena_value::{Value, json};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::service::Door;
use crate::limits::{DISCARD_BYTES_MAX, DISCARD_TIME_MAX, JSON_DEPTH_MAX};
use crate::routes::Route;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One request.
pub(crate) struct Call {
    pub(crate) door: Arc<Door>,
    /// Who asks. On public routes the anonymous identity, unchecked.
    pub(crate) caller: Caller,
    /// Whether knowing the job's ID is all that was shown.
    pub(crate) is_bearer: bool,
    pub(crate) route: &'static Route,
    pub(crate) head: Parts,
    /// Behind a lock that is never taken: a body is not `Sync`, and handlers lend the call to what
    /// they wait for.
    pub(crate) body: Mutex<Body>,
}

impl Call {
    /// What stands for the parameter in the route's path, decoded.
    pub(crate) fn argument(&self) -> ApiResult<Cow<'_, str>> {
        let raw = self.route.argument(self.head.uri.path()).unwrap_or_default();
        percent_decoded(raw, PlusMeans::Plus)
            .ok_or_else(|| ApiError::bad_request("the path is not UTF-8"))
    }

    /// The job that the path names.
    pub(crate) fn job_id(&self) -> ApiResult<JobId> {
        let text = self.argument()?;
        text.parse().map_err(|error: catena_job::ids::ParseJobIdError| {
            ApiError::new(Code::InvalidJobId, error.to_string())
        })
    }

    /// A parameter of the query, decoded. Of several the first.
    pub(crate) fn parameter(&self, name: &str) -> ApiResult<Option<Cow<'_, str>>> {
        let Some(query) = self.head.uri.query() else { return Ok(None) };
        parameter(query, name)
    }

    /// A parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<u64>> {
        let Some(text) = self.parameter(name)? else { return Ok(None) };
        whole_number(&text)
            .map(Some)
            .ok_or_else(|| ApiError::bad_request(format!("`{name}` must be a whole number")))
    }

    /// `offset` and `limit`.
    pub(crate) fn page(&self) -> ApiResult<(u64, usize)> {
        let offset = self.number("offset")?.unwrap_or(0);
        Ok((offset, self.limit()?))
    }

    /// `limit`: at most a page, which is also the default.
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

    /// A parameter that is on or off.
    pub(crate) fn flag(&self, name: &str) -> ApiResult<bool> {
        match self.parameter(name)?.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(ApiError::bad_request(format!("`{name}` must be true or false"))),
        }
    }

    /// A header that is text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// `Prefer: wait=N`: how long, and what to say was applied. Others are ignored, as they may be.
    pub(crate) fn preferred_wait(&self) -> Option<(Duration, String)> {
        let seconds = self.head.headers.get_all(PREFER).iter().find_map(|value| {
            let preferences = value.to_str().ok()?.split([',', ';']);
            preferences.filter_map(|one| one.trim().split_once('=')).find_map(|(name, value)| {
                let is_wait = name.trim().eq_ignore_ascii_case("wait");
                whole_number(value.trim().trim_matches('"')).filter(|_| is_wait)
            })
        })?;
        let wait = Duration::from_secs(seconds).min(WAIT_MAX);
        Some((wait, format!("wait={}", wait.as_secs())))
    }

    /// The client's key for this request, with the digest of its body.
    pub(crate) fn idempotency(
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

    /// How many orchestrations of other venues a request comes from.
    pub(crate) fn depth(&self) -> ApiResult<u32> {
        let Some(depth) = self.head.headers.get(DEPTH_HEADER) else { return Ok(0) };
        let depth = depth.to_str().ok().and_then(|depth| depth.trim().parse().ok());
        depth.ok_or_else(|| ApiError::bad_request("`Catena-Depth` must be a whole number"))
    }

    /// Whether `If-None-Match` names this entity tag.
    pub(crate) fn has_tag(&self, tag: impl AsRef<[u8]>) -> bool {
        let tag = tag.as_ref();
        let values = self.head.headers.get_all(header::IF_NONE_MATCH).iter();
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(
            |known| {
                let known = known.trim();
                known == "*" || known.strip_prefix("W/").unwrap_or(known).as_bytes() == tag
            },
        )
    }

    /// Lets go of everything that came over the connection. Whoever has read all of it does this
    /// before waiting for something else: the connection is being read meanwhile, and what was
    /// received before would hold on to its buffer.
    pub(crate) fn into_door(self) -> Arc<Door> {
        self.door
    }

    /// Takes the body as it comes.
    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut())
    }

    /// Takes the whole body, up to the operator's bound.
    pub(crate) async fn read_body(&mut self) -> ApiResult<Bytes> {
        let mut body = self.take_body();
        let read = read_body(&mut body, self.door.body_bytes_max).await;
        if read.is_err() {
            self.discard(body);
        }
        read
    }

    /// Reads the rest of a body that is refused, within bounds, while the answer is sent: a client
    /// that reads only after it has written all gets to read it. One that waits to be told to send
    /// the body has not begun.
    pub(crate) fn discard(&self, body: Body) {
        if !self.head.headers.contains_key(header::EXPECT) {
            tokio::spawn(tokio::time::timeout(DISCARD_TIME_MAX, discard(body)));
        }
    }
}

/// The JSON of a body.
pub(crate) fn read_json(body: &[u8]) -> ApiResult<Value> {
    json::read_nested(body, JSON_DEPTH_MAX)
        .map_err(|error| ApiError::new(Code::InvalidJson, error.to_string()))
}

/// The JSON of a body; nothing when there is no body.
pub(crate) fn read_optional_json(body: &[u8]) -> ApiResult<Option<Value>> {
    if body.is_empty() { Ok(None) } else { read_json(body).map(Some) }
}

async fn read_body(body: &mut Body, bytes_max: usize) -> ApiResult<Bytes> {
    let too_large = || {
        let error = format!("the body has more than {bytes_max} bytes");
        ApiError::new(Code::BodyTooLarge, error)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        // Nearly every body is one frame, which is then handed on without copying.
        match (first.is_empty(), whole.is_empty()) {
            (true, true) => first = data,
            (false, _) => {
                whole.reserve(first.len() + data.len());
                whole.extend_from_slice(&std::mem::take(&mut first));
                whole.extend_from_slice(&data);
            }
            (true, false) => whole.extend_from_slice(&data),
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

async fn discard(mut body: Body) {
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        seen += frame.data_ref().map_or(0, Bytes::len);
        if seen > DISCARD_BYTES_MAX {
            return;
        }
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> ApiResult<Option<Cow<'a, str>>> {
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if percent_decoded(key, PlusMeans::Space).is_some_and(|key| key == name) {
            let value = percent_decoded(value, PlusMeans::Space);
            let value =
                value.ok_or_else(|| ApiError::bad_request(format!("`{name}` is not UTF-8")))?;
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// A number in decimal digits and nothing else: `+1` and ` 1` are refused.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlusMeans {
    Plus,
    Space,
}

/// A text with its `%XX` decoded; nothing when the result is not UTF-8. A `%` that begins no escape
/// stays.
fn percent_decoded(text: &str, plus: PlusMeans) -> Option<Cow<'_, str>> {
    let has_plus = plus == PlusMeans::Space && text.contains('+');
    if !text.contains('%') && !has_plus {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escape = after.split_at_checked(2).filter(|_| *byte == b'%');
        let escaped = escape.and_then(|(digits, after)| Some((hex_byte(digits)?, after)));
        (rest, _) = match escaped {
            Some((byte, after)) => (after, decoded.push(byte)),
            None if *byte == b'+' && has_plus => (after, decoded.push(b' ')),
            None => (after, decoded.push(*byte)),
        };
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_the_first_of_several_counts() {
        let get = |query, name| parameter(query, name).unwrap().map(Cow::into_owned);
        assert_eq!(get("a=1&b=2&a=3", "a").as_deref(), Some("1"));
        assert_eq!(get("wait", "wait").as_deref(), Some(""));
        assert_eq!(get("op=v%2Fops%2fhttp+x%zz", "op").as_deref(), Some("v/ops/http x%zz"));
        assert_eq!(get("%6fp=1", "op").as_deref(), Some("1"));
        assert_eq!(get("", "op"), None);
        assert!(parameter("op=%ff", "op").is_err());
    }

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        assert_eq!(whole_number("007"), Some(7));
        for bad in ["", "+1", "-1", " 1", "1.0", "1e3", "18446744073709551616", "٣"] {
            assert_eq!(whole_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_plus_in_a_path_is_a_plus() {
        assert_eq!(percent_decoded("a+b%20c", PlusMeans::Plus).unwrap(), "a+b c");
        assert_eq!(percent_decoded("100%", PlusMeans::Plus).unwrap(), "100%");
        assert_eq!(percent_decoded("%f", PlusMeans::Plus).unwrap(), "%f");
    }

    #[tokio::test]
    async fn a_body_within_its_bound_is_read_and_one_beyond_is_refused() {
        assert_eq!(read_body(&mut Body::from("12345"), 5).await.unwrap(), "12345");
        let refused = read_body(&mut Body::from("123456"), 5).await.unwrap_err();
        assert_eq!(refused.code(), Code::BodyTooLarge);
        let pieces = || {
            let pieces = ["12", "34", "56"].map(Ok::<_, std::io::Error>);
            Body::from_stream(futures_util::stream::iter(pieces))
        };
        assert_eq!(read_body(&mut pieces(), 6).await.unwrap(), "123456");
        assert_eq!(read_body(&mut pieces(), 5).await.unwrap_err().code(), Code::BodyTooLarge);
    }
}
