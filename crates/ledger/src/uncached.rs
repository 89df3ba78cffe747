//! Writes past the system's cache, durable when they return.
//!
//! A frame is written once and read only after a crash, so caching it gains nothing. Writing past the cache saves a copy
//! and a call per commit. It needs memory, offset and length in whole blocks; a file system that does not support it, or
//! needs larger blocks, refuses before it writes, and the journal then writes and syncs as usual.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::layout::BLOCK_BYTES;

/// A file whose writes are durable when they return.
pub trait Uncached: Debug + Send + Sync {
    /// Writes all of `data`, which must be whole blocks at a block boundary. Returns `false` if the file system does not
    /// support this; the content of the range is then undefined.
    fn write_durably(&self, offset: u64, data: &[u8]) -> io::Result<bool>;
}

/// A file in the file system, written past the system's cache.
#[derive(Debug)]
pub struct UncachedFile {
    file: File,
}

impl UncachedFile {
    /// Opens an existing file. `None` if the system cannot write past its cache.
    pub fn open(path: &Path) -> Option<Self> {
        let file = OpenOptions::new().write(true).custom_flags(open_flags()?).open(path).ok()?;
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
fn open_flags() -> Option<i32> {
    use rustix::fs::OFlags;
    i32::try_from((OFlags::DIRECT | OFlags::DSYNC).bits()).ok()
}

/// Other systems have no such flag, or one with another meaning.
#[cfg(not(target_os = "linux"))]
fn open_flags() -> Option<i32> {
    None
}

/// A buffer whose content begins at a block boundary in memory.
#[derive(Debug, Default)]
pub struct BlockBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl BlockBuffer {
    /// Clears the buffer and returns it for appending. Its content begins at a boundary as long as no more than `len`
    /// bytes are appended.
    pub fn begin(&mut self, len: usize) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.reserve(len + BLOCK_BYTES);
        self.start = self.bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        self.bytes.resize(self.start, 0);
        &mut self.bytes
    }

    /// The bytes appended since [`BlockBuffer::begin`].
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
    fn what_was_written_is_read_back_and_an_unaligned_write_is_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 4 * BLOCK_BYTES])?;
        // Not every file system supports this; the journal then writes through the cache.
        let Some(file) = UncachedFile::open(&path) else { return Ok(()) };
        let mut buffer = BlockBuffer::default();
        buffer.begin(2 * BLOCK_BYTES).extend_from_slice(&[7; 2 * BLOCK_BYTES]);
        if file.write_durably(BLOCK_BYTES as u64, buffer.bytes())? {
            let mut expected = vec![0; 4 * BLOCK_BYTES];
            expected[BLOCK_BYTES..3 * BLOCK_BYTES].fill(7);
            assert_eq!(std::fs::read(&path)?, expected);
        }
        // Some file systems accept an unaligned write and go through the cache; it must not be an error.
        file.write_durably(1, &buffer.bytes()[..100])?;
        Ok(())
    }
}
