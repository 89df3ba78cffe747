//! Values that are put together in code.

use catena_value::{Map, Value, Vector};

/// An object with these members.
pub(crate) fn object<K: Into<Value>>(members: impl IntoIterator<Item = (K, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}

/// An array of these items.
pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Vector(items.into_iter().collect::<Vector>())
}
