//! What a worker with a key signs when a job ends: the Value ID of `{job, fence, output}` or
//! `{job, fence, error}`. It can be computed from JSON in any language.

use catena_value::{Map, Value, ValueId};

use crate::base::to_base64url;
use crate::key::KeyPair;

/// Returns the ID that is signed. `job` is the text of a job ID.
pub fn id(job: &str, fence: i64, result: Result<&Value, &str>) -> ValueId {
    let result = match result {
        Ok(output) => ("output", output.clone()),
        Err(error) => ("error", error.into()),
    };
    let members = [("job", Value::from(job)), ("fence", fence.into()), result];
    Value::from(members.into_iter().collect::<Map>()).id()
}

/// Returns the signature with a key, as text.
pub fn sign(key: &KeyPair, job: &str, fence: i64, result: Result<&Value, &str>) -> String {
    to_base64url(&key.sign(id(job, fence, result).as_bytes()))
}
