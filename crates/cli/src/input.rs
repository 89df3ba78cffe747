//! Bounded input of a command: a file or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use catena_value::Value;
use catena_value::json::{self, JsonError};
use catena_value::limits::{DOCUMENT_BYTES_MAX, JSON_DEPTH_MAX};

use crate::exit::Exit;
use crate::output::Failure;

/// A file, standard input (`-`) or an argument.
pub(crate) struct Input {
    name: String,
    reader: Box<dyn BufRead>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            let reader = Box::new(io::stdin().lock());
            return Ok(Input { name: "standard input".to_owned(), reader });
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Input { name, reader: Box::new(BufReader::new(file)) }),
            Err(error) => Err(read_failure(&name, &error)),
        }
    }

    /// The input that an argument refers to: `@FILE`, `-` for standard input, or the argument itself.
    /// `what` names the argument in errors.
    pub(crate) fn from_argument(argument: &str, what: &str) -> Result<Self, Failure> {
        match argument.strip_prefix('@') {
            Some(file) => Self::open(Path::new(file)),
            None if argument == "-" => Self::open(Path::new("-")),
            None => {
                let reader = Box::new(io::Cursor::new(argument.to_owned().into_bytes()));
                Ok(Input { name: what.to_owned(), reader })
            }
        }
    }

    /// Reads everything as one JSON document.
    pub(crate) fn document(self) -> Result<Value, Failure> {
        self.document_nested(JSON_DEPTH_MAX)
    }

    /// Reads everything as one JSON document with another bound on nesting.
    pub(crate) fn document_nested(mut self, depth_max: usize) -> Result<Value, Failure> {
        let text = self.bytes()?;
        let read = json::read_nested(&text, depth_max);
        read.map_err(|error| invalid_json(&self.name, &error, error.line))
    }

    /// Reads everything as JSON, and returns it with its text.
    pub(crate) fn document_and_text(mut self) -> Result<(Value, Vec<u8>), Failure> {
        let text = self.bytes()?;
        match json::read(&text) {
            Ok(value) => Ok((value, text)),
            Err(error) => Err(invalid_json(&self.name, &error, error.line)),
        }
    }

    /// Reads everything as JSON, or as a text if it does not start like JSON.
    pub(crate) fn document_or_text(mut self) -> Result<Value, Failure> {
        let bytes = self.bytes()?;
        let looks_like_json = bytes
            .iter()
            .find(|byte| !byte.is_ascii_whitespace())
            .is_some_and(|byte| matches!(byte, b'{' | b'[' | b'"'));
        match (json::read(&bytes), str::from_utf8(&bytes)) {
            (Ok(value), _) => Ok(value),
            (Err(_), Ok(text)) if !looks_like_json => {
                Ok(Value::from(text.trim_end_matches(['\r', '\n'])))
            }
            (Err(error), _) => Err(invalid_json(&self.name, &error, error.line)),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        let bound = DOCUMENT_BYTES_MAX as u64 + 1;
        let read = (&mut self.reader).take(bound).read_to_end(&mut text);
        read.map_err(|error| read_failure(&self.name, &error))?;
        self.check_length(&text, "")?;
        Ok(text)
    }

    /// The next line without its line end; `None` after the last. `number` is for errors.
    pub(crate) fn line(&mut self, number: usize) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let bound = DOCUMENT_BYTES_MAX as u64 + 2;
        let read = (&mut self.reader).take(bound).read_until(b'\n', &mut line);
        if read.map_err(|error| read_failure(&self.name, &error))? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        self.check_length(&line, &format!("line {number} of "))?;
        Ok(Some(line))
    }

    /// Parses one line as a JSON document.
    pub(crate) fn line_document(&self, line: &[u8], number: usize) -> Result<Value, Failure> {
        json::read(line).map_err(|error| invalid_json(&self.name, &error, number))
    }

    fn check_length(&self, text: &[u8], part: &str) -> Result<(), Failure> {
        if text.len() <= DOCUMENT_BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "{part}{} has more than {DOCUMENT_BYTES_MAX} bytes, the limit of one document",
            self.name
        );
        Err(Failure::new(Exit::Invalid, "too_large", message))
    }
}

fn read_failure(name: &str, error: &io::Error) -> Failure {
    let (exit, code) = match error.kind() {
        io::ErrorKind::NotFound => (Exit::NotFound, "file_not_found"),
        _ => (Exit::Invalid, "file_unreadable"),
    };
    Failure::new(exit, code, format!("could not read {name}: {error}"))
}

/// The failure of a document with a syntax error. `line` counts from the start of the input.
fn invalid_json(name: &str, error: &JsonError, line: usize) -> Failure {
    let place = format!("line {line} column {}", error.column);
    let message = format!("{name} is not valid JSON: {} at {place}", error.fault);
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    Failure::new(Exit::Invalid, "invalid_json", message)
        .with("line", number(line))
        .with("column", number(error.column))
        .with("offset", number(error.offset))
}
