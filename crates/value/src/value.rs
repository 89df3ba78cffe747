//! The value type: a small handle for every kind of cell.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::bytes::{Blob, Text};
use crate::cell::{CellSource, LoadError, Loader, Memo, NoCells, Node};
use crate::encode::{
    CellRef, encode_slot, has_same_slot, node_id, with_scratch, write_count, write_slot,
};
use crate::id::ValueId;
use crate::index::Index;
use crate::integer::Integer;
use crate::limits::NAME_BYTES_MAX;
use crate::map::Map;
use crate::set::Set;
use crate::vector::{List, Vector};

/// An immutable value. Cloning is cheap; equality is equality of Value IDs.
#[derive(Clone, Default)]
pub enum Value {
    /// The absent value; JSON `null`.
    #[default]
    Nil,
    /// A boolean.
    Bool(bool),
    /// Another one-byte flag, 2 to 15.
    Flag(u8),
    /// A mathematical integer.
    Integer(Integer),
    /// An IEEE-754 double. Never equal to an integer.
    Double(Double),
    /// A Unicode code point.
    Character(Character),
    /// A string.
    String(Text),
    /// Raw bytes.
    Blob(Blob),
    /// A symbol.
    Symbol(Name),
    /// A keyword.
    Keyword(Name),
    /// An ordered sequence; a JSON array.
    Vector(Vector),
    /// A sequence that grows at the front.
    List(List),
    /// A map; a JSON object is a map with string keys.
    Map(Map),
    /// A set.
    Set(Set),
    /// A map ordered by the bytes of its keys.
    Index(Index),
    /// A datum with metadata.
    Syntax(Syntax),
    /// A value with a signature over it.
    Signed(Signed),
    /// A dense record: fields by position, under one of sixteen types.
    Record(Record),
    /// A value with a code that says how to read it.
    Coded(Coded),
    /// A number of an extension type, such as an account address.
    Extension(Extension),
    /// A branch that is not in memory. [`Value::loaded`] loads it.
    Unloaded(Arc<ValueId>),
}

impl Value {
    /// The Value ID. It is computed once per cell and memoized.
    pub fn id(&self) -> ValueId {
        match self {
            Value::Unloaded(id) => **id,
            Value::String(text) => text.id(),
            Value::Blob(blob) => blob.0.id(),
            Value::Vector(vector) => vector.id(),
            Value::List(list) => list.0.id(),
            Value::Map(map) => map.id(),
            Value::Set(set) => set.id(),
            Value::Index(index) => index.id(),
            Value::Record(record) => record.0.id(),
            Value::Syntax(syntax) => node_id(&*syntax.0),
            Value::Signed(signed) => node_id(&*signed.0),
            Value::Coded(coded) => node_id(&*coded.0),
            _ => with_scratch(|buffer| {
                self.write(buffer);
                ValueId::of_encoding(buffer)
            }),
        }
    }

    /// This value, loaded from `cells` if it is a branch that is not in memory.
    pub fn loaded(&self, cells: &dyn CellSource) -> Result<Value, LoadError> {
        match self {
            Value::Unloaded(id) => cells.load(id),
            _ => Ok(self.clone()),
        }
    }

    /// This value with every branch in memory and checked.
    pub fn fully_loaded(&self, cells: &dyn CellSource) -> Result<Value, LoadError> {
        Loader::new(cells).value(self)
    }

