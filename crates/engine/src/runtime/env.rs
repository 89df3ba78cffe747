//! The environment: time, randomness and tasks.
//!
//! Nothing else in this crate reads a clock, draws a random number or spawns a task, so a test can
//! pause time and a simulation can be repeated.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A task, as handed to [`Env::spawn`].
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Where the engine gets time, randomness and tasks.
pub trait Env: Send + Sync + 'static {
    /// Returns Unix time in ms. It may jump when the clock is set.
    fn now(&self) -> i64;

    /// Returns the time since an arbitrary fixed moment. It never jumps.
    fn monotonic(&self) -> Duration;

    /// Fills the buffer with unpredictable random bytes.
    fn random(&self, bytes: &mut [u8]);

    /// Runs a task concurrently with the caller.
    fn spawn(&self, task: Task);

    /// Returns a future that completes after `time`.
    fn sleep(&self, time: Duration) -> Task;

    /// Runs work on a new thread with a stack of this many bytes. Fails if there is no thread to be
    /// had.
    fn spawn_thread(
        &self,
        stack_bytes: usize,
        work: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<()>;
}

/// Starts a thread.
fn start_thread(
    stack_bytes: usize,
    work: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("compute".to_owned()).stack_size(stack_bytes).spawn(work)
}

/// Random bytes fetched in advance. Every job ID needs ten, and a system call for each costs more
/// than building the ID.
struct RandomBuffer {
    bytes: [u8; 512],
    used: usize,
}

thread_local! {
    static RANDOM: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer { bytes: [0; 512], used: 512 }) };
}

impl RandomBuffer {
    fn fill(&mut self, bytes: &mut [u8]) {
        let fetch = |bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("the system's random source works");
        };
        if bytes.len() > self.bytes.len() {
            return fetch(bytes);
        }
        if bytes.len() > self.bytes.len() - self.used {
            fetch(&mut self.bytes);
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..][..bytes.len()];
        bytes.copy_from_slice(taken);
        // Bytes that may have become a secret do not stay in memory.
        taken.fill(0);
        self.used += bytes.len();
    }
}

/// The production environment, with tokio's timers and tasks.
#[derive(Debug)]
pub struct SystemEnv {
    started: tokio::time::Instant,
    runtime: tokio::runtime::Handle,
}

impl SystemEnv {
    /// Creates the environment of the tokio runtime it is called in.
    pub fn new() -> Self {
        SystemEnv {
            started: tokio::time::Instant::now(),
            runtime: tokio::runtime::Handle::current(),
        }
    }
}

impl Default for SystemEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for SystemEnv {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    fn now(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn random(&self, bytes: &mut [u8]) {
        RANDOM.with_borrow_mut(|buffer| buffer.fill(bytes));
    }

    fn spawn(&self, task: Task) {
        self.runtime.spawn(task);
    }

    fn sleep(&self, time: Duration) -> Task {
        Box::pin(tokio::time::sleep(time))
    }

    fn spawn_thread(
        &self,
        stack_bytes: usize,
        work: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<()> {
        start_thread(stack_bytes, work).map(drop)
    }
}

/// An environment whose clock is tokio's, so that a paused runtime advances only when every task
/// waits.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct PausedEnv {
    started: tokio::time::Instant,
    /// The time in ms between the beginning and the start of this process.
    offset_ms: i64,
    counter: std::sync::atomic::AtomicU64,
    tasks: std::sync::Mutex<Vec<tokio::task::AbortHandle>>,
    is_killed: std::sync::atomic::AtomicBool,
}

#[cfg(feature = "testing")]
impl PausedEnv {
    /// The Unix time in ms at which the environment starts.
    pub const BEGINNING: i64 = 1_769_683_717_000;

    /// Creates an environment that starts now.
    pub fn new() -> Self {
        Self::for_process(0)
    }

    /// Creates an environment for the n-th process of a test; its random bytes differ from those of
    /// the other processes.
    pub fn for_process(process: u32) -> Self {
        let counter = (u64::from(process) << 32) + 1;
        PausedEnv {
            started: tokio::time::Instant::now(),
            offset_ms: 0,
            counter: std::sync::atomic::AtomicU64::new(counter),
            tasks: std::sync::Mutex::default(),
            is_killed: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Sets the clock to this many ms after the beginning.
    #[must_use]
    pub fn starting_at(self, offset_ms: i64) -> Self {
        PausedEnv { offset_ms, ..self }
    }

    /// Ends all tasks where they are, as `kill -9` ends a process. No others start.
    pub fn kill(&self) {
        self.is_killed.store(true, std::sync::atomic::Ordering::SeqCst);
        if let Ok(mut tasks) = self.tasks.lock() {
            tasks.drain(..).for_each(|task| task.abort());
        }
    }
}

#[cfg(feature = "testing")]
impl Default for PausedEnv {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "testing")]
impl Env for PausedEnv {
    fn now(&self) -> i64 {
        let passed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Self::BEGINNING + self.offset_ms + passed
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut state = self.counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for byte in bytes {
            // A small mixing step: the bytes need only differ.
            state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(1);
            *byte = state.to_le_bytes()[7];
        }
    }

    fn spawn(&self, task: Task) {
        if self.is_killed.load(std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        let handle = tokio::spawn(task).abort_handle();
        if let Ok(mut tasks) = self.tasks.lock() {
            if tasks.len() == tasks.capacity() {
                tasks.retain(|task| !task.is_finished());
            }
            tasks.push(handle);
        }
    }

    fn sleep(&self, time: Duration) -> Task {
        Box::pin(tokio::time::sleep(time))
    }

    /// Waits for the end of the work, because the paused clock would advance meanwhile.
    fn spawn_thread(
        &self,
        stack_bytes: usize,
        work: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<()> {
        // A panic of the work concerns only who waits for its result.
        drop(start_thread(stack_bytes, work)?.join());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_returned_once() {
        let mut buffer = RandomBuffer { bytes: [0; 512], used: 512 };
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let mut bytes = [0; 10];
            buffer.fill(&mut bytes);
            assert!(seen.insert(bytes), "{bytes:?} was returned twice");
            assert!(buffer.bytes[..buffer.used].iter().all(|byte| *byte == 0));
        }
        let mut long = [0; 2_000];
        buffer.fill(&mut long);
        assert!(long[1_900..].iter().any(|byte| *byte != 0));
    }
}
