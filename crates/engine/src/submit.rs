//! A request becomes a job.
//!
//! An instant operation is computed here and its job is one commit: three records, head and index
//! entries travel together. Any other is durably STARTED before it runs; when all places are taken
//! it is durably PENDING and waits in the queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::{AppendError, Change, NewJob};
use catena_job::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::Effect;
use catena_value::{Extent, NoCells, Value, Vector};

use crate::adapter::{Call, Cause, ExecutionMode, Failure};
use crate::caller::Caller;
use crate::change::Draft;
use crate::engine::Engine;
use crate::error::{InvokeError, NoOutput, RunError, StoreError};
use crate::hub::Watch;
use crate::idempotency::{Claimed, Known, answer_of, job_of, uncommitted};
use crate::limits::{
    IDEMPOTENCY_KEY_BYTES_MAX, REFERENCE_BYTES_MAX, TAG_BYTES_MAX, TAGS_MAX, TIMEOUT_MAX, WAIT_MAX,
};
use crate::operation::Operation;
use crate::orchestration::DEPTH;
use crate::orchestration::weaver::Begun;
use crate::request::{Invoke, Invoked, JobView, Ran, Recording};
use crate::rerun::Rerun;
use crate::run::Run;
use crate::schema::Secret;
use crate::sealed::{self, Secrets};

/// Violations of a schema that are told at once.
const VIOLATIONS_MAX: usize = 5;

/// The queue of jobs that this venue's own adapters carry out.
pub(crate) const QUEUE: &str = "venue";

/// The priority of jobs on it.
const PRIORITY: u8 = 0;

/// A request that may make a job.
enum Admitted {
    /// It is the first, with its key if it has one.
    New(Option<Box<Claimed>>),
    /// An earlier one with its key had this answer.
    Before(Value),
}

impl Engine {
    /// Makes a job of an operation. Waits for its end for a grace, or as long as asked.
    pub async fn invoke(&self, request: Invoke) -> Result<Invoked, InvokeError> {
        let claimed = match self.admitted(&request).await? {
            Admitted::New(claimed) => claimed,
            Admitted::Before(answer) => return Box::pin(self.replay(&request, &answer)).await,
        };
        let operation = self.resolve(&request.caller, &request.operation).await?;
        self.invoke_resolved(&request, operation, claimed, None).await
    }

    /// Invokes the same definition again, taking over what an earlier run gave.
    pub(crate) async fn invoke_again(
        &self,
        request: Invoke,
        operation: Arc<Operation>,
        rerun: Rerun,
    ) -> Result<Invoked, InvokeError> {
        let claimed = match self.admitted(&request).await? {
            Admitted::New(claimed) => claimed,
            Admitted::Before(answer) => return self.replay(&request, &answer).await,
        };
        self.invoke_resolved(&request, operation, claimed, Some(Box::new(rerun))).await
    }

    async fn invoke_resolved(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        claimed: Option<Box<Claimed>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<Invoked, InvokeError> {
        let live = self.0.admission.live(&request.caller.did);
        if live >= self.0.limits.live_jobs_per_caller_max {
            return Err(InvokeError::TooManyJobs { live });
        }
        // Boxed, so that the way of instant operations, which most take, is short of memory.
        let view = match (refusal(&operation, &request.input), request.recording) {
            (Some(refusal), _) => {
                Box::pin(self.refuse(request, &operation, &refusal, claimed)).await?
            }
            (None, Recording::Private) => Box::pin(self.begin_private(request, operation)).await?,
            (None, Recording::Durable) => match operation.mode() {
                ExecutionMode::Inline => {
                    let draft = self.compute(request, operation, rerun)?;
                    self.commit_new(draft, claimed).await?
                }
                ExecutionMode::Task => {
                    Box::pin(self.begin(request, operation, claimed, rerun)).await?
                }
            },
        };
        Ok(Invoked { view: self.with_steps(self.phased(view)).await?, is_replay: false })
    }

    /// Whether a request may make a job, or has made one before.
    async fn admitted(&self, request: &Invoke) -> Result<Admitted, InvokeError> {
        if self.is_stopping() {
            return Err(InvokeError::ShuttingDown);
        }
        check_request(request)?;
        self.admit(&request.caller)?;
        let Some(key) = &request.idempotency else { return Ok(Admitted::New(None)) };
        match Box::pin(self.look_up::<InvokeError>(&request.caller, key)).await? {
            Known::First(claimed) => Ok(Admitted::New(Some(Box::new(claimed)))),
            Known::Answered(answer) => Ok(Admitted::Before(answer)),
        }
    }

    /// Whether a caller may ask for something more now.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<(), InvokeError> {
        let Some(rate) = self.0.limits.rate else { return Ok(()) };
        let now = self.0.env.monotonic();
        self.0.admission.take(caller.did.text(), rate, now).map_err(InvokeError::RateLimited)
    }

