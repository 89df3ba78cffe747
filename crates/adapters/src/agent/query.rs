//! Operations that only read agents.

use catena_engine::{Call, Failure, RootId, Roots};
use catena_job::agent::{AgentStatus, Control};
use catena_value::path::Path;
use catena_value::{Map, Value};

use super::stored::{Stored, agent_failure, agent_id, agent_not_found, controls, load_failure};
use crate::covia;
use crate::fields::{Fields, array, object};

/// Describes an agent.
pub(super) fn info(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let id = agent_id(&Fields::from_value(&call.input)?, "agentId")?;
    let Stored { agent, control, .. } = Stored::get(roots, &id)?;
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let config = agent.config.fully_loaded(roots.cells()).map_err(load_failure)?;
    let mut members: Vec<(&str, Value)> = vec![
        ("agentId", id.into()),
        ("status", agent.status.word().into()),
        ("config", config),
        ("timelineLength", number(agent.timeline.len())),
        ("inboxLength", number(agent.inbox.len())),
        ("tasks", number(control.tasks())),
        ("failures", number(control.failures)),
        ("created", control.created.into()),
        ("ts", agent.ts.into()),
    ];
    members.extend(control.run.map(|run| ("run", run.job.into())));
    members.extend(agent.error.map(|error| ("error", error.into())));
    Ok(members.into_iter().collect::<Map>().into())
}

/// Returns a part of the record.
pub(super) fn query(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let record = roots.get(&RootId::agent(&id))?.ok_or_else(|| agent_not_found(&id))?;
    let path = fields.optional_text("path")?.unwrap_or_default();
    let path = Path::parse(&path).map_err(covia::path_failure)?;
    let found = covia::find(record, &path, roots.cells())?;
    covia::read(found.as_ref(), covia::max_size(&fields)?, roots.cells())
}

/// Lists the agents of the caller.
pub(super) fn list(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let includes_terminated = fields.get("includeTerminated") == Some(&true.into());
    let mut agents = Vec::new();
    for entry in controls(roots)?.iter(roots.cells()) {
        let (id, control) = entry.map_err(load_failure)?;
        let control = Control::read(&control, roots.cells()).map_err(agent_failure)?;
        if control.status != AgentStatus::Terminated || includes_terminated {
            let id = id.to_text().map(std::borrow::Cow::into_owned).unwrap_or_default();
            agents.push((id, control));
        }
    }
    agents.sort_by(|(one, _), (other, _)| one.cmp(other));
    let entry = |(id, control): (String, Control)| {
        let tasks = i64::try_from(control.tasks()).unwrap_or(i64::MAX);
        let mut members: Vec<(&str, Value)> = vec![
            ("agentId", id.into()),
            ("status", control.status.word().into()),
            ("tasks", tasks.into()),
        ];
        members.extend(control.error.map(|error| ("error", error.into())));
        members.into_iter().collect::<Map>().into()
    };
    Ok(object([("agents", array(agents.into_iter().map(entry).collect()))]))
}
