//! Calls: operations that a running job invokes.
//!
//! The calling job commits to each call with an annotation, in the commit that creates the called
//! job, so a turn that is repeated after a crash finds in its own chain what it called before: it
//! takes the results of calls that have ended, waits for those that run, and makes only the others.
//! A called job is a sub-job: it is paused, resumed and cancelled with its caller, and what it asks
//! for, its caller asks for.

use std::sync::Arc;

use catena_job::chain::{CallState, Change};
use catena_job::limits::CALLS_MAX;
use catena_job::note::{CallEnd, CallStart, Note};
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::{Job, Status};
use catena_store::{CommitError, Effect, Hold};
use catena_value::Value;

use crate::commands::Commands;
use crate::error::StoreError;
use crate::execution::{Run, RunHandle, RunSlot, RunSpec, TreePosition, ask_like_call, offer_now};
use crate::jobs::{
    Changed, CommitFailure, Current, DEPTH, Draft, append_error, deadline, execution_limit,
    is_bound, left_ms, restart_clock, storage_full, too_many_sub_jobs, waits_for_message,
};
use crate::limits::{CONTENTION_TRIES_MAX, NESTING_MAX};
use crate::operations::{Cause, ExecutionMode, Failure, Operation};
use crate::requests::{CallRequest, Invoke, JobView};

/// The result of one attempt to make a call.
enum Attempt {
    /// The called job, new or known.
    Called(JobView),
    /// The calling job changed meanwhile.
    Conflict,
}

/// A called job that is not stored yet.
struct NewCall {
    child: Draft,
    run: Option<Run>,
    is_queued: bool,
}

impl Commands {
    /// Makes a call, or finds the one that the same turn made before, and returns the called job:
    /// once it has ended, or as it is if the call is detached.
    pub(crate) async fn call(self: &Arc<Self>, request: CallRequest) -> Result<JobView, Failure> {
        if self.execution.private.get(request.job).is_some() {
            return Err(Failure::new("unrecorded", "a private job makes no recorded calls"));
        }
        let handle = self.execution.registry.get(request.job);
        let handle = handle.ok_or_else(|| Failure::transient("stopped", "the job was stopped"))?;
        let view = self.start_call(&request, &handle).await?;
        if request.is_detached {
            return Ok(view);
        }
        self.await_call(&request, &handle, view).await.map_err(store_failure)
    }

    /// Makes a call, or finds the one that was made before under the same key.
    pub(super) async fn start_call(
        self: &Arc<Self>,
        request: &CallRequest,
        handle: &Arc<RunHandle>,
    ) -> Result<JobView, Failure> {
        let resolved = self.operations.resolve(&request.caller, &request.operation).await;
        let operation = resolved.map_err(|error| {
            Failure::new("operation_not_found", format!("{}: {error}", request.operation))
        })?;
        // From here on the clock of the caller stops while its calls wait for people.
        handle.leave_time_to_store();
        let control = handle.control(&self.runtime.env);
        for _ in 0..CONTENTION_TRIES_MAX {
            control.proceed().await;
            let attempt = self.try_call(request, &operation, handle).await;
            match attempt.map_err(store_failure)?? {
                Attempt::Called(view) => return Ok(view),
                Attempt::Conflict => {}
            }
        }
        Err(store_failure(StoreError::Contended))
    }

