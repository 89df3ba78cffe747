//! The task that runs an orchestration: it hears what happens to the sub-jobs, lets the weave
//! decide, and commits what it decided.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, Status};
use catena_store::{CommitError, Effect, Effects};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};

use super::letters::Letter;
use super::remote::{Errand, Orders, Post, Tidings};
use super::weave::{Batch, Weave};
use super::{CONCURRENT_MAX, depth_of, targets::Targets};
use crate::adapter::Failure;
use crate::caller::{Caller, Role};
use crate::change::{Current, Draft, waits_for_message};
use crate::control::Signal;
use crate::engine::Engine;
use crate::env::Task;
use crate::error::{InvokeError, StoreError};
use crate::federation::PauseChange;
use crate::idempotency::uncommitted;
use crate::operation::Operation;
use crate::progress::of_steps;
use crate::request::{Invoke, JobView};
use crate::rerun::Reused;
use crate::run::{Run, too_long};
use crate::sealed;
use crate::submit::outcome;

/// How long to wait before something that could not be stored is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a weaver hears.
pub(crate) enum News {
    /// A sub-job is now like this.
    Child(JobView),
    /// A message came for the whole.
    Message,
    /// Something became of a step on another venue.
    Remote(u32, Tidings),
}

/// Those who run orchestrations in this process. What a weaver hears is bounded by what its
/// sub-jobs do, and they by the limits on steps and history.
#[derive(Default)]
pub(crate) struct Weavers(Mutex<HashMap<JobId, Listed>>);

struct Listed {
    news: UnboundedSender<News>,
    budget: Arc<Semaphore>,
}

impl Weavers {
    /// Tells the weaver of a job something, if it has one here. Whether it has.
    pub(crate) fn tell(&self, job: JobId, news: News) -> bool {
        let listed = self.0.lock();
        // A weaver that has gone needs no news.
        listed.get(&job).is_some_and(|listed| listed.news.send(news).is_ok())
    }

    /// Whether a job has a weaver here.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.0.lock().contains_key(&job)
    }

    /// The budget of the root that a job belongs to: its parent's, or one of its own.
    fn budget(&self, parent: Option<JobId>) -> Arc<Semaphore> {
        let listed = self.0.lock();
        match parent.and_then(|parent| listed.get(&parent)) {
            Some(parent) => Arc::clone(&parent.budget),
            None => Arc::new(Semaphore::new(CONCURRENT_MAX)),
        }
    }
}

/// A weaver's place in the list.
struct Hearing {
    engine: Engine,
    job: JobId,
    news: UnboundedReceiver<News>,
}

impl Hearing {
    fn new(engine: &Engine, job: JobId, budget: Arc<Semaphore>) -> Hearing {
        let (sender, news) = unbounded_channel();
        engine.0.weavers.0.lock().insert(job, Listed { news: sender, budget });
        Hearing { engine: engine.clone(), job, news }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.engine.0.weavers.0.lock().remove(&self.job);
    }
}

/// An orchestration that is under way.
pub(crate) struct Weaver {
    pub(super) run: Run,
    pub(super) weave: Weave,
    hearing: Hearing,
    /// Those it sent to other venues.
    pub(super) envoys: Envoys,
    /// The message that is on its way to one.
    pub(super) letter: Option<Letter>,
    /// Whether the weave may not be what is stored, because a commit failed.
    is_stale: bool,
    /// Messages that wait for the whole, as far as is known: its end counts and drops them.
    pub(super) waiting: u32,
}

/// Those who were sent to other venues.
#[derive(Default)]
pub(super) struct Envoys {
    /// Changes when others are sent in their place; closes when the weaver goes.
    recall: watch::Sender<()>,
    /// Per step: what all who are sent for it share.
    posts: HashMap<u32, Arc<Post>>,
}

impl Envoys {
    /// What all who are sent for a step share.
    pub(super) fn post(&mut self, step: u32) -> Arc<Post> {
        Arc::clone(self.posts.entry(step).or_default())
    }
}

/// What an orchestration begins with.
pub(crate) struct Begun<'a> {
    /// The operations of its steps.
    pub(crate) targets: Targets,
    /// What it takes over from an earlier run.
    pub(crate) reused: &'a [Reused],
    /// How long it may run.
    pub(crate) limit: Duration,
}

