//! Blobs in an object store: stores with missing features, uploads that fail or are left over.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use parking_lot::Mutex;
use tokio::runtime::Builder;

use crate::blob::conformance::content;
use crate::blob::{
    BlobReadError, BlobStore, Digest, Finished, ObjectBlobs, ObjectOptions, Options, WriteError,
};
use crate::limits::PART_BYTES;

/// A boxed future as the trait of object stores requires it.
type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An object store that does not support conditions, keeps a log, and fails on request.
#[derive(Debug, Clone)]
struct Plain {
    inner: Arc<InMemory>,
    log: Arc<Mutex<Vec<String>>>,
    failing: Option<&'static str>,
}

impl Plain {
    fn new(failing: Option<&'static str>) -> Self {
        Self { inner: Arc::new(InMemory::new()), log: Arc::default(), failing }
    }

    fn note(&self, event: &str) -> Result<()> {
        self.log.lock().push(event.to_owned());
        if self.failing.is_some_and(|failing| event.starts_with(failing)) {
            return Err(Error::Generic { store: "plain", source: "injected failure".into() });
        }
        Ok(())
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("plain")
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::NotSupported { source: "conditions are not supported".into() })
}

impl ObjectStore for Plain {
    fn put_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Reply<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            self.note("put")?;
            if options.mode == PutMode::Create {
                return unsupported();
            }
            self.inner.put_opts(location, payload, options).await
        })
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Path,
        options: PutMultipartOptions,
    ) -> Reply<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            self.note("begin")?;
            let inner = self.inner.put_multipart_opts(location, options).await?;
            Ok(Box::new(PlainUpload { store: self.clone(), inner }) as Box<dyn MultipartUpload>)
        })
    }

    fn get_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Path,
        options: GetOptions,
    ) -> Reply<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.get_opts(location, options)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, prefix: Option<&'b Path>) -> Reply<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'd, 'c>(
        &'a self,
        from: &'b Path,
        to: &'d Path,
        options: CopyOptions,
    ) -> Reply<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        'd: 'c,
    {
        Box::pin(async move {
            self.note("copy")?;
            if options.mode == CopyMode::Create {
                return unsupported();
            }
            self.inner.copy_opts(from, to, options).await
        })
    }
}

#[derive(Debug)]
struct PlainUpload {
    store: Plain,
    inner: Box<dyn MultipartUpload>,
}

