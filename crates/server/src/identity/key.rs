//! The venue's key: 32 secret bytes in the data folder, created once.
//!
//! Losing the key means losing the venue's identity, and a truncated key is worse than none: it is
//! written to a temporary file, synced and renamed, and the folder is synced, before it is used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use catena_auth::KeyPair;

const FILE: &str = "venue.key";
const TEMPORARY: &str = "venue.key.new";

/// Only the venue's own user may read the file.
const MODE: u32 = 0o600;

/// Why the key could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read or written.
    #[error("could not use {}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not contain a key.
    #[error("{} is not a key: expected 32 bytes, found {len}", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The size of the file in bytes.
        len: usize,
    },
}

/// Reads the venue's key from a data folder, and creates it if there is none.
pub fn load_or_create(data: &Path) -> Result<KeyPair, KeyError> {
    if let Some(key) = load(data)? {
        return Ok(key);
    }
    let mut seed = [0; 32];
    let random = getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()));
    let written = random.and_then(|()| write(data, &seed));
    written.map_err(|source| KeyError::Io { file: data.join(FILE), source })?;
    Ok(KeyPair::from_seed(&seed))
}

/// Reads the venue's key from a data folder. `None` if there is none.
pub fn load(data: &Path) -> Result<Option<KeyPair>, KeyError> {
    let file = data.join(FILE);
    match fs::read(&file) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(seed) => Ok(Some(KeyPair::from_seed(&seed))),
            Err(_) => Err(KeyError::Malformed { file, len: bytes.len() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyError::Io { file, source }),
    }
}

fn write(data: &Path, seed: &[u8; 32]) -> io::Result<()> {
    fs::create_dir_all(data)?;
    let temporary = data.join(TEMPORARY);
    // A process that was interrupted here may have left the temporary file.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary)?;
    file.write_all(seed)?;
    file.sync_all()?;
    fs::rename(&temporary, data.join(FILE))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_created_once_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap().is_none());
        let created = load_or_create(folder.path()).unwrap();
        let found = load_or_create(folder.path()).unwrap();
        assert_eq!(created.did(), found.did());
        let file = folder.path().join(FILE);
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, MODE);
        assert!(!folder.path().join(TEMPORARY).exists());
        let other = tempfile::tempdir().unwrap();
        assert_ne!(load_or_create(other.path()).unwrap().did(), created.did());
    }

    #[test]
    fn half_a_key_is_refused_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), [1; 16]).unwrap();
        let error = load_or_create(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("expected 32 bytes, found 16"), "{error}");
    }

    #[test]
    fn a_leftover_of_an_interrupted_start_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(TEMPORARY), [1; 5]).unwrap();
        assert!(load_or_create(folder.path()).is_ok());
    }
}