    /// The integer. `None` if the value is not an integer of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Integer(integer) => integer.as_i64(),
            _ => None,
        }
    }

    /// The text. `None` if the value is not a string, longer than 4,096 bytes, or not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => text.as_str(),
            _ => None,
        }
    }

    /// The text of a string of any length. `None` if the value is not a string, not entirely in
    /// memory, or not UTF-8.
    pub fn to_text(&self) -> Option<Cow<'_, str>> {
        let Value::String(text) = self else { return None };
        match text.as_str() {
            Some(short) => Some(Cow::Borrowed(short)),
            None => String::from_utf8(text.to_bytes(&NoCells).ok()?).ok().map(Cow::Owned),
        }
    }

    /// The boolean. `None` if the value is of another kind.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The map. `None` if the value is of another kind.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The vector. `None` if the value is of another kind.
    pub fn as_vector(&self) -> Option<&Vector> {
        match self {
            Value::Vector(vector) => Some(vector),
            _ => None,
        }
    }

    /// Whether the value is nil.
    pub fn is_nil(&self) -> bool {
        matches!(self, Value::Nil)
    }

    /// The name of this kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Nil => "null",
            Value::Bool(_) => "boolean",
            Value::Flag(_) => "flag",
            Value::Integer(_) => "integer",
            Value::Double(_) => "number",
            Value::Character(_) => "character",
            Value::String(_) => "string",
            Value::Blob(_) => "blob",
            Value::Symbol(_) => "symbol",
            Value::Keyword(_) => "keyword",
            Value::Vector(_) => "array",
            Value::List(_) => "list",
            Value::Map(_) => "object",
            Value::Set(_) => "set",
            Value::Index(_) => "index",
            Value::Syntax(_) => "syntax",
            Value::Signed(_) => "signed value",
            Value::Record(_) => "record",
            Value::Coded(_) => "coded value",
            Value::Extension(_) => "extension value",
            Value::Unloaded(_) => "value not in memory",
        }
    }

    /// Appends the complete encoding of the root cell.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Nil => out.push(0x00),
            Value::Bool(value) => out.push(0xb0 + u8::from(*value)),
            Value::Flag(flag) => out.push(0xb0 | (flag & 0x0f)),
            Value::Integer(integer) => integer.write(out),
            Value::Double(double) => {
                out.push(0x1d);
                out.extend_from_slice(&double.to_bits().to_be_bytes());
            }
            Value::Character(character) => character.write(out),
            Value::String(text) => text.write(out),
            Value::Blob(blob) => blob.0.write(out),
            Value::Symbol(name) => name.write(0x32, out),
            Value::Keyword(name) => name.write(0x33, out),
            Value::Vector(vector) => vector.0.write(out),
            Value::List(list) => list.0.write(out),
            Value::Map(map) => map.0.write(out),
            Value::Set(set) => set.0.write(out),
            Value::Index(index) => index.0.write(out),
            Value::Syntax(syntax) => syntax.0.write(out),
            Value::Signed(signed) => signed.0.write(out),
            Value::Record(record) => record.0.write(out),
            Value::Coded(coded) => coded.0.write(out),
            Value::Extension(extension) => extension.write(out),
            // The encoding of an unloaded branch is not available, so its slot is written.
            Value::Unloaded(id) => out.extend_from_slice(&crate::cell::branch_slot(id)),
        }
    }

    /// Whether the value is embedded in its parent. `None` if that is unknown without encoding it.
    pub(crate) fn known_embedded(&self) -> Option<bool> {
        match self {
            Value::String(text) => text.known_embedded(),
            Value::Integer(integer) => integer.as_i64().map(|_| true),
            Value::Unloaded(_) => Some(false),
            Value::Nil
            | Value::Bool(_)
            | Value::Flag(_)
            | Value::Double(_)
            | Value::Character(_)
            | Value::Symbol(_)
            | Value::Keyword(_)
            | Value::Extension(_) => Some(true),
            _ => None,
        }
    }

    /// Whether a cheap check shows that nothing below the root is a branch. False if in doubt.
    pub(crate) fn is_evidently_one_cell(&self) -> bool {
        match self {
            Value::Map(map) => map.is_evidently_one_cell(),
            Value::Vector(vector) => vector.is_evidently_one_cell(),
            other => other.known_embedded() == Some(true),
        }
    }

    /// Whether a cheap check shows that the value and everything below it is embedded. False if in
    /// doubt.
    pub(crate) fn is_evidently_embedded(&self) -> bool {
        let memo = match self {
            Value::Map(map) => map.0.memo(),
            Value::Vector(vector) => vector.0.memo(),
            other => return other.known_embedded() == Some(true),
        };
        memo.is_embedded() && self.is_evidently_one_cell()
    }

    /// Appends the slot of this value.
    pub(crate) fn write_slot(&self, out: &mut Vec<u8>) {
        match self {
            Value::String(text) => text.write_slot(out),
            Value::Blob(blob) => blob.0.write_slot(out),
            Value::Vector(vector) => write_slot(&*vector.0, out),
            Value::List(list) => list.0.write_slot(out),
            Value::Map(map) => write_slot(&*map.0, out),
            Value::Set(set) => write_slot(&*set.0, out),
            Value::Index(index) => write_slot(&*index.0, out),
            Value::Syntax(syntax) => write_slot(&*syntax.0, out),
            Value::Signed(signed) => write_slot(&*signed.0, out),
            Value::Record(record) => record.0.write_slot(out),
            Value::Coded(coded) => write_slot(&*coded.0, out),
            Value::Integer(_) => self.write_long_scalar(out),
            _ => self.write(out),
        }
    }

    /// Appends the slot of an integer, which is flat at any size, so that only the length of its
    /// encoding decides whether it is embedded.
    fn write_long_scalar(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.write(out);
        if out.len() - start > crate::limits::EMBEDDED_BYTES_MAX {
            let id = ValueId::of_encoding(&out[start..]);
            out.truncate(start);
            out.extend_from_slice(&crate::cell::branch_slot(&id));
        }
    }

    /// Calls `visit` for every cell in a slot of the root cell.
    pub(crate) fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        match self {
            Value::String(text) => text.visit_children(visit),
            Value::Blob(blob) => blob.0.visit_children(visit),
            Value::Vector(vector) => vector.0.visit_children(visit),
            Value::List(list) => list.0.visit_children(visit),
            Value::Map(map) => map.0.visit_children(visit),
            Value::Set(set) => set.0.visit_children(visit),
            Value::Index(index) => index.0.visit_children(visit),
            Value::Syntax(syntax) => syntax.0.visit_children(visit),
            Value::Signed(signed) => signed.0.visit_children(visit),
            Value::Record(record) => record.0.visit_children(visit),
            Value::Coded(coded) => coded.0.visit_children(visit),
            _ => {}
        }
    }

    pub(crate) fn load_all(&self, loader: &mut Loader<'_>) -> Result<Value, LoadError> {
        Ok(match self {
            Value::String(text) => Value::String(text.load_all(loader)?),
            Value::Blob(blob) => Value::Blob(Blob(blob.0.load_all(loader)?)),
            Value::Vector(vector) => Value::Vector(Vector(vector.0.load_all(loader)?)),
            Value::List(list) => Value::List(List(list.0.load_all(loader)?)),
            Value::Map(map) => Value::Map(Map(map.0.load_all(loader)?)),
            Value::Set(set) => Value::Set(Set(set.0.load_all(loader)?)),
            Value::Index(index) => Value::Index(Index(index.0.load_all(loader)?)),
            Value::Syntax(syntax) => Value::Syntax(Syntax(syntax.0.load_all(loader)?)),
            Value::Signed(signed) => Value::Signed(Signed(signed.0.load_all(loader)?)),
            Value::Record(record) => Value::Record(Record(record.0.load_all(loader)?)),
            Value::Coded(coded) => Value::Coded(Coded(coded.0.load_all(loader)?)),
            other => other.clone(),
        })
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Nil, Value::Nil) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Integer(a), Value::Integer(b)) => a == b,
            (Value::Double(a), Value::Double(b)) => a == b,
            (Value::Unloaded(_), _) | (_, Value::Unloaded(_)) => self.id() == other.id(),
            _ => {
                std::mem::discriminant(self) == std::mem::discriminant(other)
                    && has_same_slot(self, other)
            }
        }
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(integer) => write!(f, "{integer}"),
            Value::Double(double) => write!(f, "{:?}", double.get()),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Blob(blob) => write!(f, "{blob:?}"),
            Value::Keyword(name) => write!(f, ":{name}"),
            Value::Symbol(name) => write!(f, "{name}"),
            Value::Vector(vector) => write!(f, "{vector:?}"),
            Value::Map(map) => write!(f, "{map:?}"),
            Value::Set(set) => write!(f, "{set:?}"),
            Value::Unloaded(id) => write!(f, "branch {id}"),
            other => write!(f, "{} {}", other.kind(), other.id()),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $make:expr),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(from: $from) -> Self {
                $make(from)
            }
        })*
    };
}

