//! A disk in memory that guarantees what a real one guarantees, and nothing more.
//!
//! A write is visible at once and durable only after a sync of its file; creations, renames and removals are durable only
//! after a sync of the folder. At a power loss an arbitrary part of what was not synced survives, sector by sector. At a
//! process crash everything survives, but is still not durable. The disk can crash at the n-th operation, fail a chosen
//! operation, or run out of space. All randomness comes from the seed.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::rng::Rng;
use crate::disk::{Disk, DiskFile, LockAttempt};
use crate::uncached::Uncached;

/// The unit that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// How much of what was not synced survives a power loss, in percent; one is drawn per file.
const SURVIVAL_PERCENTS: [u64; 5] = [0, 20, 50, 90, 100];

/// The kinds of operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimOp {
    /// Writing to a file.
    Write,
    /// Changing a file's length.
    SetLen,
    /// Syncing a file.
    Sync,
    /// Creating, renaming or removing a file.
    Names,
    /// Syncing the folder.
    SyncDir,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The machine lost power: only what was synced is certain.
    PowerLoss,
    /// The process was killed: the system still has its writes, but they are not durable yet.
    ProcessKill,
}

/// A simulated disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
}

#[derive(Debug)]
struct SimState {
    rng: Rng,
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    operations: u64,
    crash_at: Option<u64>,
    crashed: bool,
    failures: Vec<InjectedFailure>,
    space_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    name: String,
    contents: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Link { name: String, file: usize },
    Rename { from: String, to: String, file: usize },
    Unlink { name: String },
}

#[derive(Debug)]
struct InjectedFailure {
    operation: SimOp,
    name_part: String,
    skip: u64,
    kind: ErrorKind,
}

/// What happens to an operation.
#[derive(PartialEq, Eq)]
enum OperationFate {
    Succeeds,
    /// The operation begins, and the disk crashes in the middle of it.
    Crashes,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        Self::from_state(seed, Vec::new(), BTreeMap::new(), BTreeMap::new(), Vec::new())
    }

    fn from_state(
        seed: u64,
        files: Vec<FileState>,
        names: BTreeMap<String, usize>,
        durable_names: BTreeMap<String, usize>,
        pending_names: Vec<NameChange>,
    ) -> Self {
        let state = SimState {
            rng: Rng::new(seed),
            files,
            names,
            durable_names,
            pending_names,
            operations: 0,
            crash_at: None,
            crashed: false,
            failures: Vec::new(),
            space_bytes: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets the disk crash in the middle of the n-th changing operation from now (1 is the next).
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.state.lock();
        state.crash_at = Some(state.operations + operations);
    }

    /// Cancels [`SimDisk::crash_after`].
    pub fn cancel_crash(&self) {
        self.state.lock().crash_at = None;
    }

    /// Whether the disk has crashed.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// The number of changing operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Lets one operation fail: the first of its kind on a file whose name contains `name_part`, after `skip` others.
    pub fn fail(&self, operation: SimOp, name_part: &str, skip: u64, kind: ErrorKind) {
        self.state.lock().failures.push(InjectedFailure {
            operation,
            name_part: name_part.to_owned(),
            skip,
            kind,
        });
    }

    /// Cancels every [`SimDisk::fail`] that has not happened yet.
    pub fn clear_failures(&self) {
        self.state.lock().failures.clear();
    }

    /// Sets how many bytes all files together may take.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.state.lock().space_bytes = bytes;
    }

    /// The bytes all files together take.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Flips stored bits directly and durably: damage that no crash explains.
    pub fn damage(&self, name: &str, offset: usize, mask: u8) {
        let mut state = self.state.lock();
        let file = state.names[name];
        let file = &mut state.files[file];
        file.contents[offset] ^= mask;
        file.durable[offset] ^= mask;
    }

    /// Overwrites stored bytes directly and durably.
    pub fn overwrite(&self, name: &str, offset: usize, data: &[u8]) {
        let mut state = self.state.lock();
        let file = state.names[name];
        let change = Change::Write { offset, data: data.to_vec() };
        apply(&mut state.files[file].contents, &change);
        apply(&mut state.files[file].durable, &change);
    }

    /// A file's contents as a reader sees them.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].contents.clone()
    }

    /// A checksum of everything on the disk: two runs with the same checksum did the same.
    pub fn fingerprint(&self) -> u32 {
        let state = self.state.lock();
        let mut hasher = crc32fast::Hasher::new();
        for (name, file) in &state.names {
            hasher.update(name.as_bytes());
            hasher.update(&state.files[*file].contents);
        }
        hasher.update(&state.operations.to_le_bytes());
        hasher.finalize()
    }

    /// Crashes the disk, and returns the disk that the next process finds. The old one fails every operation from now on.
    pub fn crash(&self, crash: Crash, seed: u64) -> SimDisk {
        let mut state = self.state.lock();
        state.crashed = true;
        match crash {
            Crash::PowerLoss => state.after_power_loss(seed),
            Crash::ProcessKill => Self::from_state(
                seed,
                state.files.clone(),
                state.names.clone(),
                state.durable_names.clone(),
                state.pending_names.clone(),
            ),
        }
    }
}

