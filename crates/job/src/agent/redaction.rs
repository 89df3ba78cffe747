//! What of a message must not be stored: `credentials`, and what the transition marks as secret.
//!
//! A secret is replaced by `{"redacted": true}`, as in the records of jobs.

use catena_value::{Map, NoCells, Value, Vector};

use crate::limits::REDACTION_DEPTH_MAX;

/// The member that is never stored, wherever it is.
const CREDENTIALS: &str = "credentials";

/// The members of a configuration in which clients put the key of a service.
const API_KEYS: &[&str] = &["apiKey", "api_key"];

/// One step of the path to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretStep {
    /// A member of an object, or an item of an array.
    At(String),
    /// Each member or item.
    Each,
    /// Each member but those with these names.
    EachExcept(Vec<String>),
}

/// The path to a secret below the content of a message. An empty one means the content itself.
pub type SecretPath = Vec<SecretStep>;

fn redacted() -> Value {
    [("redacted", true)].into_iter().collect::<Map>().into()
}

/// Returns the content of a message without its `credentials`, at any depth.
pub fn without_credentials(content: &Value) -> Value {
    hide_members(content, CREDENTIALS, 0).unwrap_or_else(|| content.clone())
}

/// Returns the name of a member that contains credentials, at any depth: `credentials`, or the key of a service.
/// `None` if there is none.
pub fn find_credentials(value: &Value) -> Option<&'static str> {
    let is_there = |name: &&&str| hide_members(value, name, 0).is_some();
    [CREDENTIALS].iter().chain(API_KEYS).find(is_there).copied()
}

/// Returns a value without the members that have a name. `None` if there are none. What is nested more deeply than
/// anything that may be stored is not searched.
fn hide_members(value: &Value, hidden: &str, depth: usize) -> Option<Value> {
    if depth > REDACTION_DEPTH_MAX {
        return None;
    }
    change_members(value, |name, member| {
        if name.is_some_and(|name| name.to_text().as_deref() == Some(hidden)) {
            return (!member.is_nil() && *member != redacted()).then(redacted);
        }
        hide_members(member, hidden, depth + 1)
    })
}

/// Returns the content of a message without the secrets at these paths.
pub fn without_secrets(content: &Value, secrets: &[SecretPath]) -> Value {
    secrets.iter().fold(content.clone(), |public, secret| hide(&public, secret).unwrap_or(public))
}

/// Returns a value without the secret at a path. `None` if there is nothing at the path.
fn hide(value: &Value, secret: &[SecretStep]) -> Option<Value> {
    let Some((first, rest)) = secret.split_first() else { return Some(redacted()) };
    let mut position = 0;
    change_members(value, |name, member| {
        let name = name.and_then(Value::to_text).map(std::borrow::Cow::into_owned);
        let name = name.unwrap_or_else(|| position.to_string());
        position += 1;
        let applies = match first {
            SecretStep::At(own) => *own == name,
            SecretStep::Each => true,
            SecretStep::EachExcept(others) => {
                !others.iter().any(|other| other.eq_ignore_ascii_case(&name))
            }
        };
        if applies { hide(member, rest) } else { None }
    })
}

/// Returns a map or a vector with some of its members replaced. `None` if none is.
fn change_members(
    value: &Value,
    mut change: impl FnMut(Option<&Value>, &Value) -> Option<Value>,
) -> Option<Value> {
    match value {
        Value::Map(map) => {
            let mut changed = None;
            for (name, member) in map.iter(&NoCells).flatten() {
                if let Some(member) = change(Some(&name), &member) {
                    let map = changed.as_ref().unwrap_or(map);
                    changed = Some(map.insert(name, member, &NoCells).unwrap_or_default());
                }
            }
            changed.map(Value::from)
        }
        Value::Vector(items) => {
            let mut is_changed = false;
            let items = items.iter(&NoCells).flatten().map(|item| {
                let changed = change(None, &item);
                is_changed |= changed.is_some();
                changed.unwrap_or(item)
            });
            let items = Vector::from_items(items.collect());
            is_changed.then(|| items.into())
        }
        _ => None,
    }
}

