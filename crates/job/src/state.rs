//! Statuses, events, and the transition table.

use std::fmt;

use catena_value::Value;

use crate::note::Note;

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Created and waiting to run.
    Pending,
    /// Running.
    Started,
    /// Ended with an output.
    Complete,
    /// Ended with an error.
    Failed,
    /// Ended by a request to cancel it.
    Cancelled,
    /// Refused before it started.
    Rejected,
    /// Ended because its time limit or deadline passed.
    Timeout,
    /// Suspended until it is resumed.
    Paused,
    /// Waits for a message.
    InputRequired,
    /// Waits for authorisation.
    AuthRequired,
}

/// What a client should do about a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// The job makes progress by itself; a client watches it.
    Active,
    /// The job has ended and will not change again.
    Terminal,
    /// The job waits for a client to act.
    Interactive,
}

impl Status {
    /// All ten statuses.
    pub const ALL: [Status; 10] = [
        Status::Pending,
        Status::Started,
        Status::Complete,
        Status::Failed,
        Status::Cancelled,
        Status::Rejected,
        Status::Timeout,
        Status::Paused,
        Status::InputRequired,
        Status::AuthRequired,
    ];

    /// The name of the status in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Started => "STARTED",
            Status::Complete => "COMPLETE",
            Status::Failed => "FAILED",
            Status::Cancelled => "CANCELLED",
            Status::Rejected => "REJECTED",
            Status::Timeout => "TIMEOUT",
            Status::Paused => "PAUSED",
            Status::InputRequired => "INPUT_REQUIRED",
            Status::AuthRequired => "AUTH_REQUIRED",
        }
    }

    /// The status with this name. `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Status::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The category of the status.
    pub const fn category(self) -> Category {
        match self {
            Status::Pending | Status::Started => Category::Active,
            Status::Complete
            | Status::Failed
            | Status::Cancelled
            | Status::Rejected
            | Status::Timeout => Category::Terminal,
            Status::Paused | Status::InputRequired | Status::AuthRequired => Category::Interactive,
        }
    }

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self.category(), Category::Terminal)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Status> for Value {
    fn from(status: Status) -> Self {
        Value::from(status.as_str())
    }
}

/// An event that happens to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Execution starts.
    Started,
    /// The venue refuses to run the job.
    Refused {
        /// The reason, for clients.
        error: String,
    },
    /// The operation succeeded.
    Finished {
        /// Output of the operation.
        output: Value,
    },
    /// The operation failed.
    Erred {
        /// The error, for clients.
        error: String,
    },
    /// The operation needs a message.
    AskedForInput(Ask),
    /// The operation needs authorisation.
    AskedForAuth(Ask),
    /// A client, or the operation itself, suspends the job.
    Paused,
    /// A client resumes the job.
    Resumed,
    /// The input or authorisation that the operation waited for has arrived.
    Answered,
    /// A client cancels the job.
    Cancelled {
        /// The reason, for clients.
        error: String,
    },
    /// A time limit or deadline of the job has passed.
    Expired {
        /// Which limit has passed, for clients.
        error: String,
    },
    /// An annotation, which keeps the status.
    Noted(Note),
}

/// What an operation asks for when it waits for input or authorisation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// What the operation needs, for clients.
    pub message: Option<String>,
    /// Output of the turn so far.
    pub output: Option<Value>,
}

impl Event {
    /// The name of the event, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Started => "start",
            Event::Refused { .. } => "reject",
            Event::Finished { .. } => "finish",
            Event::Erred { .. } => "fail",
            Event::AskedForInput(_) => "ask for input",
            Event::AskedForAuth(_) => "ask for authorisation",
            Event::Paused => "pause",
            Event::Resumed => "resume",
            Event::Answered => "answer",
            Event::Cancelled { .. } => "cancel",
            Event::Expired { .. } => "expire",
            Event::Noted(_) => "note",
        }
    }
}

/// The status of the job does not allow the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` is not allowed while the job is {from}")]
pub struct Illegal {
    /// Status of the job.
    pub from: Status,
    /// Name of the event, as [`Event::name`] returns it.
    pub event: &'static str,
}

