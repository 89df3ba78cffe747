//! Vectors, and the two kinds of cells that are vectors under another tag: lists and dense records.
//!
//! A vector of at most sixteen elements is one leaf. A longer one whose length is not a multiple
//! of sixteen is a leaf with the last elements, and all earlier ones as one *prefix* vector. A
//! vector whose length is a multiple of sixteen is a tree of equal children. The shape depends on
//! the length alone, so an append copies the last leaf, and every sixteenth append also one path of
//! the tree.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::cell::{CellSource, Child, LoadError, Loader, Memo, Node};
use crate::encode::{CellRef, node_id, write_child, write_count, write_slot};
use crate::id::ValueId;
use crate::limits::FAN_OUT;
use crate::value::Value;

pub(crate) const VECTOR_TAG: u8 = 0x80;

/// What a tree or leaf requires of the vectors below it, for errors.
const EXPECTED: &str = "a vector of the length its parent needs";

pub(crate) struct VectorNode {
    count: u64,
    memo: Memo,
    body: Body,
}

enum Body {
    /// The last elements, and a prefix with all earlier ones if there are more than sixteen.
    Leaf {
        items: Vec<Value>,
        prefix: Option<Child<VectorNode>>,
    },
    Tree(Vec<Child<VectorNode>>),
}

/// The layout of the cell of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// This many elements, and whether a prefix follows them.
    Leaf { items: u64, has_prefix: bool },
    /// This many children with `child_count` elements each; the last may have fewer.
    Tree { children: u64, child_count: u64 },
}

/// The layout of a vector of `count` elements.
pub(crate) fn shape(count: u64) -> Shape {
    let tail = count % FAN_OUT;
    if count <= FAN_OUT {
        return Shape::Leaf { items: count, has_prefix: false };
    }
    if tail != 0 {
        return Shape::Leaf { items: tail, has_prefix: true };
    }
    let child_count = child_count(count);
    Shape::Tree { children: count.div_ceil(child_count), child_count }
}

/// Number of elements per child of a tree over `count` elements.
fn child_count(count: u64) -> u64 {
    let mut size = FAN_OUT;
    while size.saturating_mul(FAN_OUT) < count {
        size *= FAN_OUT;
    }
    size
}

impl VectorNode {
    pub(crate) fn leaf(items: Vec<Value>) -> Self {
        let count = items.len() as u64;
        VectorNode { count, memo: Memo::default(), body: Body::Leaf { items, prefix: None } }
    }

    pub(crate) fn with_prefix(count: u64, items: Vec<Value>, prefix: Child<VectorNode>) -> Self {
        let body = Body::Leaf { items, prefix: Some(prefix) };
        VectorNode { count, memo: Memo::default(), body }
    }

