//! Runs a handler without a venue: answers its calls and questions, and lets it crash after a step.
//!
//! A handler is run from the top each time its job is claimed, so it must do everything with effects in
//! steps and calls. A crash after each step in turn shows whether it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catena_value::{Map, Value, Vector};
use tokio::sync::watch;

use super::reports::Reports;
use super::{Called, Handler, JobError, Link, RunningJob};
use crate::client::worker::{ClaimedJob, End, Retry, WorkerSignal};
use crate::client::{Credentials, HttpClient};
use crate::limits::HARNESS_RUNS_MAX;
use crate::venue::VenueUrl;

/// A port of this machine at which nothing listens.
const DISCARD_PORT: u16 = 9;

/// Answers the calls of an operation: output or error.
type Answer = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

/// Runs a handler without a venue.
pub struct Harness<H> {
    handler: H,
    calls: BTreeMap<String, Answer>,
    answers: Vec<Value>,
    attempts: u32,
    crash_after: Option<String>,
}

/// What became of a job, and what its handler did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The output, or the error. `None` if the job waits for an answer that the harness does not have.
    pub result: Option<Result<Value, String>>,
    /// How often the handler was started.
    pub runs: u32,
    /// The attempts.
    pub attempts: u32,
    /// The recorded steps, by key.
    pub steps: BTreeMap<String, Value>,
    /// Keys of the steps in the order in which their work was done; one that was lost occurs again.
    pub done: Vec<String>,
    /// The calls by key: operation and input.
    pub calls: BTreeMap<String, (String, Value)>,
    /// What was asked.
    pub questions: Vec<String>,
    /// The last progress of each run.
    pub progress: Vec<Value>,
    /// The log.
    pub log: String,
}

/// What a venue would store about the job.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    outcome: Mutex<Outcome>,
    /// The results of calls, by key.
    ended: Mutex<BTreeMap<String, Result<Value, String>>>,
    crash_after: Mutex<Option<String>>,
    signal: watch::Sender<WorkerSignal>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorded {
    /// Records a step whose work was done. Returns its output: that of the first recording.
    pub(super) fn record_step(&self, key: &str, output: Value) -> Value {
        let recorded = {
            let mut outcome = lock(&self.outcome);
            outcome.done.push(key.to_owned());
            outcome.steps.entry(key.to_owned()).or_insert(output).clone()
        };
        let mut crash = lock(&self.crash_after);
        if crash.as_deref() == Some(key) {
            *crash = None;
            self.signal.send_replace(WorkerSignal::Stop);
        }
        recorded
    }

    /// Records a call, and returns its result if there is one.
    pub(super) fn call(
        &self,
        key: &str,
        operation: &str,
        input: &Value,
    ) -> Result<Called, JobError> {
        let made = (operation.to_owned(), input.clone());
        let known = lock(&self.outcome).calls.entry(key.to_owned()).or_insert(made.clone()).clone();
        if known != made {
            let reason =
                format!("the call `{key}` was made before, with another operation or input");
            return Err(JobError::Harness(reason));
        }
        let ended = lock(&self.ended).get(key).cloned();
        Ok(ended.map_or(Called::Waiting, Called::Ended))
    }
}

/// How a run of the handler ended.
enum Turn {
    Ended(End),
    /// The worker died.
    Lost,
}

impl<H: Handler> Harness<H> {
    /// Runs jobs with this handler, in one attempt.
    pub fn new(handler: H) -> Self {
        let (calls, answers) = (BTreeMap::new(), Vec::new());
        Harness { handler, calls, answers, attempts: 1, crash_after: None }
    }

