//! Replay: the frames of the journal that the index lacks.
//!
//! A crash can only tear the last frame, because the next one is written after the sync of the one before. So an invalid
//! frame with nothing after it is a torn tail to ignore, and an invalid frame with a valid one of the same generation
//! after it is damage to report. Frames up to the index's sequence are not read: their segments may be partly overwritten
//! by a new generation.
//!
//! After a process crash the last frame may be in the system's cache only, and readers are about to see it. So it is
//! synced first. A sync alone is not enough: if the process ended because a sync failed, the system may hold those bytes
//! as clean although the disk lacks them. Writing the same bytes again makes them dirty, and the sync meaningful.

use std::sync::Arc;

use super::frame;
use super::pool::{Generations, Pool, SealedSegment};
use super::segment::{Segment, SegmentHeader, segment_number};
use crate::disk::Disk;
use crate::error::ReplayError;
use crate::layout::{BLOCK_BYTES, FRAME_HEADER_BYTES};
use crate::options::Options;
use crate::types::Write;

/// A frame that a crash cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's file.
    pub segment: String,
    /// The offset of the torn frame.
    pub offset: u64,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// Number of frames replayed.
    pub frames: u64,
    /// Number of row changes in those frames.
    pub writes: u64,
    /// Bytes read from segments.
    pub bytes_read: u64,
    /// The last sequence that is durable, in the journal or the index.
    pub last_sequence: u64,
    /// The torn frame, if enough of it is left to be recognised.
    pub torn_tail: Option<TornTail>,
}

/// A segment that has a header.
struct UsedSegment {
    segment: Segment,
    header: SegmentHeader,
    /// The first sequence of the segment with the next generation.
    next_first_sequence: Option<u64>,
}

/// Passes every frame after the sequence `indexed` to `apply`, in order. Returns the report and the pool of segments.
pub fn replay(
    disk: &Arc<dyn Disk>,
    names: &[String],
    options: &Options,
    indexed: u64,
    apply: &mut dyn FnMut(u64, Vec<Write>) -> Result<(), String>,
) -> Result<(ReplayReport, Pool), ReplayError> {
    let (mut free, used_segments, next_number) = open_segments(disk.as_ref(), names)?;
    let newest = used_segments.iter().map(|used| used.header.generation).max().unwrap_or(0);
    let mut sealed = Vec::new();
    let mut replayer = Replayer {
        options,
        indexed,
        apply,
        report: ReplayReport { last_sequence: indexed, ..ReplayReport::default() },
    };
    for used in used_segments {
        match replayer.replay_segment(&used)? {
            Some(last_sequence) => {
                sealed.push(SealedSegment { segment: used.segment, last_sequence });
            }
            None => free.push(used.segment),
        }
    }
    let free = remove_too_small(disk.as_ref(), free, options.segment_bytes)?;
    let generations =
        Generations::after(newest, options.generation_seed().unwrap_or_else(random_seed));
    let limits = (options.segment_bytes, options.segments_max);
    Ok((
        replayer.report,
        Pool::new(free, sealed, next_number, generations, limits, options.faults()),
    ))
}

/// Removes free segments that are smaller than the configured size, and returns the others.
fn remove_too_small(
    disk: &dyn Disk,
    free: Vec<Segment>,
    bytes_min: u64,
) -> Result<Vec<Segment>, ReplayError> {
    let (large_enough, too_small): (Vec<_>, Vec<_>) =
        free.into_iter().partition(|segment| segment.bytes >= bytes_min);
    for Segment { name: segment, .. } in too_small {
        let removed = disk.remove(&segment);
        removed.map_err(|source| ReplayError::Io {
            action: "remove",
            segment,
            offset: 0,
            source,
        })?;
    }
    Ok(large_enough)
}

/// An unpredictable number, from the only source of randomness in the standard library.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Opens every segment. Returns those never used, those with a header in the order of their generations, and the next
/// free segment number.
fn open_segments(
    disk: &dyn Disk,
    names: &[String],
) -> Result<(Vec<Segment>, Vec<UsedSegment>, u32), ReplayError> {
    let mut unused = Vec::new();
    let mut used = Vec::new();
    let mut next_number = 0;
    for name in names {
        let Some(number) = segment_number(name) else { continue };
        next_number = next_number.max(number + 1);
        let map_error =
            |source| ReplayError::Io { action: "open", segment: name.clone(), offset: 0, source };
        let segment = Segment::open(disk, name).map_err(map_error)?;
        match segment.header()? {
            None => unused.push(segment),
            Some(header) => used.push(UsedSegment { segment, header, next_first_sequence: None }),
        }
    }
    used.sort_by_key(|used| used.header.generation);
    for position in 1..used.len() {
        used[position - 1].next_first_sequence = Some(used[position].header.first_sequence);
    }
    Ok((unused, used, next_number))
}

struct Replayer<'a> {
    options: &'a Options,
    indexed: u64,
    apply: &'a mut dyn FnMut(u64, Vec<Write>) -> Result<(), String>,
    report: ReplayReport,
}

