//! The errors of blob stores, one enum per operation.
//!
//! Each error names the file, key or digest it is about. `Sync` always means that nothing was acknowledged; `Stopped`
//! means that the folder's state is unknown since an earlier failed sync, until it is opened again.

use std::io;

use super::digest::Digest;
use catena_ledger::disk::is_out_of_space;

/// The error of an object store of any kind.
pub type RemoteError = Box<dyn std::error::Error + Send + Sync>;

/// Why a folder of blobs could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BlobOpenError {
    /// Another process holds the folder.
    #[error("the blobs in {folder} are in use by another process")]
    Taken {
        /// The folder.
        folder: String,
    },
    /// The folder could not be made durable.
    #[error("could not sync the folder {folder}")]
    Sync {
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Locking, listing or cleaning up failed.
    #[error("could not {action} {path}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Why a blob could not be written. Nothing was acknowledged and no temporary file is left.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The content is longer than a blob may be.
    #[error("a blob may have {bytes_max} bytes, this one has more")]
    TooLarge {
        /// The largest size allowed.
        bytes_max: u64,
    },
    /// The content does not match the expected digest.
    #[error("expected content {expected}, got {found}")]
    Mismatch {
        /// The expected digest.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// The disk, or our quota of it, is full.
    #[error("no space left for {path}")]
    Full {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A sync failed: the content or its name may not be durable.
    #[error("could not make {path} durable")]
    Sync {
        /// The file or folder.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A sync of the folder failed earlier; it accepts no changes until it is opened again.
    #[error("the folder {folder} accepts no changes since a sync of it failed")]
    Stopped {
        /// The folder.
        folder: String,
    },
    /// Any other failure of the disk.
    #[error("could not {action} {path}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not {action} {key}")]
    Remote {
        /// The action that failed.
        action: &'static str,
        /// The key.
        key: String,
        /// The cause.
        #[source]
        source: RemoteError,
    },
    /// The writer failed or was cancelled before; the blob has to be written again from its start.
    #[error("this blob was abandoned by an earlier failure or cancellation")]
    Abandoned,
}

impl WriteError {
    /// Whether the cause is a lack of space, found while writing or while syncing.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Sync { source, .. } => is_out_of_space(source),
            _ => false,
        }
    }

    pub(super) fn io(action: &'static str, path: String, source: io::Error) -> Self {
        if is_out_of_space(&source) {
            Self::Full { path, source }
        } else {
            Self::Io { action, path, source }
        }
    }
}

/// Why a blob could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BlobReadError {
    /// The stored bytes do not match the digest.
    #[error("blob {digest} is damaged: its content is {found}")]
    Damaged {
        /// The blob.
        digest: Digest,
        /// The digest of its bytes.
        found: Digest,
    },
    /// The stored bytes end before the length the blob had when it was opened.
    #[error("blob {digest} is damaged: it ends before its {len} bytes")]
    Short {
        /// The blob.
        digest: Digest,
        /// The expected length in bytes.
        len: u64,
    },
    /// The range is longer than one call may request.
    #[error("a range may have {bytes_max} bytes, {asked} of blob {digest} were requested")]
    RangeTooLarge {
        /// The blob.
        digest: Digest,
        /// The requested length in bytes.
        asked: usize,
        /// The largest size allowed.
        bytes_max: usize,
    },
    /// An earlier read of this reader failed or was cancelled; the blob has to be opened again.
    #[error("reading blob {digest} was interrupted before its end")]
    Interrupted {
        /// The blob.
        digest: Digest,
    },
    /// The disk failed.
    #[error("could not {action} blob {digest} in {folder}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The blob.
        digest: Digest,
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not {action} blob {digest}")]
    Remote {
        /// The action that failed.
        action: &'static str,
        /// The blob.
        digest: Digest,
        /// The cause.
        #[source]
        source: RemoteError,
    },
}

impl BlobReadError {
    /// Whether the stored content itself is damaged, so that a retry cannot help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Short { .. })
    }
}

/// Why a blob could not be removed. It may be gone or not, and it may reappear after a crash.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The removal could not be made durable.
    #[error("could not make the removal of blob {digest} from {folder} durable")]
    Sync {
        /// The blob.
        digest: Digest,
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A sync of the folder failed earlier; it accepts no changes until it is opened again.
    #[error("the folder {folder} accepts no changes since a sync of it failed")]
    Stopped {
        /// The folder.
        folder: String,
    },
    /// Any other failure of the disk.
    #[error("could not remove blob {digest} from {folder}")]
    Io {
        /// The blob.
        digest: Digest,
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not remove blob {digest}")]
    Remote {
        /// The blob.
        digest: Digest,
        /// The cause.
        #[source]
        source: RemoteError,
    },
    /// The process is stopping, and the state of the removal is unknown.
    #[error("removing blob {digest} was interrupted")]
    Interrupted {
        /// The blob.
        digest: Digest,
    },
}

/// Why blobs could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The disk failed.
    #[error("could not list the blobs in {folder}")]
    Io {
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not list the keys under {prefix}")]
    Remote {
        /// The prefix.
        prefix: String,
        /// The cause.
        #[source]
        source: RemoteError,
    },
    /// An earlier page failed or was cancelled; the listing has to be begun again.
    #[error("the listing was interrupted")]
    Interrupted,
}
