//! Maps: a [hash tree](crate::hashed) of keys and values.

use std::fmt;
use std::sync::Arc;

use crate::cell::{CellSource, LoadError, Loader};
use crate::encode::{CellRef, node_id};
use crate::hashed::{Entries, Entry, HashNode};
use crate::id::ValueId;
use crate::limits::EMBEDDED_BYTES_MAX;
use crate::value::Value;

/// A map from values to values.
#[derive(Clone)]
pub struct Map(pub(crate) Arc<HashNode<MapEntry>>);

impl Map {
    /// The empty map.
    pub fn new() -> Self {
        Map::from_entries(Vec::new())
    }

    pub(crate) fn from_entries(entries: Vec<MapEntry>) -> Self {
        Map(Arc::new(HashNode::from_entries(entries)))
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.0.count()
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.count() == 0
    }

    /// The value under `key`. `None` if the key is absent.
    pub fn get(&self, key: &Value, cells: &dyn CellSource) -> Result<Option<Value>, LoadError> {
        let entry = self.0.find(&key.id(), cells)?;
        entry.map(|entry| entry.value.loaded(cells)).transpose()
    }

    /// The value under a string key. `None` if the key is absent.
    pub fn get_named(
        &self,
        name: &str,
        cells: &dyn CellSource,
    ) -> Result<Option<Value>, LoadError> {
        match self.0.as_leaf() {
            // See `field`. A key that is too long to be part of the leaf need not be in memory.
            Some(entries) if name.len() < EMBEDDED_BYTES_MAX / 2 => {
                let entry = entries.iter().find(|entry| entry.is_named(name));
                entry.map(|entry| entry.value.loaded(cells)).transpose()
            }
            _ => self.get(&name.into(), cells),
        }
    }

    /// The value under a string key, without loading anything. `None` if the key is absent or not
    /// in memory. Right for maps that were read from JSON or built by code; use [`Map::get`] for
    /// maps that come from a store.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let entry = match self.0.as_leaf() {
            // A leaf has so few entries that comparing each is cheaper than hashing the name.
            Some(entries) => entries.iter().find(|entry| entry.is_named(name)),
            None => self.0.find_in_memory(&Value::from(name).id()),
        };
        entry.map(|entry| &entry.value)
    }

    /// All entries in memory; values that are not in memory are [`Value::Unloaded`]. Right for the
    /// same maps as [`Map::field`].
    pub fn fields(&self) -> Vec<(&Value, &Value)> {
        let mut fields = Vec::with_capacity(self.len().min(64) as usize);
        self.0.visit_in_memory(&mut |entry| fields.push((&entry.key, &entry.value)));
        fields
    }

    /// The entries of a map of at most eight, without loading any; values that are not in memory are
    /// [`Value::Unloaded`]. `None` if there are more.
    pub fn as_leaf(&self) -> Option<impl Iterator<Item = (&Value, &Value)>> {
        Some(self.0.as_leaf()?.iter().map(|entry| (&entry.key, &entry.value)))
    }

    /// Calls `visit` for every entry that [`Map::fields`] returns, without collecting them.
    pub fn for_each_field<'a>(&'a self, mut visit: impl FnMut(&'a Value, &'a Value)) {
        self.0.visit_in_memory(&mut |entry| visit(&entry.key, &entry.value));
    }

    /// This map with `value` under `key`.
    pub fn insert(
        &self,
        key: Value,
        value: Value,
        cells: &dyn CellSource,
    ) -> Result<Self, LoadError> {
        let node = self.0.insert(MapEntry::new(key, value), 0, cells)?;
        Ok(Map(Arc::new(node)))
    }

    /// This map without `key`; unchanged if the key is absent.
    pub fn remove(&self, key: &Value, cells: &dyn CellSource) -> Result<Self, LoadError> {
        Ok(self.0.remove(&key.id(), cells)?.map_or_else(|| self.clone(), Map))
    }

    /// All entries, in ascending order of the IDs of their keys.
    pub fn iter<'a>(&self, cells: &'a dyn CellSource) -> MapIter<'a> {
        self.iter_from(0, cells)
    }

    /// The entries from the position `start` on, in the same order. Finding the first loads
    /// O(log n) cells.
    pub fn iter_from<'a>(&self, start: u64, cells: &'a dyn CellSource) -> MapIter<'a> {
        MapIter(Entries::from(&self.0, start, cells))
    }

    /// The keys from the position `start` on, in the order of [`Map::iter`], without loading values.
    pub fn keys_from<'a>(&self, start: u64, cells: &'a dyn CellSource) -> MapKeys<'a> {
        MapKeys(Entries::from(&self.0, start, cells))
    }

    pub(crate) fn id(&self) -> ValueId {
        node_id(&*self.0)
    }

    pub(crate) fn is_evidently_one_cell(&self) -> bool {
        let is_embedded = |entry: &MapEntry| {
            entry.key.is_evidently_embedded() && entry.value.is_evidently_embedded()
        };
        self.0.as_leaf().is_some_and(|entries| entries.iter().all(is_embedded))
    }
}

impl Default for Map {
    fn default() -> Self {
        Map::new()
    }
}

impl<K: Into<Value>, V: Into<Value>> FromIterator<(K, V)> for Map {
    /// If a key occurs several times, the last value wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entry = |(key, value): (K, V)| MapEntry::new(key.into(), value.into());
        Map::from_entries(entries.into_iter().map(entry).collect())
    }
}

/// Builds a map. If a key occurs several times, the last value wins.
#[derive(Default)]
pub struct MapBuilder(Vec<MapEntry>);