value_from! {
    bool => Value::Bool,
    i64 => |n| Value::Integer(Integer::from(n)),
    i32 => |n| Value::Integer(Integer::from(i64::from(n))),
    u32 => |n| Value::Integer(Integer::from(i64::from(n))),
    f64 => |n| Value::Double(Double::new(n)),
    &str => |text| Value::String(Text::from(text)),
    String => |text: String| Value::String(Text::from(text)),
    Integer => Value::Integer,
    Text => Value::String,
    Blob => Value::Blob,
    Vector => Value::Vector,
    Map => Value::Map,
    Set => Value::Set,
    Index => Value::Index,
}

/// A double. Equality is equality of bits, so that it agrees with equality of IDs: `-0.0` is not
/// `0.0`, and one NaN equals itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Double(u64);

impl Double {
    /// A double from a number. Every NaN becomes the canonical NaN.
    pub fn new(number: f64) -> Self {
        const CANONICAL_NAN: u64 = 0x7ff8_0000_0000_0000;
        Double(if number.is_nan() { CANONICAL_NAN } else { number.to_bits() })
    }

    /// A double from its IEEE-754 bits, unchanged.
    pub fn from_bits(bits: u64) -> Self {
        Double(bits)
    }

    /// The IEEE-754 bits.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The number as an `f64`.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// A code point up to 10ffff, surrogates included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Character(u32);

impl Character {
    /// The character with this code point. `None` if it is above 10ffff.
    pub fn new(code: u32) -> Option<Self> {
        (code <= 0x10_ffff).then_some(Character(code))
    }

