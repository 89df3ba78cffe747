//! The sandbox: a zygote, a pool of workers that are ready, and the threads that keep it filled.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cell::{Cell, Invalid};
use crate::cgroup::{Cgroups, Layout};
use crate::control::Control;
use crate::launch::Identity;
use crate::limits::{PREPARING_MAX, WORKER_START_MAX, ZYGOTE_START_MAX, ZYGOTE_WORKERS_MAX};
use crate::outcome::Outcome;
use crate::run;
use crate::tier::Tier;
use crate::worker::{Remains, Spawned, Worker};
use crate::zygote::{Profile, StartError, Zygote};

/// Host user IDs that the sandbox takes for itself when it has privileges: no system hands them out.
pub const DEFAULT_USER_IDS: (u32, u32) = (1_879_100_000, 1_879_101_000);

/// How a sandbox is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// How cells are run.
    pub profile: Profile,
    /// Workers that are kept ready.
    pub pool: usize,
    /// The weakest isolation that is accepted. Nothing runs below it.
    pub minimum: Tier,
    /// The tier to use; the strongest that works without one.
    pub tier: Option<Tier>,
    /// Host user and group IDs for tier T1.
    pub user_ids: (u32, u32),
    /// Whether cgroups may be used.
    pub has_cgroups: bool,
    /// A folder for copies of artifacts; they are kept in memory without one.
    pub spool: Option<PathBuf>,
}

impl Config {
    /// Two workers in the pool, at least T2.
    pub fn new(profile: Profile) -> Self {
        Config {
            profile,
            pool: 2,
            minimum: Tier::T2,
            tier: None,
            user_ids: DEFAULT_USER_IDS,
            has_cgroups: true,
            spool: None,
        }
    }
}

/// Why a cell did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cell can never run as it is.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No worker could be started.
    #[error("no worker is available: {0}")]
    Unavailable(String),
    /// The operating system refused something while the cell was set up or watched.
    #[error("the sandbox failed: {0}")]
    Os(#[from] io::Error),
}

/// Runs cells. Everything that it started ends when it is dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    tier: Tier,
    spool: Option<PathBuf>,
    cleaner: Option<Sender<Remains>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    config: Config,
    identity: Identity,
    cgroups: Cgroups,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Worker>,
    /// Workers that confine themselves.
    preparing: usize,
    /// Callers that wait for a worker, beyond those that the pool keeps ready.
    waiting: usize,
    is_closing: bool,
    /// Why the last attempt to start a worker failed.
    failure: Option<String>,
    /// How many attempts have failed.
    failures: u64,
}

/// Which identities a tier has; `None` if the tier cannot run cells.
pub(crate) fn identity(tier: Tier, user_ids: (u32, u32)) -> Option<Identity> {
    match tier {
        Tier::T1 => Some(Identity::Two(user_ids.0, user_ids.1)),
        // A cell must never have the identity of root, however it is confined.
        Tier::T2 if is_root_of_the_host() => Some(Identity::Own(user_ids.0, user_ids.0)),
        Tier::T2 => {
            let user = rustix::process::geteuid().as_raw();
            let group = rustix::process::getegid().as_raw();
            Some(Identity::Own(user, group))
        }
        Tier::T3 | Tier::T4 | Tier::T5 => None,
    }
}

/// Whether this is root, and not the root of a user namespace that another process created.
fn is_root_of_the_host() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && root_outside(&map) == Some(0)
}

/// The user outside of the namespace that is root inside.
fn root_outside(map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        let (inside, outside) = (fields.next()?.ok()?, fields.next()?.ok()?);
        (inside == 0).then_some(outside)
    })
}

