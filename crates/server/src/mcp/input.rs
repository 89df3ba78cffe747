//! A job that asks for something, as a question to the user of a client, and the answer as a
//! message to the job.
//!
//! A question is known by the record that asks it, so that an answer can be told from one to an
//! earlier question, and one that is sent twice counts once. Credentials are never asked for in a
//! form: a job that waits for authorisation may name a page (`url` in its output), and otherwise the
//! caller is told what to send.

use std::time::Duration;

use catena_engine::{Caller, Engine};
use catena_job::Status;
use catena_value::{CellSource, Map, Value};

use super::outcome::{Answer, JOB, Seen};
use super::revision::Client;
use super::{Refusal, with};
use crate::grid::job_json;
use crate::limits::MCP_QUESTION_BYTES_MAX;
use crate::values::{list, object};

/// How long a call waits for what its user does on a page, before it asks again.
pub(super) const PAGE_TIME: Duration = Duration::from_secs(10);

/// What a job wants to know.
pub(super) struct Question {
    key: String,
    params: Value,
}

impl Question {
    /// As the map of requests that results and tasks carry.
    pub(super) fn as_requests(&self) -> Value {
        let request =
            [("method", Value::from("elicitation/create")), ("params", self.params.clone())];
        object([(self.key.as_str(), object(request))])
    }

    /// As the result of a call, which the client makes again with the answer.
    pub(super) fn as_result(&self, seen: &Seen) -> Answer {
        let result = object([
            ("resultType", "input_required".into()),
            ("inputRequests", self.as_requests()),
            ("requestState", seen.job.id().into()),
        ]);
        Answer::from(result).with_meta(JOB, seen.job.id().into())
    }
}

/// What a job wants to know, if it wants to know something that this client can ask.
pub(super) fn question(client: &Client, seen: &Seen) -> Option<Question> {
    let key = seen.job.head().to_string();
    let output = seen.job.field("output").and_then(|output| output.loaded(seen.cells()).ok());
    let message = message(seen, output.as_ref());
    let member = |name: &str| member(output.as_ref(), name, seen.cells());
    let params = match seen.job.status() {
        Status::InputRequired if client.has_forms => {
            let own = member("requestedSchema").filter(|schema| schema.as_map().is_some());
            [
                ("mode", "form".into()),
                ("message", message.into()),
                ("requestedSchema", own.unwrap_or_else(any_text)),
            ]
        }
        Status::AuthRequired if client.has_pages => {
            let url = member("url").filter(|url| url.as_str().is_some_and(is_page))?;
            [("mode", "url".into()), ("message", message.into()), ("url", url)]
        }
        _ => return None,
    };
    Some(Question { key, params: object(params) })
}

fn member(output: Option<&Value>, name: &str, cells: &dyn CellSource) -> Option<Value> {
    let value = output?.as_map()?.get(&name.into(), cells).ok()??;
    value.fully_loaded(cells).ok()
}

fn is_page(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// A form with one field.
fn any_text() -> Value {
    let field = [("type", Value::from("string")), ("title", "Reply".into())];
    object([
        ("type", "object".into()),
        ("properties", object([("content", object(field))])),
        ("required", list(["content".into()])),
    ])
}

/// What the user reads: what the job says, and what it has said so far, if that is short.
fn message(seen: &Seen, output: Option<&Value>) -> String {
    let said = seen.text("message").unwrap_or("The job waits for somebody.").to_owned();
    let Some(output) = output.filter(|output| !output.is_nil()) else { return said };
    let mut text = String::new();
    let is_written = job_json::write_value(output, seen.cells(), &mut text).is_ok();
    match is_written && text.len() <= MCP_QUESTION_BYTES_MAX {
        true => format!("{said}\n{text}"),
        false => said,
    }
}

/// What a client gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// Nothing to what the job asks now.
    Nothing,
    /// An answer, which the job has got.
    Answer,
    /// The user went to the page.
    Page,
    /// The user does not want to; the job is cancelled.
    Declined,
    /// The user looked away; the job still waits.
    Dismissed,
}

