//! Authentication: which identity a token proves.
//!
//! Two kinds of tokens prove an identity. A self-issued token is signed by its own subject, a
//! did:key, and lives for a few minutes; the published SDKs mint one for every request. A venue
//! token is issued by this venue to people and machines that have no key of their own, and may
//! make its bearer an admin.
//!
//! A self-issued token is bound to the venue that it is sent to: by its audience (`aud`), which is the
//! venue's DID or URL, and by the origin (`origin`) that our own client adds. The origin is what
//! protects a client from a host that claims the DID of another venue in order to replay its tokens
//! there. What a venue's names are depends on the request, so [`Venue::identify`] returns the claims
//! and [`Identity::check_binding`] compares them.
//!
//! A delegation (a UCAN, recognised by its `att` claim) is not an identity and is refused here.

use catena_value::{Map, NoCells, Value, Vector};

use crate::did::{DidError, public_key};
use crate::jwt::{TimeError, Token, TokenError};
use crate::key::KeyPair;
use crate::limits::{CLOCK_SKEW_SECONDS, DID_BYTES_MAX, IDENTITY_SECONDS_MAX, SELF_ISSUED_SECONDS};

/// The identity of this venue, against which tokens are checked.
#[derive(Debug, Clone)]
pub struct Venue {
    /// DID of the venue: the required audience, and the issuer of venue tokens.
    pub did: String,
    /// Ed25519 public key that verifies venue tokens.
    pub public: [u8; 32],
}

/// The identity that a valid token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// DID of the bearer.
    pub did: String,
    /// Whether the bearer may see and control the jobs of all callers.
    pub is_admin: bool,
    /// The queues from which the bearer may claim jobs, if it may do nothing else: names, or prefixes
    /// that end with `*`.
    pub queues: Option<Vec<String>>,
    /// The job on which the bearer may work, if it may do nothing else.
    pub job: Option<JobClaim>,
    /// Expiry as Unix time in seconds. `None` for a venue token without expiry.
    pub expires: Option<i64>,
    /// ID of a venue token, by which it can be revoked. `None` for self-issued tokens.
    pub token_id: Option<String>,
    /// The audience that it names. `None` if it names none.
    pub audience: Option<String>,
    /// The origin to which it was sent, if it says so.
    pub origin: Option<String>,
}

/// A job on which the bearer of a token may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobClaim {
    /// The ID of the job.
    pub job: String,
    /// The fence under which the bearer holds it.
    pub fence: u64,
}

/// Whether a token has to name its audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundToken {
    /// A token without an audience is refused.
    Refuse,
    /// A token without an audience is accepted.
    Accept,
}

