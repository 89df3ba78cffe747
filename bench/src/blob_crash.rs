//! `blob-crash`: blob files on a simulated disk that loses power many times.

use std::time::Instant;

use catena_store::blob::testing::crash::{SimulationReport, run_simulation};
use catena_store::blob::testing::forgetful::Skip;

use crate::Fault;

/// Run blob files on a simulated disk that loses power at random, and check them after each crash.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The total number of crashes.
    #[arg(long, default_value_t = 5_000)]
    crashes: u64,
    /// The first seed; each simulated disk uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out the syncs of the folder, to check that the simulation detects it.
    #[arg(long)]
    without_sync: bool,
}

/// The number of crashes on one disk: a simulated disk keeps all files in memory.
const CRASHES_PER_WORLD: u64 = 10;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let started = Instant::now();
    let skip = if args.without_sync { Skip::FolderSyncs } else { Skip::Nothing };
    let mut report = SimulationReport::default();
    let mut violations = Vec::new();
    for world in 0..args.crashes.div_ceil(CRASHES_PER_WORLD) {
        match run_simulation(args.seed + world, CRASHES_PER_WORLD, skip) {
            Ok(lived) => report.add(&lived),
            Err(violation) => violations.push(violation),
        }
    }
    println!("{report:?}");
    println!("{} violations in {:.1} s", violations.len(), started.elapsed().as_secs_f64());
    violations.iter().take(5).for_each(|violation| println!("  {violation}"));
    match (violations.is_empty(), args.without_sync) {
        (true, false) | (false, true) => Ok(()),
        (false, false) => Err("acknowledged blobs were lost or damaged".into()),
        (true, true) => Err("the simulation did not notice missing syncs".into()),
    }
}