impl Sandbox {
    /// Starts a zygote and fills the pool. The strongest tier that works is used.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let tiers = match config.tier {
            Some(tier) => vec![tier],
            None if rustix::process::geteuid().is_root() => vec![Tier::T1, Tier::T2],
            None => vec![Tier::T2],
        };
        let mut reasons = Vec::new();
        for tier in tiers.into_iter().filter(|tier| *tier <= config.minimum) {
            match Self::start_at(config.clone(), tier) {
                Ok(sandbox) => return Ok(sandbox),
                Err(error) => reasons.push(format!("{tier}: {error}")),
            }
        }
        if reasons.is_empty() {
            reasons.push(format!("no tier is at least {}", config.minimum));
        }
        Err(StartError::Isolation(reasons.join("; ")))
    }

    fn start_at(config: Config, tier: Tier) -> Result<Self, StartError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(identity) = identity(tier, config.user_ids) else {
            return Err(StartError::Isolation(format!(
                "{tier} cannot run cells: {}",
                tier.about()
            )));
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("catena-{}-{number}", std::process::id());
        let cgroups = if config.has_cgroups {
            Cgroups::create(&Layout::detect(), &name)
        } else {
            Cgroups::none("not wanted")
        };
        let mut zygote = Zygote::start(&config.profile, identity)?;
        // The first worker shows whether everything works.
        let (cleaner, remains) = mpsc::channel::<Remains>();
        let mut first = zygote.spawn(&cgroups)?.prepare()?;
        first.cleaner = Some(cleaner.clone());
        let mut state = State::default();
        state.ready.push_back(first);
        let spool = config.spool.clone();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            config,
            identity,
            cgroups,
        });
        let cleaning = move || remains.into_iter().for_each(Remains::remove);
        let (spawned, unprepared) = mpsc::channel::<Spawned>();
        let unprepared = Arc::new(Mutex::new(unprepared));
        let filling = {
            let shared = Arc::clone(&shared);
            move || fill(&shared, zygote, &spawned)
        };
        let preparing = || -> Box<dyn FnOnce() + Send> {
            let (shared, cleaner) = (Arc::clone(&shared), cleaner.clone());
            let unprepared = Arc::clone(&unprepared);
            Box::new(move || prepare(&shared, &unprepared, &cleaner))
        };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(body)
        };
        let mut threads = vec![spawn("sandbox-pool", Box::new(filling))?];
        for _ in 0..PREPARING_MAX {
            threads.push(spawn("sandbox-ready", preparing())?);
        }
        threads.push(spawn("sandbox-cleaner", Box::new(cleaning))?);
        Ok(Sandbox { shared, threads, tier, spool, cleaner: Some(cleaner) })
    }

    /// The isolation under which cells run.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Workers that are ready.
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Waits until the pool is full, or the time is over.
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let pool = self.shared.config.pool;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, |state| state.ready.len() < pool);
        waited.unwrap_or_else(PoisonError::into_inner).0.ready.len() >= pool
    }

    /// What cgroups do here, and what is missing and why.
    pub fn cgroups(&self) -> (Vec<String>, Vec<String>) {
        self.shared.cgroups.describe()
    }

    /// Runs a cell and waits for its end. Any number of threads can do so at the same time.
    pub fn run(&self, cell: &Cell, control: &Control) -> Result<Outcome, RunError> {
        let inputs_bytes = cell.validate()?;
        let worker = self.take()?;
        let spool = self.spool.as_ref();
        let context = run::Context { tier: self.tier, spool, control, inputs_bytes };
        let outcome = run::run(worker, cell, &context);
        control.end();
        Ok(outcome?)
    }

    fn take(&self) -> Result<Worker, RunError> {
        let mut state = self.shared.lock();
        let failures = state.failures;
        state.waiting += 1;
        self.shared.changed.notify_all();
        let is_waiting = |state: &mut State| {
            state.ready.is_empty() && state.failures < failures + 3 && !state.is_closing
        };
        let timeout = ZYGOTE_START_MAX + WORKER_START_MAX;
        let mut state = loop {
            let waited = self.shared.changed.wait_timeout_while(state, timeout, is_waiting);
            let (mut guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            match guard.ready.pop_front() {
                Some(worker) if !worker.is_alive() => {
                    // One fewer than the pool believed to have.
                    self.shared.changed.notify_all();
                    state = guard;
                    drop(worker);
                }
                Some(worker) => {
                    guard.waiting -= 1;
                    self.shared.changed.notify_all();
                    return Ok(worker);
                }
                None => break guard,
            }
        };
        state.waiting -= 1;
        let reason = state.failure.clone().unwrap_or_else(|| "the sandbox is closing".to_owned());
        Err(RunError::Unavailable(reason))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let ready = {
            let mut state = self.shared.lock();
            state.is_closing = true;
            std::mem::take(&mut state.ready)
        };
        self.shared.changed.notify_all();
        drop(ready);
        self.cleaner = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a worker is wanted. False when the sandbox closes.
    fn wait_for_demand(&self) -> bool {
        let is_satisfied = |state: &mut State| {
            let coming = state.ready.len() + state.preparing;
            let is_enough = coming >= self.config.pool + state.waiting;
            !state.is_closing && (is_enough || state.preparing >= PREPARING_MAX)
        };
        let waited = self.changed.wait_while(self.lock(), is_satisfied);
        !waited.unwrap_or_else(PoisonError::into_inner).is_closing
    }

    fn note_failure(&self, error: &StartError) {
        let mut state = self.lock();
        state.failure = Some(error.to_string());
        state.failures += 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// Starts workers for the pool until the sandbox closes.
fn fill(shared: &Shared, zygote: Zygote, spawned: &Sender<Spawned>) {
    let mut zygote = Some(zygote);
    let mut failures = 0;
    while shared.wait_for_demand() {
        let has_failed = {
            let state = shared.lock();
            std::mem::replace(&mut failures, state.failures) != state.failures
        };
        if has_failed {
            // A worker that was not ready may be the fault of its zygote.
            zygote = None;
            crate::clock::pause(Duration::from_millis(50));
        }
        let is_old = |zygote: &Zygote| zygote.spawned >= ZYGOTE_WORKERS_MAX || !zygote.is_alive();
        if zygote.as_ref().is_none_or(is_old) {
            zygote = None;
            match Zygote::start(&shared.config.profile, shared.identity) {
                Ok(started) => zygote = Some(started),
                Err(error) => {
                    shared.note_failure(&error);
                    crate::clock::pause(Duration::from_millis(200));
                    continue;
                }
            }
        }
        let Some(living) = &mut zygote else { continue };
        match living.spawn(&shared.cgroups) {
            Ok(worker) => {
                shared.lock().preparing += 1;
                if spawned.send(worker).is_err() {
                    return;
                }
            }
            Err(error) => shared.note_failure(&error),
        }
    }
}

/// Waits for workers to be ready and puts them into the pool, until the sandbox closes. Several threads do
/// so, because a worker that enters its cgroups waits for the kernel most of the time.
fn prepare(shared: &Shared, spawned: &Mutex<Receiver<Spawned>>, cleaner: &Sender<Remains>) {
    loop {
        let next = spawned.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(spawned) = next else { return };
        let prepared = spawned.prepare();
        let mut state = shared.lock();
        state.preparing -= 1;
        match prepared {
            Ok(_) if state.is_closing => {}
            Ok(mut worker) => {
                worker.cleaner = Some(cleaner.clone());
                state.ready.push_back(worker);
            }
            Err(error) => {
                state.failure = Some(error.to_string());
                state.failures += 1;
            }
        }
        drop(state);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_container_is_somebody_else_outside() {
        assert_eq!(root_outside("         0          0 4294967295\n"), Some(0));
        assert_eq!(root_outside("0 1000 1\n1 100000 65536\n"), Some(1000));
        assert_eq!(root_outside("1000 1000 1\n"), None);
        assert_eq!(root_outside(""), None);
    }
}
