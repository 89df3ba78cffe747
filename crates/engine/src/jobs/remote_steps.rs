//! What is stored about steps on other venues, outside the chain of their parent job.
//!
//! The chain commits to the start and the end of such a job by the IDs of its records. Its output
//! and its last known state are stored here, in the commit that records the end, so that the other
//! venue need not be asked again. They are deleted with the parent. A chain does not grow after its
//! end: what becomes known of a step later is stored here only.
//!
//! Two more facts are stored: whether this venue paused the job, because only then may it resume
//! it; and, if the parent ends first, that the job is still to be cancelled, so that a crash does
//! not leave it running.

// The names of the stored roots (`SNAPSHOTS`, `PENDING_CANCELS` and `PAUSED_SUFFIX` below) are part of
// the data format and must not change.

use catena_job::chain::StepState;
use catena_job::{Job, JobId, RecordId, Status};
use catena_store::{Effect, Effects, RootKey, RootSpace};
use catena_value::{CellSource, Map, NoCells, Value, ValueId};

use crate::error::StoreError;
use crate::jobs::{CommitFailure, Jobs};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::federation::{RemoteJob, RemoteStart, Requester};

/// The owner of the roots with snapshots.
const SNAPSHOTS: &str = "elsewhere";

/// The suffix of the names of roots that say that this venue paused a job.
const PAUSED_SUFFIX: &str = "-held";

/// The owner of the roots that say that a job is still to be cancelled.
const PENDING_CANCELS: &str = "unwanted";

/// Roots that are read at a time.
const PAGE: usize = 256;

/// The last known state of a job on another venue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteSnapshot {
    /// The job's ID there.
    pub(crate) job: JobId,
    /// The venue's DID.
    pub(crate) venue: String,
    /// The venue as the definition names it: a URL or a did:web.
    pub(crate) location: String,
    /// Who requested it.
    pub(crate) requester: Requester,
    /// Its state.
    pub(crate) state: RemoteJob,
    /// When the state was observed, as Unix time in ms.
    pub(crate) at: i64,
}

fn snapshot_key(parent: JobId, step: u32) -> RootKey {
    let name = format!("{}-{step}", parent.to_hex());
    RootKey { space: RootSpace::Venue, owner: SNAPSHOTS.to_owned(), name }
}

fn paused_key(parent: JobId, step: u32) -> RootKey {
    let RootKey { space, owner, name } = snapshot_key(parent, step);
    RootKey { space, owner, name: format!("{name}{PAUSED_SUFFIX}") }
}

impl RemoteSnapshot {
    /// Creates the snapshot of a job that has just started.
    pub(crate) fn from_start(start: &RemoteStart, location: &str, at: i64) -> RemoteSnapshot {
        RemoteSnapshot {
            job: start.job,
            venue: start.venue.clone(),
            location: location.to_owned(),
            requester: start.requester,
            state: start.state.clone(),
            at,
        }
    }

    /// Creates a snapshot from what the parent's chain says.
    pub(crate) fn from_chain(step: &StepState, location: &str) -> RemoteSnapshot {
        let start = &step.start;
        RemoteSnapshot {
            job: start.job,
            venue: start.venue.clone().unwrap_or_default(),
            location: location.to_owned(),
            requester: Requester::Anonymous,
            state: RemoteJob {
                status: Status::Started,
                record: start.record,
                output: None,
                error: None,
                message: None,
            },
            at: step.started_at,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        let RemoteJob { status, record, output, error, message } = &self.state;
        let mut members = vec![
            ("job", Value::from(self.job)),
            ("venue", self.venue.as_str().into()),
            ("place", self.location.as_str().into()),
            ("at", self.at.into()),
            ("status", (*status).into()),
            ("record", (*record).into()),
        ];
        if self.requester == Requester::Venue {
            members.push(("requester", "venue".into()));
        }
        members.extend(output.clone().map(|output| ("output", output)));
        members.extend(error.as_deref().map(|error| ("error", error.into())));
        members.extend(message.as_deref().map(|message| ("message", message.into())));
        members.into_iter().collect::<Map>().into()
    }

    /// Reads a stored snapshot, which must be completely in memory.
    fn from_value(value: &Value) -> Option<RemoteSnapshot> {
        let field = |name: &str| value.as_map()?.get(&name.into(), &NoCells).ok()?;
        let text = |name: &str| field(name).and_then(|text| Some(text.to_text()?.into_owned()));
        Some(RemoteSnapshot {
            job: text("job")?.parse().ok()?,
            venue: text("venue")?,
            location: text("place")?,
            requester: if field("requester").is_some() {
                Requester::Venue
            } else {
                Requester::Anonymous
            },
            state: RemoteJob {
                status: Status::parse(&text("status")?)?,
                record: text("record")?.parse().ok()?,
                output: field("output"),
                error: text("error"),
                message: text("message"),
            },
            at: field("at")?.as_i64()?,
        })
    }

    /// Returns the effect that stores it in place of the `expected` value.
    pub(crate) fn store(&self, parent: JobId, step: u32, expected: Option<ValueId>) -> Effect {
        Effect::SetRoot { key: snapshot_key(parent, step), expected, value: Some(self.to_value()) }
    }
}

/// How far this venue has paused a job on another venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PausedHere {
    /// The pause was requested; whether it took effect is not known.
    Requested,
    /// The pause took effect with this record.
    At(RecordId),
}

