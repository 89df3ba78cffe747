//! Progress on its way from a running turn to those who want to know.
//!
//! A report replaces the one before it and costs next to nothing. Now and then the newest one is
//! told to those who watch, and less often it is made durable beside the chain: there is no record
//! and no sync per report. When the job is paused, parked or ended, and when the venue stops, the
//! newest one is kept whatever the time.

use std::time::Duration;

use catena_job::JobId;
use catena_job::progress::Meter;
use catena_store::{Effect, Effects};
use catena_value::{Map, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::control::Signal;
use crate::engine::Engine;
use crate::env::Task;

/// How often progress is told to those who watch.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// How often progress is made durable.
const KEPT_EVERY: Duration = Duration::from_secs(1);

/// What a running job has reported.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    reported: Notify,
}

#[derive(Default)]
struct State {
    /// Reported, not looked at.
    fresh: Option<Value>,
    meter: Option<Meter>,
    /// The try that the meter is for.
    attempt: u32,
    /// How long the turn has run, as of the last look, pauses left out.
    active: Duration,
    /// Since when it runs without a pause.
    since: Option<Duration>,
    /// Whether there is something that is not durable.
    is_unkept: bool,
}

impl State {
    fn active(&self, now: Duration) -> Duration {
        self.active + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl Progress {
    /// Takes a report.
    pub(crate) fn report(&self, report: Value) {
        self.state.lock().fresh = Some(report);
        self.reported.notify_one();
    }

    /// Returns when something was reported.
    pub(crate) async fn reported(&self) {
        self.reported.notified().await;
    }

    /// A turn of this try begins.
    fn begins(&self, attempt: u32, now: Duration) {
        let mut state = self.state.lock();
        if state.attempt != attempt {
            *state = State { attempt, ..State::default() };
        }
        state.since.get_or_insert(now);
    }

    /// A turn goes on.
    fn runs(&self, now: Duration) {
        self.state.lock().since.get_or_insert(now);
    }

    /// A turn stands still.
    fn stands(&self, now: Duration) {
        let mut state = self.state.lock();
        state.active = state.active(now);
        state.since = None;
    }

    /// Whether something was reported for which there is no meter yet.
    fn needs_meter(&self) -> bool {
        let state = self.state.lock();
        state.meter.is_none() && state.fresh.is_some()
    }

    fn set_meter(&self, meter: Meter) {
        self.state.lock().meter.get_or_insert(meter);
    }

    /// The newest progress, once the turn has begun to tell it.
    pub(crate) fn known(&self, engine: &Engine) -> Option<Value> {
        let has_meter = self.state.lock().meter.is_some();
        if has_meter { self.newest(engine) } else { None }
    }

    /// The newest progress; nothing when nothing was reported.
    pub(crate) fn newest(&self, engine: &Engine) -> Option<Value> {
        let mut state = self.state.lock();
        let Some(report) = state.fresh.take() else {
            return state.meter.as_ref().and_then(Meter::value).cloned();
        };
        let active = state.active(engine.0.env.monotonic());
        let active_ms = u64::try_from(active.as_millis()).unwrap_or(u64::MAX);
        state.is_unkept = true;
        let attempt = state.attempt;
        let meter = state.meter.get_or_insert_with(|| Meter::new(attempt, None));
        meter.report(&report, active_ms, engine.now());
        meter.value().cloned()
    }

    /// The newest progress, if it is not durable. Whoever takes it makes it so.
    pub(crate) fn unkept(&self, engine: &Engine) -> Option<Value> {
        let newest = self.newest(engine)?;
        std::mem::take(&mut self.state.lock().is_unkept).then_some(newest)
    }
}

/// Tells and keeps the progress of one turn.
pub(crate) struct Reports<'a> {
    engine: &'a Engine,
    job: JobId,
    attempt: u32,
    progress: &'a Progress,
    told: Option<Duration>,
    kept: Option<Duration>,
    due: Option<Task>,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        job: JobId,
        attempt: u32,
        progress: &'a Progress,
    ) -> Reports<'a> {
        progress.begins(attempt, engine.0.env.monotonic());
        Reports { engine, job, attempt, progress, told: None, kept: None, due: None }
    }

    /// Returns when [`Reports::go_on`] has something to do.
    pub(crate) async fn wait(&mut self) {
        match &mut self.due {
            None => self.progress.reported().await,
            Some(due) => due.await,
        }
    }

    /// Something was reported: it is told when it is time. Or it is time.
    pub(crate) async fn go_on(&mut self) {
        if self.due.take().is_some() {
            return self.tell();
        }
        self.begin().await;
        let now = self.engine.0.env.monotonic();
        let next = self.told.map_or(now, |told| told + TOLD_EVERY);
        self.due = Some(self.engine.0.env.sleep(next.saturating_sub(now)));
    }

    /// The first report of a turn goes on from what the same try reported before.
    async fn begin(&mut self) {
        if !self.progress.needs_meter() {
            return;
        }
        let current = self.engine.current(self.job).await.ok().flatten();
        let kept = current.and_then(|current| current.progress);
        self.progress.set_meter(Meter::new(self.attempt, kept.as_ref()));
    }

    fn tell(&mut self) {
        let Some(progress) = self.progress.newest(self.engine) else { return };
        let now = self.engine.0.env.monotonic();
        self.told = Some(now);
        self.engine.0.hub.announce_progress(self.job, &progress);
        if self.kept.is_none_or(|kept| now >= kept + KEPT_EVERY) {
            self.kept = Some(now);
            if let Some(progress) = self.progress.unkept(self.engine) {
                let effect = Effect::Progress { job: self.job, progress };
                let committed = self.engine.0.store.commit(Effects::one(effect));
                // Whether it is kept is not worth waiting for; the next one will be.
                self.engine.spawn(async move { drop(committed.await) });
            }
        }
    }

    /// The turn was told to stand still, or to go on.
    pub(crate) fn signalled(&self, signal: Signal) {
        let now = self.engine.0.env.monotonic();
        match signal {
            Signal::Go => self.progress.runs(now),
            Signal::Pause | Signal::Stop => self.progress.stands(now),
        }
    }

    /// The last progress of a turn that ended.
    pub(crate) async fn last(&mut self) -> Option<Value> {
        self.begin().await;
        self.progress.newest(self.engine)
    }
}

/// Steps of an orchestration as progress.
pub(crate) fn of_steps(ended: usize, total: usize) -> Value {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let members = [("processedItems", number(ended)), ("totalItems", number(total))];
    members.into_iter().collect::<Map>().into()
}

impl Engine {
    /// Makes the newest progress of all that runs durable.
    pub(crate) async fn keep_progress(&self) {
        let kept = self.0.running.all().into_iter().filter_map(|(job, reins)| {
            let progress = reins.progress.unkept(self)?;
            Some(self.0.store.commit(Effects::one(Effect::Progress { job, progress })))
        });
        // Progress that cannot be kept is not worth more than the try.
        drop(futures_util::future::join_all(kept.collect::<Vec<_>>()).await);
    }
}
