//! Elicitation: a job that needs something asks the user of a client, and the response becomes a
//! message to the job.
//!
//! A request for input is identified by the record that asks for it, so that a response to an
//! earlier one is recognised and a response that is sent twice counts once. Credentials are never
//! asked for in a form: a job that needs authorisation may name a page (`url` in its output);
//! otherwise the result of the call says what to send.

use catena_engine::{Caller, Engine};
use catena_job::Status;
use catena_value::{CellSource, Map, Value};

use crate::http::json::write_value;
use crate::limits::MCP_QUESTION_BYTES_MAX;
use crate::mcp::call_result::JOB_META;
use crate::mcp::client::Client;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::revision::Revision;
use crate::mcp::rpc_result::RpcResult;
use crate::mcp::snapshot::JobSnapshot;
use crate::values::{list, object, with_member};

/// What a job asks for.
pub(super) struct Elicitation {
    /// The ID of the record that asks.
    key: String,
    params: Value,
}

impl Elicitation {
    /// The parameters of the request, as a revision has them.
    pub(super) fn params_for(&self, revision: Revision) -> Value {
        match self.params.as_map() {
            Some(params) if !revision.has_modes() => {
                let kept =
                    params.fields().into_iter().filter(|(name, _)| name.as_str() != Some("mode"));
                kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map>().into()
            }
            _ => self.params.clone(),
        }
    }

    /// The map of requests that results and tasks carry.
    pub(super) fn as_requests(&self) -> Value {
        let request =
            [("method", Value::from("elicitation/create")), ("params", self.params.clone())];
        object([(self.key.as_str(), object(request))])
    }

    /// The result of a call, which the client repeats with the response.
    pub(super) fn into_result(self, snapshot: &JobSnapshot) -> RpcResult {
        let result = object([
            ("resultType", "input_required".into()),
            ("inputRequests", self.as_requests()),
            ("requestState", snapshot.job.id().into()),
        ]);
        RpcResult::from(result).with_meta(JOB_META, snapshot.job.id().into())
    }
}

/// What a job asks for. `None` if it asks for nothing, or for nothing that this client supports.
pub(super) fn for_client(client: &Client, snapshot: &JobSnapshot) -> Option<Elicitation> {
    let key = snapshot.job.head().to_string();
    let cells = snapshot.cells();
    let output = snapshot.job.field("output").and_then(|output| output.loaded(cells).ok());
    let message = message(snapshot, output.as_ref());
    let member = |name: &str| member(output.as_ref(), name, cells);
    let params = match snapshot.job.status() {
        Status::InputRequired if client.supports_forms => {
            // A worker that asks names the schema of the answer `schema`.
            let own = member("requestedSchema").or_else(|| member("schema"));
            let own = own.filter(is_form);
            [
                ("mode", "form".into()),
                ("message", message.into()),
                ("requestedSchema", own.unwrap_or_else(single_field_schema)),
            ]
        }
        Status::AuthRequired if client.supports_urls => {
            let url = member("url").filter(|url| url.as_str().is_some_and(is_web_url))?;
            [("mode", "url".into()), ("message", message.into()), ("url", url)]
        }
        _ => return None,
    };
    Some(Elicitation { key, params: object(params) })
}

fn member(output: Option<&Value>, name: &str, cells: &dyn CellSource) -> Option<Value> {
    let value = output?.as_map()?.get(&name.into(), cells).ok()??;
    value.fully_loaded(cells).ok()
}

/// Whether a schema describes the fields of a form.
fn is_form(schema: &Value) -> bool {
    schema.as_map().is_some_and(|schema| schema.field("properties").is_some())
}

fn is_web_url(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// The schema of a form with one text field.
fn single_field_schema() -> Value {
    let field = [("type", Value::from("string")), ("title", "Reply".into())];
    object([
        ("type", "object".into()),
        ("properties", object([("content", object(field))])),
        ("required", list(["content".into()])),
    ])
}

/// The text for the user: the job's message and its output so far, if that is short.
fn message(snapshot: &JobSnapshot, output: Option<&Value>) -> String {
    let message =
        snapshot.text("message").unwrap_or("The job is waiting for a response.").to_owned();
    let Some(output) = output.filter(|output| has_content(output)) else { return message };
    let mut text = String::new();
    let is_written = write_value(output, snapshot.cells(), &mut text).is_ok();
    if is_written && text.len() <= MCP_QUESTION_BYTES_MAX {
        format!("{message}\n{text}")
    } else {
        message
    }
}

/// Whether an output says more than what the form is made of.
fn has_content(output: &Value) -> bool {
    let is_form = |name: &Value| matches!(name.as_str(), Some("requestedSchema" | "schema"));
    match output.as_map() {
        Some(members) => members.fields().into_iter().any(|(name, _)| !is_form(name)),
        None => !output.is_nil(),
    }
}

/// What became of a response to an elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElicitationOutcome {
    /// There is no response to what the job asks for now.
    NoResponse,
    /// The response was sent to the job.
    Answered,
    /// The user opened the URL.
    VisitedUrl,
    /// The user declined, and the job was cancelled.
    Declined,
    /// The user dismissed the request, and the job still waits.
    Dismissed,
}

