//! Turns a request into a job.
//!
//! An inline operation runs here, and its job is a single commit: three records, head and index
//! entries together. Any other operation is durably STARTED before it runs. If all slots are
//! occupied, its job is durably PENDING and queued.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::{AppendError, Change};
use catena_job::members::UnknownMember;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_value::Value;

use crate::commands::Commands;
use crate::error::{IdempotencyError, InvokeError, JobError, NoOutput, RunError, TooMuchMemory};
use crate::execution::{Run, RunSpec, offer_now, require_output};
use crate::jobs::{
    Draft, NewSecrets, Rerun, Watch, deadline, execution_limit, is_bound, run_inline,
};
use crate::limits::{
    CONTROL_SLOTS_MAX, IDEMPOTENCY_KEY_BYTES_MAX, NESTING_MAX, REFERENCE_BYTES_MAX, TAG_BYTES_MAX,
    TAGS_MAX, TIMEOUT_MAX, WAIT_MAX,
};
use crate::operations::{Call, Cause, ExecutionMode, Operation};
use crate::orchestration::StartOptions;
use crate::requests::{
    Caller, ClaimedKey, Invoke, Invoked, JobView, KeyLookup, Recording, RunOutput, commit_error,
    job_from_response, response_for_job,
};
use crate::runtime::{Reservation, is_same_large};

/// Whether a request creates a job.
pub(super) enum Admitted {
    /// It does. The idempotency key, if it has one, is claimed.
    New(Option<Box<ClaimedKey>>),
    /// An earlier request with the same key created one: this is the stored response.
    Answered(Value),
}

impl Commands {
    /// Invokes an operation as a job. Waits for its end for the grace period, or as requested.
    pub(crate) async fn invoke(self: &Arc<Self>, request: Invoke) -> Result<Invoked, InvokeError> {
        let key = match self.admit(&request).await? {
            Admitted::New(key) => key,
            Admitted::Answered(answer) => return Box::pin(self.replay(&request, &answer)).await,
        };
        let operation = self.operations.resolve(&request.caller, &request.operation).await?;
        match self.invoke_resolved(&request, operation, key, None).await {
            Err(InvokeError::Key(IdempotencyError::InFlight)) => {
                Box::pin(self.replay_committed(&request)).await
            }
            invoked => invoked,
        }
    }

    /// Invokes a definition again, reusing outputs of an earlier run.
    pub(super) async fn invoke_rerun(
        self: &Arc<Self>,
        request: Invoke,
        operation: Arc<Operation>,
        rerun: Rerun,
    ) -> Result<Invoked, InvokeError> {
        let key = match self.admit(&request).await? {
            Admitted::New(key) => key,
            Admitted::Answered(answer) => return self.replay(&request, &answer).await,
        };
        match self.invoke_resolved(&request, operation, key, Some(Box::new(rerun))).await {
            Err(InvokeError::Key(IdempotencyError::InFlight)) => {
                Box::pin(self.replay_committed(&request)).await
            }
            invoked => invoked,
        }
    }

    /// Returns the job of an equal request that another process committed first.
    async fn replay_committed(&self, request: &Invoke) -> Result<Invoked, InvokeError> {
        let in_flight = InvokeError::Key(IdempotencyError::InFlight);
        let key = request.idempotency.as_ref().ok_or_else(|| in_flight.clone())?;
        match self.keys.look_up::<InvokeError>(&request.caller, key).await? {
            KeyLookup::Answered(answer) => self.replay(request, &answer).await,
            KeyLookup::First(_) => Err(in_flight),
        }
    }