    /// The answer to a request that was made before.
    async fn replay(&self, request: &Invoke, answer: &Value) -> Result<Invoked, InvokeError> {
        let gone = || InvokeError::Invalid("the job of this idempotency key was deleted".into());
        let job = job_of(answer).ok_or_else(gone)?;
        let time = request.wait.unwrap_or(self.0.limits.grace);
        let view = self.wait(&request.caller, job, time).await.map_err(|error| match error {
            crate::error::JobError::NotFound(_) => gone(),
            crate::error::JobError::Store(trouble) => trouble.into(),
        })?;
        Ok(Invoked { view, is_replay: true })
    }

    /// A job that is refused at once, so that it can be audited.
    async fn refuse(
        &self,
        request: &Invoke,
        operation: &Operation,
        refusal: &str,
        claimed: Option<Box<Claimed>>,
    ) -> Result<JobView, InvokeError> {
        let (opening, _) = self.opening(self.new_id(), request, operation, &[])?;
        let draft = Draft::open(opening, self.now(), Some(refusal)).map_err(unopened)?;
        if request.recording == Recording::Private {
            return Ok(draft.into_parts().1);
        }
        self.commit_new(draft, claimed).await
    }

    /// An instant operation: everything in one commit, which is all that there is to wait for.
    fn compute(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<Draft, InvokeError> {
        let job = self.new_id();
        let now = self.now();
        let (mut draft, _) = self.opened(job, request, &operation, rerun.as_deref(), now)?;
        draft.append(Change::new(Event::Started, now)).map_err(unopened)?;
        let call = self.call(request, operation, Some(job));
        let change = outcome(compute(&call), self.now());
        draft.append(change).map_err(unopened)?;
        Ok(draft)
    }

    /// An operation that takes its time. The job runs even when whoever asked for it goes away
    /// meanwhile; only the wait for its end is theirs.
    async fn begin(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        claimed: Option<Box<Claimed>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let job = self.new_id();
        let mut watch = self.0.hub.watch(job);
        let (engine, asked) = (self.clone(), request.clone());
        let beginning =
            async move { engine.begin_now(job, &asked, operation, claimed, rerun).await };
        let view = self.surely(beginning).await?;
        Ok(self.wait_for(view, &mut watch, request.wait).await)
    }

    async fn begin_now(
        &self,
        job: JobId,
        request: &Invoke,
        operation: Arc<Operation>,
        claimed: Option<Box<Claimed>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let now = self.now();
        let (mut draft, secrets) = self.opened(job, request, &operation, rerun.as_deref(), now)?;
        if let Some(kept) = secrets.keep(self, job)? {
            draft.with(kept);
        }
        let limit = self.execution_limit(request.timeout, &operation);
        if operation.plan().is_some() {
            let targets = match self.targets(&request.caller, &operation, request.depth).await? {
                Ok(targets) => targets,
                Err(refusal) => {
                    return self.refuse(request, &operation, &refusal, claimed).await;
                }
            };
            let mut begun = Change::new(Event::Started, now);
            begun.extra.push(("deadline", deadline(now, limit)));
            draft.append(begun).map_err(unopened)?;
            if let Some(claimed) = &claimed {
                draft.with(claimed.remember(answer_of(job)));
            }
            let reused = rerun.as_ref().map_or(&[][..], |rerun| &rerun.reused);
            let begun = Begun { targets, reused, limit };
            return self.begin_orchestration(request, operation, draft, begun).await;
        }
        let Ok(slot) = Arc::clone(&self.0.slots).try_acquire_owned() else {
            draft.with(offer(job, now));
            let view = self.commit_new(draft, claimed).await?;
            self.has_queued(&view.job);
            return Ok(view);
        };
        let mut begun = Change::new(Event::Started, now);
        begun.extra.push(("deadline", deadline(now, limit)));
        draft.append(begun).map_err(unopened)?;
        // Nobody can reach the job before it is durable, so its reins are free.
        let held = self.0.running.take(job, None).ok_or(StoreError::Contended)?;
        let view = self.commit_new(draft, claimed).await?;
        let run = Run {
            job: (*view.job).clone(),
            cells: None,
            operation,
            caller: request.caller.clone(),
            input: request.input.clone(),
            cause: Cause::Start,
            left: limit,
            held,
            slot: Some(slot),
        };
        self.spawn(run.carry_out(self.clone()));
        Ok(view)
    }

    /// Commits a new job, and its idempotency key with it.
    fn commit_new(
        &self,
        mut draft: Draft,
        claimed: Option<Box<Claimed>>,
    ) -> impl Future<Output = Result<JobView, InvokeError>> + use<'_> {
        if let Some(claimed) = &claimed {
            draft.with(claimed.remember(answer_of(draft.job().id())));
        }
        let committing = self.commit(draft);
        async move {
            let committed = committing.await;
            drop(claimed);
            committed.map(|(view, _)| view).map_err(uncommitted)
        }
    }

