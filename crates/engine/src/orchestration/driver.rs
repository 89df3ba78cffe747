//! The task that drives an orchestration: it receives events of the sub-jobs, lets the state decide,
//! and commits what it decided.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, Status};
use catena_store::{CommitError, Effect, Hold};

use crate::error::{InvokeError, StoreError};
use crate::execution::{Execution, Run, RunSpec, TreePosition, step_progress};
use crate::jobs::{
    CommitFailure, Current, DELEGATED, Draft, ReusedStep, incomplete_payload, is_live,
    storage_full, too_many_sub_jobs, unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::federation::PauseChange;
use crate::operations::{Cause, Failure, Operation, Signal};
use crate::orchestration::Orchestration;
use crate::orchestration::budget::ROOM_CHECK_INTERVAL;
use crate::orchestration::drivers::{DriverEvent, Subscription};
use crate::orchestration::preflight::Targets;
use crate::orchestration::remote::{PendingDelivery, RemoteTasks, RemoteWork, TaskContext};
use crate::orchestration::share::Share;
use crate::orchestration::state::{Batch, OrchestrationState};
use crate::requests::{Caller, Invoke, JobView, commit_error};

/// How long an orchestration is driven without an event before it is parked.
const PARK_AFTER: Duration = Duration::from_secs(5);

/// How long to wait before a commit is tried again that the store had no capacity for.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// An orchestration that runs in this process.
pub(super) struct OrchestrationDriver {
    pub(super) run: Run,
    pub(super) state: OrchestrationState,
    pub(super) subscription: Subscription,
    /// The tasks of remote steps.
    pub(super) remote_tasks: RemoteTasks,
    /// The message that is being delivered to a remote step.
    pub(super) delivery: Option<PendingDelivery>,
    /// True if the state may differ from the store because a commit failed.
    pub(super) is_stale: bool,
    /// The number of messages that are queued for the orchestration, as far as is known: its end
    /// counts and discards them.
    pub(super) queue_depth: u32,
}

/// What an orchestration starts with.
pub(crate) struct StartOptions<'a> {
    /// The operations of its steps.
    pub(crate) targets: Targets,
    /// The steps whose outputs it reuses.
    pub(crate) reused: &'a [ReusedStep],
    /// How long it may run.
    pub(crate) limit: Duration,
}

/// What a driver does next.
pub(super) enum Next {
    /// Wait for the next event.
    Listen,
    /// Stop: the orchestration has ended or belongs to another process.
    Over,
}

impl Orchestration {
    /// Starts an orchestration. As much as can be decided at once is one commit.
    pub(crate) async fn start(
        self: &Arc<Self>,
        request: &Invoke,
        operation: Arc<Operation>,
        mut draft: Draft,
        options: StartOptions<'_>,
    ) -> Result<JobView, InvokeError> {
        let StartOptions { targets, reused, limit } = options;
        let Some(plan) = operation.plan().cloned() else {
            return Err(InvokeError::Invalid("not an orchestration".into()));
        };
        let job = draft.job().id();
        let guard = self.execution.acquire(&mut draft);
        guard.handle.leave_time_to_store();
        let budget = self.new_budget(job);
        let subscription = self.drivers.subscribe(job);
        let memory = self.runtime.memory.open(request.caller.did.text());
        let mut state = OrchestrationState::new(
            Share { job, root: job, budget, memory },
            self.jobs.store.cells(),
            &operation,
            &plan,
            targets,
            request.caller.clone(),
            request.input.clone(),
        );
        for reused in reused.iter().cloned() {
            // The earlier run may be deleted before this one has ended.
            if let Some(remote) = &reused.remote {
                draft.add(remote.store(job, reused.step, None));
            }
            state.reuse(reused);
        }
        let mut batch = state.advance(&**self, &mut draft)?;
        let remote_work = std::mem::take(&mut batch.remote_work);
        let cancels = cancel_open_steps(&self.execution, &state, &mut draft).await?;
        let committed = self.commit_batch(draft, batch, &request.caller).await;
        let view = committed.map_err(commit_error::<InvokeError>)?;
        if !view.status().is_terminal() {
            let spec = RunSpec {
                operation,
                caller: request.caller.clone(),
                input: request.input.clone(),
                cause: Cause::Start,
                time_left: limit,
            };
            let run = Run::new(Arc::clone(&view.job), None, spec, guard);
            let mut driver = OrchestrationDriver::new(run, state, subscription);
            driver.spawn_remote_tasks(self, remote_work);
            self.runtime.spawn(self.runtime.work_on(job, driver.drive(Arc::clone(self))));
        } else {
            self.notify_room(state.budget.release_all(job));
            if cancels {
                self.execution.carry_out(job).await;
            }
        }
        Ok(view)
    }