    async fn invoke_resolved(
        self: &Arc<Self>,
        request: &Invoke,
        operation: Arc<Operation>,
        key: Option<Box<ClaimedKey>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<Invoked, InvokeError> {
        self.check_permitted(request, &operation).await?;
        if let Some(unknown) = unknown_member(&operation, &request.input) {
            return Err(InvokeError::UnknownMember(unknown));
        }
        // What controls jobs is admitted to a caller and to a venue that have too many of them.
        let extra = if operation.controls_jobs() { CONTROL_SLOTS_MAX } else { 0 };
        let live = self.admission.live_count(&request.caller.did);
        if live >= self.runtime.limits.live_jobs_per_caller_max.saturating_add(extra) {
            return Err(InvokeError::TooManyJobs { live });
        }
        if request.recording != Recording::Private && !operation.frees_storage() {
            self.operations.check_stored_bytes(&request.caller.did).await?;
        }
        // The job of an inline operation is never live.
        let max = self.runtime.limits.live_jobs_max;
        let is_full = self.admission.total_live() >= max.saturating_add(extra);
        if operation.mode() == ExecutionMode::Task && is_full {
            return Err(InvokeError::VenueFull { max });
        }
        let is_bound = operation.binding(&request.input).is_some();
        if operation.uses_roots() || is_bound || operation.counts_all_attempts() {
            self.check_ownership(&request.caller, &operation)?;
        }
        // All but the inline path, which most requests take, are boxed to keep this future small.
        let caller = &request.caller.did;
        let refusal = match self.operations.refusal(caller, &operation, &request.input).await? {
            // An inline operation makes no calls, so it ends here anyway.
            None if request.depth as usize > NESTING_MAX
                && operation.mode() == ExecutionMode::Task =>
            {
                Some(format!("jobs are nested deeper than {NESTING_MAX} levels"))
            }
            refusal => refusal,
        };
        let view = match (refusal, request.recording) {
            (Some(refusal), _) => Box::pin(self.reject(request, &operation, &refusal, key)).await?,
            (None, Recording::Private)
                if is_bound || operation.uses_roots() && !operation.is_read_only() =>
            {
                let text = "the operation changes stored data, so its job cannot be private";
                return Err(InvokeError::Invalid(text.to_owned()));
            }
            (None, Recording::Private) => {
                let live = self.admission.add_private(&request.caller.did);
                Box::pin(self.execution.start_private(request, operation, live)).await?
            }
            (None, Recording::Durable) => match operation.mode() {
                ExecutionMode::Inline => {
                    match self.draft_inline(request, &operation, rerun.as_deref())? {
                        Some(draft) => {
                            let _input = self.reserve_input(request)?;
                            let _output = self.reserve_output(request, draft.job())?;
                            self.commit_new(draft, key).await?
                        }
                        None => Box::pin(self.start(request, operation, key, rerun)).await?,
                    }
                }
                ExecutionMode::Roots => {
                    Box::pin(self.invoke_on_roots(request, operation, key, rerun)).await?
                }
                ExecutionMode::Task => Box::pin(self.start(request, operation, key, rerun)).await?,
            },
        };
        Ok(Invoked { view: self.views.with_steps(view).await?, is_replay: false })
    }

    /// Checks that a request may create a job, or finds the one it created before.
    pub(super) async fn admit(&self, request: &Invoke) -> Result<Admitted, InvokeError> {
        if self.runtime.is_stopping() {
            return Err(InvokeError::ShuttingDown);
        }
        check_request(request)?;
        self.admission.admit(&request.caller).map_err(InvokeError::RateLimited)?;
        let Some(key) = &request.idempotency else { return Ok(Admitted::New(None)) };
        match Box::pin(self.keys.look_up::<InvokeError>(&request.caller, key)).await? {
            KeyLookup::First(claimed) => Ok(Admitted::New(Some(Box::new(claimed)))),
            KeyLookup::Answered(answer) => Ok(Admitted::Answered(answer)),
        }
    }

    /// Returns the job that an earlier request with the same key created.
    async fn replay(&self, request: &Invoke, answer: &Value) -> Result<Invoked, InvokeError> {
        let deleted = || InvokeError::Invalid("the job of this idempotency key was deleted".into());
        let job = job_from_response(answer).ok_or_else(deleted)?;
        let time = request.wait.unwrap_or(self.runtime.limits.grace);
        let view =
            self.views.wait(&request.caller, job, time).await.map_err(|error| match error {
                JobError::NotFound(_) | JobError::Deleted { .. } => deleted(),
                JobError::Store(error) => error.into(),
            })?;
        Ok(Invoked { view, is_replay: true })
    }

    /// Returns the ID of the job that a request creates.
    pub(super) fn id_for(&self, request: &Invoke) -> JobId {
        request.id.unwrap_or_else(|| self.runtime.new_id())
    }

    /// Creates a REJECTED job, so that the refusal can be audited.
    async fn reject(
        &self,
        request: &Invoke,
        operation: &Operation,
        refusal: &str,
        key: Option<Box<ClaimedKey>>,
    ) -> Result<JobView, InvokeError> {
        let id = self.id_for(request);
        let (new_job, _) = self.jobs.new_job(id, request, operation, &[]);
        let now = self.runtime.now();
        let mut draft = Draft::new(new_job, now, Some(refusal)).map_err(invalid_job)?;
        if request.recording == Recording::Private {
            return Ok(draft.into_parts().1);
        }
        draft.store_definition(operation);
        self.commit_new(draft, key).await
    }

    /// Runs an inline operation. Returns the draft of its complete job, or `None` if the operation
    /// needs a compute thread.
    fn draft_inline(
        &self,
        request: &Invoke,
        operation: &Arc<Operation>,
        rerun: Option<&Rerun>,
    ) -> Result<Option<Draft>, InvokeError> {
        let id = self.id_for(request);
        let now = self.runtime.now();
        let (mut draft, _) = self.new_draft(id, request, operation, rerun, now)?;
        let call = self.execution.unpaused_call(request, Arc::clone(operation), Some(id));
        let call = call.ok_or(InvokeError::ShuttingDown)?;
        let is_complete = draft.append_inline(&call, now).map_err(invalid_job)?;
        Ok(is_complete.then_some(draft))
    }

    /// Returns the reservation of what the input of a request takes.
    fn reserve_input(&self, request: &Invoke) -> Result<Arc<Reservation>, TooMuchMemory> {
        if let Some(reserved) = &request.reserved {
            return Ok(Arc::clone(reserved));
        }
        let mut memory = self.runtime.memory.open(request.caller.did.text());
        memory.grow_for(&request.input)?;
        Ok(Arc::new(memory))
    }

    /// Reserves what the output of an inline operation takes until it is durable, unless it is the input.
    fn reserve_output(&self, request: &Invoke, job: &Job) -> Result<Reservation, InvokeError> {
        let mut memory = self.runtime.memory.open(request.caller.did.text());
        let output = job.field("output");
        if let Some(output) = output.filter(|output| !is_same_large(output, &request.input)) {
            memory.grow_for_stored(output)?;
        }
        Ok(memory)
    }

    /// Starts an operation that runs as a task. The job runs even if the client disconnects; only
    /// the wait for its end belongs to the request.
    async fn start(
        self: &Arc<Self>,
        request: &Invoke,
        operation: Arc<Operation>,
        key: Option<Box<ClaimedKey>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let id = self.id_for(request);
        let mut watch = self.jobs.watchers.watch(id);
        let commands = Arc::clone(self);
        let owned = request.clone();
        let starting = async move { commands.start_job(id, &owned, operation, key, rerun).await };
        let view = self.runtime.finish_even_if_dropped(starting).await?;
        Ok(self.wait_for(view, &mut watch, request.wait).await)
    }

    async fn start_job(
        self: &Arc<Self>,
        id: JobId,
        request: &Invoke,
        operation: Arc<Operation>,
        key: Option<Box<ClaimedKey>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let now = self.runtime.now();
        let (mut draft, secrets) =
            self.new_draft(id, request, &operation, rerun.as_deref(), now)?;
        if let Some(stored) = self.jobs.store_secrets(id, &secrets)? {
            draft.add(stored);
        }
        if operation.plan().is_some() {
            // Boxed, because it would make the future of every start larger.
            let starting = self.start_orchestration(request, operation, draft, key, rerun);
            return Box::pin(starting).await;
        }
        // Workers take their jobs from a queue, and a bound job starts from it.
        let is_queued = operation.queue().is_some() || is_bound(draft.job());
        let caller = &request.caller.did;
        let slot =
            if is_queued { None } else { self.execution.try_claim_slot_of(id, caller, &operation) };
        let memory = self.reserve_input(request)?;
        let Some(slot) = slot else {
            draft.add(offer_now(draft.job(), now));
            let view = self.commit_new(draft, key).await?;
            self.execution.notify_queued(&view.job);
            return Ok(view);
        };
        let time_left = execution_limit(&self.runtime.limits, request.timeout, &operation);
        draft.append(started(now, time_left)).map_err(invalid_job)?;
        let guard = self.execution.acquire(&mut draft);
        let view = self.commit_new(draft, key).await?;
        let spec = RunSpec {
            operation,
            caller: request.caller.clone(),
            input: request.input.clone(),
            cause: Cause::Start,
            time_left,
        };
        let run = Run::new(Arc::clone(&view.job), None, spec, guard);
        let run = run.with_slot(slot).with_memory(memory);
        self.runtime.spawn_task(run.execute(Arc::clone(&self.execution)));
        Ok(view)
    }

    async fn start_orchestration(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        mut draft: Draft,
        key: Option<Box<ClaimedKey>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let checked = self.orchestration.preflight(&request.caller, &operation, request.depth);
        let targets = match checked.await? {
            Ok(targets) => targets,
            Err(refusal) => return self.reject(request, &operation, &refusal, key).await,
        };
        if !self.runtime.gate.lets_start(draft.job().id()) {
            if rerun.is_none() {
                let now = self.runtime.now();
                draft.add(offer_now(draft.job(), now));
                let view = self.commit_new(draft, key).await?;
                self.execution.notify_queued(&view.job);
                return Ok(view);
            }
            // What it takes over from the earlier run is stored only when it starts.
            self.runtime.gate.opened().await;
        }
        let limit = execution_limit(&self.runtime.limits, request.timeout, &operation);
        draft.append(started(draft.job().updated(), limit)).map_err(invalid_job)?;
        if let Some(key) = &key {
            draft.add(key.remember(response_for_job(draft.job().id())));
        }
        let reused = rerun.as_ref().map_or(&[][..], |rerun| &rerun.reused);
        let options = StartOptions { targets, reused, limit };
        self.orchestration.start(request, operation, draft, options).await
    }

    /// Commits a new job together with its idempotency key.
    pub(super) fn commit_new(
        &self,
        mut draft: Draft,
        key: Option<Box<ClaimedKey>>,
    ) -> impl Future<Output = Result<JobView, InvokeError>> + use<'_> {
        if let Some(key) = &key {
            draft.add(key.remember(response_for_job(draft.job().id())));
        }
        let committing = self.jobs.commit(draft);
        async move {
            let committed = committing.await;
            drop(key);
            committed.map(|committed| committed.view).map_err(commit_error)
        }
    }

