//! What is known of the jobs that steps are on other venues, kept beside the chain of their parent.
//!
//! The chain commits to when such a job began and how it ended, by its records; what it said stands
//! here: its output, and where it was last seen. It is written in the commit that records the end,
//! so that nobody has to ask the other venue again, and goes when the parent is deleted. Chains do
//! not grow after their end: what is learnt of a step later stands here alone.
//!
//! Beside it stands whether this venue paused the job. Only then does it resume it. And when the
//! parent ends before the job, that the job is still to be cancelled: a crash does not leave it to
//! run on for nobody.

use catena_job::chain::StepState;
use catena_job::{Job, JobId, RecordId, Status};
use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace};
use catena_value::{CellSource, Map, NoCells, Value, ValueId};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::federation::{RemoteJob, Requester};
use crate::limits::CONTENTION_TRIES_MAX;

/// Whose roots these are.
const OWNER: &str = "elsewhere";

/// What ends the names of roots that say whether a job is held.
const HELD: &str = "-held";

/// Whose roots say that a job is still to be cancelled.
const UNWANTED: &str = "unwanted";

/// Roots that are looked at in one go.
const PAGE: usize = 256;

/// A job on another venue as it was last seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteSnapshot {
    /// The job there.
    pub(crate) job: JobId,
    /// The venue's DID.
    pub(crate) venue: String,
    /// Where the venue is, as the definition says.
    pub(crate) place: String,
    /// Who asked for it.
    pub(crate) requester: Requester,
    /// How it stood.
    pub(crate) seen: RemoteJob,
    /// When.
    pub(crate) at: i64,
}

fn key(parent: JobId, step: u32) -> RootKey {
    let name = format!("{}-{step}", parent.to_hex());
    RootKey { space: RootSpace::Venue, owner: OWNER.to_owned(), name }
}

fn held_key(parent: JobId, step: u32) -> RootKey {
    let RootKey { space, owner, name } = key(parent, step);
    RootKey { space, owner, name: format!("{name}{HELD}") }
}

