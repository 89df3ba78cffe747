//! `catena run` and `catena jobs` against a venue: what they print, and their exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};

use catena_tests::site::Client;
use catena_value::Value;
use serde_json::json;
use support::{ended, field, member, value, venue};

#[test]
fn run_prints_the_output_as_json() {
    let venue = venue();
    let ran = venue.catena(&["run", "test:echo", "-i", r#"{"n":12345678901234567890,"x":1.0}"#]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(value(&ran.stdout), value(r#"{"n":12345678901234567890,"x":1.0}"#));
    assert_eq!(ran.stdout.lines().count(), 1);
    let file = venue.folder.path().join("input.json");
    std::fs::write(&file, r#"{"from":"file"}"#).unwrap();
    let named = format!("@{}", file.display());
    let ran = venue.catena(&["run", "v/test/ops/echo", "-i", &named]);
    assert_eq!(ran.stdout, "{\"from\":\"file\"}\n", "{}", ran.stderr);
    let ran = venue.catena_with(&["run", "test:echo", "-i", "-"], &[], b"[1,2]");
    assert_eq!(ran.stdout, "[1,2]\n");
    let ran = venue.catena(&["run", "test:echo"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "null\n"));
}

#[test]
fn run_follows_a_job_and_prints_its_progress() {
    let venue = venue();
    let ran = venue.catena(&["run", "test:progress", "-i", r#"{"totalItems":4,"itemMs":150}"#]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("job 0x"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nSTARTED\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains(" %\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("COMPLETE\n") || ran.stderr.contains("COMPLETE"));
    assert!(!ran.stderr.contains('\x1b'), "no terminal, no live line");
    let ran = venue.catena(&["run", "test:delay", "-i", r#"{"delay":200,"input":7}"#, "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout.lines().count(), 1);
    assert_eq!(member(&ran.stdout, "status"), "COMPLETE".into());
    assert_eq!(member(&ran.stdout, "output"), 7.into());
}

#[test]
fn a_job_that_fails_is_code_1() {
    let venue = venue();
    let ran = venue.catena(&["run", "test:error", "-i", r#"{"message":"no \u001b[2J luck"}"#]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: job 0x"), "{last}");
    assert!(last.contains("is FAILED: no \\u{1b}[2J luck"), "{last}");
    let ran = venue.catena(&["run", "test:error", "-i", r#"{"message":"no"}"#, "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "the job contains the error");
    assert_eq!(member(&ran.stdout, "status"), "FAILED".into());
    let rejected = venue.catena(&["run", "test:error", "-i", "{}"]);
    assert_eq!(rejected.code, 1);
    assert!(rejected.stderr.contains("is REJECTED"), "{}", rejected.stderr);
}

#[test]
fn an_expired_time_limit_is_code_5() {
    let venue = venue();
    let ran = venue.catena(&["run", "test:never", "--timeout-ms", "50"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (5, ""));
    assert!(ran.stderr.contains("is TIMEOUT"), "{}", ran.stderr);
    let ran = venue.catena(&["run", "test:never", "--wait", "0.2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (5, ""));
    assert!(ran.stderr.contains("stopped waiting; job 0x"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: Run `catena jobs watch 0x"), "{}", ran.stderr);
    let ran = venue.catena(&["run", "test:never", "--wait", "0.2", "--json"]);
    assert_eq!(ran.code, 5);
    assert_eq!(member(&ran.stdout, "status"), "STARTED".into());
    assert_eq!(member(&ran.stderr, "code"), "still_going".into());
}

#[test]
fn wrong_usage_and_unknown_operations_have_different_codes() {
    let venue = venue();
    let ran = venue.catena(&["run", "test:ecko"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("hint: Did you mean "), "{}", ran.stderr);
    assert!(ran.stderr.contains("test/ops/echo") || ran.stderr.contains("test:echo"));
    let ran = venue.catena(&["run", "test:echo", "-i", "{bad"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("the input is not valid JSON"), "{}", ran.stderr);
    assert_eq!(venue.catena(&["run", "test:echo", "-i", "@missing.json"]).code, 3);
    for args in [
        &["run"][..],
        &["run", "test:echo", "--wait", "soon"],
        &["run", "test:echo", "--wait", "1", "--no-wait"],
        &["run", "test:echo", "--timeout-ms", "0"],
        &["jobs", "get", "nonsense"],
        &["jobs", "ls", "--status", "DONE"],
    ] {
        assert_eq!(venue.catena(args).code, 2, "{args:?}");
    }
}

#[test]
fn a_private_job_leaves_nothing_behind() {
    let venue = venue();
    let input = r#"{"delay":100,"input":"secret"}"#;
    let ran = venue.catena(&["run", "test:delay", "-i", input, "--private"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "\"secret\"\n"), "{}", ran.stderr);
    let listed = venue.catena(&["jobs", "ls", "--json"]);
    assert_eq!(member(&listed.stdout, "total"), 0.into());
}

#[test]
fn a_repeated_key_gives_the_same_job() {
    let venue = venue();
    let args = ["run", "test:echo", "-i", "1", "--no-wait", "--idempotency-key", "k1"];
    let first = venue.catena(&args);
    let second = venue.catena(&args);
    assert_eq!((first.code, first.stdout.as_str()), (0, second.stdout.as_str()));
    let other = ["run", "test:echo", "-i", "2", "--no-wait", "--idempotency-key", "k1"];
    let refused = venue.catena(&other);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

#[test]
fn jobs_are_listed_by_status_operation_and_tag() {
    let venue = venue();
    for number in 0..3 {
        let number = number.to_string();
        venue.catena(&["run", "test:echo", "-i", &number, "--tag", "a", "--tag", "b"]);
    }
    venue.catena(&["run", "test:error", "-i", r#"{"message":"x"}"#]);
    let count = |args: &[&str]| {
        let ran = venue.catena(&[&["jobs", "ls", "--json"], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let items = member(&ran.stdout, "items").as_vector().unwrap().len();
        (items, member(&ran.stdout, "total").as_i64().unwrap())
    };
    assert_eq!(count(&[]), (4, 4));
    assert_eq!(count(&["--limit", "2"]), (2, 4));
    assert_eq!(count(&["--all"]), (4, 4));
    assert_eq!(count(&["--status", "failed"]), (1, 1));
    assert_eq!(count(&["--op", "test:echo"]), (3, 3));
    assert_eq!(count(&["--tag", "b"]), (3, 3));
    assert_eq!(count(&["--tag", "c"]), (0, 0));
    assert_eq!(count(&["--text", "ERR"]), (1, 1));
    assert_eq!(count(&["--since", "2020-01-01T00:00Z", "--tag", "a"]), (3, 3));
    assert_eq!(count(&["--until", "2020-01-01T00:00Z"]), (0, 0));
    let wrong = venue.catena(&["jobs", "ls", "--since", "yesterday"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("`since`"), "{}", wrong.stderr);
    assert_eq!(venue.catena(&["jobs", "ls", "--owner", "*"]).code, 4, "only for admins");
    let ran = venue.catena(&["jobs", "ls", "--limit", "1"]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[0].contains("STATUS"), "{}", ran.stdout);
    assert!(lines[1].contains("FAILED") && lines[1].ends_with("test:error"), "{}", ran.stdout);
    assert_eq!(lines.len(), 2);
    assert_eq!(ran.stderr, "1 of 4 jobs; use --all to list all\n");
}

/// One name for one thing: in the URL of the list, in a bulk action, on the command line, in the
/// description of the API and in the console.
#[test]
fn a_filter_has_the_same_members_wherever_it_is_given() {
    let venue = venue();
    let client = Client::anonymous(venue.url.trim_start_matches("http://").parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let echo = venue.job("test:echo", "1");
    let call = r#"{"operation":"test:delay","input":{"delay":0,"operation":"test:echo"}}"#;
    let ran = venue.catena(&["run", "grid:run", "-i", call, "--tag", "a", "--json"]);
    let parent = member(&ran.stdout, "id").as_str().unwrap().to_owned();
    venue.catena(&["run", "test:error", "-i", r#"{"message":"broken"}"#]);
    let read = venue.catena(&["jobs", "get", &echo, "--json"]).stdout;
    let owner = member(&read, "caller").as_str().unwrap().to_owned();
    let members = [
        ("status", "FAILED", 1),
        ("op", "test:echo", 1),
        ("tag", "a", 1),
        ("until", "2020-01-01T00:00Z", 0),
        ("parent", parent.as_str(), 1),
        ("text", "broken", 1),
        // The bulk actions above are jobs, too.
        ("since", "2020-01-01T00:00Z", 3 + 6),
        ("owner", owner.as_str(), 3 + 7),
    ];
    let described = runtime.block_on(client.get("/openapi.json")).expect(200).json();
    let console = include_str!("../../../ui/src/api/jobs.ts");
    let console = console.split("FILTER_NAMES = [").nth(1).unwrap().split(']').next().unwrap();
    assert_eq!(console.matches('"').count(), 2 * members.len(), "{console}");
    for (name, text, expected) in members {
        let query = format!("{name}={}", text.replace(':', "%3A"));
        let path = format!("/api/v1/jobs?expand&{query}");
        let list = runtime.block_on(client.get(&path)).expect(200).json();
        assert_eq!(list["total"], expected, "{path}: {list}");
        let ran = venue.catena(&["jobs", "ls", "--json", &format!("--{name}"), text]);
        assert_eq!(member(&ran.stdout, "total").as_i64(), Some(expected), "{name}: {ran:?}");
        // A number that cannot be right: nothing is done, and the error says how many match.
        let input = json!({"filter": {name: text}, "action": "cancel", "expected": 1_000});
        let ran = venue.catena(&["run", "jobs:control", "-i", &input.to_string(), "--json"]);
        let found = format!("{expected} jobs match");
        assert!(ran.stderr.contains(&found) || ran.stdout.contains(&found), "{name}: {ran:?}");
        for path in ["/api/v1/jobs", "/api/v1/events"] {
            let parameters = described["paths"][path]["get"]["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|one| one["name"] == name), "{path}: {name}");
        }
        assert!(console.contains(&format!("\"{name}\"")), "{name}: {console}");
    }
}

#[test]
fn a_job_is_printed_as_text_or_json() {
    let venue = venue();
    let id = venue.job("test:echo", r#"{"a":"b"}"#);
    let ran = venue.catena(&["jobs", "get", &id]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("id:") && lines[0].ends_with(&id), "{}", ran.stdout);
    assert!(lines[1].starts_with("status:") && lines[1].ends_with("COMPLETE"), "{}", ran.stdout);
    assert!(ran.stdout.contains("output:     {\"a\":\"b\"}"), "{}", ran.stdout);
    let ran = venue.catena(&["jobs", "get", id.trim_start_matches("0x"), "--json"]);
    assert_eq!(member(&ran.stdout, "id"), id.as_str().into());
    let missing = format!("0x{}", "0".repeat(32));
    let ran = venue.catena(&["jobs", "get", &missing, "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    let error = value(&ran.stderr);
    assert_eq!(field(&error, "code"), "job_not_found".into());
    assert_eq!(field(&error, "status"), 404.into());
    assert!(field(&error, "hint").as_str().is_some());
}

#[test]
fn watch_prints_changes_and_then_the_end() {
    let venue = venue();
    let id = venue.job("test:never", "null");
    let mut child = venue.spawn(&["jobs", "watch", &id]);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with("  STARTED\n"), "{line}");
    assert_eq!(venue.catena(&["jobs", "pause", &id]).stdout, format!("{id}  PAUSED\n"));
    line.clear();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with("  PAUSED\n"), "{line}");
    let cancelled = venue.catena(&["jobs", "cancel", &id, "--reason", "enough"]);
    assert_eq!((cancelled.code, cancelled.stdout), (0, format!("{id}  CANCELLED\n")));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with(&format!("job {id} is CANCELLED")), "{rest}");
    assert_eq!(rest.lines().count(), 1, "one line of verdict: {rest}");
    assert_eq!(ended(child).code, 1);
    let done = venue.job("test:echo", "1");
    let ran = venue.catena(&["jobs", "watch", &done]);
    assert_eq!((ran.code, ran.stdout), (0, format!("job {done} is COMPLETE\n")));
    let ran = venue.catena(&["jobs", "watch", &done, "--json"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 1));
    assert_eq!(member(&ran.stdout, "status"), "COMPLETE".into());
    let all = venue.catena(&["jobs", "watch", "--all", &id]);
    let words: Vec<_> = all.stdout.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    assert_eq!((all.code, words), (1, vec!["STARTED", "PAUSED"]), "{}", all.stdout);
    assert!(all.stdout.ends_with(&rest), "{}", all.stdout);
    let refused = venue.catena(&["run", "test:error", "-i", "5", "--no-wait"]);
    if let Some(id) = refused.stdout.lines().next() {
        // A job that has one record only.
        let all = venue.catena(&["jobs", "watch", "--all", id]);
        assert!(all.stdout.contains(" is "), "{}", all.stderr);
    }
    let slow = venue.job("test:never", "null");
    assert_eq!(venue.catena(&["jobs", "watch", &slow, "--wait", "0.1"]).code, 5);
}

#[test]
fn history_is_a_table_or_a_document_that_verifies() {
    let venue = venue();
    let id = venue.job("test:echo", "1");
    let ran = venue.catena(&["jobs", "history", &id]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 4), "{}", ran.stdout);
    let first = ran.stdout.lines().nth(1).unwrap();
    assert!(first.starts_with("0  PENDING") && first.ends_with("test:echo"), "{first}");
    let document = venue.catena(&["jobs", "history", &id, "--json"]).stdout;
    let verified = venue.catena_with(&["verify", "-"], &[], document.as_bytes());
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    assert!(verified.stdout.starts_with(&format!("valid: job {id} is COMPLETE after 3 records")));
}

#[test]
fn jobs_are_controlled() {
    let venue = venue();
    let id = venue.job("test:never", "null");
    venue.until(&id, "STARTED");
    let early = venue.catena(&["jobs", "resume", &id]);
    assert_eq!((early.code, early.stdout.as_str()), (2, ""));
    assert!(early.stderr.contains("hint: "), "{}", early.stderr);
    assert_eq!(venue.catena(&["jobs", "pause", &id]).code, 0);
    let resumed = venue.catena(&["jobs", "resume", &id, "--json"]);
    assert_eq!((resumed.code, member(&resumed.stdout, "status")), (0, "STARTED".into()));
    let removed = venue.catena(&["jobs", "rm", &id]);
    assert_eq!((removed.code, removed.stdout), (0, format!("{id}  deleted\n")));
    for verb in ["get", "cancel", "pause", "resume", "rm", "history", "watch"] {
        assert_eq!(venue.catena(&["jobs", verb, &id]).code, 3, "{verb}");
    }
    let other = venue.job("test:echo", "1");
    let removed = venue.catena(&["jobs", "rm", &other, "--json"]);
    assert_eq!(member(&removed.stdout, "deleted"), true.into());
}

#[test]
fn messages_are_sent_as_json_or_text() {
    let venue = venue();
    let id = venue.job("test:chat", "null");
    venue.until(&id, "INPUT_REQUIRED");
    let sent = venue.catena(&["jobs", "send", &id, r#"{"content":"hi","messageId":"m1"}"#]);
    assert_eq!((sent.code, sent.stdout.as_str()), (0, "m1\n"), "{}", sent.stderr);
    let refused = venue.catena(&["jobs", "send", &id, "{bad"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("the message is not valid JSON"), "{}", refused.stderr);
    let sent = venue.catena_with(&["jobs", "send", &id, "-", "--json"], &[], b"done\n");
    assert_eq!((sent.code, member(&sent.stdout, "queued")), (0, true.into()), "{}", sent.stderr);
    let ran = venue.catena(&["jobs", "watch", &id, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let late = venue.catena(&["jobs", "send", &id, "more", "--json"]);
    assert_eq!((late.code, member(&late.stderr, "code")), (2, Value::from("job_ended")));
}
