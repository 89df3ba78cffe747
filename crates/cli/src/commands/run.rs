//! `catena run`: invokes an operation and prints its output.

use std::time::Duration;

use catena_api::HttpClient;
use catena_api::client::jobs::Invocation;
use catena_api::limits::WAIT_MAX;
use catena_api::wire::{JobOutcome, member};
use catena_value::Value;

use crate::exit::Exit;
use crate::format::{id_of, reason_of, status_of};
use crate::input::Input;
use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};
use crate::watch::{
    Progress, WatchView as _, Watched, deadline, interrupted, seconds, wait_expired, watch,
};

/// Run an operation and print its output.
///
/// Creates a job, watches it until it ends, and prints its output as JSON. Ctrl-C stops watching; the
/// job continues.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The operation: adapter:name, a path such as v/ops/…, or an asset ID.
    #[arg(value_name = "OP")]
    op: String,

    /// The input: JSON, @FILE, or - for standard input.
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<String>,

    /// Wait for at most this many seconds; the job continues.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<Duration>,

    /// Print the job's ID without waiting for its end.
    #[arg(long, conflicts_with_all = ["wait", "private"])]
    no_wait: bool,

    /// Time limit of the job in milliseconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: Option<u64>,

    /// A tag by which the job can be found; may be given several times.
    #[arg(long = "tag", value_name = "T")]
    tags: Vec<String>,

    /// Keep the job in memory only and delete it when it ends.
    #[arg(long)]
    private: bool,

    /// Repeat safely: for a day, the same key and input return the same job.
    #[arg(long, value_name = "K")]
    idempotency_key: Option<String>,

    #[command(flatten)]
    venue: VenueArgs,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let invocation = invocation(args)?;
    let client = args.venue.client()?;
    block_on(async {
        let deadline = deadline(args.wait);
        let job = client.invoke(&invocation).await?;
        if args.no_wait {
            print_new_job(&job, output);
            return Ok(());
        }
        let watched = if JobOutcome::from_status(&status_of(&job)).is_terminal() {
            Watched::Ended(job)
        } else {
            follow(&client, &job, deadline, output).await?
        };
        print_result(&watched, output)
    })
}

fn invocation(args: &Args) -> Result<Invocation, Failure> {
    let input = match &args.input {
        Some(argument) => Some(Input::from_argument(argument, "the input")?.document()?),
        None => None,
    };
    // A private job is deleted when it ends, so the response to the invocation must contain it.
    let wait = args.private.then(|| args.wait.unwrap_or(WAIT_MAX).min(WAIT_MAX));
    Ok(Invocation {
        operation: args.op.clone(),
        input,
        wait,
        timeout: args.timeout_ms.map(Duration::from_millis),
        tags: args.tags.clone(),
        is_private: args.private,
        idempotency_key: args.idempotency_key.clone(),
        ..Invocation::default()
    })
}

fn print_new_job(job: &Value, output: &mut Output) {
    if output.is_json() {
        output.value(job);
    } else {
        output.line(&id_of(job));
    }
}

async fn follow(
    client: &HttpClient,
    job: &Value,
    deadline: Option<tokio::time::Instant>,
    output: &Output,
) -> Result<Watched, Failure> {
    let id = id_of(job);
    output.note(&format!("job {id}"));
    let mut progress = Progress::new(output);
    progress.show_job(job);
    match watch(client.follow(&id), deadline, &mut progress).await? {
        Watched::Interrupted => Err(interrupted(&id)),
        Watched::Unfinished(last) => Ok(Watched::Unfinished(last.or_else(|| Some(job.clone())))),
        ended => Ok(ended),
    }
}

/// Prints the output of the job, or reports why there is none.
fn print_result(watched: &Watched, output: &mut Output) -> Result<(), Failure> {
    let job = match watched {
        Watched::Ended(job) => job,
        Watched::Unfinished(last) => {
            if let Some(job) = last.as_ref().filter(|_| output.is_json()) {
                output.value(job);
            }
            let id = last.as_ref().map(id_of).unwrap_or_default();
            return Err(wait_expired(&id, last.as_ref()));
        }
        Watched::Interrupted => return Err(Failure::already_reported(Exit::Interrupted)),
    };
    let exit = Exit::from_outcome(JobOutcome::from_status(&status_of(job)));
    if output.is_json() {
        output.value(job);
        return exit.map_or(Ok(()), |exit| Err(Failure::already_reported(exit)));
    }
    match exit {
        None => {
            output.value(member(job, "output").unwrap_or(&Value::Nil));
            Ok(())
        }
        Some(exit) => Err(failed(exit, job)),
    }
}

fn failed(exit: Exit, job: &Value) -> Failure {
    let id = id_of(job);
    let status = status_of(job);
    let reason = reason_of(job).map(|reason| format!(": {reason}")).unwrap_or_default();
    Failure::new(exit, "job_failed", format!("job {id} is {status}{reason}"))
}
