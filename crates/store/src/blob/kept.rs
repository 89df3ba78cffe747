//! Blobs as the rest of the program uses them: small ones in the store's own table, large ones
//! where a [`BlobStore`] puts them, and one row for each that says which.
//!
//! A blob is acknowledged when its row is durable, and by then its content is. It is forgotten in
//! the other order: first the row, then the content, so that no row ever names what is gone.

use std::sync::Arc;

use bytes::Bytes;

use super::digest::Digest;
use super::error::{ReadError as ContentReadError, RemoveError, WriteError};
use super::store::{BlobSink, BlobSource, BlobStore, Finished};
use crate::effects::{CommitError, Effect, Effects};
use crate::store::{ReadError, Store};

/// Why a blob was not kept, or could not be given back.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Its content could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its content could not be read, or is not what it was.
    #[error(transparent)]
    Content(#[from] ContentReadError),
    /// Its content could not be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// Its row could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Its row could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content in its row is not what it was.
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

/// All blobs.
#[derive(Clone)]
pub struct Blobs {
    rows: Arc<dyn Store>,
    content: Arc<dyn BlobStore>,
}

impl Blobs {
    /// Blobs with rows in one place and the content of large ones in another.
    pub fn new(rows: Arc<dyn Store>, content: Arc<dyn BlobStore>) -> Self {
        Blobs { rows, content }
    }

    /// Begins a blob.
    pub async fn begin(&self) -> Result<Upload, KeepError> {
        Ok(Upload { rows: Arc::clone(&self.rows), sink: self.content.begin().await? })
    }

    /// Opens a blob for reading, or says that it is not here.
    pub async fn open(&self, digest: Digest) -> Result<Option<Download>, KeepError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(None) };
        let Some(content) = row.content else {
            let source = self.content.open(digest).await?;
            return source.map(Download::Streamed).ok_or(KeepError::Missing { digest }).map(Some);
        };
        match Digest::of(&content) == digest {
            true => Ok(Some(Download::Small(Some(Bytes::from_owner(content))))),
            false => Err(KeepError::Damaged { digest }),
        }
    }

    /// Forgets a blob. One that is not here counts as forgotten.
    pub async fn remove(&self, digest: Digest) -> Result<(), KeepError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(()) };
        let forget = Effect::ForgetBlob { digest: *digest.as_bytes() };
        self.rows.commit(Effects::one(forget)).await?;
        if row.content.is_none() {
            self.content.remove(digest).await?;
        }
        Ok(())
    }
}

/// A blob on its way in. Dropped before it is finished, it leaves nothing behind.
pub struct Upload {
    rows: Arc<dyn Store>,
    sink: Box<dyn BlobSink>,
}

impl Upload {
    /// Takes the next piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), KeepError> {
        Ok(self.sink.write(data).await?)
    }

    /// Ends the content, compares it with what was expected, and makes it durable.
    pub async fn finish(self, expected: Option<Digest>) -> Result<(Digest, u64), KeepError> {
        let finished = self.sink.finish(expected).await?;
        let (digest, len) = (finished.digest(), finished.len());
        let content = match finished {
            Finished::Inline { bytes, .. } => Some(Arc::from(&bytes[..])),
            Finished::Stored { .. } => None,
        };
        let effect = Effect::Blob { digest: *digest.as_bytes(), len, content };
        self.rows.commit(Effects::one(effect)).await?;
        Ok((digest, len))
    }
}

/// A blob on its way out.
pub enum Download {
    /// All of it.
    Small(Option<Bytes>),
    /// Piece by piece; an error instead of the last piece when it is damaged.
    Streamed(Box<dyn BlobSource>),
}

impl Download {
    /// How many bytes are left of a small one, or a streamed one has in all.
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

    /// The next piece, or nothing at the end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, KeepError> {
        match self {
            Download::Small(content) => Ok(content.take().filter(|bytes| !bytes.is_empty())),
            Download::Streamed(source) => Ok(source.next_chunk().await?),
        }
    }
}
