//! `catena jobs get`: one job in its current state.

use catena_api::HttpClient;
use catena_api::wire::text;
use catena_job::JobId;
use catena_value::{Value, json};

use crate::format::{table, time};
use crate::output::{Failure, Output};

/// Members that are printed first, in this order. The others follow by name.
const FIRST: [&str; 10] =
    ["id", "status", "op", "created", "updated", "error", "message", "input", "output", "progress"];

/// Print a job in its current state.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's ID.
    #[arg(value_name = "JOB")]
    job: JobId,
}

pub(super) async fn run(
    args: &Args,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let job = client.job(&args.job.to_string()).await?;
    if output.is_json() {
        output.value(&job);
    } else {
        describe(&job).iter().for_each(|line| output.line(line));
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
    let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    members.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b)));
    let row =
        |(name, value): &(String, &Value)| vec![format!("{name}:"), format_member(name, value)];
    table(&members.iter().map(row).collect::<Vec<_>>())
}

fn format_member(name: &str, value: &Value) -> String {
    let is_json = matches!(name, "input" | "output" | "progress");
    match (value.as_i64(), text(value)) {
        (Some(ms), _) if matches!(name, "created" | "updated") => time(ms),
        (_, Some(text)) if !is_json => text,
        _ => json::to_string(value).unwrap_or_default(),
    }
}
