//! Opening: from a folder to a ledger that is ready to run.
//!
//! Lock the folder, open the index, replay what the journal has beyond it into the overlay. Replayed rows are not flushed
//! here: the flusher does it later, and until then the segments they came from stay as they are, so a crash during or
//! after opening only means replaying the same frames again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::committer::{Committer, CommitterMessage, Observer};
use crate::disk::Disk;
use crate::error::{FlushError, IndexError, OpenError};
use crate::flusher::{FlushProgress, FlushRequest, Flusher};
use crate::folder::{self, FolderLock};
use crate::index::Index;
use crate::journal::{self, ReplayReport, TornTail};
use crate::options::{Mode, Options};
use crate::overlay::Generation;
use crate::shared::Shared;
use crate::types::Write;

/// What opening found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The last batch the index already held.
    pub indexed_sequence: u64,
    /// The last durable batch.
    pub last_sequence: u64,
    /// Number of frames replayed from the journal.
    pub frames_replayed: u64,
    /// Number of row changes in those frames.
    pub writes_replayed: u64,
    /// Bytes read from the journal.
    pub bytes_read: u64,
    /// A frame that a crash cut short, if one could be recognised.
    pub torn_tail: Option<TornTail>,
    /// The time that opening took.
    pub elapsed: Duration,
    /// The part of that time spent opening the index.
    pub elapsed_index: Duration,
}

/// The parts of an opened ledger, before its threads start.
pub(crate) struct Parts {
    pub shared: Arc<Shared>,
    pub committer: Committer,
    pub flusher: Flusher,
    pub queue: Sender<CommitterMessage>,
    pub request_flush: Sender<FlushRequest>,
    pub flush_requests: Receiver<FlushRequest>,
    pub flush_progress: Receiver<FlushProgress>,
    pub folder: FolderLock,
    pub report: OpenReport,
}

/// Opens the ledger on `disk`.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    options: Options,
    observer: Option<Box<dyn Observer>>,
) -> Result<Parts, OpenError> {
    let started = Instant::now();
    options.check()?;
    let folder = folder::lock_and_check(disk.as_ref())?;
    let index = Index::open(disk.clone(), &options.tables, options.index_cache_bytes)
        .map_err(index_error(&disk))?;
    let elapsed_index = started.elapsed();
    let indexed_sequence = index.sequence();
    let (shared, replayed) = assemble(disk, options, index)?;
    let mut parts = connect(shared, folder, observer);
    parts.prepare_for_writing()?;
    parts.report = report(replayed, indexed_sequence, started.elapsed(), elapsed_index);
    Ok(parts)
}

fn assemble(
    disk: Arc<dyn Disk>,
    options: Options,
    index: Index,
) -> Result<(Arc<Shared>, ReplayReport), OpenError> {
    let names = disk.list().map_err(folder::io_error(disk.as_ref(), "list", "the files"))?;
    let mut rows = Generation::new(options.table_slots());
    let mut apply = |_sequence, writes: Vec<Write>| {
        for write in writes {
            if !options.tables.iter().any(|table| table.id == write.table) {
                return Err(format!("table {} is not declared", write.table.0));
            }
            rows.insert(write.table, write.key, write.slot);
        }
        Ok(())
    };
    let replayed = journal::replay(&disk, &names, &options, index.sequence(), &mut apply);
    let (replayed, pool) =
        replayed.map_err(|source| OpenError::Replay { folder: disk.describe(), source })?;
    let overlay = (rows, replayed.last_sequence);
    let shared =
        Shared::new(disk.clone(), options, index, pool, overlay).map_err(index_error(&disk))?;
    Ok((Arc::new(shared), replayed))
}

fn connect(shared: Arc<Shared>, folder: FolderLock, observer: Option<Box<dyn Observer>>) -> Parts {
    let (queue, queued) = bounded(shared.options.queue_entries_max);
    let (request_flush, flush_requests) = bounded(1);
    let (progress, flush_progress) = bounded(1);
    let committer = Committer::new(shared.clone(), queued, request_flush.clone(), observer);
    let flusher = Flusher::new(shared.clone(), progress);
    let report = OpenReport::default();
    Parts {
        shared,
        committer,
        flusher,
        queue,
        request_flush,
        flush_requests,
        flush_progress,
        folder,
        report,
    }
}

impl Parts {
    /// Brings the ledger into the state its mode needs. Without a journal the index must hold everything before the
    /// first new batch; with one, spare segments should be ready, and a full disk is no reason not to open.
    fn prepare_for_writing(&self) -> Result<(), OpenError> {
        let prepared = match self.shared.options.mode() {
            Mode::Direct => self.flusher.step().map(|_| ()),
            Mode::Journal => self.flusher.prepare_spares(),
        };
        match (prepared, self.shared.options.mode()) {
            (Ok(()), _) => Ok(()),
            (Err(FlushError::Full), Mode::Journal) => {
                self.shared.full.store(true, std::sync::atomic::Ordering::Release);
                Ok(())
            }
            (Err(error), _) => {
                let reason = format!("could not prepare it for writing: {error}");
                Err(OpenError::NotReady { folder: self.shared.disk.describe(), reason })
            }
        }
    }
}

fn report(
    replayed: ReplayReport,
    indexed_sequence: u64,
    elapsed: Duration,
    elapsed_index: Duration,
) -> OpenReport {
    OpenReport {
        indexed_sequence,
        last_sequence: replayed.last_sequence,
        frames_replayed: replayed.frames,
        writes_replayed: replayed.writes,
        bytes_read: replayed.bytes_read,
        torn_tail: replayed.torn_tail,
        elapsed,
        elapsed_index,
    }
}

fn index_error(disk: &Arc<dyn Disk>) -> impl FnOnce(IndexError) -> OpenError {
    let folder = disk.describe();
    move |source| OpenError::Index { folder, source }
}
