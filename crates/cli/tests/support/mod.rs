//! A venue in this process, and the binary that is run against it.
#![allow(dead_code, reason = "every test target uses a part of it")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use catena_server::Venue;
use catena_server::config::{Config, Flags};
use catena_value::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A venue on a free port.
pub(crate) struct Running {
    runtime: Runtime,
    venue: Option<Venue>,
    pub(crate) folder: TempDir,
    pub(crate) url: String,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A venue with default settings.
pub(crate) fn venue() -> Running {
    venue_with(tempfile::tempdir().unwrap(), |_| {})
}

/// A venue in this folder with changed settings.
pub(crate) fn venue_with(folder: TempDir, change: impl FnOnce(&mut Flags)) -> Running {
    let mut flags = Flags {
        listen: Some("127.0.0.1:0".to_owned()),
        data: Some(folder.path().join("data").to_str().unwrap().to_owned()),
        grace: Some("1s".to_owned()),
        ..Flags::default()
    };
    change(&mut flags);
    let config = Config::layered(&flags, &|_| None, None).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let adapters = catena_adapters::all(catena_adapters::Options::default());
    let assets = catena_adapters::demo_assets();
    let venue = runtime.block_on(Venue::start(config, adapters, assets)).unwrap();
    let url = format!("http://{}", venue.address());
    Running { runtime, venue: Some(venue), folder, url }
}

impl Running {
    /// Runs the binary against this venue.
    pub(crate) fn catena(&self, args: &[&str]) -> Ran {
        self.catena_with(args, &[], b"")
    }

    /// The same with these variables and this standard input.
    pub(crate) fn catena_with(
        &self,
        args: &[&str],
        variables: &[(&str, &str)],
        stdin: &[u8],
    ) -> Ran {
        let mut all = vec![("CATENA_VENUE", self.url.as_str())];
        all.extend_from_slice(variables);
        catena(self.folder.path(), args, &all, stdin)
    }

    /// Starts the binary without waiting for its end.
    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let variables = [("CATENA_VENUE", self.url.as_str())];
        command(self.folder.path(), args, &variables).spawn().unwrap()
    }

    /// Creates a job and returns its ID.
    pub(crate) fn job(&self, op: &str, input: &str) -> String {
        let ran = self.catena(&["run", op, "-i", input, "--no-wait"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    /// Watches a job until it has this status.
    pub(crate) fn until(&self, id: &str, status: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = catena_api::HttpClient::connect(self.url.parse().unwrap(), Default::default());
        runtime.block_on(async {
            let mut follow = client.follow(id);
            while let Some(update) = follow.next().await.unwrap() {
                let catena_api::client::Update::Job(job) = update else { continue };
                if field(&job, "status") == status.into() {
                    return;
                }
            }
            panic!("{id} ended without {status}");
        });
    }

    pub(crate) fn data(&self) -> String {
        self.folder.path().join("data").to_str().unwrap().to_owned()
    }

    /// Stops the venue and returns its folder.
    pub(crate) fn stop(mut self) -> TempDir {
        let venue = self.venue.take().unwrap();
        self.runtime.block_on(venue.stop()).unwrap();
        let Running { runtime, folder, .. } = self;
        drop(runtime);
        folder
    }
}

/// Runs the binary in a folder, with nothing in its environment but these variables.
pub(crate) fn catena(
    folder: &Path,
    args: &[&str],
    variables: &[(&str, &str)],
    stdin: &[u8],
) -> Ran {
    let mut child = command(folder, args, variables).spawn().unwrap();
    // A command that fails early may not read all of it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    ended(child)
}

pub(crate) fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn command(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_catena"));
    command
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn value(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

pub(crate) fn field(value: &Value, name: &str) -> Value {
    value.as_map().unwrap().field(name).cloned().unwrap_or(Value::Nil)
}

/// A member of a command's JSON.
pub(crate) fn member(text: &str, name: &str) -> Value {
    field(&value(text), name)
}
