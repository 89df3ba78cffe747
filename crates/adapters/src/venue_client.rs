//! A client of another venue: invokes operations there and looks at their jobs, as any Covia
//! client does.
//!
//! It goes out through [`crate::outbound`] and only to venues on the operator's list, which may
//! then have any address and speak plain `http`. Requests are anonymous, unless a caller's
//! delegations are shown, or the job was asked for with some: this venue's own rights are never
//! lent to a caller. Redirects are not followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catena_engine::env::Env;
use catena_engine::federation::{DEPTH_HEADER, REMOTE_CONFLICT};
use catena_engine::{Failure, RetryAdvice};
use catena_job::{JobId, Status};
use catena_value::{Value, json};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use url::Url;

use crate::fields::{Fields, invalid, text};
use crate::limits::{
    POLL_FAILURES_MAX, POLL_FIRST, POLL_GROWTH_HALVES, POLL_MAX, REMOTE_CONTROL_TIME,
    REMOTE_DEPTH_MAX, REMOTE_JOB_BYTES_MAX, RETRY_AFTER_MAX,
};
use crate::nested::ended;
use crate::outbound::{Gate, Open, Outbound, Reach, Redirects, Request, Response, venue_url};

/// Speaks to one other venue.
#[derive(Debug, Clone)]
pub(crate) struct VenueClient {
    outbound: Arc<Outbound>,
    base: Url,
    /// Who asks; nobody as a rule.
    credentials: Option<HeaderValue>,
}

/// A job of another venue, as it was last seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteJob {
    pub(crate) id: String,
    pub(crate) status: Status,
    /// The job as the venue sent it.
    pub(crate) record: Value,
}

impl RemoteJob {
    fn read(record: Value) -> Result<Self, String> {
        let fields = Fields::of(&record).map_err(|failure| failure.error)?;
        let id = fields.optional_text("id").ok().flatten().filter(|id| is_id(id));
        let status = fields.optional_text("status").ok().flatten();
        let status = status.and_then(|word| Status::parse(&word));
        match (id, status) {
            (Some(id), Some(status)) => Ok(RemoteJob { id, status, record }),
            _ => Err("it has no id or no status".to_owned()),
        }
    }

    /// Its output, or why it has none.
    pub(crate) fn outcome(self) -> Result<Value, Failure> {
        let field = |name: &str| self.record.as_map().and_then(|map| map.field(name)).cloned();
        if self.status == Status::Complete {
            return Ok(field("output").unwrap_or(Value::Nil));
        }
        let error = field("error").and_then(|error| text(&error));
        Err(ended(&self.id, self.status, error.as_deref()))
    }
}

/// Whether a text can be a job's ID, and so a segment of a path.
fn is_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// What comes along with an invocation.
pub(crate) struct Invocation<'a> {
    pub(crate) operation: &'a str,
    pub(crate) input: Value,
    /// Makes a repeated request harmless.
    pub(crate) key: Option<&'a str>,
    /// What the caller may do there.
    pub(crate) delegations: &'a [String],
    /// How many orchestrations it is nested in.
    pub(crate) depth: u32,
}

impl VenueClient {
    /// A client of the venue with this URL or `did:web`, if the operator lists it.
    pub(crate) fn new(outbound: Arc<Outbound>, venue: &str) -> Result<Self, Failure> {
        let base = venue_url(venue).map_err(|reason| {
            Failure::new("invalid_url", format!("`venue` says no place: {reason}"))
        })?;
        outbound.permit_venue(&base)?;
        Ok(VenueClient { outbound, base, credentials: None })
    }

    /// The same client, which says with a token who asks.
    pub(crate) fn known_by(&self, token: &str) -> Result<Self, Failure> {
        let credentials = Some(header(&format!("Bearer {token}"))?);
        Ok(VenueClient { credentials, ..self.clone() })
    }

    /// Makes a job of an operation over there.
    pub(crate) async fn invoke(
        &self,
        operation: &str,
        input: Value,
        gate: &impl Gate,
    ) -> Result<RemoteJob, Failure> {
        let bare = Invocation { operation, input, key: None, delegations: &[], depth: 0 };
        self.invoke_with(bare, gate).await
    }

