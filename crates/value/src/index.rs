//! Index: a map ordered by the bytes of its keys, as a radix tree.
//!
//! Keys are strings, blobs, keywords, symbols or extension values. Only their first 32 bytes are
//! significant: two keys that agree in those are the same key, whatever their types, and the later
//! write wins. A node contains the entry whose key ends where the node branches, and children by
//! the next hex digit.

use std::fmt;
use std::sync::Arc;

use crate::cell::{CellSource, Child, LoadError, Loader, Memo, Node};
use crate::encode::{CellRef, node_id, write_child, write_count};
use crate::id::{ValueId, common_nibbles, nibble};
use crate::limits::INDEX_NIBBLES_MAX;
use crate::mask::Mask;
use crate::value::Value;

/// Marks an entry that is stored at a branching node.
pub(crate) const ENTRY_MARK: u8 = 0x80;
pub(crate) const INDEX_TAG: u8 = 0x84;

/// What a node requires of the nodes below it, for errors.
const EXPECTED: &str = "an index node with keys that belong below its parent";

/// The reason why an index could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The key is of a type that has no bytes to order by.
    #[error("an index key must be a string, blob, keyword, symbol or extension value")]
    NotAKey,
    /// A branch could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The significant part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Radix {
    bytes: [u8; INDEX_NIBBLES_MAX / 2],
    /// Length in hex digits.
    len: u8,
}

impl Radix {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; INDEX_NIBBLES_MAX / 2];
        let used = key.len().min(bytes.len());
        bytes[..used].copy_from_slice(&key[..used]);
        Radix { bytes, len: (used * 2) as u8 }
    }

    /// The radix of a key in memory. `None` if the value cannot be a key or is not in memory.
    pub(crate) fn in_memory(key: &Value) -> Option<Self> {
        match key {
            Value::String(text) => text.as_bytes().map(Radix::new),
            Value::Blob(blob) => blob.as_bytes().map(Radix::new),
            Value::Symbol(name) | Value::Keyword(name) => Some(Radix::new(name.as_bytes())),
            Value::Extension(extension) => Some(Radix::new(&extension.number().to_be_bytes())),
            _ => None,
        }
    }

    /// The radix of a key, loading the key if necessary.
    fn load(key: &Value, cells: &dyn CellSource) -> Result<Self, IndexError> {
        const USED: u64 = INDEX_NIBBLES_MAX as u64 / 2;
        match key {
            Value::String(text) => Ok(Radix::new(&text.read(0, USED, cells)?)),
            Value::Blob(blob) => Ok(Radix::new(&blob.read(0, USED, cells)?)),
            Value::Unloaded(id) => match cells.load(id)? {
                Value::Unloaded(id) => Err(LoadError::Missing { id: *id }.into()),
                key => Radix::load(&key, cells),
            },
            other => Radix::in_memory(other).ok_or(IndexError::NotAKey),
        }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn digit(&self, at: usize) -> u8 {
        nibble(&self.bytes, at)
    }

    pub(crate) fn common(&self, other: &Radix) -> usize {
        common_nibbles(&self.bytes, &other.bytes).min(self.len()).min(other.len())
    }
}

#[derive(Clone)]
pub(crate) struct IndexEntry {
    pub(crate) key: Value,
    pub(crate) value: Value,
}

impl IndexEntry {
    fn write(&self, out: &mut Vec<u8>) {
        self.key.write_slot(out);
        self.value.write_slot(out);
    }
}

pub(crate) struct IndexNode {
    count: u64,
    memo: Memo,
    body: Body,
}

enum Body {
    Empty,
    One(IndexEntry),
    Many(Fork),
}

/// A branching point: the keys below share their first `depth` digits.
#[derive(Clone)]
pub(crate) struct Fork {
    pub(crate) depth: u8,
    /// The entry whose key ends here.
    pub(crate) entry: Option<IndexEntry>,
    pub(crate) mask: Mask,
    pub(crate) children: Vec<Child<IndexNode>>,
}

impl Fork {
    fn at(depth: usize) -> Self {
        Fork { depth: depth as u8, entry: None, mask: Mask::default(), children: Vec::new() }
    }

