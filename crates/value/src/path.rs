//! Paths such as `w/records/1/name`, by which workspaces and orchestrations refer to parts of a
//! value.
//!
//! A segment is a member name in a map or an index, and a position in a vector or list; the
//! container to which it is applied decides. Writing creates missing maps along the path; it never
//! replaces a value that is not a container by one.

use std::fmt;

use crate::cell::{CellSource, LoadError};
use crate::index::IndexError;
use crate::limits::PATH_SEGMENTS_MAX;
use crate::map::Map;
use crate::value::Value;
use crate::vector::Vector;

/// A parsed path. The empty path refers to the value itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<String>);

/// The reason why a path is invalid or cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A segment is empty.
    #[error("path has an empty segment at position {at}")]
    EmptySegment {
        /// Index of the segment, from zero.
        at: usize,
    },
    /// The path has more than [`PATH_SEGMENTS_MAX`] segments.
    #[error("path has more than {PATH_SEGMENTS_MAX} segments")]
    TooLong,
    /// A segment is neither a name nor a position.
    #[error("path segment {at}: found {kind}, expected a string or a whole number of at least 0")]
    NotASegment {
        /// Index of the segment, from zero.
        at: usize,
        /// Type of the value.
        kind: &'static str,
    },
    /// A value along the path has no members.
    #[error("cannot descend into `{path}`: found {kind}, expected an object or array")]
    NotAContainer {
        /// Path of that value.
        path: Path,
        /// Type of the value.
        kind: &'static str,
    },
    /// The path does not name a position of an array that can be written.
    #[error("`{path}` is not a valid position in an array of length {len}")]
    NoPosition {
        /// Path including the position.
        path: Path,
        /// Length of the array.
        len: u64,
    },
    /// The value to append to is not an array.
    #[error("cannot append at `{path}`: found {kind}, expected an array")]
    NotAnArray {
        /// Path of that value.
        path: Path,
        /// Type of the value.
        kind: &'static str,
    },
    /// A branch could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<IndexError> for PathError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Load(error) => PathError::Load(error),
            IndexError::NotAKey => PathError::NotASegment { at: 0, kind: "value without bytes" },
        }
    }
}

/// An edit of the value at a path. The argument is the current value, `None` if there is none; the
/// result is the new value, `None` to remove it.
type Edit<'a> = &'a mut dyn FnMut(Option<&Value>) -> Result<Option<Value>, PathError>;

