//! The progress that a running turn has reported.
//!
//! A report replaces the previous one and costs next to nothing. `execution::progress` publishes
//! the newest report to watchers and makes it durable.

use std::time::Duration;

use catena_job::progress::Meter;
use catena_value::Value;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::runtime::Env;

/// What a running job has reported.
#[derive(Default)]
pub(crate) struct ProgressMeter {
    state: Mutex<State>,
    reported: Notify,
}

#[derive(Default)]
struct State {
    /// The newest report that has not been measured.
    fresh: Option<Value>,
    meter: Option<Meter>,
    /// The attempt that the meter belongs to.
    attempt: u32,
    /// How long the turn had run when it was last paused, without pauses.
    active: Duration,
    /// Monotonic time since which the turn runs without a pause. `None` while it is paused.
    since: Option<Duration>,
    /// True if there is progress that is not durable.
    is_unsaved: bool,
}

impl State {
    fn active(&self, now: Duration) -> Duration {
        self.active + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl ProgressMeter {
    /// Replaces the newest report.
    pub(crate) fn report(&self, report: Value) {
        self.state.lock().fresh = Some(report);
        self.reported.notify_one();
    }

    /// Returns once something has been reported.
    pub(crate) async fn reported(&self) {
        self.reported.notified().await;
    }

    /// Starts the clock of a turn. A new attempt starts over. `now` is monotonic time.
    pub(crate) fn start(&self, attempt: u32, now: Duration) {
        let mut state = self.state.lock();
        if state.attempt != attempt {
            *state = State { attempt, ..State::default() };
        }
        state.since.get_or_insert(now);
    }

    /// Starts the clock again after a pause. `now` is monotonic time.
    pub(crate) fn resume(&self, now: Duration) {
        self.state.lock().since.get_or_insert(now);
    }

    /// Stops the clock. `now` is monotonic time.
    pub(crate) fn pause(&self, now: Duration) {
        let mut state = self.state.lock();
        state.active = state.active(now);
        state.since = None;
    }

    /// Returns true if there is a report but no meter yet.
    pub(crate) fn needs_meter(&self) -> bool {
        let state = self.state.lock();
        state.meter.is_none() && state.fresh.is_some()
    }

    /// Sets the meter, unless there is one.
    pub(crate) fn set_meter(&self, meter: Meter) {
        self.state.lock().meter.get_or_insert(meter);
    }

    /// Returns the newest progress, once the turn has a meter.
    pub(crate) fn measured(&self, env: &dyn Env) -> Option<Value> {
        let has_meter = self.state.lock().meter.is_some();
        if has_meter { self.newest(env) } else { None }
    }

    /// Returns the newest progress. `None` if nothing was reported.
    pub(crate) fn newest(&self, env: &dyn Env) -> Option<Value> {
        let mut state = self.state.lock();
        let Some(report) = state.fresh.take() else {
            return state.meter.as_ref().and_then(Meter::value).cloned();
        };
        let active = state.active(env.monotonic());
        let active_ms = u64::try_from(active.as_millis()).unwrap_or(u64::MAX);
        state.is_unsaved = true;
        let attempt = state.attempt;
        let meter = state.meter.get_or_insert_with(|| Meter::new(attempt, None));
        meter.report(&report, active_ms, env.now());
        meter.value().cloned()
    }

    /// Returns the newest progress if it is not durable, and marks it as saved: the caller makes it
    /// durable.
    pub(crate) fn take_unsaved(&self, env: &dyn Env) -> Option<Value> {
        let newest = self.newest(env)?;
        std::mem::take(&mut self.state.lock().is_unsaved).then_some(newest)
    }
}
