//! Tokens issued by the venue, and the list of revoked ones.
//!
//! The list is a file in the data folder with one token ID per line, so that a command can add to it
//! while the venue runs. The venue checks the file every few seconds.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use catena_auth::identity::Grant;
use parking_lot::RwLock;

use crate::config::Config;
use crate::identity::key::{self, KeyError};
use crate::limits::REVOKED_CHECK;

/// The name of the file in the data folder.
const FILE: &str = "revoked-tokens";

/// The IDs of revoked tokens.
#[derive(Debug, Default)]
pub struct RevokedTokens(RwLock<HashSet<String>>);

impl RevokedTokens {
    /// Whether the token with this ID was revoked.
    pub fn contains(&self, id: &str) -> bool {
        self.0.read().contains(id)
    }

    pub(crate) fn replace(&self, ids: HashSet<String>) {
        *self.0.write() = ids;
    }

    /// Reads the list of a data folder.
    pub fn load(data: &Path) -> io::Result<Self> {
        Ok(RevokedTokens(RwLock::new(read(data)?)))
    }

    /// Reads the list again whenever the file changes. Never returns.
    pub(crate) async fn watch(self: Arc<Self>, data: std::path::PathBuf) {
        let mut seen = changed_at(&data);
        loop {
            tokio::time::sleep(REVOKED_CHECK).await;
            let now = changed_at(&data);
            if now == seen {
                continue;
            }
            match read(&data) {
                Ok(ids) => {
                    tracing::info!(revoked = ids.len(), "reloaded the list of revoked tokens");
                    self.replace(ids);
                    seen = now;
                }
                Err(error) => tracing::warn!(%error, "could not read the list of revoked tokens"),
            }
        }
    }
}

/// Time and size of the last change, by which a change is noticed.
fn changed_at(data: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(data.join(FILE)).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(data: &Path) -> io::Result<HashSet<String>> {
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => {
            let ids = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Ok(ids.map(str::to_owned).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
        Err(error) => Err(error),
    }
}

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
    };
    let token = catena_auth::Venue { did, public: key.public() }.issue(&key, &grant);
    Ok(IssuedToken { token, id, subject })
}

/// Adds a token to the list of a data folder. A running venue notices within a few seconds.
pub fn revoke(data: &Path, id: &str) -> io::Result<()> {
    if id.is_empty() || id.chars().any(char::is_whitespace) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a valid token ID"));
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(data.join(FILE))?;
    writeln!(file, "{id}")?;
    file.sync_all()
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
    }

    #[test]
    fn a_revoked_token_is_on_the_list() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!RevokedTokens::load(folder.path()).unwrap().contains("t1"));
        revoke(folder.path(), "t1").unwrap();
        revoke(folder.path(), "t2").unwrap();
        let revoked = RevokedTokens::load(folder.path()).unwrap();
        assert!(revoked.contains("t1") && revoked.contains("t2") && !revoked.contains("t3"));
        assert!(revoke(folder.path(), "two words").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_list_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Arc::new(RevokedTokens::load(folder.path()).unwrap());
        let watching = tokio::spawn(Arc::clone(&revoked).watch(folder.path().to_owned()));
        tokio::task::yield_now().await;
        revoke(folder.path(), "t1").unwrap();
        tokio::time::sleep(REVOKED_CHECK * 2).await;
        assert!(revoked.contains("t1"));
        watching.abort();
    }
}
