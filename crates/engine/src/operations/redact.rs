//! The secrets that a turn has received, and how they are removed from what it produces.
//!
//! A service may echo a secret: as it is, escaped in JSON, percent-encoded in a URL, or as a part of
//! something that is encoded in base64. All of these are replaced. Numbers are compared by their
//! digits.

use std::sync::atomic::{AtomicBool, Ordering};

use catena_auth::base::to_base64url;
use catena_value::{Map, NoCells, Value, Vector, json};
use parking_lot::Mutex;

use crate::limits::REDACTED_BASE64_CHARS_MIN;

/// What takes the place of a secret in a text.
const MARK: &str = "[redacted]";

/// The secrets that a turn has received.
#[derive(Default)]
pub(crate) struct ResolvedSecrets {
    has_some: AtomicBool,
    list: Mutex<Vec<Hidden>>,
}

/// A secret in the forms in which it may appear.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hidden {
    text: String,
    /// What every base64 text that contains the secret contains, one form for each alignment.
    encoded: Vec<String>,
}

impl ResolvedSecrets {
    /// Adds a secret.
    pub(crate) fn add(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let hidden = Hidden { text: text.to_owned(), encoded: base64_forms(text) };
        let mut list = self.list.lock();
        if !list.contains(&hidden) {
            list.push(hidden);
            // A secret that contains another one is replaced first.
            list.sort_by_key(|hidden| std::cmp::Reverse(hidden.text.len()));
        }
        self.has_some.store(true, Ordering::Release);
    }

    /// Returns true if the turn has received no secrets.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// Returns true if a value contains a secret.
    pub(crate) fn occur_in(&self, value: &Value) -> bool {
        !self.is_empty() && self.redact_value(value) != *value
    }

    /// Returns a text without the secrets.
    pub(crate) fn redact_text(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let list = self.list.lock();
        list.iter().fold(text.to_owned(), |text, hidden| hidden.remove_from(&text))
    }

    /// Returns a value without the secrets.
    pub(crate) fn redact(&self, value: Value) -> Value {
        if self.is_empty() { value } else { self.redact_value(&value) }
    }

    fn redact_value(&self, value: &Value) -> Value {
        match value {
            Value::String(_) => match value.to_text() {
                Some(text) => {
                    let redacted = self.redact_text(&text);
                    if redacted == *text { value.clone() } else { redacted.into() }
                }
                None => value.clone(),
            },
            Value::Vector(items) => {
                let items = items.iter(&NoCells).flatten();
                Vector::from_items(items.map(|item| self.redact_value(&item)).collect()).into()
            }
            Value::Map(members) => {
                let members = members.iter(&NoCells).flatten();
                let redact =
                    |(name, member)| (self.redact_value(&name), self.redact_value(&member));
                members.map(redact).collect::<Map>().into()
            }
            Value::Integer(_) | Value::Double(_) => {
                let text = json::to_string(value).unwrap_or_default();
                if self.redact_text(&text) == text { value.clone() } else { MARK.into() }
            }
            other => other.clone(),
        }
    }
}

impl Hidden {
    fn remove_from(&self, text: &str) -> String {
        let text = self.remove_escaped(text);
        let replace = |text: String, form: &String| {
            if text.contains(form.as_str()) { text.replace(form.as_str(), MARK) } else { text }
        };
        self.encoded.iter().fold(text, replace)
    }

    /// Removes the secret as it is, percent-encoded, and escaped as in JSON.
    fn remove_escaped(&self, text: &str) -> String {
        let (bytes, secret) = (text.as_bytes(), self.text.as_bytes());
        let mut rest = String::with_capacity(text.len());
        let mut copied = 0;
        let mut at = 0;
        while at < bytes.len() {
            match match_at(&bytes[at..], secret) {
                // A match begins and ends between characters, because the secret is text itself.
                Some(length) if text.is_char_boundary(at) && text.is_char_boundary(at + length) => {
                    rest.push_str(&text[copied..at]);
                    rest.push_str(MARK);
                    at += length;
                    copied = at;
                }
                _ => at += 1,
            }
        }
        rest.push_str(&text[copied..]);
        rest
    }
}

