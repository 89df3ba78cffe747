//! Steps of orchestrations that run on other venues.
//!
//! What it does: invokes the operation there as any client would, looks at the job until it ends,
//! hands messages on to it, pauses and resumes it with the orchestration here, and cancels it when
//! that does not want it any more. Beginning a step twice is safe: the key that comes with it makes
//! the second request the same as the first. So is a message, by its ID.
//!
//! A step that was begun with a caller's delegations is this venue's own over there, and is asked
//! about under its name; every other is asked about as it was begun, without any.

use std::sync::Arc;
use std::time::Duration;

use catena_engine::federation::{
    Delivery, Federation, PauseChange, RemoteCall, RemoteJob as Seen, RemoteJobRef, RemoteReply,
    RemoteStart, Requester,
};
use catena_engine::{Failure, RetryAdvice, RunControl};
use catena_job::{JobId, RecordId, Status};
use catena_value::{NoCells, Value};

use crate::limits::{
    POLL_FIRST, REMOTE_BEGIN_PAUSES_MAX, REMOTE_DID_BYTES_MAX, REMOTE_SILENCE_MAX,
};
use crate::outbound::{Outbound, venue_url};
use crate::venue_client::{Invocation, RemoteJob, VenueClient, longer};

/// The way to other venues.
#[derive(Debug)]
pub(crate) struct OverHttp {
    outbound: Arc<Outbound>,
}

impl OverHttp {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        OverHttp { outbound }
    }

    fn place(&self, visit: RemoteJobRef) -> Place {
        Place { outbound: Arc::clone(&self.outbound), visit }
    }
}

impl Federation for OverHttp {
    fn begin(&self, call: RemoteCall) -> RemoteReply<RemoteStart> {
        let client = VenueClient::new(Arc::clone(&self.outbound), &call.venue);
        Box::pin(async move {
            let client = client?;
            let mut patience = Patience::new(REMOTE_BEGIN_PAUSES_MAX);
            loop {
                match begin(&client, &call).await {
                    Err(failure) => patience.bear(failure, &call.control).await?,
                    begun => return begun,
                }
            }
        })
    }

    fn see(&self, visit: RemoteJobRef) -> RemoteReply<Seen> {
        let place = self.place(visit);
        Box::pin(async move { place.job().await.map(seen) })
    }

    fn look(&self, visit: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<Seen> {
        let place = self.place(visit);
        Box::pin(async move {
            let mut patience = Patience::new(REMOTE_SILENCE_MAX);
            let mut pause = POLL_FIRST;
            loop {
                match place.checked_job().await.map(seen) {
                    Ok(seen) if is_news(&seen, known) => return Ok(seen),
                    Ok(_) => {
                        patience = Patience::new(REMOTE_SILENCE_MAX);
                        place.visit.control.sleep(pause).await;
                        pause = longer(pause);
                    }
                    Err(failure) => patience.bear(failure, &place.visit.control).await?,
                }
            }
        })
    }

    fn send(&self, visit: RemoteJobRef, message: Value) -> RemoteReply<Delivery> {
        let place = self.place(visit);
        Box::pin(async move {
            let mut patience = Patience::new(REMOTE_SILENCE_MAX);
            loop {
                let failure = match place.message(&message).await {
                    Ok(()) => return Ok(Delivery::Taken),
                    Err(failure) => failure,
                };
                match failure.retry {
                    RetryAdvice::Never => return Ok(Delivery::Refused(failure)),
                    RetryAdvice::MaySucceed => patience.bear(failure, &place.visit.control).await?,
                }
            }
        })
    }

    fn cancel(&self, visit: RemoteJobRef) -> RemoteReply<Seen> {
        let place = self.place(visit);
        Box::pin(async move {
            match place.control("cancel").await {
                Ok(job) => Ok(seen(job)),
                // Whatever it answered, the job itself tells what became of it.
                Err(failure) if failure.retry == RetryAdvice::Never => place.job().await.map(seen),
                Err(failure) => Err(failure),
            }
        })
    }

    fn hold(&self, visit: RemoteJobRef, hold: PauseChange) -> RemoteReply<Seen> {
        let place = self.place(visit);
        let action = match hold {
            PauseChange::Pause => "pause",
            PauseChange::Resume => "resume",
        };
        Box::pin(async move { place.control(action).await.map(seen) })
    }
}

/// A job over there, and the way to it.
struct Place {
    outbound: Arc<Outbound>,
    visit: RemoteJobRef,
}

impl Place {
    /// A client for one request: tokens run out.
    fn client(&self) -> Result<VenueClient, Failure> {
        let RemoteJobRef { venue, did, requester, identity, .. } = &self.visit;
        let client = VenueClient::new(Arc::clone(&self.outbound), venue)?;
        match requester {
            Requester::Anonymous => Ok(client),
            Requester::Venue => client.known_by(&identity.token(did)),
        }
    }

