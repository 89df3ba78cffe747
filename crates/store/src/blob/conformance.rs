//! The conformance suite of blob stores.
//!
//! A fact is an asynchronous function of a [`Subject`]. [`check`] runs it on a runtime of its own, shuts that runtime down,
//! so that work in the background ends too, and then looks for leftovers: no fact may leave any.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};

use super::digest::Digest;
use super::error::{BlobReadError, WriteError};
use super::options::Options;
use super::store::{BlobEntry, BlobSource, BlobStore, Finished};
use crate::limits::{
    CHUNK_BYTES, INLINE_BYTES_MAX, LIST_PAGE_ENTRIES, PART_BYTES, RANGE_BYTES_MAX,
};
use catena_ledger::testing::rng::Rng;

/// The options of every subject of this suite: enough for an upload of three parts.
pub const SUBJECT_OPTIONS: Options = Options { blob_bytes_max: 12 * 1024 * 1024 };

/// A future of a test.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Damage done to stored content directly.
#[derive(Debug, Clone, Copy)]
pub enum Damage {
    /// One byte differs.
    Flip(u64),
    /// Only this many bytes are left.
    Cut(u64),
}

/// A blob store under test, and what a test needs in addition.
pub trait Subject: Debug {
    /// The store, empty at first, with [`SUBJECT_OPTIONS`].
    fn store(&self) -> &dyn BlobStore;
    /// Damages a stored blob.
    fn damage(&self, digest: Digest, damage: Damage) -> Wait<'_, ()>;
    /// The names of temporary files or objects that are there now.
    fn leftovers(&self) -> Wait<'_, Vec<String>>;
}

/// Checks one fact on one subject.
pub fn check<S: Subject>(subject: &S, fact: impl AsyncFnOnce(&S)) {
    runtime().block_on(fact(subject));
    let leftovers = runtime().block_on(subject.leftovers());
    assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime needs only memory")
}

/// Defines a test of every fact, for the subjects that `$make` creates.
#[cfg(test)]
macro_rules! conformance_tests {
    ($make:expr) => {
        conformance_tests! { $make;
            content_comes_back_as_it_was_written
            small_content_is_handed_back_and_not_stored
            an_expected_digest_that_matches_is_accepted
            an_expected_digest_that_does_not_match_leaves_nothing
            content_beyond_the_bound_is_refused_while_it_streams
            an_abandoned_writer_takes_no_more
            a_dropped_writer_leaves_nothing
            a_blob_written_twice_is_held_once
            a_blob_of_the_wrong_length_is_replaced_when_it_is_written_again
            what_is_not_here_is_absent_for_every_question
            a_removed_blob_is_gone_and_can_be_written_again
            a_listing_shows_every_blob_and_its_length
            damaged_content_never_ends_cleanly
            cut_content_never_ends_cleanly
            ranges_are_what_lies_between_their_ends
            ranges_and_verification_do_not_move_a_sequential_read
        }
    };
    ($make:expr; $($fact:ident)*) => {
        $(#[test]
        fn $fact() {
            $crate::blob::conformance::check(&$make, async |subject| {
                $crate::blob::conformance::$fact(subject).await;
            });
        })*
    };
}
#[cfg(test)]
pub(crate) use conformance_tests;

/// Pseudorandom content, the same for the same seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut content = Vec::with_capacity(len + 8);
    while content.len() < len {
        content.extend_from_slice(&rng.number().to_le_bytes());
    }
    content.truncate(len);
    content
}

async fn try_put(
    store: &dyn BlobStore,
    content: &[u8],
    piece: usize,
    expected: Option<Digest>,
) -> Result<Finished, WriteError> {
    let mut sink = store.begin().await?;
    for piece in content.chunks(piece) {
        sink.write(Bytes::copy_from_slice(piece)).await?;
    }
    sink.finish(expected).await
}

async fn put(store: &dyn BlobStore, content: &[u8]) -> Digest {
    let finished = try_put(store, content, 50_000, None).await.expect("put");
    assert_eq!(
        finished,
        Finished::Stored { digest: Digest::from_content(content), len: content.len() as u64 }
    );
    finished.digest()
}

