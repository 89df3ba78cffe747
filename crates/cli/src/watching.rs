//! Watching a job until it ends, somebody stops waiting, or somebody presses Ctrl-C.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use catena_api::client::{Follow, Update};
use catena_api::wire::JobOutcome;
use catena_value::Value;
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::output::{Failure, Output, printable};
use crate::shown::{percent, reason_of, status_of};

/// How often a live line is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// How many percent make a line of their own where there is no live line.
const PERCENT_STEP: u8 = 10;

/// Characters of a reason on a live line: a line that wraps cannot be drawn over.
const LIVE_REASON_CHARS_MAX: usize = 48;

/// What a watch shows.
pub(crate) trait Show {
    /// The job changed.
    fn job(&mut self, job: &Value);
    /// The job is further.
    fn progress(&mut self, percent: u8);
    /// Some time passed.
    fn tick(&mut self) {}
    /// How often it wants to know that.
    fn ticks(&self) -> Option<Duration> {
        None
    }
}

/// How a watch ended.
pub(crate) enum Watched {
    /// With the job, as it ended.
    Ended(Value),
    /// Before it; nothing when not even its first state was seen.
    StillGoing(Option<Value>),
    /// By Ctrl-C.
    Interrupted,
}

/// Watches a job, at most until a time.
pub(crate) async fn watch(
    mut follow: Follow,
    deadline: Option<Instant>,
    show: &mut dyn Show,
) -> Result<Watched, Failure> {
    let mut last = None;
    let mut furthest = None;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut over = std::pin::pin!(sleep_until(deadline));
    let mut tick = tokio::time::interval(show.ticks().unwrap_or(Duration::from_secs(3600)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let update = {
            // In one piece: a connection that is being made is not begun anew at each tick.
            let mut next = std::pin::pin!(follow.next());
            loop {
                tokio::select! {
                    biased;
                    _ = &mut interrupt => return Ok(Watched::Interrupted),
                    update = &mut next => break update?,
                    () = &mut over => return Ok(Watched::StillGoing(last)),
                    _ = tick.tick() => show.tick(),
                }
            }
        };
        match update {
            None => break,
            Some(Update::Job(job)) => {
                show.job(&job);
                last = Some(job);
            }
            Some(Update::Progress(value)) => {
                if let Some(percent) = percent(&value).filter(|now| Some(*now) > furthest) {
                    furthest = Some(percent);
                    show.progress(percent);
                }
            }
        }
    }
    Ok(last.map_or(Watched::StillGoing(None), Watched::Ended))
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A time to wait, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// When a wait that begins now is over.
pub(crate) fn deadline(wait: Option<Duration>) -> Option<Instant> {
    wait.and_then(|wait| Instant::now().checked_add(wait))
}

/// The failure of whoever waited no longer.
pub(crate) fn waited(id: &str, last: Option<&Value>) -> Failure {
    let stands = last.map_or("not known".to_owned(), status_of);
    let message = format!("waited no longer; job {id} is {stands} and goes on");
    Failure::new(Exit::Timeout, "still_going", message)
        .hint(format!(
            "`catena jobs watch {id}` goes on watching; `catena jobs cancel {id}` ends it."
        ))
        .with("job", id)
}

/// The failure of whoever pressed Ctrl-C.
pub(crate) fn interrupted(id: &str) -> Failure {
    Failure::new(Exit::Interrupted, "interrupted", format!("stopped watching; job {id} goes on"))
        .hint(format!(
            "`catena jobs watch {id}` goes on watching; `catena jobs cancel {id}` ends it."
        ))
        .with("job", id)
}

/// Progress on the standard error: one live line in a terminal, plain lines elsewhere, nothing
/// when results are JSON.
pub(crate) struct Progress {
    form: Form,
    begun: Instant,
    status: String,
    reason: Option<String>,
    percent: Option<u8>,
    /// The last percentage that got a line.
    told: u8,
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
            begun: Instant::now(),
            status: String::new(),
            reason: None,
            percent: None,
            told: 0,
        }
    }

    fn line(&self, reason_chars_max: usize) -> String {
        let percent = self.percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        let reason = self.reason.iter().flat_map(|reason| ": ".chars().chain(reason.chars()));
        let reason: String = reason.take(reason_chars_max).collect();
        format!("{}{percent}{reason}", self.status)
    }

    fn draw(&self, is_colourful: bool) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let (paint, plain) = if is_colourful { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
        let line =
            format!("\r\x1b[2K{paint}{}{plain} {seconds:.1} s", self.line(LIVE_REASON_CHARS_MAX));
        write(&line);
    }
}

impl Show for Progress {
    fn job(&mut self, job: &Value) {
        let (status, reason) = (printable(&status_of(job)).into_owned(), reason_of(job));
        let is_news = status != self.status || reason != self.reason;
        (self.status, self.reason) = (status, reason);
        if JobOutcome::of(&self.status).is_terminal() {
            // How far it was says nothing more about a job that has ended.
            self.percent = None;
        }
        match self.form {
            Form::Lines if is_news => write(&format!("{}\n", self.line(usize::MAX))),
            Form::Live { is_colourful } => self.draw(is_colourful),
            Form::Lines | Form::Silent => {}
        }
    }

    fn progress(&mut self, percent: u8) {
        self.percent = Some(percent);
        if self.form == Form::Lines && percent >= self.told.saturating_add(PERCENT_STEP) {
            self.told = percent;
            write(&format!("{}\n", self.line(usize::MAX)));
        }
    }

    fn tick(&mut self) {
        if let Form::Live { is_colourful } = self.form {
            self.draw(is_colourful);
        }
    }

    fn ticks(&self) -> Option<Duration> {
        matches!(self.form, Form::Live { .. }).then_some(TICK)
    }
}

impl Drop for Progress {
    /// Takes the live line away.
    fn drop(&mut self) {
        if matches!(self.form, Form::Live { .. }) {
            write("\r\x1b[2K");
        }
    }
}

/// What cannot be written to the standard error is lost; nobody is left to tell.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
