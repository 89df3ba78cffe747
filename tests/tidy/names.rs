//! Rules about names: what predicates return, where bounds are defined, and which verbs say too
//! little to name a function.

use super::tree::{assert_none, balanced, layers, line_of, sources, texts, without_tests};

/// Prefixes that announce a yes-or-no answer.
const PREDICATES: [&str; 3] = ["is_", "has_", "can_"];

/// Verbs and participles that do not say what is done to what.
const BARE_NAMES: [&str; 8] = ["tell", "told", "give", "keep", "kept", "made", "shown", "of"];

/// The functions that Rust code defines: offset, name, and the text between the name and the body.
fn functions(code: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = at > 0 && code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = code[at + 3..].trim_start();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if is_word || length == 0 {
            continue;
        }
        found.push((at, rest[..length].to_owned(), rest[length..].to_owned()));
    }
    found
}

/// The return type of a function, given the text after its name; empty if it returns nothing.
fn return_type(after_name: &str) -> String {
    let mut rest = after_name.trim_start();
    if rest.starts_with('<') {
        rest = rest[generics(rest)..].trim_start();
    }
    let after = rest[balanced(rest)..].trim_start();
    let Some(after) = after.strip_prefix("->") else { return String::new() };
    let mut depth = 0;
    let end = after.char_indices().find(|(at, c)| {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !after[..*at].ends_with('-') => depth -= 1,
            _ => {}
        }
        depth == 0 && (matches!(c, '{' | ';') || after[*at..].starts_with(" where"))
    });
    let end = end.map_or(after.len(), |(at, _)| at);
    after[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The length of the generic parameters with which a text begins.
fn generics(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The functions of a Rust file that are named like a predicate and return something else.
fn false_predicates(text: &str) -> Vec<(usize, String)> {
    let code = layers(text).code;
    let named = functions(&code).into_iter().filter(|(_, name, _)| {
        PREDICATES.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len())
    });
    let wrong = named.filter_map(|(at, name, after)| {
        let returned = return_type(&after);
        let shown = if returned.is_empty() { "()" } else { &returned };
        (returned != "bool").then(|| (line_of(&code, at), format!("`{name}` returns `{shown}`")))
    });
    wrong.collect()
}

/// The constants of a Rust file whose names end with `_MAX`.
fn bounds(text: &str) -> Vec<(usize, String)> {
    let code = without_tests(&layers(text).code);
    let mut found = Vec::new();
    for keyword in ["const ", "static "] {
        for (at, _) in code.match_indices(keyword) {
            let rest = &code[at + keyword.len()..];
            let name = rest.split(':').next().unwrap_or_default().trim();
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if is_name && name.ends_with("_MAX") {
                found.push((line_of(&code, at), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn predicates_return_bool() {
    let mut violations = Vec::new();
    let mut checked = 0;
    for (name, text) in texts(".rs") {
        checked += functions(&layers(&text).code).len();
        let wrong = false_predicates(&text);
        violations.extend(wrong.iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    assert!(checked > 1_000, "only {checked} functions found");
    let advice = "A function named `is_`, `has_` or `can_` must return plain `bool`: rename it.";
    assert_none(&violations, advice);
}

#[test]
fn every_bound_is_in_a_file_of_limits() {
    let mut violations = Vec::new();
    let mut checked = 0;
    let is_support = |name: &str| name.contains("/testing") || name.contains("/conformance");
    for (name, text) in sources().filter(|(name, _)| !is_support(name)) {
        let found = bounds(&text);
        checked += found.len();
        if !name.ends_with("/limits.rs") {
            violations.extend(found.iter().map(|(line, bound)| format!("{name}:{line}: {bound}")));
        }
    }
    assert!(checked > 20, "only {checked} bounds found");
    assert_none(&violations, "Move each constant, with its reason, to a `limits.rs`.");
}

#[test]
fn functions_say_what_they_do() {
    let mut violations = Vec::new();
    for (name, text) in texts(".rs") {
        let code = layers(&text).code;
        for (at, function, _) in functions(&code) {
            if BARE_NAMES.contains(&function.as_str()) {
                violations.push(format!("{name}:{}: fn {function}", line_of(&code, at)));
            }
        }
    }
    assert_none(&violations, "Name the object as well: `record_view`, `from_status`.");
}

#[test]
fn a_false_predicate_is_found_in_every_form() {
    let text = "
        fn is_fine(&self) -> bool { true }
        pub(crate) async fn can_run<F: Fn() -> u8>(
            run: F,
        ) -> bool where F: Clone { true }
        fn is_checked(&self) -> Result<bool, Error> { Ok(true) }
        fn has_written(
            &mut self,
            many: Vec<(u8, u8)>,
        ) {}
        trait T { fn can_do(&self) -> Option<bool>; fn is_ok(&self) -> bool; }
        // fn is_comment() -> u8
        fn is_pair() -> (bool, bool) { (true, true) }
        fn island() -> u8 { 0 }
    ";
    let found: Vec<String> = false_predicates(text).into_iter().map(|(_, what)| what).collect();
    assert_eq!(
        found,
        [
            "`is_checked` returns `Result<bool, Error>`",
            "`has_written` returns `()`",
            "`can_do` returns `Option<bool>`",
            "`is_pair` returns `(bool, bool)`",
        ]
    );
}

#[test]
fn a_bound_is_found_wherever_it_is_defined() {
    let text = "const ROWS_MAX: u8 = 1;\npub(crate) const A_MAX : usize = 2;\nconst MAXIMUM: u8 = 3;\n\
        impl X { const INNER_MAX: u8 = 4; }\n// const NOT_MAX: u8\n#[cfg(test)]\nmod tests { const T_MAX: u8 = 5; }";
    let found: Vec<String> = bounds(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["ROWS_MAX", "A_MAX", "INNER_MAX"]);
}
