//! Processes of the sandbox that die while they are idle are replaced.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::fs;
use std::time::Duration;

use catena_sandbox::Config;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use support::{check, start};

/// Kills all children of this process whose name begins like this, and waits until they are dead.
/// Returns how many they were.
fn kill_children(name: &str) -> usize {
    let me = std::process::id().to_string();
    let mut killed = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (Some(open), Some(close)) = (text.find('('), text.rfind(')')) else { continue };
        let parent = text[close + 2..].split(' ').nth(1);
        if parent == Some(me.as_str()) && text[open + 1..close].starts_with(name) {
            let pid = text[..open - 1].parse().ok().and_then(Pid::from_raw).unwrap();
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
            rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
            killed.push(pidfd);
        }
    }
    for pidfd in &killed {
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
    }
    killed.len()
}

#[test]
fn what_dies_is_replaced() {
    let Some(sandbox) = start(Config { pool: 2, ..Config::new(support::profile()) }) else {
        return;
    };
    for round in 0..3 {
        assert!(sandbox.wait_ready(Duration::from_secs(60)));
        assert_eq!(kill_children("python"), 1, "round {round}: the zygote");
        check(&sandbox, "print(1)", "ok");
        assert!(sandbox.wait_ready(Duration::from_secs(60)));
        assert!(kill_children("cell-init") >= 1, "round {round}: workers");
        check(&sandbox, "print(2)", "ok");
    }
}
