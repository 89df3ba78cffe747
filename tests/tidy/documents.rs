//! Documents against the tree: links and paths exist, invariants name their checks, and the main
//! path of a job is as short as the page that shows it says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::imports::defines;
use super::tree::{assert_none, layers, line_of, root, sources, texts};

/// Folders with which a path from the root begins.
const FOLDERS: [&str; 4] = ["crates/", "docs/", "tests/", "bench/"];

/// Endings by which a text in backticks is taken for a path.
const ENDINGS: [&str; 6] = [".rs", ".md", ".py", ".toml", ".json", ".txt"];

/// Characters that no path of ours has: the text is a pattern or an example.
const NOT_IN_PATHS: [char; 10] = ['{', '}', '*', '<', '>', ' ', '…', '|', '$', '='];

/// The page that shows the main path of a job, and the section that does.
const LIFE_OF_A_JOB: &str = "docs/internals/life-of-a-job.md";
const MAIN_PATH: &str = "## One echo job";

/// At most so many files on the main path, each entered at most so often.
const FILES_ON_PATH_MAX: usize = 10;
const VISITS_MAX: usize = 3;

/// The text with fenced code blocks blanked out.
fn without_blocks(text: &str) -> String {
    let mut is_code = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || is_code {
            kept.extend(line.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            kept.push_str(line);
        }
        is_code ^= is_fence;
    }
    kept
}

/// The targets of `[text](target)`, with their offsets.
fn links(text: &str) -> Vec<(usize, &str)> {
    let starts = text.match_indices("](").map(|(at, _)| at + 2);
    starts.filter_map(|at| Some((at, &text[at..at + text[at..].find(')')?]))).collect()
}

/// The texts between single backticks, with their offsets.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find('`') {
        let start = at + open + 1;
        let Some(length) = text[start..].find('`') else { break };
        spans.push((start, &text[start..start + length]));
        at = start + length + 1;
    }
    spans
}

/// A path from the root and the item that is named in it, if a text in backticks is one.
fn path_in(span: &str) -> Option<(&str, Option<&str>)> {
    let (path, item) = match span.split_once("::") {
        Some((path, item)) => (path, Some(item)),
        None => (span, None),
    };
    let is_pattern = path.contains(NOT_IN_PATHS) || path.starts_with(['/', '-', '.']);
    let is_ours = FOLDERS.iter().any(|folder| path.starts_with(folder));
    let is_file = path.contains('/') && ENDINGS.iter().any(|ending| path.ends_with(ending));
    (!is_pattern && !path.contains("://") && (is_ours || is_file)).then_some((path, item))
}

/// What a page refers to that `exists` (given a path from the root and an item) does not know.
fn dangling(page: &str, text: &str, exists: &dyn Fn(&str, Option<&str>) -> bool) -> Vec<String> {
    let text = without_blocks(text);
    let folder = Path::new(page).parent().unwrap().to_str().unwrap();
    let mut wrong = Vec::new();
    for (at, target) in links(&text) {
        let path = target.split('#').next().unwrap();
        let is_relative = !target.contains("://") && !target.starts_with("mailto:");
        if is_relative && !path.is_empty() && !exists(&joined(folder, path), None) {
            wrong.push(format!("{page}:{}: link to {target}", line_of(&text, at)));
        }
    }
    for (at, span) in code_spans(&text) {
        let Some((path, item)) = path_in(span) else { continue };
        if !exists(path, item) && !exists(&joined(folder, path), item) {
            wrong.push(format!("{page}:{}: `{span}`", line_of(&text, at)));
        }
    }
    wrong
}

fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a path exists, and its file defines the item: the last part of `Type::function`.
fn is_in_tree(path: &str, item: Option<&str>) -> bool {
    let Ok(text) = fs::read_to_string(root().join(path)) else {
        return item.is_none() && root().join(path).exists();
    };
    item.is_none_or(|item| {
        let name = item.rsplit("::").next().unwrap().trim_end_matches("()");
        defines(&layers(&text).code, name)
    })
}

/// The part of a page below a heading, up to the next heading of the same level.
fn section<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("{heading}\n"))?;
    Some(after.split("\n## ").next().unwrap())
}

/// The items of a list, with the lines that continue them.
fn items(section: &str, is_start: impl Fn(&str) -> bool) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in section.lines() {
        if is_start(line) {
            items.push(line.to_owned());
        } else if line.starts_with("  ") && !items.is_empty() {
            let last = items.last_mut().unwrap();
            last.push(' ');
            last.push_str(line.trim());
        }
    }
    items
}

/// The bullets that do not name a test, as `path/to/file.rs::name_of_the_test`, that `is_test`
/// knows.
fn unchecked(section: &str, is_test: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let bullets = items(section, |line| line.starts_with("- "));
    let lacks_check = |bullet: &String| {
        let tests = code_spans(bullet).into_iter().filter_map(|(_, span)| path_in(span));
        let tests: Vec<_> = tests.filter_map(|(path, item)| Some((path, item?))).collect();
        tests.is_empty() || !tests.iter().all(|(path, item)| is_test(path, item))
    };
    bullets.into_iter().filter(lacks_check).collect()
}

/// Whether a file contains a test of that name.
fn is_test(path: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    has_test(&text, name)
}

fn has_test(text: &str, name: &str) -> bool {
    let code = layers(text).code;
    [format!("fn {name}("), format!("fn {name} (")].iter().any(|function| {
        code.match_indices(function.as_str()).any(|(at, _)| {
            let item = code[..at].rsplit(['}', ';']).next().unwrap_or_default();
            item.contains("test]") || item.contains("test(")
        })
    })
}

