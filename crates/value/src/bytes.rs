//! Strings and blobs: byte sequences, flat up to 4,096 bytes and a tree of such chunks above.
//!
//! A string is a blob with another tag. The encoding does not guarantee UTF-8, so a decoded string
//! may contain any bytes; text that came from JSON is always valid.

use std::fmt;
use std::sync::Arc;

use crate::cell::{CellSource, Child, LoadError, Loader, Memo, Node};
use crate::encode::{CellRef, node_id, write_child, write_count, write_slot};
use crate::id::ValueId;
use crate::limits::{CHUNK_BYTES, EMBEDDED_BYTES_MAX, FAN_OUT};
use crate::names::inline_string_id;
use crate::value::Value;

pub(crate) const STRING_TAG: u8 = 0x30;
pub(crate) const BLOB_TAG: u8 = 0x31;

/// Length in bytes of the longest string that is stored inside a [`Value`], without an allocation
/// of its own.
pub(crate) const INLINE_BYTES: usize = 22;

/// A short byte sequence. Unused bytes are zero, so that equality can be derived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct InlineBytes {
    len: u8,
    bytes: [u8; INLINE_BYTES],
}

impl InlineBytes {
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let mut inline = InlineBytes { len: bytes.len() as u8, bytes: [0; INLINE_BYTES] };
        inline.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(inline)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// All bytes as three 64-bit words, for hashing.
    pub(crate) fn words(&self) -> [u64; 3] {
        let word = |at: usize| {
            let mut word = [0; 8];
            let end = (at + 8).min(INLINE_BYTES);
            word[..end - at].copy_from_slice(&self.bytes[at..end]);
            u64::from_le_bytes(word)
        };
        [word(0), word(8), word(16)]
    }
}

/// Length in bytes of the longest sequence that is stored inside its node. The text of an ID with
/// its prefix fits.
const IN_NODE_BYTES: usize = 70;

/// A flat byte sequence, or a tree of chunks.
pub(crate) struct BytesNode {
    tag: u8,
    len: u64,
    memo: Memo,
    body: Body,
}

enum Body {
    /// The first `len` bytes of the array, where `len` is the length of the node.
    InNode([u8; IN_NODE_BYTES]),
    Flat(Box<[u8]>),
    Tree(Vec<Child<BytesNode>>),
}

impl Body {
    fn in_node(bytes: &[u8]) -> Option<Self> {
        let mut array = [0; IN_NODE_BYTES];
        array.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Body::InNode(array))
    }
}

/// Number of bytes per child of a tree over `len` bytes.
fn child_bytes(len: u64) -> u64 {
    let mut size = CHUNK_BYTES as u64;
    while size.saturating_mul(FAN_OUT) < len {
        size *= FAN_OUT;
    }
    size
}

/// The lengths of the children of a tree over `len` bytes.
pub(crate) fn child_lengths(len: u64) -> impl Iterator<Item = u64> {
    let size = child_bytes(len);
    (0..len.div_ceil(size)).map(move |i| size.min(len - i * size))
}

impl BytesNode {
    pub(crate) fn new(tag: u8, bytes: &[u8]) -> Self {
        let len = bytes.len() as u64;
        if bytes.len() <= CHUNK_BYTES {
            let body = Body::in_node(bytes).unwrap_or_else(|| Body::Flat(bytes.into()));
            return BytesNode { tag, len, memo: Memo::default(), body };
        }
        let children = bytes
            .chunks(child_bytes(len) as usize)
            .map(|chunk| Child::Loaded(Arc::new(BytesNode::new(BLOB_TAG, chunk))))
            .collect();
        BytesNode { tag, len, memo: Memo::default(), body: Body::Tree(children) }
    }

    /// A tree from children that have already been checked.
    pub(crate) fn from_children(tag: u8, len: u64, children: Vec<Child<BytesNode>>) -> Self {
        BytesNode { tag, len, memo: Memo::default(), body: Body::Tree(children) }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }

