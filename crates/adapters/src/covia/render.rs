//! Renders a value as text within a number of bytes.
//!
//! The text is JSON with comments (JSON5) that say what was left out, for people and for models. Only
//! what is shown is loaded.

use catena_engine::Failure;
use catena_value::{CellSource, Value, json};

use crate::covia::query::{entries, len, load_failure, type_name};

/// Bytes of a text that are shown at least, however little room is left.
const TEXT_BYTES_MIN: usize = 16;

/// Renders a value. The result exceeds `budget` only by closing brackets and comments.
pub(crate) fn render(
    value: Option<&Value>,
    budget: usize,
    is_compact: bool,
    cells: &dyn CellSource,
) -> Result<String, Failure> {
    let Some(value) = value else { return Ok("/* absent */".to_owned()) };
    let mut renderer = Renderer { out: String::new(), budget, is_compact, cells };
    renderer.value(value, 0)?;
    Ok(renderer.out)
}

struct Renderer<'a> {
    out: String,
    budget: usize,
    is_compact: bool,
    cells: &'a dyn CellSource,
}

impl Renderer<'_> {
    fn left(&self) -> usize {
        self.budget.saturating_sub(self.out.len())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Failure> {
        match value {
            Value::Map(_) | Value::Index(_) => self.container(value, ('{', '}'), depth),
            Value::Vector(_) | Value::List(_) | Value::Set(_) => {
                self.container(value, ('[', ']'), depth)
            }
            Value::String(text) => {
                let shown = (self.left().max(TEXT_BYTES_MIN) as u64).min(text.len());
                let bytes = text.read(0, shown, self.cells);
                let bytes = bytes.map_err(|error| load_failure(&error))?;
                self.text(&String::from_utf8_lossy(&bytes));
                if shown < text.len() {
                    self.out.push_str(&format!(" /* {} of {} bytes */", shown, text.len()));
                }
                Ok(())
            }
            Value::Blob(blob) => {
                self.out.push_str(&format!("/* Blob of {} bytes */ null", blob.len()));
                Ok(())
            }
            other => {
                match json::to_string(other) {
                    Ok(text) => self.out.push_str(&text),
                    Err(_) => self.out.push_str(&format!("/* {} */ null", type_name(Some(other)))),
                }
                Ok(())
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(&json::to_string(&text.into()).unwrap_or_default());
    }

    fn container(
        &mut self,
        value: &Value,
        (open, close): (char, char),
        depth: usize,
    ) -> Result<(), Failure> {
        let count = len(value).unwrap_or(0);
        self.out.push(open);
        let mut shown = 0;
        for entry in entries(value, 0, self.cells) {
            if self.left() == 0 {
                break;
            }
            let entry = entry.map_err(|error| load_failure(&error))?;
            if shown > 0 {
                self.out.push(',');
            }
            self.line(depth + 1);
            if let Some(key) = entry.key {
                let key = key.fully_loaded(self.cells).map_err(|error| load_failure(&error))?;
                match key.to_text() {
                    Some(text) => self.text(&text),
                    None => self.text(&json::to_string(&key).unwrap_or_default()),
                }
                self.out.push_str(if self.is_compact { ":" } else { ": " });
            }
            self.value(&entry.value, depth + 1)?;
            shown += 1;
        }
        if shown < count {
            self.line(depth + 1);
            self.out.push_str(&format!("/* {} more */", count - shown));
        }
        if count > 0 {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    /// Begins a line, unless the text is to be compact.
    fn line(&mut self, depth: usize) {
        if !self.is_compact {
            self.out.push('\n');
            self.out.push_str(&"  ".repeat(depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;
    use catena_value::NoCells;

    #[test]
    fn what_does_not_fit_is_counted() {
        let value = value(r#"{"list":[1,2,3,4,5,6,7,8,9],"text":"abcdefghijklmnopqrstuvwxyz"}"#);
        let check = |budget: usize| render(Some(&value), budget, true, &NoCells).unwrap();
        assert_eq!(
            catena_value::json::read(check(1_000).as_bytes()).unwrap(),
            value,
            "a complete text is JSON"
        );
        let cut = check(12);
        assert!(cut.contains("more */") && cut.len() < 80, "{cut}");
        assert_eq!(render(None, 10, true, &NoCells).unwrap(), "/* absent */");
        let lines = render(Some(&value), 1_000, false, &NoCells).unwrap();
        assert!(lines.contains("\n  \"list\": [\n    1,"), "{lines}");
    }
}
