//! Reading the JSON that venues return.

use catena_value::{NoCells, Value, json};

use crate::Fault;

pub(crate) fn read(body: &[u8]) -> Result<Value, Fault> {
    Ok(json::read(body).map_err(|error| error.to_string())?)
}

pub(crate) fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}

/// A text member; empty if it is missing.
pub(crate) fn text(value: &Value, name: &str) -> String {
    let member = member(value, name);
    member.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The items of a list; none if the member is missing.
pub(crate) fn items(value: &Value, name: &str) -> Vec<Value> {
    let list = member(value, name).and_then(|list| list.as_vector().cloned());
    list.map(|list| list.iter(&NoCells).flatten().collect()).unwrap_or_default()
}
