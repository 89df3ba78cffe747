//! Authentication: which identity sends a request.
//!
//! A token is accepted or refused; a refused token never makes its bearer anonymous. Verifying a
//! signature costs more than the rest of a small request, so verified tokens are cached until they
//! expire: nothing else that a token says changes with time.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use catena_auth::limits::CLOCK_SKEW_SECONDS;
use catena_auth::{Identity, KeyPair};
use catena_engine::{Caller, Did, Role};
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};

use crate::identity::tokens::RevokedTokens;
use crate::limits::VERIFIED_TOKENS_MAX;

/// Why a request is not authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    /// There is no token, and public access is off.
    #[error("authentication required")]
    TokenMissing,
    /// The token was refused, for this reason.
    #[error("invalid or expired token: {0}")]
    TokenInvalid(String),
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    venue: catena_auth::Venue,
    /// The identity that all requests without a token share.
    anonymous: Did,
    has_public_access: bool,
    /// DIDs of admins.
    admins: Vec<String>,
    revoked: Arc<RevokedTokens>,
    /// Verified tokens by their SHA-256.
    verified: RwLock<HashMap<[u8; 32], VerifiedToken>>,
}

/// What a verified token says.
#[derive(Clone)]
struct VerifiedToken {
    did: Did,
    role: Role,
    /// Unix time in seconds. `None` if the token does not expire.
    expires: Option<i64>,
    token_id: Option<Arc<str>>,
}

impl Authenticator {
    pub(crate) fn new(
        did: &str,
        key: &KeyPair,
        has_public_access: bool,
        admins: &[String],
        revoked: Arc<RevokedTokens>,
    ) -> Self {
        Authenticator {
            venue: catena_auth::Venue { did: did.to_owned(), public: key.public() },
            anonymous: format!("{did}:public").into(),
            has_public_access,
            admins: admins.to_vec(),
            revoked,
            verified: RwLock::default(),
        }
    }

    /// Whether requests without a token are accepted.
    pub(crate) fn has_public_access(&self) -> bool {
        self.has_public_access
    }

    /// The anonymous identity.
    pub(crate) fn anonymous(&self) -> Caller {
        Caller { did: self.anonymous.clone(), role: Role::Anonymous, delegations: Vec::new() }
    }

    /// The caller that sent these headers. `now` is Unix time in milliseconds.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, now: i64) -> Result<Caller, AuthError> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return if self.has_public_access {
                Ok(self.anonymous())
            } else {
                Err(AuthError::TokenMissing)
            };
        };
        let token = value.to_str().ok().and_then(bearer_token).ok_or_else(|| {
            let reason = "the `Authorization` header is not `Bearer` followed by a token";
            AuthError::TokenInvalid(reason.to_owned())
        })?;
        let verified = self.verify(token, now.div_euclid(1000))?;
        if verified.token_id.as_deref().is_some_and(|id| self.revoked.contains(id)) {
            return Err(AuthError::TokenInvalid("the token was revoked".to_owned()));
        }
        Ok(Caller { did: verified.did, role: verified.role, delegations: Vec::new() })
    }

    /// Verifies a token, or finds it in the cache. `now` is Unix time in seconds.
    fn verify(&self, token: &str, now: i64) -> Result<VerifiedToken, AuthError> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let is_current = |verified: &&VerifiedToken| {
            verified.expires.is_none_or(|expires| expires.saturating_add(CLOCK_SKEW_SECONDS) > now)
        };
        if let Some(verified) = self.verified.read().get(&digest).filter(is_current) {
            return Ok(verified.clone());
        }
        let identity = self.venue.identify(token, now);
        let identity = identity.map_err(|error| AuthError::TokenInvalid(error.to_string()))?;
        let mut verified = VerifiedToken::from(identity);
        if self.admins.iter().any(|admin| **admin == *verified.did) {
            verified.role = Role::Admin;
        }
        let mut cache = self.verified.write();
        if cache.len() >= VERIFIED_TOKENS_MAX {
            cache.clear();
        }
        cache.insert(digest, verified.clone());
        Ok(verified)
    }
}

