//! Signatures of ends: a worker with a key of its own signs how a job ended.
//!
//! What is signed is the Value ID of `{job, fence, output}` or `{job, fence, error}`. The signature is
//! kept next to the terminal record, as `{fence, value}`, and never inside it: the record is what the
//! venue says, the signature what the worker says. The key is that of the did:key in the record's `by`.

use catena_auth::base::from_base64url;
use catena_auth::key::is_signed_by;
use catena_auth::{KeyPair, public_key, signed_end};
use catena_value::{Map, Value, ValueId};

use crate::ids::JobId;
use crate::record::Record;
use crate::state::Status;

/// How a job ended, as its worker signs it.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedEnd {
    /// The job.
    pub job: JobId,
    /// The fence under which the worker held it.
    pub fence: u64,
    /// Its output or its error.
    pub result: Result<Value, String>,
}

impl SignedEnd {
    /// Returns the ID that is signed.
    pub fn id(&self) -> ValueId {
        signed_end::id(&self.job.to_string(), fence(self.fence), self.result())
    }

    /// Returns the signature with a key, as text.
    pub fn sign(&self, key: &KeyPair) -> String {
        signed_end::sign(key, &self.job.to_string(), fence(self.fence), self.result())
    }

    fn result(&self) -> Result<&Value, &str> {
        self.result.as_ref().map_err(String::as_str)
    }

    /// Returns true if a text is the signature with the key of a did:key.
    pub fn is_signed_by(&self, did: &str, signature: &str) -> bool {
        let bytes = from_base64url(signature).and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        match (public_key(did), bytes) {
            (Ok(key), Some(bytes)) => is_signed_by(&key, self.id().as_bytes(), &bytes),
            _ => false,
        }
    }

    /// Returns what is kept of a signature next to the terminal record.
    pub fn to_stored(&self, signature: &str) -> Value {
        let members = [("fence", Value::from(fence(self.fence))), ("value", signature.into())];
        members.into_iter().collect::<Map>().into()
    }

    /// Returns true if a terminal record says the same.
    pub fn agrees_with(&self, status: Status, record: impl Fn(&str) -> Option<Value>) -> bool {
        match &self.result {
            Ok(output) => {
                status == Status::Complete
                    && record("output").is_some_and(|found| found.id() == output.id())
            }
            Err(error) => {
                status == Status::Failed
                    && record("error").as_ref().and_then(Value::as_str) == Some(error)
            }
        }
    }
}

fn fence(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

/// The result of checking a signature next to a record.
pub(crate) enum Checked {
    /// Whoever ended the job signed this end.
    Valid,
    /// It is of another kind.
    Unknown,
    /// It is not the signature of whoever ended the job.
    Invalid(String),
}

/// Checks a signature next to a record.
pub(crate) fn check(job: JobId, record: &Record, signature: &Value) -> Checked {
    let field = |name: &str| record.field(name).cloned();
    let member = |name: &str| signature.as_map().and_then(|map| map.field(name)).cloned();
    let fence =
        member("fence").as_ref().and_then(Value::as_i64).and_then(|n| u64::try_from(n).ok());
    let (Some(fence), Some(value)) = (fence, member("value")) else { return Checked::Unknown };
    let result = match record.status() {
        Status::Complete => Ok(field("output").unwrap_or_default()),
        Status::Failed => {
            let error = field("error").unwrap_or_default();
            Err(error.as_str().unwrap_or_default().to_owned())
        }
        _ => return Checked::Unknown,
    };
    let by = field("by").unwrap_or_default();
    let by = by.as_str().unwrap_or_default();
    let end = SignedEnd { job, fence, result };
    if value.as_str().is_some_and(|value| end.is_signed_by(by, value)) {
        return Checked::Valid;
    }
    let by = if by.is_empty() { "nobody, whom the record names" } else { by };
    Checked::Invalid(format!("the signature of the end is not that of {by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> SignedEnd {
        SignedEnd { job: JobId::from_bytes([1; 16]), fence: 2, result: Ok("done".into()) }
    }

    #[test]
    fn a_signature_is_for_one_job_one_fence_and_one_result() {
        let key = KeyPair::from_seed(&[1; 32]);
        let signature = end().sign(&key);
        assert!(end().is_signed_by(&key.did(), &signature));
        for other in [
            SignedEnd { job: JobId::from_bytes([2; 16]), ..end() },
            SignedEnd { fence: 3, ..end() },
            SignedEnd { result: Ok("else".into()), ..end() },
            SignedEnd { result: Err("done".into()), ..end() },
        ] {
            assert!(!other.is_signed_by(&key.did(), &signature), "{other:?}");
        }
        assert!(!end().is_signed_by(&KeyPair::from_seed(&[2; 32]).did(), &signature));
        assert!(!end().is_signed_by("did:web:x.example", &signature));
        assert!(!end().is_signed_by(&key.did(), "x"));
    }

    #[test]
    fn what_is_signed_can_be_computed_from_json() {
        let json = r#"{"job":"0x01010101010101010101010101010101","fence":2,"output":"done"}"#;
        let value = catena_value::json::read(json.as_bytes()).unwrap();
        assert_eq!(end().id(), value.id());
    }
}
