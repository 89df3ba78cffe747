//! The public handle of a ledger, with two threads behind it.
//!
//! The threads only call the step functions of the committer and the flusher and wait between them; all decisions are in
//! the steps, where the simulator can reach them. Closing joins both threads and closes the index in the same call, so
//! that the next open finds a file that was closed properly.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use parking_lot::Mutex;

use crate::backup::BackupReport;
use crate::committer::{CommitStep, Committer, CommitterMessage};
use crate::disk::{Disk, RealDisk};
use crate::error::{BackupError, Failure, FlushError, LedgerError, OpenError, SubmitError};
use crate::flusher::{FlushProgress, FlushRequest, Flusher};
use crate::folder::FolderLock;
use crate::open::{self, Parts};
use crate::options::Options;
use crate::reads::Reads;
use crate::shared::Shared;
use crate::submission::{Submission, Transaction, closure_transaction};
use crate::tx::Tx;

/// How long a stalled committer waits before it checks again by itself. A safety net: the flusher signals progress.
const STALL_WAIT: Duration = Duration::from_millis(50);

/// On a full disk the flusher tries again after this many intervals: an attempt writes until it fails.
const FULL_DISK_INTERVALS: u32 = 4;

/// An open ledger. Share it behind an `Arc`; dropping it closes it.
pub struct Ledger {
    reads: Reads,
    queue: Sender<CommitterMessage>,
    threads: Mutex<Option<Threads>>,
}

/// The threads to join and the resources to release at close.
struct Threads {
    committer: JoinHandle<()>,
    flusher: JoinHandle<Result<(), FlushError>>,
    stop: Arc<AtomicBool>,
    request_flush: Sender<FlushRequest>,
    _folder: FolderLock,
}

impl Threads {
    fn contains_current(&self) -> bool {
        let current = std::thread::current().id();
        self.committer.thread().id() == current || self.flusher.thread().id() == current
    }

    /// Completes everything that was submitted, flushes, and closes the index.
    fn end(self, queue: &Sender<CommitterMessage>, shared: &Shared) -> Result<(), FlushError> {
        // Fails only if the committer has ended already.
        let _ = queue.send(CommitterMessage::Stop);
        let committed = self.committer.join();
        self.stop.store(true, Ordering::Release);
        let _ = self.request_flush.try_send(FlushRequest);
        let flushed = self.flusher.join();
        shared.index.lock().close();
        match (committed, flushed) {
            (Ok(()), Ok(result)) => result,
            _ => Err(FlushError::Poisoned {
                reason: shared.poison("a ledger thread panicked".to_owned()),
            }),
        }
    }
}

impl Ledger {
    /// Opens the ledger in `folder`, creating it if it is missing.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = folder.as_ref();
        let real = RealDisk::new(path).map_err(|source| OpenError::Io {
            action: "create",
            name: "the folder".to_owned(),
            folder: path.display().to_string(),
            source,
        })?;
        Self::open_on(Arc::new(real), options)
    }

    /// Opens the ledger on any disk.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let parts = open::open(disk, options, None)?;
        let reads = Reads::new(parts.shared.clone(), parts.report.clone());
        let queue = parts.queue.clone();
        let threads = Mutex::new(Some(start(parts)?));
        Ok(Self { reads, queue, threads })
    }

    /// Submits work, or returns `Busy` at once if the queue is full. `done` is called on the committer's thread when the
    /// outcome is durable: it must be short, and must not wait for the ledger (no `submit`, `transact` or `close`). If
    /// this returns an error, neither closure is ever called.
    pub fn try_submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        self.try_submit_transaction(closure_transaction(work, done))
    }

    /// Submits a transaction, or returns `Busy` at once if the queue is full. If this returns an error, the transaction is
    /// dropped and none of its functions is ever called.
    pub fn try_submit_transaction(
        &self,
        transaction: Box<dyn Transaction>,
    ) -> Result<(), SubmitError> {
        self.check_accepts_writes()?;
        match self.queue.try_send(CommitterMessage::Submit(Submission::new(transaction))) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(unsent)) => {
                unsent.discard();
                Err(SubmitError::Busy {
                    queue_entries_max: self.reads.shared.options.queue_entries_max,
                })
            }
            Err(TrySendError::Disconnected(unsent)) => {
                unsent.discard();
                Err(SubmitError::Closed)
            }
        }
    }

    /// Submits work, waiting while the queue is full. Otherwise like [`Ledger::try_submit`].
    pub fn submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        self.check_accepts_writes()?;
        let submission = Submission::new(closure_transaction(work, done));
        self.queue.send(CommitterMessage::Submit(submission)).map_err(|unsent| {
            unsent.into_inner().discard();
            SubmitError::Closed
        })
    }

    /// Submits work and waits until its outcome is durable.
    pub fn transact<T, E, W>(&self, work: W) -> Result<T, Failure<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        // The receiver below outlives the answer, so the answer cannot be lost.
        self.submit(work, move |outcome| drop(answer.send(outcome))).map_err(submit_error)?;
        answered.recv().unwrap_or(Err(Failure::Ledger(LedgerError::Closed)))
    }

    /// Copies the ledger, as of this moment and while it runs, into an empty folder.
    pub fn backup(&self, destination: impl AsRef<Path>) -> Result<BackupReport, BackupError> {
        let path = destination.as_ref();
        let io_error = |source| BackupError::Io { folder: path.display().to_string(), source };
        self.backup_to(Arc::new(RealDisk::new(path).map_err(io_error)?))
    }

    /// Completes everything that was submitted, flushes, and closes the index. Calling it again does nothing.
    ///
    /// An error means only that the last flush did not happen: what was acknowledged is in the journal.
    pub fn close(&self) -> Result<(), FlushError> {
        let Some(threads) = self.threads.lock().take() else { return Ok(()) };
        let queue = self.queue.clone();
        let shared = Arc::clone(&self.reads.shared);
        if !threads.contains_current() {
            return threads.end(&queue, &shared);
        }
        // The last handle was dropped by what a ledger thread called, and a thread cannot wait for itself.
        let end = move || drop(threads.end(&queue, &shared));
        // Without a thread to wait with, the queue closes with the handle and both threads end by themselves.
        drop(Builder::new().name("ledger-closer".to_owned()).spawn(end));
        Ok(())
    }

    fn check_accepts_writes(&self) -> Result<(), SubmitError> {
        match self.reads.shared.poison_reason() {
            Some(reason) => Err(SubmitError::Poisoned { reason }),
            None => Ok(()),
        }
    }
}

