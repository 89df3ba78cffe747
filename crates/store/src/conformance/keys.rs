//! Idempotency keys and small blobs.

use catena_value::Value;

use super::Subject;
use crate::effects::{CommitError, Effect, Effects};
use crate::store::{Idempotency, StoredBlob};
use crate::testing::jobs::{echo, job_id};

fn entry(key: &str, expires: i64) -> Idempotency {
    Idempotency {
        owner: "did:a".into(),
        endpoint: "POST /invoke".into(),
        key: key.into(),
        body_digest: [7; 32],
        answer: Value::from(format!("answer to {key}")),
        expires,
    }
}

pub(super) async fn an_idempotency_key_is_taken_once(store: Subject) {
    let first = vec![Effect::StoreIdempotency(entry("k", 100)), echo(job_id(1), "did:a").effect()];
    store.commit(first.into()).await.unwrap();
    let again = vec![Effect::StoreIdempotency(entry("k", 200)), echo(job_id(2), "did:a").effect()];
    let refused = store.commit(again.into()).await.unwrap_err();
    assert_eq!(refused, CommitError::KeyTaken(Box::new(entry("k", 100))));
    assert!(store.job(job_id(2)).await.unwrap().is_none(), "nothing happened");
    let held = store.find_idempotency("did:a", "POST /invoke", "k").await.unwrap();
    assert_eq!(held, Some(entry("k", 100)));
    assert_eq!(store.find_idempotency("did:b", "POST /invoke", "k").await.unwrap(), None);
    assert_eq!(store.find_idempotency("did:a", "POST /run", "k").await.unwrap(), None);
}

pub(super) async fn idempotency_keys_are_forgotten_in_time(store: Subject) {
    for (key, expires) in [("a", 100), ("b", 200), ("c", 300)] {
        store.commit(Effects::one(Effect::StoreIdempotency(entry(key, expires)))).await.unwrap();
    }
    let expire = |before, limit| Effects::one(Effect::ExpireIdempotency { before, limit });
    assert_eq!(store.commit(expire(201, 1)).await.unwrap().expired, 1);
    assert_eq!(store.commit(expire(201, 10)).await.unwrap().expired, 1);
    assert_eq!(store.commit(expire(201, 10)).await.unwrap().expired, 0);
    assert!(store.find_idempotency("did:a", "POST /invoke", "a").await.unwrap().is_none());
    assert!(store.find_idempotency("did:a", "POST /invoke", "c").await.unwrap().is_some());
    store.commit(Effects::one(Effect::StoreIdempotency(entry("a", 400)))).await.unwrap();
}

pub(super) async fn small_blobs_are_kept(store: Subject) {
    let content: std::sync::Arc<[u8]> = (*b"content").into();
    let digest = [9; 32];
    let small = Effect::StoreBlob { digest, len: 7, content: Some(content.clone()) };
    store.commit(Effects::one(small)).await.unwrap();
    assert_eq!(
        store.blob(&digest).await.unwrap(),
        Some(StoredBlob { len: 7, content: Some(content) })
    );
    let large = Effect::StoreBlob { digest: [8; 32], len: 70_000, content: None };
    store.commit(Effects::one(large)).await.unwrap();
    assert_eq!(
        store.blob(&[8; 32]).await.unwrap(),
        Some(StoredBlob { len: 70_000, content: None })
    );
    store.commit(Effects::one(Effect::DeleteBlob { digest })).await.unwrap();
    assert_eq!(store.blob(&digest).await.unwrap(), None);
}
