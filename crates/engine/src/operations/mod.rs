//! What can be invoked: adapters, the operations they register, and the assets that callers
//! register.
//!
//! The engine knows adapters through the [`Adapter`] trait alone and matches on none of their
//! names. Everything that an adapter implements or receives is defined here: [`Call`],
//! [`RunControl`], [`Host`] and, for adapters that reach other venues, [`federation`].

mod adapter;
mod assets;
mod catalogue;
mod checks;
mod control;
pub mod federation;
mod flow;
mod host;
mod operation;
mod progress;
pub mod schema;

use std::sync::Arc;

use catena_job::Job;
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::Value;

use crate::error::ResolveError;
use crate::operations::catalogue::Catalogue;
use crate::requests::{Admission, Caller, Did, IdempotencyKeys};
use crate::runtime::Runtime;

pub use adapter::{
    Adapter, Call, Cause, ExecutionMode, Failure, Registration, RetryAdvice, Turn, TurnFuture,
};
pub use assets::{Asset, AssetKind, Content, ContentUpload, ListAssets, ListedAsset};
pub use catalogue::CatalogueEntry;
pub(crate) use checks::{compute_failure, input_refusal};
pub use control::RunControl;
pub(crate) use control::Signal;
pub use host::{Host, HostReply};
pub use operation::{Operation, Problem, Recovery, RetryPolicy};
pub(crate) use progress::ProgressMeter;

/// The operations and assets of a venue.
pub(crate) struct Operations {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Blobs,
    /// The venue's DID.
    pub(crate) did: Did,
    pub(crate) admission: Arc<Admission>,
    pub(crate) keys: Arc<IdempotencyKeys>,
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
        Ok(Operations { runtime, store, blobs, did, admission, keys, catalogue })
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
