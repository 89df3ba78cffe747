//! `catena run`: carries out an operation at a venue and prints its output.

use std::time::Duration;

use catena_api::Client;
use catena_api::client::jobs::Invocation;
use catena_api::limits::WAIT_MAX;
use catena_api::wire::{JobOutcome, member};
use catena_value::Value;

use crate::exit::Exit;
use crate::input::Input;
use crate::output::{Failure, Output};
use crate::shown::{id_of, reason_of, status_of};
use crate::venue::{VenueArgs, block_on};
use crate::watching::{
    Progress, Show as _, Watched, deadline, interrupted, seconds, waited, watch,
};

/// Carry out an operation and print its output.
///
/// Makes a job, follows it until it ends, and prints the job's output as JSON. Ctrl-C stops the
/// following, not the job.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The operation: adapter:name, a path such as v/ops/…, or an asset ID.
    #[arg(value_name = "OP")]
    op: String,

    /// Its input: JSON, @FILE, or - for the standard input.
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<String>,

    /// Wait at most so many seconds; the job goes on.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<Duration>,

    /// Print the job's ID and do not wait for it.
    #[arg(long, conflicts_with_all = ["wait", "private"])]
    no_wait: bool,

    /// End the job after so many milliseconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: Option<u64>,

    /// A word to find the job by; may be given several times.
    #[arg(long = "tag", value_name = "T")]
    tags: Vec<String>,

    /// Keep the job in memory only and forget it at its end.
    #[arg(long)]
    private: bool,

    /// Make a repeated command harmless: the same key and input give the same job for a day.
    #[arg(long, value_name = "K")]
    idempotency_key: Option<String>,

    #[command(flatten)]
    venue: VenueArgs,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let invocation = invocation(args)?;
    let client = args.venue.client()?;
    block_on(async {
        let over = deadline(args.wait);
        let job = client.invoke(&invocation).await?;
        if args.no_wait {
            tell_made(&job, output);
            return Ok(());
        }
        let ended = match JobOutcome::of(&status_of(&job)).is_terminal() {
            true => Watched::Ended(job),
            false => follow(&client, &job, over, output).await?,
        };
        conclude(&ended, output)
    })
}

fn invocation(args: &Args) -> Result<Invocation, Failure> {
    let input = match &args.input {
        Some(argument) => Some(Input::of_argument(argument, "the input")?.document()?),
        None => None,
    };
    // A private job is forgotten at its end: the venue must give it in its answer.
    let wait = args.private.then(|| args.wait.unwrap_or(WAIT_MAX).min(WAIT_MAX));
    Ok(Invocation {
        operation: args.op.clone(),
        input,
        wait,
        timeout: args.timeout_ms.map(Duration::from_millis),
        tags: args.tags.clone(),
        is_private: args.private,
        idempotency_key: args.idempotency_key.clone(),
    })
}

fn tell_made(job: &Value, output: &mut Output) {
    match output.is_json() {
        true => output.value(job),
        false => output.line(&id_of(job)),
    }
}

async fn follow(
    client: &Client,
    job: &Value,
    over: Option<tokio::time::Instant>,
    output: &Output,
) -> Result<Watched, Failure> {
    let id = id_of(job);
    output.note(&format!("job {id}"));
    let mut progress = Progress::new(output);
    progress.job(job);
    match watch(client.follow(&id), over, &mut progress).await? {
        Watched::Interrupted => Err(interrupted(&id)),
        Watched::StillGoing(last) => Ok(Watched::StillGoing(last.or_else(|| Some(job.clone())))),
        ended => Ok(ended),
    }
}

/// Prints what came of it.
fn conclude(watched: &Watched, output: &mut Output) -> Result<(), Failure> {
    let job = match watched {
        Watched::Ended(job) => job,
        Watched::StillGoing(last) => {
            if let Some(job) = last.as_ref().filter(|_| output.is_json()) {
                output.value(job);
            }
            let id = last.as_ref().map(id_of).unwrap_or_default();
            return Err(waited(&id, last.as_ref()));
        }
        Watched::Interrupted => return Err(Failure::told(Exit::Interrupted)),
    };
    let exit = Exit::of(JobOutcome::of(&status_of(job)));
    if output.is_json() {
        output.value(job);
        return exit.map_or(Ok(()), |exit| Err(Failure::told(exit)));
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
    let (id, status) = (id_of(job), status_of(job));
    let reason = reason_of(job).map(|reason| format!(": {reason}")).unwrap_or_default();
    Failure::new(exit, "job_failed", format!("job {id} is {status}{reason}"))
}
