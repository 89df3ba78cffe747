//! What the framework keeps in addition to the record of an agent.
//!
//! One root of a user has the controls of all its agents, by ID, and changes in the same commit as the
//! records. Status and error are repeated there, so that agents are listed without reading each of them.

use catena_value::{CellSource, Map, Value, Vector};

use super::{AgentError, AgentStatus, SecretPath, secrets_from_value, secrets_to_value};
use crate::ids::JobId;

/// The job that runs an agent, and what its turn works on.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// The job.
    pub job: JobId,
    /// When the turn started, as Unix time in ms.
    pub start: i64,
    /// The reference of the transition operation.
    pub op: String,
    /// The number of messages that it processes: the first ones of the inbox.
    pub count: u64,
    /// The state that it received.
    pub state: Value,
    /// The job of `agent:attach` that started it, if it was one.
    pub by: Option<JobId>,
}

/// When an agent is woken. Times are Unix times in ms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WakePlan {
    /// When its schedule is due. `None` if it has none.
    pub due: Option<i64>,
    /// True if the schedule is there to find out whether the agent is idle.
    pub is_idle: bool,
    /// The latest time that a schedule of this agent was due at.
    pub last_due: i64,
    /// When somebody wants it to be woken.
    pub at: Option<i64>,
    /// The next time of its timer.
    pub timer: Option<i64>,
    /// True if the messages that wait do not wake it.
    pub is_quiet: bool,
}

/// What the framework keeps in addition to the record of an agent.
#[derive(Debug, Clone)]
pub struct Control {
    /// The status of the record.
    pub status: AgentStatus,
    /// The error of the record.
    pub error: Option<String>,
    /// When the agent was created, as Unix time in ms.
    pub created: i64,
    /// The run in progress. Present if the agent is RUNNING.
    pub run: Option<RunState>,
    /// The jobs that wait for their turn, first come, first served.
    pub waiting: Vec<JobId>,
    /// The jobs of `agent:attach` that have not ended.
    pub attached: Vec<JobId>,
    /// The number of turns that failed since the last one that succeeded.
    pub failures: u64,
    /// The size of the messages in the inbox, in bytes of JSON.
    pub inbox_bytes: u64,
    /// The sessions: a map from IDs to `{created, updated, turns, title?}`.
    pub sessions: Map,
    /// What of the content of a message the transition marks as secret.
    pub secrets: Vec<SecretPath>,
    /// The restriction of those who configured the agent. Nil if they had none.
    pub authority: Value,
    /// When the agent is woken. `None` if it never was to be.
    pub wake: Option<WakePlan>,
    /// Its requests to people: a map by ID.
    pub requests: Map,
    /// A second, as Unix time, and the number of messages that were delivered in it. Only if that is
    /// limited.
    pub deliveries: (i64, u64),
}

impl Control {
    /// Creates the control of a new agent.
    pub fn new(now: i64) -> Control {
        Control {
            status: AgentStatus::Sleeping,
            error: None,
            created: now,
            run: None,
            waiting: Vec::new(),
            attached: Vec::new(),
            failures: 0,
            inbox_bytes: 0,
            sessions: Map::new(),
            secrets: Vec::new(),
            authority: Value::Nil,
            wake: None,
            requests: Map::new(),
            deliveries: (0, 0),
        }
    }

    /// Reads a control.
    pub fn read(value: &Value, cells: &dyn CellSource) -> Result<Control, AgentError> {
        let value = value.loaded(cells)?;
        let map = value.as_map().ok_or(AgentError::Malformed("control"))?;
        let member =
            |name: &str| -> Result<Option<Value>, AgentError> { Ok(map.get_named(name, cells)?) };
        let number = |name: &str| -> Result<i64, AgentError> {
            Ok(member(name)?.and_then(|value| value.as_i64()).unwrap_or(0))
        };
        let status = member("status")?;
        let status = status.as_ref().and_then(Value::as_str).and_then(AgentStatus::parse);
        let run = match member("run")? {
            Some(run) => Some(RunState::read(&run, cells)?),
            None => None,
        };
        let jobs = |name: &str| -> Result<Vec<JobId>, AgentError> {
            let Some(Value::Vector(jobs)) = member(name)? else { return Ok(Vec::new()) };
            jobs.iter(cells).map(|job| job_id(&job?)).collect()
        };
        let sessions = member("sessions")?;
        let requests = member("requests")?;
        Ok(Control {
            status: status.ok_or(AgentError::Malformed("status"))?,
            error: member("error")?.and_then(|error| Some(error.to_text()?.into_owned())),
            created: number("created")?,
            run,
            waiting: jobs("waiting")?,
            attached: jobs("attached")?,
            failures: number("failures")?.unsigned_abs(),
            inbox_bytes: number("inboxBytes")?.unsigned_abs(),
            sessions: sessions.as_ref().and_then(Value::as_map).cloned().unwrap_or_default(),
            secrets: match member("secrets")? {
                Some(secrets) => secrets_from_value(&secrets.fully_loaded(cells)?),
                None => Vec::new(),
            },
            authority: match member("authority")? {
                Some(authority) => authority.fully_loaded(cells)?,
                None => Value::Nil,
            },
            wake: match member("wake")? {
                Some(wake) => Some(WakePlan::read(&wake.fully_loaded(cells)?)),
                None => None,
            },
            requests: requests.as_ref().and_then(Value::as_map).cloned().unwrap_or_default(),
            deliveries: (number("second")?, number("delivered")?.unsigned_abs()),
        })
    }

