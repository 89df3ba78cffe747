//! Sets: a [hash tree](crate::hashed) of elements.

use std::fmt;
use std::sync::Arc;

use crate::cell::{CellSource, LoadError, Loader};
use crate::encode::{CellRef, node_id};
use crate::hashed::{Entries, Entry, HashNode};
use crate::id::ValueId;
use crate::value::Value;

/// A set of values.
#[derive(Clone)]
pub struct Set(pub(crate) Arc<HashNode<SetEntry>>);

impl Set {
    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.count()
    }

    /// Whether the set has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.count() == 0
    }

    /// Whether `value` is an element.
    pub fn contains(&self, value: &Value, cells: &dyn CellSource) -> Result<bool, LoadError> {
        Ok(self.0.find(&value.id(), cells)?.is_some())
    }

    /// This set with one more element.
    pub fn insert(&self, value: Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        let node = self.0.insert(SetEntry::new(value), 0, cells)?;
        Ok(Set(Arc::new(node)))
    }

    /// This set without `value`; unchanged if it is not an element.
    pub fn remove(&self, value: &Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        Ok(self.0.remove(&value.id(), cells)?.map_or_else(|| self.clone(), Set))
    }

    /// All elements, in ascending order of their IDs.
    pub fn iter<'a>(&self, cells: &'a dyn CellSource) -> SetIter<'a> {
        SetIter(Entries::new(&self.0, cells))
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(&*self.0)
    }
}

impl FromIterator<Value> for Set {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let entries = values.into_iter().map(SetEntry::new).collect();
        Set(Arc::new(HashNode::from_entries(entries)))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_leaf() {
            Some(entries) => f.debug_set().entries(entries.iter().map(|e| &e.value)).finish(),
            None => write!(f, "set of {}", self.len()),
        }
    }
}

/// An iterator over the elements of a [`Set`].
pub struct SetIter<'a>(Entries<'a, SetEntry>);

impl Iterator for SetIter<'_> {
    type Item = Result<Value, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let cells = self.0.cells;
        Some(self.0.next()?.and_then(|entry| entry.value.loaded(cells)))
    }
}

#[derive(Clone)]
pub(crate) struct SetEntry {
    pub(crate) hash: ValueId,
    pub(crate) value: Value,
}

impl SetEntry {
    pub(crate) fn new(value: Value) -> Self {
        SetEntry { hash: value.id(), value }
    }
}

impl Entry for SetEntry {
    const TAG: u8 = 0x83;

    fn hash(&self) -> &ValueId {
        &self.hash
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.value.write_slot(out);
    }

    fn visit(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        visit(CellRef::Value(&self.value));
    }

    fn load_all(&self, loader: &mut Loader<'_>) -> Result<Self, LoadError> {
        Ok(SetEntry { hash: self.hash, value: loader.value(&self.value)? })
    }

    fn of_value(value: &Value) -> Option<&Arc<HashNode<Self>>> {
        match value {
            Value::Set(Set(node)) => Some(node),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoCells;

    #[test]
    fn a_removed_element_leaves_no_trace() {
        let set: Set = (0..100).map(Value::from).collect();
        let smaller = set.remove(&7.into(), &NoCells).unwrap();
        assert!(!smaller.contains(&7.into(), &NoCells).unwrap());
        assert_eq!(smaller.insert(7.into(), &NoCells).unwrap().id(), set.id());
    }
}