    pub(crate) fn tag(&self) -> u8 {
        self.tag
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn flat(&self) -> Option<&[u8]> {
        match &self.body {
            Body::InNode(bytes) => Some(&bytes[..self.len as usize]),
            Body::Flat(bytes) => Some(bytes),
            Body::Tree(_) => None,
        }
    }

    /// Appends the bytes `from..to`, loading only the chunks that contain them.
    fn read(
        &self,
        from: u64,
        to: u64,
        cells: &dyn CellSource,
        out: &mut Vec<u8>,
    ) -> Result<(), LoadError> {
        if let Some(bytes) = self.flat() {
            out.extend_from_slice(&bytes[from as usize..to as usize]);
            return Ok(());
        }
        let Body::Tree(children) = &self.body else { return Ok(()) };
        let size = child_bytes(self.len);
        for i in from / size..to.div_ceil(size) {
            let start = i * size;
            let len = size.min(self.len - start);
            let child = children[i as usize].load(cells, EXPECTED, |node| node.fits(len))?;
            let low = from.max(start);
            let high = to.min(start + size);
            child.read(low - start, high - start, cells, out)?;
        }
        Ok(())
    }

    /// The same bytes under another tag. Children are blobs in both cases.
    fn retagged(self: &Arc<Self>, tag: u8) -> Arc<Self> {
        if self.tag == tag {
            return Arc::clone(self);
        }
        let body = match &self.body {
            Body::InNode(bytes) => Body::InNode(*bytes),
            Body::Flat(bytes) => Body::Flat(bytes.clone()),
            Body::Tree(children) => Body::Tree(children.clone()),
        };
        Arc::new(BytesNode { tag, len: self.len, memo: Memo::default(), body })
    }

    /// Appends the slot. A short flat sequence is encoded each time: memoizing a copy would cost
    /// more.
    pub(crate) fn write_slot(&self, out: &mut Vec<u8>) {
        match self.flat() {
            Some(bytes) if is_embedded_length(bytes.len()) => self.write(out),
            _ => write_slot(self, out),
        }
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(self)
    }

    /// Whether the node can be the child of a tree that needs a chunk of `len` bytes.
    fn fits(&self, len: u64) -> bool {
        self.tag == BLOB_TAG && self.len == len
    }
}

/// Whether a flat byte sequence of this length is embedded in its parent.
fn is_embedded_length(len: usize) -> bool {
    let header = if len < 0x80 { 2 } else { 3 };
    len + header <= EMBEDDED_BYTES_MAX
}

/// What a tree requires of each child, for errors.
const EXPECTED: &str = "a blob of the length its parent needs";

impl Node for BytesNode {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.tag);
        write_count(self.len, out);
        match &self.body {
            Body::InNode(bytes) => out.extend_from_slice(&bytes[..self.len as usize]),
            Body::Flat(bytes) => out.extend_from_slice(bytes),
            Body::Tree(children) => children.iter().for_each(|child| write_child(child, out)),
        }
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        if let Body::Tree(children) = &self.body {
            children.iter().for_each(|child| visit(CellRef::of_child(child)));
        }
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        let Body::Tree(children) = &self.body else { return Ok(Arc::clone(self)) };
        let loaded = children
            .iter()
            .zip(child_lengths(self.len))
            .map(|(child, len)| loader.child(child, EXPECTED, |node| node.fits(len)))
            .map(|child| child.map(Child::Loaded))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(BytesNode::from_children(self.tag, self.len, loaded)))
    }

    fn of_value(value: &Value) -> Option<&Arc<Self>> {
        match value {
            Value::Blob(Blob(node)) => Some(node),
            _ => None,
        }
    }
}

/// A string: a byte sequence that is nearly always UTF-8.
#[derive(Clone)]
pub struct Text(TextRepr);

#[derive(Clone)]
enum TextRepr {
    Inline(InlineBytes),
    Node(Arc<BytesNode>),
}

