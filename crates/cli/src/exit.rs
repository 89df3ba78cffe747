//! The codes a command ends with, the same for all of them.

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Wrong usage or invalid input.
    Invalid = 2,
    /// Something that was named does not exist.
    NotFound = 3,
    /// A proof does not hold.
    VerificationFailed = 6,
}
