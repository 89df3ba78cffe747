//! A client of another venue, with the rules that operations are bound to.
//!
//! Requests are those of every API client ([`catena_api::Client`]); they leave through
//! [`crate::outbound`], and only to venues on the operator's list, which may then have any address
//! and use plain `http`. Requests are anonymous unless a caller's delegations are shown, or the job
//! was started with some: this venue's own rights are never lent to a caller. Nothing is retried
//! here except reads of a job that is polled.

mod transport;

use std::sync::Arc;
use std::time::Duration;

use catena_api::client::jobs::{Action, Invocation};
use catena_api::client::poll::next_interval;
use catena_api::client::{ClientError, Refusal};
use catena_api::limits::POLL_FIRST;
use catena_api::{Client, Credentials};
use catena_engine::operations::federation::REMOTE_CONFLICT;
use catena_engine::runtime::Env;
use catena_engine::{Failure, RetryAdvice};
use catena_job::{JobId, Status};
use catena_value::Value;
use url::Url;

use crate::fields::{Fields, invalid_input, text};
use crate::limits::{
    POLL_FAILURES_MAX, REMOTE_CONTROL_TIME, REMOTE_ERROR_CHARS_MAX, REMOTE_JOB_ID_BYTES_MAX,
    RETRY_AFTER_MAX,
};
use crate::nested::ended_without_output;
use crate::outbound::{Gate, OpenGate, Outbound, OutboundError, venue_url};
use transport::OutboundTransport;

/// A client of one other venue.
#[derive(Debug, Clone)]
pub(crate) struct VenueClient {
    outbound: Arc<Outbound>,
    base: Url,
    credentials: Credentials,
}

/// A job of another venue, as it was last fetched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FetchedJob {
    pub(crate) id: String,
    pub(crate) status: Status,
    /// The job as the venue sent it.
    pub(crate) document: Value,
}

impl FetchedJob {
    fn parse(document: Value) -> Result<Self, String> {
        let fields = Fields::from_value(&document).map_err(|failure| failure.error)?;
        let id = fields.optional_text("id").ok().flatten().filter(|id| is_job_id(id));
        let status = fields.optional_text("status").ok().flatten();
        let status = status.and_then(|word| Status::parse(&word));
        match (id, status) {
            (Some(id), Some(status)) => Ok(FetchedJob { id, status, document }),
            _ => Err("it has no valid id or no known status".to_owned()),
        }
    }

    /// The output of a job that has ended, or the failure that explains why it has none.
    pub(crate) fn outcome(self) -> Result<Value, Failure> {
        let field = |name: &str| self.document.as_map().and_then(|map| map.field(name)).cloned();
        if self.status == Status::Complete {
            return Ok(field("output").unwrap_or(Value::Nil));
        }
        let error = field("error").and_then(|error| text(&error));
        Err(ended_without_output(&self.id, self.status, error.as_deref()))
    }
}

