//! The number of entries that a user's workspace and operations have.
//!
//! The numbers are stored next to the namespaces and change in the same commit. What a change adds and
//! removes is counted, not the namespace: an entry is counted when it is written and once more when it is
//! removed. Only a namespace that was written before there were numbers is counted as a whole, once.

use std::collections::HashMap;

use catena_engine::{Failure, RootId, Roots};
use catena_value::{CellSource, Map, Value, ValueId};

use crate::covia::query::{entries, len, load_failure};
use crate::limits::ENTRIES_PER_USER_MAX;

/// A container whose entries are being counted.
struct Counting {
    id: ValueId,
    /// Its own entries.
    len: u64,
    /// Its own entries and those of what is counted below it.
    total: u64,
    /// Containers below it that are not counted yet.
    open: Vec<Value>,
}

/// Returns the number of entries of a value and of everything below it, or a number above the most that a
/// user may have. Equal containers are counted once: a value that contains itself many times over takes
/// as long as its distinct parts.
pub(crate) fn count_entries(value: &Value, cells: &dyn CellSource) -> Result<u64, Failure> {
    if !is_container(value) {
        return Ok(0);
    }
    let mut known: HashMap<ValueId, u64> = HashMap::new();
    let mut path = vec![begin_counting(value, cells)?];
    let mut visited = 0u64;
    while let Some(mut current) = path.pop() {
        if let Some(below) = current.open.pop() {
            let id = below.id();
            match known.get(&id) {
                Some(total) => {
                    current.total = current.total.saturating_add(*total);
                    path.push(current);
                }
                None => {
                    path.push(current);
                    path.push(begin_counting(&below, cells)?);
                }
            }
            continue;
        }
        visited = visited.saturating_add(current.len);
        known.insert(current.id, current.total);
        match path.last_mut() {
            Some(parent) => parent.total = parent.total.saturating_add(current.total),
            None => return Ok(current.total),
        }
        if visited > ENTRIES_PER_USER_MAX {
            return Ok(visited);
        }
    }
    Ok(0)
}

fn begin_counting(value: &Value, cells: &dyn CellSource) -> Result<Counting, Failure> {
    let len = len(value).unwrap_or(0);
    let mut open = Vec::new();
    if len <= ENTRIES_PER_USER_MAX {
        for entry in entries(value, 0, cells) {
            let entry = entry.map_err(|error| load_failure(&error))?;
            if is_container(&entry.value) {
                open.push(entry.value);
            }
        }
    }
    Ok(Counting { id: value.id(), len, total: len, open })
}

fn is_container(value: &Value) -> bool {
    len(value).is_some_and(|len| len > 0)
}

/// Records that a change of a namespace adds and removes entries. `current` is the namespace before it.
/// Fails if the user would have too many entries.
pub(crate) fn account(
    roots: &mut Roots,
    root: &RootId,
    current: &Value,
    (added, removed): (u64, u64),
) -> Result<(), Failure> {
    if added == removed {
        return Ok(());
    }
    let counts = roots.get(&RootId::entry_counts())?.and_then(Value::as_map).cloned();
    let counts = counts.unwrap_or_default();
    let number = |name: &str| counts.field(name).and_then(Value::as_i64);
    let number = |name: &str| number(name).and_then(|number| u64::try_from(number).ok());
    let (name, other) = if *root == RootId::workspace() { ("w", "o") } else { ("o", "w") };
    let before = match number(name) {
        Some(before) => before,
        None => count_entries(current, roots.cells())?,
    };
    let after = before.saturating_add(added).saturating_sub(removed);
    if added > removed && after.saturating_add(number(other).unwrap_or(0)) > ENTRIES_PER_USER_MAX {
        let text = format!("a user has at most {ENTRIES_PER_USER_MAX} entries in `w` and `o`");
        return Err(Failure::new("too_many_entries", text));
    }
    let after = Value::from(i64::try_from(after).unwrap_or(i64::MAX));
    let changed: Map =
        counts.insert(name.into(), after, roots.cells()).map_err(|error| load_failure(&error))?;
    roots.set(&RootId::entry_counts(), Some(changed.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;
    use catena_value::NoCells;

    #[test]
    fn entries_on_all_levels_are_counted() {
        let count = |text: &str| count_entries(&value(text), &NoCells).unwrap();
        assert_eq!(count("5"), 0);
        assert_eq!(count("{}"), 0);
        assert_eq!(count(r#"{"a":1,"b":[1,2,{"c":[]}]}"#), 6);
        assert_eq!(count(r#"[[1,2],[1,2],{"a":[1,2]}]"#), 10);
    }

    #[test]
    fn a_value_that_contains_itself_is_counted_by_its_distinct_parts() {
        let mut whole = value("[1]");
        for _ in 0..20 {
            whole = catena_value::Vector::from_items(vec![whole.clone(), whole]).into();
        }
        assert_eq!(count_entries(&whole, &NoCells).unwrap(), (1 << 20) + (1 << 21) - 2);
        for _ in 0..200 {
            whole = catena_value::Vector::from_items(vec![whole.clone(), whole]).into();
        }
        assert!(count_entries(&whole, &NoCells).unwrap() > ENTRIES_PER_USER_MAX);
    }
}
