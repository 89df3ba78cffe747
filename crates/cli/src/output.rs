//! What a command says, and where: data on the standard output, errors on the standard error,
//! both as text or as JSON.

use std::io::{self, BufWriter, Stdout, Write};
use std::process::ExitCode;

use catena_value::{Map, Value, json};

use crate::exit::Exit;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    code: &'static str,
    message: String,
    /// Further members of the error as JSON.
    detail: Vec<(&'static str, Value)>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Failure { exit, code, message: message.into(), detail: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.push((name, value.into()));
        self
    }

    fn to_json(&self) -> String {
        let own = [("error", Value::from(self.message.as_str())), ("code", self.code.into())];
        let fields: Map = own.into_iter().chain(self.detail.iter().cloned()).collect();
        json::to_string(&fields.into()).unwrap_or_else(|_| self.message.clone())
    }
}

/// Where a command writes.
pub(crate) struct Output {
    is_json: bool,
    data: BufWriter<Stdout>,
    /// The first error of writing data; what follows is not attempted.
    broken: Option<io::Error>,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        Output { is_json, data: BufWriter::new(io::stdout()), broken: None }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
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
                false => format!("error: {}", failure.message),
            };
            // Nothing is left to tell it to when the standard error is closed too.
            let _ = writeln!(io::stderr(), "{text}");
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