    /// A new job that is PENDING, and what of it is secret.
    fn opened(
        &self,
        job: JobId,
        request: &Invoke,
        operation: &Operation,
        rerun: Option<&Rerun>,
        now: i64,
    ) -> Result<(Draft, Secrets), InvokeError> {
        let (mut opening, secrets) = self.opening(job, request, operation, &[])?;
        opening.extra.extend(rerun.map(Rerun::members).unwrap_or_default());
        Ok((Draft::open(opening, now, None).map_err(unopened)?, secrets))
    }

    /// What a new job is opened with, and what of it is secret: what its operation marks, what was
    /// secret where its input comes from, and delegations.
    pub(crate) fn opening(
        &self,
        job: JobId,
        request: &Invoke,
        operation: &Operation,
        passed_on: &[Secret],
    ) -> Result<(NewJob, Secrets), InvokeError> {
        let mut extra = Vec::new();
        if !request.tags.is_empty() {
            let tags: Vector = request.tags.iter().map(|tag| Value::from(tag.as_str())).collect();
            extra.push(("tags", tags.into()));
        }
        if let Some(timeout) = request.timeout {
            extra.push(("timeoutMs", milliseconds(timeout).into()));
        }
        let secrets = [operation.secrets(), passed_on].concat();
        let parted = sealed::part(&request.input, &secrets, sealed::INPUT);
        let has_secret = !parted.places.is_empty();
        if has_secret {
            extra.push(("redacted", sealed::places(None, parted.places)));
        }
        let delegations = match operation.plan() {
            Some(_) => self.delegated(&request.caller),
            None => Vec::new(),
        };
        if !delegations.is_empty() {
            extra.push((sealed::DELEGATED, true.into()));
        }
        if operation.plan().is_some() && request.depth > 0 {
            extra.push((DEPTH, request.depth.into()));
        }
        let opening = NewJob {
            id: job,
            venue: self.0.did.value(),
            op: request.operation.as_str().into(),
            operation: Some(operation.id_value()),
            input: parted.open,
            caller: request.caller.did.value(),
            parent: None::<Parent>,
            extra,
        };
        Ok((opening, Secrets { input: has_secret.then(|| request.input.clone()), delegations }))
    }

    /// The call of a turn that nobody can hold.
    pub(crate) fn call(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        job: Option<JobId>,
    ) -> Call {
        Call {
            engine: self.clone(),
            operation,
            caller: request.caller.clone(),
            job,
            input: request.input.clone(),
            cause: Cause::Start,
            attempt: 1,
            last_output: None,
            control: self.0.free.clone(),
        }
    }

