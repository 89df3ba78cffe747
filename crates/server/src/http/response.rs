//! Building responses, and the headers that several APIs set.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_job::JobId;
use catena_value::{Value, json};

use crate::limits::WARNINGS_BYTES_MAX;

/// The content type of JSON responses.
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Marks the response to an earlier request that is sent again.
pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What the venue has to say about a request that it carried out.
const WARNINGS: HeaderName = HeaderName::from_static("catena-warnings");

/// Names the preference of the request that was applied.
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// A response whose body is JSON text.
pub(crate) fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    with_type(status, JSON, text)
}

/// A response whose body is this value, which must be fully in memory.
pub(crate) fn value(status: StatusCode, value: &Value) -> Response {
    json(status, json::to_string(value).unwrap_or_default())
}

/// A response with a body of some media type.
pub(crate) fn with_type(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets a header. A value that no header can carry is left out.
pub(crate) fn set_header(
    response: &mut Response,
    name: HeaderName,
    value: impl TryInto<HeaderValue>,
) {
    if let Ok(value) = value.try_into() {
        response.headers_mut().insert(name, value);
    }
}

/// Adds `Catena-Warnings`, a JSON array of sentences, unless there are none. Sentences that do not fit
/// are left out.
pub(crate) fn set_warnings(response: &mut Response, warnings: &[String]) {
    let mut text = String::from("[");
    for warning in warnings {
        let item = ascii_json(warning);
        if text.len() + item.len() > WARNINGS_BYTES_MAX {
            break;
        }
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    if text.len() > 2 {
        set_header(response, WARNINGS, text);
    }
}

/// A JSON string that a header can carry: all but visible ASCII characters are escaped.
fn ascii_json(text: &str) -> String {
    let json = json::to_string(&text.into()).unwrap_or_default();
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if (' '..='~').contains(&character) {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

/// Adds `Idempotent-Replayed` if the response repeats that of an earlier request.
pub(crate) fn mark_replay(response: &mut Response, is_replay: bool) {
    if is_replay {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
}

/// The path of a job in the grid API, for `Location`.
pub(crate) fn job_location(job: JobId) -> String {
    const FOLDER: &str = "/api/v1/jobs/";
    let text = job.text();
    let hex = &text.as_str()[2..];
    // Allocated with the exact size, because the header takes the buffer over as it is.
    let mut location = String::with_capacity(FOLDER.len() + hex.len());
    location.push_str(FOLDER);
    location.push_str(hex);
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(sentences: &[String]) -> Option<String> {
        let mut response = empty(StatusCode::OK);
        set_warnings(&mut response, sentences);
        response.headers().get(WARNINGS).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn warnings_are_a_json_array_of_bounded_size_in_ascii() {
        assert_eq!(warnings(&[]), None);
        let text = warnings(&["é \"𝄞\"\n".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(text, r#"["\u00e9 \"\ud834\udd1e\"\n","b"]"#);
        let many = vec!["x".repeat(1_000); 10];
        let text = warnings(&many).unwrap();
        assert!(text.len() <= WARNINGS_BYTES_MAX + 8, "{}", text.len());
        assert_eq!(json::read(text.as_bytes()).unwrap().as_vector().unwrap().len(), 4);
    }
}
