//! The journal: what makes a batch durable before the index hears of it.
//!
//! A few fixed-size segment files, filled with zeros when made and used again after their frames reached the index. One
//! batch is one frame, one write and one sync. Frames begin at 4 KiB blocks and never share one, so writing a frame
//! cannot harm one that was already acknowledged. Checksums are seeded with the segment's generation, so frames of an
//! earlier life of the file can never be taken for new ones. `FORMAT.md` draws the bytes.
//!
//! The journal never decides what a batch means, and never retries a write or a sync that failed.

mod frame;
mod pool;
mod replay;
mod segment;
mod writer;

pub use frame::{BLOCK_BYTES, FRAME_HEADER_BYTES, entry_bytes};
pub use pool::{Pool, Room};
pub use replay::{Replayed, TornTail, replay};
pub use writer::{Creation, JournalWriter};