/// Returns true if a text can be the ID of a job, and so a segment of a path.
fn is_job_id(text: &str) -> bool {
    (1..=REMOTE_JOB_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

impl VenueClient {
    /// A client of the venue with this URL or `did:web`. Fails if the operator does not list it.
    pub(crate) fn new(outbound: Arc<Outbound>, venue: &str) -> Result<Self, Failure> {
        let base = venue_url(venue).map_err(|reason| {
            Failure::new("invalid_url", format!("`venue` is not a URL or did:web: {reason}"))
        })?;
        outbound.check_venue(&base)?;
        Ok(VenueClient { outbound, base, credentials: Credentials::Anonymous })
    }

    /// The same client with a bearer token.
    pub(crate) fn with_token(&self, token: String) -> Self {
        VenueClient { credentials: Credentials::Token(token), ..self.clone() }
    }

    fn api<'a, G: Gate>(&'a self, gate: &'a G) -> Client<OutboundTransport<'a, G>> {
        let transport = OutboundTransport { outbound: &self.outbound, base: &self.base, gate };
        Client::new(transport, self.credentials.clone())
    }

    /// Invokes an operation at the venue and returns the new job.
    pub(crate) async fn invoke(
        &self,
        invocation: &Invocation,
        gate: &impl Gate,
    ) -> Result<FetchedJob, Failure> {
        self.parse_job(self.api(gate).invoke(invocation).await)
    }

    /// The venue's status document.
    pub(crate) async fn status(&self, gate: &impl Gate) -> Result<Value, Failure> {
        self.document(self.api(gate).status().await)
    }

    /// The venue's DID document, which is public.
    pub(crate) async fn did_document(&self, gate: &impl Gate) -> Result<Value, Failure> {
        self.document(self.api(gate).did_document().await)
    }

    /// A page of a job's history: at most `limit` records, starting at record `from`.
    pub(crate) async fn history_page(
        &self,
        id: &str,
        from: u64,
        limit: u64,
        gate: &impl Gate,
    ) -> Result<Value, Failure> {
        self.document(self.api(gate).history_page(id, from, limit).await)
    }

    /// A job of the venue, without the outputs of its steps.
    pub(crate) async fn job(&self, id: &str, gate: &impl Gate) -> Result<FetchedJob, Failure> {
        if !is_job_id(id) {
            return Err(invalid_input(format!("{id:?} is not a job ID")));
        }
        self.check_id(self.parse_job(self.api(gate).job_in_brief(id).await)?, id)
    }

    /// Cancels, pauses or resumes a job of the venue, and returns the job after that.
    pub(crate) async fn control(
        &self,
        id: &str,
        action: &Action,
        gate: &impl Gate,
    ) -> Result<FetchedJob, Failure> {
        let api = self.api(gate).with_request_time(REMOTE_CONTROL_TIME);
        self.check_id(self.parse_job(api.control(id, action).await)?, id)
    }

    /// Sends a message to a job of the venue.
    pub(crate) async fn send_message(
        &self,
        id: &str,
        message: &Value,
        gate: &impl Gate,
    ) -> Result<(), Failure> {
        let delivered = self.api(gate).deliver_message(id, message).await;
        delivered.map_err(|error| self.failure(&error, "JSON"))
    }

    /// Waits for the end of a job by reading it at growing intervals.
    pub(crate) async fn wait(
        &self,
        mut job: FetchedJob,
        gate: &impl Gate,
    ) -> Result<FetchedJob, Failure> {
        let mut interval = POLL_FIRST;
        let mut failures = 0;
        while !job.status.is_terminal() {
            gate.sleep(interval).await;
            interval = next_interval(interval);
            match self.job(&job.id, gate).await {
                Ok(fetched) => {
                    job = fetched;
                    failures = 0;
                }
                Err(failure)
                    if failure.retry == RetryAdvice::MaySucceed && failures < POLL_FAILURES_MAX =>
                {
                    interval = failure.after.map_or(interval, |after| interval.max(after));
                    failures += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(job)
    }

    /// Fails unless the venue may have this DID. Credentials for it are sent to this URL.
    pub(crate) fn check_did(&self, did: &str) -> Result<(), Failure> {
        let checked = self.outbound.check_venue_did(&self.base, did);
        checked.map_err(|error| self.malformed(&error.to_string()))
    }

    /// Scheme, host and port of the venue.
    pub(crate) fn origin(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    /// Fails unless delegations of this venue's users may be sent to a venue with this status
    /// document: the venue keeps them apart, or the operator accepts that it does not.
    pub(crate) fn check_scoping(&self, status: &Value) -> Result<(), Failure> {
        let delegation = status.as_map().and_then(|status| status.field("delegation"));
        let is_scoped = delegation.and_then(Value::as_str) == Some("scoped");
        if is_scoped || self.outbound.is_shared_venue(&self.base) {
            return Ok(());
        }
        let origin = self.origin();
        let error = format!(
            "venue {origin} does not keep the users of this venue apart (its status does not say \
             `\"delegation\": \"scoped\"`), so steps with delegations are not sent there; an operator \
             can allow it with --allow-venue {origin},shared"
        );
        Err(Failure::new("venue_not_scoped", error))
    }

    /// The failure of a venue whose responses cannot be used.
    pub(crate) fn malformed(&self, reason: &str) -> Failure {
        let venue = self.base.origin().ascii_serialization();
        Failure::new("remote_malformed", format!("venue {venue} cannot be used: {reason}"))
    }

    /// The response must be the requested job and no other.
    fn check_id(&self, job: FetchedJob, id: &str) -> Result<FetchedJob, Failure> {
        let parsed = |text: &str| text.parse::<JobId>().ok();
        if job.id == id || parsed(id).is_some_and(|id| parsed(&job.id) == Some(id)) {
            return Ok(job);
        }
        Err(self.malformed(&format!("it answered with job {} for {id}", job.id)))
    }

    fn parse_job(
        &self,
        response: Result<Value, ClientError<OutboundError>>,
    ) -> Result<FetchedJob, Failure> {
        let document = response.map_err(|error| self.failure(&error, "a job"))?;
        FetchedJob::parse(document).map_err(|reason| self.unexpected("a job", &reason))
    }

    fn document(
        &self,
        response: Result<Value, ClientError<OutboundError>>,
    ) -> Result<Value, Failure> {
        response.map_err(|error| self.failure(&error, "JSON"))
    }

    /// The failure of an operation whose request did not succeed. `expected` names what the response
    /// should have been.
    fn failure(&self, error: &ClientError<OutboundError>, expected: &str) -> Failure {
        match error {
            ClientError::Transport(error) => error.clone().into(),
            ClientError::Malformed { reason, .. } => self.unexpected(expected, reason),
            ClientError::Identity { error, .. } => self.malformed(&error.to_string()),
            ClientError::Invalid(error) => invalid_input(error.to_string()),
            ClientError::Auth(refusal)
            | ClientError::NotFound(refusal)
            | ClientError::Conflict(refusal)
            | ClientError::Busy(refusal)
            | ClientError::Refused(refusal) => refusal_failure(refusal),
        }
    }

    fn unexpected(&self, expected: &str, reason: &str) -> Failure {
        let venue = self.base.origin().ascii_serialization();
        let error = format!("the response of venue {venue} is not {expected}: {reason}");
        Failure::new("remote_malformed", error)
    }
}

/// The failure of an operation whose request another venue refused.
fn refusal_failure(refusal: &Refusal) -> Failure {
    let member = |name: &str| text(refusal.body.as_ref()?.as_map()?.field(name)?);
    let reason = member("error").map_or_else(
        || "it gave no reason".to_owned(),
        |reason| reason.chars().take(REMOTE_ERROR_CHARS_MAX).collect(),
    );
    let error = format!("venue {} answered {}: {reason}", refusal.venue, refusal.status);
    let failure = match refusal.status {
        429 => Failure::transient("remote_busy", error),
        500..=599 => Failure::transient("remote_trouble", error),
        401 | 403 => Failure::new("remote_forbidden", error),
        404 => Failure::new("remote_not_found", error),
        // Another request is being handled, such as an earlier one with the same idempotency key.
        409 if member("retry").as_deref() == Some("same_request") => {
            Failure::transient("remote_busy", error)
        }
        409 => Failure::new(REMOTE_CONFLICT, error),
        _ => Failure::new("remote_refused", error),
    };
    Failure { after: retry_after(refusal), ..failure }
}

/// The delay that a venue asks for in whole seconds, up to [`RETRY_AFTER_MAX`].
fn retry_after(refusal: &Refusal) -> Option<Duration> {
    let seconds = refusal.retry_after.as_deref()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// Cancels a job of another venue when it is dropped.
pub(crate) struct RemoteGuard {
    client: VenueClient,
    id: Option<String>,
    env: Arc<dyn Env>,
    /// Whether a drop means that the job was abandoned. It does not if the venue is stopping.
    should_cancel: Box<dyn Fn() -> bool + Send + Sync>,
}

impl RemoteGuard {
    pub(crate) fn new(
        client: VenueClient,
        id: String,
        env: Arc<dyn Env>,
        should_cancel: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        RemoteGuard { client, id: Some(id), env, should_cancel: Box::new(should_cancel) }
    }

    /// Drops the guard without cancelling, because the job has ended.
    pub(crate) fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for RemoteGuard {
    fn drop(&mut self) {
        let Some(id) = self.id.take().filter(|_| (self.should_cancel)()) else { return };
        let client = self.client.clone();
        let gate = OpenGate(self.env.clone());
        self.env.spawn(Box::pin(async move {
            // Best effort: the operation has ended, so nothing can react to a failure.
            drop(client.control(&id, &Action::Cancel(None), &gate).await);
        }));
    }
}

#[cfg(test)]
mod tests;