/// The reason why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// The text is not a well-formed token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The issuer is neither a did:key nor this venue.
    #[error("the token's issuer (`iss`) is neither this venue nor a usable did:key")]
    Issuer(#[source] DidError),
    /// A required claim is missing or has the wrong type.
    #[error("the token's `{0}` claim is missing or malformed")]
    Missing(&'static str),
    /// The signature was not made with the issuer's key.
    #[error("the token's signature is invalid")]
    Signature,
    /// A self-issued token names another subject than its issuer.
    #[error("the token's subject (`sub`) is not its issuer (`iss`)")]
    Subject,
    /// The token is for another venue.
    #[error("the token is for {0}, not for this venue")]
    Audience(String),
    /// The token names no audience.
    #[error("the token names no audience (`aud`); it must name this venue's DID or URL")]
    NoAudience,
    /// The token was made for another host.
    #[error("the token was made to be sent to {0}, which is not a name of this venue")]
    Origin(String),
    /// The token is valid for longer than is accepted.
    #[error("the token is valid for more than {IDENTITY_SECONDS_MAX} seconds")]
    TooLongLived,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet; check that both clocks are correct")]
    NotYet,
    /// The token delegates authority and does not prove an identity.
    #[error("the token is a delegation, not an identity")]
    Delegation,
}

impl Venue {
    /// Checks a token and returns the identity of its bearer. `now` is Unix time in seconds.
    pub fn identify(&self, token: &str, now: i64) -> Result<Identity, TokenRefused> {
        let token = Token::parse(token)?;
        if token.claims().field("att").is_some() {
            return Err(TokenRefused::Delegation);
        }
        let issuer = token.text("iss").ok_or(TokenRefused::Missing("iss"))?;
        let subject = token.text("sub").ok_or(TokenRefused::Missing("sub"))?;
        let is_own = issuer == self.did;
        let key =
            if is_own { self.public } else { public_key(issuer).map_err(TokenRefused::Issuer)? };
        if !token.is_signed_by(&key) {
            return Err(TokenRefused::Signature);
        }
        if !is_own && subject != issuer {
            return Err(TokenRefused::Subject);
        }
        if subject.len() > DID_BYTES_MAX {
            return Err(TokenRefused::Missing("sub"));
        }
        let expires = check_time(&token, now, is_own)?;
        let is_admin = is_own && token.claims().field("admin") == Some(&Value::Bool(true));
        let token_id = token.text("jti").filter(|_| is_own).map(str::to_owned);
        let queues = token.claims().field("worker").filter(|_| is_own).map(queues).transpose()?;
        let job = token.claims().field("job").filter(|_| is_own);
        let job = job.map(|job| job_claim(job, token.claims().field("fence"))).transpose()?;
        Ok(Identity {
            did: subject.to_owned(),
            is_admin: is_admin && queues.is_none() && job.is_none(),
            queues,
            job,
            expires,
            token_id,
            audience: optional_text(&token, "aud")?,
            origin: optional_text(&token, "origin")?,
        })
    }

    /// Issues a venue token for a person or a machine.
    pub fn issue(&self, key: &KeyPair, grant: &Grant<'_>) -> String {
        let mut claims = vec![
            ("iss", Value::from(self.did.as_str())),
            ("sub", grant.subject.into()),
            ("aud", self.did.as_str().into()),
            ("jti", grant.id.into()),
            ("iat", grant.issued.into()),
        ];
        claims.extend(grant.expires.map(|expires| ("exp", expires.into())));
        if grant.is_admin {
            claims.push(("admin", true.into()));
        }
        if let Some(queues) = grant.queues {
            let queues: Vector = queues.iter().map(|queue| Value::from(queue.as_str())).collect();
            claims.push(("worker", queues.into()));
        }
        Token::mint(&claims.into_iter().collect::<Map>(), key)
    }

    /// Issues a venue token by which its bearer can work on one job under one fence. It does not
    /// expire: when the job has ended, or has another holder, it is good for nothing.
    pub fn issue_for_job(&self, key: &KeyPair, grant: &JobGrant<'_>) -> String {
        let claims = [
            ("iss", Value::from(self.did.as_str())),
            ("sub", grant.subject.into()),
            ("aud", self.did.as_str().into()),
            ("iat", grant.issued.into()),
            ("job", grant.job.into()),
            ("fence", i64::try_from(grant.fence).unwrap_or(i64::MAX).into()),
        ];
        Token::mint(&claims.into_iter().collect::<Map>(), key)
    }
}

impl Identity {
    /// Fails unless the token was made for this venue: its audience is the venue's DID or one of its
    /// URLs, and its origin, if it has one, is one of its URLs.
    pub fn check_binding(
        &self,
        did: &str,
        is_own_url: impl Fn(&str) -> bool,
        unbound: UnboundToken,
    ) -> Result<(), TokenRefused> {
        match self.audience.as_deref() {
            None if unbound == UnboundToken::Refuse => return Err(TokenRefused::NoAudience),
            Some(audience) if audience != did && !is_own_url(audience) => {
                return Err(TokenRefused::Audience(audience.to_owned()));
            }
            _ => {}
        }
        match self.origin.as_deref() {
            Some(origin) if !is_own_url(origin) => Err(TokenRefused::Origin(origin.to_owned())),
            _ => Ok(()),
        }
    }
}

/// The queues in the claim `worker`.
fn queues(claim: &Value) -> Result<Vec<String>, TokenRefused> {
    let malformed = TokenRefused::Missing("worker");
    let Some(items) = claim.as_vector() else { return Err(malformed) };
    let names: Option<Vec<String>> =
        items.iter(&NoCells).map(|item| item.ok()?.as_str().map(str::to_owned)).collect();
    names.ok_or(malformed)
}

/// The job in the claims `job` and `fence`.
fn job_claim(job: &Value, fence: Option<&Value>) -> Result<JobClaim, TokenRefused> {
    let job = job.as_str().ok_or(TokenRefused::Missing("job"))?.to_owned();
    let fence = fence.and_then(Value::as_i64).and_then(|fence| u64::try_from(fence).ok());
    Ok(JobClaim { job, fence: fence.ok_or(TokenRefused::Missing("fence"))? })
}

/// A claim that is a text if it is present.
fn optional_text(token: &Token, name: &'static str) -> Result<Option<String>, TokenRefused> {
    match token.claims().field(name) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) if text.len() <= DID_BYTES_MAX => Ok(Some(text.to_owned())),
            _ => Err(TokenRefused::Missing(name)),
        },
    }
}

