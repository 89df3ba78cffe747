//! Constants and conventions of the API that clients need.

use catena_value::{NoCells, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Path of the API below a venue's base URL.
pub const API: &str = "/api/v1";

/// The path of the API of workers.
pub const WORKER_API: &str = "/worker/v1";

/// The path of the API of executors.
pub const EXECUTOR_API: &str = "/contract/v1/executor";

/// Path of a venue's DID document below its base URL.
pub const DID_DOCUMENT: &str = "/.well-known/did.json";

/// Header of an invocation with the number of orchestrations that it is nested in.
pub const DEPTH_HEADER: &str = "catena-depth";

/// Name of the stream event that carries a job.
pub const JOB_UPDATE: &str = "job-update";

/// Name of the stream event that carries progress.
pub const PROGRESS: &str = "progress";

/// Name of the stream event that gives the reason why the stream ends.
pub const ERROR: &str = "error";

/// What a job's status means to a client that waits for the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    /// The job is pending or running.
    Active,
    /// The job waits to be resumed, or for a message, or for authorisation.
    Waiting,
    /// The job is COMPLETE.
    Done,
    /// The job ended as FAILED, REJECTED or CANCELLED.
    Failed,
    /// The job exceeded its time limit.
    TimedOut,
}

impl JobOutcome {
    /// The outcome of a status. An unknown status, such as one of a later version,
    /// counts as active, so that a client keeps waiting.
    pub fn from_status(status: &str) -> Self {
        match status {
            "COMPLETE" => JobOutcome::Done,
            "FAILED" | "REJECTED" | "CANCELLED" => JobOutcome::Failed,
            "TIMEOUT" => JobOutcome::TimedOut,
            "PAUSED" | "INPUT_REQUIRED" | "AUTH_REQUIRED" => JobOutcome::Waiting,
            _ => JobOutcome::Active,
        }
    }

    /// Returns true if the job has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, JobOutcome::Done | JobOutcome::Failed | JobOutcome::TimedOut)
    }
}

/// The text of a string value of any length; `None` if the value is not a string.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => String::from_utf8(text.to_bytes(&NoCells).ok()?).ok(),
        _ => None,
    }
}

/// A member of an object; `None` if the value is not an object or has no such member.
pub fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_map()?.field(name)
}

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a path escapes. Slashes and the other characters that a path may contain are kept, so that
/// operation references and DIDs stay readable.
const PATH: &AsciiSet = &UNRESERVED
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// What a query value escapes: more than a path, because `&`, `=` and `+` have a meaning there.
const QUERY: &AsciiSet = &UNRESERVED.remove(b'/').remove(b':').remove(b'@');

/// Percent-encodes a text for a path. Slashes are kept.
pub fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// Percent-encodes a text for the value of a query parameter.
pub fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_keep_their_form_in_a_path() {
        for kept in ["test:echo", "v/ops/http/get", "0xab", "did:key:z6Mk/a/ab"] {
            assert_eq!(encode_path(kept), kept);
        }
        assert_eq!(encode_path("did:web:a%3A1 ?#ü"), "did:web:a%253A1%20%3F%23%C3%BC");
        assert_eq!(encode_query("a b&c+d=e"), "a%20b%26c%2Bd%3De");
    }

    #[test]
    fn every_other_ascii_character_is_escaped() {
        let all: String = (0u8..128).map(char::from).collect();
        let kept = |encoded: String| {
            let mut kept = encoded;
            for byte in 0u8..128 {
                kept = kept.replace(&format!("%{byte:02X}"), "");
            }
            kept
        };
        let alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let sorted = |marks: &str| {
            let mut bytes: Vec<u8> = format!("{alphanumeric}{marks}").into_bytes();
            bytes.sort_unstable();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(kept(encode_path(&all)), sorted("-._~/:@!$&'()*,;="));
        assert_eq!(kept(encode_query(&all)), sorted("-._~/:@"));
    }
}
