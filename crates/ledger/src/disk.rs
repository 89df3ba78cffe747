//! The disk: one flat folder of files, with only the operations that the ledger needs.
//!
//! Everything the ledger does to storage goes through [`Disk`] and [`DiskFile`], the index included, so that all of it
//! can run on a simulated disk which loses what was not synced. Nothing here retries, and nothing here syncs unless it is
//! asked to: when to sync is the caller's decision, and the simulator checks it.

use std::any::Any;
use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::uncached::{Uncached, UncachedFile};

/// One folder of files.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file, empty, replacing an older one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for writes past the system's cache. `None` if the file system cannot do that.
    fn open_uncached(&self, name: &str) -> Option<Box<dyn Uncached>>;
    /// Renames a file, replacing an older one of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The names of the files in the folder, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Locks the folder for this process, unless another process holds the lock.
    fn lock(&self, name: &str) -> io::Result<LockAttempt>;
    /// The folder's location, for messages.
    fn describe(&self) -> String;
}

/// One open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Fills `buffer` from `offset`; an error if the file ends before that.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts or extends the file; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the contents durable, and the length if it is needed to read them.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes contents and all metadata of the file durable.
    fn sync_all(&self) -> io::Result<()>;
    /// The length in bytes.
    fn size(&self) -> io::Result<u64>;
}

/// The result of an attempt to lock a folder.
pub enum LockAttempt {
    /// This process holds the lock until the value is dropped.
    Held(Box<dyn Any + Send + Sync>),
    /// Another process holds it.
    Taken,
}

/// A folder in the file system.
#[derive(Debug)]
pub struct RealDisk {
    folder: PathBuf,
}

impl RealDisk {
    /// Uses `folder`, creating it if it is missing. A created folder is made durable in its parent.
    pub fn new(folder: impl AsRef<Path>) -> io::Result<Self> {
        let folder = folder.as_ref().to_path_buf();
        if !folder.is_dir() {
            std::fs::create_dir_all(&folder)?;
            sync_parent(&folder)?;
        }
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn sync_parent(folder: &Path) -> io::Result<()> {
    match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Disk for RealDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn open_uncached(&self, name: &str) -> Option<Box<dyn Uncached>> {
        let file = UncachedFile::open(&self.path(name))?;
        Some(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Folders do not belong to the ledger: a fresh volume has `lost+found`, and others may put theirs next to our files.
            if let Ok(name) = entry.file_name().into_string()
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<LockAttempt> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).open(self.path(name))?;
        match file.try_lock() {
            Ok(()) => Ok(LockAttempt::Held(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(LockAttempt::Taken),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn describe(&self) -> String {
        self.folder.display().to_string()
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Whether an error means that the disk, or our quota of it, is full.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Creates a small file atomically: temporary name, sync, rename, folder sync.
pub fn create_atomically(disk: &dyn Disk, name: &str, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(name);
    let file = disk.create(&temporary)?;
    file.write_at(0, contents)?;
    file.sync_all()?;
    disk.rename(&temporary, name)?;
    disk.sync_dir()
}

/// The name of a file while it is being written.
pub fn temporary_name(name: &str) -> String {
    format!("{name}{TEMPORARY_SUFFIX}")
}

/// The suffix of unfinished files. Opening a ledger removes them.
pub const TEMPORARY_SUFFIX: &str = ".tmp";
