//! Verifies the history of a job in this process, without trusting its venue.
//!
//! The steps in the job's JSON and the calls in its records only show where to find the sub-jobs. The
//! verifier decides whether the histories found there are those that the parent committed to.

use catena_job::limits::SUBJOB_DEPTH_MAX;
use catena_job::verify::{Expected, Fault, Report, verify};
use catena_value::{Map, NoCells, Value};

use super::transport::Transport;
use super::{Client, ClientError, ClientResult};
use crate::limits::SUBJOBS_MAX;
use crate::venue::VenueUrl;
use crate::wire::member;

/// Why a job is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError<E: std::error::Error + 'static> {
    /// Its history could not be fetched.
    #[error(transparent)]
    Client(#[from] ClientError<E>),
    /// Its history is not valid.
    #[error("the history of the job is not valid")]
    Invalid(#[source] Box<Fault>),
}

impl<T: Transport> Client<T> {
    /// Fetches the history of a job and those of its sub-jobs at this venue, and verifies them.
    pub async fn verify(&self, id: &str) -> Result<Report, VerifyError<T::Error>> {
        let history = self.history_with_subjobs(id, &|_| None).await?;
        let expected = Expected { job: id.parse().ok(), ..Expected::default() };
        verify(&history, &expected).map_err(|fault| VerifyError::Invalid(Box::new(fault)))
    }

    /// A history with those of its sub-jobs that can be fetched, under `children`. `other_venue` returns a
    /// client of another venue if sub-jobs may be fetched there: a history can name any host.
    pub async fn history_with_subjobs(
        &self,
        id: &str,
        other_venue: &(dyn Fn(VenueUrl) -> Option<Client<T>> + Sync),
    ) -> ClientResult<Value, T> {
        let history = self.history(id).await?;
        let mut remaining = SUBJOBS_MAX;
        Ok(Box::pin(add_subjobs(self, id, history, other_venue, 0, &mut remaining)).await)
    }
}

async fn add_subjobs<T: Transport>(
    client: &Client<T>,
    id: &str,
    history: Value,
    other_venue: &(dyn Fn(VenueUrl) -> Option<Client<T>> + Sync),
    depth: usize,
    remaining: &mut usize,
) -> Value {
    // A job that can no longer be read has no steps to follow.
    let Ok(job) = client.job(id).await else { return history };
    let mut children = Vec::new();
    let calls = calls(&history).into_iter().map(|child| (child, None));
    for (child, venue) in steps(&job).into_iter().chain(calls) {
        if depth == SUBJOB_DEPTH_MAX || *remaining == 0 {
            break;
        }
        *remaining -= 1;
        let other = match venue {
            None => None,
            Some(venue) => match venue.parse().ok().and_then(other_venue) {
                Some(client) => Some(client),
                None => continue,
            },
        };
        let client = other.as_ref().unwrap_or(client);
        // A sub-job that no longer exists is reported as unavailable.
        let Ok(found) = client.history(&child).await else { continue };
        let adding = add_subjobs(client, &child, found, other_venue, depth + 1, remaining);
        let found = Box::pin(adding).await;
        children.push((Value::from(child), found));
    }
    let Some(document) = history.as_map().filter(|_| !children.is_empty()) else { return history };
    let children = Value::from(children.into_iter().collect::<Map>());
    document.insert("children".into(), children, &NoCells).map_or(history, Value::from)
}

/// The sub-jobs of a job, each with its venue if it ran on another one, including those of an earlier
/// run whose outputs were reused.
fn steps(job: &Value) -> Vec<(String, Option<String>)> {
    let read = |step: Value| {
        let text = |name: &str| member(&step, name)?.as_str().map(str::to_owned);
        Some((text("id")?, text("venue")))
    };
    items(job, "steps").into_iter().filter_map(read).collect()
}

/// The sub-jobs that a job called.
fn calls(history: &Value) -> Vec<String> {
    let mut called = Vec::new();
    for entry in items(history, "records") {
        let note = member(&entry, "record").and_then(|record| member(record, "note"));
        let Some(note) = note else { continue };
        if member(note, "kind").and_then(Value::as_str) != Some("call") {
            continue;
        }
        let job = |call: Value| member(&call, "job")?.as_str().map(str::to_owned);
        called.extend(items(note, "started").into_iter().filter_map(job));
    }
    called
}

/// The items of a list; none if the member is not one.
fn items(value: &Value, name: &str) -> Vec<Value> {
    let list = member(value, name).and_then(Value::as_vector);
    list.map(|list| list.iter(&NoCells).flatten().collect()).unwrap_or_default()
}