    /// Makes a job of an operation over there, with everything that can come along.
    pub(crate) async fn invoke_with(
        &self,
        invocation: Invocation<'_>,
        gate: &impl Gate,
    ) -> Result<RemoteJob, Failure> {
        let Invocation { operation, input, key, delegations, depth } = invocation;
        let mut members = vec![("operation", operation.into()), ("input", input)];
        if !delegations.is_empty() {
            let tokens = delegations.iter().map(|token| Value::from(token.as_str()));
            members.push(("ucans", tokens.collect::<catena_value::Vector>().into()));
        }
        let body = json::to_string(&members.into_iter().collect::<catena_value::Map>().into());
        let body = body.map_err(|error| invalid(format!("`input`: {error}")))?;
        let mut request = self.request(Method::POST, &["invoke"]);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            request.headers.insert("idempotency-key", header(key)?);
        }
        if depth > 0 {
            request.headers.insert(DEPTH_HEADER, HeaderValue::from(depth));
        }
        request.body = Bytes::from(body);
        self.job_of(request, gate).await
    }

    /// A document of the venue.
    pub(crate) async fn document(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        gate: &impl Gate,
    ) -> Result<Value, Failure> {
        let mut request = self.request(Method::GET, path);
        if !query.is_empty() {
            request.url.query_pairs_mut().extend_pairs(query);
        }
        self.document_of(request, gate).await
    }

    /// The venue's DID document, which anybody may read.
    pub(crate) async fn did_document(&self, gate: &impl Gate) -> Result<Value, Failure> {
        let mut request = self.request(Method::GET, &[]);
        request.url = self.base.clone();
        if let Ok(mut segments) = request.url.path_segments_mut() {
            segments.pop_if_empty().extend([".well-known", "did.json"]);
        }
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/did+json"));
        self.document_of(request, gate).await
    }

    async fn document_of(&self, request: Request, gate: &impl Gate) -> Result<Value, Failure> {
        let response = self.outbound.send(request, gate).await?;
        let venue = self.base.origin().ascii_serialization();
        let body = json::read_nested(&response.body, REMOTE_DEPTH_MAX);
        if !response.status.is_success() {
            return Err(refusal(&venue, &response, body.ok()));
        }
        body.map_err(|error| {
            let error = format!("the answer of venue {venue} is not JSON: {error}");
            Failure::new("remote_malformed", error)
        })
    }

    /// A job over there.
    pub(crate) async fn job(&self, id: &str, gate: &impl Gate) -> Result<RemoteJob, Failure> {
        if !is_id(id) {
            return Err(invalid(format!("{id:?} is not the ID of a job")));
        }
        self.named_job(self.request(Method::GET, &["jobs", id]), id, gate).await
    }

    /// The job in an answer, which must be the one that was asked for.
    async fn named_job(
        &self,
        request: Request,
        id: &str,
        gate: &impl Gate,
    ) -> Result<RemoteJob, Failure> {
        let job = self.job_of(request, gate).await?;
        let parsed = |text: &str| text.parse::<JobId>().ok();
        let is_it = job.id == id || parsed(id).is_some_and(|id| parsed(&job.id) == Some(id));
        match is_it {
            true => Ok(job),
            false => Err(self.malformed(&format!("it answered with job {} for {id}", job.id))),
        }
    }

    /// Whether this is where it goes.
    pub(crate) fn is_at(&self, url: &Url) -> bool {
        self.base.origin() == url.origin()
    }

    /// An answer that cannot be what was asked for.
    pub(crate) fn malformed(&self, reason: &str) -> Failure {
        let venue = self.base.origin().ascii_serialization();
        Failure::new("remote_malformed", format!("venue {venue} cannot be used: {reason}"))
    }

    /// The job when it has ended. Looks again and again, at growing intervals.
    pub(crate) async fn wait(
        &self,
        mut job: RemoteJob,
        gate: &impl Gate,
    ) -> Result<RemoteJob, Failure> {
        let mut pause = POLL_FIRST;
        let mut failures = 0;
        while !job.status.is_terminal() {
            gate.sleep(pause).await;
            pause = longer(pause);
            match self.job(&job.id, gate).await {
                Ok(seen) => {
                    job = seen;
                    failures = 0;
                }
                Err(failure)
                    if failure.retry == RetryAdvice::MaySucceed && failures < POLL_FAILURES_MAX =>
                {
                    pause = failure.after.map_or(pause, |after| pause.max(after));
                    failures += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(job)
    }

    /// Cancels, pauses or resumes a job over there; the job after that.
    pub(crate) async fn control(
        &self,
        id: &str,
        action: &str,
        gate: &impl Gate,
    ) -> Result<RemoteJob, Failure> {
        let mut request = self.request(Method::PUT, &["jobs", id, action]);
        request.time = REMOTE_CONTROL_TIME;
        self.named_job(request, id, gate).await
    }

    /// Sends a job over there a message.
    pub(crate) async fn message(
        &self,
        id: &str,
        message: &Value,
        gate: &impl Gate,
    ) -> Result<(), Failure> {
        let body = json::to_string(message);
        let body = body.map_err(|error| invalid(format!("the message: {error}")))?;
        let mut request = self.request(Method::POST, &["jobs", id]);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.body = Bytes::from(body);
        let response = self.outbound.send(request, gate).await?;
        if response.status.is_success() {
            return Ok(());
        }
        let venue = self.base.origin().ascii_serialization();
        let body = json::read_nested(&response.body, REMOTE_DEPTH_MAX);
        Err(refusal(&venue, &response, body.ok()))
    }

    fn request(&self, method: Method, path: &[&str]) -> Request {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let mut request = Request::new(method, url);
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        request.headers.extend(self.credentials.clone().map(|value| (AUTHORIZATION, value)));
        request.redirects = Redirects::Return;
        request.reach = Reach::Listed;
        request.response_bytes_max = REMOTE_JOB_BYTES_MAX;
        request
    }

    async fn job_of(&self, request: Request, gate: &impl Gate) -> Result<RemoteJob, Failure> {
        let response = self.outbound.send(request, gate).await?;
        let venue = self.base.origin().ascii_serialization();
        let status = response.status;
        let body = json::read_nested(&response.body, REMOTE_DEPTH_MAX);
        if !status.is_success() {
            return Err(refusal(&venue, &response, body.ok()));
        }
        let malformed = |reason: String| {
            let error = format!("the answer of venue {venue} is not a job: {reason}");
            Failure::new("remote_malformed", error)
        };
        let record = body.map_err(|error| malformed(error.to_string()))?;
        RemoteJob::read(record).map_err(malformed)
    }
}

/// The next pause between two looks.
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * POLL_GROWTH_HALVES / 2).min(POLL_MAX)
}

