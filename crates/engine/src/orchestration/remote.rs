//! The steps of an orchestration that run on other venues: one task each, which tells the weaver.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use tokio::sync::{Mutex, watch};

use super::weaver::News;
use crate::adapter::Failure;
use crate::control::Control;
use crate::engine::Engine;
use crate::federation::{Answer, Federation, Hold, RemoteCall, RemoteEnd, RemoteStart, Visit};

/// How long a beginning that nobody wants any more may take to say which job is to be cancelled.
const BEGIN_GRACE: Duration = Duration::from_secs(60);

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

/// What somebody takes along to another venue.
pub(crate) struct Orders {
    /// Pausing and sleeping.
    pub(crate) control: Control,
    /// Changes when another is sent instead, and closes when the weaver has gone.
    pub(crate) recall: watch::Receiver<()>,
    /// Whoever holds or releases the job there holds this, so that the other venue hears it in the
    /// order in which it was said.
    pub(crate) turn: Arc<Mutex<()>>,
    /// What the job has to be told first: whoever was there before may not have said it.
    pub(crate) hold: Option<Hold>,
}

impl Engine {
    /// Sends somebody to another venue for a step.
    pub(crate) fn send_out(&self, parent: JobId, step: u32, errand: Errand, orders: Orders) {
        let engine = self.clone();
        self.spawn(async move {
            let tell = |tidings| engine.0.weavers.tell(parent, News::Remote(step, tidings));
            match engine.run_errand(errand, orders, |start| tell(Tidings::Started(start))).await {
                Ok(Some(end)) => tell(Tidings::Ended(end)),
                Ok(None) => {}
                Err(failure) => tell(Tidings::Failed(failure)),
            }
        });
    }

    /// The end of a remote job; nothing when nobody waits for it any more.
    async fn run_errand(
        &self,
        errand: Errand,
        mut orders: Orders,
        started: impl FnOnce(RemoteStart),
    ) -> Result<Option<RemoteEnd>, Failure> {
        let Some(federation) = self.0.catalogue.federation() else {
            let text = "this venue cannot reach others";
            return Err(Failure::new("federation_unavailable", text));
        };
        let (venue, job) = match errand {
            Errand::Finish { venue, job } => (venue, job),
            Errand::Begin(call) => {
                let venue = call.venue.clone();
                let begin = federation.begin(*call);
                let Some(start) = self.until_begun(begin, &mut orders).await? else {
                    return Ok(None);
                };
                let job = start.job;
                started(start);
                (venue, job)
            }
        };
        self.stay(&*federation, venue, job, orders).await
    }

    /// The beginning of a job; nothing when somebody else is sent for it. It is waited for even
    /// when the step was given up, because only then is it known what to cancel.
    async fn until_begun(
        &self,
        mut begin: Answer<RemoteStart>,
        orders: &mut Orders,
    ) -> Result<Option<RemoteStart>, Failure> {
        let is_gone = tokio::select! {
            start = &mut begin => return start.map(Some),
            recalled = orders.recall.changed() => recalled.is_err(),
        };
        if !is_gone {
            return Ok(None);
        }
        tokio::select! {
            start = begin => start.map(Some),
            () = self.0.env.sleep(BEGIN_GRACE) => Ok(None),
        }
    }

    /// Waits for the end of a job and tells it meanwhile when it is to stand still.
    async fn stay(
        &self,
        federation: &dyn Federation,
        venue: String,
        job: JobId,
        mut orders: Orders,
    ) -> Result<Option<RemoteEnd>, Failure> {
        let identity = self.0.identity.clone();
        let urgent = Visit { venue, job, identity, control: self.0.free.clone() };
        let tell = async |hold| {
            let _turn = orders.turn.lock().await;
            federation.hold(urgent.clone(), hold).await;
        };
        if let Some(hold) = orders.hold {
            tell(hold).await;
        }
        let control = orders.control.clone();
        let mut end = federation.finish(Visit { control, ..urgent.clone() });
        loop {
            tokio::select! {
                end = &mut end => return end.map(Some),
                recalled = orders.recall.changed() => {
                    // A venue that stops gives nothing up: the next life goes on with it.
                    if recalled.is_err() && !self.is_stopping() {
                        federation.cancel(urgent).await;
                    }
                    return Ok(None);
                }
                hold = orders.control.turned() => tell(hold).await,
            }
        }
    }
}
