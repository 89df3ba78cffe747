//! Steps of orchestrations that run on other venues, over HTTP.
//!
//! It invokes the operation there as any client would, polls the job until it ends, forwards
//! messages to it, pauses and resumes it together with the orchestration here, and cancels it when
//! the orchestration no longer needs it. Starting a step twice is safe: its idempotency key makes
//! the second request return the same job. Sending a message twice is safe because of its ID.
//!
//! A step that was started with a caller's delegations belongs to this venue there, and later
//! requests are made in this venue's name. Every other step was started anonymously, and so are the
//! requests about it.

use std::sync::Arc;
use std::time::Duration;

use catena_api::client::jobs::{Action, Invocation};
use catena_api::client::poll::next_interval;
use catena_api::limits::POLL_FIRST;
use catena_engine::operations::federation::{
    Delivery, Federation, PauseChange, RemoteCall, RemoteJob, RemoteJobRef, RemoteReply,
    RemoteStart, Requester,
};
use catena_engine::{Failure, RetryAdvice, RunControl};
use catena_job::{JobId, RecordId, Status};
use catena_value::{NoCells, Value};

use crate::limits::{REMOTE_DID_BYTES_MAX, REMOTE_OUTAGE_MAX, REMOTE_START_BACKOFF_MAX};
use crate::outbound::Outbound;
use crate::venue_client::{FetchedJob, VenueClient};

/// Reaches other venues over HTTP.
#[derive(Debug)]
pub(crate) struct HttpFederation {
    outbound: Arc<Outbound>,
}

impl HttpFederation {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        HttpFederation { outbound }
    }

    fn job_client(&self, target: RemoteJobRef) -> RemoteJobClient {
        RemoteJobClient { outbound: Arc::clone(&self.outbound), target }
    }
}

impl Federation for HttpFederation {
    fn check_venue(
        &self,
        venue: &str,
        presents_delegations: bool,
        control: RunControl,
    ) -> RemoteReply<()> {
        let client = VenueClient::new(Arc::clone(&self.outbound), venue);
        Box::pin(async move {
            let client = client?;
            if !presents_delegations {
                return Ok(());
            }
            match client.status(&control).await {
                Ok(status) => client.check_scoping(&status),
                Err(failure) if failure.code == "remote_forbidden" => {
                    client.check_scoping(&Value::Nil)
                }
                // It may be reachable when the step starts, which checks again.
                Err(_) => Ok(()),
            }
        })
    }

    fn start_job(&self, call: RemoteCall) -> RemoteReply<RemoteStart> {
        let client = VenueClient::new(Arc::clone(&self.outbound), &call.venue);
        Box::pin(async move {
            let client = client?;
            let mut backoff = Backoff::new(REMOTE_START_BACKOFF_MAX);
            loop {
                match start_remote_job(&client, &call).await {
                    Err(failure) => backoff.wait_or_fail(failure, &call.control).await?,
                    started => return started,
                }
            }
        })
    }

    fn fetch_job(&self, target: RemoteJobRef) -> RemoteReply<RemoteJob> {
        let client = self.job_client(target);
        Box::pin(async move { client.fetch().await.map(to_remote_job) })
    }

    fn poll_job(&self, target: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let client = self.job_client(target);
        Box::pin(async move {
            let mut backoff = Backoff::new(REMOTE_OUTAGE_MAX);
            let mut interval = POLL_FIRST;
            loop {
                match client.fetch_checked().await.map(to_remote_job) {
                    Ok(job) if is_update(&job, known) => return Ok(job),
                    Ok(_) => {
                        backoff = Backoff::new(REMOTE_OUTAGE_MAX);
                        client.target.control.sleep(interval).await;
                        interval = next_interval(interval);
                    }
                    Err(failure) => backoff.wait_or_fail(failure, &client.target.control).await?,
                }
            }
        })
    }

    fn send_message(&self, target: RemoteJobRef, message: Value) -> RemoteReply<Delivery> {
        let client = self.job_client(target);
        Box::pin(async move {
            let mut backoff = Backoff::new(REMOTE_OUTAGE_MAX);
            loop {
                let failure = match client.send_message(&message).await {
                    Ok(()) => return Ok(Delivery::Accepted),
                    Err(failure) => failure,
                };
                match failure.retry {
                    RetryAdvice::Never => return Ok(Delivery::Refused(failure)),
                    RetryAdvice::MaySucceed => {
                        backoff.wait_or_fail(failure, &client.target.control).await?;
                    }
                }
            }
        })
    }

    fn cancel_job(&self, target: RemoteJobRef) -> RemoteReply<RemoteJob> {
        let client = self.job_client(target);
        Box::pin(async move {
            match client.control(&Action::Cancel(None)).await {
                Ok(job) => Ok(to_remote_job(job)),
                // Whatever the venue answered, the job itself shows whether it was cancelled.
                Err(failure) if failure.retry == RetryAdvice::Never => {
                    client.fetch().await.map(to_remote_job)
                }
                Err(failure) => Err(failure),
            }
        })
    }

