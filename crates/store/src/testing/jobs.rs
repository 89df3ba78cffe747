//! Jobs as the engine makes them, for suites, simulations and benchmarks.

use std::sync::Arc;

use catena_job::chain::{Change, NewJob};
use catena_job::state::Event;
use catena_job::{Job, JobId, Record, RecordId};
use catena_value::{Map, Value};

use crate::effects::{Effect, Hold};

/// A job ID from a number.
pub fn job_id(number: u64) -> JobId {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    JobId::new(1_769_683_717_706 + number, random)
}

/// The parameters of a new echo job.
pub fn opening(id: JobId, owner: &str, input: Value) -> NewJob {
    NewJob {
        id,
        venue: "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK".into(),
        op: "test:echo".into(),
        operation: Some("7a8b9c0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b".into()),
        input,
        caller: owner.into(),
        parent: None,
        extra: Vec::new(),
    }
}

/// A small document.
pub fn hello() -> Value {
    [("text", "hello")].into_iter().collect::<Map>().into()
}

/// A chain under construction: the job, and the records that are not stored yet.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The job after the records.
    pub job: Job,
    /// The head that is stored.
    pub after: Option<RecordId>,
    /// The records that are not stored yet.
    pub records: Vec<Record>,
}

impl Draft {
    /// A new job.
    pub fn open(opening: NewJob, now: i64) -> Self {
        let Ok((job, first)) = Job::create(opening, now, None) else {
            unreachable!("an opening of this module is always valid")
        };
        Draft { job, after: None, records: vec![first] }
    }

    /// Continues a stored job.
    pub fn from_job(job: impl Into<Arc<Job>>) -> Self {
        let job = Arc::unwrap_or_clone(job.into());
        let after = Some(job.head());
        Draft { job, after, records: Vec::new() }
    }

    /// Appends a change. Returns whether it is allowed.
    pub fn change(&mut self, event: Event) -> bool {
        let now = self.job.updated() + 1;
        match self.job.append(Change::new(event, now)) {
            Ok(record) => {
                self.records.push(record);
                true
            }
            Err(_) => false,
        }
    }

    /// The effect that stores it.
    pub fn effect(self) -> Effect {
        let Draft { job, after, records } = self;
        Effect::Append { job: Arc::new(job), after, records, hold: Hold::Unchanged }
    }
}

/// An echo job that begins and ends in one commit.
pub fn echo(id: JobId, owner: &str) -> Draft {
    let mut draft = Draft::open(opening(id, owner, hello()), 1_769_683_717_706);
    draft.change(Event::Started);
    draft.change(Event::Finished { output: hello() });
    draft
}
