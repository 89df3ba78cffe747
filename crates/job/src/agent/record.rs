//! The record of an agent: exactly eight fields, replaced as a whole by every change.

use catena_value::{CellSource, Map, Value, Vector};

use super::{AgentError, Message, TurnResult};

/// The lifecycle status of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentStatus {
    /// Idle, ready to process messages when a run is requested.
    Sleeping,
    /// Its transition function is being executed.
    Running,
    /// A turn failed, or somebody suspended it. Everything is kept.
    Suspended,
    /// Ended for good.
    Terminated,
}

impl AgentStatus {
    /// All statuses.
    pub const ALL: [AgentStatus; 4] = [
        AgentStatus::Sleeping,
        AgentStatus::Running,
        AgentStatus::Suspended,
        AgentStatus::Terminated,
    ];

    /// Returns the word in a record.
    pub fn word(self) -> &'static str {
        match self {
            AgentStatus::Sleeping => "SLEEPING",
            AgentStatus::Running => "RUNNING",
            AgentStatus::Suspended => "SUSPENDED",
            AgentStatus::Terminated => "TERMINATED",
        }
    }

    /// Returns the status that a word names.
    pub fn parse(word: &str) -> Option<AgentStatus> {
        AgentStatus::ALL.into_iter().find(|status| status.word() == word)
    }
}

impl std::fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// The record of an agent.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Unix time of the last write in ms. It grows with every write.
    pub ts: i64,
    /// The lifecycle status.
    pub status: AgentStatus,
    /// The configuration of the framework: a map.
    pub config: Value,
    /// What the transition function keeps. The framework does not read it.
    pub state: Value,
    /// The messages that wait.
    pub inbox: Vector,
    /// One entry per successful turn, oldest first.
    pub timeline: Vector,
    /// What the agent may do: `{grant: […]}`, or nil if it is not restricted.
    pub caps: Value,
    /// Why it is suspended.
    pub error: Option<String>,
}

impl Agent {
    /// Creates an agent.
    pub fn new(now: i64, config: Value, state: Value, caps: Value) -> Agent {
        Agent {
            ts: now,
            status: AgentStatus::Sleeping,
            config,
            state,
            inbox: Vector::new(),
            timeline: Vector::new(),
            caps,
            error: None,
        }
    }

    /// Reads a record. Its state, messages and turns are not loaded.
    pub fn read(value: &Value, cells: &dyn CellSource) -> Result<Agent, AgentError> {
        let value = value.loaded(cells)?;
        let map = value.as_map().ok_or(AgentError::Malformed("record"))?;
        let member = |name: &'static str| -> Result<Value, AgentError> {
            Ok(map.get_named(name, cells)?.unwrap_or_default())
        };
        let loaded =
            |name: &'static str| -> Result<Value, AgentError> { Ok(member(name)?.loaded(cells)?) };
        let vector = |name: &'static str| -> Result<Vector, AgentError> {
            loaded(name)?.as_vector().cloned().ok_or(AgentError::Malformed(name))
        };
        let status = loaded("status")?;
        let status = status.as_str().and_then(AgentStatus::parse);
        let error = loaded("error")?.to_text().map(std::borrow::Cow::into_owned);
        Ok(Agent {
            ts: member("ts")?.as_i64().ok_or(AgentError::Malformed("ts"))?,
            status: status.ok_or(AgentError::Malformed("status"))?,
            config: loaded("config")?,
            state: member("state")?,
            inbox: vector("inbox")?,
            timeline: vector("timeline")?,
            caps: loaded("caps")?,
            error,
        })
    }

    /// Returns the record as a value.
    pub fn to_value(&self) -> Value {
        let error = self.error.as_deref().map_or(Value::Nil, Value::from);
        let members: [(&str, Value); 8] = [
            ("ts", self.ts.into()),
            ("status", self.status.word().into()),
            ("config", self.config.clone()),
            ("state", self.state.clone()),
            ("inbox", self.inbox.clone().into()),
            ("timeline", self.timeline.clone().into()),
            ("caps", self.caps.clone()),
            ("error", error),
        ];
        members.into_iter().collect::<Map>().into()
    }

    /// Returns this record as a write at `now` leaves it: its time grows, whatever the clock says.
    #[must_use]
    pub fn written_at(mut self, now: i64) -> Agent {
        self.ts = now.max(self.ts.saturating_add(1));
        self
    }

    /// Appends a message to the inbox.
    pub fn deliver(
        mut self,
        message: &Message,
        cells: &dyn CellSource,
    ) -> Result<Agent, AgentError> {
        self.inbox = self.inbox.push(message.to_value(), cells)?;
        Ok(self)
    }

    /// Records a turn that succeeded: the state, an entry in the timeline, and the removal of the
    /// messages that it processed. Messages that arrived since stay.
    pub fn succeed(
        mut self,
        turn: TurnResult,
        cells: &dyn CellSource,
    ) -> Result<Agent, AgentError> {
        let processed = turn.messages.len();
        self.timeline = self.timeline.push(turn.entry(), cells)?;
        let waiting = self.inbox.len();
        self.inbox = if processed >= waiting {
            Vector::new()
        } else {
            self.inbox.slice(processed..waiting, cells)?
        };
        if let Some(state) = turn.new_state {
            self.state = state;
        }
        self.status = AgentStatus::Sleeping;
        self.error = None;
        Ok(self)
    }

    /// Suspends the agent. State, inbox and timeline are kept.
    #[must_use]
    pub fn suspend(mut self, error: Option<String>) -> Agent {
        self.status = AgentStatus::Suspended;
        self.error = error;
        self
    }
}