    /// Returns the draft of a new PENDING job, and its secrets.
    pub(super) fn new_draft(
        &self,
        id: JobId,
        request: &Invoke,
        operation: &Operation,
        rerun: Option<&Rerun>,
        now: i64,
    ) -> Result<(Draft, NewSecrets), InvokeError> {
        let (mut new_job, mut secrets) = self.jobs.new_job(id, request, operation, &[]);
        self.jobs.keep_delegations(request, operation, &mut new_job, &mut secrets);
        new_job.extra.extend(rerun.map(Rerun::record_members).unwrap_or_default());
        let mut draft = Draft::new(new_job, now, None).map_err(invalid_job)?;
        draft.store_definition(operation);
        Ok((draft, secrets))
    }

    /// Waits for a job as requested. By default it waits for the operation during the grace period,
    /// but not for people.
    async fn wait_for(&self, view: JobView, watch: &mut Watch, wait: Option<Duration>) -> JobView {
        let (time, is_enough): (_, fn(Status) -> bool) = match wait {
            Some(wait) => (wait.min(WAIT_MAX), Status::is_terminal),
            None => (self.runtime.limits.grace, |status| {
                !matches!(status, Status::Pending | Status::Started)
            }),
        };
        self.jobs.watch_until(view, watch, time, is_enough).await
    }

