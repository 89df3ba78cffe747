//! A cell: what is to be run, with which files, and within which limits.

use std::fs::File;
use std::path::{Component, Path};

use crate::limits::{INPUTS_BYTES_MAX, INPUTS_MAX, Limits, PARAMETERS_BYTES_MAX, SOURCE_BYTES_MAX};

/// Python source and everything it is given.
#[derive(Debug)]
pub struct Cell {
    /// The module, run as `__main__`.
    pub source: String,
    /// What is called after the body has run.
    pub entrypoint: Entrypoint,
    /// Keyword arguments of the entrypoint: a JSON object. Kept as text, so that no number changes.
    pub parameters: String,
    /// Files that appear read-only below `inputs/`.
    pub inputs: Vec<Input>,
    /// What the cell may use.
    pub limits: Limits,
    /// Formats of the files that become artifacts, as file extensions; `None` for all.
    pub formats: Option<Vec<String>>,
}

impl Cell {
    /// A cell with default limits that calls `main`, if there is one.
    pub fn new(source: impl Into<String>) -> Self {
        Cell {
            source: source.into(),
            entrypoint: Entrypoint::IfDefined("main".to_owned()),
            parameters: "{}".to_owned(),
            inputs: Vec::new(),
            limits: Limits::default(),
            formats: None,
        }
    }
}

/// The function that is called after the body has run; its return value is the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrypoint {
    /// Only the body runs.
    None,
    /// The function of this name is called if it exists.
    IfDefined(String),
    /// The function of this name must exist.
    Required(String),
}

/// A file that the cell can read.
#[derive(Debug)]
pub struct Input {
    /// Where it appears below `inputs/`.
    pub name: String,
    /// Its content, read from the beginning.
    pub file: File,
}

/// Why a cell is refused before anything runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The source is too long.
    #[error("source has {0} bytes; at most {SOURCE_BYTES_MAX} are allowed")]
    SourceTooLong(usize),
    /// The source contains a NUL character.
    #[error("source contains a NUL character")]
    SourceHasNul,
    /// The entrypoint is not a Python identifier.
    #[error("entrypoint {0:?} is not the name of a function")]
    Entrypoint(String),
    /// The parameters are not a JSON object, or too long.
    #[error("parameters must be a JSON object of at most {PARAMETERS_BYTES_MAX} bytes")]
    Parameters,
    /// A limit is zero or beyond what the sandbox can keep.
    #[error("limits.{0} is out of range")]
    Limit(&'static str),
    /// The name of an input file is not a plain relative path.
    #[error("input name {0:?} is not a plain relative path of at most 255 bytes")]
    InputName(String),
    /// Two input files have one name.
    #[error("two inputs are named {0:?}")]
    InputTwice(String),
    /// There are too many input files, or they are too large.
    #[error("inputs have more than {INPUTS_MAX} files or {INPUTS_BYTES_MAX} bytes")]
    InputsTooLarge,
    /// An input file cannot be read.
    #[error("input {0:?} is not a readable regular file")]
    InputUnreadable(String),
}

impl Cell {
    /// Checks everything that can be checked without running the cell. Returns the size of all
    /// inputs in bytes.
    pub fn validate(&self) -> Result<u64, Invalid> {
        if self.source.len() > SOURCE_BYTES_MAX {
            return Err(Invalid::SourceTooLong(self.source.len()));
        }
        if self.source.contains('\0') {
            return Err(Invalid::SourceHasNul);
        }
        if let Entrypoint::IfDefined(name) | Entrypoint::Required(name) = &self.entrypoint
            && !is_identifier(name)
        {
            return Err(Invalid::Entrypoint(name.clone()));
        }
        let parameters = serde_json::from_str::<serde_json::Value>(&self.parameters);
        let is_object = parameters.is_ok_and(|value| value.is_object());
        if self.parameters.len() > PARAMETERS_BYTES_MAX || !is_object {
            return Err(Invalid::Parameters);
        }
        self.limits.validate()?;
        self.validate_inputs()
    }

    fn validate_inputs(&self) -> Result<u64, Invalid> {
        let mut names = std::collections::BTreeSet::new();
        let mut total = 0u64;
        for input in &self.inputs {
            if !is_plain_path(&input.name) {
                return Err(Invalid::InputName(input.name.clone()));
            }
            if !names.insert(&input.name) {
                return Err(Invalid::InputTwice(input.name.clone()));
            }
            let metadata = input.file.metadata().ok().filter(std::fs::Metadata::is_file);
            let size = metadata.ok_or_else(|| Invalid::InputUnreadable(input.name.clone()))?.len();
            total = total.saturating_add(size);
        }
        if total > INPUTS_BYTES_MAX || self.inputs.len() > INPUTS_MAX {
            return Err(Invalid::InputsTooLarge);
        }
        Ok(total)
    }
}

impl Limits {
    fn validate(&self) -> Result<(), Invalid> {
        const DAY_MS: u64 = 86_400_000;
        let checks = [
            ("timeout_ms", self.timeout_ms, 1, DAY_MS),
            ("cpu_ms", self.cpu_ms, 1, DAY_MS),
            ("memory_mb", self.memory_mb, 1, 1 << 20),
            ("max_output_kb", self.max_output_kb, 0, 1 << 20),
            ("max_processes", self.max_processes, 1, 1 << 15),
            ("result_bytes_max", self.result_bytes_max, 0, 64 << 20),
        ];
        match checks.iter().find(|(_, value, least, most)| value < least || value > most) {
            Some((name, ..)) => Err(Invalid::Limit(name)),
            None => Ok(()),
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let starts = characters.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    starts && name.len() <= 255 && characters.all(|c| c == '_' || c.is_alphanumeric())
}

/// Whether a path is relative, in its shortest form, and free of control characters.
pub(crate) fn is_plain_path(name: &str) -> bool {
    let path = Path::new(name);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let rebuilt: std::path::PathBuf = path.components().collect();
    !name.is_empty()
        && name.len() <= 255
        && is_plain
        && rebuilt.as_os_str() == path.as_os_str()
        && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_inputs_stay_below_their_folder() {
        for good in ["a", "objects/1.json", "ü"] {
            assert!(is_plain_path(good), "{good}");
        }
        let long = "x".repeat(256);
        for bad in ["", "/a", "../a", "a/../b", "./a", "a//b", "a/", "a\nb", &long] {
            assert!(!is_plain_path(bad), "{bad}");
        }
    }

    #[test]
    fn impossible_cells_are_refused() {
        let mut cell = Cell::new("a\0b");
        assert_eq!(cell.validate(), Err(Invalid::SourceHasNul));
        cell.source = "x = 1".to_owned();
        assert_eq!(cell.validate(), Ok(0));
        cell.parameters = "[1]".to_owned();
        assert_eq!(cell.validate(), Err(Invalid::Parameters));
        cell.parameters = "{}".to_owned();
        cell.entrypoint = Entrypoint::Required("a b".to_owned());
        assert_eq!(cell.validate(), Err(Invalid::Entrypoint("a b".to_owned())));
        cell.entrypoint = Entrypoint::None;
        cell.limits.timeout_ms = 0;
        assert_eq!(cell.validate(), Err(Invalid::Limit("timeout_ms")));
    }
}
