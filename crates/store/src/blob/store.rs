//! The [`BlobStore`] trait, which every backend implements.
//!
//! The trait is asynchronous and dyn-compatible, so that the engine holds an `Arc<dyn BlobStore>` and does not know
//! whether a folder or an object store is behind it. Content is written and read in pieces; no operation takes or returns
//! a complete blob. Every future may be dropped: after a dropped `write` or `next_chunk` the writer or reader returns an
//! error at the next call, and after a dropped `finish` the blob is completely there or absent.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;

use super::digest::Digest;
use super::error::{BlobReadError, ListError, RemoveError, WriteError};

/// The boxed future of a result.
pub type BlobFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// The result of writing content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The content is small and returned to the caller: nothing was stored.
    Inline {
        /// The digest of the content.
        digest: Digest,
        /// The content.
        bytes: Bytes,
    },
    /// The content is stored, durably, under its digest.
    Stored {
        /// The digest of the content.
        digest: Digest,
        /// Its length in bytes.
        len: u64,
    },
}

impl Finished {
    /// The digest of the content.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Inline { digest, .. } | Self::Stored { digest, .. } => *digest,
        }
    }

    /// The length of the content in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline { bytes, .. } => bytes.len() as u64,
            Self::Stored { len, .. } => *len,
        }
    }

    /// Whether the content has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One stored blob, as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobEntry {
    /// The blob's digest.
    pub digest: Digest,
    /// The length in bytes.
    pub len: u64,
}

/// Content-addressed storage of blobs.
pub trait BlobStore: Debug + Send + Sync + 'static {
    /// Begins a blob. Its digest is known only at the end.
    fn begin(&self) -> BlobFuture<'_, Box<dyn BlobSink>, WriteError>;
    /// Opens a blob for reading. `None` if it is not stored.
    fn open(&self, digest: Digest) -> BlobFuture<'_, Option<Box<dyn BlobSource>>, BlobReadError>;
    /// Whether a blob is stored durably. Does not check its content.
    fn contains(&self, digest: Digest) -> BlobFuture<'_, bool, BlobReadError>;
    /// Removes a blob durably. Succeeds if it is not stored.
    fn remove(&self, digest: Digest) -> BlobFuture<'_, (), RemoveError>;
    /// Begins a listing of all blobs.
    fn list(&self) -> BlobFuture<'_, Box<dyn BlobListing>, ListError>;
    /// Reads a blob completely and compares it with its digest. Returns its length, `None` if it is not stored, or an error
    /// if it is damaged.
    fn verify(&self, digest: Digest) -> BlobFuture<'_, Option<u64>, BlobReadError>;
}

/// A blob being written. Dropping it unfinished leaves nothing behind.
pub trait BlobSink: Debug + Send {
    /// Takes the next piece of content.
    fn write(&mut self, data: Bytes) -> BlobFuture<'_, (), WriteError>;
    /// Ends the content, compares it with the expected digest, and makes it durable.
    fn finish(
        self: Box<Self>,
        expected: Option<Digest>,
    ) -> BlobFuture<'static, Finished, WriteError>;
}

/// A blob being read.
pub trait BlobSource: Debug + Send {
    /// The blob's digest.
    fn digest(&self) -> Digest;
    /// The length in bytes.
    fn len(&self) -> u64;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The next piece of the content from its start, or `None` at the end. If the content does not match the digest, the
    /// last piece is withheld and an error returned instead.
    fn next_chunk(&mut self) -> BlobFuture<'_, Option<Bytes>, BlobReadError>;
    /// Up to `len` bytes from `offset`, fewer at the end of the blob. NOT verified, unless [`BlobSource::verify`] has
    /// succeeded on this source before.
    fn read_range(&mut self, offset: u64, len: usize) -> BlobFuture<'_, Bytes, BlobReadError>;
    /// Reads the entire content and compares it with the digest. Does not affect [`BlobSource::next_chunk`].
    fn verify(&mut self) -> BlobFuture<'_, (), BlobReadError>;
}

/// A listing in progress.
pub trait BlobListing: Debug + Send {
    /// The next entries; empty at the end. Blobs that are added or removed meanwhile may be listed or not.
    fn next_page(&mut self) -> BlobFuture<'_, Vec<BlobEntry>, ListError>;
}
