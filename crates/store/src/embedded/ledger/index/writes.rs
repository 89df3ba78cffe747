//! Writes of the index, held back until its next sync and then written in long runs.
//!
//! The index library writes every page by itself and in no order, although most pages of a flush lie side by side. The
//! system takes one long write at a fraction of the price of many short ones, and the disk likewise. Until a sync nothing
//! is promised about a write, so holding it back changes nothing that a crash could show.

use std::collections::BTreeMap;
use std::io;

use parking_lot::{RwLock, RwLockUpgradableReadGuard};

use crate::embedded::ledger::disk::DiskFile;

/// Bytes held back at most: more than an ordinary flush writes.
const HELD_BYTES_MAX: usize = 32 << 20;

/// The longest run. Short enough to stay in the processor's cache between being put together and being written.
const RUN_BYTES_MAX: usize = 256 << 10;

/// Writes that the file has not seen yet.
#[derive(Debug, Default)]
pub struct HeldWrites(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    /// Offset in the file → place in `bytes`. No two overlap.
    pieces: BTreeMap<u64, Piece>,
    bytes: Vec<u8>,
    has_failed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    len: usize,
}

impl HeldWrites {
    /// Takes a write.
    pub fn write(&self, file: &dyn DiskFile, offset: u64, data: &[u8]) -> io::Result<()> {
        while !self.0.write().take(offset, data) {
            self.write_out(file)?;
        }
        Ok(())
    }

    /// Reads what the file will hold once everything is written.
    pub fn read(&self, file: &dyn DiskFile, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.0.read();
        if let Some(piece) = held.piece(offset, out.len()) {
            out.copy_from_slice(held.bytes(piece));
            return Ok(());
        }
        let overlaps = held.overlaps(offset, out.len());
        drop(held);
        if overlaps {
            self.write_out(file)?;
        }
        file.read_at(offset, out)
    }

    /// Writes everything to the file, without keeping readers from it. After an error nothing is written any more: what the
    /// file holds is then unknown, and whoever asks again is told so.
    pub fn write_out(&self, file: &dyn DiskFile) -> io::Result<()> {
        let held = self.0.upgradable_read();
        if held.has_failed {
            return Err(io::Error::other("an earlier write to the index failed"));
        }
        let written = held.write_runs(file);
        let mut held = RwLockUpgradableReadGuard::upgrade(held);
        held.has_failed = written.is_err();
        held.pieces.clear();
        held.bytes.clear();
        written
    }
}

impl Held {
    /// Takes a write, unless something has to be written out first.
    fn take(&mut self, offset: u64, data: &[u8]) -> bool {
        if let Some(piece) = self.piece(offset, data.len()) {
            self.bytes[piece.start..][..piece.len].copy_from_slice(data);
            return true;
        }
        let is_full = !self.bytes.is_empty() && self.bytes.len() + data.len() > HELD_BYTES_MAX;
        if is_full || self.overlaps(offset, data.len()) {
            return false;
        }
        self.pieces.insert(offset, Piece { start: self.bytes.len(), len: data.len() });
        self.bytes.extend_from_slice(data);
        true
    }

    fn write_runs(&self, file: &dyn DiskFile) -> io::Result<()> {
        let (mut begin, mut run) = (0, Vec::new());
        for (offset, piece) in &self.pieces {
            let continues = begin + run.len() as u64 == *offset;
            if !continues || run.len() + piece.len > RUN_BYTES_MAX {
                write_run(file, begin, &run)?;
                run.clear();
                begin = *offset;
            }
            run.extend_from_slice(self.bytes(*piece));
        }
        write_run(file, begin, &run)
    }

    fn bytes(&self, piece: Piece) -> &[u8] {
        &self.bytes[piece.start..][..piece.len]
    }

    /// The piece that covers exactly this.
    fn piece(&self, offset: u64, len: usize) -> Option<Piece> {
        self.pieces.get(&offset).copied().filter(|piece| piece.len == len)
    }

    fn overlaps(&self, offset: u64, len: usize) -> bool {
        let before = self.pieces.range(..offset + len as u64).next_back();
        before.is_some_and(|(start, piece)| start + piece.len as u64 > offset)
    }
}

fn write_run(file: &dyn DiskFile, offset: u64, run: &[u8]) -> io::Result<()> {
    if run.is_empty() { Ok(()) } else { file.write_at(offset, run) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::ledger::disk::Disk;
    use crate::embedded::ledger::testing::rng::Rng;
    use crate::embedded::ledger::testing::sim_disk::SimDisk;

    #[test]
    fn held_writes_read_like_a_plain_file() {
        const LEN: usize = 4096;
        let disk = SimDisk::new(1);
        let file = disk.create("index").unwrap();
        file.set_len(LEN as u64).unwrap();
        let (held, mut model, mut rng) = (HeldWrites::default(), vec![0; LEN], Rng::new(7));
        for round in 0..20_000u32 {
            // Mostly pages in their places, sometimes anything.
            let (offset, len) = match rng.below(8) {
                0 => (rng.below(LEN as u64 - 64) as usize, 1 + rng.below(64) as usize),
                _ => (rng.below(LEN as u64 / 64) as usize * 64, 64),
            };
            match rng.below(16) {
                0 => held.write_out(&*file).unwrap(),
                1..8 => {
                    let data = vec![round as u8; len];
                    held.write(&*file, offset as u64, &data).unwrap();
                    model[offset..][..len].copy_from_slice(&data);
                }
                _ => {
                    let mut out = vec![0; len];
                    held.read(&*file, offset as u64, &mut out).unwrap();
                    assert_eq!(out, model[offset..][..len]);
                }
            }
        }
        held.write_out(&*file).unwrap();
        let mut all = vec![0; LEN];
        file.read_at(0, &mut all).unwrap();
        assert_eq!(all, model);
    }
}