    pub(crate) fn tree(count: u64, children: Vec<Child<VectorNode>>) -> Self {
        VectorNode { count, memo: Memo::default(), body: Body::Tree(children) }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// A vector of the next `count` elements of `items`, which must have that many.
    fn build(count: u64, items: &mut dyn Iterator<Item = Value>) -> Self {
        match shape(count) {
            Shape::Leaf { has_prefix: false, .. } => {
                Self::leaf(items.take(count as usize).collect())
            }
            Shape::Leaf { items: tail, has_prefix: true } => {
                let prefix = Child::Loaded(Arc::new(Self::build(count - tail, items)));
                Self::with_prefix(count, items.take(tail as usize).collect(), prefix)
            }
            Shape::Tree { child_count, .. } => {
                let children = (0..count)
                    .step_by(child_count as usize)
                    .map(|start| Self::build(child_count.min(count - start), items))
                    .map(|child| Child::Loaded(Arc::new(child)))
                    .collect();
                Self::tree(count, children)
            }
        }
    }

    fn items(&self) -> &[Value] {
        match &self.body {
            Body::Leaf { items, .. } => items,
            Body::Tree(_) => &[],
        }
    }

    fn load_child(
        child: &Child<VectorNode>,
        count: u64,
        cells: &dyn CellSource,
    ) -> Result<Arc<VectorNode>, LoadError> {
        child.load(cells, EXPECTED, |node| node.count == count)
    }

    /// The child of a tree that contains element `at`: its slot, the index of its first element,
    /// and the node.
    fn child_at(
        &self,
        children: &[Child<VectorNode>],
        at: u64,
        cells: &dyn CellSource,
    ) -> Result<(usize, u64, Arc<VectorNode>), LoadError> {
        let size = child_count(self.count);
        let slot = (at / size) as usize;
        let start = slot as u64 * size;
        let child = Self::load_child(&children[slot], size.min(self.count - start), cells)?;
        Ok((slot, start, child))
    }

    /// The leaf that contains element `at`, and the index of its first element.
    fn leaf_at(
        self: &Arc<Self>,
        at: u64,
        cells: &dyn CellSource,
    ) -> Result<(Arc<Self>, u64), LoadError> {
        let mut node = Arc::clone(self);
        let mut start = 0;
        loop {
            let below = match &node.body {
                Body::Leaf { items, prefix } => {
                    let first = node.count - items.len() as u64;
                    match prefix {
                        Some(prefix) if at - start < first => {
                            Self::load_child(prefix, first, cells)?
                        }
                        _ => return Ok((Arc::clone(&node), start + first)),
                    }
                }
                Body::Tree(children) => {
                    let (_, offset, child) = node.child_at(children, at - start, cells)?;
                    start += offset;
                    child
                }
            };
            node = below;
        }
    }

    /// The node that contains exactly `start..start + count`. `None` if there is no such node.
    fn subtree(
        self: &Arc<Self>,
        mut start: u64,
        count: u64,
        cells: &dyn CellSource,
    ) -> Result<Option<Arc<Self>>, LoadError> {
        let mut node = Arc::clone(self);
        while node.count > count {
            let below = match &node.body {
                Body::Leaf { items, prefix: Some(prefix) } => {
                    Self::load_child(prefix, node.count - items.len() as u64, cells)?
                }
                Body::Leaf { prefix: None, .. } => return Ok(None),
                Body::Tree(children) => {
                    let (_, offset, child) = node.child_at(children, start, cells)?;
                    start -= offset;
                    child
                }
            };
            if start + count > below.count {
                return Ok(None);
            }
            node = below;
        }
        Ok((start == 0 && node.count == count).then_some(node))
    }

    fn push(self: &Arc<Self>, value: Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        let Body::Leaf { items, prefix } = &self.body else {
            return Ok(Self::with_prefix(self.count + 1, vec![value], Child::Loaded(self.clone())));
        };
        if items.len() as u64 == FAN_OUT {
            return Ok(Self::with_prefix(self.count + 1, vec![value], Child::Loaded(self.clone())));
        }
        let mut grown = Vec::with_capacity(items.len() + 1);
        grown.extend_from_slice(items);
        grown.push(value);
        match prefix {
            None => Ok(Self::leaf(grown)),
            Some(prefix) if grown.len() as u64 == FAN_OUT => {
                let first = self.count + 1 - FAN_OUT;
                Self::load_child(prefix, first, cells)?.push_chunk(Self::leaf(grown), cells)
            }
            Some(prefix) => Ok(Self::with_prefix(self.count + 1, grown, prefix.clone())),
        }
    }

    /// This vector, whose length is a multiple of sixteen, with sixteen more elements.
    fn push_chunk(
        self: &Arc<Self>,
        chunk: VectorNode,
        cells: &dyn CellSource,
    ) -> Result<Self, LoadError> {
        let count = self.count + FAN_OUT;
        let chunk_child = |chunk| Child::Loaded(Arc::new(chunk));
        let children = match &self.body {
            Body::Tree(children) if child_count(count) == child_count(self.count) => children,
            _ => {
                let children = vec![Child::Loaded(Arc::clone(self)), chunk_child(chunk)];
                return Ok(Self::tree(count, children));
            }
        };
        let (slot, _, last) = self.child_at(children, self.count - 1, cells)?;
        let mut children = children.clone();
        if last.count == child_count(count) {
            children.push(chunk_child(chunk));
        } else {
            children[slot] = Child::Loaded(Arc::new(last.push_chunk(chunk, cells)?));
        }
        Ok(Self::tree(count, children))
    }

    fn set(&self, at: u64, value: Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        match &self.body {
            Body::Leaf { items, prefix } => {
                let first = self.count - items.len() as u64;
                let mut items = items.clone();
                let mut prefix = prefix.clone();
                match &mut prefix {
                    Some(prefix) if at < first => {
                        let below = Self::load_child(prefix, first, cells)?;
                        *prefix = Child::Loaded(Arc::new(below.set(at, value, cells)?));
                    }
                    _ => items[(at - first) as usize] = value,
                }
                let body = Body::Leaf { items, prefix };
                Ok(VectorNode { count: self.count, memo: Memo::default(), body })
            }
            Body::Tree(children) => {
                let (slot, start, child) = self.child_at(children, at, cells)?;
                let mut children = children.clone();
                children[slot] = Child::Loaded(Arc::new(child.set(at - start, value, cells)?));
                Ok(Self::tree(self.count, children))
            }
        }
    }

    /// Appends the encoding without the tag.
    fn write_after_tag(&self, out: &mut Vec<u8>) {
        write_count(self.count, out);
        match &self.body {
            Body::Leaf { items, prefix } => {
                items.iter().for_each(|item| item.write_slot(out));
                if let Some(prefix) = prefix {
                    write_child(prefix, out);
                }
            }
            Body::Tree(children) => children.iter().for_each(|child| write_child(child, out)),
        }
    }
}

impl Node for VectorNode {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(VECTOR_TAG);
        self.write_after_tag(out);
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        match &self.body {
            Body::Leaf { items, prefix } => {
                items.iter().for_each(|item| visit(CellRef::Value(item)));
                prefix.iter().for_each(|prefix| visit(CellRef::of_child(prefix)));
            }
            Body::Tree(children) => {
                children.iter().for_each(|child| visit(CellRef::of_child(child)));
            }
        }
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        let body = match &self.body {
            Body::Leaf { items, prefix } => {
                let first = self.count - items.len() as u64;
                let items =
                    items.iter().map(|item| loader.value(item)).collect::<Result<_, _>>()?;
                let prefix = match prefix {
                    Some(prefix) => {
                        let node = loader.child(prefix, EXPECTED, |node| node.count == first)?;
                        Some(Child::Loaded(node))
                    }
                    None => None,
                };
                Body::Leaf { items, prefix }
            }
            Body::Tree(children) => {
                let size = child_count(self.count);
                let starts = (0..self.count).step_by(size as usize);
                let mut loaded = Vec::with_capacity(children.len());
                for (child, start) in children.iter().zip(starts) {
                    let count = size.min(self.count - start);
                    let node = loader.child(child, EXPECTED, |node| node.count == count)?;
                    loaded.push(Child::Loaded(node));
                }
                Body::Tree(loaded)
            }
        };
        Ok(Arc::new(VectorNode { count: self.count, memo: Memo::default(), body }))
    }

