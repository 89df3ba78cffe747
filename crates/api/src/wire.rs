//! Words of the wire that clients need to know.

use catena_value::{NoCells, Value};

/// Where the API is, from a venue's base.
pub const API: &str = "/api/v1";

/// Where a venue's DID document is, from its base.
pub const DID_DOCUMENT: &str = "/.well-known/did.json";

/// The event of a stream that carries a job.
pub const JOB_UPDATE: &str = "job-update";

/// The event of a stream that carries progress.
pub const PROGRESS: &str = "progress";

/// The event of a stream that says why it ends.
pub const ERROR: &str = "error";

/// How a job stands, as far as whoever waits for it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    /// It goes on.
    Active,
    /// It waits for somebody: to resume it, to send it a message, to prove something.
    Waiting,
    /// It did what it was to do.
    Done,
    /// It ended otherwise.
    Failed,
    /// It ended because its time was over.
    TimedOut,
}

impl JobOutcome {
    /// What a status means. A word of a later version is taken for an active one: whoever waits
    /// goes on waiting.
    pub fn of(status: &str) -> Self {
        match status {
            "COMPLETE" => JobOutcome::Done,
            "FAILED" | "REJECTED" | "CANCELLED" => JobOutcome::Failed,
            "TIMEOUT" => JobOutcome::TimedOut,
            "PAUSED" | "INPUT_REQUIRED" | "AUTH_REQUIRED" => JobOutcome::Waiting,
            _ => JobOutcome::Active,
        }
    }

    /// Whether nothing follows.
    pub fn is_terminal(self) -> bool {
        matches!(self, JobOutcome::Done | JobOutcome::Failed | JobOutcome::TimedOut)
    }
}

/// The text of a value that is one, however long it is.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => String::from_utf8(text.to_bytes(&NoCells).ok()?).ok(),
        _ => None,
    }
}

/// A member of a value that is an object.
pub fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_map()?.field(name)
}

/// A text as it stands in a path: what may stand there by itself stays, slashes included.
pub fn path_encoded(text: &str) -> String {
    encoded(text, b"-._~/:@!$&'()*,;=")
}

/// A text as it stands in a query.
pub fn query_encoded(text: &str) -> String {
    encoded(text, b"-._~/:@")
}

fn encoded(text: &str, kept: &[u8]) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => result.push(char::from(byte)),
            _ if kept.contains(&byte) => result.push(char::from(byte)),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_keep_their_form_in_a_path() {
        for kept in ["test:echo", "v/ops/http/get", "0xab", "did:key:z6Mk/a/ab"] {
            assert_eq!(path_encoded(kept), kept);
        }
        assert_eq!(path_encoded("did:web:a%3A1 ?#ü"), "did:web:a%253A1%20%3F%23%C3%BC");
        assert_eq!(query_encoded("a b&c+d=e"), "a%20b%26c%2Bd%3De");
    }
}