impl SimState {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].contents.len() as u64).sum()
    }

    /// Counts a changing operation and decides what happens to it.
    fn begin_operation(&mut self, operation: SimOp, name: &str) -> Result<OperationFate> {
        if self.crashed {
            return Err(crash_error());
        }
        self.operations += 1;
        if self.crash_at == Some(self.operations) {
            self.crashed = true;
            return Ok(OperationFate::Crashes);
        }
        self.check_failures(operation, name)?;
        Ok(OperationFate::Succeeds)
    }

    fn check_failures(&mut self, operation: SimOp, name: &str) -> Result<()> {
        let matches = |failure: &InjectedFailure| {
            failure.operation == operation && name.contains(&failure.name_part)
        };
        let Some(position) = self.failures.iter().position(matches) else { return Ok(()) };
        if self.failures[position].skip > 0 {
            self.failures[position].skip -= 1;
            return Ok(());
        }
        Err(Error::new(self.failures.remove(position).kind, "simulated failure"))
    }

    fn check_space(&self, file: usize, len: usize) -> Result<()> {
        let growth = len.saturating_sub(self.files[file].contents.len()) as u64;
        match self.space_bytes {
            Some(limit) if growth > 0 && self.used_bytes() + growth > limit => {
                Err(Error::new(ErrorKind::StorageFull, "simulated disk is full"))
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, file: usize, change: Change) {
        let file = &mut self.files[file];
        apply(&mut file.contents, &change);
        file.pending.push(change);
    }

    fn sync(&mut self, file: usize) {
        let file = &mut self.files[file];
        for change in file.pending.drain(..) {
            apply(&mut file.durable, &change);
        }
    }

    /// A failed sync: part of the changes arrive, and the system drops the others. A later sync that succeeds does not
    /// bring them back.
    fn half_sync(&mut self, file: usize) {
        let pending = std::mem::take(&mut self.files[file].pending);
        let percent = self.rng.pick(&SURVIVAL_PERCENTS);
        for change in pending {
            apply_partly(&mut self.files[file].durable, &change, percent, &mut self.rng);
        }
    }

    fn change_names(&mut self, fate: &OperationFate, change: NameChange) -> Result<()> {
        apply_names(&mut self.names, &change);
        self.pending_names.push(change);
        finish_operation(fate)
    }

    fn after_power_loss(&self, seed: u64) -> SimDisk {
        let mut rng = Rng::new(seed);
        let files = self.files.iter().map(|file| file.after_power_loss(&mut rng)).collect();
        let mut names = self.durable_names.clone();
        let percent = rng.pick(&SURVIVAL_PERCENTS);
        for change in &self.pending_names {
            if rng.chance(percent) {
                apply_names(&mut names, change);
            }
        }
        SimDisk::from_state(rng.number(), files, names.clone(), names, Vec::new())
    }
}

impl FileState {
    fn after_power_loss(&self, rng: &mut Rng) -> FileState {
        let mut survived = self.durable.clone();
        let percent = rng.pick(&SURVIVAL_PERCENTS);
        for change in &self.pending {
            apply_partly(&mut survived, change, percent, rng);
        }
        FileState {
            name: self.name.clone(),
            contents: survived.clone(),
            durable: survived,
            pending: Vec::new(),
        }
    }
}

fn apply(contents: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => contents.resize(*len, 0),
        Change::Write { offset, data } => {
            let end = offset + data.len();
            if contents.len() < end {
                contents.resize(end, 0);
            }
            contents[*offset..end].copy_from_slice(data);
        }
    }
}

