//! Names: which blobs the folder shows, and whether it would still show them after a power loss.
//!
//! One change at a time: a rename or a removal and the sync of the folder that follows it happen under one lock. So who
//! holds the lock and finds nothing unsynced may trust every name it sees, and a blob that is already here can be
//! acknowledged without another sync.
//!
//! A failed sync of the folder is final. The system may have dropped what it could not write, and a later sync that
//! succeeds says nothing about it; so the folder takes no further change, and only opening it again finds out what is
//! there. Reading goes on.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::digest::Digest;
use super::super::error::{RemoveError, WriteError};
use super::find;
use catena_ledger::disk::Disk;

/// The names in one folder.
#[derive(Debug)]
pub(super) struct Names {
    disk: Arc<dyn Disk>,
    changes: Mutex<Changes>,
    /// Names that may be visible and are not durable yet. Apart from `changes`, so that readers never wait for a sync.
    uncertain: Mutex<HashSet<Digest>>,
}

/// How the folder on the disk stands to what we see of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changes {
    Synced,
    Unsynced,
    Stopped,
}

/// Why the folder could not be brought to rest.
#[derive(Debug)]
enum Unsettled {
    Stopped,
    Sync(io::Error),
}

/// What became of a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It carries the digest now.
    Renamed,
    /// The blob was here already, and the temporary file is not needed.
    AlreadyHere,
}

impl Names {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, changes: Mutex::new(Changes::Synced), uncertain: Mutex::default() }
    }

    /// Whether a name that was seen is durable.
    pub(super) fn is_certain(&self, digest: Digest) -> bool {
        !self.uncertain.lock().contains(&digest)
    }

    /// Whether a blob of this length is here, durably.
    pub(super) fn holds(&self, digest: Digest, len: u64) -> Result<bool, WriteError> {
        self.holds_now(&mut self.changes.lock(), digest, len)
    }

    fn holds_now(
        &self,
        changes: &mut Changes,
        digest: Digest,
        len: u64,
    ) -> Result<bool, WriteError> {
        self.settle(changes).map_err(|unsettled| self.write_error(unsettled))?;
        let path = || format!("{}/{}", self.disk.describe(), digest.to_hex());
        let found = find(self.disk.as_ref(), digest)
            .map_err(|source| WriteError::io("open", path(), source))?;
        let Some(file) = found else { return Ok(false) };
        // A file of another length is damaged, and the copy at hand is not: it may take its place.
        Ok(file.size().map_err(|source| WriteError::io("measure", path(), source))? == len)
    }

    /// Gives a synced temporary file its name for good, unless the blob is here already.
    pub(super) fn publish(
        &self,
        temporary: &str,
        digest: Digest,
        len: u64,
    ) -> Result<Published, WriteError> {
        let mut changes = self.changes.lock();
        if self.holds_now(&mut changes, digest, len)? {
            return Ok(Published::AlreadyHere);
        }
        // Both before the rename: whatever it answers, the name may be there from here on.
        self.uncertain.lock().insert(digest);
        *changes = Changes::Unsynced;
        let path = || format!("{}/{}", self.disk.describe(), digest.to_hex());
        let renamed = self.disk.rename(temporary, &digest.to_hex());
        renamed.map_err(|source| WriteError::io("rename a file to", path(), source))?;
        self.settle(&mut changes).map_err(|unsettled| self.write_error(unsettled))?;
        Ok(Published::Renamed)
    }

    /// Removes a blob for good.
    pub(super) fn remove(&self, digest: Digest) -> Result<(), RemoveError> {
        let mut changes = self.changes.lock();
        if *changes == Changes::Stopped {
            return Err(self.remove_error(digest, Unsettled::Stopped));
        }
        let before = std::mem::replace(&mut *changes, Changes::Unsynced);
        match self.disk.remove(&digest.to_hex()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => *changes = before,
            Err(source) => {
                return Err(RemoveError::Io { digest, folder: self.disk.describe(), source });
            }
        }
        self.settle(&mut changes).map_err(|unsettled| self.remove_error(digest, unsettled))
    }

    /// Makes every name durable that is not yet.
    fn settle(&self, changes: &mut Changes) -> Result<(), Unsettled> {
        match *changes {
            Changes::Synced => return Ok(()),
            Changes::Stopped => return Err(Unsettled::Stopped),
            Changes::Unsynced => {}
        }
        if let Err(error) = self.disk.sync_dir() {
            *changes = Changes::Stopped;
            return Err(Unsettled::Sync(error));
        }
        *changes = Changes::Synced;
        self.uncertain.lock().clear();
        Ok(())
    }

    fn write_error(&self, unsettled: Unsettled) -> WriteError {
        match unsettled {
            Unsettled::Stopped => WriteError::Stopped { folder: self.disk.describe() },
            Unsettled::Sync(source) => WriteError::Sync { path: self.disk.describe(), source },
        }
    }

    fn remove_error(&self, digest: Digest, unsettled: Unsettled) -> RemoveError {
        let folder = self.disk.describe();
        match unsettled {
            Unsettled::Stopped => RemoveError::Stopped { folder },
            Unsettled::Sync(source) => RemoveError::Sync { digest, folder, source },
        }
    }
}