    /// How long an operation may run.
    pub(crate) fn execution_limit(
        &self,
        asked: Option<Duration>,
        operation: &Operation,
    ) -> Duration {
        asked.or(operation.timeout()).unwrap_or(self.0.limits.execution)
    }

    /// The job after its end, or after a grace, or after the time that was asked for.
    async fn wait_for(&self, view: JobView, watch: &mut Watch, wait: Option<Duration>) -> JobView {
        let (time, is_enough): (_, fn(Status) -> bool) = match wait {
            Some(wait) => (wait.min(WAIT_MAX), Status::is_terminal),
            // Without being asked to wait, we wait for the operation, not for people.
            None => {
                (self.0.limits.grace, |status| !matches!(status, Status::Pending | Status::Started))
            }
        };
        self.watch_until(view, watch, time, is_enough).await
    }

    /// The newest view of a job when it stands where it should, or when time is up.
    pub(crate) async fn watch_until(
        &self,
        view: JobView,
        watch: &mut Watch,
        time: Duration,
        is_enough: impl Fn(Status) -> bool,
    ) -> JobView {
        let mut view = view;
        let mut timer = self.0.env.sleep(time);
        let mut stopping = Box::pin(self.stopping());
        loop {
            let news = watch.news();
            if let Some(newer) = news.view.filter(|newer| newer.job.count() > view.job.count()) {
                view = newer;
            }
            if is_enough(view.status()) || news.is_gone {
                return view;
            }
            tokio::select! {
                () = watch.changed() => {}
                () = &mut timer => return view,
                () = &mut stopping => return view,
            }
        }
    }

    /// Carries out an operation and gives its bare output. Of a read-only operation it makes no
    /// job.
    pub async fn run(&self, mut request: Invoke) -> Result<Ran, RunError> {
        let is_recorded = request.recording == Recording::Durable;
        let time = request.wait.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        request.wait = Some(time);
        if is_recorded && request.idempotency.is_none() {
            check_request(&request)?;
            let operation = self.resolve(&request.caller, &request.operation).await;
            let operation = operation.map_err(InvokeError::from)?;
            if operation.is_read_only() {
                return Box::pin(self.run_unrecorded(request, operation, time)).await;
            }
        }
        let invoked = self.invoke(request).await?;
        let view = invoked.view;
        let job = Some(view.job.id()).filter(|_| is_recorded);
        if view.status() == Status::Complete {
            let output = view.job.field("output").cloned().unwrap_or_default();
            return Ok(Ran { output, cells: view.cells, job, is_replay: invoked.is_replay });
        }
        let text = |name: &str| Some(view.job.field(name)?.to_text()?.into_owned());
        let error = text("error").unwrap_or_else(|| format!("the job is {}", view.status()));
        let code = text("errorCode");
        let (status, is_replay) = (view.status(), invoked.is_replay);
        Err(RunError::Ended(Box::new(NoOutput { job, status, error, code, is_replay })))
    }

    /// Carries out an operation that changes nothing.
    async fn run_unrecorded(
        &self,
        request: Invoke,
        operation: Arc<Operation>,
        time: Duration,
    ) -> Result<Ran, RunError> {
        if self.is_stopping() {
            return Err(InvokeError::ShuttingDown.into());
        }
        self.admit(&request.caller)?;
        let ended = |status, error, code| {
            let is_replay = false;
            RunError::Ended(Box::new(NoOutput { job: None, status, error, code, is_replay }))
        };
        if let Some(refusal) = refusal(&operation, &request.input) {
            return Err(ended(Status::Rejected, refusal, None));
        }
        let call = self.call(&request, Arc::clone(&operation), None);
        let done = match operation.mode() {
            ExecutionMode::Inline => compute(&call),
            ExecutionMode::Task => {
                let turn = operation.carrier().run(call);
                let limit = self.execution_limit(request.timeout, &operation).min(time);
                tokio::select! {
                    turn = turn => crate::run::bare(turn),
                    () = self.0.env.sleep(limit) => {
                        let error = format!("no result within {} ms", limit.as_millis());
                        return Err(ended(Status::Timeout, error, None));
                    }
                }
            }
        };
        match done {
            Ok(output) => Ok(Ran { output, cells: None, job: None, is_replay: false }),
            Err(failure) => Err(ended(Status::Failed, failure.error, Some(failure.code))),
        }
    }

