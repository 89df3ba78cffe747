//! Another venue, as far as the engine can see it. It lives on when the venue under test is killed.

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

use super::script::{Script, answer};

/// The other venue.
pub struct Elsewhere {
    script: Arc<Script>,
    jobs: Mutex<BTreeMap<JobId, Arc<Guest>>>,
    /// Every request to begin something, repeated ones included.
    pub calls: Mutex<Vec<RemoteCall>>,
    /// How long an answer to such a request is under way.
    pub latency: Mutex<Duration>,
    /// Whether nothing is answered.
    pub is_down: AtomicBool,
    /// Whether a job that is looked at has always just moved on.
    pub is_restless: AtomicBool,
    /// Requests other than those to begin something, in order, unanswered ones included.
    pub asked: Mutex<Vec<String>>,
}

/// How long a venue that is down is asked again and again.
const PATIENCE_SECONDS: u32 = 300;

/// A job of the other venue.
pub struct Guest {
    pub key: String,
    pub step: usize,
    operation: String,
    input: Value,
    left: Mutex<Duration>,
    /// What its records are made of.
    story: Mutex<String>,
    /// Who asked for it.
    pub requester: Requester,
    /// The messages it has taken, by their IDs; repeated ones only once.
    pub messages: Mutex<Vec<(String, Value)>>,
    pub status: watch::Sender<Status>,
}

impl Guest {
    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// The record that such a job has when it stands like this.
    pub fn record(&self, status: Status) -> RecordId {
        let turns = self.messages.lock().len();
        RecordId::new(Value::from(format!("{} {status} {turns}", self.story.lock())).id())
    }

    /// As it is shown.
    fn seen(&self) -> RemoteJob {
        let status = self.status();
        let last = self.messages.lock().last().map(|(_, message)| said(message));
        let (output, message) = match status {
            Status::Complete if self.chats() => (Some("bye".into()), None),
            Status::Complete => (Some(answer(&self.operation, &self.input)), None),
            Status::InputRequired => (last.map(Value::from), Some("what?".to_owned())),
            Status::AuthRequired => (None, Some("who?".to_owned())),
            _ => (None, None),
        };
        let is_bad = status.is_terminal() && status != Status::Complete;
        let error = is_bad.then(|| "it broke".to_owned());
        RemoteJob { status, record: self.record(status), output, error, message }
    }

    fn chats(&self) -> bool {
        self.operation == "far:chat"
    }

    /// Takes a message, once.
    fn take(&self, message: &Value) -> Delivery {
        let field = |name: &str| message.as_map().unwrap().field(name).cloned();
        let id = field("messageId").unwrap().as_str().unwrap().to_owned();
        if self.messages.lock().iter().any(|(taken, _)| *taken == id) {
            return Delivery::Accepted;
        }
        if self.status().is_terminal() || said(message) == "refuse me" {
            return Delivery::Refused(Failure::new("remote_refused", "it was refused"));
        }
        self.messages.lock().push((id, message.clone()));
        let next = if said(message) == "done" { Status::Complete } else { Status::InputRequired };
        self.status.send_replace(next);
        Delivery::Accepted
    }

    /// Gives it a history that it had not.
    pub fn rewrite(&self, story: &str) {
        *self.story.lock() = story.to_owned();
    }

    /// Works until the job stands elsewhere; time passes only while it is STARTED.
    async fn work(&self, script: &Script) {
        let mut status = self.status.subscribe();
        let now = *status.borrow_and_update();
        let left = *self.left.lock();
        let begun = tokio::time::Instant::now();
        let _shift = (now == Status::Started).then_some(Shift { guest: self, begun });
        tokio::select! {
            () = tokio::time::sleep(left), if now == Status::Started => self.end(script),
            _ = status.changed() => {}
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
            is_down: AtomicBool::new(false),
            is_restless: AtomicBool::new(false),
            asked: Mutex::default(),
        })
    }

    /// Makes the venue go down, or come back.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// A request about a job, if the venue answers.
    fn asked(&self, what: &str, job: JobId) -> Result<Arc<Guest>, Failure> {
        self.asked.lock().push(what.to_owned());
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Failure::transient("connection", "it cannot be reached"));
        }
        self.job(job).ok_or_else(|| Failure::new("remote_not_found", "there is no such job"))
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
            requester: requester(call),
            messages: Mutex::default(),
            status: watch::Sender::new(match call.operation.as_str() {
                "far:chat" => Status::InputRequired,
                "far:auth" => Status::AuthRequired,
                "far:pause" => Status::Paused,
                _ => Status::Started,
            }),
        });
        let id = JobId::from_bytes([u8::try_from(jobs.len() + 1).unwrap(); 16]);
        jobs.insert(id, Arc::clone(&guest));
        (id, guest)
    }
}

