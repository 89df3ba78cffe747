//! Compares the packages in `Cargo.lock` with a copied list of advisories, `tests/advisories.tsv`.
//!
//! The list says how old it is. It needs no network, so it runs everywhere; it cannot know of what was
//! published later.

use std::fs;

use semver::{Version, VersionReq};

use crate::tree::root;

/// Advisories that concern no code that Catena runs: ID and the reason.
const ACCEPTED: [(&str, &str); 2] =
    [("RUSTSEC-2026-0194", CITATION_STYLES), ("RUSTSEC-2026-0195", CITATION_STYLES)];

const CITATION_STYLES: &str = "only Typst's reader of citation styles uses that version of quick-xml, in a \
                               cell of the sandbox with limits of time and memory";

/// A problem of some versions of a package.
struct Advisory<'a> {
    id: &'a str,
    package: &'a str,
    /// Versions that do not have it.
    unaffected: Vec<VersionReq>,
    title: &'a str,
}

/// Parses a line of the list. `None` if it is a comment.
fn parse(line: &str) -> Option<Advisory<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.split('\t');
    let mut next = || fields.next().unwrap_or_else(|| panic!("an incomplete line: {line}"));
    let (id, package, unaffected, title) = (next(), next(), next(), next());
    let unaffected = unaffected.split(" | ").filter(|text| !text.is_empty());
    let unaffected = unaffected.map(|text| requirement(text, line)).collect();
    Some(Advisory { id, package, unaffected, title })
}

fn requirement(text: &str, line: &str) -> VersionReq {
    VersionReq::parse(text).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The name and version of every package in a lock file.
fn packages(lock: &str) -> Vec<(&str, Version)> {
    let mut found = Vec::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(text) = line.strip_prefix("name = ") {
            name = text.trim_matches('"');
        } else if let Some(text) = line.strip_prefix("version = \"") {
            found.push((name, Version::parse(text.trim_end_matches('"')).unwrap()));
        }
    }
    found
}

/// What the list says about the packages of a lock file.
fn findings(lock: &str, list: &str) -> Vec<String> {
    let advisories: Vec<Advisory<'_>> = list.lines().filter_map(parse).collect();
    let mut found = Vec::new();
    for (name, version) in packages(lock) {
        let concerns = |advisory: &&Advisory<'_>| {
            let is_accepted = ACCEPTED.iter().any(|(id, _)| *id == advisory.id);
            let is_fine = advisory.unaffected.iter().any(|fine| fine.matches(&version));
            advisory.package == name && !is_fine && !is_accepted
        };
        found.extend(
            advisories
                .iter()
                .filter(concerns)
                .map(|Advisory { id, title, .. }| format!("{name} {version}: {id} {title}")),
        );
    }
    found
}

#[test]
fn no_advisory_concerns_a_package_that_is_used() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (lock, list) = (read("Cargo.lock"), read("tests/advisories.tsv"));
    assert!(packages(&lock).len() > 100, "Cargo.lock was not understood");
    assert!(list.lines().count() > 500, "the list is not complete");
    let found = findings(&lock, &list);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_affected_version_is_found() {
    let lock = "[[package]]\nname = \"slab\"\nversion = \"0.4.10\"\n\n\
                [[package]]\nname = \"other\"\nversion = \"1.0.0\"\n";
    let list = "# comment\nA-1\tslab\t>= 0.4.11 | < 0.4.10\tout of bounds\nA-2\tother\t\tno fix\n\
                A-3\tslab\t<= 0.4.10\tfine\n";
    assert_eq!(findings(lock, list), ["slab 0.4.10: A-1 out of bounds", "other 1.0.0: A-2 no fix"]);
}
