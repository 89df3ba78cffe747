//! What can be read from a job: who owns it, who may see it, its input and its last message.

use std::sync::Arc;

use catena_job::{Job, Status};
use catena_value::Value;

use crate::error::{ControlError, JobError, StoreError};
use crate::jobs::messages::{CREDENTIALS, with_credentials};
use crate::jobs::{Current, DELEGATED, Jobs, secrets};
use crate::requests::{Caller, Restriction, Role};

/// The member of a first record with the number of jobs that enclose the job.
pub(crate) const DEPTH: &str = "depth";

/// Returns the number of jobs that enclose a job, as far as its record says.
pub(crate) fn depth_of(job: &Job) -> u32 {
    let depth = job.field(DEPTH).and_then(Value::as_i64);
    depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(0)
}

/// The member of a first record with the restriction of the job's caller.
pub(crate) const AUTHORITY: &str = "authority";

/// Returns the restriction of the caller of a job.
fn restriction_of(job: &Job) -> Option<Arc<Restriction>> {
    job.field(AUTHORITY).map(Restriction::from_value)
}

/// Returns true if a job has not ended.
pub(crate) fn is_live(job: &Job) -> bool {
    !job.status().is_terminal()
}

/// Returns true if a job with this status waits for a message.
pub(crate) fn waits_for_message(status: Status) -> bool {
    matches!(status, Status::InputRequired | Status::AuthRequired)
}

/// Returns true if a job is in a turn that a message started.
pub(crate) fn is_answering(job: &Job) -> bool {
    message_trigger(job).is_some()
}

/// Returns the trigger of a job's current turn, if it is a message.
pub(crate) fn message_trigger(job: &Job) -> Option<&Value> {
    let is_message = |trigger: &&Value| {
        trigger.as_map().is_some_and(|trigger| trigger.field("messageId").is_some())
    };
    job.field("trigger").filter(is_message)
}

/// Fails as if there were no job, unless the caller may see it.
pub(crate) fn check_visible(caller: &Caller, job: &Job) -> Result<(), JobError> {
    let owner = job.field("caller").and_then(Value::as_str).unwrap_or_default();
    if caller.may_touch(owner) { Ok(()) } else { Err(JobError::NotFound(job.id())) }
}

/// Fails as if there were no job, unless the caller may control it.
pub(crate) fn check_control(caller: &Caller, current: &Current) -> Result<(), ControlError> {
    if caller.may_touch(current.text("caller")) {
        Ok(())
    } else {
        Err(ControlError::NotFound(current.job.id()))
    }
}

impl Jobs {
    /// Returns the caller that a job belongs to.
    pub(crate) fn owner_of(&self, job: &Job) -> Caller {
        let did = job.field("caller").and_then(Value::as_str).unwrap_or_default();
        let is_public = did.strip_prefix(&*self.did) == Some(":public");
        let is_admin = self.admins.iter().any(|admin| admin == did);
        let role = if is_public {
            Role::Anonymous
        } else if is_admin {
            Role::Admin
        } else {
            Role::Known
        };
        Caller { restriction: restriction_of(job), ..Caller::new(did.into(), role) }
    }

    /// Returns the caller that a job belongs to, with the delegations of the request: its own, or
    /// those of the nearest job above it that has some.
    pub(crate) async fn caller_of(&self, job: &Job) -> Result<Caller, StoreError> {
        let mut caller = self.owner_of(job);
        let mut has_some = job.field(DELEGATED).is_some().then_some(job.id());
        let mut above = job.parent().map(|parent| parent.job);
        while let (None, Some(id)) = (has_some, above) {
            let Some(current) = self.current(id).await? else { break };
            has_some = current.job.field(DELEGATED).is_some().then_some(id);
            above = current.job.parent().map(|parent| parent.job);
        }
        if let Some(id) = has_some {
            let delegations = self.delegations_of(id).await?;
            // Without them, what it calls would run as another identity.
            caller.delegations = delegations
                .ok_or_else(|| StoreError::Damaged("its delegations cannot be decrypted".into()))?;
        }
        Ok(caller)
    }

    /// Returns a job's input, including the values of its secret fields.
    pub(crate) async fn input_of(&self, current: &Current) -> Result<Value, StoreError> {
        if secrets::has_secret_input(&current.job) {
            let input = self.find_secret(current.job.id(), secrets::COMPLETE_INPUT).await?;
            return input.ok_or_else(|| {
                StoreError::Damaged("the secret values of its input cannot be decrypted".into())
            });
        }
        Ok(current.member("input")?.unwrap_or_default())
    }

    /// Returns the message of the turn that was interrupted, including its credentials.
    pub(crate) async fn last_message(
        &self,
        current: &Current,
    ) -> Result<Option<Value>, StoreError> {
        let Some(public) = current.member("received")? else { return Ok(None) };
        let secret = match current.job.field("redacted") {
            Some(_) => self.find_secret(current.job.id(), CREDENTIALS).await?,
            None => None,
        };
        Ok(Some(with_credentials(public, secret)))
    }
}
