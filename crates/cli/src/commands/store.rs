//! `catena store`: checks, copies and repairs a data folder.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catena_engine::error::ControlError;
use catena_engine::offline::Offline;
use catena_engine::runtime::SystemEnv;
use catena_job::JobId;
use catena_server::key::{self, SECRETS_FILE};
use catena_store::Store as _;
use catena_store::embedded::OpenError;
use catena_store::embedded::admin::request_backup;
use catena_store::embedded::permissions::{self, Sharing};
use catena_store::embedded::{CheckReport, CopyReport, DataFolder, FolderError};
use catena_value::{Map, Value, Vector, json};

use crate::exit::Exit;
use crate::output::{Failure, Output};
use crate::venue::block_on;

/// Check, back up, restore or clean up the data of a venue.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// The data folder.
    #[arg(
        long,
        global = true,
        env = "CATENA_DATA",
        default_value = "catena-data",
        value_name = "DIR"
    )]
    data: PathBuf,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Verify every chain, index entry, reference and blob.
    Check {
        /// Rebuild all indexes before checking.
        #[arg(long)]
        rebuild: bool,
    },
    /// Write a consistent copy into an empty or new folder.
    Backup {
        /// The folder to write to.
        #[arg(value_name = "DEST")]
        destination: PathBuf,
    },
    /// Check a backup and copy it into the data folder, which must be empty or new.
    Restore {
        /// The folder with the backup.
        #[arg(value_name = "SOURCE")]
        source: PathBuf,
    },
    /// Remove cells that are no longer referenced.
    Collect,
    /// Cancel a job and its sub-jobs while the venue is stopped.
    Cancel {
        /// The job's ID.
        #[arg(value_name = "JOB")]
        job: JobId,

        /// Why the job is cancelled.
        #[arg(
            long,
            value_name = "R",
            default_value = "by the operator, while the venue was stopped"
        )]
        reason: String,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    permissions::restrict_new_files(Sharing::Owner);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Invalid, "runtime", format!("could not start: {error}"))
    })?;
    match &args.command {
        Command::Check { rebuild } => {
            let folder = open(&args.data)?;
            if *rebuild {
                let rebuilt = runtime.block_on(folder.store.rebuild());
                let entries = rebuilt.map_err(|error| failure(&error))?;
                output.note(&format!("rebuilt {entries} index entries"));
            }
            report_check(&check(&folder)?, output)
        }
        Command::Backup { destination } => backup(&args.data, destination, output),
        Command::Restore { source } => {
            refuse_links(source, &args.data)?;
            let backup = open(source)?;
            let checked = check(&backup)?;
            refuse_problems(&checked)?;
            runtime.block_on(check_key(source, &backup))?;
            copy(&backup, &args.data, output)?;
            if !args.data.join(SECRETS_FILE).exists() {
                output.note(
                    "A backup does not contain the key that encrypts secrets. Copy secrets.key (or \
                     the file of key_file) of the old venue here before the first start; otherwise \
                     jobs that need a secret will be paused.",
                );
            }
            refuse_problems(&check(&open(&args.data)?)?)
        }
        Command::Collect => {
            let folder = open(&args.data)?;
            let collected = runtime.block_on(folder.store.collect());
            let report = collected.map_err(|error| failure(&error))?;
            let numbers = [("removed", report.removed), ("reachable", report.reachable)];
            print(&numbers, output);
            Ok(())
        }
        Command::Cancel { job, reason } => cancel(&args.data, *job, reason, output),
    }
}

/// Cancels a job in a folder that no venue uses.
fn cancel(data: &Path, job: JobId, reason: &str, output: &mut Output) -> Result<(), Failure> {
    let folder = open(data)?;
    let (status, cancelled) = block_on(async {
        let adapters = catena_adapters::all(catena_adapters::Options::default());
        let offline = Offline::new(folder.store.clone(), Arc::new(SystemEnv::new()));
        let offline = offline.with_adapters(&adapters);
        offline.cancel(job, reason).await.map_err(|error| match error {
            ControlError::NotFound(_) => {
                Failure::new(Exit::NotFound, "job_not_found", format!("there is no job {job}"))
            }
            error => failure(&error),
        })
    })?;
    if output.is_json() {
        let count = i64::try_from(cancelled).unwrap_or(i64::MAX);
        let members = [
            ("id", Value::from(job)),
            ("status", status.into()),
            ("cancelled", Value::from(count)),
        ];
        output.value(&members.into_iter().collect::<Map>().into());
    } else {
        output.line(&format!("{job}  {status}"));
        output.note(&format!("cancelled {cancelled} jobs"));
    }
    Ok(())
}

