//! What can go wrong, one enum per operation.
//!
//! Each error names the file, key or digest it is about. `Sync` always means that nothing was acknowledged; `Stopped`
//! means that the folder's state is unknown since an earlier failed sync, and only opening it again can tell.

use std::io;

use super::digest::Digest;
use catena_ledger::disk::is_out_of_space;

/// The error of an object store, whichever it is.
pub type RemoteError = Box<dyn std::error::Error + Send + Sync>;

/// Opening a folder of blobs failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder.
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
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Locking, listing or tidying failed.
    #[error("could not {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Writing a blob failed. Nothing was acknowledged and no temporary file is left.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// More bytes than a blob may have.
    #[error("a blob may have {bytes_max} bytes, this one has more")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// The content is not what the caller expected.
    #[error("expected content {expected}, got {found}")]
    Mismatch {
        /// What was expected.
        expected: Digest,
        /// What arrived.
        found: Digest,
    },
    /// The disk, or our share of it, is full.
    #[error("no space left for {path}")]
    Full {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A sync failed: the content or its name may not be durable.
    #[error("could not make {path} durable")]
    Sync {
        /// The file or folder.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A sync of the folder failed earlier; it takes no more changes until it is opened again.
    #[error("the folder {folder} takes no changes since a sync of it failed")]
    Stopped {
        /// The folder.
        folder: String,
    },
    /// Any other failure of the disk.
    #[error("could not {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not {action} {key}")]
    Remote {
        /// What was tried.
        action: &'static str,
        /// On which key.
        key: String,
        /// What the store said.
        #[source]
        source: RemoteError,
    },
    /// The writer failed or was cancelled before; the blob has to be written again from its start.
    #[error("this blob was abandoned by an earlier failure or cancellation")]
    Abandoned,
}

impl WriteError {
    /// Whether the cause is a lack of space, be it found while writing or only while syncing.
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

/// Reading a blob failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stored bytes are not the ones that were written.
    #[error("blob {digest} is damaged: its content is {found}")]
    Damaged {
        /// The blob.
        digest: Digest,
        /// What its bytes say.
        found: Digest,
    },
    /// The stored bytes end before the length the blob had when it was opened.
    #[error("blob {digest} is damaged: it ends before its {len} bytes")]
    Short {
        /// The blob.
        digest: Digest,
        /// How long it should be.
        len: u64,
    },
    /// A range longer than one call may ask for.
    #[error("a range may have {bytes_max} bytes, {asked} of blob {digest} were asked for")]
    RangeTooLarge {
        /// The blob.
        digest: Digest,
        /// What was asked for.
        asked: usize,
        /// The bound.
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
        /// What was tried.
        action: &'static str,
        /// The blob.
        digest: Digest,
        /// Where it is.
        folder: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not {action} blob {digest}")]
    Remote {
        /// What was tried.
        action: &'static str,
        /// The blob.
        digest: Digest,
        /// What the store said.
        #[source]
        source: RemoteError,
    },
}

impl ReadError {
    /// Whether the stored content itself is bad, so that trying again cannot help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Short { .. })
    }
}

/// Removing a blob failed: it may be gone or not, and it may come back.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The removal could not be made durable.
    #[error("could not make the removal of blob {digest} from {folder} durable")]
    Sync {
        /// The blob.
        digest: Digest,
        /// The folder.
        folder: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A sync of the folder failed earlier; it takes no more changes until it is opened again.
    #[error("the folder {folder} takes no changes since a sync of it failed")]
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
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not remove blob {digest}")]
    Remote {
        /// The blob.
        digest: Digest,
        /// What the store said.
        #[source]
        source: RemoteError,
    },
    /// The process is stopping and nobody knows how far the removal came.
    #[error("removing blob {digest} was interrupted")]
    Interrupted {
        /// The blob.
        digest: Digest,
    },
}

/// Listing blobs failed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The disk failed.
    #[error("could not list the blobs in {folder}")]
    Io {
        /// The folder.
        folder: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The object store failed.
    #[error("could not list the keys under {prefix}")]
    Remote {
        /// The prefix.
        prefix: String,
        /// What the store said.
        #[source]
        source: RemoteError,
    },
    /// An earlier page failed or was cancelled; the listing has to be begun again.
    #[error("the listing was interrupted")]
    Interrupted,
}