    fn of_value(value: &Value) -> Option<&Arc<Self>> {
        match value {
            Value::Vector(Vector(node)) => Some(node),
            _ => None,
        }
    }
}

/// An ordered sequence.
#[derive(Clone)]
pub struct Vector(pub(crate) Arc<VectorNode>);

impl Vector {
    /// The empty vector.
    pub fn new() -> Self {
        Vector::from_items(Vec::new())
    }

    /// A vector of these elements.
    pub fn from_items(items: Vec<Value>) -> Self {
        let node = match items.len() as u64 {
            0..=FAN_OUT => VectorNode::leaf(items),
            count => VectorNode::build(count, &mut items.into_iter()),
        };
        Vector(Arc::new(node))
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.count
    }

    /// Whether the vector has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Element `at`. `None` past the end.
    pub fn get(&self, at: u64, cells: &dyn CellSource) -> Result<Option<Value>, LoadError> {
        if at >= self.0.count {
            return Ok(None);
        }
        let (leaf, first) = self.0.leaf_at(at, cells)?;
        leaf.items().get((at - first) as usize).map(|item| item.loaded(cells)).transpose()
    }

    /// This vector with one more element.
    pub fn push(&self, value: Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        self.0.push(value, cells).map(|node| Vector(Arc::new(node)))
    }

    /// This vector with element `at` replaced. `None` past the end.
    pub fn set(
        &self,
        at: u64,
        value: Value,
        cells: &dyn CellSource,
    ) -> Result<Option<Self>, LoadError> {
        if at >= self.0.count {
            return Ok(None);
        }
        self.0.set(at, value, cells).map(|node| Some(Vector(Arc::new(node))))
    }

