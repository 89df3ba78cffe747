//! A job as it was read, and a change of it that is not durable yet.

use std::sync::Arc;

use catena_job::chain::{AppendError, Change, NewJob};
use catena_job::progress::last_report;
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::vocabulary::Phase;
use catena_job::{Job, JobId, Record, RecordId, Status};
use catena_store::{Effect, Hold, HoldState, Holder, JobCells, StoredJob};
use catena_value::{CellSource, NoCells, Value, Vector};

use crate::error::StoreError;
use crate::jobs::{
    AUTHORITY, DECLARED, DELEGATED, DEPTH, Jobs, NewSecrets, deadline, has_open_remote_steps,
    milliseconds, outcome_change, redact, redacted_paths, run_inline, secrets,
};
use crate::limits::ERROR_BYTES_MAX;
use crate::operations::schema::Secret;
use crate::operations::{
    BOUND, Call, ExecutionMode, Operation, Placement, QUEUE_GROUP, QUEUE_NAME, QUEUE_PRIORITY,
    QueueOwner, QueueSpec, definition_effects, full_name, owner_of_reference,
};
use crate::requests::{Invoke, JobView};

/// A job as it is before a decision about it.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// The fold of its chain.
    pub(crate) job: Arc<Job>,
    /// Where the cells of its large members are. `None` if all of it is in memory.
    pub(crate) cells: Option<JobCells>,
    /// The number of queued messages.
    pub(crate) queue_depth: u32,
    /// The last progress report.
    pub(crate) progress: Option<Value>,
    /// The number of changes outside the chain.
    pub(crate) changes: u64,
    /// Who runs it.
    pub(crate) hold: HoldState,
    /// When it may be started from its queue, as Unix time in ms. `None` if it is on no queue.
    pub(crate) ready_at: Option<i64>,
}

impl From<StoredJob> for Current {
    fn from(stored: StoredJob) -> Self {
        Current {
            job: stored.job,
            cells: Some(stored.cells),
            queue_depth: stored.queue_depth,
            progress: stored.progress,
            changes: stored.changes,
            hold: stored.hold,
            ready_at: stored.ready_at,
        }
    }
}

impl Current {
    /// Creates the current state of a job that this process runs under a fence, as far as it knows.
    pub(crate) fn from_job(job: Arc<Job>, fence: u64) -> Self {
        Current {
            job,
            cells: None,
            queue_depth: 0,
            progress: None,
            changes: 0,
            hold: HoldState { fence, ..HoldState::default() },
            ready_at: None,
        }
    }

    /// Returns true if a process holds the job, alive or not.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.holder.is_some()
    }

    /// Returns the change by which nobody holds the job any more.
    pub(crate) fn vacated(&self) -> Hold {
        let fence = self.hold.fence;
        if self.is_held() { Hold::Release(fence) } else { Hold::Vacant(fence) }
    }

    /// Returns a member of the job, completely in memory.
    pub(crate) fn member(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let Some(value) = self.job.field(name) else { return Ok(None) };
        let cells: &dyn CellSource = match &self.cells {
            Some(cells) => cells,
            None => &NoCells,
        };
        let loaded = value.fully_loaded(cells);
        loaded.map(Some).map_err(|error| StoreError::Damaged(format!("`{name}`: {error}")))
    }

    /// Returns a member of the job, if it is an integer.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.job.field(name).and_then(Value::as_i64)
    }

    /// Returns a member of the job as text. Empty if it is absent or not text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.job.field(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Starts a change.
    pub(crate) fn draft(&self) -> Draft {
        Draft {
            job: Arc::clone(&self.job),
            after: Some(self.job.head()),
            records: Vec::new(),
            more: Vec::new(),
            hold: Hold::Unchanged,
            fence: self.hold.fence,
            phase: self.phase(),
            queue_depth: self.queue_depth,
            progress: self.progress.clone(),
            cells: self.cells.clone(),
            changes: self.changes,
            leaves_remote_steps: false,
            is_released: false,
        }
    }

    /// Returns the phase of the job: whether a process runs it.
    pub(crate) fn phase(&self) -> Phase {
        let runs = self.is_held() && self.job.status() == catena_job::Status::Started;
        if runs { Phase::Leased } else { Phase::Queued }
    }
}