impl Text {
    /// A string cell with these bytes, UTF-8 or not.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match InlineBytes::new(bytes) {
            Some(inline) => Text(TextRepr::Inline(inline)),
            None => Text(TextRepr::Node(Arc::new(BytesNode::new(STRING_TAG, bytes)))),
        }
    }

    /// A string cell that takes over these bytes. They are not copied if they fit one flat node.
    fn from_vec(bytes: Vec<u8>) -> Self {
        if bytes.len() <= IN_NODE_BYTES || bytes.len() > CHUNK_BYTES {
            return Text::from_bytes(&bytes);
        }
        let len = bytes.len() as u64;
        let body = Body::Flat(bytes.into_boxed_slice());
        let node = BytesNode { tag: STRING_TAG, len, memo: Memo::default(), body };
        Text(TextRepr::Node(Arc::new(node)))
    }

    pub(crate) fn from_node(node: BytesNode) -> Self {
        match node.flat().and_then(InlineBytes::new) {
            Some(inline) => Text(TextRepr::Inline(inline)),
            None => Text(TextRepr::Node(Arc::new(node))),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            TextRepr::Inline(inline) => inline.as_slice().len() as u64,
            TextRepr::Node(node) => node.len,
        }
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes if the sequence is flat (at most 4,096 bytes). `None` if it is a tree.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            TextRepr::Inline(inline) => Some(inline.as_slice()),
            TextRepr::Node(node) => node.flat(),
        }
    }

    /// The text if the string is flat and valid UTF-8. `None` otherwise.
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| str::from_utf8(bytes).ok())
    }

    /// All bytes; chunks that are not in memory are loaded.
    pub fn to_bytes(&self, cells: &dyn CellSource) -> Result<Vec<u8>, LoadError> {
        match &self.0 {
            TextRepr::Inline(inline) => Ok(inline.as_slice().to_vec()),
            TextRepr::Node(node) => read_range(node, 0, node.len, cells),
        }
    }

    /// The bytes `from..to`, limited to the length of the string.
    pub fn read(&self, from: u64, to: u64, cells: &dyn CellSource) -> Result<Vec<u8>, LoadError> {
        match &self.0 {
            TextRepr::Inline(inline) => {
                let (from, to) = clamp_range(from, to, self.len());
                Ok(inline.as_slice()[from as usize..to as usize].to_vec())
            }
            TextRepr::Node(node) => read_range(node, from, to, cells),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            TextRepr::Inline(inline) => {
                let bytes = inline.as_slice();
                out.push(STRING_TAG);
                out.push(bytes.len() as u8);
                out.extend_from_slice(bytes);
            }
            TextRepr::Node(node) => node.write(out),
        }
    }

    pub(crate) fn write_slot(&self, out: &mut Vec<u8>) {
        match &self.0 {
            TextRepr::Inline(_) => self.write(out),
            TextRepr::Node(node) => node.write_slot(out),
        }
    }

    /// Whether the string is embedded in its parent. `None` if it is not flat.
    pub(crate) fn known_embedded(&self) -> Option<bool> {
        self.as_bytes().map(|bytes| is_embedded_length(bytes.len()))
    }

    pub(crate) fn id(&self) -> ValueId {
        match &self.0 {
            TextRepr::Inline(inline) => inline_string_id(inline),
            TextRepr::Node(node) => node.id(),
        }
    }

    pub(crate) fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        if let TextRepr::Node(node) = &self.0 {
            node.visit_children(visit);
        }
    }

    pub(crate) fn load_all(&self, loader: &mut Loader<'_>) -> Result<Self, LoadError> {
        match &self.0 {
            TextRepr::Inline(_) => Ok(self.clone()),
            TextRepr::Node(node) => Ok(Text(TextRepr::Node(node.load_all(loader)?))),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::from_bytes(text.as_bytes())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::from_vec(text.into_bytes())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == Some(other.as_bytes())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) => write!(f, "{text:?}"),
            None => write!(f, "string of {} bytes", self.len()),
        }
    }
}

/// Raw bytes.
#[derive(Clone)]
pub struct Blob(pub(crate) Arc<BytesNode>);

