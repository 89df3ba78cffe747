//! Replay: what the journal holds that the index does not.
//!
//! A crash can only tear the last frame, because the next one is written after the sync of the one before. So an invalid
//! frame with nothing behind it is a tail to cut, and an invalid frame with a valid one of the same generation behind it
//! is damage to report. Frames up to the index's sequence are not looked at: their segments may be half overwritten by a
//! new life.
//!
//! After a mere process crash the last frame may live in the system's cache only, and readers are about to see it. So it
//! is synced first. A sync alone is not enough: if the process ended because a sync failed, the system may hold those
//! bytes as clean although the disk lacks them. Writing the same bytes again makes them dirty, and the sync honest.

use std::sync::Arc;

use super::frame::{self, BLOCK_BYTES, FRAME_HEADER_BYTES};
use super::pool::{Generations, Pool, Sealed};
use super::segment::{Segment, SegmentHeader, segment_number};
use crate::disk::Disk;
use crate::error::ReplayError;
use crate::options::Options;
use crate::types::Write;

/// A frame that a crash cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's file.
    pub segment: String,
    /// Where the torn frame begins.
    pub offset: u64,
}

/// What a replay found.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Frames handed on.
    pub frames: u64,
    /// Row changes in them.
    pub writes: u64,
    /// Bytes read from segments.
    pub bytes_read: u64,
    /// The last sequence that is durable, in the journal or the index.
    pub last_sequence: u64,
    /// The frame that was cut, if enough of it is there to be recognised.
    pub torn_tail: Option<TornTail>,
}

/// A segment with a header, and where the next one takes over.
struct Life {
    segment: Segment,
    header: SegmentHeader,
    next_first_sequence: Option<u64>,
}

/// Hands every frame after `indexed` to `apply`, in order, and returns what was found and the segments to go on with.
pub fn replay(
    disk: &Arc<dyn Disk>,
    names: &[String],
    options: &Options,
    indexed: u64,
    apply: &mut dyn FnMut(u64, Vec<Write>) -> Result<(), String>,
) -> Result<(Replayed, Pool), ReplayError> {
    let (mut free, lives, next_number) = open_segments(disk.as_ref(), names)?;
    let newest = lives.iter().map(|life| life.header.generation).max().unwrap_or(0);
    let mut sealed = Vec::new();
    let mut replayer = Replayer {
        options,
        indexed,
        apply,
        found: Replayed { last_sequence: indexed, ..Replayed::default() },
    };
    for life in lives {
        match replayer.replay_life(&life)? {
            Some(last_sequence) => sealed.push(Sealed { segment: life.segment, last_sequence }),
            None => free.push(life.segment),
        }
    }
    let free = remove_unfit(disk.as_ref(), free, options.segment_bytes)?;
    let generations =
        Generations::after(newest, options.generation_seed.unwrap_or_else(random_seed));
    let limits = (options.segment_bytes, options.segments_max);
    Ok((replayer.found, Pool::new(free, sealed, next_number, generations, limits, options.faults)))
}

/// Removes free segments that the largest frame might not fit, and returns the others.
fn remove_unfit(
    disk: &dyn Disk,
    free: Vec<Segment>,
    bytes_min: u64,
) -> Result<Vec<Segment>, ReplayError> {
    let (fit, unfit): (Vec<_>, Vec<_>) =
        free.into_iter().partition(|segment| segment.bytes >= bytes_min);
    for Segment { name: segment, .. } in unfit {
        let removed = disk.remove(&segment);
        removed.map_err(|source| ReplayError::Io {
            action: "remove",
            segment,
            offset: 0,
            source,
        })?;
    }
    Ok(fit)
}

/// A number nobody can guess, from the only source of randomness in the standard library.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Opens every segment: those never used, those with a header in the order of their lives, and the next free number.
fn open_segments(
    disk: &dyn Disk,
    names: &[String],
) -> Result<(Vec<Segment>, Vec<Life>, u32), ReplayError> {
    let (mut unused, mut used, mut next_number) = (Vec::new(), Vec::new(), 0);
    for name in names {
        let Some(number) = segment_number(name) else { continue };
        next_number = next_number.max(number + 1);
        let fail =
            |source| ReplayError::Io { action: "open", segment: name.clone(), offset: 0, source };
        let segment = Segment::open(disk, name).map_err(fail)?;
        match segment.header()? {
            None => unused.push(segment),
            Some(header) => used.push(Life { segment, header, next_first_sequence: None }),
        }
    }
    used.sort_by_key(|life| life.header.generation);
    for position in 1..used.len() {
        used[position - 1].next_first_sequence = Some(used[position].header.first_sequence);
    }
    Ok((unused, used, next_number))
}

struct Replayer<'a> {
    options: &'a Options,
    indexed: u64,
    apply: &'a mut dyn FnMut(u64, Vec<Write>) -> Result<(), String>,
    found: Replayed,
}

