//! `catena schedules` and `catena store cancel`, on running and on stopped venues.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{Ran, catena, member, value, venue};

fn offline(data: &str, args: &[&str]) -> Ran {
    let all: Vec<&str> = args.iter().copied().chain(["--data", data]).collect();
    catena(std::path::Path::new(data).parent().unwrap(), &all, &[], b"")
}

fn handle(ran: &Ran) -> String {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

#[test]
fn schedules_are_added_listed_paused_resumed_triggered_and_removed() {
    let venue = venue();
    let cron = ["schedules", "add", "test:echo", "-i", "7", "--cron", "0 9 * * 1-5"];
    let more = ["--time-zone", "Europe/Zurich", "--overlap", "queue", "--jitter", "2"];
    let added = handle(&venue.catena(&[&cron[..], &more[..]].concat()));
    let listed = venue.catena(&["schedules", "ls"]);
    assert!(listed.stdout.contains("0 9 * * 1-5 Europe/Zurich"), "{}", listed.stdout);
    assert!(listed.stdout.contains(&added) && listed.stdout.contains("active"));
    let json = venue.catena(&["schedules", "ls", "--json"]);
    assert!(json.stdout.contains(r#""overlap":"queue""#), "{}", json.stdout);
    assert_eq!(venue.catena(&["schedules", "pause", &added]).code, 0);
    assert!(venue.catena(&["schedules", "ls"]).stdout.contains("paused"));
    let resumed = venue.catena(&["schedules", "resume", &added, "--json"]);
    assert_eq!(member(&resumed.stdout, "resumed"), value("true"));
    let job = handle(&venue.catena(&["schedules", "trigger", &added]));
    let got = venue.catena(&["jobs", "get", &job, "--json"]);
    assert_eq!(member(&got.stdout, "output"), value("7"));
    assert_eq!(venue.catena(&["schedules", "rm", &added]).code, 0);
    let gone = venue.catena(&["schedules", "rm", &added]);
    assert_eq!(gone.code, 3, "{}", gone.stderr);
    assert!(gone.stderr.contains("there is no schedule"), "{}", gone.stderr);
}

#[test]
fn what_cannot_be_scheduled_is_refused() {
    let venue = venue();
    for (args, said) in [
        (&["--cron", "every day"][..], "cron"),
        (&["--cron", "* * * * *", "--time-zone", "Mars/Base"], "IANA"),
        (&["--at", "tomorrow"], "`time` must be"),
        (&["--after", "1", "--overlap", "never"], "allow, skip, queue"),
        (&["--after", "1", "--time-zone", "UTC"], "`timeZone` is the time zone of `cron`"),
        (&[], "--cron"),
    ] {
        let ran = venue.catena(&[&["schedules", "add", "test:echo"][..], args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn the_folder_of_a_stopped_venue_is_listed_and_changed() {
    let venue = venue();
    let add = || handle(&venue.catena(&["schedules", "add", "test:echo", "--after", "3600"]));
    let first = add();
    let second = add();
    let running = venue.job("test:never", "{}");
    let steps = r#"[{"op":"test:never","input":["const",{}]}]"#;
    let metadata = format!(
        r#"{{"name":"w","operation":{{"adapter":"orchestrator","steps":{steps},"result":[0]}}}}"#
    );
    let added = venue.catena_with(&["ops", "add", "-"], &[], metadata.as_bytes());
    let workflow = venue.job(added.stdout.trim(), "{}");
    let data = venue.data();
    let busy = offline(&data, &["schedules", "ls"]);
    assert_eq!(busy.code, 2, "the venue uses it: {}", busy.stderr);
    let folder = venue.stop();
    let listed = offline(&data, &["schedules", "ls"]);
    assert!(listed.stdout.contains(&first) && listed.stdout.contains(&second));
    assert_eq!(offline(&data, &["schedules", "rm", &first]).code, 0);
    assert_eq!(offline(&data, &["schedules", "rm", &first]).code, 3);
    assert_eq!(offline(&data, &["schedules", "pause", &second]).code, 0);
    let listed = offline(&data, &["schedules", "ls"]);
    assert!(!listed.stdout.contains(&first) && listed.stdout.contains("paused"));
    let cancelled = offline(&data, &["store", "cancel", &running, "--reason", "stuck"]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.stderr);
    assert!(cancelled.stdout.contains("CANCELLED"), "{}", cancelled.stdout);
    let tree = offline(&data, &["store", "cancel", &workflow, "--json"]);
    assert_eq!(member(&tree.stdout, "cancelled"), value("2"), "the job and its step");
    let again = offline(&data, &["store", "cancel", &workflow, "--json"]);
    assert_eq!(member(&again.stdout, "cancelled"), value("0"));
    assert_eq!(offline(&data, &["store", "cancel", &"0".repeat(32)]).code, 3);
    assert_eq!(offline(&data, &["store", "check"]).code, 0);
    let venue = support::venue_with(folder, |_| {});
    let job = venue.catena(&["jobs", "get", &running, "--json"]);
    assert_eq!(member(&job.stdout, "status"), value(r#""CANCELLED""#));
    assert_eq!(member(&job.stdout, "error"), value(r#""Job cancelled: stuck""#));
    for job in [&running, &workflow] {
        let verified = venue.catena(&["verify", job, "--deep"]);
        assert_eq!(verified.code, 0, "{}", verified.stderr);
    }
    assert!(venue.catena(&["schedules", "ls"]).stdout.contains("paused"));
}
