//! Where a value comes from: the input, a constant, a step's output, or a combination of those.

use std::collections::BTreeSet;

use catena_value::path::{Path, PathError};
use catena_value::{CellSource, Extent, ExtentError, LoadError, Map, Value, Vector, json};

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};

/// The source of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A part of the orchestration's input.
    Input(Path),
    /// A literal.
    Const(Value),
    /// A part of a step's output.
    Step {
        /// Index of the step.
        index: u32,
        /// Path within its output.
        path: Path,
    },
    /// The concatenation of texts.
    Concat(Vec<Source>),
    /// An array of values.
    Array(Vec<Source>),
    /// An object, as names and values.
    Object(Vec<(String, Source)>),
}

/// The reason why a source has no value.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// A referenced member or array position does not exist.
    #[error("{} has nothing at `{path}`", origin(.step))]
    Absent {
        /// Step whose output was referenced. `None` if it was the input.
        step: Option<u32>,
        /// Path that does not exist.
        path: Path,
    },
    /// A part of `concat` has no text form.
    #[error("`concat` takes strings, numbers and booleans, but part {part} is of type {kind}")]
    NotText {
        /// Index of the part, from zero.
        part: usize,
        /// Type of the part.
        kind: &'static str,
    },
    /// A step whose output is needed has not ended.
    #[error("step {0} has no output yet")]
    NotFinished(u32),
    /// The assembled value is larger or deeper than a value may be.
    #[error("the assembled value {0}")]
    TooMuch(ExtentError),
    /// A part of a value could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<ExtentError> for EvaluateError {
    fn from(error: ExtentError) -> Self {
        match error {
            ExtentError::Load(error) => EvaluateError::Load(error),
            error => EvaluateError::TooMuch(error),
        }
    }
}

/// Limits of a value that a source assembles.
const LIMITS: Extent = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };

/// The value of a source.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The value.
    pub value: Value,
    /// Size of the assembled value in bytes; 0 for a value that is only passed on.
    pub bytes: u64,
}

/// What a source refers to, for messages.
fn origin(step: &Option<u32>) -> String {
    step.map_or_else(|| "the input".to_owned(), |step| format!("the output of step {step}"))
}

/// The values that sources are evaluated against.
pub trait Outputs {
    /// Input of the orchestration.
    fn input(&self) -> &Value;
    /// Output of a step. `None` if the step is not COMPLETE.
    fn output(&self, step: u32) -> Option<&Value>;
}

impl Source {
    /// Adds the steps whose outputs the source needs to `found`.
    pub fn dependencies(&self, found: &mut BTreeSet<u32>) {
        match self {
            Source::Input(_) | Source::Const(_) => {}
            Source::Step { index, .. } => {
                found.insert(*index);
            }
            Source::Concat(parts) | Source::Array(parts) => {
                parts.iter().for_each(|part| part.dependencies(found));
            }
            Source::Object(members) => {
                members.iter().for_each(|(_, member)| member.dependencies(found));
            }
        }
    }

    /// Evaluates the source. The result is within [`VALUE_BYTES_MAX`] and [`VALUE_DEPTH_MAX`].
    pub fn evaluate(
        &self,
        from: &dyn Outputs,
        cells: &dyn CellSource,
    ) -> Result<Evaluated, EvaluateError> {
        let value = self.assemble(from, cells, &mut { LIMITS.bytes })?;
        let bytes = match self {
            // A part of a value that was checked when it was created.
            Source::Input(_) | Source::Const(_) | Source::Step { .. } => 0,
            Source::Concat(_) | Source::Array(_) | Source::Object(_) => {
                LIMITS.measure(&value, cells)?
            }
        };
        Ok(Evaluated { value, bytes })
    }

    /// Assembles the value. `bytes_left` is how much new text may still be created.
    fn assemble(
        &self,
        from: &dyn Outputs,
        cells: &dyn CellSource,
        bytes_left: &mut u64,
    ) -> Result<Value, EvaluateError> {
        match self {
            Source::Const(value) => Ok(value.clone()),
            Source::Input(path) if leads_to_absent_input(from.input(), path, cells)? => {
                Ok(Value::Nil)
            }
            Source::Input(path) => value_at(from.input(), None, path, cells),
            Source::Step { index, path } => {
                let output = from.output(*index).ok_or(EvaluateError::NotFinished(*index))?;
                value_at(output, Some(*index), path, cells)
            }
            Source::Concat(parts) => concat(parts, from, cells, bytes_left),
            Source::Array(parts) => {
                let items: Result<Vec<_>, _> =
                    parts.iter().map(|part| part.assemble(from, cells, bytes_left)).collect();
                Ok(Vector::from_items(items?).into())
            }
            Source::Object(members) => {
                let mut values = Vec::with_capacity(members.len());
                for (name, source) in members {
                    values.push((name.as_str(), source.assemble(from, cells, bytes_left)?));
                }
                Ok(values.into_iter().collect::<Map>().into())
            }
        }
    }
}

/// Whether a path leads into a member that the input does not have, or has as null. Such a member is
/// optional, because the schema of the input would have refused it otherwise.
fn leads_to_absent_input(
    input: &Value,
    path: &Path,
    cells: &dyn CellSource,
) -> Result<bool, EvaluateError> {
    let (Some(first), Value::Map(members)) = (path.segments().first(), input) else {
        return Ok(input.is_nil() && !path.segments().is_empty());
    };
    let member = members.get(&first.as_str().into(), cells)?;
    Ok(member.is_none_or(|member| member.is_nil()))
}

/// The value at a path. An absent member is an error; a member that is null is null.
fn value_at(
    root: &Value,
    step: Option<u32>,
    path: &Path,
    cells: &dyn CellSource,
) -> Result<Value, EvaluateError> {
    match path.get(root, cells) {
        Ok(Some(value)) => Ok(value),
        Err(PathError::Load(error)) => Err(error.into()),
        Ok(None) | Err(_) => Err(EvaluateError::Absent { step, path: path.clone() }),
    }
}

fn concat(
    parts: &[Source],
    from: &dyn Outputs,
    cells: &dyn CellSource,
    bytes_left: &mut u64,
) -> Result<Value, EvaluateError> {
    let mut text = String::new();
    for (part, source) in parts.iter().enumerate() {
        let value = source.assemble(from, cells, bytes_left)?;
        match &value {
            Value::Nil => {}
            Value::String(own) => {
                let too_large = || EvaluateError::TooMuch(ExtentError::Bytes(LIMITS.bytes));
                *bytes_left = bytes_left.checked_sub(own.len()).ok_or_else(too_large)?;
                text += &String::from_utf8_lossy(&own.to_bytes(cells)?);
            }
            Value::Integer(_) | Value::Double(_) | Value::Bool(_) => {
                text += &json::to_string(&value).unwrap_or_default();
            }
            other => return Err(EvaluateError::NotText { part, kind: other.kind() }),
        }
    }
    Ok(text.into())
}
