//! The writing end of the journal, owned by the committer.
//!
//! One frame, one write, one sync, and where the file system can do it both in one call past its cache. A new segment's header block lies directly in front of its first frame, so both go out
//! in the same write and are covered by the same sync. After any error the writer must not be used again: what the disk
//! holds is then unknown until a restart reads it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::frame::{self, BLOCK_BYTES};
use super::pool::{Pool, Room};
use super::segment::{Segment, SegmentHeader, encode_header};
use crate::counters::Counters;
use crate::disk::Disk;
use crate::faults::Faults;
use crate::options::Options;
use crate::types::Write;
use crate::uncached::{BlockBuffer, Uncached};

/// Why a frame is not durable.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// No segment was left, although room was checked before.
    #[error("frame {sequence} found no free segment")]
    NoSegment {
        /// The frame.
        sequence: u64,
    },
    /// The frame is larger than a segment, although limits were checked at open.
    #[error("frame {sequence} of {frame_bytes} bytes does not fit segment {segment}")]
    TooLarge {
        /// The frame.
        sequence: u64,
        /// Its size, padded.
        frame_bytes: u64,
        /// The segment's file.
        segment: String,
    },
    /// The write or the sync failed.
    #[error("could not {action} frame {sequence} in segment {segment} at offset {offset}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The frame.
        sequence: u64,
        /// The segment's file.
        segment: String,
        /// Where the frame begins.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}

/// Whether the commit path may make a segment when no spare is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It may.
    Allowed,
    /// It may not: the flusher will, when it can.
    LeftToFlusher,
}

/// The segment being written.
#[derive(Debug)]
struct Current {
    segment: Segment,
    /// The same file, past the system's cache.
    uncached: Option<Box<dyn Uncached>>,
    generation: u64,
    offset: u64,
    last_sequence: u64,
}

/// Appends frames.
#[derive(Debug)]
pub struct JournalWriter {
    disk: Arc<dyn Disk>,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    faults: Faults,
    current: Option<Current>,
    buffer: BlockBuffer,
    /// Whether to write past the system's cache: until the file system refuses.
    goes_uncached: bool,
}

impl JournalWriter {
    /// A writer which begins with a fresh segment: a segment that a crash may have torn is never written behind.
    pub fn new(
        disk: Arc<dyn Disk>,
        pool: Arc<Pool>,
        counters: Arc<Counters>,
        options: &Options,
    ) -> Self {
        let (faults, goes_uncached) = (options.faults, options.uncached_journal);
        let buffer = BlockBuffer::default();
        Self { disk, pool, counters, faults, current: None, buffer, goes_uncached }
    }

    /// Makes sure that a frame of `frame_bytes` can be written, making a segment here and now if no spare is ready and
    /// that is allowed.
    ///
    /// If there is no room, the current segment is sealed: the next frame cannot go into it anyway, and once its frames are in
    /// the index it becomes the segment that is missing.
    pub fn ensure_room(&mut self, frame_bytes: u64, creation: Creation) -> Room {
        if self.current.as_ref().is_some_and(|current| current.has_room(frame_bytes))
            || self.pool.free() > 0
        {
            return Room::Ready;
        }
        let room = match creation {
            Creation::Allowed => self.pool.prepare(self.disk.as_ref(), 1),
            Creation::LeftToFlusher => Room::AtLimit,
        };
        match &room {
            Room::Ready => Counters::add(&self.counters.inline_rotations, 1),
            Room::AtLimit | Room::Failed(_) => self.seal(),
        }
        room
    }

    /// Writes and syncs one frame. Returns when it is durable.
    pub fn append(&mut self, sequence: u64, writes: &[Write]) -> Result<(), AppendError> {
        let payload_bytes =
            writes.iter().map(|write| frame::entry_bytes(write.key.len(), &write.slot)).sum();
        let mut current = self.take_current(sequence, frame::padded_bytes(payload_bytes))?;
        let frame_bytes = frame::padded_bytes(payload_bytes) as usize;
        let buffer = self.buffer.begin(BLOCK_BYTES + frame_bytes);
        if current.offset == 0 {
            let header = SegmentHeader { generation: current.generation, first_sequence: sequence };
            buffer.extend_from_slice(&encode_header(header));
        }
        frame::encode(buffer, self.faults.seed(current.generation), sequence, writes);
        self.write_and_sync(&mut current, sequence)?;
        let written = self.buffer.bytes().len() as u64;
        current.offset += written;
        current.last_sequence = sequence;
        self.current = Some(current);
        Counters::add(&self.counters.journal_bytes, written);
        Counters::add(&self.counters.payload_bytes, payload_bytes as u64);
        Ok(())
    }

    fn write_and_sync(&mut self, current: &mut Current, sequence: u64) -> Result<(), AppendError> {
        let offset = current.offset;
        let segment = current.segment.name.clone();
        let fail = |action, source| AppendError::Io { action, sequence, segment, offset, source };
        let data = self.buffer.bytes();
        let started = Instant::now();
        if let Some(file) = &current.uncached {
            match file.write_durably(offset, data) {
                Ok(true) => {
                    self.counters.add_sync(started.elapsed());
                    return Ok(());
                }
                Ok(false) => (current.uncached, self.goes_uncached) = (None, false),
                Err(source) => return Err(fail("write and sync", source)),
            }
        }
        let file = &current.segment.file;
        if let Err(source) = file.write_at(offset, data) {
            return Err(fail("write", source));
        }
        if self.faults.journal_sync_skipped() {
            return Ok(());
        }
        let started = Instant::now();
        if let Err(source) = file.sync_data() {
            return Err(fail("sync", source));
        }
        self.counters.add_sync(started.elapsed());
        Ok(())
    }

    fn take_current(&mut self, sequence: u64, frame_bytes: u64) -> Result<Current, AppendError> {
        if let Some(current) = self.current.take_if(|current| current.has_room(frame_bytes)) {
            return Ok(current);
        }
        self.seal();
        let (segment, generation) = self.pool.take().ok_or(AppendError::NoSegment { sequence })?;
        Counters::add(&self.counters.rotations, 1);
        let may = self.goes_uncached && !self.faults.journal_sync_skipped();
        let uncached = may.then(|| self.disk.open_uncached(&segment.name)).flatten();
        let current = Current { segment, uncached, generation, offset: 0, last_sequence: sequence };
        if !current.has_room(frame_bytes) {
            return Err(AppendError::TooLarge {
                sequence,
                frame_bytes,
                segment: current.segment.name,
            });
        }
        Ok(current)
    }

    fn seal(&mut self) {
        if let Some(current) = self.current.take() {
            self.pool.seal(current.segment, current.last_sequence);
        }
    }
}

impl Current {
    fn has_room(&self, frame_bytes: u64) -> bool {
        let header = if self.offset == 0 { BLOCK_BYTES as u64 } else { 0 };
        self.offset + header + frame_bytes <= self.segment.bytes
    }
}
