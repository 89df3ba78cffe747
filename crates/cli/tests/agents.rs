//! `catena agents`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{member, value, venue};

#[test]
fn agents_are_listed_messaged_run_suspended_and_removed() {
    let venue = venue();
    let input = r#"{"agentId":"helper","config":{"operation":"test:tally"}}"#;
    assert_eq!(venue.catena(&["run", "agent:create", "-i", input]).code, 0);
    let listed = venue.catena(&["agents", "ls"]);
    assert!(listed.stdout.contains("helper") && listed.stdout.contains("SLEEPING"), "{listed:?}");
    assert_eq!(venue.catena(&["agents", "send", "helper", "hello"]).code, 0);
    let ran = venue.catena(&["agents", "run", "helper"]);
    assert_eq!(value(&ran.stdout), value(r#"{"seen":["hello"]}"#), "{ran:?}");
    let chat = venue.catena(&["agents", "chat", "helper", r#"{"q":1}"#, "--json"]);
    assert_eq!(member(&chat.stdout, "response"), value(r#"{"seen":[{"q":1}]}"#), "{chat:?}");
    let info = venue.catena(&["agents", "get", "helper", "--json"]);
    assert_eq!(member(&info.stdout, "timelineLength"), value("2"), "{info:?}");
    assert_eq!(venue.catena(&["agents", "suspend", "helper"]).stdout.trim(), "SUSPENDED");
    let refused = venue.catena(&["agents", "run", "helper"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("SUSPENDED"), "{refused:?}");
    assert_eq!(venue.catena(&["agents", "get", "absent"]).code, 3);
    assert_eq!(venue.catena(&["agents", "resume", "helper"]).stdout.trim(), "SLEEPING");
    assert_eq!(venue.catena(&["agents", "rm", "helper"]).stdout.trim(), "TERMINATED");
    assert!(!venue.catena(&["agents", "ls"]).stdout.contains("helper"));
    assert!(venue.catena(&["agents", "ls", "--all"]).stdout.contains("TERMINATED"));
}

#[test]
fn questions_of_agents_are_listed_and_answered() {
    let venue = venue();
    let config = r#"{"agentId":"helper","config":{"operation":"test:tally"}}"#;
    assert_eq!(venue.catena(&["run", "agent:create", "-i", config]).code, 0);
    let question = r#"{"agentId":"helper","question":"Pay?"}"#;
    assert_eq!(venue.catena(&["run", "agent:ask", "-i", question]).code, 0);
    let listed = venue.catena(&["agents", "requests"]);
    assert!(listed.stdout.contains("OPEN") && listed.stdout.contains("Pay?"), "{listed:?}");
    let id = listed.stdout.split_whitespace().next().unwrap().to_owned();
    assert_eq!(venue.catena(&["agents", "answer", &id, "yes"]).stdout.trim(), "ANSWERED");
    assert_eq!(venue.catena(&["agents", "answer", &id, "no"]).code, 1);
    assert_eq!(venue.catena(&["agents", "answer", "helper~0", "no"]).code, 3);
    assert_eq!(venue.catena(&["agents", "requests"]).stdout.trim(), "");
    assert!(venue.catena(&["agents", "requests", "--all"]).stdout.contains("ANSWERED"));
    let woken = venue.catena(&["agents", "wake", "helper", "--at", "2099-01-31T09:00:00Z"]);
    assert_eq!(woken.stdout.trim(), "SLEEPING", "{woken:?}");
}
