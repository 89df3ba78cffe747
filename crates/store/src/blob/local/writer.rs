//! Writing a blob into a folder.
//!
//! Content is gathered in memory up to one chunk and hashed on its way. Small content never becomes a file. The rest goes
//! to a temporary file that belongs to its writer and is removed with it: after an error, after a drop, and if the blob is
//! stored already.

use std::sync::Arc;

use super::LocalShared;
use super::names::Published;
use crate::blob::digest::{Digest, Hasher};
use crate::blob::error::WriteError;
use crate::blob::store::Finished;
use crate::limits::{CHUNK_BYTES, INLINE_BYTES_MAX};
use catena_ledger::disk::DiskFile;

/// A blob being written. Dropping it unfinished removes its temporary file.
#[derive(Debug)]
pub struct BlobWriter {
    shared: Arc<LocalShared>,
    hasher: Hasher,
    len: u64,
    buffer: Vec<u8>,
    temporary: Option<TemporaryFile>,
    state: WriterState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Open,
    Abandoned,
}

impl BlobWriter {
    pub(super) fn new(shared: Arc<LocalShared>) -> Self {
        Self {
            shared,
            hasher: Hasher::default(),
            len: 0,
            buffer: Vec::new(),
            temporary: None,
            state: WriterState::Open,
        }
    }

    /// Appends the next piece of content. After an error the temporary file is removed and the writer accepts no more.
    pub fn write(&mut self, data: &[u8]) -> Result<(), WriteError> {
        if self.state == WriterState::Abandoned {
            return Err(WriteError::Abandoned);
        }
        let appended = self.append_content(data);
        if appended.is_err() {
            self.state = WriterState::Abandoned;
            self.buffer = Vec::new();
            self.temporary = None;
        }
        appended
    }

    /// Ends the content, compares it with the expected digest, and makes it durable unless it is small.
    pub fn finish(mut self, expected: Option<Digest>) -> Result<Finished, WriteError> {
        if self.state == WriterState::Abandoned {
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

    /// Whether `len` more bytes can be appended without the disk.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.buffer.len() + len <= CHUNK_BYTES
    }

    /// Whether finishing now can be done without the disk.
    pub(super) fn is_inline(&self) -> bool {
        self.len <= INLINE_BYTES_MAX as u64
    }

    fn append_content(&mut self, data: &[u8]) -> Result<(), WriteError> {
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
            None => TemporaryFile::create(self.shared.clone())?,
        };
        self.temporary.insert(temporary).append(data)
    }

    fn store(&mut self, digest: Digest) -> Result<(), WriteError> {
        // Checked before the sync as well as after it: a blob that is stored already need not be synced again.
        if self.shared.names.contains(digest, self.len)? {
            return Ok(());
        }
        self.flush()?;
        match self.temporary.take() {
            Some(temporary) => temporary.publish(digest, self.len),
            // Cannot happen: the content is longer than inline content, and `flush` has just created a file.
            None => Err(WriteError::Abandoned),
        }
    }
}

/// A file under a temporary name, removed when dropped.
#[derive(Debug)]
struct TemporaryFile {
    shared: Arc<LocalShared>,
    name: String,
    file: Arc<dyn DiskFile>,
    written: u64,
    on_drop: OnDrop,
}

/// What happens to a temporary file when it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    Remove,
    Keep,
}

impl TemporaryFile {
    fn create(shared: Arc<LocalShared>) -> Result<Self, WriteError> {
        let name = shared.temporary_name();
        match shared.disk.create(&name) {
            Ok(file) => Ok(Self { shared, name, file, written: 0, on_drop: OnDrop::Remove }),
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

    /// Syncs the content, then renames the file. After a failed sync the file is neither renamed nor synced again.
    fn publish(mut self, digest: Digest, len: u64) -> Result<(), WriteError> {
        let path = || self.shared.path(&self.name);
        self.file.sync_all().map_err(|source| WriteError::Sync { path: path(), source })?;
        if self.shared.names.publish(&self.name, digest, len)? == Published::Renamed {
            self.on_drop = OnDrop::Keep;
        }
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Remove {
            // What cannot be removed now is removed when the folder is opened next.
            let _ = self.shared.disk.remove(&self.name);
        }
    }
}
