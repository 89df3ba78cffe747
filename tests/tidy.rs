//! Keeps the tree honest: who may depend on whom, what every file begins with, what no file says,
//! and what may enter the dependency tree.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every file git knows or would know, with its path from the root.
fn files() -> Vec<(String, PathBuf)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).unwrap();
    let files: Vec<_> = names
        .lines()
        .map(|name| (name.to_owned(), root().join(name)))
        .filter(|(_, path)| path.is_file())
        .collect();
    assert!(files.len() > 20, "git ls-files lists too little: {files:?}");
    files
}

/// Rust files that end up in a binary or library, not in tests.
fn sources() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter_map(|(name, path)| {
        let is_source = name.starts_with("crates/") && name.contains("/src/");
        let is_test = name.ends_with("/tests.rs");
        (is_source && !is_test && name.ends_with(".rs"))
            .then(|| (name, fs::read_to_string(path).unwrap()))
    })
}

/// What each crate may use of the others. Arrows point down, never up or sideways.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("value", &[]),
    ("job", &["value"]),
    ("auth", &["value"]),
    ("sandbox", &[]),
    ("store", &["job", "value"]),
    ("engine", &["store", "job", "auth", "value"]),
    ("adapters", &["engine", "store", "job", "auth", "value"]),
    ("api", &["auth", "value"]),
    ("executor", &["sandbox", "api", "value"]),
    ("server", &["adapters", "engine", "store", "job", "api", "auth", "value"]),
    (
        "cli",
        &[
            "server", "executor", "sandbox", "adapters", "engine", "store", "job", "api", "auth",
            "value",
        ],
    ),
];

/// The one crate that may use `unsafe`: it cannot inherit the workspace's lints, which forbid it.
const MAY_BE_UNSAFE: &str = "sandbox";

#[test]
fn dependencies_point_down() {
    let may_use: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let mut checked = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let allowed = may_use.get(name.as_str()).unwrap_or_else(|| {
            panic!("crates/{name} is not in the list of crates; a new one needs its place there")
        });
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"catena-{name}\"")), "crates/{name}");
        if name != MAY_BE_UNSAFE {
            let inherits = manifest.contains("[lints]\nworkspace = true");
            assert!(inherits, "crates/{name} has its own lints");
        }
        let normal = manifest.split("[dev-dependencies]").next().unwrap();
        for line in normal.lines().filter_map(|line| line.strip_prefix("catena-")) {
            let used: String = line.chars().take_while(|c| c.is_ascii_lowercase()).collect();
            assert!(allowed.contains(&used.as_str()), "{name} must not depend on {used}");
        }
        checked += 1;
    }
    assert!(checked >= 3, "only {checked} crates found");
}

/// The lines of a section of a manifest, without comments.
fn section(manifest: &str, head: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_crate_with_unsafe_code_keeps_all_other_lints() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let path = root().join("crates").join(MAY_BE_UNSAFE).join("Cargo.toml");
    let own = fs::read_to_string(path).unwrap();
    let changes = [
        ("rust", "unsafe_code = \"forbid\"", "unsafe_op_in_unsafe_fn = \"deny\""),
        ("clippy", "", "undocumented_unsafe_blocks = \"deny\""),
    ];
    for (tool, removed, added) in changes {
        let mut expected = section(&workspace, &format!("[workspace.lints.{tool}]"));
        assert!(expected.len() > 3, "{expected:?}");
        expected.retain(|line| line != removed);
        expected.push(added.to_owned());
        let mut found = section(&own, &format!("[lints.{tool}]"));
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "lints of {tool}");
    }
}

#[test]
fn unsafe_code_is_in_two_files() {
    for (name, text) in sources() {
        let is_allowed = ["crates/sandbox/src/sys.rs", "crates/sandbox/src/launch.rs"];
        if !is_allowed.contains(&name.as_str()) {
            // Written in pieces, so that this file does not contain them.
            for word in [["unsafe", " {"], ["unsafe", " fn"]].map(|parts| parts.concat()) {
                assert!(!text.contains(&word), "{name} contains {word}");
            }
        }
    }
}

