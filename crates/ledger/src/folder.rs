//! The folder of a ledger: its lock and its format version.
//!
//! The format stamp is the first durable file in a new folder. A folder with data but without a stamp is therefore not a
//! ledger, and an unfinished backup, whose stamp is written last, is refused for the same reason.
//!
//! Before anything is read, the folder is synced: after a process crash a file may be visible whose name is not durable
//! yet, and everything acknowledged into it could vanish with the name.

use std::any::Any;
use std::io;

use crate::disk::{Disk, LockAttempt, TEMPORARY_SUFFIX, create_atomically};
use crate::error::OpenError;

/// The file that is locked while a ledger is open.
pub const LOCK_FILE: &str = "LOCK";

/// The file that names the format.
pub const FORMAT_FILE: &str = "FORMAT";

/// The newest folder format that this program reads, and the one it writes.
///
/// - 1: the first one.
/// - 2: the row of a job may say who runs it. Everything of format 1 is read as it is.
pub const FORMAT_VERSION: u32 = 2;

const FORMAT_MAGIC: [u8; 8] = *b"CATLEDGR";
const STAMP_BYTES: usize = 16;

/// The lock on the folder, held by this process until it is dropped.
pub struct FolderLock {
    _lock: Box<dyn Any + Send + Sync>,
}

/// Locks the folder, checks or writes its stamp, and removes unfinished files.
pub fn lock_and_check(disk: &dyn Disk) -> Result<FolderLock, OpenError> {
    let held = lock(disk)?;
    let names = disk.list().map_err(io_error(disk, "list", "the files"))?;
    disk.sync_dir().map_err(io_error(disk, "sync", "the folder"))?;
    for name in names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)) {
        disk.remove(name).map_err(io_error(disk, "remove", name))?;
    }
    if names.iter().any(|name| name == FORMAT_FILE) {
        check_stamp(disk)?;
    } else {
        check_unused(disk, &names)?;
        write_stamp(disk).map_err(io_error(disk, "create", FORMAT_FILE))?;
    }
    Ok(held)
}

/// Writes the stamp of the current format version.
pub fn write_stamp(disk: &dyn Disk) -> io::Result<()> {
    create_atomically(disk, FORMAT_FILE, &stamp(FORMAT_VERSION))
}

fn lock(disk: &dyn Disk) -> Result<FolderLock, OpenError> {
    match disk.lock(LOCK_FILE).map_err(io_error(disk, "lock", LOCK_FILE))? {
        LockAttempt::Held(lock) => Ok(FolderLock { _lock: lock }),
        LockAttempt::Taken => Err(OpenError::Locked { folder: disk.describe() }),
    }
}

fn check_unused(disk: &dyn Disk, names: &[String]) -> Result<(), OpenError> {
    let foreign = |name: &&String| *name != LOCK_FILE && !name.ends_with(TEMPORARY_SUFFIX);
    match names.iter().find(foreign) {
        None => Ok(()),
        Some(name) => {
            Err(not_a_ledger_error(disk, format!("it holds {name} but no {FORMAT_FILE} file")))
        }
    }
}

fn check_stamp(disk: &dyn Disk) -> Result<(), OpenError> {
    let file = disk.open(FORMAT_FILE).map_err(io_error(disk, "open", FORMAT_FILE))?;
    let mut found = [0; STAMP_BYTES];
    if file.size().map_err(io_error(disk, "read", FORMAT_FILE))? < STAMP_BYTES as u64 {
        return Err(not_a_ledger_error(disk, format!("its {FORMAT_FILE} file is too short")));
    }
    file.read_at(0, &mut found).map_err(io_error(disk, "read", FORMAT_FILE))?;
    let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    if found != stamp(version) {
        return Err(not_a_ledger_error(disk, format!("its {FORMAT_FILE} file is damaged")));
    }
    if version > FORMAT_VERSION {
        return Err(OpenError::NewerFormat {
            folder: disk.describe(),
            found: version,
            supported: FORMAT_VERSION,
        });
    }
    if version < FORMAT_VERSION {
        // From here on, rows may be written that an earlier program cannot read.
        write_stamp(disk).map_err(io_error(disk, "replace", FORMAT_FILE))?;
    }
    Ok(())
}

fn stamp(version: u32) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    bytes[0..8].copy_from_slice(&FORMAT_MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn not_a_ledger_error(disk: &dyn Disk, reason: String) -> OpenError {
    OpenError::NotALedger { folder: disk.describe(), reason }
}

/// Wraps an I/O error with the action and the file name.
pub(crate) fn io_error(
    disk: &dyn Disk,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> OpenError {
    let folder = disk.describe();
    let name = name.to_owned();
    move |source| OpenError::Io { action, name, folder, source }
}

#[cfg(test)]
pub(crate) fn write_stamp_of_version(disk: &dyn Disk, version: u32) -> io::Result<()> {
    create_atomically(disk, FORMAT_FILE, &stamp(version))
}
