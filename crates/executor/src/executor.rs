//! The process of an executor: announcing, claiming, and draining.

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catena_api::worker::{Handler, RunningJob, Worker};
use catena_api::{ClientError, HttpClient, TransportError};
use catena_sandbox::{Probe, Tier, TierProbe};
use catena_value::{Map, NoCells, Value, Vector};
use rustix::fs::{Mode, OFlags};
use tokio::sync::watch;

use crate::environment::{Environment, Setup};
use crate::install::{Installed, RECIPES};
use crate::job;
use crate::json::object;
use crate::limits::{ANNOUNCE_INTERVAL, ANNOUNCE_RETRY_DELAY, PACKAGES_POOL_MAX};

/// The queue of jobs that can run in any version of the default environment.
const DEFAULT_QUEUE: &str = "exec.default";

/// How an executor is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name: unique, and new with every start.
    pub name: String,
    /// Cells that run at a time.
    pub slots: usize,
    /// Where to look for a Python interpreter.
    pub interpreters: Vec<PathBuf>,
    /// The folder of environments that were installed.
    pub environments: Option<PathBuf>,
    /// The folder for data and files of running jobs. Files in it have no names.
    pub spool: PathBuf,
    /// The weakest isolation that is accepted.
    pub minimum: Tier,
    /// Whether it renders, too. This binary must then call [`crate::serve_child`] first of all.
    pub renders: bool,
    /// How long running jobs may take when the executor is to stop.
    pub grace: Duration,
    /// How long a paused cell is kept. Then its job is given back, and its resume follows the recovery rule.
    pub pause_max: Duration,
}

/// An executor that has found out what it can do.
pub struct Executor {
    client: HttpClient,
    options: Options,
    environments: Vec<Environment>,
    /// Why the interpreter alone does not start. Other environments may.
    unavailable: Option<String>,
    /// Environments that do not start, with the reasons.
    problems: Vec<String>,
    /// The folder of files that belong to one job, if it can be used.
    spool: Option<PathBuf>,
}

/// What the jobs of an executor share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) environments: Vec<Environment>,
    /// The folder of files that belong to one job; they are in memory without one.
    spool: Option<PathBuf>,
    /// How long a paused cell is kept.
    pub(crate) pause_max: Duration,
}

impl Shared {
    /// An empty file without a name, which is gone when it is closed.
    pub(crate) fn spool_file(&self) -> std::io::Result<File> {
        unnamed_file(self.spool.as_deref())
    }
}

fn unnamed_file(folder: Option<&Path>) -> std::io::Result<File> {
    let Some(folder) = folder else {
        let memory = rustix::fs::memfd_create("spool", rustix::fs::MemfdFlags::CLOEXEC)?;
        return Ok(File::from(memory));
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?))
}

impl Executor {
    /// Starts the environments that work on this host. Blocks while interpreters start.
    pub fn start(client: HttpClient, options: Options) -> Executor {
        let pool = options.slots.max(2);
        let spool = Some(options.spool.clone());
        let spool = spool.filter(|folder| match unnamed_file(Some(folder)) {
            Ok(_) => true,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "files of jobs are kept in memory");
                false
            }
        });
        let setup = Setup { pool, minimum: options.minimum, spool: spool.clone() };
        let (bare, (mut others, mut problems), rendering) = std::thread::scope(|scope| {
            let others = scope.spawn(|| installed_environments(&options, spool.as_deref()));
            let rendering = scope.spawn(|| rendering_environment(&options, &setup));
            let bare = Environment::bare(&options.interpreters, &setup);
            (bare, others.join().unwrap_or_default(), rendering.join().unwrap_or_default())
        });
        match rendering {
            Some(Ok(environment)) => others.push(environment),
            Some(Err(reason)) => problems.push(format!("render: {reason}")),
            None => {}
        }
        let (mut environments, unavailable) = match bare {
            Ok(environment) => (vec![environment], None),
            Err(reason) => {
                problems.insert(0, format!("bare: {reason}"));
                (Vec::new(), Some(reason))
            }
        };
        environments.extend(others);
        Executor { client, options, environments, unavailable, problems, spool }
    }

    /// Returns the versions of the environments, or why there is none.
    pub fn versions(&self) -> Result<Vec<String>, String> {
        match &self.unavailable {
            Some(reason) if self.environments.is_empty() => Err(reason.clone()),
            _ => Ok(self.environments.iter().map(|known| known.version.clone()).collect()),
        }
    }

    /// Returns which environments do not start, and why.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Announces itself and runs jobs until `shutdown` completes, then finishes or gives back those
    /// that run. Fails if the venue refuses the executor.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ClientError<TransportError>> {
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(async move {
            shutdown.await;
            stop.send_replace(true);
        });
        let announcement = self.announcement();
        let Executor { client, options, environments, spool, .. } = self;
        if !announce(&client, &announcement, stopping.clone()).await? {
            return Ok(());
        }
        let probed = {
            let (interpreters, minimum) = (options.interpreters.clone(), options.minimum);
            move || catena_sandbox::probe(&interpreters, minimum)
        };
        let announcing = tokio::spawn(announce_again(client.clone(), announcement, probed));
        let stopped = {
            let mut stopping = stopping;
            async move {
                let _ = stopping.wait_for(|stops| *stops).await;
            }
        };
        let queues = queues(&environments);
        let result = if queues.is_empty() {
            stopped.await;
            Ok(())
        } else {
            let tier = environments.first().map_or("", |known| known.sandbox.tier().as_str());
            let about = object([("tier", tier.into())]);
            let worker = Worker {
                client,
                name: options.name.clone(),
                queues,
                parallel: options.slots,
                grace: options.grace,
                about: Some(about),
            };
            let Options { name, pause_max, .. } = options;
            let shared = Arc::new(Shared { name, environments, spool, pause_max });
            worker.run(Cells(shared), stopped).await
        };
        announcing.abort();
        result
    }

    fn announcement(&self) -> Map {
        let environment = |known: &Environment| {
            let types: Vector = known.job_types().into_iter().map(Value::from).collect();
            object([
                ("version", known.version.as_str().into()),
                ("profile", known.profile.into()),
                ("job_types", types.into()),
            ])
        };
        let environments: Vector = self.environments.iter().map(environment).collect();
        let slots = i64::try_from(self.options.slots).unwrap_or(i64::MAX);
        let mut members = vec![
            ("worker", Value::from(self.options.name.as_str())),
            ("slots", slots.into()),
            ("environments", environments.into()),
        ];
        let tier = self.environments.first().map(|known| known.sandbox.tier().as_str());
        members.extend(tier.map(|tier| ("tier", tier.into())));
        members.extend(self.unavailable.as_deref().map(|why| ("unavailable", why.into())));
        members.into_iter().collect()
    }
}

