//! Reading and writing JSON.
//!
//! Reading converts bytes directly to a value. It is strict, and it preserves the distinctions of
//! the text: a number without `.`, `e` or `E` is an integer of any size, every other number is a
//! double. If a member name occurs twice, the last one wins. Texts that cannot be represented
//! without loss are refused: numbers that overflow, lone surrogates, bytes that are not UTF-8.
//!
//! Writing converts every value to JSON. The text of a value that came from JSON reads back as the
//! same value; cells without a JSON form are written as the closest JSON value (see [`write()`]).

mod read;
mod write;

pub use read::{JsonError, JsonFault, read, read_nested};
pub use write::{WriteError, to_string, write};
