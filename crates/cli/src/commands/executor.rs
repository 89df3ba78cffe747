//! `catena executor`: runs jobs of a venue in a sandbox, and the executors that `catena serve` starts.

use std::ffi::OsStr;
use std::io::{BufRead as _, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use catena_api::{Credentials, HttpClient};
use catena_auth::Venue;
use catena_auth::identity::Grant;
use catena_executor::limits::SLOTS_MAX;
use catena_executor::{Executor, Options};
use catena_sandbox::{Tier, USUAL_PATHS};
use catena_server::Config;
use catena_server::config::LogFormat;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use crate::commands::doctor::parse_tier;
use crate::commands::env;
use crate::exit::Exit;
use crate::limits::TOKEN_BYTES_MAX;
use crate::output::{Failure, Output};
use crate::venue::{DEFAULT, parse};
use crate::watch::seconds;

/// The queues from which executors claim.
pub(crate) const QUEUES: &str = "exec.*";

/// How long an executor that ended is left alone at first. It doubles with every end in a row.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// The longest time that an executor is left alone.
const RESTART_DELAY_LONGEST: Duration = Duration::from_secs(30);

/// An executor that lived longer than this was fine.
const FINE_AFTER: Duration = Duration::from_secs(60);

/// How long an executor started by `catena serve` may finish its jobs when the venue stops.
const CHILD_GRACE: &str = "2";

/// The environment variables that an executor started by `catena serve` inherits.
const INHERITED: [&str; 6] =
    ["PATH", "HOME", "XDG_DATA_HOME", "CATENA_ENVIRONMENTS", "TMPDIR", "LANG"];

/// Run jobs of a venue in a sandbox.
///
/// Claims jobs that run code, runs each in a sandbox of its own, and sends back the result. It needs a
/// token that `catena token create --executor` created. `catena doctor` shows what the sandbox needs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// URL of the venue.
    #[arg(long, env = "CATENA_VENUE", default_value = DEFAULT, value_name = "URL")]
    venue: String,

    /// The file with the token; `-` reads it from the first line of the standard input, and ends the
    /// executor when the standard input ends.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,

    /// The DID that the venue must have.
    #[arg(long, value_name = "DID")]
    venue_did: Option<String>,

    /// How many cells to run at a time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SLOTS_MAX as u64))]
    slots: Option<u64>,

    /// The Python interpreter; the first `python3` that can be used by default.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// The folder of environments [default: catena/environments in the user's data folder]
    #[arg(long, env = "CATENA_ENVIRONMENTS", value_name = "DIR")]
    environments: Option<PathBuf>,

    /// The folder for data and files of running jobs [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,

    /// A file with the certificate of the venue, which is then the only one that is trusted.
    #[arg(long, value_name = "FILE")]
    venue_certificate: Option<PathBuf>,

    /// The weakest isolation that is accepted.
    #[arg(long, value_name = "TIER", default_value = "T2", value_parser = parse_tier)]
    minimum: Tier,

    /// How long running jobs may take to end on SIGTERM. Then they are given back.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    grace: Duration,

    /// How long a paused cell is kept. Then its job is given back, and runs again when it is resumed.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    pause_max: Duration,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let is_child = args.token_file == Path::new("-");
    let token = read_token(&args.token_file)?;
    if is_child {
        end_with_standard_input();
    }
    let started = catena_server::log::start(LogFormat::Text, "info");
    started.map_err(|error| Failure::new(Exit::Invalid, "config_invalid", error))?;
    let (venue, credentials) = (parse(&args.venue)?, Credentials::Token(token));
    let client = match &args.venue_certificate {
        None => HttpClient::connect(venue, credentials),
        Some(file) => HttpClient::connect_pinned(venue, credentials, file.clone()),
    };
    let client = client.with_expected_did(args.venue_did.clone());
    let options = Options {
        name: executor_name()?,
        slots: slots(args.slots),
        interpreters: interpreters(args.python.as_ref()),
        environments: env::folder(args.environments.as_ref()).ok(),
        spool: args.spool.clone().unwrap_or_else(std::env::temp_dir),
        minimum: args.minimum,
        renders: true,
        grace: args.grace,
        pause_max: args.pause_max,
    };
    let name = options.name.clone();
    let executor = Executor::start(client, options);
    for problem in executor.problems() {
        output.note(&format!("executor {name} does not have {problem}"));
    }
    match executor.versions() {
        Ok(versions) => output.note(&format!("executor {name} has {}", versions.join(", "))),
        Err(_) => output.note(&format!("executor {name} can run nothing")),
    }
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Invalid, "runtime_failed", format!("could not start: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed)?;
    let done = runtime.block_on(async {
        let stop = super::serve::stop_signal().map_err(failed)?;
        executor.run(stop).await.map_err(Failure::from)
    });
    runtime.shutdown_background();
    done
}

fn slots(stated: Option<u64>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    stated.map_or(processors, |slots| usize::try_from(slots).unwrap_or(1)).min(SLOTS_MAX)
}

/// Where to look: what was named, else the search path and then the usual places.
pub(crate) fn interpreters(stated: Option<&PathBuf>) -> Vec<PathBuf> {
    if let Some(python) = stated {
        return vec![python.clone()];
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).map(|folder| folder.join("python3"));
    found.chain(USUAL_PATHS.iter().map(PathBuf::from)).collect()
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        let text = format!("could not read the token from {}: {error}", file.display());
        Failure::new(Exit::Invalid, "token_unreadable", text)
    };
    let text = if file == Path::new("-") {
        let mut line = String::new();
        std::io::stdin().lock().take(TOKEN_BYTES_MAX).read_line(&mut line).map_err(unreadable)?;
        line
    } else {
        std::fs::read_to_string(file).map_err(unreadable)?
    };
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::new(Exit::Invalid, "token_unreadable", "the token is empty"));
    }
    Ok(token.to_owned())
}