    /// Commits a parent and its new children together, then starts their runs.
    async fn commit_batch(
        self: &Arc<Self>,
        parent: Draft,
        batch: Batch,
        caller: &Caller,
    ) -> Result<JobView, CommitError> {
        let committed = self.jobs.commit_tree(parent, batch.children).await?;
        let mut children: HashMap<JobId, JobView> =
            committed.children.into_iter().map(|child| (child.job.id(), child)).collect();
        for job in &batch.queued {
            if let Some(child) = children.get(job) {
                self.execution.notify_queued(&child.job);
            }
        }
        for run in batch.runs {
            if let Some(child) = children.remove(&run.job) {
                let run = run.into_run(&self.runtime.limits, caller, &child);
                self.runtime.spawn_task(run.execute(Arc::clone(&self.execution)));
            }
        }
        Ok(committed.view)
    }

    /// Continues an orchestration that has no driver, from what is stored. While the store is busy, it is tried again:
    /// this process holds the job, so nobody else would.
    pub(super) async fn resume_driver(self: &Arc<Self>, mut run: Run) -> Result<(), StoreError> {
        let handle = Arc::clone(&run.guard.handle);
        loop {
            match self.prepare_driver(&mut run).await {
                Ok(Some((state, subscription))) => {
                    let driver = OrchestrationDriver::new(run, state, subscription);
                    driver.drive(Arc::clone(self)).await;
                    return Ok(());
                }
                Ok(None) => return Ok(()),
                Err(error @ (StoreError::Busy | StoreError::Full | StoreError::Contended)) => {
                    tracing::warn!(job = %run.job.id(), %error, "an orchestration is delayed");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = handle.stopped() => return Ok(()),
                () = self.runtime.env.sleep(RETRY_DELAY) => {}
            }
        }
    }

    /// Returns the state of an orchestration as it is stored, and the events of its steps from now on. `None` if there
    /// is nothing to drive: it is none, or it has failed.
    async fn prepare_driver(
        self: &Arc<Self>,
        run: &mut Run,
    ) -> Result<Option<(OrchestrationState, Subscription)>, StoreError> {
        let Some(plan) = run.spec.operation.plan().cloned() else { return Ok(None) };
        let job = run.job.id();
        if run.job.field(DELEGATED).is_some() && run.spec.caller.delegations.is_empty() {
            let Some(delegations) = self.jobs.delegations_of(job).await? else {
                // Without its delegations, remote steps would run as another identity.
                let failure = incomplete_payload("its delegations cannot be decrypted");
                return self.fail_run(run, failure).await.map(|()| None);
            };
            run.spec.caller.delegations = delegations;
        }
        let TreePosition { root, depth } = self.execution.position_of(&run.job).await?;
        let checked = self.preflight_started(&run.spec.caller, &run.spec.operation, depth).await?;
        let targets = match checked {
            Ok(targets) => targets,
            Err(problems) => {
                let failure = Failure::new("step_gone", problems);
                return self.fail_run(run, failure).await.map(|()| None);
            }
        };
        run.guard.handle.leave_time_to_store();
        let budget = self.budget_of(root).await?;
        let subscription = self.drivers.subscribe(job);
        let memory = self.runtime.memory.open(run.spec.caller.did.text());
        let mut state = OrchestrationState::new(
            Share { job, root, budget, memory },
            self.jobs.store.cells(),
            &run.spec.operation,
            &plan,
            targets,
            run.spec.caller.clone(),
            run.spec.input.clone(),
        );
        state.catch_up(self, &run.current()).await?;
        Ok(Some((state, subscription)))
    }

    /// Fails an orchestration that cannot be driven. One that is paused fails once it is resumed.
    async fn fail_run(&self, run: &Run, failure: Failure) -> Result<(), StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(current) = self.jobs.current(run.job.id()).await? else { return Ok(()) };
            if !is_live(&current.job) || current.job.status() == Status::Paused {
                return Ok(());
            }
            if self.execution.fail_lost(&current, failure.clone()).await? {
                return Ok(());
            }
        }
        Err(StoreError::Contended)
    }
}

/// Adds to the change that ends an orchestration what follows for its open steps: they are
/// cancelled, or left running, as the definition says. Returns true if they are cancelled.
async fn cancel_open_steps(
    execution: &Execution,
    state: &OrchestrationState,
    draft: &mut Draft,
) -> Result<bool, StoreError> {
    if !draft.job().status().is_terminal() {
        return Ok(false);
    }
    if !state.cancels_on_failure() {
        draft.leave_remote_steps();
        return Ok(false);
    }
    execution.control_sub_jobs(draft).await
}

