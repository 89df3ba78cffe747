//! How an operation receives a secret of its caller.

use std::future::Future;
use std::pin::Pin;

use catena_auth::Delegation;
use catena_auth::capability::Capability;
use catena_job::JobId;

use crate::operations::failure::Failure;
use crate::requests::Caller;

/// A request of a running operation for a secret.
#[derive(Debug, Clone)]
pub struct SecretRequest {
    /// The caller on whose authority the operation runs, and whose secret it is.
    pub caller: Caller,
    /// The ID of the operation's definition, as 64 hex digits.
    pub definition: String,
    /// Its job. `None` if nothing is recorded.
    pub job: Option<JobId>,
    /// The name of the secret.
    pub name: String,
    /// What it is needed for.
    pub purpose: SecretPurpose,
}

/// What a secret is needed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPurpose {
    /// It is sent to a host.
    Send {
        /// The host, with its port unless that is the default of the scheme.
        host: String,
        /// True if the operation itself names this host, not its input.
        is_default: bool,
    },
    /// It is given to a worker that runs a job of the operation.
    Hand {
        /// The DID of the worker's owner.
        to: String,
    },
    /// The caller wants to see it.
    Show,
}

impl SecretPurpose {
    /// A secret that is sent to a host that the input names.
    pub fn send(host: impl Into<String>) -> Self {
        SecretPurpose::Send { host: host.into(), is_default: false }
    }

    /// A secret that is sent to the operation's own default host.
    pub fn send_to_default(host: impl Into<String>) -> Self {
        SecretPurpose::Send { host: host.into(), is_default: true }
    }
}

/// The reply of a [`Keyring`].
pub type KeyringReply<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'static>>;

/// The keys of a venue, as adapters may use them: secrets of users, and delegations that the venue issues.
pub trait Keyring: Send + Sync + 'static {
    /// Seals a secret of the caller under a name, so that an operation can store it.
    fn seal_secret(&self, caller: &Caller, name: &str, value: &str) -> Result<String, Failure>;

    /// Returns a secret for an operation that runs. Use [`Call::secret`](crate::Call::secret), which
    /// also removes the value from what the operation produces.
    fn secret(&self, request: SecretRequest) -> KeyringReply<Option<String>>;

    /// Issues a delegation of this venue for the caller. `expires` is Unix time in seconds.
    fn issue_delegation(
        &self,
        caller: &Caller,
        audience: &str,
        capabilities: &[Capability],
        expires: Option<i64>,
    ) -> Result<String, Failure>;

    /// Returns the did:key of this venue, which signs the delegations that it issues.
    fn key_did(&self) -> &str;

    /// Returns true if a delegation, or one on which it is based, was revoked.
    fn find_revocation(&self, delegation: Delegation) -> KeyringReply<bool>;
}
