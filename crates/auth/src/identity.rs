//! What a token says about its bearer.
//!
//! Two kinds of tokens name somebody. One is issued by its own subject, a did:key, for at most a
//! few minutes; the published SDKs mint one for every request. The other is issued by this venue
//! to people and machines that have no key of their own, and may make its bearer an admin.
//!
//! A delegation (a UCAN, told by its `att`) is not an identity and is refused here.

use catena_value::{Map, Value};

use crate::did::{DidError, public_key};
use crate::jwt::{Token, TokenError};
use crate::key::KeyPair;
use crate::limits::{CLOCK_SKEW_SECONDS, SELF_ISSUED_SECONDS};

/// This venue, as far as tokens are concerned.
#[derive(Debug, Clone)]
pub struct Venue {
    /// Its DID: what `aud` must be, and the issuer of its own tokens.
    pub did: String,
    /// Its public key.
    pub public: [u8; 32],
}

/// Who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Their DID.
    pub did: String,
    /// Whether they see and control everybody's jobs.
    pub is_admin: bool,
    /// When the token ends, in seconds since 1970; nothing for one of the venue's that does not.
    pub expires: Option<i64>,
    /// The ID of a venue's token, by which it can be revoked.
    pub token_id: Option<String>,
}

/// Why a token names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// Not a token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The issuer is neither a did:key nor this venue.
    #[error("the issuer is not one this venue knows")]
    Issuer(#[source] DidError),
    /// A claim that must be there is not.
    #[error("the token has no usable `{0}`")]
    Missing(&'static str),
    /// The signature is not by the issuer.
    #[error("the signature does not hold")]
    Signature,
    /// Issued by one for another.
    #[error("the token's subject is not its issuer")]
    Subject,
    /// It is for another venue.
    #[error("the token is for {0}, not for this venue")]
    Audience(String),
    /// It has ended.
    #[error("the token has expired")]
    Expired,
    /// It has not begun.
    #[error("the token is not valid yet; is a clock wrong?")]
    NotYet,
    /// It delegates authority and names nobody.
    #[error("the token is a delegation, not an identity")]
    Delegation,
}

impl Venue {
    /// Who the bearer of this token is, at `now` in seconds since 1970.
    pub fn identify(&self, token: &str, now: i64) -> Result<Identity, TokenRefused> {
        let token = Token::parse(token)?;
        if token.claims().field("att").is_some() {
            return Err(TokenRefused::Delegation);
        }
        let issuer = token.text("iss").ok_or(TokenRefused::Missing("iss"))?;
        let subject = token.text("sub").ok_or(TokenRefused::Missing("sub"))?;
        let is_own = issuer == self.did;
        let key = match is_own {
            true => self.public,
            false => public_key(issuer).map_err(TokenRefused::Issuer)?,
        };
        if !token.is_signed_by(&key) {
            return Err(TokenRefused::Signature);
        }
        if !is_own && subject != issuer {
            return Err(TokenRefused::Subject);
        }
        self.check_audience(&token)?;
        let expires = check_time(&token, now, is_own)?;
        let is_admin = is_own && token.claims().field("admin") == Some(&Value::Bool(true));
        let token_id = token.text("jti").filter(|_| is_own).map(str::to_owned);
        Ok(Identity { did: subject.to_owned(), is_admin, expires, token_id })
    }

    /// A token may leave out whom it is for; if it says so, it must be this venue.
    fn check_audience(&self, token: &Token) -> Result<(), TokenRefused> {
        match token.claims().field("aud") {
            None | Some(Value::Nil) => Ok(()),
            Some(value) => match value.as_str() {
                Some(audience) if audience == self.did => Ok(()),
                other => Err(TokenRefused::Audience(other.unwrap_or("somebody else").to_owned())),
            },
        }
    }

    /// A token of this venue's for a person or a machine.
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
        Token::mint(&claims.into_iter().collect::<Map>(), key)
    }
}

/// What a venue's token grants.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    /// The DID of the bearer.
    pub subject: &'a str,
    /// The token's ID.
    pub id: &'a str,
    /// Now, in seconds since 1970.
    pub issued: i64,
    /// When it ends, if it does.
    pub expires: Option<i64>,
    /// Whether the bearer sees and controls everybody's jobs.
    pub is_admin: bool,
}

