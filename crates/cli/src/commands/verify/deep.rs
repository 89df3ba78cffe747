//! `catena verify --deep`: the histories of sub-jobs too, from wherever they ran.
//!
//! What the venue says about the steps only tells where to look. Whether what is found there is
//! what the parent committed to is decided by the verifier.

use catena_api::{Client, VenueUrl};
use catena_job::limits::SUBJOB_DEPTH_MAX;
use catena_value::{Map, NoCells, Value};

use super::Args;
use crate::output::Failure;

/// Sub-jobs that are fetched for one job, nested ones included.
const SUBJOBS_MAX: usize = 10_000;

/// A history with those of its sub-jobs, as far as they can be had, under `children`.
pub(super) async fn with_children(
    args: &Args,
    client: &Client,
    id: &str,
    history: Value,
) -> Result<Value, Failure> {
    let mut left = SUBJOBS_MAX;
    Box::pin(add_children(args, client, id, history, 0, &mut left)).await
}

async fn add_children(
    args: &Args,
    client: &Client,
    id: &str,
    history: Value,
    depth: usize,
    left: &mut usize,
) -> Result<Value, Failure> {
    // A job that cannot be read any more has no steps to look for.
    let Ok(job) = client.job(id).await else { return Ok(history) };
    let mut children = Vec::new();
    for (child, venue) in steps(&job) {
        if depth == SUBJOB_DEPTH_MAX || *left == 0 {
            break;
        }
        *left -= 1;
        let elsewhere = match venue.as_deref().map(str::parse::<VenueUrl>) {
            None => None,
            Some(Ok(venue)) => Some(args.client(venue)?),
            Some(Err(_)) => continue,
        };
        let client = elsewhere.as_ref().unwrap_or(client);
        // One that is not there any more is reported as unavailable.
        let Ok(found) = client.history(&child).await else { continue };
        let whole = Box::pin(add_children(args, client, &child, found, depth + 1, left)).await?;
        children.push((Value::from(child), whole));
    }
    if children.is_empty() {
        return Ok(history);
    }
    let Some(document) = history.as_map() else { return Ok(history) };
    let children = Value::from(children.into_iter().collect::<Map>());
    Ok(document.insert("children".into(), children, &NoCells).map_or(history, Value::from))
}

/// The sub-jobs of a job, and where they ran when that was elsewhere. Those that were taken over
/// from an earlier run are not steps of this one.
fn steps(job: &Value) -> Vec<(String, Option<String>)> {
    let steps = member(job, "steps");
    let Some(steps) = steps.as_ref().and_then(Value::as_vector) else { return Vec::new() };
    let read = |step: Value| {
        let text = |name: &str| member(&step, name)?.as_str().map(str::to_owned);
        let is_reused = member(&step, "reused") == Some(Value::Bool(true));
        Some((text("id").filter(|_| !is_reused)?, text("venue")))
    };
    steps.iter(&NoCells).flatten().filter_map(read).collect()
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}