impl MultipartUpload for PlainUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.store.note(&format!("part of {}", data.content_length())) {
            Ok(()) => self.inner.put_part(data),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn complete<'a, 'c>(&'a mut self) -> Reply<'c, PutResult>
    where
        'a: 'c,
    {
        match self.store.note("complete") {
            Ok(()) => self.inner.complete(),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn abort<'a, 'c>(&'a mut self) -> Reply<'c, ()>
    where
        'a: 'c,
    {
        let noted = self.store.note("abort");
        Box::pin(std::future::ready(noted))
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().expect("runtime").block_on(future)
}

fn blobs(store: impl ObjectStore) -> ObjectBlobs {
    let options =
        ObjectOptions { prefix: Path::default(), instance: 1, limits: Options::default() };
    ObjectBlobs::new(Arc::new(store), options)
}

async fn put(blobs: &ObjectBlobs, content: &[u8]) -> std::result::Result<Finished, WriteError> {
    let mut sink = blobs.begin().await?;
    for piece in content.chunks(700_000) {
        sink.write(Bytes::copy_from_slice(piece)).await?;
    }
    sink.finish(None).await
}

async fn keys(store: &InMemory) -> Vec<String> {
    use futures_util::StreamExt;
    store.list(None).map(|object| object.expect("list").location.to_string()).collect().await
}

#[test]
fn a_store_without_conditions_is_used_without_them() {
    run(async {
        let store = Plain::new(None);
        let blobs = blobs(store.clone());
        for len in [100_000, PART_BYTES + 1] {
            let finished = put(&blobs, &content(1, len)).await.expect("put");
            assert_eq!(blobs.verify(finished.digest()).await.expect("verify"), Some(len as u64));
        }
        let sent = format!("part of {PART_BYTES}");
        let expected = ["put", "put", "begin", &sent, "part of 1", "complete", "copy", "copy"];
        assert_eq!(store.log(), expected);
    });
}

#[test]
fn parts_are_all_alike_except_the_last() {
    run(async {
        let store = Plain::new(None);
        put(&blobs(store.clone()), &content(1, 3 * PART_BYTES)).await.expect("put");
        let parts: Vec<String> =
            store.log().into_iter().filter(|event| event.starts_with("part")).collect();
        assert_eq!(parts, vec![format!("part of {PART_BYTES}"); 3]);
    });
}

#[test]
fn an_upload_that_fails_anywhere_is_taken_back_and_acknowledges_nothing() {
    for (failing, aborted) in
        [("begin", false), ("part", true), ("complete", false), ("copy", false), ("put", false)]
    {
        run(async {
            let store = Plain::new(Some(failing));
            let len = if failing == "put" { 100_000 } else { PART_BYTES + 1 };
            let refused = put(&blobs(store.clone()), &content(1, len)).await;
            assert!(matches!(refused, Err(WriteError::Remote { .. })), "{failing}: {refused:?}");
            assert_eq!(store.log().contains(&"abort".to_owned()), aborted, "{failing}");
            assert_eq!(keys(&store.inner).await, [""; 0], "{failing}");
        });
    }
}

#[test]
fn a_dropped_upload_is_aborted_in_the_background() {
    let store = Plain::new(None);
    run(async {
        let mut sink = blobs(store.clone()).begin().await.expect("begin");
        sink.write(content(1, PART_BYTES + 1).into()).await.expect("write");
        drop(sink);
        tokio::task::yield_now().await;
        assert_eq!(store.log().last().map(String::as_str), Some("abort"));
    });
}

#[test]
fn stale_uploads_are_removed_and_blobs_are_not() {
    run(async {
        let store = Arc::new(InMemory::new());
        let options =
            ObjectOptions { prefix: Path::default(), instance: 1, limits: Options::default() };
        let blobs = ObjectBlobs::new(store.clone(), options);
        let digest = put(&blobs, &content(1, 100_000)).await.expect("put").digest();
        let left = Path::from("uploads/00000000000000000000000000000009-3");
        store.put(&left, "left by another".into()).await.expect("put");
        let touched = SystemTime::from(store.head(&left).await.expect("head").last_modified);
        assert_eq!(blobs.remove_stale_uploads(touched).await.expect("none is older"), 0);
        let later = touched + Duration::from_secs(1);
        assert_eq!(blobs.remove_stale_uploads(later).await.expect("one is older"), 1);
        assert_eq!(keys(&store).await, [format!("sha256/{}", digest.to_hex())]);
    });
}

#[test]
fn a_source_reads_the_version_it_has_opened_or_fails() {
    run(async {
        let store = Arc::new(InMemory::new());
        let options =
            ObjectOptions { prefix: Path::default(), instance: 1, limits: Options::default() };
        let blobs = ObjectBlobs::new(store.clone(), options);
        let digest: Digest = put(&blobs, &content(1, 100_000)).await.expect("put").digest();
        let mut source = blobs.open(digest).await.expect("open").expect("here");
        source.verify().await.expect("verify");
        let key = Path::from(format!("sha256/{}", digest.to_hex()));
        store.put(&key, content(2, 100_000).into()).await.expect("replaced behind our back");
        assert!(matches!(source.read_range(0, 10).await, Err(BlobReadError::Remote { .. })));
        assert!(source.next_chunk().await.is_err());
        assert!(source.next_chunk().await.is_err(), "and it stays so");
    });
}
