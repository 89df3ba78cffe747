//! Notifications that a client receives before the response to its request.

use catena_job::progress::Figures;
use catena_value::{CellSource, Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::http::error::ApiResult;
use crate::http::json::write_value;
use crate::limits::MCP_NOTIFICATIONS_QUEUED_MAX;
use crate::mcp::client::Client;
use crate::mcp::json_rpc::RpcRequest;
use crate::values::object;

/// The notifications of one request.
pub(super) struct Notifications {
    sender: Option<Sender<String>>,
    /// The token that identifies progress notifications of this request.
    progress_token: Option<Value>,
    /// The last progress that was reported. It never decreases.
    last_progress: i64,
}

impl Notifications {
    /// For a client that wants none or cannot receive any.
    pub(super) fn disabled() -> Notifications {
        Notifications { sender: None, progress_token: None, last_progress: -1 }
    }

    /// The notifications of a request, and the queue to send from. Without a queue the request asks
    /// for none, or the client does not accept an event stream.
    pub(super) fn for_request(
        request: &RpcRequest,
        client: &Client,
        accepts_stream: bool,
    ) -> (Notifications, Option<Receiver<String>>) {
        let token = request.meta().and_then(|meta| meta.field("progressToken"));
        let token = token.filter(|token| token.as_str().is_some() || token.as_i64().is_some());
        let is_asked = request.method == "tools/call" && client.is_asked_in_stream();
        let is_wanted = token.is_some() || is_asked || request.method == "subscriptions/listen";
        if !is_wanted || !accepts_stream {
            return (Notifications::disabled(), None);
        }
        let (sender, queue) = channel(MCP_NOTIFICATIONS_QUEUED_MAX);
        let notifications = Notifications {
            sender: Some(sender),
            progress_token: token.cloned(),
            last_progress: -1,
        };
        (notifications, Some(queue))
    }

    /// Whether the client receives notifications.
    pub(super) fn is_enabled(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends a notification, waiting for room in the queue. Does nothing if they are disabled.
    pub(super) async fn send(&self, notification: String) {
        if let Some(sender) = &self.sender {
            // An error means that the client disconnected, which ends this request.
            let _ = sender.send(notification).await;
        }
    }

    /// Reports the progress of a job, if it has increased.
    pub(super) fn report_progress(&mut self, progress: &Value) {
        let (Some(sender), Some(token)) = (&self.sender, &self.progress_token) else { return };
        let Some((done, total)) = measure(progress).filter(|(done, _)| *done > self.last_progress)
        else {
            return;
        };
        self.last_progress = done;
        let params = object([
            ("progressToken", token.clone()),
            ("progress", done.into()),
            ("total", total.into()),
        ]);
        let notification = notification("notifications/progress", params);
        // If the queue is full, the client gets the next report instead.
        let _ = sender.try_send(json::to_string(&notification).unwrap_or_default());
    }
}

/// A notification as JSON. Parts of `params` that are not in memory are loaded from `cells`.
pub(super) fn notification_text(
    method: &'static str,
    params: Value,
    cells: &dyn CellSource,
) -> ApiResult<String> {
    let mut text = String::new();
    write_value(&notification(method, params), cells, &mut text)?;
    Ok(text)
}

fn notification(method: &'static str, params: Value) -> Value {
    object([("jsonrpc", "2.0".into()), ("method", method.into()), ("params", params)])
}

/// How much is done, and of how much: bytes if they are counted, otherwise items.
fn measure(progress: &Value) -> Option<(i64, i64)> {
    let figures = Figures::from_report(progress);
    [figures.bytes, figures.items].into_iter().find_map(|count| {
        let total = count.total.filter(|total| *total > 0)?;
        Some((count.done.unwrap_or(0).min(total), total))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use catena_value::Map;

    fn plain() -> Client {
        Client::without_capabilities(crate::mcp::revision::Revision::NEWEST)
    }

    pub(in crate::mcp) fn notifications(token: Value) -> (Notifications, Receiver<String>) {
        let meta = object([("_meta", object([("progressToken", token)]))]);
        let params = meta.as_map().cloned().unwrap_or_else(Map::new);
        let request = RpcRequest { id: 1.into(), method: "tools/call".to_owned(), params };
        let (notifications, queue) = Notifications::for_request(&request, &plain(), true);
        (notifications, queue.unwrap())
    }

    pub(in crate::mcp) fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn progress_is_reported_only_when_it_grows() {
        let (mut notifications, mut queue) = notifications("t".into());
        for done in [1, 1, 3, 2, 4] {
            notifications
                .report_progress(&value(&format!(r#"{{"processedItems":{done},"totalItems":4}}"#)));
        }
        notifications.report_progress(&value(r#"{"processedItems":9}"#));
        drop(notifications);
        let mut reported = Vec::new();
        while let Ok(text) = queue.try_recv() {
            let notification = value(&text);
            let params = notification.as_map().unwrap().field("params").unwrap().clone();
            assert_eq!(params.as_map().unwrap().field("progressToken"), Some(&"t".into()));
            reported
                .push(params.as_map().unwrap().field("progress").and_then(Value::as_i64).unwrap());
        }
        assert_eq!(reported, [1, 3, 4]);
    }

    #[test]
    fn bytes_take_precedence_over_items_and_no_progress_is_not_reported() {
        let both = r#"{"processedItems":1,"totalItems":4,
            "outputStats":{"bytesProcessed":50,"bytesTotal":100}}"#;
        assert_eq!(measure(&value(both)), Some((50, 100)));
        assert_eq!(measure(&value(r#"{"totalItems":0}"#)), None);
        let (notifications, queue) = Notifications::for_request(
            &RpcRequest { id: 1.into(), method: String::new(), params: Map::new() },
            &plain(),
            true,
        );
        assert!(!notifications.is_enabled() && queue.is_none());
    }
}
