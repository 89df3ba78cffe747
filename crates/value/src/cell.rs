//! What all tree nodes have in common: a memo of their encoded form, children that may not be in
//! memory, and the source that supplies those.
//!
//! A node never changes after it was made, so its encoded form is computed at most once. What a
//! parent needs of a child is its *slot*: the whole encoding when that is short, else `0x20` and
//! the Value ID. The slot is what the memo keeps.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};

use crate::decode::{DecodeError, decode_branch};
use crate::encode::{CellRef, REF_TAG};
use crate::id::ValueId;
use crate::limits::VALUE_DEPTH_MAX;
use crate::value::Value;

/// The encoded form of a node, as far as it has been asked for.
#[derive(Default)]
pub(crate) struct Memo {
    /// What stands for this node inside its parent.
    slot: OnceLock<Box<[u8]>>,
    /// The ID of an embedded node, which its slot does not tell.
    id: OnceLock<Box<ValueId>>,
}

impl Memo {
    /// The memo of a branch whose ID is known because it was loaded by it.
    pub(crate) fn of_branch(id: &ValueId) -> Self {
        let memo = Memo::default();
        memo.keep_slot(&branch_slot(id));
        memo
    }

    pub(crate) fn slot(&self) -> Option<&[u8]> {
        self.slot.get().map(|slot| &**slot)
    }

    /// Whether the node is known to be written inside its parent.
    pub(crate) fn is_embedded(&self) -> bool {
        self.slot().is_some_and(|slot| slot.first() != Some(&REF_TAG))
    }

    pub(crate) fn keep_slot(&self, slot: &[u8]) {
        // Losing a race is harmless: both sides computed the same bytes.
        let _ = self.slot.set(slot.into());
    }

    pub(crate) fn id(&self) -> Option<ValueId> {
        self.id.get().map(|id| **id).or_else(|| self.slot().and_then(branch_id))
    }

    pub(crate) fn keep_id(&self, id: ValueId) {
        let _ = self.id.set(Box::new(id));
    }
}

/// The bytes that stand for a branch in a child slot.
pub(crate) fn branch_slot(id: &ValueId) -> [u8; 33] {
    let mut slot = [REF_TAG; 33];
    slot[1..].copy_from_slice(id.as_bytes());
    slot
}

/// The ID in a slot that stands for a branch.
fn branch_id(slot: &[u8]) -> Option<ValueId> {
    let (tag, id) = slot.split_first()?;
    if *tag != REF_TAG {
        return None;
    }
    id.try_into().ok().map(ValueId::from_bytes)
}

/// Supplies cells that are not in memory.
///
/// Implementations may cache decoded cells; [`decode_branch`] turns stored bytes into a value
/// after checking them against the ID.
pub trait CellSource {
    /// The value whose root cell has this ID. Its own branches may be left unloaded.
    fn load(&self, id: &ValueId) -> Result<Value, LoadError>;
}

/// A source that holds nothing: right for values known to be wholly in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCells;

impl CellSource for NoCells {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        Err(LoadError::Missing { id: *id })
    }
}

/// A source over encoded cells in memory.
#[derive(Debug, Clone, Default)]
pub struct CellsInMemory {
    cells: HashMap<ValueId, Box<[u8]>>,
}

impl CellsInMemory {
    /// Keeps one encoded cell and returns its ID.
    pub fn insert(&mut self, encoding: &[u8]) -> ValueId {
        let id = ValueId::of_encoding(encoding);
        self.cells.entry(id).or_insert_with(|| encoding.into());
        id
    }

    /// How many cells it holds.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

impl CellSource for CellsInMemory {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        let bytes = self.cells.get(id).ok_or(LoadError::Missing { id: *id })?;
        decode_branch(id, bytes)
    }
}

