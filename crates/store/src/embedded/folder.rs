//! A data folder: the store, and the files of large blobs beside it.
//!
//! ```text
//! DATA/store/   the ledger: journal segments, index, format stamp, lock
//! DATA/blobs/   one file per large blob, named by its digest
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EmbeddedStore;
use super::check::{CheckReport, Problem};
use crate::blob::{
    Blobs, Digest, ListError, LocalBlobs, OpenError as BlobOpenError, Options,
    ReadError as BlobReadError, WriteError,
};
use crate::store::ReadError;
use catena_ledger::{BackupError, OpenError, RealDisk};

/// Why a folder could not be opened, copied or checked.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The store in it.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The blobs in it.
    #[error(transparent)]
    Blobs(#[from] BlobOpenError),
    /// The folder itself.
    #[error("could not use {folder}")]
    Io {
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The destination of a copy is not empty.
    #[error("{folder} is not empty")]
    NotEmpty {
        /// The folder.
        folder: String,
    },
    /// There is no store in it.
    #[error("there is no store in {folder}")]
    NoStore {
        /// The folder.
        folder: String,
    },
    /// The copy of the store.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Reading the store.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Reading a blob.
    #[error(transparent)]
    ReadBlob(#[from] BlobReadError),
    /// Writing a blob.
    #[error(transparent)]
    WriteBlob(#[from] WriteError),
    /// Listing blobs.
    #[error(transparent)]
    ListBlobs(#[from] ListError),
}

/// What a copy holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Rows of the store.
    pub rows: u64,
    /// Large blobs.
    pub blobs: u64,
}

/// An open data folder.
pub struct DataFolder {
    /// The store.
    pub store: Arc<EmbeddedStore>,
    /// All blobs.
    pub blobs: Blobs,
    content: LocalBlobs,
    path: PathBuf,
}

impl DataFolder {
    /// Opens a data folder, creating it if it is missing.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let io = |source| FolderError::Io { folder: path.display().to_string(), source };
        let store = Arc::new(EmbeddedStore::open(&path.join("store"))?);
        let disk = RealDisk::new(path.join("blobs")).map_err(io)?;
        let content = LocalBlobs::open_folder(Arc::new(disk), Options::default())?;
        let blobs = Blobs::new(store.clone(), Arc::new(content.clone()));
        Ok(DataFolder { store, blobs, content, path: path.to_path_buf() })
    }

    /// Opens a data folder that must exist.
    pub fn open_existing(path: &Path) -> Result<Self, FolderError> {
        match path.join("store").is_dir() {
            true => Self::open(path),
            false => Err(FolderError::NoStore { folder: path.display().to_string() }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the store and every large blob.
    pub fn check(&self) -> Result<CheckReport, FolderError> {
        let mut report = self.store.check()?;
        for digest in self.store.blobs_in_files()? {
            let problem = match self.content.verify(&digest) {
                Ok(Some(_)) => continue,
                Ok(None) => "its content is missing".to_owned(),
                Err(error) => error.to_string(),
            };
            report.add(Problem { what: digest.to_string(), reason: problem });
        }
        Ok(report)
    }

    /// Copies everything, as of this moment and while it runs, into an empty or new folder.
    pub fn backup(&self, destination: &Path) -> Result<CopyReport, FolderError> {
        check_empty(destination)?;
        let rows = self.store.backup(&destination.join("store"))?.rows;
        let io = |source| FolderError::Io { folder: destination.display().to_string(), source };
        let disk = RealDisk::new(destination.join("blobs")).map_err(io)?;
        let copy = LocalBlobs::open_folder(Arc::new(disk), Options::default())?;
        let mut blobs = 0;
        for digest in self.store.blobs_in_files()? {
            blobs += u64::from(copy_blob(&self.content, &copy, digest)?);
        }
        for name in COMPANIONS {
            copy_file(&self.path.join(name), &destination.join(name)).map_err(io)?;
        }
        Ok(CopyReport { rows, blobs })
    }
}

/// Files of the venue's own that stand beside the store: without its key a copy would be another
/// venue, which could not open what this one sealed.
const COMPANIONS: [&str; 3] = ["venue.key", "revoked-tokens", "issued-tokens"];

/// Copies a small file with its permissions, durably; one that is not there is left out.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::copy(from, to) {
        Ok(_) => {
            std::fs::File::open(to)?.sync_all()?;
            match to.parent() {
                Some(folder) => std::fs::File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies a blob piece by piece; false when it went away meanwhile.
fn copy_blob(from: &LocalBlobs, to: &LocalBlobs, digest: Digest) -> Result<bool, FolderError> {
    let Some(mut source) = from.open(&digest)? else { return Ok(false) };
    let mut sink = to.begin();
    while let Some(chunk) = source.next_chunk()? {
        sink.write(&chunk)?;
    }
    sink.finish(Some(digest))?;
    Ok(true)
}

fn check_empty(folder: &Path) -> Result<(), FolderError> {
    let name = || folder.display().to_string();
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(0) => Ok(()),
        Ok(_) => Err(FolderError::NotEmpty { folder: name() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(FolderError::Io { folder: name(), source }),
    }
}