impl PausedHere {
    fn to_value(self) -> Value {
        match self {
            PausedHere::Requested => Value::Nil,
            PausedHere::At(record) => record.into(),
        }
    }

    fn from_value(value: &Value) -> PausedHere {
        let record = value.to_text().and_then(|text| text.parse().ok());
        record.map_or(PausedHere::Requested, PausedHere::At)
    }
}

/// Returns true if steps on other venues have started and, by the chain, not ended.
pub(crate) fn has_open_remote_steps(job: &Job) -> bool {
    open_remote_steps(job).next().is_some()
}

fn open_remote_steps(job: &Job) -> impl Iterator<Item = (u32, &StepState)> {
    let is_open = |state: &StepState| state.end.is_none() && state.start.venue.is_some();
    job.steps().iter().filter(move |(_, state)| is_open(state)).map(|(step, state)| (*step, state))
}

fn pending_cancel_key(parent: JobId, step: u32) -> RootKey {
    RootKey { owner: PENDING_CANCELS.to_owned(), ..snapshot_key(parent, step) }
}

/// Parses the name of a root into the parent's ID and the step.
fn parse_name(name: &str) -> Option<(JobId, u32)> {
    let (parent, step) = name.split_once('-')?;
    Some((parent.parse().ok()?, step.parse().ok()?))
}

