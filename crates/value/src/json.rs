//! JSON, both ways.
//!
//! Reading goes straight from bytes to a value. It is strict, and it keeps what JSON texts
//! distinguish: a number without `.`, `e` or `E` is an integer of any size, every other one a
//! double; of equal member names the last wins. What could not be told apart again later is
//! refused: numbers that overflow, lone surrogates, bytes that are not UTF-8.
//!
//! Writing turns every value into JSON. For values that came from JSON the text reads back as the
//! same value; cells that JSON has no form for are shown as the nearest thing (see [`write()`]).

mod read;
mod write;

pub use read::{JsonError, JsonFault, read, read_nested};
pub use write::{WriteError, to_string, write};
