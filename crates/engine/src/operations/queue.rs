//! Queues of jobs that workers claim.
//!
//! A worker is a process of its own that claims jobs over the network. An operation that workers run
//! names a queue. The full name of a queue begins with its owner, and the jobs on it are kept in
//! *lanes*, one per caller and per value that a limit distinguishes, so that neither a caller with many
//! jobs nor a value at its limit delays the others.

use catena_job::Job;
use catena_value::{NoCells, Value, json};

use crate::limits::LANE_GROUP_BYTES_MAX;

/// The queue of jobs that this venue's own adapters run.
pub(crate) const QUEUE: &str = "venue";

/// The priority of jobs on it.
pub(crate) const PRIORITY: u8 = 0;

/// The member of a first record that names the queue of a job.
pub(crate) const QUEUE_NAME: &str = "queue";

/// The member of a first record with what `limit.by` and `rate.by` select in its input, as text.
pub(crate) const QUEUE_GROUP: &str = "queueGroup";

/// The member of a first record with the priority of a job on its queue.
pub(crate) const QUEUE_PRIORITY: &str = "priority";

/// Separates the parts of the name of a lane. No part contains it.
const SEPARATOR: char = '\n';

/// The head start of a job per level of its priority, in ms. A job with the highest priority overtakes
/// jobs with the lowest that have waited for less than four minutes, so none of them starves.
const HEAD_START_MS: i64 = 12_000;

/// The lowest priority. The highest is its negative.
const PRIORITY_LOWEST: i64 = -10;

/// How the jobs of an operation are queued for workers.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSpec {
    /// The name of the queue, without its owner.
    pub queue: String,
    /// The URL to which the venue itself sends the jobs. `None` if workers claim them.
    pub url: Option<String>,
    /// Who owns it.
    pub owner: QueueOwner,
    /// From -10 to 10: higher ones have a longer head start.
    pub priority: i64,
    /// How many jobs workers may run at a time.
    pub limit: Option<RunningLimit>,
    /// How many jobs workers may start per second.
    pub rate: Option<StartRate>,
    /// The names of the caller's secrets that a worker gets with a job.
    pub secrets: Vec<String>,
}

/// Who owns the queue of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueOwner {
    /// The owner of the name by which the operation is invoked, or else the caller.
    #[default]
    Reference,
    /// The venue. Its own workers, the executors, claim from it, and the adapter decides for each job
    /// which queue it waits on.
    Venue,
}

/// A bound of the number of jobs that workers run at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningLimit {
    /// The largest number.
    pub running: u32,
    /// The path to the input value that has a limit of its own. Empty for one limit per queue.
    pub by: Vec<Value>,
}

/// A bound of the number of jobs that workers start per second.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRate {
    /// Jobs per second.
    pub per_second: f64,
    /// The path to the input value that has a rate of its own. Empty for one rate per queue.
    pub by: Vec<Value>,
}

impl QueueSpec {
    /// Returns what distinguishes jobs with this input for the limits: a text, empty if nothing does.
    pub(crate) fn group(&self, input: &Value) -> String {
        let by =
            [self.limit.as_ref().map(|limit| &limit.by), self.rate.as_ref().map(|rate| &rate.by)];
        if by.iter().flatten().all(|path| path.is_empty()) {
            return String::new();
        }
        let texts = by.map(|path| path.map_or_else(String::new, |path| text_at(input, path)));
        texts.join(" ")
    }

    /// Returns the key under which running jobs with this input are counted.
    pub(crate) fn running_group(&self, input: &Value) -> String {
        self.limit.as_ref().map_or_else(String::new, |limit| text_at(input, &limit.by))
    }

    /// Returns the key under which starts with this input are counted.
    pub(crate) fn rate_group(&self, input: &Value) -> String {
        self.rate.as_ref().map_or_else(String::new, |rate| text_at(input, &rate.by))
    }
}

/// Returns the value at a path as JSON text, or its ID if that is long.
fn text_at(input: &Value, path: &[Value]) -> String {
    if path.is_empty() {
        return String::new();
    }
    let mut value = input.clone();
    for key in path {
        value = value_at(&value, key).unwrap_or_default();
    }
    let mut text = String::new();
    match json::write(&value, &NoCells, LANE_GROUP_BYTES_MAX, &mut text) {
        Ok(()) => text,
        Err(_) => value.id().to_string(),
    }
}

fn value_at(value: &Value, key: &Value) -> Option<Value> {
    if let Some(map) = value.as_map() {
        return map.get(key, &NoCells).ok()?;
    }
    let index = u64::try_from(key.as_i64()?).ok()?;
    value.as_vector()?.get(index, &NoCells).ok()?
}

/// Returns the full name of a queue.
pub(crate) fn full_name(owner: &str, queue: &str) -> String {
    format!("{owner}/{queue}")
}

/// How the names of queues begin whose jobs the venue sends to a URL. No worker can claim from them,
/// because the name of no other queue contains a colon.
const PUSH_PREFIX: &str = "push:";

