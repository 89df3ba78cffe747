//! The steps whose outputs a rerun claims to have reused.
//!
//! The first record of a rerun lists them in `reused`: step, sub-job of the earlier run, and that
//! sub-job's last record. A first record that also has `reusedOutputs` carries the outputs, in the
//! same order, and only such a chain must keep the rules that are checked here as it is read: venues
//! that wrote no outputs could run a step after all if the earlier run was deleted, and their chains
//! stay valid. The sub-jobs themselves are compared whenever the document contains them.

use std::collections::BTreeSet;

use catena_value::{NoCells, Value, Vector};

use super::{Code, Fault, Report};
use crate::chain::Job;
use crate::history::History;
use crate::ids::{JobId, RecordId};
use crate::note::Note;
use crate::record::Record;
use crate::state::Status;

/// A step whose output a rerun claims to have reused.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    step: u32,
    pub(super) job: JobId,
    record: RecordId,
    pub(super) is_remote: bool,
    /// Value of the output. `None` if the record does not carry outputs.
    output: Option<Value>,
}

/// Everything that a rerun claims to have reused.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    pub(super) all: Vec<Claim>,
    /// Steps that the chain must not start.
    closed: BTreeSet<u32>,
}

impl Claims {
    /// Parses the claims of a first record.
    pub(super) fn from_first_record(record: &Record) -> Result<Self, Fault> {
        let fault = |reason: &str| Fault::at(0, Code::MalformedRecord, reason);
        let items =
            |name: &str| -> Option<Vector> { record.fields().field(name)?.as_vector().cloned() };
        let outputs = items("reusedOutputs");
        let Some(list) = items("reused") else {
            return match outputs {
                None => Ok(Claims::default()),
                Some(_) => Err(fault("`reusedOutputs` needs `reused`")),
            };
        };
        if outputs.as_ref().is_some_and(|outputs| outputs.len() != list.len()) {
            return Err(fault("`reusedOutputs` must have one output for each entry of `reused`"));
        }
        let mut outputs_left = outputs.as_ref().map(|outputs| outputs.iter(&NoCells));
        let mut claims = Claims::default();
        for entry in list.iter(&NoCells).flatten() {
            let output = outputs_left.as_mut().and_then(Iterator::next).and_then(Result::ok);
            match Claim::from_value(&entry, output) {
                Some(claim) => claims.add(claim)?,
                None if outputs.is_some() => {
                    return Err(fault("an entry of `reused` must have `step`, `job` and `record`"));
                }
                // Such an entry names nothing that could be compared.
                None => {}
            }
        }
        Ok(claims)
    }

    fn add(&mut self, claim: Claim) -> Result<(), Fault> {
        if claim.output.is_some() && !self.closed.insert(claim.step) {
            let reason = format!("step {} is in `reused` twice", claim.step);
            return Err(Fault::at(0, Code::Commitment, reason));
        }
        self.all.push(claim);
        Ok(())
    }

    /// Checks that a record starts no step that was reused.
    pub(super) fn check_record(&self, at: u64, record: &Record) -> Result<(), Fault> {
        if self.closed.is_empty() {
            return Ok(());
        }
        let Some(Note::Step { started, .. }) = record.note() else { return Ok(()) };
        match started.iter().find(|start| self.closed.contains(&start.step)) {
            None => Ok(()),
            Some(start) => {
                let reason = format!("step {} starts although its output was reused", start.step);
                Err(Fault::at(at, Code::Commitment, reason))
            }
        }
    }
}

impl Claim {
    fn from_value(entry: &Value, output: Option<Value>) -> Option<Self> {
        let map = entry.as_map()?;
        Some(Claim {
            step: u32::try_from(map.field("step")?.as_i64()?).ok()?,
            job: map.field("job")?.as_str()?.parse().ok()?,
            record: map.field("record")?.as_str()?.parse().ok()?,
            is_remote: map.field("venue").is_some(),
            output,
        })
    }

    /// Checks that a sub-job of the earlier run, which is valid in itself, is the one whose output was
    /// reused.
    pub(super) fn check_subjob(&self, history: &History, report: &Report) -> Result<(), Fault> {
        let last = report.records - 1;
        let fault = |record, reason: String| Err(Fault::at(record, Code::Commitment, reason));
        if report.head != self.record {
            let committed = self.record;
            return fault(last, format!("the rerun committed to {committed} as the last record"));
        }
        if report.status != Status::Complete {
            let status = report.status;
            return fault(last, format!("the rerun reused its output, but it is {status}"));
        }
        let Some(job) = fold(history) else { return Ok(()) };
        let is_same_step = job.parent().is_some_and(|parent| parent.step() == Some(self.step));
        if !self.is_remote && !is_same_step {
            return fault(0, format!("`parent` must name step {} of the earlier run", self.step));
        }
        match (&self.output, job.field("output")) {
            (Some(claimed), Some(output)) if claimed.id() == output.id() => Ok(()),
            (Some(_), _) => fault(last, "the rerun reused another output than this".to_owned()),
            (None, _) => Ok(()),
        }
    }
}

/// The job of a history that was verified.
fn fold(history: &History) -> Option<Job> {
    let mut job: Option<Job> = None;
    for entry in history.entries() {
        let record = Record::from_map(entry.ok()?.record).ok()?;
        match &mut job {
            Some(job) => job.follow(&record).ok()?,
            None => job = Some(Job::from_first_record(&record).ok()?),
        }
    }
    job
}