impl Path {
    /// Parses a path such as `a/b/1`; a leading slash is allowed.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.is_empty() {
            return Ok(Path::default());
        }
        Path::from_segments(text.split('/').map(str::to_owned))
    }

    /// Makes a path from its segments.
    pub fn from_segments(segments: impl IntoIterator<Item = String>) -> Result<Self, PathError> {
        let mut path = Vec::new();
        for (at, segment) in segments.into_iter().enumerate() {
            if segment.is_empty() {
                return Err(PathError::EmptySegment { at });
            }
            if at == PATH_SEGMENTS_MAX {
                return Err(PathError::TooLong);
            }
            path.push(segment);
        }
        Ok(Path(path))
    }

    /// Makes a path from JSON values: strings, and integers of at least 0.
    pub fn from_values(values: &[Value]) -> Result<Self, PathError> {
        if values.len() > PATH_SEGMENTS_MAX {
            return Err(PathError::TooLong);
        }
        let segment = |(at, value): (usize, &Value)| match value {
            Value::Integer(integer) if integer.as_i64().is_none_or(|n| n >= 0) => {
                Ok(integer.to_string())
            }
            Value::String(text) => match text.as_str() {
                Some(name) => Ok(name.to_owned()),
                None => Err(PathError::NotASegment { at, kind: "string that is too long" }),
            },
            other => Err(PathError::NotASegment { at, kind: other.kind() }),
        };
        values.iter().enumerate().map(segment).collect::<Result<_, _>>().map(Path)
    }

    /// The segments, from the root.
    pub fn segments(&self) -> &[String] {
        &self.0
    }

    fn prefix(&self, len: usize) -> Path {
        Path(self.0[..len].to_vec())
    }

    /// The value at this path below `root`. `None` if a member or position is absent.
    pub fn get(&self, root: &Value, cells: &dyn CellSource) -> Result<Option<Value>, PathError> {
        let mut value = root.loaded(cells)?;
        for (at, segment) in self.0.iter().enumerate() {
            match self.member(&value, at, segment, cells)? {
                Some(member) => value = member,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    fn member(
        &self,
        value: &Value,
        at: usize,
        segment: &str,
        cells: &dyn CellSource,
    ) -> Result<Option<Value>, PathError> {
        Ok(match value {
            Value::Map(map) => map.get(&Value::from(segment), cells)?,
            Value::Index(index) => index.get(&Value::from(segment), cells)?,
            Value::Vector(vector) => match position(segment) {
                Some(position) => vector.get(position, cells)?,
                None => None,
            },
            Value::List(list) => match position(segment) {
                Some(position) => list.get(position, cells)?,
                None => None,
            },
            other => {
                let path = self.prefix(at);
                return Err(PathError::NotAContainer { path, kind: other.kind() });
            }
        })
    }

    /// `root` with `value` at this path. Missing maps along the path are created. A position may be
    /// that of an element, or one past the last to append.
    pub fn set(
        &self,
        root: &Value,
        value: &Value,
        cells: &dyn CellSource,
    ) -> Result<Value, PathError> {
        self.change(root, 0, cells, &mut |_| Ok(Some(value.clone())))
            .map(|changed| changed.unwrap_or(Value::Nil))
    }

    /// `root` without the member at this path. An element of a vector is not removed but set to
    /// nil, so that the positions of the others keep their meaning.
    pub fn remove(&self, root: &Value, cells: &dyn CellSource) -> Result<Value, PathError> {
        if self.get(root, cells)?.is_none() {
            return Ok(root.clone());
        }
        self.change(root, 0, cells, &mut |_| Ok(None)).map(|changed| changed.unwrap_or(Value::Nil))
    }

    /// `root` with `value` appended to the array at this path, which is created if it is absent.
    pub fn append(
        &self,
        root: &Value,
        value: &Value,
        cells: &dyn CellSource,
    ) -> Result<Value, PathError> {
        let changed = self.change(root, 0, cells, &mut |current| match current {
            None | Some(Value::Nil) => Ok(Some(Vector::from_items(vec![value.clone()]).into())),
            Some(Value::Vector(vector)) => Ok(Some(vector.push(value.clone(), cells)?.into())),
            Some(other) => Err(PathError::NotAnArray { path: self.clone(), kind: other.kind() }),
        });
        changed.map(|changed| changed.unwrap_or(Value::Nil))
    }

    /// `value`, which is at the first `at` segments of this path, with `edit` applied at the
    /// complete path.
    fn change(
        &self,
        value: &Value,
        at: usize,
        cells: &dyn CellSource,
        edit: Edit<'_>,
    ) -> Result<Option<Value>, PathError> {
        let Some(segment) = self.0.get(at) else { return edit(Some(&value.loaded(cells)?)) };
        let value = match value.loaded(cells)? {
            Value::Nil => Value::Map(Map::new()),
            other => other,
        };
        let current = match &value {
            Value::Vector(vector) => {
                // A position that cannot be written is refused before anything below it is built.
                let len = vector.len();
                if position(segment).is_none_or(|position| position > len) {
                    return Err(PathError::NoPosition { path: self.prefix(at + 1), len });
                }
                self.member(&value, at, segment, cells)?
            }
            _ => self.member(&value, at, segment, cells)?,
        };
        let is_last = at + 1 == self.0.len();
        let changed = match current {
            Some(current) => self.change(&current, at + 1, cells, edit)?,
            None if is_last => edit(None)?,
            None => self.change(&Value::Nil, at + 1, cells, edit)?,
        };
        self.with_member(&value, at, segment, changed, cells).map(Some)
    }

    /// `value` with `member` at `segment`, or without it if `member` is `None`.
    fn with_member(
        &self,
        value: &Value,
        at: usize,
        segment: &str,
        member: Option<Value>,
        cells: &dyn CellSource,
    ) -> Result<Value, PathError> {
        let key = || Value::from(segment);
        Ok(match (value, member) {
            (Value::Map(map), Some(member)) => map.insert(key(), member, cells)?.into(),
            (Value::Map(map), None) => map.remove(&key(), cells)?.into(),
            (Value::Index(index), Some(member)) => index.insert(key(), member, cells)?.into(),
            (Value::Index(index), None) => index.remove(&key(), cells)?.into(),
            (Value::Vector(vector), member) => {
                let member = member.unwrap_or(Value::Nil);
                let position = position(segment).unwrap_or(vector.len());
                match vector.set(position, member.clone(), cells)? {
                    Some(changed) => changed.into(),
                    None => vector.push(member, cells)?.into(),
                }
            }
            (other, _) => {
                let path = self.prefix(at);
                return Err(PathError::NotAContainer { path, kind: other.kind() });
            }
        })
    }
}

/// Parses a position: a whole number in its shortest form, `1` but not `01` or `+1`.
fn position(segment: &str) -> Option<u64> {
    let is_plain = segment == "0" || !segment.starts_with(['0', '+']);
    segment.parse().ok().filter(|_| is_plain)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoCells, json};

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn a_segment_is_a_name_or_a_position_depending_on_the_container() {
        let root = value(r#"{"records":[{"name":"a"},{"name":"b"}],"1":"one"}"#);
        let get = |text: &str| path(text).get(&root, &NoCells).unwrap();
        assert_eq!(get("records/1/name"), Some("b".into()));
        assert_eq!(get("/1"), Some("one".into()));
        assert_eq!(get("records/2"), None);
        assert_eq!(get("records/01"), None);
        assert_eq!(get("records/name"), None);
        assert_eq!(get("").unwrap().id(), root.id());
        let inside = path("records/0/name/x").get(&root, &NoCells).unwrap_err();
        assert_eq!(
            inside.to_string(),
            "cannot descend into `records/0/name`: found string, expected an object or array"
        );
    }

    #[test]
    fn writing_creates_missing_maps_along_the_path() {
        let check = |root: &str, at: &str, expected: &str| {
            let changed = path(at).set(&value(root), &"v".into(), &NoCells).unwrap();
            assert_eq!(changed, value(expected), "{at}");
        };
        check("null", "a/b", r#"{"a":{"b":"v"}}"#);
        check(r#"{"a":{"c":1}}"#, "a/b", r#"{"a":{"b":"v","c":1}}"#);
        check(r#"{"a":[1,2]}"#, "a/1", r#"{"a":[1,"v"]}"#);
        check(r#"{"a":[1,2]}"#, "a/2", r#"{"a":[1,2,"v"]}"#);
        check(r#"{"a":[1,2]}"#, "a/2/b", r#"{"a":[1,2,{"b":"v"}]}"#);
        let beyond = path("a/3").set(&value(r#"{"a":[1,2]}"#), &Value::Nil, &NoCells).unwrap_err();
        assert_eq!(beyond.to_string(), "`a/3` is not a valid position in an array of length 2");
    }

    #[test]
    fn removing_and_appending_change_one_place() {
        let root = value(r#"{"a":{"b":1,"c":[1,2]}}"#);
        let removed = |at: &str| path(at).remove(&root, &NoCells).unwrap();
        assert_eq!(removed("a/b"), value(r#"{"a":{"c":[1,2]}}"#));
        assert_eq!(removed("a/c/0"), value(r#"{"a":{"b":1,"c":[null,2]}}"#));
        assert_eq!(removed("x/y"), root);
        let append = |at: &str| path(at).append(&root, &3.into(), &NoCells);
        assert_eq!(append("a/c").unwrap(), value(r#"{"a":{"b":1,"c":[1,2,3]}}"#));
        assert_eq!(append("d").unwrap(), value(r#"{"a":{"b":1,"c":[1,2]},"d":[3]}"#));
        let refused = append("a/b").unwrap_err();
        assert_eq!(refused.to_string(), "cannot append at `a/b`: found integer, expected an array");
    }

    #[test]
    fn paths_are_bounded_and_have_no_empty_segments() {
        assert!(matches!(Path::parse("a//b"), Err(PathError::EmptySegment { at: 1 })));
        assert!(matches!(Path::parse(&"a/".repeat(200)), Err(PathError::TooLong)));
        let refused = Path::from_values(&["a".into(), (-1).into()]);
        assert!(matches!(refused, Err(PathError::NotASegment { at: 1, .. })));
        let mixed = Path::from_values(&["a".into(), 2.into()]).unwrap();
        assert_eq!(mixed, path("a/2"));
    }
}