/// Returns the number of bytes at the beginning of a text that spell a secret. `None` if they do not.
fn match_at(text: &[u8], secret: &[u8]) -> Option<usize> {
    if text.starts_with(secret) {
        return Some(secret.len());
    }
    let mut at = 0;
    for &byte in secret {
        let rest = text.get(at..)?;
        at += match escaped_byte(rest, byte) {
            Some(length) => length,
            None if rest.first() == Some(&byte) => 1,
            None => return None,
        };
    }
    Some(at)
}

/// Returns the length of an escape sequence at the beginning of a text that stands for a byte.
fn escaped_byte(text: &[u8], byte: u8) -> Option<usize> {
    let hex = |digits: Option<&[u8]>| {
        let digits = std::str::from_utf8(digits?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    match *text.first()? {
        b'%' => (hex(text.get(1..3)) == Some(byte.into())).then_some(3),
        b'+' => (byte == b' ').then_some(1),
        b'\\' => match *text.get(1)? {
            b'u' => (byte < 0x80 && hex(text.get(2..6)) == Some(byte.into())).then_some(6),
            escape => {
                let meant = match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'b' => 8,
                    b'f' => 12,
                    other => other,
                };
                (meant == byte).then_some(2)
            }
        },
        _ => None,
    }
}

/// Returns what the base64 of every text that contains a secret contains: for each of the three
/// alignments, the characters that the secret alone determines, in both alphabets.
fn base64_forms(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let padded = [&[0; 2][..before], secret.as_bytes()].concat();
        let encoded = to_base64url(&padded);
        // A character has six bits. Those with bits of the bytes before or after are left out.
        let from = (before * 8).div_ceil(6);
        let to = padded.len() * 8 / 6;
        let Some(form) = encoded.get(from..to) else { continue };
        if form.len() < REDACTED_BASE64_CHARS_MIN {
            continue;
        }
        let standard = form.replace('-', "+").replace('_', "/");
        if standard != form {
            forms.push(standard);
        }
        forms.push(form.to_owned());
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(secrets: &[&str]) -> ResolvedSecrets {
        let resolved = ResolvedSecrets::default();
        secrets.iter().for_each(|secret| resolved.add(secret));
        resolved
    }

    #[test]
    fn a_secret_is_removed_in_every_form() {
        let secrets = resolved(&["p@ss wörd/\"1"]);
        for text in [
            "p@ss wörd/\"1",
            "p%40ss%20w%C3%B6rd%2F%221",
            "p%40ss+w%c3%b6rd%2f%221",
            "p@ss%20w%C3%B6rd/%221",
            "p@ss wörd/\\\"1",
            "p@ss wörd\\/\\u00221",
        ] {
            let redacted = secrets.redact_text(&format!("<{text}>"));
            assert_eq!(redacted, "<[redacted]>", "{text}");
        }
        assert_eq!(secrets.redact_text("p@ss wörd"), "p@ss wörd");
    }

    #[test]
    fn a_secret_within_base64_is_removed() {
        let secret = "s3cr3t-t0ken!?~value";
        let secrets = resolved(&[secret]);
        for before in ["", "u", "us", "user:"] {
            for after in ["", "x", "xy"] {
                let url = to_base64url(format!("{before}{secret}{after}").as_bytes());
                for text in [url.clone(), url.replace('-', "+").replace('_', "/")] {
                    let redacted = secrets.redact_text(&text);
                    assert!(redacted.contains(MARK), "{before} {after}");
                    assert!(redacted.len() < text.len() + MARK.len() - 20, "{redacted}");
                }
            }
        }
    }

    #[test]
    fn names_numbers_and_nested_values_are_redacted() {
        let secrets = resolved(&["8461", "k3y"]);
        let value = json::read(br#"{"a":[{"k3y":"xk3yk3y"}],"n":184610,"m":5,"t":true}"#).unwrap();
        let expected =
            r#"{"a":[{"[redacted]":"x[redacted][redacted]"}],"n":"[redacted]","m":5,"t":true}"#;
        assert_eq!(secrets.redact(value), json::read(expected.as_bytes()).unwrap());
        assert_eq!(resolved(&[]).redact(5i64.into()), 5i64.into());
    }

    #[test]
    fn the_longer_secret_is_removed_first() {
        let secrets = resolved(&["abc", "abcdef"]);
        assert_eq!(secrets.redact_text("abcdef abc"), "[redacted] [redacted]");
    }
}
