//! Writing a blob into an object store.
//!
//! Parts of one size are uploaded one after the other, each while nothing else is buffered, so an upload holds at most one
//! part. An object under a temporary key is deleted when its upload ends: explicitly if a call can wait for it, in the
//! background if a future or a sink was dropped. Hashing happens on the caller's thread: a caller that writes more than a
//! network frame at a time blocks its thread for it.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::runtime::Handle;

use super::{ObjectShared, Origin, remote_write_error};
use crate::blob::digest::{Digest, Hasher};
use crate::blob::error::WriteError;
use crate::blob::store::{BlobFuture, BlobSink, Finished};
use crate::limits::{INLINE_BYTES_MAX, PART_BYTES};

/// A blob being written to an object store.
#[derive(Debug)]
pub(super) struct ObjectSink {
    shared: Arc<ObjectShared>,
    hasher: Hasher,
    len: u64,
    part: Vec<u8>,
    upload: Option<Upload>,
    state: SinkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkState {
    Open,
    /// A write is running, or was running when its future was dropped, or has failed.
    Abandoned,
}

impl ObjectSink {
    pub(super) fn new(shared: Arc<ObjectShared>) -> Self {
        Self {
            shared,
            hasher: Hasher::default(),
            len: 0,
            part: Vec::new(),
            upload: None,
            state: SinkState::Open,
        }
    }

    async fn append_content(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        let bytes_max = self.shared.options.limits.blob_bytes_max;
        let len = self.len.saturating_add(data.len() as u64);
        if len > bytes_max {
            return Err(WriteError::TooLarge { bytes_max });
        }
        self.len = len;
        self.hasher.update(&data);
        while data.has_remaining() {
            // A full part is sent only if more follows, so content of one part never becomes an upload.
            if self.part.len() == PART_BYTES {
                self.send_part().await?;
            }
            let room = (PART_BYTES - self.part.len()).min(data.len());
            self.part.extend_from_slice(&data.split_to(room));
        }
        Ok(())
    }

    async fn send_part(&mut self) -> Result<(), WriteError> {
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => Upload::begin(self.shared.clone()).await?,
        };
        let part = std::mem::take(&mut self.part);
        self.upload.insert(upload).send(part.into()).await
    }

    async fn end(&mut self, expected: Option<Digest>) -> Result<Finished, WriteError> {
        let digest = std::mem::take(&mut self.hasher).finish();
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(WriteError::Mismatch { expected, found: digest });
        }
        if self.len <= INLINE_BYTES_MAX as u64 {
            return Ok(Finished::Inline { digest, bytes: std::mem::take(&mut self.part).into() });
        }
        self.store(digest).await?;
        Ok(Finished::Stored { digest, len: self.len })
    }

    async fn store(&mut self, digest: Digest) -> Result<(), WriteError> {
        if self.upload.is_none() {
            let content = PutPayload::from(std::mem::take(&mut self.part));
            return self.shared.publish(Origin::Memory(content), digest, self.len).await;
        }
        self.send_part().await?;
        let Some(upload) = &mut self.upload else { return Err(WriteError::Abandoned) };
        upload.complete().await?;
        self.shared.publish(Origin::Upload(&upload.key), digest, self.len).await
    }

    async fn discard(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.discard().await;
        }
    }
}

impl BlobSink for ObjectSink {
    fn write(&mut self, data: Bytes) -> BlobFuture<'_, (), WriteError> {
        Box::pin(async move {
            if std::mem::replace(&mut self.state, SinkState::Abandoned) == SinkState::Abandoned {
                return Err(WriteError::Abandoned);
            }
            let appended = self.append_content(data).await;
            match appended {
                Ok(()) => self.state = SinkState::Open,
                Err(_) => self.discard().await,
            }
            appended
        })
    }

    fn finish(
        mut self: Box<Self>,
        expected: Option<Digest>,
    ) -> BlobFuture<'static, Finished, WriteError> {
        Box::pin(async move {
            if self.state == SinkState::Abandoned {
                return Err(WriteError::Abandoned);
            }
            let finished = self.end(expected).await;
            self.discard().await;
            finished
        })
    }
}

/// An upload under a temporary key, which is deleted in any case.
#[derive(Debug)]
struct Upload {
    shared: Arc<ObjectShared>,
    key: Path,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Uploading(Box<dyn MultipartUpload>),
    /// Completed, or about to be: the key may hold an object.
    Completed,
    Discarded,
}

impl Upload {
    async fn begin(shared: Arc<ObjectShared>) -> Result<Self, WriteError> {
        let key = shared.upload_key();
        match shared.store.put_multipart(&key).await {
            Ok(parts) => Ok(Self { shared, key, stage: Stage::Uploading(parts) }),
            Err(error) => Err(remote_write_error("begin an upload to", &key, error)),
        }
    }

    async fn send(&mut self, part: Bytes) -> Result<(), WriteError> {
        let Stage::Uploading(parts) = &mut self.stage else { return Err(WriteError::Abandoned) };
        parts
            .put_part(part.into())
            .await
            .map_err(|error| remote_write_error("upload a part to", &self.key, error))
    }

    async fn complete(&mut self) -> Result<(), WriteError> {
        let Stage::Uploading(mut parts) = std::mem::replace(&mut self.stage, Stage::Completed)
        else {
            return Err(WriteError::Abandoned);
        };
        let completed = parts.complete().await;
        completed
            .map(drop)
            .map_err(|error| remote_write_error("complete the upload to", &self.key, error))
    }

    /// Discards the upload. If that fails, [`super::ObjectBlobs::remove_stale_uploads`] removes it later.
    async fn discard(mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Discarded);
        let _ = discard_stage(self.shared.clone(), self.key.clone(), stage).await;
    }
}

async fn discard_stage(shared: Arc<ObjectShared>, key: Path, stage: Stage) -> Result<(), Error> {
    match stage {
        Stage::Uploading(mut parts) => parts.abort().await,
        Stage::Completed => shared.delete(&key).await,
        Stage::Discarded => Ok(()),
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Discarded);
        if !matches!(stage, Stage::Discarded)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(discard_stage(self.shared.clone(), self.key.clone(), stage));
        }
    }
}
