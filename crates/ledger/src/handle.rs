//! The ledger as the rest of the program uses it: one handle, two threads behind it.
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
use crate::committer::{CommitStep, Committer, Message, Observer};
use crate::disk::{Disk, RealDisk};
use crate::error::{BackupError, CommitError, Failure, FlushError, OpenError, SubmitError};
use crate::flusher::{Flusher, Nudge, Progress};
use crate::folder::HeldFolder;
use crate::open::{self, Parts};
use crate::options::Options;
use crate::reads::Reads;
use crate::shared::Shared;
use crate::tx::Tx;
use crate::work::Submission;

/// How long a stalled committer waits before it looks again by itself. A safety net: the flusher signals progress.
const STALL_WAIT: Duration = Duration::from_millis(50);

/// On a full disk the flusher tries again after this many intervals: an attempt writes until it fails.
const FULL_DISK_INTERVALS: u32 = 4;

/// An open ledger. Share it behind an `Arc`; dropping it closes it.
pub struct Ledger {
    reads: Reads,
    queue: Sender<Message>,
    threads: Mutex<Option<Threads>>,
}

/// What closing has to end and to give back.
struct Threads {
    committer: JoinHandle<()>,
    flusher: JoinHandle<Result<(), FlushError>>,
    stop: Arc<AtomicBool>,
    nudge: Sender<Nudge>,
    _folder: HeldFolder,
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
        Self::open_on(Arc::new(real), options, None)
    }

    /// Opens the ledger on any disk, with an observer of batches if one is wanted.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Self, OpenError> {
        let parts = open::open(disk, options, observer)?;
        let reads = Reads::new(parts.shared.clone(), parts.report.clone());
        let queue = parts.queue.clone();
        let threads = Mutex::new(Some(start(parts)?));
        Ok(Self { reads, queue, threads })
    }

    /// Hands in work, or says at once that the queue is full. `done` is called on the committer's thread, when the
    /// outcome is durable: it must be short, and must not wait for the ledger (no `submit`, `transact` or `close`). If
    /// this returns an error, neither closure is ever called.
    pub fn try_submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        self.check_open()?;
        match self.queue.try_send(Message::Work(Submission::new(work, done))) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(message)) => {
                forget(message);
                Err(SubmitError::Busy {
                    queue_entries_max: self.reads.shared.options.queue_entries_max,
                })
            }
            Err(TrySendError::Disconnected(message)) => {
                forget(message);
                Err(SubmitError::Closed)
            }
        }
    }

    /// Hands in work, waiting while the queue is full. Otherwise like [`Ledger::try_submit`].
    pub fn submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        self.check_open()?;
        self.queue.send(Message::Work(Submission::new(work, done))).map_err(|unsent| {
            forget(unsent.into_inner());
            SubmitError::Closed
        })
    }

    /// Hands in work and waits until its outcome is durable.
    pub fn transact<T, E, W>(&self, work: W) -> Result<T, Failure<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        // The receiver below outlives the answer, so the answer cannot be lost.
        self.submit(work, move |outcome| drop(answer.send(outcome))).map_err(refused)?;
        answered.recv().unwrap_or(Err(Failure::Ledger(CommitError::Closed)))
    }

    /// Copies the ledger, as of this moment and while it runs, into an empty folder.
    pub fn backup(&self, destination: impl AsRef<Path>) -> Result<BackupReport, BackupError> {
        let path = destination.as_ref();
        let io = |source| BackupError::Io { folder: path.display().to_string(), source };
        self.backup_to(Arc::new(RealDisk::new(path).map_err(io)?))
    }

    /// Answers everything that was handed in, flushes, and closes the index. Calling it again does nothing.
    ///
    /// An error means only that the last flush did not happen: what was acknowledged is in the journal.
    pub fn close(&self) -> Result<(), FlushError> {
        let Some(threads) = self.threads.lock().take() else { return Ok(()) };
        // Fails only when the committer is gone already.
        let _ = self.queue.send(Message::Stop);
        let committed = threads.committer.join();
        threads.stop.store(true, Ordering::Release);
        let _ = threads.nudge.try_send(Nudge);
        let flushed = threads.flusher.join();
        self.reads.shared.index.lock().close();
        match (committed, flushed) {
            (Ok(()), Ok(result)) => result,
            _ => Err(FlushError::Poisoned {
                reason: self.reads.shared.poison("a ledger thread panicked".to_owned()),
            }),
        }
    }

    fn check_open(&self) -> Result<(), SubmitError> {
        match self.reads.shared.poisoned() {
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
        // Nobody is left to hear of an error; the journal keeps what the flush could not.
        let _ = self.close();
    }
}

fn refused<E>(error: SubmitError) -> Failure<E> {
    Failure::Ledger(match error {
        SubmitError::Poisoned { reason } => CommitError::Poisoned { reason },
        SubmitError::Closed | SubmitError::Busy { .. } => CommitError::Closed,
    })
}

fn forget(message: Message) {
    if let Message::Work(submission) = message {
        submission.forget();
    }
}

fn start(parts: Parts) -> Result<Threads, OpenError> {
    let Parts { committer, flusher, progressed, nudge, nudged, folder, shared, .. } = parts;
    let stop = Arc::new(AtomicBool::new(false));
    let (interval, stopped) = (shared.options.flush_interval, stop.clone());
    let run = move || {
        give_way();
        run_flusher(&flusher, &nudged, interval, &stopped)
    };
    let flusher = spawn("ledger-flusher", shared.clone(), run)?;
    let committer =
        spawn("ledger-committer", shared, move || run_committer(committer, &progressed))?;
    Ok(Threads { committer, flusher, stop, nudge, _folder: folder })
}

/// How much the flusher gives way to others, as `nice` counts it: a tenth of what they get where there is not enough for
/// all.
#[cfg(target_os = "linux")]
const FLUSHER_NICENESS: i32 = 10;

/// Lets this thread work in the gaps, such as while a commit waits for the disk. Nobody waits for the flusher until memory
/// is short, and then those who do leave it the processor. Where this cannot be done it works like any other.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        // Linux takes the number of a thread where others take that of a process.
        let this = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(this), FLUSHER_NICENESS);
    }
}

/// Starts a thread whose panic poisons the ledger: without either thread nobody would ever be answered.
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

fn run_committer(mut committer: Committer, progressed: &Receiver<Progress>) {
    loop {
        match committer.step() {
            CommitStep::Idle => committer.wait_for_work(),
            CommitStep::Answered(_) => {}
            CommitStep::Stalled => drop(progressed.recv_timeout(STALL_WAIT)),
            CommitStep::Stopped => return,
        }
    }
}

fn run_flusher(
    flusher: &Flusher,
    nudged: &Receiver<Nudge>,
    interval: Duration,
    stopped: &AtomicBool,
) -> Result<(), FlushError> {
    let mut wait = interval;
    loop {
        let abandoned = nudged.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        let stopping = abandoned || stopped.load(Ordering::Acquire);
        if stopping {
            return flusher.finish_all();
        }
        // Any other error is remembered in the shared state, where every writer meets it.
        let is_full = flusher.step() == Err(FlushError::Full);
        wait = if is_full { interval * FULL_DISK_INTERVALS } else { interval };
    }
}
