//! Cgroups: limits and counters for all processes of a cell together.
//!
//! Hosts differ. Controllers may be in hierarchies of version 1, in the one of version 2, or
//! nowhere; version 2 may exist next to version 1 with nothing but the freezer and the counter of
//! CPU time. Each feature is taken from where it works, and what works nowhere is reported as
//! missing: the supervisor then polls.
//!
//! The freezer of version 1 is not used: its frozen processes cannot be killed, so that a supervisor
//! that crashed would leave them behind. SIGSTOP takes its place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Pid;

/// Where the features of this host are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Folder of the caller's own cgroup in the hierarchy of each controller of version 1.
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    /// Folder of the caller's own cgroup in the hierarchy of version 2.
    unified: Option<PathBuf>,
}

/// The parent of all cgroups of one sandbox. Removes itself when dropped.
#[derive(Debug)]
pub(crate) struct Cgroups {
    memory: Option<(Version, PathBuf)>,
    pids: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    unified: Option<PathBuf>,
    next: AtomicU64,
    /// Why features are missing.
    reasons: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The cgroups of one cell. Removes itself when dropped, as soon as it is empty.
#[derive(Debug)]
pub(crate) struct Group {
    memory: Option<(Version, PathBuf)>,
    pids: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    unified: Option<PathBuf>,
}

impl Layout {
    /// Reads where the calling process is.
    pub(crate) fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::parse(&mounts, &own)
    }

    fn parse(mounts: &str, own: &str) -> Self {
        let mut layout = Layout::default();
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let before: Vec<&str> = before.split(' ').collect();
            let after: Vec<&str> = after.split(' ').collect();
            let (Some(root), Some(point)) = (before.get(3), before.get(4)) else { continue };
            let (Some(kind), options) = (after.first(), after.get(2).unwrap_or(&"")) else {
                continue;
            };
            let folder = |controller: &str| {
                let path = own_path(own, controller)?;
                let below = Path::new(path).strip_prefix(root).ok()?;
                Some(Path::new(point).join(below))
            };
            match *kind {
                "cgroup2" => layout.unified = layout.unified.or_else(|| folder("")),
                "cgroup" => {
                    let has = |name: &str| options.split(',').any(|option| option == name);
                    if has("memory") {
                        layout.memory = folder("memory");
                    }
                    if has("pids") {
                        layout.pids = folder("pids");
                    }
                    if has("cpuacct") {
                        layout.cpuacct = folder("cpuacct");
                    }
                }
                _ => {}
            }
        }
        layout
    }
}

/// The caller's path in the hierarchy of a controller; the empty name is version 2.
fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_wanted = if controller.is_empty() {
            names.is_empty()
        } else {
            names.split(',').any(|name| name == controller)
        };
        is_wanted.then_some(path)
    })
}

impl Cgroups {
    /// Makes a parent folder in every hierarchy that allows it.
    pub(crate) fn create(layout: &Layout, name: &str) -> Self {
        let mut reasons = Vec::new();
        let own = [&layout.memory, &layout.pids, &layout.cpuacct, &layout.unified];
        own.into_iter().flatten().for_each(|own| remove_stale(own));
        let mut make = |what: &str, own: &Option<PathBuf>| {
            let Some(own) = own else {
                reasons.push(format!("{what}: no hierarchy"));
                return None;
            };
            let folder = own.join(name);
            match fs::create_dir(&folder) {
                Ok(()) => Some(folder),
                Err(error) => {
                    reasons.push(format!("{what}: cannot create a cgroup: {error}"));
                    None
                }
            }
        };
        let unified = make("cgroup v2", &layout.unified);
        let mut memory = None;
        let mut pids = None;
        if let (Some(folder), Some(own)) = (&unified, &layout.unified) {
            match enable_controllers(own, folder) {
                Ok(enabled) => {
                    if enabled.contains("memory") {
                        memory = Some((Version::Two, folder.clone()));
                    }
                    if enabled.contains("pids") {
                        pids = Some(folder.clone());
                    }
                }
                Err(error) => reasons.push(format!("cgroup v2 controllers: {error}")),
            }
        }
        let mut make = |what: &str, own: &Option<PathBuf>| {
            let folder = own.as_ref()?.join(name);
            let made = fs::create_dir(&folder);
            made.map(|()| folder).map_err(|error| reasons.push(format!("{what}: {error}"))).ok()
        };
        if memory.is_none() {
            memory = make("memory", &layout.memory).map(|folder| (Version::One, folder));
        }
        if pids.is_none() {
            pids = make("pids", &layout.pids);
        }
        let cpuacct = match &unified {
            // Version 2 counts CPU time without any controller.
            Some(_) => None,
            None => make("cpuacct", &layout.cpuacct),
        };
        if memory.is_none() && !reasons.iter().any(|reason| reason.starts_with("memory")) {
            reasons.push("memory: no controller is available".to_owned());
        }
        Cgroups { memory, pids, cpuacct, unified, next: AtomicU64::new(0), reasons }
    }

