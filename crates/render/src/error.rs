//! Why something cannot be rendered.

use crate::latex::LatexError;

/// What kind of error it is: who must change what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The source is wrong.
    Source,
    /// An image is not one, or of no known format.
    Image,
    /// A bound was reached.
    Limit,
    /// The source tried to reach a file, a package or an address.
    Access,
    /// The request itself is malformed. It is checked before it is sent here.
    Request,
}

impl Kind {
    /// The code in results.
    pub fn code(self) -> &'static str {
        match self {
            Kind::Source => "LATEX_ERROR",
            Kind::Image => "IMAGE_INVALID",
            Kind::Limit => "RENDER_LIMIT",
            Kind::Access => "FORBIDDEN_ACCESS",
            Kind::Request => "PROGRAM_FAILED",
        }
    }
}

/// Why something cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RenderError {
    /// What kind of error it is.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// The line of the source, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The block of a document: its ID, or its position.
    pub block: Option<String>,
}

impl RenderError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        RenderError { kind, message: message.into(), line: None, column: None, block: None }
    }

    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self::new(Kind::Limit, message)
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Kind::Request, message)
    }

    pub(crate) fn at(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (Some(line), Some(column));
        self
    }

    pub(crate) fn in_block(mut self, block: &str) -> Self {
        self.block.get_or_insert_with(|| block.to_owned());
        self
    }
}

impl From<LatexError> for RenderError {
    fn from(error: LatexError) -> Self {
        let kind = if error.is_limit { Kind::Limit } else { Kind::Source };
        RenderError::new(kind, error.message).at(error.place.line, error.place.column)
    }
}
