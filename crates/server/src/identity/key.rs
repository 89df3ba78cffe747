//! The venue's keys: two files of 32 secret bytes, each created once.
//!
//! `venue.key` is the venue's identity; losing it means losing the identity. `secrets.key` encrypts
//! secrets at rest. They are separate so that a backup, which has the former, does not open the
//! secrets that it contains. A truncated key is worse than none: a key is written to a temporary
//! file, synced and renamed, and the folder is synced, before it is used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use catena_auth::KeyPair;

const FILE: &str = "venue.key";

/// The file with the key that encrypts secrets at rest, unless the operator names another one.
pub const SECRETS_FILE: &str = "secrets.key";

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
    Ok(KeyPair::from_seed(&load_or_create_file(&data.join(FILE))?))
}

/// Reads the venue's key from a data folder. `None` if there is none.
pub fn load(data: &Path) -> Result<Option<KeyPair>, KeyError> {
    Ok(read(&data.join(FILE))?.map(|seed| KeyPair::from_seed(&seed)))
}

/// Reads the key that encrypts secrets at rest, and creates it if there is none.
pub fn load_or_create_secrets(data: &Path, file: Option<&Path>) -> Result<[u8; 32], KeyError> {
    load_or_create_file(&secrets_file(data, file))
}

/// The keys that encrypt secrets at rest.
#[derive(Clone, Copy)]
pub struct SecretsKeys {
    /// The key that encrypts.
    pub current: [u8; 32],
    /// The key that encrypted before, while a rotation is not finished.
    pub previous: Option<[u8; 32]>,
}

impl std::fmt::Debug for SecretsKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rotation = if self.previous.is_some() { " in a rotation" } else { "" };
        write!(f, "keys of secrets{rotation}")
    }
}

/// The file with the key that encrypts secrets at rest.
pub fn secrets_file(data: &Path, file: Option<&Path>) -> PathBuf {
    file.map_or_else(|| data.join(SECRETS_FILE), Path::to_path_buf)
}

/// The file with the next key while a rotation is not finished.
fn next_file(file: &Path) -> PathBuf {
    file.with_extension("next")
}

/// Reads the keys that encrypt secrets at rest, and creates one if there is none.
pub fn load_secrets_keys(file: &Path) -> Result<SecretsKeys, KeyError> {
    let known = load_or_create_file(file)?;
    Ok(match read(&next_file(file))? {
        Some(next) => SecretsKeys { current: next, previous: Some(known) },
        None => SecretsKeys { current: known, previous: None },
    })
}

/// Starts a rotation of the key, or continues one. From now on the new key encrypts.
pub fn begin_rotation(file: &Path) -> Result<SecretsKeys, KeyError> {
    load_or_create_file(file)?;
    load_or_create_file(&next_file(file))?;
    load_secrets_keys(file)
}

/// Ends a rotation, once everything is encrypted with the new key: the previous key is gone.
pub fn finish_rotation(file: &Path) -> Result<(), KeyError> {
    let renamed = fs::rename(next_file(file), file).and_then(|()| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    });
    renamed.map_err(|source| KeyError::Io { file: file.to_owned(), source })
}

fn load_or_create_file(file: &Path) -> Result<[u8; 32], KeyError> {
    if let Some(seed) = read(file)? {
        return Ok(seed);
    }
    let mut seed = [0; 32];
    let random = getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()));
    let written = random.and_then(|()| write(file, &seed));
    written.map_err(|source| KeyError::Io { file: file.to_owned(), source })?;
    Ok(seed)
}

fn read(file: &Path) -> Result<Option<[u8; 32]>, KeyError> {
    match fs::read(file) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(seed) => Ok(Some(seed)),
            Err(_) => Err(KeyError::Malformed { file: file.to_owned(), len: bytes.len() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyError::Io { file: file.to_owned(), source }),
    }
}

fn write(file: &Path, seed: &[u8; 32]) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = file.with_extension("key.new");
    // A process that was interrupted here may have left the temporary file.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary)?;
    opened.write_all(seed)?;
    opened.sync_all()?;
    fs::rename(&temporary, file)?;
    File::open(folder)?.sync_all()
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
        assert!(!folder.path().join("venue.key.new").exists());
        let secrets = load_or_create_secrets(folder.path(), None).unwrap();
        assert_eq!(load_or_create_secrets(folder.path(), None).unwrap(), secrets);
        assert_ne!(KeyPair::from_seed(&secrets).did(), created.did());
        let own_file = folder.path().join("keys/own.key");
        assert_ne!(load_or_create_secrets(folder.path(), Some(&own_file)).unwrap(), secrets);
        assert!(own_file.exists());
        let other = tempfile::tempdir().unwrap();
        assert_ne!(load_or_create(other.path()).unwrap().did(), created.did());
    }

    #[test]
    fn a_rotation_can_be_interrupted_and_continued() {
        let folder = tempfile::tempdir().unwrap();
        let file = secrets_file(folder.path(), None);
        let first = load_secrets_keys(&file).unwrap();
        assert_eq!(first.previous, None);
        let begun = begin_rotation(&file).unwrap();
        assert_eq!(begun.previous, Some(first.current));
        assert_ne!(begun.current, first.current);
        for again in [load_secrets_keys(&file).unwrap(), begin_rotation(&file).unwrap()] {
            assert_eq!((again.current, again.previous), (begun.current, begun.previous));
        }
        finish_rotation(&file).unwrap();
        let last = load_secrets_keys(&file).unwrap();
        assert_eq!((last.current, last.previous), (begun.current, None));
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(files.len(), 1, "{files:?}");
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
        fs::write(folder.path().join("venue.key.new"), [1; 5]).unwrap();
        assert!(load_or_create(folder.path()).is_ok());
    }
}