/// Gives a job what it asked for. Answers to anything else than what it asks now are left aside.
pub(super) async fn give(
    engine: &Engine,
    caller: &Caller,
    seen: &Seen,
    responses: &Map,
) -> Result<Given, Refusal> {
    let key = seen.job.head().to_string();
    let waits = matches!(seen.job.status(), Status::InputRequired | Status::AuthRequired);
    let Some(response) = responses.field(&key).filter(|_| waits) else {
        return Ok(Given::Nothing);
    };
    let bad = |what: &str| Refusal::invalid_params(format!("the response to {key} {what}"));
    let response = response.as_map().ok_or_else(|| bad("must be an object"))?;
    let id = seen.job.id();
    match response.field("action").and_then(Value::as_str) {
        Some("accept") if seen.job.status() == Status::AuthRequired => Ok(Given::Page),
        Some("accept") => {
            let content = response.field("content").and_then(Value::as_map);
            let content = content.ok_or_else(|| bad("has no `content`"))?;
            let message = with(content, "messageId", format!("mcp-{key}").into());
            engine.send(caller, id, message.into(), None).await?;
            Ok(Given::Answer)
        }
        Some("decline") => {
            engine.cancel(caller, id, Some("the user declined to answer".to_owned())).await?;
            Ok(Given::Declined)
        }
        Some("cancel") => Ok(Given::Dismissed),
        _ => Err(bad("has an `action` that is none of accept, decline, cancel")),
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
    fn seen(asks: fn(Ask) -> Event, output: Option<&str>) -> Seen {
        let opening = NewJob {
            id: JobId::from_bytes([7; 16]),
            venue: "did:key:venue".into(),
            op: "test:chat".into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        let (mut job, _) = Job::open(opening, 1, None).unwrap();
        job.append(Change::new(Event::Started, 2)).unwrap();
        let ask = Ask { message: Some("Well?".to_owned()), output: output.map(value) };
        job.append(Change::new(asks(ask), 3)).unwrap();
        Seen { job, cells: None }
    }

    fn client(has_forms: bool, has_pages: bool) -> Client {
        Client { has_forms, has_pages, ..Client::silent(Revision::NEWEST) }
    }

    fn params(client: Client, seen: &Seen) -> Option<Value> {
        question(&client, seen).map(|question| question.params)
    }

    fn get(params: &Value, name: &str) -> Value {
        params.as_map().unwrap().get(&name.into(), &NoCells).unwrap().unwrap_or_default()
    }

    #[test]
    fn only_what_a_client_can_ask_is_asked() {
        let input = seen(Event::AskedForInput, None);
        assert!(params(client(true, false), &input).is_some());
        assert!(params(client(false, true), &input).is_none());
        let page = r#"{"url":"https://login.example/a"}"#;
        let auth = seen(Event::AskedForAuth, Some(page));
        assert!(params(client(true, false), &auth).is_none(), "no form asks for credentials");
        let asked = params(client(true, true), &auth).unwrap();
        assert_eq!(get(&asked, "mode"), "url".into());
        assert_eq!(get(&asked, "url"), "https://login.example/a".into());
        for output in [None, Some(r#"{"url":"javascript:alert(1)"}"#), Some(r#"{"url":5}"#)] {
            let auth = seen(Event::AskedForAuth, output);
            assert!(params(client(true, true), &auth).is_none(), "{output:?}");
        }
    }

    #[test]
    fn a_form_is_the_jobs_own_or_one_field() {
        let plain = params(client(true, false), &seen(Event::AskedForInput, None)).unwrap();
        assert_eq!(get(&plain, "message"), "Well?".into());
        assert_eq!(get(&plain, "requestedSchema"), any_text());
        let own = r#"{"requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}"#;
        let asked = params(client(true, false), &seen(Event::AskedForInput, Some(own))).unwrap();
        assert_eq!(get(&asked, "requestedSchema"), get(&value(own), "requestedSchema"));
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(MCP_QUESTION_BYTES_MAX));
        let asked = params(client(true, false), &seen(Event::AskedForInput, Some(&long))).unwrap();
        assert_eq!(get(&asked, "message"), "Well?".into());
    }
}
