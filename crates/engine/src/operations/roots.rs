//! The roots of a user, as operations read and change them.
//!
//! An operation that is [`ExecutionMode::Roots`](crate::ExecutionMode::Roots) receives a [`Roots`]:
//! the current values of the roots that it named, and the changes of them so far. It computes its
//! output and the new values, and the engine commits them together with the records of the job. It
//! may be executed again on other values, because another commit came first; it must therefore be a
//! function of its call and the roots alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use catena_job::JobId;
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{CellSource, LoadError, Map, Value, ValueId};

use crate::limits::INLINE_CELLS_MAX;
use crate::operations::failure::Failure;
use crate::operations::queue::{PRIORITY, QUEUE};
use crate::requests::{Caller, Entry, NewSchedule, StoredEntry, own_key};

/// A source of the cells that values of roots refer to.
pub type Cells = Arc<dyn CellSource + Send + Sync>;

/// A root of a user: a named, mutable value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootId {
    space: RootSpace,
    name: String,
}

impl RootId {
    /// Returns the user's workspace, `w/`: a map.
    pub fn workspace() -> Self {
        RootId { space: RootSpace::Workspace, name: "w".to_owned() }
    }

    /// Returns the user's operations, `o/`: a map.
    pub fn operations() -> Self {
        RootId { space: RootSpace::Operation, name: "o".to_owned() }
    }

    /// Returns the versions of the user's named operations: a map.
    pub fn names() -> Self {
        RootId { space: RootSpace::Operation, name: "names".to_owned() }
    }

    /// Returns the user's secrets, `s/`: a map from names to encrypted values.
    pub fn secrets() -> Self {
        RootId { space: RootSpace::Secret, name: "s".to_owned() }
    }

    /// Returns the delegations that the user has revoked: a map from their digests to the time.
    pub fn revocations() -> Self {
        RootId { space: RootSpace::Workspace, name: "revoked".to_owned() }
    }

    /// Returns what the venue keeps about the histories that the user has imported: `{venues, count,
    /// bytes}`, where `venues` has a summary per venue and job.
    pub fn histories() -> Self {
        RootId { space: RootSpace::Workspace, name: "histories".to_owned() }
    }

    /// Returns a history that the user has imported: `{venue, job, bytes, records}`.
    pub fn history(venue: &str, job: JobId) -> Self {
        RootId { space: RootSpace::Workspace, name: format!("history/{venue}/{job}") }
    }

    /// Returns the numbers of entries that the user's namespaces have: a map.
    pub fn entry_counts() -> Self {
        RootId { space: RootSpace::Workspace, name: "entries".to_owned() }
    }

    /// Returns the record of an agent, `g/<id>`.
    pub fn agent(id: &str) -> Self {
        RootId { space: RootSpace::Agent, name: id.to_owned() }
    }

    /// Returns what the venue keeps about all agents of the user: a map by ID. No agent has this name.
    pub fn agent_controls() -> Self {
        RootId { space: RootSpace::Agent, name: "/controls".to_owned() }
    }

    /// Returns the size of an agent's inbox and the count behind its delivery rate. Every message changes them, so
    /// they are not part of the controls, which a message would otherwise rewrite. No agent has this name.
    pub fn agent_inbox(id: &str) -> Self {
        RootId { space: RootSpace::Agent, name: format!("/inbox/{id}") }
    }

    /// Returns the requests of the user's jobs to people: a map by ID.
    pub fn requests() -> Self {
        RootId { space: RootSpace::Workspace, name: "requests".to_owned() }
    }

    /// Returns the schedule that belongs to something of the user with this name, such as an agent. It is
    /// changed by [`Roots::schedule`]. It is read only when a change replaces or removes it, because most changes do not.
    fn schedule(name: &str) -> Self {
        RootId { space: RootSpace::Schedule, name: name.to_owned() }
    }

    /// Returns the key under which the store has this root of a user.
    pub(crate) fn key(&self, owner: &str) -> RootKey {
        if self.space == RootSpace::Schedule {
            return own_key(owner, &bound_handle(owner, &self.name));
        }
        if self.space == RootSpace::Secret {
            return user_secrets_key(owner);
        }
        RootKey { space: self.space, owner: owner.to_owned(), name: self.name.clone() }
    }
}

/// The length of the handle of a schedule that belongs to something of a user.
const BOUND_HANDLE_DIGITS: usize = 32;

/// Returns the handle of a schedule that belongs to something of a user. Handles of all users are in one
/// list, so it depends on the user.
fn bound_handle(owner: &str, name: &str) -> String {
    let digest = Value::from(format!("{owner}\n{name}")).id();
    let mut handle = digest.to_hex();
    handle.truncate(BOUND_HANDLE_DIGITS);
    handle
}

