//! The canonical encoding.
//!
//! A cell is written directly into the buffer of its parent. Once it is complete, its length
//! decides: a short encoding stays; a longer one is hashed, removed again and replaced by a
//! reference. So one buffer serves an entire tree, and nothing is copied twice.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::cell::{Child, Memo, Node, branch_slot};
use crate::id::ValueId;
use crate::limits::{EMBEDDED_BYTES_MAX, FEW_IDS_MAX, SCRATCH_BYTES_MAX};
use crate::value::Value;

/// The byte before the ID of a branch in a child slot. No cell has this tag.
pub(crate) const REF_TAG: u8 = 0x20;

thread_local! {
    /// The buffer of the outermost encoding on this thread, reused between calls.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with an empty buffer that is reused between calls.
pub(crate) fn with_scratch<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = SCRATCH.take();
    buffer.clear();
    let result = work(&mut buffer);
    if buffer.capacity() <= SCRATCH_BYTES_MAX {
        SCRATCH.set(buffer);
    }
    result
}

/// Appends a count: base 128, most significant group first, in the shortest form.
pub(crate) fn write_count(count: u64, out: &mut Vec<u8>) {
    if count < 0x80 {
        out.push(count as u8);
        return;
    }
    let groups = (64 - count.leading_zeros()).div_ceil(7);
    for group in (1..groups).rev() {
        out.push((count >> (7 * group)) as u8 | 0x80);
    }
    out.push(count as u8 & 0x7f);
}

/// Appends the slot of a node, and keeps it in the memo of the node.
pub(crate) fn write_slot<N: Node + ?Sized>(node: &N, out: &mut Vec<u8>) {
    if let Some(slot) = node.memo().slot() {
        out.extend_from_slice(slot);
        return;
    }
    let start = out.len();
    node.write(out);
    count_encoding();
    if out.len() - start > EMBEDDED_BYTES_MAX {
        let id = ValueId::of_encoding(&out[start..]);
        out.truncate(start);
        out.extend_from_slice(&branch_slot(&id));
    }
    node.memo().set_slot(&out[start..]);
}

/// Appends the slot of a child.
pub(crate) fn write_child<N: Node>(child: &Child<N>, out: &mut Vec<u8>) {
    match child {
        Child::Loaded(node) => write_slot(&**node, out),
        Child::Unloaded(id) => out.extend_from_slice(&branch_slot(id)),
    }
}

/// The ID of a node, computed at most once.
pub(crate) fn node_id<N: Node + ?Sized>(node: &N) -> ValueId {
    let memo = node.memo();
    if let Some(id) = memo.id() {
        return id;
    }
    if let Some(encoding) = memo.slot() {
        return compute_embedded_id(memo, encoding);
    }
    with_scratch(|buffer| {
        node.write(buffer);
        count_encoding();
        if buffer.len() > EMBEDDED_BYTES_MAX {
            let id = ValueId::of_encoding(buffer);
            memo.set_slot(&branch_slot(&id));
            return id;
        }
        memo.set_slot(buffer);
        compute_embedded_id(memo, buffer)
    })
}

/// Computes the ID of an embedded node from its encoding and keeps it in the memo.
fn compute_embedded_id(memo: &Memo, encoding: &[u8]) -> ValueId {
    let id = ValueId::of_encoding(encoding);
    memo.set_id(id);
    id
}

/// Returns the canonical encoding of the root cell. Larger children appear in it as references.
pub fn encode(value: &Value) -> Vec<u8> {
    // A copy of the final length is cheaper than a buffer that grows.
    with_scratch(|buffer| {
        value.write(buffer);
        buffer.as_slice().to_vec()
    })
}

/// Like [`encode`], but appends to a buffer.
pub fn encode_into(value: &Value, out: &mut Vec<u8>) {
    value.write(out);
}

/// Returns the slot of the value inside a parent: its encoding if that is short, else a reference.
/// [`decode_slot`](crate::decode_slot) is the inverse; a reference becomes an unloaded branch.
pub fn encode_slot(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.write_slot(&mut out);
    out
}

/// Whether the value is embedded in its parent rather than referred to.
pub fn is_embedded(value: &Value) -> bool {
    if let Some(is_embedded) = value.known_embedded() {
        return is_embedded;
    }
    with_scratch(|buffer| {
        value.write_slot(buffer);
        buffer.first() != Some(&REF_TAG)
    })
}

