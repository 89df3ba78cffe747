//! Nothing is left: no process, cgroup, mount, folder, file or descriptor. One test, because it counts what
//! belongs to the whole process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use catena_sandbox::{Config, Control, Sandbox};
use support::{cell, run, skip, start, verdict};

/// Processes whose parent is this one.
fn children() -> Vec<String> {
    let me = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some(after) = text.rfind(')').map(|at| &text[at + 2..]) else { continue };
        if after.split(' ').nth(1).and_then(|parent| parent.parse().ok()) == Some(me) {
            found.push(text);
        }
    }
    found
}

/// Cgroups that this process made, in every hierarchy.
fn cgroups() -> Vec<PathBuf> {
    let name = format!("catena-{}-", std::process::id());
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&name) {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

/// Cells that end in every way there is.
fn use_it(sandbox: &Sandbox) {
    for source in [
        "print(1)",
        "1 / 0",
        "import os; os.abort()",
        "import socket; socket.socket()",
        "open('a.txt', 'w').write('x')",
        "import os\nos.makedirs('a/b')\nopen('a/b/c.json', 'w').write('{}')\nopen('/tmp/x', 'w').close()",
        "import os, time\nfor n in range(5):\n    if os.fork() == 0: os.setsid(); time.sleep(100)",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "x = bytearray(1 << 34)",
    ] {
        let mut asked = cell(source);
        asked.limits.timeout_ms = 700;
        run(sandbox, &asked);
    }
    // Cancelled while it runs, and while it is paused.
    let asked = cell("while True: pass");
    for pause in [false, true] {
        let control = Control::new().unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
            if pause {
                control.pause();
                assert!(control.wait_paused(true, std::time::Duration::from_secs(60)));
            }
            control.cancel();
            assert_eq!(verdict(&running.join().unwrap()), "cancelled");
        });
    }
}

/// Names the folder of the process that runs the cells.
const FOLDER: &str = "CATENA_TEST_FOLDER";

/// The folders of that process: where it is, for temporary files, and for copies of artifacts.
const FOLDERS: [&str; 3] = ["here", "spool", "temporary"];

/// Everything in a folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            found.push(entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Runs the test in a process whose folders nobody else uses.
fn run_in_own_folders() {
    let folder = tempfile::tempdir().unwrap();
    FOLDERS.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_is_left_behind", "--nocapture"])
        .env(FOLDER, folder.path())
        .env("TMPDIR", folder.path().join("temporary"))
        .current_dir(folder.path().join("here"))
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success(), "something is left; see above");
    let expected: Vec<PathBuf> = FOLDERS.iter().map(|name| folder.path().join(name)).collect();
    assert_eq!(entries(folder.path()), expected);
}

#[test]
fn nothing_is_left_behind() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return run_in_own_folders();
    };
    let empty = entries(&folder);
    let spool = Some(folder.join("spool"));
    let mut has_run = false;
    for (tier, has_cgroups) in [(support::T1, true), (support::T2, true), (support::T2, false)] {
        if tier == support::T1 && !support::is_root() {
            skip("T1: needs root");
            continue;
        }
        let (fds, mounted) = (descriptors(), mounts());
        let profile = support::profile();
        let tier_wanted = Some(tier);
        let spool = spool.clone();
        let config =
            Config { pool: 2, tier: tier_wanted, has_cgroups, spool, ..Config::new(profile) };
        let Some(sandbox) = start(config) else { continue };
        has_run = true;
        let cgroups_used = if has_cgroups { "with cgroups" } else { "without cgroups" };
        support::ran(&format!("cells at {tier}, {cgroups_used}"));
        use_it(&sandbox);
        assert_eq!(entries(&folder), empty, "while the sandbox waits for cells");
        drop(sandbox);
        assert_eq!(children(), Vec::<String>::new(), "{tier} {has_cgroups}");
        assert_eq!(cgroups(), Vec::<PathBuf>::new(), "{tier} {has_cgroups}");
        assert_eq!(descriptors(), fds, "{tier} {has_cgroups}");
        assert_eq!(mounts(), mounted);
        assert_eq!(entries(&folder), empty, "{tier} {has_cgroups}");
    }
    assert!(has_run, "neither T1 nor T2 works on this machine");
}
