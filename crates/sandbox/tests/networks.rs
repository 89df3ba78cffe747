//! Workers use network namespaces one after the other, and never share one.
//!
//! Without the harness of other tests, because this binary is also executed as the child side of native cells.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::disallowed_methods, reason = "a cell that takes some time")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use catena_sandbox::native::{self, Program, ProgramError};
use catena_sandbox::{Cell, Config, Interpreter, Profile, Sandbox, Tier};
use support::{cell, is_root, ran, run, skip, start, verdict};

/// A program that does nothing, for as long as the cell says.
struct Sleeper;

impl Program for Sleeper {
    fn warm(&self) {}

    fn rehearse(&self) {}

    fn run(&self, parameters: &serde_json::Value) -> Result<String, ProgramError> {
        let pause = parameters["ms"].as_u64().unwrap_or(0);
        std::thread::sleep(Duration::from_millis(pause));
        Ok("null".to_owned())
    }
}

/// A cell of either kind that takes this long.
fn sleeping(ms: u64) -> Cell {
    let mut cell = cell("import time\ndef main(ms):\n    time.sleep(ms / 1000)\n");
    cell.entrypoint = catena_sandbox::Entrypoint::Required("main".to_owned());
    cell.parameters = format!(r#"{{"ms":{ms}}}"#);
    cell
}

/// The network namespaces of all workers that live now: of each init process, and of the processes below it. `None`
/// if the host does not show them.
fn living() -> Option<BTreeMap<u32, BTreeSet<String>>> {
    let mut parents = BTreeMap::new();
    let mut inits = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (Some(open), Some(close)) = (text.find('('), text.rfind(')')) else { continue };
        let Some(Ok(parent)) = text[close + 2..].split(' ').nth(1).map(str::parse) else {
            continue;
        };
        parents.insert(pid, parent);
        if parent == std::process::id() && &text[open + 1..close] == "cell-init" {
            inits.insert(pid);
        }
    }
    let mut found = BTreeMap::new();
    for (pid, parent) in &parents {
        let Some(init) = inits.get(pid).or(inits.get(parent)) else { continue };
        match fs::read_link(format!("/proc/{pid}/ns/net")) {
            Ok(link) => {
                let links: &mut BTreeSet<String> = found.entry(*init).or_default();
                links.insert(link.display().to_string());
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
            // It has just ended.
            Err(_) => {}
        }
    }
    Some(found)
}

/// Compares the namespaces of all living workers, and returns them. `None` if the host does not show them.
fn check_living() -> Option<BTreeSet<String>> {
    let own = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let mut all = BTreeSet::from([own.clone()]);
    let living = living()?;
    for (init, links) in &living {
        assert_eq!(links.len(), 1, "one namespace for a whole worker: {init}, {living:?}");
        assert!(links.iter().all(|link| all.insert(link.clone())), "{own}: {living:?}");
    }
    all.remove(&own);
    Some(all)
}

fn check(sandbox: &Sandbox) -> Option<()> {
    const CELLS: usize = 40;
    assert!(sandbox.wait_ready(Duration::from_secs(60)));
    assert!(check_living()?.len() >= 3, "workers of the pool live at the same time");
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        // One worker keeps its namespace while the others come and go.
        let long = scope.spawn(|| run(sandbox, &sleeping(1500)));
        for _ in 0..CELLS {
            assert_eq!(verdict(&run(sandbox, &sleeping(1))), "ok");
            seen.extend(check_living()?);
        }
        assert_eq!(verdict(&long.join().unwrap()), "ok");
        Some(())
    })?;
    assert!(seen.len() < CELLS / 2, "namespaces are used again: {seen:?}");
    Some(())
}

fn main() {
    if native::is_child() {
        native::serve(&Sleeper).unwrap();
        return;
    }
    let this = Interpreter::this_binary().unwrap();
    let native = Profile { name: "native".to_owned(), interpreter: this, ..support::profile() };
    let tiers = [Tier::T1, Tier::T2].into_iter().filter(|tier| is_root() || *tier == Tier::T2);
    for tier in tiers {
        for profile in [support::profile(), native.clone()] {
            let name = format!("network namespaces of {} cells at {tier}", profile.name);
            let config = Config { pool: 3, tier: Some(tier), ..Config::new(profile) };
            let Some(sandbox) = start(config) else { continue };
            match check(&sandbox) {
                Some(()) => ran(&name),
                None => skip(&format!("{name}: this user cannot see them")),
            }
        }
    }
}
