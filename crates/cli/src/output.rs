//! Output of a command: data on standard output, errors on standard error, both as text or JSON.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};
use std::process::ExitCode;

use catena_value::{Map, Value, json};

use crate::exit::Exit;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    code: Cow<'static, str>,
    message: String,
    /// What the user can do.
    hint: Option<String>,
    /// Whether the output has reported the failure already, so that only the exit code is left.
    is_reported: bool,
    /// Further members of the JSON form.
    detail: Vec<(&'static str, Value)>,
}

impl Failure {
    pub(crate) fn new(
        exit: Exit,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Failure {
            exit,
            code: code.into(),
            message: message.into(),
            hint: None,
            is_reported: false,
            detail: Vec::new(),
        }
    }

    /// A failure that the data on standard output reports already.
    pub(crate) fn already_reported(exit: Exit) -> Self {
        Failure { is_reported: true, ..Failure::new(exit, "", "") }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.push((name, value.into()));
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The members of the JSON form.
    pub(crate) fn to_map(&self) -> Map {
        let own = [("error", Value::from(self.message.as_str())), ("code", (*self.code).into())];
        let hint = self.hint.as_deref().map(|hint| ("hint", Value::from(hint)));
        own.into_iter().chain(hint).chain(self.detail.iter().cloned()).collect()
    }

    fn to_json(&self) -> String {
        let text = json::to_string(&self.to_map().into()).unwrap_or_else(|_| self.message.clone());
        printable_json(&text).into_owned()
    }

    fn to_text(&self) -> String {
        let message = printable(&self.message);
        match &self.hint {
            Some(hint) => format!("error: {message}\nhint: {}", printable(hint)),
            None => format!("error: {message}"),
        }
    }
}

/// A text from another source with control characters escaped, so that a terminal does not interpret
/// them. Lines stay lines.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_unsafe(c) && c != '\n', |c| c.escape_default().collect())
}

/// The same for a text that must stay on one line.
pub(crate) fn printable_line(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, |c| c.escape_default().collect())
}

/// Writes a line of a log that others have written, in one piece. Whoever reads it may be gone.
pub(crate) fn log_line(text: &str) {
    let line = format!("{}\n", printable_line(text));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// JSON text in which all such characters are escaped. JSON leaves some of them as they are, and only
/// strings contain them.
fn printable_json(text: &str) -> Cow<'_, str> {
    let unit = |c: char| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    escape(text, |c| is_unsafe(c) && c != '\n', unit)
}

/// Whether a terminal may interpret a character: control characters, and those that change the
/// direction of text or are invisible.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn escape(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    form: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            escaped.push_str(&form(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// The output of a command.
pub(crate) struct Output {
    is_json: bool,
    is_plain: bool,
    data: BufWriter<Stdout>,
    /// The first error of writing data. After it nothing more is written.
    broken: Option<io::Error>,
}

impl Output {
    /// An output of JSON or text. Text has no colours if `is_plain`.
    pub(crate) fn new(is_json: bool, is_plain: bool) -> Self {
        Output { is_json, is_plain, data: BufWriter::new(io::stdout()), broken: None }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Returns true if data can no longer be written.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns true if notes may have colours.
    pub(crate) fn is_colourful(&self) -> bool {
        !self.is_plain
    }

    /// Returns true if data is written to a terminal as text.
    pub(crate) fn is_interactive(&self) -> bool {
        !self.is_json && io::stdout().is_terminal()
    }

    /// Writes one value as data: on one line, or indented on a terminal.
    pub(crate) fn value(&mut self, value: &Value) {
        let text = if self.is_interactive() {
            crate::pretty::pretty(value)
        } else {
            json::to_string(value).unwrap_or_default()
        };
        self.write_line(&printable_json(&text));
    }

    /// Flushes the data written so far, for readers that follow it.
    pub(crate) fn flush(&mut self) {
        if self.broken.is_none() {
            self.broken = self.data.flush().err();
        }
    }

    /// Writes bytes of data without adding a line end.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if self.broken.is_none() {
            self.broken = self.data.write_all(bytes).err();
        }
    }

    /// Writes one line of data. It may contain what others have written, so control characters are
    /// escaped.
    pub(crate) fn line(&mut self, text: &str) {
        if self.is_json {
            self.write_line(&printable_json(text));
        } else {
            self.write_line(&printable(text));
        }
    }

    fn write_line(&mut self, text: &str) {
        if self.broken.is_none() {
            self.broken = writeln!(self.data, "{text}").err();
        }
    }

    /// Prints a note on standard error, unless the output is JSON.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_json {
            let _ = writeln!(io::stderr(), "{}", printable(text));
        }
    }

    /// Ends the command: flushes data, reports the failure, and returns the exit code.
    pub(crate) fn finish(mut self, done: &Result<(), Failure>) -> ExitCode {
        let flushed = match self.broken.take() {
            Some(error) => Err(error),
            None => self.data.flush(),
        };
        if let Err(failure) = done {
            let text = if self.is_json { failure.to_json() } else { failure.to_text() };
            if !failure.is_reported {
                // If standard error is closed too, the failure cannot be reported.
                let _ = writeln!(io::stderr(), "{text}");
            }
            return ExitCode::from(failure.exit as u8);
        }
        match flushed {
            // A reader that stops reading is not an error.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = writeln!(io::stderr(), "error: could not write the result: {error}");
                ExitCode::from(Exit::Invalid as u8)
            }
            _ => ExitCode::SUCCESS,
        }
    }
}
