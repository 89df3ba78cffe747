//! Reading parts of a value. No more cells are loaded than the result needs.

use std::cell::Cell;
use std::collections::BTreeMap;

use catena_engine::Failure;
use catena_value::path::{Path, PathError};
use catena_value::{
    CellSource, Extent, ExtentError, LoadError, Map, NoCells, Value, ValueId, encode, json,
    new_cells,
};

use crate::covia::address::path_failure;
use crate::fields::{array, object};
use crate::limits::{AGGREGATE_ENTRIES_MAX, AGGREGATE_GROUPS_MAX};

/// A source that provides cells up to a number of bytes.
struct BoundedCells<'a> {
    cells: &'a dyn CellSource,
    left: Cell<i64>,
}

impl<'a> BoundedCells<'a> {
    fn new(cells: &'a dyn CellSource, bytes_max: i64) -> Self {
        BoundedCells { cells, left: Cell::new(bytes_max) }
    }

    fn take(&self, bytes: usize) {
        self.left.set(self.left.get().saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX)));
    }

    fn is_exhausted(&self) -> bool {
        self.left.get() < 0
    }
}

impl CellSource for BoundedCells<'_> {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        let missing = LoadError::Missing { id: *id };
        if self.is_exhausted() {
            return Err(missing);
        }
        let value = self.cells.load(id)?;
        self.take(encode(&value).len());
        if self.is_exhausted() { Err(missing) } else { Ok(value) }
    }
}

pub(crate) fn load_failure(error: &LoadError) -> Failure {
    Failure::new("internal", format!("stored data cannot be read: {error}"))
}

/// Returns the value at a path. `None` if there is none, or if the path leads through a value that
/// has no members.
pub(crate) fn find(
    root: &Value,
    path: &Path,
    cells: &dyn CellSource,
) -> Result<Option<Value>, Failure> {
    match path.get(root, cells) {
        Ok(found) => Ok(found),
        Err(PathError::NotAContainer { .. }) => Ok(None),
        Err(error) => Err(path_failure(error)),
    }
}

/// Returns the name of a value's type, as other venues report it.
pub(crate) fn type_name(value: Option<&Value>) -> &'static str {
    match value {
        None | Some(Value::Nil) => "Nil",
        Some(Value::Map(_)) => "Map",
        Some(Value::Index(_)) => "Index",
        Some(Value::Vector(_)) => "Vector",
        Some(Value::List(_)) => "List",
        Some(Value::Set(_)) => "Set",
        Some(Value::String(_)) => "String",
        Some(Value::Blob(_)) => "Blob",
        Some(Value::Integer(_)) => "Integer",
        Some(Value::Double(_)) => "Double",
        Some(Value::Bool(_)) => "Boolean",
        Some(_) => "Value",
    }
}

/// Returns the number of entries of a container. `None` if the value is no container.
pub(crate) fn len(value: &Value) -> Option<u64> {
    match value {
        Value::Map(map) => Some(map.len()),
        Value::Index(index) => Some(index.len()),
        Value::Vector(vector) => Some(vector.len()),
        Value::List(list) => Some(list.len()),
        Value::Set(set) => Some(set.len()),
        _ => None,
    }
}

fn number(count: u64) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

fn id_of(value: &Value) -> Value {
    value.id().to_string().into()
}

fn absent() -> Value {
    object([("exists", false.into()), ("type", type_name(None).into())])
}

/// Returns true if a value is written out in at most this many bytes. Parts that are not loaded are not
/// counted beyond the first of them.
fn fits(value: &Value, bytes_max: i64) -> bool {
    let bytes = u64::try_from(bytes_max).unwrap_or(0);
    let measured = Extent { bytes, depth: usize::MAX }.measure(value, &NoCells);
    !matches!(measured, Err(ExtentError::Bytes(_)))
}

/// Returns the length of the encoding of a value that is in memory.
fn encoded_len(value: &Value) -> u64 {
    let cells = new_cells(value, |_| false);
    let below: usize = cells.iter().map(|cell| cell.bytes.len()).sum();
    (encode(value).len() + below) as u64
}

/// Reads a value completely, unless its encoding or its text is longer than `bytes_max`. Nothing is loaded
/// beyond that.
pub(crate) fn read(
    found: Option<&Value>,
    bytes_max: i64,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    let Some(value) = found else { return Ok(absent()) };
    let Some(loaded) = load_within(value, bytes_max, cells)? else { return Ok(truncated(value)) };
    Ok(object([
        ("exists", true.into()),
        ("type", type_name(Some(&loaded)).into()),
        ("id", id_of(&loaded)),
        ("valueBytes", number(encoded_len(&loaded))),
        ("value", loaded),
    ]))
}