/// The list of the users that have secrets.
pub(crate) const SECRET_OWNERS: &str = "s";

/// Returns the key of the secrets of a user. The owner is its name, so that a rotation of the key finds
/// the secrets of all users.
pub(crate) fn user_secrets_key(owner: &str) -> RootKey {
    RootKey { space: RootSpace::Secret, owner: SECRET_OWNERS.to_owned(), name: owner.to_owned() }
}

/// The roots that an operation reads and changes.
pub struct Roots {
    owner: Arc<str>,
    /// Unix time in ms.
    now: i64,
    cells: Cells,
    values: BTreeMap<RootId, RootState>,
    assets: Vec<Value>,
    /// Bound jobs that are put on the queue.
    offers: Vec<JobId>,
    /// Jobs that are cancelled, and why.
    cancels: Vec<(JobId, String)>,
    /// Messages that are sent to jobs.
    messages: Vec<SentMessage>,
    /// Jobs whose notices were dropped.
    unnotified: Vec<JobId>,
    /// Schedules that are replaced or removed, by name.
    schedules: BTreeMap<String, Option<NewSchedule>>,
    /// What was there before each change of a value or schedule. A batch of many changes takes a savepoint
    /// before each, so that must not cost more with every root of the batch.
    undo: Vec<Undo>,
}

/// What was there before a change.
enum Undo {
    Value(RootId, RootState),
    Schedule(String, Option<Option<NewSchedule>>),
}

/// A message to a job of the user.
#[derive(Debug, Clone)]
pub(crate) struct SentMessage {
    /// The job.
    pub(crate) job: JobId,
    /// The DID of the sender.
    pub(crate) from: String,
    /// The ID of the message.
    pub(crate) id: String,
    /// The message.
    pub(crate) message: Map,
    /// True if it only says that something has changed: a job with a full queue needs none.
    pub(crate) is_notice: bool,
}

/// A root, and what became of it.
#[derive(Debug, Clone)]
struct RootState {
    /// The ID of the stored value.
    stored: Option<ValueId>,
    value: Option<Value>,
    is_changed: bool,
}

/// The roots that a commit in flight changes, as it will leave them.
pub(crate) struct FutureRoots(BTreeMap<RootId, RootState>);

impl FutureRoots {
    /// Returns true if a root is among them.
    pub(crate) fn has_root(&self, id: &RootId) -> bool {
        self.0.contains_key(id)
    }
}

/// The changes of roots up to a point.
pub(crate) struct Savepoint {
    undo: usize,
    assets: usize,
    offers: usize,
    cancels: usize,
    messages: usize,
}

impl std::fmt::Debug for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} roots of {}", self.values.len(), self.owner)
    }
}

impl Roots {
    /// Creates the roots of a user as they are stored.
    pub(crate) fn new(
        owner: &str,
        now: i64,
        cells: Cells,
        stored: impl IntoIterator<Item = (RootId, Option<catena_store::Root>)>,
    ) -> Self {
        let values = stored.into_iter().map(|(id, root)| (id, RootState::new(root))).collect();
        Roots {
            owner: owner.into(),
            now,
            cells,
            values,
            assets: Vec::new(),
            offers: Vec::new(),
            cancels: Vec::new(),
            messages: Vec::new(),
            unnotified: Vec::new(),
            schedules: BTreeMap::new(),
            undo: Vec::new(),
        }
    }

    /// Loads cells from another source from now on.
    pub(crate) fn set_cells(&mut self, cells: Cells) {
        self.cells = cells;
    }

    /// Adds a root as it is stored, unless it is here already.
    pub(crate) fn add_stored(&mut self, id: RootId, root: Option<catena_store::Root>) {
        self.values.entry(id).or_insert_with(|| RootState::new(root));
    }

    /// Returns the roots as they will be stored once these changes are committed, for a change that is computed
    /// meanwhile. `None` if the commit may change more than these values.
    pub(crate) fn after_commit(&self) -> Option<FutureRoots> {
        if !self.schedules.is_empty() || !self.cancels.is_empty() {
            return None;
        }
        let changed = self.values.iter().filter(|(_, state)| state.is_changed);
        let future = changed.map(|(id, state)| {
            let stored = state.value.as_ref().map(Value::id);
            let value = state.value.clone();
            (id.clone(), RootState { stored, value, is_changed: false })
        });
        Some(FutureRoots(future.collect()))
    }

    /// Adds a root as an earlier commit will leave it, if that commit changes it.
    pub(crate) fn add_future(&mut self, future: &FutureRoots, id: &RootId) {
        if let Some(state) = future.0.get(id) {
            self.values.insert(id.clone(), state.clone());
        }
    }

    /// Returns true if a root is here.
    pub(crate) fn has_root(&self, id: &RootId) -> bool {
        self.values.contains_key(id)
    }

