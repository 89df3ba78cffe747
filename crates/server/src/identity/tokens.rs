//! Tokens issued by the venue.

use std::io;
use std::path::Path;
use std::time::Duration;

use catena_auth::identity::Grant;

use crate::config::Config;
use crate::identity::key::{self, KeyError};
use crate::identity::lists::{self, List};

/// A token that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token. Its bearer is authenticated as the subject.
    pub token: String,
    /// The ID by which it can be revoked.
    pub id: String,
    /// The DID of the subject.
    pub subject: String,
}

/// The parameters of a new token.
#[derive(Debug, Clone, Copy)]
pub struct TokenRequest<'a> {
    /// The subject: a DID, or the name of a user of this venue.
    pub subject: &'a str,
    /// Whether the bearer is an admin, who can see and control all jobs.
    pub is_admin: bool,
    /// How long it is valid. `None` for a token that does not expire.
    pub lifetime: Option<Duration>,
    /// The current Unix time in seconds.
    pub now: i64,
}

/// Issues a token of the venue with this configuration, which need not be running. Creates the
/// venue's key if there is none.
pub fn issue(config: &Config, request: TokenRequest<'_>) -> Result<IssuedToken, KeyError> {
    let key = key::load_or_create(config.data.as_path())?;
    let did = config.did(&key.did());
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| KeyError::Io {
        file: config.data.value.clone(),
        source: io::Error::other(error.to_string()),
    })?;
    let id = format!("{:016x}", u64::from_be_bytes(random));
    let subject = if request.subject.starts_with("did:") {
        request.subject.to_owned()
    } else {
        format!("{did}:u:{}", request.subject)
    };
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let expires = request.lifetime.map(|time| request.now.saturating_add(seconds(time)));
    let grant = Grant {
        subject: &subject,
        id: &id,
        issued: request.now,
        expires,
        is_admin: request.is_admin,
        queues: None,
    };
    let token = catena_auth::Venue { did, public: key.public() }.issue(&key, &grant);
    lists::add(config.data.as_path(), List::Members, &subject)
        .map_err(|source| KeyError::Io { file: config.data.join(List::Members.file()), source })?;
    Ok(IssuedToken { token, id, subject })
}

/// The subjects of all tokens on the list that `catena token create` keeps in a data folder: one JSON
/// object per line.
pub(crate) fn issued_subjects(data: &Path) -> io::Result<lists::Entries> {
    Ok(issued(data)?.into_iter().map(|(_, subject)| subject).collect())
}

/// The IDs and subjects of these tokens.
fn issued(data: &Path) -> io::Result<Vec<(String, String)>> {
    let text = match std::fs::read_to_string(data.join("issued-tokens")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let token = |line: &str| {
        let value = catena_value::json::read(line.as_bytes()).ok()?;
        let member = |name: &str| Some(value.as_map()?.field(name)?.as_str()?.to_owned());
        Some((member("id").unwrap_or_default(), member("subject")?))
    };
    Ok(text.lines().filter_map(token).collect())
}

/// The users of this venue all of whose tokens were revoked. A user with a key of their own needs no token.
pub(crate) fn revoked_subjects(data: &Path) -> io::Result<lists::Entries> {
    let revoked = lists::read(data, List::RevokedTokens)?;
    let mut without = lists::Entries::new();
    let mut with = lists::Entries::new();
    for (id, subject) in issued(data)?.into_iter().filter(|(_, subject)| subject.contains(":u:")) {
        if revoked.contains(&id) {
            without.insert(subject)
        } else {
            with.insert(subject)
        };
    }
    Ok(without.difference(&with).cloned().collect())
}

/// Adds a token to the list of a data folder. A running venue notices within a few seconds.
pub fn revoke(data: &Path, id: &str) -> io::Result<()> {
    lists::add(data, List::RevokedTokens, id).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issued_token_names_its_subject() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap().to_owned();
        let flags = crate::config::Flags { data: Some(data), ..Default::default() };
        let config = Config::layered(&flags, &|_| None, None).unwrap();
        let hour = Duration::from_secs(3600);
        let request =
            |subject| TokenRequest { subject, is_admin: true, lifetime: Some(hour), now: 100 };
        let issued = issue(&config, request("ann")).unwrap();
        let key = key::load(folder.path()).unwrap().unwrap();
        assert_eq!(issued.subject, format!("{}:u:ann", key.did()));
        let venue = catena_auth::Venue { did: key.did(), public: key.public() };
        let identity = venue.identify(&issued.token, 200).unwrap();
        assert_eq!((identity.did.as_str(), identity.is_admin), (&*issued.subject, true));
        assert_eq!(identity.expires, Some(3_700));
        assert_eq!(identity.token_id.as_deref(), Some(&*issued.id));
        assert_eq!(issue(&config, request("did:key:z")).unwrap().subject, "did:key:z");
        let members = lists::read(folder.path(), List::Members).unwrap();
        assert!(members.contains("did:key:z"), "a token lists its subject");
    }

    #[test]
    fn a_user_without_a_token_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let line =
            |id: &str, subject: &str| format!("{{\"id\":\"{id}\",\"subject\":\"{subject}\"}}\n");
        let issued = [("1", "v:u:ann"), ("2", "v:u:bob"), ("3", "v:u:bob"), ("4", "did:key:z")];
        let issued: String = issued.iter().map(|(id, subject)| line(id, subject)).collect();
        std::fs::write(folder.path().join("issued-tokens"), issued).unwrap();
        for id in ["1", "2", "4"] {
            revoke(folder.path(), id).unwrap();
        }
        let found = revoked_subjects(folder.path()).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["v:u:ann"]);
    }

    #[test]
    fn a_revoked_token_is_on_the_list() {
        let folder = tempfile::tempdir().unwrap();
        revoke(folder.path(), "t1").unwrap();
        revoke(folder.path(), "t2").unwrap();
        let revoked = lists::read(folder.path(), List::RevokedTokens).unwrap();
        assert!(revoked.contains("t1") && revoked.contains("t2") && !revoked.contains("t3"));
        assert!(revoke(folder.path(), "two words").is_err());
    }
}