/// Whether a weaver has more to do.
pub(super) enum Next {
    Listen,
    Over,
}

impl Engine {
    /// Begins an orchestration: as much as can be done at once is one commit.
    pub(crate) async fn begin_orchestration(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        draft: Draft,
        begun: Begun<'_>,
    ) -> Result<JobView, InvokeError> {
        let Begun { targets, reused, limit } = begun;
        let Some(plan) = operation.plan().cloned() else {
            return Err(InvokeError::Invalid("not an orchestration".into()));
        };
        let mut draft = draft;
        let job = draft.job().id();
        let held = self.0.running.take(job, None).ok_or(StoreError::Contended)?;
        let budget = self.0.weavers.budget(draft.job().parent().map(|parent| parent.job));
        let hearing = Hearing::new(self, job, Arc::clone(&budget));
        let (caller, input) = (request.caller.clone(), request.input.clone());
        let mut weave = Weave::new(self, &operation, &plan, targets, caller, input, budget);
        for reused in reused.iter().cloned() {
            // The other run may be deleted before this one has ended.
            if let Some(known) = &reused.away {
                draft.with(known.keep(job, reused.step, None));
            }
            weave.reuse(reused);
        }
        let mut batch = weave.advance(self, &mut draft)?;
        let errands = std::mem::take(&mut batch.errands);
        let committed = self.commit_batch(draft, batch, &request.caller).await;
        let view = committed.map_err(uncommitted::<InvokeError>)?;
        if !view.status().is_terminal() {
            let run = Run {
                job: (*view.job).clone(),
                cells: None,
                operation,
                caller: request.caller.clone(),
                input: request.input.clone(),
                cause: crate::adapter::Cause::Start,
                left: limit,
                held,
                slot: None,
            };
            let mut weaver = Weaver::new(run, weave, hearing);
            weaver.send_out(self, errands);
            self.spawn(weaver.work(self.clone()));
        } else if weave.cancels_on_failure() {
            self.end_children(&view.job, "a step of the same job failed").await;
        }
        Ok(view)
    }

    /// Commits parent and children together, then begins what is to run.
    async fn commit_batch(
        &self,
        mut parent: Draft,
        batch: Batch,
        caller: &Caller,
    ) -> Result<JobView, CommitError> {
        let is_new = parent.is_new();
        let is_beside = parent.is_beside();
        self.erase_secrets(&mut parent).await;
        let (mut effects, view) = parent.into_parts();
        let mut children = Vec::with_capacity(batch.children.len());
        for child in batch.children {
            let (more, child) = child.into_parts();
            effects.extend(more);
            children.push(child);
        }
        self.0.store.commit(Effects(effects)).await?;
        for child in &children {
            self.is_durable(child, true);
        }
        match is_beside {
            true => self.0.hub.announce_beside(view.job.id()),
            false => self.is_durable(&view, is_new),
        }
        let mut views: HashMap<JobId, JobView> =
            children.into_iter().map(|child| (child.job.id(), child)).collect();
        for job in &batch.queued {
            if let Some(child) = views.get(job) {
                self.has_queued(&child.job);
            }
        }
        for run in batch.runs {
            if let Some(child) = views.remove(&run.job) {
                self.spawn(run.into_run(self, caller, &child).carry_out_boxed(self.clone()));
            }
        }
        Ok(view)
    }

    /// Goes on with an orchestration that nobody runs, from what is stored.
    pub(crate) async fn weave_on(&self, mut run: Run) -> Result<(), StoreError> {
        let Some(plan) = run.operation.plan().cloned() else { return Ok(()) };
        let job = run.job.id();
        if run.job.field(sealed::DELEGATED).is_some() && run.caller.delegations.is_empty() {
            let Some(delegations) = sealed::delegations(self, job).await? else {
                // Without them its steps would be somebody else's over there.
                let text = "the delegations that came with it cannot be opened";
                self.fail_run(&run, Failure::new("incomplete_payload", text)).await?;
                return Ok(());
            };
            run.caller.delegations = delegations;
        }
        let targets = match self.targets(&run.caller, &run.operation, depth_of(&run.job)).await? {
            Ok(targets) => targets,
            Err(problems) => {
                let failure = Failure::new("step_gone", problems);
                self.fail_run(&run, failure).await?;
                return Ok(());
            }
        };
        let budget = self.0.weavers.budget(run.job.parent().map(|parent| parent.job));
        let hearing = Hearing::new(self, job, Arc::clone(&budget));
        let (caller, input) = (run.caller.clone(), run.input.clone());
        let mut weave = Weave::new(self, &run.operation, &plan, targets, caller, input, budget);
        weave.catch_up(self, &run.known_current()).await?;
        Weaver::new(run, weave, hearing).work(self.clone()).await;
        Ok(())
    }

