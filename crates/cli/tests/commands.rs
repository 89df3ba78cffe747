//! Complete commands: what they print, where, and their exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::io::Write;
use std::process::{Command, Stdio};

use catena_job::chain::{Change, Job, NewJob};
use catena_job::state::Event;
use catena_job::{JobId, Record};
use catena_value::Value;

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs the binary with this standard input.
fn catena(args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_catena"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early may not read all of it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn check(args: &[&str], stdin: &[u8], code: i32, stdout: &str, stderr: &str) {
    let ran = catena(args, stdin);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), (stdout, stderr, code));
}

const ONE: &str = "0xf38ddbe695dc96e72b09546f22cb841ad14d86b4ec879eab4afc44235e867166\n";
const NULL: &str = "0x5d53469f20fef4f8eab52b88044ede69c77a6a68a60728609fc4a65ff531e7d0\n";
const MAP: &str = "0x2339073223dfbc9dd0a4cb53a32539610b71b46feb6d65302296d102bd0d927c\n";

#[test]
fn id_prints_the_value_id_of_a_document() {
    check(&["id", "-"], b"1", 0, ONE, "");
    check(&["id", "-"], b" {\"b\":[1.0,2,\"x\",null,true],\n \"a\":1} \n", 0, MAP, "");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("document.json");
    std::fs::write(&file, b"null").unwrap();
    check(&["id", file.to_str().unwrap()], b"", 0, NULL, "");
    let json = format!("{{\"id\":\"{}\"}}\n", ONE.trim());
    check(&["id", "-", "--json"], b"1", 0, &json, "");
}

#[test]
fn id_reads_one_document_per_line() {
    check(&["id", "--lines", "-"], b"1\nnull\n", 0, &format!("{ONE}{NULL}"), "");
    check(&["id", "--lines", "-"], b"1\r\nnull", 0, &format!("{ONE}{NULL}"), "");
    check(&["id", "--lines", "-"], b"", 0, "", "");
}

#[test]
fn id_stops_at_the_first_bad_line() {
    let error = "error: standard input is not valid JSON: expected `,` or `]` at line 2 column 4\n";
    check(&["id", "--lines", "-"], b"1\n[1 2]\nnull\n", 2, ONE, error);
    let error =
        "error: standard input is not valid JSON: unexpected end of document at line 2 column 1\n";
    check(&["id", "--lines", "-"], b"1\n\nnull\n", 2, ONE, error);
}

#[test]
fn invalid_documents_are_reported_with_their_location() {
    for (text, what) in [
        (&b""[..], "unexpected end of document at line 1 column 1"),
        (b"{\n\"a\":1,}", "expected a member name at line 2 column 7"),
        (b"\"\xff\"", "invalid UTF-8 at line 1 column 2"),
        (b"[\"\\ud800\"]", "lone surrogate in a string at line 1 column 3"),
        (b"1e400", "number too large for a double at line 1 column 1"),
    ] {
        let error = format!("error: standard input is not valid JSON: {what}\n");
        check(&["id", "-"], text, 2, "", &error);
        check(&["verify", "-"], text, 2, "", &error);
    }
    // A history contains what a venue accepted, so it may be deeper than a document.
    for (command, most) in [("id", 128), ("verify", 144)] {
        let error = format!(
            "error: standard input is not valid JSON: more than {most} nested arrays and objects \
             at line 1 column {}\n",
            most + 1
        );
        check(&[command, "-"], &[b'['; 200], 2, "", &error);
    }
    let error = "{\"error\":\"standard input is not valid JSON: expected a value at line 1 column 2\",\
        \"code\":\"invalid_json\",\"line\":1,\"column\":2,\"offset\":1}\n";
    let ran = catena(&["id", "-", "--json"], b"[,1]");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert_eq!(same_json(&ran.stderr), same_json(error));
}

fn same_json(text: &str) -> Value {
    catena_value::json::read(text.as_bytes()).unwrap()
}

