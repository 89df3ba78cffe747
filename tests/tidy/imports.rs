//! Which file of a crate uses which other, read from `use` declarations and paths in the code.
//!
//! A name that a module re-exports counts as a use of the file that defines it, so that a façade
//! such as `lib.rs` connects nothing by itself. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{layers, without_tests};

/// One use of another file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    /// The file that uses.
    pub(crate) from: String,
    /// The file that is used.
    pub(crate) to: String,
    /// Whether it is only a `pub use`, which names something and does nothing with it.
    pub(crate) is_reexport: bool,
}

/// Longest chain of re-exports that is followed.
const REEXPORTS_MAX: usize = 8;

struct Import {
    /// The name under which it is known here; `*` for all names.
    alias: String,
    /// The path from the root of the crate.
    path: Vec<String>,
    is_public: bool,
}

struct Module {
    file: String,
    code: String,
    imports: Vec<Import>,
    /// Paths in the code, from the root of the crate.
    paths: Vec<Vec<String>>,
}

type Modules = BTreeMap<Vec<String>, Module>;

/// All uses between the files of one crate. Each file is given by its path below `src/` and its
/// text.
pub(crate) fn uses(files: &[(String, String)]) -> Vec<Use> {
    let paths: BTreeSet<Vec<String>> = files.iter().map(|(name, _)| module_path(name)).collect();
    let modules: Modules =
        files.iter().map(|(name, text)| (module_path(name), read(name, text, &paths))).collect();
    let mut found = BTreeSet::new();
    for module in modules.values() {
        let imports = module.imports.iter().map(|import| (&import.path, import.is_public));
        let inline = module.paths.iter().map(|path| (path, false));
        for (path, is_reexport) in imports.chain(inline) {
            let to = resolve(&modules, path, REEXPORTS_MAX);
            if let Some(to) = to.filter(|to| *to != module.file) {
                found.insert(Use { from: module.file.clone(), to: to.to_owned(), is_reexport });
            }
        }
    }
    found.into_iter().collect()
}

/// `a/b.rs` is `[a, b]`; `a/mod.rs` is `[a]`; the root of the crate is empty.
pub(crate) fn module_path(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem {
        "lib" | "main" | "mod" => Vec::new(),
        _ => stem.split('/').map(str::to_owned).collect(),
    }
}

