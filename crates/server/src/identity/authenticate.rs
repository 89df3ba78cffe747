//! Who is asking.
//!
//! A token is believed or refused; one that is refused never makes its bearer anonymous. Checking a
//! signature costs more than everything else about a small request, so tokens that held are
//! remembered until they end: the rest of what a token says does not change with time.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use catena_auth::limits::CLOCK_SKEW_SECONDS;
use catena_auth::{Identity, KeyPair};
use catena_engine::{Caller, Did, Role};
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::identity::tokens::Revoked;
use crate::limits::TOKENS_REMEMBERED_MAX;

/// What the venue knows about those who ask.
pub(crate) struct Identities {
    venue: catena_auth::Venue,
    anonymous: Did,
    public_access: bool,
    admins: Vec<String>,
    revoked: Arc<Revoked>,
    remembered: RwLock<HashMap<[u8; 32], Known>>,
}

#[derive(Clone)]
struct Known {
    did: Did,
    role: Role,
    expires: Option<i64>,
    token_id: Option<Arc<str>>,
}

impl Identities {
    pub(crate) fn new(
        did: &str,
        key: &KeyPair,
        public_access: bool,
        admins: &[String],
        revoked: Arc<Revoked>,
    ) -> Self {
        Identities {
            venue: catena_auth::Venue { did: did.to_owned(), public: key.public() },
            anonymous: format!("{did}:public").into(),
            public_access,
            admins: admins.to_vec(),
            revoked,
            remembered: RwLock::default(),
        }
    }

    /// Whether somebody without a token may ask.
    pub(crate) fn has_public_access(&self) -> bool {
        self.public_access
    }

    /// The identity that all share who show no token.
    pub(crate) fn anonymous(&self) -> Caller {
        Caller { did: self.anonymous.clone(), role: Role::Anonymous, delegations: Vec::new() }
    }

    /// Who sent these headers, at `now` in milliseconds since 1970.
    pub(crate) fn identify(&self, headers: &HeaderMap, now: i64) -> ApiResult<Caller> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return match self.public_access {
                true => Ok(self.anonymous()),
                false => Err(ApiError::new(Code::TokenMissing, "authentication required")),
            };
        };
        let token = value.to_str().ok().and_then(bearer).ok_or_else(|| {
            invalid("the `Authorization` header is not `Bearer` and a token".to_owned())
        })?;
        let known = self.known(token, now.div_euclid(1000))?;
        if known.token_id.as_deref().is_some_and(|id| self.revoked.contains(id)) {
            return Err(invalid("the token was revoked".to_owned()));
        }
        Ok(Caller { did: known.did, role: known.role, delegations: Vec::new() })
    }

    fn known(&self, token: &str, now: i64) -> ApiResult<Known> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let is_current = |known: &&Known| {
            known.expires.is_none_or(|expires| expires.saturating_add(CLOCK_SKEW_SECONDS) > now)
        };
        if let Some(known) = self.remembered.read().get(&digest).filter(is_current) {
            return Ok(known.clone());
        }
        let identity =
            self.venue.identify(token, now).map_err(|refused| invalid(refused.to_string()))?;
        let mut known = Known::from(identity);
        if self.admins.iter().any(|admin| **admin == *known.did) {
            known.role = Role::Admin;
        }
        let mut remembered = self.remembered.write();
        if remembered.len() >= TOKENS_REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(digest, known.clone());
        Ok(known)
    }
}

impl From<Identity> for Known {
    fn from(identity: Identity) -> Self {
        Known {
            did: identity.did.into(),
            role: if identity.is_admin { Role::Admin } else { Role::Known },
            expires: identity.expires,
            token_id: identity.token_id.map(Arc::from),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn invalid(reason: String) -> ApiError {
    ApiError::new(Code::TokenInvalid, "invalid or expired token").detail(reason)
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

    fn identities(public_access: bool) -> Identities {
        Identities::new(&key().did(), &key(), public_access, &[], Arc::default())
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    fn issued(grant: &Grant<'_>) -> HeaderMap {
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
    fn without_a_token_one_is_anonymous_or_refused() {
        let caller = identities(true).identify(&HeaderMap::new(), NOW * 1000).unwrap();
        assert_eq!(*caller.did, *format!("{}:public", key().did()));
        assert_eq!(caller.role, Role::Anonymous);
        let refused = identities(false).identify(&HeaderMap::new(), NOW * 1000).unwrap_err();
        assert_eq!(refused.code(), Code::TokenMissing);
        let response = refused.into_response();
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }

    #[test]
    fn a_bad_token_never_makes_its_bearer_anonymous() {
        for value in ["Bearer", "Bearer x", "Basic YTpi", "", "bearer a.b.c"] {
            let refused = identities(true).identify(&headers(value), NOW * 1000).unwrap_err();
            assert_eq!(refused.code(), Code::TokenInvalid, "{value}");
        }
    }

    #[test]
    fn a_venue_token_names_its_subject_until_it_ends() {
        let identities = identities(false);
        for _ in 0..2 {
            let caller = identities.identify(&issued(&GRANT), NOW * 1000).unwrap();
            assert_eq!((&*caller.did, caller.role), ("did:key:somebody", Role::Known));
        }
        let late = identities.identify(&issued(&GRANT), (NOW + 200) * 1000);
        assert_eq!(late.unwrap_err().code(), Code::TokenInvalid, "remembered, but ended");
        let admin = Grant { is_admin: true, ..GRANT };
        let caller = identities.identify(&issued(&admin), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
    }

    #[test]
    fn a_revoked_token_is_refused_even_when_it_is_remembered() {
        let revoked = Arc::new(Revoked::default());
        let identities = Identities::new(&key().did(), &key(), true, &[], Arc::clone(&revoked));
        assert!(identities.identify(&issued(&GRANT), NOW * 1000).is_ok());
        revoked.replace(["t1".to_owned()].into());
        let refused = identities.identify(&issued(&GRANT), NOW * 1000).unwrap_err();
        assert_eq!(refused.code(), Code::TokenInvalid);
    }

    #[test]
    fn those_whom_the_operator_names_are_admins() {
        let admins = ["did:key:somebody".to_owned()];
        let identities = Identities::new(&key().did(), &key(), false, &admins, Arc::default());
        let caller = identities.identify(&issued(&GRANT), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
        let other = Grant { subject: "did:key:other", ..GRANT };
        let caller = identities.identify(&issued(&other), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Known);
    }

    #[test]
    fn few_tokens_are_remembered() {
        let identities = identities(true);
        for at in 0..(TOKENS_REMEMBERED_MAX as i64 / 64) {
            let grant = Grant { issued: NOW - at, ..GRANT };
            identities.identify(&issued(&grant), NOW * 1000).unwrap();
        }
        assert!(identities.remembered.read().len() <= TOKENS_REMEMBERED_MAX);
    }
}
