//! The interface through which steps run on other venues.
//!
//! The engine opens no socket. An adapter that can reach other venues implements [`Federation`],
//! and steps with a `venue` go through it. An invocation there carries an idempotency key made of
//! the job and the step, so that a crash between the invocation and its record creates no second
//! job.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use catena_auth::identity::{JobGrant, self_issued};
use catena_auth::{KeyPair, Venue};
use catena_job::{JobId, RecordId, Status};
use catena_value::Value;

use crate::operations::control::RunControl;
use crate::operations::failure::Failure;
use crate::requests::HeldJob;
use crate::runtime::Env;

/// The reply of another venue.
pub type RemoteReply<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'static>>;

/// Issues tokens that identify this venue to others.
#[derive(Clone)]
pub struct Identity {
    key: Arc<KeyPair>,
    env: Arc<dyn Env>,
}

impl Identity {
    pub(crate) fn new(key: Arc<KeyPair>, env: Arc<dyn Env>) -> Self {
        Identity { key, env }
    }

    /// Issues a short-lived token for the venue with this DID at this origin.
    pub fn token(&self, audience: &str, origin: &str) -> String {
        let now = self.env.now() / 1_000;
        self_issued(&self.key, Some(audience), Some(origin), now)
    }

    /// Returns the venue's Ed25519 signature over a message.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message)
    }

    /// Issues a token of the venue with this DID by which its bearer can work on one job under one
    /// fence for the owner of its queue, and do nothing else.
    pub(crate) fn job_token(&self, venue: &str, owner: &str, held: HeldJob) -> String {
        let venue = Venue { did: venue.to_owned(), public: self.key.public() };
        let grant = JobGrant {
            subject: owner,
            job: &held.job.to_string(),
            fence: held.fence,
            issued: self.env.now() / 1_000,
        };
        venue.issue_for_job(&self.key, &grant)
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "identity of {}", self.key.did())
    }
}

/// A step to start on another venue.
#[derive(Debug, Clone)]
pub struct RemoteCall {
    /// The venue, as the definition names it: a URL or a did:web.
    pub venue: String,
    /// The operation reference.
    pub operation: String,
    /// The input of the operation, without secrets.
    pub input: Value,
    /// The idempotency key, the same for every attempt to start this step.
    pub key: String,
    /// The number of orchestrations that enclose the step.
    pub depth: u32,
    /// What the caller may do there, as compact tokens. Without any, the step is sent anonymously:
    /// this venue's own rights are never used.
    pub delegations: Vec<String>,
    /// Issues this venue's tokens.
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: RunControl,
    /// Sleeping that ignores pauses, for what must be finished once the request was sent: if the
    /// step is cancelled meanwhile, the reply names the job to cancel.
    pub unpaused: RunControl,
}

/// The identity that requested a job on another venue and makes requests about it. This venue's own
/// rights are never used for a job that was requested without delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// Without credentials.
    Anonymous,
    /// This venue, presenting the delegations of its caller.
    Venue,
}

/// A job that started on another venue.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteStart {
    /// The job's ID there.
    pub job: JobId,
    /// The ID of its first record.
    pub record: RecordId,
    /// The venue's DID.
    pub venue: String,
    /// Who requested it.
    pub requester: Requester,
    /// The job as of the reply.
    pub state: RemoteJob,
}

/// The state of a job on another venue.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteJob {
    /// Its status.
    pub status: Status,
    /// The ID of its last record.
    pub record: RecordId,
    /// Its output, or the output of its last turn.
    pub output: Option<Value>,
    /// Its error text.
    pub error: Option<String>,
    /// Its message to the people that it waits for.
    pub message: Option<String>,
}

/// A change of whether a job on another venue is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseChange {
    /// Pause the job.
    Pause,
    /// Resume the job.
    Resume,
}

/// A job on another venue, and the identity that makes requests about it.
#[derive(Debug, Clone)]
pub struct RemoteJobRef {
    /// The venue, as the definition names it.
    pub venue: String,
    /// The venue's DID.
    pub did: String,
    /// The job's ID there.
    pub job: JobId,
    /// The identity that makes the requests.
    pub requester: Requester,
    /// Issues this venue's tokens, for [`Requester::Venue`].
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: RunControl,
}

/// The outcome of sending a message to a job on another venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The job accepted it.
    Accepted,
    /// It was refused, and a retry would be refused too.
    Refused(Failure),
}

/// The request header with the number of orchestrations that enclose an invocation. It bounds
/// venues that send each other steps in a cycle.
pub const DEPTH_HEADER: &str = "catena-depth";

/// The code of a [`Failure`] if the status of the job there does not allow the action.
pub const REMOTE_CONFLICT: &str = "remote_conflict";

/// Access to other venues.
pub trait Federation: Send + Sync + 'static {
    /// Fails if steps cannot be sent to a venue, whatever they are: the operator does not allow it, or
    /// does not allow it with delegations. Checked before any step runs. A venue that does not answer
    /// is no failure.
    fn check_venue(
        &self,
        venue: &str,
        presents_delegations: bool,
        control: RunControl,
    ) -> RemoteReply<()> {
        let _ = (venue, presents_delegations, control);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Invokes an operation.
    fn start_job(&self, call: RemoteCall) -> RemoteReply<RemoteStart>;

    /// Returns a job as it is now.
    fn fetch_job(&self, job: RemoteJobRef) -> RemoteReply<RemoteJob>;

    /// Returns a job once it differs from `known`: it has another status, or waits for input again.
    /// Retries while the venue does not answer.
    fn poll_job(&self, job: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<RemoteJob>;

    /// Sends a message to a job. Its `messageId` makes a repetition safe, so this retries too.
    fn send_message(&self, job: RemoteJobRef, message: Value) -> RemoteReply<Delivery>;

    /// Cancels a job and returns it.
    fn cancel_job(&self, job: RemoteJobRef) -> RemoteReply<RemoteJob>;

    /// Pauses or resumes a job and returns it. Fails with [`REMOTE_CONFLICT`] if its status does not
    /// allow that.
    fn set_paused(&self, job: RemoteJobRef, change: PauseChange) -> RemoteReply<RemoteJob>;
}
