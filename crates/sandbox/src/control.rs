//! Pausing, resuming and cancelling a cell from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;

/// What the caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Run,
    Pause,
    Cancel,
}

/// How far a cell says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is done.
    pub done: u64,
    /// What there is to do, if the cell knows.
    pub total: Option<u64>,
}

/// A handle on one run. Clones refer to the same run.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wanted: AtomicU8,
    /// Whether every process of the cell stands still.
    is_paused: Mutex<bool>,
    changed: Condvar,
    has_ended: AtomicBool,
    /// What the cell last said about its progress.
    progress: Mutex<Option<Progress>>,
    wake: OwnedFd,
}

impl Control {
    /// A handle for one run.
    pub fn new() -> std::io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Control(Arc::new(Shared {
            wanted: AtomicU8::new(Wanted::Run as u8),
            is_paused: Mutex::new(false),
            changed: Condvar::new(),
            has_ended: AtomicBool::new(false),
            progress: Mutex::new(None),
            wake,
        })))
    }

    /// Asks for all processes and clocks of the cell to stand still.
    pub fn pause(&self) {
        self.want(Wanted::Pause);
    }

    /// Lets a paused cell go on.
    pub fn resume(&self) {
        self.want(Wanted::Run);
    }

    /// Kills the cell. This cannot be taken back.
    pub fn cancel(&self) {
        self.want(Wanted::Cancel);
    }

    /// Whether every process of the cell stands still.
    pub fn is_paused(&self) -> bool {
        *self.0.is_paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the cell is paused, or not any more. False if the time is over or the run ended.
    pub fn wait_paused(&self, is_paused: bool, timeout: Duration) -> bool {
        let guard = self.0.is_paused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_waiting =
            |paused: &mut bool| *paused != is_paused && !self.0.has_ended.load(Ordering::SeqCst);
        let waited = self.0.changed.wait_timeout_while(guard, timeout, is_waiting);
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *guard == is_paused
    }

    /// What the cell last said about its progress. It is the cell's own claim.
    pub fn progress(&self) -> Option<Progress> {
        *self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        *self.0.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    fn want(&self, wanted: Wanted) {
        let cancel = Wanted::Cancel as u8;
        let _ = self.0.wanted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            (old != cancel).then_some(wanted as u8)
        });
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn wanted(&self) -> Wanted {
        match self.0.wanted.load(Ordering::SeqCst) {
            0 => Wanted::Run,
            1 => Wanted::Pause,
            _ => Wanted::Cancel,
        }
    }

    /// Readable when something was asked for.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0.wake, &mut [0u8; 8]);
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        *self.0.is_paused.lock().unwrap_or_else(PoisonError::into_inner) = is_paused;
        self.0.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        self.set_paused(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_cell_stays_cancelled() {
        let control = Control::new().unwrap();
        control.pause();
        assert_eq!(control.wanted(), Wanted::Pause);
        control.resume();
        assert_eq!(control.wanted(), Wanted::Run);
        control.cancel();
        control.resume();
        assert_eq!(control.wanted(), Wanted::Cancel);
    }
}