    async fn try_call(
        self: &Arc<Self>,
        request: &CallRequest,
        operation: &Arc<Operation>,
        handle: &Arc<RunHandle>,
    ) -> Result<Result<Attempt, Failure>, StoreError> {
        let Some(current) = self.jobs.current(request.job).await? else {
            return Ok(Err(Failure::transient("stopped", "the job was deleted")));
        };
        let TreePosition { root, depth } = self.execution.position_of(&current.job).await?;
        let invoke = invocation(request, depth.saturating_add(1));
        if let Some(known) = current.job.calls().iter().find(|call| call.start.key == request.key) {
            return self.known_call(known, &invoke, operation).await;
        }
        if current.job.status() != Status::Started || current.hold.fence != handle.fence {
            return Ok(Ok(Attempt::Conflict));
        }
        if let Err(failure) = check_bounds(&current, &invoke) {
            return Ok(Err(failure));
        }
        let caller = request.authority.as_ref().unwrap_or(&invoke.caller);
        let permission =
            self.operations.authorise(caller, operation, &invoke.operation, &invoke.input).await?;
        if let Err(denial) = permission {
            return Ok(Err(Failure::new("capability_denied", denial)));
        }
        let caller = &invoke.caller.did;
        if !operation.frees_storage()
            && let Err(full) = self.operations.check_stored_bytes(caller).await
        {
            return match full {
                StoreError::QuotaExceeded { .. } => Ok(Err(storage_full(&full))),
                error => Err(error),
            };
        }
        let refusal = match self.operations.refusal(caller, operation, &invoke.input).await? {
            None if operation.plan().is_some() => {
                let checked =
                    self.orchestration.preflight(&invoke.caller, operation, invoke.depth).await?;
                checked.err()
            }
            refusal => refusal,
        };
        let refusal = refusal.as_deref();
        let mut new = self.new_call(&current, &invoke, operation, request.is_detached, refusal)?;
        let max = self.runtime.limits.sub_jobs_per_root_max;
        new.child.add(Effect::CountSubJobs { root, count: 1, max });
        self.commit_call(request, &current, handle, new).await
    }

    /// Returns the job of a call that the chain knows. Fails if it is another call.
    async fn known_call(
        &self,
        known: &CallState,
        invoke: &Invoke,
        operation: &Operation,
    ) -> Result<Result<Attempt, Failure>, StoreError> {
        let key = &known.start.key;
        let Some(child) = self.jobs.current(known.start.job).await? else {
            let text = format!("the job of call `{key}` was deleted");
            return Ok(Err(Failure::new("call_gone", text)));
        };
        let (expected, _) = self.jobs.new_job(known.start.job, invoke, operation, &[]);
        let is_same = known.start.op == invoke.operation
            && child.job.field("input").map(Value::id) == Some(expected.input.id());
        if !is_same {
            let text = format!("call `{key}` was made before with another operation or input");
            return Ok(Err(Failure::new("call_changed", text)));
        }
        Ok(Ok(Attempt::Called(self.views.view(child))))
    }

    /// Creates the called job: ended if it can be decided at once, else started or queued.
    fn new_call(
        &self,
        current: &Current,
        invoke: &Invoke,
        operation: &Arc<Operation>,
        is_detached: bool,
        refusal: Option<&str>,
    ) -> Result<NewCall, StoreError> {
        let id = self.runtime.new_id();
        let now = self.runtime.now().max(current.job.updated());
        let (mut new_job, mut secrets) = self.jobs.new_job(id, invoke, operation, &[]);
        if is_detached {
            self.jobs.keep_delegations(invoke, operation, &mut new_job, &mut secrets);
        }
        let number = u32::try_from(current.job.calls().len()).unwrap_or(u32::MAX);
        new_job.parent = Some(Parent::of_call(current.job.id(), number));
        if !new_job.extra.iter().any(|(name, _)| *name == DEPTH) {
            new_job.extra.push((DEPTH, invoke.depth.into()));
        }
        let mut child = Draft::new(new_job, now, refusal).map_err(append_error)?;
        child.store_definition(operation);
        if refusal.is_some() {
            return Ok(NewCall { child, run: None, is_queued: false });
        }
        if operation.mode() == ExecutionMode::Inline {
            let call = self.execution.unpaused_call(invoke, Arc::clone(operation), Some(id));
            let call = call.ok_or_else(|| StoreError::Stopped("the venue is stopping".into()))?;
            if child.append_inline(&call, now).map_err(append_error)? {
                return Ok(NewCall { child, run: None, is_queued: false });
            }
            // It runs as a task, on a compute thread.
        }
        if let Some(stored) = self.jobs.store_secrets(id, &secrets)? {
            child.add(stored);
        }
        // Workers take their jobs from a queue, and a bound job starts from it.
        let is_queued = operation.queue().is_some() || is_bound(child.job());
        let claim = || self.claim_slot_for_call(current, invoke, operation, is_detached);
        let Some(slot) = (!is_queued).then(claim).flatten() else {
            child.add(offer_now(child.job(), now));
            return Ok(NewCall { child, run: None, is_queued: true });
        };
        let limit = execution_limit(&self.runtime.limits, None, operation);
        let mut started = Change::new(Event::Started, now);
        started.extra.push(("deadline", deadline(now, limit)));
        child.append(started).map_err(append_error)?;
        let guard = self.execution.acquire(&mut child);
        let spec = RunSpec {
            operation: Arc::clone(operation),
            caller: invoke.caller.clone(),
            input: invoke.input.clone(),
            cause: Cause::Start,
            time_left: limit,
        };
        let run = Run::new(child.shared_job(), None, spec, guard).with_slot(slot);
        Ok(NewCall { child, run: Some(run), is_queued: false })
    }