#[cfg(test)]
mod tests {
    use catena_value::NoCells;

    use super::*;

    fn message(id: &str) -> Message {
        Message {
            id: id.to_owned(),
            ts: 5,
            from: "did:key:me".to_owned(),
            content: id.into(),
            session: None,
        }
    }

    fn agent() -> Agent {
        Agent::new(10, Map::new().into(), 7i64.into(), Value::Nil)
    }

    #[test]
    fn a_record_has_exactly_eight_fields_and_can_be_read_back() {
        let agent = agent().deliver(&message("a"), &NoCells).unwrap();
        let value = agent.to_value();
        let mut names: Vec<String> = value
            .as_map()
            .unwrap()
            .fields()
            .iter()
            .filter_map(|(name, _)| Some(name.as_str()?.to_owned()))
            .collect();
        names.sort();
        let expected = ["caps", "config", "error", "inbox", "state", "status", "timeline", "ts"];
        assert_eq!(names, expected);
        assert_eq!(Agent::read(&value, &NoCells).unwrap().to_value(), value);
    }

    #[test]
    fn time_grows_with_every_write() {
        let agent = agent().written_at(10);
        assert_eq!(agent.ts, 11, "the same millisecond");
        let agent = agent.written_at(3);
        assert_eq!(agent.ts, 12, "a clock that went back");
        assert_eq!(agent.written_at(99).ts, 99);
    }

    #[test]
    fn a_turn_processes_the_messages_that_it_began_with() {
        let mut agent = agent();
        for id in ["a", "b", "c"] {
            agent = agent.deliver(&message(id), &NoCells).unwrap();
        }
        let messages = agent.inbox.slice(0..2, &NoCells).unwrap();
        let turn = TurnResult {
            start: 1,
            end: 2,
            op: "test:tally".to_owned(),
            state: agent.state.clone(),
            messages,
            result: "done".into(),
            new_state: Some(8i64.into()),
        };
        let after = agent.succeed(turn, &NoCells).unwrap();
        assert_eq!(after.status, AgentStatus::Sleeping);
        assert_eq!(after.state, 8i64.into());
        assert_eq!(after.inbox.len(), 1);
        let left = after.inbox.get(0, &NoCells).unwrap().unwrap();
        assert_eq!(left, message("c").to_value());
        let entry = after.timeline.get(0, &NoCells).unwrap().unwrap();
        let member = |name: &str| entry.as_map().unwrap().field(name).cloned();
        assert_eq!(member("state"), Some(7i64.into()), "the state that the turn began with");
        assert_eq!(member("result"), Some("done".into()));
        assert_eq!(entry.as_map().unwrap().len(), 6);
    }

    #[test]
    fn a_malformed_record_is_reported() {
        let error = Agent::read(&Value::Nil, &NoCells).unwrap_err();
        assert_eq!(error, AgentError::Malformed("record"));
        let error = Agent::read(&Map::new().into(), &NoCells).unwrap_err();
        assert_eq!(error, AgentError::Malformed("ts"));
    }
}
