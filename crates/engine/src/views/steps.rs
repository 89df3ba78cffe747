//! The `steps` member of an orchestration's JSON.
//!
//! A parent's chain says which steps started and ended; everything else is read from the sub-jobs.
//! What is shown of them depends on the moment: a client that reads the job wants their present
//! state, and one that replays the records of a parent wants their state as of each record.
//!
//! Large outputs of steps are omitted: a job must be readable, however much its steps return.

use std::collections::HashMap;
use std::sync::Arc;

use catena_job::chain::StepState;
use catena_job::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use catena_job::plan::Plan;
use catena_job::{Job, JobId, Status};
use catena_value::{CellSource, Extent, ExtentError, Map, NoCells, Value, ValueId, Vector};
use parking_lot::Mutex;

use crate::error::{ResolveError, StoreError};
use crate::jobs::{Current, RemoteSnapshot, ReusedEntry, kept_output, reused_steps};
use crate::limits::{OUTPUT_SIZES_MAX, STEP_OUTPUT_BYTES_MAX, STEP_OUTPUTS_BYTES_MAX};
use crate::operations::federation::RemoteJob;
use crate::views::Views;

/// Records of a sub-job that are read at a time.
const READ_BATCH: usize = 64;

/// The members of a step's entry.
type Members = Vec<(&'static str, Value)>;

/// The sizes of large outputs that were measured, by Value ID. Measuring one reads all of it, and a job
/// is read often.
#[derive(Default)]
pub(crate) struct OutputSizes(Mutex<HashMap<ValueId, u64>>);

impl OutputSizes {
    /// Returns the size of a value in bytes of JSON.
    fn measure(&self, value: &Value, cells: &dyn CellSource) -> Result<u64, StoreError> {
        let id = match value {
            Value::Unloaded(id) => Some(**id),
            _ => None,
        };
        if let Some(known) = id.and_then(|id| self.0.lock().get(&id).copied()) {
            return Ok(known);
        }
        let extent = Extent { bytes: 2 * VALUE_BYTES_MAX, depth: 2 * VALUE_DEPTH_MAX };
        let bytes = match extent.measure(value, cells) {
            Ok(bytes) | Err(ExtentError::Bytes(bytes)) => bytes,
            Err(error) => return Err(StoreError::Damaged(error.to_string())),
        };
        if let Some(id) = id.filter(|_| bytes > STEP_OUTPUT_BYTES_MAX) {
            let mut known = self.0.lock();
            if known.len() >= OUTPUT_SIZES_MAX {
                known.clear();
            }
            known.insert(id, bytes);
        }
        Ok(bytes)
    }
}

/// The entry of a step that is being described.
struct Entry<'a> {
    sizes: &'a OutputSizes,
    members: Members,
    /// Bytes of outputs that the entries of this and later steps may contain.
    room: u64,
}

impl Entry<'_> {
    fn push(&mut self, member: (&'static str, Value)) {
        self.members.push(member);
    }

    fn extend(&mut self, members: impl IntoIterator<Item = (&'static str, Value)>) {
        self.members.extend(members);
    }

    /// Adds the output of a step or, if it is too large, its size and where it can be read.
    fn push_output(
        &mut self,
        output: &Value,
        cells: &dyn CellSource,
        link: Option<String>,
    ) -> Result<(), StoreError> {
        let bytes = self.sizes.measure(output, cells)?;
        if bytes <= STEP_OUTPUT_BYTES_MAX && bytes <= self.room {
            self.room -= bytes;
            let output = output.fully_loaded(cells);
            let output = output.map_err(|error| StoreError::Damaged(error.to_string()))?;
            self.push(("output", output));
        } else {
            self.push(("outputBytes", i64::try_from(bytes).unwrap_or(i64::MAX).into()));
            self.extend(link.map(|link| ("outputLink", link.into())));
        }
        Ok(())
    }
}

/// Returns where the output of a sub-job can be read.
fn job_link(job: JobId) -> String {
    format!("/api/v1/jobs/{job}")
}

/// The steps of a job at one moment.
pub(crate) struct Steps {
    /// One entry per step.
    pub(crate) entries: Value,
    /// The number of records of the sub-jobs. It grows with every change of a step, also if the
    /// chain of the parent does not.
    pub(crate) changes: u64,
}

/// The moment at which steps are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Now.
    Present,
    /// When the last record of the job, as far as it was read, was appended.
    LastRecord,
}

impl Views {
    /// Returns the steps of a job at a moment. `None` if the job is not an orchestration.
    pub(crate) async fn steps_of(
        &self,
        current: &Current,
        moment: Moment,
    ) -> Result<Option<Steps>, StoreError> {
        if self.has_no_steps(&current.job) {
            return Ok(None);
        }
        Box::pin(self.steps_of_orchestration(current, moment)).await
    }

