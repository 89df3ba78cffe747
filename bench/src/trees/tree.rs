//! Trees of jobs: their definitions, their jobs, and whether these agree.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::SystemTime;

use catena_job::state::Status;
use catena_value::Value;

use crate::Fault;
use crate::json::{items, member, read, text};
use crate::web::{Client, post};

/// What the leaves of a tree do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// They have effects that must not be repeated: a kill fails the tree.
    Effects,
    /// They can be repeated: the tree survives every kill.
    Repeatable,
}

/// A tree that was acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: String,
    pub(super) steps: usize,
    /// The jobs of the tree that were seen.
    pub(super) known: HashSet<String>,
    /// A client asked for its deletion, which may or may not have happened.
    pub(super) is_deleted: bool,
    pub(super) has_ended: bool,
}

impl Tree {
    pub(super) fn new(root: &str, steps: usize) -> Tree {
        let known = [root.to_owned()].into();
        Tree { root: root.to_owned(), steps, known, is_deleted: false, has_ended: false }
    }
}

/// A job as it was read.
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) status: Status,
    /// The job above it, and its status a moment earlier.
    pub(super) parent: Option<(String, Status)>,
}

/// The definition of a leaf. `place` distinguishes the leaves of one tree.
fn leaf(leaves: Leaves, at: usize, place: &str, effects: SocketAddr) -> String {
    let ms = 40 + at * 37 % 400;
    match (at % 7, leaves) {
        (0 | 3, Leaves::Effects) => format!(
            r#"{{"op":"http:post","input":{{"url":["concat",["const","http://{effects}/effect/{ms}/"],["input","run"],["const","/{place}/{at}"]],"body":["const","x"]}}}}"#
        ),
        // A job that makes a call and is not repeated when it is lost.
        (1, Leaves::Effects) => format!(
            r#"{{"op":"grid:run","input":{{"operation":["const","test:delay"],"input":["const",{{"delay":{ms}}}]}}}}"#
        ),
        // A job that makes a call and is repeated.
        (1, _) => format!(
            r#"{{"op":"test:delay","input":{{"delay":["const",{}],"operation":["const","test:delay"],"input":["const",{{"delay":{ms}}}]}}}}"#,
            ms / 4
        ),
        // A few leaves ask for input; in a large tree the others run meanwhile.
        (2, _) if at < 20 => r#"{"op":"test:chat","input":{}}"#.to_owned(),
        // This one starts when the leaf before it has ended.
        (5, _) => format!(
            r#"{{"op":"test:delay","input":{{"delay":["const",{ms}],"input":[{}]}}}}"#,
            at - 1
        ),
        _ => format!(r#"{{"op":"test:delay","input":{{"delay":["const",{ms}]}}}}"#),
    }
}

/// Registers a tree of this many steps and returns the ID of its definition. From three steps on, half
/// of them are in a nested orchestration, which is the last step.
pub(super) fn define(
    client: &mut Client,
    address: SocketAddr,
    steps: usize,
    leaves: Leaves,
    effects: SocketAddr,
) -> Result<String, Fault> {
    let list = |count: usize, place: &str| -> Vec<String> {
        (0..count).map(|at| leaf(leaves, at, place, effects)).collect()
    };
    if steps < 3 {
        return register(client, address, &list(steps, "outer"));
    }
    let inner = (steps - 1) / 2;
    let nested = register(client, address, &list(inner, "inner"))?;
    let mut outer = list(steps - 1 - inner, "outer");
    outer.push(format!(r#"{{"op":"{nested}","input":{{"run":["input","run"]}}}}"#));
    register(client, address, &outer)
}

fn register(client: &mut Client, address: SocketAddr, steps: &[String]) -> Result<String, Fault> {
    let steps = steps.join(",");
    let text = format!(
        r#"{{"operation":{{"adapter":"orchestrator","timeoutMs":86400000,"steps":[{steps}],"result":["const","done"]}}}}"#
    );
    match client.ask(&post(address, "/api/v1/assets", &text))? {
        (201, body) => Ok(String::from_utf8(body)?.trim().trim_matches('"').to_owned()),
        (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

/// Reads a job. `None` if it does not exist.
pub(super) fn job(client: &mut Client, id: &str) -> Result<Option<Value>, Fault> {
    match client.get(&format!("/api/v1/jobs/{id}"))? {
        (200, body) => Ok(Some(read(&body)?)),
        (404 | 410, _) => Ok(None),
        (status, body) => Err(format!("{id}: {status}, {}", String::from_utf8_lossy(&body)).into()),
    }
}

pub(super) fn status_of(job: &Value) -> Result<Status, Fault> {
    let status = text(job, "status");
    Status::parse(&status).ok_or_else(|| format!("{status:?} is no status").into())
}

/// The sub-jobs of a job: its steps, and the calls in its chain.
pub(super) fn sub_jobs(client: &mut Client, job: &Value) -> Result<Vec<String>, Fault> {
    let steps = items(job, "steps");
    let ids = steps.iter().map(|step| text(step, "id")).filter(|id| !id.is_empty());
    let mut found: Vec<String> = ids.collect();
    if ["test:delay", "grid:run"].contains(&text(job, "op").as_str()) {
        for record in records(client, &text(job, "id"))? {
            let note = member(&record, "note").filter(|note| text(note, "kind") == "call");
            let started = note.map(|note| items(&note, "started")).unwrap_or_default();
            found.extend(started.iter().map(|call| text(call, "job")));
        }
    }
    Ok(found)
}

/// The records of a job, oldest first; none if it does not exist.
fn records(client: &mut Client, id: &str) -> Result<Vec<Value>, Fault> {
    match client.get(&format!("/api/v1/jobs/{id}/history"))? {
        (200, body) => {
            let entries = items(&read(&body)?, "records");
            Ok(entries.iter().filter_map(|entry| member(entry, "record")).collect())
        }
        (404 | 410, _) => Ok(Vec::new()),
        (status, _) => Err(format!("the history of {id}: {status}").into()),
    }
}

/// Reads all jobs of a tree, parents before their sub-jobs. `None` if the tree does not exist.
pub(super) fn walk(client: &mut Client, root: &str) -> Result<Option<Vec<Seen>>, Fault> {
    let mut open = vec![(root.to_owned(), None)];
    let mut seen = Vec::new();
    while let Some((id, parent)) = open.pop() {
        let Some(found) = job(client, &id)? else {
            if seen.is_empty() || job(client, root)?.is_none() {
                return Ok(None);
            }
            return Err(format!("{id} of the tree {root} does not exist").into());
        };
        let status = status_of(&found)?;
        for sub_job in sub_jobs(client, &found)? {
            open.push((sub_job, Some((id.clone(), status))));
        }
        seen.push(Seen { id, status, parent });
    }
    Ok(Some(seen))
}

/// A parent and a sub-job that do not agree.
pub(super) struct Disagreement {
    pub(super) parent: String,
    pub(super) text: String,
}

/// The first pair of parent and sub-job that does not agree.
pub(super) fn disagreement(
    client: &mut Client,
    seen: &[Seen],
) -> Result<Option<Disagreement>, Fault> {
    for sub_job in seen {
        let Some((parent, above)) = &sub_job.parent else { continue };
        let status = sub_job.status;
        let agrees = match above {
            Status::Paused => !matches!(status, Status::Started | Status::Pending),
            above if above.is_terminal() => status.is_terminal(),
            _ if status == Status::Paused => !check_paused_by_parent(client, &sub_job.id, parent)?,
            _ => true,
        };
        if !agrees {
            let id = &sub_job.id;
            let text = format!("{parent} is {above}, and {id} below it is {status}");
            return Ok(Some(Disagreement { parent: parent.clone(), text }));
        }
    }
    Ok(None)
}

/// How old the last change of status of a job is, and how many of its sub-jobs followed it.
pub(super) fn followed(client: &mut Client, parent: &str) -> Result<String, Fault> {
    let (_, body) = client.get(&format!("/api/v1/jobs/{parent}/history"))?;
    let entries = items(&read(&body)?, "records");
    let record = |entry: &Value| member(entry, "record").unwrap_or_default();
    let last = entries.iter().rev().find(|entry| member(&record(entry), "note").is_none());
    let Some(last) = last else { return Ok("its history is empty".to_owned()) };
    let head = text(last, "id");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let updated = member(&record(last), "updated").and_then(|updated| updated.as_i64());
    let age = i64::try_from(now)? - updated.unwrap_or_default();
    let found = job(client, parent)?.unwrap_or_default();
    let below = sub_jobs(client, &found)?;
    let mut followers = 0;
    for sub_job in &below {
        let records = records(client, sub_job)?;
        let mut triggers = records.iter().filter_map(|record| member(record, "trigger"));
        followers += u32::from(triggers.any(|trigger| text(&trigger, "control") == head));
    }
    Ok(format!("{followers} of {} followed its record of {age} ms ago", below.len()))
}

/// Whether a sub-job is paused because of a record of the job above it, or of one further above, and
/// that job still is not PAUSED.
fn check_paused_by_parent(client: &mut Client, id: &str, parent: &str) -> Result<bool, Fault> {
    let above = job(client, parent)?.map(|job| status_of(&job)).transpose()?;
    let records = records(client, id)?;
    let last = records.iter().rev().find(|record| member(record, "note").is_none());
    let is_paused = last.is_some_and(|record| text(record, "status") == "PAUSED");
    let trigger = last.and_then(|record| member(record, "trigger"));
    let is_control = trigger.is_some_and(|trigger| member(&trigger, "control").is_some());
    Ok(is_paused && is_control && above != Some(Status::Paused))
}
