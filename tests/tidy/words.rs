//! Words that the project no longer uses, each with the word that replaced it. They were private
//! metaphors: a reader who knows queues, databases and HTTP had to look them up.
//!
//! Every word is written in two pieces, so that this file does not contain it.

use super::tree::{assert_none, files, layers, line_of};

/// A word in two pieces, and what to write instead.
type Retired = ([&'static str; 2], &'static str);

/// Refused as whole words, in any case, with or without a plural `s`: in identifiers (also as a
/// part of one), comments, texts and file names.
const WORDS: [Retired; 22] = [
    (["re", "ins"], "run handle"),
    (["we", "ave"], "orchestration state"),
    (["wea", "ver"], "orchestration driver"),
    (["wo", "ven"], "driven"),
    (["en", "voy"], "remote task"),
    (["err", "and"], "remote task"),
    (["tid", "ings"], "remote event"),
    (["sur", "ely"], "detached task"),
    (["lat", "ely"], "recently"),
    (["sight", "ing"], "remote snapshot"),
    (["be", "side"], "next to, off-chain, sidecar"),
    (["else", "where"], "remote, on another venue"),
    (["a", "way"], "remote"),
    (["do", "or"], "API, endpoint, server state"),
    (["trou", "ble"], "error"),
    (["mis", "hap"], "failure"),
    (["happen", "ing"], "event"),
    (["pa", "ce"], "execution mode"),
    (["car", "rier"], "adapter"),
    (["stan", "ding"], "role, outcome, status"),
    (["du", "ty"], "background task"),
    (["dut", "ies"], "background tasks"),
];

/// Refused in comments and texts, in any case.
const PHRASES: [Retired; 6] = [
    (["over ", "there"], "on the other venue"),
    (["nothing ", "when"], "`None` if"),
    (["life ", "before"], "before the restart"),
    (["earlier ", "life"], "the previous process"),
    (["life to ", "life"], "across restarts"),
    (["where it ", "stands"], "its status"),
];

/// After `the whole`, these show that it stands for the parent job of an orchestration.
const AFTER_WHOLE: [&str; 12] =
    ["is", "was", "has", "ends", "ended", "asks", "waits", "goes", "fails", "and", "must", "to"];

/// Refused in the names of types and files, where they do not have their ordinary meaning.
const TYPE_WORDS: [Retired; 1] = [(["let", "ter"], "message")];

/// Ordinary English, or names that clients and stored data rely on: not refused.
const ALLOWED: [[&str; 2]; 14] = [
    // In addition to; not next to.
    ["be", "sides"],
    // A time, a distance or a departure, not another venue.
    ["right a", "way"],
    ["far a", "way"],
    ["go a", "way"],
    ["goes a", "way"],
    ["went a", "way"],
    ["going a", "way"],
    ["gone a", "way"],
    // A kind of network address.
    ["car", "rier-grade"],
    // Names under which data is stored: changing them would change the format.
    ["\"else", "where\""],
    ["\"be", "side\""],
    // Error codes on the wire.
    ["venue_trou", "ble"],
    ["remote_trou", "ble"],
    // Part of a demo asset, whose ID is the hash of its text.
    ["notes it be", "side the person"],
];

/// Files whose words are not ours: published vectors and the like.
const NOT_OURS: [&str; 4] = ["Cargo.lock", "LICENSE", "crates/value/vectors/", "docs/examples/"];

/// The endings of the files that are read.
const READ: [&str; 5] = [".rs", ".md", ".py", ".toml", "test"];

/// The words of an identifier or of prose with their offsets, in lower case: `RunHandle` and
/// `run_handle` have two.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let is_first = !before.is_alphabetic() || (before.is_lowercase() && c.is_uppercase());
        if c.is_alphabetic() {
            if is_first {
                found.push((at, String::new()));
            }
            if let Some((_, word)) = found.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    found
}

/// The text in lower case, white space as single spaces, and for each byte its offset in `text`.
fn flat(text: &str) -> (String, Vec<usize>) {
    let mut flat = String::new();
    let mut offsets = Vec::new();
    for (at, c) in text.char_indices() {
        let c = if c.is_whitespace() { ' ' } else { c.to_ascii_lowercase() };
        if c == ' ' && flat.ends_with(' ') {
            continue;
        }
        flat.push(c);
        offsets.resize(flat.len(), at);
    }
    (flat, offsets)
}

/// The retired words in a text: offset, word and replacement. Phrases are looked for in prose only,
/// not in identifiers.
fn retired(text: &str, is_prose: bool) -> Vec<(usize, String)> {
    let lower = text.to_ascii_lowercase();
    let mut text = text.to_owned();
    for allowed in ALLOWED.map(|pieces| pieces.concat()) {
        for (at, _) in lower.match_indices(&allowed) {
            text.replace_range(at..at + allowed.len(), &" ".repeat(allowed.len()));
        }
    }
    let mut found = retired_words(&text, &WORDS);
    if is_prose {
        found.extend(phrases(&text));
    }
    found
}

fn retired_words(text: &str, list: &[Retired]) -> Vec<(usize, String)> {
    let list: Vec<_> = list.iter().map(|(pieces, instead)| (pieces.concat(), instead)).collect();
    let mut found = Vec::new();
    for (at, word) in words(text) {
        let is_retired = |(retired, _): &&(String, &&str)| {
            word == *retired || word.strip_suffix('s') == Some(retired)
        };
        if let Some((_, instead)) = list.iter().find(is_retired) {
            found.push((at, format!("`{word}` (write: {instead})")));
        }
    }
    found
}

fn phrases(text: &str) -> Vec<(usize, String)> {
    let (flat, offsets) = flat(text);
    let mut found = Vec::new();
    for (pieces, instead) in PHRASES {
        let phrase = pieces.concat();
        let matches = flat.match_indices(&phrase);
        found
            .extend(matches.map(|(at, _)| (offsets[at], format!("`{phrase}` (write: {instead})"))));
    }
    let whole = ["the ", "whole"].concat();
    for (at, _) in flat.match_indices(&whole) {
        let after = &flat[at + whole.len()..];
        let is_end = after.is_empty() || after.starts_with(['.', ',', ';', ':', ')', '\'', '’']);
        let next = after.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or("");
        if is_end || (after.starts_with(' ') && AFTER_WHOLE.contains(&next)) {
            let instead = "the parent job, the orchestration";
            found.push((offsets[at], format!("`{whole}` (write: {instead})")));
        }
    }
    found
}

/// The retired words in a file: line and what to write instead.
fn retired_in(name: &str, text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = if name.ends_with(".rs") {
        let layers = layers(text);
        let mut code = retired(&layers.code, false);
        let in_types = retired_words(&layers.code, &TYPE_WORDS).into_iter();
        code.extend(in_types.filter(|(at, _)| text.as_bytes()[*at].is_ascii_uppercase()));
        let comments = retired(&layers.comments, true);
        let strings = retired(&quoted(&layers.strings, text), true);
        code.into_iter().chain(comments).chain(strings).collect()
    } else {
        retired(text, true)
    };
    found.sort();
    found.into_iter().map(|(at, what)| (line_of(text, at), what)).collect()
}

/// The string literals with their quotes, which exceptions may name.
fn quoted(strings: &str, text: &str) -> String {
    let bytes = strings.bytes().zip(text.bytes());
    let bytes = bytes.map(|(string, byte)| if byte == b'"' { b'"' } else { string });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

#[test]
fn retired_words_are_gone() {
    let mut violations = Vec::new();
    let mut checked = 0;
    for (name, path) in files() {
        if NOT_OURS.iter().any(|prefix| name.starts_with(prefix))
            || !READ.iter().any(|suffix| name.ends_with(suffix))
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut named = retired(&name, false);
        named.extend(retired_words(&name, &TYPE_WORDS));
        violations.extend(named.into_iter().map(|(_, what)| format!("{name}: {what}")));
        let inside = retired_in(&name, &text).into_iter();
        violations.extend(inside.map(|(line, what)| format!("{name}:{line}: {what}")));
        checked += 1;
    }
    assert!(checked > 100, "only {checked} files checked");
    assert_none(&violations, "Use the words of `docs/glossary.md`.");
}

#[test]
fn a_retired_word_is_found_in_every_form() {
    let one = ["do", "or"].concat();
    let other = ["re", "ins"].concat();
    let kind = format!("{}{}", one[..1].to_uppercase(), &one[1..]);
    let text = format!(
        "//! The {one}s.\nfn take_{other}(state: Server{kind}) -> &'static str {{\n    \"{one}\"\n}}\n"
    );
    let lines: Vec<usize> = retired_in("a.rs", &text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 2, 2, 3]);
    let phrase = ["It is over\n", "there."].concat();
    assert_eq!(retired_in("a.md", &phrase).len(), 1);
    let whole = ["the ", "whole"].concat();
    assert_eq!(retired_in("a.md", &format!("A step makes {whole} wait; {whole} asks.")).len(), 1);
    assert_eq!(retired_in("a.md", &format!("A step of {whole}. Read {whole} table.")).len(), 1);
}

#[test]
fn ordinary_words_are_allowed() {
    let departure = ["A client that went a", "way; outdoor, outstan", "ding POST."].concat();
    assert_eq!(retired_in("a.md", &departure), []);
    let root = ["fn f() { root(\"else", "where\") }"].concat();
    assert_eq!(retired_in("a.rs", &root), []);
    let characters = ["let let", "ter = 'a'; // One let", "ter."].concat();
    assert_eq!(retired_in("a.rs", &characters), []);
    let named = ["struct PendingLet", "ter;"].concat();
    assert_eq!(retired_in("a.rs", &named).len(), 1);
}
