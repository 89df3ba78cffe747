//! Blobs as the engine uses them: small ones in the store's own table, large ones in a [`BlobStore`],
//! and one row for each.
//!
//! A blob is acknowledged when its row is durable, and its content is durable before that. It is
//! removed in the opposite order: first the row, then the content, so that no row refers to missing
//! content.
//!
//! A blob that something holds, such as a job, is removed with the last of its holders. Holders are roots,
//! by blob and by holder, which are set in the commit that stores the row. A blob that was stored without
//! a holder stays, whoever holds it later.

use std::sync::Arc;

use bytes::Bytes;
use catena_value::{Map, Value};
use tokio::sync::RwLock;

use super::digest::Digest;
use super::error::{BlobReadError, RemoveError, WriteError};
use super::store::{BlobSink, BlobSource, BlobStore, Finished};
use crate::effects::{CommitError, Effect, Effects};
use crate::limits::HOLDERS_PAGE_MAX;
use crate::store::{ReadError, RootKey, RootSpace, Store};

/// Why an operation on a blob failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Its content could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its content could not be read, or is damaged.
    #[error(transparent)]
    Content(#[from] BlobReadError),
    /// Its content could not be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// Its row could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Its row could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content in its row is damaged.
    #[error("blob {digest} is damaged")]
    Damaged {
        /// The blob.
        digest: Digest,
    },
    /// There is a row for it, but no content.
    #[error("the content of blob {digest} is missing")]
    Missing {
        /// The blob.
        digest: Digest,
    },
}

/// All blobs, small and large.
#[derive(Clone)]
pub struct Blobs {
    rows: Arc<dyn Store>,
    content: Arc<dyn BlobStore>,
    /// Held alone while a blob is removed, and shared while one is stored: one that is stored again while
    /// its last holder goes away must not lose its content.
    removing: Arc<RwLock<()>>,
}

/// The owner of the roots that name the holders of each blob.
const HOLDERS: &str = "blob-holders";

/// The owner of the roots that name the blobs of each holder.
pub(crate) const HELD: &str = "blobs-held";

/// The holder of blobs that stay.
const PERMANENT: &str = "*";

impl Blobs {
    /// Blobs with their rows in one store and the content of large ones in another.
    pub fn new(rows: Arc<dyn Store>, content: Arc<dyn BlobStore>) -> Self {
        Blobs { rows, content, removing: Arc::default() }
    }

    /// Begins a blob.
    pub async fn begin(&self) -> Result<Upload, BlobError> {
        let sink = self.content.begin().await?;
        let removing = Arc::clone(&self.removing);
        Ok(Upload { rows: Arc::clone(&self.rows), sink, removing })
    }

    /// Opens a blob for reading. `None` if it is not stored.
    pub async fn open(&self, digest: Digest) -> Result<Option<Download>, BlobError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(None) };
        let Some(content) = row.content else {
            let source = self.content.open(digest).await?;
            return source.map(Download::Streamed).ok_or(BlobError::Missing { digest }).map(Some);
        };
        if Digest::from_content(&content) != digest {
            return Err(BlobError::Damaged { digest });
        }
        Ok(Some(Download::Small(Some(Bytes::from_owner(content)))))
    }

    /// Makes a blob stay that is stored already, whoever held it before. Returns false if it is not stored.
    pub async fn keep_blob(&self, digest: Digest) -> Result<bool, BlobError> {
        let _storing = self.removing.read().await;
        if self.rows.blob(digest.as_bytes()).await?.is_none() {
            return Ok(false);
        }
        self.rows.commit(Effects::one(hold(digest, PERMANENT))).await?;
        Ok(true)
    }

    /// Returns up to a page of holders, in order, after one of them.
    pub async fn holders(&self, after: Option<&str>) -> Result<Vec<String>, BlobError> {
        // All that a holder holds comes before this.
        let after = after.map(|holder| format!("{holder} ~"));
        let names = self.rows.roots(RootSpace::Venue, HELD, after.as_deref(), HOLDERS_PAGE_MAX);
        let holder = |name: String| Some(name.split_once(' ')?.0.to_owned());
        let mut holders: Vec<String> = names.await?.into_iter().filter_map(holder).collect();
        holders.dedup();
        Ok(holders)
    }

    /// Returns up to `most` holders of a blob, in order.
    pub async fn holders_of(&self, digest: Digest, most: usize) -> Result<Vec<String>, BlobError> {
        let first = format!("{} ", digest.to_hex());
        let names = self.rows.roots(RootSpace::Venue, HOLDERS, Some(&first), most).await?;
        Ok(names.iter().map_while(|name| Some(name.strip_prefix(&first)?.to_owned())).collect())
    }

    /// Removes a holder, and the blobs that nothing else holds. Safe to repeat after a crash.
    pub async fn remove_holder(&self, holder: &str) -> Result<u64, BlobError> {
        let mut removed = 0;
        let _removing = self.removing.write().await;
        loop {
            let first = format!("{holder} ");
            let names = self.rows.roots(RootSpace::Venue, HELD, Some(&first), HOLDERS_PAGE_MAX);
            let names = names.await?;
            let held: Vec<&String> =
                names.iter().take_while(|name| name.starts_with(&first)).collect();
            if held.is_empty() {
                return Ok(removed);
            }
            for name in held {
                let digest = format!("sha256:{}", &name[first.len()..]);
                if let Ok(digest) = digest.parse::<Digest>() {
                    self.remove_root(holders_key(digest, holder)).await?;
                    if !find_holder(&*self.rows, digest).await? {
                        self.remove(digest).await?;
                        removed += 1;
                    }
                }
                // Last, so that what a crash interrupts is found again.
                self.remove_root(venue_root(HELD, name.clone())).await?;
            }
        }
    }

    async fn remove_root(&self, key: RootKey) -> Result<(), BlobError> {
        let Some(root) = self.rows.root(&key).await? else { return Ok(()) };
        let effect = Effect::SetRoot { key, expected: Some(root.id), value: None };
        self.rows.commit(Effects::one(effect)).await?;
        Ok(())
    }

    /// Removes a blob. Succeeds if it is not stored.
    pub async fn remove(&self, digest: Digest) -> Result<(), BlobError> {
        let Some(row) = self.rows.blob(digest.as_bytes()).await? else { return Ok(()) };
        let effect = Effect::DeleteBlob { digest: *digest.as_bytes() };
        self.rows.commit(Effects::one(effect)).await?;
        if row.content.is_none() {
            self.content.remove(digest).await?;
        }
        Ok(())
    }
}