/// Loads a value completely. `None` if its encoding or its text is longer than `bytes_max`.
pub(crate) fn load_within(
    value: &Value,
    bytes_max: i64,
    cells: &dyn CellSource,
) -> Result<Option<Value>, Failure> {
    let bounded = BoundedCells::new(cells, bytes_max);
    bounded.take(encode(value).len());
    if bounded.is_exhausted() || !fits(value, bytes_max) {
        return Ok(None);
    }
    match value.fully_loaded(&bounded) {
        Ok(loaded) => Ok(Some(loaded).filter(|loaded| fits(loaded, bytes_max))),
        Err(_) if bounded.is_exhausted() => Ok(None),
        Err(error) => Err(load_failure(&error)),
    }
}

/// Returns the Value ID of what was found, as the result of a read shows it.
pub(crate) fn id_member(found: Option<&Value>) -> Option<(&'static str, Value)> {
    found.map(|value| ("id", id_of(value)))
}

/// The result of reading a value that is too large.
fn truncated(value: &Value) -> Value {
    let bytes = match value {
        Value::String(text) => Some(text.len()),
        Value::Blob(blob) => Some(blob.len()),
        _ => None,
    };
    let mut members = vec![
        ("exists", true.into()),
        ("type", type_name(Some(value)).into()),
        ("id", id_of(value)),
        ("truncated", true.into()),
        ("value", Value::Nil),
    ];
    members.extend(bytes.map(|bytes| ("valueBytes", number(bytes))));
    members.extend(len(value).map(|count| ("count", number(count))));
    members.into_iter().collect::<Map>().into()
}

/// Returns the text of a key: itself if it is text, else its JSON.
fn key_text(key: &Value, cells: &dyn CellSource) -> Result<Value, Failure> {
    let key = key.fully_loaded(cells).map_err(|error| load_failure(&error))?;
    match key {
        Value::String(_) => Ok(key),
        other => Ok(json::to_string(&other).unwrap_or_default().into()),
    }
}

/// Lists the keys of a map, or describes another value.
pub(crate) fn list(
    found: Option<&Value>,
    offset: u64,
    limit: usize,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    let Some(value) = found else { return Ok(absent()) };
    let mut members =
        vec![("exists", true.into()), ("type", type_name(found).into()), ("id", id_of(value))];
    members.extend(len(value).map(|count| ("count", number(count))));
    if let Value::Map(map) = value {
        let mut keys = Vec::new();
        for key in map.keys_from(offset, cells).take(limit) {
            keys.push(key_text(&key.map_err(|error| load_failure(&error))?, cells)?);
        }
        members.push(("keys", array(keys)));
        members.push(("offset", number(offset)));
    }
    Ok(members.into_iter().collect::<Map>().into())
}

/// Returns a page of a container's entries. It ends early, and says so, if its entries have more than
/// `bytes_max` bytes.
pub(crate) fn slice(
    found: Option<&Value>,
    offset: u64,
    limit: usize,
    bytes_max: i64,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    let Some(value) = found else { return Ok(absent()) };
    let mut members =
        vec![("exists", true.into()), ("type", type_name(found).into()), ("id", id_of(value))];
    let Some(count) = len(value) else { return Ok(members.into_iter().collect::<Map>().into()) };
    let bounded = BoundedCells::new(cells, bytes_max);
    let mut values = Vec::new();
    let mut is_truncated = false;
    let mut shown = Extent { bytes: u64::try_from(bytes_max).unwrap_or(0), depth: usize::MAX };
    for entry in entries(value, offset, &bounded).take(limit) {
        let entry = match entry.and_then(|entry| entry.load(&bounded)) {
            Ok(entry) => entry,
            Err(_) if bounded.is_exhausted() => {
                is_truncated = true;
                break;
            }
            Err(error) => return Err(load_failure(&error)),
        };
        bounded.take(encode(&entry).len());
        let Ok(bytes) = shown.measure(&entry, &NoCells) else {
            is_truncated = true;
            break;
        };
        shown.bytes -= bytes;
        values.push(entry);
        if bounded.is_exhausted() {
            is_truncated = true;
            break;
        }
    }
    members.push(("count", number(count)));
    members.push(("offset", number(offset)));
    members.push(("values", array(values)));
    if is_truncated {
        members.push(("truncated", true.into()));
    }
    Ok(members.into_iter().collect::<Map>().into())
}

/// An entry of a container.
pub(crate) struct ContainerEntry {
    /// The key, if the container has keys.
    pub(crate) key: Option<Value>,
    /// The value; its branches may not be loaded.
    pub(crate) value: Value,
}

impl ContainerEntry {
    /// Returns the entry as a slice shows it, completely loaded.
    fn load(self, cells: &dyn CellSource) -> Result<Value, LoadError> {
        let value = self.value.fully_loaded(cells)?;
        let Some(key) = self.key else { return Ok(value) };
        let key = key.fully_loaded(cells)?;
        Ok(object([("key", key), ("value", value)]))
    }
}

