//! Chains merge by union.

use crate::ids::RecordId;
use crate::record::Record;

/// Two different records that follow the same one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the chains part after {at} records: one goes on with {left}, the other with {right}")]
pub struct Fork {
    /// How many records they share.
    pub at: usize,
    /// The first record that only the one has.
    pub left: RecordId,
    /// The first record that only the other has.
    pub right: RecordId,
}

/// The union of two chains of one job: the longer one, when the shorter is its beginning.
/// Records already held change nothing.
pub fn merge<'a>(left: &'a [Record], right: &'a [Record]) -> Result<&'a [Record], Fork> {
    let differs = |(a, b): (&Record, &Record)| a.id() != b.id();
    match left.iter().zip(right).position(differs) {
        Some(at) => Err(Fork { at, left: left[at].id(), right: right[at].id() }),
        None if left.len() >= right.len() => Ok(left),
        None => Ok(right),
    }
}
