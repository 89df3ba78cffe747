//! Blobs in a folder: one file each, named by the digest.
//!
//! A blob is written under a temporary name, synced, renamed to its digest, and acknowledged after the folder is synced.
//! So a file that carries a digest is whole, at any moment and after any crash. [`LocalBlobs::open`] removes what
//! unfinished writers left and syncs the folder, which turns everything that is visible then into something durable.
//!
//! The methods here block; `serve` offers them to asynchronous callers.

mod names;
mod reader;
mod serve;
mod writer;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use reader::BlobReader;
pub use writer::BlobWriter;

use super::digest::Digest;
use super::error::{ListError, OpenError, ReadError, RemoveError};
use super::limits::{LIST_PAGE_ENTRIES, Options};
use super::store::BlobEntry;
use catena_ledger::disk::{Disk, DiskFile, LockAttempt, TEMPORARY_SUFFIX, temporary_name};
use names::Names;

/// The file that one process at a time holds locked: opening removes temporary files, and they must not be another's.
const LOCK_NAME: &str = "blobs.lock";

/// A folder of blobs. Clones are the same folder.
#[derive(Debug, Clone)]
pub struct LocalBlobs {
    shared: Arc<Shared>,
}

/// What the store and its writers have in common.
struct Shared {
    disk: Arc<dyn Disk>,
    names: Names,
    options: Options,
    next_temporary: AtomicU64,
    _lock: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Blobs")
            .field("folder", &self.disk.describe())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn temporary_name(&self) -> String {
        temporary_name(&format!("upload-{}", self.next_temporary.fetch_add(1, Ordering::Relaxed)))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.disk.describe())
    }

    fn read_error(&self, action: &'static str, digest: Digest, source: io::Error) -> ReadError {
        ReadError::Io { action, digest, folder: self.disk.describe(), source }
    }

    /// The file of a blob, if it is here for good.
    fn file(&self, digest: Digest) -> Result<Option<Arc<dyn DiskFile>>, ReadError> {
        let found = find(self.disk.as_ref(), digest)
            .map_err(|source| self.read_error("open", digest, source))?;
        // Asked after the file was found: a name is noted as uncertain before it appears, and until it is durable.
        Ok(found.filter(|_| self.names.is_certain(digest)))
    }
}

/// The file that carries a digest, durable or not.
fn find(disk: &dyn Disk, digest: Digest) -> io::Result<Option<Arc<dyn DiskFile>>> {
    match disk.open(&digest.to_hex()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl LocalBlobs {
    /// Takes the folder, removes the temporary files in it, and makes sure of what it holds.
    pub fn open_folder(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let lock = take_lock(disk.as_ref())?;
        remove_temporary_files(disk.as_ref())?;
        // A killed process may have left names that are visible and not durable. From here on they are.
        disk.sync_dir().map_err(|source| OpenError::Sync { folder: disk.describe(), source })?;
        let names = Names::new(disk.clone());
        let shared =
            Shared { disk, names, options, next_temporary: AtomicU64::new(0), _lock: lock };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Begins a blob.
    pub fn begin(&self) -> BlobWriter {
        BlobWriter::new(self.shared.clone())
    }

    /// Opens a blob for reading, or says that it is not here.
    pub fn open(&self, digest: &Digest) -> Result<Option<BlobReader>, ReadError> {
        match self.shared.file(*digest)? {
            Some(file) => BlobReader::new(self.shared.disk.describe(), *digest, file).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a blob is here, durably. Says nothing about its content.
    pub fn contains(&self, digest: &Digest) -> Result<bool, ReadError> {
        Ok(self.shared.file(*digest)?.is_some())
    }

    /// Removes a blob, durably. One that is not here counts as removed. Open readers keep reading.
    pub fn remove(&self, digest: &Digest) -> Result<(), RemoveError> {
        self.shared.names.remove(*digest)
    }

    /// Begins a listing of all blobs, in the order of their digests. It holds 32 bytes for each.
    pub fn list(&self) -> Result<Listing, ListError> {
        let folder = || self.shared.disk.describe();
        let names =
            self.shared.disk.list().map_err(|source| ListError::Io { folder: folder(), source })?;
        let digests: Vec<Digest> =
            names.iter().filter_map(|name| Digest::from_file_name(name)).collect();
        Ok(Listing { shared: self.shared.clone(), digests: digests.into_iter() })
    }

    /// Reads a blob whole and compares: its length if it is right, `None` if it is not here, an error if it is damaged.
    pub fn verify(&self, digest: &Digest) -> Result<Option<u64>, ReadError> {
        let Some(mut reader) = self.open(digest)? else { return Ok(None) };
        reader.verify()?;
        Ok(Some(reader.len()))
    }
}

fn take_lock(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>, OpenError> {
    let path = || format!("{}/{LOCK_NAME}", disk.describe());
    match disk.lock(LOCK_NAME) {
        Ok(LockAttempt::Held(lock)) => Ok(lock),
        Ok(LockAttempt::Taken) => Err(OpenError::Taken { folder: disk.describe() }),
        Err(source) => Err(OpenError::Io { action: "lock", path: path(), source }),
    }
}

fn remove_temporary_files(disk: &dyn Disk) -> Result<(), OpenError> {
    let names = disk.list().map_err(|source| OpenError::Io {
        action: "list",
        path: disk.describe(),
        source,
    })?;
    for name in names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)) {
        let path = || format!("{}/{name}", disk.describe());
        disk.remove(name).map_err(|source| OpenError::Io {
            action: "remove",
            path: path(),
            source,
        })?;
    }
    Ok(())
}

/// A listing in progress.
#[derive(Debug)]
pub struct Listing {
    shared: Arc<Shared>,
    digests: std::vec::IntoIter<Digest>,
}

impl Listing {
    /// The next entries, or none at the end.
    pub fn next_page(&mut self) -> Result<Vec<BlobEntry>, ListError> {
        let mut page = Vec::new();
        while page.len() < LIST_PAGE_ENTRIES {
            let Some(digest) = self.digests.next() else { break };
            let len = self.len(digest).map_err(|source| self.error(source))?;
            page.extend(len.map(|len| BlobEntry { digest, len }));
        }
        Ok(page)
    }

    fn len(&self, digest: Digest) -> io::Result<Option<u64>> {
        match find(self.shared.disk.as_ref(), digest)? {
            Some(file) if self.shared.names.is_certain(digest) => file.size().map(Some),
            _ => Ok(None),
        }
    }

    fn error(&self, source: io::Error) -> ListError {
        ListError::Io { folder: self.shared.disk.describe(), source }
    }
}
