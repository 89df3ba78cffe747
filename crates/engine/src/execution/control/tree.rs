//! The tree below a job, as far as it may still run on this venue.

use std::collections::HashSet;

use catena_job::{Job, JobId};

use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::{Current, is_live};

/// Which sub-jobs are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descend {
    /// Those of jobs that have not ended.
    Open,
    /// Those of ended jobs too, which may have left sub-jobs running.
    All,
}

/// The live jobs below a job, parents before their sub-jobs.
pub(crate) struct Tree {
    pub(crate) below: Vec<Current>,
    /// False if there are more than were asked for.
    pub(crate) is_complete: bool,
}

/// Returns the sub-jobs of a job that have started on this venue and, by its chain, not ended: steps
/// and calls.
pub(crate) fn open_sub_jobs(job: &Job) -> Vec<JobId> {
    let steps = job.steps().values();
    let steps = steps.filter(|step| step.end.is_none() && step.start.venue.is_none());
    let calls = job.calls().iter().filter(|call| call.end.is_none());
    steps.map(|step| step.start.job).chain(calls.map(|call| call.start.job)).collect()
}

impl Execution {
    /// Reads the live jobs below a job, up to `max`.
    pub(crate) async fn read_tree(
        &self,
        root: &Current,
        descend: Descend,
        max: usize,
    ) -> Result<Tree, StoreError> {
        let mut below: Vec<Current> = Vec::new();
        let mut pending = open_sub_jobs(&root.job);
        let mut seen: HashSet<JobId> = pending.iter().copied().collect();
        let mut at = 0;
        while let Some(id) = pending.get(at).copied() {
            at += 1;
            let Some(current) = self.jobs.current(id).await? else { continue };
            let is_live = is_live(&current.job);
            if is_live || descend == Descend::All {
                pending
                    .extend(open_sub_jobs(&current.job).into_iter().filter(|id| seen.insert(*id)));
            }
            if is_live {
                if below.len() == max {
                    return Ok(Tree { below, is_complete: false });
                }
                below.push(current);
            }
        }
        Ok(Tree { below, is_complete: true })
    }

    /// Returns the jobs above a job, nearest first.
    pub(crate) async fn ancestors_of(&self, job: &Job) -> Result<Vec<Current>, StoreError> {
        let mut ancestors: Vec<Current> = Vec::new();
        let mut parent = job.parent().map(|parent| parent.job);
        while let Some(id) = parent {
            let Some(current) = self.jobs.current(id).await? else { break };
            parent = current.job.parent().map(|parent| parent.job);
            ancestors.push(current);
        }
        Ok(ancestors)
    }
}
