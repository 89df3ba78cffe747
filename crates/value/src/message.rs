//! Multi-cell messages: a complete value as one byte string.
//!
//! The root cell comes first and has no length, then every distinct branch with its length before
//! it, in no particular order. Reading one ends in a value that is wholly in memory and wholly
//! checked, or in an error; a branch that is missing is an error, extra ones are tolerated.

use std::collections::HashMap;

use crate::cell::{CellSource, LoadError, Memo};
use crate::decode::{DecodeError, Fault, Reader, decode_branch};
use crate::encode::{encode, new_cells, write_count};
use crate::id::ValueId;
use crate::limits::{EMBEDDED_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::value::Value;

/// Why bytes are not a complete value.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// More bytes than we read.
    #[error("message has {found} bytes; at most {MESSAGE_BYTES_MAX} are read")]
    TooLarge {
        /// Bytes found.
        found: usize,
    },
    /// The root or the length of a branch is not canonical.
    #[error("malformed message")]
    Malformed(#[from] DecodeError),
    /// A branch that is short enough to be embedded.
    #[error("branch at byte {offset} has {len} bytes; up to {EMBEDDED_BYTES_MAX} are embedded")]
    EmbeddedBranch {
        /// Where the branch starts.
        offset: usize,
        /// Its length.
        len: u64,
    },
    /// A branch is missing, malformed or misplaced.
    #[error("the message does not hold a complete value")]
    Incomplete(#[from] LoadError),
}

/// The value as one byte string. Branches not in memory are left out: load them first.
pub fn encode_message(value: &Value) -> Vec<u8> {
    let mut message = encode(value);
    for cell in new_cells(value, |_| false) {
        write_count(cell.bytes.len() as u64, &mut message);
        message.extend_from_slice(&cell.bytes);
    }
    message
}

/// Reads a complete value.
pub fn decode_message(message: &[u8]) -> Result<Value, MessageError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLarge { found: message.len() });
    }
    let mut reader = Reader::new(message, 0);
    let root = reader.cell(Memo::default())?;
    let branches = Branches::read(message, reader.at())?;
    Ok(root.fully_loaded(&branches)?)
}

/// The branches of a message by their IDs, not yet decoded.
struct Branches<'a>(HashMap<ValueId, &'a [u8]>);

impl<'a> Branches<'a> {
    fn read(message: &'a [u8], mut at: usize) -> Result<Self, MessageError> {
        let mut branches = HashMap::new();
        while at < message.len() {
            let mut reader = Reader::new(&message[at..], at);
            let len = reader.count()?;
            let start = at + reader.at();
            if len <= EMBEDDED_BYTES_MAX as u64 {
                return Err(MessageError::EmbeddedBranch { offset: start, len });
            }
            let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
            let Some(cell) = end.and_then(|end| message.get(start..end)) else {
                let truncated = DecodeError { offset: message.len(), fault: Fault::Truncated };
                return Err(truncated.into());
            };
            // Unreferenced branches are tolerated, malformed ones are not.
            let id = ValueId::of_encoding(cell);
            decode_branch(&id, cell)?;
            branches.insert(id, cell);
            at = start + cell.len();
        }
        Ok(Branches(branches))
    }
}

impl CellSource for Branches<'_> {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        let bytes = self.0.get(id).ok_or(LoadError::Missing { id: *id })?;
        decode_branch(id, bytes)
    }
}
