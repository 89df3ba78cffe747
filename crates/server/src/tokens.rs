//! Venue tokens: issuing them, and the list of those that were revoked.
//!
//! The list is a file in the data folder with one token ID on each line, so that a command can add
//! to it while the venue runs; the venue looks at it every few seconds.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;

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
