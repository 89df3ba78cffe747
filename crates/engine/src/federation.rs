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
use catena_value::{Map, Value};

use crate::adapter::Failure;
use crate::control::Control;
use crate::env::Env;

/// How long a token for another venue holds: as long as those of the published SDKs.
const TOKEN_SECONDS: i64 = 300;

/// An answer from another venue.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'static>>;

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
    /// What the caller may do there, as compact tokens. Without any the step is sent anonymously:
    /// the venue's own rights are never lent.
    pub delegations: Vec<String>,
    /// Who asks: mints a token of this venue's for the venue with a DID.
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: Control,
    /// Sleeping only, for what must be finished once the request has left: whoever gives the step
    /// up meanwhile must learn which job to cancel.
    pub free: Control,
}

/// A job that began on another venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteStart {
    /// Its ID there.
    pub job: JobId,
    /// Its first record.
    pub record: RecordId,
    /// The venue's DID.
    pub venue: String,
}

/// How a job ended on another venue.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteEnd {
    /// Its status.
    pub status: Status,
    /// Its output, when it is COMPLETE.
    pub output: Option<Value>,
    /// Its error, when it is not.
    pub error: Option<String>,
    /// Its last record.
    pub record: RecordId,
}

/// Whether a job on another venue is to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is.
    Pause,
    /// Not any more.
    Resume,
}

/// A job on another venue, and who asks about it.
#[derive(Debug, Clone)]
pub struct Visit {
    /// The venue, as the definition names it.
    pub venue: String,
    /// The job there.
    pub job: JobId,
    /// Who asks, where the job is this venue's own.
    pub identity: Identity,
    /// Pausing and sleeping.
    pub control: Control,
}

/// Something that is tried; nobody hears whether it worked.
pub type Attempt = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Speaks to other venues.
pub trait Federation: Send + Sync + 'static {
    /// Invokes an operation there.
    fn begin(&self, call: RemoteCall) -> Answer<RemoteStart>;

    /// Waits for a job there to end.
    fn finish(&self, visit: Visit) -> Answer<RemoteEnd>;

    /// Cancels a job there, as far as it can be reached.
    fn cancel(&self, visit: Visit) -> Attempt;

    /// Pauses or resumes a job there, as far as it can be reached and lets itself be held.
    fn hold(&self, visit: Visit, hold: Hold) -> Attempt;
}
