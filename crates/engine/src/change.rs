//! The one way to change a job.
//!
//! A change is decided on what the job is, and committed on the condition that it still is that.
//! If somebody else changed it in between, it is read and decided again: so a decision never rests
//! on something that is no longer true, and nobody waits for a lock.

use std::sync::Arc;

use catena_job::chain::{AppendError, Change, NewJob};
use catena_job::progress::last_report;
use catena_job::state::Event;
use catena_job::{Job, JobId, Record, RecordId, Status};
use catena_store::{CommitError, Effect, Effects, JobCells, Receipt, StoredJob};
use catena_value::{CellSource, NoCells, Value};
use futures_util::future::Either;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::limits::{CONTENTION_TRIES_MAX, ERROR_BYTES_MAX};
use crate::orchestration::elsewhere::has_open_away;
use crate::orchestration::weaver::News;
use crate::request::JobView;
use crate::sealed;

/// A job as it is, before a decision about it.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// The fold of its chain.
    pub(crate) job: Arc<Job>,
    /// The cells of its large members; none when all is in memory.
    pub(crate) cells: Option<JobCells>,
    /// How many messages wait.
    pub(crate) queue_depth: u32,
    /// The last progress.
    pub(crate) progress: Option<Value>,
    /// How often something beside the chain changed.
    pub(crate) changes: u64,
}

impl From<StoredJob> for Current {
    fn from(stored: StoredJob) -> Self {
        Current {
            job: stored.job,
            cells: Some(stored.cells),
            queue_depth: stored.queue_depth,
            progress: stored.progress,
            changes: stored.changes,
        }
    }
}

impl Current {
    /// A job that this process made or changed last, as far as it knows.
    pub(crate) fn known(job: Job) -> Self {
        Current { job: Arc::new(job), cells: None, queue_depth: 0, progress: None, changes: 0 }
    }

    /// A member of the job, wholly in memory.
    pub(crate) fn member(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let Some(value) = self.job.field(name) else { return Ok(None) };
        let cells: &dyn CellSource = match &self.cells {
            Some(cells) => cells,
            None => &NoCells,
        };
        let loaded = value.fully_loaded(cells);
        loaded.map(Some).map_err(|error| StoreError::Damaged(format!("`{name}`: {error}")))
    }

    /// A member of the job that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.job.field(name).and_then(Value::as_i64)
    }

    /// A member of the job that is text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.job.field(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Begins a change.
    pub(crate) fn draft(&self) -> Draft {
        Draft {
            job: (*self.job).clone(),
            after: Some(self.job.head()),
            records: Vec::new(),
            more: Vec::new(),
            fence: None,
            waiting: self.queue_depth,
            progress: self.progress.clone(),
            cells: self.cells.clone(),
            changes: self.changes,
        }
    }
}

/// A change that is not durable yet.
#[derive(Debug)]
pub(crate) struct Draft {
    job: Job,
    after: Option<RecordId>,
    records: Vec<Record>,
    more: Vec<Effect>,
    fence: Option<u64>,
    /// Messages that wait: they are dropped, and counted, when the job ends.
    waiting: u32,
    progress: Option<Value>,
    cells: Option<JobCells>,
    changes: u64,
}

impl Draft {
    /// A new job: PENDING, or REJECTED when it comes with a refusal.
    pub(crate) fn open(
        opening: NewJob,
        now: i64,
        refusal: Option<&str>,
    ) -> Result<Draft, AppendError> {
        let (job, first) = Job::open(opening, now, refusal.map(cut).as_deref())?;
        // Room for the three records of a job that is done at once.
        let mut records = Vec::with_capacity(3);
        records.push(first);
        Ok(Draft {
            job,
            after: None,
            records,
            more: Vec::new(),
            fence: None,
            waiting: 0,
            progress: None,
            cells: None,
            changes: 0,
        })
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Adds an effect that is to become durable together with the records.
    pub(crate) fn with(&mut self, effect: Effect) {
        self.more.push(effect);
    }

    /// Makes the commit depend on a lease.
    pub(crate) fn fenced(&mut self, fence: Option<u64>) {
        self.fence = fence;
    }

    /// Appends a record. One that ends the job also says what was left over.
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
            if self.waiting > 0 {
                change.extra.push(("discarded", i64::from(self.waiting).into()));
            }
            if let Some(progress) = self.progress.take() {
                change.extra.push(("progress", last_report(&progress)));
            }
        }
        if let Event::Erred { error } | Event::Expired { error } | Event::Cancelled { error } =
            &mut change.event
        {
            *error = cut(error);
        }
        let record = self.job.append(change)?;
        self.records.push(record);
        Ok(())
    }

    /// Makes the progress that is known durable together with the records.
    pub(crate) fn keep_progress(&mut self) {
        if let Some(progress) = self.progress.clone() {
            self.more.push(Effect::Progress { job: self.job.id(), progress });
        }
    }

    /// Whether the job is not stored yet.
    pub(crate) fn is_new(&self) -> bool {
        self.after.is_none()
    }

    /// Whether only something beside the chain is to be stored.
    pub(crate) fn is_beside(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether nothing is to be stored.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.records.is_empty() && self.more.is_empty()
    }

    /// The effects, and the job as it will be.
    pub(crate) fn into_parts(self) -> (Vec<Effect>, JobView) {
        let id = self.job.id();
        let mut effects = Vec::with_capacity(2 + self.more.len());
        let is_ending = self.job.status().is_terminal() && self.after.is_some();
        if is_ending {
            effects.push(Effect::Waiting { job: id, count: self.waiting });
        }
        let job = Arc::new(self.job);
        if !self.records.is_empty() {
            effects.push(Effect::Append {
                job: Arc::clone(&job),
                after: self.after,
                records: self.records,
                fence: self.fence,
            });
        }
        effects.extend(self.more);
        let view = JobView {
            job,
            cells: self.cells,
            changes: self.changes,
            queue_depth: if is_ending { 0 } else { self.waiting },
            progress: self.progress,
            steps: None,
            phase: catena_job::vocabulary::Phase::Queued,
        };
        (effects, view)
    }
}

