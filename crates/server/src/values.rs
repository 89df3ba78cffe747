//! Building values in code.

use catena_value::{Map, NoCells, Value, Vector};

/// An object with these members.
pub(crate) fn object<K: Into<Value>>(members: impl IntoIterator<Item = (K, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}

/// An array of these items.
pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Vector(items.into_iter().collect::<Vector>())
}

/// The map with one more member. The map must be fully in memory.
pub(crate) fn with_member(map: &Map, name: &str, value: Value) -> Map {
    map.insert(name.into(), value, &NoCells).unwrap_or_else(|_| map.clone())
}

/// A count as a number.
pub(crate) fn count(count: u64) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}
