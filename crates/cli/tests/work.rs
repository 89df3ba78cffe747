//! `catena work`, and named operations as the commands show them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Running, field, member, value, venue};

/// How long to wait for what must happen, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The interval at which files and processes are looked at.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// A running `catena work`, which is killed when the test ends.
struct Worker {
    child: Child,
    /// What it says. It is kept open, because a worker whose log nobody reads would fail.
    _log: BufReader<ChildStderr>,
}

impl Worker {
    /// Starts a worker and waits until it waits for jobs.
    fn start(venue: &Running, args: &[&str]) -> Worker {
        let mut child = venue.spawn(&[&["work"], args].concat());
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("waits for jobs of") {
            let read = log.read_line(&mut said).unwrap();
            assert!(read > 0, "the worker ended: {said}");
        }
        Worker { child, _log: log }
    }

    /// Asks the worker to stop. Returns its exit code.
    fn terminate(&mut self) -> Option<i32> {
        kill_process(pid(self.child.id()), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Looks again and again until there is something.
#[expect(clippy::disallowed_methods, reason = "files and states of processes have no signal")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "waited too long for {what}");
        std::thread::sleep(POLL_EVERY);
    }
}

/// The complete line that a command has written to a file.
fn line_of(file: &Path) -> String {
    until(&file.display().to_string(), || {
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.strip_suffix('\n')?.to_owned())
    })
}

/// The state of a process as `ps` shows it: T is stopped. `None` if there is no such process.
fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A program in the folder of a venue.
fn script(venue: &Running, text: &str) -> PathBuf {
    let file = venue.folder.path().join("program.sh");
    std::fs::write(&file, text).unwrap();
    file
}

