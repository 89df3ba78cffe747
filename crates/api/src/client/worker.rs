//! The requests of workers: claiming jobs, reporting them, ending them, and what a job does meanwhile.

use std::time::Duration;

use catena_auth::{KeyPair, signed_end};
use catena_value::{Map, NoCells, Value, Vector};
use hyper::Method;

use super::transport::{ApiRequest, Transport};
use super::{Client, ClientResult};
use crate::limits::WORKER_WAIT_MAX;
use crate::wire::{WORKER_API, encode_path, member};

/// A request for jobs.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The name of the worker: unique among those of its owner, and new with every start.
    pub worker: String,
    /// The queues.
    pub queues: Vec<String>,
    /// The largest number of jobs.
    pub max: usize,
    /// How long the venue waits for the first one.
    pub wait: Duration,
    /// Jobs that have ended.
    pub done: Vec<JobEnd>,
    /// What an executor says about itself: an object with `tier`.
    pub about: Option<Value>,
}

/// The result of a claim.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The jobs.
    pub jobs: Vec<ClaimedJob>,
    /// What became of each entry of [`Claim::done`]: `None` if it was recorded, else the error code.
    pub done: Vec<(String, Option<String>)>,
    /// When the lease of the worker ends, as Unix time in ms by the venue's clock.
    pub lease_until: i64,
}

/// A job that a worker holds.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Its ID.
    pub id: String,
    /// The fence under which the worker holds it.
    pub fence: i64,
    /// The number of the attempt, from 1.
    pub attempt: i64,
    /// The operation as the caller named it.
    pub op: String,
    /// The input.
    pub input: Value,
    /// The message that the turn answers.
    pub message: Option<Value>,
    /// The whole job as the venue sent it.
    pub document: Value,
}

impl ClaimedJob {
    fn from_value(document: Value) -> Option<ClaimedJob> {
        let text = |name: &str| Some(member(&document, name)?.to_text()?.into_owned());
        let number = |name: &str| member(&document, name)?.as_i64();
        Some(ClaimedJob {
            id: text("id")?,
            fence: number("fence")?,
            attempt: number("attempt")?,
            op: text("op")?,
            input: member(&document, "input").cloned().unwrap_or_default(),
            message: member(&document, "message").cloned(),
            document,
        })
    }

    /// The caller's secrets that the operation declares, by name. They must not be logged.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let secrets = member(&self.document, "secrets").and_then(Value::as_map);
        let entries = secrets.into_iter().flat_map(|secrets| secrets.iter(&NoCells).flatten());
        let text = |value: &Value| value.to_text().map(|text| text.into_owned());
        entries.filter_map(|(name, value)| Some((text(&name)?, text(&value)?))).collect()
    }

    /// The output of a step that an earlier turn recorded under a key.
    pub fn step(&self, key: &str) -> Option<Value> {
        let steps = member(&self.document, "steps")?.as_vector()?;
        let mut steps = steps.iter(&NoCells).flatten();
        let step = steps.find(|step| member(step, "key").and_then(Value::as_str) == Some(key))?;
        Some(member(&step, "output").cloned().unwrap_or_default())
    }
}

/// The end of a job that a worker holds.
#[derive(Debug, Clone)]
pub struct JobEnd {
    /// The job.
    pub id: String,
    /// The fence under which the worker holds it.
    pub fence: i64,
    /// How it ended.
    pub end: End,
}

/// How a worker ends a job.
#[derive(Debug, Clone)]
pub enum End {
    /// With an output.
    Output(Value),
    /// With an error.
    Error {
        /// The text.
        error: String,
        /// The failure code.
        code: Option<String>,
        /// Whether the job may be retried.
        retry: Retry,
    },
    /// By hitting its limit of time. For executors only.
    TimedOut {
        /// The text.
        error: String,
    },
    /// In this way, with what an executor says about the execution.
    Executed {
        /// How the job ended.
        end: Box<End>,
        /// What becomes a member of its last record.
        execution: Value,
    },
    /// By asking a person.
    Ask {
        /// What is asked.
        message: String,
        /// The schema of the answer.
        schema: Option<Value>,
    },
    /// By giving it back until calls have ended; without keys it is offered again at once.
    Awaiting(Vec<String>),
}