/// The announcement with what was found out about each tier.
fn with_tiers(announcement: &Map, probe: &Probe) -> Map {
    let tier = |probed: &TierProbe| {
        object([
            ("tier", probed.tier.as_str().into()),
            ("available", probed.works.into()),
            ("reason", probed.reason.as_str().into()),
        ])
    };
    let tiers: Vector = probe.tiers.iter().map(tier).collect();
    // All of it is in memory, so nothing has to be loaded.
    let added = announcement.insert("tiers".into(), tiers.into(), &NoCells);
    added.unwrap_or_else(|_| announcement.clone())
}

/// Starts the environment that renders, if there is one in this binary.
#[cfg(feature = "render")]
fn rendering_environment(options: &Options, setup: &Setup) -> Option<Result<Environment, String>> {
    options.renders.then(|| crate::render::start(setup))
}

#[cfg(not(feature = "render"))]
fn rendering_environment(_: &Options, _: &Setup) -> Option<Result<Environment, String>> {
    None
}

/// Starts the environments with packages that were installed. Those that do not
/// start are left out; the reasons are returned, too.
fn installed_environments(
    options: &Options,
    spool: Option<&Path>,
) -> (Vec<Environment>, Vec<String>) {
    let mut problems = Vec::new();
    let Some(folder) = &options.environments else { return (Vec::new(), problems) };
    let setup = Setup {
        pool: options.slots.min(PACKAGES_POOL_MAX),
        minimum: options.minimum,
        spool: spool.map(Path::to_owned),
    };
    let mut started = Vec::new();
    for recipe in RECIPES {
        let environment = match Installed::find(recipe, folder) {
            Ok(None) => continue,
            Ok(Some(found)) => Environment::installed(&found, &setup),
            Err(reason) => Err(reason),
        };
        match environment {
            Ok(environment) => started.push(environment),
            Err(reason) => problems.push(format!("{}: {reason}", recipe.profile)),
        }
    }
    (started, problems)
}

/// Runs each job as a cell.
struct Cells(Arc<Shared>);

impl Handler for Cells {
    fn run(&self, job: RunningJob) -> impl Future<Output = catena_api::client::worker::End> + Send {
        job::run(Arc::clone(&self.0), job)
    }

    fn freezes(&self) -> bool {
        true
    }
}

/// The queues from which jobs for these environments are claimed.
fn queues(environments: &[Environment]) -> Vec<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '.' };
    let name = |known: &Environment| {
        format!("exec.{}", known.version.chars().map(plain).collect::<String>())
    };
    let mut queues: Vec<String> = environments.iter().map(name).collect();
    if environments.iter().any(|known| known.profile == "bare") {
        queues.push(DEFAULT_QUEUE.to_owned());
    }
    queues
}

/// Announces until the venue has heard it. Returns false if the executor is to stop.
async fn announce(
    client: &HttpClient,
    announcement: &Map,
    mut stopping: watch::Receiver<bool>,
) -> Result<bool, ClientError<TransportError>> {
    loop {
        match client.announce(&announcement.clone().into()).await {
            Ok(()) => return Ok(true),
            Err(error) if !error.is_transient() => return Err(error),
            Err(_) => {}
        }
        tokio::select! {
            _ = stopping.wait_for(|stops| *stops) => return Ok(false),
            () = tokio::time::sleep(ANNOUNCE_RETRY_DELAY) => {}
        }
    }
}

/// Announces what is known about the tiers as soon as they were tried, and repeats the announcement, for
/// a venue that was restarted.
async fn announce_again(
    client: HttpClient,
    announcement: Map,
    probed: impl FnOnce() -> Probe + Send + 'static,
) {
    let announcement = match tokio::task::spawn_blocking(probed).await {
        Ok(probe) => with_tiers(&announcement, &probe),
        Err(_) => announcement,
    };
    let announcement = Value::from(announcement);
    loop {
        if let Err(error) = client.announce(&announcement).await {
            tracing::warn!(%error, "the venue did not take the announcement");
        }
        tokio::time::sleep(ANNOUNCE_INTERVAL).await;
    }
}
