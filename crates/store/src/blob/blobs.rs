//! Blobs as the engine uses them: small ones in the store's own table, large ones in a [`BlobStore`],
//! and one row for each.
//!
//! A blob is acknowledged when its row is durable, and its content is durable before that. It is
//! removed in the opposite order: first the row, then the content, so that no row refers to missing
//! content.

use std::sync::Arc;

use bytes::Bytes;

use super::digest::Digest;
use super::error::{BlobReadError, RemoveError, WriteError};
use super::store::{BlobSink, BlobSource, BlobStore, Finished};
use crate::effects::{CommitError, Effect, Effects};
use crate::store::{ReadError, Store};

/// Why an operation on a blob failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Its content could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its content could not be read, or is damaged.
    #[error(transparent)]
    Content(#[from] BlobReadError),
    /// Its content could not be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// Its row could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Its row could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content in its row is damaged.
    #[error("blob {digest} is damaged")]
    Damaged {
        /// The blob.
        digest: Digest,
    },
    /// There is a row for it, but no content.
    #[error("the content of blob {digest} is missing")]
    Missing {
        /// The blob.
        digest: Digest,
    },
}

/// All blobs, small and large.
#[derive(Clone)]
pub struct Blobs {
    rows: Arc<dyn Store>,
    content: Arc<dyn BlobStore>,
}

impl Blobs {
    /// Blobs with their rows in one store and the content of large ones in another.
    pub fn new(rows: Arc<dyn Store>, content: Arc<dyn BlobStore>) -> Self {
        Blobs { rows, content }
    }

    /// Begins a blob.
    pub async fn begin(&self) -> Result<Upload, BlobError> {
        Ok(Upload { rows: Arc::clone(&self.rows), sink: self.content.begin().await? })
    }

    /// Opens a blob for reading. `None` if it is not stored.
    pub async fn open(&self, digest: Digest) -> Result<Option<Download>, BlobError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(None) };
        let Some(content) = row.content else {
            let source = self.content.open(digest).await?;
            return source.map(Download::Streamed).ok_or(BlobError::Missing { digest }).map(Some);
        };
        if Digest::from_content(&content) != digest {
            return Err(BlobError::Damaged { digest });
        }
        Ok(Some(Download::Small(Some(Bytes::from_owner(content)))))
    }

    /// Removes a blob. Succeeds if it is not stored.
    pub async fn remove(&self, digest: Digest) -> Result<(), BlobError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(()) };
        let effect = Effect::DeleteBlob { digest: *digest.as_bytes() };
        self.rows.commit(Effects::one(effect)).await?;
        if row.content.is_none() {
            self.content.remove(digest).await?;
        }
        Ok(())
    }
}

/// A blob being written. If it is dropped before it is finished, nothing is stored.
pub struct Upload {
    rows: Arc<dyn Store>,
    sink: Box<dyn BlobSink>,
}

impl Upload {
    /// Appends the next piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), BlobError> {
        Ok(self.sink.write(data).await?)
    }

    /// Ends the content, compares it with the expected digest, and makes it durable. Returns the digest
    /// and the length in bytes.
    pub async fn finish(self, expected: Option<Digest>) -> Result<(Digest, u64), BlobError> {
        let finished = self.sink.finish(expected).await?;
        let digest = finished.digest();
        let len = finished.len();
        let content = match finished {
            Finished::Inline { bytes, .. } => Some(Arc::from(&bytes[..])),
            Finished::Stored { .. } => None,
        };
        let effect = Effect::StoreBlob { digest: *digest.as_bytes(), len, content };
        self.rows.commit(Effects::one(effect)).await?;
        Ok((digest, len))
    }
}

/// A blob being read.
pub enum Download {
    /// The complete content, until it has been read.
    Small(Option<Bytes>),
    /// Piece by piece, with an error instead of the last piece if the content is damaged.
    Streamed(Box<dyn BlobSource>),
}

impl Download {
    /// The remaining bytes of a small blob, or the total length of a streamed one.
    pub fn len(&self) -> u64 {
        match self {
            Download::Small(content) => content.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Download::Streamed(source) => source.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next piece; `None` at the end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, BlobError> {
        match self {
            Download::Small(content) => Ok(content.take().filter(|bytes| !bytes.is_empty())),
            Download::Streamed(source) => Ok(source.next_chunk().await?),
        }
    }
}
