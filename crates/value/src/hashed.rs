//! The tree under maps and sets, ordered by the Value ID of the key or element.
//!
//! Up to fifteen entries form one leaf, in order. More form a tree that branches on the first hex
//! digit in which the keys differ. The shape depends on the set of keys alone, never on the order
//! of inserts and removals, so a map from which an entry was removed equals one that never had it.

use std::sync::Arc;

use crate::cell::{CellSource, Child, LoadError, Loader, Memo, Node};
use crate::encode::{CellRef, node_id, write_child, write_count};
use crate::id::ValueId;
use crate::limits::{HASH_LEAF_MAX, PENDING_ITEMS_MAX};
use crate::mask::Mask;
use crate::value::Value;

/// What a tree requires of the nodes below it, for errors.
const EXPECTED: &str = "a node of the same kind with keys that belong below its parent";

/// An entry of a leaf.
pub(crate) trait Entry: Clone {
    const TAG: u8;

    /// The ID by which entries are ordered.
    fn hash(&self) -> &ValueId;

    fn write(&self, out: &mut Vec<u8>);

    fn visit(&self, visit: &mut dyn FnMut(CellRef<'_>));

    fn load_all(&self, loader: &mut Loader<'_>) -> Result<Self, LoadError>;

    fn of_value(value: &Value) -> Option<&Arc<HashNode<Self>>>;
}

pub(crate) struct HashNode<E> {
    count: u64,
    memo: Memo,
    body: Body<E>,
}

enum Body<E> {
    /// Entries in ascending order of their hashes.
    Leaf(Vec<E>),
    Tree(Branches<E>),
}

/// Children by the hex digit of their keys at `shift`, in ascending order.
pub(crate) struct Branches<E> {
    pub(crate) shift: u8,
    pub(crate) mask: Mask,
    pub(crate) children: Vec<Child<HashNode<E>>>,
}

impl<E> Clone for Branches<E> {
    fn clone(&self) -> Self {
        Branches { shift: self.shift, mask: self.mask, children: self.children.clone() }
    }
}

impl<E> Branches<E> {
    fn at(shift: usize) -> Self {
        Branches { shift: shift as u8, mask: Mask::default(), children: Vec::new() }
    }

    /// Inserts or replaces the child for `digit`.
    fn insert(&mut self, digit: u8, child: Arc<HashNode<E>>) {
        self.mask.insert(&mut self.children, digit, Child::Loaded(child));
    }
}

impl<E: Entry> HashNode<E> {
    /// A node from entries in strictly ascending order.
    pub(crate) fn from_sorted(mut entries: Vec<E>) -> Self {
        let count = entries.len() as u64;
        if entries.len() <= HASH_LEAF_MAX {
            return HashNode { count, memo: Memo::default(), body: Body::Leaf(entries) };
        }
        let first = &entries[0];
        let last = &entries[entries.len() - 1];
        let shift = first.hash().common_nibbles(last.hash());
        let mut branches = Branches::at(shift);
        // Starts at the end, so that entries are moved into the children and not copied.
        while let Some(last) = entries.last() {
            let digit = last.hash().nibble(shift);
            let start = entries.partition_point(|entry| entry.hash().nibble(shift) < digit);
            let child = Self::from_sorted(entries.split_off(start));
            branches.insert(digit, Arc::new(child));
            if entries.capacity() > PENDING_ITEMS_MAX {
                // The entries of a large map would otherwise be in memory twice.
                entries.shrink_to_fit();
            }
        }
        Self::tree(count, branches)
    }

    /// A node from entries in any order; the last of several entries with equal keys wins.
    pub(crate) fn from_entries(mut entries: Vec<E>) -> Self {
        entries.sort_by(|a, b| a.hash().cmp(b.hash()));
        remove_all_but_last(&mut entries);
        Self::from_sorted(entries)
    }

    pub(crate) fn tree(count: u64, branches: Branches<E>) -> Self {
        HashNode { count, memo: Memo::default(), body: Body::Tree(branches) }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn as_leaf(&self) -> Option<&[E]> {
        match &self.body {
            Body::Leaf(entries) => Some(entries),
            Body::Tree(_) => None,
        }
    }

    /// Whether this node can be the child for `digit` of a tree that branches at `shift`. Keys that
    /// are not in memory are checked when they are loaded.
    pub(crate) fn fits(&self, shift: u8, digit: u8, sample: Option<&ValueId>) -> bool {
        let at = usize::from(shift);
        let belongs = |hash: &ValueId| {
            hash.nibble(at) == digit && sample.is_none_or(|s| s.common_nibbles(hash) >= at)
        };
        match &self.body {
            Body::Leaf(entries) => {
                !entries.is_empty() && entries.iter().all(|entry| belongs(entry.hash()))
            }
            Body::Tree(branches) => {
                branches.shift > shift && self.sample_in_memory().is_none_or(belongs)
            }
        }
    }

    /// Any key below this node that is in memory.
    pub(crate) fn sample_in_memory(&self) -> Option<&ValueId> {
        match &self.body {
            Body::Leaf(entries) => entries.first().map(Entry::hash),
            Body::Tree(branches) => branches
                .children
                .iter()
                .filter_map(Child::loaded)
                .find_map(|c| c.sample_in_memory()),
        }
    }

    /// Any key below this node. All keys of a tree share its first `shift` digits.
    fn sample(&self, cells: &dyn CellSource) -> Result<Option<ValueId>, LoadError> {
        match &self.body {
            Body::Leaf(entries) => Ok(entries.first().map(|entry| *entry.hash())),
            Body::Tree(branches) => match self.sample_in_memory() {
                Some(sample) => Ok(Some(*sample)),
                None => self.load_slot(branches, 0, cells)?.sample(cells),
            },
        }
    }

    fn load_slot(
        &self,
        branches: &Branches<E>,
        slot: usize,
        cells: &dyn CellSource,
    ) -> Result<Arc<Self>, LoadError> {
        let digit = branches.mask.digit(slot);
        branches.children[slot].load(cells, EXPECTED, |node| {
            node.count < self.count && node.fits(branches.shift, digit, None)
        })
    }

    pub(crate) fn find(
        self: &Arc<Self>,
        hash: &ValueId,
        cells: &dyn CellSource,
    ) -> Result<Option<E>, LoadError> {
        let mut node = Arc::clone(self);
        loop {
            let below = match &node.body {
                Body::Leaf(entries) => {
                    let found = entries.binary_search_by(|entry| entry.hash().cmp(hash));
                    return Ok(found.ok().map(|at| entries[at].clone()));
                }
                Body::Tree(branches) => {
                    match branches.mask.slot(hash.nibble(usize::from(branches.shift))) {
                        Ok(slot) => node.load_slot(branches, slot, cells)?,
                        Err(_) => return Ok(None),
                    }
                }
            };
            node = below;
        }
    }

    pub(crate) fn find_in_memory(&self, hash: &ValueId) -> Option<&E> {
        match &self.body {
            Body::Leaf(entries) => {
                let found = entries.binary_search_by(|entry| entry.hash().cmp(hash));
                found.ok().map(|at| &entries[at])
            }
            Body::Tree(branches) => {
                let slot = branches.mask.slot(hash.nibble(usize::from(branches.shift))).ok()?;
                branches.children[slot].loaded()?.find_in_memory(hash)
            }
        }
    }

    pub(crate) fn visit_in_memory<'a>(&'a self, visit: &mut dyn FnMut(&'a E)) {
        match &self.body {
            Body::Leaf(entries) => entries.iter().for_each(visit),
            Body::Tree(branches) => branches
                .children
                .iter()
                .filter_map(Child::loaded)
                .for_each(|child| child.visit_in_memory(visit)),
        }
    }

    /// This node with one more entry. The first `agreed` digits of its hash are known to equal
    /// those of every key in the node.
    pub(crate) fn insert(
        self: &Arc<Self>,
        entry: E,
        agreed: usize,
        cells: &dyn CellSource,
    ) -> Result<Self, LoadError> {
        let branches = match &self.body {
            Body::Leaf(entries) => return Ok(Self::from_sorted(with_entry(entries, entry))),
            Body::Tree(branches) => branches,
        };
        let shift = usize::from(branches.shift);
        if shift > agreed
            && let Some(sample) = self.sample(cells)?
            && sample.common_nibbles(entry.hash()) < shift
        {
            return Ok(self.split(&sample, entry));
        }
        let digit = entry.hash().nibble(shift);
        let mut branches = branches.clone();
        let (child, grown) = match branches.mask.slot(digit) {
            Ok(slot) => {
                let child = self.load_slot(&branches, slot, cells)?;
                let changed = child.insert(entry, shift + 1, cells)?;
                let grown = changed.count - child.count;
                (changed, grown)
            }
            Err(_) => (Self::from_sorted(vec![entry]), 1),
        };
        branches.insert(digit, Arc::new(child));
        Ok(Self::tree(self.count + grown, branches))
    }

    /// A tree over this node and an entry whose hash differs before the node branches.
    fn split(self: &Arc<Self>, sample: &ValueId, entry: E) -> Self {
        let shift = sample.common_nibbles(entry.hash());
        let mut branches = Branches::at(shift);
        branches.insert(sample.nibble(shift), Arc::clone(self));
        let digit = entry.hash().nibble(shift);
        branches.insert(digit, Arc::new(Self::from_sorted(vec![entry])));
        Self::tree(self.count + 1, branches)
    }

    /// This node without the entry. `None` if it does not have the entry.
    pub(crate) fn remove(
        self: &Arc<Self>,
        hash: &ValueId,
        cells: &dyn CellSource,
    ) -> Result<Option<Arc<Self>>, LoadError> {
        let branches = match &self.body {
            Body::Leaf(entries) => {
                let found = entries.binary_search_by(|entry| entry.hash().cmp(hash));
                let Ok(at) = found else { return Ok(None) };
                let mut entries = entries.clone();
                entries.remove(at);
                return Ok(Some(Arc::new(Self::from_sorted(entries))));
            }
            Body::Tree(branches) => branches,
        };
        let digit = hash.nibble(usize::from(branches.shift));
        let Ok(slot) = branches.mask.slot(digit) else { return Ok(None) };
        let child = self.load_slot(branches, slot, cells)?;
        let Some(child) = child.remove(hash, cells)? else { return Ok(None) };
        let mut branches = branches.clone();
        if child.count == 0 {
            branches.mask.remove(&mut branches.children, digit);
        } else {
            branches.children[slot] = Child::Loaded(child);
        }
        Self::tree(self.count - 1, branches).into_canonical(cells).map(Some)
    }

    /// The canonical form of a tree from which an entry was removed: a leaf if it became small, its
    /// only child if it has just one.
    fn into_canonical(self, cells: &dyn CellSource) -> Result<Arc<Self>, LoadError> {
        let Body::Tree(branches) = &self.body else { return Ok(Arc::new(self)) };
        if self.count <= HASH_LEAF_MAX as u64 {
            let mut entries = Vec::with_capacity(self.count as usize);
            self.collect(cells, &mut entries)?;
            return Ok(Arc::new(Self::from_sorted(entries)));
        }
        if branches.children.len() == 1 {
            let digit = branches.mask.digit(0);
            return branches.children[0].load(cells, EXPECTED, |node| {
                node.count == self.count && node.fits(branches.shift, digit, None)
            });
        }
        Ok(Arc::new(self))
    }

    fn collect(&self, cells: &dyn CellSource, out: &mut Vec<E>) -> Result<(), LoadError> {
        match &self.body {
            Body::Leaf(entries) => out.extend_from_slice(entries),
            Body::Tree(branches) => {
                for slot in 0..branches.children.len() {
                    self.load_slot(branches, slot, cells)?.collect(cells, out)?;
                }
            }
        }
        Ok(())
    }
}

/// `entries` with one more entry, which replaces one with the same hash.
fn with_entry<E: Entry>(entries: &[E], entry: E) -> Vec<E> {
    let mut grown = Vec::with_capacity(entries.len() + 1);
    grown.extend_from_slice(entries);
    match grown.binary_search_by(|other| other.hash().cmp(entry.hash())) {
        Ok(at) => grown[at] = entry,
        Err(at) => grown.insert(at, entry),
    }
    grown
}

/// Removes all but the last of several entries with equal hashes.
fn remove_all_but_last<E: Entry>(entries: &mut Vec<E>) {
    let has_repeats = entries.windows(2).any(|pair| pair[0].hash() == pair[1].hash());
    if has_repeats {
        entries.reverse();
        entries.dedup_by(|a, b| a.hash() == b.hash());
        entries.reverse();
    }
}

impl<E: Entry> Node for HashNode<E> {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(E::TAG);
        write_count(self.count, out);
        match &self.body {
            Body::Leaf(entries) => entries.iter().for_each(|entry| entry.write(out)),
            Body::Tree(branches) => {
                out.push(branches.shift);
                out.extend_from_slice(&branches.mask.to_be_bytes());
                branches.children.iter().for_each(|child| write_child(child, out));
            }
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        match &self.body {
            Body::Leaf(entries) => entries.iter().for_each(|entry| entry.visit(visit)),
            Body::Tree(branches) => {
                branches.children.iter().for_each(|child| visit(CellRef::of_child(child)));
            }
        }
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        let branches = match &self.body {
            Body::Leaf(entries) => {
                let entries: Result<_, _> = entries.iter().map(|e| e.load_all(loader)).collect();
                return Ok(Arc::new(Self::from_sorted(entries?)));
            }
            Body::Tree(branches) => branches,
        };
        let mut sample = self.sample_in_memory().copied();
        let mut sum = 0u64;
        let mut loaded = branches.clone();
        for (child, digit) in loaded.children.iter_mut().zip(branches.mask.digits()) {
            let node = loader.child(child, EXPECTED, |node: &Self| {
                node.fits(branches.shift, digit, sample.as_ref())
            })?;
            sample = sample.or_else(|| node.sample_in_memory().copied());
            sum = sum.saturating_add(node.count);
            *child = Child::Loaded(node);
        }
        let node = Arc::new(Self::tree(self.count, loaded));
        if sum != self.count {
            let id = node_id(&*node);
            return Err(LoadError::Misplaced {
                id,
                expected: "a count that is the sum of its parts",
            });
        }
        Ok(node)
    }

    fn of_value(value: &Value) -> Option<&Arc<Self>> {
        E::of_value(value)
    }
}

/// An iterator over the entries of a tree in ascending order, which loads one node at a time. It
/// ends after the first error.
pub(crate) struct Entries<'a, E> {
    pub(crate) cells: &'a dyn CellSource,
    /// Nodes on the path to the current leaf, each with the next slot to visit.
    path: Vec<(Arc<HashNode<E>>, usize)>,
    /// Entries to leave out. The nodes of a level say how many they have, so that at most the nodes
    /// next to the path to the first entry are loaded.
    skip: u64,
}

impl<'a, E: Entry> Entries<'a, E> {
    pub(crate) fn new(node: &Arc<HashNode<E>>, cells: &'a dyn CellSource) -> Self {
        Entries::from(node, 0, cells)
    }

    /// The entries from `start` on.
    pub(crate) fn from(node: &Arc<HashNode<E>>, start: u64, cells: &'a dyn CellSource) -> Self {
        let is_beyond = start >= node.count;
        let path = if is_beyond { Vec::new() } else { vec![(Arc::clone(node), 0)] };
        Entries { cells, path, skip: start }
    }
}

impl<E: Entry> Iterator for Entries<'_, E> {
    type Item = Result<E, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, slot) = self.path.last_mut()?;
            let next = *slot;
            *slot += 1;
            let below = match &node.body {
                Body::Leaf(entries) => match entries.get(next) {
                    Some(_) if self.skip > 0 => {
                        self.skip -= 1;
                        continue;
                    }
                    Some(entry) => return Some(Ok(entry.clone())),
                    None => None,
                },
                Body::Tree(branches) if next < branches.children.len() => {
                    Some(node.load_slot(branches, next, self.cells))
                }
                Body::Tree(_) => None,
            };
            match below {
                None => {
                    self.path.pop();
                }
                Some(Ok(node)) if node.count <= self.skip => self.skip -= node.count,
                Some(Ok(node)) => self.path.push((node, 0)),
                Some(Err(error)) => {
                    self.path.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
