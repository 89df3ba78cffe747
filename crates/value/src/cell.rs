//! What all tree nodes have in common: a memo of their encoded form, children that may not be in
//! memory, and the source that supplies those.
//!
//! A node never changes after it was created, so its encoded form is computed at most once. What a
//! parent needs of a child is its *slot*: the complete encoding if that is short, else `0x20` and
//! the Value ID. The memo keeps the slot.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};

use crate::decode::{DecodeError, decode_branch};
use crate::encode::{CellRef, REF_TAG};
use crate::id::ValueId;
use crate::limits::VALUE_DEPTH_MAX;
use crate::value::Value;

/// The encoded form of a node, as far as it has been computed.
#[derive(Default)]
pub(crate) struct Memo {
    /// The slot of this node inside its parent.
    slot: OnceLock<Box<[u8]>>,
    /// The ID of an embedded node, which its slot does not contain.
    id: OnceLock<Box<ValueId>>,
}

impl Memo {
    /// The memo of a branch whose ID is known because it was loaded by that ID.
    pub(crate) fn of_branch(id: &ValueId) -> Self {
        let memo = Memo::default();
        memo.set_slot(&branch_slot(id));
        memo
    }

    pub(crate) fn slot(&self) -> Option<&[u8]> {
        self.slot.get().map(|slot| &**slot)
    }

    /// Whether the node is known to be embedded in its parent.
    pub(crate) fn is_embedded(&self) -> bool {
        self.slot().is_some_and(|slot| slot.first() != Some(&REF_TAG))
    }

    pub(crate) fn set_slot(&self, slot: &[u8]) {
        // Losing a race is harmless: both threads computed the same bytes.
        let _ = self.slot.set(slot.into());
    }

    pub(crate) fn id(&self) -> Option<ValueId> {
        self.id.get().map(|id| **id).or_else(|| self.slot().and_then(branch_id))
    }

    pub(crate) fn set_id(&self, id: ValueId) {
        let _ = self.id.set(Box::new(id));
    }
}

/// The slot of a branch: a reference to its ID.
pub(crate) fn branch_slot(id: &ValueId) -> [u8; 33] {
    let mut slot = [REF_TAG; 33];
    slot[1..].copy_from_slice(id.as_bytes());
    slot
}

/// The ID in the slot of a branch. `None` if the slot contains an embedded cell.
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
    /// Loads the value whose root cell has this ID. Its own branches may stay unloaded.
    fn load(&self, id: &ValueId) -> Result<Value, LoadError>;
}

/// A source without cells: right for values that are known to be entirely in memory.
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
    /// Stores one encoded cell and returns its ID.
    pub fn insert(&mut self, encoding: &[u8]) -> ValueId {
        let id = ValueId::of_encoding(encoding);
        self.cells.entry(id).or_insert_with(|| encoding.into());
        id
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no cells.
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

/// The reason why a branch could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The source does not have the cell.
    #[error("cell {id} is not available")]
    Missing {
        /// ID of the cell.
        id: ValueId,
    },
    /// The bytes from the source do not have the requested ID.
    #[error("cell {id} is damaged: its bytes have ID {found}")]
    WrongBytes {
        /// The requested ID.
        id: ValueId,
        /// The ID of the bytes.
        found: ValueId,
    },
    /// The bytes from the source are not a canonical cell.
    #[error("cell {id} is not canonical")]
    Malformed {
        /// ID of the cell.
        id: ValueId,
        /// What is wrong with the encoding.
        #[source]
        source: DecodeError,
    },
    /// The cell is valid by itself but not what its parent requires at this position.
    #[error("cell {id} does not fit its parent: expected {expected}")]
    Misplaced {
        /// ID of the cell.
        id: ValueId,
        /// What the parent requires.
        expected: &'static str,
    },
    /// The value nests deeper than [`VALUE_DEPTH_MAX`].
    #[error("the value nests deeper than {VALUE_DEPTH_MAX} containers")]
    TooDeep,
    /// The source itself failed.
    #[error("cell {id} could not be read")]
    Source {
        /// ID of the cell.
        id: ValueId,
        /// The error of the source.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A node of a tree: it can be encoded, traversed, loaded completely, and found in a value.
pub(crate) trait Node {
    fn memo(&self) -> &Memo;

    /// Appends the complete encoding of the node.
    fn write(&self, out: &mut Vec<u8>);

    /// Calls `visit` for every cell in a slot of this node.
    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>));

    /// The same node with everything below it in memory and checked.
    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError>
    where
        Self: Sized;

    /// The root node of `value`. `None` if it is of another kind.
    fn of_value(value: &Value) -> Option<&Arc<Self>>
    where
        Self: Sized;
}

/// Loads a complete value into memory. A branch that occurs many times is loaded, checked and kept
/// once, so the work is bounded by the number of distinct cells, not by the expanded size.
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
    /// The node, from memory or from `cells`. `fits` says whether a loaded node is valid at this
    /// position; a node already in memory was checked when it was inserted.
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

    /// The node if it is in memory.
    pub(crate) fn loaded(&self) -> Option<&Arc<N>> {
        match self {
            Child::Loaded(node) => Some(node),
            Child::Unloaded(_) => None,
        }
    }
}
