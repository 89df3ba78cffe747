//! The conformance suite on an object store in memory.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::blob::conformance::{
    Damage, SUBJECT_OPTIONS, Subject, Wait, check, conformance_tests, list_many,
};
use crate::blob::{BlobStore, Digest, ObjectBlobs, ObjectOptions};

#[derive(Debug)]
struct Objects {
    store: Arc<dyn ObjectStore>,
    blobs: ObjectBlobs,
}

impl Objects {
    fn in_memory() -> Self {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let options =
            ObjectOptions { prefix: Path::from("a/prefix"), instance: 7, limits: SUBJECT_OPTIONS };
        Self { blobs: ObjectBlobs::new(store.clone(), options), store }
    }

    async fn damaged(&self, digest: Digest, damage: Damage) {
        let key = Path::from(format!("a/prefix/sha256/{}", digest.to_hex()));
        let found = self.store.get(&key).await.expect("the blob is here");
        let mut content = found.bytes().await.expect("content").to_vec();
        match damage {
            Damage::Flip(at) => content[at as usize] ^= 4,
            Damage::Cut(len) => content.truncate(len as usize),
        }
        self.store.put(&key, content.into()).await.expect("put");
    }

    async fn uploads(&self) -> Vec<String> {
        let uploads = self
            .store
            .list_with_delimiter(Some(&Path::from("a/prefix/uploads")))
            .await
            .expect("list");
        uploads.objects.into_iter().map(|object| object.location.to_string()).collect()
    }
}

impl Subject for Objects {
    fn store(&self) -> &dyn BlobStore {
        &self.blobs
    }

    fn damage(&self, digest: Digest, damage: Damage) -> Wait<'_, ()> {
        Box::pin(self.damaged(digest, damage))
    }

    fn leftovers(&self) -> Wait<'_, Vec<String>> {
        Box::pin(self.uploads())
    }
}

mod object_store_in_memory {
    use super::*;
    conformance_tests!(Objects::in_memory());
}

#[test]
fn a_listing_of_more_than_a_page_shows_every_blob_once() {
    check(&Objects::in_memory(), async |subject| list_many(subject, 1005).await);
}
