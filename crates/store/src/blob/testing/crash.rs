//! The crash driver: blobs on a simulated disk that dies again and again, and an oracle that knows what was promised.
//!
//! A world is one disk and a handful of contents. A life opens the folder, checks everything, and then puts, removes,
//! abandons and reads at random until the disk dies or refuses; then the power goes or the process is killed, and the
//! next life begins on what is left. The oracle holds the store to this: an acknowledged blob is there and verifies; an
//! acknowledged removal stays; what was seen once counts as acknowledged; everything else is whole or absent; and no
//! temporary file survives an opening. All chance comes from the seed.

use std::io::ErrorKind;
use std::sync::Arc;

use super::super::conformance::content;
use super::super::{
    BlobWriter, Digest, Finished, INLINE_BYTES_MAX, LocalBlobs, Options, ReadError, WriteError,
};
use super::forgetful::{ForgetfulDisk, Skip};
use catena_ledger::disk::{Disk, TEMPORARY_SUFFIX};
use catena_ledger::testing::rng::Rng;
use catena_ledger::testing::sim_disk::{Crash, SimDisk, SimOp};

/// Different contents in one world: few, so that they meet themselves often.
const CONTENTS: u64 = 8;
/// The longest content beyond the inline ones: a few chunks.
const EXTRA_BYTES_MAX: u64 = 150_000;
/// Disk operations in a life at most, one drawn per life: many short lives, because what an opening has missed is only
/// noticed when the power goes before the next sync.
const LIFE_OPERATIONS_MAX: [u64; 3] = [6, 6, 60];
/// Steps in a life at most; it ends by itself then, and the power goes between two operations.
const LIFE_STEPS_MAX: u64 = 60;
/// Unfinished writers at one time at most.
const HELD_WRITERS_MAX: usize = 3;

/// What one world went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Report {
    pub crashes: u64,
    pub crashes_while_opening: u64,
    pub puts: u64,
    pub duplicates: u64,
    pub removes: u64,
    pub refused: u64,
    pub stopped: u64,
    pub unknown_kept: u64,
    pub unknown_lost: u64,
    pub fingerprint: u32,
}

impl Report {
    /// Adds what another world went through.
    pub fn add(&mut self, other: &Report) {
        self.crashes += other.crashes;
        self.crashes_while_opening += other.crashes_while_opening;
        self.puts += other.puts;
        self.duplicates += other.duplicates;
        self.removes += other.removes;
        self.refused += other.refused;
        self.stopped += other.stopped;
        self.unknown_kept += other.unknown_kept;
        self.unknown_lost += other.unknown_lost;
        self.fingerprint = self.fingerprint.rotate_left(1) ^ other.fingerprint;
    }
}

/// A promise that was not kept.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, after {crashes} crashes: {what}")]
pub struct Violation {
    seed: u64,
    crashes: u64,
    what: String,
}

/// What the oracle knows of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Absent,
    Here,
    Unknown,
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    digest: Digest,
    known: Known,
}

/// Whether an error of the store has a reason the driver gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Calm,
    Rough,
}

#[derive(Debug)]
struct World {
    rng: Rng,
    disk: SimDisk,
    contents: Vec<Content>,
    held: Vec<BlobWriter>,
    weather: Weather,
    report: Report,
}

