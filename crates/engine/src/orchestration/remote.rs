//! The steps of an orchestration that run on other venues: one task each, which tells the weaver.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, RecordId, Status};
use catena_value::Value;
use tokio::sync::{Mutex, Notify, watch};

use super::elsewhere::{Held, RemoteSnapshot, has_open_away};
use super::weaver::News;
use crate::adapter::{Failure, RetryAdvice};
use crate::control::RunControl;
use crate::engine::Engine;
use crate::federation::{
    Delivery, Federation, PauseChange, REMOTE_CONFLICT, RemoteCall, RemoteJob, RemoteJobRef,
    RemoteReply, RemoteStart,
};

/// How long a beginning that nobody wants any more may take to say which job is to be cancelled.
const BEGIN_GRACE: Duration = Duration::from_secs(60);

/// The time between two changes of a job that are heard of, over time.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// How many of these may be heard of at once: a pause and a resume are several.
const LOOK_BURST: Duration = Duration::from_millis(1_500);

/// How long after a job that this venue paused could not be resumed it is tried again.
const RESUME_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long after a venue has not answered for long a message is offered to it again.
const DELIVER_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How often a job that nobody wants any more is cancelled before it is left to its venue.
const CANCEL_TRIES_MAX: u32 = 8;

/// The pause after the first of these; each next one is twice as long.
const CANCEL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a task does about a step.
pub(crate) enum Errand {
    /// Begins it and follows it to its end.
    Begin(Box<RemoteCall>),
    /// Follows a job that began before.
    Follow(Box<RemoteSnapshot>),
}

/// What a task tells.
pub(crate) enum Tidings {
    /// The step began.
    Started(Box<RemoteStart>),
    /// It stands like this.
    Seen(Box<RemoteJob>),
    /// A message to the whole was offered to it.
    Delivered {
        /// The message's number.
        number: u64,
        /// What became of it; a failure when the venue did not answer.
        delivery: Result<Delivery, Failure>,
    },
    /// It cannot go on.
    Failed(Failure),
}

/// What somebody takes along to another venue.
pub(crate) struct Orders {
    /// Pausing and sleeping.
    pub(crate) control: RunControl,
    /// Changes when another is sent instead, and closes when the weaver has gone.
    pub(crate) recall: watch::Receiver<()>,
    /// What all who are sent for this step share.
    pub(crate) post: Arc<Post>,
    /// What the job has to be told first: whoever was there before may not have said it.
    pub(crate) hold: PauseChange,
}

/// What all who are sent for one step share.
#[derive(Default)]
pub(crate) struct Post {
    /// Whoever holds or releases the job there holds this, so that the other venue hears it in the
    /// order in which it was said.
    turn: Mutex<()>,
    /// Told when the job is likely to stand elsewhere soon.
    pub(crate) nudge: Notify,
}

/// A step on another venue, for whoever was sent there.
struct Mission {
    engine: Engine,
    federation: Arc<dyn Federation>,
    parent: JobId,
    step: u32,
    /// The job there, asked about without regard to pauses here.
    urgent: RemoteJobRef,
    orders: Orders,
}

impl Engine {
    /// Sends somebody to another venue for a step.
    pub(crate) fn send_out(&self, parent: JobId, step: u32, errand: Errand, orders: Orders) {
        let engine = self.clone();
        self.spawn(async move {
            let tell = |tidings| engine.0.weavers.tell(parent, News::Remote(step, tidings));
            if let Err(failure) = engine.run_errand(parent, step, errand, orders).await {
                tell(Tidings::Failed(failure));
            }
        });
    }

    async fn run_errand(
        &self,
        parent: JobId,
        step: u32,
        errand: Errand,
        mut orders: Orders,
    ) -> Result<(), Failure> {
        let federation = self.road()?;
        let known = match errand {
            Errand::Follow(known) => known,
            Errand::Begin(call) => {
                let place = call.venue.clone();
                let begin = federation.begin(*call);
                let Some(start) = self.until_begun(begin, &mut orders).await? else {
                    return Ok(());
                };
                let known = Box::new(RemoteSnapshot::first(&start, &place, self.now()));
                let tidings = Tidings::Started(Box::new(start));
                self.0.weavers.tell(parent, News::Remote(step, tidings));
                known
            }
        };
        let urgent = self.visit(&known, self.0.free.clone());
        Mission { engine: self.clone(), federation, parent, step, urgent, orders }.stay(known).await
    }

