//! Requests that a venue signs as Standard Webhooks describe, in the asymmetric form (`v1a`).
//!
//! What is signed is `<webhook-id>.<webhook-timestamp>.<body>`. A receiver needs the venue's DID and no
//! shared secret. It must not take the DID from the request: a document that names its own sender proves
//! nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::did::public_key;
use crate::key::is_signed_by;
use crate::limits::{WEBHOOK_SECONDS_MAX, WEBHOOK_SIGNATURES_MAX};

/// The header that identifies a request; a repetition has the same value.
pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of the signature: Unix time in seconds.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with signatures, separated by blanks.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// What the signatures of this form begin with.
const SCHEME: &str = "v1a,";

/// The headers of a signed request.
#[derive(Debug, Clone, Copy)]
pub struct SignedHeaders<'a> {
    /// [`ID_HEADER`].
    pub id: &'a str,
    /// [`TIMESTAMP_HEADER`].
    pub timestamp: &'a str,
    /// [`SIGNATURE_HEADER`].
    pub signature: &'a str,
}

/// The reason why a request is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookRefused {
    /// The sender's DID is not a did:key with an Ed25519 key.
    #[error("the sender's DID is not a did:key with an Ed25519 key")]
    Sender,
    /// The timestamp is not a number of seconds.
    #[error("`{TIMESTAMP_HEADER}` is not a time in seconds")]
    Timestamp,
    /// The request was signed too long ago, or the clocks differ.
    #[error("the request was not signed within the last {WEBHOOK_SECONDS_MAX} seconds")]
    Age,
    /// No signature is that of the sender.
    #[error("the request is not signed by its sender")]
    Signature,
}

/// Returns the value of [`SIGNATURE_HEADER`] for a request. `seconds` is Unix time; `sign` returns the
/// Ed25519 signature over a message with the sender's key.
pub fn sign(id: &str, seconds: i64, body: &[u8], sign: impl FnOnce(&[u8]) -> [u8; 64]) -> String {
    let signature = sign(&signed_content(id, &seconds.to_string(), body));
    format!("{SCHEME}{}", STANDARD.encode(signature))
}

/// Checks that the holder of the key in a did:key has signed a request just now. `now` is Unix time in
/// seconds.
pub fn check(
    sender: &str,
    headers: SignedHeaders<'_>,
    body: &[u8],
    now: i64,
) -> Result<(), WebhookRefused> {
    let key = public_key(sender).map_err(|_| WebhookRefused::Sender)?;
    let time: i64 = headers.timestamp.parse().map_err(|_| WebhookRefused::Timestamp)?;
    if now.saturating_sub(time).unsigned_abs() > WEBHOOK_SECONDS_MAX {
        return Err(WebhookRefused::Age);
    }
    let content = signed_content(headers.id, headers.timestamp, body);
    let mut signatures = headers.signature.split(' ').take(WEBHOOK_SIGNATURES_MAX);
    let is_signed = signatures.any(|text| {
        let bytes = text.strip_prefix(SCHEME).and_then(|text| STANDARD.decode(text).ok());
        let signature = bytes.and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        signature.is_some_and(|signature| is_signed_by(&key, &content, &signature))
    });
    if is_signed { Ok(()) } else { Err(WebhookRefused::Signature) }
}

fn signed_content(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyPair;

    #[test]
    fn a_request_is_believed_if_its_sender_signed_it_just_now() {
        let key = KeyPair::from_seed(&[1; 32]);
        let did = key.did();
        let signed = sign("job-1", 1_000, b"{}", |content| key.sign(content));
        let signature = format!("v1,c2hhcmVk {signed}");
        let headers = SignedHeaders { id: "job-1", timestamp: "1000", signature: &signature };
        assert_eq!(check(&did, headers, b"{}", 1_300), Ok(()));
        assert_eq!(check(&did, headers, b"{}", 1_301), Err(WebhookRefused::Age));
        assert_eq!(check(&did, headers, b"{}", 699), Err(WebhookRefused::Age));
        assert_eq!(check("did:web:x.example", headers, b"{}", 1_000), Err(WebhookRefused::Sender));
        let other = KeyPair::from_seed(&[2; 32]).did();
        for (sender, headers, body) in [
            (&other, headers, b"{}".as_slice()),
            (&did, headers, b"[]"),
            (&did, SignedHeaders { id: "job-2", ..headers }, b"{}"),
            (&did, SignedHeaders { timestamp: "1001", ..headers }, b"{}"),
            (&did, SignedHeaders { signature: "v1a,%", ..headers }, b"{}"),
        ] {
            let refused = check(sender, headers, body, 1_000);
            assert_eq!(refused, Err(WebhookRefused::Signature), "{headers:?}");
        }
        let late = SignedHeaders { timestamp: "soon", ..headers };
        assert_eq!(check(&did, late, b"{}", 1_000), Err(WebhookRefused::Timestamp));
    }
}