    /// Runs an operation and returns its bare output. A read-only operation creates no job.
    pub(crate) async fn run(self: &Arc<Self>, mut request: Invoke) -> Result<RunOutput, RunError> {
        let is_recorded = request.recording == Recording::Durable;
        let time = request.wait.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        request.wait = Some(time);
        if is_recorded && request.idempotency.is_none() {
            check_request(&request)?;
            let operation = self.operations.resolve(&request.caller, &request.operation).await;
            let operation = operation.map_err(InvokeError::from)?;
            if operation.is_read_only() {
                return Box::pin(self.run_unrecorded(request, operation, time)).await;
            }
        }
        let Invoked { view, is_replay } = self.invoke(request).await?;
        let job = Some(view.job.id()).filter(|_| is_recorded);
        if view.status() == Status::Complete {
            let output = view.job.field("output").cloned().unwrap_or_default();
            return Ok(RunOutput { output, cells: view.cells, job, is_replay, memory: None });
        }
        let text = |name: &str| Some(view.job.field(name)?.to_text()?.into_owned());
        let error = text("error").unwrap_or_else(|| format!("the job is {}", view.status()));
        let code = text("errorCode");
        let status = view.status();
        Err(RunError::Ended(Box::new(NoOutput { job, status, error, code, is_replay })))
    }

    /// Fails if the caller lacks a capability that the operation needs.
    async fn check_permitted(
        &self,
        request: &Invoke,
        operation: &Arc<Operation>,
    ) -> Result<(), InvokeError> {
        let Invoke { caller, operation: reference, input, .. } = request;
        let permission = self.operations.authorise(caller, operation, reference, input).await?;
        permission.map_err(InvokeError::Forbidden)?;
        match operation.adapter().deferred(operation, input) {
            Some((reference, input)) => {
                Box::pin(self.check_deferred(caller, &reference, &input)).await
            }
            None => Ok(()),
        }
    }

