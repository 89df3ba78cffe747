//! `catena verify --deep`: fetches the histories of sub-jobs from the venues that ran them.
//!
//! The steps in the job's JSON and the calls in its records only show where to find the sub-jobs. The
//! verifier decides whether the histories found there are those that the parent committed to.

use catena_api::{HttpClient, VenueUrl};
use catena_job::limits::SUBJOB_DEPTH_MAX;
use catena_value::{Map, NoCells, Value};

use super::Args;
use crate::limits::SUBJOBS_MAX;
use crate::output::Failure;

/// Adds to a history those of its sub-jobs that can be fetched, under `children`.
pub(super) async fn with_children(
    args: &Args,
    client: &HttpClient,
    id: &str,
    history: Value,
) -> Result<Value, Failure> {
    let mut remaining = SUBJOBS_MAX;
    Box::pin(add_children(args, client, id, history, 0, &mut remaining)).await
}

async fn add_children(
    args: &Args,
    client: &HttpClient,
    id: &str,
    history: Value,
    depth: usize,
    remaining: &mut usize,
) -> Result<Value, Failure> {
    // A job that can no longer be read has no steps to follow.
    let Ok(job) = client.job(id).await else { return Ok(history) };
    let mut children = Vec::new();
    let calls = calls(&history).into_iter().map(|child| (child, None));
    for (child, venue) in steps(&job).into_iter().chain(calls) {
        if depth == SUBJOB_DEPTH_MAX || *remaining == 0 {
            break;
        }
        *remaining -= 1;
        let other = match venue.as_deref().map(str::parse::<VenueUrl>) {
            None => None,
            Some(Ok(venue)) if args.may_fetch_from(&venue) => Some(args.client(venue)?),
            // The history of the job names the venue, and a history can name any host.
            Some(_) => continue,
        };
        let client = other.as_ref().unwrap_or(client);
        // A sub-job that no longer exists is reported as unavailable.
        let Ok(child_history) = client.history(&child).await else { continue };
        let child_history =
            Box::pin(add_children(args, client, &child, child_history, depth + 1, remaining))
                .await?;
        children.push((Value::from(child), child_history));
    }
    if children.is_empty() {
        return Ok(history);
    }
    let Some(document) = history.as_map() else { return Ok(history) };
    let children = Value::from(children.into_iter().collect::<Map>());
    Ok(document.insert("children".into(), children, &NoCells).map_or(history, Value::from))
}

/// The sub-jobs of a job, each with its venue if it ran on another one, including those of an earlier
/// run whose outputs were reused.
fn steps(job: &Value) -> Vec<(String, Option<String>)> {
    let steps = member(job, "steps");
    let Some(steps) = steps.as_ref().and_then(Value::as_vector) else { return Vec::new() };
    let read = |step: Value| {
        let text = |name: &str| member(&step, name)?.as_str().map(str::to_owned);
        Some((text("id")?, text("venue")))
    };
    steps.iter(&NoCells).flatten().filter_map(read).collect()
}

/// The sub-jobs that a job called.
fn calls(history: &Value) -> Vec<String> {
    let mut called = Vec::new();
    for entry in items(history, "records") {
        let note = member(&entry, "record").and_then(|record| member(&record, "note"));
        let Some(note) = note else { continue };
        if member(&note, "kind").as_ref().and_then(Value::as_str) != Some("call") {
            continue;
        }
        let job = |call: Value| member(&call, "job")?.as_str().map(str::to_owned);
        called.extend(items(&note, "started").into_iter().filter_map(job));
    }
    called
}

/// The items of a list; none if the member is not one.
fn items(value: &Value, name: &str) -> Vec<Value> {
    let list = member(value, name).and_then(|list| list.as_vector().cloned());
    list.map(|list| list.iter(&NoCells).flatten().collect()).unwrap_or_default()
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}
