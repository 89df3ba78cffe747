//! Members that users write, in definitions, requests and settings: which of them are not known, and
//! which known member was probably meant.
//!
//! Names that begin with `x-` are free to use: they are never unknown.

use std::fmt;

use catena_value::Map;

use crate::limits::{COMPARED_CHARS_MAX, MEMBER_CHARS_MAX, UNKNOWN_MEMBERS_MAX};

/// The members that an object may have.
#[derive(Debug, Clone, Copy)]
pub struct Members {
    /// Their names.
    pub known: &'static [&'static str],
    /// Names that are not known and are easily taken for a member, because other systems have it. Each
    /// has the member that serves the same purpose, or nothing if none does.
    pub mistaken: &'static [(&'static str, Option<&'static str>)],
}

/// A member that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMember {
    /// Its name, of which a long one is cut off.
    pub name: String,
    /// The known member that is most similar to it, or serves its purpose.
    pub nearest: Option<&'static str>,
    /// True if its author probably meant a known member, or something that does not exist.
    pub is_near_miss: bool,
}

impl fmt::Display for UnknownMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNKNOWN} `{}`", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; the nearest is `{nearest}`"),
            None => Ok(()),
        }
    }
}

/// How the description of an unknown member begins.
const UNKNOWN: &str = "unknown member";

/// Returns true if the description of a problem is that of an unknown member.
pub fn describes_unknown_member(problem: &str) -> bool {
    problem.starts_with(UNKNOWN)
}

impl Members {
    /// Members without names that are easily taken for one.
    pub const fn new(known: &'static [&'static str]) -> Self {
        Members { known, mistaken: &[] }
    }

    /// Returns the members of a map that are not known, ordered by name; at most
    /// [`UNKNOWN_MEMBERS_MAX`] of them.
    pub fn unknown(&self, map: &Map) -> Vec<UnknownMember> {
        let mut unknown = Vec::new();
        map.for_each_field(|name, _| {
            let is_known = |name: &str| self.known.contains(&name) || is_free(name);
            // Nearly all names are short and known, and cost no allocation.
            if name.as_str().is_some_and(is_known) || unknown.len() >= UNKNOWN_MEMBERS_MAX {
                return;
            }
            let name = name.to_text().unwrap_or_default();
            if !is_known(&name) {
                unknown.push(self.describe(&name));
            }
        });
        unknown.sort_by(|a, b| a.name.cmp(&b.name));
        unknown
    }

    fn describe(&self, name: &str) -> UnknownMember {
        let cut: String = name.chars().take(MEMBER_CHARS_MAX).collect();
        let plain = plain(&cut);
        let mistaken = self.mistaken.iter().find(|(other, _)| plain == self::plain(other));
        if let Some((_, nearest)) = mistaken {
            return UnknownMember { name: cut, nearest: *nearest, is_near_miss: true };
        }
        let nearest = nearest(&plain, self.known.iter().copied());
        let is_near_miss = nearest.is_some_and(|(known, distance)| {
            let len = plain.chars().count().max(known.chars().count());
            distance <= (len / 3).clamp(1, 2)
        });
        UnknownMember { name: cut, nearest: nearest.map(|(known, _)| known), is_near_miss }
    }
}

/// Returns true if a name is free to use.
pub fn is_free(name: &str) -> bool {
    name.starts_with("x-")
}

/// Returns the most similar of these names and its distance. Case, underscores and hyphens make no
/// difference.
pub fn nearest<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<(&'a str, usize)> {
    let name = plain(name);
    let with_distance = |known: &'a str| (known, edit_distance(&name, &plain(known)));
    known.into_iter().map(with_distance).min_by_key(|(_, distance)| *distance)
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Returns the number of characters that must be inserted, removed or replaced to turn one name into
/// another. Only the beginning of long names is compared.
pub fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().take(COMPARED_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, a) in from.chars().take(COMPARED_CHARS_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use catena_value::Value;

    use super::*;

    const MEMBERS: Members = Members {
        known: &["input", "retry", "timeoutMs", "url", "jobHeaders"],
        mistaken: &[("retries", Some("retry")), ("when", None)],
    };

    fn unknown(name: &str) -> Option<UnknownMember> {
        let map: Map = [(name, Value::Nil)].into_iter().collect();
        MEMBERS.unknown(&map).pop()
    }

    #[test]
    fn a_near_miss_is_a_small_change_or_the_word_of_another_system() {
        for (name, nearest) in [
            ("inputs", Some("input")),
            ("Input", Some("input")),
            ("retrys", Some("retry")),
            ("retries", Some("retry")),
            ("timeout", Some("timeoutMs")),
            ("timeout_ms", Some("timeoutMs")),
            ("job-header", Some("jobHeaders")),
            ("when", None),
        ] {
            let found = unknown(name).unwrap();
            assert_eq!((found.nearest, found.is_near_miss), (nearest, true), "{name}");
        }
        for name in ["description", "colour", "model", "name", "tags", ""] {
            assert!(!unknown(name).unwrap().is_near_miss, "{name}");
        }
        for name in ["input", "x-input", "x-"] {
            assert_eq!(unknown(name), None, "{name}");
        }
    }

    #[test]
    fn unknown_members_are_described_in_order() {
        let map: Map =
            ["when", "retrys", "input"].map(|name| (name, Value::Nil)).into_iter().collect();
        let texts: Vec<String> = MEMBERS.unknown(&map).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["unknown member `retrys`; the nearest is `retry`", "unknown member `when`"]
        );
        assert!(texts.iter().all(|text| describes_unknown_member(text)));
        assert!(!describes_unknown_member("must be text"));
    }

    #[test]
    fn long_names_and_many_names_are_cut_off() {
        let found = unknown(&"é".repeat(1_000_000)).unwrap();
        assert_eq!(found.name.chars().count(), MEMBER_CHARS_MAX);
        let many: Map = (0..1_000).map(|n| (format!("member{n}"), Value::Nil)).collect();
        assert_eq!(MEMBERS.unknown(&many).len(), UNKNOWN_MEMBERS_MAX);
    }

    #[test]
    fn the_distance_counts_changes() {
        for (a, b, distance) in [
            ("", "", 0),
            ("a", "", 1),
            ("echo", "ecko", 1),
            ("retry", "retries", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (distance, distance), "{a} {b}");
        }
    }
}
