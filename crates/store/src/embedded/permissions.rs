//! Who may read and write the files of a data folder.
//!
//! A data folder contains keys and everything that callers have sent. It belongs to one user: its
//! folders have mode 0700 and its files 0600, whatever the umask of the shell was. An operator may
//! share it with its group. Wider permissions are narrowed when the folder is opened; it is refused
//! only if that would be too late, because somebody else owns a part of it or could have changed it.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::limits::SECURED_FILES_MAX;

/// Who may use a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The user of the process.
    Owner,
    /// The user of the process, and the group of the folder.
    Group,
}

impl Sharing {
    fn folder_mode(self) -> u32 {
        match self {
            Sharing::Owner => 0o700,
            Sharing::Group => 0o770,
        }
    }

    fn file_mode(self) -> u32 {
        match self {
            Sharing::Owner => 0o600,
            Sharing::Group => 0o660,
        }
    }
}

/// Why a data folder is refused.
#[derive(Debug, thiserror::Error)]
pub enum PermissionsError {
    /// A part of the folder belongs to another user.
    #[error("{} belongs to another user (ID {owner}); `chown` it to the user that runs the venue", .path.display())]
    Owner {
        /// The part.
        path: PathBuf,
        /// The ID of its owner.
        owner: u32,
    },
    /// Every user may change a part of the folder.
    #[error("{} can be changed by every user (mode {mode:03o}); check its content, then remove the permission with `chmod -R o-w`", .path.display())]
    Writable {
        /// The part.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The permissions could not be read or changed.
    #[error("could not secure {}", .path.display())]
    Io {
        /// The part.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Makes every file that this process creates from now on inaccessible to others.
pub fn restrict_new_files(sharing: Sharing) {
    let mask = match sharing {
        Sharing::Owner => Mode::RWXG | Mode::RWXO,
        Sharing::Group => Mode::RWXO,
    };
    rustix::process::umask(mask);
}

/// Creates a data folder if it is missing, and narrows the permissions of everything in it. Symbolic
/// links are not followed.
pub fn secure_folder(path: &Path, sharing: Sharing) -> Result<(), PermissionsError> {
    let failed = |source| PermissionsError::Io { path: path.to_owned(), source };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(sharing.folder_mode())
        .create(path)
        .map_err(failed)?;
    // The folder itself may be behind a link that the operator made.
    secure(path, &fs::metadata(path).map_err(failed)?, sharing)?;
    let mut left = SECURED_FILES_MAX;
    secure_entries(path, sharing, &mut left)
}

fn secure_entries(
    folder: &Path,
    sharing: Sharing,
    left: &mut usize,
) -> Result<(), PermissionsError> {
    let failed = |source| PermissionsError::Io { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        let Some(rest) = left.checked_sub(1) else { return Ok(()) };
        *left = rest;
        if metadata.is_dir() || metadata.is_file() {
            secure(&path, &metadata, sharing)?;
        }
        if metadata.is_dir() {
            secure_entries(&path, sharing, left)?;
        }
    }
    Ok(())
}

fn secure(path: &Path, metadata: &Metadata, sharing: Sharing) -> Result<(), PermissionsError> {
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(PermissionsError::Owner { path: path.to_owned(), owner: metadata.uid() });
    }
    if mode & 0o002 != 0 {
        return Err(PermissionsError::Writable { path: path.to_owned(), mode });
    }
    let wanted = if metadata.is_dir() { sharing.folder_mode() } else { sharing.file_mode() };
    let is_right = match sharing {
        Sharing::Owner => mode & !wanted == 0,
        Sharing::Group => mode == wanted,
    };
    if is_right {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(wanted))
        .map_err(|source| PermissionsError::Io { path: path.to_owned(), source })
}

/// The first symbolic link in a folder, if there is one. A copy that follows it would read or write
/// outside of the folder.
pub fn find_link(folder: &Path) -> io::Result<Option<PathBuf>> {
    if fs::symlink_metadata(folder)?.is_symlink() {
        return Ok(Some(folder.to_owned()));
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            return Ok(Some(path));
        }
        if metadata.is_dir()
            && let Some(link) = find_link(&path)?
        {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn wide_permissions_are_narrowed() {
        let temporary = tempfile::tempdir().unwrap();
        let data = temporary.path().join("data");
        fs::create_dir_all(data.join("store")).unwrap();
        fs::write(data.join("store/file"), "x").unwrap();
        set(&data, 0o755);
        set(&data.join("store"), 0o775);
        set(&data.join("store/file"), 0o644);
        secure_folder(&data, Sharing::Owner).unwrap();
        assert_eq!([mode(&data), mode(&data.join("store"))], [0o700; 2]);
        assert_eq!(mode(&data.join("store/file")), 0o600);
        secure_folder(&data, Sharing::Group).unwrap();
        assert_eq!([mode(&data), mode(&data.join("store/file"))], [0o770, 0o660]);
    }

    #[test]
    fn what_every_user_may_change_is_refused_and_links_are_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let outside = temporary.path().join("outside");
        fs::write(&outside, "x").unwrap();
        set(&outside, 0o644);
        let data = temporary.path().join("data");
        secure_folder(&data, Sharing::Owner).unwrap();
        assert_eq!(find_link(&data).unwrap(), None);
        std::os::unix::fs::symlink(&outside, data.join("link")).unwrap();
        secure_folder(&data, Sharing::Owner).unwrap();
        assert_eq!(mode(&outside), 0o644);
        assert_eq!(find_link(temporary.path()).unwrap(), Some(data.join("link")));
        fs::write(data.join("open"), "x").unwrap();
        set(&data.join("open"), 0o666);
        let refused = secure_folder(&data, Sharing::Owner).unwrap_err();
        assert!(matches!(refused, PermissionsError::Writable { mode: 0o666, .. }), "{refused}");
    }
}
