//! Blobs in a folder: one file each, named by the digest.
//!
//! A blob is written under a temporary name, synced, renamed to its digest, and acknowledged after the folder is synced.
//! So a file whose name is a digest is complete, at any moment and after any crash. [`LocalBlobs::open_folder`] removes
//! the files of unfinished writers and syncs the folder, which makes everything durable that is visible then.
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
use super::error::{BlobOpenError, BlobReadError, ListError, RemoveError};
use super::options::Options;
use super::store::BlobEntry;
use crate::limits::LIST_PAGE_ENTRIES;
use catena_ledger::disk::{Disk, DiskFile, LockAttempt, TEMPORARY_SUFFIX, temporary_name};
use names::Names;

/// The lock file. Opening removes temporary files, and they must not belong to another process.
const LOCK_NAME: &str = "blobs.lock";

/// A folder of blobs. Clones are the same folder.
#[derive(Debug, Clone)]
pub struct LocalBlobs {
    shared: Arc<LocalShared>,
}

/// The state that the store and its writers share.
struct LocalShared {
    disk: Arc<dyn Disk>,
    names: Names,
    options: Options,
    next_temporary: AtomicU64,
    _lock: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for LocalShared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Blobs")
            .field("folder", &self.disk.describe())
            .finish_non_exhaustive()
    }
}

impl LocalShared {
    fn temporary_name(&self) -> String {
        temporary_name(&format!("upload-{}", self.next_temporary.fetch_add(1, Ordering::Relaxed)))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.disk.describe())
    }

    fn read_error(&self, action: &'static str, digest: Digest, source: io::Error) -> BlobReadError {
        BlobReadError::Io { action, digest, folder: self.disk.describe(), source }
    }

    /// The file of a blob, if it is stored durably.
    fn file(&self, digest: Digest) -> Result<Option<Arc<dyn DiskFile>>, BlobReadError> {
        let found = find_file(self.disk.as_ref(), digest)
            .map_err(|source| self.read_error("open", digest, source))?;
        // Checked after the file was found: a name is recorded as uncertain before it appears, and until it is durable.
        Ok(found.filter(|_| self.names.is_certain(digest)))
    }
}

/// The file of a blob, whether its name is durable or not.
fn find_file(disk: &dyn Disk, digest: Digest) -> io::Result<Option<Arc<dyn DiskFile>>> {
    match disk.open(&digest.to_hex()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl LocalBlobs {
    /// Locks the folder, removes the temporary files in it, and makes its content durable.
    pub fn open_folder(disk: Arc<dyn Disk>, options: Options) -> Result<Self, BlobOpenError> {
        let lock = lock_folder(disk.as_ref())?;
        remove_temporary_files(disk.as_ref())?;
        // A killed process may have left names that are visible but not durable. From here on they are.
        disk.sync_dir()
            .map_err(|source| BlobOpenError::Sync { folder: disk.describe(), source })?;
        let names = Names::new(disk.clone());
        let shared =
            LocalShared { disk, names, options, next_temporary: AtomicU64::new(0), _lock: lock };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Begins a blob.
    pub fn begin(&self) -> BlobWriter {
        BlobWriter::new(self.shared.clone())
    }

    /// Opens a blob for reading. `None` if it is not stored.
    pub fn open(&self, digest: &Digest) -> Result<Option<BlobReader>, BlobReadError> {
        match self.shared.file(*digest)? {
            Some(file) => BlobReader::new(self.shared.disk.describe(), *digest, file).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a blob is stored durably. Does not check its content.
    pub fn contains(&self, digest: &Digest) -> Result<bool, BlobReadError> {
        Ok(self.shared.file(*digest)?.is_some())
    }

    /// Removes a blob durably. Succeeds if it is not stored. Open readers can still read it.
    pub fn remove(&self, digest: &Digest) -> Result<(), RemoveError> {
        self.shared.names.remove(*digest)
    }

    /// Begins a listing of all blobs, in the order of their digests. It holds 32 bytes for each blob.
    pub fn list(&self) -> Result<Listing, ListError> {
        let folder = || self.shared.disk.describe();
        let names =
            self.shared.disk.list().map_err(|source| ListError::Io { folder: folder(), source })?;
        let digests: Vec<Digest> =
            names.iter().filter_map(|name| Digest::from_file_name(name)).collect();
        Ok(Listing { shared: self.shared.clone(), digests: digests.into_iter() })
    }

    /// Reads a blob completely and compares it with its digest. Returns its length, `None` if it is not stored, or an error
    /// if it is damaged.
    pub fn verify(&self, digest: &Digest) -> Result<Option<u64>, BlobReadError> {
        let Some(mut reader) = self.open(digest)? else { return Ok(None) };
        reader.verify()?;
        Ok(Some(reader.len()))
    }
}

fn lock_folder(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>, BlobOpenError> {
    let path = || format!("{}/{LOCK_NAME}", disk.describe());
    match disk.lock(LOCK_NAME) {
        Ok(LockAttempt::Held(lock)) => Ok(lock),
        Ok(LockAttempt::Taken) => Err(BlobOpenError::Taken { folder: disk.describe() }),
        Err(source) => Err(BlobOpenError::Io { action: "lock", path: path(), source }),
    }
}

fn remove_temporary_files(disk: &dyn Disk) -> Result<(), BlobOpenError> {
    let names = disk.list().map_err(|source| BlobOpenError::Io {
        action: "list",
        path: disk.describe(),
        source,
    })?;
    for name in names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)) {
        let path = || format!("{}/{name}", disk.describe());
        disk.remove(name).map_err(|source| BlobOpenError::Io {
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
    shared: Arc<LocalShared>,
    digests: std::vec::IntoIter<Digest>,
}

impl Listing {
    /// The next entries; empty at the end.
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
        match find_file(self.shared.disk.as_ref(), digest)? {
            Some(file) if self.shared.names.is_certain(digest) => file.size().map(Some),
            _ => Ok(None),
        }
    }

    fn error(&self, source: io::Error) -> ListError {
        ListError::Io { folder: self.shared.disk.describe(), source }
    }
}
