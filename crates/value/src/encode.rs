//! The canonical encoding.
//!
//! A cell is written straight into the buffer of its parent. Once it is complete its length
//! decides: short enough and it stays, else the bytes are hashed, cut off again and replaced by a
//! reference. So one buffer serves a whole tree and nothing is copied twice.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::cell::{Child, Memo, Node, branch_slot};
use crate::id::ValueId;
use crate::limits::EMBEDDED_BYTES_MAX;
use crate::value::Value;

/// Stands before the ID of a branch in a child slot; never the tag of a cell.
pub(crate) const REF_TAG: u8 = 0x20;

thread_local! {
    /// The buffer of the outermost encoding on this thread.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A scratch buffer that outgrew this is given back to the allocator.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// Runs `work` with an empty buffer that is reused from call to call.
pub(crate) fn with_scratch<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = SCRATCH.take();
    buffer.clear();
    let result = work(&mut buffer);
    if buffer.capacity() <= SCRATCH_BYTES_MAX {
        SCRATCH.set(buffer);
    }
    result
}

/// Appends a count: base 128, most significant group first, shortest.
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

/// Appends what stands for a node in its parent.
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
    node.memo().keep_slot(&out[start..]);
}

/// Appends what stands for a child in its parent.
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
        return keep_embedded_id(memo, encoding);
    }
    with_scratch(|buffer| {
        node.write(buffer);
        count_encoding();
        if buffer.len() > EMBEDDED_BYTES_MAX {
            let id = ValueId::of_encoding(buffer);
            memo.keep_slot(&branch_slot(&id));
            return id;
        }
        memo.keep_slot(buffer);
        keep_embedded_id(memo, buffer)
    })
}

fn keep_embedded_id(memo: &Memo, encoding: &[u8]) -> ValueId {
    let id = ValueId::of_encoding(encoding);
    memo.keep_id(id);
    id
}

/// The canonical encoding of the root cell; larger children appear in it as references.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.write(&mut out);
    out
}

/// Like [`encode`], appending to a buffer.
pub fn encode_into(value: &Value, out: &mut Vec<u8>) {
    value.write(out);
}

/// What stands for the value inside a parent: its encoding when that is short, else a reference.
/// [`decode_slot`](crate::decode_slot) reads it back, a reference as a branch not in memory.
pub fn encode_slot(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.write_slot(&mut out);
    out
}

/// Whether the value is written inside its parent rather than referred to.
pub fn is_embedded(value: &Value) -> bool {
    if let Some(known) = value.is_short() {
        return known;
    }
    with_scratch(|buffer| {
        value.write_slot(buffer);
        buffer.first() != Some(&REF_TAG)
    })
}

/// The branches that the root cell of `value` refers to, in order, also those not in memory. One
/// that is referred to twice is there twice.
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

/// One cell as it is stored: its ID and its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// SHA3-256 of `bytes`.
    pub id: ValueId,
    /// The canonical encoding.
    pub bytes: Vec<u8>,
}

/// Every distinct branch cell of `value` that is in memory, children before parents, without the
/// root cell. `is_held` is asked once per cell; where it says yes, neither the cell nor anything
/// below it is returned. This is what an update must store.
pub fn new_cells(value: &Value, is_held: impl FnMut(&ValueId) -> bool) -> Vec<Encoded> {
    survey(value, is_held).cells
}

/// The cells below a value's root: those in memory, and those it only refers to.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Every distinct branch cell in memory, children before parents.
    pub cells: Vec<Encoded>,
    /// Every distinct branch that is referred to but not in memory.
    pub unloaded: Vec<ValueId>,
}

/// Like [`new_cells`], and also tells what the value relies on without holding it.
pub fn survey(value: &Value, mut is_held: impl FnMut(&ValueId) -> bool) -> Survey {
    let found = Survey::default();
    if value.is_plainly_one_cell() {
        return found;
    }
    let mut walk = Walk { seen: HashSet::new(), found, is_held: &mut is_held };
    value.visit_children(&mut |child| walk.visit(child));
    walk.found
}

struct Walk<'a> {
    seen: HashSet<ValueId>,
    found: Survey,
    is_held: &'a mut dyn FnMut(&ValueId) -> bool,
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
        if !self.seen.insert(id) || (self.is_held)(&id) {
            return;
        }
        child.visit_children(&mut |grandchild| self.visit(grandchild));
        let mut bytes = Vec::new();
        child.write(&mut bytes);
        self.found.cells.push(Encoded { id, bytes });
    }
}

/// A cell met on a walk: a value, or an inner node of a large one.
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

/// Cells encoded on this thread so far.
#[cfg(feature = "count-encodings")]
pub fn encoded_cells() -> u64 {
    ENCODED.get()
}

/// Notes that one cell was encoded because nothing had kept its form.
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
    fn a_survey_finds_branches_wherever_they_hang() {
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
