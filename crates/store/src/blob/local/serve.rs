//! The folder as a [`BlobStore`]: the same operations, on threads that may block.
//!
//! Every disk access runs in `spawn_blocking` (gathering up to a chunk in memory does not), and owns its writer or reader
//! while it does. So dropping a future drops its writer or reader, too: the work ends by itself, the writer's temporary
//! file is removed, and the next call returns an error. Needs a tokio runtime.

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::{BlobReader, BlobWriter, Listing, LocalBlobs};
use crate::blob::digest::Digest;
use crate::blob::error::{BlobReadError, ListError, RemoveError, WriteError};
use crate::blob::store::{
    BlobEntry, BlobFuture, BlobListing, BlobSink, BlobSource, BlobStore, Finished,
};
use crate::limits::RANGE_BYTES_MAX;

impl BlobStore for LocalBlobs {
    fn begin(&self) -> BlobFuture<'_, Box<dyn BlobSink>, WriteError> {
        let sink: Box<dyn BlobSink> = Box::new(LocalSink { writer: Some(self.begin()) });
        Box::pin(std::future::ready(Ok(sink)))
    }

    fn open(&self, digest: Digest) -> BlobFuture<'_, Option<Box<dyn BlobSource>>, BlobReadError> {
        let blobs = self.clone();
        Box::pin(async move {
            let opened = spawn_blocking(move || blobs.open(&digest)).await;
            let reader = opened.map_err(|_| BlobReadError::Interrupted { digest })??;
            Ok(reader.map(|reader| Box::new(LocalSource::new(reader)) as Box<dyn BlobSource>))
        })
    }

    fn contains(&self, digest: Digest) -> BlobFuture<'_, bool, BlobReadError> {
        let blobs = self.clone();
        let work = spawn_blocking(move || blobs.contains(&digest));
        Box::pin(async move { work.await.map_err(|_| BlobReadError::Interrupted { digest })? })
    }

    fn remove(&self, digest: Digest) -> BlobFuture<'_, (), RemoveError> {
        let blobs = self.clone();
        let work = spawn_blocking(move || blobs.remove(&digest));
        Box::pin(async move { work.await.map_err(|_| RemoveError::Interrupted { digest })? })
    }

    fn list(&self) -> BlobFuture<'_, Box<dyn BlobListing>, ListError> {
        let blobs = self.clone();
        Box::pin(async move {
            let listing = spawn_blocking(move || blobs.list())
                .await
                .map_err(|_| ListError::Interrupted)??;
            Ok(Box::new(LocalListing { listing: Some(listing) }) as Box<dyn BlobListing>)
        })
    }

    fn verify(&self, digest: Digest) -> BlobFuture<'_, Option<u64>, BlobReadError> {
        let blobs = self.clone();
        let work = spawn_blocking(move || blobs.verify(&digest));
        Box::pin(async move { work.await.map_err(|_| BlobReadError::Interrupted { digest })? })
    }
}

#[derive(Debug)]
struct LocalSink {
    writer: Option<BlobWriter>,
}

impl BlobSink for LocalSink {
    fn write(&mut self, data: Bytes) -> BlobFuture<'_, (), WriteError> {
        Box::pin(async move {
            let mut writer = self.writer.take().ok_or(WriteError::Abandoned)?;
            if writer.has_room(data.len()) {
                return self.writer.insert(writer).write(&data);
            }
            let work = spawn_blocking(move || (writer.write(&data), writer));
            let (written, writer) = work.await.map_err(|_| WriteError::Abandoned)?;
            self.writer = Some(writer);
            written
        })
    }

    fn finish(
        mut self: Box<Self>,
        expected: Option<Digest>,
    ) -> BlobFuture<'static, Finished, WriteError> {
        let writer = self.writer.take();
        Box::pin(async move {
            let writer = writer.ok_or(WriteError::Abandoned)?;
            if writer.is_inline() {
                return writer.finish(expected);
            }
            spawn_blocking(move || writer.finish(expected))
                .await
                .map_err(|_| WriteError::Abandoned)?
        })
    }
}

impl Drop for LocalSink {
    fn drop(&mut self) {
        // Removing a large file takes too long for an asynchronous thread.
        if let Some(writer) = self.writer.take_if(|writer| writer.has_file())
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(writer));
        }
    }
}

#[derive(Debug)]
struct LocalSource {
    digest: Digest,
    len: u64,
    reader: Option<BlobReader>,
}

impl LocalSource {
    fn new(reader: BlobReader) -> Self {
        Self { digest: reader.digest(), len: reader.len(), reader: Some(reader) }
    }

    /// Runs work with the reader on a blocking thread.
    async fn with_reader<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut BlobReader) -> Result<T, BlobReadError> + Send + 'static,
    ) -> Result<T, BlobReadError> {
        let interrupted = BlobReadError::Interrupted { digest: self.digest };
        let Some(mut reader) = self.reader.take() else { return Err(interrupted) };
        let Ok((answer, reader)) = spawn_blocking(move || (work(&mut reader), reader)).await else {
            return Err(interrupted);
        };
        self.reader = Some(reader);
        answer
    }
}

impl BlobSource for LocalSource {
    fn digest(&self) -> Digest {
        self.digest
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn next_chunk(&mut self) -> BlobFuture<'_, Option<Bytes>, BlobReadError> {
        Box::pin(self.with_reader(BlobReader::next_chunk))
    }

    fn read_range(&mut self, offset: u64, len: usize) -> BlobFuture<'_, Bytes, BlobReadError> {
        Box::pin(self.with_reader(move |reader| read_range(reader, offset, len)))
    }

    fn verify(&mut self) -> BlobFuture<'_, (), BlobReadError> {
        Box::pin(self.with_reader(BlobReader::verify))
    }
}

fn read_range(reader: &BlobReader, offset: u64, len: usize) -> Result<Bytes, BlobReadError> {
    if len > RANGE_BYTES_MAX {
        return Err(BlobReadError::RangeTooLarge {
            digest: reader.digest(),
            asked: len,
            bytes_max: RANGE_BYTES_MAX,
        });
    }
    let mut buffer = vec![0; len];
    let filled = reader.read_at(offset, &mut buffer)?;
    buffer.truncate(filled);
    Ok(buffer.into())
}

#[derive(Debug)]
struct LocalListing {
    listing: Option<Listing>,
}

impl BlobListing for LocalListing {
    fn next_page(&mut self) -> BlobFuture<'_, Vec<BlobEntry>, ListError> {
        Box::pin(async move {
            let mut listing = self.listing.take().ok_or(ListError::Interrupted)?;
            let work = spawn_blocking(move || (listing.next_page(), listing));
            let (page, listing) = work.await.map_err(|_| ListError::Interrupted)?;
            self.listing = Some(listing);
            page
        })
    }
}
