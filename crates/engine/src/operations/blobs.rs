//! Blobs that belong to users: data that callers upload by digest, and files that executors upload.
//!
//! The content of a blob is stored once. Who may read it is a root per user and digest: a user who has
//! not uploaded a blob gets the same answer as if it did not exist.

use bytes::Bytes;
use catena_job::{Job, JobId};
use catena_store::blob::{BlobError, Digest, Download, Upload, WriteError};
use catena_store::{Effect, Effects, RootKey, RootSpace};
use catena_value::Value;

use crate::error::StoreError;
use crate::limits::PAGE_MAX;
use crate::operations::Operations;
use crate::requests::check_stored_bytes;

/// Why a blob was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobUploadError {
    /// The content does not have the stated digest.
    #[error("the content has the digest {found}")]
    Mismatch {
        /// The digest of the content.
        found: String,
    },
    /// The content is too large.
    #[error("the content has more than {max} bytes")]
    TooLarge {
        /// The largest size in bytes.
        max: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A blob that is being uploaded. If it is dropped before it is finished, nothing is stored.
pub struct BlobUpload {
    upload: Upload,
    received: u64,
    max: u64,
}

impl BlobUpload {
    /// Appends the next piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), BlobUploadError> {
        self.received += data.len() as u64;
        if self.received > self.max {
            return Err(BlobUploadError::TooLarge { max: self.max });
        }
        self.upload.write(data).await.map_err(upload_error)
    }

    /// Ends the upload. The content is durable if it has the stated digest. With `job`, it is removed with
    /// the last job that it was uploaded for, unless somebody else has uploaded it, and counts as stored for the
    /// owner of the job. Returns its size in bytes.
    pub async fn finish(self, digest: Digest, job: Option<&Job>) -> Result<u64, BlobUploadError> {
        let finished = match job {
            None => self.upload.finish(Some(digest)).await,
            Some(job) => {
                let owner = job.field("caller").and_then(Value::as_str).unwrap_or_default();
                self.upload.finish_for(Some(digest), &job.id().to_hex(), owner).await
            }
        };
        let (_, size) = finished.map_err(upload_error)?;
        Ok(size)
    }
}

impl Operations {
    /// Starts an upload of at most `max` bytes.
    pub(crate) async fn begin_blob(&self, max: u64) -> Result<BlobUpload, StoreError> {
        let upload = self.blobs.begin().await.map_err(store_error)?;
        Ok(BlobUpload { upload, received: 0, max })
    }

    /// Opens a blob, whoever has uploaded it. `None` if it is not stored.
    pub(crate) async fn open_blob(&self, digest: Digest) -> Result<Option<Download>, StoreError> {
        self.blobs.open(digest).await.map_err(store_error)
    }

    /// Removes the files of a job that no longer exists, unless something else needs them. Returns how
    /// many were removed.
    pub(crate) async fn remove_files_of(&self, job: JobId) -> Result<u64, StoreError> {
        self.blobs.remove_holder(&job.to_hex()).await.map_err(store_error)
    }

    /// Returns a page of jobs that have files, after one of them.
    pub(crate) async fn jobs_with_files(
        &self,
        after: Option<JobId>,
    ) -> Result<Vec<JobId>, StoreError> {
        let after = after.map(|job| job.to_hex());
        let holders = self.blobs.holders(after.as_deref()).await.map_err(store_error)?;
        Ok(holders.iter().filter_map(|holder| holder.parse().ok()).collect())
    }

    /// Returns some of the jobs that have a blob as a file.
    pub(crate) async fn jobs_with_file(&self, digest: Digest) -> Result<Vec<JobId>, StoreError> {
        let holders = self.blobs.holders_of(digest, PAGE_MAX).await.map_err(store_error)?;
        Ok(holders.iter().filter_map(|holder| holder.parse().ok()).collect())
    }

    /// Records that a user has a blob.
    pub(crate) async fn add_blob_owner(
        &self,
        owner: &str,
        digest: Digest,
    ) -> Result<(), StoreError> {
        self.store.commit(Effects::one(ownership_effect(owner, digest))).await?;
        Ok(())
    }

    /// Checks that an owner may store more.
    pub(crate) async fn check_stored_bytes(&self, owner: &str) -> Result<(), StoreError> {
        check_stored_bytes(&*self.store, &self.runtime.limits, owner).await
    }

    /// Returns true if a user has a blob.
    pub(crate) async fn owns_blob(&self, owner: &str, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.store.root(&key(owner, digest)).await?.is_some())
    }
}

/// Records that a user has a blob, unless that is recorded already.
pub(super) fn ownership_effect(owner: &str, digest: Digest) -> Effect {
    Effect::SetRootIfAbsent { key: key(owner, digest), value: true.into() }
}

fn key(owner: &str, digest: Digest) -> RootKey {
    RootKey { space: RootSpace::Blob, owner: owner.to_owned(), name: digest.to_hex() }
}

fn store_error(error: BlobError) -> StoreError {
    StoreError::Damaged(error.to_string())
}

fn upload_error(error: BlobError) -> BlobUploadError {
    match error {
        BlobError::Write(WriteError::Mismatch { found, .. }) => {
            BlobUploadError::Mismatch { found: found.to_string() }
        }
        BlobError::Commit(error) => BlobUploadError::Store(error.into()),
        error => BlobUploadError::Store(store_error(error)),
    }
}
