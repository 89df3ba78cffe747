//! The tree below a job, as far as it may still run on this venue.

use std::collections::HashSet;

use catena_job::{Job, JobId};

use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::{Current, depth_of, is_live};

/// Which sub-jobs are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descend {
    /// Those of jobs that have not ended.
    Open,
    /// Those of ended jobs too, which may have left sub-jobs running.
    All,
    /// Also below sub-jobs that have ended: they may have made detached calls.
    Detached,
}

/// The live jobs below a job, parents before their sub-jobs.
pub(crate) struct Tree {
    pub(crate) below: Vec<Current>,
    /// Those that have ended and may have left sub-jobs open. Read with [`Descend::All`] only.
    pub(super) ended: Vec<Current>,
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

/// Returns the open sub-jobs that cannot outlive the job.
pub(crate) fn attached_sub_jobs(job: &Job) -> Vec<JobId> {
    let detached = job.calls().iter().filter(|call| call.start.is_detached);
    let detached: HashSet<JobId> = detached.map(|call| call.start.job).collect();
    open_sub_jobs(job).into_iter().filter(|id| !detached.contains(id)).collect()
}

/// Returns all sub-jobs of a job that have started on this venue.
fn all_sub_jobs(job: &Job) -> Vec<JobId> {
    let steps = job.steps().values().filter(|step| step.start.venue.is_none());
    let calls = job.calls().iter().map(|call| call.start.job);
    steps.map(|step| step.start.job).chain(calls).collect()
}

/// Where a job is in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreePosition {
    /// The topmost job above it that is stored, or the job itself.
    pub(crate) root: JobId,
    /// The number of jobs that enclose it, including those on other venues that report their depth.
    pub(crate) depth: u32,
}

impl Execution {
    /// Returns where a job is in its tree.
    pub(crate) async fn position_of(&self, job: &Job) -> Result<TreePosition, StoreError> {
        let ancestors = self.ancestors_of(job).await?;
        let mut depth = 0_u32;
        // Records of earlier versions do not all contain their depth.
        for above in ancestors.iter().rev().map(|current| &*current.job).chain([job]) {
            let is_root = above.parent().is_none();
            depth = depth_of(above).max(if is_root { 0 } else { depth.saturating_add(1) });
        }
        let root = ancestors.last().map_or(job.id(), |root| root.job.id());
        Ok(TreePosition { root, depth })
    }

    /// Reads the live jobs below a job, up to `max`.
    pub(crate) async fn read_tree(
        &self,
        root: &Current,
        descend: Descend,
        max: usize,
    ) -> Result<Tree, StoreError> {
        let mut below: Vec<Current> = Vec::new();
        let mut ended: Vec<Current> = Vec::new();
        let sub_jobs = match descend {
            Descend::Open | Descend::All => open_sub_jobs,
            Descend::Detached => all_sub_jobs,
        };
        let mut pending = sub_jobs(&root.job);
        let mut seen: HashSet<JobId> = pending.iter().copied().collect();
        let mut at = 0;
        while let Some(id) = pending.get(at).copied() {
            at += 1;
            let Some(current) = self.jobs.current(id).await? else { continue };
            let is_live = is_live(&current.job);
            if is_live || descend != Descend::Open {
                pending.extend(sub_jobs(&current.job).into_iter().filter(|id| seen.insert(*id)));
            }
            if is_live {
                if below.len() == max {
                    return Ok(Tree { below, ended, is_complete: false });
                }
                below.push(current);
            } else if descend == Descend::All {
                ended.push(current);
            }
        }
        Ok(Tree { below, ended, is_complete: true })
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
