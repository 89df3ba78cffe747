//! A process that is killed while it writes: everything acknowledged to it is there, and the folder's lock is free again.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::support::{JOBS, options};
use crate::testing::scratch::Scratch;
use crate::{Direction, KeyRange, Ledger, Options, Tx};

const FOLDER: &str = "CATENA_LEDGER_TEST_FOLDER";
const KILLS: u64 = 5;
const LINES_BEFORE_KILL: usize = 60;

fn quick() -> Options {
    Options { flush_interval: Duration::from_millis(1), ..options() }
}

/// Not a test by itself: the process that the test below starts and kills.
#[test]
#[ignore = "runs only as the child of another test"]
fn child_that_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let ledger = Ledger::open(Path::new(&folder), quick()).unwrap();
    let first = ledger.range(JOBS, &KeyRange::all(), Direction::Backward, 1).unwrap();
    let first =
        first.first().map_or(0, |(key, _)| u64::from_be_bytes(key[..].try_into().unwrap()) + 1);
    for number in first.. {
        let write = move |tx: &mut Tx<'_>| {
            tx.put(JOBS, number.to_be_bytes(), vec![number as u8; 500]);
            Ok::<(), ()>(())
        };
        ledger.transact(write).unwrap();
        println!("durable {number}");
        std::io::stdout().flush().unwrap();
    }
}

fn start_child(folder: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let name = "child_that_writes_until_it_is_killed";
    Command::new(program)
        .args(["--ignored", "--nocapture", name])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads the child's output, kills it, and returns the last number that was acknowledged to it.
fn kill_in_the_middle(mut child: Child) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let numbers =
        lines.filter_map(|line| line.unwrap().strip_prefix("durable ")?.parse::<u64>().ok());
    let last = numbers.take(LINES_BEFORE_KILL).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    last
}

#[test]
fn everything_acknowledged_outlives_kill_minus_nine() {
    let scratch = Scratch::new("killed");
    for _ in 0..KILLS {
        let last = kill_in_the_middle(start_child(scratch.path()));
        let ledger = Ledger::open(scratch.path(), quick()).unwrap();
        for number in 0..=last {
            let value = ledger.get(JOBS, &number.to_be_bytes()).unwrap();
            assert_eq!(
                value.as_deref(),
                Some(&vec![number as u8; 500][..]),
                "row {number} of {last}"
            );
        }
    }
}
