//! Hearing of changes: one stream for the tasks that a client names.
//!
//! What it asks for is acknowledged first, as far as there is something to hear: the list of tools
//! changes with a restart only, which ends the stream. Each record of a task's job is told as the
//! whole task. The stream ends when all of its tasks have, when the venue stops, or after a time.

use catena_engine::follow::{Follow, JobEvent, Reader};
use catena_job::JobId;
use catena_value::{NoCells, Value};
use futures_util::future::join_all;

use super::message::Request;
use super::outcome::{Answer, Seen};
use super::stream::note_text;
use super::{Answered, Asked, Refusal, map, tasks};
use crate::http::error::{ApiError, Code};
use crate::limits::{MCP_LISTEN_MAX, MCP_LISTEN_TASKS_MAX};
use crate::values::{list, object};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Tells a client of changes until there are no more.
pub(super) async fn listen(asked: Asked, request: &Request) -> Answered {
    let wanted = map(&request.params, "notifications")?
        .ok_or_else(|| Refusal::invalid_params("`notifications` is missing"))?;
    let ids = wanted.field("taskIds").map(task_ids).transpose()?.unwrap_or_default();
    if !ids.is_empty() {
        asked.client.check_tasks()?;
    }
    if !asked.notes.can_be_sent() {
        let error = "changes are told in an event stream, which the client does not accept";
        return Err(ApiError::new(Code::NotAcceptable, error).into());
    }
    let mut followed = Vec::new();
    for id in ids {
        let reader = Reader::Caller(&asked.caller);
        // Tasks that the caller may not know of are not among those that are acknowledged.
        if let Ok(follow) = asked.door.engine.follow(reader, id, None).await {
            followed.push((id, follow));
        }
    }
    let of_stream = object([(SUBSCRIPTION, request.id.clone())]);
    let honoured =
        object([("_meta", of_stream.clone()), ("notifications", acknowledged(&followed))]);
    let note = note_text("notifications/subscriptions/acknowledged", honoured, &NoCells)?;
    asked.notes.send(note).await;
    let listening = async {
        let is_idle = followed.is_empty();
        let telling = followed.into_iter().map(|(_, follow)| tell_of(&asked, follow, &of_stream));
        join_all(telling.collect::<Vec<_>>()).await;
        if is_idle {
            asked.door.engine.stopping().await;
        }
    };
    // Whoever wants to go on listening asks again.
    let _ = tokio::time::timeout(MCP_LISTEN_MAX, listening).await;
    Ok(Answer::from(object([("_meta", of_stream)])))
}

fn task_ids(value: &Value) -> Result<Vec<JobId>, Refusal> {
    let bad = || {
        let most = MCP_LISTEN_TASKS_MAX;
        Refusal::invalid_params(format!("`taskIds` must be at most {most} strings"))
    };
    let items = value.as_vector().filter(|items| items.len() <= MCP_LISTEN_TASKS_MAX as u64);
    let items: Vec<Value> = items.ok_or_else(bad)?.iter(&NoCells).flatten().collect();
    items.iter().map(|item| tasks::id(item.as_str().ok_or_else(bad)?)).collect()
}

fn acknowledged(followed: &[(JobId, Follow)]) -> Value {
    match followed {
        [] => object::<&str>([]),
        some => object([("taskIds", list(some.iter().map(|(id, _)| Value::from(*id))))]),
    }
}

/// Tells of everything that happens to a task.
async fn tell_of(asked: &Asked, mut follow: Follow, of_stream: &Value) {
    // A task that cannot be read or told any more is one that nothing more is heard of.
    while let Ok(Some(happening)) = follow.next().await {
        let JobEvent::Record { job, cells, .. } = happening else { continue };
        let seen = Seen { job: *job, cells: Some(cells) };
        let Ok(note) = note_of(asked, &seen, of_stream) else { return };
        asked.notes.send(note).await;
    }
}

fn note_of(asked: &Asked, seen: &Seen, of_stream: &Value) -> Result<String, Refusal> {
    let mut members = tasks::detailed(asked, seen)?;
    members.push(("_meta", of_stream.clone()));
    Ok(note_text("notifications/tasks", object(members), seen.cells())?)
}