/// The content of a venue token for one job.
#[derive(Debug, Clone)]
pub struct JobGrant<'a> {
    /// DID of the owner of the job's queue.
    pub subject: &'a str,
    /// The ID of the job.
    pub job: &'a str,
    /// The fence under which the bearer holds it.
    pub fence: u64,
    /// Time of issue: Unix time in seconds.
    pub issued: i64,
}

/// The content of a venue token.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    /// DID of the bearer.
    pub subject: &'a str,
    /// ID of the token, by which it can be revoked.
    pub id: &'a str,
    /// Time of issue: Unix time in seconds.
    pub issued: i64,
    /// Expiry as Unix time in seconds. `None` if the token does not expire.
    pub expires: Option<i64>,
    /// Whether the bearer may see and control the jobs of all callers.
    pub is_admin: bool,
    /// The queues from which the bearer may claim jobs, if it may do nothing else.
    pub queues: Option<&'a [String]>,
}

/// Mints a self-issued token as the published SDKs do: short-lived, bound to one venue if
/// `audience` is given, and with the key's ID in its header. `origin` is the URL to which it will be
/// sent, without a path. `now` is Unix time in seconds.
pub fn self_issued(
    key: &KeyPair,
    audience: Option<&str>,
    origin: Option<&str>,
    now: i64,
) -> String {
    let did = key.did();
    let mut claims = vec![
        ("iss", Value::from(did.as_str())),
        ("sub", did.as_str().into()),
        ("iat", now.into()),
        ("exp", now.saturating_add(SELF_ISSUED_SECONDS).into()),
    ];
    claims.extend(audience.map(|audience| ("aud", audience.into())));
    claims.extend(origin.map(|origin| ("origin", origin.into())));
    let key_id = did.strip_prefix("did:key:").unwrap_or(&did);
    Token::mint_with_key_id(&claims.into_iter().collect::<Map>(), key, key_id)
}