    /// Inserts or replaces the child for `digit`.
    fn insert_child(&mut self, digit: u8, child: Arc<IndexNode>) {
        self.mask.insert(&mut self.children, digit, Child::Loaded(child));
    }

    /// Adds an entry as a new child, or as the entry of the fork itself if its key ends here.
    fn insert_entry(&mut self, radix: &Radix, entry: IndexEntry) {
        if radix.len() == usize::from(self.depth) {
            self.entry = Some(entry);
        } else {
            let digit = radix.digit(usize::from(self.depth));
            self.insert_child(digit, Arc::new(IndexNode::one(entry)));
        }
    }
}

impl IndexNode {
    pub(crate) fn empty() -> Self {
        IndexNode { count: 0, memo: Memo::default(), body: Body::Empty }
    }

    pub(crate) fn one(entry: IndexEntry) -> Self {
        IndexNode { count: 1, memo: Memo::default(), body: Body::One(entry) }
    }

    pub(crate) fn many(count: u64, fork: Fork) -> Self {
        IndexNode { count, memo: Memo::default(), body: Body::Many(fork) }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Any key below this node that is in memory.
    pub(crate) fn sample_in_memory(&self) -> Option<Radix> {
        match &self.body {
            Body::Empty => None,
            Body::One(entry) => Radix::in_memory(&entry.key),
            Body::Many(fork) => {
                let here = fork.entry.as_ref().and_then(|entry| Radix::in_memory(&entry.key));
                let below = || fork.children.iter().filter_map(Child::loaded);
                here.or_else(|| below().find_map(|child| child.sample_in_memory()))
            }
        }
    }

    /// Whether this node can be the child for `digit` of a fork at `depth` that also has keys like
    /// `sample`. Keys that are not in memory are checked when they are loaded.
    pub(crate) fn fits(&self, depth: u8, digit: u8, sample: Option<&Radix>) -> bool {
        let at = usize::from(depth);
        let deeper = match &self.body {
            Body::Empty => false,
            Body::One(_) => true,
            Body::Many(fork) => fork.depth > depth,
        };
        deeper
            && self.sample_in_memory().is_none_or(|own| {
                own.len() > at
                    && own.digit(at) == digit
                    && sample.is_none_or(|sample| sample.common(&own) >= at)
            })
    }

    fn load_slot(
        &self,
        fork: &Fork,
        slot: usize,
        cells: &dyn CellSource,
    ) -> Result<Arc<Self>, LoadError> {
        let digit = fork.mask.digit(slot);
        fork.children[slot].load(cells, EXPECTED, |node| {
            node.count < self.count && node.fits(fork.depth, digit, None)
        })
    }

    fn sample(&self, cells: &dyn CellSource) -> Result<Option<Radix>, IndexError> {
        match &self.body {
            Body::Empty => Ok(None),
            Body::One(entry) => Radix::load(&entry.key, cells).map(Some),
            Body::Many(fork) => match &fork.entry {
                Some(entry) => Radix::load(&entry.key, cells).map(Some),
                None => self.load_slot(fork, 0, cells)?.sample(cells),
            },
        }
    }

    fn find(
        self: &Arc<Self>,
        radix: &Radix,
        cells: &dyn CellSource,
    ) -> Result<Option<IndexEntry>, IndexError> {
        let mut node = Arc::clone(self);
        loop {
            let (entry, below) = match &node.body {
                Body::Empty => return Ok(None),
                Body::One(entry) => (Some(entry), None),
                Body::Many(fork) if radix.len() <= usize::from(fork.depth) => {
                    (fork.entry.as_ref(), None)
                }
                Body::Many(fork) => match fork.mask.slot(radix.digit(usize::from(fork.depth))) {
                    Ok(slot) => (None, Some(node.load_slot(fork, slot, cells)?)),
                    Err(_) => return Ok(None),
                },
            };
            if let Some(below) = below {
                node = below;
                continue;
            }
            let Some(entry) = entry else { return Ok(None) };
            let same = Radix::load(&entry.key, cells)? == *radix;
            return Ok(same.then(|| entry.clone()));
        }
    }

    /// This node with one more entry. The first `agreed` digits of its key are known to equal those
    /// of every key in the node.
    fn insert(
        self: &Arc<Self>,
        radix: &Radix,
        entry: IndexEntry,
        agreed: usize,
        cells: &dyn CellSource,
    ) -> Result<Self, IndexError> {
        let fork = match &self.body {
            Body::Empty => return Ok(Self::one(entry)),
            Body::One(own) => {
                let own_radix = Radix::load(&own.key, cells)?;
                if own_radix == *radix {
                    return Ok(Self::one(entry));
                }
                let mut fork = Fork::at(own_radix.common(radix));
                fork.insert_entry(&own_radix, own.clone());
                fork.insert_entry(radix, entry);
                return Ok(Self::many(2, fork));
            }
            Body::Many(fork) => fork,
        };
        let depth = usize::from(fork.depth);
        if depth > agreed
            && let Some(sample) = self.sample(cells)?
            && sample.common(radix) < depth
        {
            let mut above = Fork::at(sample.common(radix));
            above.insert_child(sample.digit(usize::from(above.depth)), Arc::clone(self));
            above.insert_entry(radix, entry);
            return Ok(Self::many(self.count + 1, above));
        }
        let mut fork = fork.clone();
        if radix.len() == depth {
            let grown = u64::from(fork.entry.is_none());
            fork.entry = Some(entry);
            return Ok(Self::many(self.count + grown, fork));
        }
        let digit = radix.digit(depth);
        let Ok(slot) = fork.mask.slot(digit) else {
            fork.insert_entry(radix, entry);
            return Ok(Self::many(self.count + 1, fork));
        };
        let child = self.load_slot(&fork, slot, cells)?;
        let changed = child.insert(radix, entry, depth + 1, cells)?;
        let grown = changed.count - child.count;
        fork.insert_child(digit, Arc::new(changed));
        Ok(Self::many(self.count + grown, fork))
    }

    /// This node without the entry. `None` if it does not have the entry.
    fn remove(
        self: &Arc<Self>,
        radix: &Radix,
        cells: &dyn CellSource,
    ) -> Result<Option<Arc<Self>>, IndexError> {
        let fork = match &self.body {
            Body::Empty => return Ok(None),
            Body::One(own) => {
                let same = Radix::load(&own.key, cells)? == *radix;
                return Ok(same.then(|| Arc::new(Self::empty())));
            }
            Body::Many(fork) => fork,
        };
        let depth = usize::from(fork.depth);
        let mut smaller = fork.clone();
        if radix.len() <= depth {
            let Some(own) = &fork.entry else { return Ok(None) };
            if Radix::load(&own.key, cells)? != *radix {
                return Ok(None);
            }
            smaller.entry = None;
        } else {
            let Ok(slot) = fork.mask.slot(radix.digit(depth)) else { return Ok(None) };
            let child = self.load_slot(fork, slot, cells)?;
            let Some(child) = child.remove(radix, cells)? else { return Ok(None) };
            if child.count == 0 {
                smaller.mask.remove(&mut smaller.children, radix.digit(depth));
            } else {
                smaller.children[slot] = Child::Loaded(child);
            }
        }
        self.canonical_without_entry(smaller, cells).map(Some)
    }

    /// The canonical node for `fork`, which is this node after an entry was removed.
    fn canonical_without_entry(
        &self,
        fork: Fork,
        cells: &dyn CellSource,
    ) -> Result<Arc<Self>, IndexError> {
        match (&fork.entry, &fork.children[..]) {
            (Some(entry), []) => Ok(Arc::new(Self::one(entry.clone()))),
            (None, [_only]) => Ok(self.load_slot(&fork, 0, cells)?),
            _ => Ok(Arc::new(Self::many(self.count - 1, fork))),
        }
    }
}

impl Node for IndexNode {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(INDEX_TAG);
        write_count(self.count, out);
        match &self.body {
            Body::Empty => {}
            Body::One(entry) => entry.write(out),
            Body::Many(fork) => {
                match &fork.entry {
                    None => out.push(0),
                    Some(entry) => {
                        out.push(ENTRY_MARK);
                        entry.write(out);
                    }
                }
                out.push(fork.depth);
                out.extend_from_slice(&fork.mask.to_be_bytes());
                fork.children.iter().for_each(|child| write_child(child, out));
            }
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        let (entry, children) = match &self.body {
            Body::Empty => (None, &[][..]),
            Body::One(entry) => (Some(entry), &[][..]),
            Body::Many(fork) => (fork.entry.as_ref(), &fork.children[..]),
        };
        if let Some(entry) = entry {
            visit(CellRef::Value(&entry.key));
            visit(CellRef::Value(&entry.value));
        }
        children.iter().for_each(|child| visit(CellRef::of_child(child)));
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        match &self.body {
            Body::Empty => Ok(Arc::clone(self)),
            Body::One(entry) => Ok(Arc::new(Self::one(load_entry(entry, loader)?))),
            Body::Many(fork) => load_fork(self.count, fork, loader).map(Arc::new),
        }
    }

