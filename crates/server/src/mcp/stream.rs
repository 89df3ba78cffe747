//! An answer that takes a while.
//!
//! What is done soon is plain JSON. What is not becomes an event stream, if the client takes one:
//! progress on the way, a sign of life now and then, and the answer as its last event. The stream
//! owns the work of answering, so a client that goes away ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use catena_job::progress::Figures;
use catena_value::{CellSource, Value, json};
use futures_util::stream::unfold;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::message::{Rendered, Request};
use crate::grid::job_json;
use crate::http::error::ApiResult;
use crate::http::service::Door;
use crate::http::sse;
use crate::limits::{HEARTBEAT, MCP_PROGRESS_AFTER, MCP_STREAM_AFTER};
use crate::metrics::Streaming;
use crate::values::object;

/// Reports of progress that may wait for a client to take them; more are left out.
const NOTES_WAITING_MAX: usize = 16;

/// The work of answering.
pub(super) type Answering = Pin<Box<dyn Future<Output = Rendered> + Send>>;

/// What a client is told before it has its answer.
pub(super) struct Notes {
    sender: Option<Sender<String>>,
    /// Under which name it wants to hear of progress.
    token: Option<Value>,
    /// How far it was when it was last told: it never goes back.
    last: i64,
}

/// How long a client gets nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience(Duration);

impl Patience {
    /// Whoever wants to hear of progress wants to hear of it as it comes.
    pub(super) fn of(notes: &Notes) -> Patience {
        Patience(if notes.can_be_sent() { MCP_PROGRESS_AFTER } else { MCP_STREAM_AFTER })
    }
}

impl Notes {
    /// Nobody wants to know.
    pub(super) fn none() -> Notes {
        Notes { sender: None, token: None, last: -1 }
    }

    /// Notes for a request that asks for some, if they can be sent.
    pub(super) fn of(request: &Request, can_be_sent: bool) -> (Notes, Option<Receiver<String>>) {
        let token = request.meta().and_then(|meta| meta.field("progressToken"));
        let token = token.filter(|token| token.as_str().is_some() || token.as_i64().is_some());
        let are_wanted = token.is_some() || request.method == "subscriptions/listen";
        if !are_wanted || !can_be_sent {
            return (Notes::none(), None);
        }
        let (sender, told) = channel(NOTES_WAITING_MAX);
        (Notes { sender: Some(sender), token: token.cloned(), last: -1 }, Some(told))
    }