/// What a venue's refusal means here.
fn refusal(venue: &str, response: &Response, body: Option<Value>) -> Failure {
    const SAID_CHARS_MAX: usize = 1_000;
    let said = body.as_ref().and_then(|body| text(body.as_map()?.field("error")?));
    let said = said.map(|said| said.chars().take(SAID_CHARS_MAX).collect::<String>());
    let said = said.unwrap_or_else(|| "it gave no reason".to_owned());
    let error = format!("venue {venue} answered {}: {said}", response.status.as_u16());
    let advice = body.as_ref().and_then(|body| text(body.as_map()?.field("retry")?));
    let failure = match response.status {
        StatusCode::TOO_MANY_REQUESTS => Failure::transient("remote_busy", error),
        status if status.is_server_error() => Failure::transient("remote_trouble", error),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::new("remote_forbidden", error),
        StatusCode::NOT_FOUND => Failure::new("remote_not_found", error),
        // Somebody else is at it, such as an earlier request with the same idempotency key.
        StatusCode::CONFLICT if advice.as_deref() == Some("same_request") => {
            Failure::transient("remote_busy", error)
        }
        StatusCode::CONFLICT => Failure::new(REMOTE_CONFLICT, error),
        _ => Failure::new("remote_refused", error),
    };
    Failure { after: retry_after(&response.headers), ..failure }
}

/// How long a venue wants to be left alone, in whole seconds; as long as anybody may want that.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::try_from(text).map_err(|_| invalid("a header cannot be sent".to_owned()))
}

/// Cancels a job of another venue when it is dropped.
pub(crate) struct RemoteGuard {
    client: VenueClient,
    id: Option<String>,
    env: Arc<dyn Env>,
    /// Whether a drop means that somebody gave the job up. When the venue stops it does not.
    means_cancel: Box<dyn Fn() -> bool + Send + Sync>,
}

impl RemoteGuard {
    pub(crate) fn new(
        client: VenueClient,
        id: String,
        env: Arc<dyn Env>,
        means_cancel: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        RemoteGuard { client, id: Some(id), env, means_cancel: Box::new(means_cancel) }
    }

    /// The job has ended: there is nothing to cancel.
    pub(crate) fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for RemoteGuard {
    fn drop(&mut self) {
        let Some(id) = self.id.take().filter(|_| (self.means_cancel)()) else { return };
        let (client, gate) = (self.client.clone(), Open(self.env.clone()));
        self.env.spawn(Box::pin(async move {
            // Best effort: nobody is left to hear of it.
            drop(client.control(&id, "cancel", &gate).await);
        }));
    }
}

#[cfg(test)]
mod tests;
