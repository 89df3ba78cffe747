//! Venue tokens: issuing them, and the list of those that were revoked.
//!
//! The list is a file in the data folder with one token ID on each line, so that a command can add
//! to it while the venue runs; the venue looks at it every few seconds.

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

/// The file in the data folder.
const FILE: &str = "revoked-tokens";

/// The IDs of revoked tokens.
#[derive(Debug, Default)]
pub struct Revoked(RwLock<HashSet<String>>);

impl Revoked {
    /// Whether a token was revoked.
    pub fn contains(&self, id: &str) -> bool {
        self.0.read().contains(id)
    }

    pub(crate) fn replace(&self, ids: HashSet<String>) {
        *self.0.write() = ids;
    }

    /// The list of a data folder.
    pub fn load(data: &Path) -> io::Result<Self> {
        Ok(Revoked(RwLock::new(read(data)?)))
    }

    /// Reads the list again whenever it changed.
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
                    tracing::info!(revoked = ids.len(), "read the list of revoked tokens again");
                    self.replace(ids);
                    seen = now;
                }
                Err(error) => tracing::warn!(%error, "could not read the list of revoked tokens"),
            }
        }
    }
}

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

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The token. Whoever has it is its subject.
    pub token: String,
    /// Its ID, by which it is revoked.
    pub id: String,
    /// Whom it stands for.
    pub subject: String,
}

/// What a new token is to say.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Whom it stands for: a DID, or a name, which becomes a user of this venue.
    pub subject: &'a str,
    /// Whether its bearer sees and controls everybody's jobs.
    pub is_admin: bool,
    /// How long it holds; for ever when not said.
    pub lifetime: Option<Duration>,
    /// Now, in seconds since 1970.
    pub now: i64,
}

/// Makes a token of the venue with this configuration, which need not run. Its key is made if
/// there is none yet.
pub fn issue(config: &Config, wanted: Wanted<'_>) -> Result<Issued, KeyError> {
    let key = key::load_or_create(config.data.as_path())?;
    let did = config.did(&key.did());
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| KeyError::Io {
        file: config.data.value.clone(),
        source: io::Error::other(error.to_string()),
    })?;
    let id = format!("{:016x}", u64::from_be_bytes(random));
    let subject = match wanted.subject.starts_with("did:") {
        true => wanted.subject.to_owned(),
        false => format!("{did}:u:{}", wanted.subject),
    };
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let expires = wanted.lifetime.map(|time| wanted.now.saturating_add(seconds(time)));
    let grant = Grant {
        subject: &subject,
        id: &id,
        issued: wanted.now,
        expires,
        is_admin: wanted.is_admin,
    };
    let token = catena_auth::Venue { did, public: key.public() }.issue(&key, &grant);
    Ok(Issued { token, id, subject })
}

/// Adds a token to the list of a data folder. A venue that runs notices within a few seconds.
pub fn revoke(data: &Path, id: &str) -> io::Result<()> {
    if id.is_empty() || id.chars().any(char::is_whitespace) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the ID of a token"));
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
        let wanted = |subject| Wanted { subject, is_admin: true, lifetime: Some(hour), now: 100 };
        let issued = issue(&config, wanted("ann")).unwrap();
        let key = key::load(folder.path()).unwrap().unwrap();
        assert_eq!(issued.subject, format!("{}:u:ann", key.did()));
        let venue = catena_auth::Venue { did: key.did(), public: key.public() };
        let identity = venue.identify(&issued.token, 200).unwrap();
        assert_eq!((identity.did.as_str(), identity.is_admin), (&*issued.subject, true));
        assert_eq!(identity.expires, Some(3_700));
        assert_eq!(identity.token_id.as_deref(), Some(&*issued.id));
        assert_eq!(issue(&config, wanted("did:key:z")).unwrap().subject, "did:key:z");
    }

    #[test]
    fn a_revoked_token_is_on_the_list() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Revoked::load(folder.path()).unwrap().contains("t1"));
        revoke(folder.path(), "t1").unwrap();
        revoke(folder.path(), "t2").unwrap();
        let revoked = Revoked::load(folder.path()).unwrap();
        assert!(revoked.contains("t1") && revoked.contains("t2") && !revoked.contains("t3"));
        assert!(revoke(folder.path(), "two words").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_list_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Arc::new(Revoked::load(folder.path()).unwrap());
        let watching = tokio::spawn(Arc::clone(&revoked).watch(folder.path().to_owned()));
        tokio::task::yield_now().await;
        revoke(folder.path(), "t1").unwrap();
        tokio::time::sleep(REVOKED_CHECK * 2).await;
        assert!(revoked.contains("t1"));
        watching.abort();
    }
}
