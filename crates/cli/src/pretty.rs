//! Indented JSON for terminals, with members sorted by name.

use catena_value::{NoCells, Value, json};

use crate::limits::LINE_CHARS_MAX;

/// A value as indented JSON. An array or object that fits stays on one line.
pub(crate) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    let line = json::to_string(value).unwrap_or_default();
    if line.chars().count() + depth * 2 <= LINE_CHARS_MAX {
        return text.push_str(&line);
    }
    match value {
        Value::Map(map) => {
            let mut members = map.fields();
            members.sort_by_key(|(key, _)| key.as_str().unwrap_or_default().to_owned());
            let members =
                members.into_iter().map(|(key, value)| (Some(key.clone()), value.clone()));
            write_all('{', members, '}', depth, text);
        }
        Value::Vector(items) => {
            let items = items.iter(&NoCells).flatten().map(|item| (None, item));
            write_all('[', items, ']', depth, text);
        }
        _ => text.push_str(&line),
    }
}

fn write_all(
    open: char,
    members: impl Iterator<Item = (Option<Value>, Value)>,
    close: char,
    depth: usize,
    text: &mut String,
) {
    text.push(open);
    for (at, (key, value)) in members.enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(depth + 1));
        if let Some(key) = key {
            text.push_str(&json::to_string(&key).unwrap_or_default());
            text.push_str(": ");
        }
        write(&value, depth + 1, text);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
    text.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_indented_and_read_back_the_same() {
        let long = "x".repeat(60);
        let source = format!(r#"{{"b":["{long}",1.0,{{}}],"a":{{"n":12345678901234567890}}}}"#);
        let value = json::read(source.as_bytes()).unwrap();
        let text = pretty(&value);
        let expected = format!(
            "{{\n  \"a\": {{\"n\":12345678901234567890}},\n  \"b\": [\n    \"{long}\",\n    1.0,\n    {{}}\n  ]\n}}"
        );
        assert_eq!(text, expected);
        assert_eq!(json::read(text.as_bytes()).unwrap(), value);
        assert_eq!(pretty(&Value::from(5)), "5");
    }
}