    fn of_value(value: &Value) -> Option<&Arc<Self>> {
        match value {
            Value::Index(Index(node)) => Some(node),
            _ => None,
        }
    }
}

fn load_entry(entry: &IndexEntry, loader: &mut Loader<'_>) -> Result<IndexEntry, LoadError> {
    let loaded = IndexEntry { key: loader.value(&entry.key)?, value: loader.value(&entry.value)? };
    match Radix::in_memory(&loaded.key) {
        Some(_) => Ok(loaded),
        // The key is longer than one chunk; its radix is read from the first chunk.
        None if matches!(loaded.key, Value::String(_) | Value::Blob(_)) => Ok(loaded),
        None => Err(LoadError::Misplaced {
            id: loaded.key.id(),
            expected: "a key of a type that has bytes",
        }),
    }
}

fn load_fork(count: u64, fork: &Fork, loader: &mut Loader<'_>) -> Result<IndexNode, LoadError> {
    let mut loaded = fork.clone();
    let mut sum = 0u64;
    if let Some(entry) = &fork.entry {
        loaded.entry = Some(load_entry(entry, loader)?);
        sum = 1;
    }
    let mut sample = loaded.entry.as_ref().and_then(|entry| Radix::in_memory(&entry.key));
    for (child, digit) in loaded.children.iter_mut().zip(fork.mask.digits()) {
        let node = loader.child(child, EXPECTED, |node: &IndexNode| {
            node.fits(fork.depth, digit, sample.as_ref())
        })?;
        sample = sample.or_else(|| node.sample_in_memory());
        sum = sum.saturating_add(node.count);
        *child = Child::Loaded(node);
    }
    let node = IndexNode::many(count, loaded);
    if sum != count {
        let id = node_id(&node);
        return Err(LoadError::Misplaced { id, expected: "a count that is the sum of its parts" });
    }
    Ok(node)
}

/// A map ordered by the bytes of its keys.
#[derive(Clone)]
pub struct Index(pub(crate) Arc<IndexNode>);

impl Index {
    /// The empty index.
    pub fn new() -> Self {
        Index(Arc::new(IndexNode::empty()))
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.0.count
    }

