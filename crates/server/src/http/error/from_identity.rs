//! Which authentication error becomes which response.

use super::{ApiError, Code};
use crate::identity::authenticate::AuthError;

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::TokenMissing => ApiError::new(Code::TokenMissing, "authentication required"),
            AuthError::TokenInvalid(reason) => {
                ApiError::new(Code::TokenInvalid, "invalid or expired token").detail(reason)
            }
        }
    }
}