/// Returns the name of the queue of jobs that are sent to a URL, without its owner.
pub fn push_queue(url: &str) -> String {
    let id = Value::from(url).id().to_string();
    let digits = id.trim_start_matches("0x");
    format!("{PUSH_PREFIX}{}", digits.get(..PUSH_DIGITS).unwrap_or(digits))
}

/// The hex digits of a URL's ID in the name of its queue: enough that no two URLs share one.
const PUSH_DIGITS: usize = 32;

/// Returns true if the venue sends the jobs of the queue with this full name to a URL.
pub(crate) fn is_push_queue(queue: &str) -> bool {
    queue.rsplit_once('/').is_some_and(|(_, name)| name.starts_with(PUSH_PREFIX))
}

/// Returns the owner of the queue on which a job waits. `None` if no worker runs it.
pub(crate) fn queue_owner(job: &Job) -> Option<&str> {
    Some(job.field(QUEUE_NAME)?.as_str()?.rsplit_once('/')?.0)
}

/// Returns true if the venue sends a job to a URL.
pub(crate) fn is_pushed(job: &Job) -> bool {
    job.field(QUEUE_NAME).and_then(Value::as_str).is_some_and(is_push_queue)
}

/// Returns the owner of the queue to which a reference sends a job: the owner of the name, or the
/// caller if the reference is not another user's name.
pub(crate) fn owner_of_reference<'a>(reference: &'a str, caller: &'a str) -> &'a str {
    match reference.split_once("/o/") {
        Some((owner, _)) if owner.starts_with("did:") => owner,
        _ => caller,
    }
}

/// The name of the store's queue on which a job waits. `None` if no worker runs it.
pub(crate) fn lane_of(job: &Job) -> Option<String> {
    let text = |name: &str| job.field(name).and_then(Value::as_str).unwrap_or_default();
    let queue = job.field(QUEUE_NAME)?.as_str()?;
    Some(format!("{queue}{SEPARATOR}{}{SEPARATOR}{}", text("caller"), text(QUEUE_GROUP)))
}

/// Splits the name of a lane into the full name of its queue and its caller. `None` if it is not one.
pub(crate) fn split_lane(lane: &str) -> Option<(&str, &str)> {
    let (queue, rest) = lane.split_once(SEPARATOR)?;
    Some((queue, rest.split_once(SEPARATOR)?.0))
}

/// Returns the head start of a job on its queue, in ms.
pub(crate) fn head_start(job: &Job) -> i64 {
    match job.field(QUEUE_NAME) {
        None => 0,
        Some(_) => {
            let priority = job.field(QUEUE_PRIORITY).and_then(Value::as_i64).unwrap_or(0);
            let levels = priority.clamp(PRIORITY_LOWEST, -PRIORITY_LOWEST) - PRIORITY_LOWEST;
            levels * HEAD_START_MS
        }
    }
}

/// Returns true if a text can name a queue, a worker or an operation.
pub fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.len() <= crate::limits::NAME_BYTES_MAX && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_group_is_what_the_paths_select() {
        let spec = QueueSpec {
            queue: "q".into(),
            url: None,
            owner: QueueOwner::Reference,
            priority: 0,
            limit: Some(RunningLimit { running: 1, by: vec!["tenant".into(), "id".into()] }),
            rate: None,
            secrets: Vec::new(),
        };
        assert_eq!(spec.group(&value(r#"{"tenant": {"id": 7}}"#)), "7 ");
        assert_eq!(spec.running_group(&value(r#"{"tenant": {"id": "a"}}"#)), "\"a\"");
        assert_eq!(spec.running_group(&value("{}")), "null");
        let long = format!(r#"{{"tenant": {{"id": "{}"}}}}"#, "x".repeat(1_000));
        assert_eq!(spec.running_group(&value(&long)).len(), 66);
        let single = QueueSpec { limit: None, ..spec };
        assert_eq!(single.group(&value("{}")), "");
    }

    #[test]
    fn a_queue_belongs_to_the_owner_of_the_name() {
        assert_eq!(owner_of_reference("did:key:z1/o/mail", "did:key:z2"), "did:key:z1");
        assert_eq!(owner_of_reference("o/mail", "did:key:z2"), "did:key:z2");
        assert_eq!(owner_of_reference("0xabc", "did:key:z2"), "did:key:z2");
    }

    #[test]
    fn no_worker_can_claim_from_the_queue_of_a_url() {
        let queue = push_queue("https://x.example/a");
        assert_ne!(queue, push_queue("https://x.example/b"));
        assert!(!is_name(&queue), "{queue}");
        assert!(is_push_queue(&full_name("did:key:z1", &queue)));
        assert!(!is_push_queue("did:key:z1/push"));
    }

    #[test]
    fn names_are_short_and_plain() {
        assert!(is_name("mail-2.fast_x"));
        for wrong in ["", "a b", "a/b", "a\nb", "ä", &"x".repeat(129)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
