//! Gives queued jobs to a worker.

use std::pin::Pin;
use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::contract::ENV_VERSION;
use catena_job::note::{Attempt, Note};
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::Holder;
use catena_value::{Extent, NoCells, Value};
use futures_util::future::{join_all, select_all};
use tokio::sync::futures::Notified;

use crate::commands::Commands;
use crate::commands::worker::quota::QUOTA;
use crate::error::{ControlError, StoreError, WorkerError};
use crate::execution::is_unclaimed;
use crate::execution::workers::claims::{Picked, groups};
use crate::execution::workers::queues::Queue;
use crate::execution::workers::sessions::WorkerSession;
use crate::jobs::{
    Current, append_error, deadline, is_answering, milliseconds, recorded_limit, unless_overtaken,
};
use crate::limits::{
    CLAIM_JOBS_MAX, CLAIM_QUEUES_MAX, CLAIM_WITH_ENDS_WAIT_MAX, CLAIMED_STEPS_BYTES_MAX,
    WORKER_WAIT_MAX,
};
use crate::operations::{Failure, QueueOwner, full_name, is_name};
use crate::requests::{
    Caller, Claim, Claimed, ClaimedJob, ClaimedStep, EndTurn, ExecutorAbout, RetryRequest,
    WorkerEnd,
};

impl Commands {
    /// Ends the turns that a worker has finished and gives it jobs, as soon as there are some.
    pub(crate) async fn claim(self: &Arc<Self>, claim: Claim) -> Result<Claimed, WorkerError> {
        check_claim(&claim)?;
        let queues = self.queues_of(&claim)?;
        let (session, _) = self.renew_worker(&claim.caller, &claim.worker).await?;
        let env = &self.runtime.env;
        let longest =
            if claim.done.is_empty() { WORKER_WAIT_MAX } else { CLAIM_WITH_ENDS_WAIT_MAX };
        let until = env.monotonic() + claim.wait.min(longest);
        let ending = self.end_turns(&claim.caller, claim.done);
        let claiming = async {
            loop {
                // Registered before the queues are read, so that nothing is missed.
                let mut wakes: Vec<Pin<Box<Notified<'_>>>> = Vec::with_capacity(queues.len());
                for queue in &queues {
                    let mut notified = Box::pin(queue.wake.notified());
                    notified.as_mut().enable();
                    wakes.push(notified);
                }
                let claimant = (&claim.caller, claim.about.as_ref());
                let jobs = self.claim_now(claimant, &session, &queues, claim.max).await?;
                let left = until.saturating_sub(env.monotonic());
                if !jobs.is_empty() || left.is_zero() || self.runtime.is_stopping() {
                    return Ok::<_, WorkerError>(jobs);
                }
                let next = queues.iter().filter_map(|queue| queue.next_ready()).min();
                let ready_in = next.map(|at| at.saturating_sub(self.runtime.now()).max(1));
                let ready_in = ready_in.and_then(|ms| u64::try_from(ms).ok());
                let sleep =
                    ready_in.map_or(left, |ms| std::time::Duration::from_millis(ms).min(left));
                tokio::select! {
                    _ = select_all(wakes) => {}
                    () = env.sleep(sleep) => {}
                    () = self.runtime.stopping() => {}
                }
            }
        };
        let (done, jobs) = tokio::join!(ending, claiming);
        let jobs = jobs?;
        let (_, lease_until) = self.renew_worker(&claim.caller, &claim.worker).await?;
        Ok(Claimed { jobs, lease_until, done })
    }

    /// Returns the queues of a claim. A queue of another owner is not found.
    fn queues_of(&self, claim: &Claim) -> Result<Vec<Arc<Queue>>, WorkerError> {
        let owner = &*claim.caller.did;
        let mut queues = Vec::with_capacity(claim.queues.len());
        for queue in &claim.queues {
            let short = match queue.rsplit_once('/') {
                Some((of, short)) if of == owner => short,
                Some(_) => return Err(WorkerError::NoSuchQueue(queue.clone())),
                None => queue,
            };
            if !is_name(short) {
                let text = format!("`{queue}` is not the name of a queue");
                return Err(WorkerError::Invalid(text));
            }
            if !claim.caller.may_claim(short) {
                return Err(WorkerError::NoSuchQueue(queue.clone()));
            }
            queues.push(self.execution.workers.queues.get(&full_name(owner, short)));
        }
        Ok(queues)
    }

