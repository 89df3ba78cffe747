//! Watches a job until it ends, a deadline passes, or the user presses Ctrl-C.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use catena_api::client::{Follow, Update};
use catena_api::wire::JobOutcome;
use catena_value::Value;
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::format::{attempt_of, latest_reason_of, percent, status_of};
use crate::limits::LIVE_REASON_CHARS_MAX;
use crate::output::{Failure, Output, printable};

/// How often a live line is redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Progress in percent after which a new line is printed if there is no live line.
const PERCENT_STEP: u8 = 10;

/// Displays the updates of a job.
pub(crate) trait WatchView {
    /// Shows the job after a change.
    fn show_job(&mut self, job: &Value);
    /// Shows progress.
    fn show_progress(&mut self, percent: u8);
    /// Redraws the display. Called every [`WatchView::redraw_interval`].
    fn redraw(&mut self) {}
    /// How often the display is redrawn; `None` if it is not.
    fn redraw_interval(&self) -> Option<Duration> {
        None
    }
}

/// The result of watching a job.
pub(crate) enum Watched {
    /// The job after its end.
    Ended(Value),
    /// The deadline passed first. Carries the last known job; `None` if it was never read.
    Unfinished(Option<Value>),
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// Watches a job, at most until a deadline.
pub(crate) async fn watch(
    mut follow: Follow,
    deadline: Option<Instant>,
    view: &mut dyn WatchView,
) -> Result<Watched, Failure> {
    let mut last = None;
    let mut furthest = None;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut timeout = std::pin::pin!(sleep_until(deadline));
    let mut tick =
        tokio::time::interval(view.redraw_interval().unwrap_or(Duration::from_secs(3600)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let update = {
            // `next` is not cancel-safe, so one future lives until it is ready.
            let mut next = std::pin::pin!(follow.next());
            loop {
                tokio::select! {
                    biased;
                    _ = &mut interrupt => return Ok(Watched::Interrupted),
                    update = &mut next => break update?,
                    () = &mut timeout => return Ok(Watched::Unfinished(last)),
                    _ = tick.tick() => view.redraw(),
                }
            }
        };
        match update {
            None => break,
            Some(Update::Job(job)) => {
                view.show_job(&job);
                last = Some(job);
            }
            Some(Update::Progress(value)) => {
                if let Some(percent) = percent(&value).filter(|now| Some(*now) > furthest) {
                    furthest = Some(percent);
                    view.show_progress(percent);
                }
            }
        }
    }
    Ok(last.map_or(Watched::Unfinished(None), Watched::Ended))
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Parses a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The end of a wait that starts now; `None` if it is unlimited.
pub(crate) fn deadline(wait: Option<Duration>) -> Option<Instant> {
    wait.and_then(|wait| Instant::now().checked_add(wait))
}

/// The failure of a command whose wait for a job has expired.
pub(crate) fn wait_expired(id: &str, last: Option<&Value>) -> Failure {
    let status = last.map_or("in an unknown state".to_owned(), status_of);
    let message = format!("stopped waiting; job {id} is {status} and continues");
    Failure::new(Exit::Timeout, "still_going", message)
        .hint(format!(
            "Run `catena jobs watch {id}` to keep watching, or `catena jobs cancel {id}` to cancel the job."
        ))
        .with("job", id)
}

/// The failure of a command that was interrupted by Ctrl-C.
pub(crate) fn interrupted(id: &str) -> Failure {
    Failure::new(Exit::Interrupted, "interrupted", format!("stopped watching; job {id} continues"))
        .hint(format!(
            "Run `catena jobs watch {id}` to keep watching, or `catena jobs cancel {id}` to cancel the job."
        ))
        .with("job", id)
}

/// Progress on standard error: one live line on a terminal, plain lines otherwise, nothing if results
/// are JSON.
pub(crate) struct Progress {
    form: Form,
    started: Instant,
    status: String,
    /// The number of the attempt, as a remark.
    attempt: String,
    reason: Option<String>,
    percent: Option<u8>,
    /// The last percentage that was printed on a line of its own.
    printed_percent: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Silent,
    Lines,
    Live { is_colourful: bool },
}

impl Progress {
    pub(crate) fn new(output: &Output) -> Self {
        let form = match (output.is_json(), io::stderr().is_terminal()) {
            (true, _) => Form::Silent,
            (false, false) => Form::Lines,
            (false, true) => Form::Live { is_colourful: output.is_colourful() },
        };
        Progress {
            form,
            started: Instant::now(),
            status: String::new(),
            attempt: String::new(),
            reason: None,
            percent: None,
            printed_percent: 0,
        }
    }

    fn line(&self, reason_chars_max: usize) -> String {
        let percent = self.percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        let reason = self.reason.iter().flat_map(|reason| ": ".chars().chain(reason.chars()));
        let reason: String = reason.take(reason_chars_max).collect();
        format!("{}{}{percent}{reason}", self.status, self.attempt)
    }

    fn draw(&self, is_colourful: bool) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (paint, plain) = if is_colourful { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
        let line =
            format!("\r\x1b[2K{paint}{}{plain} {seconds:.1} s", self.line(LIVE_REASON_CHARS_MAX));
        write(&line);
    }
}

impl WatchView for Progress {
    fn show_job(&mut self, job: &Value) {
        let status = printable(&status_of(job)).into_owned();
        let reason = latest_reason_of(job);
        let attempt = attempt_of(job);
        let is_changed =
            (&status, &attempt, &reason) != (&self.status, &self.attempt, &self.reason);
        self.status = status;
        self.attempt = attempt;
        self.reason = reason;
        if JobOutcome::from_status(&self.status).is_terminal() {
            // Progress is meaningless once the job has ended.
            self.percent = None;
        }
        match self.form {
            Form::Lines if is_changed => write(&format!("{}\n", self.line(usize::MAX))),
            Form::Live { is_colourful } => self.draw(is_colourful),
            Form::Lines | Form::Silent => {}
        }
    }

    fn show_progress(&mut self, percent: u8) {
        self.percent = Some(percent);
        if self.form == Form::Lines && percent >= self.printed_percent.saturating_add(PERCENT_STEP)
        {
            self.printed_percent = percent;
            write(&format!("{}\n", self.line(usize::MAX)));
        }
    }

    fn redraw(&mut self) {
        if let Form::Live { is_colourful } = self.form {
            self.draw(is_colourful);
        }
    }

    fn redraw_interval(&self) -> Option<Duration> {
        matches!(self.form, Form::Live { .. }).then_some(REDRAW_INTERVAL)
    }
}

impl Drop for Progress {
    /// Clears the live line.
    fn drop(&mut self) {
        if matches!(self.form, Form::Live { .. }) {
            write("\r\x1b[2K");
        }
    }
}

/// Writes to standard error. A failure is ignored, because there is no other place to report it.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
