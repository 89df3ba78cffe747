//! `catena jobs cancel`, `pause`, `resume` and `rm`: one thing done to one job.

use catena_api::Client;
use catena_api::client::jobs::Control;
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
    control: &Control,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.control(&args.job.to_string(), control).await?;
    if output.is_json() {
        output.value(&job);
        return Ok(());
    }
    let stands = match control {
        Control::Delete => "deleted".to_owned(),
        Control::Cancel(_) | Control::Pause | Control::Resume => status_of(&job),
    };
    output.line(&format!("{}  {stands}", id_of(&job)));
    Ok(())
}
