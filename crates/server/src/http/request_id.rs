//! Request IDs, which connect a response to the log.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::limits::REQUEST_ID_BYTES_MAX;

/// The header that carries the ID, in requests and in responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns an ID to every request: the client's own if it is usable, otherwise one that is unique to
/// this process and request.
pub(crate) struct RequestIds {
    /// Random number of this process.
    process: u32,
    /// Number of the next request.
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(random: [u8; 4]) -> Self {
        RequestIds { process: u32::from_be_bytes(random), next: AtomicU64::new(0) }
    }

    /// The ID of the request with these headers.
    pub(crate) fn for_request(&self, headers: &HeaderMap) -> HeaderValue {
        let is_usable = |value: &&HeaderValue| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&value.len())
                && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        match headers.get(REQUEST_ID).filter(is_usable) {
            Some(own) => own.clone(),
            None => self.next_id(),
        }
    }

    fn next_id(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Every request gets an ID, so it is formatted into a buffer on the stack.
        let mut buffer = [0; 25];
        let mut length = 0;
        let mut rest = &mut buffer[..];
        if write!(rest, "{:08x}-{number:x}", self.process).is_ok() {
            let left = rest.len();
            length = buffer.len() - left;
        }
        // Hex digits and a hyphen are always a valid header value.
        HeaderValue::from_bytes(&buffer[..length]).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_the_id_it_came_with_unless_it_is_unusable() {
        let ids = RequestIds::new([0, 0, 0, 10]);
        let of = |id: &str| {
            let value = HeaderValue::from_str(id).unwrap();
            ids.for_request(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(of("abc-1"), "abc-1");
        assert_eq!(of("two words"), "0000000a-0");
        assert_eq!(of(&"a".repeat(REQUEST_ID_BYTES_MAX + 1)), "0000000a-1");
        assert_eq!(ids.for_request(&HeaderMap::new()), "0000000a-2");
    }
}
