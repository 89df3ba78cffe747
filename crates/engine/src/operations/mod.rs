//! What can be invoked: adapters, the operations they register, and the assets that callers
//! register.
//!
//! The engine knows adapters through the [`Adapter`] trait alone and matches on none of their
//! names. Everything that an adapter implements or receives is defined here: [`Call`],
//! [`RunControl`], [`Host`] and, for adapters that reach other venues, [`federation`].

mod adapter;
mod assets;
mod authorise;
mod binding;
mod blobs;
mod catalogue;
mod checks;
mod control;
mod environments;
mod failure;
pub mod federation;
mod flow;
mod host;
pub mod members;
mod names;
mod need;
mod operation;
mod progress;
mod push;
mod queue;
mod redact;
mod roots;
pub mod schema;
mod secret;
mod signal;

use std::sync::Arc;

use catena_auth::KeyPair;
use catena_job::Job;
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::Value;

use crate::error::ResolveError;
use crate::operations::catalogue::Catalogue;
use crate::requests::{Admission, Caller, Did, IdempotencyKeys};
use crate::runtime::Runtime;

pub use adapter::{Adapter, Call, Cause, ExecutionMode, Registration, Turn, TurnFuture};
pub(crate) use assets::definition_effects;
pub use assets::{Asset, AssetKind, Content, ContentUpload, ListAssets, ListedAsset};
pub(crate) use binding::BOUND;
pub use binding::{BoundEnd, BoundJob, BoundStart, EndedCall};
pub use blobs::{BlobUpload, BlobUploadError};
pub use catalogue::CatalogueEntry;
pub(crate) use checks::{compute_failure, input_refusal};
pub use control::RunControl;
pub use environments::{Environment, Environments, Placement};
pub use failure::{Failure, RetryAdvice};
pub use host::{Host, HostReply};
pub use names::{NameEntry, NameVersion, Sharing};
pub use need::Need;
pub use operation::{Operation, Problem, Recovery, RetryPolicy};
pub(crate) use progress::ProgressMeter;
pub use push::{Delivered, Delivery, DeliveryFuture};
pub(crate) use queue::{
    PRIORITY, QUEUE, QUEUE_GROUP, QUEUE_NAME, QUEUE_PRIORITY, full_name, head_start, is_push_queue,
    is_pushed, lane_of, owner_of_reference, queue_owner, split_lane,
};
pub use queue::{QueueOwner, QueueSpec, RunningLimit, StartRate, is_name, push_queue};
pub(crate) use redact::ResolvedSecrets;
pub use roots::{Cells, RootId, Roots};
pub(crate) use roots::{FutureRoots, InlineCells, SECRET_OWNERS, SentMessage, user_secrets_key};
pub use secret::{Keyring, KeyringReply, SecretPurpose, SecretRequest};
pub(crate) use signal::{Signal, SignalReceiver, SignalSender};

/// The operations and assets of a venue.
pub(crate) struct Operations {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Blobs,
    /// The venue's DID.
    pub(crate) did: Did,
    /// The did:key of the venue's key.
    pub(crate) key_did: String,
    /// The venue's key, which signs delegations.
    pub(crate) signer: Option<KeyPair>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) keys: Arc<IdempotencyKeys>,
    /// The environments of executors.
    pub(crate) environments: Arc<Environments>,
    catalogue: Arc<Catalogue>,
}

impl Operations {
    /// Reads the definitions that adapters register. Fails with the problems of a definition.
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        store: Arc<dyn Store>,
        blobs: Blobs,
        did: Did,
        admission: Arc<Admission>,
        keys: Arc<IdempotencyKeys>,
        adapters: Vec<Arc<dyn Adapter>>,
    ) -> Result<Self, Vec<Problem>> {
        let catalogue = Arc::new(Catalogue::new(adapters)?);
        let key_did = did.to_string();
        Ok(Operations {
            runtime,
            store,
            blobs,
            did,
            key_did,
            signer: None,
            admission,
            keys,
            environments: Arc::default(),
            catalogue,
        })
    }

    /// Returns the operation of a job, by the definition that its first record names.
    pub(crate) async fn operation_of(&self, job: &Job) -> Result<Arc<Operation>, ResolveError> {
        let text = |name: &str| job.field(name).and_then(Value::as_str).unwrap_or_default();
        let reference = text("op");
        let caller = text("caller");
        match format!("0x{}", text("operation")).parse() {
            Ok(id) => self.operation_by_id(caller, &id, reference).await,
            Err(_) => self.resolve(&Caller::known(caller), reference).await,
        }
    }

    /// Returns true if the asset with this ID (64 hex digits) is registered by an adapter and has
    /// no steps. False may also mean that the asset is not known without reading the store.
    pub(crate) fn has_no_steps(&self, hex: &str) -> bool {
        self.catalogue.has_no_steps(hex)
    }
}
