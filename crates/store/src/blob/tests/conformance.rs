//! The conformance suite on a simulated disk and on a real folder.

use std::sync::Arc;

use crate::blob::conformance::{
    Damage, SUBJECT_OPTIONS, Subject, Wait, check, conformance_tests, list_many,
};
use crate::blob::{BlobStore, Digest, LocalBlobs};
use catena_ledger::disk::{Disk, RealDisk, TEMPORARY_SUFFIX};
use catena_ledger::testing::scratch::Scratch;
use catena_ledger::testing::sim_disk::SimDisk;

#[derive(Debug)]
struct Folder {
    disk: Arc<dyn Disk>,
    blobs: LocalBlobs,
    _scratch: Option<Scratch>,
}

impl Folder {
    fn simulated() -> Self {
        Self::new(Arc::new(SimDisk::new(1)), None)
    }

    fn real() -> Self {
        let scratch = Scratch::new("blobs");
        let disk = Arc::new(RealDisk::new(scratch.path()).expect("a folder"));
        Self::new(disk, Some(scratch))
    }

    fn new(disk: Arc<dyn Disk>, scratch: Option<Scratch>) -> Self {
        let blobs = LocalBlobs::open_folder(disk.clone(), SUBJECT_OPTIONS).expect("open");
        Self { disk, blobs, _scratch: scratch }
    }
}

impl Subject for Folder {
    fn store(&self) -> &dyn BlobStore {
        &self.blobs
    }

    fn damage(&self, digest: Digest, damage: Damage) -> Wait<'_, ()> {
        let file = self.disk.open(&digest.to_hex()).expect("the blob is here");
        match damage {
            Damage::Cut(len) => file.set_len(len).expect("cut"),
            Damage::Flip(at) => {
                let mut byte = [0];
                file.read_at(at, &mut byte).expect("read");
                file.write_at(at, &[byte[0] ^ 4]).expect("write");
            }
        }
        Box::pin(std::future::ready(()))
    }

    fn leftovers(&self) -> Wait<'_, Vec<String>> {
        let names = self.disk.list().expect("list");
        let names = names.into_iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)).collect();
        Box::pin(std::future::ready(names))
    }
}

mod simulated_disk {
    use super::*;
    conformance_tests!(Folder::simulated());
}

mod real_folder {
    use super::*;
    conformance_tests!(Folder::real());
}

#[test]
fn a_listing_of_more_than_a_page_shows_every_blob_once() {
    check(&Folder::simulated(), async |subject| list_many(subject, 1005).await);
}
