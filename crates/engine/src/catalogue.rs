//! What can be invoked by name.

use std::sync::Arc;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::ResolveError;
use crate::operation::Operation;

/// One entry of the catalogue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its path, such as `v/ops/http/get`.
    pub path: String,
    /// The operation.
    pub operation: Arc<Operation>,
}

impl Engine {
    /// Everything that adapters registered, in the order of paths.
    pub fn operations(&self) -> Vec<Entry> { unimplemented!() }
    /// The operations of one adapter; nothing when there is no such adapter.
    pub fn adapter_operations(&self, adapter: &str) -> Option<Vec<Entry>> { unimplemented!() }
    /// The operation that a reference leads to, in any form.
    pub async fn resolve(&self, caller: &Caller, reference: &str) -> Result<Arc<Operation>, ResolveError> { unimplemented!() }
}
