//! Jobs: creating, reading, listing and controlling them.

use std::time::Duration;

use catena_value::{Map, NoCells, Value, Vector};
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};

use super::transport::{ApiRequest, Transport};
use super::{Client, ClientResult, InvalidRequest};
use crate::limits::{HISTORY_RECORDS_MAX, PAGE_MAX, WAIT_MAX};
use crate::wire::{DEPTH_HEADER, encode_path, encode_query, member};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DEPTH: HeaderName = HeaderName::from_static(DEPTH_HEADER);

/// An operation to invoke.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The operation, in any form of reference.
    pub operation: String,
    /// Its input.
    pub input: Option<Value>,
    /// How long the venue waits for the job's end before it answers.
    pub wait: Option<Duration>,
    /// How long the job may take.
    pub timeout: Option<Duration>,
    /// Tags by which the job can be found.
    pub tags: Vec<String>,
    /// Whether the job is kept in memory only and deleted when it ends.
    pub is_private: bool,
    /// Makes a repeated request return the same job.
    pub idempotency_key: Option<String>,
    /// Delegated capabilities (UCAN) that authorise the invocation, as compact tokens.
    pub delegations: Vec<String>,
    /// How many orchestrations the invocation is nested in.
    pub depth: u32,
}

/// A filter and page of a job list.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    /// Only jobs with this status.
    pub status: Option<String>,
    /// Only jobs of this operation.
    pub op: Option<String>,
    /// Only jobs with this tag.
    pub tag: Option<String>,
    /// The DID of the owner, or `*` for all owners.
    pub owner: Option<String>,
    /// Only jobs that were created at this time or later: Unix time in ms, or ISO 8601.
    pub since: Option<String>,
    /// Only jobs that were created before this time.
    pub until: Option<String>,
    /// Only sub-jobs of this job.
    pub parent: Option<String>,
    /// Only jobs whose operation, tags or error contain this text, or whose ID begins with it.
    pub text: Option<String>,
    /// `next` of the previous page. If it is there, no jobs need be skipped.
    pub cursor: Option<String>,
    /// How many jobs to skip.
    pub offset: u64,
    /// Page size.
    pub limit: u64,
}

/// A page of a job list.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The jobs as objects with their main members, or as bare IDs from venues without those.
    pub items: Vec<Value>,
    /// How many jobs match the filter.
    pub total: u64,
    /// True if there may be more than `total`: the venue did not count all.
    pub is_at_least: bool,
    /// The cursor of the next page. `None` on the last page, and from venues without cursors.
    pub next: Option<String>,
}

/// What a rerun of an orchestration runs again. The outputs of all other steps are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerunScope {
    /// The steps that did not complete, and what depends on them. Everything if the job is COMPLETE.
    Unfinished,
    /// The same, and this step and what depends on it.
    From(u32),
    /// All steps.
    Everything,
}

/// An action on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Cancel the job, optionally with a reason.
    Cancel(Option<String>),
    /// Pause the job.
    Pause,
    /// Resume the job.
    Resume,
    /// Delete the job.
    Delete,
}

impl Action {
    /// The last segment of the action's path.
    fn verb(&self) -> &'static str {
        match self {
            Action::Cancel(_) => "cancel",
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Delete => "delete",
        }
    }
}

impl Invocation {
    fn to_value(&self) -> Value {
        let strings = |texts: &[String]| -> Value {
            texts.iter().map(|text| Value::from(text.as_str())).collect::<Vector>().into()
        };
        let mut members = vec![("operation", Value::from(self.operation.as_str()))];
        members.extend(self.input.clone().map(|input| ("input", input)));
        members.extend(self.wait.map(|wait| ("wait", milliseconds(wait))));
        members.extend(self.timeout.map(|timeout| ("timeoutMs", milliseconds(timeout))));
        if !self.tags.is_empty() {
            members.push(("tags", strings(&self.tags)));
        }
        if !self.delegations.is_empty() {
            members.push(("ucans", strings(&self.delegations)));
        }
        if self.is_private {
            members.push(("private", true.into()));
        }
        members.into_iter().collect::<Map>().into()
    }
}

fn milliseconds(time: Duration) -> Value {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).into()
}

impl JobQuery {
    fn path(&self) -> String {
        let offset = self.offset;
        let limit = self.limit.min(PAGE_MAX);
        let mut path = format!("/jobs?expand=true&order=newest&offset={offset}&limit={limit}");
        let members = [
            ("status", &self.status),
            ("op", &self.op),
            ("tag", &self.tag),
            ("owner", &self.owner),
            ("since", &self.since),
            ("until", &self.until),
            ("parent", &self.parent),
            ("text", &self.text),
            ("cursor", &self.cursor),
        ];
        for (name, text) in members {
            if let Some(text) = text {
                path += &format!("&{name}={}", encode_query(text));
            }
        }
        path
    }
}

impl<T: Transport> Client<T> {
    /// Invokes an operation and returns the new job.
    pub async fn invoke(&self, invocation: &Invocation) -> ClientResult<Value, T> {
        let request = self.request(Method::POST, "/invoke");
        let mut request = request.with_json(&invocation.to_value())?;
        request.time += invocation.wait.unwrap_or_default().min(WAIT_MAX);
        if let Some(key) = &invocation.idempotency_key {
            request = request.with_header(IDEMPOTENCY_KEY, key)?;
        }
        if invocation.depth > 0 {
            request.headers.insert(DEPTH, HeaderValue::from(invocation.depth));
        }
        self.fetch_json(request).await
    }