/// The way to it.
pub struct Road(pub Arc<Elsewhere>);

fn requester(call: &RemoteCall) -> Requester {
    if call.delegations.is_empty() { Requester::Anonymous } else { Requester::Venue }
}

/// The content of a message.
fn said(message: &Value) -> String {
    let content = message.as_map().and_then(|map| map.field("content")).cloned();
    content.and_then(|content| Some(content.to_text()?.into_owned())).unwrap_or_default()
}

impl Road {
    fn change(
        &self,
        what: &'static str,
        job: JobId,
        may: fn(Status) -> bool,
        to: Status,
    ) -> RemoteReply<RemoteJob> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            let guest = there.asked(what, job)?;
            if !may(guest.status()) {
                return Err(Failure::new(REMOTE_CONFLICT, format!("it cannot {what}")));
            }
            guest.status.send_replace(to);
            Ok(guest.seen())
        })
    }
}

impl Federation for Road {
    fn start_job(&self, call: RemoteCall) -> RemoteReply<RemoteStart> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            call.control.proceed().await;
            there.calls.lock().push(call.clone());
            let (job, guest) = there.take(&call);
            let latency = *there.latency.lock();
            tokio::time::sleep(latency).await;
            let record = guest.record(Status::Pending);
            let (requester, seen) = (requester(&call), guest.seen());
            Ok(RemoteStart { job, record, venue: call.venue, requester, state: seen })
        })
    }

    fn fetch_job(&self, visit: RemoteJobRef) -> RemoteReply<RemoteJob> {
        let there = Arc::clone(&self.0);
        Box::pin(async move { there.asked("see", visit.job).map(|guest| guest.seen()) })
    }

    fn poll_job(&self, visit: RemoteJobRef, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            let mut tries = 0;
            loop {
                match there.asked("look", visit.job) {
                    Ok(guest) => {
                        if guest.requester != visit.requester {
                            return Err(Failure::new("remote_forbidden", "it is somebody else's"));
                        }
                        if there.is_restless.load(Ordering::SeqCst) {
                            guest.rewrite(&there.asked.lock().len().to_string());
                        }
                        let seen = guest.seen();
                        let waits =
                            matches!(seen.status, Status::InputRequired | Status::AuthRequired);
                        let is_news = waits && seen.record != known.1 || seen.status != known.0;
                        if is_news || seen.status.is_terminal() {
                            visit.control.proceed().await;
                            return Ok(guest.seen());
                        }
                        guest.work(&there.script).await;
                    }
                    Err(failure) if tries > PATIENCE_SECONDS => return Err(failure),
                    Err(_) => visit.control.sleep(Duration::from_secs(1)).await,
                }
                tries += 1;
            }
        })
    }

    fn send_message(&self, visit: RemoteJobRef, message: Value) -> RemoteReply<Delivery> {
        let there = Arc::clone(&self.0);
        Box::pin(async move {
            loop {
                visit.control.proceed().await;
                match there.asked("send", visit.job) {
                    Ok(guest) => {
                        let delivery = guest.take(&message);
                        let latency = *there.latency.lock();
                        tokio::time::sleep(latency).await;
                        return Ok(delivery);
                    }
                    Err(_) => visit.control.sleep(Duration::from_secs(1)).await,
                }
            }
        })
    }

    fn cancel_job(&self, visit: RemoteJobRef) -> RemoteReply<RemoteJob> {
        self.change("cancel", visit.job, |from| !from.is_terminal(), Status::Cancelled)
    }

    fn set_paused(&self, visit: RemoteJobRef, hold: PauseChange) -> RemoteReply<RemoteJob> {
        let job = visit.job;
        let may_pause = |from: Status| !from.is_terminal() && from != Status::Paused;
        match hold {
            PauseChange::Pause => self.change("pause", job, may_pause, Status::Paused),
            PauseChange::Resume => {
                self.change("resume", job, |from| from == Status::Paused, Status::Started)
            }
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

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async { Turn::Failed(Failure::new("no", "it has no operations")) })
    }
}