    async fn claim_now(
        self: &Arc<Self>,
        (caller, about): (&Caller, Option<&ExecutorAbout>),
        session: &Arc<WorkerSession>,
        queues: &[Arc<Queue>],
        max: usize,
    ) -> Result<Vec<ClaimedJob>, WorkerError> {
        let mut claimed = Vec::new();
        let executors = &self.execution.workers;
        let share = about.and_then(|_| executors.share(self.runtime.now()));
        // What nobody else can use is given without regard to shares.
        let mut passes: Vec<(Option<usize>, Arc<Queue>)> = Vec::with_capacity(2 * queues.len());
        if share.is_some() {
            passes.extend(queues.iter().map(|queue| (share, Arc::clone(queue))));
        }
        passes.extend(queues.iter().map(|queue| (None, Arc::clone(queue))));
        for (share, queue) in passes {
            while claimed.len() < max && !self.runtime.is_stopping() {
                let left = max - claimed.len();
                let picked = self.execution.pick_jobs(&queue, left, share).await?;
                if picked.is_empty() {
                    break;
                }
                let commits = picked.into_iter().map(|picked| {
                    let commands = Arc::clone(self);
                    let session = Arc::clone(session);
                    let caller = caller.clone();
                    let about = about.cloned();
                    // A job that is claimed is known to be held, even if the worker disconnects.
                    self.runtime.finish_even_if_dropped(async move {
                        let claimer = (&caller, about);
                        commands.claim_job(claimer, &session, &session.holder, picked).await
                    })
                });
                for job in join_all(commits).await {
                    match job {
                        Ok(job) => claimed.extend(job),
                        Err(error) if claimed.is_empty() => return Err(error.into()),
                        Err(error) => tracing::error!(%error, "cannot give a job to a worker"),
                    }
                }
            }
            if claimed.len() >= max {
                // There may be more for another worker.
                queue.wake_one();
                break;
            }
        }
        Ok(claimed)
    }

    /// Gives a job to a worker, and makes `holder` its holder: the worker, or this process if it is about
    /// to send the job to it. `None` if the job changed meanwhile or need not run.
    pub(super) async fn claim_job(
        self: &Arc<Self>,
        (caller, about): (&Caller, Option<ExecutorAbout>),
        session: &WorkerSession,
        holder: &Holder,
        picked: Picked,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let Picked { current, operation, queue, slot, owner_slot, reservation } = picked;
        let id = current.job.id();
        let now = self.runtime.now();
        let mut draft = current.draft();
        let by = caller.did.to_string();
        let environment =
            Some(current.text(ENV_VERSION).to_owned()).filter(|text| !text.is_empty());
        let tier = about.map(|about| about.tier);
        if self.execution.cancel_orphan(&current.job).await? {
            return Ok(None);
        }
        if self.jobs.lacks_key_of(&current.job).await? {
            self.execution.pause_without_key(&current).await?;
            return Ok(None);
        }
        let is_executed = operation.queue().is_some_and(|spec| spec.owner == QueueOwner::Venue);
        match current.job.status() {
            Status::Pending
                if is_executed && self.exceeds_quota(current.text("caller")).await? =>
            {
                drop((slot, owner_slot, reservation));
                let event = Event::Cancelled { error: QUOTA.to_owned() };
                let may = |current: &Current| Ok(current.job.status() == Status::Pending);
                self.execution.end(id, &event, None, may).await.map_err(quota_error)?;
                return Ok(None);
            }
            Status::Pending => {
                let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
                let mut change = Change::new(Event::Started, now);
                change.by = Some(by);
                change.extra.push(("deadline", deadline(now, limit)));
                if let Some(tier) = &tier {
                    change.extra.push(("executor", (&*session.holder.process).into()));
                    change.extra.push(("tier", tier.as_str().into()));
                }
                draft.append(change).map_err(append_error)?;
            }
            Status::Started if !current.is_held() => {
                let attempt = Some(current.job.attempt());
                let by = Some(by);
                let note = Attempt { attempt, by, environment, tier, ..Attempt::default() };
                let mut change = Change::new(Event::Noted(Note::Attempt(note)), now);
                if is_unclaimed(&current) {
                    // It was paused and resumed on its queue: its time begins now.
                    let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
                    change.extra.push(("deadline", deadline(now, limit)));
                }
                draft.append(change).map_err(append_error)?;
            }
            Status::InputRequired | Status::AuthRequired => {
                // The message is consumed first; that offers the job again.
                self.execution.withdraw(id).await?;
                self.execution.wake(id).await;
                return Ok(None);
            }
            _ => {
                self.execution.withdraw(id).await?;
                return Ok(None);
            }
        }
        let input = self.jobs.input_of(&current).await?;
        let secrets = self.execution.worker_secrets(&current, &operation, &input).await?;
        let given = secrets.as_deref().unwrap_or_default();
        if !given.is_empty() {
            draft.add(self.jobs.store_given_secrets(id, given).await?);
        }
        let input = operation.adapter().worker_input(&operation, &current.job, input);
        let fence = draft.acquire(holder);
        let group = match operation.queue() {
            Some(spec) => groups(spec, &current)?.0,
            None => String::new(),
        };
        let counted = (queue, group, Some(slot), owner_slot);
        let guard = self.execution.register_worker_run(session, id, fence, counted);
        given.iter().for_each(|(_, secret)| guard.handle.secrets.add(secret));
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        drop(reservation);
        let attempt_limit = operation.retry().and_then(|policy| policy.timeout);
        let attempt_until = attempt_limit.map(|limit| now + milliseconds(limit));
        guard.handle.progress.start(current.job.attempt(), self.runtime.env.monotonic());
        session.add((id, current.text("caller")), guard, now, attempt_until);
        let secrets = match secrets {
            Ok(secrets) => secrets,
            Err(failure) => {
                self.refuse_to_give(caller, (id, fence), failure).await;
                return Ok(None);
            }
        };
        let message =
            if is_answering(&current.job) { self.jobs.last_message(&current).await? } else { None };
        let job = &committed.view.job;
        Ok(Some(ClaimedJob {
            id,
            fence,
            attempt: job.attempt(),
            operation: current.text("operation").to_owned(),
            op: current.text("op").to_owned(),
            caller: current.text("caller").to_owned(),
            input,
            secrets,
            steps: self.ended_steps(&current).await?,
            message,
            deadline: job.field("deadline").and_then(Value::as_i64),
        }))
    }