    /// A sandbox without cgroups.
    pub(crate) fn none(reason: &str) -> Self {
        Cgroups {
            memory: None,
            pids: None,
            cpuacct: None,
            unified: None,
            next: AtomicU64::new(0),
            reasons: vec![reason.to_owned()],
        }
    }

    /// What works, and what is missing and why, for people.
    pub(crate) fn describe(&self) -> (Vec<String>, Vec<String>) {
        let mut works = Vec::new();
        if let Some((version, _)) = &self.memory {
            let number = if *version == Version::One { 1 } else { 2 };
            works.push(format!("memory (v{number})"));
        }
        if self.pids.is_some() {
            works.push("pids".to_owned());
        }
        if self.unified.is_some() {
            works.push("freezer, kill and CPU time (v2)".to_owned());
        } else if self.cpuacct.is_some() {
            works.push("CPU time (v1)".to_owned());
        }
        (works, self.reasons.clone())
    }

    /// Makes the cgroups for one worker.
    pub(crate) fn group(&self) -> io::Result<Group> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut group = Group { memory: None, pids: None, cpuacct: None, unified: None };
        let make = |parent: &Option<PathBuf>| -> io::Result<Option<PathBuf>> {
            let Some(parent) = parent else { return Ok(None) };
            let folder = parent.join(&name);
            match fs::create_dir(&folder) {
                // Controllers of version 2 share one folder.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(Some(folder)),
            }
        };
        group.unified = make(&self.unified)?;
        if let Some((version, parent)) = &self.memory {
            group.memory = make(&Some(parent.clone()))?.map(|folder| (*version, folder));
        }
        group.pids = make(&self.pids)?;
        group.cpuacct = make(&self.cpuacct)?;
        Ok(group)
    }
}

/// Enables the controllers of version 2 for children of `folder`, which lies in `own`. Returns the
/// list of those that are enabled.
fn enable_controllers(own: &Path, folder: &Path) -> io::Result<String> {
    let available = fs::read_to_string(own.join("cgroup.controllers"))?;
    let has = |name: &str| available.split_whitespace().any(|controller| controller == name);
    let wanted: Vec<String> =
        ["memory", "pids"].iter().filter(|name| has(name)).map(|name| format!("+{name}")).collect();
    if wanted.is_empty() {
        return Err(io::Error::other("neither memory nor pids is available here"));
    }
    let wanted = wanted.join(" ");
    let control = own.join("cgroup.subtree_control");
    if let Err(error) = fs::write(&control, &wanted) {
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
        // A cgroup with processes cannot have controlled children: move into a leaf. Only our own
        // process may be moved; a cgroup with others was not delegated to us.
        let own_pid = std::process::id().to_string();
        let processes = fs::read_to_string(own.join("cgroup.procs"))?;
        if processes.lines().any(|pid| pid != own_pid) {
            let hint = "its cgroup has other processes; start it in one of its own (Delegate=yes)";
            return Err(io::Error::other(hint));
        }
        let leaf = own.join("catena-supervisor");
        match fs::create_dir(&leaf) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::write(leaf.join("cgroup.procs"), own_pid)?;
        fs::write(&control, &wanted)?;
    }
    fs::write(folder.join("cgroup.subtree_control"), &wanted)?;
    fs::read_to_string(folder.join("cgroup.subtree_control"))
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let memory = self.memory.take().map(|(_, folder)| folder);
        let folders = [memory, self.pids.take(), self.cpuacct.take(), self.unified.take()];
        folders.into_iter().flatten().for_each(|folder| remove(&folder));
    }
}

