//! Writing a blob into a folder.
//!
//! Content is gathered in memory up to one chunk and hashed on its way. What stays small never becomes a file. The rest
//! goes to a temporary file that belongs to its writer and goes with it: after an error, after a drop, and after finding
//! that the blob is here already.

use std::sync::Arc;

use super::super::digest::{Digest, Hasher};
use super::super::error::WriteError;
use super::super::limits::{CHUNK_BYTES, INLINE_BYTES_MAX};
use super::super::store::Finished;
use super::Shared;
use super::names::Published;
use catena_ledger::disk::DiskFile;

/// A blob being written. Dropping it unfinished removes its temporary file.
#[derive(Debug)]
pub struct BlobWriter {
    shared: Arc<Shared>,
    hasher: Hasher,
    len: u64,
    buffer: Vec<u8>,
    temporary: Option<Temporary>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Abandoned,
}

impl BlobWriter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            hasher: Hasher::default(),
            len: 0,
            buffer: Vec::new(),
            temporary: None,
            state: State::Open,
        }
    }

    /// Takes the next piece of content. After an error the temporary file is gone and the writer takes no more.
    pub fn write(&mut self, data: &[u8]) -> Result<(), WriteError> {
        if self.state == State::Abandoned {
            return Err(WriteError::Abandoned);
        }
        let taken = self.take(data);
        if taken.is_err() {
            self.state = State::Abandoned;
            self.buffer = Vec::new();
            self.temporary = None;
        }
        taken
    }

    /// Ends the content, compares it with the expected name, and makes it durable unless it is small.
    pub fn finish(mut self, expected: Option<Digest>) -> Result<Finished, WriteError> {
        if self.state == State::Abandoned {
            return Err(WriteError::Abandoned);
        }
        let digest = std::mem::take(&mut self.hasher).finish();
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(WriteError::Mismatch { expected, found: digest });
        }
        if self.is_inline() {
            return Ok(Finished::Inline { digest, bytes: self.buffer.into() });
        }
        self.store(digest)?;
        Ok(Finished::Stored { digest, len: self.len })
    }

    /// Whether dropping this writer has a file to remove.
    pub(super) fn has_file(&self) -> bool {
        self.temporary.is_some()
    }

    /// Whether taking `len` more bytes can be done without the disk.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.buffer.len() + len <= CHUNK_BYTES
    }

    /// Whether finishing now can be done without the disk.
    pub(super) fn is_inline(&self) -> bool {
        self.len <= INLINE_BYTES_MAX as u64
    }

    fn take(&mut self, data: &[u8]) -> Result<(), WriteError> {
        let bytes_max = self.shared.options.blob_bytes_max;
        let len = self.len.saturating_add(data.len() as u64);
        if len > bytes_max {
            return Err(WriteError::TooLarge { bytes_max });
        }
        self.len = len;
        self.hasher.update(data);
        if !self.has_room(data.len()) {
            self.flush()?;
        }
        if data.len() > CHUNK_BYTES {
            return self.append(data);
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// Moves what was gathered into the temporary file.
    fn flush(&mut self) -> Result<(), WriteError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.append(&buffer)?;
        }
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn append(&mut self, data: &[u8]) -> Result<(), WriteError> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => Temporary::create(self.shared.clone())?,
        };
        self.temporary.insert(temporary).append(data)
    }

    fn store(&mut self, digest: Digest) -> Result<(), WriteError> {
        // Asked before the sync as well as after it: a blob that is here already need not be synced a second time.
        if self.shared.names.holds(digest, self.len)? {
            return Ok(());
        }
        self.flush()?;
        match self.temporary.take() {
            Some(temporary) => temporary.publish(digest, self.len),
            // Longer than inline content and yet without a file: cannot be, since `flush` has just made one.
            None => Err(WriteError::Abandoned),
        }
    }
}

/// A file under a temporary name, removed when dropped.
#[derive(Debug)]
struct Temporary {
    shared: Arc<Shared>,
    name: String,
    file: Arc<dyn DiskFile>,
    written: u64,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Removed,
    Kept,
}

impl Temporary {
    fn create(shared: Arc<Shared>) -> Result<Self, WriteError> {
        let name = shared.temporary_name();
        match shared.disk.create(&name) {
            Ok(file) => Ok(Self { shared, name, file, written: 0, fate: Fate::Removed }),
            Err(source) => Err(WriteError::io("create", shared.path(&name), source)),
        }
    }

    fn append(&mut self, data: &[u8]) -> Result<(), WriteError> {
        let path = || self.shared.path(&self.name);
        self.file
            .write_at(self.written, data)
            .map_err(|source| WriteError::io("write to", path(), source))?;
        self.written += data.len() as u64;
        Ok(())
    }

    /// Syncs the content, then gives it its name. After a failed sync the file is not renamed, nor synced again.
    fn publish(mut self, digest: Digest, len: u64) -> Result<(), WriteError> {
        let path = || self.shared.path(&self.name);
        self.file.sync_all().map_err(|source| WriteError::Sync { path: path(), source })?;
        if self.shared.names.publish(&self.name, digest, len)? == Published::Renamed {
            self.fate = Fate::Kept;
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.fate == Fate::Removed {
            // What cannot be removed now is removed when the folder is opened next.
            let _ = self.shared.disk.remove(&self.name);
        }
    }
}
