//! The least that a durable log can do: gather what is queued, write it into a file that was
//! filled with zeros before, sync once, answer. No index, nothing kept in memory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    pub(crate) fn start(folder: &Path) -> Result<Self, Fault> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("log");
        let mut file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        for _ in 0..LOG_BYTES >> 20 {
            file.write_all(&vec![0; 1 << 20])?;
        }
        file.sync_all()?;
        let (queue, queued) = bounded(8_192);
        let syncs = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&syncs);
        std::thread::spawn(move || run(&queued, &file, &counter));
        Ok(BareLog { queue, syncs })
    }

    pub(crate) async fn append(&self, bytes: Vec<u8>) -> Result<(), Fault> {
        let (answer, answered) = oneshot::channel();
        self.queue.send((bytes, answer)).map_err(|_| "the log is gone")?;
        if answered.await? { Ok(()) } else { Err("the log could not write".into()) }
    }
}

fn run(queued: &Receiver<Entry>, file: &File, syncs: &AtomicU64) {
    let (mut offset, mut frame) = (0, Vec::new());
    while let Ok(first) = queued.recv() {
        frame.clear();
        let mut answers = Vec::new();
        let mut next = Some(first);
        while let Some((bytes, answer)) = next {
            frame.extend_from_slice(&bytes);
            answers.push(answer);
            next = queued.try_recv().ok();
        }
        frame.resize(frame.len().next_multiple_of(BLOCK_BYTES), 0);
        if offset + frame.len() as u64 > LOG_BYTES {
            offset = 0;
        }
        let durable = file.write_all_at(&frame, offset).and_then(|()| file.sync_data()).is_ok();
        syncs.fetch_add(1, Ordering::Relaxed);
        offset += frame.len() as u64;
        for answer in answers {
            let _ = answer.send(durable);
        }
    }
}
