//! `catena store` on real folders.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use catena_store::embedded::DataFolder;
use catena_store::embedded::admin::AdminSocket;
use catena_store::testing::jobs::{Draft, echo, hello, job_id, opening};
use catena_store::{Effect, Effects, Store};
use catena_value::Value;

fn catena(data: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_catena"))
        .args(["store", "--data"])
        .arg(data)
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A folder with twenty finished jobs, a live one, a large value and two blobs.
fn filled(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = open(path);
    runtime.block_on(async {
        for number in 0..20 {
            folder
                .store
                .commit(Effects::one(echo(job_id(number), "did:a").effect()))
                .await
                .unwrap();
        }
        let live = Draft::open(opening(job_id(50), "did:b", hello()), 5);
        folder.store.commit(Effects::one(live.effect())).await.unwrap();
        let long: String = (0..5_000).map(|i| format!("{i} ")).collect();
        let large = Draft::open(opening(job_id(51), "did:b", Value::from(long)), 5);
        folder.store.commit(Effects::one(large.effect())).await.unwrap();
        for content in [vec![1; 100], vec![2; 100_000]] {
            let mut upload = folder.blobs.begin().await.unwrap();
            upload.write(content.into()).await.unwrap();
            upload.finish(None).await.unwrap();
        }
    });
    folder.store.close().unwrap();
}

/// Opens a folder. A test that starts a process at the same moment lends it the lock of a folder that
/// is just being closed, until the process replaces its image.
#[expect(clippy::disallowed_methods, reason = "when another process lets go has no signal")]
fn open(dir: &Path) -> DataFolder {
    for _ in 0..1_000 {
        match DataFolder::open(dir) {
            Err(error) if error.to_string().contains("in use by another process") => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other.unwrap(),
        }
    }
    panic!("{} stays locked", dir.display());
}

#[test]
fn an_intact_store_is_checked_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let checked = catena(dir.path(), &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let report = text(&checked.stdout);
    assert!(report.starts_with("jobs: 22\nrecords: 62\n"), "{report}");
    assert!(report.ends_with("problems: 0\n"), "{report}");
    let rebuilt = catena(dir.path(), &["check", "--rebuild"]);
    assert_eq!(rebuilt.status.code(), Some(0), "{}", text(&rebuilt.stderr));
    assert_eq!(text(&rebuilt.stdout), report);
    let note = text(&rebuilt.stderr);
    assert!(note.starts_with("rebuilt ") && note.ends_with(" index entries\n"), "{note}");
    let json = catena(dir.path(), &["check", "--json"]);
    assert!(text(&json.stdout).contains("\"jobs\":22"), "{}", text(&json.stdout));
}

#[test]
fn a_backup_restores_to_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let copy = dir.path().join("copy");
    let again = dir.path().join("again");
    filled(&data);
    std::fs::write(data.join("access-list"), "did:key:a\n").unwrap();
    std::fs::write(data.join("secrets.key"), [1; 32]).unwrap();
    let backup = catena(&data, &["backup", copy.to_str().unwrap()]);
    assert_eq!(std::fs::read(copy.join("access-list")).unwrap(), b"did:key:a\n");
    assert!(!copy.join("secrets.key").exists(), "a backup does not open its secrets");
    for (path, expected) in [("", 0o700), ("store", 0o700), ("access-list", 0o600)] {
        let mode = std::fs::metadata(copy.join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{path}");
    }
    assert_eq!(backup.status.code(), Some(0), "{}", text(&backup.stderr));
    assert!(text(&backup.stdout).ends_with("blobs: 1\n"), "{}", text(&backup.stdout));
    let restored = catena(&again, &["restore", copy.to_str().unwrap()]);
    assert_eq!(restored.status.code(), Some(0), "{}", text(&restored.stderr));
    let first = catena(&data, &["check"]);
    let second = catena(&again, &["check"]);
    assert_eq!(text(&first.stdout), text(&second.stdout));
    // Nothing is overwritten.
    let refused = catena(&data, &["backup", copy.to_str().unwrap()]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""));
    assert!(text(&refused.stderr).contains("is not empty"), "{}", text(&refused.stderr));
}

