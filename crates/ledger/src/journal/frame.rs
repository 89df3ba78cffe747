//! One frame: the bytes of one batch.
//!
//! The header has its own checksum, so that a scan for frames after a damaged one rejects arbitrary bytes by reading 24 of
//! them; the payload has another. Both are seeded with the segment's generation.

use crate::layout::{BLOCK_BYTES, ENTRY_HEADER_BYTES, FRAME_HEADER_BYTES};
use crate::types::{Key, RowBytes, Slot, TableId, Write};

const FRAME_MAGIC: [u8; 4] = *b"CFRM";

const ENTRY_DELETE: u8 = 0;
const ENTRY_PUT: u8 = 1;

/// The header of a frame that passed its own checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The batch's sequence.
    pub sequence: u64,
    /// The payload's length.
    pub payload_bytes: usize,
    payload_crc: u32,
}

impl FrameHeader {
    /// The blocks the frame covers, in bytes.
    pub fn padded_bytes(&self) -> u64 {
        padded_bytes(self.payload_bytes)
    }

    /// Whether `payload` has the length and checksum of the header.
    pub fn matches(&self, generation_seed: u64, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes
            && payload_crc(generation_seed, self.sequence, payload) == self.payload_crc
    }
}

/// The blocks a payload covers as a frame, in bytes.
pub fn padded_bytes(payload_bytes: usize) -> u64 {
    ((FRAME_HEADER_BYTES + payload_bytes) as u64).next_multiple_of(BLOCK_BYTES as u64)
}

/// Appends a whole frame, padded with zeros, to `out`. Returns the payload's length.
pub fn encode(out: &mut Vec<u8>, generation_seed: u64, sequence: u64, writes: &[Write]) -> usize {
    let start = out.len();
    out.resize(start + FRAME_HEADER_BYTES, 0);
    for write in writes {
        encode_entry(out, write);
    }
    let payload_bytes = out.len() - start - FRAME_HEADER_BYTES;
    let crc = payload_crc(generation_seed, sequence, &out[start + FRAME_HEADER_BYTES..]);
    let header = encode_header(generation_seed, sequence, payload_bytes, crc);
    out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header);
    out.resize(start + padded_bytes(payload_bytes) as usize, 0);
    payload_bytes
}

fn encode_entry(out: &mut Vec<u8>, write: &Write) {
    let (kind, value): (u8, &[u8]) = match &write.slot {
        Slot::Put(value) | Slot::New(value) => (ENTRY_PUT, value),
        Slot::Deleted => (ENTRY_DELETE, &[]),
    };
    out.extend_from_slice(&[write.table.0, kind]);
    out.extend_from_slice(&(write.key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(&write.key);
    out.extend_from_slice(value);
}

fn encode_header(
    generation_seed: u64,
    sequence: u64,
    payload_bytes: usize,
    crc: u32,
) -> [u8; FRAME_HEADER_BYTES] {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[0..4].copy_from_slice(&FRAME_MAGIC);
    header[4..8].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    let check = header_crc(generation_seed, &header[..20]);
    header[20..24].copy_from_slice(&check.to_le_bytes());
    header
}

/// Decodes a header. `None` unless its checksum is valid for this generation.
pub fn decode_header(bytes: &[u8], generation_seed: u64) -> Option<FrameHeader> {
    let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
    if bytes[0..4] != FRAME_MAGIC || header_crc(generation_seed, &bytes[..20]) != u32_at(bytes, 20)?
    {
        return None;
    }
    Some(FrameHeader {
        sequence: u64_at(bytes, 8)?,
        payload_bytes: u32_at(bytes, 4)? as usize,
        payload_crc: u32_at(bytes, 16)?,
    })
}

/// Decodes the writes of a payload. The error names what cannot be decoded; since the checksum was valid, it is a format
/// problem.
pub fn decode_payload(mut payload: &[u8]) -> Result<Vec<Write>, String> {
    let mut writes = Vec::new();
    while !payload.is_empty() {
        let (write, rest) =
            decode_entry(payload).ok_or_else(|| format!("entry {} is cut short", writes.len()))?;
        writes.push(write?);
        payload = rest;
    }
    Ok(writes)
}

fn decode_entry(bytes: &[u8]) -> Option<(Result<Write, String>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(ENTRY_HEADER_BYTES)?;
    let key_bytes = usize::from(u16::from_le_bytes(header[2..4].try_into().ok()?));
    let (key, rest) = rest.split_at_checked(key_bytes)?;
    let (value, rest) = rest.split_at_checked(u32_at(header, 4)? as usize)?;
    let slot = match header[1] {
        ENTRY_PUT => Slot::Put(RowBytes::from(value)),
        ENTRY_DELETE => Slot::Deleted,
        kind => return Some((Err(format!("entry kind {kind} is unknown")), rest)),
    };
    Some((Ok(Write { table: TableId(header[0]), key: Key::from(key), slot }), rest))
}

fn payload_crc(generation_seed: u64, sequence: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&generation_seed.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn header_crc(generation_seed: u64, header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&generation_seed.to_le_bytes());
    hasher.update(header);
    hasher.finalize()
}

/// The little-endian number at `offset`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// The little-endian number at `offset`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes() -> Vec<Write> {
        vec![
            Write {
                table: TableId(1),
                key: Key::from(*b"a"),
                slot: Slot::Put(RowBytes::from(vec![7; 5000])),
            },
            Write {
                table: TableId(2),
                key: Key::from(*b""),
                slot: Slot::Put(RowBytes::from(*b"")),
            },
            Write { table: TableId(1), key: Key::from(*b"gone"), slot: Slot::Deleted },
        ]
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let mut bytes = Vec::new();
        let payload_bytes = encode(&mut bytes, 9, 41, &writes());
        let header = decode_header(&bytes, 9).expect("valid");
        let payload = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload_bytes];
        assert_eq!((header.sequence, bytes.len() as u64), (41, header.padded_bytes()));
        assert!(header.matches(9, payload));
        assert_eq!(decode_payload(payload), Ok(writes()));
    }

    #[test]
    fn a_frame_of_another_generation_is_not_a_frame() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 9, 41, &writes());
        assert_eq!(decode_header(&bytes, 10), None);
    }

    #[test]
    fn every_flipped_bit_of_a_small_frame_is_noticed() {
        let mut bytes = Vec::new();
        let payload_bytes = encode(&mut bytes, 9, 41, &writes()[1..]);
        for bit in 0..(FRAME_HEADER_BYTES + payload_bytes) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let payload = &damaged[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload_bytes];
            let valid = decode_header(&damaged, 9).is_some_and(|header| header.matches(9, payload));
            assert!(!valid, "bit {bit}");
        }
    }

    #[test]
    fn a_payload_cut_short_is_an_error_and_not_a_panic() {
        let mut bytes = Vec::new();
        let payload_bytes = encode(&mut bytes, 9, 41, &writes());
        let between_entries = [ENTRY_HEADER_BYTES + 4, 2 * ENTRY_HEADER_BYTES + 4];
        for end in 1..64 {
            let cut = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload_bytes - end];
            assert_eq!(decode_payload(cut).is_ok(), between_entries.contains(&end), "cut by {end}");
        }
    }
}
