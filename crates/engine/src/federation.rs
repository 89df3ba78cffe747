//! Steps that run on another venue, through whatever speaks to venues.
//!
//! The engine opens no socket. An adapter that can reach other venues offers this trait, and steps
//! with a `venue` go through it. An invocation there carries an idempotency key of the job and the
//! step, so that a crash between the invocation and its record makes no second job.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use catena_auth::{KeyPair, Token};
use catena_job::{JobId, RecordId, Status};
use catena_value::{Map, NoCells, Value};

use crate::adapter::Failure;
use crate::caller::Caller;
use crate::control::RunControl;
use crate::engine::Engine;
use crate::env::Env;

/// How long a token for another venue holds: as long as those of the published SDKs.
const TOKEN_SECONDS: i64 = 300;

/// An answer from another venue.
pub type RemoteReply<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'static>>;

/// Mints tokens that say which venue asks.
#[derive(Clone)]
pub struct Identity {
    key: Arc<KeyPair>,
    env: Arc<dyn Env>,
}

impl Identity {
    pub(crate) fn new(key: Arc<KeyPair>, env: Arc<dyn Env>) -> Self {
        Identity { key, env }
    }

    /// A token for one venue, for a few minutes.
    pub fn token(&self, audience: &str) -> String {
        let (did, now) = (self.key.did(), self.env.now() / 1_000);
        let claims = [
            ("iss", Value::from(did.as_str())),
            ("sub", did.as_str().into()),
            ("aud", audience.into()),
            ("iat", now.into()),
            ("exp", (now + TOKEN_SECONDS).into()),
        ];
        Token::mint(&claims.into_iter().collect::<Map>(), &self.key)
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "identity of {}", self.key.did())
    }
}

impl Engine {
    /// The delegations of a caller that are for this venue to show to others: those that name it as
    /// their audience. The rest are somebody else's and go nowhere.
    pub(crate) fn delegated(&self, caller: &Caller) -> Vec<String> {
        let is_for_us = |text: &&String| {
            let Ok(token) = Token::parse(text) else { return false };
            match token.claims().field("aud") {
                Some(Value::Vector(names)) => {
                    let mut names = names.iter(&NoCells).flatten();
                    names.any(|name| name.as_str() == Some(&*self.0.did))
                }
                Some(name) => name.as_str() == Some(&*self.0.did),
                None => false,
            }
        };
        caller.delegations.iter().filter(is_for_us).cloned().collect()
    }
}

/// A step to begin on another venue.
#[derive(Debug, Clone)]
pub struct RemoteCall {
    /// The venue, as the definition names it: a URL or a did:web.
    pub venue: String,
    /// The operation.
    pub operation: String,
    /// Its input, without secrets.
    pub input: Value,
    /// The same for every attempt to begin this step.
    pub key: String,
    /// How many orchestrations it is nested in.
    pub depth: u32,
    /// What the caller may do there, as compact tokens. Without any the step is sent anonymously:
    /// the venue's own rights are never lent.
    pub delegations: Vec<String>,
    /// Who asks: mints a token of this venue's for the venue with a DID.
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: RunControl,
    /// Sleeping only, for what must be finished once the request has left: whoever gives the step
    /// up meanwhile must learn which job to cancel.
    pub free: RunControl,
}

/// As whom a job on another venue is asked about: as whoever asked for it. The venue's own rights
/// are never used on a job that was asked for without delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// Nobody in particular.
    Anonymous,
    /// This venue, which carried the delegations of its caller.
    Venue,
}

/// A job that began on another venue.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteStart {
    /// Its ID there.
    pub job: JobId,
    /// Its first record.
    pub record: RecordId,
    /// The venue's DID.
    pub venue: String,
    /// Who asked for it.
    pub requester: Requester,
    /// How it stood when it was answered.
    pub seen: RemoteJob,
}

/// A job on another venue, as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteJob {
    /// Where it stood.
    pub status: Status,
    /// Its last record then.
    pub record: RecordId,
    /// Its output, or that of its last turn.
    pub output: Option<Value>,
    /// Its error.
    pub error: Option<String>,
    /// What it says to people.
    pub message: Option<String>,
}

/// Whether a job on another venue is to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseChange {
    /// It is.
    Pause,
    /// Not any more.
    Resume,
}

/// A job on another venue, and who asks about it.
#[derive(Debug, Clone)]
pub struct RemoteJobRef {
    /// The venue, as the definition names it.
    pub venue: String,
    /// Its DID.
    pub did: String,
    /// The job there.
    pub job: JobId,
    /// As whom it is asked about.
    pub requester: Requester,
    /// Mints tokens, for when that is this venue.
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: RunControl,
}

/// What became of a message to a job on another venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The job has it.
    Taken,
    /// It was refused, and would be again.
    Refused(Failure),
}

/// The header of an invocation that says how many orchestrations it is nested in, so that venues
/// that send each other steps in a ring notice.
pub const DEPTH_HEADER: &str = "catena-depth";

/// The code of a [`Failure`] of a venue in whose view a job stands where it cannot do what it was
/// asked to.
pub const REMOTE_CONFLICT: &str = "remote_conflict";

/// Speaks to other venues.
pub trait Federation: Send + Sync + 'static {
    /// Invokes an operation there.
    fn begin(&self, call: RemoteCall) -> RemoteReply<RemoteStart>;

    /// A job there, now.
    fn see(&self, visit: RemoteJobRef) -> RemoteReply<RemoteJob>;

    /// A job there as soon as it has another status than it was known to have, or waits for
    /// somebody anew. Patient with a venue that does not answer for a while.
    fn look(&self, visit: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<RemoteJob>;

    /// Sends a job there a message, whose `messageId` makes a repetition harmless. Patient, too.
    fn send(&self, visit: RemoteJobRef, message: Value) -> RemoteReply<Delivery>;

    /// Cancels a job there, as far as it can be reached; the job after that.
    fn cancel(&self, visit: RemoteJobRef) -> RemoteReply<RemoteJob>;

    /// Pauses or resumes a job there; the job after that. One that cannot be, as it stands, is a
    /// [`REMOTE_CONFLICT`].
    fn hold(&self, visit: RemoteJobRef, hold: PauseChange) -> RemoteReply<RemoteJob>;
}
