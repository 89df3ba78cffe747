//! Authentication: which identity sends a request, and whether it may use the venue.
//!
//! A token is accepted or refused; a refused token never makes its bearer anonymous. Verifying a
//! signature costs more than the rest of a small request, so verified tokens are cached until they
//! expire: nothing else that a token says changes with time. What does change, the lists and the
//! names under which the venue was reached, is compared for every request.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, header};
use catena_auth::identity::UnboundToken;
use catena_auth::limits::CLOCK_SKEW_SECONDS;
use catena_auth::{Identity, KeyPair};
use catena_engine::requests::HeldJob;
use catena_engine::{Caller, Did, Role};
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};

use crate::config::AccessMode;
use crate::identity::lists::{AccessLists, List};
use crate::limits::VERIFIED_TOKENS_MAX;

/// Headers by which a proxy says that it forwards the request of another client.
static FORWARDED: [HeaderName; 6] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// Why a request is refused because of who sends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    /// There is no token, and the request is not accepted without one.
    #[error("authentication required")]
    TokenMissing,
    /// The token was refused, for this reason.
    #[error("invalid or expired token: {0}")]
    TokenInvalid(String),
    /// The identity is blocked.
    #[error("{0} is blocked")]
    Blocked(String),
    /// The identity is not on the access list.
    #[error("{0} is not on this venue's access list")]
    NotListed(String),
    /// A delegation was refused, for this reason.
    #[error("invalid delegation: {0}")]
    Delegation(String),
}

/// Who may use the venue.
#[derive(Debug, Clone)]
pub(crate) struct AccessPolicy {
    pub(crate) mode: AccessMode,
    /// Whether the operator has set `access = "anyone"`.
    pub(crate) is_anyone_explicit: bool,
    /// Whether tokens must name their audience.
    pub(crate) unbound: UnboundToken,
    /// DIDs of admins.
    pub(crate) admins: Vec<String>,
    /// DIDs that the configuration lists.
    pub(crate) members: Vec<String>,
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    venue: catena_auth::Venue,
    /// The did:key of the venue's key, which is its DID unless that is a did:web.
    key_did: String,
    /// The identity that all requests without a token share.
    anonymous: Did,
    policy: AccessPolicy,
    lists: Arc<AccessLists>,
    /// Verified tokens by their SHA-256.
    verified: RwLock<HashMap<[u8; 32], VerifiedToken>>,
}

/// Whether an identity may use the venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may.
    Admitted,
    /// It is not on the access list: it may act only for an identity that is, under a delegation.
    NeedsDelegation,
    /// It may use public routes only.
    Public,
}

/// An authenticated request.
#[derive(Debug, Clone)]
pub(crate) struct Authenticated {
    pub(crate) caller: Caller,
    pub(crate) admission: Admission,
    pub(crate) subject: Subject,
}

/// By what a request was authenticated, as far as it can be withdrawn later.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) did: Did,
    token_id: Option<Arc<str>>,
    role: Role,
    /// Whether it is admitted because it is on the access list, and not through a delegation.
    is_listed: bool,
}

/// What a verified token says.
#[derive(Clone)]
struct VerifiedToken {
    did: Did,
    role: Role,
    identity: Arc<Identity>,
    token_id: Option<Arc<str>>,
    /// The queues from which the bearer may claim jobs, if it may do nothing else.
    queues: Option<Arc<[String]>>,
    /// The job on which the bearer may work, if it may do nothing else.
    held: Option<HeldJob>,
}

impl Authenticator {
    pub(crate) fn new(
        did: &str,
        key: &KeyPair,
        policy: AccessPolicy,
        lists: Arc<AccessLists>,
    ) -> Self {
        Authenticator {
            venue: catena_auth::Venue { did: did.to_owned(), public: key.public() },
            key_did: key.did(),
            anonymous: format!("{did}:public").into(),
            policy,
            lists,
            verified: RwLock::default(),
        }
    }

    /// Whether requests without a token are accepted at all.
    pub(crate) fn is_anonymous_on(&self) -> bool {
        self.policy.mode == AccessMode::Anyone
    }

    /// Who may use the venue.
    pub(crate) fn mode(&self) -> AccessMode {
        self.policy.mode
    }

    /// The lists that can change while the venue runs.
    pub(crate) fn lists(&self) -> &Arc<AccessLists> {
        &self.lists
    }

    /// The DIDs of this venue that a delegation may name as its audience.
    pub(super) fn own_dids(&self) -> [&str; 2] {
        [&self.venue.did, &self.key_did]
    }

