//! What the engine takes from the world: time, randomness, tasks.
//!
//! Nothing else in this crate asks for them, so a test can stand still in time and a simulation
//! can be repeated.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A task handed to the world.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// The world.
pub trait Env: Send + Sync + 'static {
    /// Milliseconds since 1970. May jump when somebody sets the clock.
    fn now(&self) -> i64;

    /// Time since some moment. Never jumps.
    fn monotonic(&self) -> Duration;

    /// Fills the buffer with random bytes that nobody can guess.
    fn random(&self, bytes: &mut [u8]);

    /// Runs a task beside the caller.
    fn spawn(&self, task: Task);

    /// Ends after a time.
    fn sleep(&self, time: Duration) -> Task;
}

/// Random bytes that were fetched ahead: every job needs ten, and asking the system for them one
/// by one costs more than making the job's ID of them.
struct Reserve {
    bytes: [u8; 512],
    used: usize,
}

thread_local! {
    static RESERVE: RefCell<Reserve> = const { RefCell::new(Reserve { bytes: [0; 512], used: 512 }) };
}

impl Reserve {
    fn take(&mut self, bytes: &mut [u8]) {
        let fill = |bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("the system's random source works");
        };
        if bytes.len() > self.bytes.len() {
            return fill(bytes);
        }
        if bytes.len() > self.bytes.len() - self.used {
            fill(&mut self.bytes);
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..][..bytes.len()];
        bytes.copy_from_slice(taken);
        // Nobody finds here what became somebody's secret.
        taken.fill(0);
        self.used += bytes.len();
    }
}

/// The real world, with tokio's timers and tasks.
#[derive(Debug)]
pub struct SystemEnv {
    begun: tokio::time::Instant,
    runtime: tokio::runtime::Handle,
}

impl SystemEnv {
    /// The world of the runtime that this is called in.
    pub fn new() -> Self {
        SystemEnv { begun: tokio::time::Instant::now(), runtime: tokio::runtime::Handle::current() }
    }
}

impl Default for SystemEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for SystemEnv {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn now(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.begun.elapsed()
    }

    fn random(&self, bytes: &mut [u8]) {
        RESERVE.with_borrow_mut(|reserve| reserve.take(bytes));
    }

    fn spawn(&self, task: Task) {
        self.runtime.spawn(task);
    }

    fn sleep(&self, time: Duration) -> Task {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A world whose time is tokio's, so that a paused runtime stands still and jumps when all wait.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct PausedEnv {
    begun: tokio::time::Instant,
    counter: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "testing")]
impl PausedEnv {
    /// When this world begins.
    pub const BEGINNING: i64 = 1_769_683_717_000;

    /// A world that begins now.
    pub fn new() -> Self {
        PausedEnv {
            begun: tokio::time::Instant::now(),
            counter: std::sync::atomic::AtomicU64::new(1),
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
        Self::BEGINNING + i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.begun.elapsed()
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
        tokio::spawn(task);
    }

    fn sleep(&self, time: Duration) -> Task {
        Box::pin(tokio::time::sleep(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_given_once() {
        let mut reserve = Reserve { bytes: [0; 512], used: 512 };
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let mut bytes = [0; 10];
            reserve.take(&mut bytes);
            assert!(seen.insert(bytes), "{bytes:?} was given twice");
            assert!(reserve.bytes[..reserve.used].iter().all(|byte| *byte == 0));
        }
        let mut long = [0; 2_000];
        reserve.take(&mut long);
        assert!(long[1_900..].iter().any(|byte| *byte != 0));
    }
}