/// Whether a job may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    /// As its definition says.
    #[default]
    May,
    /// No.
    Never,
    /// After this time at the earliest.
    After(Duration),
}

impl JobEnd {
    /// The members of the request, with a signature if there is a key.
    fn members(&self, key: Option<&KeyPair>) -> Vec<(&'static str, Value)> {
        let mut members = vec![("fence", Value::from(self.fence))];
        self.end.add_members(&mut members);
        let signature = key.zip(self.end.result()).map(|(key, result)| {
            ("signature", signed_end::sign(key, &self.id, self.fence, result).into())
        });
        members.extend(signature);
        members
    }

    fn to_value(&self, key: Option<&KeyPair>) -> Value {
        let id = ("id", Value::from(self.id.as_str()));
        object(std::iter::once(id).chain(self.members(key)))
    }
}

impl End {
    /// The output or the error, which a worker signs; `None` if the job ends in another way, or not yet.
    fn result(&self) -> Option<Result<&Value, &str>> {
        match self {
            End::Output(output) => Some(Ok(output)),
            End::Error { error, .. } => Some(Err(error)),
            End::Executed { end, .. } => end.result(),
            End::TimedOut { .. } | End::Ask { .. } | End::Awaiting(_) => None,
        }
    }

    fn add_members(&self, members: &mut Vec<(&'static str, Value)>) {
        match self {
            End::Output(output) => members.push(("output", output.clone())),
            End::Error { error, code, retry } => {
                members.push(("error", error.as_str().into()));
                members.extend(code.as_deref().map(|code| ("code", code.into())));
                members.push((
                    "retry",
                    match retry {
                        Retry::May => "may".into(),
                        Retry::Never => "never".into(),
                        Retry::After(time) => milliseconds(*time),
                    },
                ));
            }
            End::Ask { message, schema } => {
                let mut ask = vec![("message", Value::from(message.as_str()))];
                ask.extend(schema.clone().map(|schema| ("schema", schema)));
                members.push(("ask", object(ask)));
            }
            End::Awaiting(keys) => members.push(("awaiting", texts(keys))),
            End::TimedOut { error } => members.push(("timedOut", error.as_str().into())),
            End::Executed { end, execution } => {
                end.add_members(members);
                members.push(("execution", execution.clone()));
            }
        }
    }
}

/// A report of a job that a worker holds.
#[derive(Debug, Clone)]
pub struct Report {
    /// The job.
    pub id: String,
    /// The fence under which the worker holds it.
    pub fence: i64,
    /// Its progress: `processedItems`, `totalItems` and more.
    pub progress: Option<Value>,
    /// What it has logged since the last report.
    pub log: Option<String>,
}

/// What a worker must do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkerSignal {
    /// Continue.
    #[default]
    Go,
    /// Suspend the work.
    Pause,
    /// Stop for good and discard the result.
    Stop,
}

fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}

fn texts(texts: &[String]) -> Value {
    texts.iter().map(|text| Value::from(text.as_str())).collect::<Vector>().into()
}

fn milliseconds(time: Duration) -> Value {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).into()
}

impl<T: Transport> Client<T> {
    fn worker_request(&self, path: &str, wait: Duration) -> ApiRequest {
        let request = ApiRequest::new(Method::POST, format!("{WORKER_API}{path}"));
        ApiRequest { time: self.request_time + wait.min(WORKER_WAIT_MAX), ..request }
    }