    fn set_paused(&self, target: RemoteJobRef, change: PauseChange) -> RemoteReply<RemoteJob> {
        let client = self.job_client(target);
        let action = match change {
            PauseChange::Pause => Action::Pause,
            PauseChange::Resume => Action::Resume,
        };
        Box::pin(async move { client.control(&action).await.map(to_remote_job) })
    }
}

/// Makes requests about one job of another venue.
struct RemoteJobClient {
    outbound: Arc<Outbound>,
    target: RemoteJobRef,
}

impl RemoteJobClient {
    /// A client for one request, because tokens expire.
    fn client(&self) -> Result<VenueClient, Failure> {
        let RemoteJobRef { venue, did, requester, identity, .. } = &self.target;
        let client = VenueClient::new(Arc::clone(&self.outbound), venue)?;
        match requester {
            Requester::Anonymous => Ok(client),
            Requester::Venue => {
                let token = identity.token(did, &client.origin());
                Ok(client.with_token(token))
            }
        }
    }

    async fn fetch(&self) -> Result<FetchedJob, Failure> {
        self.client()?.job(&self.target.job.to_hex(), &self.target.control).await
    }

    /// The job, and if it has ended its final record was checked.
    async fn fetch_checked(&self) -> Result<FetchedJob, Failure> {
        let job = self.fetch().await?;
        check_final_record(&self.client()?, &job, &self.target.control).await?;
        Ok(job)
    }

    async fn control(&self, action: &Action) -> Result<FetchedJob, Failure> {
        self.client()?.control(&self.target.job.to_hex(), action, &self.target.control).await
    }

    async fn send_message(&self, message: &Value) -> Result<(), Failure> {
        self.client()?.send_message(&self.target.job.to_hex(), message, &self.target.control).await
    }
}

/// Delays between attempts to reach a venue that does not answer, up to a total.
struct Backoff {
    remaining: Duration,
    delay: Duration,
}

impl Backoff {
    fn new(total: Duration) -> Self {
        Backoff { remaining: total, delay: POLL_FIRST }
    }

    /// Waits before the next attempt, or returns the failure if a retry cannot help or the total is
    /// used up. Time while the job is paused does not count.
    async fn wait_or_fail(
        &mut self,
        failure: Failure,
        control: &RunControl,
    ) -> Result<(), Failure> {
        if failure.retry == RetryAdvice::Never || self.remaining.is_zero() {
            return Err(failure);
        }
        let delay = failure.after.map_or(self.delay, |after| self.delay.max(after));
        let delay = delay.min(self.remaining);
        self.remaining -= delay;
        self.delay = next_interval(self.delay);
        control.sleep(delay).await;
        Ok(())
    }
}

/// Returns true if the job differs from its last known status and record in a way that the engine
/// must know.
fn is_update(job: &RemoteJob, (status, record): (Status, RecordId)) -> bool {
    let is_waiting = matches!(job.status, Status::InputRequired | Status::AuthRequired);
    job.status.is_terminal() || job.status != status || is_waiting && job.record != record
}

/// The DID of the venue and its status document. If that requires a token, which must name the DID,
/// the DID is taken from the DID document.
async fn fetch_did(client: &VenueClient, control: &RunControl) -> Result<(String, Value), Failure> {
    let (document, status, name) = match client.status(control).await {
        Err(failure) if failure.code == "remote_forbidden" => {
            (client.did_document(control).await?, Value::Nil, "id")
        }
        status => {
            let status = status?;
            (status.clone(), status, "did")
        }
    };
    let did = member(&document, name).and_then(|did| did.as_str().map(str::to_owned));
    let did = did
        .filter(|did| did.starts_with("did:") && did.len() <= REMOTE_DID_BYTES_MAX)
        .ok_or_else(|| client.malformed("it does not publish a valid DID"))?;
    Ok((did, status))
}

async fn start_remote_job(client: &VenueClient, call: &RemoteCall) -> Result<RemoteStart, Failure> {
    let (did, status) = fetch_did(client, &call.control).await?;
    // Delegations are shown together with the identity of the venue that they were issued to.
    // Without delegations the request is anonymous.
    let (client, requester) = if call.delegations.is_empty() {
        (client.clone(), Requester::Anonymous)
    } else {
        client.check_did(&did)?;
        client.check_scoping(&status)?;
        (client.with_token(call.identity.token(&did, &client.origin())), Requester::Venue)
    };
    let invocation = Invocation {
        operation: call.operation.clone(),
        input: Some(call.input.clone()),
        idempotency_key: Some(call.key.clone()),
        delegations: call.delegations.clone(),
        depth: call.depth,
        ..Invocation::default()
    };
    call.control.proceed().await;
    // From here on there may be a job at the other venue. Its ID must be learnt even if the step is
    // cancelled meanwhile, because the job must then be cancelled too.
    let job = client.invoke(&invocation, &call.unpaused).await;
    let job = job.map_err(|failure| explain_forbidden(failure, requester))?;
    let id = job.id.parse().map_err(|_| client.malformed("its job has no usable ID"))?;
    let record = first_record(&client, &job, &did, &call.unpaused).await?;
    check_final_record(&client, &job, &call.unpaused).await?;
    Ok(RemoteStart { job: id, record, venue: did, requester, state: to_remote_job(job) })
}