#[test]
fn too_large_a_document_is_refused() {
    let mut text = vec![b' '; catena_value::limits::DOCUMENT_BYTES_MAX];
    text.push(b'1');
    let ran = catena(&["id", "-"], &text);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("more than 67108864 bytes"), "{}", ran.stderr);
}

#[test]
fn a_missing_file_is_not_found() {
    let ran = catena(&["id", "no such file.json"], b"");
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.starts_with("error: could not read no such file.json"), "{}", ran.stderr);
}

#[test]
fn wrong_usage_is_code_2() {
    for args in [
        &[][..],
        &["id"],
        &["id", "--nonsense", "-"],
        &["nonsense"],
        &["verify", "-", "--job", "x"],
    ] {
        let ran = catena(args, b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

/// An echo job's chain.
fn chain() -> Vec<Record> {
    let opening = NewJob {
        id: JobId::new(1_769_683_717_706, [9; 10]),
        venue: "did:key:z6MkVenue".into(),
        op: "test:echo".into(),
        operation: Some("ab".repeat(32).into()),
        input: Value::from("hello"),
        caller: "did:key:z6MkCaller".into(),
        parent: None,
        extra: vec![],
    };
    let (mut job, first) = Job::create(opening, 1_769_683_717_706, None).unwrap();
    let begun = job.append(Change::new(Event::Started, 1_769_683_717_708)).unwrap();
    let finished = Event::Finished { output: "hello".into() };
    vec![first, begun, job.append(Change::new(finished, 1_769_683_717_710)).unwrap()]
}

fn history(records: &[Record], total: usize) -> String {
    let entry = |record: &Record| {
        let json = catena_value::json::to_string(&record.to_value()).unwrap();
        format!("{{\"id\":\"{}\",\"record\":{json}}}", record.id())
    };
    let entries: Vec<_> = records.iter().map(entry).collect();
    format!("{{\"records\":[{}],\"total\":{total}}}", entries.join(","))
}

#[test]
fn verify_accepts_a_valid_history() {
    let records = chain();
    let document = history(&records, 3);
    let id = records[0].field("id").unwrap().as_str().unwrap();
    let head = records[2].id();
    let text = format!(
        "valid: job {id} is COMPLETE after 3 records\nvenue: did:key:z6MkVenue\nhead:  {head}\n"
    );
    check(&["verify", "-"], document.as_bytes(), 0, &text, "");
    let expected = ["verify", "-", "--job", id, "--venue", "did:key:z6MkVenue"];
    check(&expected, document.as_bytes(), 0, &text, "");
    let ran = catena(&["verify", "-", "--json"], document.as_bytes());
    let report = same_json(&ran.stdout);
    let field = |name: &str| report.as_map().unwrap().field(name).cloned().unwrap();
    assert_eq!(field("valid"), Value::from(true));
    assert_eq!(field("records"), Value::from(3));
    assert_eq!(field("head"), Value::from(head));
}

#[test]
fn verify_reports_the_first_invalid_record() {
    let records = chain();
    let tampered = history(&records, 3).replacen("did:key:z6MkCaller", "did:key:z6MkOther", 1);
    let ran = catena(&["verify", "-"], tampered.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (6, ""));
    assert!(
        ran.stderr.starts_with("error: verification failed: record 0: the record is listed as")
    );

    let cut = history(&records[1..], 3);
    let ran = catena(&["verify", "-", "--json"], cut.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (6, ""));
    let error = same_json(&ran.stderr);
    let field = |name: &str| error.as_map().unwrap().field(name).cloned().unwrap();
    assert_eq!((field("code"), field("record")), ("bad_start".into(), 0.into()));

    let missing = history(&[records[0].clone(), records[2].clone()], 2);
    let ran = catena(&["verify", "-"], missing.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (6, ""));
    assert!(ran.stderr.contains("record 1: `prev` names"), "{}", ran.stderr);

    let head = records[1].id().to_string();
    let ran = catena(&["verify", "-", "--head", &head], history(&records, 3).as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (6, ""));
    assert!(ran.stderr.contains("expected head"), "{}", ran.stderr);
}

/// Each is reported, and one that is wrong does not hide the others.
#[test]
fn verify_reports_each_of_several_histories() {
    let records = chain();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let valid = file("valid", &history(&records, 3));
    let wrong =
        file("wrong", &history(&records, 3).replacen("did:key:z6MkCaller", "did:key:z6MkOther", 1));
    let garbage = file("garbage", "{}");
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let ran = catena(&["verify", &valid, &valid], b"");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout.matches("is COMPLETE after 3 records\n").count(), 2, "{}", ran.stdout);

    let ran = catena(&["verify", "--json", &missing, &wrong, &valid, &garbage], b"");
    assert_eq!((ran.code, ran.stderr.as_str()), (6, ""));
    let lines: Vec<Value> = ran.stdout.lines().map(same_json).collect();
    let field = |at: usize, name: &str| lines[at].as_map().unwrap().field(name).cloned();
    let subjects = [&missing, &wrong, &valid, &garbage];
    for (at, subject) in subjects.into_iter().enumerate() {
        assert_eq!(field(at, "subject"), Some(subject.as_str().into()), "{}", ran.stdout);
    }
    assert_eq!(lines.len(), 4, "{}", ran.stdout);
    assert_eq!(field(1, "code"), Some("hash_mismatch".into()));
    assert_eq!((field(1, "record"), field(2, "valid")), (Some(0.into()), Some(true.into())));
    assert_eq!(field(3, "code"), Some("malformed_history".into()));

    let ran = catena(&["verify", &garbage, &valid], b"");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 of 2 histories could not be verified"), "{}", ran.stderr);
    let head = records[2].id().to_string();
    let ran = catena(&["verify", &valid, &valid, "--head", &head], b"");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
}

#[test]
fn a_document_that_is_not_a_history_is_invalid_input() {
    let error = "error: not a history document: `records` is missing\n";
    check(&["verify", "-"], b"{}", 2, "", error);
}

#[test]
fn the_first_screen_of_the_readme_is_true() {
    let readme = include_str!("../../../README.md");
    let example = include_bytes!("../../../docs/examples/echo.json");
    let id = catena(&["id", "-"], br#"{"b": [1.0, 2], "a": 1}"#);
    let verdict = catena(&["verify", "-"], example);
    let shown = format!("```text\n{}{}```", id.stdout, verdict.stdout);
    assert!(readme.contains(&shown), "README.md should show:\n{shown}");
}

const ORCHESTRATION: &str = r#"{"name":"Join","operation":{"adapter":"orchestrator","steps":[
    {"op":"test:echo","name":"One","input":{"x":["input","x"]}},
    {"op":"test:echo","input":["const",2]},
    {"op":"test:echo","name":"Both","input":{"a":[0,"x"],"b":[1]},"venue":"did:web:other.example"}
],"result":{"all":[2]}}}"#;

