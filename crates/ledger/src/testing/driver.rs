//! The crash driver: a random workload, an oracle of what was acknowledged, and a crash at a random operation.
//!
//! A simulation is one simulated disk that goes through many crashes. After each crash the ledger is opened on what
//! survived and must hold exactly what was acknowledged, with the batch that was being written at the crash either
//! completely there or completely absent. Opening may crash too. Everything follows from the seed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::Mutex;

use super::rng::Rng;
use super::sim_disk::{Crash, SimDisk, SimOp};
use super::workload::{Entry, Model, Refusal, TABLES, apply, contents, random_entry};
use crate::committer::CommitStep;
use crate::error::{Failure, FlushError, LedgerError, error_chain};
use crate::faults::Faults;
use crate::manual::ManualLedger;
use crate::options::{Mode, Options};
use crate::shared::Health;
use crate::tx::Tx;
use crate::types::{Direction, KeyRange};

/// At most this many steps between two crashes.
const STEPS_PER_RUN: u64 = 40;

/// A disk crashes at most this many operations after a ledger was opened on it.
const OPERATIONS_PER_RUN: u64 = 160;

/// The probability, in percent, that an operation fails in a run; and likewise that the disk is nearly full.
const FAILURE_PERCENT: u64 = 15;

/// At most this many bytes are free on a nearly full disk.
const FREE_BYTES: u64 = 20_000;

/// At most this many writes to the index are refused in a row on a nearly full disk.
const REFUSED_WRITES: u64 = 40;

/// A disk that crashes while the ledger opens does so within this many operations.
const OPERATIONS_WHILE_OPENING: u64 = 40;

/// The result of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationReport {
    /// Crashes, including those during opening.
    pub crashes: u64,
    /// Crashes during opening.
    pub crashes_opening: u64,
    /// Entries acknowledged.
    pub acknowledged: u64,
    /// Frames replayed.
    pub frames_replayed: u64,
    /// Entries refused because the disk was full.
    pub refused_full: u64,
    /// Runs that ended because an operation failed.
    pub poisoned: u64,
    /// Batches that were in flight at a crash and survived completely.
    pub in_flight_survived: u64,
    /// The failure that ended the simulation, if there was one.
    pub failure: Option<String>,
    /// A checksum of the final disk.
    pub fingerprint: u32,
}

/// Runs a simulation for a number of crashes.
pub fn run_simulation(seed: u64, crashes: u64, faults: Faults) -> SimulationReport {
    let mut simulation = Simulation::new(seed, faults);
    while simulation.report.crashes < crashes && simulation.report.failure.is_none() {
        if let Err(failure) = simulation.run_until_crash() {
            simulation.report.failure = Some(format!(
                "seed {seed}, after {} crashes: {failure}",
                simulation.report.crashes
            ));
        }
    }
    simulation.report.fingerprint = simulation.disk.fingerprint();
    simulation.report
}

struct Simulation {
    rng: Rng,
    disk: SimDisk,
    faults: Faults,
    acknowledged: Model,
    in_flight: Option<Model>,
    report: SimulationReport,
}

