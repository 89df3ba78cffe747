//! `catena jobs send`: a message to a job.

use catena_api::Client;
use catena_job::JobId;

use crate::input::Input;
use crate::output::{Failure, Output};
use crate::shown::text_of;

/// Send a job a message.
///
/// What is not JSON is sent as a text; the venue makes {"content": …} of what is not an object.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,

    /// The message: JSON, a text, @FILE, or - for the standard input.
    #[arg(value_name = "MESSAGE", allow_hyphen_values = true)]
    message: String,
}

pub(super) async fn run(args: &Args, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let message = Input::of_argument(&args.message, "the message")?.document_or_text()?;
    let sent = client.send(&args.job.to_string(), &message).await?;
    match output.is_json() {
        true => output.value(&sent),
        false => output.line(&text_of(&sent, "messageId")),
    }
    Ok(())
}