impl Group {
    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let memory = self.memory.as_ref().map(|(_, folder)| folder);
        let all = [memory, self.pids.as_ref(), self.cpuacct.as_ref(), self.unified.as_ref()];
        let mut seen: Vec<&PathBuf> = Vec::new();
        for folder in all.into_iter().flatten() {
            if !seen.contains(&folder) {
                seen.push(folder);
            }
        }
        seen.into_iter()
    }

    /// Moves a process into the cgroups. Its children will be in them, too.
    pub(crate) fn attach(&self, pid: Pid) -> io::Result<()> {
        let text = pid.as_raw_nonzero().to_string();
        self.folders().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), &text))
    }

    /// Sets the limits: memory in bytes, and processes.
    pub(crate) fn limit(&self, memory_bytes: u64, processes: u64) -> io::Result<()> {
        match &self.memory {
            Some((Version::One, folder)) => {
                fs::write(folder.join("memory.limit_in_bytes"), memory_bytes.to_string())?;
                // Not there unless swap is accounted for.
                let _ =
                    fs::write(folder.join("memory.memsw.limit_in_bytes"), memory_bytes.to_string());
            }
            Some((Version::Two, folder)) => {
                fs::write(folder.join("memory.max"), memory_bytes.to_string())?;
                let _ = fs::write(folder.join("memory.swap.max"), "0");
                let _ = fs::write(folder.join("memory.oom.group"), "1");
            }
            None => {}
        }
        match &self.pids {
            Some(folder) => fs::write(folder.join("pids.max"), processes.to_string()),
            None => Ok(()),
        }
    }

    /// Processes killed for lack of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let Some((version, folder)) = &self.memory else { return 0 };
        let name = match version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        field(&folder.join(name), "oom_kill").unwrap_or(0)
    }

    /// Forks and threads refused by the limit.
    pub(crate) fn process_refusals(&self) -> Option<u64> {
        field(&self.pids.as_ref()?.join("pids.events"), "max")
    }

    /// CPU time of all processes so far.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        if let Some(folder) = &self.unified {
            return field(&folder.join("cpu.stat"), "usage_usec").map(Duration::from_micros);
        }
        let text = fs::read_to_string(self.cpuacct.as_ref()?.join("cpuacct.usage")).ok()?;
        text.trim().parse().ok().map(Duration::from_nanos)
    }

    /// The most memory at one time, in bytes.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        let (version, folder) = self.memory.as_ref()?;
        let name = match version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    }

    /// Whether processes can be frozen.
    pub(crate) fn can_freeze(&self) -> bool {
        self.unified.as_ref().is_some_and(|folder| folder.join("cgroup.freeze").exists())
    }

    /// Freezes or thaws all processes.
    pub(crate) fn freeze(&self, is_frozen: bool) -> io::Result<()> {
        let Some(folder) = &self.unified else { return Err(io::ErrorKind::Unsupported.into()) };
        fs::write(folder.join("cgroup.freeze"), if is_frozen { "1" } else { "0" })
    }

    /// Whether the kernel has stopped every process.
    pub(crate) fn is_frozen(&self) -> bool {
        let Some(folder) = &self.unified else { return false };
        field(&folder.join("cgroup.events"), "frozen") == Some(1)
    }

    /// Kills every process, frozen ones as well, if the kernel has that.
    pub(crate) fn kill(&self) {
        if let Some(folder) = &self.unified {
            let _ = fs::write(folder.join("cgroup.kill"), "1");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.folders().for_each(|folder| remove(folder));
    }
}

