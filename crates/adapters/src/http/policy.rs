//! What a definition of an `http:*` operation says beyond its schemas: which statuses are failures, when
//! a failed request is repeated, and whether requests name their job.

use std::time::Duration;

use catena_engine::operations::Problem;
use catena_engine::{Failure, Operation};
use catena_job::JobId;
use catena_value::{NoCells, Value};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::limits::{FAIL_ON_MAX, RESPONSE_EXCERPT_CHARS_MAX, SERVICE_RETRY_AFTER_MAX};
use crate::outbound::Response;

/// Statuses from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatusRange(u16, u16);

/// Statuses of requests that may succeed when they are sent again. They are failures if a definition
/// has `retry` and does not list others.
const TRANSIENT: &[StatusRange] =
    &[StatusRange(408, 408), StatusRange(425, 425), StatusRange(429, 429), StatusRange(500, 599)];

fn contains(ranges: &[StatusRange], status: StatusCode) -> bool {
    ranges.iter().any(|range| (range.0..=range.1).contains(&status.as_u16()))
}

/// What a definition says about its requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// The statuses that are failures.
    fail_on: Vec<StatusRange>,
    /// Whether requests name their job.
    pub(super) job_headers: bool,
}

impl Policy {
    /// Reads `failOn` and `jobHeaders` of a definition. Fails with their problems.
    pub(super) fn from_operation(operation: &Operation) -> Result<Self, Vec<Problem>> {
        let present = |name: &str| operation.member(name).filter(|value| !value.is_nil());
        Policy::parse(present("failOn"), present("jobHeaders"), present("retry").is_some())
    }

    /// Whether a response with this status is a failure.
    pub(super) fn fails_on(&self, status: StatusCode) -> bool {
        contains(&self.fail_on, status)
    }

    pub(super) fn parse(
        fail_on: Option<Value>,
        job_headers: Option<Value>,
        has_retry: bool,
    ) -> Result<Self, Vec<Problem>> {
        let at = |name: &str, problem: String| (format!("/operation/{name}"), problem);
        let mut problems = Vec::new();
        let mut policy = Policy::default();
        match fail_on.as_ref().map(parse_fail_on) {
            None if has_retry => policy.fail_on = TRANSIENT.to_vec(),
            None => {}
            Some(Ok(ranges)) => policy.fail_on = ranges,
            Some(Err(problem)) => problems.push(at("failOn", problem)),
        }
        match job_headers {
            None => {}
            Some(Value::Bool(is_on)) => policy.job_headers = is_on,
            Some(_) => problems.push(at("jobHeaders", "must be true or false".to_owned())),
        }
        if problems.is_empty() { Ok(policy) } else { Err(problems) }
    }
}

fn parse_fail_on(value: &Value) -> Result<Vec<StatusRange>, String> {
    let list = "must be a list of statuses and ranges, such as [404, \"5xx\", \"500-503\"]";
    let entries = value.as_vector().ok_or(list)?;
    if entries.len() > FAIL_ON_MAX {
        return Err(format!("has more than {FAIL_ON_MAX} entries"));
    }
    let range = |entry: Result<Value, _>| entry.ok().as_ref().and_then(parse_status_range);
    entries.iter(&NoCells).map(|entry| range(entry).ok_or_else(|| list.to_owned())).collect()
}

/// Parses a status, such as `404`, a class, such as `"5xx"`, or a range, such as `"500-503"`.
fn parse_status_range(entry: &Value) -> Option<StatusRange> {
    let status = |number: i64| u16::try_from(number).ok().filter(|n| (100..=599).contains(n));
    if let Some(number) = entry.as_i64() {
        return status(number).map(|status| StatusRange(status, status));
    }
    let text = entry.as_str()?;
    let parse = |text: &str| status(text.parse().ok()?);
    if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        let first = status(class.parse::<i64>().ok()?.checked_mul(100)?)?;
        return Some(StatusRange(first, first + 99));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = StatusRange(parse(first.trim())?, parse(last.trim())?);
    (range.0 <= range.1).then_some(range)
}

/// The header with the ID of the job that sends a request.
const JOB_HEADER: HeaderName = HeaderName::from_static("catena-job");

/// The header with the number of the attempt, from 1.
const ATTEMPT_HEADER: HeaderName = HeaderName::from_static("catena-attempt");

/// The header by which a service recognises a request that was sent before. All attempts of a job have
/// the same value.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Adds the headers that name the job. A key that the caller sets is kept: it may be the service's own.
pub(super) fn add_job_headers(headers: &mut HeaderMap, job: JobId, attempt: u32) {
    if let Ok(value) = HeaderValue::try_from(job.to_string()) {
        headers.insert(JOB_HEADER, value.clone());
        headers.entry(KEY_HEADER).or_insert(value);
    }
    headers.insert(ATTEMPT_HEADER, attempt.into());
}