    /// Offers a message to a step on another venue, and tells the weaver what became of it. It is
    /// on the whole's queue until that is recorded: a crash in between offers it again, under the
    /// same ID.
    pub(crate) fn deliver_out(
        &self,
        parent: JobId,
        step: u32,
        (number, message): (u64, Value),
        known: &RemoteSnapshot,
        control: RunControl,
    ) {
        let visit = self.visit(known, control);
        let engine = self.clone();
        self.spawn(async move {
            let delivery = match engine.road() {
                Ok(federation) => federation.send(visit, message).await,
                Err(failure) => Err(failure),
            };
            let delivery = match delivery {
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => {
                    engine.0.env.sleep(DELIVER_AGAIN_AFTER).await;
                    Err(failure)
                }
                Err(failure) => Ok(Delivery::Refused(failure)),
                done => done,
            };
            let tidings = Tidings::Delivered { number, delivery };
            engine.0.weavers.tell(parent, News::Remote(step, tidings));
        });
    }

    fn road(&self) -> Result<Arc<dyn Federation>, Failure> {
        let text = "this venue cannot reach others";
        let missing = || Failure::new("federation_unavailable", text);
        self.0.catalogue.federation().ok_or_else(missing)
    }

    fn visit(&self, known: &RemoteSnapshot, control: RunControl) -> RemoteJobRef {
        RemoteJobRef {
            venue: known.place.clone(),
            did: known.venue.clone(),
            job: known.job,
            requester: known.requester,
            identity: self.0.identity.clone(),
            control,
        }
    }

    /// Cancels a job that nobody waits for any more, and keeps what became of it: the parent's
    /// chain has ended.
    pub(crate) async fn give_up(&self, parent: JobId, step: u32, mut known: RemoteSnapshot) {
        let Ok(federation) = self.road() else { return };
        let visit = self.visit(&known, self.0.free.clone());
        let mut pause = CANCEL_AGAIN_AFTER;
        for _ in 0..CANCEL_TRIES_MAX {
            match federation.cancel(visit.clone()).await {
                Ok(seen) => known = RemoteSnapshot { seen, at: self.now(), ..known },
                Err(_) if self.is_stopping() => return,
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => {
                    self.0.env.sleep(pause).await;
                    pause *= 2;
                    continue;
                }
                Err(failure) => {
                    let error = &failure.error;
                    tracing::warn!(job = %parent, step, %error, "a step elsewhere is left to its venue");
                }
            }
            break;
        }
        self.keep_late(parent, step, &known).await;
        self.is_not_unwanted(parent, step).await;
    }

    /// Cancels everything elsewhere that was given up and could not be cancelled before this venue
    /// stopped.
    pub(crate) async fn give_up_again(&self) {
        let unwanted = match self.all_unwanted().await {
            Ok(unwanted) => unwanted,
            Err(trouble) => {
                tracing::error!(%trouble, "what is to be cancelled elsewhere cannot be read");
                return;
            }
        };
        for (parent, step, known) in unwanted {
            let engine = self.clone();
            self.spawn(async move { engine.give_up(parent, step, known).await });
        }
    }

    /// Gives up the steps of a job elsewhere that nobody here follows, because it was paused when
    /// this venue stopped.
    pub(crate) async fn give_up_unfollowed(&self, job: &Job) {
        if !has_open_away(job) || self.0.weavers.has(job.id()) {
            return;
        }
        for (step, state) in job.steps() {
            if state.end.is_some() || state.start.venue.is_none() {
                continue;
            }
            if let Ok(Some((known, _))) = self.snapshot(job.id(), *step).await {
                let (engine, parent, step) = (self.clone(), job.id(), *step);
                self.spawn(async move { engine.give_up(parent, step, known).await });
            }
        }
    }

    /// The beginning of a job; nothing when somebody else is sent for it. It is waited for even
    /// when the step was given up, because only then is it known what to cancel.
    async fn until_begun(
        &self,
        mut begin: RemoteReply<RemoteStart>,
        orders: &mut Orders,
    ) -> Result<Option<RemoteStart>, Failure> {
        let is_gone = tokio::select! {
            start = &mut begin => return start.map(Some),
            recalled = orders.recall.changed() => recalled.is_err(),
        };
        if !is_gone {
            return Ok(None);
        }
        tokio::select! {
            start = begin => start.map(Some),
            () = self.0.env.sleep(BEGIN_GRACE) => Ok(None),
        }
    }
}

impl RemoteSnapshot {
    /// A job that has just begun.
    pub(crate) fn first(start: &RemoteStart, place: &str, at: i64) -> RemoteSnapshot {
        RemoteSnapshot {
            job: start.job,
            venue: start.venue.clone(),
            place: place.to_owned(),
            requester: start.requester,
            seen: start.seen.clone(),
            at,
        }
    }
}