/// Why a branch could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The source does not hold the cell.
    #[error("cell {id} is not available")]
    Missing {
        /// The cell.
        id: ValueId,
    },
    /// The source's bytes do not have the ID they were asked by.
    #[error("cell {id} is damaged: its bytes have ID {found}")]
    WrongBytes {
        /// The ID asked for.
        id: ValueId,
        /// The ID of what came.
        found: ValueId,
    },
    /// The source's bytes are not a canonical cell.
    #[error("cell {id} is not canonical")]
    Malformed {
        /// The cell.
        id: ValueId,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// The cell is valid by itself but cannot stand where its parent names it.
    #[error("cell {id} does not fit its parent: {expected}")]
    Misplaced {
        /// The cell.
        id: ValueId,
        /// What the parent needs.
        expected: &'static str,
    },
    /// The value nests deeper than a walk follows.
    #[error("value nests deeper than {} containers", crate::limits::VALUE_DEPTH_MAX)]
    TooDeep,
    /// The source itself failed.
    #[error("cell {id} could not be read")]
    Source {
        /// The cell.
        id: ValueId,
        /// What the source says.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A node that lives in a tree: it can be written, walked, completed, and found inside a value.
pub(crate) trait Node {
    fn memo(&self) -> &Memo;

    /// Appends the node's whole encoding.
    fn write(&self, out: &mut Vec<u8>);

    /// Shows every cell that stands in a slot of this node.
    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>));

    /// The same node with everything below it in memory and checked.
    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError>
    where
        Self: Sized;

    /// The node at the root of `value`, when it is of this kind.
    fn of_value(value: &Value) -> Option<&Arc<Self>>
    where
        Self: Sized;
}

/// Brings a whole value into memory. A branch that occurs many times is loaded, checked and held
/// once, so the work is bounded by the distinct cells and not by what they spell out.
pub(crate) struct Loader<'a> {
    cells: &'a dyn CellSource,
    done: HashMap<ValueId, Value>,
    depth: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(cells: &'a dyn CellSource) -> Self {
        Loader { cells, done: HashMap::new(), depth: 0 }
    }

    /// `value` with everything below it in memory.
    pub(crate) fn value(&mut self, value: &Value) -> Result<Value, LoadError> {
        if self.depth == VALUE_DEPTH_MAX {
            return Err(LoadError::TooDeep);
        }
        self.depth += 1;
        let loaded = match value {
            Value::Unloaded(id) => self.branch(id),
            other => other.load_all(self),
        };
        self.depth -= 1;
        loaded
    }

    fn branch(&mut self, id: &ValueId) -> Result<Value, LoadError> {
        if let Some(done) = self.done.get(id) {
            return Ok(done.clone());
        }
        let loaded = self.cells.load(id)?.load_all(self)?;
        self.done.insert(*id, loaded.clone());
        Ok(loaded)
    }

    /// A child with everything below it in memory.
    pub(crate) fn child<N: Node>(
        &mut self,
        child: &Child<N>,
        expected: &'static str,
        fits: impl FnOnce(&N) -> bool,
    ) -> Result<Arc<N>, LoadError> {
        match child {
            Child::Loaded(node) => node.load_all(self),
            Child::Unloaded(id) => match N::of_value(&self.branch(id)?) {
                Some(node) if fits(node) => Ok(Arc::clone(node)),
                _ => Err(LoadError::Misplaced { id: *id, expected }),
            },
        }
    }
}

/// A child of a tree node.
pub(crate) enum Child<N> {
    Loaded(Arc<N>),
    Unloaded(ValueId),
}

impl<N> Clone for Child<N> {
    fn clone(&self) -> Self {
        match self {
            Child::Loaded(node) => Child::Loaded(Arc::clone(node)),
            Child::Unloaded(id) => Child::Unloaded(*id),
        }
    }
}

impl<N: Node> Child<N> {
    /// The node, from memory or from `cells`. `fits` says whether a node that comes from outside
    /// may stand here; one already in memory was checked when it was put there.
    pub(crate) fn load(
        &self,
        cells: &dyn CellSource,
        expected: &'static str,
        fits: impl FnOnce(&N) -> bool,
    ) -> Result<Arc<N>, LoadError> {
        let id = match self {
            Child::Loaded(node) => return Ok(Arc::clone(node)),
            Child::Unloaded(id) => id,
        };
        match N::of_value(&cells.load(id)?) {
            Some(node) if fits(node) => Ok(Arc::clone(node)),
            _ => Err(LoadError::Misplaced { id: *id, expected }),
        }
    }

    /// The node when it is in memory.
    pub(crate) fn loaded(&self) -> Option<&Arc<N>> {
        match self {
            Child::Loaded(node) => Some(node),
            Child::Unloaded(_) => None,
        }
    }
}
