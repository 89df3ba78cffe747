//! What the committer knows about stored cells and roots without reading them.
//!
//! A change of a root refers to cells that earlier changes have stored, and names the value that it expects. The
//! committer is the only writer, so it need not look up again what it has written or looked up before: every message to
//! an agent would otherwise read one row for each recent message in its inbox. What a commit has seen counts only once
//! the commit was applied, because a refused one leaves nothing behind, and everything is forgotten when a commit was
//! rolled back afterwards or a batch could not be made durable.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use catena_value::ValueId;
use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::limits::{KNOWN_CELLS_MAX, KNOWN_ROOTS_MAX};

/// The known state of a store. Only the committer's thread uses it; the lock is never contended.
#[derive(Clone, Default)]
pub(super) struct KnownState(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Cells that are stored. Each ID has one slot. Empty until the first cell is known.
    cells: Vec<Option<ValueId>>,
    /// The values of roots, by the keys of their rows. Empty until the first root is known.
    roots: Vec<Option<KnownRoot>>,
    hasher: FixedState,
    /// What the current commit stores or has looked up.
    new_cells: Vec<ValueId>,
    new_roots: Vec<KnownRoot>,
}

/// The row key of a root, and the ID of its value. `None` if there is no such root.
type KnownRoot = (Box<[u8]>, Option<ValueId>);

impl Known {
    fn root_slot(&self, row: &[u8]) -> usize {
        self.hasher.hash_one(row) as usize % KNOWN_ROOTS_MAX
    }

    fn has_cell(&self, id: &ValueId) -> bool {
        self.cells.get(cell_slot(id)).is_some_and(|known| known.as_ref() == Some(id))
    }

    fn drop_new(&mut self) {
        self.new_cells.clear();
        self.new_roots.clear();
    }
}

impl KnownState {
    /// Begins a commit: what an earlier one left unconfirmed is dropped.
    pub(super) fn begin(&self) {
        self.0.lock().drop_new();
    }

    /// The commit was applied: what it has stored and looked up is known from now on.
    pub(super) fn confirm(&self) {
        let known = &mut *self.0.lock();
        if !known.new_cells.is_empty() && known.cells.is_empty() {
            known.cells.resize(KNOWN_CELLS_MAX, None);
        }
        for id in known.new_cells.drain(..) {
            known.cells[cell_slot(&id)] = Some(id);
        }
        if !known.new_roots.is_empty() && known.roots.is_empty() {
            known.roots.resize(KNOWN_ROOTS_MAX, None);
        }
        for root in std::mem::take(&mut known.new_roots) {
            let slot = known.root_slot(&root.0);
            known.roots[slot] = Some(root);
        }
    }

    /// Forgets everything: a commit was rolled back after it was applied, or a batch could not be made durable.
    pub(super) fn clear(&self) {
        let known = &mut *self.0.lock();
        known.drop_new();
        known.cells.clear();
        known.roots.clear();
    }

    /// Returns true if a cell is known to be stored.
    pub(super) fn has_cell(&self, id: &ValueId) -> bool {
        self.0.lock().has_cell(id)
    }

    /// Returns the cells that are not known to be stored.
    pub(super) fn unknown_cells(&self, ids: &[ValueId]) -> Vec<ValueId> {
        let known = self.0.lock();
        ids.iter().filter(|id| !known.has_cell(id)).copied().collect()
    }

    /// The current commit has stored a cell, or has found it stored.
    pub(super) fn add_cell(&self, id: &ValueId) {
        self.0.lock().new_cells.push(*id);
    }

    /// A cell is removed.
    pub(super) fn remove_cell(&self, id: &ValueId) {
        let known = &mut *self.0.lock();
        if let Some(slot) = known.cells.get_mut(cell_slot(id))
            && slot.as_ref() == Some(id)
        {
            *slot = None;
        }
    }

    /// Returns the value that a root is known to have, by the key of its row. The outer `None` means that it is not known.
    pub(super) fn root(&self, row: &[u8]) -> Option<Option<ValueId>> {
        let known = self.0.lock();
        let (key, value) = known.roots.get(known.root_slot(row))?.as_ref()?;
        (**key == *row).then_some(*value)
    }

    /// The current commit changes a root. Until it is applied, the value of the root is not known.
    pub(super) fn set_root(&self, row: &[u8], value: Option<ValueId>) {
        let known = &mut *self.0.lock();
        let slot = known.root_slot(row);
        if let Some(slot) = known.roots.get_mut(slot) {
            *slot = None;
        }
        known.new_roots.push((row.into(), value));
    }
}

fn cell_slot(id: &ValueId) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) as usize % KNOWN_CELLS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ValueId {
        ValueId::of_encoding(&[number])
    }

    #[test]
    fn what_a_refused_commit_has_seen_is_not_known() {
        let known = KnownState::default();
        known.begin();
        known.add_cell(&id(1));
        known.set_root(b"root", Some(id(2)));
        assert!(!known.has_cell(&id(1)), "it may still be refused");
        assert_eq!(known.root(b"root"), None);
        known.begin();
        known.confirm();
        assert!(!known.has_cell(&id(1)));
        assert_eq!(known.root(b"root"), None);
    }

    #[test]
    fn what_an_applied_commit_has_seen_is_known_until_it_changes() {
        let known = KnownState::default();
        known.begin();
        known.add_cell(&id(1));
        known.set_root(b"root", Some(id(2)));
        known.set_root(b"none", None);
        known.confirm();
        assert!(known.has_cell(&id(1)));
        assert!(!known.has_cell(&id(2)));
        assert_eq!(known.root(b"root"), Some(Some(id(2))));
        assert_eq!(known.root(b"none"), Some(None));
        known.set_root(b"root", Some(id(3)));
        assert_eq!(known.root(b"root"), None, "it is read from the commit itself");
        known.begin();
        assert_eq!(known.root(b"root"), None, "and from the store, if that was refused");
        known.remove_cell(&id(1));
        assert!(!known.has_cell(&id(1)));
        known.clear();
        assert_eq!(known.root(b"none"), None);
    }
}
