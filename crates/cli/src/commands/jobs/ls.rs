//! `catena jobs ls`: the list of jobs, newest first.

use std::collections::HashSet;

use catena_api::HttpClient;
use catena_api::client::jobs::JobQuery;
use catena_api::limits::PAGE_MAX;
use catena_job::Status;
use catena_value::{Map, Value, Vector};

use crate::format::{id_of, status_of, table, text_of, time_of};
use crate::output::{Failure, Output};

/// List jobs, newest first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only jobs with this status, such as STARTED.
    #[arg(long, value_name = "S", value_parser = parse_status)]
    status: Option<String>,

    /// Only jobs of this operation, by the reference they were invoked with.
    #[arg(long, value_name = "O")]
    op: Option<String>,

    /// Only jobs with this tag.
    #[arg(long, value_name = "T")]
    tag: Option<String>,

    /// Print at most this many jobs.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,

    /// Print all jobs.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

fn parse_status(word: &str) -> Result<String, String> {
    let word = word.to_uppercase();
    match Status::parse(&word) {
        Some(_) => Ok(word),
        None => Err(format!("expected one of {}", Status::ALL.map(Status::as_str).join(", "))),
    }
}

pub(super) async fn run(
    args: &Args,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let (jobs, total) = fetch(args, client).await?;
    if output.is_json() {
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        let items = Value::from(Vector::from_items(jobs));
        let page = [("items", items), ("total", total.into())].into_iter().collect::<Map>();
        output.value(&page.into());
        return Ok(());
    }
    let heads = ["ID", "STATUS", "CREATED", "OP"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(jobs.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    if (jobs.len() as u64) < total {
        output.note(&format!("{} of {total} jobs; use --all to list all", jobs.len()));
    }
    Ok(())
}

fn row(job: &Value) -> Vec<String> {
    vec![id_of(job), status_of(job), time_of(job, "created"), text_of(job, "op")]
}

/// The requested jobs, and how many match the filter.
async fn fetch(args: &Args, client: &HttpClient) -> Result<(Vec<Value>, u64), Failure> {
    let max = if args.all { u64::MAX } else { args.limit };
    let mut query = JobQuery {
        status: args.status.clone(),
        op: args.op.clone(),
        tag: args.tag.clone(),
        offset: 0,
        limit: max.min(PAGE_MAX),
    };
    let mut jobs = Vec::new();
    let mut seen = HashSet::new();
    loop {
        let page = client.jobs(&query).await?;
        let count = page.items.len() as u64;
        // Jobs that are created meanwhile shift others onto the next page.
        jobs.extend(page.items.into_iter().filter(|job| seen.insert(id_of(job))));
        query.offset += count;
        let missing = max.saturating_sub(jobs.len() as u64);
        if count == 0 || missing == 0 || query.offset >= page.total {
            return Ok((jobs, page.total));
        }
        query.limit = missing.min(PAGE_MAX);
    }
}