    /// Claims a slot for a called job. What a job calls that controls others runs on the slot of its caller.
    fn claim_slot_for_call(
        &self,
        current: &Current,
        invoke: &Invoke,
        operation: &Operation,
        is_detached: bool,
    ) -> Option<RunSlot> {
        let caller = self.execution.registry.get(current.job.id());
        let is_shared = caller.is_some_and(|handle| handle.shares_slot());
        let may_start = self.runtime.gate.is_open();
        if operation.controls_jobs() && !is_detached && is_shared && may_start {
            return Some(RunSlot::of_caller());
        }
        self.execution.try_claim_slot(&invoke.caller.did)
    }

    /// Commits the called job together with the caller's commitment to it.
    async fn commit_call(
        &self,
        request: &CallRequest,
        current: &Current,
        handle: &RunHandle,
        new: NewCall,
    ) -> Result<Result<Attempt, Failure>, StoreError> {
        let NewCall { child, run, is_queued } = new;
        let called = child.job();
        let call = u32::try_from(current.job.calls().len()).unwrap_or(u32::MAX);
        let start = CallStart {
            call,
            key: request.key.clone(),
            op: request.operation.clone(),
            job: called.id(),
            record: called.first_record(),
            is_detached: request.is_detached,
        };
        let end = CallEnd { call, status: called.status(), record: called.head() };
        let has_ended = called.status().is_terminal() && !request.is_detached;
        let note = Note::Call {
            started: vec![start],
            ended: if has_ended { vec![end] } else { Vec::new() },
        };
        let mut draft = current.draft();
        draft.append(Change::new(Event::Noted(note), self.runtime.now())).map_err(append_error)?;
        draft.set_hold(Hold::Under(handle.fence));
        let committed = self.jobs.commit_tree(draft, vec![child]).await;
        if let Err(CommitError::TreeFull { max, .. }) = &committed {
            return Ok(Err(too_many_sub_jobs(*max)));
        }
        match committed.map_err(CommitFailure::from) {
            Ok(committed) => {
                if let Some(queued) = committed.children.first().filter(|_| is_queued) {
                    self.execution.notify_queued(&queued.job);
                }
                if let Some(run) = run {
                    self.runtime.spawn_task(run.execute(Arc::clone(&self.execution)));
                }
                let view = committed.children.into_iter().next();
                Ok(Ok(view.map_or(Attempt::Conflict, Attempt::Called)))
            }
            Err(CommitFailure::Conflict | CommitFailure::Gone) => Ok(Ok(Attempt::Conflict)),
            Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => Err(error),
        }
    }

