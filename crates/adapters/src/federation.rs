//! Steps of orchestrations that run on other venues.
//!
//! What it does: invokes the operation there as any client would, looks at the job until it ends,
//! pauses and resumes it with the orchestration here, and cancels it when that does not want it
//! any more. Beginning a step twice is
//! safe: the key that comes with it makes the second request the same as the first.

use std::sync::Arc;

use catena_engine::federation::{
    Answer, Attempt, Federation, Hold, RemoteCall, RemoteEnd, RemoteStart, Visit,
};
use catena_engine::{Control, Failure, Repeat};
use catena_job::RecordId;
use catena_value::{NoCells, Value};

use crate::limits::{POLL_FIRST, REMOTE_BEGIN_TRIES_MAX, TOKEN_FRESH_MS};
use crate::outbound::Outbound;
use crate::venue_client::{Invocation, Reached, RemoteJob, VenueClient, is_denied, longer};

/// The way to other venues.
#[derive(Debug)]
pub(crate) struct OverHttp {
    outbound: Arc<Outbound>,
}

impl OverHttp {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        OverHttp { outbound }
    }

    /// Cancels, pauses or resumes a job, as itself where the job is this venue's own.
    fn attempt(&self, visit: Visit, action: &'static str) -> Attempt {
        let client = VenueClient::new(Arc::clone(&self.outbound), &visit.venue);
        Box::pin(async move {
            let Ok(client) = client else { return };
            let id = visit.job.to_hex();
            if client.control(&id, action, &visit.control).await == Reached::Denied
                && let Ok(known) = known(&client, &visit).await
            {
                known.control(&id, action, &visit.control).await;
            }
        })
    }
}

impl Federation for OverHttp {
    fn begin(&self, call: RemoteCall) -> Answer<RemoteStart> {
        let client = VenueClient::new(Arc::clone(&self.outbound), &call.venue);
        Box::pin(async move {
            let client = client?;
            let mut pause = POLL_FIRST;
            let mut tries = 1;
            loop {
                match begin(&client, &call).await {
                    Err(failure)
                        if failure.repeat == Repeat::MayHelp && tries < REMOTE_BEGIN_TRIES_MAX =>
                    {
                        call.control.sleep(pause).await;
                        pause = longer(pause);
                        tries += 1;
                    }
                    done => return done,
                }
            }
        })
    }

    fn finish(&self, visit: Visit) -> Answer<RemoteEnd> {
        let client = VenueClient::new(Arc::clone(&self.outbound), &visit.venue);
        Box::pin(async move {
            let ended = watch(client?, &visit).await?;
            let record = head(&ended);
            let field = |name: &str| member(&ended.record, name);
            let error = field("error").and_then(|error| Some(error.to_text()?.into_owned()));
            let output = field("output");
            Ok(RemoteEnd { status: ended.status, output, error, record })
        })
    }

    fn cancel(&self, visit: Visit) -> Attempt {
        self.attempt(visit, "cancel")
    }

    fn hold(&self, visit: Visit, hold: Hold) -> Attempt {
        match hold {
            Hold::Pause => self.attempt(visit, "pause"),
            Hold::Resume => self.attempt(visit, "resume"),
        }
    }
}

/// The job when it has ended. A job that was begun with delegations is this venue's own over there,
/// and nobody else is shown it: then the venue says who it is, again when its token has run out.
async fn watch(mut client: VenueClient, visit: &Visit) -> Result<RemoteJob, Failure> {
    let id = visit.job.to_hex();
    let mut known_since: Option<i64> = None;
    loop {
        let watched = async {
            let seen = client.job(&id, &visit.control).await?;
            client.wait(seen, &visit.control).await
        };
        let now = visit.control.now();
        match watched.await {
            Err(failure)
                if is_denied(&failure)
                    && known_since.is_none_or(|at| visit.control.now() - at > TOKEN_FRESH_MS) =>
            {
                client = known(&client, visit).await?;
                known_since = Some(now);
            }
            done => return done,
        }
    }
}

/// A client that says which venue asks.
async fn known(client: &VenueClient, visit: &Visit) -> Result<VenueClient, Failure> {
    let did = did_of(client, &visit.control).await?;
    client.known_by(&visit.identity.token(&did))
}

/// The DID of the venue over there.
async fn did_of(client: &VenueClient, control: &Control) -> Result<String, Failure> {
    let status = client.document(&["status"], &[], control).await?;
    let did = member(&status, "did").and_then(|did| did.as_str().map(str::to_owned));
    did.ok_or_else(|| malformed("its status names no DID"))
}

async fn begin(client: &VenueClient, call: &RemoteCall) -> Result<RemoteStart, Failure> {
    let did = did_of(client, &call.control).await?;
    // The caller's delegations are shown together with who carries them; without any, nobody is
    // named.
    let client = &match call.delegations.is_empty() {
        true => client.clone(),
        false => client.known_by(&call.identity.token(&did))?,
    };
    let invocation = Invocation {
        operation: &call.operation,
        input: call.input.clone(),
        key: Some(&call.key),
        delegations: &call.delegations,
    };
    call.control.proceed().await;
    // From here on there may be a job over there, and whoever gives it up must learn its ID.
    let job = client.invoke_with(invocation, &call.free).await?;
    let id = job.id.parse().map_err(|_| malformed("its job has no usable ID"))?;
    let record = first_record(client, &job, &call.free).await;
    Ok(RemoteStart { job: id, record, venue: did })
}

/// The first record of a job over there. A venue without histories is held to what it answered.
async fn first_record(client: &VenueClient, job: &RemoteJob, control: &Control) -> RecordId {
    let query = [("from", "0"), ("limit", "1")];
    let path = ["jobs", job.id.trim_start_matches("0x"), "history"];
    let history = client.document(&path, &query, control).await.ok();
    let first = history.and_then(|history| {
        let records = member(&history, "records")?;
        let first = records.as_vector()?.get(0, &NoCells).ok()??;
        member(&first, "id")?.as_str()?.parse().ok()
    });
    first.unwrap_or_else(|| RecordId::new(job.record.id()))
}

/// The last record of a job over there, by its `head`.
fn head(job: &RemoteJob) -> RecordId {
    let head = member(&job.record, "head").and_then(|head| head.as_str()?.parse().ok());
    head.unwrap_or_else(|| RecordId::new(job.record.id()))
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.as_map()?.get(&name.into(), &NoCells).ok()?
}

fn malformed(reason: &str) -> Failure {
    Failure::new("remote_malformed", format!("the other venue cannot be used: {reason}"))
}
