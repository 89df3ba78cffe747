//! Blobs in an object store: one object each, its key ending in the digest.
//!
//! Object stores create objects atomically and respond only when they are durable. The difficulty is that the name of a
//! blob is not known before its end. Content of one part is gathered in memory and stored under its name at once; longer
//! content is uploaded in parts under a temporary key while it is hashed, and then copied inside the store. A key is
//! created only if it does not exist, if the store supports that; if not, overwriting a blob with itself is harmless.
//!
//! Keys, below the prefix: `sha256/<digits>` for blobs, `uploads/<instance>-<n>` for uploads. What a killed process leaves
//! under `uploads/` is removed by [`ObjectBlobs::remove_stale_uploads`]; multipart uploads that were begun and never
//! completed are invisible there, and a lifecycle rule of the bucket has to end them.

mod reader;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};

use super::digest::Digest;
use super::error::{BlobReadError, ListError, RemoveError, WriteError};
use super::options::Options;
use super::store::{BlobEntry, BlobFuture, BlobListing, BlobSink, BlobSource, BlobStore};
use crate::limits::LIST_PAGE_ENTRIES;
use reader::ObjectSource;
use writer::ObjectSink;

/// How blobs are kept in an object store.
#[derive(Debug, Clone)]
pub struct ObjectOptions {
    /// The prefix of every key; may be empty.
    pub prefix: Path,
    /// A random number that is unique to this process, so that temporary keys do not collide.
    pub instance: u128,
    /// The limits.
    pub limits: Options,
}

/// Blobs in an object store. Clones are the same blobs.
#[derive(Debug, Clone)]
pub struct ObjectBlobs {
    shared: Arc<ObjectShared>,
}

#[derive(Debug)]
struct ObjectShared {
    store: Arc<dyn ObjectStore>,
    options: ObjectOptions,
    next_upload: AtomicU64,
}

/// The state of a blob's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredObject {
    Absent,
    Complete,
    WrongLength,
}

/// Where the content of a blob is before it gets its name.
#[derive(Debug)]
enum Origin<'a> {
    Memory(PutPayload),
    Upload(&'a Path),
}

/// What to do with an object that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Keep,
    Replace,
}

impl ObjectBlobs {
    /// Blobs in `store`.
    pub fn new(store: Arc<dyn ObjectStore>, options: ObjectOptions) -> Self {
        Self { shared: Arc::new(ObjectShared { store, options, next_upload: AtomicU64::new(0) }) }
    }