    /// Returns the DID of the user.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the time of the commit, as Unix time in ms.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Returns the cells that the values refer to.
    pub fn cells(&self) -> &dyn CellSource {
        &*self.cells
    }

    /// Returns the value of a root. `None` if there is none. Fails if the operation did not name it.
    pub fn get(&self, root: &RootId) -> Result<Option<&Value>, Failure> {
        let state = self.values.get(root).ok_or_else(|| not_named(root))?;
        Ok(state.value.as_ref())
    }

    /// Changes the value of a root; `None` removes it. Fails if the operation did not name it.
    pub fn set(&mut self, root: &RootId, value: Option<Value>) -> Result<(), Failure> {
        let state = self.values.get_mut(root).ok_or_else(|| not_named(root))?;
        let changed = RootState { stored: state.stored, value, is_changed: true };
        let before = std::mem::replace(state, changed);
        self.undo.push(Undo::Value(root.clone(), before));
        Ok(())
    }

    /// Stores metadata as an asset of the user, in the same commit. Nothing happens if there is one
    /// with the same ID.
    pub fn store_asset(&mut self, metadata: Value) {
        self.assets.push(metadata);
    }

    /// Puts a bound job that waits on the queue, in the same commit.
    pub fn offer(&mut self, job: JobId) {
        self.offers.push(job);
    }

    /// Cancels a job of the user and everything below it, in the same commit.
    pub fn cancel(&mut self, job: JobId, reason: impl Into<String>) {
        self.cancels.push((job, reason.into()));
    }

    /// Sends a message to a job of the user that has not ended, in the same commit.
    pub fn send(&mut self, job: JobId, from: &str, id: String, message: Map) {
        let from = from.to_owned();
        self.messages.push(SentMessage { job, from, id, message, is_notice: false });
    }

    /// Tells a job of the user that has not ended, in the same commit, that something has changed. If its queue
    /// of messages is full, it gets none: it has reasons enough to look.
    pub fn notify(&mut self, job: JobId, id: String, message: Map) {
        let from = self.owner.to_string();
        self.messages.push(SentMessage { job, from, id, message, is_notice: true });
    }

    /// Drops the notices. The jobs that would have got one look all the same.
    pub(crate) fn drop_notices(&mut self) {
        let dropped = self.messages.extract_if(.., |message| message.is_notice);
        self.unnotified.extend(dropped.map(|message| message.job));
    }

    /// Returns the jobs whose notices were dropped, and removes them.
    pub(crate) fn take_unnotified(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.unnotified)
    }

    /// Replaces the schedule with this name, or removes it, in the same commit. It is invoked on the
    /// authority of the user.
    pub fn schedule(&mut self, name: &str, schedule: Option<NewSchedule>) {
        let before = self.schedules.insert(name.to_owned(), schedule);
        self.undo.push(Undo::Schedule(name.to_owned(), before));
    }

    /// Returns true if something is scheduled.
    pub(crate) fn has_schedules(&self) -> bool {
        !self.schedules.is_empty()
    }

    /// Returns the schedules that are replaced or removed, as far as they are not read yet.
    pub(crate) fn unread_schedules(&self) -> Vec<RootId> {
        let scheduled = self.schedules.keys().map(|name| RootId::schedule(name));
        scheduled.filter(|id| !self.has_root(id)).collect()
    }

    /// Returns true if jobs are put on the queue.
    pub(crate) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Returns the jobs to cancel, and removes them.
    pub(crate) fn take_cancels(&mut self) -> Vec<(JobId, String)> {
        std::mem::take(&mut self.cancels)
    }

    /// Returns the messages to send, and removes them.
    pub(crate) fn take_messages(&mut self) -> Vec<SentMessage> {
        std::mem::take(&mut self.messages)
    }

    /// Returns true if anything was changed.
    pub(crate) fn is_changed(&self) -> bool {
        !self.assets.is_empty()
            || !self.offers.is_empty()
            || !self.cancels.is_empty()
            || !self.messages.is_empty()
            || !self.schedules.is_empty()
            || self.values.values().any(|state| state.is_changed)
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint {
            undo: self.undo.len(),
            assets: self.assets.len(),
            offers: self.offers.len(),
            cancels: self.cancels.len(),
            messages: self.messages.len(),
        }
    }

    /// Undoes the changes since a savepoint.
    pub(crate) fn restore(&mut self, savepoint: Savepoint) {
        for undo in self.undo.drain(savepoint.undo.min(self.undo.len())..).rev() {
            match undo {
                Undo::Value(root, before) => drop(self.values.insert(root, before)),
                Undo::Schedule(name, Some(before)) => drop(self.schedules.insert(name, before)),
                Undo::Schedule(name, None) => drop(self.schedules.remove(&name)),
            }
        }
        self.assets.truncate(savepoint.assets);
        self.offers.truncate(savepoint.offers);
        self.cancels.truncate(savepoint.cancels);
        self.messages.truncate(savepoint.messages);
    }

    /// Returns the effects of all changes, each on the condition that the root has not changed
    /// meanwhile, and the assets to store. Schedules that change must have been read.
    pub(crate) fn into_effects(self) -> (Vec<Effect>, Vec<Value>) {
        let scheduled = self.schedule_effects();
        let owner = self.owner;
        let changed = self.values.into_iter().filter(|(_, state)| state.is_changed);
        let set = changed.map(|(root, state)| Effect::SetRoot {
            key: root.key(&owner),
            expected: state.stored,
            value: state.value,
        });
        // A job that has ended meanwhile cannot be queued, but then a root has changed as well.
        let offer = |job| Effect::Enqueue {
            job,
            queue: QUEUE.to_owned(),
            priority: PRIORITY,
            ready_at: self.now,
        };
        let effects = set.chain(self.offers.into_iter().map(offer)).chain(scheduled).collect();
        (effects, self.assets)
    }

    /// Returns the effects that replace or remove schedules.
    fn schedule_effects(&self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (name, schedule) in &self.schedules {
            let state = self.values.get(&RootId::schedule(name));
            let stored = state.and_then(|state| {
                let value = state.value.as_ref()?;
                StoredEntry::load(value, state.stored?, &*self.cells).ok()?
            });
            let handle = bound_handle(&self.owner, name);
            let caller = Caller::known(&self.owner);
            // A time that cannot be scheduled is left out: the adapter has checked it.
            let entry = schedule
                .clone()
                .and_then(|schedule| Entry::new(handle, &caller, schedule, self.now, 0).ok());
            match (stored, entry) {
                (Some(stored), entry) => effects.extend(stored.replace(entry.as_ref())),
                (None, Some(entry)) => effects.extend(entry.create()),
                (None, None) => {}
            }
        }
        effects
    }
}

