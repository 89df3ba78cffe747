//! A fake remote venue behind the federation interface. It keeps running when the venue under test
//! is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catena_engine::operations::federation::{
    Delivery, Federation, PauseChange, REMOTE_CONFLICT, RemoteCall, RemoteJob, RemoteJobRef,
    RemoteReply, RemoteStart, Requester,
};
use catena_engine::{Adapter, Call, Failure, Registration, Turn, TurnFuture};
use catena_job::{JobId, RecordId, Status};
use catena_value::Value;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::script::{Script, output_of};

/// The fake remote venue.
pub struct FakeVenue {
    script: Arc<Script>,
    jobs: Mutex<BTreeMap<JobId, Arc<FakeJob>>>,
    /// Every request to start a job, including repeated ones.
    pub calls: Mutex<Vec<RemoteCall>>,
    /// The delay of the response to a start and to a message.
    pub latency: Mutex<Duration>,
    /// True if the venue answers no requests other than starts.
    pub is_down: AtomicBool,
    /// True if a polled job has changed on every poll.
    pub changes_on_every_poll: AtomicBool,
    /// The kinds of all requests other than starts, in order, including unanswered ones.
    pub requests: Mutex<Vec<String>>,
}

/// For how many seconds a poll is retried, once per second, while the venue is down.
const POLL_RETRY_SECONDS: u32 = 300;

/// A job of the fake remote venue.
pub struct FakeJob {
    /// The idempotency key of the start.
    pub key: String,
    pub step: usize,
    operation: String,
    input: Value,
    /// How much longer the job has to run.
    time_left: Mutex<Duration>,
    /// The text that the record IDs are derived from.
    history: Mutex<String>,
    /// The identity that started the job.
    pub requester: Requester,
    /// The accepted messages with their IDs, each once.
    pub messages: Mutex<Vec<(String, Value)>>,
    pub status: watch::Sender<Status>,
}

impl FakeJob {
    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// Returns the ID of the last record that the job has in this status.
    pub fn record(&self, status: Status) -> RecordId {
        let turns = self.messages.lock().len();
        RecordId::new(Value::from(format!("{} {status} {turns}", self.history.lock())).id())
    }

    /// Returns the job as the venue reports it.
    fn report(&self) -> RemoteJob {
        let status = self.status();
        let last = self.messages.lock().last().map(|(_, message)| content_of(message));
        let (output, message) = match status {
            Status::Complete if self.is_chat() => (Some("bye".into()), None),
            Status::Complete => (Some(output_of(&self.operation, &self.input)), None),
            Status::InputRequired => (last.map(Value::from), Some("what?".to_owned())),
            Status::AuthRequired => (None, Some("who?".to_owned())),
            _ => (None, None),
        };
        let has_failed = status.is_terminal() && status != Status::Complete;
        let error = has_failed.then(|| "it broke".to_owned());
        RemoteJob { status, record: self.record(status), output, error, message }
    }

    fn is_chat(&self) -> bool {
        self.operation == "remote:chat"
    }

    /// Accepts a message, unless its ID is known, or refuses it.
    fn receive_message(&self, message: &Value) -> Delivery {
        let field = |name: &str| message.as_map().unwrap().field(name).cloned();
        let id = field("messageId").unwrap().as_str().unwrap().to_owned();
        if self.messages.lock().iter().any(|(known, _)| *known == id) {
            return Delivery::Accepted;
        }
        let content = content_of(message);
        if self.status().is_terminal() || content == "refuse me" {
            return Delivery::Refused(Failure::new("remote_refused", "not now"));
        }
        self.messages.lock().push((id, message.clone()));
        let next = if content == "done" { Status::Complete } else { Status::InputRequired };
        self.status.send_replace(next);
        Delivery::Accepted
    }

    /// Replaces all records of the job by others.
    pub fn rewrite_history(&self, history: &str) {
        *self.history.lock() = history.to_owned();
    }

    /// Runs the job until its status changes. Time passes for it only while it is STARTED.
    async fn run_until_change(&self, script: &Script) {
        let mut status = self.status.subscribe();
        let now = *status.borrow_and_update();
        let time_left = *self.time_left.lock();
        let started = tokio::time::Instant::now();
        let _timer = (now == Status::Started).then_some(WorkTimer { job: self, started });
        tokio::select! {
            () = tokio::time::sleep(time_left), if now == Status::Started => self.finish(script),
            _ = status.changed() => {}
        }
    }

