//! How the engine controls a running turn, and how the turn reports progress.

use std::sync::Arc;
use std::time::Duration;

use catena_value::Value;

use crate::operations::federation::PauseChange;
use crate::operations::progress::ProgressMeter;
use crate::operations::redact::ResolvedSecrets;
use crate::operations::signal::{Signal, SignalReceiver};
use crate::runtime::Env;

/// What a running turn receives: pausing, sleeping and progress reports.
#[derive(Clone)]
pub struct RunControl {
    signal: SignalReceiver,
    env: Arc<dyn Env>,
    progress: Arc<ProgressMeter>,
    secrets: Arc<ResolvedSecrets>,
}

impl std::fmt::Debug for RunControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "run control: {:?}", self.signal.current())
    }
}

impl RunControl {
    pub(crate) fn new(
        signal: SignalReceiver,
        env: Arc<dyn Env>,
        progress: Arc<ProgressMeter>,
    ) -> Self {
        RunControl { signal, env, progress, secrets: Arc::default() }
    }

    /// Returns as soon as the job is not paused. Await this before everything that has an effect
    /// outside the venue, such as sending a request.
    pub async fn proceed(&self) {
        // A run that was stopped never proceeds: its turn is about to be dropped.
        self.signal.wait_for(|signal| signal == Signal::Go).await;
    }

    /// Returns when the job is paused or resumed the next time.
    pub(crate) async fn next_pause_or_resume(&mut self) -> PauseChange {
        loop {
            match self.signal.changed().await {
                Signal::Go => return PauseChange::Resume,
                Signal::Pause => return PauseChange::Pause,
                Signal::Stop => {}
            }
        }
    }

    /// Sleeps for a time that does not pass while the job is paused.
    pub async fn sleep(&self, time: Duration) {
        let mut left = time;
        loop {
            self.proceed().await;
            if left.is_zero() {
                // A timer would round this up to its next tick.
                return;
            }
            let started = self.env.monotonic();
            tokio::select! {
                () = self.env.sleep(left) => return,
                () = self.signal.wait_for(|signal| signal != Signal::Go) => {
                    left = left.saturating_sub(self.env.monotonic().saturating_sub(started));
                }
            }
        }
    }

    /// Reports progress:
    /// `{processedItems?, totalItems?, outputStats?: {bytesProcessed?, bytesTotal?}}`. This is
    /// cheap: it replaces the previous report, and the engine publishes the newest one in time.
    pub fn report(&self, progress: Value) {
        self.progress.report(self.secrets.redact(progress));
    }

    /// Removes a text from everything that the turn produces from now on: its output, its error and
    /// its progress. Encoded forms of the text are removed, too.
    pub fn hide(&self, secret: &str) {
        self.secrets.add(secret);
    }

    /// The same control for another turn, which has received no secrets yet.
    pub(crate) fn without_secrets(&self) -> RunControl {
        RunControl { secrets: Arc::default(), ..self.clone() }
    }

    /// Returns the secrets that the turn has received.
    pub(super) fn secrets(&self) -> &ResolvedSecrets {
        &self.secrets
    }

    /// Returns Unix time in ms.
    pub fn now(&self) -> i64 {
        self.env.now()
    }
}
