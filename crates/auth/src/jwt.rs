//! Compact tokens (JWT): a header, claims, and an Ed25519 signature over both.
//!
//! EdDSA is the only algorithm, and the header's `alg` must say so. Nothing else in the header is
//! trusted: the key comes from the issuer's DID, never from the token's own `kid`.

use catena_value::{Map, Value, json};

use crate::base::{from_base64url, to_base64url};
use crate::key::{KeyPair, is_signed_by};
use crate::limits::{CLOCK_SKEW_SECONDS, TOKEN_BYTES_MAX, TOKEN_DEPTH_MAX};

/// A parsed token whose signature has not been checked.
#[derive(Debug, Clone)]
pub struct Token {
    claims: Map,
    signature: [u8; 64],
    /// The signed part of the text: header and claims.
    signed: String,
}

/// The reason why a text is not a well-formed token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is longer than [`TOKEN_BYTES_MAX`].
    #[error("the token has more than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// The text does not consist of three parts separated by dots.
    #[error("the token does not consist of three parts separated by dots")]
    Parts,
    /// A part is not URL-safe base64, or its content is not valid.
    #[error("the {0} of the token is malformed")]
    Malformed(&'static str),
    /// The header names another algorithm than EdDSA.
    #[error("the token is not signed with EdDSA")]
    Algorithm,
    /// The header has a `crit` member, which requires extensions that are not supported.
    #[error("the token requires an unsupported extension (`crit`)")]
    Critical,
}

/// The reason why a token is not valid at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A time is not a number of seconds.
    #[error("its time `{0}` is missing or malformed")]
    Malformed(&'static str),
    /// It has expired.
    #[error("it has expired")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet; check that both clocks are correct")]
    NotYet,
}

impl Token {
    /// Parses a token without checking its signature.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Parts)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Parts)?;
        if claims.contains('.') {
            return Err(TokenError::Parts);
        }
        let header = decode_part(header, "header")?;
        // The issuer requires that every extension named in `crit` is supported; none is.
        if header.field("crit").is_some() {
            return Err(TokenError::Critical);
        }
        if header.field("alg").and_then(Value::as_str) != Some("EdDSA") {
            return Err(TokenError::Algorithm);
        }
        let claims = decode_part(claims, "claims")?;
        let signature = from_base64url(signature)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(TokenError::Malformed("signature"))?;
        Ok(Token { claims, signature, signed: signed.to_owned() })
    }

    /// Signs the claims and returns the text of the token.
    pub fn mint(claims: &Map, key: &KeyPair) -> String {
        Self::mint_with(&[("alg", "EdDSA"), ("typ", "JWT")], claims, key)
    }

    /// Like [`Token::mint`], with a `kid` header, which some verifiers expect.
    pub fn mint_with_key_id(claims: &Map, key: &KeyPair, key_id: &str) -> String {
        Self::mint_with(&[("alg", "EdDSA"), ("typ", "JWT"), ("kid", key_id)], claims, key)
    }

    fn mint_with(header: &[(&str, &str)], claims: &Map, key: &KeyPair) -> String {
        let header = header.iter().copied().collect::<Map>();
        let text = |map: &Map| {
            // Header and claims are built by this program and entirely in memory.
            let json = json::to_string(&map.clone().into()).unwrap_or_default();
            to_base64url(json.as_bytes())
        };
        let signed = format!("{}.{}", text(&header), text(claims));
        let signature = to_base64url(&key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Whether the token was signed with this key.
    pub fn is_signed_by(&self, public: &[u8; 32]) -> bool {
        is_signed_by(public, self.signed.as_bytes(), &self.signature)
    }

    /// All claims. They are trustworthy only after [`Token::is_signed_by`].
    pub fn claims(&self) -> &Map {
        &self.claims
    }

    /// A string claim. `None` if it is absent or of another type.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.claims.field(name).and_then(Value::as_str)
    }

    /// A claim that is a Unix time in seconds. Some issuers write fractions, which are cut off.
    /// `None` if the claim is absent or not a number.
    pub fn seconds(&self, name: &str) -> Option<i64> {
        match self.claims.field(name)? {
            Value::Integer(number) => number.as_i64(),
            Value::Double(number) if number.get().abs() < 9e15 => Some(number.get().floor() as i64),
            _ => None,
        }
    }

    /// Checks `exp`, `nbf` and `iat` against `now`, which is Unix time in seconds, and returns the
    /// expiry. A time may be absent or null, but if it is present it must be a number.
    pub fn check_times(&self, now: i64) -> Result<Option<i64>, TimeError> {
        let time = |name: &'static str| match self.claims.field(name) {
            None | Some(Value::Nil) => Ok(None),
            Some(_) => self.seconds(name).map(Some).ok_or(TimeError::Malformed(name)),
        };
        let expires = time("exp")?;
        let starts = time("nbf")?.max(time("iat")?);
        if expires.is_some_and(|expires| expires.saturating_add(CLOCK_SKEW_SECONDS) <= now) {
            return Err(TimeError::Expired);
        }
        if starts.is_some_and(|starts| starts.saturating_sub(CLOCK_SKEW_SECONDS) > now) {
            return Err(TimeError::NotYet);
        }
        Ok(expires)
    }
}

