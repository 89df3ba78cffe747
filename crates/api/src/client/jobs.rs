//! Jobs: making, reading, listing and controlling them.

use std::time::Duration;

use catena_value::{Map, NoCells, Value, Vector};
use hyper::Method;
use hyper::header::HeaderName;

use super::{Ask, Client, ClientError, Follow};
use crate::limits::{HISTORY_RECORDS_MAX, PAGE_MAX, REQUEST_TIME, WAIT_MAX};
use crate::wire::{member, path_encoded, query_encoded};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// An operation to carry out.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The operation, in any form of reference.
    pub operation: String,
    /// Its input.
    pub input: Option<Value>,
    /// How long the venue waits for the job before it answers.
    pub wait: Option<Duration>,
    /// How long the job may take.
    pub timeout: Option<Duration>,
    /// Words to find the job by.
    pub tags: Vec<String>,
    /// Whether the job is only in memory, and forgotten at its end.
    pub is_private: bool,
    /// Makes a repeated request harmless.
    pub idempotency_key: Option<String>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    /// Only those that stand here.
    pub status: Option<String>,
    /// Only those of this operation.
    pub op: Option<String>,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// How many to leave out at the beginning.
    pub offset: u64,
    /// At most so many.
    pub limit: u64,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The jobs, as objects of their main members; of venues that do not know these, as IDs.
    pub items: Vec<Value>,
    /// How many there are in all.
    pub total: u64,
}

/// What can be done to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// End it, perhaps saying why.
    Cancel(Option<String>),
    /// Suspend it.
    Pause,
    /// Let it go on.
    Resume,
    /// Forget it.
    Delete,
}

impl Invocation {
    fn to_value(&self) -> Value {
        let mut members = vec![("operation", Value::from(self.operation.as_str()))];
        members.extend(self.input.clone().map(|input| ("input", input)));
        members.extend(self.wait.map(|wait| ("wait", milliseconds(wait))));
        members.extend(self.timeout.map(|timeout| ("timeoutMs", milliseconds(timeout))));
        if !self.tags.is_empty() {
            let tags: Vector = self.tags.iter().map(|tag| Value::from(tag.as_str())).collect();
            members.push(("tags", tags.into()));
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
        let (offset, limit) = (self.offset, self.limit.min(PAGE_MAX));
        let mut path = format!("/jobs?expand=true&order=newest&offset={offset}&limit={limit}");
        for (name, text) in [("status", &self.status), ("op", &self.op), ("tag", &self.tag)] {
            if let Some(text) = text {
                path += &format!("&{name}={}", query_encoded(text));
            }
        }
        path
    }
}

impl Client {
    /// Makes a job of an operation, and gives it as it stands.
    pub async fn invoke(&self, invocation: &Invocation) -> Result<Value, ClientError> {
        let mut ask = Ask::new(Method::POST, "/invoke").with_json(&invocation.to_value())?;
        ask.time = REQUEST_TIME + invocation.wait.unwrap_or_default().min(WAIT_MAX);
        if let Some(key) = &invocation.idempotency_key {
            ask = ask.with_header(IDEMPOTENCY_KEY, key)?;
        }
        self.json(ask).await
    }

    /// A job as it stands.
    pub async fn job(&self, id: &str) -> Result<Value, ClientError> {
        self.json(Ask::get(&format!("/jobs/{}", path_encoded(id)))).await
    }

    /// A job as it stands and then with every change, until it ends.
    pub fn follow(&self, id: &str) -> Follow {
        Follow::new(self.clone(), id)
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, query: &JobQuery) -> Result<JobPage, ClientError> {
        let page = self.json(Ask::get(&query.path())).await?;
        let items = member(&page, "items").and_then(Value::as_vector);
        let items = items.ok_or_else(|| self.malformed("a list without `items`"))?;
        let items: Vec<Value> = items.iter(&NoCells).flatten().collect();
        let total = member(&page, "total").and_then(number).unwrap_or(items.len() as u64);
        Ok(JobPage { items, total })
    }

    /// Controls a job, and gives it as it then stands; of a deleted one that it is deleted.
    pub async fn control(&self, id: &str, control: &Action) -> Result<Value, ClientError> {
        let (verb, reason) = match control {
            Action::Cancel(reason) => ("cancel", reason.as_deref()),
            Action::Pause => ("pause", None),
            Action::Resume => ("resume", None),
            Action::Delete => ("delete", None),
        };
        let mut ask = Ask::new(Method::PUT, &format!("/jobs/{}/{verb}", path_encoded(id)));
        if let Some(reason) = reason {
            let body = [("reason", reason)].into_iter().collect::<Map>();
            ask = ask.with_json(&body.into())?;
        }
        match control {
            // Some venues answer with nothing.
            Action::Delete => {
                self.json_or_nothing(ask).await?;
                let deleted = [("id", Value::from(id)), ("deleted", true.into())];
                Ok(deleted.into_iter().collect::<Map>().into())
            }
            _ => self.json(ask).await,
        }
    }

    /// Runs a job again, from a step on when one is named, and gives the new job.
    pub async fn rerun(&self, id: &str, from: Option<u32>) -> Result<Value, ClientError> {
        let members = from.map(|from| ("from", Value::from(from)));
        let body: Map = members.into_iter().collect();
        let path = format!("/jobs/{}/rerun", path_encoded(id));
        self.json(Ask::new(Method::POST, &path).with_json(&body.into())?).await
    }

    /// Sends a job a message, and gives what the venue says about it.
    pub async fn send(&self, id: &str, message: &Value) -> Result<Value, ClientError> {
        let path = format!("/jobs/{}", path_encoded(id));
        self.json(Ask::new(Method::POST, &path).with_json(message)?).await
    }

    /// The whole history of a job, page by page, as one document.
    pub async fn history(&self, id: &str) -> Result<Value, ClientError> {
        let mut records = Vec::new();
        let mut from = 0;
        loop {
            let path = format!("/jobs/{}/history?from={from}&limit={PAGE_MAX}", path_encoded(id));
            let page = self.json(Ask::get(&path)).await?;
            let entries = member(&page, "records").and_then(Value::as_vector);
            let entries = entries.ok_or_else(|| self.malformed("a history without `records`"))?;
            records.extend(entries.iter(&NoCells).flatten());
            let total = member(&page, "total").and_then(number).unwrap_or(records.len() as u64);
            match member(&page, "next").and_then(number) {
                None => return Ok(document(records, total)),
                Some(next) if next > from && next <= HISTORY_RECORDS_MAX => from = next,
                Some(_) => return Err(self.malformed("a history whose pages do not go on")),
            }
        }
    }

    async fn json_or_nothing(&self, ask: Ask) -> Result<(), ClientError> {
        let answer = self.ask(&ask).await?;
        match answer.status.is_success() {
            true => Ok(()),
            false => Err(super::refused(self.venue(), answer.status, &answer.body)),
        }
    }
}

fn document(records: Vec<Value>, total: u64) -> Value {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let members = [("records", Value::from(Vector::from_items(records))), ("total", total.into())];
    members.into_iter().collect::<Map>().into()
}

fn number(value: &Value) -> Option<u64> {
    value.as_i64().and_then(|number| u64::try_from(number).ok())
}