    /// The anonymous identity.
    pub(crate) fn anonymous(&self) -> Caller {
        Caller::new(self.anonymous.clone(), Role::Anonymous)
    }

    /// A request of the anonymous identity to a public route.
    pub(crate) fn public(&self) -> Authenticated {
        let caller = self.anonymous();
        let did = caller.did.clone();
        let subject = Subject { did, token_id: None, role: caller.role, is_listed: false };
        Authenticated { caller, admission: Admission::Public, subject }
    }

    /// The caller that sent these headers. `is_own_url` decides whether a URL is one under which the
    /// venue was reached. `now` is Unix time in milliseconds.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        is_own_url: impl Fn(&str) -> bool,
        now: i64,
    ) -> Result<Authenticated, AuthError> {
        self.authenticate_with(headers, is_own_url, self.policy.unbound, now)
    }

    /// The same for a route that tells clients the venue's DID, which their first token cannot name
    /// yet. Without a token the result has [`Admission::Public`] if anonymous access is off.
    pub(crate) fn authenticate_first(
        &self,
        headers: &HeaderMap,
        is_own_url: impl Fn(&str) -> bool,
        now: i64,
    ) -> Result<Authenticated, AuthError> {
        match self.authenticate_with(headers, is_own_url, UnboundToken::Accept, now) {
            Err(AuthError::TokenMissing) => Ok(self.public()),
            other => other,
        }
    }

    fn authenticate_with(
        &self,
        headers: &HeaderMap,
        is_own_url: impl Fn(&str) -> bool,
        unbound: UnboundToken,
        now: i64,
    ) -> Result<Authenticated, AuthError> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            let is_forwarded = headers.keys().any(|name| FORWARDED.contains(name));
            let is_accepted = !is_forwarded || self.policy.is_anyone_explicit;
            if !self.is_anonymous_on() || !is_accepted {
                return Err(AuthError::TokenMissing);
            }
            self.check_blocked(&self.anonymous)?;
            return Ok(Authenticated { admission: Admission::Admitted, ..self.public() });
        };
        let token = value.to_str().ok().and_then(bearer_token).ok_or_else(|| {
            let reason = "the `Authorization` header is not `Bearer` followed by a token";
            AuthError::TokenInvalid(reason.to_owned())
        })?;
        let verified = self.verify(token, now.div_euclid(1000))?;
        let binding = verified.identity.check_binding(&self.venue.did, is_own_url, unbound);
        binding.map_err(|error| AuthError::TokenInvalid(error.to_string()))?;
        let VerifiedToken { did, role, token_id, queues, held, .. } = verified;
        let is_listed = self.is_listed(&did, role);
        let subject = Subject { did: did.clone(), token_id, role, is_listed };
        self.check_withdrawn(&subject)?;
        let admission = if is_listed { Admission::Admitted } else { Admission::NeedsDelegation };
        let caller = Caller { queues, held, ..Caller::new(did, role) };
        Ok(Authenticated { caller, admission, subject })
    }

    /// Whether what authenticated a request is still accepted. The expiry of its token does not
    /// matter: that only limits when a request may be sent.
    pub(crate) fn is_still_admitted(&self, subject: &Subject) -> bool {
        self.check_withdrawn(subject).is_ok()
            && (!subject.is_listed || self.is_listed(&subject.did, subject.role))
    }

    fn check_withdrawn(&self, subject: &Subject) -> Result<(), AuthError> {
        self.check_blocked(&subject.did)?;
        let is_revoked = |id: &str| self.lists.contains(List::RevokedTokens, id);
        if subject.token_id.as_deref().is_some_and(is_revoked) {
            return Err(AuthError::TokenInvalid("the token was revoked".to_owned()));
        }
        Ok(())
    }

    /// Returns true if what an identity has scheduled may run: it is not blocked and, unless nobody needs to be,
    /// on the list. What was scheduled anonymously may run.
    pub(crate) fn may_have_schedules(&self, did: &str, admins: &[String]) -> bool {
        let is_known = *did == *self.anonymous().did || admins.iter().any(|admin| admin == did);
        self.check_blocked(did).is_ok() && (is_known || self.is_listed(did, Role::Known))
    }

    /// Fails if an identity is blocked.
    pub(super) fn check_blocked(&self, did: &str) -> Result<(), AuthError> {
        if self.lists.contains(List::Blocked, did) {
            return Err(AuthError::Blocked(did.to_owned()));
        }
        Ok(())
    }

    /// Whether an identity with a token may use the venue.
    pub(crate) fn is_listed(&self, did: &str, role: Role) -> bool {
        match self.policy.mode {
            AccessMode::Anyone | AccessMode::Keys => true,
            AccessMode::Listed => {
                // Only the venue itself issues tokens in its own name.
                role == Role::Admin
                    || did == self.venue.did
                    || self.policy.members.iter().any(|member| member == did)
                    || self.policy.admins.iter().any(|admin| admin == did)
                    || self.lists.contains(List::Members, did)
            }
        }
    }

    /// Verifies a token, or finds it in the cache. `now` is Unix time in seconds.
    fn verify(&self, token: &str, now: i64) -> Result<VerifiedToken, AuthError> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let is_current = |verified: &&VerifiedToken| {
            let expires = verified.identity.expires;
            expires.is_none_or(|expires| expires.saturating_add(CLOCK_SKEW_SECONDS) > now)
        };
        if let Some(verified) = self.verified.read().get(&digest).filter(is_current) {
            return Ok(verified.clone());
        }
        let identity = self.venue.identify(token, now);
        let identity = identity.map_err(|error| AuthError::TokenInvalid(error.to_string()))?;
        let mut verified = VerifiedToken::try_from(identity)?;
        let is_admin = self.policy.admins.iter().any(|admin| **admin == *verified.did);
        if is_admin && verified.queues.is_none() {
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

impl TryFrom<Identity> for VerifiedToken {
    type Error = AuthError;

    fn try_from(identity: Identity) -> Result<Self, AuthError> {
        let held = identity.job.as_ref().map(|claim| {
            let job = claim.job.parse();
            let job = job.map_err(|_| AuthError::TokenInvalid("its `job` is not one".to_owned()));
            Ok(HeldJob { job: job?, fence: claim.fence })
        });
        let held = held.transpose()?;
        // The bearer of a token for a job may claim from no queue.
        let no_queues = || held.is_some().then(|| Arc::from([]));
        Ok(VerifiedToken {
            did: identity.did.as_str().into(),
            role: if identity.is_admin { Role::Admin } else { Role::Known },
            token_id: identity.token_id.as_deref().map(Arc::from),
            queues: identity.queues.as_deref().map(Arc::from).or_else(no_queues),
            held,
            identity: Arc::new(identity),
        })
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

    fn policy(mode: AccessMode) -> AccessPolicy {
        AccessPolicy {
            mode,
            is_anyone_explicit: false,
            unbound: UnboundToken::Refuse,
            admins: Vec::new(),
            members: Vec::new(),
        }
    }

    fn with_policy(policy: AccessPolicy, lists: Arc<AccessLists>) -> Authenticator {
        Authenticator::new(&key().did(), &key(), policy, lists)
    }

    fn authenticator(mode: AccessMode) -> Authenticator {
        with_policy(policy(mode), Arc::default())
    }

    impl Authenticator {
        fn caller(&self, headers: &HeaderMap, now: i64) -> Result<Caller, AuthError> {
            let found = self.authenticate(headers, |url| url == "http://here", now)?;
            match found.admission {
                Admission::Admitted => Ok(found.caller),
                _ => Err(AuthError::NotListed(found.caller.did.to_string())),
            }
        }
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
        queues: None,
    };

    #[test]
    fn without_a_token_a_caller_is_anonymous_or_refused() {
        let caller =
            authenticator(AccessMode::Anyone).caller(&HeaderMap::new(), NOW * 1000).unwrap();
        assert_eq!(*caller.did, *format!("{}:public", key().did()));
        assert_eq!(caller.role, Role::Anonymous);
        let refused =
            authenticator(AccessMode::Keys).caller(&HeaderMap::new(), NOW * 1000).unwrap_err();
        assert_eq!(refused, AuthError::TokenMissing);
    }

    #[test]
    fn a_bad_token_never_makes_its_bearer_anonymous() {
        for value in ["Bearer", "Bearer x", "Basic YTpi", "", "bearer a.b.c"] {
            let refused =
                authenticator(AccessMode::Anyone).caller(&headers(value), NOW * 1000).unwrap_err();
            assert!(matches!(refused, AuthError::TokenInvalid(_)), "{value}");
        }
    }

    #[test]
    fn a_venue_token_names_its_subject_until_it_expires() {
        let authenticator = authenticator(AccessMode::Keys);
        for _ in 0..2 {
            let caller = authenticator.caller(&bearer_of(&GRANT), NOW * 1000).unwrap();
            assert_eq!((&*caller.did, caller.role), ("did:key:somebody", Role::Known));
        }
        let late = authenticator.caller(&bearer_of(&GRANT), (NOW + 200) * 1000);
        assert!(matches!(late, Err(AuthError::TokenInvalid(_))), "cached, but expired");
        let admin = Grant { is_admin: true, ..GRANT };
        let caller = authenticator.caller(&bearer_of(&admin), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
    }

    #[test]
    fn a_revoked_token_is_refused_even_if_it_is_cached() {
        let lists = Arc::new(AccessLists::default());
        let authenticator = with_policy(policy(AccessMode::Anyone), Arc::clone(&lists));
        assert!(authenticator.caller(&bearer_of(&GRANT), NOW * 1000).is_ok());
        lists.replace(List::RevokedTokens, ["t1".to_owned()].into());
        let refused = authenticator.caller(&bearer_of(&GRANT), NOW * 1000).unwrap_err();
        assert_eq!(refused, AuthError::TokenInvalid("the token was revoked".to_owned()));
    }

    #[test]
    fn the_identities_that_the_operator_names_are_admins() {
        let admins = vec!["did:key:somebody".to_owned()];
        let policy = AccessPolicy { admins, ..policy(AccessMode::Keys) };
        let authenticator = with_policy(policy, Arc::default());
        let caller = authenticator.caller(&bearer_of(&GRANT), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Admin);
        let other = Grant { subject: "did:key:other", ..GRANT };
        let caller = authenticator.caller(&bearer_of(&other), NOW * 1000).unwrap();
        assert_eq!(caller.role, Role::Known);
    }

    #[test]
    fn a_forwarded_request_is_anonymous_only_if_the_operator_said_so() {
        for name in &FORWARDED {
            let forwarded = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            let refused = authenticator(AccessMode::Anyone).caller(&forwarded, NOW).unwrap_err();
            assert_eq!(refused, AuthError::TokenMissing, "{name}");
            let explicit = AccessPolicy { is_anyone_explicit: true, ..policy(AccessMode::Anyone) };
            assert!(with_policy(explicit, Arc::default()).caller(&forwarded, NOW).is_ok());
        }
    }

    #[test]
    fn only_listed_identities_may_use_a_venue_with_a_list() {
        let lists = Arc::new(AccessLists::default());
        let authenticator = with_policy(policy(AccessMode::Listed), Arc::clone(&lists));
        let ask = || authenticator.caller(&bearer_of(&GRANT), NOW * 1000);
        assert!(matches!(ask(), Err(AuthError::NotListed(_))));
        lists.replace(List::Members, ["did:key:somebody".to_owned()].into());
        assert!(ask().is_ok());
        let headers = bearer_of(&GRANT);
        let admitted = authenticator.authenticate(&headers, |_| false, NOW * 1000).unwrap();
        assert!(authenticator.is_still_admitted(&admitted.subject));
        lists.replace(List::Members, [].into());
        assert!(!authenticator.is_still_admitted(&admitted.subject));
        lists.replace(List::Members, ["did:key:somebody".to_owned()].into());
        lists.replace(List::Blocked, ["did:key:somebody".to_owned()].into());
        assert!(matches!(ask(), Err(AuthError::Blocked(_))));
        assert!(!authenticator.is_still_admitted(&admitted.subject));
    }

    #[test]
    fn a_token_names_the_venue_and_the_url_under_which_it_was_reached() {
        let alice = KeyPair::from_seed(&[1; 32]);
        let ask = |audience: Option<&str>, origin: Option<&str>| {
            let token = catena_auth::identity::self_issued(&alice, audience, origin, NOW);
            authenticator(AccessMode::Keys).caller(&headers(&format!("Bearer {token}")), NOW * 1000)
        };
        let did = key().did();
        assert!(ask(Some(&did), None).is_ok());
        assert!(ask(Some("http://here"), Some("http://here")).is_ok());
        assert!(ask(None, None).is_err());
        assert!(ask(Some("http://there"), None).is_err());
        assert!(ask(Some(&did), Some("http://there")).is_err());
    }

    #[test]
    fn the_token_cache_is_bounded() {
        let authenticator = authenticator(AccessMode::Anyone);
        for at in 0..(VERIFIED_TOKENS_MAX as i64 / 64) {
            let grant = Grant { issued: NOW - at, ..GRANT };
            authenticator.caller(&bearer_of(&grant), NOW * 1000).unwrap();
        }
        assert!(authenticator.verified.read().len() <= VERIFIED_TOKENS_MAX);
    }
}