    /// Ends a job whose worker cannot be given the secrets that its operation declares.
    async fn refuse_to_give(
        self: &Arc<Self>,
        caller: &Caller,
        (job, fence): (JobId, u64),
        failure: Failure,
    ) {
        let Failure { code, error, .. } = failure;
        let end = WorkerEnd::Error { error, code: Some(code), retry: RetryRequest::Never };
        let turn = EndTurn { job, fence, end, signature: None, execution: None };
        if let Err(error) = self.end_turn(caller, turn).await {
            // It is held by a worker that will not mention it, and so recovered.
            tracing::error!(%job, %error, "cannot end a job without its secrets");
        }
    }

    /// Returns the calls and steps of earlier turns that have ended, with their outputs as far as there
    /// is room.
    async fn ended_steps(&self, current: &Current) -> Result<Vec<ClaimedStep>, StoreError> {
        let mut steps = Vec::new();
        let mut room = CLAIMED_STEPS_BYTES_MAX;
        for call in current.job.calls() {
            if call.start.is_detached {
                continue;
            }
            let Some(called) = self.jobs.current(call.start.job).await? else { continue };
            if !called.job.status().is_terminal() {
                continue;
            }
            let output = called.member("output")?;
            let limit = Extent { bytes: room, depth: usize::MAX };
            let bytes =
                output.as_ref().map_or(Some(0), |output| limit.measure(output, &NoCells).ok());
            room -= bytes.unwrap_or(0);
            steps.push(ClaimedStep {
                key: call.start.key.clone(),
                job: call.start.job,
                status: called.job.status(),
                output: output.filter(|_| bytes.is_some()),
                error: Some(called.text("error").to_owned()).filter(|error| !error.is_empty()),
                is_omitted: bytes.is_none(),
            });
        }
        Ok(steps)
    }
}

/// A job that changed meanwhile is left alone.
fn quota_error(error: ControlError) -> StoreError {
    match error {
        ControlError::Store(error) => error,
        _ => StoreError::Busy,
    }
}

fn check_claim(claim: &Claim) -> Result<(), WorkerError> {
    let problem = if claim.queues.is_empty() {
        "`queues` must name at least one queue".to_owned()
    } else if claim.queues.len() > CLAIM_QUEUES_MAX {
        format!("`queues` names more than {CLAIM_QUEUES_MAX} queues")
    } else if claim.max > CLAIM_JOBS_MAX {
        format!("`max` must be at most {CLAIM_JOBS_MAX}")
    } else if claim.done.len() > CLAIM_JOBS_MAX {
        format!("`done` has more than {CLAIM_JOBS_MAX} entries")
    } else {
        return Ok(());
    };
    Err(WorkerError::Invalid(problem))
}
