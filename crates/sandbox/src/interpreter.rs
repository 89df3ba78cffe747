//! The program that runs cells, a Python interpreter or this binary: where it really is, and which files it
//! needs.
//!
//! A path may lead to a shim that starts another program. The interpreter itself is asked, once and
//! outside of the sandbox, where it lies and which libraries it has loaded; from the answer follows
//! the root that cells see.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::launch::Entry;

/// Where interpreters usually are, for callers that name none.
pub const USUAL_PATHS: [&str; 2] = ["/usr/bin/python3", "/usr/local/bin/python3"];

/// The oldest version that the sandbox supports.
const OLDEST: (u64, u64) = (3, 9);

const QUESTION: &str = r#"
import json, os, sys
import array, ctypes, fcntl, resource, select, socket, struct
maps = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print(json.dumps({
    "executable": sys.executable,
    "real": os.path.realpath(sys.executable),
    "prefixes": sorted({sys.base_prefix, sys.prefix}),
    "is_venv": sys.prefix != sys.base_prefix,
    "paths": [path for path in sys.path if os.path.isdir(path)],
    "libraries": sorted(path for path in maps if ".so" in path and os.path.isfile(path)),
    "version": list(sys.version_info[:3]),
}))
"#;

/// What runs the cells of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A Python interpreter.
    Python,
    /// This binary, whose child side is [`crate::native`].
    Native,
}

/// An interpreter, as it described itself.
#[derive(Debug, Clone)]
pub struct Interpreter {
    kind: Kind,
    executable: PathBuf,
    version: String,
    bound: Vec<PathBuf>,
}