    async fn steps_of_orchestration(
        &self,
        current: &Current,
        moment: Moment,
    ) -> Result<Option<Steps>, StoreError> {
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let Some(plan) = operation.plan() else { return Ok(None) };
        let mut entries = Vec::with_capacity(plan.steps.len());
        let mut changes = 0;
        let mut room = STEP_OUTPUTS_BYTES_MAX;
        for index in 0..plan.steps.len() {
            let mut entry = Entry { sizes: &self.output_sizes, members: Vec::new(), room };
            changes += self.step(current, plan, index, moment, &mut entry).await?;
            room = entry.room;
            entries.push(entry.members.into_iter().collect::<Map>().into());
        }
        Ok(Some(Steps { entries: Vector::from_items(entries).into(), changes }))
    }

    /// Describes a step. Returns the number of records of its sub-job.
    async fn step(
        &self,
        current: &Current,
        plan: &Plan,
        index: usize,
        moment: Moment,
        entry: &mut Entry<'_>,
    ) -> Result<u64, StoreError> {
        let job = &*current.job;
        let step = &plan.steps[index];
        let number = i64::try_from(index).unwrap_or(i64::MAX);
        entry.extend([("index", Value::from(number)), ("op", step.op.as_str().into())]);
        entry.extend(step.name.as_deref().map(|name| ("name", name.into())));
        entry.extend(step.venue.as_deref().map(|venue| ("venue", venue.into())));
        let at = u32::try_from(index).unwrap_or(u32::MAX);
        let mut records = 0;
        match (job.steps().get(&at), step.venue.is_some()) {
            (Some(state), true) => self.describe_remote(job, at, state, moment, entry).await?,
            (Some(state), false) => {
                records = self.describe_started(job, state, moment, entry).await?;
            }
            (None, is_remote) => {
                self.describe_not_started(current, at, is_remote, entry).await?;
            }
        }
        Ok(records)
    }

    /// Describes a step that the chain does not name.
    async fn describe_not_started(
        &self,
        current: &Current,
        step: u32,
        is_remote: bool,
        entry: &mut Entry<'_>,
    ) -> Result<(), StoreError> {
        let job = &*current.job;
        let reused = reused_steps(job.field("reused")).into_iter().enumerate();
        if let Some((at, earlier)) = reused.into_iter().find(|(_, earlier)| earlier.step == step) {
            entry.push(("id", earlier.job.into()));
            entry.push(("reused", true.into()));
            if earlier.is_remote {
                return self.describe_reused_remote(job, &earlier, entry).await;
            }
            match self.jobs.current(earlier.job).await? {
                Some(child) => self.describe(&child.job, child.cells.as_ref(), entry)?,
                None => {
                    entry.push(("status", Status::Complete.into()));
                    entry.extend(earlier.record.map(|record| ("head", record.into())));
                    if let Some(output) = kept_output(current, at)? {
                        let link = format!("{}/history?limit=1", job_link(job.id()));
                        entry.push_output(&output, &NoCells, Some(link))?;
                    }
                }
            }
            return Ok(());
        }
        // The job ended while the step was being started on its venue.
        if is_remote
            && job.status().is_terminal()
            && let Some((known, _)) = self.jobs.remote_snapshot(job.id(), step).await?
        {
            entry.push(("id", known.job.into()));
            return describe_snapshot(known, entry);
        }
        if let Some(error) = input_error(job, step) {
            entry.push(("status", Status::Failed.into()));
            entry.push(("error", error.into()));
            return Ok(());
        }
        // If the job has ended, the step will never start.
        let status = if job.status().is_terminal() { "SKIPPED" } else { "PENDING" };
        entry.push(("status", status.into()));
        Ok(())
    }