    async fn fail_run(&self, run: &Run, failure: Failure) -> Result<(), StoreError> {
        self.change(run.job.id(), None, |current| {
            if current.job.status() != Status::Started {
                return Ok(None);
            }
            let mut draft = current.draft();
            let ending = outcome(Err(failure.clone()), self.now());
            draft.append(ending).map_err(crate::run::unwritten)?;
            Ok::<_, StoreError>(Some(draft))
        })
        .await?;
        Ok(())
    }

    /// Ends the sub-jobs of a job that has ended, and theirs.
    pub(crate) fn end_children(&self, job: &Job, reason: &str) -> Task {
        let (parent, children) = (job.id(), open_children(job));
        let (engine, reason) = (self.clone(), reason.to_owned());
        Box::pin(async move {
            let caller = engine.itself();
            let all = children.iter().map(|child| {
                let reason = Some(reason.clone());
                engine.cancel(&caller, *child, reason)
            });
            drop(futures_util::future::join_all(all).await);
            if !children.is_empty() {
                engine.looks_different(parent).await;
            }
        })
    }

    /// Notes that a job that has ended shows something else than before, because of its steps:
    /// whoever asks by its entity tag must be told.
    pub(crate) fn looks_different(&self, job: JobId) -> Task {
        let engine = self.clone();
        Box::pin(async move {
            let noted = engine.0.store.commit(Effects(vec![Effect::Touch { job }])).await;
            // One that is gone shows nothing any more.
            if let Err(error) = noted
                && !matches!(error, CommitError::NoSuchJob { .. })
            {
                tracing::warn!(%job, %error, "a change of its steps is not counted");
            }
        })
    }

    /// Pauses or resumes the sub-jobs of a job.
    pub(crate) fn hold_children(&self, job: &Job, signal: Signal) -> Task {
        let children: Vec<JobId> = open_children(job);
        let engine = self.clone();
        Box::pin(async move {
            let caller = engine.itself();
            let all = children.iter().map(async |child| {
                // One that stands elsewhere by now is left as it is.
                match signal {
                    Signal::Pause => drop(engine.pause(&caller, *child).await),
                    _ => drop(engine.resume(&caller, *child).await),
                }
            });
            futures_util::future::join_all(all).await;
        })
    }

    /// The venue, when it acts on sub-jobs for their parent.
    pub(crate) fn itself(&self) -> Caller {
        Caller { did: self.0.did.clone(), role: Role::Admin, delegations: Vec::new() }
    }
}

/// What a job elsewhere has to be told, given how its parent stands.
fn hold_of(parent: &Job) -> PauseChange {
    match parent.status() {
        Status::Paused => PauseChange::Pause,
        _ => PauseChange::Resume,
    }
}

/// The sub-jobs of a job that have begun here and, as far as its chain says, not ended.
fn open_children(job: &Job) -> Vec<JobId> {
    let is_open =
        |step: &&catena_job::chain::StepState| step.end.is_none() && step.start.venue.is_none();
    job.steps().values().filter(is_open).map(|step| step.start.job).collect()
}

impl Weaver {
    fn new(run: Run, weave: Weave, hearing: Hearing) -> Weaver {
        let envoys = Envoys::default();
        Weaver { run, weave, hearing, envoys, letter: None, is_stale: false, waiting: 0 }
    }

