//! The files of this repository, and Rust source split into code, comments and string literals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every file that git tracks or would track, with its path from the root.
pub(crate) fn files() -> Vec<(String, PathBuf)> {
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

/// The files whose names end with `suffix`, with their contents.
pub(crate) fn texts(suffix: &str) -> Vec<(String, String)> {
    let found: Vec<_> = files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(suffix))
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    assert!(!found.is_empty(), "no file ends with {suffix}");
    found
}

/// Rust files that end up in a binary or library, not in tests.
pub(crate) fn sources() -> impl Iterator<Item = (String, String)> {
    texts(".rs").into_iter().filter(|(name, _)| {
        name.starts_with("crates/") && name.contains("/src/") && !name.ends_with("/tests.rs")
    })
}

/// Fails with all violations, one per line, after a sentence that says what to do about them.
pub(crate) fn assert_none(violations: &[String], advice: &str) {
    let count = violations.len();
    assert!(violations.is_empty(), "{count} violations. {advice}\n  {}", violations.join("\n  "));
}

/// A Rust file in three layers. Each layer has the length and the line breaks of the file, with
/// spaces in place of what belongs to another layer, so that offsets and lines agree.
pub(crate) struct Layers {
    /// Everything but comments and the contents of string and character literals.
    pub(crate) code: String,
    /// The comments, without their markers.
    pub(crate) comments: String,
    /// The contents of string literals.
    pub(crate) strings: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Code,
    Comment,
    String,
    /// In no layer: markers of comments, contents of character literals.
    Nowhere,
}

/// Splits a Rust file into its layers.
pub(crate) fn layers(text: &str) -> Layers {
    let bytes = text.as_bytes();
    let mut kinds = vec![Layer::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let is_start = at == 0 || !is_word(bytes[at - 1]);
        let end = if rest.starts_with(b"//") {
            line_comment(rest, &mut kinds[at..])
        } else if rest.starts_with(b"/*") {
            block_comment(rest, &mut kinds[at..])
        } else if let Some(hashes) = raw_string(rest).filter(|_| is_start) {
            let open = rest.iter().position(|byte| *byte == b'"').unwrap() + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let length = find(&rest[open..], close.as_bytes()).unwrap_or(rest.len() - open);
            kinds[at + open..at + open + length].fill(Layer::String);
            open + length + close.len()
        } else if rest[0] == b'"' {
            let length = string_length(&rest[1..]);
            kinds[at + 1..at + 1 + length].fill(Layer::String);
            length + 2
        } else if let Some(length) = character(rest) {
            kinds[at + 1..at + length - 1].fill(Layer::Nowhere);
            length
        } else {
            1
        };
        at += end;
    }
    let layer = |wanted: Layer| {
        let kept = |(byte, kind): (&u8, &Layer)| match *byte {
            b'\n' => b'\n',
            byte if *kind == wanted => byte,
            _ => b' ',
        };
        let bytes: Vec<u8> = bytes.iter().zip(&kinds).map(kept).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Layers {
        code: layer(Layer::Code),
        comments: layer(Layer::Comment),
        strings: layer(Layer::String),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Marks a line comment and returns its length.
fn line_comment(rest: &[u8], kinds: &mut [Layer]) -> usize {
    let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let marker = rest.iter().position(|byte| !b"/!".contains(byte)).unwrap_or(length).min(length);
    kinds[..marker].fill(Layer::Nowhere);
    kinds[marker..length].fill(Layer::Comment);
    length
}

/// Marks a block comment, which may contain others, and returns its length.
fn block_comment(rest: &[u8], kinds: &mut [Layer]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    kinds[..at].fill(Layer::Comment);
    at
}

/// The number of `#` if a raw string literal begins here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let after = rest.strip_prefix(b"br").or_else(|| rest.strip_prefix(b"r"))?;
    let hashes = after.iter().take_while(|byte| **byte == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// The length of a string literal whose opening quote was read, without the closing quote.
fn string_length(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at.min(rest.len())
}

/// The length of a character literal with its quotes, if one begins here and not a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return Some(3 + rest[3..].iter().position(|byte| *byte == b'\'')? + 1);
    }
    let first = std::str::from_utf8(&rest[1..rest.len().min(5)]);
    let width = match first {
        Ok(text) => text.chars().next()?.len_utf8(),
        Err(error) => {
            let valid = std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?;
            valid.chars().next()?.len_utf8()
        }
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Code without the modules that exist only in tests, as `#[cfg(test)] mod tests { … }`. The
/// removed parts become spaces.
pub(crate) fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    let mut from = 0;
    while let Some(found) = kept[from..].find("#[cfg(test)]") {
        let start = from + found;
        from = start + 12;
        let rest = &kept[from..];
        let next = rest.trim_start();
        let is_module = ["mod ", "pub mod ", "pub(crate) mod "].iter().any(|m| next.starts_with(m));
        let open = rest.find(['{', ';']);
        let Some(open) = open.filter(|open| is_module && rest.as_bytes()[*open] == b'{') else {
            continue;
        };
        let end = from + open + balanced(&rest[open..]);
        let blank: String = kept[start..end].chars().map(blank).collect();
        kept.replace_range(start..end, &blank);
        from = start + blank.len();
    }
    kept
}

fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

/// The length of a text that begins with a bracket, up to and including the matching one.
pub(crate) fn balanced(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The number of the line, from 1, in which an offset lies.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[test]
fn layers_separate_code_comments_and_strings() {
    let text = "//! About\nfn f<'a>(x: &'a str) -> char { /* no */ let s = \"in // a\\\" str\"; \
        let r = r#\"raw \" text\"#; 'x'; '\\n'; '\"' } // end\n";
    let layers = layers(text);
    assert_eq!(layers.comments.split_whitespace().collect::<Vec<_>>().join(" "), {
        "About /* no */ end"
    });
    assert_eq!(layers.strings.split_whitespace().collect::<Vec<_>>().join(" "), {
        "in // a\\\" str raw \" text"
    });
    assert!(layers.code.contains("fn f<'a>(x: &'a str) -> char {"), "{}", layers.code);
    assert!(!layers.code.contains("raw") && !layers.code.contains("end"), "{}", layers.code);
    assert_eq!(layers.code.len(), text.len());
}

#[test]
fn test_modules_are_left_out() {
    let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { {} } }\n#[cfg(test)]\nfn c() {}\n\
        #[cfg(test)]\nmod d;\nfn e() {}\n";
    let kept = without_tests(code);
    assert!(!kept.contains("fn b"), "{kept}");
    assert!(["fn a", "fn c", "mod d", "fn e"].iter().all(|part| kept.contains(part)), "{kept}");
}