/// Lets one world live through a number of crashes.
pub fn run_world(seed: u64, crashes: u64, skip: Skip) -> Result<Report, Violation> {
    let mut world = World::new(seed);
    while world.report.crashes < crashes {
        let lived = world.live(skip);
        lived.map_err(|what| Violation { seed, crashes: world.report.crashes, what })?;
        world.crash();
    }
    world.report.fingerprint = world.disk.fingerprint();
    Ok(world.report)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let contents = (0..CONTENTS).map(|_| Content::new(&mut rng)).collect();
        let disk = SimDisk::new(rng.number());
        Self {
            rng,
            disk,
            contents,
            held: Vec::new(),
            weather: Weather::Calm,
            report: Report::default(),
        }
    }

    fn live(&mut self, skip: Skip) -> Result<(), String> {
        if self.rng.chance(20) {
            self.disk.crash_after(1 + self.rng.below(4));
        }
        let disk = Arc::new(ForgetfulDisk::new(self.disk.clone(), skip));
        let blobs = match LocalBlobs::open_folder(disk, Options::default()) {
            Ok(blobs) => blobs,
            Err(_) if self.disk.has_crashed() => {
                self.report.crashes_while_opening += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("could not open: {error}")),
        };
        self.disk.cancel_crash();
        self.check_everything(&blobs)?;
        let operations_max = self.rng.pick(&LIFE_OPERATIONS_MAX);
        self.disk.crash_after(1 + self.rng.below(operations_max));
        for _ in 0..LIFE_STEPS_MAX {
            self.step(&blobs)?;
            if self.disk.has_crashed() {
                break;
            }
            self.check_temporary_files()?;
        }
        Ok(())
    }

    fn crash(&mut self) {
        let crash = if self.rng.chance(70) { Crash::PowerLoss } else { Crash::ProcessKill };
        self.disk = self.disk.crash(crash, self.rng.number());
        // Their disk is dead, so dropping them changes nothing.
        self.held.clear();
        self.weather = Weather::Calm;
        self.report.crashes += 1;
    }

    fn step(&mut self, blobs: &LocalBlobs) -> Result<(), String> {
        let which = self.rng.below(CONTENTS) as usize;
        match self.rng.below(100) {
            0..40 => self.put(blobs, which),
            40..60 => self.remove(blobs, which),
            60..70 => self.hold_a_writer(blobs, which),
            70..75 => self.put_under_a_wrong_name(blobs, which),
            75..92 => self.look(blobs, which),
            _ => {
                self.disturb();
                Ok(())
            }
        }
    }

    /// An error must have a reason: a dead disk, or trouble that the driver made.
    fn excuse(&mut self, error: &dyn std::error::Error, what: &str) -> Result<(), String> {
        if self.disk.has_crashed() || self.weather == Weather::Rough {
            self.report.refused += 1;
            return Ok(());
        }
        Err(format!("{what} failed for no reason: {error}"))
    }

    fn put(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        let (digest, len) = (self.contents[which].digest, self.contents[which].bytes.len() as u64);
        let before = self.contents[which].known;
        match self.write_and_finish(blobs, which, Some(digest)) {
            Ok(finished) if finished == (Finished::Stored { digest, len }) => {
                self.report.puts += 1;
                self.report.duplicates += u64::from(before == Known::Here);
                self.contents[which].known = Known::Here;
                Ok(())
            }
            Ok(finished) => Err(format!("put of {digest} answered {finished:?}")),
            Err(error) => {
                self.report.stopped += u64::from(matches!(error, WriteError::Stopped { .. }));
                if before == Known::Absent {
                    self.contents[which].known = Known::Unknown;
                }
                self.excuse(&error, "put")
            }
        }
    }

    fn write_and_finish(
        &mut self,
        blobs: &LocalBlobs,
        which: usize,
        expected: Option<Digest>,
    ) -> Result<Finished, WriteError> {
        let mut writer = blobs.begin();
        let piece = 1 + self.rng.below(100_000) as usize;
        for piece in self.contents[which].bytes.chunks(piece) {
            writer.write(piece)?;
        }
        writer.finish(expected)
    }

    fn put_under_a_wrong_name(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        match self.write_and_finish(blobs, which, Some(Digest::of(b"another content"))) {
            Ok(finished) => Err(format!("a wrong name was accepted: {finished:?}")),
            Err(WriteError::Mismatch { .. }) => Ok(()),
            Err(error) => self.excuse(&error, "put"),
        }
    }

    /// A writer that stays open while other things happen, and is never finished.
    fn hold_a_writer(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        if self.held.len() >= HELD_WRITERS_MAX {
            let oldest = self.held.remove(0);
            drop(oldest);
        }
        let bytes = &self.contents[which].bytes;
        let part = 1 + self.rng.below(bytes.len() as u64) as usize;
        let mut writer = blobs.begin();
        let written = writer.write(&bytes[..part]);
        self.held.push(writer);
        written.or_else(|error| self.excuse(&error, "write"))
    }

    fn remove(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        match blobs.remove(&self.contents[which].digest) {
            Ok(()) => {
                self.report.removes += 1;
                self.contents[which].known = Known::Absent;
                Ok(())
            }
            Err(error) => {
                if self.contents[which].known == Known::Here {
                    self.contents[which].known = Known::Unknown;
                }
                self.excuse(&error, "remove")
            }
        }
    }

    /// Reads as a user would. What was seen must stay, so from here on it counts as acknowledged.
    fn look(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        let content = &self.contents[which];
        let seen = read(blobs, content)?;
        match (content.known, seen) {
            (Known::Here, false) => {
                Err(format!("{} was acknowledged and is not here", content.digest))
            }
            (Known::Absent, true) => {
                Err(format!("{} was never put, or removed, and is here", content.digest))
            }
            (Known::Unknown, true) => {
                self.contents[which].known = Known::Here;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn disturb(&mut self) {
        self.weather = Weather::Rough;
        let operation = self.rng.pick(&[SimOp::Write, SimOp::Sync, SimOp::Names, SimOp::SyncDir]);
        let kind = self.rng.pick(&[ErrorKind::Other, ErrorKind::StorageFull]);
        match self.rng.below(3) {
            0 => self
                .disk
                .limit_space(Some(self.disk.used_bytes() + self.rng.below(EXTRA_BYTES_MAX))),
            1 => self.disk.limit_space(None),
            _ => self.disk.fail(operation, "", self.rng.below(3), kind),
        }
    }

    fn check_everything(&mut self, blobs: &LocalBlobs) -> Result<(), String> {
        let mut here = Vec::new();
        for content in &mut self.contents {
            let seen = read(blobs, content)?;
            match (content.known, seen) {
                (Known::Here, false) => {
                    return Err(format!("acknowledged blob {} is lost", content.digest));
                }
                (Known::Absent, true) => {
                    return Err(format!("removed blob {} is back", content.digest));
                }
                (Known::Unknown, true) => self.report.unknown_kept += 1,
                (Known::Unknown, false) => self.report.unknown_lost += 1,
                _ => {}
            }
            content.known = if seen { Known::Here } else { Known::Absent };
            here.extend(seen.then(|| content.digest.to_hex()));
        }
        here.sort();
        let names = self.disk.list().map_err(|error| error.to_string())?;
        if names == here {
            Ok(())
        } else {
            Err(format!("the folder shows {names:?} and should show {here:?}"))
        }
    }

    /// In calm weather there is no temporary file without a writer.
    fn check_temporary_files(&self) -> Result<(), String> {
        let names = self.disk.list().map_err(|error| error.to_string())?;
        let temporary = names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)).count();
        if self.weather == Weather::Calm && temporary > self.held.len() {
            return Err(format!("{temporary} temporary files of {} writers", self.held.len()));
        }
        Ok(())
    }
}

impl Content {
    fn new(rng: &mut Rng) -> Self {
        let len = INLINE_BYTES_MAX + 1 + rng.below(EXTRA_BYTES_MAX) as usize;
        let bytes = content(rng.number(), len);
        Self { digest: Digest::of(&bytes), bytes, known: Known::Absent }
    }
}

/// Reads a blob to its end and compares it byte by byte; says whether it is here.
fn read(blobs: &LocalBlobs, content: &Content) -> Result<bool, String> {
    let failed = |error: ReadError| format!("reading failed: {error}");
    let Some(mut reader) = blobs.open(&content.digest).map_err(failed)? else { return Ok(false) };
    let mut offset = 0;
    while let Some(chunk) = reader.next_chunk().map_err(failed)? {
        if content.bytes.get(offset..offset + chunk.len()) != Some(&chunk[..]) {
            return Err(format!("{} has other bytes at {offset}", content.digest));
        }
        offset += chunk.len();
    }
    if offset == content.bytes.len() {
        Ok(true)
    } else {
        Err(format!("{} ends at {offset}", content.digest))
    }
}
