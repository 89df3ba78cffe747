//! Objects for requests and results.

use catena_value::{Map, Value};

pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}
