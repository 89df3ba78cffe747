//! A worker: claims jobs of its owner's queues, runs a handler for each, and keeps them alive.
//!
//! One task claims, one keeps the lease, one sends reports. A job that ends while the claiming task waits is ended at once;
//! otherwise its end travels with the next claim, so that under load a claim is the only request.
//! A venue that cannot be reached is tried again; jobs that were lost meanwhile are stopped.

mod reports;
mod slots;
pub mod testing;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use catena_value::Value;
use tokio::sync::{mpsc, watch};

use self::reports::{Reports, Taken};
use self::slots::{Slot, Slots};
use crate::client::worker::{Claim, ClaimedJob, End, JobEnd, Report, WorkerSignal};
use crate::client::{ClientError, HttpClient, TransportError};
use crate::limits::{
    WORKER_BEAT, WORKER_CALL_WAIT, WORKER_CLAIM_WAIT, WORKER_END_TIME, WORKER_PROGRESS_INTERVAL,
    WORKER_RETRY_DELAY,
};
use crate::wire::member;

/// Runs the jobs of a worker. [`testing::Harness`] runs it without a venue.
pub trait Handler: Send + Sync + 'static {
    /// Runs a job until it ends or is stopped. What it returns after a stop is discarded.
    fn run(&self, job: RunningJob) -> impl Future<Output = End> + Send;

    /// Returns true if a paused job does nothing until it is resumed, so that another one can use its
    /// slot meanwhile. The venue bounds how many paused jobs an executor keeps.
    fn freezes(&self) -> bool {
        false
    }
}

/// A job that runs.
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// The job.
    pub job: ClaimedJob,
    /// A client of the venue, for steps and calls.
    pub client: HttpClient,
    /// What the venue wants of the job.
    pub signal: watch::Receiver<WorkerSignal>,
    reports: Arc<Reports>,
    link: Link,
}

/// Where the steps and calls of a job are recorded.
#[derive(Debug, Clone)]
enum Link {
    /// At the venue.
    Venue,
    /// In memory, by the test helper.
    Harness(Arc<testing::Recorded>),
}

/// A call of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Called {
    /// It has ended: with an output, or with an error.
    Ended(Result<Value, String>),
    /// It has not ended yet. End the turn with [`End::Awaiting`] and the key of the call; the job is offered
    /// again when the call has ended.
    Waiting,
}

/// Why a step or a call could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The venue refused it, or cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError<TransportError>),
    /// The work of the step failed.
    #[error("{0}")]
    Work(String),
    /// The handler does something that a venue would refuse.
    #[error("{0}")]
    Harness(String),
}

impl RunningJob {
    /// Sends what was reported since the last request, before the job ends: the venue keeps it with the end. It
    /// is not worth repeating the request for.
    async fn send_last_reports(&self, worker: &str) {
        if let Some(taken) = self.reports.take().await {
            let report = report(self.job.id.clone(), self.job.fence, Some(&taken));
            let _ = self.client.beat(worker, &[report], Duration::ZERO).await;
        }
    }

    /// Adds to the log, whose end the venue shows while the job runs and keeps in its last record. It is
    /// sent with the next report, at the latest before the job ends.
    pub fn log(&self, text: &str) {
        self.reports.add_log(text);
    }

    /// Reports progress: an object with `processedItems`, `totalItems` and more.
    pub fn report_progress(&self, progress: Value) {
        self.reports.set_progress(progress);
    }

    /// Does some work once per job: a step that an earlier turn recorded returns its output at once. Every
    /// key must be unique within the job.
    pub async fn step<F>(
        &self,
        key: &str,
        work: impl FnOnce() -> F + Send,
    ) -> Result<Value, JobError>
    where
        F: Future<Output = Result<Value, String>> + Send,
    {
        if let Some(output) = self.job.step(key) {
            return Ok(output);
        }
        let output = work().await.map_err(JobError::Work)?;
        match &self.link {
            Link::Venue => Ok(self.client.record_step(&self.job, key, output).await?),
            Link::Harness(recorded) => Ok(recorded.record_step(key, output)),
        }
    }

    /// Invokes an operation as a sub-job.
    pub async fn call(&self, key: &str, operation: &str, input: Value) -> Result<Called, JobError> {
        if let Link::Harness(recorded) = &self.link {
            return recorded.call(key, operation, &input);
        }
        let called =
            self.client.call_for(&self.job, key, operation, input, WORKER_CALL_WAIT).await?;
        let status = member(&called, "status").and_then(Value::as_str).unwrap_or_default();
        let error = member(&called, "error").and_then(Value::to_text);
        Ok(match status {
            "COMPLETE" => Called::Ended(Ok(member(&called, "output").cloned().unwrap_or_default())),
            "FAILED" | "CANCELLED" | "REJECTED" | "TIMEOUT" => {
                Called::Ended(Err(error
                    .map_or_else(|| format!("the call is {status}"), std::borrow::Cow::into_owned)))
            }
            _ => Called::Waiting,
        })
    }