    /// The elements of `range`, limited to the length of this vector.
    ///
    /// Nodes that are in the right position for the encoding are shared: a slice from the front
    /// costs O(log n), and one that starts at a multiple of sixteen shares complete leaves. Any
    /// other start shifts every element to another leaf, so the elements are copied; to read a
    /// page, use [`Vector::iter_from`].
    pub fn slice(&self, range: Range<u64>, cells: &dyn CellSource) -> Result<Self, LoadError> {
        let end = range.end.min(self.0.count);
        let start = range.start.min(end);
        self.slice_node(start, end - start, cells).map(Vector)
    }

    fn slice_node(
        &self,
        start: u64,
        count: u64,
        cells: &dyn CellSource,
    ) -> Result<Arc<VectorNode>, LoadError> {
        if let Some(node) = self.0.subtree(start, count, cells)? {
            return Ok(node);
        }
        let items = |from: u64, count: u64| {
            self.iter_from(from, cells).take(count as usize).collect::<Result<Vec<_>, _>>()
        };
        let node = match shape(count) {
            Shape::Leaf { items: count, has_prefix: false } => {
                VectorNode::leaf(items(start, count)?)
            }
            Shape::Leaf { items: tail, has_prefix: true } => {
                let prefix = self.slice_node(start, count - tail, cells)?;
                let items = items(start + count - tail, tail)?;
                VectorNode::with_prefix(count, items, Child::Loaded(prefix))
            }
            Shape::Tree { child_count, .. } => {
                let mut children = Vec::new();
                for offset in (0..count).step_by(child_count as usize) {
                    let count = child_count.min(count - offset);
                    children.push(Child::Loaded(self.slice_node(start + offset, count, cells)?));
                }
                VectorNode::tree(count, children)
            }
        };
        Ok(Arc::new(node))
    }

    /// All elements in order.
    pub fn iter<'a>(&self, cells: &'a dyn CellSource) -> VectorIter<'a> {
        self.iter_from(0, cells)
    }

    /// The elements from `start` on. Finding the first costs O(log n).
    pub fn iter_from<'a>(&self, start: u64, cells: &'a dyn CellSource) -> VectorIter<'a> {
        let range = start.min(self.0.count)..self.0.count;
        VectorIter { vector: self.clone(), cells, range, leaf: None, failed: false }
    }

    /// The elements of a vector of at most sixteen, without loading any. `None` if there are more.
    pub fn as_leaf(&self) -> Option<&[Value]> {
        match &self.0.body {
            Body::Leaf { items, prefix: None } => Some(items),
            _ => None,
        }
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(&*self.0)
    }

    pub(crate) fn is_evidently_one_cell(&self) -> bool {
        match &self.0.body {
            Body::Leaf { items, prefix: None } => items.iter().all(Value::is_evidently_embedded),
            _ => false,
        }
    }
}

impl Default for Vector {
    fn default() -> Self {
        Vector::new()
    }
}

impl FromIterator<Value> for Vector {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Vector::from_items(items.into_iter().collect())
    }
}

/// Builds a long vector from parts, so that not all of its elements are in memory twice.
#[derive(Default)]
pub(crate) struct VectorBuilder {
    /// The leaves of sixteen elements so far.
    leaves: Vec<Child<VectorNode>>,
}

impl VectorBuilder {
    /// Appends elements, whose number must be a multiple of sixteen.
    pub(crate) fn extend(&mut self, mut items: impl ExactSizeIterator<Item = Value>) {
        while items.len() > 0 {
            let leaf = VectorNode::leaf(items.by_ref().take(FAN_OUT as usize).collect());
            self.leaves.push(Child::Loaded(Arc::new(leaf)));
        }
    }

    /// The vector of the elements so far and of these.
    pub(crate) fn finish(mut self, mut items: impl ExactSizeIterator<Item = Value>) -> Vector {
        if self.leaves.is_empty() {
            return items.collect();
        }
        let tail_len = items.len() % FAN_OUT as usize;
        let whole = items.len() - tail_len;
        let mut tail: Vec<Value> = Vec::with_capacity(tail_len);
        self.extend(items.by_ref().take(whole));
        tail.extend(items);
        let prefix_count = self.leaves.len() as u64 * FAN_OUT;
        let count = prefix_count + tail_len as u64;
        let prefix = tree_of_leaves(self.leaves);
        if tail.is_empty() {
            return Vector(prefix);
        }
        Vector(Arc::new(VectorNode::with_prefix(count, tail, Child::Loaded(prefix))))
    }
}

