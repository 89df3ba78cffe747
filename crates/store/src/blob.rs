//! Blobs: content too large for a table, named by its digest.
//!
//! A blob is never changed and never has two names: its name is the SHA-256 of its bytes. That makes writing one twice
//! harmless, makes any copy checkable by anyone, and leaves only three promises to keep: what was acknowledged is there
//! whole, what is read to its end is what was written, and nothing is ever whole in memory.
//!
//! Modules, in reading order: `digest` the name · `limits` every bound · `store` the trait all backends share, and what
//! it answers · `error` · `progress` how reading verifies · `local` a folder · `object` an object store · `conformance`
//! one suite for every backend · `kept` rows and content together, as the engine uses them · `testing` the crash driver.
//!
//! What is never true: a blob acknowledged before it is durable; a clean end of damaged content; a temporary file that
//! outlives its writer or the next opening; a reader who sees a blob that a power loss could still take back.
//!
//! What is not decided here: whether a blob is still needed. A remove and a put of the same digest are carried out in
//! the order in which they arrive; keeping the two apart is the business of the committer, which knows the references.

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod digest;
pub mod error;
mod kept;
pub mod limits;
pub mod local;
pub mod object;
mod progress;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use digest::{Digest, DigestError, Hasher};
pub use error::{ListError, OpenError, ReadError, RemoveError, WriteError};
pub use kept::{Blobs, Download, KeepError, Upload};
pub use limits::{BLOB_BYTES_MAX, CHUNK_BYTES, INLINE_BYTES_MAX, Options};
pub use local::{BlobReader, BlobWriter, Listing, LocalBlobs};
pub use object::{ObjectBlobs, ObjectOptions};
pub use store::{Answer, BlobEntry, BlobListing, BlobSink, BlobSource, BlobStore, Finished};