/// Returns the entries of a container from a position on.
pub(crate) fn entries<'a>(
    value: &Value,
    from: u64,
    cells: &'a dyn CellSource,
) -> Box<dyn Iterator<Item = Result<ContainerEntry, LoadError>> + 'a> {
    let skip = usize::try_from(from).unwrap_or(usize::MAX);
    let item = |item: Result<Value, LoadError>| Ok(ContainerEntry { key: None, value: item? });
    let pair = |entry: Result<(Value, Value), LoadError>| {
        let (key, value) = entry?;
        Ok(ContainerEntry { key: Some(key), value })
    };
    match value {
        Value::Map(map) => Box::new(map.iter_from(from, cells).map(pair)),
        Value::Index(index) => Box::new(index.iter(cells).skip(skip).map(pair)),
        Value::Vector(vector) => Box::new(vector.iter_from(from, cells).map(item)),
        Value::Set(set) => Box::new(set.iter(cells).skip(skip).map(item)),
        Value::List(list) => {
            let list = list.clone();
            let items = (from..list.len())
                .map(move |at| list.get(at, cells).map(Option::unwrap_or_default));
            Box::new(items.map(item))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// The entries that one operation may still visit.
struct Budget(u64);

impl Budget {
    fn take(&mut self) -> Result<(), Failure> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| {
            let text = format!("more than {AGGREGATE_ENTRIES_MAX} entries would have to be read");
            Failure::new("too_many_entries", text)
        })?;
        Ok(())
    }
}

/// Counts the entries `depth` steps below a value.
pub(crate) fn count(
    found: Option<&Value>,
    depth: u32,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    let Some(value) = found.filter(|value| len(value).is_some()) else { return Ok(absent()) };
    let mut budget = Budget(AGGREGATE_ENTRIES_MAX);
    let count = count_below(value, depth, &mut budget, cells)?;
    Ok(object([("exists", true.into()), ("count", number(count)), ("id", id_of(value))]))
}

fn count_below(
    value: &Value,
    depth: u32,
    budget: &mut Budget,
    cells: &dyn CellSource,
) -> Result<u64, Failure> {
    if depth <= 1 {
        return Ok(len(value).unwrap_or(0));
    }
    let mut sum = 0u64;
    for entry in entries(value, 0, cells) {
        budget.take()?;
        let entry = entry.map_err(|error| load_failure(&error))?;
        sum = sum.saturating_add(count_below(&entry.value, depth - 1, budget, cells)?);
    }
    Ok(sum)
}

/// Counts the entries `depth` steps below a value, by the value at a path of each.
pub(crate) fn aggregate(
    found: Option<&Value>,
    depth: u32,
    group_by: &Path,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    let Some(value) = found.filter(|value| len(value).is_some()) else { return Ok(absent()) };
    let mut groups = BTreeMap::new();
    let mut budget = Budget(AGGREGATE_ENTRIES_MAX);
    group_below(value, depth, group_by, &mut groups, &mut budget, cells)?;
    let count: u64 = groups.values().sum();
    let group = |(key, count): (String, u64)| (key, object([("count", number(count))]));
    let groups: Map = groups.into_iter().map(group).collect();
    Ok(object([
        ("exists", true.into()),
        ("count", number(count)),
        ("groups", groups.into()),
        ("id", id_of(value)),
    ]))
}

fn group_below(
    value: &Value,
    depth: u32,
    group_by: &Path,
    groups: &mut BTreeMap<String, u64>,
    budget: &mut Budget,
    cells: &dyn CellSource,
) -> Result<(), Failure> {
    for entry in entries(value, 0, cells) {
        budget.take()?;
        let entry = entry.map_err(|error| load_failure(&error))?;
        if depth > 1 {
            group_below(&entry.value, depth - 1, group_by, groups, budget, cells)?;
            continue;
        }
        let key = group_key(find(&entry.value, group_by, cells)?.as_ref(), cells)?;
        *groups.entry(key).or_insert(0) += 1;
        if groups.len() > AGGREGATE_GROUPS_MAX {
            let text = format!("there are more than {AGGREGATE_GROUPS_MAX} groups");
            return Err(Failure::new("too_many_entries", text));
        }
    }
    Ok(())
}

/// Returns the key of a group: the text itself, or the JSON of another value.
fn group_key(value: Option<&Value>, cells: &dyn CellSource) -> Result<String, Failure> {
    let Some(value) = value else { return Ok("null".to_owned()) };
    if len(value).is_some() {
        return Ok(type_name(Some(value)).to_owned());
    }
    let loaded = value.fully_loaded(cells).map_err(|error| load_failure(&error))?;
    match loaded.to_text() {
        Some(text) => Ok(text.into_owned()),
        None => Ok(json::to_string(&loaded).unwrap_or_default()),
    }
}
