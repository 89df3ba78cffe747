//! Merging two copies of one chain.

use crate::ids::RecordId;
use crate::record::Record;

/// Two chains that diverge: different records follow the same one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the chains diverge after {at} records: one continues with {left}, the other with {right}")]
pub struct Fork {
    /// Number of records that both chains share.
    pub at: usize,
    /// First record that only the left chain has.
    pub left: RecordId,
    /// First record that only the right chain has.
    pub right: RecordId,
}

/// Returns the union of two chains of one job: the longer one if the shorter is a prefix of it.
pub fn merge<'a>(left: &'a [Record], right: &'a [Record]) -> Result<&'a [Record], Fork> {
    let differs = |(a, b): (&Record, &Record)| a.id() != b.id();
    match left.iter().zip(right).position(differs) {
        Some(at) => Err(Fork { at, left: left[at].id(), right: right[at].id() }),
        None if left.len() >= right.len() => Ok(left),
        None => Ok(right),
    }
}
