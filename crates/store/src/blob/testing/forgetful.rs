//! A disk that skips syncs. It shows that the crash driver notices a missing sync.

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catena_ledger::Uncached;
use catena_ledger::disk::{Disk, DiskFile, LockAttempt};

/// Which syncs are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// None: the disk syncs.
    Nothing,
    /// The syncs of files.
    FileSyncs,
    /// The syncs of the folder.
    FolderSyncs,
    /// The first sync of the folder, which belongs to opening it.
    FirstFolderSync,
}

/// A disk with skipped syncs.
#[derive(Debug)]
pub struct ForgetfulDisk<D> {
    disk: D,
    skip: Skip,
    synced_folder: AtomicBool,
}

impl<D: Disk> ForgetfulDisk<D> {
    /// Wraps `disk`.
    pub fn new(disk: D, skip: Skip) -> Self {
        Self { disk, skip, synced_folder: AtomicBool::new(false) }
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if self.skip == Skip::FileSyncs { Arc::new(ForgetfulFile { file }) } else { file }
    }
}

impl<D: Disk> Disk for ForgetfulDisk<D> {
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.disk.open(name).map(|file| self.file(file))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.disk.create(name).map(|file| self.file(file))
    }

    /// `None`: blobs are not written past the cache.
    fn open_uncached(&self, _name: &str) -> Option<Box<dyn Uncached>> {
        None
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> Result<()> {
        let first = !self.synced_folder.swap(true, Ordering::Relaxed);
        match self.skip {
            Skip::FolderSyncs => Ok(()),
            Skip::FirstFolderSync if first => Ok(()),
            _ => self.disk.sync_dir(),
        }
    }

    fn lock(&self, name: &str) -> Result<LockAttempt> {
        self.disk.lock(name)
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}

#[derive(Debug)]
struct ForgetfulFile {
    file: Arc<dyn DiskFile>,
}

impl DiskFile for ForgetfulFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }
}