impl RemoteSnapshot {
    /// What the parent's chain alone says of a step on another venue.
    pub(crate) fn of_chain(state: &StepState, place: &str) -> RemoteSnapshot {
        let start = &state.start;
        let (status, record) = (Status::Started, start.record);
        RemoteSnapshot {
            job: start.job,
            venue: start.venue.clone().unwrap_or_default(),
            place: place.to_owned(),
            requester: Requester::Anonymous,
            seen: RemoteJob { status, record, output: None, error: None, message: None },
            at: state.started_at,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        let RemoteJob { status, record, output, error, message } = &self.seen;
        let mut members = vec![
            ("job", Value::from(self.job)),
            ("venue", self.venue.as_str().into()),
            ("place", self.place.as_str().into()),
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

    /// From what is stored, wholly in memory.
    fn from_value(value: &Value) -> Option<RemoteSnapshot> {
        let field = |name: &str| value.as_map()?.get(&name.into(), &NoCells).ok()?;
        let text = |name: &str| field(name).and_then(|text| Some(text.to_text()?.into_owned()));
        Some(RemoteSnapshot {
            job: text("job")?.parse().ok()?,
            venue: text("venue")?,
            place: text("place")?,
            requester: if field("requester").is_some() {
                Requester::Venue
            } else {
                Requester::Anonymous
            },
            seen: RemoteJob {
                status: Status::parse(&text("status")?)?,
                record: text("record")?.parse().ok()?,
                output: field("output"),
                error: text("error"),
                message: text("message"),
            },
            at: field("at")?.as_i64()?,
        })
    }

    /// The effect that keeps it, in place of what is there.
    pub(crate) fn keep(&self, parent: JobId, step: u32, expected: Option<ValueId>) -> Effect {
        Effect::Root { key: key(parent, step), expected, value: Some(self.to_value()) }
    }
}

/// Whether this venue paused a job there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It asked for it; whether that was heard is not known.
    Asked,
    /// It did, with this record.
    Since(RecordId),
}

impl Held {
    fn to_value(self) -> Value {
        match self {
            Held::Asked => Value::Nil,
            Held::Since(record) => record.into(),
        }
    }

    fn from_value(value: &Value) -> Held {
        let record = value.to_text().and_then(|text| text.parse().ok());
        record.map_or(Held::Asked, Held::Since)
    }
}

/// Whether steps on other venues have begun and, as far as the chain says, not ended.
pub(crate) fn has_open_away(job: &Job) -> bool {
    open_away(job).next().is_some()
}

fn open_away(job: &Job) -> impl Iterator<Item = (u32, &StepState)> {
    let is_open = |state: &StepState| state.end.is_none() && state.start.venue.is_some();
    job.steps().iter().filter(move |(_, state)| is_open(state)).map(|(step, state)| (*step, state))
}

fn unwanted_key(parent: JobId, step: u32) -> RootKey {
    RootKey { owner: UNWANTED.to_owned(), ..key(parent, step) }
}

/// The parent and the step in the name of a root.
fn named(name: &str) -> Option<(JobId, u32)> {
    let (parent, step) = name.split_once('-')?;
    Some((parent.parse().ok()?, step.parse().ok()?))
}

impl Engine {
    /// The effects that remember what is to be cancelled elsewhere when a job ends. One that cannot
    /// be read does not keep the job from ending.
    pub(crate) async fn unwanted(&self, job: &Job) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (step, _) in open_away(job) {
            match self.snapshot(job.id(), step).await {
                Ok(Some((known, _))) if !known.seen.status.is_terminal() => {
                    let (key, value) = (unwanted_key(job.id(), step), Some(known.to_value()));
                    effects.push(Effect::Root { key, expected: None, value });
                }
                Ok(_) => {}
                Err(trouble) => {
                    tracing::warn!(job = %job.id(), step, %trouble, "a step elsewhere is left to its venue");
                }
            }
        }
        effects
    }

    /// Everything that is still to be cancelled elsewhere.
    pub(crate) async fn all_unwanted(
        &self,
    ) -> Result<Vec<(JobId, u32, RemoteSnapshot)>, StoreError> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.0.store.roots(RootSpace::Venue, UNWANTED, after.as_deref(), PAGE);
            let page = page.await?;
            for (parent, step) in page.iter().filter_map(|name| named(name)) {
                let known = self.seen_under(&unwanted_key(parent, step)).await?;
                all.extend(known.map(|(known, _)| (parent, step, known)));
            }
            match page.into_iter().next_back() {
                Some(last) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// A job elsewhere was cancelled, or left to its venue.
    pub(crate) async fn is_not_unwanted(&self, parent: JobId, step: u32) {
        let key = unwanted_key(parent, step);
        let Ok(Some(root)) = self.0.store.root(&key).await else { return };
        let effect = Effect::Root { key, expected: Some(root.id), value: None };
        if let Err(error) = self.0.store.commit(Effects::one(effect)).await {
            tracing::warn!(job = %parent, step, %error, "a step elsewhere is cancelled again later");
        }
    }

    /// What is known of a step on another venue, and what it is replaced by.
    pub(crate) async fn snapshot(
        &self,
        parent: JobId,
        step: u32,
    ) -> Result<Option<(RemoteSnapshot, ValueId)>, StoreError> {
        self.seen_under(&key(parent, step)).await
    }

    async fn seen_under(
        &self,
        key: &RootKey,
    ) -> Result<Option<(RemoteSnapshot, ValueId)>, StoreError> {
        let Some(root) = self.0.store.root(key).await? else { return Ok(None) };
        let damaged = || StoreError::Damaged(format!("what is known under {key}"));
        let cells = self.0.store.cells();
        let value = root.value.fully_loaded(&*cells as &dyn CellSource).map_err(|_| damaged())?;
        let snapshot = RemoteSnapshot::from_value(&value).ok_or_else(damaged)?;
        Ok(Some((snapshot, root.id)))
    }

    /// Keeps what was learnt of a step when its parent's chain says nothing more about it.
    pub(crate) async fn keep_late(&self, parent: JobId, step: u32, snapshot: &RemoteSnapshot) {
        for _ in 0..CONTENTION_TRIES_MAX {
            let kept = self.snapshot(parent, step).await;
            let Ok(kept) = kept else { return };
            let expected = kept.map(|(_, id)| id);
            let effects =
                vec![Effect::Touch { job: parent }, snapshot.keep(parent, step, expected)];
            match self.0.store.commit(Effects(effects)).await {
                Err(CommitError::RootMoved { .. }) => {}
                Ok(_) => return self.0.hub.announce_beside(parent),
                // Of a job that is gone nothing is kept.
                Err(CommitError::NoSuchJob { .. }) => return,
                Err(error) => {
                    tracing::warn!(job = %parent, step, %error, "the end of a step elsewhere is not kept");
                    return;
                }
            }
        }
    }

    /// Whether this venue paused the job of a step.
    pub(crate) async fn held(&self, parent: JobId, step: u32) -> Result<Option<Held>, StoreError> {
        let root = self.0.store.root(&held_key(parent, step)).await?;
        Ok(root.map(|root| Held::from_value(&root.value)))
    }

    /// Remembers whether this venue paused the job of a step. Only whoever has the step's turn
    /// does that, so nobody else changes it.
    pub(crate) async fn set_held(
        &self,
        parent: JobId,
        step: u32,
        held: Option<Held>,
    ) -> Result<(), StoreError> {
        let key = held_key(parent, step);
        let expected = self.0.store.root(&key).await?.map(|root| root.id);
        let value = held.map(Held::to_value);
        if expected.is_none() && value.is_none() {
            return Ok(());
        }
        let effects = vec![Effect::Touch { job: parent }, Effect::Root { key, expected, value }];
        self.0.store.commit(Effects(effects)).await?;
        Ok(())
    }

    /// The effects that forget everything that is kept here for a job.
    pub(crate) async fn forget_elsewhere(&self, job: JobId) -> Result<Vec<Effect>, StoreError> {
        let prefix = format!("{}-", job.to_hex());
        let mut effects = Vec::new();
        let mut after = prefix.clone();
        loop {
            let names = self.0.store.roots(RootSpace::Venue, OWNER, Some(&after), PAGE).await?;
            let own: Vec<String> =
                names.iter().filter(|name| name.starts_with(&prefix)).cloned().collect();
            for name in &own {
                let (space, owner) = (RootSpace::Venue, OWNER.to_owned());
                let key = RootKey { space, owner, name: name.clone() };
                if let Some(root) = self.0.store.root(&key).await? {
                    effects.push(Effect::Root { key, expected: Some(root.id), value: None });
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
