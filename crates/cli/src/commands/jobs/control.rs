//! `catena jobs cancel`, `pause`, `resume`, `rerun` and `rm`: one thing done to one job.

use catena_api::Client;
use catena_api::client::jobs::Action;
use catena_job::JobId;

use crate::output::{Failure, Output};
use crate::shown::{id_of, status_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,
}

pub(super) async fn run(
    args: &Args,
    control: &Action,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.control(&args.job.to_string(), control).await?;
    if output.is_json() {
        output.value(&job);
        return Ok(());
    }
    let stands = match control {
        Action::Delete => "deleted".to_owned(),
        Action::Cancel(_) | Action::Pause | Action::Resume => status_of(&job),
    };
    output.line(&format!("{}  {stands}", id_of(&job)));
    Ok(())
}

/// Runs a job again and names the new one.
pub(super) async fn rerun(
    args: &Args,
    from: Option<u32>,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.rerun(&args.job.to_string(), from).await?;
    match output.is_json() {
        true => output.value(&job),
        false => output.line(&format!("{}  {}", id_of(&job), status_of(&job))),
    }
    Ok(())
}