impl From<Current> for JobView {
    fn from(current: Current) -> Self {
        let phase = current.phase();
        let is_in_chain = current.job.field("progress").is_some();
        JobView {
            job: current.job,
            cells: current.cells,
            changes: current.changes,
            queue_depth: current.queue_depth,
            // The record that ends a job carries the last progress.
            progress: if is_in_chain { None } else { current.progress },
            steps: None,
            phase,
            ready_at: current.ready_at,
        }
    }
}

/// A change that is not durable yet.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// Copied by the first change if it is shared.
    job: Arc<Job>,
    after: Option<RecordId>,
    records: Vec<Record>,
    more: Vec<Effect>,
    hold: Hold,
    /// The last known fence.
    fence: u64,
    phase: Phase,
    /// The number of queued messages: they are discarded, and counted, when the job ends.
    queue_depth: u32,
    progress: Option<Value>,
    cells: Option<JobCells>,
    changes: u64,
    leaves_remote_steps: bool,
    /// True if the roots that the job is bound to are changed with it already.
    is_released: bool,
}

impl Draft {
    /// Creates a new job. It is PENDING, or REJECTED if there is a refusal.
    pub(crate) fn new(
        new_job: NewJob,
        now: i64,
        refusal: Option<&str>,
    ) -> Result<Draft, AppendError> {
        let (job, first) = Job::create(new_job, now, refusal.map(truncate_text).as_deref())?;
        // Room for the three records of a job that starts and ends in one commit.
        let mut records = Vec::with_capacity(3);
        records.push(first);
        Ok(Draft {
            job: Arc::new(job),
            after: None,
            records,
            more: Vec::new(),
            hold: Hold::Unchanged,
            fence: 0,
            phase: Phase::Queued,
            queue_depth: 0,
            progress: None,
            cells: None,
            changes: 0,
            leaves_remote_steps: false,
            is_released: false,
        })
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the job as it is after what was appended so far.
    pub(crate) fn shared_job(&self) -> Arc<Job> {
        Arc::clone(&self.job)
    }

    /// Adds an effect that becomes durable together with the records.
    pub(crate) fn add(&mut self, effect: Effect) {
        self.more.push(effect);
    }

    /// Stores the definition of a new job's operation together with the job if no asset may hold it
    /// yet, so that the job can be recovered.
    pub(crate) fn store_definition(&mut self, operation: &Operation) {
        if operation.is_asset() {
            return;
        }
        let owner = self.job.field("caller").and_then(Value::as_str).unwrap_or_default();
        let effects = definition_effects(owner, operation.metadata(), self.job.updated());
        self.more.extend(effects);
    }

    /// Removes the effects that a predicate selects.
    pub(super) fn remove_effects(&mut self, is_removed: impl Fn(&Effect) -> bool) {
        self.more.retain(|effect| !is_removed(effect));
    }

    /// Makes the commit conditional on who runs the job, or changes who does.
    pub(crate) fn set_hold(&mut self, hold: Hold) {
        self.phase = match &hold {
            Hold::Acquire { .. } | Hold::Transfer { .. } | Hold::Under(_) => Phase::Leased,
            Hold::Release(_) | Hold::Park(_) | Hold::Vacant(_) => Phase::Queued,
            Hold::Unchanged => self.phase,
        };
        self.hold = hold;
    }

    /// Makes a process the holder of the job. Returns its fence.
    pub(crate) fn acquire(&mut self, holder: &Holder) -> u64 {
        let fence = self.fence + 1;
        self.set_hold(Hold::Acquire { holder: holder.clone(), fence });
        fence
    }

    /// Leaves open remote steps running if the job ends with this change. By default they are
    /// cancelled.
    pub(crate) fn leave_remote_steps(&mut self) {
        self.leaves_remote_steps = true;
    }

    /// Says that the roots that the job is bound to are changed with it already.
    pub(crate) fn mark_released(&mut self) {
        self.is_released = true;
    }

    /// Returns true if the change ends a job that is bound to roots, or pauses it before it started, and
    /// the roots still have to be changed.
    pub(super) fn needs_release(&self) -> bool {
        let status = self.job.status();
        let ends = status.is_terminal() || status == Status::Paused && self.fence == 0;
        ends && !self.is_released && !self.records.is_empty() && self.job.field(BOUND).is_some()
    }

    /// Appends a record. A record that ends the job also carries the last progress and the number
    /// of discarded messages.
    pub(crate) fn append(&mut self, mut change: Change) -> Result<(), AppendError> {
        let ends = matches!(
            change.event,
            Event::Finished { .. }
                | Event::Erred { .. }
                | Event::Cancelled { .. }
                | Event::Expired { .. }
                | Event::Refused { .. }
        );
        if ends {
            if self.queue_depth > 0 {
                change.extra.push(("discarded", i64::from(self.queue_depth).into()));
            }
            if let Some(progress) = self.progress.take() {
                change.extra.push(("progress", last_report(&progress)));
            }
        }
        if let Event::Erred { error } | Event::Expired { error } | Event::Cancelled { error } =
            &mut change.event
        {
            *error = truncate_text(error);
        }
        let record = Arc::make_mut(&mut self.job).append(change)?;
        self.records.push(record);
        Ok(())
    }

    /// Executes an inline operation and appends its start and its outcome. Returns false, and appends
    /// nothing, if the operation needs a compute thread.
    pub(crate) fn append_inline(&mut self, call: &Call, now: i64) -> Result<bool, AppendError> {
        let Some(result) = run_inline(call) else { return Ok(false) };
        self.append(Change::new(Event::Started, now))?;
        self.append(outcome_change(result, call.control.now().max(now)))?;
        Ok(true)
    }

    /// Makes the known progress durable together with the records.
    pub(crate) fn save_progress(&mut self) {
        if let Some(progress) = self.progress.clone() {
            self.more.push(Effect::SetProgress { job: self.job.id(), progress });
        }
    }

    /// Returns true if the job is not stored yet.
    pub(crate) fn is_new(&self) -> bool {
        self.after.is_none()
    }

    /// Returns true if the change adds no record.
    pub(crate) fn is_off_chain(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns true if there is nothing to commit.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.records.is_empty() && self.more.is_empty() && self.hold == Hold::Unchanged
    }

    /// Returns true if the change ends a job that has secrets to erase or remote steps to cancel.
    pub(super) fn needs_cleanup(&self) -> bool {
        let ends = self.job.status().is_terminal();
        ends && (secrets::has_secrets(&self.job)
            || has_open_remote_steps(&self.job)
            || self.may_await_calls())
    }

    /// Returns true if its worker may have given the job back until calls end.
    pub(super) fn may_await_calls(&self) -> bool {
        !self.job.calls().is_empty() && self.job.field(QUEUE_NAME).is_some()
    }

    /// Returns true if open remote steps are cancelled with the job.
    pub(super) fn cancels_remote_steps(&self) -> bool {
        !self.leaves_remote_steps && !self.is_new()
    }

    /// Returns the effects, and the job as it will be.
    pub(crate) fn into_parts(self) -> (Vec<Effect>, JobView) {
        let id = self.job.id();
        let mut effects = Vec::with_capacity(2 + self.more.len());
        let is_ending = self.job.status().is_terminal() && self.after.is_some();
        if is_ending {
            effects.push(Effect::CheckMessageCount { job: id, count: self.queue_depth });
        }
        let job = self.job;
        if !self.records.is_empty() {
            effects.push(Effect::Append {
                job: Arc::clone(&job),
                after: self.after,
                records: self.records,
                hold: self.hold,
            });
        } else if let (Some(after), false) = (self.after, self.hold == Hold::Unchanged) {
            effects.push(Effect::SetHold { job: id, after, hold: self.hold });
        }
        let offered = self.more.iter().find_map(|effect| match effect {
            Effect::Enqueue { ready_at, .. } => Some(*ready_at),
            _ => None,
        });
        effects.extend(self.more);
        let view = JobView {
            job,
            cells: self.cells,
            changes: self.changes,
            queue_depth: if is_ending { 0 } else { self.queue_depth },
            progress: self.progress,
            steps: None,
            phase: self.phase,
            ready_at: offered,
        };
        (effects, view)
    }
}

/// Truncates a text that is too long for a record.
pub(crate) fn truncate_text(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(ERROR_BYTES_MAX);
    format!("{}… (truncated from {} bytes)", &text[..end], text.len())
}

impl Jobs {
    /// Returns the content of the first record of a new job, and the secrets that it must not
    /// contain: the values that the operation marks as secret, those in `passed_on`, which were
    /// secret in the parent's input, and delegations.
    pub(crate) fn new_job(
        &self,
        id: JobId,
        request: &Invoke,
        operation: &Operation,
        passed_on: &[Secret],
    ) -> (NewJob, NewSecrets) {
        let mut extra = Vec::new();
        if !request.tags.is_empty() {
            let tags: Vector = request.tags.iter().map(|tag| Value::from(tag.as_str())).collect();
            extra.push(("tags", tags.into()));
        }
        if let Some(timeout) = request.timeout {
            extra.push(("timeoutMs", milliseconds(timeout).into()));
        }
        let secrets = [operation.secrets(), passed_on].concat();
        let redacted = redact(&request.input, &secrets, secrets::INPUT);
        let has_secret = !redacted.paths.is_empty();
        if has_secret {
            extra.push(("redacted", redacted_paths(None, redacted.paths)));
        }
        if let Some(spec) = operation.queue().filter(|spec| spec.owner == QueueOwner::Venue) {
            extra.extend(self.placed(operation, spec, &request.input));
        } else if let Some(spec) = operation.queue() {
            let owner = owner_of_reference(&request.operation, &request.caller.did);
            extra.push((QUEUE_NAME, full_name(owner, &spec.queue).into()));
            let group = spec.group(&redacted.public);
            if !group.is_empty() {
                extra.push((QUEUE_GROUP, group.into()));
            }
            if spec.priority != 0 {
                extra.push((QUEUE_PRIORITY, spec.priority.into()));
            }
            if !spec.secrets.is_empty() {
                let names = spec.secrets.iter().map(|name| Value::from(name.as_str()));
                extra.push((DECLARED, names.collect::<Vector>().into()));
            }
        }
        if let Some(restriction) = &request.caller.restriction {
            extra.push((AUTHORITY, restriction.to_value()));
        }
        extra.extend(operation.binding(&request.input).map(|binding| (BOUND, binding.into())));
        let delegations = match operation.plan() {
            Some(_) => request.caller.delegations.clone(),
            None => Vec::new(),
        };
        if !delegations.is_empty() {
            extra.push((DELEGATED, true.into()));
        }
        // An inline operation makes no calls.
        if operation.mode() == ExecutionMode::Task && request.depth > 0 {
            extra.push((DEPTH, request.depth.into()));
        }
        let new_job = NewJob {
            id,
            venue: self.did.value(),
            op: request.operation.as_str().into(),
            operation: Some(operation.id_value()),
            input: redacted.public,
            caller: request.caller.did.value(),
            parent: None::<Parent>,
            extra,
        };
        (new_job, NewSecrets { input: has_secret.then(|| request.input.clone()), delegations })
    }