/// Decodes one part of a token; `name` is used in the error.
fn decode_part(text: &str, name: &'static str) -> Result<Map, TokenError> {
    let bytes = from_base64url(text).ok_or(TokenError::Malformed(name))?;
    match json::read_nested(&bytes, TOKEN_DEPTH_MAX) {
        Ok(Value::Map(map)) => Ok(map),
        _ => Err(TokenError::Malformed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Map {
        [("iss", "did:key:z6Mk")].into_iter().collect()
    }

    #[test]
    fn a_token_is_valid_for_its_key_and_content_alone() {
        let key = KeyPair::from_seed(&[3; 32]);
        let text = Token::mint(&claims(), &key);
        let token = Token::parse(&text).unwrap();
        assert_eq!(token.text("iss"), Some("did:key:z6Mk"));
        assert!(token.is_signed_by(&key.public()));
        assert!(!token.is_signed_by(&KeyPair::from_seed(&[4; 32]).public()));
        let parts: Vec<&str> = text.split('.').collect();
        let other = to_base64url(br#"{"iss":"did:key:z6Ml"}"#);
        let forged = Token::parse(&format!("{}.{other}.{}", parts[0], parts[2])).unwrap();
        assert!(!forged.is_signed_by(&key.public()));
    }

    #[test]
    fn only_one_algorithm_is_supported() {
        let key = KeyPair::from_seed(&[3; 32]);
        let text = Token::mint(&claims(), &key);
        let rest = text.split_once('.').unwrap().1;
        for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS256"}"#, r#"{"alg":"eddsa"}"#, "{}"] {
            let other = format!("{}.{rest}", to_base64url(header.as_bytes()));
            assert_eq!(Token::parse(&other).unwrap_err(), TokenError::Algorithm, "{header}");
        }
        let critical = to_base64url(br#"{"alg":"EdDSA","crit":["exp"]}"#);
        let refused = Token::parse(&format!("{critical}.{rest}"));
        assert_eq!(refused.unwrap_err(), TokenError::Critical);
    }

    #[test]
    fn a_malformed_token_is_refused_with_the_reason() {
        let refused = |text: &str| Token::parse(text).unwrap_err();
        assert_eq!(refused(""), TokenError::Parts);
        assert_eq!(refused("a.b"), TokenError::Parts);
        assert_eq!(refused("a.b.c.d"), TokenError::Parts);
        assert_eq!(refused("!.e30.AA"), TokenError::Malformed("header"));
        assert_eq!(refused(&"a".repeat(TOKEN_BYTES_MAX + 1)), TokenError::TooLong);
        let header = to_base64url(br#"{"alg":"EdDSA"}"#);
        assert_eq!(refused(&format!("{header}.W10.AA")), TokenError::Malformed("claims"));
        assert_eq!(refused(&format!("{header}.e30.AAAA")), TokenError::Malformed("signature"));
        let deep =
            to_base64url(format!("{{\"a\":{}1{}}}", "[".repeat(20), "]".repeat(20)).as_bytes());
        assert_eq!(refused(&format!("{header}.{deep}.AA")), TokenError::Malformed("claims"));
    }
}
