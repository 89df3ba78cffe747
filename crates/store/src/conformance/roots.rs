//! Roots: mutable values such as agents, workspaces and assets.

use catena_job::state::Event;
use catena_value::{Map, Value};

use super::Subject;
use crate::effects::{CommitError, Effect, Effects};
use crate::store::{RootKey, RootSpace};
use crate::testing::jobs::{Draft, job_id, opening};

fn key(name: &str) -> RootKey {
    RootKey { space: RootSpace::Workspace, owner: "did:a".into(), name: name.into() }
}

fn put(key: RootKey, expected: Option<&Value>, value: Option<Value>) -> Effects {
    Effects::one(Effect::SetRoot { key, expected: expected.map(Value::id), value })
}

pub(super) async fn a_root_changes_only_from_what_it_is(store: Subject) {
    let (one, two) = (Value::from("one"), Value::from("two"));
    assert!(store.root(&key("w")).await.unwrap().is_none());
    store.commit(put(key("w"), None, Some(one.clone()))).await.unwrap();
    assert_eq!(store.root(&key("w")).await.unwrap().unwrap().value, one);
    let refused = store.commit(put(key("w"), None, Some(two.clone()))).await.unwrap_err();
    let (expected, found) = (None, Some(one.id()));
    assert_eq!(refused, CommitError::RootMoved { key: key("w"), expected, found });
    store.commit(put(key("w"), Some(&one), Some(two.clone()))).await.unwrap();
    assert_eq!(store.root(&key("w")).await.unwrap().unwrap().id, two.id());
    store.commit(put(key("w"), Some(&two), None)).await.unwrap();
    assert!(store.root(&key("w")).await.unwrap().is_none());
}

pub(super) async fn a_root_that_exists_is_not_set_again(store: Subject) {
    let set = |value: &str| {
        let value = Value::from(value);
        Effects::one(Effect::SetRootIfAbsent { key: key("w"), value })
    };
    store.commit(set("one")).await.unwrap();
    store.commit(set("two")).await.unwrap();
    assert_eq!(store.root(&key("w")).await.unwrap().unwrap().value, Value::from("one"));
    let unnamed = Effect::SetRootIfAbsent { key: key(""), value: Value::Nil };
    assert!(store.commit(Effects::one(unnamed)).await.is_err());
}

pub(super) async fn a_large_value_is_updated_cell_by_cell(store: Subject) {
    let map: Map = (0..3_000).map(|i| (format!("key {i}"), format!("value {i}"))).collect();
    let mut value = Value::from(map.clone());
    store.commit(put(key("w"), None, Some(value.clone()))).await.unwrap();
    let mut expected = map;
    let cells = store.cells();
    for i in 0..20 {
        // Only the root is in memory; the rest is loaded on the way.
        let root = store.root(&key("w")).await.unwrap().unwrap();
        assert_eq!(root.id, value.id());
        let Value::Map(stored) = root.value else { panic!("not a map") };
        let name = Value::from(format!("key {}", i * 100));
        let changed = stored.insert(name.clone(), Value::from(i), &*cells).unwrap();
        let changed = Value::from(changed);
        assert!(catena_value::new_cells(&changed, |_| false).len() < 8);
        store.commit(put(key("w"), Some(&value), Some(changed.clone()))).await.unwrap();
        expected = expected.insert(name, Value::from(i), &catena_value::NoCells).unwrap();
        value = changed;
    }
    let root = store.root(&key("w")).await.unwrap().unwrap();
    assert_eq!(root.id, Value::from(expected.clone()).id());
    let whole = root.value.fully_loaded(&*cells).unwrap();
    assert_eq!(whole, Value::from(expected));
}

pub(super) async fn a_root_cannot_refer_to_what_is_not_held(store: Subject) {
    let whole: Map = (0..300).map(|i| (format!("key {i}"), i)).collect();
    // Only the root cell is in memory; the rest was never stored.
    let dangling = catena_value::decode(&catena_value::encode(&whole.into())).unwrap();
    let refused = store.commit(put(key("w"), None, Some(dangling))).await.unwrap_err();
    assert!(matches!(refused, CommitError::MissingCell { .. }), "{refused}");
    assert!(store.root(&key("w")).await.unwrap().is_none());
}