    /// Removes temporary objects that were last modified before `before`, and returns how many. Choose a time before the
    /// start of every running upload: an older upload fails.
    pub async fn remove_stale_uploads(&self, before: SystemTime) -> Result<u64, ListError> {
        let prefix = self.shared.uploads();
        let map_error =
            |source: Error| ListError::Remote { prefix: prefix.to_string(), source: source.into() };
        let mut uploads = self.shared.store.list(Some(&prefix));
        let mut removed = 0;
        while let Some(upload) = uploads.next().await.transpose().map_err(map_error)? {
            if SystemTime::from(upload.last_modified) < before {
                self.shared.delete(&upload.location).await.map_err(map_error)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl ObjectShared {
    fn blobs(&self) -> Path {
        self.options.prefix.clone().join("sha256")
    }

    fn uploads(&self) -> Path {
        self.options.prefix.clone().join("uploads")
    }

    fn key(&self, digest: Digest) -> Path {
        self.blobs().join(digest.to_hex())
    }

    fn upload_key(&self) -> Path {
        let number = self.next_upload.fetch_add(1, Ordering::Relaxed);
        self.uploads().join(format!("{:032x}-{number}", self.options.instance))
    }

    async fn head(&self, key: &Path) -> Result<Option<ObjectMeta>, Error> {
        match self.store.head(key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object. Succeeds if it does not exist.
    async fn delete(&self, key: &Path) -> Result<(), Error> {
        match self.store.delete(key).await {
            Err(Error::NotFound { .. }) => Ok(()),
            answer => answer,
        }
    }

    async fn stored_object(&self, key: &Path, len: u64) -> Result<StoredObject, Error> {
        Ok(match self.head(key).await? {
            None => StoredObject::Absent,
            Some(meta) if meta.size == len => StoredObject::Complete,
            Some(_) => StoredObject::WrongLength,
        })
    }

    /// Stores content under its name, unless the blob is stored already. A blob of another length is damaged and replaced.
    async fn publish(
        &self,
        origin: Origin<'_>,
        digest: Digest,
        len: u64,
    ) -> Result<(), WriteError> {
        let key = self.key(digest);
        let map_error = |error: Error| remote_write_error("store", &key, error);
        let existing = match self.stored_object(&key, len).await.map_err(map_error)? {
            StoredObject::Complete => return Ok(()),
            StoredObject::Absent => Existing::Keep,
            StoredObject::WrongLength => Existing::Replace,
        };
        match self.store_content(&origin, &key, existing).await {
            Ok(()) => Ok(()),
            Err(error)
                if is_already_stored(&error)
                    && self.stored_object(&key, len).await.map_err(map_error)?
                        == StoredObject::Complete =>
            {
                Ok(())
            }
            Err(error) if is_already_stored(&error) || is_unsupported(&error) => {
                self.store_content(&origin, &key, Existing::Replace).await.map_err(map_error)
            }
            Err(error) => Err(map_error(error)),
        }
    }

    async fn store_content(
        &self,
        origin: &Origin<'_>,
        key: &Path,
        existing: Existing,
    ) -> Result<(), Error> {
        match origin {
            Origin::Memory(content) => {
                let mode =
                    if existing == Existing::Keep { PutMode::Create } else { PutMode::Overwrite };
                self.store.put_opts(key, content.clone(), PutOptions::from(mode)).await.map(drop)
            }
            Origin::Upload(from) => {
                let mode =
                    if existing == Existing::Keep { CopyMode::Create } else { CopyMode::Overwrite };
                self.store.copy_opts(from, key, CopyOptions::new().with_mode(mode)).await
            }
        }
    }
}

fn is_already_stored(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. })
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::NotSupported { .. } | Error::NotImplemented { .. })
}

fn remote_write_error(action: &'static str, key: &Path, source: Error) -> WriteError {
    WriteError::Remote { action, key: key.to_string(), source: source.into() }
}

impl BlobStore for ObjectBlobs {
    fn begin(&self) -> BlobFuture<'_, Box<dyn BlobSink>, WriteError> {
        let sink: Box<dyn BlobSink> = Box::new(ObjectSink::new(self.shared.clone()));
        Box::pin(std::future::ready(Ok(sink)))
    }

    fn open(&self, digest: Digest) -> BlobFuture<'_, Option<Box<dyn BlobSource>>, BlobReadError> {
        Box::pin(async move {
            let source = ObjectSource::open(&self.shared, digest).await?;
            Ok(source.map(|source| Box::new(source) as Box<dyn BlobSource>))
        })
    }

    fn contains(&self, digest: Digest) -> BlobFuture<'_, bool, BlobReadError> {
        Box::pin(async move {
            let found = self.shared.head(&self.shared.key(digest)).await;
            let map_error = |source: Error| BlobReadError::Remote {
                action: "look up",
                digest,
                source: source.into(),
            };
            Ok(found.map_err(map_error)?.is_some())
        })
    }

    fn remove(&self, digest: Digest) -> BlobFuture<'_, (), RemoveError> {
        Box::pin(async move {
            let removed = self.shared.delete(&self.shared.key(digest)).await;
            removed.map_err(|source| RemoveError::Remote { digest, source: source.into() })
        })
    }

    fn list(&self) -> BlobFuture<'_, Box<dyn BlobListing>, ListError> {
        let prefix = self.shared.blobs();
        let objects = self.shared.store.list(Some(&prefix));
        let listing: Box<dyn BlobListing> =
            Box::new(ObjectListing { prefix, objects, failed: false });
        Box::pin(std::future::ready(Ok(listing)))
    }

    fn verify(&self, digest: Digest) -> BlobFuture<'_, Option<u64>, BlobReadError> {
        Box::pin(async move {
            let Some(mut source) = ObjectSource::open(&self.shared, digest).await? else {
                return Ok(None);
            };
            source.verify().await?;
            Ok(Some(source.len()))
        })
    }
}

struct ObjectListing {
    prefix: Path,
    objects: BoxStream<'static, Result<ObjectMeta, Error>>,
    failed: bool,
}

impl std::fmt::Debug for ObjectListing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ObjectListing")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl ObjectListing {
    async fn page(&mut self) -> Result<Vec<BlobEntry>, Error> {
        let mut page = Vec::new();
        while page.len() < LIST_PAGE_ENTRIES
            && let Some(object) = self.objects.next().await.transpose()?
        {
            page.extend(entry(&object));
        }
        Ok(page)
    }
}

impl BlobListing for ObjectListing {
    fn next_page(&mut self) -> BlobFuture<'_, Vec<BlobEntry>, ListError> {
        Box::pin(async move {
            // Set until the page is complete: a page whose future was dropped has lost entries.
            if std::mem::replace(&mut self.failed, true) {
                return Err(ListError::Interrupted);
            }
            match self.page().await {
                Ok(page) => {
                    self.failed = false;
                    Ok(page)
                }
                Err(source) => Err(ListError::Remote {
                    prefix: self.prefix.to_string(),
                    source: source.into(),
                }),
            }
        })
    }
}

fn entry(object: &ObjectMeta) -> Option<BlobEntry> {
    let digest = Digest::from_file_name(object.location.filename()?)?;
    Some(BlobEntry { digest, len: object.size })
}