    /// Works until the orchestration ends or is stopped.
    async fn work(mut self, engine: Engine) {
        let reins = Arc::clone(&self.run.held.reins);
        let control = reins.control(&engine.0.env);
        let mut signal: watch::Receiver<Signal> = reins.watch();
        let limit = control.sleep(self.run.left);
        let mut limit = Box::pin(limit);
        let mut stopped = Box::pin(reins.stopped());
        loop {
            match self.advance(&engine).await {
                Ok(Next::Listen) => {}
                Ok(Next::Over) => return,
                Err(trouble @ (StoreError::Busy | StoreError::Full)) => {
                    tracing::warn!(job = %self.run.job.id(), %trouble, "an orchestration waits");
                    engine.0.env.sleep(AGAIN_AFTER).await;
                    continue;
                }
                Err(trouble) => {
                    let job = self.run.job.id();
                    tracing::error!(%job, %trouble, "an orchestration cannot go on");
                    return;
                }
            }
            tokio::select! {
                biased;
                () = &mut stopped => return,
                () = &mut limit => return self.time_is_up(&engine).await,
                news = self.hearing.news.recv() => self.hear(&engine, news),
                // Resumed: what waited may begin.
                _ = signal.changed() => {}
            }
            while let Ok(news) = self.hearing.news.try_recv() {
                self.hear(&engine, Some(news));
            }
        }
    }

    /// Sends somebody out for each step that runs elsewhere.
    fn send_out(&mut self, engine: &Engine, errands: Vec<(u32, Errand)>) {
        let control = self.run.held.reins.control(&engine.0.env);
        for (step, mut errand) in errands {
            if let Errand::Begin(call) = &mut errand {
                call.control = control.clone();
            }
            let orders = Orders {
                control: control.clone(),
                recall: self.envoys.recall.subscribe(),
                post: self.envoys.post(step),
                hold: hold_of(&self.run.job),
            };
            engine.send_out(self.run.job.id(), step, errand, orders);
        }
    }

    fn hear(&mut self, engine: &Engine, news: Option<News>) {
        match news {
            Some(News::Child(view)) => {
                if let Some(parent) = view.job.parent() {
                    let step = parent.step;
                    self.weave.learn(step, &view, false);
                }
            }
            Some(News::Remote(step, tidings)) => {
                if let Some(tidings) = self.hear_of_letter(step, tidings) {
                    self.weave.learn_remote(&self.run.job, step, tidings, engine.now());
                }
            }
            Some(News::Message) | None => {}
        }
    }

    async fn time_is_up(self, engine: &Engine) {
        let id = self.run.job.id();
        let error = too_long(self.run.left);
        if let Err(trouble) = engine.expire_now(id, &error).await {
            tracing::error!(job = %id, %trouble, "an orchestration cannot be ended");
        }
    }

    /// Whether the job was resumed, but what we know of it is from before.
    fn has_been_resumed(&self) -> bool {
        let may_go = *self.run.held.reins.watch().borrow() == Signal::Go;
        self.run.job.status() == Status::Paused && may_go
    }