    /// Fails if the caller lacks a capability that an operation needs which is invoked later. One that
    /// does not exist is reported by the job.
    async fn check_deferred(
        &self,
        caller: &Caller,
        reference: &str,
        input: &Value,
    ) -> Result<(), InvokeError> {
        let Ok(operation) = self.operations.resolve(caller, reference).await else { return Ok(()) };
        let permission = self.operations.authorise(caller, &operation, reference, input).await?;
        permission.map_err(InvokeError::Forbidden)
    }

    /// Runs a read-only operation without a job.
    async fn run_unrecorded(
        &self,
        request: Invoke,
        operation: Arc<Operation>,
        time: Duration,
    ) -> Result<RunOutput, RunError> {
        if self.runtime.is_stopping() {
            return Err(InvokeError::ShuttingDown.into());
        }
        self.admission.admit(&request.caller).map_err(InvokeError::RateLimited)?;
        let ended = |status, error, code| {
            let is_replay = false;
            RunError::Ended(Box::new(NoOutput { job: None, status, error, code, is_replay }))
        };
        self.check_permitted(&request, &operation).await?;
        let caller = &request.caller.did;
        let refusal = self.operations.refusal(caller, &operation, &request.input).await;
        if let Some(refusal) = refusal.map_err(InvokeError::from)? {
            return Err(ended(Status::Rejected, refusal, None));
        }
        let _input = self.reserve_input(&request).map_err(InvokeError::from)?;
        let call = self.execution.unpaused_call(&request, Arc::clone(&operation), None);
        let call = call.ok_or(InvokeError::ShuttingDown)?;
        let result = match run_inline(&call) {
            Some(result) => result,
            None => {
                let control = call.control.without_secrets();
                let turn = self.operations.execute(Call { control: control.clone(), ..call });
                let limits = &self.runtime.limits;
                let limit = execution_limit(limits, request.timeout, &operation).min(time);
                tokio::select! {
                    turn = turn => require_output(turn.redacted(&control)),
                    () = self.runtime.env.sleep(limit) => {
                        let error = format!("no result within {} ms", limit.as_millis());
                        return Err(ended(Status::Timeout, error, None));
                    }
                }
            }
        };
        match result {
            Ok(output) => {
                let mut memory = self.runtime.memory.open(request.caller.did.text());
                memory.grow_for(&output).map_err(InvokeError::from)?;
                Ok(RunOutput {
                    output,
                    cells: None,
                    job: None,
                    is_replay: false,
                    memory: Some(memory),
                })
            }
            Err(failure) => Err(ended(Status::Failed, failure.error, Some(failure.code))),
        }
    }
}

/// Returns the change that starts a job, with its deadline.
fn started(now: i64, limit: Duration) -> Change {
    let mut change = Change::new(Event::Started, now);
    change.extra.push(("deadline", deadline(now, limit)));
    change
}

pub(super) fn invalid_job(error: AppendError) -> InvokeError {
    InvokeError::Invalid(format!("the job cannot be recorded: {error}"))
}

/// Returns a member of an input that its operation refuses.
fn unknown_member(operation: &Operation, input: &Value) -> Option<UnknownMember> {
    let members = operation.adapter().input_members(operation.name())?;
    members.unknown(input.as_map()?).into_iter().next()
}

fn check_request(request: &Invoke) -> Result<(), InvokeError> {
    let invalid = |text: String| Err(InvokeError::Invalid(text));
    if request.operation.is_empty() || request.operation.len() > REFERENCE_BYTES_MAX {
        return invalid(format!("`operation` must have 1 to {REFERENCE_BYTES_MAX} bytes"));
    }
    if request.tags.len() > TAGS_MAX {
        return invalid(format!("a job has at most {TAGS_MAX} tags"));
    }
    if request.tags.iter().any(|tag| tag.is_empty() || tag.len() > TAG_BYTES_MAX) {
        return invalid(format!("a tag must have 1 to {TAG_BYTES_MAX} bytes"));
    }
    if request.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > TIMEOUT_MAX) {
        return invalid(format!("`timeoutMs` must be from 1 to {}", TIMEOUT_MAX.as_millis()));
    }
    if request.recording == Recording::Private && request.idempotency.is_some() {
        return invalid("a private job is not stored, so it takes no idempotency key".to_owned());
    }
    let key = request.idempotency.as_ref().map(|key| key.key.len());
    if key.is_some_and(|len| len == 0 || len > IDEMPOTENCY_KEY_BYTES_MAX) {
        let max = IDEMPOTENCY_KEY_BYTES_MAX;
        return invalid(format!("an idempotency key must have 1 to {max} bytes"));
    }
    Ok(())
}
