//! Lists that an operator changes while the venue runs: who may use it, who may not, and which
//! tokens were revoked.
//!
//! Each list is a file in the data folder with one entry per line, so that a command can change it
//! while the venue runs. The venue checks the files every few seconds and tells open event streams,
//! which end if their subject is no longer admitted.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::limits::{LIST_BYTES_MAX, LISTS_CHECK};

/// Only the venue's own user may read the files.
const MODE: u32 = 0o600;

/// One of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// IDs of venue tokens that are no longer accepted.
    RevokedTokens,
    /// DIDs that may use a venue with `access = "listed"`.
    Members,
    /// DIDs that may not use the venue, whatever `access` is.
    Blocked,
}

impl List {
    const ALL: [List; 3] = [List::RevokedTokens, List::Members, List::Blocked];

    /// The name of its file in the data folder.
    pub fn file(self) -> &'static str {
        match self {
            List::RevokedTokens => "revoked-tokens",
            List::Members => "access-list",
            List::Blocked => "blocked-identities",
        }
    }
}

/// The entries of a list.
pub type Entries = BTreeSet<String>;

/// All lists of a venue, as they were last read.
#[derive(Debug)]
pub struct AccessLists {
    lists: RwLock<[Entries; 3]>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

impl Default for AccessLists {
    fn default() -> Self {
        AccessLists { lists: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl AccessLists {
    /// Reads the lists of a data folder.
    pub fn load(data: &Path) -> io::Result<Self> {
        let lists = AccessLists::default();
        for list in List::ALL {
            lists.replace(list, read(data, list)?);
        }
        Ok(lists)
    }

    /// Whether a list has this entry.
    pub fn contains(&self, list: List, entry: &str) -> bool {
        self.lists.read()[list as usize].contains(entry)
    }

    pub(crate) fn replace(&self, list: List, entries: Entries) {
        self.lists.write()[list as usize] = entries;
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// A receiver that is notified of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reads a list again whenever its file changes. Never returns.
    pub(crate) async fn watch(self: Arc<Self>, data: PathBuf) {
        let mut seen = List::ALL.map(|list| changed_at(&data, list));
        loop {
            tokio::time::sleep(LISTS_CHECK).await;
            for list in List::ALL {
                let now = changed_at(&data, list);
                if now == seen[list as usize] {
                    continue;
                }
                let name = list.file();
                match read(&data, list) {
                    Ok(entries) => {
                        tracing::info!(list = name, entries = entries.len(), "reloaded a list");
                        self.replace(list, entries);
                        seen[list as usize] = now;
                    }
                    Err(error) => tracing::warn!(list = name, %error, "could not read a list"),
                }
            }
        }
    }
}

/// Time, size and identity of a file at its last change, by which a change is noticed.
fn changed_at(data: &Path, list: List) -> Option<(SystemTime, u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(data.join(list.file())).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// Reads a list of a data folder. A list without a file is empty.
pub fn read(data: &Path, list: List) -> io::Result<Entries> {
    let file = data.join(list.file());
    if fs::metadata(&file).is_ok_and(|metadata| metadata.len() > LIST_BYTES_MAX) {
        return Err(io::Error::other(format!("it has more than {LIST_BYTES_MAX} bytes")));
    }
    match fs::read_to_string(file) {
        Ok(text) => {
            let entries = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Ok(entries.map(str::to_owned).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entries::new()),
        Err(error) => Err(error),
    }
}

/// Whether a list has a file.
pub fn exists(data: &Path, list: List) -> bool {
    data.join(list.file()).exists()
}

/// Adds an entry to a list, durably. Returns false if the list already has it. A running venue
/// notices within a few seconds.
pub fn add(data: &Path, list: List, entry: &str) -> io::Result<bool> {
    let is_invalid = |character: char| character.is_whitespace() || character.is_control();
    if entry.is_empty() || entry.chars().any(is_invalid) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a valid entry"));
    }
    let mut entries = read(data, list)?;
    if !entries.insert(entry.to_owned()) {
        return Ok(false);
    }
    write(data, list, &entries)?;
    Ok(true)
}

/// Removes an entry from a list, durably. Returns false if the list does not have it.
pub fn remove(data: &Path, list: List, entry: &str) -> io::Result<bool> {
    let mut entries = read(data, list)?;
    if !entries.remove(entry) {
        return Ok(false);
    }
    write(data, list, &entries)?;
    Ok(true)
}

/// Replaces a list, durably and as a whole.
pub fn write(data: &Path, list: List, entries: &Entries) -> io::Result<()> {
    let temporary = data.join(format!("{}.new", list.file()));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary)?;
    for entry in entries {
        writeln!(file, "{entry}")?;
    }
    file.sync_all()?;
    fs::rename(&temporary, data.join(list.file()))?;
    fs::File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_added_once_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert!(add(data, List::Blocked, "did:key:a").unwrap());
        assert!(!add(data, List::Blocked, "did:key:a").unwrap());
        assert!(add(data, List::Blocked, "did:key:b").unwrap());
        let lists = AccessLists::load(data).unwrap();
        assert!(lists.contains(List::Blocked, "did:key:b"));
        assert!(!lists.contains(List::Members, "did:key:b"));
        assert!(remove(data, List::Blocked, "did:key:a").unwrap());
        assert!(!remove(data, List::Blocked, "did:key:a").unwrap());
        assert_eq!(read(data, List::Blocked).unwrap().len(), 1);
        assert!(add(data, List::Members, "two words").is_err());
        assert!(add(data, List::Members, "a\u{1b}[2J").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_list_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let lists = Arc::new(AccessLists::load(folder.path()).unwrap());
        let mut changes = lists.subscribe();
        let watching = tokio::spawn(Arc::clone(&lists).watch(folder.path().to_owned()));
        tokio::task::yield_now().await;
        add(folder.path(), List::RevokedTokens, "t1").unwrap();
        changes.changed().await.unwrap();
        assert!(lists.contains(List::RevokedTokens, "t1"));
        watching.abort();
    }
}