    /// Whether somebody hears them.
    pub(super) fn can_be_sent(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends a note when there is room for it. One to nobody goes nowhere.
    pub(super) async fn send(&self, note: String) {
        if let Some(sender) = &self.sender {
            // A client that is gone has taken the stream with it.
            let _ = sender.send(note).await;
        }
    }

    /// Tells how far a job is.
    pub(super) fn tell(&mut self, progress: &Value) {
        let (Some(sender), Some(token)) = (&self.sender, &self.token) else { return };
        let Some((done, total)) = measure(progress).filter(|(done, _)| *done > self.last) else {
            return;
        };
        self.last = done;
        let params = object([
            ("progressToken", token.clone()),
            ("progress", done.into()),
            ("total", total.into()),
        ]);
        let note = note("notifications/progress", params);
        // A client that does not keep up gets the next one.
        let _ = sender.try_send(json::to_string(&note).unwrap_or_default());
    }
}

/// A note as text, with large parts that are somewhere else.
pub(super) fn note_text(
    method: &'static str,
    params: Value,
    cells: &dyn CellSource,
) -> ApiResult<String> {
    let mut text = String::new();
    job_json::write_value(&note(method, params), cells, &mut text)?;
    Ok(text)
}

fn note(method: &'static str, params: Value) -> Value {
    object([("jsonrpc", "2.0".into()), ("method", method.into()), ("params", params)])
}

/// How much is done, of how much: bytes before items, as at the other doors.
fn measure(progress: &Value) -> Option<(i64, i64)> {
    let figures = Figures::of(progress);
    [figures.bytes, figures.items].into_iter().find_map(|count| {
        let total = count.total.filter(|total| *total > 0)?;
        Some((count.done.unwrap_or(0).min(total), total))
    })
}

/// Answers, in one piece or as a stream. Without patience there is no stream.
pub(super) async fn respond(
    door: &Arc<Door>,
    mut answering: Answering,
    told: Option<Receiver<String>>,
    patience: Option<Patience>,
) -> Response {
    let Some(Patience(time)) = patience else { return answering.await.into_response() };
    match tokio::time::timeout(time, &mut answering).await {
        Ok(rendered) => rendered.into_response(),
        Err(_) => {
            let streaming = door.metrics.streaming();
            let state = State { answering: Some(answering), told, _counted: streaming };
            sse::with_body(StatusCode::OK, Body::from_stream(unfold(state, next)))
        }
    }
}

struct State {
    answering: Option<Answering>,
    told: Option<Receiver<String>>,
    _counted: Streaming,
}

type Piece = Result<Bytes, std::convert::Infallible>;

async fn next(mut state: State) -> Option<(Piece, State)> {
    let answering = state.answering.as_mut()?;
    let note = async {
        match &mut state.told {
            Some(told) => told.recv().await,
            None => None,
        }
    };
    let piece = tokio::select! {
        biased;
        Some(note) = note => Bytes::from(sse::message(&note)),
        rendered = answering => {
            state.answering = None;
            // What was told last may still be here.
            let mut rest = String::new();
            while let Some(note) = state.told.as_mut().and_then(|told| told.try_recv().ok()) {
                rest.push_str(&sse::message(&note));
            }
            Bytes::from(rest + &sse::message(&rendered.text))
        }
        () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(sse::BEAT),
    };
    Some((Ok(piece), state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::Map;

    fn notes(token: Value) -> (Notes, Receiver<String>) {
        let meta = object([("_meta", object([("progressToken", token)]))]);
        let params = meta.as_map().cloned().unwrap_or_else(Map::new);
        let request = Request { id: 1.into(), method: "tools/call".to_owned(), params };
        let (notes, told) = Notes::of(&request, true);
        (notes, told.unwrap())
    }

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn progress_is_told_only_when_it_grows() {
        let (mut notes, mut told) = notes("t".into());
        for done in [1, 1, 3, 2, 4] {
            notes.tell(&value(&format!(r#"{{"processedItems":{done},"totalItems":4}}"#)));
        }
        notes.tell(&value(r#"{"processedItems":9}"#));
        drop(notes);
        let mut seen = Vec::new();
        while let Ok(note) = told.try_recv() {
            let note = value(&note);
            let params = note.as_map().unwrap().field("params").unwrap().clone();
            assert_eq!(params.as_map().unwrap().field("progressToken"), Some(&"t".into()));
            seen.push(params.as_map().unwrap().field("progress").and_then(Value::as_i64).unwrap());
        }
        assert_eq!(seen, [1, 3, 4]);
    }

    #[test]
    fn bytes_count_before_items_and_nobody_is_told_of_nothing() {
        let both = r#"{"processedItems":1,"totalItems":4,
            "outputStats":{"bytesProcessed":50,"bytesTotal":100}}"#;
        assert_eq!(measure(&value(both)), Some((50, 100)));
        assert_eq!(measure(&value(r#"{"totalItems":0}"#)), None);
        let (notes, told) =
            Notes::of(&Request { id: 1.into(), method: String::new(), params: Map::new() }, true);
        assert!(!notes.can_be_sent() && told.is_none());
    }

    #[tokio::test]
    async fn notes_come_before_the_answer_and_the_answer_is_last() {
        let (mut notes, told) = notes(7.into());
        notes.tell(&value(r#"{"processedItems":1,"totalItems":4}"#));
        let answering: Answering = Box::pin(async move {
            notes.tell(&value(r#"{"processedItems":4,"totalItems":4}"#));
            Rendered { status: StatusCode::OK, text: "{}".to_owned(), cause: None }
        });
        let metrics = Arc::new(crate::metrics::Metrics::new(crate::routes::all()));
        let state =
            State { answering: Some(answering), told: Some(told), _counted: metrics.streaming() };
        let (first, state) = next(state).await.unwrap();
        assert!(first.unwrap().starts_with(b"event: message\ndata: {"));
        let (last, state) = next(state).await.unwrap();
        let last = String::from_utf8(last.unwrap().to_vec()).unwrap();
        assert!(last.starts_with("event: message\ndata: {\"jsonrpc\""), "{last}");
        assert!(last.ends_with("\n\nevent: message\ndata: {}\n\n"), "{last}");
        assert!(next(state).await.is_none());
    }
}