    /// Whether the index has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// The value under `key`. `None` if the key is absent.
    pub fn get(&self, key: &Value, cells: &dyn CellSource) -> Result<Option<Value>, IndexError> {
        let entry = self.0.find(&Radix::load(key, cells)?, cells)?;
        entry.map(|entry| Ok(entry.value.loaded(cells)?)).transpose()
    }

    /// This index with `value` under `key`.
    pub fn insert(
        &self,
        key: Value,
        value: Value,
        cells: &dyn CellSource,
    ) -> Result<Self, IndexError> {
        let radix = Radix::load(&key, cells)?;
        let node = self.0.insert(&radix, IndexEntry { key, value }, 0, cells)?;
        Ok(Index(Arc::new(node)))
    }

    /// This index without `key`; unchanged if the key is absent.
    pub fn remove(&self, key: &Value, cells: &dyn CellSource) -> Result<Self, IndexError> {
        let radix = Radix::load(key, cells)?;
        Ok(self.0.remove(&radix, cells)?.map_or_else(|| self.clone(), Index))
    }

    /// All entries, in the order of the bytes of their keys.
    pub fn iter<'a>(&self, cells: &'a dyn CellSource) -> IndexIter<'a> {
        IndexIter { cells, path: vec![(Arc::clone(&self.0), 0)] }
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(&*self.0)
    }
}

