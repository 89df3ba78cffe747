//! The value model: immutable cells, their canonical encoding (CAD003), their identity and their
//! JSON form.
//!
//! A [`Value`] is a cheap handle: small values are stored inline, large ones are shared trees of
//! cells. Every cell has exactly one encoding, and its Value ID is the SHA3-256 of that encoding,
//! so equal values have equal IDs wherever they were created. Collections are persistent: an update
//! creates new cells along one path and shares the rest, and only those new cells are encoded and
//! hashed again. A branch need not be in memory: [`CellSource`] supplies it when a traversal
//! reaches it, so a value much larger than memory can be read and changed.
//!
//! Modules, in reading order: [`limits`], [`id`](ValueId), [`value`](Value), `cell` (what tree
//! nodes have in common), `bytes`, `vector`, `hashed` (the tree under `map` and `set`), `index`,
//! `encode`, `decode`, `message`, [`json`], [`path`], [`extent`](Extent).
//!
//! This crate never reads a clock, a file, a socket or a random number, and never panics on input.

pub mod json;
pub mod limits;
pub mod path;

mod bytes;
mod cell;
mod decode;
mod encode;
mod extent;
mod hashed;
mod id;
mod index;
mod integer;
mod map;
mod mask;
mod message;
mod names;
mod set;
mod value;
mod vector;

pub use bytes::{Blob, Text};
pub use cell::{CellSource, CellsInMemory, LoadError, NoCells};
pub use decode::{DecodeError, DecodeFault, decode, decode_branch, decode_identified, decode_slot};
#[cfg(feature = "count-encodings")]
pub use encode::encoded_cells;
pub use encode::{
    Encoded, Survey, branches, cell_ids, encode, encode_into, encode_slot, is_embedded, new_cells,
    survey,
};
pub use extent::{Extent, ExtentError};
pub use id::{IdText, ParseIdError, ValueId};
pub use index::{Index, IndexError, IndexIter};
pub use integer::{Integer, IntegerError};
pub use map::{Map, MapBuilder, MapIter, MapKeys};
pub use message::{MessageError, decode_message, encode_message};
pub use set::{Set, SetIter};
pub use value::{Character, Coded, Double, Extension, Name, Record, Signed, Syntax, Value};
pub use vector::{List, Vector, VectorIter};