    /// Returns what is kept about the inbox, which changes with every message: the size of its messages, a
    /// second, and the number of messages delivered in it.
    pub fn inbox_to_value(&self) -> Value {
        let (second, delivered) = self.deliveries;
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        let counts = [number(self.inbox_bytes), second.into(), number(delivered)];
        counts.into_iter().collect::<Vector>().into()
    }

    /// Reads what is kept about the inbox. Controls of earlier versions contain it themselves.
    pub fn read_inbox(&mut self, value: &Value, cells: &dyn CellSource) -> Result<(), AgentError> {
        let Value::Vector(counts) = value.loaded(cells)? else {
            return Err(AgentError::Malformed("inbox"));
        };
        let counts: Vec<i64> = counts
            .iter(cells)
            .map(|count| Ok(count?.as_i64().unwrap_or(0)))
            .collect::<Result<_, AgentError>>()?;
        let [bytes, second, delivered] = counts[..] else {
            return Err(AgentError::Malformed("inbox"));
        };
        self.inbox_bytes = bytes.unsigned_abs();
        self.deliveries = (second, delivered.unsigned_abs());
        Ok(())
    }

    /// Returns the control as a value, without what is kept about the inbox.
    pub fn to_value(&self) -> Value {
        let mut members: Vec<(&str, Value)> =
            vec![("status", self.status.word().into()), ("created", self.created.into())];
        members.extend(self.error.as_deref().map(|error| ("error", error.into())));
        members.extend(self.run.as_ref().map(|run| ("run", run.to_value())));
        for (name, jobs) in [("waiting", &self.waiting), ("attached", &self.attached)] {
            if !jobs.is_empty() {
                let jobs: Vector = jobs.iter().map(|job| Value::from(*job)).collect();
                members.push((name, jobs.into()));
            }
        }
        let mut number = |name, number: u64| {
            if number > 0 {
                members.push((name, i64::try_from(number).unwrap_or(i64::MAX).into()));
            }
        };
        number("failures", self.failures);
        if !self.sessions.is_empty() {
            members.push(("sessions", self.sessions.clone().into()));
        }
        if !self.secrets.is_empty() {
            members.push(("secrets", secrets_to_value(&self.secrets)));
        }
        if !self.authority.is_nil() {
            members.push(("authority", self.authority.clone()));
        }
        if !self.requests.is_empty() {
            members.push(("requests", self.requests.clone().into()));
        }
        members.extend(self.wake.as_ref().map(|wake| ("wake", wake.to_value())));
        members.into_iter().collect::<Map>().into()
    }

    /// Returns the number of requests that run or wait.
    pub fn tasks(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.run.is_some())
    }
}

impl WakePlan {
    fn read(value: &Value) -> WakePlan {
        let map = value.as_map();
        let member = |name: &str| map.and_then(|map| map.field(name));
        let time = |name: &str| member(name).and_then(Value::as_i64);
        let is_set = |name: &str| member(name) == Some(&true.into());
        WakePlan {
            due: time("due"),
            is_idle: is_set("idle"),
            last_due: time("lastDue").unwrap_or(0),
            at: time("at"),
            timer: time("timer"),
            is_quiet: is_set("quiet"),
        }
    }

    fn to_value(&self) -> Value {
        let mut members: Vec<(&str, Value)> = vec![("lastDue", self.last_due.into())];
        let times = [("due", self.due), ("at", self.at), ("timer", self.timer)];
        members.extend(times.into_iter().filter_map(|(name, time)| Some((name, time?.into()))));
        let flags = [("idle", self.is_idle), ("quiet", self.is_quiet)];
        members.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(n, f)| (n, f.into())));
        members.into_iter().collect::<Map>().into()
    }
}

