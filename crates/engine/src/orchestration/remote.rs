//! The steps of an orchestration that run on other venues: one task each, which tells the weaver.

use catena_job::JobId;
use tokio::sync::watch;

use super::weaver::News;
use crate::adapter::Failure;
use crate::control::Control;
use crate::engine::Engine;
use crate::federation::{RemoteCall, RemoteEnd, RemoteStart};

/// What a task does about a step.
pub(crate) enum Errand {
    /// Begins it and waits for its end.
    Begin(Box<RemoteCall>),
    /// Waits for the end of a job that began before.
    Finish {
        /// The venue, as the definition names it.
        venue: String,
        /// The job there.
        job: JobId,
    },
}

/// What a task tells.
pub(crate) enum Tidings {
    Started(RemoteStart),
    Ended(RemoteEnd),
    Failed(Failure),
}

impl Engine {
    /// Sends somebody to another venue for a step. `gone` closes when the weaver has gone.
    pub(crate) fn send_out(
        &self,
        parent: JobId,
        step: u32,
        errand: Errand,
        control: Control,
        gone: watch::Receiver<()>,
    ) {
        let engine = self.clone();
        self.spawn(async move {
            let tell = |tidings| engine.0.weavers.tell(parent, News::Remote(step, tidings));
            match engine.run_errand(parent, step, errand, control, gone).await {
                Ok(Some(end)) => tell(Tidings::Ended(end)),
                Ok(None) => {}
                Err(failure) => tell(Tidings::Failed(failure)),
            }
        });
    }

    /// The end of a remote job; nothing when the weaver has gone.
    async fn run_errand(
        &self,
        parent: JobId,
        step: u32,
        errand: Errand,
        control: Control,
        mut gone: watch::Receiver<()>,
    ) -> Result<Option<RemoteEnd>, Failure> {
        let Some(federation) = self.0.catalogue.federation() else {
            let text = "this venue cannot reach others";
            return Err(Failure::new("federation_unavailable", text));
        };
        let (venue, job) = match errand {
            Errand::Finish { venue, job } => (venue, job),
            Errand::Begin(call) => {
                let venue = call.venue.clone();
                let start = federation.begin(*call).await?;
                let job = start.job;
                self.0.weavers.tell(parent, News::Remote(step, Tidings::Started(start)));
                (venue, job)
            }
        };
        tokio::select! {
            end = federation.finish(venue.clone(), job, control) => end.map(Some),
            _ = gone.changed() => {
                // A venue that stops gives nothing up: the next life goes on with it.
                if !self.is_stopping() {
                    federation.cancel(venue, job, self.0.free.clone()).await;
                }
                Ok(None)
            }
        }
    }
}
