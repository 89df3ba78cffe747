//! Orchestrations from the command line: register, run, verify the complete tree, rerun.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{member, value, venue};

const DEFINITION: &str = r#"{
  "name": "Fan out and join",
  "operation": {
    "adapter": "orchestrator",
    "steps": [
      {"op": "test:echo", "name": "left", "input": {"n": ["input", "n"]}},
      {"op": "test:delay", "input": {"delay": ["const", 1], "input": ["const", {"m": 2}]}},
      {"op": "json:merge", "input": {"values": ["array", [0], [1]]}}
    ],
    "result": [2, "result"]
  }
}"#;

#[test]
fn an_orchestration_is_added_run_verified_and_run_again() {
    let venue = venue();
    let file = venue.folder.path().join("fan.json");
    std::fs::write(&file, DEFINITION).unwrap();
    let added = venue.catena(&["ops", "add", &file.display().to_string()]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    let operation = added.stdout.split_whitespace().next().unwrap().to_owned();
    let ran = venue.catena(&["run", &operation, "-i", r#"{"n":1}"#, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(member(&ran.stdout, "output"), value(r#"{"n":1,"m":2}"#));
    let job = member(&ran.stdout, "id").as_str().unwrap().to_owned();
    let shallow = venue.catena(&["verify", &job]);
    assert!(shallow.stdout.contains("sub-jobs: 0 verified, 3 unavailable"), "{}", shallow.stdout);
    let deep = venue.catena(&["verify", &job, "--deep"]);
    assert_eq!(deep.code, 0, "{}", deep.stderr);
    assert!(deep.stdout.contains("sub-jobs: 3 verified, 0 unavailable"), "{}", deep.stdout);
    let again = venue.catena(&["jobs", "rerun", &job, "--from", "2", "--json"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let rerun = member(&again.stdout, "id").as_str().unwrap().to_owned();
    let watched = venue.catena(&["jobs", "watch", &rerun]);
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    let read = venue.catena(&["jobs", "get", &rerun, "--json"]);
    assert_eq!(member(&read.stdout, "output"), value(r#"{"n":1,"m":2}"#));
    // Those of the earlier run whose outputs were reused are verified, too.
    let deep = venue.catena(&["verify", &rerun, "--deep"]);
    assert!(deep.stdout.contains("sub-jobs: 3 verified, 0 unavailable"), "{}", deep.stdout);
    let refused = venue.catena(&["jobs", "rerun", &job, "--from", "9"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

#[test]
fn verify_deep_follows_the_calls_of_a_job() {
    let venue = venue();
    let input = r#"{"operation":"test:delay","input":{"delay":0,"operation":"test:echo"}}"#;
    let ran = venue.catena(&["run", "grid:run", "-i", input, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let job = member(&ran.stdout, "id").as_str().unwrap().to_owned();
    let deep = venue.catena(&["verify", &job, "--deep"]);
    assert_eq!(deep.code, 0, "{}", deep.stderr);
    assert!(deep.stdout.contains("sub-jobs: 2 verified, 0 unavailable"), "{}", deep.stdout);
}
