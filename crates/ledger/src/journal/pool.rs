//! The segments that exist: which are free, and which still hold frames that the index lacks.
//!
//! Shared by the committer, which takes free segments and seals full ones, and the flusher, which frees them and creates
//! new ones. A running ledger deletes no files: their number is bounded, and deleting large files stalls some disks.
//! Segments that have become too small, because the options changed, are removed at open.

use std::collections::VecDeque;
use std::io;

use parking_lot::Mutex;

use super::segment::Segment;
use crate::disk::Disk;
use crate::faults::Faults;

/// The segments of one journal.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<PoolState>,
    segment_bytes: u64,
    segments_max: usize,
    faults: Faults,
}

#[derive(Debug, Default)]
struct PoolState {
    free: VecDeque<Segment>,
    sealed: Vec<SealedSegment>,
    next_number: u32,
    total: usize,
    generations: Generations,
}

/// A segment that takes no more frames.
#[derive(Debug)]
pub struct SealedSegment {
    /// The segment.
    pub segment: Segment,
    /// The sequence of its last frame. The segment is free once the index holds that batch.
    pub last_sequence: u64,
}

/// Whether there is a free segment.
#[derive(Debug)]
pub enum Room {
    /// There is a free segment.
    Ready,
    /// The limit of segments is reached; one must be freed first.
    AtLimit,
    /// A segment could not be created.
    Failed(io::Error),
}

/// Generates generation numbers: a counter in the upper half, random bits in the lower half.
///
/// The random half keeps a generation whose header was lost in a crash from being used again, unnoticed, with its frames
/// still in the file; and it keeps a stored value from looking like a frame, because its author cannot know the
/// generation.
#[derive(Debug, Default)]
pub struct Generations {
    counter: u32,
    random: u64,
}

impl Generations {
    /// Continues after the newest generation seen.
    pub fn after(newest: u64, seed: u64) -> Self {
        Self { counter: (newest >> 32) as u32, random: seed }
    }

    fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        self.random = mix(self.random.wrapping_add(0x9E37_79B9_7F4A_7C15));
        (u64::from(self.counter) << 32) | (self.random >> 32)
    }
}

/// A 64-bit mixing function (the finaliser of splitmix64).
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Pool {
    /// A pool of the segments found at open.
    pub fn new(
        free: Vec<Segment>,
        sealed: Vec<SealedSegment>,
        next_number: u32,
        generations: Generations,
        limits: (u64, usize),
        faults: Faults,
    ) -> Self {
        let total = free.len() + sealed.len();
        let state = PoolState { free: free.into(), sealed, next_number, total, generations };
        Self { state: Mutex::new(state), segment_bytes: limits.0, segments_max: limits.1, faults }
    }

    /// Takes a free segment, and the generation for its next use.
    pub fn take_free_segment(&self) -> Option<(Segment, u64)> {
        let mut state = self.state.lock();
        let segment = state.free.pop_front()?;
        Some((segment, state.generations.next()))
    }

    /// Returns a segment that takes no more frames.
    pub fn seal(&self, segment: Segment, last_sequence: u64) {
        self.state.lock().sealed.push(SealedSegment { segment, last_sequence });
    }

    /// Frees the segments whose frames the index holds.
    pub fn recycle(&self, indexed_sequence: u64) {
        let mut state = self.state.lock();
        let (done, kept): (Vec<_>, Vec<_>) =
            state.sealed.drain(..).partition(|sealed| sealed.last_sequence <= indexed_sequence);
        state.sealed = kept;
        for sealed in done {
            if sealed.segment.bytes >= self.segment_bytes {
                state.free.push_back(sealed.segment);
            } else {
                // Too small since the options changed; the next open removes the file.
                state.total -= 1;
            }
        }
    }

    /// The number of free segments.
    pub fn free(&self) -> usize {
        self.state.lock().free.len()
    }

    /// Creates segments until `wanted` are free. The file operations happen outside the lock.
    pub fn prepare(&self, disk: &dyn Disk, wanted: usize) -> Room {
        while self.free() < wanted {
            let Some(number) = self.reserve() else { return Room::AtLimit };
            match Segment::create(disk, number, self.segment_bytes, self.faults) {
                Ok(segment) => self.state.lock().free.push_back(segment),
                Err(error) => {
                    self.state.lock().total -= 1;
                    return Room::Failed(error);
                }
            }
        }
        Room::Ready
    }

    fn reserve(&self) -> Option<u32> {
        let mut state = self.state.lock();
        if state.total >= self.segments_max {
            return None;
        }
        state.total += 1;
        state.next_number += 1;
        Some(state.next_number - 1)
    }
}
