//! The storage backend of the index library, on a [`DiskFile`].
//!
//! Besides forwarding calls, the backend records the first operation that failed and how. The library reports only that
//! something failed; what may be done next depends on what it was: a write refused for lack of space may be repeated
//! later on a reopened index, a failed sync may never be.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{DiskFile, is_out_of_space};

/// What kind of operation failed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstFailure {
    /// A write or an extension met a full disk.
    OutOfSpace,
    /// Anything else: a sync, a read, or a write that failed for another reason.
    Other,
}

/// The first failure, shared with the index that opened the backend.
#[derive(Debug, Clone, Default)]
pub struct FailureLog {
    first: Arc<Mutex<Option<FirstFailure>>>,
}

impl FailureLog {
    /// The first failure, if there was one.
    pub fn first_failure(&self) -> Option<FirstFailure> {
        *self.first.lock()
    }

    fn record(&self, failure: FirstFailure) {
        self.first.lock().get_or_insert(failure);
    }
}

/// A file of the disk as a storage backend of the index library.
#[derive(Debug)]
pub struct Backend {
    file: Arc<dyn DiskFile>,
    failures: FailureLog,
}

impl Backend {
    /// A backend on `file`, reporting into `failures`.
    pub fn new(file: Arc<dyn DiskFile>, failures: FailureLog) -> Self {
        Self { file, failures }
    }

    fn record_failure<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|_| self.failures.record(FirstFailure::Other))
    }

    fn record_growth_failure<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let full = is_out_of_space(error);
            self.failures.record(if full { FirstFailure::OutOfSpace } else { FirstFailure::Other });
        })
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.record_failure(self.file.size())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.record_failure(self.file.read_at(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.record_growth_failure(self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.record_failure(self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.record_growth_failure(self.file.write_at(offset, data))
    }
}
