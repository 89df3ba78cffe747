//! Looks at the processes of a cell from outside, for hosts without cgroups.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use crate::limits::PROCESSES_MAX;

/// What all processes below one use together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) count: u64,
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

/// Adds up what all descendants of the init process use, and what those that it reaped have used.
pub(crate) fn below(init: Pid) -> Seen {
    let mut seen = Seen::default();
    if let Some(own) = stat(init.as_raw_nonzero().get()) {
        seen.cpu += own.children_cpu;
    }
    visit_below(init, |one| {
        seen.count += 1;
        seen.cpu += one.cpu + one.children_cpu;
        seen.resident_bytes += one.resident_bytes;
    });
    seen
}

/// True if every descendant of the init process is stopped or dead.
pub(crate) fn are_stopped(init: Pid) -> bool {
    let mut are_stopped = true;
    visit_below(init, |one| are_stopped &= matches!(one.state, b'T' | b't' | b'Z' | b'X'));
    are_stopped
}

fn visit_below(init: Pid, mut visit: impl FnMut(&One)) {
    let mut waiting = children(init.as_raw_nonzero().get());
    let mut visited = 0;
    while let Some(pid) = waiting.pop() {
        visited += 1;
        if visited > PROCESSES_MAX {
            break;
        }
        if let Some(one) = stat(pid) {
            visit(&one);
        }
        waiting.extend(children(pid));
    }
}

/// Resident pages of a process that it shares with the zygote, in bytes.
pub(crate) fn shared_bytes(pid: Pid) -> u64 {
    stat(pid.as_raw_nonzero().get()).map_or(0, |one| one.resident_bytes)
}

struct One {
    /// The letter that `proc(5)` gives the state.
    state: u8,
    cpu: Duration,
    children_cpu: Duration,
    resident_bytes: u64,
}

fn stat(pid: i32) -> Option<One> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<One> {
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = |count: u64| {
        Duration::from_millis(count * 1000 / rustix::param::clock_ticks_per_second().max(1))
    };
    Some(One {
        state: *fields.first()?.as_bytes().first()?,
        cpu: ticks(number(14)? + number(15)?),
        children_cpu: ticks(number(16)? + number(17)?),
        resident_bytes: number(24)? * rustix::param::page_size() as u64,
    })
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut all = Vec::new();
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 5 6 7 8 20 0 1 0 100 1000 25 18446744073709551615";
        let one = parse(text).unwrap();
        assert_eq!(one.state, b'S');
        assert_eq!(one.cpu, Duration::from_millis(110));
        assert_eq!(one.children_cpu, Duration::from_millis(150));
        assert_eq!(one.resident_bytes, 25 * rustix::param::page_size() as u64);
    }
}
