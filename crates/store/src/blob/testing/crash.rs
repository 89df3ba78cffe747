//! The crash driver: blobs on a simulated disk that crashes again and again, and an oracle of what was acknowledged.
//!
//! A simulation is one disk and a handful of contents. A run opens the folder, checks everything, and then puts, removes,
//! abandons and reads at random until the disk crashes or refuses; then the power is lost or the process is killed, and
//! the next run begins on what is left. The oracle checks this: an acknowledged blob is there and verifies; an
//! acknowledged removal stays; what was read once counts as acknowledged; everything else is complete or absent; and no
//! temporary file survives an opening. All randomness comes from the seed.

use std::io::ErrorKind;
use std::sync::Arc;

use super::forgetful::{ForgetfulDisk, Skip};
use crate::blob::conformance::content;
use crate::blob::{
    BlobReadError, BlobWriter, Digest, Finished, INLINE_BYTES_MAX, LocalBlobs, Options, WriteError,
};
use catena_ledger::disk::{Disk, TEMPORARY_SUFFIX};
use catena_ledger::testing::rng::Rng;
use catena_ledger::testing::sim_disk::{Crash, SimDisk, SimOp};

/// Different contents in one simulation: few, so that the same ones are used often.
const CONTENTS: u64 = 8;
/// The longest content beyond the inline ones: a few chunks.
const EXTRA_BYTES: u64 = 150_000;
/// At most this many disk operations in a run, one drawn per run: many short runs, because a mistake of opening is only
/// noticed if the power is lost before the next sync.
const OPERATIONS_PER_RUN: [u64; 3] = [6, 6, 60];
/// At most this many steps in a run; the crash then happens between two operations.
const STEPS_PER_RUN: u64 = 60;
/// At most this many unfinished writers at a time.
const HELD_WRITERS: usize = 3;

/// The result of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SimulationReport {
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

impl SimulationReport {
    /// Adds the result of another simulation.
    pub fn add(&mut self, other: &SimulationReport) {
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

/// A guarantee that was violated.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, after {crashes} crashes: {what}")]
pub struct Violation {
    seed: u64,
    crashes: u64,
    what: String,
}

/// What the oracle knows about a content.
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

/// Whether the driver has injected failures, which explain errors of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskCondition {
    Healthy,
    Failing,
}

#[derive(Debug)]
struct Simulation {
    rng: Rng,
    disk: SimDisk,
    contents: Vec<Content>,
    held: Vec<BlobWriter>,
    condition: DiskCondition,
    report: SimulationReport,
}

/// Runs a simulation for a number of crashes.
pub fn run_simulation(seed: u64, crashes: u64, skip: Skip) -> Result<SimulationReport, Violation> {
    let mut simulation = Simulation::new(seed);
    while simulation.report.crashes < crashes {
        let ran = simulation.run_until_crash(skip);
        ran.map_err(|what| Violation { seed, crashes: simulation.report.crashes, what })?;
        simulation.crash();
    }
    simulation.report.fingerprint = simulation.disk.fingerprint();
    Ok(simulation.report)
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let contents = (0..CONTENTS).map(|_| Content::new(&mut rng)).collect();
        let disk = SimDisk::new(rng.number());
        Self {
            rng,
            disk,
            contents,
            held: Vec::new(),
            condition: DiskCondition::Healthy,
            report: SimulationReport::default(),
        }
    }

    fn run_until_crash(&mut self, skip: Skip) -> Result<(), String> {
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
        let operations_max = self.rng.pick(&OPERATIONS_PER_RUN);
        self.disk.crash_after(1 + self.rng.below(operations_max));
        for _ in 0..STEPS_PER_RUN {
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
        // Their disk has crashed, so dropping them changes nothing.
        self.held.clear();
        self.condition = DiskCondition::Healthy;
        self.report.crashes += 1;
    }

    fn step(&mut self, blobs: &LocalBlobs) -> Result<(), String> {
        let which = self.rng.below(CONTENTS) as usize;
        match self.rng.below(100) {
            0..40 => self.put(blobs, which),
            40..60 => self.remove(blobs, which),
            60..70 => self.hold_a_writer(blobs, which),
            70..75 => self.put_under_a_wrong_name(blobs, which),
            75..92 => self.read_one(blobs, which),
            _ => {
                self.inject_failure();
                Ok(())
            }
        }
    }

    /// Accepts an error only if it has a cause: a crashed disk, or a failure that the driver injected.
    fn accept_error(&mut self, error: &dyn std::error::Error, what: &str) -> Result<(), String> {
        if self.disk.has_crashed() || self.condition == DiskCondition::Failing {
            self.report.refused += 1;
            return Ok(());
        }
        Err(format!("{what} failed for no reason: {error}"))
    }

    fn put(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        let digest = self.contents[which].digest;
        let len = self.contents[which].bytes.len() as u64;
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
                self.accept_error(&error, "put")
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
        match self.write_and_finish(blobs, which, Some(Digest::from_content(b"another content"))) {
            Ok(finished) => Err(format!("a wrong name was accepted: {finished:?}")),
            Err(WriteError::Mismatch { .. }) => Ok(()),
            Err(error) => self.accept_error(&error, "put"),
        }
    }

    /// Opens a writer that stays open during other steps, and is never finished.
    fn hold_a_writer(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
        if self.held.len() >= HELD_WRITERS {
            let oldest = self.held.remove(0);
            drop(oldest);
        }
        let bytes = &self.contents[which].bytes;
        let part = 1 + self.rng.below(bytes.len() as u64) as usize;
        let mut writer = blobs.begin();
        let written = writer.write(&bytes[..part]);
        self.held.push(writer);
        written.or_else(|error| self.accept_error(&error, "write"))
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
                self.accept_error(&error, "remove")
            }
        }
    }

    /// Reads a blob as a client does. What was read must stay, so from here on it counts as acknowledged.
    fn read_one(&mut self, blobs: &LocalBlobs, which: usize) -> Result<(), String> {
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

    fn inject_failure(&mut self) {
        self.condition = DiskCondition::Failing;
        let operation = self.rng.pick(&[SimOp::Write, SimOp::Sync, SimOp::Names, SimOp::SyncDir]);
        let kind = self.rng.pick(&[ErrorKind::Other, ErrorKind::StorageFull]);
        match self.rng.below(3) {
            0 => self.disk.limit_space(Some(self.disk.used_bytes() + self.rng.below(EXTRA_BYTES))),
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

    /// Checks that a healthy disk has no temporary file without a writer.
    fn check_temporary_files(&self) -> Result<(), String> {
        let names = self.disk.list().map_err(|error| error.to_string())?;
        let temporary = names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)).count();
        if self.condition == DiskCondition::Healthy && temporary > self.held.len() {
            return Err(format!("{temporary} temporary files of {} writers", self.held.len()));
        }
        Ok(())
    }
}

impl Content {
    fn new(rng: &mut Rng) -> Self {
        let len = INLINE_BYTES_MAX + 1 + rng.below(EXTRA_BYTES) as usize;
        let bytes = content(rng.number(), len);
        Self { digest: Digest::from_content(&bytes), bytes, known: Known::Absent }
    }
}

/// Reads a blob to its end and compares it byte by byte. Returns whether it is stored.
fn read(blobs: &LocalBlobs, content: &Content) -> Result<bool, String> {
    let map_error = |error: BlobReadError| format!("reading failed: {error}");
    let Some(mut reader) = blobs.open(&content.digest).map_err(map_error)? else {
        return Ok(false);
    };
    let mut offset = 0;
    while let Some(chunk) = reader.next_chunk().map_err(map_error)? {
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