/// Refuses symbolic links in a backup and in place of the data folder: a copy would read or write
/// whatever they point to.
fn refuse_links(source: &Path, data: &Path) -> Result<(), Failure> {
    let in_source = permissions::find_link(source).unwrap_or(None);
    let is_link = std::fs::symlink_metadata(data).is_ok_and(|metadata| metadata.is_symlink());
    match in_source.or_else(|| is_link.then(|| data.to_owned())) {
        None => Ok(()),
        Some(link) => {
            let message = format!("{} is a symbolic link", link.display());
            let hint = "A backup contains no links. Use the folder itself.";
            Err(Failure::new(Exit::Invalid, "symbolic_link", message).hint(hint))
        }
    }
}

/// Checks that a backup has the key of the venue whose jobs it contains.
async fn check_key(source: &Path, backup: &DataFolder) -> Result<(), Failure> {
    let invalid = |message: String| Failure::new(Exit::Invalid, "key_invalid", message);
    let key = key::load(source).map_err(|error| invalid(error.to_string()))?;
    // A folder that no venue has ever used has no key.
    let Some(key) = key else { return Ok(()) };
    let first = backup.store.all(None, 1).await.map_err(|error| failure(&error))?;
    let Some((id, _)) = first.first() else { return Ok(()) };
    let Some(stored) = backup.store.job(*id).await.map_err(|error| failure(&error))? else {
        return Ok(());
    };
    let venue = stored.job.field("venue").and_then(Value::as_str).unwrap_or_default();
    if venue.starts_with("did:key:") && venue != key.did() {
        let message = format!("venue.key is the key of {}, but its jobs are of {venue}", key.did());
        return Err(invalid(message));
    }
    Ok(())
}

/// Opens the data folder of a venue that is not running.
pub(crate) fn open(path: &Path) -> Result<DataFolder, Failure> {
    DataFolder::open_existing(path).map_err(|error| {
        let (exit, code) = match &error {
            FolderError::NoStore { .. } => (Exit::NotFound, "no_store"),
            FolderError::Store(OpenError::Locked { .. }) => (Exit::Invalid, "store_in_use"),
            FolderError::Store(OpenError::NewerFormat { .. }) => (Exit::Invalid, "newer_format"),
            _ => (Exit::Invalid, "store_unusable"),
        };
        let failure = Failure::new(exit, code, chain(&error));
        match code {
            "store_in_use" => failure.hint("Stop the venue first, or send the request to it."),
            _ => failure,
        }
    })
}

fn check(folder: &DataFolder) -> Result<CheckReport, Failure> {
    folder.check().map_err(|error| failure(&error))
}

/// Copies a folder. If a running process holds it, that process makes the copy.
fn backup(data: &Path, destination: &Path, output: &mut Output) -> Result<(), Failure> {
    if let Err(FolderError::Store(OpenError::Locked { .. })) = DataFolder::open_existing(data) {
        let destination = std::path::absolute(destination).map_err(|error| failure(&error))?;
        let requested = request_backup(data, &destination).map_err(|error| failure(&error))?;
        if let Some(report) = requested {
            print_copy(report, output);
            return Ok(());
        }
    }
    copy(&open(data)?, destination, output)
}

fn print_copy(CopyReport { rows, blobs }: CopyReport, output: &mut Output) {
    print(&[("rows", rows), ("blobs", blobs)], output);
}

fn copy(from: &DataFolder, to: &Path, output: &mut Output) -> Result<(), Failure> {
    print_copy(from.backup(to).map_err(|error| failure(&error))?, output);
    Ok(())
}

fn report_check(report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    refuse_problems(report)?;
    let numbers = [
        ("jobs", report.jobs),
        ("records", report.records),
        ("cells", report.cells),
        ("roots", report.roots),
        ("indexEntries", report.index_entries),
        ("problems", report.problems_total),
    ];
    print(&numbers, output);
    Ok(())
}

fn refuse_problems(report: &CheckReport) -> Result<(), Failure> {
    let Some(first) = report.problems.first() else { return Ok(()) };
    let more = match report.problems_total {
        1 => String::new(),
        total => format!(" (and {} more)", total - 1),
    };
    let all: Vector = report.problems.iter().map(|p| Value::from(p.to_string())).collect();
    let message = format!("the store is damaged: {first}{more}");
    Err(Failure::new(Exit::VerificationFailed, "store_damaged", message).with("problems", all))
}

fn print(numbers: &[(&'static str, u64)], output: &mut Output) {
    if output.is_json() {
        let value = |n: &u64| Value::from(i64::try_from(*n).unwrap_or(i64::MAX));
        let fields: Map = numbers.iter().map(|(name, n)| (*name, value(n))).collect();
        return output.line(&json::to_string(&fields.into()).unwrap_or_default());
    }
    numbers.iter().for_each(|(name, n)| output.line(&format!("{name}: {n}")));
}

/// The failure of a command on a data folder.
pub(crate) fn folder_failure(error: &dyn Error) -> Failure {
    failure(error)
}

fn failure(error: &dyn Error) -> Failure {
    Failure::new(Exit::Invalid, "store_failed", chain(error))
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}
