//! The least work of a durable log: gather what is queued, write it into a file that was filled with
//! zeros before, sync once, acknowledge. No index, nothing held in memory. It writes past the
//! system's cache if the store does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_ledger::{BlockBuffer, Uncached as _, UncachedFile};
use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::oneshot;

use crate::Fault;

const LOG_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: usize = 4096;

type Entry = (Vec<u8>, oneshot::Sender<bool>);

pub(crate) struct BareLog {
    queue: Sender<Entry>,
    pub(crate) syncs: Arc<AtomicU64>,
}

impl BareLog {
    pub(crate) fn start(folder: &Path, cached: bool) -> Result<Self, Fault> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("log");
        let mut file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
        for _ in 0..LOG_BYTES >> 20 {
            file.write_all(&vec![0; 1 << 20])?;
        }
        file.sync_all()?;
        let (queue, queued) = bounded(8_192);
        let syncs = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&syncs);
        let uncached = if cached { None } else { UncachedFile::open(&path) };
        let log = Log { file, uncached, syncs: counter };
        std::thread::spawn(move || log.run(&queued));
        Ok(BareLog { queue, syncs })
    }

    pub(crate) async fn append(&self, bytes: Vec<u8>) -> Result<(), Fault> {
        let (answer, answered) = oneshot::channel();
        self.queue.send((bytes, answer)).map_err(|_| "the log is gone")?;
        if answered.await? { Ok(()) } else { Err("the log could not write".into()) }
    }
}

struct Log {
    file: File,
    uncached: Option<UncachedFile>,
    syncs: Arc<AtomicU64>,
}

impl Log {
    fn run(&self, queued: &Receiver<Entry>) {
        let (mut offset, mut frame, mut gathered) = (0, BlockBuffer::default(), Vec::new());
        while let Ok(first) = queued.recv() {
            gathered.push(first);
            gathered.extend(queued.try_iter());
            let bytes: usize = gathered.iter().map(|(bytes, _)| bytes.len()).sum();
            let bytes = bytes.next_multiple_of(BLOCK_BYTES);
            let buffer = frame.begin(bytes);
            let start = buffer.len();
            gathered.iter().for_each(|(bytes, _)| buffer.extend_from_slice(bytes));
            buffer.resize(start + bytes, 0);
            if offset + bytes as u64 > LOG_BYTES {
                offset = 0;
            }
            let durable = self.write(frame.bytes(), offset).is_ok();
            self.syncs.fetch_add(1, Ordering::Relaxed);
            offset += bytes as u64;
            for (_, answer) in gathered.drain(..) {
                let _ = answer.send(durable);
            }
        }
    }

    fn write(&self, frame: &[u8], offset: u64) -> std::io::Result<()> {
        if let Some(uncached) = &self.uncached
            && uncached.write_durably(offset, frame)?
        {
            return Ok(());
        }
        self.file.write_all_at(frame, offset)?;
        self.file.sync_data()
    }
}