fn venue_root(owner: &str, name: String) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: owner.to_owned(), name }
}

fn holders_key(digest: Digest, holder: &str) -> RootKey {
    venue_root(HOLDERS, format!("{} {holder}", digest.to_hex()))
}

fn hold(digest: Digest, holder: &str) -> Effect {
    Effect::SetRootIfAbsent { key: holders_key(digest, holder), value: true.into() }
}

/// Returns true if a blob has a holder.
async fn find_holder(rows: &dyn Store, digest: Digest) -> Result<bool, BlobError> {
    let first = format!("{} ", digest.to_hex());
    let names = rows.roots(RootSpace::Venue, HOLDERS, Some(&first), 1).await?;
    Ok(names.first().is_some_and(|name| name.starts_with(&first)))
}

/// A blob being written. If it is dropped before it is finished, nothing is stored.
pub struct Upload {
    rows: Arc<dyn Store>,
    sink: Box<dyn BlobSink>,
    removing: Arc<RwLock<()>>,
}

impl Upload {
    /// Appends the next piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), BlobError> {
        Ok(self.sink.write(data).await?)
    }

    /// Ends the content, compares it with the expected digest, and makes it durable. Returns the digest
    /// and the length in bytes. The blob stays.
    pub async fn finish(self, expected: Option<Digest>) -> Result<(Digest, u64), BlobError> {
        self.finish_held(expected, None).await
    }

    /// The same for a blob that is removed with the last of its holders. The name of a holder has no
    /// spaces. Its bytes count as those of the owner, once for each holder.
    pub async fn finish_for(
        self,
        expected: Option<Digest>,
        holder: &str,
        owner: &str,
    ) -> Result<(Digest, u64), BlobError> {
        self.finish_held(expected, Some((holder, owner))).await
    }

    async fn finish_held(
        self,
        expected: Option<Digest>,
        holder: Option<(&str, &str)>,
    ) -> Result<(Digest, u64), BlobError> {
        let _storing = self.removing.read().await;
        let finished = self.sink.finish(expected).await?;
        let digest = finished.digest();
        let len = finished.len();
        let content = match finished {
            Finished::Inline { bytes, .. } => Some(Arc::from(&bytes[..])),
            Finished::Stored { .. } => None,
        };
        let mut effects = vec![hold(digest, holder.map_or(PERMANENT, |(holder, _)| holder))];
        if let Some((holder, owner)) = holder {
            let key = venue_root(HELD, format!("{holder} {}", digest.to_hex()));
            let bytes = i64::try_from(len).unwrap_or(i64::MAX);
            let members = [("owner", Value::from(owner)), ("bytes", bytes.into())];
            let value = members.into_iter().collect::<Map>().into();
            effects.push(Effect::SetRootIfAbsent { key, value });
            // Who needs a blob that is stored and has no holder is not known.
            let is_stored = self.rows.blob(digest.as_bytes()).await?.is_some();
            if is_stored && !find_holder(&*self.rows, digest).await? {
                effects.push(hold(digest, PERMANENT));
            }
        }
        effects.push(Effect::StoreBlob { digest: *digest.as_bytes(), len, content });
        self.rows.commit(Effects(effects)).await?;
        Ok((digest, len))
    }
}

/// A blob being read.
pub enum Download {
    /// The complete content, until it has been read.
    Small(Option<Bytes>),
    /// Piece by piece, with an error instead of the last piece if the content is damaged.
    Streamed(Box<dyn BlobSource>),
}

impl Download {
    /// The remaining bytes of a small blob, or the total length of a streamed one.
    pub fn len(&self) -> u64 {
        match self {
            Download::Small(content) => content.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Download::Streamed(source) => source.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next piece; `None` at the end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, BlobError> {
        match self {
            Download::Small(content) => Ok(content.take().filter(|bytes| !bytes.is_empty())),
            Download::Streamed(source) => Ok(source.next_chunk().await?),
        }
    }
}
