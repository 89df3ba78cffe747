//! Collects the files that a cell left in its folder.
//!
//! Every process of the cell is dead by then, so nothing changes while we look. Still, nothing in
//! the folder is trusted: names are resolved below the folder and through no link, only regular
//! files are read, sizes are checked before a byte is read, and what a file is follows from its
//! content.

pub(crate) mod format;
mod names;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, MemfdFlags, Mode, OFlags, ResolveFlags};
use sha2::{Digest as _, Sha256};

use crate::limits::{ARTIFACT_DEPTH_MAX, ENTRIES_VISITED_MAX, Limits, REFUSED_REPORTED_MAX};

/// A file that a cell produced.
#[derive(Debug)]
pub struct Artifact {
    /// Its path in the job folder.
    pub name: String,
    /// Its format as a file extension, such as `png`.
    pub format: String,
    /// Its media type.
    pub content_type: &'static str,
    /// Its size.
    pub size_bytes: u64,
    /// SHA-256 of its content, as 64 hex digits.
    pub sha256: String,
    /// Width in pixels, for images.
    pub width: Option<u32>,
    /// Height in pixels, for images.
    pub height: Option<u32>,
    /// A private copy of its content, positioned at the beginning.
    pub file: File,
}

/// A file that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedFile {
    /// Its path in the job folder, with unprintable characters replaced.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What was collected.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) refused: Vec<RefusedFile>,
    pub(crate) refused_more: u64,
}

/// Which files are wanted, and where copies are put.
pub(crate) struct Rules<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) formats: Option<&'a [String]>,
    /// A folder for copies; they are kept in memory without one.
    pub(crate) spool: Option<&'a PathBuf>,
}

/// The folder of input files, which belongs to the supervisor.
const INPUTS: &str = "inputs";

/// Collects what is in the folder.
pub(crate) fn collect(folder: BorrowedFd<'_>, rules: &Rules<'_>) -> Collected {
    let mut collector =
        Collector { rules, found: BTreeSet::new(), visited: 0, out: Collected::default() };
    collector.walk(folder, "", 0);
    let found = std::mem::take(&mut collector.found);
    let clashes = names::clashes(found.iter().map(String::as_str));
    let mut total = 0u64;
    for name in found {
        if clashes.contains(&name) {
            collector.refuse(&name, "another file has the same name but for case or Unicode form");
            continue;
        }
        if collector.out.artifacts.len() >= rules.limits.max_artifacts {
            collector.refuse(&name, "more artifacts than max_artifacts allows");
            continue;
        }
        match accept(folder, &name, rules, total) {
            Ok(artifact) => {
                total += artifact.size_bytes;
                collector.out.artifacts.push(artifact);
            }
            Err(reason) => collector.refuse(&name, reason),
        }
    }
    collector.out
}

struct Collector<'a> {
    rules: &'a Rules<'a>,
    found: BTreeSet<String>,
    visited: usize,
    out: Collected,
}

impl Collector<'_> {
    fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        if self.out.refused.len() >= REFUSED_REPORTED_MAX {
            self.out.refused_more += 1;
            return;
        }
        let name = names::printable(name);
        self.out.refused.push(RefusedFile { name, reason: reason.into() });
    }

    fn walk(&mut self, folder: BorrowedFd<'_>, prefix: &str, depth: usize) {
        if depth > ARTIFACT_DEPTH_MAX {
            self.refuse(prefix, "folders are nested too deeply");
            return;
        }
        let Ok(entries) = Dir::read_from(folder) else {
            self.refuse(prefix, "the folder cannot be read");
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else { return };
            let raw = entry.file_name().to_bytes();
            if raw == b"." || raw == b".." || (depth == 0 && raw == INPUTS.as_bytes()) {
                continue;
            }
            self.visited += 1;
            if self.visited > ENTRIES_VISITED_MAX {
                self.refuse(prefix, "the folder has too many entries; the rest was not looked at");
                return;
            }
            let shown = format!("{prefix}{}", String::from_utf8_lossy(raw));
            let name = match std::str::from_utf8(raw).map(|name| format!("{prefix}{name}")) {
                Ok(name) => name,
                Err(_) => {
                    self.refuse(&shown, "the name is not UTF-8");
                    continue;
                }
            };
            if let Err(reason) = names::check(&name) {
                self.refuse(&shown, reason);
                continue;
            }
            self.visit(folder, entry.file_name(), &name, depth);
        }
    }

    fn visit(&mut self, folder: BorrowedFd<'_>, entry: &CStr, name: &str, depth: usize) {
        // What it is comes first: opening a FIFO or a device can have effects of its own.
        let Ok(stat) = rustix::fs::statat(folder, entry, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        else {
            return self.refuse(name, "the file cannot be examined");
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => match open_beneath(folder, entry) {
                Ok(inner) => self.walk(inner.as_fd(), &format!("{name}/"), depth + 1),
                Err(reason) => self.refuse(name, reason),
            },
            FileType::RegularFile if self.is_wanted(name) => {
                self.found.insert(name.to_owned());
            }
            FileType::RegularFile => {}
            FileType::Symlink => self.refuse(name, "symbolic links are not followed"),
            _ => self.refuse(name, "not a regular file"),
        }
    }

    /// Whether the caller asked for files of this format.
    fn is_wanted(&self, name: &str) -> bool {
        let extension = format::extension(name);
        let is_asked = |formats: &[String]| formats.iter().any(|f| format::is_same(f, &extension));
        self.rules.formats.is_none_or(is_asked)
    }
}

