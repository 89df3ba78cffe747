//! `catena jobs send`: sends a message to a job.

use catena_api::HttpClient;
use catena_job::JobId;

use crate::format::text_of;
use crate::input::Input;
use crate::output::{Failure, Output};

/// Send a message to a job.
///
/// A message that is not JSON is sent as a text. The venue wraps a message that is not an object as
/// {"content": …}.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,

    /// The message: JSON, a text, @FILE, or - for standard input.
    #[arg(value_name = "MESSAGE", allow_hyphen_values = true)]
    message: String,
}

pub(super) async fn run(
    args: &Args,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let message = Input::from_argument(&args.message, "the message")?.document_or_text()?;
    let sent = client.send_message(&args.job.to_string(), &message).await?;
    if output.is_json() {
        output.value(&sent);
    } else {
        output.line(&text_of(&sent, "messageId"));
    }
    Ok(())
}
