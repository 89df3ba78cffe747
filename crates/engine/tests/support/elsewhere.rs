//! Another venue, as far as the engine can see it. It lives on when the venue under test is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catena_engine::federation::{
    Answer, Attempt, Federation, Hold, RemoteCall, RemoteEnd, RemoteStart, Visit,
};
use catena_engine::{Adapter, Call, Failure, Registration, Turn, Turning};
use catena_job::{JobId, RecordId, Status};
use catena_value::Value;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::script::{Script, answer};

/// The other venue.
pub struct Elsewhere {
    script: Arc<Script>,
    jobs: Mutex<BTreeMap<JobId, Arc<Guest>>>,
    /// Every request to begin something, repeated ones included.
    pub calls: Mutex<Vec<RemoteCall>>,
    /// How long an answer to such a request is under way.
    pub latency: Mutex<Duration>,
}

/// A job of the other venue.
pub struct Guest {
    pub key: String,
    pub step: usize,
    operation: String,
    input: Value,
    left: Mutex<Duration>,
    /// What its records are made of.
    story: Mutex<String>,
    pub status: watch::Sender<Status>,
}

impl Guest {
    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// The record that such a job has when it stands like this.
    pub fn record(&self, status: Status) -> RecordId {
        RecordId::new(Value::from(format!("{} {status}", self.story.lock())).id())
    }

    /// Gives it a history that it had not.
    pub fn rewrite(&self, story: &str) {
        *self.story.lock() = story.to_owned();
    }

    /// Works until the job ends; time passes only while it is STARTED.
    async fn work(&self, script: &Script) -> Status {
        let mut status = self.status.subscribe();
        loop {
            let now = *status.wait_for(|status| *status != Status::Paused).await.unwrap();
            if now.is_terminal() {
                return now;
            }
            let left = *self.left.lock();
            let _shift = Shift { guest: self, begun: tokio::time::Instant::now() };
            tokio::select! {
                () = tokio::time::sleep(left) => self.end(script),
                _ = status.wait_for(|status| *status != Status::Started) => {}
            }
        }
    }

    fn end(&self, script: &Script) {
        let ends = match script.breaks(self.step) {
            true => Status::Failed,
            false => Status::Complete,
        };
        if ends == Status::Complete {
            script.finished.lock().push(self.step);
        }
        self.status.send_replace(ends);
    }
}

/// Some time during which a job was worked on, whoever looked at it.
struct Shift<'a> {
    guest: &'a Guest,
    begun: tokio::time::Instant,
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        let mut left = self.guest.left.lock();
        *left = left.saturating_sub(self.begun.elapsed());
    }
}

impl Elsewhere {
    pub fn new(script: &Arc<Script>) -> Arc<Elsewhere> {
        let script = Arc::clone(script);
        Arc::new(Elsewhere {
            script,
            jobs: Mutex::default(),
            calls: Mutex::default(),
            latency: Mutex::default(),
        })
    }

    /// A job of this venue.
    pub fn job(&self, id: JobId) -> Option<Arc<Guest>> {
        self.jobs.lock().get(&id).cloned()
    }

    /// The jobs of this venue.
    pub fn jobs(&self) -> Vec<Arc<Guest>> {
        self.jobs.lock().values().cloned().collect()
    }

    /// The same key gives the same job.
    fn take(&self, call: &RemoteCall) -> (JobId, Arc<Guest>) {
        let mut jobs = self.jobs.lock();
        if let Some((id, guest)) = jobs.iter().find(|(_, guest)| guest.key == call.key) {
            return (*id, Arc::clone(guest));
        }
        let step = call.key.rsplit('-').next().unwrap().parse().unwrap();
        self.script.begun.lock().push((step, call.input.clone()));
        let guest = Arc::new(Guest {
            key: call.key.clone(),
            step,
            operation: call.operation.clone(),
            input: call.input.clone(),
            left: Mutex::new(self.script.time(step)),
            story: Mutex::new(call.key.clone()),
            status: watch::Sender::new(Status::Started),
        });
        let id = JobId::from_bytes([u8::try_from(jobs.len() + 1).unwrap(); 16]);
        jobs.insert(id, Arc::clone(&guest));
        (id, guest)
    }
}

/// The way to it.
pub struct Road(pub Arc<Elsewhere>);

impl Road {
    fn change(&self, job: JobId, may: fn(Status) -> bool, to: Status) -> Attempt {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(guest) = there.job(job).filter(|guest| may(guest.status())) {
                guest.status.send_replace(to);
            }
        })
    }
}

impl Federation for Road {
    fn begin(&self, call: RemoteCall) -> Answer<RemoteStart> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            call.control.proceed().await;
            there.calls.lock().push(call.clone());
            let (job, guest) = there.take(&call);
            let latency = *there.latency.lock();
            tokio::time::sleep(latency).await;
            let record = guest.record(Status::Pending);
            Ok(RemoteStart { job, record, venue: call.venue })
        })
    }

    fn finish(&self, visit: Visit) -> Answer<RemoteEnd> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            let gone = || Failure::new("remote_not_found", "there is no such job");
            let guest = there.job(visit.job).ok_or_else(gone)?;
            let status = guest.work(&there.script).await;
            visit.control.proceed().await;
            let is_done = status == Status::Complete;
            Ok(RemoteEnd {
                status,
                output: is_done.then(|| answer(&guest.operation, &guest.input)),
                error: (!is_done).then(|| "it broke".to_owned()),
                record: guest.record(status),
            })
        })
    }

    fn cancel(&self, visit: Visit) -> Attempt {
        self.change(visit.job, |from| !from.is_terminal(), Status::Cancelled)
    }

    fn hold(&self, visit: Visit, hold: Hold) -> Attempt {
        let job = visit.job;
        match hold {
            Hold::Pause => self.change(job, |from| from == Status::Started, Status::Paused),
            Hold::Resume => self.change(job, |from| from == Status::Paused, Status::Started),
        }
    }
}

impl Adapter for Road {
    fn name(&self) -> &'static str {
        "road"
    }

    fn description(&self) -> &'static str {
        "Leads to another venue."
    }

    fn operations(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn federation(&self) -> Option<Arc<dyn Federation>> {
        Some(Arc::new(Road(Arc::clone(&self.0))))
    }

    fn run(&self, _call: Call) -> Turning {
        Box::pin(async { Turn::Failed(Failure::new("no", "it has no operations")) })
    }
}