/// Returns whether a remote step has to be paused or resumed, by the status of its parent.
fn pause_change_for(parent: &Job) -> PauseChange {
    match parent.status() {
        Status::Paused => PauseChange::Pause,
        _ => PauseChange::Resume,
    }
}

impl OrchestrationDriver {
    fn new(run: Run, state: OrchestrationState, subscription: Subscription) -> Self {
        OrchestrationDriver {
            run,
            state,
            subscription,
            remote_tasks: RemoteTasks::default(),
            delivery: None,
            is_stale: false,
            queue_depth: 0,
        }
    }

    /// Drives the orchestration until it ends or is stopped.
    async fn drive(mut self, orchestration: Arc<Orchestration>) {
        let handle = Arc::clone(&self.run.guard.handle);
        let mut signal = handle.subscribe();
        let mut stopped = Box::pin(handle.stopped());
        let env = Arc::clone(&orchestration.runtime.env);
        let mut line_checked = env.monotonic();
        loop {
            match self.advance(&orchestration).await {
                Ok(Next::Listen) => {}
                Ok(Next::Over) => return,
                Err(error @ (StoreError::Busy | StoreError::Full)) => {
                    tracing::warn!(job = %self.run.job.id(), %error, "an orchestration is delayed");
                    orchestration.runtime.env.sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(error) => {
                    let job = self.run.job.id();
                    tracing::error!(%job, %error, "an orchestration cannot continue");
                    return;
                }
            }
            if self.may_park() && (self.state.waits_for_people() || self.is_paused()) {
                match self.park(&orchestration).await {
                    Ok(Some(driver)) => {
                        self = driver;
                        continue;
                    }
                    Ok(None) => return,
                    Err(error) => {
                        tracing::error!(%error, "an orchestration cannot be parked");
                        return;
                    }
                }
            }
            tokio::select! {
                biased;
                () = &mut stopped => return,
                event = self.subscription.events.recv() => self.handle(&orchestration, event),
                // Resumed: what is ready may start.
                _ = signal.changed() => self.is_stale |= self.was_resumed(),
                () = env.sleep(ROOM_CHECK_INTERVAL), if self.waits_for_room() => {}
                () = env.sleep(PARK_AFTER) => {
                    if self.may_park() {
                        match self.park(&orchestration).await {
                            Ok(Some(driver)) => self = driver,
                            _ => return,
                        }
                    }
                }
            }
            while let Ok(event) = self.subscription.events.try_recv() {
                self.handle(&orchestration, Some(event));
            }
            // Other events must not put the check off.
            if env.monotonic().saturating_sub(line_checked) >= ROOM_CHECK_INTERVAL {
                line_checked = env.monotonic();
                self.check_line(&orchestration).await;
            }
        }
    }

    /// Checks the line of those that wait for room, if this driver is one of them.
    async fn check_line(&self, orchestration: &Orchestration) {
        if !self.waits_for_room() {
            return;
        }
        let (root, budget) = self.state.root_budget();
        if let Err(error) = orchestration.check_budget(root, budget).await {
            tracing::warn!(%error, "cannot check what a root may run");
        }
    }

    /// Spawns a task for each remote step that has work.
    fn spawn_remote_tasks(
        &mut self,
        orchestration: &Arc<Orchestration>,
        work: Vec<(u32, RemoteWork)>,
    ) {
        let control = orchestration.control_of(&self.run.guard);
        for (step, mut work) in work {
            if let RemoteWork::Start(call) = &mut work {
                call.control = control.clone();
            }
            let context = TaskContext {
                control: control.clone(),
                replaced: self.remote_tasks.subscribe(),
                sync: self.remote_tasks.sync(step),
                pause: pause_change_for(&self.run.job),
            };
            orchestration.spawn_remote(self.run.job.id(), step, work, context);
        }
    }

    /// Applies an event to the state.
    fn handle(&mut self, orchestration: &Orchestration, event: Option<DriverEvent>) {
        match event {
            Some(DriverEvent::Child(view)) => {
                if let Some(parent) = view.job.parent() {
                    let step = parent.step();
                    if let Some(step) = step {
                        self.state.update(step, &view, false);
                    }
                }
            }
            Some(DriverEvent::Remote(step, event)) => {
                if let Some(event) = self.note_delivery(step, event) {
                    let now = orchestration.runtime.now();
                    self.state.update_remote(&self.run.job, step, event, now);
                }
            }
            Some(DriverEvent::Message | DriverEvent::Room) | None => {}
        }
    }

    /// Returns true if the job was resumed since it was last read.
    fn was_resumed(&self) -> bool {
        let may_run = self.run.guard.handle.signal() == Signal::Go;
        self.is_paused() && may_run
    }

    /// Returns true if the job is paused, as far as is known.
    fn is_paused(&self) -> bool {
        self.run.job.status() == Status::Paused
    }

    /// Returns true if nothing in memory is needed to continue the orchestration later: a driver that
    /// waits for room would lose its place in line.
    fn may_park(&self) -> bool {
        !self.state.has_open_remote()
            && self.delivery.is_none()
            && !self.is_stale
            && !self.waits_for_room()
    }

    /// Returns true if a step starts as soon as there is room for it.
    fn waits_for_room(&self) -> bool {
        self.state.wants_room() && !self.is_paused()
    }

    /// Decides and commits repeatedly, until there is nothing more to decide.
    async fn advance(&mut self, orchestration: &Arc<Orchestration>) -> Result<Next, StoreError> {
        if std::mem::take(&mut self.is_stale)
            && let Next::Over = self.reload(orchestration).await?
        {
            return Ok(Next::Over);
        }
        loop {
            let Some(next) = self.forward_message(orchestration).await? else {
                if let Next::Over = self.reload(orchestration).await? {
                    return Ok(Next::Over);
                }
                continue;
            };
            if let Next::Over = next {
                return Ok(Next::Over);
            }
            let status = self.run.job.status();
            if status.is_terminal() {
                return Ok(Next::Over);
            }
            if !self.state.needs_decision(&self.run.job) {
                orchestration.drivers.set_open(self.run.job.id(), self.state.open_sub_jobs());
                return Ok(Next::Listen);
            }
            let owner = &self.run.spec.caller.did;
            match orchestration.operations.check_stored_bytes(owner).await {
                Err(full @ StoreError::QuotaExceeded { .. }) if !self.state.ready.is_empty() => {
                    self.state.fail(storage_full(&full));
                }
                Ok(()) | Err(StoreError::QuotaExceeded { .. }) => {}
                Err(error) => return Err(error),
            }
            let mut draft = self.current().draft();
            let mut batch = self.state.advance(&**orchestration, &mut draft)?;
            let remote_work = std::mem::take(&mut batch.remote_work);
            for driver in self.state.take_room_for() {
                orchestration.notify_room(Some(driver));
            }
            if !self.waits_for_room() {
                let next = self.state.budget.leave(self.run.job.id());
                orchestration.notify_room(next);
            } else {
                orchestration.notify_other(self.state.budget.next(), self.run.job.id());
            }
            if draft.is_unchanged() {
                self.spawn_remote_tasks(orchestration, remote_work);
                orchestration.drivers.set_open(self.run.job.id(), self.state.open_sub_jobs());
                // Paused, or no room for more sub-jobs: another event must come first.
                return Ok(Next::Listen);
            }
            draft.set_hold(Hold::Under(self.run.guard.handle.fence));
            if !self.check_own_pause(orchestration, &mut draft).await? {
                match self.reload(orchestration).await? {
                    Next::Over => return Ok(Next::Over),
                    _ => continue,
                }
            }
            let cancelled = cancel_open_steps(&orchestration.execution, &self.state, &mut draft);
            // The decision is lost if it cannot be committed.
            let cancels = cancelled.await.inspect_err(|_| self.is_stale = true)?;
            let caller = self.run.spec.caller.clone();
            let committed = orchestration.commit_batch(draft, batch, &caller).await;
            if let Err(CommitError::TreeFull { max, .. }) = &committed {
                // The decision is lost with the commit; what runs already is cancelled.
                if let Next::Over = self.reload(orchestration).await? {
                    return Ok(Next::Over);
                }
                self.state.fail(too_many_sub_jobs(*max));
                continue;
            }
            match committed.map_err(CommitFailure::from) {
                Ok(view) => {
                    self.run.job = Arc::clone(&view.job);
                    let (ended, total) = self.state.progress();
                    let progress = step_progress(ended, total);
                    orchestration.jobs.watchers.announce_progress(view.job.id(), &progress);
                    if view.status().is_terminal() {
                        let next = self.state.budget.release_all(view.job.id());
                        orchestration.notify_room(next);
                        self.release_steps(orchestration, view.job.id(), cancels).await;
                        return Ok(Next::Over);
                    }
                    self.spawn_remote_tasks(orchestration, remote_work);
                }
                Err(CommitFailure::Gone) => return Ok(Next::Over),
                Err(CommitFailure::Conflict) => {
                    if let Next::Over = self.reload(orchestration).await? {
                        return Ok(Next::Over);
                    }
                }
                Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => {
                    // The decision is lost with the commit.
                    self.is_stale = true;
                    return Err(error);
                }
            }
        }
    }

    /// Cancels the open steps of a job that has ended, or leaves them running, as the definition
    /// says.
    async fn release_steps(&self, orchestration: &Orchestration, job: JobId, cancels: bool) {
        if cancels {
            orchestration.execution.carry_out(job).await;
        } else if !self.state.cancels_on_failure() {
            // Tasks that are replaced do not cancel their jobs.
            self.remote_tasks.replace();
        }
    }

    /// Makes a pause that the driver decided on its own depend on its reason: that the steps are still
    /// paused. Returns false if one of them is not.
    async fn check_own_pause(
        &self,
        orchestration: &Orchestration,
        draft: &mut Draft,
    ) -> Result<bool, StoreError> {
        let pauses =
            draft.job().status() == Status::Paused && self.run.job.status() != Status::Paused;
        for (_, job) in self.state.paused().filter(|_| pauses) {
            match orchestration.jobs.current(job).await? {
                Some(step) if step.job.status() == Status::Paused => {
                    draft.add(Effect::CheckHead { job, head: step.job.head() });
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Forwards the next message of the orchestration to the step that waits for one. Returns `None`
    /// if the job has changed.
    async fn forward_message(
        &mut self,
        orchestration: &Arc<Orchestration>,
    ) -> Result<Option<Next>, StoreError> {
        let status = self.run.job.status();
        if let Some(recorded) = self.record_delivery(orchestration).await? {
            return Ok(recorded.then_some(Next::Listen));
        }
        let Some((_, asking)) = self.state.asking().filter(|_| waits_for_message(status)) else {
            return Ok(Some(Next::Listen));
        };
        let is_remote = asking.is_remote;
        let jobs = &orchestration.jobs;
        let queued = jobs.store.messages(self.run.job.id(), 1).await?;
        let Some(message) = queued.into_iter().next() else { return Ok(Some(Next::Listen)) };
        // A step on another venue gets what its venue would get from any client.
        let asks_for = if is_remote { Status::InputRequired } else { status };
        let message = jobs.settle_message(self.run.job.id(), asks_for, message)?;
        if is_remote {
            return self.forward_to_remote(orchestration, message).await;
        }
        let current = self.current();
        let forwarding = self.state.forward_message(jobs, &current, message.clone())?;
        let Some((mut draft, step)) = forwarding else { return Ok(Some(Next::Listen)) };
        draft.set_hold(Hold::Under(self.run.guard.handle.fence));
        let committed = jobs.commit(draft).await;
        if let Err(CommitError::DuplicateMessage { .. }) = &committed {
            // The step has this message already: it only leaves the parent's queue.
            let reason = Some("the step has received it before");
            let is_recorded = self.record_message(orchestration, step, &message, reason).await?;
            self.queue_depth = self.queue_depth.saturating_sub(u32::from(is_recorded));
            return Ok(is_recorded.then_some(Next::Listen));
        }
        let Some(committed) = unless_overtaken(committed)? else { return Ok(None) };
        self.run.job = Arc::clone(&committed.view.job);
        self.queue_depth = self.queue_depth.saturating_sub(1);
        if let Some(child) = self.state.mark_forwarded(step) {
            orchestration.runtime.spawn(orchestration.execution.wake(child));
        }
        Ok(Some(Next::Listen))
    }

    /// Returns the parent job as the driver knows it.
    pub(super) fn current(&self) -> Current {
        let mut current = self.run.current();
        current.queue_depth = self.queue_depth;
        current
    }

    /// Rebuilds the state from the store, because another request changed the job.
    async fn reload(&mut self, orchestration: &Orchestration) -> Result<Next, StoreError> {
        let id = self.run.job.id();
        let Some(current) = orchestration.jobs.current(id).await? else { return Ok(Next::Over) };
        if current.job.status().is_terminal() {
            return Ok(Next::Over);
        }
        self.run.job = current.job;
        self.run.cells = current.cells;
        self.queue_depth = current.queue_depth;
        // Events of the old tasks may be lost with the old state: new ones are spawned.
        self.remote_tasks.replace();
        self.state = self.state.reset();
        self.state.catch_up(orchestration, &self.run.current()).await?;
        Ok(Next::Listen)
    }
}
