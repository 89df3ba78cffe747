//! Blobs: content too large for a table, named by its digest.
//!
//! A blob is immutable and has one name: the SHA-256 of its bytes. That makes writing it twice harmless, makes every copy
//! verifiable, and leaves three guarantees: acknowledged content is completely there, content that is read to its end is
//! what was written, and no blob is ever completely in memory.
//!
//! Modules, in reading order: `digest` (the name), `options`, `store` (the trait that all backends implement), `error`,
//! `progress` (how reading verifies), `local` (a folder), `object` (an object store, feature `s3`), `conformance` (one
//! suite for every backend), `blobs` (rows and content together, as the engine uses them), `testing` (the crash driver).
//!
//! Invariants: no blob is acknowledged before it is durable; damaged content never ends without an error; no temporary
//! file outlives its writer or the next opening; no reader sees a blob that a power loss could still undo.
//!
//! Whether a blob is still needed is not decided here. A removal and a write of the same digest are carried out in the
//! order in which they arrive; the caller, which knows the references, has to order them.

mod blobs;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod digest;
pub mod error;
pub mod local;
#[cfg(feature = "s3")]
pub mod object;
pub mod options;
mod progress;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use crate::limits::{BLOB_BYTES_MAX, CHUNK_BYTES, INLINE_BYTES_MAX};
pub(crate) use blobs::HELD;
pub use blobs::{BlobError, Blobs, Download, Upload};
pub use digest::{Digest, DigestError, Hasher};
pub use error::{BlobOpenError, BlobReadError, ListError, RemoveError, WriteError};
pub use local::{BlobReader, BlobWriter, Listing, LocalBlobs};
#[cfg(feature = "s3")]
pub use object::{ObjectBlobs, ObjectOptions};
pub use options::Options;
pub use store::{BlobEntry, BlobFuture, BlobListing, BlobSink, BlobSource, BlobStore, Finished};