/// A token that somebody makes for themselves, as the published SDKs do: short-lived, for one venue
/// when it is known which, and with the key's name in its header.
pub fn self_issued(key: &KeyPair, audience: Option<&str>, now: i64) -> String {
    let did = key.did();
    let mut claims = vec![
        ("iss", Value::from(did.as_str())),
        ("sub", did.as_str().into()),
        ("iat", now.into()),
        ("exp", now.saturating_add(SELF_ISSUED_SECONDS).into()),
    ];
    claims.extend(audience.map(|audience| ("aud", audience.into())));
    let key_id = did.strip_prefix("did:key:").unwrap_or(&did);
    Token::mint_with_key_id(&claims.into_iter().collect::<Map>(), key, key_id)
}

/// Whether a token is valid now; those that somebody made for themselves must end.
fn check_time(token: &Token, now: i64, is_own: bool) -> Result<Option<i64>, TokenRefused> {
    let expires = match token.claims().field("exp") {
        None if is_own => None,
        _ => Some(token.seconds("exp").ok_or(TokenRefused::Missing("exp"))?),
    };
    if expires.is_some_and(|expires| expires.saturating_add(CLOCK_SKEW_SECONDS) <= now) {
        return Err(TokenRefused::Expired);
    }
    let begins = token.seconds("nbf").or(token.seconds("iat"));
    if begins.is_some_and(|begins| begins.saturating_sub(CLOCK_SKEW_SECONDS) > now) {
        return Err(TokenRefused::NotYet);
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

    /// The claims of an SDK's token, with some replaced; `null` leaves one out.
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
        venue().identify(&Token::mint(&claims(&key, changes), &key), NOW)
    }

    #[test]
    fn a_self_issued_token_names_its_issuer() {
        let identity = identify(&[]).unwrap();
        assert_eq!(identity.did, KeyPair::from_seed(&[1; 32]).did());
        assert_eq!((identity.is_admin, identity.expires), (false, Some(NOW + 300)));
        assert!(identify(&[("aud", Value::Nil)]).is_ok(), "the first request does not know us yet");
    }

    #[test]
    fn a_token_of_the_published_sdk_is_believed() {
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
    fn what_does_not_hold_is_refused() {
        let other = KeyPair::from_seed(&[2; 32]).did();
        let cases: [(&[(&'static str, Value)], TokenRefused); 9] = [
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
        let foreign = identify(&[("aud", "did:key:elsewhere".into())]).unwrap_err();
        assert_eq!(foreign.to_string(), "the token is for did:key:elsewhere, not for this venue");
    }

    #[test]
    fn clocks_may_disagree_a_little() {
        assert!(identify(&[("exp", (NOW - 30).into())]).is_ok());
        assert!(identify(&[("iat", (NOW + 30).into())]).is_ok());
        assert!(identify(&[("exp", Value::from(NOW as f64 + 300.5))]).is_ok());
    }

    #[test]
    fn nobody_makes_themselves_an_admin() {
        let identity = identify(&[("admin", true.into()), ("jti", "x".into())]).unwrap();
        assert_eq!((identity.is_admin, identity.token_id), (false, None));
    }

    #[test]
    fn a_venue_issues_tokens_for_others() {
        let grant = Grant {
            subject: "did:key:somebody",
            id: "t1",
            issued: NOW,
            expires: None,
            is_admin: true,
        };
        let token = venue().issue(&venue_key(), &grant);
        let identity = venue().identify(&token, NOW + 1_000_000).unwrap();
        assert_eq!(identity.did, "did:key:somebody");
        assert_eq!((identity.is_admin, identity.expires), (true, None));
        assert_eq!(identity.token_id.as_deref(), Some("t1"));
        // Another venue does not believe it.
        let other = KeyPair::from_seed(&[8; 32]);
        let elsewhere = Venue { did: other.did(), public: other.public() };
        assert!(elsewhere.identify(&token, NOW).is_err());
        let ending = Grant { expires: Some(NOW + 10), ..grant };
        let token = venue().issue(&venue_key(), &ending);
        assert_eq!(venue().identify(&token, NOW + 80), Err(TokenRefused::Expired));
    }

    #[test]
    fn a_token_that_somebody_makes_for_themselves_is_short_lived_and_for_one_venue() {
        let key = KeyPair::from_seed(&[3; 32]);
        let token = self_issued(&key, Some(&venue().did), NOW);
        let identity = venue().identify(&token, NOW).unwrap();
        assert_eq!((identity.did, identity.expires), (key.did(), Some(NOW + 300)));
        assert_eq!(venue().identify(&token, NOW + 400), Err(TokenRefused::Expired));
        let elsewhere = self_issued(&key, Some("did:key:elsewhere"), NOW);
        assert!(matches!(venue().identify(&elsewhere, NOW), Err(TokenRefused::Audience(_))));
        assert!(venue().identify(&self_issued(&key, None, NOW), NOW).is_ok());
    }
}