impl Replayer<'_> {
    /// Replays one segment. Returns its last sequence if it holds frames the index lacks.
    fn replay_life(&mut self, life: &Life) -> Result<Option<u64>, ReplayError> {
        if life.next_first_sequence.is_some_and(|next| next <= self.indexed + 1) {
            return Ok(None);
        }
        let bytes = self.read(&life.segment)?;
        let before = self.found.last_sequence;
        let (last_frame, end) = self.replay_frames(life, &bytes)?;
        self.check_behind(life, &bytes, end)?;
        if self.found.last_sequence == before {
            return Ok(None);
        }
        // A first frame was written together with the header in front of it.
        let start = if last_frame == BLOCK_BYTES as u64 { 0 } else { last_frame };
        self.make_durable(&life.segment, start, &bytes[start as usize..end as usize])?;
        Ok(Some(self.found.last_sequence))
    }

    fn read(&mut self, segment: &Segment) -> Result<Vec<u8>, ReplayError> {
        let mut bytes = vec![0; segment.bytes as usize];
        let fail = |source| ReplayError::Io {
            action: "read",
            segment: segment.name.clone(),
            offset: 0,
            source,
        };
        segment.file.read_at(0, &mut bytes).map_err(fail)?;
        self.found.bytes_read += segment.bytes;
        Ok(bytes)
    }

    fn make_durable(
        &self,
        segment: &Segment,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        if self.options.faults.replay_sync_skipped() {
            return Ok(());
        }
        let fail = |action| {
            let segment = segment.name.clone();
            move |source| ReplayError::Io { action, segment, offset, source }
        };
        segment.file.write_at(offset, bytes).map_err(fail("rewrite"))?;
        segment.file.sync_data().map_err(fail("sync"))
    }

    /// Replays frames from the front while they are valid. Returns where the last one begins, and where that ended.
    fn replay_frames(&mut self, life: &Life, bytes: &[u8]) -> Result<(u64, u64), ReplayError> {
        let seed = self.options.faults.seed(life.header.generation);
        let mut offset = BLOCK_BYTES as u64;
        let mut last_frame = offset;
        let mut expected = life.header.first_sequence;
        while let Some(found) = frame_at(bytes, offset, seed) {
            if found.sequence != expected {
                return Err(hole(life, offset, expected, found.sequence));
            }
            if found.sequence > self.indexed {
                self.replay_frame(life, offset, &found)?;
            }
            last_frame = offset;
            offset += found.padded_bytes;
            expected += 1;
        }
        Ok((last_frame, offset))
    }

    fn replay_frame(
        &mut self,
        life: &Life,
        offset: u64,
        found: &Found<'_>,
    ) -> Result<(), ReplayError> {
        let sequence = found.sequence;
        if sequence != self.found.last_sequence + 1 {
            return Err(hole(life, offset, self.found.last_sequence + 1, sequence));
        }
        let segment = || life.segment.name.clone();
        let fail = |reason| ReplayError::Payload { segment: segment(), offset, sequence, reason };
        let writes = frame::decode_payload(found.payload).map_err(fail)?;
        self.found.frames += 1;
        self.found.writes += writes.len() as u64;
        (self.apply)(sequence, writes).map_err(fail)?;
        self.found.last_sequence = sequence;
        Ok(())
    }

    /// Looks behind the last valid frame: a valid one there, which the index lacks, means that this is no tail.
    fn check_behind(&mut self, life: &Life, bytes: &[u8], end: u64) -> Result<(), ReplayError> {
        let seed = self.options.faults.seed(life.header.generation);
        for offset in (end..life.segment.bytes).step_by(BLOCK_BYTES).skip(1) {
            let Some(found) = frame_at(bytes, offset, seed) else { continue };
            if found.sequence > self.indexed {
                let (segment, sequence) = (life.segment.name.clone(), found.sequence);
                return Err(ReplayError::Damaged {
                    segment,
                    offset: end,
                    sequence,
                    valid_offset: offset,
                });
            }
        }
        self.note_torn_tail(life, bytes, end);
        Ok(())
    }

    /// Stale bytes of an earlier life are normal behind the tail; a header of this life without its payload is a tear.
    fn note_torn_tail(&mut self, life: &Life, bytes: &[u8], end: u64) {
        let seed = self.options.faults.seed(life.header.generation);
        let torn = bytes
            .get(end as usize..)
            .is_some_and(|rest| frame::decode_header(rest, seed).is_some());
        if torn {
            self.found.torn_tail =
                Some(TornTail { segment: life.segment.name.clone(), offset: end });
        }
    }
}

fn hole(life: &Life, offset: u64, expected: u64, found: u64) -> ReplayError {
    ReplayError::Hole { segment: life.segment.name.clone(), offset, expected, found }
}

/// A frame whose checksums are right.
struct Found<'a> {
    sequence: u64,
    padded_bytes: u64,
    payload: &'a [u8],
}

fn frame_at(bytes: &[u8], offset: u64, generation_seed: u64) -> Option<Found<'_>> {
    let bytes = bytes.get(offset as usize..)?;
    let header = frame::decode_header(bytes, generation_seed)?;
    let payload =
        bytes.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES.checked_add(header.payload_bytes)?)?;
    let valid = header.matches(generation_seed, payload);
    valid.then(|| Found { sequence: header.sequence, padded_bytes: header.padded_bytes(), payload })
}
