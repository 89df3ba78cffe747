//! Ordinary cells: what people write every day must work as in any Python.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{cell, check, run, sandbox, verdict};

#[test]
fn a_cell_prints() {
    let Some(sandbox) = sandbox() else { return };
    let outcome = check(&sandbox, "print(1)", "ok");
    assert_eq!(outcome.stdout.text, "1\n");
    assert_eq!(outcome.stderr.text, "");
    assert!(outcome.artifacts.is_empty() && outcome.refused.is_empty());
}