impl From<Identity> for VerifiedToken {
    fn from(identity: Identity) -> Self {
        VerifiedToken {
            did: identity.did.into(),
            role: if identity.is_admin { Role::Admin } else { Role::Known },
            expires: identity.expires,
            token_id: identity.token_id.map(Arc::from),
        }
    }
}

/// The token in the value of an `Authorization` header.
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use catena_auth::identity::Grant;

    const NOW: i64 = 1_769_683_717;

    fn key() -> KeyPair {
        KeyPair::from_seed(&[9; 32])
    }

    fn authenticator(public_access: bool) -> Authenticator {
        Authenticator::new(&key().did(), &key(), public_access, &[], Arc::default())
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    fn bearer_of(grant: &Grant<'_>) -> HeaderMap {
        let venue = catena_auth::Venue { did: key().did(), public: key().public() };
        headers(&format!("Bearer {}", venue.issue(&key(), grant)))
    }

    const GRANT: Grant<'_> = Grant {
        subject: "did:key:somebody",
        id: "t1",
        issued: NOW,
        expires: Some(NOW + 100),
        is_admin: false,
    };

    #[test]
    fn without_a_token_a_caller_is_anonymous_or_refused() {
        let caller = authenticator(true).authenticate(&HeaderMap::new(), NOW * 1000).unwrap();
        assert_eq!(*caller.did, *format!("{}:public", key().did()));
        assert_eq!(caller.role, Role::Anonymous);
        let refused = authenticator(false).authenticate(&HeaderMap::new(), NOW * 1000).unwrap_err();
        assert_eq!(refused, AuthError::TokenMissing);
    }

    #[test]
    fn a_bad_token_never_makes_its_bearer_anonymous() {
        for value in ["Bearer", "Bearer x", "Basic YTpi", "", "bearer a.b.c"] {
            let refused =
                authenticator(true).authenticate(&headers(value), NOW * 1000).unwrap_err();
            assert!(matches!(refused, AuthError::TokenInvalid(_)), "{value}");
        }
    }

    #[test]
    fn a_venue_token_names_its_subject_until_it_expires() {
        let authenticator = authenticator(false);
        for _ in 0..2 {
            let caller = authenticator.authenticate(&bearer_of(&GRANT), NOW * 1000).unwrap();
            assert_eq!((&*caller.did, caller.role), ("did:key:somebody", Role::Known));
        }
        let late = authenticator.authenticate(&bearer_of(&GRANT), (NOW + 200) * 1000);
        assert!(matches!(late, Err(AuthError::TokenInvalid(_))), "cached, but expired");
        let admin = Grant { is_admin: true, ..GRANT };
        let caller = authenticator.authenticate(&bearer_of(&admin), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
    }

    #[test]
    fn a_revoked_token_is_refused_even_if_it_is_cached() {
        let revoked = Arc::new(RevokedTokens::default());
        let authenticator =
            Authenticator::new(&key().did(), &key(), true, &[], Arc::clone(&revoked));
        assert!(authenticator.authenticate(&bearer_of(&GRANT), NOW * 1000).is_ok());
        revoked.replace(["t1".to_owned()].into());
        let refused = authenticator.authenticate(&bearer_of(&GRANT), NOW * 1000).unwrap_err();
        assert_eq!(refused, AuthError::TokenInvalid("the token was revoked".to_owned()));
    }

    #[test]
    fn the_identities_that_the_operator_names_are_admins() {
        let admins = ["did:key:somebody".to_owned()];
        let authenticator =
            Authenticator::new(&key().did(), &key(), false, &admins, Arc::default());
        let caller = authenticator.authenticate(&bearer_of(&GRANT), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
        let other = Grant { subject: "did:key:other", ..GRANT };
        let caller = authenticator.authenticate(&bearer_of(&other), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Known);
    }

    #[test]
    fn the_token_cache_is_bounded() {
        let authenticator = authenticator(true);
        for at in 0..(VERIFIED_TOKENS_MAX as i64 / 64) {
            let grant = Grant { issued: NOW - at, ..GRANT };
            authenticator.authenticate(&bearer_of(&grant), NOW * 1000).unwrap();
        }
        assert!(authenticator.verified.read().len() <= VERIFIED_TOKENS_MAX);
    }
}
