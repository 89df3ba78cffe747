//! Names of artifacts: which are allowed, and which would collide on other file systems.

use std::collections::{BTreeMap, BTreeSet};

use unicode_normalization::UnicodeNormalization as _;

/// Checks a path in the job folder.
pub(super) fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 255 {
        return Err("the name must have 1 to 255 bytes");
    }
    if name.chars().any(is_unprintable) {
        return Err("the name has control or direction characters");
    }
    if name.contains('\\') {
        return Err("the name has a backslash");
    }
    Ok(())
}

/// Control characters, and those that make a name look like another one.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The name for people, without what a terminal would obey.
pub(super) fn printable(name: &str) -> String {
    let shown = |c: char| if is_unprintable(c) { '\u{fffd}' } else { c };
    name.chars().take(255).map(shown).collect()
}

/// Names that another file system, or a reader, could take for one another.
pub(super) fn clashes<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut by_form: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        by_form.entry(form(name)).or_default().push(name);
    }
    let several = by_form.into_values().filter(|names| names.len() > 1);
    several.flatten().map(str::to_owned).collect()
}

/// Equal for names that differ in case or Unicode form only.
fn form(name: &str) -> String {
    let folded: String =
        name.nfkc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    folded.nfkc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_clash() {
        for (a, b) in [("a", "A"), ("\u{e9}", "e\u{301}"), ("\u{df}", "SS"), ("\u{fb01}", "fi")] {
            assert_eq!(clashes([a, b, "other"].into_iter()).len(), 2, "{a} {b}");
        }
        assert!(clashes(["a", "b"].into_iter()).is_empty());
    }

    #[test]
    fn strange_names_are_refused() {
        for bad in ["", "a\nb", "a\u{7f}", "a\u{202e}gnp.exe", "a\\b", &"x".repeat(256)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check("sub/plot 1.png").is_ok());
    }
}