#[test]
fn plan_explains_an_orchestration() {
    let expected = "steps: 3\nwaves: 2\ncritical path: 0 -> 2\n\
        wave 1: 0 One (test:echo), 1 (test:echo)\nwave 2: 2 Both (test:echo)\n\
        step 2 is sent to did:web:other.example with the output of step 0 at `x`, the output of step 1\n";
    check(&["plan", "-"], ORCHESTRATION.as_bytes(), 0, expected, "");
    let dot = "digraph plan {\n  rankdir=LR;\n  s0 [label=\"0 One (test:echo)\"];\n  \
        s1 [label=\"1 (test:echo)\"];\n  s2 [label=\"2 Both (test:echo)\"];\n  s0 -> s2;\n  s1 -> s2;\n}\n";
    check(&["plan", "--dot", "-"], ORCHESTRATION.as_bytes(), 0, dot, "");
    let mermaid = catena(&["plan", "--mermaid", "-"], ORCHESTRATION.as_bytes());
    assert!(mermaid.stdout.starts_with("flowchart LR\n  s0[\"0 One"), "{}", mermaid.stdout);
    let described = same_json(&catena(&["plan", "--json", "-"], ORCHESTRATION.as_bytes()).stdout);
    let waves = described.as_map().unwrap().field("waves").unwrap().clone();
    assert_eq!(waves, same_json("[[0,1],[2]]"));
    let steps = described.as_map().unwrap().field("steps").unwrap().as_vector().unwrap().clone();
    let sent =
        |step: usize| steps.as_leaf().unwrap()[step].as_map().unwrap().field("sends").cloned();
    let expected = same_json(r#"["the output of step 0 at `x`","the output of step 1"]"#);
    assert_eq!((sent(0), sent(1), sent(2)), (None, None, Some(expected)));
}

#[test]
fn plan_lists_secrets_as_withheld_and_never_as_sent() {
    let schema = r#""input":{"type":"object","properties":{"key":{"writeOnly":true},
        "config":{"type":"object","properties":{"token":{"writeOnly":true}}}}},"steps""#;
    let planned = |input: &str| {
        let step = format!(
            r#"[{{"op":"x:y","venue":"https://other.example","input":{input}}}],"result":[0]}}}}"#
        );
        let definition = format!(r#"{{"operation":{{"adapter":"orchestrator",{schema}:{step}"#);
        let ran = catena(&["plan", "-"], definition.as_bytes());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let line = ran.stdout.lines().last().unwrap().to_owned();
        let json = same_json(&catena(&["plan", "--json", "-"], definition.as_bytes()).stdout);
        let steps = json.as_map().unwrap().field("steps").unwrap().as_vector().unwrap().clone();
        (line, steps.as_leaf().unwrap()[0].as_map().unwrap().clone())
    };
    let prefix = "step 0 is sent to https://other.example with ";
    for (input, expected) in [
        (r#"["input","x"]"#, "the input at `x`"),
        (r#"["input","key"]"#, "nothing, without the input at `key` (writeOnly)"),
        (r#"["input","key","part"]"#, "nothing, without the input at `key` (writeOnly)"),
        (
            r#"["input","config"]"#,
            "the input at `config`, without the input at `config/token` (writeOnly)",
        ),
        (
            r#"["input"]"#,
            "the input, without the input at `config/token`, the input at `key` (writeOnly)",
        ),
        (
            r#"{"a":["const",1],"b":["input","config","token"]}"#,
            "constants, without the input at `config/token` (writeOnly)",
        ),
    ] {
        assert_eq!(planned(input).0, format!("{prefix}{expected}"));
    }
    let (_, step) = planned(r#"["array",["input","key"],["input","x"]]"#);
    assert_eq!(step.field("sends"), Some(&same_json(r#"["the input at `x`"]"#)));
    assert_eq!(step.field("withholds"), Some(&same_json(r#"["the input at `key`"]"#)));
}

#[test]
fn plan_reports_every_problem_at_once() {
    let bad = ORCHESTRATION.replace("[2]}}}", "[3]}}}").replace(r#"["const",2]"#, "2");
    let ran = catena(&["plan", "-"], bad.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let expected = "error: the orchestration has 2 problems:\n  \
        /operation/steps/1/input: is not a source (write a literal as [\"const\", 2])\n  \
        /operation/result/all/0: the result refers to step 3, which does not exist\n";
    assert_eq!(ran.stderr, expected);
    let error = same_json(&catena(&["plan", "--json", "-"], bad.as_bytes()).stderr);
    let problems = error.as_map().unwrap().field("problems").unwrap().as_vector().unwrap().len();
    assert_eq!(problems, 2);
}

#[test]
fn a_misspelt_variable_is_named_with_the_nearest() {
    let run = |variable: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_catena"));
        let output = command.args(args).env(variable, "1").stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let warning = "warning: the environment variable CATENA_VENEU is unknown and has no effect; \
                   the nearest is CATENA_VENUE\n";
    assert_eq!(run("CATENA_VENEU", &["completions", "bash"]), warning);
    assert_eq!(run("CATENA_VENEU", &["completions", "bash", "--json"]), "");
    for known in ["CATENA_JOB", "CATENA_LISTEN", "CATENA_X_VENEU"] {
        assert_eq!(run(known, &["completions", "bash"]), "", "{known}");
    }
}
