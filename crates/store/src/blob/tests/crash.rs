//! Crashes of a simulated disk, and the check of what survives.

use crate::blob::testing::crash::{SimulationReport, run_simulation};
use crate::blob::testing::forgetful::Skip;

fn run_simulations(count: u64, skip: Skip) -> (SimulationReport, usize) {
    let mut total = SimulationReport::default();
    let mut violations = 0;
    for seed in 0..count {
        match run_simulation(seed, 10, skip) {
            Ok(report) => total.add(&report),
            Err(violation) if skip == Skip::Nothing => unreachable!("{violation}"),
            Err(_) => violations += 1,
        }
    }
    (total, violations)
}

#[test]
fn every_promise_survives_hundreds_of_crashes() {
    let (report, _) = run_simulations(40, Skip::Nothing);
    assert_eq!(report.crashes, 400);
    let exercised = [
        report.crashes_while_opening,
        report.puts,
        report.duplicates,
        report.removes,
        report.refused,
        report.stopped,
        report.unknown_kept,
        report.unknown_lost,
    ];
    assert!(exercised.iter().all(|count| *count > 0), "something never happened: {report:?}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = || run_simulation(77, 10, Skip::Nothing).expect("every promise is kept");
    assert_eq!(run(), run());
}

#[test]
fn a_store_that_does_not_sync_its_files_is_caught() {
    assert!(run_simulations(10, Skip::FileSyncs).1 > 0);
}

#[test]
fn a_store_that_does_not_sync_its_folder_is_caught() {
    assert!(run_simulations(10, Skip::FolderSyncs).1 > 0);
}

#[test]
fn a_store_that_does_not_sync_its_folder_when_it_is_opened_is_caught() {
    assert!(run_simulations(60, Skip::FirstFolderSync).1 > 0);
}
