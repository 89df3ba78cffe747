//! Blobs in a folder: the operations on the disk, and its failures.

use std::io::ErrorKind;
use std::sync::Arc;

use proptest::prelude::*;

use crate::blob::conformance::content;
use crate::blob::{
    BlobOpenError, Digest, Finished, INLINE_BYTES_MAX, LocalBlobs, Options, RemoveError, WriteError,
};
use catena_ledger::disk::{Disk, RealDisk};
use catena_ledger::testing::scratch::Scratch;
use catena_ledger::testing::sim_disk::{Crash, SimDisk, SimOp};

fn open(disk: &SimDisk) -> LocalBlobs {
    LocalBlobs::open_folder(Arc::new(disk.clone()), Options::default()).expect("open")
}

fn put(blobs: &LocalBlobs, content: &[u8]) -> Result<Digest, WriteError> {
    let mut writer = blobs.begin();
    writer.write(content)?;
    writer.finish(None).map(|finished| finished.digest())
}

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list().expect("list")
}

#[test]
fn small_content_never_touches_the_disk() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let before = disk.operations();
    let mut writer = blobs.begin();
    writer.write(&content(1, INLINE_BYTES_MAX)).expect("write");
    assert!(matches!(writer.finish(None), Ok(Finished::Inline { .. })));
    assert_eq!(disk.operations(), before);
}

#[test]
fn a_stored_blob_costs_one_file_sync_and_one_folder_sync() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let before = disk.operations();
    put(&blobs, &content(1, 100_000)).expect("put");
    // Create, write, sync, rename, sync of the folder.
    assert_eq!(disk.operations() - before, 5);
}

#[test]
fn a_blob_that_is_here_already_is_not_synced_again() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let digest = put(&blobs, &content(1, 100_000)).expect("put");
    disk.fail(SimOp::Sync, "", 0, ErrorKind::Other);
    disk.fail(SimOp::SyncDir, "", 0, ErrorKind::Other);
    assert_eq!(put(&blobs, &content(1, 100_000)).expect("put again"), digest);
    assert_eq!(names(&disk), [digest.to_hex()]);
}

#[test]
fn leftover_temporary_files_are_removed_at_opening_and_other_files_are_not() {
    let disk = SimDisk::new(1);
    for name in ["upload-0.tmp", "upload-77.tmp", "a note"] {
        disk.create(name).expect("create");
    }
    let digest = put(&open(&disk), &content(1, 100_000)).expect("put");
    let blobs = open(&disk);
    assert_eq!(names(&disk), [digest.to_hex(), "a note".to_owned()]);
    assert_eq!(blobs.list().expect("list").next_page().expect("page").len(), 1);
}

#[test]
fn an_unfinished_writer_has_a_temporary_file_until_it_is_dropped() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let mut writer = blobs.begin();
    writer.write(&content(1, 100_000)).expect("write");
    assert_eq!(names(&disk), ["upload-0.tmp"]);
    drop(writer);
    assert_eq!(names(&disk), [""; 0]);
}

#[test]
fn a_full_disk_is_said_so_and_leaves_the_earlier_blobs() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let earlier = put(&blobs, &content(1, 100_000)).expect("put");
    disk.limit_space(Some(disk.used_bytes() + 120_000));
    let mut writer = blobs.begin();
    writer.write(&content(2, 100_000)).expect("there is space for this");
    let refused = writer.write(&content(3, 100_000)).expect_err("and not for that");
    assert!(
        matches!(&refused, WriteError::Full { path, .. } if path.ends_with(".tmp"))
            && refused.is_out_of_space()
    );
    assert_eq!(names(&disk), [earlier.to_hex()], "the space is free again at once");
    assert!(matches!(writer.finish(None), Err(WriteError::Abandoned)));
    assert_eq!(blobs.verify(&earlier).expect("verify"), Some(100_000));
    put(&blobs, &content(2, 100_000)).expect("what fits is taken");
}

#[test]
fn a_failed_sync_of_the_file_acknowledges_nothing_and_renames_nothing() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    disk.fail(SimOp::Sync, "", 0, ErrorKind::Other);
    let refused = put(&blobs, &content(1, 100_000));
    assert!(
        matches!(refused, Err(WriteError::Sync { path, .. }) if path.ends_with("upload-0.tmp"))
    );
    assert_eq!(names(&disk), [""; 0]);
    let digest = put(&blobs, &content(1, 100_000)).expect("a new file is another matter");
    assert_eq!(blobs.verify(&digest).expect("verify"), Some(100_000));
}

#[test]
fn a_sync_that_fails_for_lack_of_space_is_a_failed_sync_and_a_lack_of_space() {
    let disk = SimDisk::new(1);
    disk.fail(SimOp::Sync, "", 0, ErrorKind::StorageFull);
    let refused = put(&open(&disk), &content(1, 100_000)).expect_err("no space");
    assert!(matches!(refused, WriteError::Sync { .. }) && refused.is_out_of_space());
}

#[test]
fn after_a_failed_sync_of_the_folder_nothing_changes_until_it_is_opened_again() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let earlier = put(&blobs, &content(1, 100_000)).expect("put");
    disk.fail(SimOp::SyncDir, "", 0, ErrorKind::Other);
    let refused = put(&blobs, &content(2, 100_000));
    assert!(matches!(refused, Err(WriteError::Sync { .. })));
    assert!(matches!(put(&blobs, &content(2, 100_000)), Err(WriteError::Stopped { .. })));
    assert!(matches!(put(&blobs, &content(3, 100_000)), Err(WriteError::Stopped { .. })));
    assert!(matches!(blobs.remove(&earlier), Err(RemoveError::Stopped { .. })));
    assert_eq!(blobs.verify(&earlier).expect("reading goes on"), Some(100_000));
    put(&open(&disk), &content(2, 100_000)).expect("the next opening makes sure");
}

