//! Watches one cell from its start until every process of it is dead.
//!
//! One thread, one loop: output, report, refused system calls, the caller's wishes, and the last
//! word of the init process. That word means that nothing of the cell runs any more; only then are
//! counters read and files collected.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use crate::artifacts::{self, Rules};
use crate::cell::{Cell, Entrypoint};
use crate::classify::classify;
use crate::clock;
use crate::control::{Control, Wanted};
use crate::limits::{
    JOB_FOLDER_BYTES, KILL_MAX, OUTPUT_KILL_FACTOR, PAUSED_CPU_MAX, STOP_AGAIN, TICK,
    TRACEBACK_BYTES_MAX, VIOLATIONS_KILL, VIOLATIONS_RECORDED_MAX,
};
use crate::outcome::{
    Exit, Facts, MemorySource, Outcome, Output, ReportState, Stop, Usage, Violation,
};
use crate::processes;
use crate::report;
use crate::seccomp;
use crate::sys;
use crate::tier::Tier;
use crate::wire;
use crate::worker::Worker;

/// What a run needs besides the worker and the cell.
pub(crate) struct Context<'a> {
    pub(crate) tier: Tier,
    pub(crate) spool: Option<&'a PathBuf>,
    pub(crate) control: &'a Control,
    pub(crate) inputs_bytes: u64,
}

/// Runs a cell in a worker. The worker is used up.
pub(crate) fn run(worker: Worker, cell: &Cell, context: &Context<'_>) -> io::Result<Outcome> {
    let limits = &cell.limits;
    // Input files are written by the init process, which is outside of the cell's cgroup.
    let memory = limits.memory_mb << 20;
    if let Some(group) = &worker.group {
        group.limit(memory, limits.max_processes)?;
    }
    if worker.group.as_ref().is_none_or(|group| group.memory_peak().is_none()) {
        worker.limit_folder((limits.memory_mb << 20).min(JOB_FOLDER_BYTES))?;
    }
    worker.place_inputs(&cell.inputs, context.inputs_bytes)?;
    let cpu_before = worker.group.as_ref().and_then(crate::cgroup::Group::cpu_time);
    let own_before = sys::cpu_time_of(worker.cell_pid).unwrap_or_default();
    let started = clock::now();
    worker.start(&job(cell, processes(cell, &worker)))?;
    let mut run = Run {
        worker: &worker,
        cell,
        context,
        memory_bytes: memory,
        started,
        paused_at: None,
        paused_for: Duration::ZERO,
        cpu_when_stopped: None,
        cpu_before: cpu_before.unwrap_or_default(),
        own_before,
        next_tick: started + TICK,
        stdout: Stream::new(limits.max_output_kb),
        stderr: Stream::new(limits.max_output_kb),
        report: report::Reader::new(limits.result_bytes_max),
        report_open: true,
        listener_open: true,
        facts: Facts::default(),
        killed_at: None,
        last_word: None,
        peak_resident: 0,
        polled_cpu: Duration::ZERO,
    };
    run.watch()?;
    Ok(run.finish())
}

/// The most processes of the cell's user. A cgroup that counts them should refuse first, because it
/// leaves evidence. The init process may have the same user.
fn processes(cell: &Cell, worker: &Worker) -> u64 {
    let is_counted = worker.group.as_ref().is_some_and(|group| group.process_refusals().is_some());
    cell.limits.max_processes + if is_counted { 16 } else { 1 }
}

/// The message that starts a cell.
fn job(cell: &Cell, processes: u64) -> Vec<u8> {
    let entrypoint = match &cell.entrypoint {
        Entrypoint::None => Value::Null,
        Entrypoint::IfDefined(name) => serde_json::json!({"name": name, "required": false}),
        Entrypoint::Required(name) => serde_json::json!({"name": name, "required": true}),
    };
    let limits = serde_json::json!({
        "memory_bytes": cell.limits.memory_mb << 20,
        "cpu_ms": cell.limits.cpu_ms,
        "processes": processes,
        "result_bytes": cell.limits.result_bytes_max,
        "traceback_bytes": TRACEBACK_BYTES_MAX,
    });
    let source = Value::from(cell.source.as_str());
    let has_figures =
        cell.formats.as_ref().is_none_or(|formats| formats.iter().any(|one| one == "png"));
    // The parameters are put in as they are: reading them could change their numbers.
    format!(
        r#"{{"source":{source},"entrypoint":{entrypoint},"limits":{limits},"figures":{has_figures},"parameters":{}}}"#,
        cell.parameters
    )
    .into_bytes()
}

