//! How reading verifies: the digest is computed over a sequential read and compared before the last chunk is returned.
//!
//! A reader requests the next chunk's length, fetches it, and adds it. Between the two the state is *broken*: a fetch that
//! fails or is cancelled leaves it so, and no later call can turn that into a successful end.

use super::digest::{Digest, Hasher};
use super::error::BlobReadError;
use crate::limits::CHUNK_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Reading,
    Ended,
    Broken,
}

/// The progress of a sequential read.
#[derive(Debug)]
pub(super) struct Progress {
    digest: Digest,
    len: u64,
    offset: u64,
    hasher: Hasher,
    state: ReadState,
}

/// What to fetch next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// This many bytes from this offset.
    Chunk { offset: u64, len: usize },
    /// Nothing: the content was read completely and matches its digest.
    End,
}

impl Progress {
    pub(super) fn new(digest: Digest, len: u64) -> Self {
        Self { digest, len, offset: 0, hasher: Hasher::default(), state: ReadState::Reading }
    }

    /// Whether the entire content was read and matches its digest.
    pub(super) fn is_verified(&self) -> bool {
        self.state == ReadState::Ended
    }

    pub(super) fn next(&mut self) -> Result<Next, BlobReadError> {
        match self.state {
            ReadState::Ended => Ok(Next::End),
            ReadState::Broken => Err(BlobReadError::Interrupted { digest: self.digest }),
            ReadState::Reading => self.next_while_reading(),
        }
    }

    fn next_while_reading(&mut self) -> Result<Next, BlobReadError> {
        self.state = ReadState::Broken;
        let left = self.len - self.offset;
        if left == 0 {
            // Only empty content gets here: all other content is verified with its last chunk.
            self.verify()?;
            return Ok(Next::End);
        }
        Ok(Next::Chunk { offset: self.offset, len: left.min(CHUNK_BYTES as u64) as usize })
    }

    /// Adds a fetched chunk. An error means that it must not be returned to the caller.
    pub(super) fn add_chunk(&mut self, chunk: &[u8]) -> Result<(), BlobReadError> {
        self.hasher.update(chunk);
        self.offset += chunk.len() as u64;
        if self.offset == self.len {
            return self.verify();
        }
        self.state = ReadState::Reading;
        Ok(())
    }

    fn verify(&mut self) -> Result<(), BlobReadError> {
        let found = std::mem::take(&mut self.hasher).finish();
        if found != self.digest {
            return Err(BlobReadError::Damaged { digest: self.digest, found });
        }
        self.state = ReadState::Ended;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_that_never_came_back_is_no_clean_end() {
        let mut progress = Progress::new(Digest::from_content(b"abc"), 3);
        assert_eq!(progress.next().expect("first"), Next::Chunk { offset: 0, len: 3 });
        assert!(matches!(progress.next(), Err(BlobReadError::Interrupted { .. })));
        assert!(!progress.is_verified());
    }

    #[test]
    fn damaged_content_stays_an_error_however_often_it_is_asked() {
        let mut progress = Progress::new(Digest::from_content(b"abc"), 3);
        progress.next().expect("first");
        assert!(matches!(progress.add_chunk(b"abd"), Err(BlobReadError::Damaged { .. })));
        assert!(matches!(progress.next(), Err(BlobReadError::Interrupted { .. })));
    }

    #[test]
    fn content_that_lost_all_its_bytes_is_damaged_and_empty_content_is_not() {
        let lost = Progress::new(Digest::from_content(b"abc"), 0).next();
        assert!(matches!(lost, Err(BlobReadError::Damaged { .. })));
        assert_eq!(Progress::new(Digest::from_content(b""), 0).next().expect("empty"), Next::End);
    }
}
