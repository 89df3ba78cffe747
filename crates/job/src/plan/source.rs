//! Where a value comes from: the input, a constant, a step's output, or several of those together.

use std::collections::BTreeSet;

use catena_value::path::{Path, PathError};
use catena_value::{CellSource, Extent, ExtentError, LoadError, Map, Value, Vector, json};

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};

/// A source of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A place in the orchestration's own input.
    Input(Path),
    /// A literal.
    Const(Value),
    /// A place in a step's output.
    Step {
        /// Which step.
        index: u32,
        /// Where in its output.
        path: Path,
    },
    /// Texts one after the other.
    Concat(Vec<Source>),
    /// A list.
    Array(Vec<Source>),
    /// An object.
    Object(Vec<(String, Source)>),
}

/// Why a source gives no value.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// A member or position that is not there.
    #[error("{} has nothing at `{path}`", of_step(.step))]
    Absent {
        /// The step it should come from; the input when there is none.
        step: Option<u32>,
        /// Where it should be.
        path: Path,
    },
    /// Something that is no text stands between texts.
    #[error("concat takes strings, numbers and booleans; part {part} is of kind {kind}")]
    NotText {
        /// Which part, from zero.
        part: usize,
        /// What it is.
        kind: &'static str,
    },
    /// A step whose output is needed has none.
    #[error("step {0} has no output yet")]
    NotFinished(u32),
    /// What was put together is more than a value may be.
    #[error("what is put together {0}")]
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

/// How much a source may give.
const MOST: Extent = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };

/// What a source gave.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The value.
    pub value: Value,
    /// Bytes that were put together for it. What is only passed on was there before.
    pub bytes: u64,
}

fn of_step(step: &Option<u32>) -> String {
    step.map_or_else(|| "the input".to_owned(), |step| format!("the output of step {step}"))
}

/// What sources are evaluated against.
pub trait Outputs {
    /// The orchestration's input.
    fn input(&self) -> &Value;
    /// The output of a step that is COMPLETE.
    fn output(&self, step: u32) -> Option<&Value>;
}

impl Source {
    /// The steps whose outputs it needs.
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

    /// The value it gives, which is no larger and no deeper than a value may be.
    pub fn evaluate(
        &self,
        from: &dyn Outputs,
        cells: &dyn CellSource,
    ) -> Result<Evaluated, EvaluateError> {
        let value = self.assemble(from, cells, &mut { MOST.bytes })?;
        let bytes = match self {
            // A place in something that was checked when it was made.
            Source::Input(_) | Source::Const(_) | Source::Step { .. } => 0,
            Source::Concat(_) | Source::Array(_) | Source::Object(_) => {
                MOST.measure(&value, cells)?
            }
        };
        Ok(Evaluated { value, bytes })
    }

    /// The value, with no more than so many bytes of new text in it.
    fn assemble(
        &self,
        from: &dyn Outputs,
        cells: &dyn CellSource,
        left: &mut u64,
    ) -> Result<Value, EvaluateError> {
        match self {
            Source::Const(value) => Ok(value.clone()),
            Source::Input(path) => reach(from.input(), None, path, cells),
            Source::Step { index, path } => {
                let output = from.output(*index).ok_or(EvaluateError::NotFinished(*index))?;
                reach(output, Some(*index), path, cells)
            }
            Source::Concat(parts) => concat(parts, from, cells, left),
            Source::Array(parts) => {
                let items: Result<Vec<_>, _> =
                    parts.iter().map(|part| part.assemble(from, cells, left)).collect();
                Ok(Vector::from_items(items?).into())
            }
            Source::Object(members) => {
                let mut values = Vec::with_capacity(members.len());
                for (name, source) in members {
                    values.push((name.as_str(), source.assemble(from, cells, left)?));
                }
                Ok(values.into_iter().collect::<Map>().into())
            }
        }
    }
}

/// What is at a path. Something absent is an error; something that is null is null.
fn reach(
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
    left: &mut u64,
) -> Result<Value, EvaluateError> {
    let mut text = String::new();
    for (part, source) in parts.iter().enumerate() {
        let value = source.assemble(from, cells, left)?;
        match &value {
            Value::Nil => {}
            Value::String(own) => {
                let most = || EvaluateError::TooMuch(ExtentError::Bytes(MOST.bytes));
                *left = left.checked_sub(own.len()).ok_or_else(most)?;
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
