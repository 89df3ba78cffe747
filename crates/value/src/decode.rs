//! The strict decoder: from bytes to one cell, refusing everything that is not canonical.
//!
//! An embedded child has at most 140 bytes, so every child is read through a window of that size:
//! nesting is bounded by the window and not by the input. Nothing is allocated for a stated count
//! before the bytes are read. Everything that can be checked about children in the same bytes is
//! checked here; what depends on branches is checked when they are loaded.

use std::fmt;
use std::sync::Arc;

use crate::bytes::{BLOB_TAG, Blob, BytesNode, STRING_TAG, Text, child_lengths};
use crate::cell::{Child, LoadError, Memo};
use crate::encode::REF_TAG;
use crate::hashed::{Branches, Entry, HashNode};
use crate::id::ValueId;
use crate::index::{ENTRY_MARK, Fork, INDEX_TAG, Index, IndexEntry, IndexNode, Radix};
use crate::integer::Integer;
use crate::limits::{
    CELL_BYTES_MAX, CHUNK_BYTES, EMBEDDED_BYTES_MAX, HASH_LEAF_MAX, INDEX_NIBBLES_MAX,
    INTEGER_BYTES_MAX, NAME_BYTES_MAX,
};
use crate::map::{Map, MapEntry};
use crate::mask::Mask;
use crate::set::{Set, SetEntry};
use crate::value::{
    Character, Coded, Double, Extension, Name, Record, Signed, Syntax, Value, Wrapped,
};
use crate::vector::{List, Retagged, Shape, VECTOR_TAG, Vector, VectorNode, shape};

/// The reason why bytes are not a canonical cell, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {offset}")]
pub struct DecodeError {
    /// Offset of the first byte that is not valid.
    pub offset: usize,
    /// What is wrong at the offset.
    pub fault: DecodeFault,
}

/// The kinds of errors in an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeFault {
    /// The input ends inside a cell.
    Truncated,
    /// Bytes follow a complete cell.
    Trailing,
    /// The cell has more than [`CELL_BYTES_MAX`] bytes.
    TooLarge,
    /// No cell has this tag.
    UnknownTag(u8),
    /// A reference where a cell is required.
    RefAtTop,
    /// An embedded child of more than 140 bytes.
    ChildTooLarge,
    /// A count with superfluous groups.
    CountNotMinimal,
    /// A count above 2^63 - 1.
    CountTooLarge,
    /// An integer that has a shorter form.
    IntegerNotMinimal,
    /// An integer of more than 4,096 bytes.
    IntegerTooLarge,
    /// A symbol or keyword that is empty or longer than 128 bytes.
    NameLength,
    /// A character with a leading zero byte or above 10ffff.
    Character,
    /// Map or set entries that are out of order or duplicated.
    Order,
    /// Empty metadata, which must be encoded as nil.
    EmptyMetadata,
    /// The entry of an index node starts with neither `00` nor `80`.
    EntryMark,
    /// A child does not have the kind, size or keys that its position requires.
    Structure(&'static str),
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeFault::Truncated => f.write_str("input ends inside a cell"),
            DecodeFault::Trailing => f.write_str("bytes follow the cell"),
            DecodeFault::TooLarge => write!(f, "cell has more than {CELL_BYTES_MAX} bytes"),
            DecodeFault::UnknownTag(tag) => write!(f, "no cell has tag {tag:02x}"),
            DecodeFault::RefAtTop => f.write_str("found a reference instead of a cell"),
            DecodeFault::ChildTooLarge => {
                write!(f, "embedded child has more than {EMBEDDED_BYTES_MAX} bytes")
            }
            DecodeFault::CountNotMinimal => f.write_str("count is not in its shortest form"),
            DecodeFault::CountTooLarge => f.write_str("count is above 2^63 - 1"),
            DecodeFault::IntegerNotMinimal => f.write_str("integer is not in its shortest form"),
            DecodeFault::IntegerTooLarge => {
                write!(f, "integer has more than {INTEGER_BYTES_MAX} bytes")
            }
            DecodeFault::NameLength => f.write_str("name does not have 1 to 128 bytes"),
            DecodeFault::Character => {
                f.write_str("character is invalid or not in its shortest form")
            }
            DecodeFault::Order => f.write_str("entries are not in strictly ascending order"),
            DecodeFault::EmptyMetadata => f.write_str("empty metadata must be nil"),
            DecodeFault::EntryMark => f.write_str("index entry must start with 00 or 80"),
            DecodeFault::Structure(expected) => write!(f, "expected {expected}"),
        }
    }
}