/// Adds to the failure of an anonymous request what would authorise it.
fn explain_forbidden(failure: Failure, requester: Requester) -> Failure {
    if failure.code != "remote_forbidden" || requester == Requester::Venue {
        return failure;
    }
    let hint =
        "the request was anonymous; pass `ucans` that are issued to this venue to authorise it";
    Failure { error: format!("{} ({hint})", failure.error), ..failure }
}

/// An entry of a history: a record and the ID that the other venue gives for it.
struct HistoryEntry {
    id: Option<RecordId>,
    record: Value,
}

impl HistoryEntry {
    /// The record's ID; `None` if the given ID is not that of the record.
    fn verified_id(&self) -> Option<RecordId> {
        self.id.filter(|id| *id == RecordId::new(self.record.id()))
    }

    fn text(&self, name: &str) -> Option<String> {
        member(&self.record, name).and_then(|text| Some(text.to_text()?.into_owned()))
    }
}

/// The record of a job at this position, if there is one, and the number of its records. `None` if
/// the venue has no histories.
async fn fetch_record(
    client: &VenueClient,
    job: &FetchedJob,
    position: u64,
    control: &RunControl,
) -> Result<Option<(Option<HistoryEntry>, u64)>, Failure> {
    let id = job.id.trim_start_matches("0x");
    let history = match client.history_page(id, position, 1, control).await {
        Ok(history) => history,
        Err(failure) if failure.retry == RetryAdvice::MaySucceed => return Err(failure),
        Err(_) => return Ok(None),
    };
    let Some(records) = member(&history, "records") else { return Ok(None) };
    let entry = records.as_vector().and_then(|records| records.get(0, &NoCells).ok()?);
    let entry = entry.and_then(|entry| {
        let id = member(&entry, "id").and_then(|id| id.as_str()?.parse().ok());
        Some(HistoryEntry { id, record: member(&entry, "record")? })
    });
    let total = member(&history, "total").and_then(|total| u64::try_from(total.as_i64()?).ok());
    Ok(Some((entry, total.unwrap_or(0))))
}

/// The verified first record of a job. For a venue without histories it is the ID of the job's JSON,
/// so that the venue is held to what it answered.
async fn first_record(
    client: &VenueClient,
    job: &FetchedJob,
    venue: &str,
    control: &RunControl,
) -> Result<RecordId, Failure> {
    let Some((Some(first), _)) = fetch_record(client, job, 0, control).await? else {
        return Ok(RecordId::new(job.document.id()));
    };
    let parsed = |id: &str| id.parse::<JobId>().ok();
    let is_of_job = first.text("id").is_some_and(|id| parsed(&id) == parsed(&job.id));
    let is_of_venue = first.text("venue").as_deref() == Some(venue);
    match first.verified_id().filter(|_| is_of_job && is_of_venue) {
        Some(record) => Ok(record),
        None => Err(client.malformed("the first record of its job is not authentic")),
    }
}

/// Checks that a job that has ended did so with the record that it names as its head, and that its
/// output is the one in that record: the parent job commits to that record. A venue without
/// histories is trusted.
async fn check_final_record(
    client: &VenueClient,
    job: &FetchedJob,
    control: &RunControl,
) -> Result<(), Failure> {
    let Some(head) = member(&job.document, "head").filter(|_| job.status.is_terminal()) else {
        return Ok(());
    };
    // Only the total is needed here. Record 1 is requested because record 0 contains the input,
    // which need not be transferred again.
    let Some((_, total)) = fetch_record(client, job, 1, control).await? else { return Ok(()) };
    let last = fetch_record(client, job, total.saturating_sub(1), control).await?;
    let is_authentic = last.and_then(|(last, _)| last).is_some_and(|last| {
        let is_head = last.verified_id().is_some_and(|id| head.as_str() == Some(&id.to_string()));
        let output = |record: &Value| member(record, "output");
        let is_same_output =
            job.status != Status::Complete || output(&last.record) == output(&job.document);
        is_head && is_same_output && last.text("status").as_deref() == Some(job.status.as_str())
    });
    if is_authentic {
        return Ok(());
    }
    Err(client.malformed("its job did not end with the record that it names as head"))
}

/// A job of another venue as the engine represents it. For a venue without records, the ID of the
/// job's JSON takes the place of the head.
fn to_remote_job(job: FetchedJob) -> RemoteJob {
    let field = |name: &str| member(&job.document, name);
    let text = |name: &str| field(name).and_then(|text| Some(text.to_text()?.into_owned()));
    let head = field("head").and_then(|head| head.as_str()?.parse().ok());
    RemoteJob {
        status: job.status,
        record: head.unwrap_or_else(|| RecordId::new(job.document.id())),
        output: field("output"),
        error: text("error"),
        message: text("message"),
    }
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_engine_and_the_client_use_the_same_depth_header() {
        assert_eq!(
            catena_api::wire::DEPTH_HEADER,
            catena_engine::operations::federation::DEPTH_HEADER
        );
    }
}