    async fn job(&self) -> Result<RemoteJob, Failure> {
        self.client()?.job(&self.visit.job.to_hex(), &self.visit.control).await
    }

    /// The same, its end checked.
    async fn checked_job(&self) -> Result<RemoteJob, Failure> {
        let job = self.job().await?;
        check_end(&self.client()?, &job, &self.visit.control).await?;
        Ok(job)
    }

    async fn control(&self, action: &str) -> Result<RemoteJob, Failure> {
        self.client()?.control(&self.visit.job.to_hex(), action, &self.visit.control).await
    }

    async fn message(&self, message: &Value) -> Result<(), Failure> {
        self.client()?.message(&self.visit.job.to_hex(), message, &self.visit.control).await
    }
}

/// How much longer a venue that does not answer is borne with.
struct Patience {
    left: Duration,
    pause: Duration,
}

impl Patience {
    fn new(left: Duration) -> Self {
        Patience { left, pause: POLL_FIRST }
    }

    /// Waits before the next try, or gives up. Time while the job is paused does not count.
    async fn bear(&mut self, failure: Failure, control: &RunControl) -> Result<(), Failure> {
        if failure.retry == RetryAdvice::Never || self.left.is_zero() {
            return Err(failure);
        }
        let pause = failure.after.map_or(self.pause, |after| self.pause.max(after)).min(self.left);
        self.left -= pause;
        self.pause = longer(self.pause);
        control.sleep(pause).await;
        Ok(())
    }
}

/// Whether there is something to tell about a job that was known like this.
fn is_news(seen: &Seen, (status, record): (Status, RecordId)) -> bool {
    let waits = matches!(seen.status, Status::InputRequired | Status::AuthRequired);
    seen.status.is_terminal() || seen.status != status || waits && seen.record != record
}

/// The DID of the venue over there. Its status has it; who may not read that without a token, which
/// must name the DID, finds it in the DID document.
async fn did_of(client: &VenueClient, control: &RunControl) -> Result<String, Failure> {
    let (document, name) = match client.document(&["status"], &[], control).await {
        Err(failure) if failure.code == "remote_forbidden" => {
            (client.did_document(control).await?, "id")
        }
        status => (status?, "did"),
    };
    let did = member(&document, name).and_then(|did| did.as_str().map(str::to_owned));
    did.filter(|did| did.starts_with("did:") && did.len() <= REMOTE_DID_BYTES_MAX)
        .ok_or_else(|| client.malformed("it does not say its DID"))
}

/// Refuses to show a token to a venue that names itself after another host: it could show it there.
fn check_name(client: &VenueClient, did: &str) -> Result<(), Failure> {
    if !did.starts_with("did:web:") {
        return Ok(());
    }
    match venue_url(did) {
        Ok(url) if client.is_at(&url) => Ok(()),
        _ => Err(client.malformed(&format!("it calls itself {did}, which is somewhere else"))),
    }
}

async fn begin(client: &VenueClient, call: &RemoteCall) -> Result<RemoteStart, Failure> {
    let did = did_of(client, &call.control).await?;
    // The caller's delegations are shown together with who carries them; without any, nobody is
    // named.
    let (client, requester) = match call.delegations.is_empty() {
        true => (client.clone(), Requester::Anonymous),
        false => {
            check_name(client, &did)?;
            (client.known_by(&call.identity.token(&did))?, Requester::Venue)
        }
    };
    let invocation = Invocation {
        operation: &call.operation,
        input: call.input.clone(),
        key: Some(&call.key),
        delegations: &call.delegations,
        depth: call.depth,
    };
    call.control.proceed().await;
    // From here on there may be a job over there, and whoever gives it up must learn its ID.
    let job = client.invoke_with(invocation, &call.free).await;
    let job = job.map_err(|failure| unwelcome(failure, requester))?;
    let id = job.id.parse().map_err(|_| client.malformed("its job has no usable ID"))?;
    let record = first_record(&client, &job, &did, &call.free).await?;
    check_end(&client, &job, &call.free).await?;
    Ok(RemoteStart { job: id, record, venue: did, requester, seen: seen(job) })
}

/// Says what would help when a venue wants to know who asks.
fn unwelcome(failure: Failure, requester: Requester) -> Failure {
    if failure.code != "remote_forbidden" || requester == Requester::Venue {
        return failure;
    }
    let hint = "it was asked anonymously; `ucans` for this venue would be shown to it";
    Failure { error: format!("{} ({hint})", failure.error), ..failure }
}

/// One record of a history over there, as it is claimed to be.
struct Entry {
    id: Option<RecordId>,
    record: Value,
}

impl Entry {
    /// Its ID, if it is what it says it is.
    fn true_id(&self) -> Option<RecordId> {
        self.id.filter(|id| *id == RecordId::new(self.record.id()))
    }

