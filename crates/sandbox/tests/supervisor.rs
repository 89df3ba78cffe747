//! What happens when the supervisor itself is killed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a test with two processes")]

mod support;

use std::fs;
use std::path::PathBuf;

use catena_sandbox::Config;
use support::{cell, run, skip, start};

/// A supervisor that is killed takes everything with it.
#[test]
fn cells_die_with_their_supervisor() {
    const MARK: &str = "CATENA_SANDBOX_TEST_VICTIM";
    if std::env::var_os(MARK).is_some() {
        let Some(sandbox) = start(Config { pool: 2, ..Config::new(support::profile()) }) else {
            println!("skipped");
            return;
        };
        println!("started");
        run(&sandbox, &cell("import os, time\nos.fork()\ntime.sleep(60)"));
        return;
    }
    use std::io::BufRead as _;
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["cells_die_with_their_supervisor", "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
    let told = lines
        .map_while(Result::ok)
        .find(|line| line.contains("started") || line.contains("skipped"));
    let told = told.unwrap_or_default();
    let pid = victim.id();
    let started = children_of(pid);
    assert!(told.contains("skipped") || started.len() >= 2, "{started:?}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    if told.contains("skipped") {
        return skip("no tier works");
    }
    // The kernel closes the sockets, and the init processes and the zygote end because of it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let group = format!("catena-{pid}-");
    loop {
        let living: Vec<_> = started.iter().filter(|process| process.is_alive()).collect();
        let left = processes_in(&group);
        if left == 0 && living.is_empty() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{left} and {living:?} are left");
        std::thread::yield_now();
    }
    // The next sandbox removes the empty cgroups of supervisors that are gone.
    let Some(next) = start(Config { pool: 1, ..Config::new(support::profile()) }) else { return };
    drop(next);
    assert_eq!(cgroups_named(&group), Vec::<PathBuf>::new());
}

/// A process, known by its number and the moment of its start.
#[derive(Debug)]
struct Process {
    pid: u32,
    start: String,
}

impl Process {
    fn is_alive(&self) -> bool {
        let fields = stat(self.pid);
        fields.as_ref().is_some_and(|fields| fields[19] == self.start && fields[0] != "Z")
    }
}

/// The fields of `/proc/PID/stat` from the third one, the state, on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text[text.rfind(')')? + 2..].split(' ').map(str::to_owned).collect())
}

fn children_of(parent: u32) -> Vec<Process> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_string_lossy().parse::<u32>().ok());
    pids.filter_map(|pid| {
        let fields = stat(pid)?;
        (fields[1] == parent.to_string()).then(|| Process { pid, start: fields[19].clone() })
    })
    .collect()
}

/// Processes in cgroups whose name begins like this.
fn processes_in(name: &str) -> usize {
    let mut count = 0;
    for folder in cgroups_named(name) {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        count += text.lines().count();
    }
    count
}

fn cgroups_named(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![(PathBuf::from("/sys/fs/cgroup"), false)];
    while let Some((folder, is_inside)) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let is_inside = is_inside || entry.file_name().to_string_lossy().starts_with(name);
                if is_inside {
                    found.push(entry.path());
                }
                waiting.push((entry.path(), is_inside));
            }
        }
    }
    found
}
