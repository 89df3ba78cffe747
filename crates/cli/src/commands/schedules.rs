//! `catena schedules`: the schedules of a venue, running or stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catena_api::HttpClient;
use catena_api::wire::member;
use catena_engine::error::StoreError;
use catena_engine::offline::Offline;
use catena_engine::requests::{Overlap, Scheduled};
use catena_engine::runtime::SystemEnv;
use catena_value::{Map, NoCells, Value, Vector};

use crate::commands::store::{folder_failure, open};
use crate::exit::Exit;
use crate::format::{table, text_of, time_of};
use crate::input::Input;
use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};
use crate::watch::seconds;

/// List, add, remove, pause, resume and trigger schedules.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    venue: VenueArgs,
}

/// The folder of a venue that is not running.
#[derive(clap::Args)]
struct DataArgs {
    /// The data folder of a stopped venue, instead of a running venue.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(clap::Args)]
struct HandleArgs {
    /// The schedule, as `ls` prints it.
    #[arg(value_name = "HANDLE")]
    handle: String,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List schedules, the next first.
    Ls {
        /// List those of another owner (for admins).
        #[arg(long, value_name = "DID")]
        owner: Option<String>,

        /// List those of all owners (for admins).
        #[arg(long, conflicts_with = "owner")]
        all: bool,

        #[command(flatten)]
        folder: DataArgs,
    },
    Add(AddArgs),
    /// Remove a schedule. Jobs that it started are not changed.
    Rm {
        #[command(flatten)]
        schedule: HandleArgs,

        #[command(flatten)]
        folder: DataArgs,
    },
    /// Pause a schedule: no run starts until it is resumed.
    Pause {
        #[command(flatten)]
        schedule: HandleArgs,

        #[command(flatten)]
        folder: DataArgs,
    },
    /// Resume a schedule that is paused or was set aside.
    Resume(HandleArgs),
    /// Start a run now, in addition to those at its times, and print its job.
    Trigger(HandleArgs),
}

/// Schedule an operation and print the handle.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["at", "after", "cron"]))]
struct AddArgs {
    /// The operation: adapter:name, a path such as v/ops/…, or an asset ID.
    #[arg(value_name = "OP")]
    op: String,

    /// The input: JSON, @FILE, or - for standard input.
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<String>,

    /// Once, at this time, such as 2026-01-31T09:00:00Z.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// Once, after this many seconds.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    after: Option<Duration>,

    /// Repeatedly, by a cron expression, such as "0 9 * * 1-5".
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,

    /// The time zone of the cron expression, such as Europe/Zurich; UTC by default.
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,

    /// If the previous run has not ended: start another one, leave this one out, or start it afterwards.
    #[arg(long, value_name = "POLICY", default_value = "allow", value_parser = parse_overlap)]
    overlap: Overlap,