impl Replayer<'_> {
    /// Replays one segment. Returns its last sequence if it holds frames that the index lacks.
    fn replay_segment(&mut self, used: &UsedSegment) -> Result<Option<u64>, ReplayError> {
        if used.next_first_sequence.is_some_and(|next| next <= self.indexed + 1) {
            return Ok(None);
        }
        let bytes = self.read(&used.segment)?;
        let before = self.report.last_sequence;
        let (last_frame, end) = self.replay_frames(used, &bytes)?;
        self.check_nothing_follows(used, &bytes, end)?;
        if self.report.last_sequence == before {
            return Ok(None);
        }
        // A first frame was written together with the header in front of it.
        let start = if last_frame == BLOCK_BYTES as u64 { 0 } else { last_frame };
        self.make_durable(&used.segment, start, &bytes[start as usize..end as usize])?;
        Ok(Some(self.report.last_sequence))
    }

    fn read(&mut self, segment: &Segment) -> Result<Vec<u8>, ReplayError> {
        let mut bytes = vec![0; segment.bytes as usize];
        let map_error = |source| ReplayError::Io {
            action: "read",
            segment: segment.name.clone(),
            offset: 0,
            source,
        };
        segment.file.read_at(0, &mut bytes).map_err(map_error)?;
        self.report.bytes_read += segment.bytes;
        Ok(bytes)
    }

    fn make_durable(
        &self,
        segment: &Segment,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        if self.options.faults().skips_replay_sync() {
            return Ok(());
        }
        let map_error = |action| {
            let segment = segment.name.clone();
            move |source| ReplayError::Io { action, segment, offset, source }
        };
        segment.file.write_at(offset, bytes).map_err(map_error("rewrite"))?;
        segment.file.sync_data().map_err(map_error("sync"))
    }

    /// Replays frames from the front while they are valid. Returns the offset of the last one, and the offset after it.
    fn replay_frames(
        &mut self,
        used: &UsedSegment,
        bytes: &[u8],
    ) -> Result<(u64, u64), ReplayError> {
        let seed = self.options.faults().checksum_seed(used.header.generation);
        let mut offset = BLOCK_BYTES as u64;
        let mut last_frame = offset;
        let mut expected = used.header.first_sequence;
        while let Some(found) = frame_at(bytes, offset, seed) {
            if found.sequence != expected {
                return Err(hole_error(used, offset, expected, found.sequence));
            }
            if found.sequence > self.indexed {
                self.replay_frame(used, offset, &found)?;
            }
            last_frame = offset;
            offset += found.padded_bytes;
            expected += 1;
        }
        Ok((last_frame, offset))
    }

    fn replay_frame(
        &mut self,
        used: &UsedSegment,
        offset: u64,
        found: &ValidFrame<'_>,
    ) -> Result<(), ReplayError> {
        let sequence = found.sequence;
        if sequence != self.report.last_sequence + 1 {
            return Err(hole_error(used, offset, self.report.last_sequence + 1, sequence));
        }
        let segment = || used.segment.name.clone();
        let map_error =
            |reason| ReplayError::Payload { segment: segment(), offset, sequence, reason };
        let writes = frame::decode_payload(found.payload).map_err(map_error)?;
        self.report.frames += 1;
        self.report.writes += writes.len() as u64;
        (self.apply)(sequence, writes).map_err(map_error)?;
        self.report.last_sequence = sequence;
        Ok(())
    }

    /// Checks that no valid frame which the index lacks follows the last valid one. One there means damage, not a torn
    /// tail.
    fn check_nothing_follows(
        &mut self,
        used: &UsedSegment,
        bytes: &[u8],
        end: u64,
    ) -> Result<(), ReplayError> {
        let seed = self.options.faults().checksum_seed(used.header.generation);
        for offset in (end..used.segment.bytes).step_by(BLOCK_BYTES).skip(1) {
            let Some(found) = frame_at(bytes, offset, seed) else { continue };
            if found.sequence > self.indexed {
                return Err(ReplayError::Damaged {
                    segment: used.segment.name.clone(),
                    offset: end,
                    sequence: found.sequence,
                    valid_offset: offset,
                });
            }
        }
        self.note_torn_tail(used, bytes, end);
        Ok(())
    }

    /// Records a torn tail. Stale bytes of an earlier generation are normal after the tail; a header of this generation
    /// without its payload is a torn frame.
    fn note_torn_tail(&mut self, used: &UsedSegment, bytes: &[u8], end: u64) {
        let seed = self.options.faults().checksum_seed(used.header.generation);
        let torn = bytes
            .get(end as usize..)
            .is_some_and(|rest| frame::decode_header(rest, seed).is_some());
        if torn {
            self.report.torn_tail =
                Some(TornTail { segment: used.segment.name.clone(), offset: end });
        }
    }
}

fn hole_error(used: &UsedSegment, offset: u64, expected: u64, found: u64) -> ReplayError {
    ReplayError::Hole { segment: used.segment.name.clone(), offset, expected, found }
}

/// A frame whose checksums are valid.
struct ValidFrame<'a> {
    sequence: u64,
    padded_bytes: u64,
    payload: &'a [u8],
}

fn frame_at(bytes: &[u8], offset: u64, generation_seed: u64) -> Option<ValidFrame<'_>> {
    let bytes = bytes.get(offset as usize..)?;
    let header = frame::decode_header(bytes, generation_seed)?;
    let payload =
        bytes.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES.checked_add(header.payload_bytes)?)?;
    let valid = header.matches(generation_seed, payload);
    valid.then(|| ValidFrame {
        sequence: header.sequence,
        padded_bytes: header.padded_bytes(),
        payload,
    })
}
