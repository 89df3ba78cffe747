//! Delegations (UCANs): signed statements by which one identity lets another act for it.
//!
//! A delegation is a token in the form that the published SDKs issue: `ucv` 0.10.0, an issuer
//! (`iss`) that is a did:key, one audience (`aud`), capabilities (`att`), an expiry (`exp`) that may
//! be null, and optionally the delegations on which it is based (`prf`). This module decides whether
//! one is authentic, current and meant for its presenter, and what its capabilities permit: each must
//! be covered by the issuer's own authority or by a proof, so a delegation only narrows.
//!
//! A token without `att` is an identity token and never a delegation, and the reverse. Nothing but
//! the issuer's own key can sign one: `kid` and every other header are ignored.

use catena_value::{Map, NoCells, Value, Vector};
use sha2::{Digest, Sha256};

use crate::KeyPair;
use crate::capability::{Capability, owner_of};
use crate::did::{DidError, public_key};
use crate::jwt::{TimeError, Token, TokenError};
use crate::limits::{CAPABILITIES_MAX, PROOF_DEPTH_MAX, PROOF_TOKENS_MAX, PROOFS_MAX};

/// The version of the UCAN specification that the published SDKs issue.
pub const UCAN_VERSION: &str = "0.10.0";

/// A delegation whose signature, times and form were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// DID of the identity that delegates: a did:key.
    pub issuer: String,
    /// DID of the identity that may act for it.
    pub audience: String,
    /// Expiry as Unix time in seconds. `None` if it does not expire.
    pub expires: Option<i64>,
    /// What may be done.
    pub capabilities: Vec<Capability>,
    /// The delegations on which it is based.
    pub proofs: Vec<Delegation>,
    /// The user for whom a venue issued it. Only that venue may rely on it.
    pub issued_for: Option<String>,
    /// SHA-256 of the token as hex digits, by which it can be revoked.
    pub digest: String,
}

