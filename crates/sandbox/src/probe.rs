//! Finds out what this host allows, by doing it.

use std::path::PathBuf;
use std::time::Duration;

use crate::cell::Cell;
use crate::cgroup::{Cgroups, Layout};
use crate::control::Control;
use crate::interpreter::{Interpreter, InterpreterError};
use crate::outcome::Verdict;
use crate::sandbox::{Config, Sandbox};
use crate::sys;
use crate::tier::Tier;
use crate::zygote::{self, Profile};

/// What a host allows.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Every tier, strongest first.
    pub tiers: Vec<TierProbe>,
    /// Single features.
    pub features: Vec<Feature>,
    /// The weakest tier that is accepted.
    pub minimum: Tier,
}

/// Whether a tier works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierProbe {
    /// Which one.
    pub tier: Tier,
    /// Whether a cell was run under it and printed what it should.
    pub works: bool,
    /// What was seen, or why it does not work.
    pub reason: String,
}

/// Whether a feature works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether it works.
    pub works: bool,
    /// What was seen, or why it does not work.
    pub reason: String,
}

impl Probe {
    /// The strongest tier that works.
    pub fn best(&self) -> Option<Tier> {
        self.tiers.iter().find(|tier| tier.works).map(|tier| tier.tier)
    }

    /// Whether cells can run at the minimum tier or above it.
    pub fn is_sufficient(&self) -> bool {
        self.best().is_some_and(|tier| tier <= self.minimum)
    }
}

/// Tries every tier by running a cell under it, with the first usable interpreter among the paths.
pub fn probe(interpreters: &[PathBuf], minimum: Tier) -> Probe {
    let interpreter = Interpreter::first_of(interpreters);
    let mut features = vec![python(&interpreter)];
    features.extend(kernel_features());
    let tiers = Tier::ALL
        .into_iter()
        .map(|tier| match &interpreter {
            Ok(interpreter) => probe_tier(tier, interpreter),
            Err(error) => TierProbe { tier, works: false, reason: error.to_string() },
        })
        .collect();
    Probe { tiers, features, minimum }
}

fn probe_tier(tier: Tier, interpreter: &Interpreter) -> TierProbe {
    let (works, reason) = match tier {
        Tier::T1 if !rustix::process::geteuid().is_root() => {
            (false, "needs root (CAP_SYS_ADMIN and CAP_SETUID)".to_owned())
        }
        Tier::T1 | Tier::T2 => match run_a_cell(tier, interpreter) {
            Ok(seen) => (true, seen),
            Err(reason) => (false, reason),
        },
        Tier::T3 => (false, "not implemented: cells are not run without namespaces".to_owned()),
        Tier::T4 => (false, "not implemented: no WebAssembly interpreter is built in".to_owned()),
        Tier::T5 => (false, "never: cells are not run without isolation".to_owned()),
    };
    TierProbe { tier, works, reason }
}

fn run_a_cell(tier: Tier, interpreter: &Interpreter) -> Result<String, String> {
    let profile = Profile {
        name: "probe".to_owned(),
        interpreter: interpreter.clone(),
        has_site: false,
        packages: None,
        preload: Vec::new(),
    };
    let config = Config { pool: 1, tier: Some(tier), minimum: tier, ..Config::new(profile) };
    let prefix = format!("{tier}: ");
    let sandbox = Sandbox::start(config)
        .map_err(|error| error.to_string().trim_start_matches(&prefix).to_owned())?;
    let control = Control::new().map_err(|error| error.to_string())?;
    let mut cell = Cell::new("print(6 * 7)");
    cell.limits.timeout_ms = Duration::from_secs(20).as_millis() as u64;
    let outcome = sandbox.run(&cell, &control).map_err(|error| error.to_string())?;
    match (&outcome.verdict, outcome.stdout.text.as_str()) {
        (Verdict::Succeeded, "42\n") => {
            let (works, missing) = sandbox.cgroups();
            let works = if works.is_empty() {
                "none, polling instead".to_owned()
            } else {
                works.join(", ")
            };
            let missing = match missing.as_slice() {
                [] => String::new(),
                reasons => format!(" (missing: {})", reasons.join("; ")),
            };
            Ok(format!("a cell ran; cgroups: {works}{missing}"))
        }
        other => Err(format!("a cell did not run as it should: {other:?}")),
    }
}

fn python(interpreter: &Result<Interpreter, InterpreterError>) -> Feature {
    let (works, reason) = match interpreter {
        Ok(found) => {
            let missing = zygote::missing_entries(&found.root());
            let path = found.executable().display();
            match missing.as_slice() {
                [] => (true, format!("Python {} at {path}", found.version())),
                some => (false, format!("not found on this host: {}", some.join(", "))),
            }
        }
        Err(error) => (false, format!("{error}; install Python 3.9 or newer")),
    };
    Feature { name: "python", works, reason }
}

fn kernel_features() -> Vec<Feature> {
    const USER_NOTIF: u32 = 0x7fc0_0000;
    let seccomp = match sys::check_seccomp_action(USER_NOTIF) {
        Ok(()) => (true, "filters with user notification".to_owned()),
        Err(error) => (false, format!("no user notification: {error}")),
    };
    let landlock = match sys::landlock_abi() {
        Ok(abi) => (true, format!("ABI {abi}")),
        Err(error) => (false, format!("not available: {error}")),
    };
    let cgroups =
        Cgroups::create(&Layout::detect(), &format!("catena-probe-{}", std::process::id()));
    let (works, missing) = cgroups.describe();
    let reason = [works.join(", "), missing.join("; ")];
    let reason: Vec<_> = reason.into_iter().filter(|part| !part.is_empty()).collect();
    let cgroups = (!works.is_empty(), reason.join("; missing: "));
    let userns = user_namespaces();
    [
        ("user namespaces", userns),
        ("seccomp", seccomp),
        ("landlock", landlock),
        ("cgroups", cgroups),
    ]
    .into_iter()
    .map(|(name, (works, reason))| Feature { name, works, reason })
    .collect()
}

/// What the settings of the kernel say. Whether it really works is shown by the tiers.
fn user_namespaces() -> (bool, String) {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let most = read("/proc/sys/user/max_user_namespaces");
    if most.as_deref() == Some("0") {
        return (false, "user.max_user_namespaces is 0".to_owned());
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return (false, "kernel.unprivileged_userns_clone is 0".to_owned());
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return (false, "kernel.apparmor_restrict_unprivileged_userns is 1".to_owned());
    }
    match most {
        Some(most) => (true, format!("at most {most}")),
        None => (false, "the kernel has none".to_owned()),
    }
}