/// Delivers the user's response to a job. Responses to anything other than what the job asks for now
/// are ignored.
pub(super) async fn deliver(
    engine: &Engine,
    caller: &Caller,
    snapshot: &JobSnapshot,
    responses: &Map,
) -> Result<ElicitationOutcome, RpcError> {
    let key = snapshot.job.head().to_string();
    let status = snapshot.job.status();
    let is_waiting = matches!(status, Status::InputRequired | Status::AuthRequired);
    let Some(response) = responses.field(&key).filter(|_| is_waiting) else {
        return Ok(ElicitationOutcome::NoResponse);
    };
    let error = |what: &str| RpcError::invalid_params(format!("the response to {key} {what}"));
    let response = response.as_map().ok_or_else(|| error("must be an object"))?;
    let id = snapshot.job.id();
    match response.field("action").and_then(Value::as_str) {
        Some("accept") if status == Status::AuthRequired => Ok(ElicitationOutcome::VisitedUrl),
        Some("accept") => {
            let content = response.field("content").and_then(Value::as_map);
            let content = content.ok_or_else(|| error("has no `content`"))?;
            let message = with_member(content, "messageId", format!("mcp-{key}").into());
            engine.send(caller, id, message.into(), None).await?;
            Ok(ElicitationOutcome::Answered)
        }
        Some("decline") => {
            engine.cancel(caller, id, Some("the user declined to answer".to_owned())).await?;
            Ok(ElicitationOutcome::Declined)
        }
        Some("cancel") => Ok(ElicitationOutcome::Dismissed),
        _ => Err(error("must have an `action` of accept, decline or cancel")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::revision::Revision;
    use catena_job::state::{Ask, Event};
    use catena_job::{Change, Job, JobId, NewJob};
    use catena_value::{NoCells, json};

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    /// A job that asks, with this output.
    fn snapshot(asks: fn(Ask) -> Event, output: Option<&str>) -> JobSnapshot {
        let new_job = NewJob {
            id: JobId::from_bytes([7; 16]),
            venue: "did:key:venue".into(),
            op: "test:chat".into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        let (mut job, _) = Job::create(new_job, 1, None).unwrap();
        job.append(Change::new(Event::Started, 2)).unwrap();
        let ask = Ask { message: Some("Well?".to_owned()), output: output.map(value) };
        job.append(Change::new(asks(ask), 3)).unwrap();
        JobSnapshot { job, cells: None }
    }

    fn client(supports_forms: bool, supports_urls: bool) -> Client {
        Client { supports_forms, supports_urls, ..Client::without_capabilities(Revision::NEWEST) }
    }

    fn params(client: Client, snapshot: &JobSnapshot) -> Option<Value> {
        for_client(&client, snapshot).map(|elicitation| elicitation.params)
    }

    fn get(params: &Value, name: &str) -> Value {
        params.as_map().unwrap().get(&name.into(), &NoCells).unwrap().unwrap_or_default()
    }

    #[test]
    fn a_client_is_asked_only_for_what_it_supports() {
        let input = snapshot(Event::AskedForInput, None);
        assert!(params(client(true, false), &input).is_some());
        assert!(params(client(false, true), &input).is_none());
        let page = r#"{"url":"https://login.example/a"}"#;
        let auth = snapshot(Event::AskedForAuth, Some(page));
        assert!(params(client(true, false), &auth).is_none(), "no form asks for credentials");
        let asked = params(client(true, true), &auth).unwrap();
        assert_eq!(get(&asked, "mode"), "url".into());
        assert_eq!(get(&asked, "url"), "https://login.example/a".into());
        for output in [None, Some(r#"{"url":"javascript:alert(1)"}"#), Some(r#"{"url":5}"#)] {
            let auth = snapshot(Event::AskedForAuth, output);
            assert!(params(client(true, true), &auth).is_none(), "{output:?}");
        }
    }

    #[test]
    fn a_form_is_the_jobs_own_or_has_one_field() {
        let plain = params(client(true, false), &snapshot(Event::AskedForInput, None)).unwrap();
        assert_eq!(get(&plain, "message"), "Well?".into());
        assert_eq!(get(&plain, "requestedSchema"), single_field_schema());
        let own = r#"{"requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}"#;
        let asked =
            params(client(true, false), &snapshot(Event::AskedForInput, Some(own))).unwrap();
        assert_eq!(get(&asked, "requestedSchema"), get(&value(own), "requestedSchema"));
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(MCP_QUESTION_BYTES_MAX));
        let asked =
            params(client(true, false), &snapshot(Event::AskedForInput, Some(&long))).unwrap();
        assert_eq!(get(&asked, "message"), "Well?".into());
    }
}