#[test]
fn pure_crates_touch_nothing() {
    let forbidden = [
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::time",
        "std::thread::",
        "SystemTime",
        "Instant::",
        "tokio",
        "rand::",
    ];
    let mut checked = 0;
    for (name, text) in sources() {
        let is_pure =
            ["value", "job", "auth"].iter().any(|c| name.starts_with(&format!("crates/{c}/")));
        if !is_pure {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for word in forbidden {
            assert!(!code.contains(word), "{name} uses {word}: pure crates take it as an argument");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} files checked");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for (name, text) in sources() {
        assert!(text.starts_with("//! "), "{name} must begin with what it is for");
    }
}

#[test]
fn nothing_unfinished_is_left() {
    // Written in pieces, so that this file does not contain them.
    let words =
        [["to", "do!("], ["unimple", "mented!("], ["FIX", "ME"], ["XX", "X"], ["db", "g!("]];
    for (name, text) in sources() {
        for word in words.map(|parts| parts.concat()) {
            assert!(!text.contains(&word), "{name} contains {word}");
        }
    }
}

#[test]
fn no_file_names_this_machine_or_a_registry() {
    let words = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["/ho", "me/"],
        ["crat", "es.io"],
        ["py", "pi.org"],
        ["npm", "js"],
        ["deb", "ian.org"],
    ];
    for (name, path) in files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        // The lock file names the source of each package in its own words.
        if name == "Cargo.lock" {
            continue;
        }
        for word in words.map(|parts| parts.concat()) {
            assert!(!text.contains(&word), "{name} contains {word}");
        }
    }
}

#[test]
fn source_files_stay_readable() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 800, "{name} has {lines} lines: is it one idea?");
    }
}

#[test]
fn documents_that_must_exist_do() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "LICENSE",
        "docs/glossary.md",
        "test",
        ".ci/run",
        "deny.toml",
        "clippy.toml",
    ] {
        let text =
            fs::read_to_string(root().join(name)).unwrap_or_else(|_| panic!("{name} is missing"));
        assert!(!text.trim().is_empty(), "{name} is empty");
    }
}

/// The strings of a list in `deny.toml`, from the line that starts with `head`.
fn deny_list(head: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let start = text.find(head).unwrap_or_else(|| panic!("deny.toml has no {head}"));
    let rest = &text[start + head.len()..];
    let end = rest.find("\n]").map_or(usize::MAX, |at| at).min(rest.find("]\n").unwrap());
    let quoted = |part: &str| part.split('"').nth(1).map(str::to_owned);
    match head {
        "deny = [" => rest[..end].lines().filter_map(quoted).collect(),
        _ => rest[..end].split(',').filter_map(quoted).collect(),
    }
}

#[test]
fn nothing_banned_is_in_the_dependency_tree() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let banned = deny_list("deny = [");
    assert!(banned.contains(&"openssl-sys".to_owned()), "{banned:?}");
    for name in banned {
        assert!(!lock.contains(&format!("name = \"{name}\"\n")), "{name} is banned by deny.toml");
    }
}

#[test]
fn every_dependency_has_an_accepted_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let accepted = deny_list("allow = [");
    assert!(accepted.contains(&"MIT".to_owned()), "{accepted:?}");
    for package in metadata["packages"].as_array().unwrap() {
        let name = &package["name"];
        let licence =
            package["license"].as_str().unwrap_or_else(|| panic!("{name} has no licence"));
        let is_accepted =
            |term: &str| accepted.iter().any(|ok| ok == term.trim_matches(['(', ')', ' ']));
        // Old manifests write `/` for `OR`. Each `AND` part needs one accepted alternative.
        let holds = licence
            .split(" AND ")
            .all(|part| part.replace('/', " OR ").split(" OR ").any(is_accepted));
        assert!(holds, "{name} has licence {licence}");
    }
}
