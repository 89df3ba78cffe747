//! Sends jobs to the URLs of their operations.
//!
//! While a job is being sent, this process holds it, so a restart sends it again as the recovery rule
//! says. The receiver that answers that it will end the job later becomes its holder, under the same
//! fence, and a restart does not disturb it. Its requests are those of a worker, by a token that is valid
//! for this job and this fence.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::{Effect, Effects, Hold, Holder};
use catena_value::Value;

use crate::commands::Commands;
use crate::error::{StoreError, WorkerError};
use crate::execution::RunHandle;
use crate::execution::workers::claims::Picked;
use crate::jobs::{is_live, unless_overtaken};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{Delivered, Delivery, Failure, Operation, RetryAdvice, queue_owner};
use crate::requests::{Caller, ClaimedJob, EndTurn, HeldJob, RetryRequest, WorkerEnd};

/// How much longer than the job a request may take: it is the deadline that ends an overdue job, and with
/// it the request.
const DEADLINE_GRACE: Duration = Duration::from_secs(5);

impl Commands {
    /// Sends a job to the service that runs it, and records what that answered.
    pub(crate) async fn push_job(self: &Arc<Self>, picked: Picked) {
        let job = picked.current.job.id();
        match self.try_push(picked).await {
            // A late answer leaves no trace.
            Ok(()) | Err(WorkerError::Fenced(_) | WorkerError::NotFound(_)) => {}
            Err(error) => tracing::error!(%job, %error, "cannot send a job to its receiver"),
        }
    }

    async fn try_push(self: &Arc<Self>, picked: Picked) -> Result<(), WorkerError> {
        let job = picked.current.job.id();
        let Some(owner) = queue_owner(&picked.current.job) else { return Ok(()) };
        let caller = Caller::known(owner);
        let receiver = Holder::receiver(owner, job);
        let session = self.execution.workers.session(&receiver);
        let operation = Arc::clone(&picked.operation);
        let claimed = self.claim_job((&caller, None), &session, &self.jobs.process, picked).await?;
        let Some(claimed) = claimed else { return Ok(()) };
        let fence = claimed.fence;
        let Some(handle) = session.touch(job, fence, self.runtime.now()) else { return Ok(()) };
        let adapter = Arc::clone(operation.adapter());
        let delivery = self.delivery(&caller, operation, &claimed, &handle);
        drop(claimed);
        let delivered = tokio::select! {
            biased;
            () = handle.stopped() => None,
            delivered = adapter.deliver(delivery) => Some(delivered),
        };
        match delivered {
            None => session.remove(job, fence),
            Some(Delivered::Accepted) => self.transfer(job, fence, &receiver).await?,
            Some(Delivered::Ended(result)) => {
                let (signature, execution) = (None, None);
                let turn = EndTurn { job, fence, end: end_of(result), signature, execution };
                self.end_turn(&caller, turn).await?;
            }
        }
        Ok(())
    }

    fn delivery(
        &self,
        caller: &Caller,
        operation: Arc<Operation>,
        claimed: &ClaimedJob,
        handle: &RunHandle,
    ) -> Delivery {
        let identity = self.orchestration.identity();
        let held = HeldJob { job: claimed.id, fence: claimed.fence };
        let token = identity.job_token(&self.jobs.did, &caller.did, held);
        let more = [("token", Value::from(token)), ("venue", (&*self.jobs.did).into())];
        let left = claimed.deadline.unwrap_or(i64::MAX).saturating_sub(self.runtime.now());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0)) + DEADLINE_GRACE;
        let attempt = operation.retry().and_then(|policy| policy.timeout);
        Delivery {
            job: claimed.id,
            attempt: claimed.attempt,
            document: claimed.document(more),
            trace: self.trace(claimed.id),
            time: attempt.map_or(left, |limit| limit.min(left)),
            control: handle.control(&self.runtime.env),
            identity: identity.clone(),
            operation,
        }
    }

    /// Returns the trace context of a request for a job: its trace is the job.
    fn trace(&self, job: JobId) -> String {
        let mut span = [0; 8];
        self.runtime.env.random(&mut span);
        let span = u64::from_be_bytes(span).max(1);
        format!("00-{}-{span:016x}-01", job.to_string().trim_start_matches("0x"))
    }

    /// Makes the receiver that has accepted a job its holder.
    async fn transfer(&self, job: JobId, fence: u64, to: &Holder) -> Result<(), WorkerError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(current) = self.jobs.current(job).await? else { return Ok(()) };
            let is_current = current.is_held() && current.hold.fence == fence;
            if !is_live(&current.job) || !is_current {
                return Ok(());
            }
            let hold = Hold::Transfer { holder: to.clone(), fence };
            let effect = Effect::SetHold { job, after: current.job.head(), hold };
            let committed = self.jobs.store.commit(Effects::one(effect)).await;
            if unless_overtaken(committed)?.is_some() {
                return Ok(());
            }
        }
        Err(StoreError::Contended.into())
    }
}

/// Returns how a turn ended that its receiver has run.
fn end_of(result: Result<Value, Failure>) -> WorkerEnd {
    match result {
        Ok(output) => WorkerEnd::Output(output),
        Err(Failure { code, error, retry, after }) => {
            let retry = match (retry, after) {
                (RetryAdvice::Never, _) => RetryRequest::Never,
                (RetryAdvice::MaySucceed, Some(time)) => RetryRequest::After(time),
                (RetryAdvice::MaySucceed, None) => RetryRequest::May,
            };
            WorkerEnd::Error { error, code: Some(code), retry }
        }
    }
}
