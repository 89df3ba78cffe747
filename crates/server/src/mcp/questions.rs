//! Questions to the user of a client that uses a handshake, asked within the response of a call.
//!
//! Such a client says in the handshake whether it can be asked. The server does not remember that: the ID of
//! the session, which the client repeats in every request, says it (see `client`). A question is a request of
//! the server in the event stream of the call, and the client sends the answer in a POST of its own. The ID of
//! that request names the job and the record that asks, so that any process of the venue can deliver the
//! answer to the job; the call notices that the job goes on. Nothing is kept in memory except for a question
//! that its user dismisses: the job still waits, but the call should not.

use axum::http::StatusCode;
use axum::response::Response;
use catena_job::{JobId, RecordId};
use catena_value::{Map, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::http::request::ApiRequest;
use crate::http::response;
use crate::identity::authenticate::Admission;
use crate::mcp::context::RequestContext;
use crate::mcp::elicitation::{self, ElicitationOutcome};
use crate::mcp::json_rpc::{RpcError, RpcReply};
use crate::mcp::snapshot::JobSnapshot;
use crate::mcp::tasks;
use crate::mcp::wait::until_settled;
use crate::values::object;

/// Separates the job from the record in the ID of a question.
const SEPARATOR: char = '/';

/// Asks the user what a job asks for, as long as it does, and returns the job when it needs nothing that this
/// client can be asked for, or when there is no answer.
pub(super) async fn ask(
    context: &mut RequestContext,
    mut snapshot: JobSnapshot,
) -> Result<JobSnapshot, RpcError> {
    while let Some(question) = question(context, &snapshot) {
        let known = snapshot.job.head();
        let mut dismissals = context.state.dismissals.subscribe();
        context.notifications.send(question).await;
        let waiting = until_settled(context, snapshot.clone(), Some(known));
        snapshot = tokio::select! {
            settled = waiting => settled?,
            () = dismissal(&mut dismissals, known) => return Ok(snapshot),
        };
        if snapshot.job.head() == known {
            break;
        }
    }
    Ok(snapshot)
}

/// The message with what a job asks for. `None` if it asks for nothing, or this client cannot be asked.
fn question(context: &RequestContext, snapshot: &JobSnapshot) -> Option<String> {
    let client = &context.client;
    // Whoever acts under delegations alone could not answer.
    let is_admitted = context.admission == Admission::Admitted;
    if !client.is_asked_in_stream() || !is_admitted || !context.notifications.is_enabled() {
        return None;
    }
    let elicitation = elicitation::for_client(client, snapshot)?;
    let id = format!("{}{SEPARATOR}{}", snapshot.job.id(), snapshot.job.head());
    let message = object([
        ("jsonrpc", "2.0".into()),
        ("id", id.into()),
        ("method", "elicitation/create".into()),
        ("params", elicitation.params_for(client.revision)),
    ]);
    json::to_string(&message).ok()
}

/// Returns when the question of a record was dismissed.
async fn dismissal(dismissals: &mut Receiver<RecordId>, record: RecordId) {
    loop {
        match dismissals.recv().await {
            Ok(dismissed) if dismissed == record => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            // The venue stops, and so does the call.
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// Delivers the answer of a client. An answer to a question that is no longer asked has no effect.
pub(super) async fn receive(request: ApiRequest, reply: RpcReply) -> Result<Response, RpcError> {
    let accepted = || response::empty(StatusCode::ACCEPTED);
    let parts = reply.id.as_str().and_then(|id| id.split_once(SEPARATOR));
    let Some((Ok(job), record)) = parts.map(|(job, record)| (tasks::parse_id(job), record)) else {
        return Ok(accepted());
    };
    if request.admission != Admission::Admitted {
        return Ok(accepted());
    }
    let job: JobId = job;
    let engine = &request.state.engine;
    let snapshot = JobSnapshot::from(engine.job(&request.caller, job).await?);
    // A client that reports an error cannot ask its user.
    let dismissed = || object([("action", "cancel".into())]);
    let answer = reply.result.unwrap_or_else(dismissed);
    let responses: Map = [(record, answer)].into_iter().collect();
    let outcome = elicitation::deliver(engine, &request.caller, &snapshot, &responses).await?;
    if outcome == ElicitationOutcome::Dismissed {
        // An error means that no call of this process waits.
        let _ = request.state.dismissals.send(snapshot.job.head());
    }
    Ok(accepted())
}