type Answers = Arc<Mutex<Vec<Result<(), Failure<Refusal>>>>>;

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.number());
        let report = SimulationReport::default();
        Self { rng, disk, faults, acknowledged: BTreeMap::new(), in_flight: None, report }
    }

    /// One run: open, check, work, crash.
    fn run_until_crash(&mut self) -> Result<(), String> {
        let mut ledger = self.open()?;
        self.compare_with_acknowledged(&ledger)?;
        let operations = 1 + self.rng.below(OPERATIONS_PER_RUN);
        self.disk.crash_after(operations);
        self.inject_failures();
        for _ in 0..self.rng.below(STEPS_PER_RUN) {
            if self.is_over(&ledger) {
                break;
            }
            self.step(&mut ledger)?;
        }
        self.report.poisoned += u64::from(!self.disk.has_crashed() && self.is_over(&ledger));
        if self.rng.chance(10) {
            // An error is a crash while closing, which the next opening has to handle.
            let _ = ledger.close();
        }
        self.crash();
        Ok(())
    }

    /// Whether this run is over.
    fn is_over(&self, ledger: &ManualLedger) -> bool {
        self.disk.has_crashed() || matches!(ledger.health(), Health::Poisoned { .. })
    }

    fn inject_failures(&mut self) {
        if self.rng.chance(FAILURE_PERCENT) {
            let operation = self.rng.pick(&[
                SimOp::Write,
                SimOp::Sync,
                SimOp::SetLen,
                SimOp::Names,
                SimOp::SyncDir,
            ]);
            let name = self.rng.pick(&["journal", "index", ""]);
            let skip = self.rng.below(10);
            self.disk.fail(operation, name, skip, ErrorKind::Other);
        }
        if self.rng.chance(FAILURE_PERCENT) {
            let left = self.rng.below(FREE_BYTES);
            self.disk.limit_space(Some(self.disk.used_bytes() + left));
            let refused_writes = self.rng.below(REFUSED_WRITES);
            (0..refused_writes)
                .for_each(|_| self.disk.fail(SimOp::Write, "index", 0, ErrorKind::StorageFull));
        }
    }

    fn open(&mut self) -> Result<ManualLedger, String> {
        loop {
            if self.rng.chance(40) {
                let operations = 1 + self.rng.below(OPERATIONS_WHILE_OPENING);
                self.disk.crash_after(operations);
            }
            let options = self.options();
            match ManualLedger::open(Arc::new(self.disk.clone()), options, None) {
                Ok(ledger) => {
                    self.disk.cancel_crash();
                    self.report.frames_replayed += ledger.report().frames_replayed;
                    return Ok(ledger);
                }
                Err(_) if self.disk.has_crashed() => {
                    self.report.crashes_opening += 1;
                    self.crash();
                }
                Err(error) => {
                    return Err(format!(
                        "refused to open after a plain crash: {}",
                        error_chain(&error)
                    ));
                }
            }
        }
    }

    fn crash(&mut self) {
        self.report.crashes += 1;
        let crash = if self.rng.chance(25) { Crash::ProcessKill } else { Crash::PowerLoss };
        self.disk = self.disk.crash(crash, self.rng.number());
    }

    fn options(&mut self) -> Options {
        let mode = if self.rng.chance(15) { Mode::Direct } else { Mode::Journal };
        let spare_segments = 1 + self.rng.below(3) as usize;
        Options {
            mode,
            spare_segments,
            generation_seed: Some(self.rng.number()),
            faults: self.faults,
            ..small_options()
        }
    }

    /// Checks that the ledger holds what was acknowledged, with or without the batch in flight.
    fn compare_with_acknowledged(&mut self, ledger: &ManualLedger) -> Result<(), String> {
        let found = contents(ledger, Direction::Forward)?;
        if contents(ledger, Direction::Backward)? != found {
            return Err("forward and backward scans disagree".to_owned());
        }
        match self.in_flight.take() {
            _ if found == self.acknowledged => Ok(()),
            Some(with_batch) if found == with_batch => {
                self.report.in_flight_survived += 1;
                self.acknowledged = found;
                Ok(())
            }
            in_flight => Err(describe(&found, &self.acknowledged, in_flight.as_ref())),
        }
    }

    fn step(&mut self, ledger: &mut ManualLedger) -> Result<(), String> {
        match self.rng.below(10) {
            0..=5 => self.commit(ledger),
            6..=7 => self.flush(ledger),
            8 => self.read(ledger),
            _ => self.hold_a_view(ledger),
        }
    }

    fn flush(&mut self, ledger: &ManualLedger) -> Result<(), String> {
        match ledger.step_flush() {
            Err(FlushError::Full) => {
                if self.rng.chance(10) {
                    self.disk.limit_space(None);
                    self.disk.clear_failures();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn commit(&mut self, ledger: &mut ManualLedger) -> Result<(), String> {
        let answers = Answers::default();
        let count = 1 + self.rng.below(4);
        let mut waiting: Vec<Entry> = (0..count).map(|_| random_entry(&mut self.rng)).collect();
        for entry in &waiting {
            submit(ledger, entry.clone(), answers.clone())?;
        }
        while !waiting.is_empty() {
            if ledger.step_commit() == CommitStep::Stalled {
                self.flush(ledger)?;
                continue;
            }
            let answered: Vec<_> = std::mem::take(&mut *answers.lock());
            let batch: Vec<Entry> = waiting.drain(..answered.len()).collect();
            self.record_answers(&batch, &answered)?;
        }
        Ok(())
    }

    /// Compares the outcomes of one batch with its entries, and updates the oracle.
    fn record_answers(
        &mut self,
        batch: &[Entry],
        answered: &[Result<(), Failure<Refusal>>],
    ) -> Result<(), String> {
        let mut after = self.acknowledged.clone();
        let mut durable = self.in_flight.is_none();
        for (entry, answer) in batch.iter().zip(answered) {
            match answer {
                Ok(()) if !entry.refuses => apply(&mut after, entry),
                Err(Failure::Work(Refusal)) if entry.refuses => {}
                Err(Failure::Ledger(LedgerError::Full)) => self.report.refused_full += 1,
                Err(Failure::Ledger(LedgerError::Poisoned { .. })) => {
                    durable = false;
                    if !entry.refuses {
                        apply(&mut after, entry);
                    }
                }
                other => return Err(format!("unexpected answer {other:?}")),
            }
        }
        if durable {
            self.report.acknowledged += batch.len() as u64;
            self.acknowledged = after;
        } else {
            // Only the first batch that was not acknowledged can be on the disk; later ones were never written.
            self.in_flight.get_or_insert(after);
        }
        Ok(())
    }

    fn read(&mut self, ledger: &ManualLedger) -> Result<(), String> {
        let table = self.rng.pick(&TABLES);
        let direction = self.rng.pick(&[Direction::Forward, Direction::Backward]);
        let limit = 1 + self.rng.below(10) as usize;
        let found = match ledger.range(table.id, &KeyRange::all(), direction, limit) {
            Err(_) if self.disk.has_crashed() => return Ok(()),
            found => found.map_err(|error| error_chain(&error))?,
        };
        let rows = self.acknowledged.iter().filter(|((id, _), _)| *id == table.id.0);
        let rows = rows.map(|((_, key), value)| (key.clone(), value.clone()));
        let expected: Vec<_> = match direction {
            Direction::Forward => rows.take(limit).collect(),
            Direction::Backward => rows.rev().take(limit).collect(),
        };
        let found: Vec<_> =
            found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        if found == expected {
            Ok(())
        } else {
            Err("a range differs from what was acknowledged".to_owned())
        }
    }

    /// Checks that a view does not change while batches and flushes go on.
    fn hold_a_view(&mut self, ledger: &mut ManualLedger) -> Result<(), String> {
        let view = ledger.view();
        let expected = self.acknowledged.clone();
        self.commit(ledger)?;
        self.flush(ledger)?;
        match super::workload::view_contents(&view, Direction::Forward) {
            // A view breaks if the index had to be reopened.
            Err(_) if self.is_over(ledger) || ledger.counters().index_reopens > 0 => Ok(()),
            Ok(found) if found == expected => Ok(()),
            Ok(_) => Err("a view changed while it was held".to_owned()),
            Err(error) => Err(error),
        }
    }
}

fn submit(ledger: &ManualLedger, entry: Entry, answers: Answers) -> Result<(), String> {
    let work = move |tx: &mut Tx<'_>| entry.run(tx);
    let done = move |answer| answers.lock().push(answer);
    ledger.try_submit(work, done).map_err(|error| error.to_string())
}

/// Limits so small that a short run reaches all of them.
pub fn small_options() -> Options {
    Options {
        queue_entries_max: 64,
        batch_entries_max: 16,
        batch_bytes_max: 4 << 10,
        entry_bytes_max: 8 << 10,
        segment_bytes: 32 << 10,
        segments_max: 6,
        flush_bytes: 8 << 10,
        overlay_bytes_max: 32 << 10,
        index_cache_bytes: 1 << 20,
        generation_seed: Some(1),
        ..Options::new(TABLES)
    }
}

fn describe(found: &Model, acknowledged: &Model, in_flight: Option<&Model>) -> String {
    let lost = acknowledged.iter().filter(|(key, value)| found.get(key) != Some(value)).count();
    let extra = found.keys().filter(|key| !acknowledged.contains_key(key)).count();
    let in_flight = in_flight.is_some();
    format!(
        "{lost} acknowledged rows lost or changed, {extra} rows too many (batch in flight: {in_flight})"
    )
}