/// Whether two values have the same encoding. Short values are compared without being hashed.
pub(crate) fn has_same_slot(one: &Value, other: &Value) -> bool {
    with_scratch(|buffer| {
        one.write_slot(buffer);
        let end = buffer.len();
        other.write_slot(buffer);
        buffer[..end] == buffer[end..]
    })
}

/// Returns the branches that the root cell of `value` refers to, in order, including those not in
/// memory. A branch that is referred to twice is returned twice.
pub fn branches(value: &Value) -> Vec<ValueId> {
    let mut found = Vec::new();
    value.visit_children(&mut |child| collect_branches(child, &mut found));
    found
}

fn collect_branches(child: CellRef<'_>, found: &mut Vec<ValueId>) {
    if child.is_branch() {
        found.push(child.id());
    } else {
        child.visit_children(&mut |grandchild| collect_branches(grandchild, found));
    }
}

/// One cell as a store keeps it: its ID and its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// SHA3-256 of `bytes`.
    pub id: ValueId,
    /// The canonical encoding.
    pub bytes: Vec<u8>,
}

/// Returns every distinct branch cell of `value` that is in memory, children before parents,
/// without the root cell. `is_stored` is called once per cell; if it returns true, neither the cell
/// nor anything below it is returned. The result is what an update must store.
pub fn new_cells(value: &Value, is_stored: impl FnMut(&ValueId) -> bool) -> Vec<Encoded> {
    survey(value, is_stored).cells
}

/// The cells below the root of a value: those in memory, and those it only refers to.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Every distinct branch cell in memory, children before parents.
    pub cells: Vec<Encoded>,
    /// Every distinct branch that is referred to but not in memory.
    pub unloaded: Vec<ValueId>,
}

/// Like [`new_cells`], and also returns the branches that are not in memory.
pub fn survey(value: &Value, mut is_stored: impl FnMut(&ValueId) -> bool) -> Survey {
    let found = Survey::default();
    if value.is_evidently_one_cell() {
        return found;
    }
    let mut walk = Walk { seen: SeenIds::default(), found, is_stored: &mut is_stored };
    value.visit_children(&mut |child| walk.visit(child));
    walk.found
}

/// Returns the IDs of the cells that [`survey`] would return if none of them were stored. Nothing is encoded but what
/// has no ID yet.
pub fn cell_ids(value: &Value) -> HashSet<ValueId> {
    let mut ids = HashSet::new();
    if !value.is_evidently_one_cell() {
        value.visit_children(&mut |child| add_cell_ids(child, &mut ids));
    }
    ids
}

fn add_cell_ids(cell: CellRef<'_>, ids: &mut HashSet<ValueId>) {
    if !cell.is_in_memory() || (cell.is_branch() && !ids.insert(cell.id())) {
        return;
    }
    cell.visit_children(&mut |child| add_cell_ids(child, ids));
}

struct Walk<'a> {
    seen: SeenIds,
    found: Survey,
    is_stored: &'a mut dyn FnMut(&ValueId) -> bool,
}

impl Walk<'_> {
    fn visit(&mut self, child: CellRef<'_>) {
        if !child.is_in_memory() {
            let id = child.id();
            if self.seen.insert(id) {
                self.found.unloaded.push(id);
            }
            return;
        }
        if !child.is_branch() {
            child.visit_children(&mut |grandchild| self.visit(grandchild));
            return;
        }
        let id = child.id();
        if !self.seen.insert(id) || (self.is_stored)(&id) {
            return;
        }
        child.visit_children(&mut |grandchild| self.visit(grandchild));
        let bytes = with_scratch(|buffer| {
            child.write(buffer);
            buffer.as_slice().to_vec()
        });
        self.found.cells.push(Encoded { id, bytes });
    }
}

/// IDs that were seen. Most values have few cells, which are compared faster than they are hashed.
#[derive(Default)]
struct SeenIds {
    few: Vec<ValueId>,
    /// All of them, once there are more than [`FEW_IDS_MAX`].
    many: HashSet<ValueId>,
}