#[test]
fn a_backup_with_a_link_or_with_another_key_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    filled(&copy);
    let again = dir.path().join("again");
    let refused = |code: &str| {
        let restored = catena(&again, &["restore", copy.to_str().unwrap(), "--json"]);
        assert_eq!(restored.status.code(), Some(2), "{}", text(&restored.stderr));
        assert!(text(&restored.stderr).contains(code), "{}", text(&restored.stderr));
        assert!(!again.exists());
    };
    for key in [vec![7; 16], vec![7; 32]] {
        std::fs::write(copy.join("venue.key"), key).unwrap();
        refused("key_invalid");
    }
    std::fs::remove_file(copy.join("venue.key")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", copy.join("venue.key")).unwrap();
    refused("symbolic_link");
}

#[test]
fn a_folder_with_a_long_path_is_backed_up_while_it_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("x".repeat(200));
    filled(&data);
    let folder = Arc::new(open(&data));
    let control = AdminSocket::start(Arc::clone(&folder)).unwrap();
    let backup = catena(&data, &["backup", dir.path().join("copy").to_str().unwrap()]);
    assert_eq!(backup.status.code(), Some(0), "{}", text(&backup.stderr));
    drop(control);
}

#[test]
fn a_running_store_is_backed_up_by_the_process_that_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let copy = dir.path().join("copy");
    filled(&data);
    let folder = Arc::new(open(&data));
    let control = AdminSocket::start(Arc::clone(&folder)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let more = echo(job_id(900), "did:c").effect();
    runtime.block_on(folder.store.commit(Effects::one(more))).unwrap();
    let backup = catena(&data, &["backup", copy.to_str().unwrap()]);
    assert_eq!(backup.status.code(), Some(0), "{}", text(&backup.stderr));
    let checked = catena(&copy, &["check"]);
    assert!(text(&checked.stdout).starts_with("jobs: 23\n"), "{}", text(&checked.stdout));
    let again = catena(&data, &["backup", copy.to_str().unwrap()]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(2), ""));
    assert!(text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));
    drop(control);
    drop(folder);
    assert_eq!(catena(&data, &["check"]).status.code(), Some(0));
}

#[test]
fn damage_is_found_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let blobs = dir.path().join("blobs");
    let file = std::fs::read_dir(&blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.metadata().unwrap().len() == 100_000)
        .unwrap();
    let mut content = std::fs::read(&file).unwrap();
    content[50_000] ^= 1;
    std::fs::write(&file, content).unwrap();
    let checked = catena(dir.path(), &["check"]);
    assert_eq!((checked.status.code(), text(&checked.stdout)), (Some(6), ""));
    assert!(text(&checked.stderr).contains("sha256:"), "{}", text(&checked.stderr));
    let copy = dir.path().join("copy");
    let restored = catena(&copy, &["restore", dir.path().to_str().unwrap()]);
    assert_eq!(restored.status.code(), Some(6), "a damaged backup is not restored");
    assert!(!copy.join("store").exists());
}

#[test]
fn a_missing_or_locked_folder_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let missing = catena(&dir.path().join("nothing"), &["check"]);
    assert_eq!((missing.status.code(), text(&missing.stdout)), (Some(3), ""));
    assert!(text(&missing.stderr).contains("there is no store in"));
    let held = open(dir.path());
    let refused = catena(dir.path(), &["check"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("in use by another process"),
        "{}",
        text(&refused.stderr)
    );
    drop(held);
}

#[test]
fn unreferenced_cells_are_collected() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = open(dir.path());
    runtime
        .block_on(folder.store.commit(Effects::one(Effect::Delete { job: job_id(51) })))
        .unwrap();
    drop(folder);
    let collected = catena(dir.path(), &["collect"]);
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    let removed = text(&collected.stdout).lines().next().unwrap();
    assert_ne!(removed, "removed: 0");
    assert_eq!(catena(dir.path(), &["check"]).status.code(), Some(0));
}
