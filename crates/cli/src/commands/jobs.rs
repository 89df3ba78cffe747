//! `catena jobs`: lists, shows and controls the jobs of a venue.

mod control;
mod get;
mod history;
mod ls;
mod send;
mod watch;

use catena_api::client::jobs::{Action, RerunScope};

use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};

/// List, show, watch and control jobs.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    venue: VenueArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    Ls(ls::Args),
    Get(get::Args),
    Watch(watch::Args),
    History(history::Args),
    /// Cancel a job. A job that has ended is not changed.
    Cancel {
        #[command(flatten)]
        job: control::Args,

        /// Why the job is cancelled.
        #[arg(long, value_name = "R")]
        reason: Option<String>,
    },
    /// Pause a job.
    Pause(control::Args),
    /// Resume a paused job.
    Resume(control::Args),
    /// Run a job that has ended again, as a new job.
    ///
    /// An orchestration runs the steps that did not complete and what depends on them, and reuses the
    /// outputs of all others. If it is COMPLETE, everything runs.
    Rerun {
        #[command(flatten)]
        job: control::Args,

        /// Run this step again, too, and what depends on it.
        #[arg(long, value_name = "STEP")]
        from: Option<u32>,

        /// Run all steps again.
        #[arg(long, conflicts_with = "from")]
        all: bool,
    },
    /// Delete a job. A job that has not ended is cancelled first.
    Rm(control::Args),
    Send(send::Args),
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let client = args.venue.client()?;
    block_on(async {
        match &args.command {
            Command::Ls(args) => ls::run(args, &client, output).await,
            Command::Get(args) => get::run(args, &client, output).await,
            Command::Watch(args) => watch::run(args, &client, output).await,
            Command::History(args) => history::run(args, &client, output).await,
            Command::Cancel { job, reason } => {
                control::run(job, &Action::Cancel(reason.clone()), &client, output).await
            }
            Command::Pause(job) => control::run(job, &Action::Pause, &client, output).await,
            Command::Resume(job) => control::run(job, &Action::Resume, &client, output).await,
            Command::Rerun { job, from, all } => {
                let scope = match (all, from) {
                    (true, _) => RerunScope::Everything,
                    (false, Some(step)) => RerunScope::From(*step),
                    (false, None) => RerunScope::Unfinished,
                };
                control::rerun(job, scope, &client, output).await
            }
            Command::Rm(job) => control::run(job, &Action::Delete, &client, output).await,
            Command::Send(args) => send::run(args, &client, output).await,
        }
    })
}