/// Returns paths as a value: the name of a member is a text, `true` means each member, and a vector the names
/// of those that are left out.
pub fn secrets_to_value(secrets: &[SecretPath]) -> Value {
    let step = |step: &SecretStep| match step {
        SecretStep::At(name) => Value::from(name.as_str()),
        SecretStep::Each => true.into(),
        SecretStep::EachExcept(names) => {
            names.iter().map(|name| Value::from(name.as_str())).collect::<Vector>().into()
        }
    };
    let path = |path: &SecretPath| Value::from(path.iter().map(step).collect::<Vector>());
    secrets.iter().map(path).collect::<Vector>().into()
}

/// Reads paths that are loaded completely. What is no path is left out.
pub fn secrets_from_value(value: &Value) -> Vec<SecretPath> {
    let items = |value: &Value| -> Vec<Value> {
        value.as_vector().map(|items| items.iter(&NoCells).flatten().collect()).unwrap_or_default()
    };
    let text = |value: &Value| value.to_text().map(std::borrow::Cow::into_owned);
    let step = |step: &Value| match step {
        Value::Bool(_) => SecretStep::Each,
        Value::Vector(_) => SecretStep::EachExcept(items(step).iter().filter_map(text).collect()),
        name => SecretStep::At(text(name).unwrap_or_default()),
    };
    items(value).iter().map(|path| items(path).iter().map(step).collect()).collect()
}

#[cfg(test)]
mod tests {
    use catena_value::json;

    use super::*;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn credentials_are_removed_at_any_depth() {
        let check = |content: &str, expected: &str| {
            assert_eq!(without_credentials(&value(content)), value(expected), "{content}");
            assert_eq!(
                find_credentials(&value(content)).is_some(),
                content != expected,
                "{content}"
            );
        };
        check(
            r#"{"text":"hi","credentials":{"token":"s3cret"}}"#,
            r#"{"text":"hi","credentials":{"redacted":true}}"#,
        );
        check(
            r#"{"deep":[1,{"credentials":"x","other":[[{"credentials":0}]]}]}"#,
            r#"{"deep":[1,{"credentials":{"redacted":true},"other":[[{"credentials":{"redacted":true}}]]}]}"#,
        );
        check(r#"{"credentials":{"redacted":true}}"#, r#"{"credentials":{"redacted":true}}"#);
        check(r#"{"credentials":null}"#, r#"{"credentials":null}"#);
        check(r#""credentials""#, r#""credentials""#);
        check(r#"[{"credential":1}]"#, r#"[{"credential":1}]"#);
        assert_eq!(find_credentials(&value(r#"{"llm":[{"apiKey":"k"}]}"#)), Some("apiKey"));
    }

    #[test]
    fn secrets_are_removed_by_their_paths() {
        let at = |name: &str| SecretStep::At(name.to_owned());
        let content = value(
            r#"{"login":{"user":"u","password":"p"},"keys":["a","b"],"more":{"Id":1,"x":2}}"#,
        );
        let check = |secret: SecretPath, expected: &str| {
            let secrets = [secret];
            assert_eq!(secrets_from_value(&secrets_to_value(&secrets)), secrets);
            assert_eq!(without_secrets(&content, &secrets), value(expected), "{secrets:?}");
        };
        check(
            vec![at("login"), at("password")],
            r#"{"login":{"user":"u","password":{"redacted":true}},"keys":["a","b"],"more":{"Id":1,"x":2}}"#,
        );
        check(
            vec![at("keys"), SecretStep::Each],
            r#"{"login":{"user":"u","password":"p"},"keys":[{"redacted":true},{"redacted":true}],"more":{"Id":1,"x":2}}"#,
        );
        check(
            vec![at("keys"), at("1")],
            r#"{"login":{"user":"u","password":"p"},"keys":["a",{"redacted":true}],"more":{"Id":1,"x":2}}"#,
        );
        check(
            vec![at("more"), SecretStep::EachExcept(vec!["id".to_owned()])],
            r#"{"login":{"user":"u","password":"p"},"keys":["a","b"],"more":{"Id":1,"x":{"redacted":true}}}"#,
        );
        check(Vec::new(), r#"{"redacted":true}"#);
        check(
            vec![at("login"), at("none")],
            r#"{"login":{"user":"u","password":"p"},"keys":["a","b"],"more":{"Id":1,"x":2}}"#,
        );
    }
}
