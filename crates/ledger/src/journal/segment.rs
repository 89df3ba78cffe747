//! One segment file: how it is created, and the header that is written each time it is used.
//!
//! A segment is created under a temporary name, filled with zeros, synced, renamed, and the folder is synced, all before
//! its first use: a frame in it can then never be lost together with the file. Zeros are actually written, because the
//! first write into space that was only reserved needs the file system's own journal in the same sync.

use std::io;
use std::sync::Arc;

use super::frame::{u32_at, u64_at};
use crate::disk::{Disk, DiskFile, temporary_name};
use crate::error::ReplayError;
use crate::faults::Faults;
use crate::layout::BLOCK_BYTES;

/// The journal's format version. A segment with a higher one is refused.
pub const JOURNAL_VERSION: u32 = 1;

const SEGMENT_MAGIC: [u8; 8] = *b"CATJRNL\0";
const HEADER_BYTES: usize = 36;
const NAME_PREFIX: &str = "journal-";
const NAME_SUFFIX: &str = ".seg";

/// Zeros are written in pieces of this size.
const FILL_BYTES: usize = 1 << 20;

/// A segment file of any generation.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file's name.
    pub name: String,
    /// The file.
    pub file: Arc<dyn DiskFile>,
    /// The file's length in bytes.
    pub bytes: u64,
}

/// The header in a segment's first sector: its current generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Distinguishes this use of the segment from every other use of every segment.
    pub generation: u64,
    /// The sequence of the first frame.
    pub first_sequence: u64,
}

impl Segment {
    /// Creates an empty segment. It appears in the folder only when all of it is durable.
    pub fn create(disk: &dyn Disk, number: u32, bytes: u64, faults: Faults) -> io::Result<Self> {
        let name = segment_name(number);
        let temporary = temporary_name(&name);
        let created = fill(disk, &temporary, bytes).and_then(|file| {
            disk.rename(&temporary, &name)?;
            if !faults.skips_segment_dir_sync() {
                disk.sync_dir()?;
            }
            Ok(file)
        });
        match created {
            Ok(file) => Ok(Self { name, file, bytes }),
            Err(error) => {
                // Free the space. If this fails too, the next open removes the leftover.
                let _ = disk.remove(&temporary);
                Err(error)
            }
        }
    }

    /// Opens an existing segment.
    pub fn open(disk: &dyn Disk, name: &str) -> io::Result<Self> {
        let file = disk.open(name)?;
        let bytes = file.size()?;
        Ok(Self { name: name.to_owned(), file, bytes })
    }

    /// Reads the header; `None` if the segment was never used.
    pub fn header(&self) -> Result<Option<SegmentHeader>, ReplayError> {
        let mut sector = [0; HEADER_BYTES];
        let io_error = |source| ReplayError::Io {
            action: "read",
            segment: self.name.clone(),
            offset: 0,
            source,
        };
        self.file.read_at(0, &mut sector).map_err(io_error)?;
        if sector == [0; HEADER_BYTES] {
            return Ok(None);
        }
        self.check_version(&sector)?;
        let header = decode_header(&sector);
        header.map(Some).ok_or_else(|| ReplayError::HeaderDamaged { segment: self.name.clone() })
    }

    fn check_version(&self, sector: &[u8]) -> Result<(), ReplayError> {
        let version = u32_at(sector, 8).unwrap_or(0);
        if sector[0..8] == SEGMENT_MAGIC && version > JOURNAL_VERSION && is_header_valid(sector) {
            return Err(ReplayError::NewerVersion {
                segment: self.name.clone(),
                found: version,
                supported: JOURNAL_VERSION,
            });
        }
        Ok(())
    }
}

fn fill(disk: &dyn Disk, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(name)?;
    let zeros = vec![0; FILL_BYTES.min(bytes as usize)];
    let mut offset = 0;
    while offset < bytes {
        let piece = (bytes - offset).min(zeros.len() as u64) as usize;
        file.write_at(offset, &zeros[..piece])?;
        offset += piece as u64;
    }
    file.sync_all()?;
    Ok(file)
}

/// Encodes the header block of a new generation.
pub fn encode_header(header: SegmentHeader) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[0..8].copy_from_slice(&SEGMENT_MAGIC);
    block[8..12].copy_from_slice(&JOURNAL_VERSION.to_le_bytes());
    block[16..24].copy_from_slice(&header.generation.to_le_bytes());
    block[24..32].copy_from_slice(&header.first_sequence.to_le_bytes());
    let crc = crc32fast::hash(&block[..32]);
    block[32..36].copy_from_slice(&crc.to_le_bytes());
    block
}

fn decode_header(sector: &[u8]) -> Option<SegmentHeader> {
    if sector[0..8] != SEGMENT_MAGIC || !is_header_valid(sector) {
        return None;
    }
    Some(SegmentHeader { generation: u64_at(sector, 16)?, first_sequence: u64_at(sector, 24)? })
}

fn is_header_valid(sector: &[u8]) -> bool {
    u32_at(sector, 32) == Some(crc32fast::hash(&sector[..32]))
}

fn segment_name(number: u32) -> String {
    format!("{NAME_PREFIX}{number:06}{NAME_SUFFIX}")
}

/// The number in a segment's name; `None` if the name is not a segment's.
pub fn segment_number(name: &str) -> Option<u32> {
    name.strip_prefix(NAME_PREFIX)?.strip_suffix(NAME_SUFFIX)?.parse().ok()
}