/// The reason why a delegation was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelegationError {
    /// The text is not a well-formed token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token is not a delegation.
    #[error("it is not a delegation: `{0}` is missing or malformed")]
    NotDelegation(&'static str),
    /// It is of another version.
    #[error("its version (`ucv`) is not {UCAN_VERSION}")]
    Version,
    /// It delegates nothing.
    #[error("it delegates nothing: `att` is empty")]
    Empty,
    /// It has more capabilities or proofs than are checked.
    #[error("it has more {0} than are accepted")]
    TooMany(&'static str),
    /// The issuer is not a did:key.
    #[error("its issuer (`iss`) is not usable: {0}")]
    Issuer(DidError),
    /// The signature was not made with the issuer's key.
    #[error("its signature is invalid")]
    Signature,
    /// It is not valid now, or its times are malformed.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// It is for somebody else.
    #[error("it is for {0}")]
    Audience(String),
    /// A delegation on which it is based is invalid.
    #[error("a proof (`prf`) on which it is based is invalid: {0}")]
    Proof(Box<DelegationError>),
}

impl Delegation {
    /// Checks a delegation: form, issuer, signature, times, and the same for its proofs. `now` is
    /// Unix time in seconds. The audience is not checked; see [`Delegation::check_audience`].
    pub fn verify(text: &str, now: i64) -> Result<Self, DelegationError> {
        verify_nested(text, now, PROOF_DEPTH_MAX, &mut { PROOF_TOKENS_MAX })
    }

    /// Returns true if it permits an ability on a resource, which is a DID URL. `venue` is the did:key
    /// of this venue, which issues delegations for its users.
    pub fn permits(&self, ability: &str, resource: &str, venue: &str) -> bool {
        self.uncovered(venue).is_none() && self.grants(ability, resource, venue)
    }

    fn grants(&self, ability: &str, resource: &str, venue: &str) -> bool {
        let delegator = self.delegator(venue);
        let covers = |capability: &Capability| capability.covers(delegator, ability, resource);
        self.capabilities.iter().any(covers)
            && (delegator == owner_of(resource)
                || self.proofs.iter().any(|proof| proof.grants(ability, resource, venue)))
    }

    /// Returns a capability that neither the issuer's own authority nor a proof covers. Such a
    /// delegation permits nothing.
    pub fn uncovered(&self, venue: &str) -> Option<&Capability> {
        let delegator = self.delegator(venue);
        let is_covered = |capability: &&Capability| {
            let resource = capability.resource(delegator);
            owner_of(&resource) == delegator
                || self.proofs.iter().any(|proof| {
                    let by = proof.delegator(venue);
                    let mut known = proof.capabilities.iter();
                    known.any(|known| known.covers(by, &capability.can, &resource))
                })
        };
        let own = self.capabilities.iter().find(|capability| !is_covered(capability));
        own.or_else(|| self.proofs.iter().find_map(|proof| proof.uncovered(venue)))
    }

    /// Returns the identity on whose authority it was issued: the issuer, or the user for whom this
    /// venue issued it.
    pub fn delegator(&self, venue: &str) -> &str {
        match &self.issued_for {
            Some(user) if self.issuer == venue => user,
            _ => &self.issuer,
        }
    }

    /// Returns this delegation and those on which it is based, each with its depth, from 1.
    pub fn chain(&self) -> Vec<(usize, &Delegation)> {
        let mut chain = vec![(1, self)];
        for proof in &self.proofs {
            chain.extend(proof.chain().into_iter().map(|(depth, proof)| (depth + 1, proof)));
        }
        chain
    }

    /// Issues a delegation of this venue for one of its users. `expires` is Unix time in seconds.
    pub fn issue_for(
        user: &str,
        audience: &str,
        capabilities: &[Capability],
        expires: Option<i64>,
        venue: &KeyPair,
    ) -> String {
        let entry = |capability: &Capability| {
            let entry = [("with", capability.resource(user)), ("can", capability.can.clone())];
            Value::from(entry.into_iter().collect::<Map>())
        };
        let facts: Map = [(ISSUED_FOR, user)].into_iter().collect();
        let claims = [
            ("iss", Value::from(venue.did())),
            ("aud", audience.into()),
            ("ucv", UCAN_VERSION.into()),
            ("att", capabilities.iter().map(entry).collect::<Vector>().into()),
            ("prf", Vector::new().into()),
            ("fct", facts.into()),
            ("exp", expires.map_or(Value::Nil, Value::from)),
        ];
        Token::mint(&claims.into_iter().collect::<Map>(), venue)
    }

    /// Fails unless one of these DIDs is the audience.
    pub fn check_audience(&self, audiences: &[&str]) -> Result<(), DelegationError> {
        if audiences.contains(&self.audience.as_str()) {
            return Ok(());
        }
        Err(DelegationError::Audience(self.audience.clone()))
    }
}

/// Returns true if a text is a well-formed token that claims to be a delegation. Its signature is
/// not checked.
pub fn is_delegation(text: &str) -> bool {
    Token::parse(text).is_ok_and(|token| token.claims().field("att").is_some())
}

/// The member of `fct` with the user for whom a venue issued a delegation.
const ISSUED_FOR: &str = "for";

/// Verifies a delegation and those on which it is based: at most `depth` levels and `left` tokens.
fn verify_nested(
    text: &str,
    now: i64,
    depth: usize,
    left: &mut usize,
) -> Result<Delegation, DelegationError> {
    *left = left.checked_sub(1).ok_or(DelegationError::TooMany("proofs in total"))?;
    let token = Token::parse(text)?;
    let capabilities = capabilities(&token)?;
    if token.text("ucv") != Some(UCAN_VERSION) {
        return Err(DelegationError::Version);
    }
    let issuer = token.text("iss").ok_or(DelegationError::NotDelegation("iss"))?;
    let audience = token.text("aud").ok_or(DelegationError::NotDelegation("aud"))?;
    if !audience.starts_with("did:") {
        return Err(DelegationError::NotDelegation("aud"));
    }
    let key = public_key(issuer).map_err(DelegationError::Issuer)?;
    if !token.is_signed_by(&key) {
        return Err(DelegationError::Signature);
    }
    // A delegation may be valid for ever, but it has to say so.
    let expires = match token.claims().field("exp") {
        None => return Err(TimeError::Malformed("exp").into()),
        Some(_) => token.check_times(now)?,
    };
    let mut verified = Vec::new();
    for proof in proofs(&token)? {
        let proof_error = |error| DelegationError::Proof(Box::new(error));
        let Some(depth) = depth.checked_sub(1) else {
            return Err(DelegationError::TooMany("levels of proofs"));
        };
        let proof = verify_nested(&proof, now, depth, left).map_err(proof_error)?;
        proof.check_audience(&[issuer]).map_err(proof_error)?;
        verified.push(proof);
    }
    let issued_for = token.claims().field("fct").and_then(Value::as_map);
    let issued_for = issued_for.and_then(|facts| facts.field(ISSUED_FOR)?.as_str());
    let digest = Sha256::digest(text.as_bytes());
    Ok(Delegation {
        issuer: issuer.to_owned(),
        audience: audience.to_owned(),
        expires,
        capabilities,
        proofs: verified,
        issued_for: issued_for.map(str::to_owned),
        digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// The entries of `att`, by which a delegation is recognised.
fn capabilities(token: &Token) -> Result<Vec<Capability>, DelegationError> {
    let malformed = || DelegationError::NotDelegation("att");
    let entries = token.claims().field("att").and_then(Value::as_vector).ok_or_else(malformed)?;
    if entries.is_empty() {
        return Err(DelegationError::Empty);
    }
    if entries.len() > CAPABILITIES_MAX {
        return Err(DelegationError::TooMany("capabilities"));
    }
    let capability = |entry: Value| {
        let member = |name: &str| {
            let text = entry.as_map()?.field(name)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        Some(Capability { with: member("with")?, can: member("can")? })
    };
    let entries = entries.iter(&NoCells);
    entries.map(|entry| capability(entry.ok()?)).collect::<Option<_>>().ok_or_else(malformed)
}

/// The texts of the delegations on which a delegation is based.
fn proofs(token: &Token) -> Result<Vec<String>, DelegationError> {
    let malformed = || DelegationError::NotDelegation("prf");
    let proofs = match token.claims().field("prf") {
        None | Some(Value::Nil) => return Ok(Vec::new()),
        Some(value) => value.as_vector().ok_or_else(malformed)?,
    };
    if proofs.len() > PROOFS_MAX {
        return Err(DelegationError::TooMany("proofs"));
    }
    let text = |proof: Value| proof.to_text().map(|text| text.into_owned());
    let proofs = proofs.iter(&NoCells);
    proofs.map(|proof| proof.ok().and_then(text).ok_or_else(malformed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_769_683_717;

    fn alice() -> KeyPair {
        KeyPair::from_seed(&[1; 32])
    }

    fn venue() -> KeyPair {
        KeyPair::from_seed(&[2; 32])
    }

    fn att() -> Value {
        let entry: Map = [("with", "did:key:x/w/"), ("can", "crud/read")].into_iter().collect();
        Vector::from_items(vec![entry.into()]).into()
    }

    /// A delegation as the SDKs issue it, with some claims replaced; `None` removes one.
    fn ucan(key: &KeyPair, changes: &[(&'static str, Option<Value>)]) -> String {
        let mut claims = vec![
            ("iss", Value::from(key.did())),
            ("aud", venue().did().into()),
            ("ucv", UCAN_VERSION.into()),
            ("att", att()),
            ("prf", Vector::from_items(Vec::new()).into()),
            ("exp", (NOW + 3600).into()),
        ];
        for (name, value) in changes {
            claims.retain(|(own, _)| own != name);
            claims.extend(value.clone().map(|value| (*name, value)));
        }
        Token::mint(&claims.into_iter().collect::<Map>(), key)
    }

    #[test]
    fn a_delegation_of_the_sdks_is_accepted_with_and_without_expiry() {
        let delegation = Delegation::verify(&ucan(&alice(), &[]), NOW).unwrap();
        assert_eq!(delegation.issuer, alice().did());
        assert_eq!(delegation.expires, Some(NOW + 3600));
        assert_eq!(delegation.capabilities[0].can, "crud/read");
        assert!(delegation.check_audience(&[&venue().did()]).is_ok());
        assert_eq!(
            delegation.check_audience(&["did:key:other"]),
            Err(DelegationError::Audience(venue().did()))
        );
        let for_ever = Delegation::verify(&ucan(&alice(), &[("exp", Some(Value::Nil))]), NOW);
        assert_eq!(for_ever.unwrap().expires, None);
    }

    #[test]
    fn a_signature_of_zero_bytes_delegates_nothing() {
        let text = ucan(&alice(), &[]);
        let signed = text.rsplit_once('.').unwrap().0;
        let forged = format!("{signed}.{}", crate::base::to_base64url(&[0; 64]));
        assert_eq!(Delegation::verify(&forged, NOW), Err(DelegationError::Signature));
        let by_other = ucan(&venue(), &[("iss", Some(alice().did().into()))]);
        assert_eq!(Delegation::verify(&by_other, NOW), Err(DelegationError::Signature));
    }

    #[test]
    fn what_is_not_a_current_delegation_is_refused() {
        let nil = || Some(Value::Nil);
        let text = |text: &str| Some(Value::from(text));
        let empty = || Some(Vector::from_items(Vec::new()).into());
        let no_can: Map = [("with", "x")].into_iter().collect();
        let cases: Vec<(&'static str, Option<Value>, DelegationError)> = vec![
            ("att", None, DelegationError::NotDelegation("att")),
            ("att", text("all"), DelegationError::NotDelegation("att")),
            ("att", empty(), DelegationError::Empty),
            (
                "att",
                Some(Vector::from_items(vec![no_can.into()]).into()),
                DelegationError::NotDelegation("att"),
            ),
            ("ucv", None, DelegationError::Version),
            ("ucv", text("1.0.0"), DelegationError::Version),
            ("aud", None, DelegationError::NotDelegation("aud")),
            ("aud", nil(), DelegationError::NotDelegation("aud")),
            ("aud", empty(), DelegationError::NotDelegation("aud")),
            ("iss", None, DelegationError::NotDelegation("iss")),
            ("iss", text("did:web:a.example"), DelegationError::Issuer(DidError::NotDidKey)),
            ("exp", None, TimeError::Malformed("exp").into()),
            ("exp", text("never"), TimeError::Malformed("exp").into()),
            ("exp", Some((NOW - 61).into()), TimeError::Expired.into()),
            ("nbf", Some((NOW + 61).into()), TimeError::NotYet.into()),
            ("nbf", text("now"), TimeError::Malformed("nbf").into()),
            ("prf", text("x"), DelegationError::NotDelegation("prf")),
        ];
        for (name, value, expected) in cases {
            let refused = Delegation::verify(&ucan(&alice(), &[(name, value)]), NOW).unwrap_err();
            assert_eq!(refused, expected, "{name}");
        }
    }

    #[test]
    fn proofs_are_verified_and_lead_to_the_issuer() {
        let bob = KeyPair::from_seed(&[3; 32]);
        let with_proof = |proof: String| {
            let proofs: Value = Vector::from_items(vec![proof.into()]).into();
            Delegation::verify(&ucan(&bob, &[("prf", Some(proofs))]), NOW)
        };
        let to_bob = ucan(&alice(), &[("aud", Some(bob.did().into()))]);
        assert_eq!(with_proof(to_bob).unwrap().issuer, bob.did());
        let to_another = with_proof(ucan(&alice(), &[])).unwrap_err();
        assert!(matches!(to_another, DelegationError::Proof(_)), "{to_another}");
        let expired =
            ucan(&alice(), &[("aud", Some(bob.did().into())), ("exp", Some((NOW - 99).into()))]);
        assert!(matches!(with_proof(expired), Err(DelegationError::Proof(_))));
        // Proofs of proofs are bounded in depth.
        let mut text = ucan(&alice(), &[("aud", Some(alice().did().into()))]);
        for _ in 0..=PROOF_DEPTH_MAX {
            let proofs: Value = Vector::from_items(vec![text.into()]).into();
            text = ucan(&alice(), &[("aud", Some(alice().did().into())), ("prf", Some(proofs))]);
        }
        assert!(Delegation::verify(&text, NOW).is_err());
    }

    fn att_of(entries: &[(&str, &str)]) -> Option<Value> {
        let entry = |(with, can): &(&str, &str)| {
            Value::from([("with", *with), ("can", *can)].into_iter().collect::<Map>())
        };
        Some(entries.iter().map(entry).collect::<Vector>().into())
    }

    #[test]
    fn a_delegation_permits_what_its_issuer_may_do_and_no_more() {
        let bob = KeyPair::from_seed(&[3; 32]);
        let carol = KeyPair::from_seed(&[4; 32]);
        let (alice_did, venue_did) = (alice().did(), venue().did());
        let notes = format!("{alice_did}/w/notes");
        let at = |path: &str| format!("{alice_did}/w/{path}");
        let to = |key: &KeyPair, audience: &KeyPair, att, proofs: &[&String]| {
            let proofs = proofs.iter().map(|proof| Value::from(proof.as_str()));
            let changes = [
                ("aud", Some(audience.did().into())),
                ("att", att),
                ("prf", Some(proofs.collect::<Vector>().into())),
            ];
            ucan(key, &changes)
        };
        let permits = |text: &str, ability: &str, resource: &str| {
            Delegation::verify(text, NOW).unwrap().permits(ability, resource, &venue_did)
        };
        let root = to(&alice(), &bob, att_of(&[(&notes, "crud")]), &[]);
        assert!(permits(&root, "crud/read", &at("notes/1")));
        assert!(!permits(&root, "crud/read", &at("notes2")));
        assert!(!permits(&root, "invoke", &at("notes/1")));
        // A relative resource is the issuer's.
        let relative = to(&alice(), &bob, att_of(&[("w/notes", "crud/read")]), &[]);
        assert!(permits(&relative, "crud/read", &at("notes/1")));
        // Somebody else's resources are not the issuer's to delegate.
        let stolen = to(&bob, &carol, att_of(&[(&notes, "crud")]), &[]);
        assert!(!permits(&stolen, "crud/read", &at("notes/1")));
        // A delegation narrows what it is based on.
        let below = at("notes/1");
        let narrow = to(&bob, &carol, att_of(&[(&below, "crud/read")]), &[&root]);
        assert!(permits(&narrow, "crud/read", &below));
        assert!(!permits(&narrow, "crud/write", &below));
        assert!(!permits(&narrow, "crud/read", &at("notes/2")));
        // One that widens it permits nothing, not even what is covered.
        for wide in [(at(""), "crud/read"), (below.clone(), "*")] {
            let wide =
                to(&bob, &carol, att_of(&[(&below, "crud/read"), (&wide.0, wide.1)]), &[&root]);
            assert!(!permits(&wide, "crud/read", &below));
        }
    }

    #[test]
    fn a_venue_issues_delegations_for_its_users_that_others_do_not_accept() {
        let capability = Capability { with: "w/a".to_owned(), can: "crud/read".to_owned() };
        let text =
            Delegation::issue_for("did:key:user", "did:key:bob", &[capability], None, &venue());
        let delegation = Delegation::verify(&text, NOW).unwrap();
        assert_eq!((delegation.expires, delegation.audience.as_str()), (None, "did:key:bob"));
        let resource = "did:key:user/w/a/1";
        assert!(delegation.permits("crud/read", resource, &venue().did()));
        assert!(!delegation.permits("crud/read", resource, "did:key:other"));
        assert!(!delegation.permits("crud/read", "did:key:else/w/a/1", &venue().did()));
    }

    #[test]
    fn the_number_of_proofs_is_bounded_in_total() {
        let me = || Some(alice().did().into());
        let leaf = || Value::from(ucan(&alice(), &[("aud", me())]));
        let many = |count: usize| Some((0..count).map(|_| leaf()).collect::<Vector>().into());
        let with = |inner: usize| ucan(&alice(), &[("aud", me()), ("prf", many(inner))]);
        let outer = |count: usize| {
            let proofs = (0..count).map(|_| Value::from(with(8))).collect::<Vector>();
            ucan(&alice(), &[("prf", Some(proofs.into()))])
        };
        assert!(Delegation::verify(&outer(2), NOW).is_ok());
        let mut left = 10;
        let refused = verify_nested(&outer(2), NOW, PROOF_DEPTH_MAX, &mut left).unwrap_err();
        assert!(refused.to_string().contains("proofs in total"), "{refused}");
    }

    #[test]
    fn an_identity_token_is_not_a_delegation() {
        let token = crate::identity::self_issued(&alice(), Some(&venue().did()), None, NOW);
        assert!(!is_delegation(&token));
        assert_eq!(Delegation::verify(&token, NOW), Err(DelegationError::NotDelegation("att")));
        assert!(is_delegation(&ucan(&alice(), &[])));
    }
}