fn open_beneath(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, String> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)
        .map_err(|errno| format!("the file cannot be opened: {errno}"))
}

/// Copies a file and describes the copy.
fn accept(
    folder: BorrowedFd<'_>,
    name: &str,
    rules: &Rules<'_>,
    total_before: u64,
) -> Result<Artifact, String> {
    let path = CString::new(name).map_err(|error| error.to_string())?;
    let file = File::from(open_beneath(folder, &path)?);
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let size = metadata.len();
    if size > rules.limits.artifact_bytes_max {
        let most = rules.limits.artifact_bytes_max;
        return Err(format!("the file has {size} bytes; an artifact may have {most}"));
    }
    if total_before + size > rules.limits.artifacts_bytes_max {
        let most = rules.limits.artifacts_bytes_max;
        return Err(format!("all artifacts together would have more than {most} bytes"));
    }
    let unreadable = |error: io::Error| format!("the file cannot be copied: {error}");
    let (mut copy, sha256, copied) = copy_and_hash(file, size, rules.spool).map_err(unreadable)?;
    let extension = format::extension(name);
    let content_type = format::check(&extension, &mut copy, copied)?;
    let dimensions = format::dimensions(&extension, &mut copy).map_err(unreadable)?;
    copy.rewind().map_err(unreadable)?;
    Ok(Artifact {
        name: name.to_owned(),
        format: extension,
        content_type,
        size_bytes: copied,
        sha256,
        width: dimensions.map(|(width, _)| width),
        height: dimensions.map(|(_, height)| height),
        file: copy,
    })
}

/// Reads a file once, into a copy that only we can reach, and hashes what was copied.
fn copy_and_hash(
    file: File,
    size: u64,
    spool: Option<&PathBuf>,
) -> io::Result<(File, String, u64)> {
    let mut copy = match spool {
        Some(folder) => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?)
        }
        None => File::from(rustix::fs::memfd_create("artifact", MemfdFlags::CLOEXEC)?),
    };
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 64 << 10];
    let mut source = file.take(size);
    let mut copied = 0u64;
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        copy.write_all(&buffer[..count])?;
        copied += count as u64;
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    copy.rewind()?;
    Ok((copy, digest, copied))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(limits: &Limits, fill: impl FnOnce(&std::path::Path)) -> Collected {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let fd = File::open(folder.path()).unwrap();
        collect(fd.as_fd(), &Rules { limits, formats: None, spool: None })
    }

    #[test]
    fn a_file_is_copied_hashed_and_described() {
        let out = collected(&Limits::default(), |folder| {
            std::fs::create_dir(folder.join("sub")).unwrap();
            std::fs::write(folder.join("sub/a.txt"), "hello").unwrap();
        });
        let [artifact] = out.artifacts.as_slice() else { panic!("{out:?}") };
        assert_eq!((artifact.name.as_str(), artifact.size_bytes), ("sub/a.txt", 5));
        assert_eq!(artifact.content_type, "text/plain; charset=utf-8");
        assert_eq!(
            artifact.sha256,
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        let mut text = String::new();
        let mut file = &artifact.file;
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn links_and_names_that_clash_are_refused() {
        let out = collected(&Limits::default(), |folder| {
            std::os::unix::fs::symlink("/etc/passwd", folder.join("link.txt")).unwrap();
            std::fs::write(folder.join("a.txt"), "1").unwrap();
            std::fs::write(folder.join("A.TXT"), "2").unwrap();
            std::fs::write(folder.join("\u{e9}.txt"), "3").unwrap();
            std::fs::write(folder.join("e\u{301}.txt"), "4").unwrap();
            std::fs::write(folder.join("fine.txt"), "5").unwrap();
        });
        let names: Vec<_> = out.artifacts.iter().map(|artifact| artifact.name.as_str()).collect();
        assert_eq!(names, ["fine.txt"]);
        assert_eq!(out.refused.len(), 5);
    }

    #[test]
    fn limits_are_kept_before_anything_is_read() {
        let limits = Limits {
            max_artifacts: 2,
            artifact_bytes_max: 10,
            artifacts_bytes_max: 15,
            ..Limits::default()
        };
        let out = collected(&limits, |folder| {
            std::fs::write(folder.join("a.bin"), [0; 8]).unwrap();
            std::fs::write(folder.join("b.bin"), [0; 8]).unwrap();
            let sparse = File::create(folder.join("c.bin")).unwrap();
            sparse.set_len(1 << 40).unwrap();
        });
        assert_eq!(out.artifacts.len(), 1, "{out:?}");
        let reasons: Vec<_> = out.refused.iter().map(|refused| refused.reason.as_str()).collect();
        assert!(reasons.iter().any(|reason| reason.contains("together")), "{reasons:?}");
        assert!(
            reasons.iter().any(|reason| reason.contains("an artifact may have")),
            "{reasons:?}"
        );
    }
}