    /// Describes a step that runs here, and returns the number of records of its sub-job.
    async fn describe_started(
        &self,
        job: &Job,
        state: &StepState,
        moment: Moment,
        entry: &mut Entry<'_>,
    ) -> Result<u64, StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        let Some(child) = self.jobs.current(state.start.job).await? else {
            let status = state.end.as_ref().map_or(Status::Started, |end| end.status);
            entry.push(("status", status.into()));
            describe_end(state, entry);
            return Ok(0);
        };
        let child = match (moment, &state.end) {
            (Moment::LastRecord, None) => self.child_as_of(child, job.updated()).await?,
            // A sub-job that has ended does not change any more.
            _ => child,
        };
        self.describe(&child.job, child.cells.as_ref(), entry)?;
        Ok(child.job.count())
    }

    /// Returns a sub-job as it was at a time, in Unix time in ms.
    async fn child_as_of(&self, child: Current, at: i64) -> Result<Current, StoreError> {
        if child.job.updated() <= at {
            return Ok(child);
        }
        let id = child.job.id();
        let mut folded: Option<Job> = None;
        loop {
            let from = folded.as_ref().map_or(0, Job::count);
            let Some(page) = self.jobs.store.records(id, from, READ_BATCH).await? else {
                return Ok(child);
            };
            let is_last = page.records.is_empty();
            for record in page.records {
                let damaged = |error: catena_job::chain::ChainError| {
                    StoreError::Damaged(format!("job {id}: {error}"))
                };
                match &mut folded {
                    Some(job) if record.updated() <= at => job.follow(&record).map_err(damaged)?,
                    Some(job) => {
                        let job = Arc::new(job.clone());
                        return Ok(Current { job, cells: Some(page.cells), ..child });
                    }
                    None => folded = Some(Job::from_first_record(&record).map_err(damaged)?),
                }
            }
            if is_last {
                return Ok(child);
            }
        }
    }

    /// Describes a remote step by its end in the chain, or else by its last known state.
    async fn describe_remote(
        &self,
        job: &Job,
        step: u32,
        state: &StepState,
        moment: Moment,
        entry: &mut Entry<'_>,
    ) -> Result<(), StoreError> {
        entry.push(("id", state.start.job.into()));
        entry.push(("started", state.started_at.into()));
        let known = self.jobs.remote_snapshot(job.id(), step).await?.map(|(known, _)| known);
        let Some(end) = &state.end else {
            // Only the newest snapshot is stored.
            let known =
                known.filter(|known| moment == Moment::Present || known.at <= job.updated());
            let known = known.unwrap_or_else(|| RemoteSnapshot::from_chain(state, ""));
            return describe_snapshot(known, entry);
        };
        entry.push(("status", end.status.into()));
        describe_end(state, entry);
        if let Some(known) = known.filter(|known| known.state.record == end.record) {
            describe_output(known.state, entry)?;
        }
        Ok(())
    }

    async fn describe_reused_remote(
        &self,
        job: &Job,
        earlier: &ReusedEntry,
        entry: &mut Entry<'_>,
    ) -> Result<(), StoreError> {
        entry.push(("status", Status::Complete.into()));
        entry.extend(earlier.record.map(|record| ("head", record.into())));
        if let Some((known, _)) = self.jobs.remote_snapshot(job.id(), earlier.step).await? {
            describe_output(known.state, entry)?;
        }
        Ok(())
    }

    fn describe(
        &self,
        child: &Job,
        cells: Option<&catena_store::JobCells>,
        entry: &mut Entry<'_>,
    ) -> Result<(), StoreError> {
        entry.push(("status", child.status().into()));
        entry.push(("head", child.head().into()));
        if child.status().is_terminal() {
            entry.push(("ended", child.updated().into()));
        }
        let cells: &dyn CellSource = match cells {
            Some(cells) => cells,
            None => &catena_value::NoCells,
        };
        if let Some(output) = child.field("output") {
            entry.push_output(output, cells, Some(job_link(child.id())))?;
        }
        for name in ["error", "message"] {
            if let Some(value) = child.field(name) {
                let value = value.fully_loaded(cells);
                let value = value.map_err(|error| StoreError::Damaged(error.to_string()))?;
                entry.push((name, value));
            }
        }
        Ok(())
    }
}

/// The code of the failure of a job whose step did not start because its input could not be assembled.
pub(crate) const STEP_INPUT: &str = "step_input";

/// What separates the name of such a step from the reason, in the error of the job.
pub(crate) const CANNOT_START: &str = " cannot start: ";

/// Returns why the input of a step could not be assembled, if the job failed for that. The step has no
/// sub-job; the last record of the job names it.
fn input_error(job: &Job, step: u32) -> Option<String> {
    if job.field("errorCode").and_then(Value::as_str) != Some(STEP_INPUT) {
        return None;
    }
    let text = job.field("error")?.to_text()?;
    let (name, error) = text.split_once(CANNOT_START)?;
    let index = name.strip_prefix("step ")?.split(' ').next()?;
    (index.parse() == Ok(step)).then(|| error.to_owned())
}

/// Describes the end of a step by the chain.
fn describe_end(state: &StepState, entry: &mut Entry<'_>) {
    entry.extend(state.ended_at.map(|at| ("ended", at.into())));
    entry.extend(state.end.as_ref().map(|end| ("head", end.record.into())));
}

/// Describes the last known state of a remote job, and when it was observed. Nothing here proves
/// that it is still current.
fn describe_snapshot(known: RemoteSnapshot, entry: &mut Entry<'_>) -> Result<(), StoreError> {
    entry.push(("status", known.state.status.into()));
    entry.push(("head", known.state.record.into()));
    entry.push(("asOf", known.at.into()));
    describe_output(known.state, entry)
}

/// Describes what a remote job returned. A large output is at its venue.
fn describe_output(state: RemoteJob, entry: &mut Entry<'_>) -> Result<(), StoreError> {
    if let Some(output) = state.output {
        entry.push_output(&output, &NoCells, None)?;
    }
    entry.extend(state.error.map(|error| ("error", error.into())));
    entry.extend(state.message.map(|message| ("message", message.into())));
    Ok(())
}
