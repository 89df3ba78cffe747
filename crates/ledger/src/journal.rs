//! The journal: makes a batch durable before it reaches the index.
//!
//! A few fixed-size segment files, filled with zeros when created and recycled after their frames reached the index. One
//! batch is one frame, one write and one sync. Frames begin at 4 KiB blocks and never share one, so writing a frame
//! cannot damage one that was already acknowledged. Checksums are seeded with the segment's generation, so frames of an
//! earlier generation of the file can never be taken for new ones. `docs/internals/format.md` draws the bytes.
//!
//! The journal never interprets a batch, and never retries a write or a sync that failed.

mod frame;
mod pool;
mod replay;
mod segment;
mod writer;

pub use pool::{Pool, Room};
pub use replay::{ReplayReport, TornTail, replay};
pub use writer::{Creation, JournalWriter};
