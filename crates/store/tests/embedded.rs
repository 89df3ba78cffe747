//! The embedded store: the conformance suite, crashes, collection, checks, backup.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::sync::Arc;

use catena_job::state::Event;
use catena_ledger::OpenError;
use catena_store::conformance;
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::crash::run_simulation;
use catena_store::testing::jobs::{Draft, echo, hello, job_id, opening};
use catena_store::testing::{Faults, SimDisk};
use catena_store::{Effect, Effects, RootKey, RootSpace, Store};
use catena_value::{Map, Value};

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_holds_in_a_folder() {
    // Each fact's folder is removed before the next: a store takes up to 64 MiB for its journal.
    let mut folder = tempfile::tempdir().unwrap();
    conformance::all(|| {
        folder = tempfile::tempdir().unwrap();
        Arc::new(EmbeddedStore::open(folder.path()).unwrap())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_holds_without_a_journal() {
    let mut seed = 0;
    conformance::all(|| {
        seed += 1;
        let options = catena_ledger::Options {
            mode: catena_ledger::Mode::Direct,
            ..EmbeddedStore::options()
        };
        Arc::new(EmbeddedStore::open_on(Arc::new(SimDisk::new(seed)), options).unwrap())
    })
    .await;
}

#[test]
fn nothing_acknowledged_is_lost_in_a_few_hundred_crashes() {
    let (mut crashes, mut acknowledged, mut collections) = (0, 0, 0);
    for seed in 0..20 {
        let report = run_simulation(seed, 20, Faults::default());
        assert_eq!(report.failure, None);
        crashes += report.crashes;
        acknowledged += report.acknowledged;
        collections += report.collections;
    }
    assert_eq!(crashes, 400);
    assert!(acknowledged > 2_000, "only {acknowledged} commits were acknowledged");
    assert!(collections > 20, "only {collections} collections ran");
}

#[test]
fn a_missing_sync_is_noticed() {
    let caught = (0..20)
        .filter(|seed| run_simulation(*seed, 20, Faults::without_journal_sync()).failure.is_some());
    assert!(caught.count() > 10, "the simulation must notice lost commits");
}

fn workspace() -> RootKey {
    RootKey { space: RootSpace::Workspace, owner: "did:a".into(), name: "w".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_that_nothing_refers_to_are_collected() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let large =
        |text: &str| Value::from((0..4_000).map(|i| format!("{text}{i} ")).collect::<String>());
    let mut draft = Draft::open(opening(job_id(1), "did:a", large("kept ")), 5);
    draft.change(Event::Started);
    store.commit(Effects::one(draft.effect())).await.unwrap();
    let other = Draft::open(opening(job_id(2), "did:a", large("deleted ")), 5);
    store.commit(Effects::one(other.effect())).await.unwrap();
    let map: Map = (0..2_000).map(|i| (format!("key {i}"), i)).collect();
    let value = Value::from(map.clone());
    let root = |expected: Option<&Value>, value: &Value| Effect::SetRoot {
        key: workspace(),
        expected: expected.map(Value::id),
        value: Some(value.clone()),
    };
    store.commit(Effects::one(root(None, &value))).await.unwrap();
    let before = store.check().unwrap();
    assert!(before.is_good(), "{:?}", before.problems);
    assert_eq!(store.collect().await.unwrap().removed, 0);

    store.commit(Effects::one(Effect::Delete { job: job_id(2) })).await.unwrap();
    let changed = map.insert("key 7".into(), "changed".into(), &catena_value::NoCells).unwrap();
    store.commit(Effects::one(root(Some(&value), &changed.clone().into()))).await.unwrap();
    let collected = store.collect().await.unwrap();
    assert!(collected.removed > 5, "{collected:?}");
    let after = store.check().unwrap();
    assert!(after.is_good(), "{:?}", after.problems);
    assert_eq!(store.collect().await.unwrap().removed, 0);
    // What is left is whole.
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    let input = stored.job.field("input").unwrap().fully_loaded(&stored.cells).unwrap();
    assert_eq!(input.id(), large("kept ").id());
    let root = store.root(&workspace()).await.unwrap().unwrap();
    let whole = root.value.fully_loaded(&*store.cells()).unwrap();
    assert_eq!(whole.id(), Value::from(changed).id());
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_can_be_dropped_and_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    for number in 0..30 {
        store.commit(Effects::one(echo(job_id(number), "did:a").effect())).await.unwrap();
        let live = Draft::open(opening(job_id(number + 100), "did:b", hello()), 5);
        store.commit(Effects::one(live.effect())).await.unwrap();
    }
    let before = store.check().unwrap();
    assert!(before.is_good(), "{:?}", before.problems);
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!(rebuilt, before.index_entries);
    let after = store.check().unwrap();
    assert!(after.is_good(), "{:?}", after.problems);
    assert_eq!(after.index_entries, before.index_entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_store_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&folder.path().join("data")).unwrap());
    for number in 0..200 {
        store.commit(Effects::one(echo(job_id(number), "did:a").effect())).await.unwrap();
    }
    // Another thread writes all the while.
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 1_000..1_400 {
                store.commit(Effects::one(echo(job_id(number), "did:b").effect())).await.unwrap();
            }
        })
    };
    let destination = folder.path().join("copy");
    store.backup(&destination).unwrap();
    writer.await.unwrap();
    let copy = EmbeddedStore::open(&destination).unwrap();
    let report = copy.check().unwrap();
    assert!(report.is_good(), "{:?}", report.problems);
    assert!((200..=600).contains(&report.jobs), "{} jobs", report.jobs);
    for number in 0..200 {
        assert!(copy.job(job_id(number)).await.unwrap().is_some());
    }
}

#[test]
fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = EmbeddedStore::open(folder.path()).unwrap();
    let second = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(matches!(second, OpenError::Locked { .. }), "{second}");
    first.close().unwrap();
    drop(first);
    EmbeddedStore::open(folder.path()).unwrap();
}

#[test]
fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(EmbeddedStore::open(folder.path()).unwrap());
    // The stamp is a magic word, a version and a checksum over both.
    let stamp = folder.path().join("FORMAT");
    let mut bytes = std::fs::read(&stamp).unwrap();
    bytes[8..12].copy_from_slice(&99u32.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(&stamp, &bytes).unwrap();
    let refused = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(matches!(refused, OpenError::NewerFormat { found: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_share_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(folder.path()).unwrap());
    let before = store.counters();
    let mut writers = Vec::new();
    for writer in 0..64u64 {
        let store = Arc::clone(&store);
        writers.push(tokio::spawn(async move {
            for number in 0..20 {
                let draft = echo(job_id(writer * 1_000 + number), "did:a");
                store.commit(Effects::one(draft.effect())).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let after = store.counters();
    let (entries, syncs) = (after.entries - before.entries, after.syncs - before.syncs);
    assert_eq!(entries, 64 * 20);
    assert!(syncs * 2 < entries, "{syncs} syncs for {entries} commits");
}

#[tokio::test]
async fn the_size_of_a_store_is_that_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    store.commit(Effects::one(echo(job_id(1), "did:a").effect())).await.unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap();
    let size: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(size > 0);
    assert_eq!(store.disk_bytes(), size);
}
