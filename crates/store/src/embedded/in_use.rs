//! Cells that commits have referred to while a garbage collection is running.
//!
//! The collector looks at the store as of one moment. A cell that looks unreferenced then may be
//! referred to by a later commit, so every commit records the cells it stores or needs, and the
//! collector leaves those alone.

use std::collections::HashSet;
use std::sync::Arc;

use catena_value::ValueId;
use parking_lot::Mutex;

/// The cells in use; recorded only while a collection is running.
#[derive(Clone, Default)]
pub(super) struct InUseCells(Arc<Mutex<Option<HashSet<ValueId>>>>);

impl InUseCells {
    /// Records a cell that a commit stores or needs.
    pub(super) fn add(&self, id: &ValueId) {
        if let Some(cells) = self.0.lock().as_mut() {
            cells.insert(*id);
        }
    }

    /// Records cells that a commit needs.
    pub(super) fn add_all(&self, ids: &[ValueId]) {
        if let Some(cells) = self.0.lock().as_mut() {
            cells.extend(ids);
        }
    }

    /// Whether a cell must not be removed: it was recorded, or no collection is running.
    pub(super) fn contains(&self, id: &ValueId) -> bool {
        self.0.lock().as_ref().is_none_or(|cells| cells.contains(id))
    }

    /// Begins to record. Returns `false` if a collection is already running.
    pub(super) fn begin(&self) -> bool {
        let mut cells = self.0.lock();
        let is_free = cells.is_none();
        if is_free {
            *cells = Some(HashSet::new());
        }
        is_free
    }

    /// Ends recording.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }
}