/// Applies each sector of a change with a probability of `percent` percent.
fn apply_partly(contents: &mut Vec<u8>, change: &Change, percent: u64, rng: &mut Rng) {
    let Change::Write { offset, data } = change else {
        if rng.chance(percent) {
            apply(contents, change);
        }
        return;
    };
    let mut start = 0;
    while start < data.len() {
        let to_boundary = SECTOR_BYTES - (offset + start) % SECTOR_BYTES;
        let end = (start + to_boundary).min(data.len());
        if rng.chance(percent) {
            apply(
                contents,
                &Change::Write { offset: offset + start, data: data[start..end].to_vec() },
            );
        }
        start = end;
    }
}

fn apply_names(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Link { name, file } => {
            names.insert(name.clone(), *file);
        }
        NameChange::Rename { from, to, file } => {
            if names.get(from) == Some(file) {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
        NameChange::Unlink { name } => {
            names.remove(name);
        }
    }
}

fn finish_operation(fate: &OperationFate) -> Result<()> {
    match fate {
        OperationFate::Succeeds => Ok(()),
        OperationFate::Crashes => Err(crash_error()),
    }
}

fn crash_error() -> Error {
    Error::other("simulated crash")
}

fn not_found_error(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("simulated disk has no {name}"))
}

impl Disk for SimDisk {
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        if state.crashed {
            return Err(crash_error());
        }
        let file = *state.names.get(name).ok_or_else(|| not_found_error(name))?;
        Ok(Arc::new(SimFile { disk: self.clone(), file }))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let fate = state.begin_operation(SimOp::Names, name)?;
        let file = state.files.len();
        state.files.push(FileState { name: name.to_owned(), ..FileState::default() });
        state.change_names(&fate, NameChange::Link { name: name.to_owned(), file })?;
        Ok(Arc::new(SimFile { disk: self.clone(), file }))
    }

    /// Depends on the number in the name: one file accepts the write, one cannot be opened this way, one refuses it.
    fn open_uncached(&self, name: &str) -> Option<Box<dyn Uncached>> {
        let file = *self.state.lock().names.get(name)?;
        let file = SimFile { disk: self.clone(), file };
        let digits = name.bytes().filter(u8::is_ascii_digit);
        match digits.fold(0, |number, digit| (number * 10 + u32::from(digit - b'0')) % 3) {
            0 => Some(Box::new(SimUncached { file, refuses: false })),
            1 => None,
            _ => Some(Box::new(SimUncached { file, refuses: true })),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.state.lock();
        let fate = state.begin_operation(SimOp::Names, from)?;
        let file = *state.names.get(from).ok_or_else(|| not_found_error(from))?;
        state.files[file].name = to.to_owned();
        state.change_names(
            &fate,
            NameChange::Rename { from: from.to_owned(), to: to.to_owned(), file },
        )
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let fate = state.begin_operation(SimOp::Names, name)?;
        if !state.names.contains_key(name) {
            return Err(not_found_error(name));
        }
        state.change_names(&fate, NameChange::Unlink { name: name.to_owned() })
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.state.lock();
        if state.crashed { Err(crash_error()) } else { Ok(state.names.keys().cloned().collect()) }
    }

    fn sync_dir(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.begin_operation(SimOp::SyncDir, "")? == OperationFate::Crashes {
            return Err(crash_error());
        }
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }

    fn lock(&self, _name: &str) -> Result<LockAttempt> {
        Ok(LockAttempt::Held(Box::new(())))
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    file: usize,
}

impl SimFile {
    fn begin_operation(
        &self,
        operation: SimOp,
    ) -> Result<(MutexGuard<'_, SimState>, OperationFate)> {
        let mut state = self.disk.state.lock();
        let name = state.files[self.file].name.clone();
        let fate = state.begin_operation(operation, &name)?;
        Ok((state, fate))
    }

    fn sync(&self) -> Result<()> {
        match self.begin_operation(SimOp::Sync) {
            Ok((mut state, OperationFate::Succeeds)) => {
                state.sync(self.file);
                Ok(())
            }
            Ok((_, OperationFate::Crashes)) => Err(crash_error()),
            Err(error) => {
                let mut state = self.disk.state.lock();
                if !state.crashed {
                    state.half_sync(self.file);
                }
                Err(error)
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let state = self.disk.state.lock();
        if state.crashed {
            return Err(crash_error());
        }
        let contents = &state.files[self.file].contents;
        let start = offset as usize;
        let bytes = contents.get(start..start + buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let (mut state, fate) = self.begin_operation(SimOp::Write)?;
        state.check_space(self.file, offset as usize + data.len())?;
        state.change(self.file, Change::Write { offset: offset as usize, data: data.to_vec() });
        finish_operation(&fate)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let (mut state, fate) = self.begin_operation(SimOp::SetLen)?;
        state.check_space(self.file, len as usize)?;
        state.change(self.file, Change::SetLen(len as usize));
        finish_operation(&fate)
    }

    fn sync_data(&self) -> Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.sync()
    }

    fn size(&self) -> Result<u64> {
        let state = self.disk.state.lock();
        if state.crashed {
            Err(crash_error())
        } else {
            Ok(state.files[self.file].contents.len() as u64)
        }
    }
}

#[derive(Debug)]
struct SimUncached {
    file: SimFile,
    refuses: bool,
}

impl Uncached for SimUncached {
    /// A write and a sync, between which the disk can crash. A refused write may have written something.
    fn write_durably(&self, offset: u64, data: &[u8]) -> Result<bool> {
        let written = if self.refuses { data.len() / 2 } else { data.len() };
        self.file.write_at(offset, &data[..written])?;
        if self.refuses {
            return Ok(false);
        }
        self.file.sync_data().map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_what_was_not_may_be_torn_at_sectors() {
        let mut tears = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let file = disk.create("a").expect("create");
            file.write_at(0, &[1; 4096]).expect("write");
            file.sync_data().expect("sync");
            disk.sync_dir().expect("sync dir");
            file.write_at(0, &[2; 4096]).expect("write");
            let after = disk.crash(Crash::PowerLoss, seed).contents("a");
            assert!(
                after
                    .chunks(SECTOR_BYTES)
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
            tears += usize::from(after.contains(&1) && after.contains(&2));
        }
        assert!(tears > 5, "{tears}");
    }

    #[test]
    fn a_rename_is_lost_unless_the_folder_was_synced() {
        let lost = (0..50).filter(|seed| {
            let disk = SimDisk::new(*seed);
            disk.create("a.tmp").expect("create");
            disk.sync_dir().expect("sync dir");
            disk.rename("a.tmp", "a").expect("rename");
            disk.crash(Crash::PowerLoss, *seed).list().expect("list") == ["a.tmp"]
        });
        assert!((5..45).contains(&lost.count()));
    }

    #[test]
    fn after_a_failed_sync_a_later_sync_does_not_bring_the_bytes_back() {
        let lost = (0..50).filter(|seed| {
            let disk = SimDisk::new(*seed);
            let file = disk.create("a").expect("create");
            disk.sync_dir().expect("sync dir");
            disk.fail(SimOp::Sync, "a", 0, ErrorKind::Other);
            file.write_at(0, b"x").expect("write");
            assert!(file.sync_data().is_err());
            file.sync_data().expect("the next sync says nothing");
            disk.crash(Crash::PowerLoss, *seed).contents("a") != b"x"
        });
        assert!(lost.count() > 5);
    }
}
