//! The ledger's errors, one enum per operation.
//!
//! Grouped by what the caller can do about them: after [`SubmitError::Busy`] and [`LedgerError::Full`] it can retry later,
//! after [`LedgerError::Poisoned`] only a restart helps, and [`ReplayError`] needs an operator.

use std::io;
use std::sync::Arc;

use crate::options::OptionsError;
use crate::types::TableId;

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options contradict each other.
    #[error("the ledger's options contradict each other")]
    Options(#[from] OptionsError),
    /// Another process holds the folder.
    #[error("{folder} is in use by another process: only one may open a ledger at a time")]
    Locked {
        /// The folder.
        folder: String,
    },
    /// The folder was written by a later version.
    #[error(
        "{folder} has format version {found}, this program reads up to {supported}: use a newer program"
    )]
    NewerFormat {
        /// The folder.
        folder: String,
        /// The version found.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// The folder holds other files, or an unfinished backup.
    #[error("{folder} is not a ledger: {reason}")]
    NotALedger {
        /// The folder.
        folder: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file operation failed.
    #[error("could not {action} {name} in {folder}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file.
        name: String,
        /// The folder.
        folder: String,
        /// The cause.
        source: io::Error,
    },
    /// The journal cannot be replayed.
    #[error("the journal in {folder} cannot be replayed")]
    Replay {
        /// The folder.
        folder: String,
        /// The cause.
        source: ReplayError,
    },
    /// The index cannot be opened.
    #[error("the index in {folder} cannot be opened")]
    Index {
        /// The folder.
        folder: String,
        /// The cause.
        source: IndexError,
    },
    /// The folder is intact, but the ledger cannot be prepared for writing.
    #[error("{folder} cannot be used now: {reason}")]
    NotReady {
        /// The folder.
        folder: String,
        /// The reason.
        reason: String,
    },
    /// A thread could not be started.
    #[error("could not start the {thread} thread")]
    Thread {
        /// The thread's name.
        thread: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Why the journal cannot be replayed. All but `Io` mean damage that no crash can explain.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A segment could not be read or synced.
    #[error("could not {action} segment {segment} at offset {offset}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The segment's file.
        segment: String,
        /// The offset in bytes.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// A segment's first sector is neither empty nor a header.
    #[error("segment {segment} has a damaged header at offset 0")]
    HeaderDamaged {
        /// The segment's file.
        segment: String,
    },
    /// A segment was written by a later version.
    #[error("segment {segment} has journal version {found}, this program reads up to {supported}")]
    NewerVersion {
        /// The segment's file.
        segment: String,
        /// The version found.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// An invalid frame is followed by a valid one, so it is not a torn tail.
    #[error(
        "segment {segment} is damaged at offset {offset}: the frame there is invalid, but frame {sequence} at offset \
         {valid_offset} of the same generation is valid"
    )]
    Damaged {
        /// The segment's file.
        segment: String,
        /// The offset of the invalid frame.
        offset: u64,
        /// The sequence of the valid frame after it.
        sequence: u64,
        /// The offset of the valid frame.
        valid_offset: u64,
    },
    /// Frames are missing.
    #[error(
        "segment {segment} at offset {offset} holds frame {found} where frame {expected} must come: frames are missing"
    )]
    Hole {
        /// The segment's file.
        segment: String,
        /// The offset of the unexpected frame.
        offset: u64,
        /// The expected sequence.
        expected: u64,
        /// The sequence that was found.
        found: u64,
    },
    /// A frame with a valid checksum has contents that this program cannot decode.
    #[error("frame {sequence} in segment {segment} at offset {offset} cannot be decoded: {reason}")]
    Payload {
        /// The segment's file.
        segment: String,
        /// The offset of the frame.
        offset: u64,
        /// The frame's sequence.
        sequence: u64,
        /// What is wrong.
        reason: String,
    },
}

/// Why the index failed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The index library reported an error.
    #[error("the index failed while {action}")]
    Engine {
        /// The action that failed.
        action: &'static str,
        /// The cause.
        source: Box<redb::Error>,
    },
    /// A file operation around the index failed.
    #[error("could not {action} the index file")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The index is closed, or could not be reopened after an earlier failure.
    #[error("the index is closed")]
    Closed,
}

/// Why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RowReadError {
    /// The index failed.
    #[error("could not read from the index")]
    Index(#[source] Arc<IndexError>),
    /// The table was not declared when the ledger was opened.
    #[error("table {} is not declared", .0.0)]
    UnknownTable(TableId),
}

impl From<IndexError> for RowReadError {
    fn from(error: IndexError) -> Self {
        RowReadError::Index(Arc::new(error))
    }
}

/// Why a submission was not accepted. Its work never ran, and its completion will not be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full. Retry later.
    #[error("the ledger is busy: {queue_entries_max} entries are waiting")]
    Busy {
        /// The capacity of the queue.
        queue_entries_max: usize,
    },
    /// The ledger has been closed.
    #[error("the ledger is closed")]
    Closed,
    /// A sync or a journal write failed earlier.
    #[error("the ledger stopped taking writes: {reason}")]
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
}

/// Why an accepted submission is not durable. None of its writes is visible to readers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// A sync or a journal write failed. Whether the entry survives is known only after a restart.
    #[error("the ledger stopped taking writes: {reason}")]
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
    /// The disk is full. What was accepted is safe; new writes are refused until there is space.
    #[error("the disk is full: the entry was refused")]
    Full,
    /// The ledger was closed before the entry ran.
    #[error("the ledger is closed")]
    Closed,
    /// The work panicked.
    #[error("the work panicked")]
    Panicked,
    /// The entry is too large for one batch.
    #[error("the entry has {bytes} bytes, at most {bytes_max} are allowed")]
    EntryTooLarge {
        /// The actual size.
        bytes: usize,
        /// The largest size allowed.
        bytes_max: usize,
    },
    /// A key is too long.
    #[error("a key of table {} has {bytes} bytes, at most {bytes_max} are allowed", .table.0)]
    KeyTooLong {
        /// The table.
        table: TableId,
        /// The actual size.
        bytes: usize,
        /// The largest size allowed.
        bytes_max: usize,
    },
    /// The table was not declared when the ledger was opened.
    #[error("table {} is not declared", .0.0)]
    UnknownTable(TableId),
    /// The observer refused the batch. Only tests install an observer.
    #[error("the batch observer failed: {reason}")]
    Observer {
        /// The reason.
        reason: Arc<str>,
    },
}

/// Why a submission failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure<E> {
    /// The work refused itself. Everything it had read is durable.
    #[error("the work was refused")]
    Work(E),
    /// The ledger could not make it durable.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Why a flush did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The disk is full; the rows stay in the journal and the overlay.
    #[error("the disk is full: rows stay in the journal")]
    Full,
    /// The ledger accepts no more writes.
    #[error("the ledger stopped taking writes: {reason}")]
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
}

/// Why a backup failed. The destination is not a ledger then, and is refused at open.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The destination is not empty.
    #[error("{folder} is not empty")]
    NotEmpty {
        /// The destination.
        folder: String,
    },
    /// The source could not be read.
    #[error("could not read the ledger")]
    Read(#[from] RowReadError),
    /// The destination index failed.
    #[error("could not write the copy of the index")]
    Index(#[from] IndexError),
    /// A file operation failed.
    #[error("could not write to {folder}")]
    Io {
        /// The destination.
        folder: String,
        /// The cause.
        source: io::Error,
    },
}

/// An error with all its causes on one line, for places that can hold only text.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
