//! `catena jobs get`: one job as it stands.

use catena_api::Client;
use catena_api::wire::text;
use catena_job::JobId;
use catena_value::{Value, json};

use crate::output::{Failure, Output};
use crate::shown::{table, time};

/// What is shown first, in this order; other members follow by name.
const FIRST: [&str; 10] =
    ["id", "status", "op", "created", "updated", "error", "message", "input", "output", "progress"];

/// Print a job as it stands.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,
}

pub(super) async fn run(args: &Args, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let job = client.job(&args.job.to_string()).await?;
    match output.is_json() {
        true => output.value(&job),
        false => describe(&job).iter().for_each(|line| output.line(line)),
    }
    Ok(())
}

fn describe(job: &Value) -> Vec<String> {
    let mut members: Vec<(String, &Value)> = job
        .as_map()
        .map(|map| map.fields())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, value)| Some((text(name)?, value)))
        .collect();
    let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    members.sort_by(|(a, _), (b, _)| (place(a), a).cmp(&(place(b), b)));
    let row = |(name, value): &(String, &Value)| vec![format!("{name}:"), shown(name, value)];
    table(&members.iter().map(row).collect::<Vec<_>>())
}

fn shown(name: &str, value: &Value) -> String {
    let is_json = matches!(name, "input" | "output" | "progress");
    match (value.as_i64(), text(value)) {
        (Some(ms), _) if matches!(name, "created" | "updated") => time(ms),
        (_, Some(text)) if !is_json => text,
        _ => json::to_string(value).unwrap_or_default(),
    }
}
