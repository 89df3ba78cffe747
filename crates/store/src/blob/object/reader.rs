//! Reading a blob from an object store.
//!
//! A source refers to the object it found: every request names the version, if the store has versions, so ranges come from
//! the content that was verified. Unlike a file, an object that is removed while it is read is gone, and reading it ends
//! with an error.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectStore};

use super::ObjectShared;
use crate::blob::digest::Digest;
use crate::blob::error::BlobReadError;
use crate::blob::progress::{Next, Progress};
use crate::blob::store::{BlobFuture, BlobSource};
use crate::limits::RANGE_BYTES_MAX;

/// A blob in an object store, being read.
#[derive(Debug)]
pub(super) struct ObjectSource {
    object: Arc<Object>,
    progress: Progress,
    pieces: Option<Pieces>,
}

/// An object in one version.
#[derive(Debug)]
struct Object {
    store: Arc<dyn ObjectStore>,
    digest: Digest,
    key: Path,
    len: u64,
    version: Option<String>,
}

impl Object {
    fn error(&self, action: &'static str, source: Error) -> BlobReadError {
        BlobReadError::Remote { action, digest: self.digest, source: source.into() }
    }

    async fn get(&self, range: Option<GetRange>) -> Result<GetResult, BlobReadError> {
        let options = GetOptions { range, if_match: self.version.clone(), ..GetOptions::default() };
        self.store.get_opts(&self.key, options).await.map_err(|error| self.error("read", error))
    }

    async fn read_range(&self, offset: u64, len: usize) -> Result<Bytes, BlobReadError> {
        if len > RANGE_BYTES_MAX {
            return Err(BlobReadError::RangeTooLarge {
                digest: self.digest,
                asked: len,
                bytes_max: RANGE_BYTES_MAX,
            });
        }
        let end = self.len.min(offset.saturating_add(len as u64));
        if offset >= end {
            return Ok(Bytes::new());
        }
        let found = self.get(Some(GetRange::Bounded(offset..end))).await?;
        let bytes = found.bytes().await.map_err(|error| self.error("read", error))?;
        if bytes.len() as u64 != end - offset {
            return Err(BlobReadError::Short { digest: self.digest, len: self.len });
        }
        Ok(bytes)
    }
}

/// The content as it arrives, split into chunks.
struct Pieces {
    arriving: BoxStream<'static, Result<Bytes, Error>>,
    current: Bytes,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pieces")
            .field("waiting", &self.current.len())
            .finish_non_exhaustive()
    }
}

impl Pieces {
    /// The next `len` bytes; fewer only at the end of the content.
    async fn next_bytes(&mut self, len: usize) -> Result<Bytes, Error> {
        if self.current.len() >= len {
            return Ok(self.current.split_to(len));
        }
        let mut chunk = Vec::with_capacity(len);
        while chunk.len() < len {
            if self.current.is_empty() {
                let Some(piece) = self.arriving.next().await.transpose()? else { break };
                self.current = piece;
            }
            let room = (len - chunk.len()).min(self.current.len());
            chunk.extend_from_slice(&self.current.split_to(room));
        }
        Ok(chunk.into())
    }
}

impl ObjectSource {
    pub(super) async fn open(
        shared: &ObjectShared,
        digest: Digest,
    ) -> Result<Option<Self>, BlobReadError> {
        let key = shared.key(digest);
        let found = shared.head(&key).await;
        let map_error =
            |source: Error| BlobReadError::Remote { action: "open", digest, source: source.into() };
        let Some(meta) = found.map_err(map_error)? else { return Ok(None) };
        let object = Object {
            store: shared.store.clone(),
            digest,
            key,
            len: meta.size,
            version: meta.e_tag,
        };
        Ok(Some(Self::new(Arc::new(object))))
    }

    fn new(object: Arc<Object>) -> Self {
        Self { progress: Progress::new(object.digest, object.len), object, pieces: None }
    }

    async fn read_chunk(&mut self) -> Result<Option<Bytes>, BlobReadError> {
        let Next::Chunk { len, .. } = self.progress.next()? else { return Ok(None) };
        let pieces = match self.pieces.take() {
            Some(pieces) => pieces,
            None => Pieces {
                arriving: self.object.get(None).await?.into_stream(),
                current: Bytes::new(),
            },
        };
        let taken = self.pieces.insert(pieces).next_bytes(len).await;
        let chunk = taken.map_err(|error| self.object.error("read", error))?;
        if chunk.len() < len {
            return Err(BlobReadError::Short { digest: self.object.digest, len: self.object.len });
        }
        self.progress.add_chunk(&chunk)?;
        Ok(Some(chunk))
    }
}

impl BlobSource for ObjectSource {
    fn digest(&self) -> Digest {
        self.object.digest
    }

    fn len(&self) -> u64 {
        self.object.len
    }

    fn next_chunk(&mut self) -> BlobFuture<'_, Option<Bytes>, BlobReadError> {
        Box::pin(self.read_chunk())
    }

    fn read_range(&mut self, offset: u64, len: usize) -> BlobFuture<'_, Bytes, BlobReadError> {
        let object = self.object.clone();
        Box::pin(async move { object.read_range(offset, len).await })
    }

    fn verify(&mut self) -> BlobFuture<'_, (), BlobReadError> {
        let object = self.object.clone();
        Box::pin(async move {
            let mut again = Self::new(object);
            while again.read_chunk().await?.is_some() {}
            Ok(())
        })
    }
}
