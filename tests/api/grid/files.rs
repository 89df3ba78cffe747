//! The files of a data folder: who may read them, and what happens without the key of its secrets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use catena_tests::site::{Site, id_of};
use serde_json::json;

/// Checks that nobody else may use a folder and what is in it. Sockets have no content.
fn assert_private(folder: &Path) {
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_private(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_data_folder_is_private_and_becomes_private_again() {
    let site = Site::start().await;
    site.invoke("test:echo", json!({})).await;
    assert_private(site.data());
    fs::set_permissions(site.data(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(site.data().join("venue.key"), Permissions::from_mode(0o644)).unwrap();
    let site = site.restarted().await;
    assert_private(site.data());
}

/// Jobs that need a sealed value are paused if its key is missing, and go on once it is back.
#[tokio::test]
async fn without_the_key_of_its_secrets_a_job_is_paused() {
    let site = Site::start().await;
    let metadata = json!({"operation": {"adapter": "test:delay", "input": {"type": "object",
        "properties": {"key": {"type": "string", "writeOnly": true}}}}});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let input = json!({"delay": 3_600_000, "key": "very-secret"});
    let id = id_of(&site.invoke(asset.as_str().unwrap(), input).await);
    site.until(&id, "STARTED").await;
    let plain = site.invoked("test:never", json!({}), "STARTED").await;
    let key = site.data().join("secrets.key");
    let moved = site.data().join("secrets.moved");
    assert_ne!(fs::read(&key).unwrap(), fs::read(site.data().join("venue.key")).unwrap());
    fs::rename(&key, &moved).unwrap();
    let site = site.restarted().await;
    let job = site.until(&id, "PAUSED").await;
    assert!(job["message"].as_str().unwrap().contains("the key that sealed them"), "{job}");
    site.until(&plain, "STARTED").await;
    fs::rename(&moved, &key).unwrap();
    let site = site.restarted().await;
    site.control(&id, "resume").await.expect(200);
    site.until(&id, "STARTED").await;
    site.history(&id).await.verify();
}
