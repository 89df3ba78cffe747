//! Keeps the tree consistent with its own rules: dependencies between crates, folders and files,
//! names and words, documents against the code, and what may enter the dependency tree.
//!
//! Each checker is a function over texts with tests of its own, which show that it finds what it
//! is there to find. Modules: [`tree`] (the files, and Rust split into layers), [`imports`] (which
//! file uses which), [`names`], [`words`], [`documents`], [`advisories`] (known problems of packages).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "tidy/advisories.rs"]
mod advisories;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use tree::{assert_none, files, layers, root, sources, without_tests};

/// The crates of this workspace that each crate may depend on. `executor` and `sandbox` are planned.
const MAY_USE: [(&str, &[&str]); 13] = [
    ("value", &[]),
    ("job", &["auth", "value"]),
    ("auth", &["value"]),
    ("sandbox", &[]),
    ("render", &[]),
    ("ledger", &[]),
    ("store", &["ledger", "job", "value"]),
    ("engine", &["store", "job", "auth", "value"]),
    ("adapters", &["engine", "store", "job", "api", "auth", "value"]),
    ("api", &["job", "auth", "value"]),
    ("executor", &["render", "sandbox", "api", "job", "value"]),
    ("server", &["adapters", "engine", "store", "job", "api", "auth", "value"]),
    (
        "cli",
        &[
            "server", "executor", "sandbox", "adapters", "engine", "store", "job", "api", "auth",
            "value",
        ],
    ),
];

/// The folders and top-level files of a crate, lowest first: a file may use files of its own rank
/// and of lower ones. `lib.rs` has no rank: it only lists and re-exports.
const FOLDER_RANKS: [(&str, &[&str]); 2] = [
    (
        "engine",
        &[
            "limits",
            "error",
            "runtime",
            "requests",
            "operations",
            "jobs",
            "execution",
            "views",
            "orchestration",
            "commands",
            "background",
            "engine",
        ],
    ),
    (
        "server",
        &[
            "limits", "values", "tools", "config", "log", "metrics", "identity", "http",
            "describe", "grid", "canvas", "worker", "contract", "mcp", "console", "routes",
            "aborts", "venue",
        ],
    ),
];

/// At most so many files of a crate may use each other in a circle.
const CYCLE_FILES_MAX: usize = 5;

/// Crates in which larger circles are allowed, with the reason.
const CYCLES_ALLOWED: [(&str, &str); 1] =
    [("value", "a value contains collections, and collections contain values")];

/// The source files of a crate, by their path below `src/`.
fn files_of(name: &str) -> Vec<(String, String)> {
    let prefix = format!("crates/{name}/src/");
    let own =
        sources().filter_map(|(path, text)| Some((path.strip_prefix(&prefix)?.to_owned(), text)));
    own.collect()
}

/// The names of all crates.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn imports_point_down_the_ranks() {
    let mut violations = Vec::new();
    for (name, ranks) in FOLDER_RANKS {
        let files = files_of(name);
        let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        let uses = imports::uses(&files);
        assert!(uses.len() > 50, "only {} uses found in crates/{name}", uses.len());
        let found = imports::rank_violations(&uses, &names, ranks);
        violations.extend(found.into_iter().map(|what| format!("crates/{name}: {what}")));
    }
    let advice = "Move what is used down, or the user up; the order is in FOLDER_RANKS.";
    assert_none(&violations, advice);
}

/// The console and the TypeScript library verify with the same files: those of the library.
#[test]
fn the_verifier_in_typescript_has_one_home() {
    let names = |path: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root().join(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let library = names("sdk/typescript/src/verify");
    assert!(library.len() > 10, "only {} files were found", library.len());
    let copies: Vec<String> =
        names("ui/src/verify").into_iter().filter(|name| library.contains(name)).collect();
    assert_none(&copies, "The verifier is in sdk/typescript/src/verify; ui imports it as @verify.");
}

#[test]
fn no_large_circle_of_files() {
    let mut violations = Vec::new();
    for name in crates() {
        if CYCLES_ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
            continue;
        }
        let uses = imports::uses(&files_of(&name));
        for circle in imports::cycles(&uses, CYCLE_FILES_MAX) {
            let files = circle.join(", ");
            violations.push(format!("crates/{name}: {} files: {files}", circle.len()));
        }
    }
    let advice = "These files use each other in a circle: move what both sides need below them.";
    assert_none(&violations, advice);
}

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
            panic!("crates/{name} is not in MAY_USE: add it, with what it may depend on")
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
fn unsafe_code_is_in_three_files() {
    for (name, text) in sources() {
        let is_allowed =
            ["block_cache", "launch", "sys"].map(|file| format!("crates/sandbox/src/{file}.rs"));
        if !is_allowed.contains(&name) {
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
        let code = without_tests(&layers(&text).code);
        for word in forbidden {
            assert!(!code.contains(word), "{name} uses {word}: pure crates take it as an argument");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} files checked");
}

#[test]
fn lints_forbid_unsafe_code_and_unwrap() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for lint in
        ["unsafe_code = \"forbid\"", "unwrap_used = \"deny\"", "disallowed_methods = \"deny\""]
    {
        assert!(manifest.contains(lint), "Cargo.toml must contain {lint}");
    }
    let banned = fs::read_to_string(root().join("clippy.toml")).unwrap();
    for call in ["SystemTime::now", "Instant::now", "thread::sleep", "env::var"] {
        assert!(banned.contains(call), "clippy.toml must ban {call}");
    }
}

/// What opens connections to other hosts, and the files that may. `TcpStream::connect` in the
/// others would bypass the operator's list of hosts.
#[test]
fn connections_are_opened_in_two_places() {
    let openers = ["TcpStream::connect", "TcpSocket::new", "HttpConnector", "UdpSocket::bind"];
    let may_open = ["crates/adapters/src/outbound", "crates/api/src/client"];
    let mut found = Vec::new();
    for (name, text) in sources() {
        let code = without_tests(&layers(&text).code);
        if openers.iter().any(|opener| code.contains(opener)) {
            found.push(name);
        }
    }
    assert!(found.len() >= 2, "the openers are not found any more: {found:?}");
    found.retain(|name| !may_open.iter().any(|place| name.starts_with(place)));
    assert_none(&found, "Only the outbound adapter and the API client open connections.");
}

#[test]
fn only_the_ledger_uses_the_index_library() {
    let uses_it = |name: &String| {
        let manifest =
            fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        manifest.lines().any(|line| line.starts_with("redb"))
    };
    let users: Vec<String> = crates().into_iter().filter(uses_it).collect();
    assert_eq!(users, ["ledger"], "redb is an implementation detail of the ledger");
}

/// Adapters that the engine must not know by name. Comments may name them as examples.
#[test]
fn the_engine_names_no_adapter() {
    let adapters = ["http:", "json:", "schema:", "test:", "grid:", "scheduler:"];
    let mut found = Vec::new();
    let mut checked = 0;
    for (name, text) in sources().filter(|(name, _)| name.starts_with("crates/engine/src/")) {
        checked += 1;
        let code = without_tests(&text);
        let strings = layers(&code).strings;
        for adapter in adapters {
            let mut rest = strings.split_whitespace().filter_map(|word| word.strip_prefix(adapter));
            if rest.any(|operation| operation.starts_with(|c: char| c.is_ascii_lowercase())) {
                found.push(format!("{name}: {adapter}"));
            }
        }
    }
    assert!(checked > 20, "only {checked} files checked");
    assert_none(&found, "The engine knows adapters only through the trait.");
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