    fn finish(&self, script: &Script) {
        if script.fails(self.step) {
            self.status.send_replace(Status::Failed);
            return;
        }
        script.finished.lock().push(self.step);
        self.status.send_replace(Status::Complete);
    }
}

/// Subtracts the time that a job ran from its time left, even if the poll that ran it is dropped.
struct WorkTimer<'a> {
    job: &'a FakeJob,
    started: tokio::time::Instant,
}

impl Drop for WorkTimer<'_> {
    fn drop(&mut self) {
        let mut time_left = self.job.time_left.lock();
        *time_left = time_left.saturating_sub(self.started.elapsed());
    }
}

impl FakeVenue {
    pub fn new(script: &Arc<Script>) -> Arc<FakeVenue> {
        let script = Arc::clone(script);
        Arc::new(FakeVenue {
            script,
            jobs: Mutex::default(),
            calls: Mutex::default(),
            latency: Mutex::default(),
            is_down: AtomicBool::new(false),
            changes_on_every_poll: AtomicBool::new(false),
            requests: Mutex::default(),
        })
    }

    /// Makes the venue unreachable, or reachable again.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Receives a request about a job and returns the job. Fails if the venue is down.
    fn receive_request(&self, kind: &str, job: JobId) -> Result<Arc<FakeJob>, Failure> {
        self.requests.lock().push(kind.to_owned());
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Failure::transient("connection", "it cannot be reached"));
        }
        self.job(job).ok_or_else(|| Failure::new("remote_not_found", "there is no such job"))
    }

    /// Returns a job of this venue. `None` if it is not one.
    pub fn job(&self, id: JobId) -> Option<Arc<FakeJob>> {
        self.jobs.lock().get(&id).cloned()
    }

    /// Returns all jobs of this venue.
    pub fn jobs(&self) -> Vec<Arc<FakeJob>> {
        self.jobs.lock().values().cloned().collect()
    }

    /// Returns the statuses of all jobs of this venue.
    pub fn statuses(&self) -> Vec<Status> {
        self.jobs().iter().map(|job| job.status()).collect()
    }

    /// Starts a job, or returns the one that an earlier call with the same key started.
    fn start_once(&self, call: &RemoteCall) -> (JobId, Arc<FakeJob>) {
        let mut jobs = self.jobs.lock();
        if let Some((id, job)) = jobs.iter().find(|(_, job)| job.key == call.key) {
            return (*id, Arc::clone(job));
        }
        let step = call.key.rsplit('-').next().unwrap().parse().unwrap();
        self.script.started.lock().push((step, call.input.clone()));
        let job = Arc::new(FakeJob {
            key: call.key.clone(),
            step,
            operation: call.operation.clone(),
            input: call.input.clone(),
            time_left: Mutex::new(self.script.duration(step)),
            history: Mutex::new(call.key.clone()),
            requester: requester(call),
            messages: Mutex::default(),
            status: watch::Sender::new(match call.operation.as_str() {
                "remote:chat" => Status::InputRequired,
                "remote:auth" => Status::AuthRequired,
                "remote:pause" => Status::Paused,
                _ => Status::Started,
            }),
        });
        let id = JobId::from_bytes([u8::try_from(jobs.len() + 1).unwrap(); 16]);
        jobs.insert(id, Arc::clone(&job));
        (id, job)
    }
}

/// Connects the venue under test to the fake remote venue.
pub struct FakeFederation(pub Arc<FakeVenue>);

fn requester(call: &RemoteCall) -> Requester {
    if call.delegations.is_empty() { Requester::Anonymous } else { Requester::Venue }
}

/// Returns the content of a message as text.
fn content_of(message: &Value) -> String {
    let content = message.as_map().and_then(|map| map.field("content")).cloned();
    content.and_then(|content| Some(content.to_text()?.into_owned())).unwrap_or_default()
}

