//! The quota of stored bytes.

use catena_store::Store;

use crate::error::StoreError;
use crate::limits::Limits;

/// Checks that an owner may store more. What runs may still end: the last jobs exceed the quota by what
/// they store at their end.
pub(crate) async fn check_stored_bytes(
    store: &dyn Store,
    limits: &Limits,
    owner: &str,
) -> Result<(), StoreError> {
    let Some(max) = limits.stored_bytes_per_caller_max else { return Ok(()) };
    let bytes = store.stored_bytes(owner).await?;
    if bytes < max { Ok(()) } else { Err(StoreError::QuotaExceeded { bytes, max }) }
}