    /// The code point.
    pub fn code(self) -> u32 {
        self.0
    }

    fn write(self, out: &mut Vec<u8>) {
        let bytes = self.0.to_be_bytes();
        let used = match self.0 {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 3,
        };
        out.push(0x3b + used as u8);
        out.extend_from_slice(&bytes[4 - used..]);
    }
}

/// The name of a symbol or keyword: 1 to 128 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// A name. `None` if it is empty or longer than 128 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=NAME_BYTES_MAX).contains(&bytes.len()).then(|| Name(bytes.into()))
    }

    /// The bytes, nearly always UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the encoding. The length is one raw byte, not a count: 128 is `80`.
    fn write(&self, tag: u8, out: &mut Vec<u8>) {
        out.push(tag);
        out.push(self.0.len() as u8);
        out.extend_from_slice(&self.0);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A number of an extension type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extension {
    kind: u8,
    number: u64,
}

impl Extension {
    /// The type of account addresses.
    pub const ADDRESS: u8 = 0x0a;

    /// A number of an extension type. `None` unless `kind` is at most 15 and `number` below 2^63.
    pub fn new(kind: u8, number: u64) -> Option<Self> {
        (kind < 16 && number >> 63 == 0).then_some(Extension { kind, number })
    }

    /// The extension type, 0 to 15.
    pub fn kind(self) -> u8 {
        self.kind
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.number
    }

    fn write(self, out: &mut Vec<u8>) {
        out.push(0xe0 | self.kind);
        write_count(self.number, out);
    }
}

/// A dense record: a vector of fields under one of sixteen types.
#[derive(Clone)]
pub struct Record(pub(crate) Arc<crate::vector::Retagged>);

impl Record {
    /// A record of type `kind`. `None` if `kind` is above 15.
    pub fn new(kind: u8, fields: Vector) -> Option<Self> {
        let retagged = || Record(Arc::new(crate::vector::Retagged::new(0xd0 | kind, fields)));
        (kind < 16).then(retagged)
    }

    /// The record type, 0 to 15.
    pub fn kind(&self) -> u8 {
        self.0.tag() & 0x0f
    }

    /// The fields, by position.
    pub fn fields(&self) -> &Vector {
        self.0.vector()
    }
}

/// A cell that consists of a header and one or two slots: signed values, coded values, syntax.
pub(crate) struct Wrapped {
    header: Box<[u8]>,
    slots: Vec<Value>,
    memo: Memo,
}

impl Wrapped {
    pub(crate) fn new(header: &[u8], slots: Vec<Value>) -> Self {
        Wrapped { header: header.into(), slots, memo: Memo::default() }
    }

    pub(crate) fn with_memo(mut self, memo: Memo) -> Self {
        self.memo = memo;
        self
    }
}

impl Node for Wrapped {
    fn memo(&self) -> &Memo {
        &self.memo
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header);
        self.slots.iter().for_each(|slot| slot.write_slot(out));
    }

    fn visit_children(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        self.slots.iter().for_each(|slot| visit(CellRef::Value(slot)));
    }

    fn load_all(self: &Arc<Self>, loader: &mut Loader<'_>) -> Result<Arc<Self>, LoadError> {
        let slots: Result<_, _> = self.slots.iter().map(|slot| loader.value(slot)).collect();
        Ok(Arc::new(Wrapped::new(&self.header, slots?)))
    }

    fn of_value(_: &Value) -> Option<&Arc<Self>> {
        None
    }
}