impl SeenIds {
    /// Adds an ID. Returns false if it was there already.
    fn insert(&mut self, id: ValueId) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&id) {
                return false;
            }
            if self.few.len() < FEW_IDS_MAX {
                self.few.push(id);
                return true;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.insert(id)
    }
}

/// A cell reached during a traversal: a value, or an inner node of a tree.
#[derive(Clone, Copy)]
pub(crate) enum CellRef<'a> {
    Value(&'a Value),
    Node(&'a dyn Node),
    Unloaded(&'a ValueId),
}

impl<'a> CellRef<'a> {
    pub(crate) fn of_child<N: Node + 'a>(child: &'a Child<N>) -> Self {
        match child {
            Child::Loaded(node) => CellRef::Node(&**node),
            Child::Unloaded(id) => CellRef::Unloaded(id),
        }
    }

    fn is_in_memory(self) -> bool {
        !matches!(self, CellRef::Unloaded(_) | CellRef::Value(Value::Unloaded(_)))
    }

    fn is_branch(self) -> bool {
        match self {
            CellRef::Value(value) => !is_embedded(value),
            CellRef::Node(node) => with_scratch(|buffer| {
                write_slot(node, buffer);
                buffer.first() == Some(&REF_TAG)
            }),
            CellRef::Unloaded(_) => true,
        }
    }

    fn id(self) -> ValueId {
        match self {
            CellRef::Value(value) => value.id(),
            CellRef::Node(node) => node_id(node),
            CellRef::Unloaded(id) => *id,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            CellRef::Value(value) => value.write(out),
            CellRef::Node(node) => node.write(out),
            CellRef::Unloaded(_) => {}
        }
    }

    fn visit_children(self, visit: &mut dyn FnMut(CellRef<'_>)) {
        match self {
            CellRef::Value(value) => value.visit_children(visit),
            CellRef::Node(node) => node.visit_children(visit),
            CellRef::Unloaded(_) => {}
        }
    }
}

#[cfg(feature = "count-encodings")]
thread_local! {
    static ENCODED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Number of cells encoded on this thread so far.
#[cfg(feature = "count-encodings")]
pub fn encoded_cells() -> u64 {
    ENCODED.get()
}

/// Counts one cell that was encoded because its form was not memoized.
#[inline]
pub(crate) fn count_encoding() {
    #[cfg(feature = "count-encodings")]
    ENCODED.set(ENCODED.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Map, Vector};

    #[test]
    fn an_id_is_new_once_however_many_were_seen() {
        let id = |number: usize| ValueId::of_encoding(&number.to_be_bytes());
        let mut seen = SeenIds::default();
        for number in 0..3 * FEW_IDS_MAX {
            assert!(seen.insert(id(number)), "{number}");
            assert!((0..=number).all(|known| !seen.insert(id(known))), "{number}");
        }
    }

    #[test]
    fn counts_are_written_in_the_fewest_groups() {
        let cases: [(u64, &str); 9] = [
            (0, "00"),
            (127, "7f"),
            (128, "8100"),
            (300, "822c"),
            (4096, "a000"),
            (16383, "ff7f"),
            (16384, "818000"),
            (65536, "848000"),
            ((1 << 63) - 1, "ffffffffffffffff7f"),
        ];
        for (count, expected) in cases {
            let mut out = Vec::new();
            write_count(count, &mut out);
            assert_eq!(crate::id::hex(&out), expected, "{count}");
        }
    }

    #[test]
    fn a_survey_finds_branches_at_every_depth() {
        let long = Value::from("x".repeat(200));
        let map = |value: &Value| Value::from(Map::from_iter([("key", value.clone())]));
        let vector = |value: &Value| Value::from(Vector::from_items(vec![value.clone()]));
        for value in [map(&long), vector(&long), map(&map(&long)), vector(&map(&vector(&long)))] {
            let before = new_cells(&value, |_| false);
            value.id();
            let after = new_cells(&value, |_| false);
            assert_eq!(before, after);
            assert_eq!(after.iter().map(|cell| cell.id).collect::<Vec<_>>(), [long.id()]);
        }
        let unloaded = map(&Value::Unloaded(long.id().into()));
        unloaded.id();
        assert_eq!(survey(&map(&unloaded), |_| false).unloaded, [long.id()]);
        assert!(new_cells(&map(&vector(&1.into())), |_| false).is_empty());
    }
}