/// Cuts a text that is too long for a record.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(ERROR_BYTES_MAX);
    format!("{}… (cut, {} bytes in all)", &text[..end], text.len())
}

/// What came of a change.
#[derive(Debug)]
pub(crate) enum Changed {
    /// It is durable.
    Done(JobView),
    /// The decision was to leave the job as it is.
    Left(Box<Current>),
    /// There is no such job.
    Missing,
}

impl Engine {
    /// A job as it is.
    pub(crate) async fn current(&self, id: JobId) -> Result<Option<Current>, StoreError> {
        Ok(self.0.store.job(id).await?.map(Current::from))
    }

    /// Changes a job: `decide` is given the job as it is, and may be asked again. `known` is the
    /// job as the caller believes it to be, to save a read.
    pub(crate) async fn change<E: From<StoreError>>(
        &self,
        id: JobId,
        known: Option<Current>,
        mut decide: impl FnMut(&Current) -> Result<Option<Draft>, E>,
    ) -> Result<Changed, E> {
        let mut known = known;
        for _ in 0..CONTENTION_TRIES_MAX {
            let current = match known.take() {
                Some(current) => current,
                None => match self.current(id).await? {
                    Some(current) => current,
                    None => return Ok(Changed::Missing),
                },
            };
            let Some(draft) = decide(&current)? else {
                return Ok(Changed::Left(Box::new(current)));
            };
            match self.commit(draft).await {
                Ok((view, _)) => return Ok(Changed::Done(view)),
                Err(CommitError::HeadMoved { found: None, .. } | CommitError::NoSuchJob { .. }) => {
                    return Ok(Changed::Missing);
                }
                Err(
                    CommitError::HeadMoved { .. }
                    | CommitError::QueueMoved { .. }
                    | CommitError::NotNext { .. }
                    | CommitError::RootMoved { .. },
                ) => {}
                Err(error) => return Err(StoreError::from(error).into()),
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Makes a draft durable and tells everybody. It is handed in before anybody waits, so that a
    /// wait holds nothing but what is told at its end.
    pub(crate) fn commit(
        &self,
        mut draft: Draft,
    ) -> impl Future<Output = Result<(JobView, Receipt), CommitError>> + use<'_> {
        let ends = draft.job.status().is_terminal();
        let has_more = |job: &Job| sealed::has_secrets(job) || has_open_away(job);
        if ends && !draft.is_new() && has_more(&draft.job) {
            return Either::Left(Box::pin(async move {
                self.erase_secrets(&mut draft).await;
                draft.more.extend(self.unwanted(&draft.job).await);
                self.hand_in(draft).await
            }));
        }
        Either::Right(self.hand_in(draft))
    }

    /// Erases what is kept sealed of a job, in the commit that ends it.
    pub(crate) async fn erase_secrets(&self, draft: &mut Draft) {
        let job = draft.job.id();
        if !draft.job.status().is_terminal() || !sealed::has_secrets(&draft.job) {
            return;
        }
        match draft.is_new() {
            // It ended as it began: there was no need to keep them.
            true => draft.more.retain(|effect| !sealed::is_kept(job, effect)),
            false => draft.more.extend(sealed::erase(self, job).await),
        }
    }

    fn hand_in(
        &self,
        draft: Draft,
    ) -> impl Future<Output = Result<(JobView, Receipt), CommitError>> + use<'_> {
        let is_new = draft.is_new();
        let (effects, view) = draft.into_parts();
        let committing = self.0.store.commit(Effects(effects));
        async move {
            let receipt = committing.await?;
            self.is_durable(&view, is_new);
            Ok((view, receipt))
        }
    }

    /// What follows from a change that is durable.
    pub(crate) fn is_durable(&self, view: &JobView, is_new: bool) {
        let job = &view.job;
        let ends = job.status().is_terminal();
        let owner = || job.field("caller").and_then(Value::as_str).unwrap_or_default();
        if !is_new {
            self.adopt(job);
        }
        if !matches!(job.status(), Status::Pending | Status::Started) {
            self.0.waiting.take(job.id());
        }
        if job.parent().is_none() {
            match (is_new, ends) {
                (true, false) => self.0.admission.enter(owner()),
                (false, true) => self.0.admission.leave(owner()),
                _ => {}
            }
        }
        self.0.counts.job(is_new, ends.then(|| job.status()));
        if let Some(deadline) = job.field("deadline").and_then(Value::as_i64).filter(|_| !ends) {
            self.0.alarms.not_later_than(deadline);
        }
        if let Some(parent) = job.parent() {
            let is_heard = self.0.weavers.tell(parent.job, News::Child(view.clone()));
            if ends && !is_heard {
                self.spawn(self.looks_different(parent.job));
            }
        }
        self.0.hub.announce(view);
    }
}

/// The status a job must not have for something to be done with it.
pub(crate) fn is_live(job: &Job) -> bool {
    !job.status().is_terminal()
}

/// Whether a job waits for a message.
pub(crate) fn waits_for_message(status: Status) -> bool {
    matches!(status, Status::InputRequired | Status::AuthRequired)
}
