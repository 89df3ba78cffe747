//! The blob store: what every backend can do, and nothing about how.
//!
//! The trait is asynchronous and dyn-compatible, so that the engine holds an `Arc<dyn BlobStore>` and does not know
//! whether a folder or an object store is behind it. Content goes in and comes out in pieces; no operation takes or gives
//! a whole blob. Every future may be dropped: a dropped `write` or `next_chunk` spoils its writer or reader, which says
//! so at the next call, and a dropped `finish` leaves the blob whole or absent.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;

use super::digest::Digest;
use super::error::{ListError, ReadError, RemoveError, WriteError};

/// A boxed future of a result: what the methods of these traits give back.
pub type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// What became of the content given to a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// It is small, and the caller keeps it: nothing was stored.
    Inline {
        /// The name of the content.
        digest: Digest,
        /// The content.
        bytes: Bytes,
    },
    /// It is stored, durably, under its digest.
    Stored {
        /// The name of the content.
        digest: Digest,
        /// Its length in bytes.
        len: u64,
    },
}

impl Finished {
    /// The name of the content, wherever it is kept.
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
    /// The name.
    pub digest: Digest,
    /// The length in bytes.
    pub len: u64,
}

/// Content-addressed storage of blobs.
pub trait BlobStore: Debug + Send + Sync + 'static {
    /// Begins a blob. Its name is known only at the end.
    fn begin(&self) -> Answer<'_, Box<dyn BlobSink>, WriteError>;
    /// Opens a blob for reading, or says that it is not here.
    fn open(&self, digest: Digest) -> Answer<'_, Option<Box<dyn BlobSource>>, ReadError>;
    /// Whether a blob is here, durably. Says nothing about its content.
    fn contains(&self, digest: Digest) -> Answer<'_, bool, ReadError>;
    /// Removes a blob, durably. One that is not here counts as removed.
    fn remove(&self, digest: Digest) -> Answer<'_, (), RemoveError>;
    /// Begins a listing of all blobs.
    fn list(&self) -> Answer<'_, Box<dyn BlobListing>, ListError>;
    /// Reads a blob whole and compares: its length if it is right, `None` if it is not here, an error if it is damaged.
    fn verify(&self, digest: Digest) -> Answer<'_, Option<u64>, ReadError>;
}

/// A blob being written. Dropping it unfinished leaves nothing behind.
pub trait BlobSink: Debug + Send {
    /// Takes the next piece of content.
    fn write(&mut self, data: Bytes) -> Answer<'_, (), WriteError>;
    /// Ends the content, compares it with the expected name, and makes it durable.
    fn finish(self: Box<Self>, expected: Option<Digest>) -> Answer<'static, Finished, WriteError>;
}

/// A blob being read.
pub trait BlobSource: Debug + Send {
    /// The name.
    fn digest(&self) -> Digest;
    /// The length in bytes.
    fn len(&self) -> u64;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The next piece of the content from its start, or `None` at the end. The end is only given when the content is
    /// right; if it is not, the last piece is withheld and an error comes in its place.
    fn next_chunk(&mut self) -> Answer<'_, Option<Bytes>, ReadError>;
    /// Up to `len` bytes from `offset`, fewer at the end of the blob. NOT verified, unless [`BlobSource::verify`] has
    /// succeeded on this source before.
    fn read_range(&mut self, offset: u64, len: usize) -> Answer<'_, Bytes, ReadError>;
    /// Reads the whole content and compares. Does not move [`BlobSource::next_chunk`].
    fn verify(&mut self) -> Answer<'_, (), ReadError>;
}

/// A listing in progress.
pub trait BlobListing: Debug + Send {
    /// The next entries, or none at the end. Blobs that come or go meanwhile may be in it or not.
    fn next_page(&mut self) -> Answer<'_, Vec<BlobEntry>, ListError>;
}
