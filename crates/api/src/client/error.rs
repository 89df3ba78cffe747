//! What can go wrong, grouped by what the caller must do about it.

use std::time::Duration;

use catena_value::{Value, json};
use hyper::StatusCode;

use crate::VenueUrl;
use crate::limits::{ANSWER_DEPTH_MAX, REASON_CHARS_MAX};
use crate::wire::text;

/// Why a venue did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// There was no connection, or it broke before the answer was complete.
    #[error("could not reach the venue at {venue}: {reason}")]
    Unreachable {
        /// The venue.
        venue: String,
        /// What happened.
        reason: String,
    },
    /// The venue took the request and gave no answer in time.
    #[error("the venue at {venue} did not answer within {} s", .time.as_secs())]
    TimedOut {
        /// The venue.
        venue: String,
        /// How long it had.
        time: Duration,
    },
    /// The venue wants to know who asks, does not believe it, or does not allow it.
    #[error("{0}")]
    Auth(Box<Refusal>),
    /// What was named does not exist, or the caller may not know of it.
    #[error("{0}")]
    NotFound(Box<Refusal>),
    /// It cannot be done as things stand.
    #[error("{0}")]
    Conflict(Box<Refusal>),
    /// The venue cannot do it now: too much to do, stopping, or in trouble.
    #[error("{0}")]
    Busy(Box<Refusal>),
    /// The venue refused for another reason.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The answer is not what a venue answers.
    #[error("the answer of {venue} cannot be understood: {reason}")]
    Malformed {
        /// The venue.
        venue: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The request cannot be made as it is.
    #[error("{0}")]
    Invalid(String),
}

/// A refusal in the venue's own words.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The venue.
    pub venue: String,
    /// The status of the answer.
    pub status: u16,
    /// Why, in short.
    pub error: String,
    /// A word for it, from a closed list.
    pub code: Option<String>,
    /// More about it.
    pub detail: Option<String>,
    /// What one can do.
    pub hint: Option<String>,
    /// The whole body, when it is JSON.
    pub body: Option<Value>,
}

impl ClientError {
    /// The refusal, when the venue answered.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            ClientError::Auth(refusal)
            | ClientError::NotFound(refusal)
            | ClientError::Conflict(refusal)
            | ClientError::Busy(refusal)
            | ClientError::Refused(refusal) => Some(refusal),
            ClientError::Unreachable { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Malformed { .. }
            | ClientError::Invalid(_) => None,
        }
    }

    /// Whether the same may work in a moment, without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Busy(_) => true,
            ClientError::Auth(_)
            | ClientError::NotFound(_)
            | ClientError::Conflict(_)
            | ClientError::Refused(_)
            | ClientError::Malformed { .. }
            | ClientError::Invalid(_) => false,
        }
    }
}

/// The error of an answer that is not a success.
pub(super) fn refused(venue: &VenueUrl, status: StatusCode, body: &[u8]) -> ClientError {
    let refusal = Box::new(refusal(venue, status, body));
    let is_missing = |code: &str| code.ends_with("_not_found");
    match status.as_u16() {
        // A reference in a body that leads nowhere is a bad request to the venue.
        _ if refusal.code.as_deref().is_some_and(is_missing) => ClientError::NotFound(refusal),
        401 | 403 => ClientError::Auth(refusal),
        404 | 410 => ClientError::NotFound(refusal),
        409 => ClientError::Conflict(refusal),
        429 | 500..=599 => ClientError::Busy(refusal),
        _ => ClientError::Refused(refusal),
    }
}

fn refusal(venue: &VenueUrl, status: StatusCode, body: &[u8]) -> Refusal {
    let value = json::read_nested(body, ANSWER_DEPTH_MAX).ok();
    let member = |name: &str| text(value.as_ref()?.as_map()?.field(name)?).map(shortened);
    let said = || shortened(String::from_utf8_lossy(body).trim().to_owned());
    let otherwise = || match (&value, status.is_redirection()) {
        (_, true) => "the venue is somewhere else; use the URL it is at".to_owned(),
        (None, _) if !body.is_empty() && !body.starts_with(b"<") => said(),
        _ => status.canonical_reason().unwrap_or("refused").to_lowercase(),
    };
    Refusal {
        venue: venue.to_string(),
        status: status.as_u16(),
        error: member("error").unwrap_or_else(otherwise),
        code: member("code"),
        detail: member("detail"),
        hint: member("hint"),
        body: value,
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(status: u16, body: &str) -> ClientError {
        let venue = "http://v.example".parse().unwrap();
        refused(&venue, StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn a_refusal_is_told_by_what_to_do_about_it() {
        let body = r#"{"error":"no operation x","code":"operation_not_found","hint":"See."}"#;
        let error = refuse(400, body);
        assert!(matches!(error, ClientError::NotFound(_)), "{error:?}");
        assert_eq!(error.to_string(), "no operation x");
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.status, refusal.hint.as_deref()), (400, Some("See.")));
        assert!(matches!(refuse(401, "Authentication required"), ClientError::Auth(_)));
        assert!(matches!(refuse(403, "{}"), ClientError::Auth(_)));
        assert!(matches!(refuse(409, "{}"), ClientError::Conflict(_)));
        assert!(matches!(refuse(422, "{}"), ClientError::Refused(_)));
        assert!(refuse(503, "{}").is_passing() && refuse(429, "{}").is_passing());
        assert!(!refuse(400, "{}").is_passing());
    }

    #[test]
    fn other_venues_say_it_in_other_words() {
        assert_eq!(refuse(401, "Invalid or expired token").to_string(), "Invalid or expired token");
        assert_eq!(refuse(404, "").to_string(), "not found");
        assert_eq!(refuse(502, "<html>x</html>").to_string(), "bad gateway");
        assert!(refuse(302, "").to_string().contains("somewhere else"));
        let long = format!("{{\"error\":\"{}\"}}", "x".repeat(9_000));
        assert_eq!(refuse(400, &long).to_string().chars().count(), REASON_CHARS_MAX + 1);
    }
}
