//! The folder of a ledger: who holds it, and which format it has.
//!
//! The stamp is the first durable thing in a new folder. A folder with data but without a stamp is therefore not a
//! ledger, and an unfinished backup, whose stamp is written last, is refused for the same reason.
//!
//! Before anything is believed, the folder is synced: after a mere process crash a file may be there whose name is not
//! durable yet, and everything acknowledged into it could vanish with the name.

use std::any::Any;
use std::io;

use crate::disk::{Disk, LockAttempt, TEMPORARY_SUFFIX, create_whole};
use crate::error::OpenError;

/// The file that is locked while a ledger is open.
pub const LOCK_FILE: &str = "LOCK";

/// The file that names the format.
pub const FORMAT_FILE: &str = "FORMAT";

/// The newest folder format this program knows.
pub const FORMAT_VERSION: u32 = 1;

const FORMAT_MAGIC: [u8; 8] = *b"CATLEDGR";
const STAMP_BYTES: usize = 16;

/// The folder, held by this process until dropped.
pub struct HeldFolder {
    _lock: Box<dyn Any + Send + Sync>,
}

/// Takes the folder, checks or writes its stamp, and clears away files that were never finished.
pub fn hold(disk: &dyn Disk) -> Result<HeldFolder, OpenError> {
    let held = lock(disk)?;
    let names = disk.list().map_err(failed(disk, "list", "the files"))?;
    disk.sync_dir().map_err(failed(disk, "sync", "the folder"))?;
    for name in names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)) {
        disk.remove(name).map_err(failed(disk, "remove", name))?;
    }
    if names.iter().any(|name| name == FORMAT_FILE) {
        check_stamp(disk)?;
    } else {
        check_unused(disk, &names)?;
        write_stamp(disk).map_err(failed(disk, "create", FORMAT_FILE))?;
    }
    Ok(held)
}

/// Writes the stamp of the present format.
pub fn write_stamp(disk: &dyn Disk) -> io::Result<()> {
    create_whole(disk, FORMAT_FILE, &stamp(FORMAT_VERSION))
}

fn lock(disk: &dyn Disk) -> Result<HeldFolder, OpenError> {
    match disk.lock(LOCK_FILE).map_err(failed(disk, "lock", LOCK_FILE))? {
        LockAttempt::Held(lock) => Ok(HeldFolder { _lock: lock }),
        LockAttempt::Taken => Err(OpenError::Locked { folder: disk.describe() }),
    }
}

fn check_unused(disk: &dyn Disk, names: &[String]) -> Result<(), OpenError> {
    let foreign = |name: &&String| *name != LOCK_FILE && !name.ends_with(TEMPORARY_SUFFIX);
    match names.iter().find(foreign) {
        None => Ok(()),
        Some(name) => Err(not_a_ledger(disk, format!("it holds {name} but no {FORMAT_FILE} file"))),
    }
}

fn check_stamp(disk: &dyn Disk) -> Result<(), OpenError> {
    let file = disk.open(FORMAT_FILE).map_err(failed(disk, "open", FORMAT_FILE))?;
    let mut found = [0; STAMP_BYTES];
    if file.len().map_err(failed(disk, "read", FORMAT_FILE))? < STAMP_BYTES as u64 {
        return Err(not_a_ledger(disk, format!("its {FORMAT_FILE} file is too short")));
    }
    file.read_at(0, &mut found).map_err(failed(disk, "read", FORMAT_FILE))?;
    let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    if found != stamp(version) {
        return Err(not_a_ledger(disk, format!("its {FORMAT_FILE} file is damaged")));
    }
    if version > FORMAT_VERSION {
        return Err(OpenError::NewerFormat {
            folder: disk.describe(),
            found: version,
            supported: FORMAT_VERSION,
        });
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

fn not_a_ledger(disk: &dyn Disk, reason: String) -> OpenError {
    OpenError::NotALedger { folder: disk.describe(), reason }
}

/// Wraps an error of the operating system.
pub(crate) fn failed(
    disk: &dyn Disk,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> OpenError {
    let (folder, name) = (disk.describe(), name.to_owned());
    move |source| OpenError::Io { action, name, folder, source }
}

#[cfg(test)]
pub(crate) fn write_stamp_of_version(disk: &dyn Disk, version: u32) -> io::Result<()> {
    create_whole(disk, FORMAT_FILE, &stamp(version))
}
