//! Names: which blobs the folder shows, and whether they are durable.
//!
//! One change at a time: a rename or a removal and the sync of the folder that follows it happen under one lock. So a
//! thread that holds the lock and finds everything synced may trust every name it sees, and a blob that is already stored
//! can be acknowledged without another sync.
//!
//! A failed sync of the folder is final. The system may have dropped what it could not write, and a later sync that
//! succeeds does not prove otherwise; so the folder accepts no further change until it is opened again. Reading goes on.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::find_file;
use crate::blob::digest::Digest;
use crate::blob::error::{RemoveError, WriteError};
use catena_ledger::disk::Disk;

/// The names in one folder.
#[derive(Debug)]
pub(super) struct Names {
    disk: Arc<dyn Disk>,
    state: Mutex<SyncState>,
    /// Names that may be visible and are not durable yet. Separate from `state`, so that readers never wait for a sync.
    uncertain: Mutex<HashSet<Digest>>,
}

/// Whether the names in the folder are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    Synced,
    Unsynced,
    Stopped,
}

/// Why the names could not be made durable.
#[derive(Debug)]
enum SyncNamesError {
    Stopped,
    Sync(io::Error),
}

/// The result of publishing a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// The file has been renamed to the digest.
    Renamed,
    /// The blob was stored already, and the temporary file is not needed.
    AlreadyStored,
}

impl Names {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, state: Mutex::new(SyncState::Synced), uncertain: Mutex::default() }
    }

    /// Whether a name that was seen is durable.
    pub(super) fn is_certain(&self, digest: Digest) -> bool {
        !self.uncertain.lock().contains(&digest)
    }

    /// Whether a blob of this length is stored durably.
    pub(super) fn contains(&self, digest: Digest, len: u64) -> Result<bool, WriteError> {
        self.contains_locked(&mut self.state.lock(), digest, len)
    }

    fn contains_locked(
        &self,
        state: &mut SyncState,
        digest: Digest,
        len: u64,
    ) -> Result<bool, WriteError> {
        self.sync_names(state).map_err(|error| self.write_error(error))?;
        let path = || format!("{}/{}", self.disk.describe(), digest.to_hex());
        let found = find_file(self.disk.as_ref(), digest)
            .map_err(|source| WriteError::io("open", path(), source))?;
        let Some(file) = found else { return Ok(false) };
        // A file of another length is damaged, and the new copy is not: it may replace the file.
        Ok(file.size().map_err(|source| WriteError::io("measure", path(), source))? == len)
    }

    /// Renames a synced temporary file durably, unless the blob is stored already.
    pub(super) fn publish(
        &self,
        temporary: &str,
        digest: Digest,
        len: u64,
    ) -> Result<Published, WriteError> {
        let mut state = self.state.lock();
        if self.contains_locked(&mut state, digest, len)? {
            return Ok(Published::AlreadyStored);
        }
        // Both before the rename: even if it fails, the name may be visible from here on.
        self.uncertain.lock().insert(digest);
        *state = SyncState::Unsynced;
        let path = || format!("{}/{}", self.disk.describe(), digest.to_hex());
        let renamed = self.disk.rename(temporary, &digest.to_hex());
        renamed.map_err(|source| WriteError::io("rename a file to", path(), source))?;
        self.sync_names(&mut state).map_err(|error| self.write_error(error))?;
        Ok(Published::Renamed)
    }

    /// Removes a blob durably.
    pub(super) fn remove(&self, digest: Digest) -> Result<(), RemoveError> {
        let mut state = self.state.lock();
        if *state == SyncState::Stopped {
            return Err(self.remove_error(digest, SyncNamesError::Stopped));
        }
        let before = std::mem::replace(&mut *state, SyncState::Unsynced);
        match self.disk.remove(&digest.to_hex()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => *state = before,
            Err(source) => {
                return Err(RemoveError::Io { digest, folder: self.disk.describe(), source });
            }
        }
        self.sync_names(&mut state).map_err(|error| self.remove_error(digest, error))
    }

    /// Makes every name durable that is not durable yet.
    fn sync_names(&self, state: &mut SyncState) -> Result<(), SyncNamesError> {
        match *state {
            SyncState::Synced => return Ok(()),
            SyncState::Stopped => return Err(SyncNamesError::Stopped),
            SyncState::Unsynced => {}
        }
        if let Err(error) = self.disk.sync_dir() {
            *state = SyncState::Stopped;
            return Err(SyncNamesError::Sync(error));
        }
        *state = SyncState::Synced;
        self.uncertain.lock().clear();
        Ok(())
    }

    fn write_error(&self, error: SyncNamesError) -> WriteError {
        match error {
            SyncNamesError::Stopped => WriteError::Stopped { folder: self.disk.describe() },
            SyncNamesError::Sync(source) => WriteError::Sync { path: self.disk.describe(), source },
        }
    }

    fn remove_error(&self, digest: Digest, error: SyncNamesError) -> RemoveError {
        let folder = self.disk.describe();
        match error {
            SyncNamesError::Stopped => RemoveError::Stopped { folder },
            SyncNamesError::Sync(source) => RemoveError::Sync { digest, folder, source },
        }
    }
}
