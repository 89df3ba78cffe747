//! What one orchestration takes of the budget of its root.

use std::sync::Arc;

use catena_job::JobId;
use catena_store::RootBudget;

use crate::runtime::Reservation;

/// The share of one orchestration in what its root may run at a time.
pub(super) struct Share {
    pub(super) job: JobId,
    /// The root of its tree, whose total of sub-jobs is bounded.
    pub(super) root: JobId,
    pub(super) budget: Arc<RootBudget>,
    /// The memory of its values, which it reserves.
    pub(super) memory: Reservation,
}
