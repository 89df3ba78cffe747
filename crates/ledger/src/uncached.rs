//! Writes past the system's cache, durable when they return.
//!
//! A frame is written once and read only after a crash, so the cache gains nothing by holding it. Writing past it saves a
//! copy and a call per commit. It wants memory, offset and length in whole blocks; a file system that cannot do it, or
//! wants larger blocks, says so before it writes, and the journal then writes and syncs as usual.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::journal::BLOCK_BYTES;

/// A file whose writes are durable when they return.
pub trait Uncached: Debug + Send + Sync {
    /// Writes all of `data`, whole blocks at an offset of whole blocks. `false` if the file system does not do this: then
    /// nothing can be said about the place that was to be written.
    fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<bool>;
}

/// A file of the operating system, past its cache.
#[derive(Debug)]
pub struct UncachedFile {
    file: File,
}

impl UncachedFile {
    /// Opens a file that exists; nothing where the system cannot write past its cache.
    pub fn open(path: &Path) -> Option<Self> {
        let file = OpenOptions::new().write(true).custom_flags(uncached()?).open(path).ok()?;
        Some(Self { file })
    }
}

impl Uncached for UncachedFile {
    fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<bool> {
        match self.file.write_all_at(data, offset) {
            Ok(()) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(target_os = "linux")]
fn uncached() -> Option<i32> {
    use rustix::fs::OFlags;
    i32::try_from((OFlags::DIRECT | OFlags::DSYNC).bits()).ok()
}

/// Others have no such flag, or one that means something else.
#[cfg(not(target_os = "linux"))]
fn uncached() -> Option<i32> {
    None
}

/// Bytes that begin at a block's boundary in memory.
#[derive(Debug, Default)]
pub struct BlockBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl BlockBuffer {
    /// Forgets what it holds and takes what is appended from here on. It begins at a boundary as long as no more than
    /// `len` bytes are.
    pub fn begin(&mut self, len: usize) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.reserve(len + BLOCK_BYTES);
        self.start = self.bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        self.bytes.resize(self.start, 0);
        &mut self.bytes
    }

    /// What was appended.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_boundary_whatever_its_size() {
        let mut buffer = BlockBuffer::default();
        for len in [1, BLOCK_BYTES, 5 * BLOCK_BYTES, 100, 300 * BLOCK_BYTES, 7] {
            buffer.begin(len).resize_with(len, || 0);
            let appended = buffer.begin(len);
            let before = appended.len();
            appended.resize(before + len, 7);
            assert_eq!(buffer.bytes(), vec![7; len]);
            assert_eq!(buffer.bytes().as_ptr().align_offset(BLOCK_BYTES), 0);
        }
    }

    #[test]
    fn what_was_written_is_read_back_and_a_crooked_write_is_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 4 * BLOCK_BYTES])?;
        // Not every file system can do this; the journal then does without.
        let Some(file) = UncachedFile::open(&path) else { return Ok(()) };
        let mut buffer = BlockBuffer::default();
        buffer.begin(2 * BLOCK_BYTES).extend_from_slice(&[7; 2 * BLOCK_BYTES]);
        if file.write_durably(BLOCK_BYTES as u64, buffer.bytes())? {
            let mut expected = vec![0; 4 * BLOCK_BYTES];
            expected[BLOCK_BYTES..3 * BLOCK_BYTES].fill(7);
            assert_eq!(std::fs::read(&path)?, expected);
        }
        // Some take it all the same, through the cache; an error it is not.
        file.write_durably(1, &buffer.bytes()[..100])?;
        Ok(())
    }
}