/// A stream of which the beginning is kept.
struct Stream {
    kept: Vec<u8>,
    keep: usize,
    total: u64,
    is_open: bool,
}

impl Stream {
    fn new(max_output_kb: u64) -> Self {
        let keep = usize::try_from(max_output_kb << 10).unwrap_or(usize::MAX);
        Stream { kept: Vec::new(), keep, total: 0, is_open: true }
    }

    /// Reads what is there, at most `most` bytes.
    fn read(&mut self, fd: &OwnedFd, most: usize) {
        let mut buffer = [0u8; 64 << 10];
        let mut read = 0;
        while self.is_open && read < most {
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(count) => {
                    read += count;
                    self.total += count as u64;
                    let room = self.keep - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.is_open = false,
            }
        }
    }

    fn finish(mut self) -> Output {
        let is_truncated = self.total > self.kept.len() as u64;
        if is_truncated {
            self.kept.truncate(character_boundary(&self.kept));
        }
        let text = match String::from_utf8(self.kept) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Output { text, is_truncated, bytes_total: self.total }
    }
}

/// Where the last whole character ends.
fn character_boundary(bytes: &[u8]) -> usize {
    let is_start = |byte: &u8| byte & 0xc0 != 0x80;
    let tail = bytes.len().saturating_sub(4);
    let Some(last) = bytes[tail..].iter().rposition(is_start).map(|at| tail + at) else {
        return bytes.len();
    };
    let length = match bytes[last] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    if last + length > bytes.len() { last } else { bytes.len() }
}

struct Run<'a> {
    worker: &'a Worker,
    cell: &'a Cell,
    context: &'a Context<'a>,
    memory_bytes: u64,
    started: Instant,
    paused_at: Option<Instant>,
    paused_for: Duration,
    /// CPU time when every process had stopped. `None` unless the cell is paused without a freezer.
    cpu_when_stopped: Option<Duration>,
    cpu_before: Duration,
    own_before: Duration,
    next_tick: Instant,
    stdout: Stream,
    stderr: Stream,
    report: report::Reader,
    report_open: bool,
    listener_open: bool,
    facts: Facts,
    killed_at: Option<Instant>,
    last_word: Option<LastWord>,
    peak_resident: u64,
    polled_cpu: Duration,
}

/// What the init process says when everything else in its namespace is dead.
struct LastWord {
    status: i32,
    cpu: Duration,
    max_resident: u64,
}