impl Default for Index {
    fn default() -> Self {
        Index::new()
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index of {}", self.len())
    }
}

/// An iterator over the entries of an [`Index`], which loads one node at a time. It ends after the
/// first error.
pub struct IndexIter<'a> {
    cells: &'a dyn CellSource,
    /// Nodes on the path to the current entry, each with its next step: 0 for its own entry, then
    /// one per child.
    path: Vec<(Arc<IndexNode>, usize)>,
}

impl IndexIter<'_> {
    fn step(&mut self) -> Result<Option<IndexEntry>, LoadError> {
        while let Some((node, step)) = self.path.last_mut() {
            let next = *step;
            *step += 1;
            let (entry, below) = match &node.body {
                Body::One(entry) if next == 0 => (Some(entry.clone()), None),
                Body::Many(fork) if next == 0 => (fork.entry.clone(), None),
                Body::Many(fork) if next <= fork.children.len() => {
                    (None, Some(node.load_slot(fork, next - 1, self.cells)?))
                }
                _ => {
                    self.path.pop();
                    continue;
                }
            };
            if let Some(below) = below {
                self.path.push((below, 0));
            }
            if entry.is_some() {
                return Ok(entry);
            }
        }
        Ok(None)
    }
}

impl Iterator for IndexIter<'_> {
    type Item = Result<(Value, Value), LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.step().and_then(|entry| match entry {
            Some(entry) => {
                Ok(Some((entry.key.loaded(self.cells)?, entry.value.loaded(self.cells)?)))
            }
            None => Ok(None),
        });
        if entry.is_err() {
            self.path.clear();
        }
        entry.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blob, NoCells};

    fn blob(bytes: &[u8]) -> Value {
        Value::Blob(Blob::from_bytes(bytes))
    }

    #[test]
    fn the_shape_depends_on_the_keys_alone() {
        let keys: Vec<Value> =
            (0..300u32).map(|i| blob(&i.to_le_bytes()[..(i % 4 + 1) as usize])).collect();
        let mut grown = Index::new();
        let mut stages = vec![(grown.clone(), Value::Nil)];
        for key in &keys {
            if grown.get(key, &NoCells).unwrap().is_none() {
                grown = grown.insert(key.clone(), 1.into(), &NoCells).unwrap();
                stages.push((grown.clone(), key.clone()));
            }
        }
        while let Some((stage, key)) = stages.pop() {
            assert_eq!(grown.id(), stage.id());
            assert_eq!(grown.len(), stages.len() as u64);
            grown = grown.remove(&key_or_absent(&key), &NoCells).unwrap();
        }
    }

    fn key_or_absent(key: &Value) -> Value {
        if *key == Value::Nil { blob(b"absent") } else { key.clone() }
    }

    #[test]
    fn entries_come_in_the_order_of_their_bytes() {
        let mut index = Index::new();
        for key in [&b"b"[..], b"ab", b"a", b"", b"abc", b"c"] {
            index = index.insert(blob(key), Value::Nil, &NoCells).unwrap();
        }
        let keys: Vec<_> =
            index.iter(&NoCells).map(|entry| format!("{:?}", entry.unwrap().0)).collect();
        assert_eq!(keys, ["0x", "0x61", "0x6162", "0x616263", "0x62", "0x63"]);
    }

    #[test]
    fn keys_with_equal_first_bytes_are_the_same_key() {
        let long = |last: &str| Value::from(format!("{}{last}", "x".repeat(32)));
        let index = Index::new().insert(long("a"), 1.into(), &NoCells).unwrap();
        let index = index.insert(long("b"), 2.into(), &NoCells).unwrap();
        assert_eq!(index.len(), 1);
        assert_eq!(index.get(&long("c"), &NoCells).unwrap(), Some(2.into()));
    }

    #[test]
    fn a_number_is_not_a_key() {
        let refused = Index::new().insert(1.into(), Value::Nil, &NoCells);
        assert!(matches!(refused, Err(IndexError::NotAKey)));
    }
}