/// Checks that a token is valid at `now` and returns its expiry. A self-issued token must have one,
/// at most an hour after its issue.
fn check_time(token: &Token, now: i64, is_own: bool) -> Result<Option<i64>, TokenRefused> {
    let expires = token.check_times(now).map_err(|error| match error {
        TimeError::Malformed(name) => TokenRefused::Missing(name),
        TimeError::Expired => TokenRefused::Expired,
        TimeError::NotYet => TokenRefused::NotYet,
    })?;
    if is_own {
        return Ok(expires);
    }
    let ends = expires.ok_or(TokenRefused::Missing("exp"))?;
    let issued = token.seconds("iat").unwrap_or(now.saturating_add(CLOCK_SKEW_SECONDS));
    if ends.saturating_sub(issued) > IDENTITY_SECONDS_MAX {
        return Err(TokenRefused::TooLongLived);
    }
    Ok(expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_769_683_717;

    fn venue_key() -> KeyPair {
        KeyPair::from_seed(&[9; 32])
    }

    fn venue() -> Venue {
        Venue { did: venue_key().did(), public: venue_key().public() }
    }

    /// The claims of a token as an SDK mints it, with some replaced; `Nil` removes one.
    fn claims(key: &KeyPair, changes: &[(&'static str, Value)]) -> Map {
        let did = key.did();
        let mut claims = vec![
            ("iss", Value::from(did.as_str())),
            ("sub", did.as_str().into()),
            ("aud", venue().did.into()),
            ("iat", NOW.into()),
            ("exp", (NOW + 300).into()),
        ];
        for (name, value) in changes {
            claims.retain(|(own, _)| own != name);
            if !value.is_nil() {
                claims.push((name, value.clone()));
            }
        }
        claims.into_iter().collect()
    }

    fn identify(changes: &[(&'static str, Value)]) -> Result<Identity, TokenRefused> {
        let key = KeyPair::from_seed(&[1; 32]);
        let identity = venue().identify(&Token::mint(&claims(&key, changes), &key), NOW)?;
        let is_own_url = |url: &str| url == "https://venue.example";
        identity.check_binding(&venue().did, is_own_url, UnboundToken::Refuse)?;
        Ok(identity)
    }

    #[test]
    fn a_self_issued_token_names_its_issuer() {
        let identity = identify(&[]).unwrap();
        assert_eq!(identity.did, KeyPair::from_seed(&[1; 32]).did());
        assert_eq!((identity.is_admin, identity.expires), (false, Some(NOW + 300)));
        // The first request of a client does not know the venue's DID yet.
        assert_eq!(identify(&[("aud", Value::Nil)]), Err(TokenRefused::NoAudience));
        let unbound = Identity { audience: None, ..identity };
        assert!(unbound.check_binding("did:x", |_| false, UnboundToken::Accept).is_ok());
    }

    #[test]
    fn a_token_of_the_published_sdk_is_accepted() {
        // Minted by the Python SDK 0.9.11 with seed 01…01 for this venue; it has a `kid`.
        let token = "eyJhbGciOiJFZERTQSIsImtpZCI6Ino2TWtvbjNOZWNkNk5ra3lmb0dvSHhpZDJ6bkdjNTlM\
             VTNLN211YmFSY0ZiTGZMWCIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJkaWQ6a2V5Ono2TWtvbjN\
             OZWNkNk5ra3lmb0dvSHhpZDJ6bkdjNTlMVTNLN211YmFSY0ZiTGZMWCIsInN1YiI6ImRpZDp\
             rZXk6ejZNa29uM05lY2Q2TmtreWZvR29IeGlkMnpuR2M1OUxVM0s3bXViYVJjRmJMZkxYIiw\
             iaWF0IjoxNzY5NjgzNzE3LCJleHAiOjE3Njk2ODQwMTcsImF1ZCI6ImRpZDprZXk6ejZNa3d\
             WRGZDZzlMYmJZNnhqSDNFWms4WVNGUVp1alY1WTR5MVpXZUVSOXREaU4zIn0.fH1Bi7G-n-Q\
             davfSFtK31mbpK9KwCHVYL_PEbh0_V5NQ0nvywViXweJVodJz8mxUw1ChNzquT_r8b9u1MgY\
             KBQ";
        let identity = venue().identify(token, NOW + 100).unwrap();
        assert_eq!(identity.did, "did:key:z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX");
        assert_eq!(identity.expires, Some(NOW + 300));
        assert_eq!(venue().did, "did:key:z6MkwVDfCg9LbbY6xjH3EZk8YSFQZujV5Y4y1ZWeER9tDiN3");
    }

    #[test]
    fn an_invalid_token_is_refused() {
        let other = KeyPair::from_seed(&[2; 32]).did();
        let cases: [(&[(&'static str, Value)], TokenRefused); 16] = [
            (&[("exp", (NOW + 3_601).into())], TokenRefused::TooLongLived),
            (&[("iat", Value::Nil), ("exp", (NOW + 3_700).into())], TokenRefused::TooLongLived),
            (&[("iat", (NOW - 3_400).into())], TokenRefused::TooLongLived),
            (&[("nbf", "now".into())], TokenRefused::Missing("nbf")),
            (&[("iat", true.into())], TokenRefused::Missing("iat")),
            (&[("aud", true.into())], TokenRefused::Missing("aud")),
            (
                &[("origin", "https://evil.example".into())],
                TokenRefused::Origin("https://evil.example".to_owned()),
            ),
            (&[("exp", (NOW - 61).into())], TokenRefused::Expired),
            (&[("exp", Value::Nil)], TokenRefused::Missing("exp")),
            (&[("exp", "soon".into())], TokenRefused::Missing("exp")),
            (&[("iat", (NOW + 61).into())], TokenRefused::NotYet),
            (&[("sub", Value::Nil)], TokenRefused::Missing("sub")),
            (&[("sub", other.as_str().into())], TokenRefused::Subject),
            (&[("iss", other.as_str().into())], TokenRefused::Signature),
            (&[("iss", "did:web:x".into())], TokenRefused::Issuer(DidError::NotDidKey)),
            (&[("att", Value::from("anything"))], TokenRefused::Delegation),
        ];
        for (changes, expected) in cases {
            assert_eq!(identify(changes), Err(expected), "{changes:?}");
        }
        let foreign = identify(&[("aud", "did:key:other-venue".into())]).unwrap_err();
        assert_eq!(foreign.to_string(), "the token is for did:key:other-venue, not for this venue");
    }

    #[test]
    fn the_audience_is_the_did_or_a_url_of_the_venue() {
        assert!(identify(&[("aud", "https://venue.example".into())]).is_ok());
        assert!(identify(&[("origin", "https://venue.example".into())]).is_ok());
        let other = identify(&[("aud", "https://other.example".into())]).unwrap_err();
        assert_eq!(other, TokenRefused::Audience("https://other.example".to_owned()));
    }

    #[test]
    fn clocks_may_disagree_a_little() {
        assert!(identify(&[("exp", (NOW - 30).into())]).is_ok());
        assert!(identify(&[("iat", (NOW + 30).into())]).is_ok());
        assert!(identify(&[("exp", Value::from(NOW as f64 + 300.5))]).is_ok());
    }

    #[test]
    fn a_self_issued_token_never_makes_an_admin() {
        let identity = identify(&[("admin", true.into()), ("jti", "x".into())]).unwrap();
        assert_eq!((identity.is_admin, identity.token_id), (false, None));
    }

    #[test]
    fn a_venue_issues_tokens_for_others() {
        let grant = Grant {
            subject: "did:key:bearer",
            id: "t1",
            issued: NOW,
            expires: None,
            is_admin: true,
            queues: None,
        };
        let token = venue().issue(&venue_key(), &grant);
        let identity = venue().identify(&token, NOW + 1_000_000).unwrap();
        assert_eq!(identity.did, "did:key:bearer");
        assert_eq!((identity.is_admin, identity.expires), (true, None));
        assert_eq!(identity.token_id.as_deref(), Some("t1"));
        // Another venue does not accept it.
        let other = KeyPair::from_seed(&[8; 32]);
        let other_venue = Venue { did: other.did(), public: other.public() };
        assert!(other_venue.identify(&token, NOW).is_err());
        let ending = Grant { expires: Some(NOW + 10), ..grant };
        let token = venue().issue(&venue_key(), &ending);
        assert_eq!(venue().identify(&token, NOW + 80), Err(TokenRefused::Expired));
    }

    #[test]
    fn a_self_issued_token_is_short_lived_and_for_one_venue() {
        let key = KeyPair::from_seed(&[3; 32]);
        let token = self_issued(&key, Some(&venue().did), Some("https://venue.example"), NOW);
        let identity = venue().identify(&token, NOW).unwrap();
        assert_eq!((&identity.did, identity.expires), (&key.did(), Some(NOW + 300)));
        assert_eq!(venue().identify(&token, NOW + 400), Err(TokenRefused::Expired));
        let bound = |did: &str, url: &'static str| {
            identity.check_binding(did, move |own| own == url, UnboundToken::Accept)
        };
        assert!(bound(&venue().did, "https://venue.example").is_ok());
        let at_other_venue = bound("did:key:other-venue", "https://venue.example");
        assert!(matches!(at_other_venue, Err(TokenRefused::Audience(_))));
        // A host that claims the venue's DID cannot replay the token at the venue.
        let replayed = bound(&venue().did, "https://evil.example");
        assert!(matches!(replayed, Err(TokenRefused::Origin(_))));
    }
}
