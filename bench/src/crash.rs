//! `store-crash`: the store on a simulated disk that loses power many times.

use std::time::Instant;

use catena_store::testing::Faults;
use catena_store::testing::crash::run_simulation;

use crate::Fault;

/// Run the store on a simulated disk that loses power at random, and check it after each crash.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The total number of crashes.
    #[arg(long, default_value_t = 5_000)]
    crashes: u64,
    /// The number of crashes on one disk.
    #[arg(long, default_value_t = 25)]
    per_world: u64,
    /// The first seed; each simulated disk uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out the sync of the journal, to check that the simulation detects it.
    #[arg(long)]
    without_sync: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let started = Instant::now();
    let faults = if args.without_sync { Faults::without_journal_sync() } else { Faults::default() };
    let (mut crashes, mut acknowledged, mut collections, mut worlds) = (0, 0, 0, 0);
    let mut failures = Vec::new();
    for seed in args.seed.. {
        if crashes >= args.crashes {
            break;
        }
        let report = run_simulation(seed, args.per_world, faults);
        crashes += report.crashes.max(1);
        acknowledged += report.acknowledged;
        collections += report.collections;
        worlds += 1;
        failures.extend(report.failure);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{crashes} crashes of {worlds} disks in {seconds:.1} s: {acknowledged} commits acknowledged, {collections} collections, {} failures",
        failures.len()
    );
    failures.iter().take(5).for_each(|failure| println!("  {failure}"));
    match (failures.is_empty(), args.without_sync) {
        (true, false) | (false, true) => Ok(()),
        (false, false) => Err("acknowledged effects were lost".into()),
        (true, true) => Err("the simulation did not notice a missing sync".into()),
    }
}