impl MapBuilder {
    /// An empty builder with capacity for this many entries.
    pub fn with_capacity(entries: usize) -> Self {
        MapBuilder(Vec::with_capacity(entries))
    }

    /// Adds an entry.
    pub fn push(&mut self, key: impl Into<Value>, value: impl Into<Value>) {
        self.0.push(MapEntry::new(key.into(), value.into()));
    }

    /// Whether an entry with this string key has been added.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|entry| entry.is_named(name))
    }

    /// Returns the map.
    pub fn build(self) -> Map {
        Map::from_entries(self.0)
    }
}

impl<K: Into<Value>, V: Into<Value>> Extend<(K, V)> for MapBuilder {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| self.push(key, value));
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_leaf() {
            Some(entries) => {
                f.debug_map().entries(entries.iter().map(|e| (&e.key, &e.value))).finish()
            }
            None => write!(f, "map of {}", self.len()),
        }
    }
}

impl Map {
    /// All entries; values that are not in memory are [`Value::Unloaded`].
    pub fn slots<'a>(
        &self,
        cells: &'a dyn CellSource,
    ) -> impl Iterator<Item = Result<(Value, Value), LoadError>> + use<'a> {
        let entries = self.iter(cells).0;
        entries
            .map(move |entry| entry.and_then(|entry| Ok((entry.key.loaded(cells)?, entry.value))))
    }
}

/// An iterator over the entries of a [`Map`].
pub struct MapIter<'a>(Entries<'a, MapEntry>);

impl Iterator for MapIter<'_> {
    type Item = Result<(Value, Value), LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let cells = self.0.cells;
        let entry = self.0.next()?;
        Some(entry.and_then(|entry| Ok((entry.key.loaded(cells)?, entry.value.loaded(cells)?))))
    }
}

/// An iterator over the keys of a map. It ends after the first error.
pub struct MapKeys<'a>(Entries<'a, MapEntry>);

impl Iterator for MapKeys<'_> {
    type Item = Result<Value, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let cells = self.0.cells;
        let entry = self.0.next()?;
        Some(entry.and_then(|entry| entry.key.loaded(cells)))
    }
}

#[derive(Clone)]
pub(crate) struct MapEntry {
    pub(crate) hash: ValueId,
    pub(crate) key: Value,
    pub(crate) value: Value,
}

impl MapEntry {
    pub(crate) fn new(key: Value, value: Value) -> Self {
        MapEntry { hash: key.id(), key, value }
    }

    fn is_named(&self, name: &str) -> bool {
        matches!(&self.key, Value::String(key) if *key == *name)
    }
}

impl Entry for MapEntry {
    const TAG: u8 = 0x82;

    fn hash(&self) -> &ValueId {
        &self.hash
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.key.write_slot(out);
        self.value.write_slot(out);
    }

    fn visit(&self, visit: &mut dyn FnMut(CellRef<'_>)) {
        visit(CellRef::Value(&self.key));
        visit(CellRef::Value(&self.value));
    }

    fn load_all(&self, loader: &mut Loader<'_>) -> Result<Self, LoadError> {
        let key = loader.value(&self.key)?;
        let value = loader.value(&self.value)?;
        Ok(MapEntry { hash: self.hash, key, value })
    }

    fn of_value(value: &Value) -> Option<&Arc<HashNode<Self>>> {
        match value {
            Value::Map(Map(node)) => Some(node),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoCells;

    fn numbered(range: std::ops::Range<i64>) -> Map {
        range.map(|i| (format!("k{i}"), i)).collect()
    }

    #[test]
    fn the_shape_depends_on_the_keys_alone() {
        let mut map = Map::new();
        for i in 0..600 {
            assert_eq!(map.id(), numbered(0..i).id(), "{i} inserted");
            map = map.insert(format!("k{i}").into(), i.into(), &NoCells).unwrap();
        }
        for i in (0..600).rev() {
            map = map.remove(&format!("k{i}").into(), &NoCells).unwrap();
            assert_eq!(map.id(), numbered(0..i).id(), "{i} left");
        }
    }

    #[test]
    fn a_value_is_found_by_name_however_long_names_are_and_however_many_there_are() {
        for size in [0, 1, 8, 9, 600] {
            let long = "n".repeat(500);
            let map = numbered(0..size).insert(long.as_str().into(), 7.into(), &NoCells).unwrap();
            for name in ["k0", "k5", "absent", &long, &"a".repeat(500)] {
                let found = map.get_named(name, &NoCells).unwrap();
                assert_eq!(found, map.get(&name.into(), &NoCells).unwrap(), "{name} of {size}");
            }
        }
    }

    #[test]
    fn removing_what_is_absent_changes_nothing() {
        let map = numbered(0..40);
        assert_eq!(map.remove(&"absent".into(), &NoCells).unwrap().id(), map.id());
    }

    #[test]
    fn the_last_of_equal_keys_wins() {
        let map: Map = [("a", 1), ("b", 2), ("a", 3)].into_iter().collect();
        assert_eq!(map.len(), 2);
        assert_eq!(map.field("a"), Some(&Value::from(3)));
    }

    #[test]
    fn iteration_visits_every_entry_once() {
        let map = numbered(0..500);
        let mut seen: Vec<i64> =
            map.iter(&NoCells).map(|entry| entry.unwrap().1.as_i64().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
        assert_eq!(map.get(&"k77".into(), &NoCells).unwrap(), Some(77.into()));
        assert_eq!(map.get(&"k500".into(), &NoCells).unwrap(), None);
        assert_eq!(map.field("k77"), Some(&Value::from(77)));
        assert_eq!(map.field("k500"), None);
        assert_eq!(map.fields().len(), 500);
    }
}
