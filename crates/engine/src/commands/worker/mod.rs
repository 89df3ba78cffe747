//! The requests of workers: processes of their own that run jobs of a queue.
//!
//! A worker holds a job as a process of the venue would: under a fence, for as long as its lease lasts.
//! Everything it says about a job is checked against what the store says, so a worker that was
//! replaced, or a venue that was restarted, changes nothing about who holds what.

mod beat;
mod call;
mod claim;
mod end;
mod push;
mod quota;

use std::sync::Arc;

use catena_store::Holder;

use crate::commands::Commands;
use crate::error::WorkerError;
use crate::execution::workers::sessions::WorkerSession;
use crate::jobs::milliseconds;
use crate::operations::is_name;
use crate::requests::Caller;

impl Commands {
    /// Renews the lease of a worker. Returns what is known of it, and when the lease ends as Unix time
    /// in ms.
    async fn renew_worker(
        &self,
        caller: &Caller,
        worker: &str,
    ) -> Result<(Arc<WorkerSession>, i64), WorkerError> {
        if let Some(held) = caller.held {
            // The receiver of a pushed job has no lease, but it is told when to report again.
            let holder = Holder::receiver(&caller.did, held.job);
            let until = self.runtime.now() + milliseconds(self.runtime.limits.worker_lease);
            return Ok((self.execution.workers.session(&holder), until));
        }
        if !is_name(worker) {
            let text = "`worker` must be 1 to 128 letters, digits, dots, underscores or hyphens";
            return Err(WorkerError::Invalid(text.to_owned()));
        }
        let holder = Holder::worker(&caller.did, worker);
        let until = self.execution.renew_worker_lease(&holder).await?;
        Ok((self.execution.workers.session(&holder), until))
    }
}
