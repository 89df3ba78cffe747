//! The writing end of the journal, owned by the committer.
//!
//! One frame is one write and one sync or, if the file system supports it, one call past its cache that does both. A new
//! segment's header block lies directly in front of its first frame, so both are in the same write and covered by the
//! same sync. After any error the writer must not be used again: the content of the disk is then unknown until a restart
//! reads it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::frame;
use super::pool::{Pool, Room};
use super::segment::{Segment, SegmentHeader, encode_header};
use crate::counters::Counters;
use crate::disk::Disk;
use crate::faults::Faults;
use crate::layout::{BLOCK_BYTES, entry_bytes};
use crate::options::Options;
use crate::types::Write;
use crate::uncached::{BlockBuffer, Uncached};

/// Why a frame is not durable.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// No segment was left, although room was checked before.
    #[error("frame {sequence} found no free segment")]
    NoSegment {
        /// The frame's sequence.
        sequence: u64,
    },
    /// The frame is larger than a segment, although limits were checked at open.
    #[error("frame {sequence} of {frame_bytes} bytes does not fit segment {segment}")]
    TooLarge {
        /// The frame's sequence.
        sequence: u64,
        /// The padded size of the frame in bytes.
        frame_bytes: u64,
        /// The segment's file.
        segment: String,
    },
    /// The write or the sync failed.
    #[error("could not {action} frame {sequence} in segment {segment} at offset {offset}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The frame's sequence.
        sequence: u64,
        /// The segment's file.
        segment: String,
        /// The offset of the frame.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}

/// Whether the commit path may create a segment if no spare is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// The commit path may create one.
    Allowed,
    /// Only the flusher creates segments.
    LeftToFlusher,
}

/// The segment being written.
#[derive(Debug)]
struct CurrentSegment {
    segment: Segment,
    /// The same file, opened for writes past the system's cache.
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
    current: Option<CurrentSegment>,
    buffer: BlockBuffer,
    /// Whether to write past the system's cache. Cleared when the file system refuses.
    uses_uncached: bool,
}

impl JournalWriter {
    /// A writer which begins with a fresh segment: frames are never appended after a tail that a crash may have torn.
    pub fn new(
        disk: Arc<dyn Disk>,
        pool: Arc<Pool>,
        counters: Arc<Counters>,
        options: &Options,
    ) -> Self {
        Self {
            disk,
            pool,
            counters,
            faults: options.faults(),
            current: None,
            buffer: BlockBuffer::default(),
            uses_uncached: options.uncached_journal(),
        }
    }

    /// Makes sure that a frame of `frame_bytes` can be written, creating a segment at once if no spare is ready and that is
    /// allowed.
    ///
    /// If there is no room, the current segment is sealed: the next frame cannot go into it anyway, and once its frames are
    /// in the index it is the segment that becomes free.
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
            writes.iter().map(|write| entry_bytes(write.key.len(), &write.slot)).sum();
        let mut current = self.take_current(sequence, frame::padded_bytes(payload_bytes))?;
        let frame_bytes = frame::padded_bytes(payload_bytes) as usize;
        let buffer = self.buffer.begin(BLOCK_BYTES + frame_bytes);
        if current.offset == 0 {
            let header = SegmentHeader { generation: current.generation, first_sequence: sequence };
            buffer.extend_from_slice(&encode_header(header));
        }
        frame::encode(buffer, self.faults.checksum_seed(current.generation), sequence, writes);
        self.write_and_sync(&mut current, sequence)?;
        let written = self.buffer.bytes().len() as u64;
        current.offset += written;
        current.last_sequence = sequence;
        self.current = Some(current);
        Counters::add(&self.counters.journal_bytes, written);
        Counters::add(&self.counters.payload_bytes, payload_bytes as u64);
        Ok(())
    }

    fn write_and_sync(
        &mut self,
        current: &mut CurrentSegment,
        sequence: u64,
    ) -> Result<(), AppendError> {
        let offset = current.offset;
        let segment = current.segment.name.clone();
        let map_error =
            |action, source| AppendError::Io { action, sequence, segment, offset, source };
        let data = self.buffer.bytes();
        let started = Instant::now();
        if let Some(file) = &current.uncached {
            match file.write_durably(offset, data) {
                Ok(true) => {
                    self.counters.add_sync(started.elapsed());
                    return Ok(());
                }
                Ok(false) => {
                    current.uncached = None;
                    self.uses_uncached = false;
                }
                Err(source) => return Err(map_error("write and sync", source)),
            }
        }
        let file = &current.segment.file;
        if let Err(source) = file.write_at(offset, data) {
            return Err(map_error("write", source));
        }
        if self.faults.skips_journal_sync() {
            return Ok(());
        }
        let started = Instant::now();
        if let Err(source) = file.sync_data() {
            return Err(map_error("sync", source));
        }
        self.counters.add_sync(started.elapsed());
        Ok(())
    }

    fn take_current(
        &mut self,
        sequence: u64,
        frame_bytes: u64,
    ) -> Result<CurrentSegment, AppendError> {
        if let Some(current) = self.current.take_if(|current| current.has_room(frame_bytes)) {
            return Ok(current);
        }
        self.seal();
        let (segment, generation) =
            self.pool.take_free_segment().ok_or(AppendError::NoSegment { sequence })?;
        Counters::add(&self.counters.rotations, 1);
        let opens_uncached = self.uses_uncached && !self.faults.skips_journal_sync();
        let uncached = opens_uncached.then(|| self.disk.open_uncached(&segment.name)).flatten();
        let current =
            CurrentSegment { segment, uncached, generation, offset: 0, last_sequence: sequence };
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

impl CurrentSegment {
    fn has_room(&self, frame_bytes: u64) -> bool {
        let header = if self.offset == 0 { BLOCK_BYTES as u64 } else { 0 };
        self.offset + header + frame_bytes <= self.segment.bytes
    }
}