impl FakeFederation {
    /// Changes the status of a job, if `may` accepts the current one.
    fn change(
        &self,
        kind: &'static str,
        job: JobId,
        may: fn(Status) -> bool,
        to: Status,
    ) -> RemoteReply<RemoteJob> {
        let venue = Arc::clone(&self.0);
        Box::pin(async move {
            let job = venue.receive_request(kind, job)?;
            if !may(job.status()) {
                return Err(Failure::new(REMOTE_CONFLICT, format!("it cannot {kind}")));
            }
            job.status.send_replace(to);
            Ok(job.report())
        })
    }
}

impl Federation for FakeFederation {
    fn start_job(&self, call: RemoteCall) -> RemoteReply<RemoteStart> {
        let venue = Arc::clone(&self.0);
        Box::pin(async move {
            call.control.proceed().await;
            venue.calls.lock().push(call.clone());
            let (id, job) = venue.start_once(&call);
            let latency = *venue.latency.lock();
            tokio::time::sleep(latency).await;
            Ok(RemoteStart {
                job: id,
                record: job.record(Status::Pending),
                requester: requester(&call),
                venue: call.venue,
                state: job.report(),
            })
        })
    }

    fn fetch_job(&self, job: RemoteJobRef) -> RemoteReply<RemoteJob> {
        let venue = Arc::clone(&self.0);
        Box::pin(async move { venue.receive_request("fetch", job.job).map(|job| job.report()) })
    }

    fn poll_job(&self, job: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let venue = Arc::clone(&self.0);
        Box::pin(async move {
            let mut tries = 0;
            loop {
                match venue.receive_request("poll", job.job) {
                    Ok(found) => {
                        if found.requester != job.requester {
                            let text = "another identity started it";
                            return Err(Failure::new("remote_forbidden", text));
                        }
                        if venue.changes_on_every_poll.load(Ordering::SeqCst) {
                            found.rewrite_history(&venue.requests.lock().len().to_string());
                        }
                        let state = found.report();
                        let waits =
                            matches!(state.status, Status::InputRequired | Status::AuthRequired);
                        let has_changed =
                            waits && state.record != known.1 || state.status != known.0;
                        if has_changed || state.status.is_terminal() {
                            job.control.proceed().await;
                            return Ok(found.report());
                        }
                        found.run_until_change(&venue.script).await;
                    }
                    Err(failure) if tries > POLL_RETRY_SECONDS => return Err(failure),
                    Err(_) => job.control.sleep(Duration::from_secs(1)).await,
                }
                tries += 1;
            }
        })
    }

    fn send_message(&self, job: RemoteJobRef, message: Value) -> RemoteReply<Delivery> {
        let venue = Arc::clone(&self.0);
        Box::pin(async move {
            loop {
                job.control.proceed().await;
                match venue.receive_request("send", job.job) {
                    Ok(found) => {
                        let delivery = found.receive_message(&message);
                        let latency = *venue.latency.lock();
                        tokio::time::sleep(latency).await;
                        return Ok(delivery);
                    }
                    Err(_) => job.control.sleep(Duration::from_secs(1)).await,
                }
            }
        })
    }

    fn cancel_job(&self, job: RemoteJobRef) -> RemoteReply<RemoteJob> {
        self.change("cancel", job.job, |from| !from.is_terminal(), Status::Cancelled)
    }

    fn set_paused(&self, job: RemoteJobRef, change: PauseChange) -> RemoteReply<RemoteJob> {
        let may_pause = |from: Status| !from.is_terminal() && from != Status::Paused;
        let may_resume = |from: Status| from == Status::Paused;
        match change {
            PauseChange::Pause => self.change("pause", job.job, may_pause, Status::Paused),
            PauseChange::Resume => self.change("resume", job.job, may_resume, Status::Started),
        }
    }
}

impl Adapter for FakeFederation {
    fn name(&self) -> &'static str {
        "fake-federation"
    }

    fn description(&self) -> &'static str {
        "Connects to a fake remote venue."
    }

    fn operations(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn federation(&self) -> Option<Arc<dyn Federation>> {
        Some(Arc::new(FakeFederation(Arc::clone(&self.0))))
    }

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async { Turn::Failed(Failure::new("no", "it has no operations")) })
    }
}