    fn text(&self, name: &str) -> Option<String> {
        member(&self.record, name).and_then(|text| Some(text.to_text()?.into_owned()))
    }
}

/// A record of a job over there and how many there are; nothing from a venue without histories.
async fn record_at(
    client: &VenueClient,
    job: &RemoteJob,
    at: u64,
    control: &RunControl,
) -> Result<Option<(Option<Entry>, u64)>, Failure> {
    let query = [("from", at.to_string()), ("limit", "1".to_owned())];
    let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
    let path = ["jobs", job.id.trim_start_matches("0x"), "history"];
    let history = match client.document(&path, &query, control).await {
        Ok(history) => history,
        Err(failure) if failure.retry == RetryAdvice::MaySucceed => return Err(failure),
        Err(_) => return Ok(None),
    };
    let Some(records) = member(&history, "records") else { return Ok(None) };
    let entry = records.as_vector().and_then(|records| records.get(0, &NoCells).ok()?);
    let entry = entry.and_then(|entry| {
        let id = member(&entry, "id").and_then(|id| id.as_str()?.parse().ok());
        Some(Entry { id, record: member(&entry, "record")? })
    });
    let total = member(&history, "total").and_then(|total| u64::try_from(total.as_i64()?).ok());
    Ok(Some((entry, total.unwrap_or(0))))
}

/// The first record of a job over there, if it is one. A venue without histories is held to what
/// it answered.
async fn first_record(
    client: &VenueClient,
    job: &RemoteJob,
    venue: &str,
    control: &RunControl,
) -> Result<RecordId, Failure> {
    let Some((Some(first), _)) = record_at(client, job, 0, control).await? else {
        return Ok(RecordId::new(job.record.id()));
    };
    let parsed = |id: &str| id.parse::<JobId>().ok();
    let is_of_job = first.text("id").is_some_and(|id| parsed(&id) == parsed(&job.id));
    let is_of_venue = first.text("venue").as_deref() == Some(venue);
    match first.true_id().filter(|_| is_of_job && is_of_venue) {
        Some(record) => Ok(record),
        None => Err(client.malformed("the first record of its job is not what it says it is")),
    }
}

/// Checks that a job over there that has ended did so with the record that it names, and gave what
/// stands in it: that record is what the parent commits to. A venue without histories is believed.
async fn check_end(
    client: &VenueClient,
    job: &RemoteJob,
    control: &RunControl,
) -> Result<(), Failure> {
    let Some(head) = member(&job.record, "head").filter(|_| job.status.is_terminal()) else {
        return Ok(());
    };
    // The first record has the input, which need not travel again.
    let Some((_, total)) = record_at(client, job, 1, control).await? else { return Ok(()) };
    let last = record_at(client, job, total.saturating_sub(1), control).await?;
    let is_true = last.and_then(|(last, _)| last).is_some_and(|last| {
        let is_last = last.true_id().is_some_and(|id| head.as_str() == Some(&id.to_string()));
        let gave = |record: &Value| member(record, "output");
        let is_given = job.status != Status::Complete || gave(&last.record) == gave(&job.record);
        is_last && is_given && last.text("status").as_deref() == Some(job.status.as_str())
    });
    match is_true {
        true => Ok(()),
        false => Err(client.malformed("its job did not end with the record that it names")),
    }
}

/// A job over there as the engine sees it. A venue without records is held to what it answered.
fn seen(job: RemoteJob) -> Seen {
    let field = |name: &str| member(&job.record, name);
    let text = |name: &str| field(name).and_then(|text| Some(text.to_text()?.into_owned()));
    let head = field("head").and_then(|head| head.as_str()?.parse().ok());
    Seen {
        status: job.status,
        record: head.unwrap_or_else(|| RecordId::new(job.record.id())),
        output: field("output"),
        error: text("error"),
        message: text("message"),
    }
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}
