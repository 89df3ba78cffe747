//! Where and why a formula cannot be set.

/// A place in a source, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Place {
    /// The beginning of a source.
    pub const START: Place = Place { line: 1, column: 1 };
}

/// Why a formula cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LatexError {
    /// Where.
    pub place: Place,
    /// What is wrong, naming the command.
    pub message: String,
    /// Whether a bound was reached.
    pub is_limit: bool,
}

impl LatexError {
    pub(super) fn new(place: Place, message: impl Into<String>) -> Self {
        LatexError { place, message: message.into(), is_limit: false }
    }

    pub(super) fn limit(place: Place, message: impl Into<String>) -> Self {
        LatexError { place, message: message.into(), is_limit: true }
    }
}
