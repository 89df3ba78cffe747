//! `catena jobs history`: the records of a job.

use catena_api::HttpClient;
use catena_api::wire::member;
use catena_job::JobId;
use catena_value::{NoCells, Value};

use crate::format::{reason_of, status_of, table, text_of, time_of};
use crate::output::{Failure, Output};

/// Print the records of a job, oldest first.
///
/// With --json, the output is a document that `catena verify` accepts.
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
    let history = client.history(&args.job.to_string()).await?;
    if output.is_json() {
        output.value(&history);
        return Ok(());
    }
    let entries = member(&history, "records").and_then(Value::as_vector).cloned();
    let heads = ["#", "STATUS", "UPDATED", "RECORD", "WHAT"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads)
        .chain(entries.unwrap_or_default().iter(&NoCells).flatten().enumerate().map(row))
        .collect();
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

fn row((at, entry): (usize, Value)) -> Vec<String> {
    let record = member(&entry, "record").cloned().unwrap_or(Value::Nil);
    vec![
        at.to_string(),
        status_of(&record),
        time_of(&record, "updated"),
        text_of(&entry, "id"),
        summarize(&record),
    ]
}

/// What a record contains beyond its status.
fn summarize(record: &Value) -> String {
    let note = member(record, "note").map(|note| text_of(note, "kind"));
    let by = member(record, "by").map(|_| format!("by {}", text_of(record, "by")));
    let op = member(record, "op").map(|_| text_of(record, "op"));
    let parts: Vec<String> = [note, op, reason_of(record), by].into_iter().flatten().collect();
    parts.join("; ")
}