/// The files and functions that the numbered list of a section names, in order.
fn main_path(section: &str) -> Vec<(String, String)> {
    let is_start = |line: &str| {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && line[digits..].starts_with(". ")
    };
    let steps = items(section, is_start);
    let named = steps.iter().flat_map(|step| code_spans(step));
    let named = named.filter_map(|(_, span)| path_in(span));
    named.filter_map(|(path, item)| Some((path.to_owned(), item?.to_owned()))).collect()
}

/// What is wrong with a main path, apart from names that do not exist.
fn path_violations(path: &[(String, String)]) -> Vec<String> {
    let mut visits: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, _) in path {
        *visits.entry(file).or_default() += 1;
    }
    let mut wrong = Vec::new();
    if visits.len() > FILES_ON_PATH_MAX {
        wrong.push(format!("{} files, at most {FILES_ON_PATH_MAX}", visits.len()));
    }
    let often = visits.iter().filter(|(_, count)| **count > VISITS_MAX);
    wrong.extend(often.map(|(file, count)| format!("{file} is entered {count} times")));
    wrong
}

#[test]
fn links_and_paths_in_documents_exist() {
    let mut violations = Vec::new();
    for (page, text) in texts(".md") {
        violations.extend(dangling(&page, &text, &is_in_tree));
    }
    assert_none(&violations, "Paths are given from the root or from the page's own folder.");
}

#[test]
fn every_invariant_names_its_check() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = section(&text, "## Invariants").expect("ARCHITECTURE.md has invariants");
    assert!(items(section, |line| line.starts_with("- ")).len() >= 8, "too few invariants");
    let advice =
        "Name the test that fails if the sentence is false, as `file.rs::name`, or drop it.";
    assert_none(&unchecked(section, &is_test), advice);
}

#[test]
fn the_main_path_of_a_job_is_short_and_exists() {
    let text = fs::read_to_string(root().join(LIFE_OF_A_JOB)).unwrap();
    let section = section(&text, MAIN_PATH).expect("the page has the section");
    let path = main_path(section);
    assert!(path.len() >= 8, "too few functions are named: {path:?}");
    let mut violations = path_violations(&path);
    for (file, function) in &path {
        if !is_in_tree(file, Some(function)) {
            violations.push(format!("{file} defines no {function}"));
        }
    }
    assert_none(&violations, "Keep docs/internals/life-of-a-job.md in step with the code.");
}

/// The failure codes that a source file writes out.
fn failure_codes(text: &str) -> Vec<&str> {
    let calls = ["Failure::new(", "Failure::transient("];
    let starts = calls.iter().flat_map(|call| text.match_indices(call).map(|(at, m)| at + m.len()));
    starts.filter_map(|at| text[at..].trim_start().strip_prefix('"')?.split('"').next()).collect()
}

#[test]
fn every_failure_code_is_documented() {
    let page = fs::read_to_string(root().join("docs/reference/failures.md")).unwrap();
    let documented: Vec<&str> = code_spans(&page).into_iter().map(|(_, span)| span).collect();
    let mut violations = Vec::new();
    let mut found = 0;
    for (name, text) in sources() {
        let is_ours = ["crates/engine/src/", "crates/adapters/src/"];
        if !is_ours.iter().any(|folder| name.starts_with(folder)) || name.contains("test_") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for code in failure_codes(code) {
            found += 1;
            if !documented.contains(&code) {
                violations.push(format!("{name}: {code}"));
            }
        }
    }
    assert!(found > 50, "only {found} failure codes were found");
    assert_none(&violations, "Describe the failure code in docs/reference/failures.md.");
}

#[test]
fn a_dangling_link_or_path_is_found() {
    let page = "See [a](../b.md#part), [web](https://x.y), [gone](gone.md), `crates/a/src/b.rs::f`,\n\
        `crates/a/src/b.rs::g`, `docs/none.md`, `a/*.rs`, `GET /x/y`, `not a/path.rs`.\n\
        ```sh\ncat `docs/in/block.md`\n```\n";
    let known = |path: &str, item: Option<&str>| {
        (path == "docs/b.md") || (path == "crates/a/src/b.rs" && item != Some("g"))
    };
    assert_eq!(
        dangling("docs/x/page.md", page, &known),
        [
            "docs/x/page.md:1: link to gone.md",
            "docs/x/page.md:2: `crates/a/src/b.rs::g`",
            "docs/x/page.md:2: `docs/none.md`",
        ]
    );
}

#[test]
fn an_invariant_without_a_check_is_found() {
    let section = "Intro.\n\n- First\n  (checked by `tests/a.rs::holds`).\n- Second.\n- Third (`tests/a.rs::gone`).\n";
    let known = |path: &str, name: &str| path == "tests/a.rs" && name == "holds";
    assert_eq!(unchecked(section, &known), ["- Second.", "- Third (`tests/a.rs::gone`)."]);
    let text = "#[tokio::test]\nasync fn one() {}\nfn two() {}\n#[test]\nfn three() {}\n";
    assert!(has_test(text, "one") && has_test(text, "three") && !has_test(text, "two"));
}

#[test]
fn a_main_path_that_is_too_long_is_found() {
    let list = "1. `crates/a/src/x.rs::f` reads;\n   `crates/a/src/x.rs::g` too.\n2. `crates/a/src/y.rs::h`.\nText `crates/z.rs::no`.\n";
    let path = main_path(list);
    assert_eq!(path.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["f", "g", "h"]);
    assert!(path_violations(&path).is_empty());
    let often: Vec<_> = (0..4).map(|n| ("x.rs".to_owned(), format!("f{n}"))).collect();
    assert_eq!(path_violations(&often), ["x.rs is entered 4 times"]);
    let many: Vec<_> = (0..11).map(|n| (format!("x{n}.rs"), "f".to_owned())).collect();
    assert_eq!(path_violations(&many), ["11 files, at most 10"]);
}