/// Decodes one complete cell. Branches stay unloaded.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(bytes, 0);
    let value = reader.cell(Memo::default())?;
    if reader.is_at_end() { Ok(value) } else { Err(reader.fault(DecodeFault::Trailing)) }
}

/// Decodes what [`encode_slot`](crate::encode_slot) wrote.
pub fn decode_slot(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(bytes, 0);
    let value = reader.slot()?;
    if reader.is_at_end() { Ok(value) } else { Err(reader.fault(DecodeFault::Trailing)) }
}

/// Decodes the bytes of the branch `id` after checking that they have that ID.
pub fn decode_branch(id: &ValueId, bytes: &[u8]) -> Result<Value, LoadError> {
    decode_identified(id, ValueId::of_encoding(bytes), bytes)
}

/// Decodes bytes whose ID is `found` as the branch `id`.
pub fn decode_identified(id: &ValueId, found: ValueId, bytes: &[u8]) -> Result<Value, LoadError> {
    if found != *id {
        return Err(LoadError::WrongBytes { id: *id, found });
    }
    if bytes.len() <= EMBEDDED_BYTES_MAX {
        let expected = "a cell of more than 140 bytes; shorter ones are embedded";
        return Err(LoadError::Misplaced { id: *id, expected });
    }
    let malformed = |source| LoadError::Malformed { id: *id, source };
    let mut reader = Reader::new(bytes, 0);
    let value = reader.cell(Memo::of_branch(id)).map_err(malformed)?;
    if reader.is_at_end() { Ok(value) } else { Err(malformed(reader.fault(DecodeFault::Trailing))) }
}

/// A reader of cells from bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Position at which the innermost child must have ended.
    limit: usize,
    /// Offset of `bytes` in the complete input, for messages.
    base: usize,
}

