//! Errors of calls, grouped by what the caller must do about them.

use catena_value::{Value, json};
use hyper::header::RETRY_AFTER;

use super::transport::{ApiResponse, InvalidRequest};
use crate::known_venues::IdentityError;
use crate::limits::{ANSWER_DEPTH_MAX, REASON_CHARS_MAX};
use crate::wire::text;

/// Why a call did not succeed. `E` is the error of the transport.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError<E> {
    /// There is no response.
    #[error(transparent)]
    Transport(E),
    /// The venue requires authentication, rejects the credentials, or denies access.
    #[error("{0}")]
    Auth(Box<Refusal>),
    /// The object does not exist, or the caller may not know of it.
    #[error("{0}")]
    NotFound(Box<Refusal>),
    /// The current state of the object does not allow the request.
    #[error("{0}")]
    Conflict(Box<Refusal>),
    /// The venue cannot handle the request now: it is overloaded, stopping, or has an error of its
    /// own.
    #[error("{0}")]
    Busy(Box<Refusal>),
    /// The venue refused the request for another reason.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The response is not one that a venue sends.
    #[error("the response of {venue} cannot be understood: {reason}")]
    Malformed {
        /// The venue.
        venue: String,
        /// The problem with the response.
        reason: String,
    },
    /// Nothing was sent, because the venue is not, or no longer, the one that the credentials are for.
    #[error("{error}; nothing was sent")]
    Identity {
        /// The venue.
        venue: String,
        /// What is wrong with its identity.
        error: IdentityError,
    },
    /// The request cannot be sent as it is.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
}

/// The error response of a venue.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The venue.
    pub venue: String,
    /// The HTTP status.
    pub status: u16,
    /// The error in one line.
    pub error: String,
    /// The error code, from a closed list.
    pub code: Option<String>,
    /// An explanation.
    pub detail: Option<String>,
    /// What the user can do.
    pub hint: Option<String>,
    /// The `Retry-After` header as it was sent.
    pub retry_after: Option<String>,
    /// The whole body if it is JSON.
    pub body: Option<Value>,
}

impl<E> ClientError<E> {
    /// The error response; `None` if the venue did not send one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            ClientError::Auth(refusal)
            | ClientError::NotFound(refusal)
            | ClientError::Conflict(refusal)
            | ClientError::Busy(refusal)
            | ClientError::Refused(refusal) => Some(refusal),
            ClientError::Transport(_)
            | ClientError::Malformed { .. }
            | ClientError::Identity { .. }
            | ClientError::Invalid(_) => None,
        }
    }
}

/// The error of a response that is not a success.
pub(super) fn response_error<E>(venue: String, response: &ApiResponse) -> ClientError<E> {
    let refusal = Box::new(refusal(venue, response));
    let is_missing = |code: &str| code.ends_with("_not_found");
    match response.status.as_u16() {
        // To the venue, a reference in a body that leads nowhere is a bad request.
        _ if refusal.code.as_deref().is_some_and(is_missing) => ClientError::NotFound(refusal),
        401 | 403 => ClientError::Auth(refusal),
        404 | 410 => ClientError::NotFound(refusal),
        409 => ClientError::Conflict(refusal),
        429 | 500..=599 => ClientError::Busy(refusal),
        _ => ClientError::Refused(refusal),
    }
}

fn refusal(venue: String, response: &ApiResponse) -> Refusal {
    let ApiResponse { status, headers, body } = response;
    let value = json::read_nested(body, ANSWER_DEPTH_MAX).ok();
    let member = |name: &str| text(value.as_ref()?.as_map()?.field(name)?).map(shorten);
    let plain_text = || shorten(String::from_utf8_lossy(body).trim().to_owned());
    let fallback = || match (&value, status.is_redirection()) {
        (_, true) => "the venue redirects to another URL; use that URL".to_owned(),
        (None, _) if !body.is_empty() && !body.starts_with(b"<") => plain_text(),
        _ => status.canonical_reason().unwrap_or("refused").to_lowercase(),
    };
    Refusal {
        venue,
        status: status.as_u16(),
        error: member("error").unwrap_or_else(fallback),
        code: member("code"),
        detail: member("detail"),
        hint: member("hint"),
        retry_after: headers
            .get(RETRY_AFTER)
            .and_then(|value| Some(value.to_str().ok()?.to_owned())),
        body: value,
    }
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use hyper::header::HeaderMap;

    use super::*;

    type Error = ClientError<std::io::Error>;

    fn refuse(status: u16, body: &str) -> Error {
        let status = StatusCode::from_u16(status).unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let response = ApiResponse { status, headers, body: body.as_bytes().to_vec() };
        response_error("http://v.example".to_owned(), &response)
    }

    #[test]
    fn a_refusal_is_classified_by_what_the_caller_must_do() {
        let body = r#"{"error":"no operation x","code":"operation_not_found","hint":"See."}"#;
        let error = refuse(400, body);
        assert!(matches!(error, Error::NotFound(_)), "{error:?}");
        assert_eq!(error.to_string(), "no operation x");
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.status, refusal.hint.as_deref()), (400, Some("See.")));
        assert_eq!(refusal.retry_after.as_deref(), Some("7"));
        assert!(matches!(refuse(401, "Authentication required"), Error::Auth(_)));
        assert!(matches!(refuse(403, "{}"), Error::Auth(_)));
        assert!(matches!(refuse(409, "{}"), Error::Conflict(_)));
        assert!(matches!(refuse(422, "{}"), Error::Refused(_)));
        assert!(matches!(refuse(503, "{}"), Error::Busy(_)));
        assert!(matches!(refuse(429, "{}"), Error::Busy(_)));
        assert!(matches!(refuse(400, "{}"), Error::Refused(_)));
    }

    #[test]
    fn other_venues_use_other_words() {
        assert_eq!(refuse(401, "Invalid or expired token").to_string(), "Invalid or expired token");
        assert_eq!(refuse(404, "").to_string(), "not found");
        assert_eq!(refuse(502, "<html>x</html>").to_string(), "bad gateway");
        assert!(refuse(302, "").to_string().contains("redirects to another URL"));
        let long = format!("{{\"error\":\"{}\"}}", "x".repeat(9_000));
        assert_eq!(refuse(400, &long).to_string().chars().count(), REASON_CHARS_MAX + 1);
    }
}