/// Removes an empty cgroup. Processes that have just ended can keep it busy for a moment.
fn remove(folder: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(folder) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                crate::clock::pause(Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

/// Removes empty cgroups of supervisors that were killed. One with processes cannot be removed.
fn remove_stale(own: &Path) {
    let folders = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in folders(own) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("catena-").and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        for inner in folders(&entry.path()).filter(|inner| inner.path().is_dir()) {
            let _ = fs::remove_dir(inner.path());
        }
        let _ = fs::remove_dir(entry.path());
    }
}

/// The number after a name in a file of `name number` lines.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_in_both_versions() {
        let mounts = "\
30 1 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 1 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
32 1 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 1 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let own = "4:memory:/a/b\n8:pids:/\n2:cpu,cpuacct:/c\n0::/d\n";
        let layout = Layout::parse(mounts, own);
        assert_eq!(layout.memory, Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(layout.pids, Some("/sys/fs/cgroup/pids".into()));
        assert_eq!(layout.cpuacct, Some("/sys/fs/cgroup/cpu,cpuacct/c".into()));
        assert_eq!(layout.unified, Some("/sys/fs/cgroup/unified/d".into()));
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_hierarchy() {
        let mounts = "33 1 0:29 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let layout = Layout::parse(mounts, "0::/box/inner\n");
        assert_eq!(layout.unified, Some("/sys/fs/cgroup/inner".into()));
        assert_eq!(Layout::parse(mounts, "0::/outside\n").unified, None);
    }

    #[test]
    fn counters_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.events");
        fs::write(&path, "low 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 3\n").unwrap();
        assert_eq!(field(&path, "oom_kill"), Some(2));
        assert_eq!(field(&path, "oom"), Some(1));
        assert_eq!(field(&path, "absent"), None);
    }

    #[test]
    fn a_host_without_cgroups_says_so() {
        let cgroups = Cgroups::create(&Layout::default(), "catena-test");
        let (works, missing) = cgroups.describe();
        assert!(works.is_empty(), "{works:?}");
        assert!(missing.iter().any(|reason| reason.starts_with("memory")), "{missing:?}");
        let group = cgroups.group().unwrap();
        assert_eq!((group.oom_kills(), group.cpu_time(), group.memory_peak()), (0, None, None));
    }

    #[test]
    fn controllers_of_version_two_are_enabled_where_they_are() {
        let own = tempfile::tempdir().unwrap();
        let folder = own.path().join("catena-1-0");
        fs::create_dir(&folder).unwrap();
        let enabled = |available: &str| {
            fs::write(own.path().join("cgroup.controllers"), available).unwrap();
            enable_controllers(own.path(), &folder)
        };
        assert_eq!(enabled("cpuset cpu io memory pids\n").unwrap(), "+memory +pids");
        assert_eq!(enabled("cpu memory\n").unwrap(), "+memory");
        assert!(enabled("hugetlb\n").is_err());
    }

    /// A folder that looks like a cgroup of version 2 with these controllers.
    fn unified(controllers: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        folder
    }

    #[test]
    fn a_delegated_cgroup_with_controllers_needs_nothing_of_version_one() {
        let own = unified("cpuset cpu io memory pids\n");
        let older = tempfile::tempdir().unwrap();
        let layout = Layout {
            memory: Some(older.path().to_owned()),
            pids: Some(older.path().to_owned()),
            cpuacct: Some(older.path().to_owned()),
            unified: Some(own.path().to_owned()),
        };
        let cgroups = Cgroups::create(&layout, "catena-1-0");
        let expected = ["memory (v2)", "pids", "freezer, kill and CPU time (v2)"];
        assert_eq!(cgroups.describe().0, expected, "{:?}", cgroups.describe().1);
        assert_eq!(fs::read_dir(older.path()).unwrap().count(), 0, "nothing of version 1");
        let control = fs::read_to_string(own.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(control, "+memory +pids");
        let group = cgroups.group().unwrap();
        let folder = own.path().join("catena-1-0").join("w0");
        assert_eq!(group.folders().collect::<Vec<_>>(), [&folder]);
        group.limit(1 << 20, 9).unwrap();
        group.attach(rustix::process::getpid()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("1048576".into(), "0".into()));
        assert_eq!(
            (read("pids.max"), read("cgroup.procs")),
            ("9".into(), std::process::id().to_string())
        );
        fs::write(folder.join("memory.events"), "max 3\noom 1\noom_kill 1\n").unwrap();
        fs::write(folder.join("memory.peak"), "4096\n").unwrap();
        fs::write(folder.join("pids.events"), "max 2\n").unwrap();
        fs::write(folder.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        let counters = (group.oom_kills(), group.memory_peak(), group.process_refusals());
        assert_eq!(counters, (1, Some(4096), Some(2)));
        assert!(group.is_frozen());
    }

    #[test]
    fn what_version_two_lacks_is_taken_from_version_one() {
        for (controllers, expected) in [
            ("hugetlb\n", ["memory (v1)", "pids", "freezer, kill and CPU time (v2)"]),
            ("pids\n", ["memory (v1)", "pids", "freezer, kill and CPU time (v2)"]),
            ("memory pids\n", ["memory (v2)", "pids", "freezer, kill and CPU time (v2)"]),
        ] {
            let own = unified(controllers);
            let [memory, pids] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let layout = Layout {
                memory: Some(memory.path().to_owned()),
                pids: Some(pids.path().to_owned()),
                cpuacct: None,
                unified: Some(own.path().to_owned()),
            };
            let cgroups = Cgroups::create(&layout, "catena-1-0");
            assert_eq!(cgroups.describe().0, expected, "{controllers}");
        }
        // A plain user to whom nothing was delegated, and a host with version 2 alone and no controllers.
        let layout = Layout { unified: Some("/proc/no/such/cgroup".into()), ..Layout::default() };
        let (works, missing) = Cgroups::create(&layout, "catena-1-0").describe();
        assert!(works.is_empty() && missing.len() >= 2, "{works:?} {missing:?}");
        let own = unified("");
        let layout = Layout { unified: Some(own.path().to_owned()), ..Layout::default() };
        let (works, missing) = Cgroups::create(&layout, "catena-1-0").describe();
        assert_eq!(works, ["freezer, kill and CPU time (v2)"]);
        assert!(
            missing.iter().any(|reason| reason.contains("neither memory nor pids")),
            "{missing:?}"
        );
    }

    #[test]
    fn version_two_writes_its_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group {
            memory: Some((Version::Two, folder.path().to_owned())),
            pids: Some(folder.path().to_owned()),
            cpuacct: None,
            unified: Some(folder.path().to_owned()),
        };
        group.limit(1024, 7).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("memory.max"), "1024");
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("pids.max"), "7");
        fs::write(folder.path().join("cpu.stat"), "usage_usec 42\nuser_usec 1\n").unwrap();
        assert_eq!(group.cpu_time(), Some(Duration::from_micros(42)));
        group.freeze(true).unwrap();
        assert_eq!(read("cgroup.freeze"), "1");
        assert_eq!(group.folders().count(), 1);
    }
}