impl RootState {
    fn new(root: Option<catena_store::Root>) -> RootState {
        RootState {
            stored: root.as_ref().map(|root| root.id),
            value: root.map(|root| root.value),
            is_changed: false,
        }
    }
}

fn not_named(root: &RootId) -> Failure {
    let text = format!("the operation uses {root:?}, which it does not name; this is a bug");
    Failure::new("adapter_broken", text)
}

/// A source of at most [`INLINE_CELLS_MAX`] cells, for work on a thread of the runtime. Work that
/// needs more is repeated on a compute thread.
pub(crate) struct InlineCells {
    cells: Cells,
    loaded: AtomicU32,
    is_exhausted: AtomicBool,
}

impl InlineCells {
    pub(crate) fn new(cells: Cells) -> Arc<Self> {
        let is_exhausted = AtomicBool::new(false);
        Arc::new(InlineCells { cells, loaded: AtomicU32::new(0), is_exhausted })
    }

    /// Returns true if the work needed more cells than it could have.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.load(Ordering::Relaxed)
    }
}

impl CellSource for InlineCells {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        if self.loaded.fetch_add(1, Ordering::Relaxed) >= INLINE_CELLS_MAX {
            self.is_exhausted.store(true, Ordering::Relaxed);
            return Err(LoadError::Missing { id: *id });
        }
        self.cells.load(id)
    }
}

#[cfg(test)]
mod tests {
    use catena_value::NoCells;

    use super::*;

    fn value(roots: &Roots, id: &RootId) -> Option<i64> {
        roots.get(id).unwrap().and_then(Value::as_i64)
    }

    #[test]
    fn changes_since_a_savepoint_are_undone() {
        let (one, other) = (RootId::agent("one"), RootId::agent("other"));
        let stored = [(one.clone(), None), (other.clone(), None)];
        let mut roots = Roots::new("did:a", 0, Arc::new(NoCells), stored);
        roots.set(&one, Some(1.into())).unwrap();
        let outer = roots.savepoint();
        roots.set(&one, Some(2.into())).unwrap();
        let inner = roots.savepoint();
        roots.set(&one, None).unwrap();
        roots.set(&other, Some(3.into())).unwrap();
        roots.set(&other, Some(4.into())).unwrap();
        roots.schedule("one", None);
        roots.restore(inner);
        assert_eq!((value(&roots, &one), value(&roots, &other)), (Some(2), None));
        assert!(!roots.has_schedules());
        roots.restore(outer);
        assert_eq!((value(&roots, &one), value(&roots, &other)), (Some(1), None));
        let (effects, _) = roots.into_effects();
        assert_eq!(effects.len(), 1, "the other root is as it was");
    }
}