/// The tree over leaves of sixteen elements, of which there is at least one.
fn tree_of_leaves(leaves: Vec<Child<VectorNode>>) -> Arc<VectorNode> {
    let mut nodes = leaves;
    while nodes.len() > 1 {
        let mut below = nodes.into_iter();
        nodes = Vec::with_capacity(below.len().div_ceil(FAN_OUT as usize));
        while below.len() > 0 {
            let mut children: Vec<_> = below.by_ref().take(FAN_OUT as usize).collect();
            // A node that is alone at the end belongs to the level above.
            let node = if children.len() == 1 { children.pop() } else { None };
            nodes.push(node.unwrap_or_else(|| {
                let count = children.iter().filter_map(Child::loaded).map(|node| node.count).sum();
                Child::Loaded(Arc::new(VectorNode::tree(count, children)))
            }));
        }
    }
    match nodes.pop() {
        Some(Child::Loaded(root)) => root,
        _ => Arc::new(VectorNode::leaf(Vec::new())),
    }
}

/// An iterator over the elements of a [`Vector`], which loads one leaf at a time. It ends after the
/// first error.
pub struct VectorIter<'a> {
    vector: Vector,
    cells: &'a dyn CellSource,
    range: Range<u64>,
    leaf: Option<(Arc<VectorNode>, u64)>,
    failed: bool,
}

impl VectorIter<'_> {
    fn step(&mut self, at: u64) -> Result<Value, LoadError> {
        let in_leaf = self.leaf.as_ref().is_some_and(|(leaf, first)| {
            (*first..*first + leaf.items().len() as u64).contains(&at)
        });
        if !in_leaf {
            self.leaf = Some(self.vector.0.leaf_at(at, self.cells)?);
        }
        let item = self.leaf.as_ref().map(|(leaf, first)| &leaf.items()[(at - first) as usize]);
        item.map_or(Ok(Value::Nil), |item| item.loaded(self.cells))
    }
}

impl Iterator for VectorIter<'_> {
    type Item = Result<Value, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let at = self.range.next()?;
        let item = self.step(at);
        self.failed = item.is_err();
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.range.end - self.range.start).ok())
    }
}

/// A vector under another tag: only the root cell differs, inner cells are vectors.
pub(crate) struct Retagged {
    tag: u8,
    vector: Vector,
    memo: Memo,
}

impl Retagged {
    pub(crate) fn new(tag: u8, vector: Vector) -> Self {
        Retagged { tag, vector, memo: Memo::default() }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }

    pub(crate) fn tag(&self) -> u8 {
        self.tag
    }

    pub(crate) fn vector(&self) -> &Vector {
        &self.vector
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(self)
    }

    pub(crate) fn write_slot(&self, out: &mut Vec<u8>) {
        write_slot(self, out);
    }
}

impl Node for Retagged {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.tag);
        self.vector.0.write_after_tag(out);
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        self.vector.0.visit_children(visit);
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        let vector = Vector(self.vector.0.load_all(loader)?);
        Ok(Arc::new(Retagged::new(self.tag, vector)))
    }

    fn of_value(value: &Value) -> Option<&Arc<Self>> {
        match value {
            Value::List(List(node)) => Some(node),
            _ => None,
        }
    }
}

/// A list: a sequence that grows at the front. Its cell contains the elements in reverse order.
#[derive(Clone)]
pub struct List(pub(crate) Arc<Retagged>);

impl List {
    pub(crate) const TAG: u8 = 0x81;

    /// A list of these elements, first to last.
    pub fn from_items(mut items: Vec<Value>) -> Self {
        items.reverse();
        Self::from_reversed(Vector::from_items(items))
    }

    /// A list from the vector of its elements, last to first.
    pub(crate) fn from_reversed(vector: Vector) -> Self {
        List(Arc::new(Retagged::new(Self::TAG, vector)))
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.vector.len()
    }