pub(super) async fn roots_are_listed_by_name(store: Subject) {
    for name in ["b", "a", "c"] {
        store.commit(put(key(name), None, Some(Value::from(1)))).await.unwrap();
    }
    let other = RootKey { owner: "did:ab".into(), ..key("x") };
    store.commit(put(other, None, Some(Value::from(1)))).await.unwrap();
    let names = store.roots(RootSpace::Workspace, "did:a", None, 10).await.unwrap();
    assert_eq!(names, ["a", "b", "c"]);
    let rest = store.roots(RootSpace::Workspace, "did:a", Some("a"), 1).await.unwrap();
    assert_eq!(rest, ["b"]);
    assert!(store.roots(RootSpace::Agent, "did:a", None, 10).await.unwrap().is_empty());
}

pub(super) async fn stored_bytes_are_counted_by_owner(store: Subject) {
    let stored = async |owner: &str| store.stored_bytes(owner).await.unwrap();
    // No two parts of it are equal, so nothing is shared.
    let text =
        |from: u32| -> String { (from..from + 12_000).map(|n| format!("{n:>10}")).collect() };
    let large = Value::from(text(0));
    let mut draft = Draft::open(opening(job_id(1), "did:a", large.clone()), 5);
    draft.change(Event::Started);
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert_eq!(stored("did:a").await, 0, "nothing is counted yet");
    // What was there before is measured.
    store.count_stored_bytes(true).await.unwrap();
    let first = stored("did:a").await;
    assert!((120_000..140_000).contains(&first), "{first}");
    // Another job with another value, a message, a root and a blob are added.
    let other = Value::from(text(50_000));
    let draft = Draft::open(opening(job_id(2), "did:a", other), 5);
    store.commit(Effects::one(draft.effect())).await.unwrap();
    let second = stored("did:a").await;
    assert!((120_000..140_000).contains(&(second - first)), "{second}");
    let digest = [7_u8; 32];
    let blob = RootKey { space: RootSpace::Blob, owner: "did:b".into(), name: "07".repeat(32) };
    let effects = vec![
        Effect::StoreBlob { digest, len: 1_000_000, content: None },
        Effect::SetRootIfAbsent { key: blob.clone(), value: true.into() },
    ];
    store.commit(effects.into()).await.unwrap();
    let of_b = stored("did:b").await;
    assert!((1_000_000..1_000_100).contains(&of_b), "{of_b}");
    let of_all = async || store.stored_bytes_of_all().await.unwrap();
    assert_eq!(of_all().await, second + of_b);
    assert_eq!(stored("did:a").await, second, "nothing of another owner");
    let expected = store.root(&blob).await.unwrap().map(|root| root.id);
    store.commit(Effects::one(Effect::SetRoot { key: blob, expected, value: None })).await.unwrap();
    assert_eq!(stored("did:b").await, 0);
    assert_eq!(of_all().await, second);
    // A file that a job holds is charged to the owner of the job, also after its blob is gone.
    let file = RootKey { space: RootSpace::Venue, owner: "blobs-held".into(), name: "1 07".into() };
    let members = [("owner", Value::from("did:b")), ("bytes", 2_000_000.into())];
    let value: Value = members.into_iter().collect::<catena_value::Map>().into();
    store.commit(put(file.clone(), None, Some(value.clone()))).await.unwrap();
    let of_b = stored("did:b").await;
    assert!((2_000_000..2_000_100).contains(&of_b), "{of_b}");
    store.collect().await.unwrap();
    assert_eq!(stored("did:b").await, of_b, "the collector finds the same");
    store.commit(put(file, Some(&value), None)).await.unwrap();
    assert_eq!(stored("did:b").await, 0);
    // A deletion frees the rows at once and the cells when they are collected.
    store.commit(Effects::one(Effect::Delete { job: job_id(2) })).await.unwrap();
    store.collect().await.unwrap();
    assert_eq!(stored("did:a").await, first);
    // Counting again from nothing finds the same.
    store.count_stored_bytes(false).await.unwrap();
    assert_eq!(stored("did:a").await, 0);
    store.count_stored_bytes(true).await.unwrap();
    assert_eq!(stored("did:a").await, first);
    assert_eq!(of_all().await, first);
}