/// Returns the status that follows an event. Nothing else changes the status of a job: running,
/// recovery and verification all call this function.
pub fn apply(from: Status, event: &Event) -> Result<Status, Illegal> {
    use Status::*;
    Ok(match (from, event) {
        (Pending, Event::Started) => Started,
        (Pending, Event::Refused { .. }) => Rejected,
        (Started, Event::Finished { .. }) => Complete,
        (Started, Event::Erred { .. }) => Failed,
        (Started, Event::AskedForInput(_)) => InputRequired,
        (Started, Event::AskedForAuth(_)) => AuthRequired,
        (Pending | Started | InputRequired | AuthRequired, Event::Paused) => Paused,
        (Paused, Event::Resumed) => Started,
        (InputRequired | AuthRequired, Event::Answered) => Started,
        (from, Event::Cancelled { .. }) if !from.is_terminal() => Cancelled,
        (from, Event::Expired { .. }) if !from.is_terminal() => Timeout,
        (from, Event::Noted(note)) if note.kind().is_allowed_in(from) => from,
        (from, event) => return Err(Illegal { from, event: event.name() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::{Kind, Outcome};

    /// One event of each kind; notes by kind.
    fn events() -> Vec<Event> {
        let error = || "why".to_owned();
        let mut events = vec![
            Event::Started,
            Event::Refused { error: error() },
            Event::Finished { output: Value::Nil },
            Event::Erred { error: error() },
            Event::AskedForInput(Ask::default()),
            Event::AskedForAuth(Ask::default()),
            Event::Paused,
            Event::Resumed,
            Event::Answered,
            Event::Cancelled { error: error() },
            Event::Expired { error: error() },
        ];
        events.extend(Kind::ALL.map(|kind| {
            Event::Noted(match kind {
                Kind::Step => Note::Step { started: vec![], ended: vec![] },
                Kind::Call => Note::Call { started: vec![], ended: vec![] },
                Kind::Attempt => Note::Attempt(crate::note::Attempt::default()),
                Kind::Message => Note::Message,
                Kind::Held => Note::Held(Some(Outcome::failed("why"))),
                Kind::Recovered => {
                    Note::Recovered { attempt: Some(2), reason: None, interruptions: None }
                }
            })
        }));
        events
    }

    fn name(event: &Event) -> String {
        match event {
            Event::Noted(note) => format!("note {}", note.kind().as_str()),
            other => other.name().to_owned(),
        }
    }

    #[test]
    fn the_table_allows_exactly_this() {
        let mut allowed = String::new();
        for from in Status::ALL {
            for event in events() {
                if let Ok(to) = apply(from, &event) {
                    allowed += &format!("{from} --{}--> {to}\n", name(&event));
                }
            }
        }
        let expected = "\
PENDING --start--> STARTED
PENDING --reject--> REJECTED
PENDING --pause--> PAUSED
PENDING --cancel--> CANCELLED
PENDING --expire--> TIMEOUT
PENDING --note recovered--> PENDING
STARTED --finish--> COMPLETE
STARTED --fail--> FAILED
STARTED --ask for input--> INPUT_REQUIRED
STARTED --ask for authorisation--> AUTH_REQUIRED
STARTED --pause--> PAUSED
STARTED --cancel--> CANCELLED
STARTED --expire--> TIMEOUT
STARTED --note step--> STARTED
STARTED --note call--> STARTED
STARTED --note attempt--> STARTED
STARTED --note message--> STARTED
STARTED --note recovered--> STARTED
PAUSED --resume--> STARTED
PAUSED --cancel--> CANCELLED
PAUSED --expire--> TIMEOUT
PAUSED --note step--> PAUSED
PAUSED --note call--> PAUSED
PAUSED --note held--> PAUSED
INPUT_REQUIRED --pause--> PAUSED
INPUT_REQUIRED --answer--> STARTED
INPUT_REQUIRED --cancel--> CANCELLED
INPUT_REQUIRED --expire--> TIMEOUT
INPUT_REQUIRED --note step--> INPUT_REQUIRED
INPUT_REQUIRED --note call--> INPUT_REQUIRED
INPUT_REQUIRED --note message--> INPUT_REQUIRED
AUTH_REQUIRED --pause--> PAUSED
AUTH_REQUIRED --answer--> STARTED
AUTH_REQUIRED --cancel--> CANCELLED
AUTH_REQUIRED --expire--> TIMEOUT
AUTH_REQUIRED --note step--> AUTH_REQUIRED
AUTH_REQUIRED --note call--> AUTH_REQUIRED
AUTH_REQUIRED --note message--> AUTH_REQUIRED
";
        assert_eq!(allowed, expected);
    }

    #[test]
    fn nothing_leaves_a_terminal_status() {
        for from in Status::ALL.into_iter().filter(|status| status.is_terminal()) {
            for event in events() {
                let refused = apply(from, &event).unwrap_err();
                assert_eq!(refused, Illegal { from, event: event.name() });
            }
        }
    }

    #[test]
    fn every_status_round_trips() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("pending"), None);
    }

    #[test]
    fn a_refusal_names_the_status_and_the_event() {
        let refused = apply(Status::Complete, &Event::Paused).unwrap_err();
        assert_eq!(refused.to_string(), "event `pause` is not allowed while the job is COMPLETE");
    }
}