    /// Delay each run by a random time of at most this many seconds.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    jitter: Option<Duration>,
}

fn parse_overlap(name: &str) -> Result<Overlap, String> {
    let names = Overlap::ALL.map(Overlap::as_str).join(", ");
    Overlap::parse(name).ok_or_else(|| format!("expected one of {names}"))
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    match &args.command {
        Command::Ls { folder: DataArgs { data: Some(data) }, owner, .. } => {
            let owner = owner.as_deref();
            offline(data, async |offline| {
                let mut all = offline.schedules().await?;
                all.retain(|found| owner.is_none_or(|owner| found.owner == owner));
                print_list(&all.iter().map(to_value).collect::<Vec<_>>(), output);
                Ok(())
            })
        }
        Command::Rm { schedule, folder: DataArgs { data: Some(data) } } => {
            let handle = &schedule.handle;
            offline(data, async |offline| {
                let removed = offline.remove_schedule(handle).await?;
                Ok(removed.map(|_| print_change(handle, "removed", output)))
            })?
            .ok_or_else(|| not_found(handle))
        }
        Command::Pause { schedule, folder: DataArgs { data: Some(data) } } => {
            let handle = &schedule.handle;
            offline(data, async |offline| {
                let paused = offline.pause_schedule(handle).await?;
                Ok(paused.map(|_| print_change(handle, "paused", output)))
            })?
            .ok_or_else(|| not_found(handle))
        }
        command => {
            let client = args.venue.client()?;
            block_on(run_online(command, &client, output))
        }
    }
}

async fn run_online(
    command: &Command,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    match command {
        Command::Ls { owner, all, .. } => {
            let owner = if *all { Some("*") } else { owner.as_deref() };
            let input: Map = owner.map(|owner| ("owner", owner)).into_iter().collect();
            let listed = client.run("scheduler:list", input.into()).await?;
            let events = member(&listed, "events").and_then(Value::as_vector).cloned();
            let events = events.unwrap_or_default();
            let events: Vec<Value> = events.iter(&NoCells).flatten().collect();
            print_list(&events, output);
        }
        Command::Add(args) => {
            let made = client.run("scheduler:schedule", new_schedule(args)?).await?;
            if output.is_json() {
                output.value(&made);
            } else {
                output.line(&text_of(&made, "handle"));
                output.note(&format!("the first run is at {}", time_of(&made, "time")));
            }
        }
        Command::Rm { schedule, .. } => {
            change(schedule, "scheduler:cancel", "cancelled", "removed", client, output).await?;
        }
        Command::Pause { schedule, .. } => {
            change(schedule, "scheduler:pause", "paused", "paused", client, output).await?;
        }
        Command::Resume(schedule) => {
            change(schedule, "scheduler:resume", "resumed", "resumed", client, output).await?;
        }
        Command::Trigger(schedule) => {
            let input: Map = [("handle", schedule.handle.as_str())].into_iter().collect();
            let triggered = client.run("scheduler:trigger", input.into()).await?;
            let job = text_of(&triggered, "result");
            if job.is_empty() {
                return Err(not_found(&schedule.handle));
            }
            if output.is_json() {
                output.value(&[("job", job.as_str())].into_iter().collect::<Map>().into());
            } else {
                output.line(&job);
            }
        }
    }
    Ok(())
}

/// Runs an operation on one schedule. `flag` is the member of its output that is false if there is no
/// such schedule.
async fn change(
    schedule: &HandleArgs,
    operation: &str,
    flag: &str,
    done: &'static str,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let input: Map = [("handle", schedule.handle.as_str())].into_iter().collect();
    let answer = client.run(operation, input.into()).await?;
    if member(&answer, flag) != Some(&Value::Bool(true)) {
        return Err(not_found(&schedule.handle));
    }
    print_change(&schedule.handle, done, output);
    Ok(())
}

fn new_schedule(args: &AddArgs) -> Result<Value, Failure> {
    let ms = |time: Duration| Value::from(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let mut members = vec![("operation", Value::from(args.op.as_str()))];
    if let Some(argument) = &args.input {
        members.push(("input", Input::from_argument(argument, "the input")?.document()?));
    }
    members.extend(args.at.as_deref().map(|at| ("time", at.into())));
    members.extend(args.after.map(|after| ("after", ms(after))));
    members.extend(args.cron.as_deref().map(|cron| ("cron", cron.into())));
    members.extend(args.time_zone.as_deref().map(|zone| ("timeZone", zone.into())));
    members.push(("overlap", args.overlap.as_str().into()));
    members.extend(args.jitter.map(|jitter| ("jitterMs", ms(jitter))));
    Ok(members.into_iter().collect::<Map>().into())
}

/// Uses the store of a folder whose venue is not running.
fn offline<T>(
    data: &Path,
    work: impl AsyncFnOnce(&Offline) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let folder = open(data)?;
    block_on(async {
        let offline = Offline::new(folder.store.clone(), Arc::new(SystemEnv::new()));
        work(&offline).await.map_err(|error| folder_failure(&error))
    })
}

fn print_list(schedules: &[Value], output: &mut Output) {
    if output.is_json() {
        return output.value(&Vector::from_items(schedules.to_vec()).into());
    }
    let heads = ["HANDLE", "STATE", "NEXT", "WHEN", "OP", "REASON"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(schedules.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
}

fn row(schedule: &Value) -> Vec<String> {
    let state = text_of(schedule, "state");
    let next = if state == "active" { time_of(schedule, "time") } else { "-".to_owned() };
    let cron = text_of(schedule, "cron");
    let zone = text_of(schedule, "timeZone");
    let when = match (cron.is_empty(), zone.is_empty()) {
        (true, _) => "once".to_owned(),
        (false, true) => cron,
        (false, false) => format!("{cron} {zone}"),
    };
    let handle = text_of(schedule, "handle");
    let reason = text_of(schedule, "reason");
    vec![handle, state, next, when, text_of(schedule, "operation"), reason]
}

fn to_value(schedule: &Scheduled) -> Value {
    let mut members = vec![
        ("handle", Value::from(schedule.handle.as_str())),
        ("owner", schedule.owner.as_str().into()),
        ("operation", schedule.operation.as_str().into()),
        ("input", schedule.input.clone()),
        ("time", schedule.time.into()),
        ("overlap", schedule.overlap.as_str().into()),
        ("state", schedule.state.as_str().into()),
    ];
    members.extend(schedule.cron.as_deref().map(|cron| ("cron", cron.into())));
    members.extend(schedule.time_zone.as_deref().map(|zone| ("timeZone", zone.into())));
    members.extend(schedule.reason.as_deref().map(|reason| ("reason", reason.into())));
    members.extend(schedule.last_job.map(|job| ("lastJob", job.into())));
    members.extend(schedule.last_time.map(|time| ("lastTime", time.into())));
    members.into_iter().collect::<Map>().into()
}

fn print_change(handle: &str, done: &'static str, output: &mut Output) {
    if output.is_json() {
        let members = [("handle", Value::from(handle)), (done, true.into())];
        return output.value(&members.into_iter().collect::<Map>().into());
    }
    output.line(&format!("{handle}  {done}"));
}

fn not_found(handle: &str) -> Failure {
    let message = format!("there is no schedule {handle}");
    let hint = "`catena schedules ls` lists your schedules.";
    Failure::new(Exit::NotFound, "schedule_not_found", message).hint(hint)
}