    /// Waits for the end of a called job and records it. The caller occupies no slot meanwhile.
    async fn await_call(
        &self,
        request: &CallRequest,
        handle: &Arc<RunHandle>,
        view: JobView,
    ) -> Result<JobView, StoreError> {
        let child = view.job.id();
        let mut watch = self.jobs.watchers.watch(child);
        let mut view = view;
        if !view.status().is_terminal() {
            handle.give_slot();
        }
        while !view.status().is_terminal() {
            if let Some(current) = self.jobs.current(child).await? {
                view = self.views.view(current);
            }
            if view.status().is_terminal() {
                break;
            }
            self.mirror_request(request, handle, &view).await?;
            watch.changed().await;
            if watch.latest().is_deleted {
                break;
            }
        }
        handle.take_slot(&self.execution.slots.permits).await;
        self.mirror_request(request, handle, &view).await?;
        self.record_end(request, handle, &view).await?;
        Ok(view)
    }

    /// Makes the caller ask for what its call asks for, and continue when the call does.
    async fn mirror_request(
        &self,
        request: &CallRequest,
        handle: &RunHandle,
        view: &JobView,
    ) -> Result<(), StoreError> {
        let asks = waits_for_message(view.status());
        let now = self.runtime.now();
        let decide = |current: &Current| -> Result<Option<Draft>, StoreError> {
            let status = current.job.status();
            let change = if asks && status == Status::Started {
                ask_like_call(current, &request.key, view, now, self.runtime.limits.interactive)
            } else if !asks && waits_for_message(status) && left_ms(&current.job).is_some() {
                let mut change = Change::new(Event::Answered, now);
                restart_clock(&current.job, now, &mut change);
                change
            } else {
                return Ok(None);
            };
            let mut draft = current.draft();
            draft.append(change).map_err(append_error)?;
            draft.set_hold(Hold::Under(handle.fence));
            Ok(Some(draft))
        };
        self.jobs.change(request.job, None, decide).await.map(drop)
    }

    /// Records the end of a call in the chain of its caller.
    pub(super) async fn record_end(
        &self,
        request: &CallRequest,
        handle: &RunHandle,
        view: &JobView,
    ) -> Result<(), StoreError> {
        let decide = |current: &Current| -> Result<Option<Draft>, StoreError> {
            Ok(end_draft(current, &view.job, self.runtime.now())?.map(|mut draft| {
                draft.set_hold(Hold::Under(handle.fence));
                draft
            }))
        };
        let changed = self.jobs.change(request.job, None, decide).await?;
        if let Changed::Gone = changed {
            // The caller was stopped: its turn is about to be dropped.
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Returns the change that records the end of a called job. `None` if it is recorded already.
fn end_draft(current: &Current, child: &Job, now: i64) -> Result<Option<Draft>, StoreError> {
    let open = |call: &&CallState| call.start.job == child.id() && call.end.is_none();
    let Some(call) = current.job.calls().iter().find(open) else { return Ok(None) };
    if !child.status().is_terminal() || current.job.status().is_terminal() {
        return Ok(None);
    }
    let end = CallEnd { call: call.start.call, status: child.status(), record: child.head() };
    let note = Note::Call { started: Vec::new(), ended: vec![end] };
    let mut draft = current.draft();
    draft.append(Change::new(Event::Noted(note), now)).map_err(append_error)?;
    Ok(Some(draft))
}

fn invocation(request: &CallRequest, depth: u32) -> Invoke {
    let mut invoke =
        Invoke::new(request.caller.clone(), request.operation.as_str(), request.input.clone());
    invoke.depth = depth;
    invoke
}

/// Fails if a job may make no more calls.
fn check_bounds(current: &Current, invoke: &Invoke) -> Result<(), Failure> {
    if invoke.depth as usize > NESTING_MAX {
        let text = format!("jobs are nested deeper than {NESTING_MAX} levels");
        return Err(Failure::new("too_deep", text));
    }
    if current.job.calls().len() >= CALLS_MAX as usize {
        let text = format!("a job makes at most {CALLS_MAX} calls");
        return Err(Failure::new("too_many_calls", text));
    }
    Ok(())
}

fn store_failure(error: StoreError) -> Failure {
    Failure::transient("store", error.to_string())
}