/// Ends the process when its standard input ends: whoever started it has died. Everything in the sandbox
/// ends with the process.
#[expect(clippy::disallowed_methods, reason = "nobody is left who could wait for destructors")]
fn end_with_standard_input() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        // Nothing more is expected; an error is an end, too.
        let _ = std::io::stdin().lock().take(1).read_to_end(&mut rest);
        std::process::exit(0);
    });
}

fn executor_name() -> Result<String, Failure> {
    let number = getrandom::u64().map_err(|error| {
        let text = format!("could not get random numbers: {error}");
        Failure::new(Exit::Invalid, "no_randomness", text)
    })?;
    Ok(format!("executor-{number:016x}"))
}

/// The executors that `catena serve` starts.
pub(crate) struct Executors {
    command: ChildCommand,
    count: usize,
}

#[derive(Clone)]
struct ChildCommand {
    program: PathBuf,
    url: String,
    did: String,
    token: String,
    environments: Option<PathBuf>,
    certificate: Option<PathBuf>,
}

impl Executors {
    /// Prepares executors of a venue that listens on this address. `None` if it has none; the reason is
    /// logged if one was expected.
    pub(crate) fn for_venue(config: &Config, address: SocketAddr) -> Option<Executors> {
        let count = usize::from(config.executors.value);
        if count == 0 {
            return None;
        }
        let prepared = prepare(config, address).map(|command| Executors { command, count });
        if let Err(reason) = &prepared {
            tracing::warn!(reason, "no executor is started");
        }
        prepared.ok()
    }

    /// Keeps the executors running until it is dropped.
    pub(crate) async fn keep_running(self) {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.count {
            tasks.spawn(keep_one_running(self.command.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }
}

fn prepare(config: &Config, address: SocketAddr) -> Result<ChildCommand, String> {
    let data = config.data.as_path();
    let key = catena_server::key::load(data).map_err(|error| error.to_string())?;
    let key = key.ok_or("the venue has no key")?;
    let did = config.did(&key.did());
    let queues = [QUEUES.to_owned()];
    let grant = Grant {
        subject: &did,
        id: "local-executor",
        issued: 0,
        expires: None,
        is_admin: false,
        queues: Some(&queues),
    };
    let token = Venue { did: did.clone(), public: key.public() }.issue(&key, &grant);
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let host = if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    };
    // The executor does not start in this folder.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let environments = config.environments.value.clone().map(absolute);
    // The name in the certificate need not be that of this machine.
    let certificate = config.tls_cert.value.clone().filter(|_| config.has_tls()).map(absolute);
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{host}");
    Ok(ChildCommand { program, url, did, token, environments, certificate })
}

/// Starts an executor, and starts it again when it ends.
async fn keep_one_running(command: ChildCommand) {
    let mut delay = RESTART_DELAY;
    loop {
        let started = tokio::time::Instant::now();
        let ended = match start(&command).await {
            Ok((mut child, input)) => {
                // Waiting would close an input that the child still had, and with it end the executor.
                let ended = child.wait().await;
                drop(input);
                ended.map(|status| status.to_string())
            }
            Err(error) => Err(error),
        };
        let reason = ended.unwrap_or_else(|error| error.to_string());
        if started.elapsed() > FINE_AFTER {
            delay = RESTART_DELAY;
        }
        tracing::warn!(reason, "an executor ended; it is started again");
        tokio::time::sleep(delay).await;
        delay = (2 * delay).min(RESTART_DELAY_LONGEST);
    }
}

/// Starts an executor and gives it its token. It ends when its standard input does, which is returned.
async fn start(command: &ChildCommand) -> std::io::Result<(Child, Option<ChildStdin>)> {
    let files =
        [("--environments", &command.environments), ("--venue-certificate", &command.certificate)];
    let files = files.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
    let files = files.flat_map(|(flag, file)| [OsStr::new(flag), file.as_os_str()]);
    // Settings of the venue, such as its data folder and its key, are none of the executor's business.
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new(&command.program)
        .env_clear()
        .envs(inherited)
        .current_dir("/")
        .args(["executor", "--token-file", "-", "--grace", CHILD_GRACE])
        .args(["--venue", &command.url, "--venue-did", &command.did])
        .args(files)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        input.write_all(command.token.as_bytes()).await?;
        input.write_all(b"\n").await?;
        input.flush().await?;
    }
    Ok((child, input))
}