    /// Answers calls of an operation. A call that nobody answers fails.
    pub fn with_call(
        mut self,
        operation: &str,
        answer: impl Fn(&Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.calls.insert(operation.to_owned(), Box::new(answer));
        self
    }

    /// Gives these answers to questions, in this order.
    pub fn with_answers(self, answers: impl IntoIterator<Item = Value>) -> Self {
        Harness { answers: answers.into_iter().collect(), ..self }
    }

    /// Sets the number of attempts that the operation's retry policy would allow. No time passes between
    /// them.
    pub fn with_attempts(self, attempts: u32) -> Self {
        Harness { attempts, ..self }
    }

    /// Lets the worker die once, right after this step is recorded. Another one claims the job.
    pub fn with_crash_after(self, key: &str) -> Self {
        Harness { crash_after: Some(key.to_owned()), ..self }
    }

    /// Runs a job to its end, or until it asks something that the harness does not answer.
    pub async fn run(&self, input: Value) -> Outcome {
        let recorded = Arc::new(Recorded::default());
        *lock(&recorded.crash_after) = self.crash_after.clone();
        lock(&recorded.outcome).attempts = 1;
        let mut answers = self.answers.iter().cloned();
        let mut message = None;
        for _ in 0..HARNESS_RUNS_MAX {
            let result = match self.turn(&recorded, &input, message.take()).await {
                Turn::Lost => {
                    lock(&recorded.outcome).attempts += 1;
                    continue;
                }
                Turn::Ended(End::Ask { message: question, .. }) => {
                    lock(&recorded.outcome).questions.push(question);
                    message = answers.next();
                    if message.is_some() {
                        continue;
                    }
                    None
                }
                Turn::Ended(End::Awaiting(keys)) => {
                    keys.iter().for_each(|key| self.answer_call(&recorded, key));
                    continue;
                }
                Turn::Ended(End::Error { error, retry, .. }) => {
                    let mut outcome = lock(&recorded.outcome);
                    if retry != Retry::Never && outcome.attempts < self.attempts {
                        outcome.attempts += 1;
                        continue;
                    }
                    Some(Err(error))
                }
                Turn::Ended(end) => end_of_executor(end),
            };
            lock(&recorded.outcome).result = result;
            return lock(&recorded.outcome).clone();
        }
        let error = format!("the job has not ended after {HARNESS_RUNS_MAX} runs");
        Outcome { result: Some(Err(error)), ..lock(&recorded.outcome).clone() }
    }

    /// Runs the handler once.
    async fn turn(&self, recorded: &Arc<Recorded>, input: &Value, message: Option<Value>) -> Turn {
        let job = {
            let mut outcome = lock(&recorded.outcome);
            outcome.runs += 1;
            claimed(&outcome, input, message)
        };
        recorded.signal.send_replace(WorkerSignal::Go);
        let reports = Arc::new(Reports::default());
        let running = RunningJob {
            job,
            // Steps and calls are answered here; nothing else reaches a venue.
            client: HttpClient::connect(VenueUrl::loopback(DISCARD_PORT), Credentials::Anonymous),
            signal: recorded.signal.subscribe(),
            reports: Arc::clone(&reports),
            link: Link::Harness(Arc::clone(recorded)),
        };
        let stopped = running.clone();
        let turn = tokio::select! {
            biased;
            () = stopped.stopped() => Turn::Lost,
            end = self.handler.run(running) => Turn::Ended(end),
        };
        let is_lost = *recorded.signal.borrow() == WorkerSignal::Stop;
        let mut outcome = lock(&recorded.outcome);
        if let Some(taken) = reports.try_take() {
            outcome.progress.extend(taken.progress());
            outcome.log.push_str(&taken.log().unwrap_or_default());
            taken.confirm();
        }
        if is_lost { Turn::Lost } else { turn }
    }

    fn answer_call(&self, recorded: &Recorded, key: &str) {
        let made = lock(&recorded.outcome).calls.get(key).cloned();
        let Some((operation, input)) = made else { return };
        let answer = match self.calls.get(&operation) {
            Some(answer) => answer(&input),
            None => Err(format!("the harness has no answer to calls of {operation}")),
        };
        lock(&recorded.ended).insert(key.to_owned(), answer);
    }
}

/// The result of an end that has one.
fn end_of_executor(end: End) -> Option<Result<Value, String>> {
    match end {
        End::Output(output) => Some(Ok(output)),
        End::Error { error, .. } | End::TimedOut { error } => Some(Err(error)),
        End::Executed { end, .. } => end_of_executor(*end),
        End::Ask { .. } | End::Awaiting(_) => None,
    }
}

/// The job as a claim would return it.
fn claimed(outcome: &Outcome, input: &Value, message: Option<Value>) -> ClaimedJob {
    let step = |(key, output): (&String, &Value)| {
        let members = [("key", Value::from(key.as_str())), ("output", output.clone())];
        Value::from(members.into_iter().collect::<Map>())
    };
    let steps: Vector = outcome.steps.iter().map(step).collect();
    let document = [("steps", Value::from(steps))].into_iter().collect::<Map>();
    ClaimedJob {
        id: format!("0x{:032x}", 1),
        fence: i64::from(outcome.runs),
        attempt: i64::from(outcome.attempts),
        op: "o/harness".to_owned(),
        input: input.clone(),
        message,
        document: document.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges a card in a step, fails once, asks, and calls an operation.
    struct Order;

    impl Handler for Order {
        async fn run(&self, job: RunningJob) -> End {
            order(&job).await.unwrap_or_else(|error| End::Error {
                error: error.to_string(),
                code: None,
                retry: Retry::May,
            })
        }
    }

    async fn order(job: &RunningJob) -> Result<End, JobError> {
        let charged = job.step("charge", || async { Ok(Value::from(7)) }).await?;
        job.report_progress(charged.clone());
        job.log("charged\n");
        if job.job.attempt == 1 {
            return Ok(End::Error { error: "busy".into(), code: None, retry: Retry::May });
        }
        if job.job.step("asked").is_none() {
            job.step("asked", || async { Ok(Value::Nil) }).await?;
            return Ok(End::Ask { message: "Really?".into(), schema: None });
        }
        Ok(match job.call("ship", "o/ship", charged).await? {
            Called::Waiting => End::Awaiting(vec!["ship".to_owned()]),
            Called::Ended(Ok(output)) => End::Output(output),
            Called::Ended(Err(error)) => End::Error { error, code: None, retry: Retry::Never },
        })
    }

    fn harness() -> Harness<Order> {
        let shipped = |input: &Value| Ok(Value::from(input.as_i64().unwrap_or(0) + 1));
        Harness::new(Order).with_call("o/ship", shipped).with_attempts(3)
    }

    #[tokio::test]
    async fn steps_calls_questions_and_attempts_are_as_at_a_venue() {
        let outcome = harness().with_answers([true.into()]).run(Value::Nil).await;
        assert_eq!(outcome.result, Some(Ok(8.into())));
        assert_eq!((outcome.attempts, outcome.runs), (2, 4));
        assert_eq!(outcome.done, ["charge", "asked"]);
        assert_eq!(outcome.questions, ["Really?"]);
        assert_eq!(outcome.calls["ship"], ("o/ship".to_owned(), 7.into()));
        assert!(outcome.log.starts_with("charged\n") && outcome.progress.contains(&7.into()));
        assert_eq!(harness().run(Value::Nil).await.result, None, "nobody answers");
        let failed = Harness::new(Order).run(Value::Nil).await;
        assert_eq!(failed.result, Some(Err("busy".to_owned())));
    }

    #[tokio::test]
    async fn a_crash_repeats_no_recorded_step() {
        for key in ["charge", "asked"] {
            let crashing = harness().with_answers([true.into()]).with_crash_after(key);
            let outcome = crashing.run(Value::Nil).await;
            assert_eq!(outcome.result, Some(Ok(8.into())), "{key}");
            assert_eq!(outcome.done, ["charge", "asked"], "{key}");
        }
    }
}
