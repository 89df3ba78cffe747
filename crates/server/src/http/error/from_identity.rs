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
            AuthError::Blocked(_) | AuthError::NotListed(_) => {
                let code = match error {
                    AuthError::Blocked(_) => Code::IdentityBlocked,
                    _ => Code::NotListed,
                };
                ApiError::new(code, error.to_string())
            }
            AuthError::Delegation(reason) => {
                ApiError::new(Code::DelegationInvalid, "invalid delegation").detail(reason)
            }
        }
    }
}
