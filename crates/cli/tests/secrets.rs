//! `catena secrets`: values come from standard input, are never shown, and outlive a rotation of the key.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{catena, member, value, venue};

#[test]
fn secrets_are_set_from_standard_input_listed_and_removed() {
    let venue = venue();
    let set = venue.catena_with(&["secrets", "set", "API_KEY"], &[], b"s3cret\n");
    assert_eq!((set.code, set.stdout.as_str()), (0, "API_KEY  stored\n"), "{}", set.stderr);
    let bound = ["secrets", "set", "BOUND", "--host", "api.example", "--json"];
    let bound = venue.catena_with(&bound, &[], b"other");
    assert_eq!(member(&bound.stdout, "stored"), value("true"), "{}", bound.stderr);
    let listed = venue.catena(&["secrets", "ls"]);
    assert_eq!(listed.stdout, "API_KEY\nBOUND\n");
    let json = venue.catena(&["secrets", "ls", "--json"]);
    assert!(json.stdout.contains("api.example"), "{}", json.stdout);
    for ran in [&set, &bound, &listed, &json] {
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("s3cret"), "{ran:?}");
    }
    assert_eq!(venue.catena(&["secrets", "rm", "API_KEY"]).stdout, "API_KEY  deleted\n");
    assert_eq!(venue.catena(&["secrets", "rm", "API_KEY"]).code, 3);
    assert_eq!(venue.catena(&["secrets", "ls"]).stdout, "BOUND\n");
}

/// Other users of the machine see arguments, and shells remember them.
#[test]
fn a_value_is_no_argument_and_is_not_empty() {
    let venue = venue();
    for args in [
        &["secrets", "set", "API_KEY", "s3cret"][..],
        &["secrets", "set", "API_KEY", "--value", "s3cret"],
    ] {
        let ran = venue.catena_with(args, &[], b"x");
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stdout);
    }
    assert_eq!(venue.catena_with(&["secrets", "set", "API_KEY"], &[], b"").code, 2);
    assert_eq!(venue.catena(&["secrets", "ls"]).stdout, "");
}

#[test]
fn a_rotation_needs_a_stopped_venue_and_finishes_with_queued_messages() {
    let venue = venue();
    let data = venue.data();
    assert_eq!(venue.catena_with(&["secrets", "set", "KEPT"], &[], b"s3cret").code, 0);
    // A message with credentials waits for a job that reads none.
    let job = venue.job("test:never", "{}");
    venue.until(&job, "STARTED");
    let message = r#"{"content":"x","credentials":{"token":"s3cret"}}"#;
    let sent = venue.catena(&["jobs", "send", &job, message]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let rotate = ["secrets", "rotate", "--data", &data];
    assert_ne!(venue.catena(&rotate).code, 0, "a venue uses the folder");
    let folder = venue.stop();
    let file = folder.path().join("data").join("secrets.key");
    let before = std::fs::read(&file).unwrap();
    for _ in 0..2 {
        let ran = catena(folder.path(), &rotate, &[], b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "rotated\n"), "{}", ran.stderr);
        assert!(!file.with_extension("next").exists(), "the old key is gone");
    }
    assert_ne!(std::fs::read(&file).unwrap(), before);
    let venue = support::venue_with(folder, |_| {});
    assert_eq!(venue.catena(&["secrets", "ls"]).stdout, "KEPT\n");
}
