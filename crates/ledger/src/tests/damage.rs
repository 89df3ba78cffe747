//! Torn tails are ignored; damage is reported; frames of an earlier generation of a segment are never mistaken for current
//! ones.

use super::support::{JOBS, commit, get, open, open_with, options, put};
use crate::disk::Disk;
use crate::layout::BLOCK_BYTES;
use crate::testing::sim_disk::{Crash, SECTOR_BYTES, SimDisk};
use crate::{ManualLedger, OpenError, ReplayError};

/// Three batches in one segment; the third frame is three blocks long. Frames begin at blocks 1, 2 and 3.
fn three_frames() -> (SimDisk, String) {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    put(&mut ledger, "b", "2").unwrap();
    commit(&mut ledger, |tx| tx.put(JOBS, *b"c", vec![3; 8000])).unwrap();
    let disk = disk.crash(Crash::PowerLoss, 1);
    let segment = used_segments(&disk).remove(0);
    (disk, segment)
}

fn used_segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.list().unwrap();
    let used = |name: &String| name.starts_with("journal-") && disk.contents(name)[0] != 0;
    names.into_iter().filter(used).collect()
}

fn refusal(disk: &SimDisk) -> ReplayError {
    match open_with(disk, options()) {
        Err(OpenError::Replay { source, .. }) => source,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn a_frame_torn_at_any_sector_is_cut_and_its_neighbours_are_kept() {
    let frame = 3 * BLOCK_BYTES;
    for torn in 0..3 * BLOCK_BYTES / SECTOR_BYTES {
        let (disk, segment) = three_frames();
        disk.overwrite(&segment, frame + torn * SECTOR_BYTES, &[0; SECTOR_BYTES]);
        let ledger = open(&disk);
        let found =
            (get(&ledger, "a"), get(&ledger, "b"), ledger.get(JOBS, b"c").unwrap().is_some());
        // The last sectors are padding, which is never read.
        let padding = torn * SECTOR_BYTES > 24 + 8 + 1 + 8000;
        assert_eq!(found, (Some("1".into()), Some("2".into()), padding), "sector {torn}");
    }
}

#[test]
fn a_torn_tail_is_reported_with_segment_and_offset() {
    let (disk, segment) = three_frames();
    disk.damage(&segment, 4 * BLOCK_BYTES, 1);
    let ledger = open(&disk);
    let torn = ledger.report().torn_tail.clone().unwrap();
    assert_eq!((torn.segment, torn.offset), (segment, 3 * BLOCK_BYTES as u64));
}

#[test]
fn work_goes_on_behind_a_torn_tail_and_survives_the_next_crash() {
    let (disk, segment) = three_frames();
    disk.damage(&segment, 4 * BLOCK_BYTES, 1);
    let mut ledger = open(&disk);
    put(&mut ledger, "d", "4").unwrap();
    let ledger = open(&disk.crash(Crash::PowerLoss, 2));
    assert_eq!(
        (get(&ledger, "b").as_deref(), get(&ledger, "d").as_deref()),
        (Some("2"), Some("4"))
    );
    assert_eq!(ledger.get(JOBS, b"c").unwrap(), None);
}

#[test]
fn an_invalid_frame_with_a_valid_one_behind_it_refuses_to_open() {
    let (disk, name) = three_frames();
    disk.damage(&name, 2 * BLOCK_BYTES + 30, 1);
    let (bad, good) = (2 * BLOCK_BYTES as u64, 3 * BLOCK_BYTES as u64);
    match refusal(&disk) {
        ReplayError::Damaged { segment, offset, sequence, valid_offset } => {
            assert_eq!((segment, offset, sequence, valid_offset), (name, bad, 3, good));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_in_frames_the_index_already_holds_is_no_concern() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    put(&mut ledger, "b", "2").unwrap();
    ledger.step_flush().unwrap();
    let disk = disk.crash(Crash::PowerLoss, 1);
    disk.damage(&used_segments(&disk)[0], BLOCK_BYTES + 30, 1);
    assert_eq!(get(&open(&disk), "b").as_deref(), Some("2"));
}

/// Enough batches for several segments, none of them flushed.
fn many_segments() -> SimDisk {
    let disk = SimDisk::new(1);
    let options = crate::Options { overlay_bytes_max: 1 << 20, ..options() };
    let mut ledger = open_with(&disk, options).unwrap();
    for key in ["a", "b", "c", "d", "e", "f", "g"] {
        commit(&mut ledger, move |tx| tx.put(JOBS, key.as_bytes(), vec![1; 7000])).unwrap();
    }
    disk.crash(Crash::PowerLoss, 1)
}

#[test]
fn a_missing_segment_is_a_hole_and_refuses_to_open() {
    let disk = many_segments();
    let segments = used_segments(&disk);
    assert!(segments.len() >= 3, "{segments:?}");
    disk.remove(&segments[1]).unwrap();
    match refusal(&disk) {
        ReplayError::Hole { segment, offset, expected, found } => {
            assert_eq!((segment, offset), (segments[2].clone(), BLOCK_BYTES as u64));
            assert!(expected < found);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hole_directly_after_the_index_refuses_to_open() {
    let disk = many_segments();
    disk.remove(&used_segments(&disk)[0]).unwrap();
    assert!(matches!(refusal(&disk), ReplayError::Hole { expected: 1, .. }));
}

#[test]
fn a_damaged_segment_header_refuses_to_open() {
    let (disk, name) = three_frames();
    disk.damage(&name, 20, 1);
    assert!(matches!(refusal(&disk), ReplayError::HeaderDamaged { segment } if segment == name));
}

/// A segment before and after the first write with its second generation, and the disk after that write.
struct RecycledSegment {
    disk: SimDisk,
    segment: String,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn rotate_into_a_recycled_segment() -> RecycledSegment {
    let disk = SimDisk::new(1);
    let options = crate::Options { spare_segments: 1, segments_max: 2, ..options() };
    let mut ledger = open_with(&disk, options).unwrap();
    for round in 0u8.. {
        let before: Vec<_> = used_segments(&disk)
            .into_iter()
            .map(|name| (name.clone(), disk.contents(&name)))
            .collect();
        put_until_answered(&mut ledger, round);
        for (segment, before) in before {
            let after = disk.contents(&segment);
            // Changed in its first sector: a new generation has begun.
            if after[..SECTOR_BYTES] != before[..SECTOR_BYTES] {
                return RecycledSegment {
                    disk: disk.crash(Crash::PowerLoss, 1),
                    segment,
                    before,
                    after,
                };
            }
        }
        ledger.step_flush().unwrap();
    }
    unreachable!("segments are recycled")
}

fn put_until_answered(ledger: &mut ManualLedger, round: u8) {
    commit(ledger, move |tx| tx.put(JOBS, *b"round", vec![round; 3000])).unwrap();
}

fn round(ledger: &ManualLedger) -> u8 {
    ledger.get(JOBS, b"round").unwrap().unwrap()[0]
}

#[test]
fn a_recycled_segment_with_its_new_header_and_no_frame_is_empty() {
    let recycled = rotate_into_a_recycled_segment();
    let last = recycled.after[BLOCK_BYTES + 24 + 8 + 5];
    recycled.disk.overwrite(
        &recycled.segment,
        BLOCK_BYTES,
        &recycled.before[BLOCK_BYTES..2 * BLOCK_BYTES],
    );
    assert_eq!(round(&open(&recycled.disk)), last - 1);
}

#[test]
fn a_recycled_segment_with_its_new_frame_and_the_old_header_is_of_its_old_generation() {
    let recycled = rotate_into_a_recycled_segment();
    let last = recycled.after[BLOCK_BYTES + 24 + 8 + 5];
    recycled.disk.overwrite(&recycled.segment, 0, &recycled.before[..BLOCK_BYTES]);
    assert_eq!(round(&open(&recycled.disk)), last - 1);
}

#[test]
fn stale_frames_behind_the_tail_of_a_recycled_segment_are_rejected() {
    let recycled = rotate_into_a_recycled_segment();
    let last = recycled.after[BLOCK_BYTES + 24 + 8 + 5];
    assert_eq!(
        &recycled.after[2 * BLOCK_BYTES..2 * BLOCK_BYTES + 4],
        b"CFRM",
        "a stale frame lies there"
    );
    let ledger = open(&recycled.disk);
    assert_eq!((round(&ledger), ledger.report().frames_replayed), (last, 1));
}
