//! Reading a blob from a folder.
//!
//! A reader holds its file open, so a removal does not disturb it. Reading from start to end verifies; reading ranges
//! does not, unless [`BlobReader::verify`] succeeded before.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::blob::digest::{Digest, Hasher};
use crate::blob::error::BlobReadError;
use crate::blob::progress::{Next, Progress};
use crate::limits::CHUNK_BYTES;
use catena_ledger::disk::DiskFile;

/// A blob being read.
#[derive(Debug)]
pub struct BlobReader {
    folder: String,
    digest: Digest,
    file: Arc<dyn DiskFile>,
    len: u64,
    progress: Progress,
    verified: bool,
}

impl BlobReader {
    pub(super) fn new(
        folder: String,
        digest: Digest,
        file: Arc<dyn DiskFile>,
    ) -> Result<Self, BlobReadError> {
        let len = match file.size() {
            Ok(len) => len,
            Err(source) => {
                return Err(BlobReadError::Io { action: "measure", digest, folder, source });
            }
        };
        Ok(Self {
            folder,
            digest,
            file,
            len,
            progress: Progress::new(digest, len),
            verified: false,
        })
    }

    /// The blob's digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this reader has read the entire content and it matches the digest.
    pub fn is_verified(&self) -> bool {
        self.verified || self.progress.is_verified()
    }

    /// The next piece of the content from its start, or `None` at the end. If the content does not match the digest, the
    /// last piece is withheld and an error returned instead, now and at every later call.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, BlobReadError> {
        let Next::Chunk { offset, len } = self.progress.next()? else { return Ok(None) };
        let mut chunk = vec![0; len];
        self.fill(offset, &mut chunk)?;
        self.progress.add_chunk(&chunk)?;
        Ok(Some(chunk.into()))
    }

    /// Fills `buffer` from `offset` and returns the number of bytes, which is less only at the end of the blob.
    ///
    /// NOT verified: unless [`BlobReader::is_verified`], the bytes may be damaged.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, BlobReadError> {
        let left = self.len.saturating_sub(offset);
        let len = left.min(buffer.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        self.fill(offset, &mut buffer[..len])?;
        Ok(len)
    }

    /// Reads the entire content and compares it with the digest. Does not affect [`BlobReader::next_chunk`].
    pub fn verify(&mut self) -> Result<(), BlobReadError> {
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < self.len {
            let len = self.read_at(offset, &mut buffer)?;
            hasher.update(&buffer[..len]);
            offset += len as u64;
        }
        let found = hasher.finish();
        if found != self.digest {
            return Err(BlobReadError::Damaged { digest: self.digest, found });
        }
        self.verified = true;
        Ok(())
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlobReadError> {
        self.file.read_at(offset, buffer).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                BlobReadError::Short { digest: self.digest, len: self.len }
            }
            _ => BlobReadError::Io {
                action: "read",
                digest: self.digest,
                folder: self.folder.clone(),
                source,
            },
        })
    }
}
