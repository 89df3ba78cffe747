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

    /// Only jobs of this owner, by DID, or * for those of all owners. Needs an admin.
    #[arg(long, value_name = "DID")]
    owner: Option<String>,

    /// Only jobs that were created at this time or later, such as 2026-01-31T09:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Only jobs that were created before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Only sub-jobs of this job.
    #[arg(long, value_name = "JOB")]
    parent: Option<String>,

    /// Only jobs whose operation, tags or error contain this text, or whose ID begins with it.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

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
    let Found { jobs, total, is_at_least } = fetch(args, client).await?;
    if output.is_json() {
        let number = Value::from(i64::try_from(total).unwrap_or(i64::MAX));
        let at_least = || [("atLeast", number.clone())].into_iter().collect::<Map>().into();
        let total = if is_at_least { at_least() } else { number.clone() };
        let items = Value::from(Vector::from_items(jobs));
        let page = [("items", items), ("total", total)].into_iter().collect::<Map>();
        output.value(&page.into());
        return Ok(());
    }
    let heads = ["ID", "STATUS", "CREATED", "OP"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(jobs.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    if (jobs.len() as u64) < total {
        let least = if is_at_least { "at least " } else { "" };
        output.note(&format!("{} of {least}{total} jobs; use --all to list all", jobs.len()));
    }
    Ok(())
}

fn row(job: &Value) -> Vec<String> {
    vec![id_of(job), status_of(job), time_of(job, "created"), text_of(job, "op")]
}

/// The requested jobs.
struct Found {
    jobs: Vec<Value>,
    /// How many match the filter.
    total: u64,
    /// True if there may be more.
    is_at_least: bool,
}

async fn fetch(args: &Args, client: &HttpClient) -> Result<Found, Failure> {
    let max = if args.all { u64::MAX } else { args.limit };
    let mut query = JobQuery {
        status: args.status.clone(),
        op: args.op.clone(),
        tag: args.tag.clone(),
        owner: args.owner.clone(),
        since: args.since.clone(),
        until: args.until.clone(),
        parent: args.parent.clone(),
        text: args.text.clone(),
        cursor: None,
        offset: 0,
        limit: max.min(PAGE_MAX),
    };
    let mut jobs = Vec::new();
    let mut seen = HashSet::new();
    let mut first: Option<(u64, bool)> = None;
    loop {
        let page = client.jobs(&query).await?;
        let count = page.items.len() as u64;
        // With a cursor, a venue does not count those before it.
        let (total, is_at_least) = *first.get_or_insert((page.total, page.is_at_least));
        // Jobs that are created meanwhile shift others onto the next page.
        jobs.extend(page.items.into_iter().filter(|job| seen.insert(id_of(job))));
        let missing = max.saturating_sub(jobs.len() as u64);
        let is_last = match page.next {
            Some(next) => {
                query.cursor = Some(next);
                false
            }
            // A venue without cursors, or the last page.
            None => {
                query.offset += count;
                query.cursor.is_some() || count == 0 || query.offset >= page.total
            }
        };
        if is_last || missing == 0 {
            let total = total.max(jobs.len() as u64);
            return Ok(Found { jobs, total, is_at_least: is_at_least && !is_last });
        }
        query.limit = missing.min(PAGE_MAX);
    }
}