    /// Returns once the job was stopped.
    pub async fn stopped(&self) {
        let mut signal = self.signal.clone();
        let _ = signal.wait_for(|signal| *signal == WorkerSignal::Stop).await;
    }
}

/// A worker.
#[derive(Debug, Clone)]
pub struct Worker {
    /// A client of the venue, with the credentials of the queues' owner or a token for workers.
    pub client: HttpClient,
    /// Its name: unique among the workers of its owner, and new with every start.
    pub name: String,
    /// The queues from which it claims.
    pub queues: Vec<String>,
    /// The largest number of jobs at a time.
    pub parallel: usize,
    /// How long running jobs may take when the worker is to stop. Then they are given back.
    pub grace: Duration,
    /// What an executor says about itself.
    pub about: Option<Value>,
}

/// What the tasks of a worker share about a running job.
struct Running {
    fence: i64,
    signal: watch::Sender<WorkerSignal>,
    reports: Arc<Reports>,
}

type Jobs = Arc<std::sync::Mutex<HashMap<String, Running>>>;

fn with_jobs<R>(jobs: &Jobs, change: impl FnOnce(&mut HashMap<String, Running>) -> R) -> R {
    change(&mut jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Returns what a beat says about a job.
fn report(id: String, fence: i64, taken: Option<&Taken>) -> Report {
    Report { id, fence, progress: taken.and_then(Taken::progress), log: taken.and_then(Taken::log) }
}

/// Tells the jobs what the venue wants of them.
fn pass_on(jobs: &Jobs, signals: Vec<(String, WorkerSignal)>) {
    with_jobs(jobs, |jobs| {
        for (id, signal) in signals {
            if let Some(job) = jobs.get(&id) {
                job.signal.send_replace(signal);
            }
        }
    });
}

impl Worker {
    /// Runs jobs until `shutdown` completes, then finishes or gives back those that run. Fails if the
    /// venue refuses the worker.
    pub async fn run(
        self,
        handler: impl Handler,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ClientError<TransportError>> {
        let jobs: Jobs = Arc::default();
        let slots = Slots::new(self.parallel);
        let beating = tokio::spawn(self.clone().beat(Arc::clone(&jobs)));
        let reporting = tokio::spawn(self.clone().send_reports(Arc::clone(&jobs)));
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(async move {
            shutdown.await;
            stop.send_replace(true);
        });
        let (sending, mut sent) = mpsc::channel::<Infallible>(1);
        let claimed = self.claim(Arc::new(handler), &jobs, &slots, stopping, sending).await;
        let _ = tokio::time::timeout(self.grace, slots.unused()).await;
        // Those that have not ended, and those that are paused.
        self.give_back(&jobs).await;
        // The process may end with this function, and how its jobs ended must not be lost with it. There
        // is nothing to receive: all senders are dropped when everything was sent.
        let _ = tokio::time::timeout(WORKER_END_TIME, sent.recv()).await;
        beating.abort();
        reporting.abort();
        claimed
    }

    /// Claims and starts jobs.
    async fn claim(
        &self,
        handler: Arc<impl Handler>,
        jobs: &Jobs,
        slots: &Slots,
        mut stopping: watch::Receiver<bool>,
        sending: mpsc::Sender<Infallible>,
    ) -> Result<(), ClientError<TransportError>> {
        let (ended, mut ends) = mpsc::unbounded_channel::<(JobEnd, Slot)>();
        let mut done = Vec::new();
        'claiming: loop {
            let max = loop {
                while let Ok((end, slot)) = ends.try_recv() {
                    done.push(end);
                    drop(slot);
                }
                if let Some(free) = slots.free_now() {
                    break free;
                }
                // Resumed jobs run beyond the slots, so that there is no claim for now.
                done.drain(..).for_each(|end| self.end_now(end, &sending));
                tokio::select! {
                    () = slots.wait_for_free() => {}
                    Some((end, slot)) = ends.recv() => {
                        done.push(end);
                        drop(slot);
                    }
                    _ = stopping.wait_for(|stops| *stops) => break 'claiming,
                }
            };
            let claim = Claim {
                worker: self.name.clone(),
                queues: self.queues.clone(),
                max,
                wait: WORKER_CLAIM_WAIT,
                done: std::mem::take(&mut done),
                about: self.about.clone(),
            };
            let claimed = {
                let mut claiming = Box::pin(self.client.claim(&claim));
                loop {
                    tokio::select! {
                        claimed = &mut claiming => break Some(claimed),
                        Some((end, _slot)) = ends.recv() => self.end_now(end, &sending),
                        _ = stopping.wait_for(|stops| *stops) => break None,
                    }
                }
            };
            match claimed {
                Some(Ok(claimed)) => {
                    for job in claimed.jobs {
                        let running = self.start(&handler, jobs, job, slots.occupy());
                        let ended = ended.clone();
                        tokio::spawn(async move {
                            if let (Some(end), slot) = running.await {
                                let _ = ended.send((end, slot));
                            }
                        });
                    }
                }
                Some(Err(error)) if is_refusal(&error) => return Err(error),
                Some(Err(_)) => {
                    // Whether the ends were recorded is unknown; a repetition is recognised.
                    done = claim.done;
                    tokio::time::sleep(WORKER_RETRY_DELAY).await;
                }
                None => {
                    done = claim.done;
                    break;
                }
            }
        }
        done.into_iter().for_each(|end| self.end_now(end, &sending));
        // Jobs that still run end on their own.
        drop(ended);
        let worker = self.clone();
        tokio::spawn(async move {
            while let Some((end, _slot)) = ends.recv().await {
                worker.end_now(end, &sending);
            }
        });
        Ok(())
    }

    /// Ends a job with a request of its own. It has `sending` until the venue has answered.
    fn end_now(&self, end: JobEnd, sending: &mpsc::Sender<Infallible>) {
        let client = self.client.clone();
        let sending = sending.clone();
        tokio::spawn(async move {
            let _sending = sending;
            while let Err(error) = client.end_job(&end).await {
                if is_refusal(&error) {
                    return;
                }
                tokio::time::sleep(WORKER_RETRY_DELAY).await;
            }
        });
    }

    /// Starts a job. The future completes with its slot and its end, or with `None` if it was stopped.
    fn start<H: Handler>(
        &self,
        handler: &Arc<H>,
        jobs: &Jobs,
        job: ClaimedJob,
        mut slot: Slot,
    ) -> impl Future<Output = (Option<JobEnd>, Slot)> + Send + 'static + use<H> {
        let (signal, receiver) = watch::channel(WorkerSignal::Go);
        let fence = job.fence;
        let id = job.id.clone();
        let reports = Arc::new(Reports::default());
        let entry = Running { fence, signal, reports: Arc::clone(&reports) };
        with_jobs(jobs, |jobs| jobs.insert(id.clone(), entry));
        let client = self.client.clone();
        let running = RunningJob { job, client, signal: receiver, reports, link: Link::Venue };
        let jobs = Arc::clone(jobs);
        let handler = Arc::clone(handler);
        let worker = self.name.clone();
        async move {
            let end = if handler.freezes() {
                tokio::select! {
                    end = handler.run(running.clone()) => end,
                    never = slot.follow(running.signal.clone()) => match never {},
                }
            } else {
                handler.run(running.clone()).await
            };
            slot.occupy();
            running.send_last_reports(&worker).await;
            with_jobs(&jobs, |jobs| {
                if jobs.get(&id).is_some_and(|job| job.fence == fence) {
                    jobs.remove(&id);
                }
            });
            let is_stopped = *running.signal.borrow() == WorkerSignal::Stop;
            ((!is_stopped).then_some(JobEnd { id, fence, end }), slot)
        }
    }

    /// Keeps the running jobs alive, and passes on what the venue wants of them. The venue waits with its answer, so
    /// what the jobs report is sent by [`Worker::send_reports`].
    async fn beat(self, jobs: Jobs) {
        loop {
            let running = with_jobs(&jobs, |jobs| {
                jobs.iter().map(|(id, job)| report(id.clone(), job.fence, None)).collect::<Vec<_>>()
            });
            match self.client.beat(&self.name, &running, WORKER_BEAT).await {
                Ok(signals) => pass_on(&jobs, signals),
                Err(_) => tokio::time::sleep(WORKER_RETRY_DELAY).await,
            }
        }
    }

    /// Sends what the jobs report, all of them with one request.
    async fn send_reports(self, jobs: Jobs) {
        loop {
            tokio::time::sleep(WORKER_PROGRESS_INTERVAL).await;
            let (reports, taken): (Vec<Report>, Vec<Taken>) = with_jobs(&jobs, |jobs| {
                let take = |(id, job): (&String, &Running)| {
                    let taken = job.reports.try_take()?;
                    Some((report(id.clone(), job.fence, Some(&taken)), taken))
                };
                jobs.iter().filter_map(take).unzip()
            });
            if reports.is_empty() {
                continue;
            }
            if let Ok(signals) = self.client.beat(&self.name, &reports, Duration::ZERO).await {
                taken.into_iter().for_each(Taken::confirm);
                pass_on(&jobs, signals);
            }
        }
    }

    /// Stops the jobs that run and gives them back.
    async fn give_back(&self, jobs: &Jobs) {
        let running = with_jobs(jobs, |jobs| {
            for job in jobs.values() {
                job.signal.send_replace(WorkerSignal::Stop);
            }
            jobs.iter().map(|(id, job)| (id.clone(), job.fence)).collect::<Vec<_>>()
        });
        for (id, fence) in running {
            let end = JobEnd { id, fence, end: End::Awaiting(Vec::new()) };
            // If the venue cannot be reached, the lease ends.
            let _ = self.client.end_job(&end).await;
        }
    }
}

/// Returns true if a repetition of the request would be refused, too.
fn is_refusal(error: &ClientError<TransportError>) -> bool {
    match error {
        ClientError::Transport(_) | ClientError::Busy(_) | ClientError::Malformed { .. } => false,
        ClientError::Auth(_)
        | ClientError::NotFound(_)
        | ClientError::Conflict(_)
        | ClientError::Refused(_)
        | ClientError::Identity { .. }
        | ClientError::Invalid(_) => true,
    }
}