    /// Returns the members of a first record that say where a job waits for an executor. If the adapter
    /// does not know a place, the job waits on the queue of its operation.
    fn placed(
        &self,
        operation: &Operation,
        spec: &QueueSpec,
        input: &Value,
    ) -> Vec<(&'static str, Value)> {
        let placed = operation.adapter().place(operation, input, &self.environments);
        let placement = placed.unwrap_or_else(|_| Placement {
            queue: spec.queue.clone(),
            priority: spec.priority,
            members: Vec::new(),
        });
        let mut extra = placement.members;
        extra.push((QUEUE_NAME, full_name(&self.did, &placement.queue).into()));
        if placement.priority != 0 {
            extra.push((QUEUE_PRIORITY, placement.priority.into()));
        }
        extra.push(("deadline", deadline(self.runtime.now(), self.runtime.limits.queue_time)));
        extra
    }

    /// Adds the delegations of a request to a new job that may call others after a restart. A
    /// sub-job finds those of the jobs above it, unless it may outlive them.
    pub(crate) fn keep_delegations(
        &self,
        request: &Invoke,
        operation: &Operation,
        new_job: &mut NewJob,
        secrets: &mut NewSecrets,
    ) {
        if operation.mode() == ExecutionMode::Inline || !secrets.delegations.is_empty() {
            return;
        }
        secrets.delegations = request.caller.delegations.clone();
        if !secrets.delegations.is_empty() {
            new_job.extra.push((DELEGATED, true.into()));
        }
    }
}
