//! `catena jobs watch`: the changes of a job until it ends.

use std::time::Duration;

use catena_api::HttpClient;
use catena_api::wire::JobOutcome;
use catena_job::JobId;
use catena_value::Value;

use crate::exit::Exit;
use crate::format::{attempt_of, latest_reason_of, reason_of, status_of, time_of};
use crate::output::{Failure, Output};
use crate::watch::{WatchView, Watched, deadline, interrupted, seconds, wait_expired, watch};

/// Print the changes of a job until it ends.
///
/// Prints one line per change; with --json, the job after each change. The exit code reflects how the
/// job ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,

    /// Begin with the first change of the job instead of its current state.
    #[arg(long)]
    all: bool,

    /// Watch for at most this many seconds.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<Duration>,
}

pub(super) async fn run(
    args: &Args,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let id = args.job.to_string();
    let mut changes = Changes { output, last: String::new() };
    let follow = client.follow(&id);
    let follow = if args.all { follow.from_start() } else { follow };
    let job = match watch(follow, deadline(args.wait), &mut changes).await? {
        Watched::Ended(job) => job,
        Watched::Unfinished(last) => return Err(wait_expired(&id, last.as_ref())),
        Watched::Interrupted => return Err(interrupted(&id)),
    };
    let status = status_of(&job);
    if !output.is_json() {
        let reason = reason_of(&job).map(|reason| format!(": {reason}")).unwrap_or_default();
        output.line(&format!("job {id} is {status}{reason}"));
    }
    Exit::from_outcome(JobOutcome::from_status(&status))
        .map_or(Ok(()), |exit| Err(Failure::already_reported(exit)))
}

/// Prints changes as data and flushes each.
struct Changes<'a> {
    output: &'a mut Output,
    /// The last change, which is not printed twice.
    last: String,
}

impl Changes<'_> {
    fn line(&mut self, line: String) {
        self.output.line(&line);
        self.output.flush();
    }
}

impl WatchView for Changes<'_> {
    fn show_job(&mut self, job: &Value) {
        if self.output.is_json() {
            self.output.value(job);
            return self.output.flush();
        }
        let status = status_of(job);
        let reason = latest_reason_of(job).map(|reason| format!(": {reason}")).unwrap_or_default();
        let change = format!("{status}{}{reason}", attempt_of(job));
        // The end is printed by the command, with the verdict.
        if change != self.last && !JobOutcome::from_status(&status).is_terminal() {
            self.line(format!("{}  {change}", time_of(job, "updated")));
        }
        self.last = change;
    }

    fn show_progress(&mut self, percent: u8) {
        if !self.output.is_json() {
            self.line(format!("{percent} %"));
        }
    }
}
