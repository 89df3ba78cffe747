//! How two versions of an agent's record become one: the later write wins.

use catena_value::{Map, Value};

/// Returns the later of two records. If both were written at the same time, the one with the greater
/// Value ID wins, so that all replicas choose the same one. A value that is not a record loses.
///
/// The result is always one of the two, never a mixture. It does not depend on their order, nor on the
/// order in which more than two are merged.
pub fn merge<'a>(a: &'a Value, b: &'a Value) -> &'a Value {
    let time = |value: &Value| value.as_map().and_then(time_of);
    let rank = |value: &Value| (time(value), value.id());
    if rank(a) >= rank(b) { a } else { b }
}

fn time_of(record: &Map) -> Option<i64> {
    record.field("ts")?.as_i64()
}