/// Whether a content type is JSON: `application/json`, `text/json` or a type that ends with `+json`.
pub(crate) fn is_json(content_type: &HeaderValue) -> bool {
    let media = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let media = media.trim().to_ascii_lowercase();
    matches!(media.as_str(), "application/json" | "text/json")
        || media.split_once('/').is_some_and(|(_, subtype)| subtype.ends_with("+json"))
}

/// The failure of a request that got a status which the definition treats as one. `now` is Unix time in
/// ms.
pub(crate) fn status_failure(host: &str, response: &Response, now: i64) -> Failure {
    let status = response.status.as_u16();
    let excerpt = match std::str::from_utf8(&response.body).map(str::trim) {
        Ok(text) if !text.is_empty() => {
            let more =
                if text.chars().nth(RESPONSE_EXCERPT_CHARS_MAX).is_some() { "…" } else { "" };
            let text: String = text.chars().take(RESPONSE_EXCERPT_CHARS_MAX).collect();
            format!(": {text}{more}")
        }
        _ => String::new(),
    };
    let code = format!("http_{status}");
    let error = format!("{host} answered with status {status}{excerpt}");
    if !contains(TRANSIENT, response.status) {
        return Failure::new(&code, error);
    }
    Failure { after: retry_after(&response.headers, now), ..Failure::transient(&code, error) }
}

/// The delay that a service asks for, in seconds or as a date, up to [`SERVICE_RETRY_AFTER_MAX`].
fn retry_after(headers: &HeaderMap, now: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            let now = Duration::from_millis(u64::try_from(now).unwrap_or_default());
            let date = date.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            date.saturating_sub(now)
        }
    };
    Some(delay.min(SERVICE_RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use catena_engine::RetryAdvice;

    use super::*;
    use crate::fields::value;

    fn response(body: &[u8]) -> Response {
        Response { status: StatusCode::NOT_FOUND, headers: HeaderMap::new(), body: body.to_vec() }
    }

    #[test]
    fn a_definition_lists_the_statuses_that_are_failures() {
        let fails = |fail_on: Option<&str>, has_retry: bool| {
            let policy = Policy::parse(fail_on.map(value), None, has_retry).unwrap();
            let statuses: [u16; 9] = [200, 404, 408, 425, 429, 499, 500, 503, 599];
            let fails = |status: &u16| policy.fails_on(StatusCode::from_u16(*status).unwrap());
            statuses.into_iter().filter(fails).collect::<Vec<_>>()
        };
        assert!(fails(None, false).is_empty());
        assert_eq!(fails(None, true), [408, 425, 429, 500, 503, 599]);
        assert!(fails(Some("[]"), true).is_empty());
        assert_eq!(fails(Some(r#"[404,"500-503"]"#), true), [404, 500, 503]);
        assert_eq!(fails(Some(r#"["4xx","503"]"#), false), [404, 408, 425, 429, 499, 503]);
        for wrong in ["404", "[99]", "[600]", r#"["6xx"]"#, r#"["xx"]"#, r#"["503-500"]"#, "[null]"]
        {
            let problems = Policy::parse(Some(value(wrong)), None, false).unwrap_err();
            assert_eq!(problems[0].0, "/operation/failOn", "{wrong}");
        }
        let problems = Policy::parse(None, Some(value("1")), false).unwrap_err();
        assert_eq!(problems[0].0, "/operation/jobHeaders");
    }

    #[test]
    fn a_status_that_a_definition_adds_is_final() {
        let failure = status_failure("x:80", &response(b""), 0);
        assert_eq!((failure.code.as_str(), failure.retry), ("http_404", RetryAdvice::Never));
        assert_eq!(failure.error, "x:80 answered with status 404");
        let long = status_failure("x:80", &response("é".repeat(1_000).as_bytes()), 0);
        assert!(long.error.chars().count() < RESPONSE_EXCERPT_CHARS_MAX + 50, "{}", long.error);
    }

    #[test]
    fn a_service_asks_for_a_delay_in_seconds_or_with_a_date() {
        let after = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, 784_111_777_000).map(|delay| delay.as_secs())
        };
        assert_eq!(after("2"), Some(2));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:40 GMT"), Some(3));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:30 GMT"), Some(0));
        assert_eq!(after("99999999999"), Some(SERVICE_RETRY_AFTER_MAX.as_secs()));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn every_attempt_of_a_job_has_the_same_key() {
        let job = JobId::from_bytes([1; 16]);
        let name = "0x01010101010101010101010101010101";
        let mut headers = HeaderMap::new();
        add_job_headers(&mut headers, job, 2);
        assert_eq!(headers["catena-job"], name);
        assert_eq!(headers["idempotency-key"], name);
        assert_eq!(headers["catena-attempt"], "2");
        let own = [("idempotency-key", "order-7"), ("catena-job", "another")];
        let own = own.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::from_iter(own);
        add_job_headers(&mut headers, job, 1);
        assert_eq!(headers["idempotency-key"], "order-7");
        assert_eq!(headers["catena-job"], name);
        assert_eq!(headers.get_all("catena-job").iter().count(), 1);
    }
}