fn read(file: &str, text: &str, modules: &BTreeSet<Vec<String>>) -> Module {
    let code = without_tests(&layers(text).code);
    let tokens = tokens(&code);
    let own = module_path(file);
    let mut imports = Vec::new();
    let mut raw = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let before = at.checked_sub(1).map_or("", |before| tokens[before].as_str());
        if token == "use" {
            // `pub use` and `pub(crate) use`; the parenthesis may also end a `pub(super)`.
            let is_public = matches!(before, "pub" | ")");
            let mut leaves = Vec::new();
            at = use_tree(&tokens, at + 1, &[], &mut leaves);
            for (alias, path) in leaves {
                if let Some(path) = absolute(&path, &own, modules) {
                    imports.push(Import { alias, path, is_public });
                }
            }
        } else if is_identifier(token) && !matches!(before, "::" | ".") {
            let mut path = vec![token.to_owned()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && tokens.get(at + 2).is_some_and(|next| is_identifier(next))
            {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            if path.len() > 1 {
                raw.push(path);
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    let paths = raw.iter().filter_map(|path| {
        let alias = imports.iter().find(|import| import.alias == path[0]);
        match alias {
            Some(import) => Some(import.path.iter().chain(&path[1..]).cloned().collect()),
            None => absolute(path, &own, modules),
        }
    });
    let paths = paths.collect();
    Module { file: file.to_owned(), code, imports, paths }
}

fn is_identifier(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Identifiers, `::` and single characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_alphanumeric() || first == '_' => {
                let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_');
                end.unwrap_or(rest.len())
            }
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

/// Reads one tree of a `use` declaration. Returns where it ends.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    leaves: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = use_tree(tokens, at, &path, leaves);
                    if tokens.get(at).is_some_and(|token| token == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" => {
                leaves.push(("*".to_owned(), path));
                return at + 1;
            }
            "as" => {
                let alias = tokens.get(at + 1).cloned().unwrap_or_default();
                leaves.push((alias, path));
                return at + 2;
            }
            token if is_identifier(token) => {
                path.push(token.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    // `a::{self}` names `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(alias) = path.last() {
        leaves.push((alias.clone(), path));
    }
    at
}

/// A path from the root of the crate, or `None` if it leads out of the crate.
fn absolute(
    path: &[String],
    own: &[String],
    modules: &BTreeSet<Vec<String>>,
) -> Option<Vec<String>> {
    let first = path.first()?.as_str();
    let mut base = own.to_vec();
    let mut rest = path;
    match first {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|segment| segment == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        _ => {
            let child: Vec<String> = own.iter().chain([&path[0]]).cloned().collect();
            if !modules.contains(&child) {
                return None;
            }
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The file that defines what a path names.
fn resolve<'a>(modules: &'a Modules, path: &[String], depth: usize) -> Option<&'a str> {
    let mut length = path.len();
    while length > 0 && !modules.contains_key(&path[..length]) {
        length -= 1;
    }
    let module = modules.get(&path[..length])?;
    let Some(name) = path.get(length).filter(|_| depth > 0) else { return Some(&module.file) };
    if defines(&module.code, name) {
        return Some(&module.file);
    }
    let rest = &path[length + 1..];
    for import in &module.imports {
        let through: Vec<String> = if import.alias == *name {
            import.path.iter().chain(rest).cloned().collect()
        } else if import.alias == "*" {
            import.path.iter().chain(&path[length..]).cloned().collect()
        } else {
            continue;
        };
        let is_glob = import.alias == "*";
        let found = resolve(modules, &through, depth - 1);
        let target = found.and_then(|file| modules.get(&module_path(file)));
        if target.is_some_and(|target| !is_glob || defines(&target.code, name)) {
            return found;
        }
    }
    Some(&module.file)
}

/// Whether the code defines an item of that name.
pub(crate) fn defines(code: &str, name: &str) -> bool {
    const ITEMS: [&str; 11] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "const",
        "static",
        "mod",
        "union",
        "macro_rules!",
        "mut",
    ];
    code.match_indices(name).any(|(at, _)| {
        let is_whole = !code[at + name.len()..]
            .starts_with(|next: char| next.is_alphanumeric() || next == '_');
        let before = code[..at].trim_end();
        let is_separate = before.len() < at;
        is_whole && is_separate && ITEMS.iter().any(|item| before.ends_with(item))
    })
}

/// The groups of more than `max` files that use each other in a circle. Re-exports do not count.
pub(crate) fn cycles(uses: &[Use], max: usize) -> Vec<Vec<String>> {
    let names: BTreeSet<&String> = uses.iter().flat_map(|found| [&found.from, &found.to]).collect();
    let names: Vec<&String> = names.into_iter().collect();
    let index: BTreeMap<&String, usize> = names.iter().copied().zip(0..).collect();
    let count = names.len();
    let mut reaches = vec![vec![false; count]; count];
    for found in uses.iter().filter(|found| !found.is_reexport) {
        reaches[index[&found.from]][index[&found.to]] = true;
    }
    for middle in 0..count {
        let through = reaches[middle].clone();
        for row in &mut reaches {
            if row[middle] {
                row.iter_mut().zip(&through).for_each(|(cell, next)| *cell |= next);
            }
        }
    }
    let mut groups = Vec::new();
    let mut seen = vec![false; count];
    for start in 0..count {
        if seen[start] || !reaches[start][start] {
            continue;
        }
        let is_member = |other: &usize| reaches[start][*other] && reaches[*other][start];
        let group: Vec<usize> = (0..count).filter(is_member).collect();
        group.iter().for_each(|member| seen[*member] = true);
        if group.len() > max {
            groups.push(group.into_iter().map(|member| names[member].clone()).collect());
        }
    }
    groups
}

/// The uses that point from a lower rank to a higher one, and the files that have no rank. A rank
/// is the name of a folder or of a file directly below `src/`, lowest first.
pub(crate) fn rank_violations(uses: &[Use], files: &[String], ranks: &[&str]) -> Vec<String> {
    let rank = |file: &str| {
        let top = module_path(file).first().cloned();
        // The root of the crate only lists and re-exports.
        top.map_or(Some(0), |top| ranks.iter().position(|rank| *rank == top))
    };
    let unranked = files.iter().filter(|file| rank(file).is_none());
    let unranked = unranked.map(|file| format!("{file} has no rank"));
    let upward = uses.iter().filter(|found| {
        let from_root = module_path(&found.from).is_empty();
        !from_root && matches!((rank(&found.from), rank(&found.to)), (Some(own), Some(other)) if own < other)
    });
    unranked.chain(upward.map(|found| format!("{} uses {}", found.from, found.to))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn pairs(files_of_crate: &[(&str, &str)]) -> Vec<String> {
        let uses = uses(&files(files_of_crate));
        uses.iter().map(|found| format!("{} → {}", found.from, found.to)).collect()
    }

    #[test]
    fn uses_are_found_in_every_form() {
        let found = pairs(&[
            ("lib.rs", "mod a; mod b; pub use b::{inner::Deep, Plain};"),
            (
                "a.rs",
                "mod child; use super::b::{self, Other as O};\nuse crate::Deep;\nfn f() { b::inner::g(); }",
            ),
            (
                "a/child.rs",
                "fn f() { super::super::b::x(); crate::c::deep::y(); }\nuse std::fs; // crate::b::inner",
            ),
            (
                "b.rs",
                "pub mod inner; struct Plain; struct Other;\n#[cfg(test)]\nmod tests { use crate::a; }",
            ),
            ("b/inner.rs", "pub struct Deep; pub fn g() {}"),
            ("c/mod.rs", "pub mod deep;"),
            ("c/deep.rs", "use super::super::a::child; fn y() {}"),
        ]);
        assert_eq!(
            found,
            [
                "a.rs → b.rs",
                "a.rs → b/inner.rs",
                "a/child.rs → b.rs",
                "a/child.rs → c/deep.rs",
                "c/deep.rs → a/child.rs",
                "lib.rs → b.rs",
                "lib.rs → b/inner.rs",
            ]
        );
    }

    #[test]
    fn a_circle_is_found_and_a_facade_makes_none() {
        let circle = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "fn f() { crate::c::C; } pub struct B;"),
            ("c.rs", "use super::a::A; pub struct C;"),
        ];
        let found = uses(&files(&circle));
        assert_eq!(cycles(&found, 2), [["a.rs", "b.rs", "c.rs"].map(str::to_owned).to_vec()]);
        assert!(cycles(&found, 3).is_empty());
        let facade = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::A; pub struct B;"),
        ];
        assert!(cycles(&uses(&files(&facade)), 1).is_empty());
    }

    #[test]
    fn an_import_that_points_up_is_found() {
        let of_crate = [
            ("lib.rs", "mod low; mod high; use high::top::T;"),
            ("low/mod.rs", "pub mod base;"),
            ("low/base.rs", "use crate::high::top::T; pub struct B;"),
            ("high/mod.rs", "pub mod top;"),
            ("high/top.rs", "use crate::low::base::B; pub struct T;"),
            ("odd.rs", ""),
        ];
        let found = uses(&files(&of_crate));
        let names: Vec<String> = of_crate.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(
            rank_violations(&found, &names, &["low", "high"]),
            ["odd.rs has no rank", "low/base.rs uses high/top.rs"]
        );
        assert_eq!(rank_violations(&found, &names, &["high", "low", "odd"]), {
            ["high/top.rs uses low/base.rs"]
        });
    }
}
