//! Reading and writing an agent: its record and its control are always written together.

use catena_engine::{Failure, RootId, Roots};
use catena_job::JobId;
use catena_job::agent::{Agent, AgentError, AgentPolicy, AgentStatus, Control, is_agent_id};
use catena_value::{Map, Value};

use crate::fields::{Fields, invalid_input};

/// Returns the ID of an agent in a member of the input.
pub(super) fn agent_id(fields: &Fields<'_>, name: &str) -> Result<String, Failure> {
    let id = fields.text(name)?;
    if is_agent_id(&id) {
        return Ok(id);
    }
    let text = format!("`{name}` must have 1 to 128 characters, each one of A-Z a-z 0-9 . _ -");
    Err(invalid_input(text))
}

/// The code of the failure of a request that names an agent that the caller does not have.
pub(super) const AGENT_NOT_FOUND: &str = "agent_not_found";

/// The failure of a request that names an agent that the caller does not have.
pub(super) fn agent_not_found(id: &str) -> Failure {
    Failure::new(AGENT_NOT_FOUND, format!("there is no agent `{id}`"))
}

/// The failure of a request to an agent that has ended.
pub(super) fn agent_terminated(id: &str) -> Failure {
    Failure::new("agent_terminated", format!("agent `{id}` is TERMINATED"))
}

/// An agent as it is stored.
pub(super) struct Stored {
    pub(super) id: String,
    pub(super) agent: Agent,
    pub(super) control: Control,
    /// The attached job that learns of a change without a notice, because it makes the change or waits for it.
    pub(super) informed: Option<JobId>,
    /// The control as it is stored.
    stored_control: Option<Value>,
    /// What is kept about the inbox, as it is stored.
    stored_inbox: Option<Value>,
}

/// Returns the roots of an agent, which [`Stored`] reads and writes.
pub(super) fn agent_roots(id: &str) -> Vec<RootId> {
    vec![RootId::agent_controls(), RootId::agent(id), RootId::agent_inbox(id)]
}

pub(super) fn agent_failure(error: AgentError) -> Failure {
    Failure::new("internal", error.to_string())
}

pub(super) fn load_failure(error: catena_value::LoadError) -> Failure {
    Failure::new("internal", format!("stored data cannot be read: {error}"))
}

/// Returns the controls of all agents of a user.
pub(super) fn controls(roots: &Roots) -> Result<Map, Failure> {
    match roots.get(&RootId::agent_controls())? {
        Some(value) => {
            let value = value.loaded(roots.cells()).map_err(load_failure)?;
            Ok(value.as_map().cloned().unwrap_or_default())
        }
        None => Ok(Map::new()),
    }
}

impl Stored {
    /// Creates an agent that is not stored yet.
    pub(super) fn new(id: String, agent: Agent, control: Control) -> Stored {
        Stored { id, agent, control, informed: None, stored_control: None, stored_inbox: None }
    }

    /// Reads an agent. `None` if there is none.
    pub(super) fn find(roots: &Roots, id: &str) -> Result<Option<Stored>, Failure> {
        let Some(record) = roots.get(&RootId::agent(id))? else { return Ok(None) };
        let agent = Agent::read(record, roots.cells()).map_err(agent_failure)?;
        let stored_control = controls(roots)?.get(&id.into(), roots.cells());
        let stored_control = stored_control.map_err(load_failure)?;
        let mut control = match &stored_control {
            Some(control) => Control::read(control, roots.cells()).map_err(agent_failure)?,
            None => Control::new(agent.ts),
        };
        let stored_inbox = roots.get(&RootId::agent_inbox(id))?.cloned();
        if let Some(inbox) = &stored_inbox {
            control.read_inbox(inbox, roots.cells()).map_err(agent_failure)?;
        }
        let informed = control.run.as_ref().and_then(|run| run.by);
        let id = id.to_owned();
        Ok(Some(Stored { id, agent, control, informed, stored_control, stored_inbox }))
    }

    /// Reads an agent. Fails if there is none.
    pub(super) fn get(roots: &Roots, id: &str) -> Result<Stored, Failure> {
        Stored::find(roots, id)?.ok_or_else(|| agent_not_found(id))
    }

    /// Reads an agent. Fails if there is none or if it has ended.
    pub(super) fn live(roots: &Roots, id: &str) -> Result<Stored, Failure> {
        let stored = Stored::get(roots, id)?;
        if stored.agent.status == AgentStatus::Terminated {
            return Err(agent_terminated(id));
        }
        Ok(stored)
    }

