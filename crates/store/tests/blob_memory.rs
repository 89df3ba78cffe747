//! A large blob is written and read with little memory.
//!
//! In a process of its own, because the system reports only the peak of an entire process.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use catena_ledger::disk::RealDisk;
use catena_ledger::testing::scratch::Scratch;
use catena_store::blob::conformance::content;
use catena_store::blob::{BlobStore, Digest, Hasher, LocalBlobs, Options};

const BLOB_BYTES: usize = 64 * 1024 * 1024;
const PIECE_BYTES: usize = 100_000;
/// Far above the few chunks that are needed, far below the blob.
const GROWTH_BYTES: usize = 4 * 1024 * 1024;

/// The peak memory of this process in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    let kilobytes: usize =
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    kilobytes * 1024
}

fn put_large(blobs: &LocalBlobs) -> Digest {
    let mut hasher = Hasher::default();
    let mut writer = blobs.begin();
    let mut left = BLOB_BYTES;
    while left > 0 {
        let piece = content(left as u64, left.min(PIECE_BYTES));
        hasher.update(&piece);
        writer.write(&piece).expect("write");
        left -= piece.len();
    }
    writer.finish(Some(hasher.finish())).expect("finish").digest()
}

async fn put_and_read_large(store: &dyn BlobStore) {
    let mut sink = store.begin().await.expect("begin");
    for left in (1..=BLOB_BYTES).rev().step_by(PIECE_BYTES) {
        sink.write(content(left as u64, PIECE_BYTES.min(left)).into()).await.expect("write");
    }
    let digest = sink.finish(None).await.expect("finish").digest();
    let mut source = store.open(digest).await.expect("open").expect("here");
    let mut read = 0;
    while let Some(chunk) = source.next_chunk().await.expect("chunk") {
        read += chunk.len();
    }
    assert_eq!(read, BLOB_BYTES);
}

#[test]
fn a_blob_of_64_mib_is_written_read_and_verified_within_4_mib() {
    let scratch = Scratch::new("blob-memory");
    let disk = RealDisk::new(scratch.path()).expect("folder");
    let blobs = LocalBlobs::open_folder(Arc::new(disk), Options::default()).expect("open");
    let before = peak_bytes();
    let digest = put_large(&blobs);
    let mut reader = blobs.open(&digest).expect("open").expect("here");
    let mut read = 0;
    while let Some(chunk) = reader.next_chunk().expect("chunk") {
        read += chunk.len();
    }
    assert_eq!(read, BLOB_BYTES);
    assert_eq!(blobs.verify(&digest).expect("verify"), Some(BLOB_BYTES as u64));
    blobs.remove(&digest).expect("remove");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(put_and_read_large(&blobs));
    let growth = peak_bytes() - before;
    println!("peak grew by {} KiB for a blob of {} KiB", growth / 1024, BLOB_BYTES / 1024);
    assert!(growth < GROWTH_BYTES, "peak grew by {growth} bytes");
}
