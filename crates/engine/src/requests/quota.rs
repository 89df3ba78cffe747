//! The quotas of stored bytes.

use catena_store::Store;

use crate::error::StoreError;
use crate::limits::Limits;

/// Checks that an owner may store more, and that all owners together may. What runs may still end: the last
/// jobs exceed the quota by what they store at their end.
pub(crate) async fn check_stored_bytes(
    store: &dyn Store,
    limits: &Limits,
    owner: &str,
) -> Result<(), StoreError> {
    if let Some(max) = limits.stored_bytes_per_caller_max {
        check("you", store.stored_bytes(owner).await?, max)?;
    }
    if let Some(max) = limits.stored_bytes_max {
        check("all callers together", store.stored_bytes_of_all().await?, max)?;
    }
    Ok(())
}

fn check(whom: &'static str, bytes: u64, max: u64) -> Result<(), StoreError> {
    if bytes < max { Ok(()) } else { Err(StoreError::QuotaExceeded { whom, bytes, max }) }
}
