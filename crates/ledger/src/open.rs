//! Opening: from a folder to a ledger that can be driven.
//!
//! Hold the folder, open the index, replay what the journal has beyond it into the overlay. Replayed rows are not flushed
//! here: the flusher does it in its own time, and until then the segments they came from stay as they are, so a crash
//! during or after opening only means replaying the same frames again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::committer::{Committer, Message, Observer};
use crate::disk::Disk;
use crate::error::{FlushError, IndexError, OpenError};
use crate::flusher::{Flusher, Nudge, Progress};
use crate::folder::{self, HeldFolder};
use crate::index::Index;
use crate::journal::{self, Replayed, TornTail};
use crate::options::{Mode, Options};
use crate::overlay::Generation;
use crate::shared::Shared;

/// What opening found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The last batch the index already held.
    pub indexed_sequence: u64,
    /// The last durable batch.
    pub last_sequence: u64,
    /// Frames replayed from the journal.
    pub frames_replayed: u64,
    /// Row changes in them.
    pub writes_replayed: u64,
    /// Bytes read from the journal.
    pub bytes_read: u64,
    /// A frame that a crash cut short, if one could be recognised.
    pub torn_tail: Option<TornTail>,
    /// How long opening took.
    pub elapsed: Duration,
    /// The part of it spent opening the index.
    pub elapsed_index: Duration,
}

/// An opened ledger that nobody drives yet.
pub(crate) struct Parts {
    pub shared: Arc<Shared>,
    pub committer: Committer,
    pub flusher: Flusher,
    pub queue: Sender<Message>,
    pub nudge: Sender<Nudge>,
    pub nudged: Receiver<Nudge>,
    pub progressed: Receiver<Progress>,
    pub folder: HeldFolder,
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
    let folder = folder::hold(disk.as_ref())?;
    let index = Index::open(disk.clone(), &options.tables, options.index_cache_bytes)
        .map_err(index_failed(&disk))?;
    let elapsed_index = started.elapsed();
    let indexed_sequence = index.sequence();
    let (shared, replayed) = assemble(disk, options, index)?;
    let mut parts = wire(shared, folder, observer);
    parts.settle()?;
    parts.report = report(replayed, indexed_sequence, started.elapsed(), elapsed_index);
    Ok(parts)
}

fn assemble(
    disk: Arc<dyn Disk>,
    options: Options,
    index: Index,
) -> Result<(Arc<Shared>, Replayed), OpenError> {
    let names = disk.list().map_err(folder::failed(disk.as_ref(), "list", "the files"))?;
    let mut rows = Generation::new(options.table_slots());
    let mut apply = |_sequence, writes: Vec<crate::types::Write>| {
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
        Shared::new(disk.clone(), options, index, pool, overlay).map_err(index_failed(&disk))?;
    Ok((Arc::new(shared), replayed))
}

fn wire(shared: Arc<Shared>, folder: HeldFolder, observer: Option<Box<dyn Observer>>) -> Parts {
    let (queue, queued) = bounded(shared.options.queue_entries_max);
    let (nudge, nudged) = bounded(1);
    let (progress, progressed) = bounded(1);
    let committer = Committer::new(shared.clone(), queued, nudge.clone(), observer);
    let flusher = Flusher::new(shared.clone(), progress);
    let report = OpenReport::default();
    Parts { shared, committer, flusher, queue, nudge, nudged, progressed, folder, report }
}

impl Parts {
    /// Brings the ledger into the state its mode needs. Without a journal the index must hold everything before the
    /// first new batch; with one, spares should be ready, and a full disk is no reason not to open.
    fn settle(&self) -> Result<(), OpenError> {
        let settled = match self.shared.options.mode {
            Mode::Direct => self.flusher.step().map(|_| ()),
            Mode::Journal => self.flusher.prepare_spares(),
        };
        match (settled, self.shared.options.mode) {
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
    replayed: Replayed,
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

fn index_failed(disk: &Arc<dyn Disk>) -> impl FnOnce(IndexError) -> OpenError {
    let folder = disk.describe();
    move |source| OpenError::Index { folder, source }
}
