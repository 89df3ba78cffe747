//! `catena jobs watch`: what happens to a job, until it ends.

use std::time::Duration;

use catena_api::Client;
use catena_api::wire::JobOutcome;
use catena_job::JobId;
use catena_value::Value;

use crate::exit::Exit;
use crate::output::{Failure, Output};
use crate::shown::{reason_of, status_of, time_of};
use crate::watching::{Show, Watched, deadline, interrupted, seconds, waited, watch};

/// Print what happens to a job, and at last how it ended.
///
/// One line for each change; with --json the job for each change. The exit code tells how the job
/// ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,

    /// Watch at most so many seconds.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<Duration>,
}

pub(super) async fn run(args: &Args, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let id = args.job.to_string();
    let mut changes = Changes { output, last: String::new() };
    let job = match watch(client.follow(&id), deadline(args.wait), &mut changes).await? {
        Watched::Ended(job) => job,
        Watched::StillGoing(last) => return Err(waited(&id, last.as_ref())),
        Watched::Interrupted => return Err(interrupted(&id)),
    };
    let status = status_of(&job);
    if !output.is_json() {
        let reason = reason_of(&job).map(|reason| format!(": {reason}")).unwrap_or_default();
        output.line(&format!("job {id} is {status}{reason}"));
    }
    Exit::of(JobOutcome::of(&status)).map_or(Ok(()), |exit| Err(Failure::told(exit)))
}

/// Changes as data, each handed over at once.
struct Changes<'a> {
    output: &'a mut Output,
    /// The last line, which is not repeated.
    last: String,
}

impl Changes<'_> {
    fn line(&mut self, line: String) {
        self.output.line(&line);
        self.output.flush();
    }
}

impl Show for Changes<'_> {
    fn job(&mut self, job: &Value) {
        if self.output.is_json() {
            self.output.value(job);
            return self.output.flush();
        }
        let status = status_of(job);
        let reason = reason_of(job).map(|reason| format!(": {reason}")).unwrap_or_default();
        let change = format!("{status}{reason}");
        // The end is told by the verdict.
        if change != self.last && !JobOutcome::of(&status).is_terminal() {
            self.line(format!("{}  {change}", time_of(job, "updated")));
        }
        self.last = change;
    }

    fn progress(&mut self, percent: u8) {
        if !self.output.is_json() {
            self.line(format!("{percent} %"));
        }
    }
}