/// A datum with metadata.
#[derive(Clone)]
pub struct Syntax(pub(crate) Arc<Wrapped>);

impl Syntax {
    pub(crate) const TAG: u8 = 0x88;

    /// A datum with metadata. Empty metadata is encoded as nil.
    pub fn new(datum: Value, metadata: &Map) -> Self {
        let metadata = if metadata.is_empty() { Value::Nil } else { Value::Map(metadata.clone()) };
        Syntax(Arc::new(Wrapped::new(&[Self::TAG], vec![datum, metadata])))
    }

    /// The value that the metadata describes.
    pub fn datum(&self) -> &Value {
        &self.0.slots[0]
    }

    /// The metadata: a non-empty map, or nil.
    pub fn metadata(&self) -> &Value {
        &self.0.slots[1]
    }
}

/// A value with an Ed25519 signature over its child slot. The signature is not part of the rules of
/// the encoding and is not checked here.
#[derive(Clone)]
pub struct Signed(pub(crate) Arc<Wrapped>);

impl Signed {
    pub(crate) const TAG: u8 = 0x90;
    pub(crate) const TAG_WITHOUT_KEY: u8 = 0x91;

    /// A signed value that contains its public key.
    pub fn new(key: &[u8; 32], signature: &[u8; 64], value: Value) -> Self {
        let mut header = vec![Self::TAG];
        header.extend_from_slice(key);
        header.extend_from_slice(signature);
        Signed(Arc::new(Wrapped::new(&header, vec![value])))
    }

    /// The bytes that are signed: the slot of the value.
    pub fn message(value: &Value) -> Vec<u8> {
        encode_slot(value)
    }

    /// The public key. `None` if the cell does not contain it.
    pub fn key(&self) -> Option<&[u8]> {
        (self.0.header[0] == Self::TAG).then(|| &self.0.header[1..33])
    }

    /// The 64 bytes of the signature.
    pub fn signature(&self) -> &[u8] {
        &self.0.header[self.0.header.len() - 64..]
    }

    /// The signed value.
    pub fn value(&self) -> &Value {
        &self.0.slots[0]
    }
}

/// A value with a code that says how to read it.
#[derive(Clone)]
pub struct Coded(pub(crate) Arc<Wrapped>);

impl Coded {
    /// A coded value of type `kind`. `None` if `kind` is above 15.
    pub fn new(kind: u8, code: Value, value: Value) -> Option<Self> {
        (kind < 16).then(|| Coded(Arc::new(Wrapped::new(&[0xc0 | kind], vec![code, value]))))
    }

    /// The code that says how to read the value.
    pub fn code(&self) -> &Value {
        &self.0.slots[0]
    }

    /// The coded value.
    pub fn value(&self) -> &Value {
        &self.0.slots[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_three_words() {
        assert_eq!(size_of::<Value>(), 24);
    }

    #[test]
    fn integers_and_doubles_are_never_equal() {
        assert_ne!(Value::from(1), Value::from(1.0));
        assert_ne!(Value::from(0.0), Value::from(-0.0));
        assert_eq!(Value::from(f64::NAN), Value::from(-f64::NAN));
    }
}