impl RunState {
    fn read(value: &Value, cells: &dyn CellSource) -> Result<RunState, AgentError> {
        let map = value.as_map().ok_or(AgentError::Malformed("run"))?;
        let member = |name: &str| -> Result<Value, AgentError> {
            Ok(map.get_named(name, cells)?.unwrap_or_default())
        };
        let op = member("op")?.loaded(cells)?;
        Ok(RunState {
            job: job_id(&member("job")?)?,
            start: member("start")?.as_i64().unwrap_or(0),
            op: op.to_text().ok_or(AgentError::Malformed("op"))?.into_owned(),
            count: member("count")?.as_i64().unwrap_or(0).unsigned_abs(),
            state: member("state")?,
            by: member("by")?.as_str().and_then(|text| text.parse().ok()),
        })
    }

    fn to_value(&self) -> Value {
        let members: [(&str, Value); 5] = [
            ("job", self.job.into()),
            ("start", self.start.into()),
            ("op", self.op.as_str().into()),
            ("count", i64::try_from(self.count).unwrap_or(i64::MAX).into()),
            ("state", self.state.clone()),
        ];
        let by = self.by.map(|by| ("by", by.into()));
        members.into_iter().chain(by).collect::<Map>().into()
    }
}

fn job_id(value: &Value) -> Result<JobId, AgentError> {
    let id = value.as_str().and_then(|text| text.parse().ok());
    id.ok_or(AgentError::Malformed("job"))
}

#[cfg(test)]
mod tests {
    use catena_value::NoCells;

    use super::*;
    use crate::agent::SecretStep;

    fn check(control: &Control) {
        let value = control.to_value();
        assert_eq!(Control::read(&value, &NoCells).unwrap().to_value(), value);
    }

    #[test]
    fn a_control_can_be_read_back() {
        let mut control = Control::new(3);
        check(&control);
        control.status = AgentStatus::Running;
        control.error = Some("earlier".to_owned());
        control.run = Some(RunState {
            job: JobId::from_bytes([7; 16]),
            start: 9,
            op: "test:tally".to_owned(),
            count: 2,
            state: Value::Nil,
            by: Some(JobId::from_bytes([6; 16])),
        });
        control.waiting = vec![JobId::from_bytes([8; 16]), JobId::from_bytes([9; 16])];
        control.attached = vec![JobId::from_bytes([6; 16])];
        control.failures = 3;
        control.inbox_bytes = 100;
        control.secrets = vec![vec![SecretStep::At("password".to_owned())]];
        control.deliveries = (1_700_000_000, 3);
        control.requests = [("a~1", "?")].into_iter().collect();
        control.wake = Some(WakePlan {
            due: Some(4),
            is_idle: true,
            last_due: 4,
            at: Some(5),
            timer: None,
            is_quiet: true,
        });
        control.authority = [("chosenBy", "model")].into_iter().collect::<Map>().into();
        check(&control);
        assert_eq!(control.tasks(), 3);
    }

    #[test]
    fn what_is_kept_about_an_inbox_can_be_read_back() {
        let mut control = Control::new(3);
        control.inbox_bytes = 100;
        control.deliveries = (1_700_000_000, 3);
        let mut read = Control::read(&control.to_value(), &NoCells).unwrap();
        assert_eq!((read.inbox_bytes, read.deliveries), (0, (0, 0)));
        read.read_inbox(&control.inbox_to_value(), &NoCells).unwrap();
        assert_eq!((read.inbox_bytes, read.deliveries), (100, (1_700_000_000, 3)));
        let incomplete = Value::from([Value::from(100)].into_iter().collect::<Vector>());
        assert_eq!(read.read_inbox(&incomplete, &NoCells), Err(AgentError::Malformed("inbox")));
    }

    #[test]
    fn controls_of_earlier_versions_contain_what_is_kept_about_the_inbox() {
        let members: [(&str, Value); 5] = [
            ("status", "SLEEPING".into()),
            ("created", 3.into()),
            ("inboxBytes", 100.into()),
            ("second", 1_700_000_000.into()),
            ("delivered", 3.into()),
        ];
        let value: Value = members.into_iter().collect::<Map>().into();
        let read = Control::read(&value, &NoCells).unwrap();
        assert_eq!((read.inbox_bytes, read.deliveries), (100, (1_700_000_000, 3)));
    }
}