    /// Writes the agent. Returns its status.
    pub(super) fn save(
        mut self,
        policy: &AgentPolicy,
        roots: &mut Roots,
    ) -> Result<Value, Failure> {
        self.agent = self.agent.written_at(roots.now());
        super::wake::plan(&mut self, policy, roots)?;
        if self.agent.status == AgentStatus::Terminated {
            super::ask::close(&mut self, roots)?;
        }
        match (self.control.status, self.agent.status) {
            (before, now) if before == now => {}
            (_, AgentStatus::Suspended | AgentStatus::Terminated) => {
                self.notify_attached("stopped", roots);
            }
            (AgentStatus::Suspended, _) => self.notify_attached("resumed", roots),
            _ => {}
        }
        self.control.status = self.agent.status;
        self.control.error.clone_from(&self.agent.error);
        let status = self.agent.status.word().into();
        self.save_control(roots)?;
        roots.set(&RootId::agent(&self.id), Some(self.agent.to_value()))?;
        Ok(status)
    }

    /// Writes what has changed besides the record. Most messages do not change the control, and the controls
    /// of all agents are one large value.
    fn save_control(&self, roots: &mut Roots) -> Result<(), Failure> {
        let control = self.control.to_value();
        if self.stored_control.as_ref() != Some(&control) {
            let changed = controls(roots)?.insert(self.id.as_str().into(), control, roots.cells());
            let changed = changed.map_err(load_failure)?;
            roots.set(&RootId::agent_controls(), Some(changed.into()))?;
        }
        let inbox = self.control.inbox_to_value();
        if self.stored_inbox.as_ref() != Some(&inbox) {
            roots.set(&RootId::agent_inbox(&self.id), Some(inbox))?;
        }
        Ok(())
    }

    /// Writes when the agent is woken, and nothing else. Returns its status.
    pub(super) fn save_unchanged(
        mut self,
        policy: &AgentPolicy,
        roots: &mut Roots,
    ) -> Result<Value, Failure> {
        super::wake::plan(&mut self, policy, roots)?;
        self.save_control(roots)?;
        Ok(self.agent.status.word().into())
    }

    /// Tells the jobs that are attached to the agent that they should look at it.
    fn notify_attached(&self, what: &str, roots: &mut Roots) {
        let others = self.control.attached.iter().filter(|job| Some(**job) != self.informed);
        for job in others {
            // Each write of the record has a time of its own.
            let notice = [(super::attach::NOTICE, Value::from(self.agent.status.word()))];
            roots.notify(
                *job,
                format!("agent-{what}-{}", self.agent.ts),
                notice.into_iter().collect(),
            );
        }
    }

    /// Removes the agent.
    pub(super) fn remove(self, roots: &mut Roots) -> Result<(), Failure> {
        if self.agent.status != AgentStatus::Terminated {
            self.notify_attached("removed", roots);
        }
        let controls = controls(roots)?;
        let changed = controls.remove(&self.id.as_str().into(), roots.cells());
        let changed = changed.map_err(load_failure)?;
        roots.set(&RootId::agent_controls(), Some(changed.into()))?;
        if self.control.wake.is_some() {
            roots.schedule(&self.id, None);
        }
        roots.set(&RootId::agent_inbox(&self.id), None)?;
        roots.set(&RootId::agent(&self.id), None)
    }

    /// Offers the next run that waits, if the agent is free.
    pub(super) fn offer_next(&self, roots: &mut Roots) {
        if let (None, Some(next)) = (&self.control.run, self.control.waiting.first()) {
            roots.offer(*next);
        }
    }

    /// Offers all runs that wait, each of which ends at once because the agent cannot run.
    pub(super) fn offer_all(&mut self, roots: &mut Roots) {
        self.control.waiting.drain(..).for_each(|job| roots.offer(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_id_is_checked() {
        let check = |text: &str| {
            let input = value(text);
            agent_id(&Fields::from_value(&input).unwrap(), "agentId").map_err(|error| error.code)
        };
        assert_eq!(check(r#"{"agentId":"alice"}"#), Ok("alice".to_owned()));
        for refused in [r#"{"agentId":"a/b"}"#, r#"{"agentId":""}"#, r#"{"agentId":1}"#, "{}"] {
            assert_eq!(check(refused), Err("invalid_input".to_owned()), "{refused}");
        }
    }
}