async fn source(store: &dyn BlobStore, digest: Digest) -> Box<dyn BlobSource> {
    store.open(digest).await.expect("open").expect("the blob is here")
}

async fn drain(source: &mut dyn BlobSource) -> (Vec<u8>, Result<(), BlobReadError>) {
    let mut read = Vec::new();
    loop {
        match source.next_chunk().await {
            Ok(Some(chunk)) => {
                assert!(
                    !chunk.is_empty() && chunk.len() <= CHUNK_BYTES,
                    "a chunk of {} bytes",
                    chunk.len()
                );
                read.extend_from_slice(&chunk);
            }
            Ok(None) => return (read, Ok(())),
            Err(error) => return (read, Err(error)),
        }
    }
}

async fn entries(store: &dyn BlobStore) -> Vec<BlobEntry> {
    let mut listing = store.list().await.expect("list");
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await.expect("page");
        assert!(page.len() <= LIST_PAGE_ENTRIES);
        if page.is_empty() {
            entries.sort_by_key(|entry: &BlobEntry| entry.digest);
            return entries;
        }
        entries.extend(page);
    }
}

/// Lengths at which the storage changes, and one upload of several parts.
const LENGTHS: [usize; 9] = [
    INLINE_BYTES_MAX + 1,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    2 * CHUNK_BYTES,
    200_001,
    PART_BYTES,
    PART_BYTES + 1,
    2 * PART_BYTES + 17,
];

#[expect(missing_docs, reason = "the names of the facts say it")]
mod facts {
    use super::*;

    pub async fn content_comes_back_as_it_was_written(subject: &impl Subject) {
        for (len, piece) in LENGTHS
            .into_iter()
            .zip([1_000, 999, 65_536, 7_777, 200_000, 13, 64_000, 65_537, 1_000_003])
        {
            let content = content(len as u64, len);
            let finished = try_put(subject.store(), &content, piece, None).await.expect("put");
            assert_eq!(
                finished,
                Finished::Stored { digest: Digest::from_content(&content), len: len as u64 }
            );
            let mut source = source(subject.store(), finished.digest()).await;
            assert_eq!((source.digest(), source.len()), (finished.digest(), len as u64));
            let (read, end) = drain(source.as_mut()).await;
            assert!(read == content && end.is_ok(), "{len}: {end:?}");
            assert!(matches!(source.next_chunk().await, Ok(None)), "the end stays the end");
            assert_eq!(
                subject.store().verify(finished.digest()).await.expect("verify"),
                Some(len as u64)
            );
        }
    }

    pub async fn small_content_is_handed_back_and_not_stored(subject: &impl Subject) {
        for len in [0, 1, INLINE_BYTES_MAX] {
            let content = content(7, len);
            let finished = try_put(subject.store(), &content, 1000, None).await.expect("put");
            let digest = Digest::from_content(&content);
            assert_eq!(finished, Finished::Inline { digest, bytes: content.into() });
            assert!(!subject.store().contains(digest).await.expect("contains"));
        }
        assert_eq!(entries(subject.store()).await, []);
    }

    pub async fn an_expected_digest_that_matches_is_accepted(subject: &impl Subject) {
        for len in [100, 100_000, PART_BYTES + 100] {
            let content = content(1, len);
            let digest = Digest::from_content(&content);
            let finished =
                try_put(subject.store(), &content, 70_000, Some(digest)).await.expect("put");
            assert_eq!(finished.digest(), digest);
        }
    }

    pub async fn an_expected_digest_that_does_not_match_leaves_nothing(subject: &impl Subject) {
        let expected = Digest::from_content(b"something else");
        for len in [100, 100_000, PART_BYTES + 100] {
            let content = content(1, len);
            let refused = try_put(subject.store(), &content, 70_000, Some(expected)).await;
            let Err(WriteError::Mismatch { expected: named, found }) = refused else {
                unreachable!("accepted: {refused:?}");
            };
            assert_eq!((named, found), (expected, Digest::from_content(&content)));
            assert_eq!(subject.leftovers().await, [""; 0]);
        }
        assert_eq!(entries(subject.store()).await, []);
    }