    /// Tells those who claim that a job was put on the queue.
    pub(crate) fn has_queued(&self, job: &catena_job::Job) {
        if self.0.running.get(job.id()).is_none() {
            self.0.waiting.put(job, PRIORITY, self.now());
        }
        self.0.queued.notify_one();
    }
}

/// Carries out an instant operation and checks its output.
pub(crate) fn compute(call: &Call) -> Result<Value, Failure> {
    let carrier = call.operation.carrier();
    let done = catch_unwind(AssertUnwindSafe(|| carrier.compute(call)));
    let output = done.unwrap_or_else(|_| Err(broken(carrier.name())))?;
    check_output(&call.operation, &output)?;
    Ok(output)
}

/// The change that a result or a failure makes.
pub(crate) fn outcome(done: Result<Value, Failure>, now: i64) -> Change {
    match done {
        Ok(output) => Change::new(Event::Finished { output }, now),
        Err(failure) => {
            let mut change = Change::new(Event::Erred { error: failure.error }, now);
            change.extra.push(("errorCode", failure.code.into()));
            change
        }
    }
}

/// What a job says when its adapter broke.
pub(crate) fn broken(adapter: &str) -> Failure {
    Failure::new("adapter_broken", format!("the {adapter} adapter broke down; this is a bug"))
}

/// Whether an output is what the operation promised, and no more than a value may be.
pub(crate) fn check_output(operation: &Operation, output: &Value) -> Result<(), Failure> {
    let most = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };
    most.measure(output, &NoCells).map_err(|error| {
        Failure::new("output_too_large", format!("the output cannot be kept: it {error}"))
    })?;
    let Some(schema) = operation.output_schema() else { return Ok(()) };
    let violations = schema.violations(output, VIOLATIONS_MAX);
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            "invalid_output",
            format!("the output is not what the operation promises: {}", listed(&violations)),
        )),
    }
}

/// Why an input is refused, if it is.
pub(crate) fn refusal(operation: &Operation, input: &Value) -> Option<String> {
    let violations = operation.input_schema()?.violations(input, VIOLATIONS_MAX);
    match violations.is_empty() {
        true => None,
        false => Some(format!("invalid input: {}", listed(&violations))),
    }
}

fn listed(violations: &[crate::schema::Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The effect that puts a job on the queue.
pub(crate) fn offer(job: JobId, ready_at: i64) -> Effect {
    Effect::Offer { job, queue: QUEUE.to_owned(), priority: PRIORITY, ready_at }
}

/// The member that says until when a job may stay where it is.
pub(crate) fn deadline(now: i64, limit: Duration) -> Value {
    now.saturating_add(milliseconds(limit)).into()
}

pub(crate) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn unopened(error: AppendError) -> InvokeError {
    InvokeError::Invalid(format!("the job cannot be recorded: {error}"))
}

fn check_request(request: &Invoke) -> Result<(), InvokeError> {
    let invalid = |text: String| Err(InvokeError::Invalid(text));
    if request.operation.is_empty() || request.operation.len() > REFERENCE_BYTES_MAX {
        return invalid(format!("`operation` has 1 to {REFERENCE_BYTES_MAX} bytes"));
    }
    if request.tags.len() > TAGS_MAX {
        return invalid(format!("a job has at most {TAGS_MAX} tags"));
    }
    if request.tags.iter().any(|tag| tag.is_empty() || tag.len() > TAG_BYTES_MAX) {
        return invalid(format!("a tag has 1 to {TAG_BYTES_MAX} bytes"));
    }
    if request.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > TIMEOUT_MAX) {
        return invalid(format!("`timeoutMs` is from 1 to {}", TIMEOUT_MAX.as_millis()));
    }
    if request.recording == Recording::Private && request.idempotency.is_some() {
        return invalid("a private job is forgotten, so it takes no idempotency key".to_owned());
    }
    let key = request.idempotency.as_ref().map(|key| key.key.len());
    if key.is_some_and(|len| len == 0 || len > IDEMPOTENCY_KEY_BYTES_MAX) {
        return invalid(format!("an idempotency key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes"));
    }
    Ok(())
}
