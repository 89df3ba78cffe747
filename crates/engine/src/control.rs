//! The reins of a running turn: pausing, sleeping, progress.

use std::sync::Arc;
use std::time::Duration;

use catena_value::Value;
use tokio::sync::watch;

use crate::env::Env;
use crate::federation::PauseChange;
use crate::progress::Progress;

/// Whether a turn may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It may.
    Go,
    /// Not now.
    Pause,
    /// Not any more.
    Stop,
}

/// What a running turn holds of the engine.
#[derive(Clone)]
pub struct RunControl {
    signal: watch::Receiver<Signal>,
    env: Arc<dyn Env>,
    progress: Arc<Progress>,
}

impl std::fmt::Debug for RunControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "control: {:?}", *self.signal.borrow())
    }
}

impl RunControl {
    pub(crate) fn new(
        signal: watch::Receiver<Signal>,
        env: Arc<dyn Env>,
        progress: Arc<Progress>,
    ) -> Self {
        RunControl { signal, env, progress }
    }

    /// Returns when the job is not paused. Await this before everything that has an effect
    /// outside, such as sending a request.
    pub async fn proceed(&self) {
        let mut signal = self.signal.clone();
        let gone = signal.wait_for(|signal| *signal == Signal::Go).await.is_err();
        if gone || self.is_stopped() {
            // Nobody holds the reins any more: the turn is about to be dropped.
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the job is paused or resumed the next time.
    pub(crate) async fn turned(&mut self) -> PauseChange {
        loop {
            if self.signal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            match *self.signal.borrow_and_update() {
                Signal::Go => return PauseChange::Resume,
                Signal::Pause => return PauseChange::Pause,
                Signal::Stop => {}
            }
        }
    }

    fn is_stopped(&self) -> bool {
        *self.signal.borrow() == Signal::Stop
    }

    /// Sleeps for a time that does not pass while the job is paused.
    pub async fn sleep(&self, time: Duration) {
        let mut left = time;
        let mut signal = self.signal.clone();
        loop {
            self.proceed().await;
            if left.is_zero() {
                // A timer would round this up to its next tick.
                return;
            }
            let begun = self.env.monotonic();
            tokio::select! {
                () = self.env.sleep(left) => return,
                _ = signal.wait_for(|signal| *signal != Signal::Go) => {
                    left = left.saturating_sub(self.env.monotonic().saturating_sub(begun));
                }
            }
        }
    }

    /// Reports progress: `{processedItems?, totalItems?, outputStats?: {bytesProcessed?, bytesTotal?}}`.
    /// Cheap: it replaces what was reported before, and the engine takes it from there.
    pub fn report(&self, progress: Value) {
        self.progress.report(progress);
    }

    /// The world's clock, in milliseconds since 1970.
    pub fn now(&self) -> i64 {
        self.env.now()
    }
}