    pub async fn content_beyond_the_bound_is_refused_while_it_streams(subject: &impl Subject) {
        let bytes_max = SUBJECT_OPTIONS.blob_bytes_max as usize;
        let content = content(3, bytes_max + 1);
        put(subject.store(), &content[..bytes_max]).await;
        let mut sink = subject.store().begin().await.expect("begin");
        sink.write(Bytes::copy_from_slice(&content[..bytes_max])).await.expect("within the bound");
        let refused = sink.write(Bytes::from_static(b"x")).await;
        assert!(
            matches!(refused, Err(WriteError::TooLarge { bytes_max: named }) if named == bytes_max as u64)
        );
        assert_eq!(subject.leftovers().await, [""; 0]);
        assert!(matches!(sink.finish(None).await, Err(WriteError::Abandoned)));
        assert_eq!(entries(subject.store()).await.len(), 1);
    }

    pub async fn an_abandoned_writer_takes_no_more(subject: &impl Subject) {
        let mut sink = subject.store().begin().await.expect("begin");
        let too_much = Bytes::from(vec![0; SUBJECT_OPTIONS.blob_bytes_max as usize + 1]);
        assert!(matches!(sink.write(too_much).await, Err(WriteError::TooLarge { .. })));
        assert!(matches!(sink.write(Bytes::from_static(b"x")).await, Err(WriteError::Abandoned)));
        assert!(matches!(sink.finish(None).await, Err(WriteError::Abandoned)));
    }

    pub async fn a_dropped_writer_leaves_nothing(subject: &impl Subject) {
        for len in [10, 100_000, PART_BYTES + 100] {
            let mut sink = subject.store().begin().await.expect("begin");
            sink.write(content(4, len).into()).await.expect("write");
        }
        assert_eq!(entries(subject.store()).await, []);
    }

    pub async fn a_blob_written_twice_is_held_once(subject: &impl Subject) {
        for len in [100_000, PART_BYTES + 100] {
            let content = content(5, len);
            put(subject.store(), &content).await;
            let digest = put(subject.store(), &content).await;
            assert_eq!(subject.leftovers().await, [""; 0]);
            assert_eq!(entries(subject.store()).await, [BlobEntry { digest, len: len as u64 }]);
            assert_eq!(subject.store().verify(digest).await.expect("verify"), Some(len as u64));
            subject.store().remove(digest).await.expect("remove");
        }
    }

    pub async fn a_blob_of_the_wrong_length_is_replaced_when_it_is_written_again(
        subject: &impl Subject,
    ) {
        for len in [100_000, PART_BYTES + 100] {
            let content = content(6, len);
            let digest = put(subject.store(), &content).await;
            subject.damage(digest, Damage::Cut(99_000)).await;
            put(subject.store(), &content).await;
            assert_eq!(subject.store().verify(digest).await.expect("verify"), Some(len as u64));
        }
    }

    pub async fn what_is_not_here_is_absent_for_every_question(subject: &impl Subject) {
        let digest = Digest::from_content(b"never written");
        assert!(subject.store().open(digest).await.expect("open").is_none());
        assert!(!subject.store().contains(digest).await.expect("contains"));
        assert_eq!(subject.store().verify(digest).await.expect("verify"), None);
        subject.store().remove(digest).await.expect("remove");
        assert_eq!(entries(subject.store()).await, []);
    }

    pub async fn a_removed_blob_is_gone_and_can_be_written_again(subject: &impl Subject) {
        let content = content(8, 100_000);
        let digest = put(subject.store(), &content).await;
        subject.store().remove(digest).await.expect("remove");
        assert!(!subject.store().contains(digest).await.expect("contains"));
        assert!(subject.store().open(digest).await.expect("open").is_none());
        assert_eq!(entries(subject.store()).await, []);
        put(subject.store(), &content).await;
        assert_eq!(subject.store().verify(digest).await.expect("verify"), Some(100_000));
    }

