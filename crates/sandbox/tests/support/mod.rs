//! What the tests of the sandbox share: one sandbox per test binary's tier, and short checks.
#![allow(dead_code, clippy::panic, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::io::Write as _;
use std::path::PathBuf;

use catena_sandbox::{
    Cell, Config, Control, Interpreter, Outcome, Profile, Sandbox, Tier, USUAL_PATHS, Verdict,
};

/// The interpreter for tests: the one that `CATENA_SANDBOX_PYTHON` names, else one that every user
/// can read.
pub(crate) fn interpreter() -> Interpreter {
    let named = std::env::var_os("CATENA_SANDBOX_PYTHON").map(PathBuf::from);
    let usual = USUAL_PATHS.iter().map(PathBuf::from);
    let paths: Vec<PathBuf> = named.into_iter().chain(usual).collect();
    Interpreter::first_of(&paths).expect("the tests need Python 3.9 or newer")
}

pub(crate) fn profile() -> Profile {
    let preload = Vec::new();
    let name = "bare".to_owned();
    Profile { name, interpreter: interpreter(), has_site: false, packages: None, preload }
}

/// A sandbox, or `None` with the reason on stderr where the host does not allow the tier.
pub(crate) fn start(config: Config) -> Option<Sandbox> {
    let tier = config.tier;
    match Sandbox::start(config) {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            let tier = tier.map_or("any tier".to_owned(), |tier| tier.to_string());
            skip(&format!("{tier}: {error}"));
            None
        }
    }
}

/// Says why something was not tested, past the test harness, which would hide it.
pub(crate) fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Says what was tested, past the test harness.
pub(crate) fn ran(what: &str) {
    let _ = writeln!(std::io::stderr(), "RAN: {what}");
}

/// The strongest tier of this user.
pub(crate) fn sandbox() -> Option<Sandbox> {
    start(Config { pool: 1, ..Config::new(profile()) })
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn run(sandbox: &Sandbox, cell: &Cell) -> Outcome {
    sandbox.run(cell, &Control::new().unwrap()).unwrap()
}

pub(crate) fn cell(source: &str) -> Cell {
    let mut cell = Cell::new(source);
    cell.limits.timeout_ms = 20_000;
    cell.limits.cpu_ms = 10_000;
    cell
}

/// `ok`, `cancelled`, or category and code.
pub(crate) fn verdict(outcome: &Outcome) -> String {
    match &outcome.verdict {
        Verdict::Succeeded => "ok".to_owned(),
        Verdict::Cancelled => "cancelled".to_owned(),
        Verdict::Failed(failure) => format!("{} {}", failure.category.as_str(), failure.code),
    }
}

/// How often a source is run whose verdict is compared: it must not depend on luck.
const REPEATS: usize = 3;

/// Runs a source several times and compares the verdicts. Returns the last outcome.
pub(crate) fn check(sandbox: &Sandbox, source: &str, expected: &str) -> Outcome {
    for _ in 1..REPEATS {
        check_once(sandbox, source, expected);
    }
    check_once(sandbox, source, expected)
}

fn check_once(sandbox: &Sandbox, source: &str, expected: &str) -> Outcome {
    let outcome = run(sandbox, &cell(source));
    assert_eq!(verdict(&outcome), expected, "{source}\n{outcome:#?}");
    outcome
}

pub(crate) const T1: Tier = Tier::T1;
pub(crate) const T2: Tier = Tier::T2;
