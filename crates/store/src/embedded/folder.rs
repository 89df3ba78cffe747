//! A data folder: the store, and the files of large blobs next to it.
//!
//! ```text
//! DATA/store/   the ledger: journal segments, index, format stamp, lock
//! DATA/blobs/   one file per large blob, named by its digest
//! ```

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::{CheckReport, Problem};
use super::store::EmbeddedStore;
use crate::blob::{
    BlobOpenError, BlobReadError, Blobs, Digest, ListError, LocalBlobs, Options, WriteError,
};
use crate::store::ReadError;
use catena_ledger::{BackupError, OpenError, RealDisk};

/// Why a folder could not be opened, copied or checked.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The blobs could not be opened.
    #[error(transparent)]
    Blobs(#[from] BlobOpenError),
    /// A file operation on the folder failed.
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
    /// There is no store in the folder.
    #[error("there is no store in {folder}")]
    NoStore {
        /// The folder.
        folder: String,
    },
    /// The store could not be copied.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A blob could not be read.
    #[error(transparent)]
    ReadBlob(#[from] BlobReadError),
    /// A blob could not be written.
    #[error(transparent)]
    WriteBlob(#[from] WriteError),
    /// The blobs could not be listed.
    #[error(transparent)]
    ListBlobs(#[from] ListError),
}

/// What a copy contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Number of rows of the store.
    pub rows: u64,
    /// Number of large blobs.
    pub blobs: u64,
}

/// An open data folder.
pub struct DataFolder {
    /// The store.
    pub store: Arc<EmbeddedStore>,
    /// All blobs, small and large.
    pub blobs: Blobs,
    content: LocalBlobs,
    path: PathBuf,
}

impl DataFolder {
    /// Opens a data folder, creating it if it is missing.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let io_error = |source| FolderError::Io { folder: path.display().to_string(), source };
        let store = Arc::new(EmbeddedStore::open(&path.join("store"))?);
        let disk = RealDisk::new(path.join("blobs")).map_err(io_error)?;
        let content = LocalBlobs::open_folder(Arc::new(disk), Options::default())?;
        let blobs = Blobs::new(store.clone(), Arc::new(content.clone()));
        Ok(DataFolder { store, blobs, content, path: path.to_path_buf() })
    }

    /// Opens a data folder that must exist.
    pub fn open_existing(path: &Path) -> Result<Self, FolderError> {
        if path.join("store").is_dir() {
            Self::open(path)
        } else {
            Err(FolderError::NoStore { folder: path.display().to_string() })
        }
    }

    /// The folder's path.
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
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(destination);
        made.map_err(|source| FolderError::Io {
            folder: destination.display().to_string(),
            source,
        })?;
        let rows = self.store.backup(&destination.join("store"))?.rows;
        let io_error =
            |source| FolderError::Io { folder: destination.display().to_string(), source };
        let disk = RealDisk::new(destination.join("blobs")).map_err(io_error)?;
        let copy = LocalBlobs::open_folder(Arc::new(disk), Options::default())?;
        let mut blobs = 0;
        for digest in self.store.blobs_in_files()? {
            blobs += u64::from(copy_blob(&self.content, &copy, digest)?);
        }
        for name in VENUE_FILES {
            copy_file(&self.path.join(name), &destination.join(name)).map_err(io_error)?;
        }
        Ok(CopyReport { rows, blobs })
    }
}

/// Files of the venue next to the store. Without the venue's key a copy would be another venue. The
/// key that seals secrets is left out: whoever gets a backup must not be able to open them.
const VENUE_FILES: [&str; 6] = [
    "venue.key",
    "revoked-tokens",
    "issued-tokens",
    "access-list",
    "blocked-identities",
    "known-venues",
];

/// The mode of copied files, which contain keys.
const COPIED_FILE_MODE: u32 = 0o600;

/// Copies a small file, durably. A missing file is skipped. Links are not followed: the source may be
/// a folder that somebody else prepared.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let source = std::fs::OpenOptions::new().read(true).custom_flags(no_follow).open(from);
    match source {
        Ok(mut source) => {
            let mut copy = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(COPIED_FILE_MODE)
                .open(to)?;
            std::io::copy(&mut source, &mut copy)?;
            copy.sync_all()?;
            match to.parent() {
                Some(folder) => std::fs::File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies a blob piece by piece. Returns `false` if it was removed meanwhile.
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