    pub async fn a_listing_shows_every_blob_and_its_length(subject: &impl Subject) {
        list_many(subject, 12).await;
    }

    pub async fn damaged_content_never_ends_cleanly(subject: &impl Subject) {
        for (len, at) in
            [(100_000, 0), (100_001, 50_000), (100_002, 100_001), (65_536, 65_535), (131_072, 9)]
        {
            let content = content(9, len);
            let digest = put(subject.store(), &content).await;
            subject.damage(digest, Damage::Flip(at)).await;
            let mut source = source(subject.store(), digest).await;
            let (read, end) = drain(source.as_mut()).await;
            let Err(error) = end else { unreachable!("a clean end of damaged content") };
            assert!(error.is_damage(), "{error}");
            assert!(
                read.len() < len && len - read.len() <= CHUNK_BYTES,
                "only the last chunk is withheld"
            );
            assert!(source.next_chunk().await.is_err(), "asking again does not help");
            assert!(source.verify().await.is_err_and(|error| error.is_damage()));
            assert!(subject.store().verify(digest).await.is_err_and(|error| error.is_damage()));
        }
    }

    pub async fn cut_content_never_ends_cleanly(subject: &impl Subject) {
        for cut in [0, 1, 65_536, 99_999] {
            let digest = put(subject.store(), &content(10, 100_000)).await;
            subject.damage(digest, Damage::Cut(cut)).await;
            let (_, end) = drain(source(subject.store(), digest).await.as_mut()).await;
            assert!(end.is_err_and(|error| error.is_damage()), "cut to {cut}");
            assert!(subject.store().verify(digest).await.is_err_and(|error| error.is_damage()));
            subject.store().remove(digest).await.expect("remove");
        }
    }

    pub async fn ranges_are_what_lies_between_their_ends(subject: &impl Subject) {
        let content = content(11, 150_000);
        let digest = put(subject.store(), &content).await;
        let mut source = source(subject.store(), digest).await;
        source.verify().await.expect("verify");
        for (offset, len) in
            [(0, 1), (0, 150_000), (65_530, 20), (149_999, 1), (149_999, 500), (150_000, 5), (7, 0)]
        {
            let range = source.read_range(offset as u64, len).await.expect("range");
            assert_eq!(range, &content[offset..(offset + len).min(150_000)], "{len} from {offset}");
        }
        assert_eq!(source.read_range(u64::MAX, 5).await.expect("far beyond"), "");
        assert_eq!(source.read_range(0, RANGE_BYTES_MAX).await.expect("the longest"), content);
        let refused = source.read_range(0, RANGE_BYTES_MAX + 1).await;
        assert!(matches!(refused, Err(BlobReadError::RangeTooLarge { .. })));
    }

    pub async fn ranges_and_verification_do_not_move_a_sequential_read(subject: &impl Subject) {
        let content = content(12, 200_000);
        let digest = put(subject.store(), &content).await;
        let mut source = source(subject.store(), digest).await;
        let mut read = source.next_chunk().await.expect("first").expect("chunk").to_vec();
        source.read_range(3, 77).await.expect("range");
        source.verify().await.expect("verify");
        let (rest, end) = drain(source.as_mut()).await;
        end.expect("a clean end");
        read.extend(rest);
        assert!(read == content);
    }

    /// Not in the list of tests above: a real disk is slow with a thousand blobs.
    pub async fn list_many(subject: &impl Subject, count: usize) {
        let mut expected = Vec::new();
        for number in 0..count {
            let len = INLINE_BYTES_MAX + 1 + number;
            let digest = put(subject.store(), &content(number as u64, len)).await;
            expected.push(BlobEntry { digest, len: len as u64 });
        }
        expected.sort_by_key(|entry| entry.digest);
        assert_eq!(entries(subject.store()).await, expected);
    }
}
pub use facts::*;