    /// Claims jobs, and ends earlier ones. A client with a key signs their outputs and errors.
    pub async fn claim(&self, claim: &Claim) -> ClientResult<Claimed, T> {
        let max = i64::try_from(claim.max).unwrap_or(i64::MAX);
        let mut members = vec![
            ("worker", Value::from(claim.worker.as_str())),
            ("queues", texts(&claim.queues)),
            ("max", max.into()),
            ("waitMs", milliseconds(claim.wait)),
        ];
        if !claim.done.is_empty() {
            let key = self.credentials.key();
            let done: Vector = claim.done.iter().map(|end| end.to_value(key)).collect();
            members.push(("done", done.into()));
        }
        members.extend(claim.about.clone().map(|about| ("about", about)));
        let request = self.worker_request("/claim", claim.wait).with_json(&object(members))?;
        let reply = self.fetch_json(request).await?;
        let list = |name: &str| -> Vec<Value> {
            let items = member(&reply, name).and_then(Value::as_vector);
            items.map_or_else(Vec::new, |items| items.iter(&NoCells).flatten().collect())
        };
        let jobs: Option<Vec<_>> = list("jobs").into_iter().map(ClaimedJob::from_value).collect();
        let text = |entry: &Value, name: &str| Some(member(entry, name)?.to_text()?.into_owned());
        let done = list("done");
        let done = done.iter().filter_map(|end| Some((text(end, "id")?, text(end, "code"))));
        Ok(Claimed {
            jobs: jobs.ok_or_else(|| self.malformed("a claimed job lacks a member"))?,
            done: done.collect(),
            lease_until: member(&reply, "leaseUntil").and_then(Value::as_i64).unwrap_or(0),
        })
    }

    /// Reports all jobs of a worker. Returns the signals for them, as soon as there is one.
    pub async fn beat(
        &self,
        worker: &str,
        jobs: &[Report],
        wait: Duration,
    ) -> ClientResult<Vec<(String, WorkerSignal)>, T> {
        let jobs: Vector = jobs
            .iter()
            .map(|job| {
                let mut members =
                    vec![("id", Value::from(job.id.as_str())), ("fence", job.fence.into())];
                members.extend(job.progress.clone().map(|progress| ("progress", progress)));
                members.extend(job.log.as_deref().map(|log| ("log", log.into())));
                object(members)
            })
            .collect();
        let body = object([
            ("worker", worker.into()),
            ("waitMs", milliseconds(wait)),
            ("jobs", jobs.into()),
        ]);
        let request = self.worker_request("/beat", wait).with_json(&body)?;
        let reply = self.fetch_json(request).await?;
        let signals = member(&reply, "signals").and_then(Value::as_vector);
        let signals = signals.ok_or_else(|| self.malformed("the reply has no `signals`"))?;
        let parse = |entry: Value| {
            let signal = match member(&entry, "signal")?.as_str()? {
                "go" => WorkerSignal::Go,
                "pause" => WorkerSignal::Pause,
                _ => WorkerSignal::Stop,
            };
            Some((member(&entry, "id")?.to_text()?.into_owned(), signal))
        };
        Ok(signals.iter(&NoCells).flatten().filter_map(parse).collect())
    }

    /// Ends a job that a worker holds. A client with a key signs the output or the error.
    pub async fn end_job(&self, end: &JobEnd) -> ClientResult<(), T> {
        let path = format!("/jobs/{}/end", encode_path(&end.id));
        let request = self.worker_request(&path, Duration::ZERO);
        self.send_only(request.with_json(&object(end.members(self.credentials.key())))?).await
    }

    /// Records a step of a job. Returns its output: that of the first recording.
    pub async fn record_step(
        &self,
        job: &ClaimedJob,
        key: &str,
        output: Value,
    ) -> ClientResult<Value, T> {
        let body = object([("fence", job.fence.into()), ("key", key.into()), ("output", output)]);
        let path = format!("/jobs/{}/step", encode_path(&job.id));
        let request = self.worker_request(&path, Duration::ZERO).with_json(&body)?;
        let reply = self.fetch_json(request).await?;
        Ok(member(&reply, "output").cloned().unwrap_or_default())
    }

    /// Invokes an operation for a job. Returns the called job: once it has ended, or as it is after a
    /// time.
    pub async fn call_for(
        &self,
        job: &ClaimedJob,
        key: &str,
        operation: &str,
        input: Value,
        wait: Duration,
    ) -> ClientResult<Value, T> {
        let body = object([
            ("fence", job.fence.into()),
            ("key", key.into()),
            ("operation", operation.into()),
            ("input", input),
            ("waitMs", milliseconds(wait)),
        ]);
        let path = format!("/jobs/{}/call", encode_path(&job.id));
        self.fetch_json(self.worker_request(&path, wait).with_json(&body)?).await
    }
}
