//! Multi-cell messages: a complete value as one byte string.
//!
//! The root cell comes first, without a length; then every distinct branch follows, preceded by its
//! length, in no particular order. Decoding a message results in a value that is entirely in memory
//! and checked, or in an error. A missing branch is an error; unreferenced branches are tolerated.

use std::collections::HashMap;

use crate::cell::{CellSource, LoadError, Memo};
use crate::decode::{DecodeError, DecodeFault, Reader, decode_branch};
use crate::encode::{encode, new_cells, write_count};
use crate::id::ValueId;
use crate::limits::{EMBEDDED_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::value::Value;

/// The reason why bytes are not a complete value.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("message has {found} bytes; at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Length of the message in bytes.
        found: usize,
    },
    /// The root or the length of a branch is not canonical.
    #[error("malformed message")]
    Malformed(#[from] DecodeError),
    /// A branch is so short that it must be embedded.
    #[error("branch at byte {offset} has {len} bytes; a branch has more than {EMBEDDED_BYTES_MAX}")]
    EmbeddedBranch {
        /// Offset of the branch in the message.
        offset: usize,
        /// Length of the branch in bytes.
        len: u64,
    },
    /// A branch is missing, malformed or misplaced.
    #[error("the message does not contain a complete value")]
    Incomplete(#[from] LoadError),
}

/// Encodes a value as one byte string. Branches that are not in memory are left out; load them
/// first.
pub fn encode_message(value: &Value) -> Vec<u8> {
    let mut message = encode(value);
    for cell in new_cells(value, |_| false) {
        write_count(cell.bytes.len() as u64, &mut message);
        message.extend_from_slice(&cell.bytes);
    }
    message
}

/// Decodes a complete value.
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
                let truncated =
                    DecodeError { offset: message.len(), fault: DecodeFault::Truncated };
                return Err(truncated.into());
            };
            // Unreferenced branches are tolerated; malformed ones are not.
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