/// Why an interpreter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// The program could not be started.
    #[error("cannot run {path}: {source}")]
    Run {
        /// The path that was tried.
        path: PathBuf,
        /// Why it could not be run.
        #[source]
        source: io::Error,
    },
    /// The program ran and is not an interpreter with the modules that are needed.
    #[error("{path} is not a usable Python: {reason}")]
    Unusable {
        /// The path that was tried.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Interpreter {
    /// Asks the interpreter at this path, which may be a shim, to describe itself.
    pub fn resolve(path: &Path) -> Result<Self, InterpreterError> {
        let output = Command::new(path)
            .args(["-I", "-c", QUESTION])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| InterpreterError::Run { path: path.to_owned(), source })?;
        let unusable =
            |reason: String| InterpreterError::Unusable { path: path.to_owned(), reason };
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().last().unwrap_or("it failed without a message").to_owned();
            return Err(unusable(last));
        }
        let answer: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| unusable(error.to_string()))?;
        Self::from_answer(&answer)
            .ok_or_else(|| unusable(format!("Python {}.{} or newer is needed", OLDEST.0, OLDEST.1)))
    }

    /// The first usable interpreter among the paths, or the last reason why there is none.
    pub fn first_of(paths: &[PathBuf]) -> Result<Self, InterpreterError> {
        let mut last = InterpreterError::Unusable {
            path: PathBuf::from("python3"),
            reason: "no interpreter was found; install Python 3".to_owned(),
        };
        for path in paths.iter().filter(|path| path.is_file()) {
            match Self::resolve(path) {
                Ok(found) => return Ok(found),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn from_answer(answer: &Value) -> Option<Self> {
        let path = |name: &str| answer[name].as_str().map(PathBuf::from);
        let list = |name: &str| {
            let strings = answer[name].as_array()?.iter().filter_map(Value::as_str);
            Some(strings.map(PathBuf::from).collect::<Vec<_>>())
        };
        let version: Vec<u64> =
            answer["version"].as_array()?.iter().filter_map(Value::as_u64).collect();
        let [major, minor, patch] = version.as_slice() else { return None };
        if (*major, *minor) < OLDEST {
            return None;
        }
        let is_venv = answer["is_venv"].as_bool()?;
        let real = path("real")?;
        let executable = if is_venv {
            let named = path("executable")?;
            named.parent()?.canonicalize().ok()?.join(named.file_name()?)
        } else {
            real.clone()
        };
        let is_shared = |prefix: &PathBuf| {
            ["/", "/usr", "/usr/local"].iter().any(|shared| prefix == Path::new(shared))
        };
        let mut bound: Vec<PathBuf> = vec![real];
        bound.extend(list("prefixes")?.into_iter().filter(|prefix| !is_shared(prefix)));
        bound.extend(list("paths")?);
        bound.extend(library_folders(&list("libraries")?));
        bound.extend(existing(&["/usr/share/zoneinfo"]));
        Some(Interpreter {
            kind: Kind::Python,
            executable,
            version: format!("{major}.{minor}.{patch}"),
            bound: outermost(bound),
        })
    }

    /// This binary, which runs cells when it is executed with [`crate::native::ARGUMENT`].
    pub fn this_binary() -> io::Result<Self> {
        let executable = std::env::current_exe()?.canonicalize()?;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let path = |line: &str| line.split_whitespace().nth(5).map(PathBuf::from);
        let is_library = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"))
        };
        let libraries: Vec<PathBuf> = maps.lines().filter_map(path).filter(is_library).collect();
        let mut bound = library_folders(&libraries);
        bound.push(executable.clone());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Interpreter { kind: Kind::Native, executable, version, bound: outermost(bound) })
    }

    /// Whether cells are programs of this binary.
    pub(crate) fn is_native(&self) -> bool {
        self.kind == Kind::Native
    }

    /// The same with another folder of the host that cells may read.
    #[must_use]
    pub fn with_folder(mut self, folder: &Path) -> Self {
        self.bound.push(folder.to_owned());
        self.bound = outermost(self.bound);
        self
    }

    /// The program to execute.
    pub fn executable(&self) -> &Path {
        &self.executable
    }

    /// `3.11.7`, for instance.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Paths of the host that cells may read.
    pub(crate) fn readable(&self) -> &[PathBuf] {
        &self.bound
    }

    /// The root that cells see.
    pub(crate) fn root(&self) -> Vec<Entry> {
        let mut root: Vec<Entry> = Vec::new();
        // Links of the file system's own layout, such as `/lib` for `/usr/lib`.
        for name in ["/lib", "/lib64", "/lib32", "/bin"] {
            if let Ok(target) = std::fs::read_link(name) {
                root.push(Entry::Link(PathBuf::from(name), target));
            }
        }
        root.extend(self.bound.iter().cloned().map(Entry::Bind));
        let is_used = |path: &Path| {
            let is_link = |entry: &Entry| matches!(entry, Entry::Link(link, _) if link == path);
            self.bound.iter().any(|bound| bound.starts_with(path)) || root.iter().any(is_link)
        };
        // An interpreter may lie below these; the links are then left out, and `TMPDIR` leads the way.
        let links = [("/tmp", "/job/tmp"), ("/dev/shm", "/job/shm")];
        let links: Vec<_> = links
            .iter()
            .filter(|(link, _)| !is_used(Path::new(link)))
            .map(|(link, target)| Entry::Link(PathBuf::from(link), PathBuf::from(target)))
            .collect();
        let shut = [
            "/boot", "/home", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin", "/srv",
            "/sys", "/var",
        ];
        let shut: Vec<_> = shut
            .iter()
            .map(Path::new)
            .filter(|path| !is_used(path))
            .map(|path| Entry::Folder(path.to_owned(), 0))
            .collect();
        root.extend(shut);
        // A cell that looks for these is told that it may not, rather than that they do not exist.
        for name in [
            "passwd",
            "shadow",
            "group",
            "hosts",
            "hostname",
            "resolv.conf",
            "machine-id",
            "sudoers",
        ] {
            root.push(Entry::File(Path::new("/etc").join(name), 0));
        }
        for name in ["ssh", "ssl"] {
            root.push(Entry::Folder(Path::new("/etc").join(name), 0));
        }
        root.extend(DEVICES.iter().map(|device| Entry::Device(PathBuf::from(device))));
        // For what modules write while they are preloaded. Each worker mounts its own folder over it.
        root.push(Entry::Scratch(PathBuf::from("/job")));
        root.extend(links);
        root
    }
}

/// The folders of libraries, and where the loader looks for them.
fn library_folders(libraries: &[PathBuf]) -> Vec<PathBuf> {
    let real_parent = |library: &PathBuf| library.canonicalize().ok()?.parent().map(Path::to_owned);
    let mut folders: Vec<PathBuf> = libraries.iter().filter_map(real_parent).collect();
    folders.extend(existing(&["/lib64", "/usr/lib64", "/etc/ld.so.cache"]));
    folders
}

fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// Devices that cells have.
pub(crate) const DEVICES: [&str; 5] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Resolves symbolic links in the folders of each path and drops what another path contains.
fn outermost(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let resolved = |path: PathBuf| path.canonicalize().ok();
    let mut sorted: Vec<PathBuf> = paths.into_iter().filter_map(resolved).collect();
    sorted.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in sorted {
        if !kept.iter().any(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contained_paths_are_dropped() {
        let paths = ["/usr/lib", "/usr", "/etc"].map(PathBuf::from).to_vec();
        let expected = ["/etc", "/usr"].map(PathBuf::from).to_vec();
        assert_eq!(outermost(paths), expected);
    }

    #[test]
    fn old_interpreters_are_refused() {
        let answer = serde_json::json!({
            "executable": "/usr/bin/python3", "real": "/usr/bin/python3", "prefixes": ["/usr"],
            "is_venv": false, "paths": [], "libraries": [], "version": [3, 6, 15],
        });
        assert!(Interpreter::from_answer(&answer).is_none());
    }
}