impl Deref for Ledger {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.reads
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // There is no caller left to return an error to; the journal keeps what the flush could not write.
        let _ = self.close();
    }
}

fn submit_error<E>(error: SubmitError) -> Failure<E> {
    Failure::Ledger(match error {
        SubmitError::Poisoned { reason } => LedgerError::Poisoned { reason },
        SubmitError::Closed | SubmitError::Busy { .. } => LedgerError::Closed,
    })
}

fn start(parts: Parts) -> Result<Threads, OpenError> {
    let Parts {
        committer,
        flusher,
        flush_progress,
        request_flush,
        flush_requests,
        folder,
        shared,
        ..
    } = parts;
    let stop = Arc::new(AtomicBool::new(false));
    let interval = shared.options.flush_interval;
    let stopped = stop.clone();
    let run = move || {
        lower_thread_priority();
        run_flusher(&flusher, &flush_requests, interval, &stopped)
    };
    let flusher = spawn("ledger-flusher", shared.clone(), run)?;
    let committer =
        spawn("ledger-committer", shared, move || run_committer(committer, &flush_progress))?;
    Ok(Threads { committer, flusher, stop, request_flush, _folder: folder })
}

/// The `nice` value of the flusher's thread: about a tenth of the processor time that other threads get when there is not
/// enough for all.
#[cfg(target_os = "linux")]
const FLUSHER_NICENESS: i32 = 10;

/// Lowers this thread's priority, so that it runs while other threads wait, such as for the disk. No writer waits for the
/// flusher until memory is short, and writers that wait leave it the processor. If the system refuses, the thread keeps
/// its priority.
fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    {
        // Linux accepts a thread ID here; other systems expect a process ID.
        let this = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(this), FLUSHER_NICENESS);
    }
}

/// Starts a thread whose panic poisons the ledger: without either thread no transaction would ever complete.
fn spawn<T: Send + 'static>(
    name: &'static str,
    shared: Arc<Shared>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, OpenError> {
    let guarded = move || {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            shared.poison(format!("the {name} thread panicked"));
            resume_unwind(panic)
        })
    };
    let started = Builder::new().name(name.to_owned()).spawn(guarded);
    started.map_err(|source| OpenError::Thread { thread: name, source })
}

fn run_committer(mut committer: Committer, flush_progress: &Receiver<FlushProgress>) {
    loop {
        match committer.step() {
            CommitStep::Idle => committer.wait_for_work(),
            CommitStep::Answered(_) => {}
            CommitStep::Stalled => drop(flush_progress.recv_timeout(STALL_WAIT)),
            CommitStep::Stopped => return,
        }
    }
}

fn run_flusher(
    flusher: &Flusher,
    flush_requests: &Receiver<FlushRequest>,
    interval: Duration,
    stopped: &AtomicBool,
) -> Result<(), FlushError> {
    let mut wait = interval;
    loop {
        let abandoned = flush_requests.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        let stopping = abandoned || stopped.load(Ordering::Acquire);
        if stopping {
            return flusher.finish_all();
        }
        // Any other error is in the shared state, where every writer sees it.
        let is_full = flusher.step() == Err(FlushError::Full);
        wait = if is_full { interval * FULL_DISK_INTERVALS } else { interval };
    }
}