    /// Whether the vector has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `at`, counted from the front. `None` past the end.
    pub fn get(&self, at: u64, cells: &dyn CellSource) -> Result<Option<Value>, LoadError> {
        match self.len().checked_sub(at + 1) {
            Some(reversed) => self.0.vector.get(reversed, cells),
            None => Ok(None),
        }
    }

    /// This list with one more element in front.
    pub fn push_front(&self, value: Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        self.0.vector.push(value, cells).map(Self::from_reversed)
    }
}

impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_leaf() {
            Some(items) => f.debug_list().entries(items).finish(),
            None => write!(f, "vector of {}", self.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoCells;

    fn ints(range: Range<i64>) -> Vector {
        range.map(Value::from).collect()
    }

    #[test]
    fn shapes_follow_from_the_length() {
        assert_eq!(shape(16), Shape::Leaf { items: 16, has_prefix: false });
        assert_eq!(shape(17), Shape::Leaf { items: 1, has_prefix: true });
        assert_eq!(shape(32), Shape::Tree { children: 2, child_count: 16 });
        assert_eq!(shape(272), Shape::Tree { children: 2, child_count: 256 });
        assert_eq!(shape(4096), Shape::Tree { children: 16, child_count: 256 });
        let huge = shape((1 << 63) - 16);
        assert!(matches!(huge, Shape::Tree { children: 2..=16, .. }), "{huge:?}");
    }

    #[test]
    fn building_in_parts_equals_building_at_once() {
        let lens: [i32; 14] =
            [0, 1, 15, 16, 17, 255, 256, 272, 4_095, 4_096, 4_112, 65_535, 65_536, 65_552];
        for part in [16, 4_096] {
            for len in lens {
                let mut items = (0..len).map(|n| Value::from(i64::from(n)));
                let mut builder = VectorBuilder::default();
                while items.len() > part {
                    builder.extend(items.by_ref().take(part));
                }
                let expected = ints(0..i64::from(len)).id();
                assert_eq!(builder.finish(items).id(), expected, "{len} by {part}");
            }
        }
    }

    #[test]
    fn growing_one_by_one_equals_building_at_once() {
        let mut grown = Vector::new();
        for n in 0..1_200i64 {
            assert_eq!(grown.id(), ints(0..n).id(), "{n}");
            grown = grown.push(Value::from(n), &NoCells).unwrap();
        }
        for n in [4_095, 4_096, 4_097, 4_112, 65_536, 65_537] {
            let grown = ints(0..n - 1).push(Value::from(n - 1), &NoCells).unwrap();
            assert_eq!(grown.id(), ints(0..n).id(), "{n}");
        }
    }

    #[test]
    fn every_slice_equals_the_vector_of_its_elements() {
        let vector = ints(0..700);
        for start in [0, 1, 15, 16, 17, 32, 255, 256, 272, 699, 700] {
            for end in [0, 1, 16, 17, 33, 256, 257, 272, 512, 513, 700, 900] {
                let slice = vector.slice(start..end, &NoCells).unwrap();
                let expected = ints(start as i64..(end.clamp(start, 700)) as i64);
                assert_eq!(slice.id(), expected.id(), "{start}..{end}");
            }
        }
    }

    #[test]
    fn an_element_can_be_replaced_anywhere() {
        let vector = ints(0..700);
        for at in [0u64, 15, 16, 255, 256, 671, 672, 699] {
            let changed = vector.set(at, Value::from("x"), &NoCells).unwrap().unwrap();
            assert_eq!(changed.get(at, &NoCells).unwrap(), Some(Value::from("x")));
            let back = changed.set(at, Value::from(at as i64), &NoCells).unwrap().unwrap();
            assert_eq!(back.id(), vector.id());
        }
        assert!(vector.set(700, Value::Nil, &NoCells).unwrap().is_none());
        assert!(vector.get(700, &NoCells).unwrap().is_none());
    }

    #[test]
    fn a_list_counts_from_the_front() {
        let list = List::from_items(vec![1.into(), 2.into(), 3.into()]);
        assert_eq!(list.get(0, &NoCells).unwrap(), Some(1.into()));
        let longer = list.push_front(0.into(), &NoCells).unwrap();
        assert_eq!(longer.get(0, &NoCells).unwrap(), Some(0.into()));
        assert_eq!(longer.get(4, &NoCells).unwrap(), None);
    }
}