impl Mission {
    /// Follows the job to its end and tells it meanwhile when it is to stand still.
    async fn stay(mut self, mut known: Box<RemoteSnapshot>) -> Result<(), Failure> {
        let mut known_as = (known.seen.status, known.seen.record);
        if known_as.0.is_terminal() {
            // It ended while it was begun.
            self.tell(known.seen.clone());
            return Ok(());
        }
        let mut is_owed = self.hold(self.orders.hold).await;
        let mut look = self.look(known_as);
        // Until when the changes that were heard of are paid for.
        let mut paid = Duration::ZERO;
        loop {
            let again = self.engine.0.env.sleep(RESUME_AGAIN_AFTER);
            tokio::select! {
                seen = &mut look => {
                    let seen = seen?;
                    known_as = (seen.status, seen.record);
                    *known = RemoteSnapshot { seen, at: self.engine.now(), ..*known };
                    self.tell(known.seen.clone());
                    if known_as.0.is_terminal() {
                        return Ok(());
                    }
                    let now = self.engine.0.env.monotonic();
                    look = self.look_after(paid.saturating_sub(now + LOOK_BURST), known_as);
                    paid = paid.max(now) + LOOK_AGAIN_AFTER;
                }
                recalled = self.orders.recall.changed() => {
                    // A venue that stops gives nothing up: the next life goes on with it.
                    if recalled.is_err() && !self.engine.is_stopping() {
                        self.engine.give_up(self.parent, self.step, *known).await;
                    }
                    return Ok(());
                }
                () = self.orders.post.nudge.notified() => look = self.look(known_as),
                hold = self.orders.control.turned() => is_owed = self.hold(hold).await,
                () = again, if is_owed => is_owed = self.hold(PauseChange::Resume).await,
            }
        }
    }

    fn tell(&self, seen: RemoteJob) {
        let tidings = Tidings::Seen(Box::new(seen));
        self.engine.0.weavers.tell(self.parent, News::Remote(self.step, tidings));
    }

    /// The job when it stands elsewhere; asked about only while the whole is not paused.
    fn look(&self, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let control = self.orders.control.clone();
        self.federation.look(RemoteJobRef { control, ..self.urgent.clone() }, known)
    }

    /// The same after a while: a venue whose job never stands still keeps nobody busy.
    fn look_after(&self, pause: Duration, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let (look, control) = (self.look(known), self.orders.control.clone());
        Box::pin(async move {
            control.sleep(pause).await;
            look.await
        })
    }

    /// Pauses or resumes the job. Whether a resume is still owed.
    async fn hold(&self, hold: PauseChange) -> bool {
        let _turn = self.orders.post.turn.lock().await;
        let done = match hold {
            PauseChange::Pause => self.pause().await.map(|()| false),
            PauseChange::Resume => self.resume().await,
        };
        done.unwrap_or_else(|trouble| {
            let job = self.parent;
            tracing::warn!(%job, step = self.step, %trouble, "a step elsewhere is not held");
            false
        })
    }

    /// Pauses the job, unless it stands still already by itself. That this venue wants it paused
    /// is remembered before it is asked for, or a crash would leave it paused for ever.
    async fn pause(&self) -> Result<(), crate::error::StoreError> {
        let (engine, parent, step) = (&self.engine, self.parent, self.step);
        let held = engine.held(parent, step).await?;
        if let Some(Held::Since(_)) = held {
            return Ok(());
        }
        if held.is_none() {
            match self.federation.see(self.urgent.clone()).await {
                Ok(seen) if seen.status == Status::Paused || seen.status.is_terminal() => {
                    return Ok(());
                }
                // As far as it can be reached.
                Err(_) => return Ok(()),
                Ok(_) => engine.set_held(parent, step, Some(Held::Asked)).await?,
            }
        }
        match self.federation.hold(self.urgent.clone(), PauseChange::Pause).await {
            Ok(seen) => engine.set_held(parent, step, Some(Held::Since(seen.record))).await,
            // It was asked for before, and nobody knows whether that is why the job stands still.
            Err(failure) if failure.code == REMOTE_CONFLICT && held.is_none() => {
                engine.set_held(parent, step, None).await
            }
            Err(_) => Ok(()),
        }
    }

    /// Resumes the job if it is this venue that paused it. Whether that is still owed.
    async fn resume(&self) -> Result<bool, crate::error::StoreError> {
        let (engine, parent, step) = (&self.engine, self.parent, self.step);
        let Some(held) = engine.held(parent, step).await? else { return Ok(false) };
        let seen = match self.federation.see(self.urgent.clone()).await {
            Ok(seen) => seen,
            Err(failure) => return Ok(failure.retry == RetryAdvice::MaySucceed),
        };
        let is_ours = match held {
            Held::Asked => true,
            Held::Since(record) => record == seen.record,
        };
        if seen.status == Status::Paused && is_ours {
            match self.federation.hold(self.urgent.clone(), PauseChange::Resume).await {
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => return Ok(true),
                _ => self.orders.post.nudge.notify_one(),
            }
        }
        engine.set_held(parent, step, None).await?;
        Ok(false)
    }
}
