//! How fast cells are. Ignored by default, because a busy machine says little:
//!
//! ```sh
//! cargo test --release -p catena-sandbox --test speed -- --ignored --nocapture
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "this measures and prints")]

mod support;

use std::time::{Duration, Instant};

use catena_sandbox::Config;
use support::{cell, run, start, verdict};

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    println!(
        "{name}: n {} p10 {:.2} ms p50 {:.2} ms p90 {:.2} ms p99 {:.2} ms",
        times.len(),
        at(10),
        at(50),
        at(90),
        at(99)
    );
}

#[test]
#[ignore = "measures; see the head of this file"]
fn print_1_from_a_warmed_pool() {
    let Some(sandbox) = start(Config { pool: 2, ..Config::new(support::profile()) }) else {
        return;
    };
    let asked = cell("print(1)");
    let mut times = Vec::new();
    for _ in 0..500 {
        assert!(sandbox.wait_ready(Duration::from_secs(10)));
        let started = Instant::now();
        let outcome = run(&sandbox, &asked);
        times.push(started.elapsed());
        assert_eq!((verdict(&outcome).as_str(), outcome.stdout.text.as_str()), ("ok", "1\n"));
    }
    print_times(&format!("print(1), warmed pool, {}", sandbox.tier()), times);
}

#[test]
#[ignore = "measures; see the head of this file"]
fn plain_interpreter() {
    let interpreter = support::interpreter();
    let mut times = Vec::new();
    for _ in 0..100 {
        let started = Instant::now();
        let output = std::process::Command::new(interpreter.executable())
            .args(["-I", "-c", "print(1)"])
            .output()
            .unwrap();
        times.push(started.elapsed());
        assert_eq!(output.stdout, b"1\n");
    }
    print_times("print(1), python3 -I -c without any sandbox", times);
}

#[test]
#[ignore = "measures; see the head of this file"]
fn many_cells_in_a_row() {
    let Some(sandbox) = start(Config { pool: 8, ..Config::new(support::profile()) }) else {
        return;
    };
    let memory = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let count = 2000;
    for round in 0..3 {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let asked = cell("print(1)");
                    for _ in 0..count / 2 {
                        assert_eq!(run(&sandbox, &asked).stdout.text, "1\n");
                    }
                });
            }
        });
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "round {round}: {:.0} cells/s, {} kB resident, {} descriptors",
            f64::from(count) / seconds,
            memory(),
            descriptors()
        );
    }
}