type Read<T> = Result<T, DecodeError>;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: usize) -> Self {
        Reader { bytes, at: 0, limit: bytes.len(), base }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn fault(&self, fault: DecodeFault) -> DecodeError {
        self.fault_at(self.at, fault)
    }

    fn fault_at(&self, at: usize, fault: DecodeFault) -> DecodeError {
        DecodeError { offset: self.base + at, fault }
    }

    fn structure(&self, at: usize, expected: &'static str) -> DecodeError {
        self.fault_at(at, DecodeFault::Structure(expected))
    }

    fn read_bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.limit);
        let Some(end) = end else {
            let inside_window = self.limit < self.bytes.len();
            let fault =
                if inside_window { DecodeFault::ChildTooLarge } else { DecodeFault::Truncated };
            return Err(self.fault(fault));
        };
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.read_bytes(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a count: base 128, at most nine groups, in the shortest form.
    pub(crate) fn count(&mut self) -> Read<u64> {
        let start = self.at;
        let mut count = 0u64;
        for group in 0..9 {
            let byte = self.byte()?;
            if group == 0 && byte == 0x80 {
                return Err(self.fault_at(start, DecodeFault::CountNotMinimal));
            }
            count = count << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Ok(count);
            }
        }
        Err(self.fault_at(start, DecodeFault::CountTooLarge))
    }

    /// Reads one complete cell. `memo` is what is already known of its encoded form.
    pub(crate) fn cell(&mut self, memo: Memo) -> Read<Value> {
        let start = self.at;
        let tag = self.byte()?;
        let value = match tag {
            0x00 => Value::Nil,
            0x10 => Value::from(0),
            0x11..=0x18 => self.integer(usize::from(tag - 0x10))?,
            0x19 => self.big_integer()?,
            0x1d => Value::Double(Double::from_bits(u64::from_be_bytes(self.array()?))),
            REF_TAG => return Err(self.fault_at(start, DecodeFault::RefAtTop)),
            STRING_TAG | BLOB_TAG => self.bytes_cell(tag, memo)?,
            0x32 => Value::Symbol(self.name()?),
            0x33 => Value::Keyword(self.name()?),
            0x3c..=0x3e => self.character(usize::from(tag - 0x3b))?,
            VECTOR_TAG => Value::Vector(Vector(Arc::new(self.vector()?.with_memo(memo)))),
            List::TAG | 0xd0..=0xdf => self.retagged(tag, memo)?,
            MapEntry::TAG => {
                Value::Map(Map(Arc::new(self.hashed(Self::map_entry)?.with_memo(memo))))
            }
            SetEntry::TAG => {
                Value::Set(Set(Arc::new(self.hashed(Self::set_entry)?.with_memo(memo))))
            }
            INDEX_TAG => Value::Index(Index(Arc::new(self.index()?.with_memo(memo)))),
            Syntax::TAG => self.syntax(memo)?,
            Signed::TAG | Signed::TAG_WITHOUT_KEY => self.signed(tag, memo)?,
            0xb0 | 0xb1 => Value::Bool(tag == 0xb1),
            0xb2..=0xbf => Value::Flag(tag & 0x0f),
            0xc0..=0xcf => self.coded(tag, memo)?,
            0xe0..=0xef => self.extension(tag)?,
            _ => return Err(self.fault_at(start, DecodeFault::UnknownTag(tag))),
        };
        if self.at - start > CELL_BYTES_MAX {
            return Err(self.fault_at(start, DecodeFault::TooLarge));
        }
        Ok(value)
    }

    /// Reads a child slot: a reference, or a cell of at most 140 bytes.
    fn slot(&mut self) -> Read<Value> {
        if self.bytes[self.at..self.limit].first() == Some(&REF_TAG) {
            self.at += 1;
            return Ok(Value::Unloaded(Arc::new(ValueId::from_bytes(self.array()?))));
        }
        let outer = self.limit;
        self.limit = outer.min(self.at + EMBEDDED_BYTES_MAX);
        let value = self.cell(Memo::default());
        self.limit = outer;
        value
    }

    fn slots(&mut self, count: usize) -> Read<Vec<Value>> {
        (0..count).map(|_| self.slot()).collect()
    }

    /// Reads a slot that must contain a node of a tree.
    fn child<N>(
        &mut self,
        expected: &'static str,
        node_of: impl FnOnce(&Value) -> Option<Arc<N>>,
    ) -> Read<Child<N>> {
        let start = self.at;
        match self.slot()? {
            Value::Unloaded(id) => Ok(Child::Unloaded(*id)),
            value => match node_of(&value) {
                Some(node) => Ok(Child::Loaded(node)),
                None => Err(self.structure(start, expected)),
            },
        }
    }

    fn integer(&mut self, len: usize) -> Read<Value> {
        let start = self.at;
        let bytes = self.read_bytes(len)?;
        let integer = Integer::from_minimal_bytes(bytes);
        integer
            .map(Value::Integer)
            .map_err(|_| self.fault_at(start, DecodeFault::IntegerNotMinimal))
    }

    fn big_integer(&mut self) -> Read<Value> {
        let start = self.at;
        let len = self.count()?;
        if len > INTEGER_BYTES_MAX as u64 {
            return Err(self.fault_at(start, DecodeFault::IntegerTooLarge));
        }
        if len <= 8 {
            return Err(self.fault_at(start, DecodeFault::IntegerNotMinimal));
        }
        self.integer(len as usize)
    }

    fn name(&mut self) -> Read<Name> {
        let start = self.at;
        let len = usize::from(self.byte()?);
        if len == 0 || len > NAME_BYTES_MAX {
            return Err(self.fault_at(start, DecodeFault::NameLength));
        }
        let bytes = self.read_bytes(len)?;
        Name::new(bytes).ok_or_else(|| self.fault_at(start, DecodeFault::NameLength))
    }

    fn character(&mut self, len: usize) -> Read<Value> {
        let start = self.at;
        let bytes = self.read_bytes(len)?;
        let code = bytes.iter().fold(0u32, |code, byte| code << 8 | u32::from(*byte));
        let minimal = len == 1 || bytes[0] != 0;
        let character = Character::new(code).filter(|_| minimal);
        character.map(Value::Character).ok_or_else(|| self.fault_at(start, DecodeFault::Character))
    }

    fn extension(&mut self, tag: u8) -> Read<Value> {
        let start = self.at;
        let number = self.count()?;
        let extension = Extension::new(tag & 0x0f, number);
        extension
            .map(Value::Extension)
            .ok_or_else(|| self.fault_at(start, DecodeFault::CountTooLarge))
    }

    fn bytes_cell(&mut self, tag: u8, memo: Memo) -> Read<Value> {
        let len = self.count()?;
        let node = if len <= CHUNK_BYTES as u64 {
            BytesNode::new(tag, self.read_bytes(len as usize)?)
        } else {
            let mut children = Vec::new();
            for len in child_lengths(len) {
                children.push(self.child("a blob of the right length", |value| match value {
                    Value::Blob(Blob(node)) if node.tag() == BLOB_TAG && node.len() == len => {
                        Some(Arc::clone(node))
                    }
                    _ => None,
                })?);
            }
            BytesNode::from_children(tag, len, children)
        };
        let node = node.with_memo(memo);
        Ok(match tag {
            STRING_TAG => Value::String(Text::from_node(node)),
            _ => Value::Blob(Blob::from_node(node)),
        })
    }

    fn vector(&mut self) -> Read<VectorNode> {
        let count = self.count()?;
        match shape(count) {
            Shape::Leaf { items, has_prefix: false } => {
                self.slots(items as usize).map(VectorNode::leaf)
            }
            Shape::Leaf { items, has_prefix: true } => {
                let tail = self.slots(items as usize)?;
                let prefix = self.vector_child(count - items)?;
                Ok(VectorNode::with_prefix(count, tail, prefix))
            }
            Shape::Tree { children, child_count } => {
                let mut nodes = Vec::new();
                for i in 0..children {
                    nodes.push(self.vector_child(child_count.min(count - i * child_count))?);
                }
                Ok(VectorNode::tree(count, nodes))
            }
        }
    }

    fn vector_child(&mut self, count: u64) -> Read<Child<VectorNode>> {
        self.child("a vector of the right length", |value| match value {
            Value::Vector(Vector(node)) if node.count() == count => Some(Arc::clone(node)),
            _ => None,
        })
    }

    fn retagged(&mut self, tag: u8, memo: Memo) -> Read<Value> {
        let vector = Vector(Arc::new(self.vector()?));
        let node = Arc::new(Retagged::new(tag, vector).with_memo(memo));
        Ok(if tag == List::TAG { Value::List(List(node)) } else { Value::Record(Record(node)) })
    }

    fn map_entry(&mut self) -> Read<MapEntry> {
        Ok(MapEntry::new(self.slot()?, self.slot()?))
    }

    fn set_entry(&mut self) -> Read<SetEntry> {
        self.slot().map(SetEntry::new)
    }

    fn hashed<E: Entry>(&mut self, entry: fn(&mut Self) -> Read<E>) -> Read<HashNode<E>> {
        let count = self.count()?;
        if count > HASH_LEAF_MAX as u64 {
            return self.hash_tree(count);
        }
        let mut entries: Vec<E> = Vec::new();
        for _ in 0..count {
            let start = self.at;
            let next = entry(self)?;
            if entries.last().is_some_and(|last| last.hash() >= next.hash()) {
                return Err(self.fault_at(start, DecodeFault::Order));
            }
            entries.push(next);
        }
        Ok(HashNode::from_sorted(entries))
    }

    fn hash_tree<E: Entry>(&mut self, count: u64) -> Read<HashNode<E>> {
        let start = self.at;
        let shift = self.byte()?;
        let mask = Mask::from_be_bytes(self.array()?);
        if shift > 63 {
            return Err(self.structure(start, "a shift of at most 63"));
        }
        if mask.len() < 2 {
            return Err(self.structure(start, "at least two children"));
        }
        let mut branches = Branches { shift, mask, children: Vec::new() };
        let mut sample: Option<ValueId> = None;
        let mut sum = 0u64;
        let mut unloaded = 0u64;
        for digit in mask.digits() {
            let child = self.child("a node with keys that belong below this one", |value| {
                E::of_value(value)
                    .filter(|node| node.fits(shift, digit, sample.as_ref()))
                    .map(Arc::clone)
            })?;
            match child.loaded() {
                Some(node) => {
                    sum = sum.saturating_add(node.count());
                    sample = sample.or_else(|| node.sample_in_memory().copied());
                }
                None => unloaded += 1,
            }
            branches.children.push(child);
        }
        self.check_sum(start, count, sum, unloaded)?;
        Ok(HashNode::tree(count, branches))
    }

    /// Checks that the counts of the children add up to `count`; unloaded children have at least
    /// one entry each.
    fn check_sum(&self, at: usize, count: u64, sum: u64, unloaded: u64) -> Read<()> {
        let adds_up =
            if unloaded == 0 { sum == count } else { sum.saturating_add(unloaded) <= count };
        if adds_up {
            Ok(())
        } else {
            Err(self.structure(at, "a count that is the sum of its parts"))
        }
    }

    fn index_entry(&mut self) -> Read<(IndexEntry, Option<Radix>)> {
        let start = self.at;
        let key = self.slot()?;
        let radix = Radix::in_memory(&key);
        let is_key = radix.is_some()
            || matches!(key, Value::Unloaded(_) | Value::String(_) | Value::Blob(_));
        if !is_key {
            return Err(self.structure(start, "a key of a type that has bytes"));
        }
        Ok((IndexEntry { key, value: self.slot()? }, radix))
    }

    fn index(&mut self) -> Read<IndexNode> {
        match self.count()? {
            0 => Ok(IndexNode::empty()),
            1 => Ok(IndexNode::one(self.index_entry()?.0)),
            count => self.index_fork(count),
        }
    }

    fn index_fork(&mut self, count: u64) -> Read<IndexNode> {
        let start = self.at;
        let entry = match self.byte()? {
            0x00 => None,
            ENTRY_MARK => Some(self.index_entry()?),
            _ => return Err(self.fault_at(start, DecodeFault::EntryMark)),
        };
        let depth = self.byte()?;
        let mask = Mask::from_be_bytes(self.array()?);
        if usize::from(depth) >= INDEX_NIBBLES_MAX {
            return Err(self.structure(start, "a depth of at most 63"));
        }
        let (entry, mut sample) = entry.map_or((None, None), |(entry, radix)| (Some(entry), radix));
        if sample.is_some_and(|radix| radix.len() != usize::from(depth)) {
            return Err(self.structure(start, "an entry with a key that ends at its node"));
        }
        if mask.len() + usize::from(entry.is_some()) < 2 {
            return Err(self.structure(start, "an entry and a child, or two children"));
        }
        let mut sum = u64::from(entry.is_some());
        let mut unloaded = 0;
        let mut fork = Fork { depth, entry, mask, children: Vec::new() };
        for digit in mask.digits() {
            let child = self.child(
                "an index node with keys that belong below this one",
                |value| match value {
                    Value::Index(Index(node)) if node.fits(depth, digit, sample.as_ref()) => {
                        Some(Arc::clone(node))
                    }
                    _ => None,
                },
            )?;
            match child.loaded() {
                Some(node) => {
                    sum = sum.saturating_add(node.count());
                    sample = sample.or_else(|| node.sample_in_memory());
                }
                None => unloaded += 1,
            }
            fork.children.push(child);
        }
        self.check_sum(start, count, sum, unloaded)?;
        Ok(IndexNode::many(count, fork))
    }

    fn syntax(&mut self, memo: Memo) -> Read<Value> {
        let datum = self.slot()?;
        let start = self.at;
        let metadata = self.slot()?;
        match &metadata {
            Value::Nil | Value::Unloaded(_) => {}
            Value::Map(map) if map.is_empty() => {
                return Err(self.fault_at(start, DecodeFault::EmptyMetadata));
            }
            Value::Map(_) => {}
            _ => return Err(self.structure(start, "metadata that is a map or nil")),
        }
        let node = Wrapped::new(&[Syntax::TAG], vec![datum, metadata]).with_memo(memo);
        Ok(Value::Syntax(Syntax(Arc::new(node))))
    }

    fn signed(&mut self, tag: u8, memo: Memo) -> Read<Value> {
        let start = self.at - 1;
        self.read_bytes(if tag == Signed::TAG { 96 } else { 64 })?;
        let header = &self.bytes[start..self.at];
        let node = Wrapped::new(header, vec![self.slot()?]).with_memo(memo);
        Ok(Value::Signed(Signed(Arc::new(node))))
    }

    fn coded(&mut self, tag: u8, memo: Memo) -> Read<Value> {
        let node = Wrapped::new(&[tag], self.slots(2)?).with_memo(memo);
        Ok(Value::Coded(Coded(Arc::new(node))))
    }
}
