//! What a command says, and where: data on the standard output, errors on the standard error,
//! both as text or as JSON.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};
use std::process::ExitCode;

use catena_value::{Map, Value, json};

use crate::exit::Exit;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    code: Cow<'static, str>,
    message: String,
    /// What one can do.
    hint: Option<String>,
    /// Whether everything was said already, and only the code is left.
    is_told: bool,
    /// Further members of the error as JSON.
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
            is_told: false,
            detail: Vec::new(),
        }
    }

    /// An end with this code about which the data says everything.
    pub(crate) fn told(exit: Exit) -> Self {
        Failure { is_told: true, ..Failure::new(exit, "", "") }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.push((name, value.into()));
        self
    }

    fn to_json(&self) -> String {
        let own = [("error", Value::from(self.message.as_str())), ("code", (*self.code).into())];
        let hint = self.hint.as_deref().map(|hint| ("hint", Value::from(hint)));
        let fields: Map = own.into_iter().chain(hint).chain(self.detail.iter().cloned()).collect();
        json::to_string(&fields.into()).unwrap_or_else(|_| self.message.clone())
    }

    fn to_text(&self) -> String {
        let message = printable(&self.message);
        match &self.hint {
            Some(hint) => format!("error: {message}\nhint: {}", printable(hint)),
            None => format!("error: {message}"),
        }
    }
}

/// A text that somebody else wrote, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Where a command writes.
pub(crate) struct Output {
    is_json: bool,
    is_plain: bool,
    data: BufWriter<Stdout>,
    /// The first error of writing data; what follows is not attempted.
    broken: Option<io::Error>,
}

impl Output {
    /// Writes JSON or text; `is_plain` text has no colours.
    pub(crate) fn new(is_json: bool, is_plain: bool) -> Self {
        Output { is_json, is_plain, data: BufWriter::new(io::stdout()), broken: None }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether what is not data may be painted.
    pub(crate) fn is_colourful(&self) -> bool {
        !self.is_plain
    }

    /// Whether data is read by a person.
    pub(crate) fn is_read_by_person(&self) -> bool {
        !self.is_json && io::stdout().is_terminal()
    }

    /// Writes one value as data: on one line, or over several for a person.
    pub(crate) fn value(&mut self, value: &Value) {
        let text = match self.is_read_by_person() {
            true => crate::pretty::pretty(value),
            false => json::to_string(value).unwrap_or_default(),
        };
        self.line(&text);
    }

    /// Hands over what was written so far, for those who read along.
    pub(crate) fn flush(&mut self) {
        if self.broken.is_none() {
            self.broken = self.data.flush().err();
        }
    }

    /// Writes a text that is data and ends its own lines.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if self.broken.is_none() {
            self.broken = self.data.write_all(bytes).err();
        }
    }

    /// Writes one line of data.
    pub(crate) fn line(&mut self, text: &str) {
        if self.broken.is_none() {
            self.broken = writeln!(self.data, "{text}").err();
        }
    }

    /// Says something that is not data.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_json {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Ends the command: flushes data, tells the failure, and gives the code.
    pub(crate) fn finish(mut self, done: &Result<(), Failure>) -> ExitCode {
        let flushed = match self.broken.take() {
            Some(error) => Err(error),
            None => self.data.flush(),
        };
        if let Err(failure) = done {
            let text = match self.is_json {
                true => failure.to_json(),
                false => failure.to_text(),
            };
            if !failure.is_told {
                // Nothing is left to tell it to when the standard error is closed too.
                let _ = writeln!(io::stderr(), "{text}");
            }
            return ExitCode::from(failure.exit as u8);
        }
        match flushed {
            // A reader that has seen enough is not an error.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = writeln!(io::stderr(), "error: could not write the result: {error}");
                ExitCode::from(Exit::Invalid as u8)
            }
            _ => ExitCode::SUCCESS,
        }
    }
}