#[test]
fn a_blob_whose_name_is_not_durable_is_not_shown() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let digest = Digest::from_content(&content(1, 100_000));
    disk.fail(SimOp::SyncDir, "", 0, ErrorKind::Other);
    put(&blobs, &content(1, 100_000)).expect_err("the folder was not synced");
    assert_eq!(names(&disk), [digest.to_hex()], "the name is there");
    assert!(!blobs.contains(&digest).expect("contains"));
    assert!(blobs.open(&digest).expect("open").is_none());
    assert_eq!(blobs.list().expect("list").next_page().expect("page"), []);
    assert!(open(&disk).contains(&digest).expect("contains"), "opening has synced it");
}

#[test]
fn a_failed_rename_is_made_good_by_the_next_put() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    // The creation of the temporary file goes well, its rename does not.
    disk.fail(SimOp::Names, "upload-0", 1, ErrorKind::PermissionDenied);
    assert!(matches!(put(&blobs, &content(1, 100_000)), Err(WriteError::Io { .. })));
    assert_eq!(names(&disk), [""; 0]);
    let digest = put(&blobs, &content(1, 100_000)).expect("put");
    let after = open(&disk.crash(Crash::PowerLoss, 5));
    assert_eq!(after.verify(&digest).expect("verify"), Some(100_000));
}

#[test]
fn a_failed_sync_of_a_removal_is_no_removal() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let digest = put(&blobs, &content(1, 100_000)).expect("put");
    disk.fail(SimOp::SyncDir, "", 0, ErrorKind::Other);
    assert!(
        matches!(blobs.remove(&digest), Err(RemoveError::Sync { digest: named, .. }) if named == digest)
    );
}

#[test]
fn a_reader_keeps_reading_what_is_removed_meanwhile() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let content = content(1, 200_000);
    let digest = put(&blobs, &content).expect("put");
    let mut reader = blobs.open(&digest).expect("open").expect("here");
    blobs.remove(&digest).expect("remove");
    let mut read = Vec::new();
    while let Some(chunk) = reader.next_chunk().expect("chunk") {
        read.extend_from_slice(&chunk);
    }
    assert!(read == content && reader.is_verified());
}

#[test]
fn a_range_is_verified_only_after_verification() {
    let disk = SimDisk::new(1);
    let blobs = open(&disk);
    let digest = put(&blobs, &content(1, 200_000)).expect("put");
    let mut reader = blobs.open(&digest).expect("open").expect("here");
    let mut buffer = [0; 10];
    assert_eq!(reader.read_at(199_995, &mut buffer).expect("range"), 5);
    assert!(!reader.is_verified());
    reader.verify().expect("verify");
    assert!(reader.is_verified());
}

#[test]
fn a_folder_has_one_store_at_a_time() {
    let scratch = Scratch::new("blob-lock");
    let open = || {
        let disk = RealDisk::new(scratch.path()).expect("folder");
        LocalBlobs::open_folder(Arc::new(disk), Options::default())
    };
    let first = open().expect("open");
    assert!(matches!(open(), Err(BlobOpenError::Taken { .. })));
    let writer = first.begin();
    drop(first);
    assert!(matches!(open(), Err(BlobOpenError::Taken { .. })), "a writer still uses it");
    drop(writer);
    open().expect("free again");
}

#[test]
fn many_threads_may_write_the_same_blobs_at_once() {
    let scratch = Scratch::new("blob-threads");
    let disk = RealDisk::new(scratch.path()).expect("folder");
    let blobs = LocalBlobs::open_folder(Arc::new(disk), Options::default()).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let blobs = &blobs;
            scope.spawn(move || {
                for round in 0..12 {
                    let digest = put(blobs, &content((thread + round) % 5, 70_000)).expect("put");
                    assert_eq!(blobs.verify(&digest).expect("verify"), Some(70_000));
                }
            });
        }
    });
    assert_eq!(blobs.list().expect("list").next_page().expect("page").len(), 5);
    drop(blobs);
    let names = RealDisk::new(scratch.path()).expect("folder").list().expect("list");
    assert_eq!(names.len(), 6, "five blobs and the lock: {names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn how_content_is_cut_into_pieces_does_not_matter(
        pieces in proptest::collection::vec(0_usize..90_000, 0..6),
        seed: u64,
    ) {
        let whole = content(seed, pieces.iter().sum());
        let disk = SimDisk::new(1);
        let blobs = open(&disk);
        let mut writer = blobs.begin();
        let mut rest = &whole[..];
        for len in pieces {
            let (piece, after) = rest.split_at(len);
            writer.write(piece).expect("write");
            rest = after;
        }
        let finished = writer.finish(Some(Digest::from_content(&whole))).expect("finish");
        prop_assert_eq!(finished.len(), whole.len() as u64);
        if let Finished::Inline { bytes, .. } = &finished {
            prop_assert!(whole.len() <= INLINE_BYTES_MAX && bytes[..] == whole[..]);
        } else {
            prop_assert!(whole.len() > INLINE_BYTES_MAX && disk.contents(&finished.digest().to_hex()) == whole);
        }
    }
}
