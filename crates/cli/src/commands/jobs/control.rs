//! `catena jobs cancel`, `pause`, `resume`, `rerun` and `rm`: one action on one job.

use catena_api::HttpClient;
use catena_api::client::jobs::{Action, RerunScope};
use catena_job::JobId;

use crate::format::{id_of, status_of};
use crate::output::{Failure, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,
}

pub(super) async fn run(
    args: &Args,
    action: &Action,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.control(&args.job.to_string(), action).await?;
    if output.is_json() {
        output.value(&job);
        return Ok(());
    }
    let status = match action {
        Action::Delete => "deleted".to_owned(),
        Action::Cancel(_) | Action::Pause | Action::Resume => status_of(&job),
    };
    output.line(&format!("{}  {status}", id_of(&job)));
    Ok(())
}

/// Runs a job again and prints the new job.
pub(super) async fn rerun(
    args: &Args,
    scope: RerunScope,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.rerun(&args.job.to_string(), scope).await?;
    if output.is_json() {
        output.value(&job);
    } else {
        output.line(&format!("{}  {}", id_of(&job), status_of(&job)));
    }
    Ok(())
}
