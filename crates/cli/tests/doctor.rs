//! `catena doctor` as a command: what it prints, and its exit code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::process::Command;

use catena_value::{NoCells, Value};
use support::{Ran, catena, field, value};

fn doctor(args: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    catena(folder.path(), &[&["doctor"], args].concat(), &[], b"")
}

fn tiers(found: &Value) -> Vec<Value> {
    field(found, "tiers").as_vector().unwrap().iter(&NoCells).flatten().collect()
}

fn has_reason(tier: &Value) -> bool {
    field(tier, "reason").as_str().is_some_and(|reason| !reason.is_empty())
}

#[test]
fn a_host_without_python_is_refused_with_the_reason() {
    let missing = ["--python", "/nonexistent/python3"];
    let ran = doctor(&missing);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("install Python 3"), "{ran:?}");
    let last = ran.stdout.lines().last().unwrap();
    assert_eq!(last, "Untrusted code is refused here: at least T2 is required.");
    let ran = doctor(&[&missing[..], &["--json"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    let found = value(&ran.stdout);
    assert_eq!(field(&found, "sufficient"), false.into(), "{ran:?}");
    assert_eq!(field(&found, "best"), Value::Nil, "{ran:?}");
    let tiers = tiers(&found);
    assert_eq!(tiers.len(), 5);
    assert!(tiers.iter().all(has_reason), "{ran:?}");
}

/// The tier is out of reach of a plain user who has no cgroups.
#[test]
fn a_minimum_that_cannot_be_met_is_refused_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        // Whether this user reaches it is not known.
        return;
    }
    let ran = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([env!("CARGO_BIN_EXE_catena"), "doctor", "--minimum", "T1", "--json"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{text}");
    let found = value(&text);
    assert_eq!(field(&found, "minimum"), "T1".into());
    assert_eq!(field(&found, "sufficient"), false.into(), "{text}");
    let tiers = tiers(&found);
    let first = tiers.first().unwrap();
    assert_eq!((field(first, "tier"), field(first, "works")), ("T1".into(), false.into()));
    assert!(has_reason(first), "{text}");
}

#[test]
fn a_host_that_meets_the_minimum_is_accepted() {
    let ran = doctor(&["--json"]);
    let found = value(&ran.stdout);
    assert_eq!(field(&found, "sufficient"), true.into(), "the other tests need a sandbox: {ran:?}");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(field(&found, "minimum"), "T2".into());
}