impl Jobs {
    /// Returns the effects that mark the open remote steps of a job for cancellation. A step that
    /// cannot be read does not prevent the job from ending.
    pub(super) async fn pending_cancels(&self, job: &Job) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (step, _) in open_remote_steps(job) {
            match self.remote_snapshot(job.id(), step).await {
                Ok(Some((known, _))) if !known.state.status.is_terminal() => {
                    let key = pending_cancel_key(job.id(), step);
                    let value = Some(known.to_value());
                    effects.push(Effect::SetRoot { key, expected: None, value });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(job = %job.id(), step, %error, "cannot mark a remote step for cancellation");
                }
            }
        }
        effects
    }

    /// Returns all remote steps that are still to be cancelled: parent, step and snapshot.
    pub(crate) async fn all_pending_cancels(
        &self,
    ) -> Result<Vec<(JobId, u32, RemoteSnapshot)>, StoreError> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.roots(RootSpace::Venue, PENDING_CANCELS, after.as_deref(), PAGE);
            let page = page.await?;
            for (parent, step) in page.iter().filter_map(|name| parse_name(name)) {
                let known = self.read_snapshot(&pending_cancel_key(parent, step)).await?;
                all.extend(known.map(|(known, _)| (parent, step, known)));
            }
            match page.into_iter().next_back() {
                Some(last) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// Removes the mark of a remote step that was cancelled or that cannot be.
    pub(crate) async fn clear_pending_cancel(&self, parent: JobId, step: u32) {
        let key = pending_cancel_key(parent, step);
        let Ok(Some(root)) = self.store.root(&key).await else { return };
        let effect = Effect::SetRoot { key, expected: Some(root.id), value: None };
        if let Err(error) = self.store.commit(Effects::one(effect)).await {
            tracing::warn!(job = %parent, step, %error, "a remote step will be cancelled again after a restart");
        }
    }

    /// Returns what is stored of a remote step, and its Value ID, which a replacement must name.
    pub(crate) async fn remote_snapshot(
        &self,
        parent: JobId,
        step: u32,
    ) -> Result<Option<(RemoteSnapshot, ValueId)>, StoreError> {
        self.read_snapshot(&snapshot_key(parent, step)).await
    }

    async fn read_snapshot(
        &self,
        key: &RootKey,
    ) -> Result<Option<(RemoteSnapshot, ValueId)>, StoreError> {
        let Some(root) = self.store.root(key).await? else { return Ok(None) };
        let damaged = || StoreError::Damaged(format!("the remote snapshot {key}"));
        let cells = self.store.cells();
        let value = root.value.fully_loaded(&*cells as &dyn CellSource).map_err(|_| damaged())?;
        let snapshot = RemoteSnapshot::from_value(&value).ok_or_else(damaged)?;
        Ok(Some((snapshot, root.id)))
    }

    /// Stores what became known of a remote step after its parent's chain ended.
    pub(crate) async fn store_late_snapshot(
        &self,
        parent: JobId,
        step: u32,
        snapshot: &RemoteSnapshot,
    ) {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Ok(stored) = self.remote_snapshot(parent, step).await else { return };
            let expected = stored.map(|(_, id)| id);
            let effects =
                vec![Effect::Touch { job: parent }, snapshot.store(parent, step, expected)];
            let committed = self.store.commit(Effects(effects)).await;
            match committed.map_err(CommitFailure::from) {
                Err(CommitFailure::Conflict) => {}
                Ok(_) => return self.watchers.announce_off_chain(parent),
                // Nothing is stored for a deleted job.
                Err(CommitFailure::Gone) => return,
                Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => {
                    tracing::warn!(job = %parent, step, %error, "cannot store the end of a remote step");
                    return;
                }
            }
        }
    }

    /// Returns how far this venue has paused the job of a remote step. `None` if it has not.
    pub(crate) async fn paused_here(
        &self,
        parent: JobId,
        step: u32,
    ) -> Result<Option<PausedHere>, StoreError> {
        let root = self.store.root(&paused_key(parent, step)).await?;
        Ok(root.map(|root| PausedHere::from_value(&root.value)))
    }

    /// Records how far this venue has paused the job of a remote step. Callers hold the step's pause
    /// lock, so there are no concurrent changes.
    pub(crate) async fn set_paused_here(
        &self,
        parent: JobId,
        step: u32,
        paused: Option<PausedHere>,
    ) -> Result<(), StoreError> {
        let key = paused_key(parent, step);
        let expected = self.store.root(&key).await?.map(|root| root.id);
        let value = paused.map(PausedHere::to_value);
        if expected.is_none() && value.is_none() {
            return Ok(());
        }
        let effects = vec![Effect::Touch { job: parent }, Effect::SetRoot { key, expected, value }];
        self.store.commit(Effects(effects)).await?;
        Ok(())
    }

    /// Returns the effects that delete everything stored here for a job.
    pub(crate) async fn delete_remote_steps(&self, job: JobId) -> Result<Vec<Effect>, StoreError> {
        let prefix = format!("{}-", job.to_hex());
        let mut effects = Vec::new();
        let mut after = prefix.clone();
        loop {
            let names = self.store.roots(RootSpace::Venue, SNAPSHOTS, Some(&after), PAGE).await?;
            let own: Vec<String> =
                names.iter().filter(|name| name.starts_with(&prefix)).cloned().collect();
            for name in &own {
                let owner = SNAPSHOTS.to_owned();
                let key = RootKey { space: RootSpace::Venue, owner, name: name.clone() };
                if let Some(root) = self.store.root(&key).await? {
                    effects.push(Effect::SetRoot { key, expected: Some(root.id), value: None });
                }
            }
            match own.last() {
                Some(last) if own.len() == names.len() && names.len() == PAGE => {
                    after.clone_from(last);
                }
                _ => return Ok(effects),
            }
        }
    }
}