impl Blob {
    /// A blob cell with these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Blob(Arc::new(BytesNode::new(BLOB_TAG, bytes)))
    }

    pub(crate) fn from_node(node: BytesNode) -> Self {
        Blob(Arc::new(node))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether the blob has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The bytes if the sequence is flat (at most 4,096 bytes). `None` if it is a tree.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.flat()
    }

    /// All bytes; chunks that are not in memory are loaded.
    pub fn to_bytes(&self, cells: &dyn CellSource) -> Result<Vec<u8>, LoadError> {
        read_range(&self.0, 0, self.0.len, cells)
    }

    /// The bytes `from..to`, limited to the length of the blob.
    pub fn read(&self, from: u64, to: u64, cells: &dyn CellSource) -> Result<Vec<u8>, LoadError> {
        read_range(&self.0, from, to, cells)
    }

    /// The string with the same bytes. It shares all chunks with the blob.
    pub fn to_text(&self) -> Text {
        match self.as_bytes().and_then(InlineBytes::new) {
            Some(inline) => Text(TextRepr::Inline(inline)),
            None => Text(TextRepr::Node(self.0.retagged(STRING_TAG))),
        }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_bytes() {
            Some(bytes) if bytes.len() <= 64 => write!(f, "0x{}", crate::id::hex(bytes)),
            _ => write!(f, "blob of {} bytes", self.len()),
        }
    }
}

/// The range `from..to`, limited to `len`.
fn clamp_range(from: u64, to: u64, len: u64) -> (u64, u64) {
    let to = to.min(len);
    (from.min(to), to)
}

fn read_range(
    node: &BytesNode,
    from: u64,
    to: u64,
    cells: &dyn CellSource,
) -> Result<Vec<u8>, LoadError> {
    let (from, to) = clamp_range(from, to, node.len);
    // The buffer grows as chunks arrive, because a stated length is not trusted until its bytes are
    // loaded.
    let mut out = Vec::with_capacity(((to - from) as usize).min(CHUNK_BYTES));
    if from < to {
        node.read(from, to, cells, &mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CellsInMemory, NoCells, decode, encode, new_cells};

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + 3) as u8).collect()
    }

    #[test]
    fn a_range_of_a_large_blob_reads_only_its_chunks() {
        let bytes = pattern(300_000);
        let blob = Value::Blob(Blob::from_bytes(&bytes));
        let mut cells = CellsInMemory::default();
        new_cells(&blob, |_| false).iter().for_each(|cell| {
            cells.insert(&cell.bytes);
        });
        let Value::Blob(unloaded) = decode(&encode(&blob)).unwrap() else { panic!("not a blob") };
        assert_eq!(unloaded.read(65_000, 70_001, &cells).unwrap(), bytes[65_000..70_001]);
        assert_eq!(unloaded.read(299_999, 400_000, &cells).unwrap(), bytes[299_999..]);
        assert_eq!(unloaded.read(5, 5, &NoCells).unwrap(), b"");
        assert!(matches!(unloaded.to_bytes(&NoCells), Err(LoadError::Missing { .. })));
        assert_eq!(unloaded.to_bytes(&cells).unwrap(), bytes);
    }

    #[test]
    fn a_blob_becomes_a_string_without_copying_its_chunks() {
        let text = "x".repeat(70_000);
        let blob = Blob::from_bytes(text.as_bytes());
        assert_eq!(Value::String(blob.to_text()).id(), Value::from(text.as_str()).id());
        assert_eq!(Value::String(Blob::from_bytes(b"ab").to_text()), Value::from("ab"));
    }

    #[test]
    fn a_string_from_an_owned_buffer_equals_one_from_a_copy() {
        for length in [0, 22, 23, 140, 141, 4_096, 4_097, 10_000] {
            let text = "x".repeat(length);
            let copied = Value::from(text.as_str());
            assert_eq!(Value::from(text).id(), copied.id(), "{length}");
        }
    }
}
