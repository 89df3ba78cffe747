//! The folder behind the asynchronous trait: futures that are dropped before they complete.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use crate::blob::conformance::content;
use crate::blob::{BlobReadError, BlobStore, LocalBlobs, Options, WriteError};
use catena_ledger::disk::Disk;
use catena_ledger::testing::sim_disk::SimDisk;

/// Begins a future and drops it while its work waits. The one blocking thread is kept busy for that long.
async fn begin_and_drop<T>(mut future: impl Future<Output = T> + Unpin) {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let busy = spawn_blocking(move || gate.recv());
    poll_fn(|context| {
        assert!(Pin::new(&mut future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(future);
    drop(release);
    busy.await.expect("the gate").expect_err("nothing is sent, only released");
}

fn check(fact: impl AsyncFnOnce(Arc<dyn BlobStore>)) {
    let disk = SimDisk::new(1);
    let blobs = LocalBlobs::open_folder(Arc::new(disk.clone()), Options::default()).expect("open");
    Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .expect("runtime")
        .block_on(fact(Arc::new(blobs)));
    assert!(disk.list().expect("list").iter().all(|name| !name.ends_with(".tmp")));
}

#[test]
fn a_write_that_was_dropped_half_way_spoils_its_blob() {
    check(async |store| {
        let mut sink = store.begin().await.expect("begin");
        sink.write(content(1, 100_000).into()).await.expect("write");
        begin_and_drop(sink.write(content(2, 100_000).into())).await;
        assert!(matches!(sink.write(Bytes::from_static(b"x")).await, Err(WriteError::Abandoned)));
        assert!(matches!(sink.finish(None).await, Err(WriteError::Abandoned)));
    });
}

#[test]
fn a_read_that_was_dropped_half_way_never_ends_cleanly() {
    check(async |store| {
        let mut sink = store.begin().await.expect("begin");
        sink.write(content(1, 100_000).into()).await.expect("write");
        let digest = sink.finish(None).await.expect("finish").digest();
        let mut source = store.open(digest).await.expect("open").expect("here");
        begin_and_drop(source.next_chunk()).await;
        assert!(matches!(source.next_chunk().await, Err(BlobReadError::Interrupted { .. })));
    });
}

#[test]
fn a_finish_that_was_dropped_leaves_the_blob_whole_or_absent() {
    check(async |store| {
        let mut sink = store.begin().await.expect("begin");
        sink.write(content(1, 100_000).into()).await.expect("write");
        begin_and_drop(sink.finish(None)).await;
        let digest = crate::blob::Digest::from_content(&content(1, 100_000));
        assert!(matches!(store.verify(digest).await, Ok(None | Some(100_000))));
    });
}
