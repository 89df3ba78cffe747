//! Categories of failures, whether they are retried, and the error envelope.

use catena_value::Value;

use super::read::object;

/// The category of a failure. The list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Category {
    /// Exceptions, invalid inputs, assertion failures.
    UserCodeError,
    /// A payload that does not match its schema, or an unsupported type.
    ValidationError,
    /// Memory, time or output exceeded.
    ResourceLimit,
    /// A forbidden attempt: system call, file, network.
    SandboxViolation,
    /// A missing dataset, or a digest that does not match.
    DependencyError,
    /// A crash of the executor, or a fault of the platform.
    InternalError,
}

impl Category {
    /// All categories.
    pub const ALL: [Category; 6] = [
        Category::UserCodeError,
        Category::ValidationError,
        Category::ResourceLimit,
        Category::SandboxViolation,
        Category::DependencyError,
        Category::InternalError,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::UserCodeError => "USER_CODE_ERROR",
            Category::ValidationError => "VALIDATION_ERROR",
            Category::ResourceLimit => "RESOURCE_LIMIT",
            Category::SandboxViolation => "SANDBOX_VIOLATION",
            Category::DependencyError => "DEPENDENCY_ERROR",
            Category::InternalError => "INTERNAL_ERROR",
        }
    }

    /// Parses a name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }

    /// Returns true if a job that failed so is attempted again without a new request. A missing
    /// dependency is not: the same request after its upload creates a new job.
    pub const fn is_retried(self) -> bool {
        matches!(self, Category::InternalError)
    }
}

/// The error of a contract job or of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractError {
    /// Its category.
    pub category: Category,
    /// A code within the category, such as `PYTHON_EXCEPTION`.
    pub code: String,
    /// One sentence without a full stop.
    pub message: String,
    /// What else is known: field, line, traceback and more.
    pub details: Vec<(&'static str, Value)>,
}

impl ContractError {
    /// An error without details.
    pub fn new(category: Category, code: &str, message: impl Into<String>) -> Self {
        ContractError {
            category,
            code: code.to_owned(),
            message: message.into(),
            details: Vec::new(),
        }
    }

    /// The error of a payload that is not valid.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(Category::ValidationError, code, message)
    }

    /// The error of a member of a payload. `field` is its path, with dots.
    pub fn at(field: &str, message: impl std::fmt::Display) -> Self {
        Self::invalid("INVALID_PAYLOAD", format!("`{field}` {message}")).with("field", field)
    }

    /// The same with one more detail.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.details.push((name, value.into()));
        self
    }

    /// The error as a value: `{category, code, message, details}`.
    pub fn to_value(&self) -> Value {
        object([
            ("category", self.category.as_str().into()),
            ("code", self.code.as_str().into()),
            ("message", self.message.as_str().into()),
            ("details", object(self.details.iter().cloned())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 9.3 of the source, line by line.
    #[test]
    fn only_internal_errors_are_retried() {
        for (category, is_retried) in [
            ("USER_CODE_ERROR", false),   // no automatic retry
            ("VALIDATION_ERROR", false),  // no automatic retry
            ("RESOURCE_LIMIT", false),    // no automatic retry (unless limits changed)
            ("SANDBOX_VIOLATION", false), // no automatic retry
            ("DEPENDENCY_ERROR", false),  // retry only if dependency becomes available
            ("INTERNAL_ERROR", true),     // eligible for retry (bounded attempts)
        ] {
            assert_eq!(Category::parse(category).unwrap().is_retried(), is_retried, "{category}");
        }
        assert_eq!(Category::ALL.len(), 6);
    }
}