/// The output of a job that must have completed.
fn output(venue: &Running, op: &str, input: &str) -> String {
    let ran = venue.catena(&["run", op, "-i", input]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

fn job(venue: &Running, id: &str) -> String {
    venue.catena(&["jobs", "get", id, "--json"]).stdout
}

#[test]
fn the_input_of_a_job_is_standard_input_and_its_output_standard_output() {
    let venue = venue();
    let _worker = Worker::start(&venue, &["echo", "--define", "echo", "--", "/bin/cat"]);
    assert_eq!(value(&output(&venue, "o/echo", r#"{"a":[1,2.5]}"#)), value(r#"{"a":[1,2.5]}"#));
    let program =
        r#"printf '%s %s %s\n' "$CATENA_JOB" "$CATENA_ATTEMPT" "$CATENA_IDEMPOTENCY_KEY""#;
    let _other = Worker::start(&venue, &["env", "--define", "env", "--", "/bin/sh", "-c", program]);
    let id = venue.job("o/env", "null");
    venue.until(&id, "COMPLETE");
    let shown = member(&job(&venue, &id), "output");
    assert_eq!(shown, format!("{id} 1 {id}").as_str().into(), "text that is no JSON stays text");
}

#[test]
fn an_exit_code_other_than_0_is_a_failed_attempt_with_the_end_of_the_log() {
    let venue = venue();
    let program = "echo about to fail >&2; exit 3";
    let _worker =
        Worker::start(&venue, &["fail", "--define", "fail", "--", "/bin/sh", "-c", program]);
    let id = venue.job("o/fail", "1");
    venue.until(&id, "FAILED");
    let failed = job(&venue, &id);
    assert_eq!(member(&failed, "error"), "about to fail".into());
    assert_eq!(member(&failed, "errorCode"), "exit_3".into(), "{failed}");
    assert_eq!(member(&failed, "log"), "about to fail\n".into(), "{failed}");
}

#[test]
fn a_retry_of_the_definition_starts_the_command_again() {
    let venue = venue();
    let definition = r#"{"name":"Flaky","operation":{"adapter":"worker","queue":"flaky",
        "retry":{"attempts":3,"backoffMs":1}}}"#;
    let added = venue.catena_with(&["ops", "add", "flaky", "-"], &[], definition.as_bytes());
    assert_eq!(added.code, 0, "{}", added.stderr);
    let program = r#"echo "$CATENA_ATTEMPT"; test "$CATENA_ATTEMPT" = 3"#;
    let _worker = Worker::start(&venue, &["flaky", "--", "/bin/sh", "-c", program]);
    assert_eq!(output(&venue, "o/flaky", "1"), "3\n");
}

#[test]
fn pause_resume_and_cancel_reach_the_command_as_signals() {
    let venue = venue();
    // The trap shows that the command was asked to end, and not killed.
    let program = script(
        &venue,
        "trap 'echo asked > asked; exit 1' TERM\necho $$ > process\nwhile :; do sleep 0.02; done\n",
    );
    let args = ["loop", "--define", "loop", "--", "/bin/sh", program.to_str().unwrap()];
    let _worker = Worker::start(&venue, &args);
    let id = venue.job("o/loop", "1");
    let process: u32 = line_of(&venue.folder.path().join("process")).parse().unwrap();
    assert_eq!(venue.catena(&["jobs", "pause", &id]).code, 0);
    until("SIGSTOP", || (state_of(process)? == 'T').then_some(()));
    assert_eq!(venue.catena(&["jobs", "resume", &id]).code, 0);
    until("SIGCONT", || (state_of(process)? != 'T').then_some(()));
    // A command that is stopped acts on SIGTERM all the same.
    assert_eq!(venue.catena(&["jobs", "pause", &id]).code, 0);
    until("SIGSTOP", || (state_of(process)? == 'T').then_some(()));
    assert_eq!(venue.catena(&["jobs", "cancel", &id]).code, 0);
    assert_eq!(line_of(&venue.folder.path().join("asked")), "asked");
    until("the end of the command", || state_of(process).is_none().then_some(()));
    assert_eq!(member(&job(&venue, &id), "status"), "CANCELLED".into());
}

#[test]
fn so_many_commands_run_at_a_time_as_it_is_told() {
    let venue = venue();
    // Each command ends only when the other one runs, too.
    let program = script(
        &venue,
        "read -r n\ntouch \"ran-$n\"\nuntil [ -e ran-1 ] && [ -e ran-2 ]; do sleep 0.02; done\n",
    );
    let program = program.to_str().unwrap();
    let args = ["pair", "--define", "pair", "--parallel", "2", "--", "/bin/sh", program];
    let _worker = Worker::start(&venue, &args);
    let ids = [venue.job("o/pair", "1"), venue.job("o/pair", "2")];
    for id in ids {
        venue.until(&id, "COMPLETE");
    }
    let none = venue.catena(&["work", "pair", "--parallel", "0", "--", "true"]);
    assert_eq!(none.code, 2, "{}", none.stderr);
}

#[test]
fn a_worker_that_is_to_stop_gives_its_jobs_back() {
    let venue = venue();
    let program = "echo started > started-$CATENA_ATTEMPT-$$; while :; do sleep 0.02; done";
    let args = ["slow", "--define", "slow", "--grace", "0", "--", "/bin/sh", "-c", program];
    let mut worker = Worker::start(&venue, &args);
    let id = venue.job("o/slow", "1");
    venue.until(&id, "STARTED");
    assert_eq!(worker.terminate(), Some(0));
    // Another worker gets the job at once, not when the lease of the first one has ended.
    let _other = Worker::start(&venue, &["slow", "--", "/bin/cat"]);
    venue.until(&id, "COMPLETE");
    let ended = job(&venue, &id);
    assert_eq!(member(&ended, "output"), 1.into());
    assert_eq!(member(&ended, "attempt"), catena_value::Value::Nil, "no attempt has failed");
}

#[test]
fn a_worker_that_is_to_stop_finishes_what_it_runs() {
    let venue = venue();
    let program = script(
        &venue,
        "echo $$ > process\nuntil [ -e proceed ]; do sleep 0.02; done\necho the end >&2\necho done\n",
    );
    let args = ["last", "--define", "last", "--", "/bin/sh", program.to_str().unwrap()];
    let mut worker = Worker::start(&venue, &args);
    let id = venue.job("o/last", "1");
    line_of(&venue.folder.path().join("process"));
    kill_process(pid(worker.child.id()), Signal::TERM).unwrap();
    std::fs::write(venue.folder.path().join("proceed"), "").unwrap();
    assert_eq!(worker.child.wait().unwrap().code(), Some(0));
    // Nobody else runs it: how it ended was known before the worker was gone.
    let ended = job(&venue, &id);
    assert_eq!(member(&ended, "status"), "COMPLETE".into(), "{ended}");
    assert_eq!(member(&ended, "output"), "done".into());
    assert_eq!(member(&ended, "log"), "the end\n".into(), "{ended}");
}

#[test]
fn a_worker_token_works_for_the_queues_of_its_user_alone() {
    let venue = venue();
    let data = venue.data();
    let key = venue.folder.path().join("owner.key");
    std::fs::write(&key, "05".repeat(32)).unwrap();
    let key = key.to_str().unwrap();
    let whoami = venue.catena(&["run", "auth:whoami", "--key", key]);
    let owner = member(&whoami.stdout, "caller").as_str().unwrap().to_owned();
    let definition = r#"{"name":"Mail","operation":{"adapter":"worker","queue":"mail-out"}}"#;
    let add = ["ops", "add", "mail", "-", "--key", key];
    assert_eq!(venue.catena_with(&add, &[], definition.as_bytes()).code, 0);
    let create = ["token", "create", "--worker", "mail-*", "--for", &owner, "--data", &data];
    let token = venue.catena(&create);
    assert_eq!(token.code, 0, "{}", token.stderr);
    let token = token.stdout.trim();
    let id = venue.catena(&["run", "o/mail", "-i", "7", "--no-wait", "--key", key]).stdout;
    let _worker = Worker::start(&venue, &["mail-out", "--token", token, "--", "/bin/cat"]);
    let watched = venue.catena(&["jobs", "watch", id.trim(), "--key", key]);
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    let ended = venue.catena(&["jobs", "get", id.trim(), "--json", "--key", key]).stdout;
    assert_eq!(member(&ended, "output"), 7.into());
    // It is for nothing else: neither another queue nor any other command.
    let other = venue.catena(&["work", "other", "--token", token, "--", "/bin/cat"]);
    assert_eq!(other.code, 3, "{}", other.stderr);
    for command in [&["jobs", "ls"][..], &["run", "test:echo"], &["ops", "rm", "mail"]] {
        let refused = venue.catena(&[command, &["--token", token]].concat());
        assert_eq!(refused.code, 4, "{command:?}: {}", refused.stderr);
    }
}

#[test]
fn a_name_has_versions_and_is_shown_by_every_list() {
    let venue = venue();
    let add = |text: &str, more: &[&str]| {
        let args = [&["ops", "add", "shout", "-"], more].concat();
        let ran = venue.catena_with(&args, &[], text.as_bytes());
        (ran.code, ran.stdout.trim().to_owned())
    };
    let first = r#"{"name":"Shout","operation":{"adapter":"test:echo"}}"#;
    let second = r#"{"name":"Shout","description":"Says it.","operation":{"adapter":"test:echo"}}"#;
    assert_eq!(add(first, &[]), (0, "o/shout@1".to_owned()));
    assert_eq!(add(second, &[]), (0, "o/shout@2".to_owned()));
    assert_eq!(add(second, &[]), (0, "o/shout@2".to_owned()), "the same is no new version");
    let listed = venue.catena(&["ops", "ls", "o/"]).stdout;
    assert!(listed.lines().any(|line| line.contains("o/shout") && line.contains("Says it")));
    let id = value(first).id().to_string();
    for (reference, version) in [("o/shout", second), ("o/shout@1", first), (&id, first)] {
        let job_id = venue.job(reference, "1");
        let asset = member(&job(&venue, &job_id), "operation");
        let expected = value(version).id().to_string();
        assert_eq!(asset, expected.trim_start_matches("0x").into(), "{reference}");
    }
    let jobs = venue.catena(&["jobs", "ls"]).stdout;
    assert!(jobs.lines().any(|line| line.trim_end().ends_with(" o/shout")), "{jobs}");
    assert_eq!(venue.catena(&["run", "o/shout@3"]).code, 3);
    let shown = venue.catena(&["ops", "show", "o/shout"]).stdout;
    assert!(shown.contains("version 1: ") && shown.contains("version 2: "), "{shown}");
    assert!(!shown.contains("go to your workers"), "{shown}");
    assert_eq!(add(second, &["--share", "everyone"]).0, 0);
    let shown = venue.catena(&["ops", "show", "o/shout"]).stdout;
    assert!(shown.contains("shared with") && shown.contains("go to your workers"), "{shown}");
    let misspelt = r#"{"name":"Shout","operation":{"adapter":"test:echo","retries":3}}"#;
    let refused = venue.catena_with(&["ops", "add", "shout", "-"], &[], misspelt.as_bytes());
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("unknown member `retries`"), "{}", refused.stderr);
    assert_eq!(venue.catena(&["ops", "rm", "shout"]).code, 0);
    assert_eq!(venue.catena(&["run", "o/shout"]).code, 3);
    let by_id = venue.catena(&["run", &id, "-i", "1"]);
    assert_eq!(by_id.code, 0, "versions stay available by their IDs: {}", by_id.stderr);
    let all = value(&venue.catena(&["ops", "ls", "--json"]).stdout);
    let all = all.as_vector().unwrap();
    let names = all.iter(&catena_value::NoCells).map(|entry| field(&entry.unwrap(), "name"));
    assert!(!names.into_iter().any(|name| name == "o/shout".into()));
}