    /// Runs an operation and returns its output, once it has one.
    pub async fn run(&self, operation: &str, input: Value) -> ClientResult<Value, T> {
        let body: Map =
            [("operation", Value::from(operation)), ("input", input)].into_iter().collect();
        let mut request = self.request(Method::POST, "/run").with_json(&body.into())?;
        request.time += WAIT_MAX;
        self.fetch_json(request).await
    }

    /// A job in its current state.
    pub async fn job(&self, id: &str) -> ClientResult<Value, T> {
        self.fetch_json(self.request(Method::GET, &job_path(id, ""))).await
    }

    /// The same without the outputs of its steps.
    pub async fn job_in_brief(&self, id: &str) -> ClientResult<Value, T> {
        self.fetch_json(self.request(Method::GET, &job_path(id, "?steps=brief"))).await
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, query: &JobQuery) -> ClientResult<JobPage, T> {
        let page = self.fetch_json(self.request(Method::GET, &query.path())).await?;
        let items = member(&page, "items").and_then(Value::as_vector);
        let items = items.ok_or_else(|| self.malformed("the list has no `items`"))?;
        let items: Vec<Value> = items.iter(&NoCells).flatten().collect();
        let total = member(&page, "total");
        let at_least = total.and_then(|total| member(total, "atLeast")).and_then(as_u64);
        let is_at_least = at_least.is_some();
        let total = total.and_then(as_u64).or(at_least).unwrap_or(items.len() as u64);
        let next = member(&page, "next").and_then(Value::as_str).map(str::to_owned);
        Ok(JobPage { items, total, is_at_least, next })
    }

    /// Applies an action to a job. Returns the job after it, or `{id, deleted}` for a deleted job.
    pub async fn control(&self, id: &str, action: &Action) -> ClientResult<Value, T> {
        let mut request = self.request(Method::PUT, &job_path(id, &format!("/{}", action.verb())));
        if let Action::Cancel(Some(reason)) = action {
            let body = [("reason", reason.as_str())].into_iter().collect::<Map>();
            request = request.with_json(&body.into())?;
        }
        if *action != Action::Delete {
            return self.fetch_json(request).await;
        }
        // Some venues answer a deletion without a body.
        self.send_only(request).await?;
        let deleted = [("id", Value::from(id)), ("deleted", true.into())];
        Ok(deleted.into_iter().collect::<Map>().into())
    }

    /// Runs a job again and returns the new job.
    pub async fn rerun(&self, id: &str, scope: RerunScope) -> ClientResult<Value, T> {
        let member = match scope {
            RerunScope::Unfinished => None,
            RerunScope::From(step) => Some(("from", Value::from(step))),
            RerunScope::Everything => Some(("all", true.into())),
        };
        let body: Map = member.into_iter().collect();
        let request = self.request(Method::POST, &job_path(id, "/rerun"));
        self.fetch_json(request.with_json(&body.into())?).await
    }

    /// Sends a message to a job and returns the venue's receipt.
    pub async fn send_message(&self, id: &str, message: &Value) -> ClientResult<Value, T> {
        self.fetch_json(self.message_request(id, message)?).await
    }

    /// Sends a message to a job. Any success of the venue counts, whatever its body is.
    pub async fn deliver_message(&self, id: &str, message: &Value) -> ClientResult<(), T> {
        self.send_only(self.message_request(id, message)?).await
    }

    fn message_request(&self, id: &str, message: &Value) -> Result<ApiRequest, InvalidRequest> {
        self.request(Method::POST, &job_path(id, "")).with_json(message)
    }

    /// A page of a job's history: at most `limit` records, starting at record `from`.
    pub async fn history_page(&self, id: &str, from: u64, limit: u64) -> ClientResult<Value, T> {
        let path = job_path(id, &format!("/history?from={from}&limit={limit}"));
        self.fetch_json(self.request(Method::GET, &path)).await
    }

    /// The complete history of a job, fetched page by page, as one document.
    pub async fn history(&self, id: &str) -> ClientResult<Value, T> {
        let mut records = Vec::new();
        let mut from = 0;
        loop {
            let page = self.history_page(id, from, PAGE_MAX).await?;
            let entries = member(&page, "records").and_then(Value::as_vector);
            let entries = entries.ok_or_else(|| self.malformed("the history has no `records`"))?;
            records.extend(entries.iter(&NoCells).flatten());
            let total = member(&page, "total").and_then(as_u64).unwrap_or(records.len() as u64);
            match member(&page, "next").and_then(as_u64) {
                None => return Ok(history_document(records, total)),
                Some(next) if next > from && next <= HISTORY_RECORDS_MAX => from = next,
                Some(_) => {
                    return Err(self.malformed("the pages of the history are not in order"));
                }
            }
        }
    }
}

fn job_path(id: &str, rest: &str) -> String {
    format!("/jobs/{}{rest}", encode_path(id))
}

fn history_document(records: Vec<Value>, total: u64) -> Value {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let members = [("records", Value::from(Vector::from_items(records))), ("total", total.into())];
    members.into_iter().collect::<Map>().into()
}

fn as_u64(value: &Value) -> Option<u64> {
    value.as_i64().and_then(|number| u64::try_from(number).ok())
}