impl Run<'_> {
    fn watch(&mut self) -> io::Result<()> {
        loop {
            self.obey_caller();
            let timeout = self.until_next_event();
            let worker = self.worker;
            let wake = self.context.control.wake();
            let mut fds = vec![
                PollFd::new(&worker.control, PollFlags::IN),
                PollFd::new(&wake, PollFlags::IN),
            ];
            let optional = [
                (self.stdout.is_open, &worker.stdout),
                (self.stderr.is_open, &worker.stderr),
                (self.report_open, &worker.cell),
                (self.listener_open, &worker.listener),
            ];
            let places = optional.map(|(is_open, fd)| {
                is_open.then(|| {
                    fds.push(PollFd::new(fd, PollFlags::IN));
                    fds.len() - 1
                })
            });
            wire::poll(&mut fds, Some(timeout))?;
            let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            drop(fds);
            let event = |place: Option<usize>| place.map_or(PollFlags::empty(), |at| events[at]);
            let [stdout, stderr, cell, listener] = places.map(event);
            if !events[1].is_empty() {
                self.context.control.clear();
            }
            if !stdout.is_empty() {
                self.stdout.read(&worker.stdout, 1 << 20);
            }
            if !stderr.is_empty() {
                self.stderr.read(&worker.stderr, 1 << 20);
            }
            if !cell.is_empty() {
                self.read_report(1 << 20);
            }
            if !listener.is_empty() {
                self.answer_listener(listener);
            }
            if !events[0].is_empty() && self.hear_init()? {
                break;
            }
            if self.keep_limits() {
                break;
            }
        }
        // Nothing writes any more: what is in the pipes is all there is.
        self.stdout.read(&self.worker.stdout, usize::MAX);
        self.stderr.read(&self.worker.stderr, usize::MAX);
        self.read_report(usize::MAX);
        if self.listener_open {
            self.drain_listener();
        }
        Ok(())
    }

    fn until_next_event(&self) -> Duration {
        let now = clock::now();
        let tick = self.next_tick.saturating_duration_since(now);
        match (self.paused_at, self.killed_at) {
            (Some(_), None) => tick.max(TICK),
            (None, None) => tick.min(self.wall_limit().saturating_sub(self.elapsed(now))),
            _ => tick,
        }
    }

    fn wall_limit(&self) -> Duration {
        Duration::from_millis(self.cell.limits.timeout_ms)
    }

    /// Wall time without pauses.
    fn elapsed(&self, now: Instant) -> Duration {
        let until = self.paused_at.unwrap_or(now);
        until.saturating_duration_since(self.started).saturating_sub(self.paused_for)
    }

    fn obey_caller(&mut self) {
        if self.killed_at.is_some() {
            return;
        }
        match (self.context.control.wanted(), self.paused_at) {
            (Wanted::Cancel, _) => self.kill(Stop::Cancelled),
            (Wanted::Pause, None) => self.pause(),
            (Wanted::Run, Some(since)) => self.resume(since),
            _ => {}
        }
    }

    fn pause(&mut self) {
        let now = clock::now();
        let group = self.worker.group.as_ref().filter(|group| group.can_freeze());
        match group {
            Some(group) => {
                let _ = group.freeze(true);
                // A process may have to leave the kernel first.
                for _ in 0..400 {
                    if group.is_frozen() {
                        break;
                    }
                    clock::pause(Duration::from_micros(500));
                }
            }
            None => {
                self.stop_processes();
                self.cpu_when_stopped = Some(self.cpu_used());
            }
        }
        self.paused_at = Some(now);
        self.context.control.set_paused(true);
    }

    /// Stops every process of the cell by SIGSTOP, and waits until all of them have stopped.
    ///
    /// One signal is not enough: a process that was sending SIGCONT to another one when the signal
    /// came has finished doing so before it stops.
    fn stop_processes(&self) {
        for wait in STOP_AGAIN {
            let _ = wire::send(&self.worker.control, b"P", &[]);
            let until = clock::now() + wait;
            while clock::now() < until {
                if self.are_stopped() {
                    return;
                }
                clock::pause(Duration::from_micros(500));
            }
        }
    }

    fn are_stopped(&self) -> bool {
        self.worker.init.as_ref().is_none_or(|init| processes::are_stopped(init.pid))
    }

    fn resume(&mut self, since: Instant) {
        let group = self.worker.group.as_ref().filter(|group| group.can_freeze());
        match group {
            Some(group) => {
                let _ = group.freeze(false);
            }
            None => {
                let _ = wire::send(&self.worker.control, b"C", &[]);
            }
        }
        self.paused_for += clock::now().saturating_duration_since(since);
        self.paused_at = None;
        self.cpu_when_stopped = None;
        self.context.control.set_paused(false);
    }

    /// Kills every process of the cell; the init process reports when they are dead.
    fn kill(&mut self, stop: Stop) {
        if self.killed_at.is_some() {
            return;
        }
        self.facts.stopped = Some(stop);
        self.killed_at = Some(clock::now());
        if let Some(group) = &self.worker.group {
            group.kill();
            if self.paused_at.is_some() && group.can_freeze() {
                let _ = group.freeze(false);
            }
        }
        let _ = wire::send(&self.worker.control, b"K", &[]);
    }

    /// Reads what the cell says about itself, at most `most` bytes.
    fn read_report(&mut self, most: usize) {
        let mut buffer = [0u8; 64 << 10];
        let mut read = 0;
        while self.report_open && !self.report.is_complete() && read < most {
            match rustix::io::read(&self.worker.cell, &mut buffer) {
                Ok(0) => self.report_open = false,
                Ok(count) => {
                    read += count;
                    self.report.extend(&buffer[..count]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => self.report_open = false,
            }
        }
        if let Some(progress) = self.report.take_progress() {
            self.context.control.set_progress(progress);
        }
        self.report_open &= !self.report.is_complete();
    }

    fn answer_listener(&mut self, events: PollFlags) {
        if !events.contains(PollFlags::IN) {
            self.listener_open = false;
            return;
        }
        match sys::receive_notification(self.worker.listener.as_fd()) {
            Err(_) => self.listener_open = false,
            Ok(None) => {}
            Ok(Some(notification)) => {
                self.facts.violations_total += 1;
                if self.facts.violations.len() < VIOLATIONS_RECORDED_MAX {
                    self.facts.violations.push(Violation {
                        name: seccomp::name(notification.number),
                        number: notification.number,
                        arguments: notification.arguments,
                    });
                }
                let listener = self.worker.listener.as_fd();
                sys::refuse_notification(listener, notification.id, libc::EPERM);
                if self.facts.violations_total >= VIOLATIONS_KILL {
                    self.kill(Stop::Violations);
                }
            }
        }
    }

    /// Takes what is left when the cell has ended.
    fn drain_listener(&mut self) {
        loop {
            let mut fds = [PollFd::new(&self.worker.listener, PollFlags::IN)];
            let ready = wire::poll(&mut fds, Some(Duration::ZERO)).unwrap_or(0);
            let events = fds[0].revents();
            if ready == 0 || !self.listener_open {
                return;
            }
            self.answer_listener(events);
        }
    }

    /// Reads a message of the init process. True if it was the last one.
    fn hear_init(&mut self) -> io::Result<bool> {
        let message = wire::receive(&self.worker.control)?;
        match message.data.split_first() {
            None => Ok(true),
            Some((b'Q', text)) => {
                self.last_word = serde_json::from_slice::<Value>(text).ok().and_then(|fields| {
                    Some(LastWord {
                        status: i32::try_from(fields["status"].as_i64()?).ok()?,
                        cpu: Duration::from_micros(fields["cpu_us"].as_u64()?),
                        max_resident: fields["max_rss_kb"].as_u64()? << 10,
                    })
                });
                Ok(true)
            }
            Some((b'E', text)) => {
                self.facts.init_failure = Some(String::from_utf8_lossy(text).into_owned());
                Ok(false)
            }
            Some(_) => Ok(false),
        }
    }

    /// Kills a cell that is over a limit. True if even its init process had to be killed.
    fn keep_limits(&mut self) -> bool {
        let now = clock::now();
        if let Some(killed_at) = self.killed_at {
            let is_stuck = now.saturating_duration_since(killed_at) > KILL_MAX;
            if is_stuck {
                self.worker.kill_init();
                if let Some(init) = &self.worker.init {
                    let _ = wire::wait_readable(&init.pidfd, KILL_MAX);
                }
            }
            self.next_tick = now + TICK;
            return is_stuck;
        }
        let most = (self.cell.limits.max_output_kb << 10) * OUTPUT_KILL_FACTOR;
        if self.stdout.total + self.stderr.total > most {
            self.kill(Stop::Output);
            return false;
        }
        if let Some(since) = self.paused_at {
            let pause_max = Duration::from_millis(self.cell.limits.pause_ms_max);
            if now.saturating_duration_since(since) > pause_max {
                self.kill(Stop::Pause);
            }
        } else if self.elapsed(now) >= self.wall_limit() {
            self.kill(Stop::Time);
            return false;
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.look();
            self.keep_stopped();
        }
        false
    }

    /// Stops processes of a paused cell that go on. No system call that a cell may make continues them,
    /// but the kernel does so when a group of processes loses its last parent.
    fn keep_stopped(&self) {
        let is_frozen = self.worker.group.as_ref().is_some_and(|group| group.can_freeze());
        if self.paused_at.is_some() && self.killed_at.is_none() && !is_frozen && !self.are_stopped()
        {
            let _ = wire::send(&self.worker.control, b"P", &[]);
        }
    }

    /// Compares what the cell uses with what it may use.
    fn look(&mut self) {
        let Some(group) = &self.worker.group else { return };
        let by_group = group.cpu_time().map(|cpu| cpu.saturating_sub(self.cpu_before));
        if group.oom_kills() > 0 {
            return self.kill(Stop::Memory);
        }
        let needs_walk = by_group.is_none() || group.memory_peak().is_none();
        if needs_walk && let Some(init) = &self.worker.init {
            let seen = processes::below(init.pid);
            self.peak_resident = self.peak_resident.max(seen.resident_bytes);
            self.polled_cpu = self.polled_cpu.max(seen.cpu.saturating_sub(self.own_before));
            // Every process shares the pages of the interpreter; they are not the cell's.
            let shared = seen.count.saturating_mul(processes::shared_bytes(init.pid));
            let own = seen.resident_bytes.saturating_sub(shared);
            if group.memory_peak().is_none() && own > self.memory_bytes {
                return self.kill(Stop::Memory);
            }
        }
        let cpu = by_group.unwrap_or(self.polled_cpu);
        if cpu > Duration::from_millis(self.cell.limits.cpu_ms) {
            return self.kill(Stop::Cpu);
        }
        if self.cpu_when_stopped.is_some_and(|stopped| cpu > stopped + PAUSED_CPU_MAX) {
            self.kill(Stop::Resisted);
        }
    }

    /// CPU time of the cell so far, from where this host counts it.
    fn cpu_used(&mut self) -> Duration {
        let by_group = self.worker.group.as_ref().and_then(|group| group.cpu_time());
        if let Some(cpu) = by_group {
            return cpu.saturating_sub(self.cpu_before);
        }
        if let Some(init) = &self.worker.init {
            let seen = processes::below(init.pid).cpu.saturating_sub(self.own_before);
            self.polled_cpu = self.polled_cpu.max(seen);
        }
        self.polled_cpu
    }

    fn finish(mut self) -> Outcome {
        let wall = self.elapsed(clock::now());
        self.facts.exit = self.last_word.as_ref().map(|word| exit(word.status));
        let group = self.worker.group.as_ref();
        if let Some(group) = group {
            self.facts.oom_kills = group.oom_kills();
            self.facts.process_refusals = group.process_refusals();
        }
        let by_group =
            group.and_then(|group| group.cpu_time()).map(|cpu| cpu.saturating_sub(self.cpu_before));
        let by_init = self.last_word.as_ref().map(|word| word.cpu.saturating_sub(self.own_before));
        let cpu = by_group.or(by_init).unwrap_or(self.polled_cpu);
        let resident = self.last_word.as_ref().map_or(0, |word| word.max_resident);
        let peak = group.and_then(|group| group.memory_peak());
        let usage = Usage {
            wall,
            cpu,
            memory_bytes_peak: peak.unwrap_or(resident.max(self.peak_resident)),
            memory_source: match peak {
                Some(_) => MemorySource::Cgroup,
                None => MemorySource::Resident,
            },
        };
        if self.facts.exit.is_none() && self.facts.stopped.is_some() {
            self.facts.exit = Some(Exit::Signal(libc::SIGKILL));
        }
        let report = self.report.finish();
        let verdict = classify(&self.facts, &report);
        let result = match (&report, &verdict) {
            (ReportState::Received(report), crate::outcome::Verdict::Succeeded) => {
                report.result.clone()
            }
            _ => None,
        };
        let rules = Rules {
            limits: &self.cell.limits,
            formats: self.cell.formats.as_deref(),
            spool: self.context.spool,
        };
        let collected = artifacts::collect(self.worker.folder.as_fd(), &rules);
        Outcome {
            verdict,
            facts: self.facts,
            report,
            result,
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            usage,
            artifacts: collected.artifacts,
            refused: collected.refused,
            refused_more: collected.refused_more,
            tier: self.context.tier,
        }
    }
}

/// Reads a wait status.
fn exit(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (bytes, end) in [
            (&b"abc"[..], 3),
            ("a\u{fc}".as_bytes(), 3),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 1),
            (b"\xf0\x9f\x98", 0),
            (b"\x80\x80\x80\x80\x80", 5),
            (b"", 0),
        ] {
            assert_eq!(character_boundary(bytes), end, "{bytes:?}");
        }
    }

    #[test]
    fn parameters_reach_the_cell_unchanged() {
        let mut cell = Cell::new("print('\u{2028}')");
        cell.parameters = r#"{"n":123456789012345678901234567890}"#.to_owned();
        let text = String::from_utf8(job(&cell, 1)).unwrap();
        assert!(text.contains("123456789012345678901234567890"), "{text}");
        serde_json::from_str::<Value>(&text).unwrap();
    }
}