    /// Decides and commits, again and again, until there is nothing to decide.
    async fn advance(&mut self, engine: &Engine) -> Result<Next, StoreError> {
        if self.has_been_resumed() || std::mem::take(&mut self.is_stale) {
            self.start_over(engine).await?;
        }
        loop {
            let Some(next) = self.route(engine).await? else {
                self.start_over(engine).await?;
                continue;
            };
            if let Next::Over = next {
                return Ok(Next::Over);
            }
            let status = self.run.job.status();
            if status.is_terminal() {
                return Ok(Next::Over);
            }
            let asks = self.weave.asking().is_some();
            let should_ask = asks && status == Status::Started;
            let should_go_on =
                !asks && matches!(status, Status::InputRequired | Status::AuthRequired);
            if !self.weave.has_news() && !should_ask && !should_go_on {
                return Ok(Next::Listen);
            }
            let mut draft = self.current().draft();
            draft.fenced(self.run.held.reins.fence);
            let mut batch = self.weave.advance(engine, &mut draft)?;
            let errands = std::mem::take(&mut batch.errands);
            if draft.is_unchanged() {
                self.send_out(engine, errands);
                // Paused, or no room for more sub-jobs: something else must happen first.
                return Ok(Next::Listen);
            }
            if draft.job().status().is_terminal() && self.weave.cancels_on_failure() {
                let unwanted = engine.unwanted(draft.job()).await;
                unwanted.into_iter().for_each(|effect| draft.with(effect));
            }
            let caller = self.run.caller.clone();
            match engine.commit_batch(draft, batch, &caller).await {
                Ok(view) => {
                    self.run.job = (*view.job).clone();
                    let (ended, total) = self.weave.ended();
                    engine.0.hub.announce_progress(view.job.id(), &of_steps(ended, total));
                    if !view.status().is_terminal() {
                        self.send_out(engine, errands);
                    } else {
                        self.let_go(engine, &view.job).await;
                        return Ok(Next::Over);
                    }
                }
                // It is gone, has ended, or is another's by now.
                Err(
                    CommitError::HeadMoved { found: None, .. }
                    | CommitError::NoSuchJob { .. }
                    | CommitError::Fenced { .. },
                ) => return Ok(Next::Over),
                Err(
                    CommitError::HeadMoved { .. }
                    | CommitError::QueueMoved { .. }
                    | CommitError::RootMoved { .. },
                ) => {
                    if let Next::Over = self.start_over(engine).await? {
                        return Ok(Next::Over);
                    }
                }
                Err(error) => {
                    // What was decided is lost with the commit.
                    self.is_stale = true;
                    return Err(error.into());
                }
            }
        }
    }

    /// Ends what still runs of a job that has ended, or leaves it, as the definition says.
    async fn let_go(&self, engine: &Engine, job: &Job) {
        if self.weave.cancels_on_failure() {
            engine.end_children(job, "a step of the same job failed").await;
        } else {
            // Those who are recalled leave the jobs elsewhere alone.
            self.envoys.recall.send_replace(());
        }
    }

    /// Hands a message that came for the whole to the step that waits for one. Nothing when the
    /// job is no longer what we know.
    async fn route(&mut self, engine: &Engine) -> Result<Option<Next>, StoreError> {
        let status = self.run.job.status();
        if let Some(settled) = self.settle(engine).await? {
            return Ok(settled.then_some(Next::Listen));
        }
        let Some((_, asking)) = self.weave.asking().filter(|_| waits_for_message(status)) else {
            return Ok(Some(Next::Listen));
        };
        let is_away = asking.is_away;
        let id = self.run.job.id();
        let Some(message) = engine.0.store.messages(id, 1).await?.into_iter().next() else {
            return Ok(Some(Next::Listen));
        };
        if is_away {
            return self.route_away(engine, message).await;
        }
        let current = self.current();
        let Some((mut draft, child)) = self.weave.route(engine, &current, message)? else {
            return Ok(Some(Next::Listen));
        };
        draft.fenced(self.run.held.reins.fence);
        match engine.commit(draft).await {
            Ok((view, _)) => {
                self.run.job = (*view.job).clone();
                self.waiting = self.waiting.saturating_sub(1);
                engine.spawn(engine.wake(child, None));
                Ok(Some(Next::Listen))
            }
            Err(
                CommitError::HeadMoved { .. }
                | CommitError::NotNext { .. }
                | CommitError::Ended { .. }
                | CommitError::DuplicateMessage { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The whole, as far as the weaver knows.
    pub(super) fn current(&self) -> Current {
        let mut current = Current::known(self.run.job.clone());
        current.cells = self.run.cells.clone();
        current.queue_depth = self.waiting;
        current
    }

    /// Somebody else changed the job: the weave is made anew from what is stored.
    async fn start_over(&mut self, engine: &Engine) -> Result<Next, StoreError> {
        let id = self.run.job.id();
        let Some(current) = engine.current(id).await? else { return Ok(Next::Over) };
        if current.job.status().is_terminal() {
            return Ok(Next::Over);
        }
        self.run.job = Arc::unwrap_or_clone(current.job);
        self.run.cells = current.cells;
        self.waiting = current.queue_depth;
        // What the envoys told may be lost with the old weave: others are sent.
        self.envoys.recall.send_replace(());
        // The places that the old one held are free for the new one.
        self.weave = self.weave.afresh(engine);
        self.weave.catch_up(engine, &self.run.known_current()).await?;
        Ok(Next::Listen)
    }
}
