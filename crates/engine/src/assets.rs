//! Assets: metadata by its Value ID, content by its SHA-256.

use std::sync::Arc;

use catena_store::blob::Download;
use catena_value::ValueId;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{AssetError, StoreTrouble};
use crate::request::IdempotencyKey;

/// An asset.
#[derive(Debug, Clone)]
pub struct Asset {
    /// Its ID.
    pub id: ValueId,
    /// Its metadata, exactly as it was registered.
    pub text: Arc<str>,
}

/// Which assets to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListAssets {
    /// Only those of this kind.
    pub kind: Option<AssetKind>,
    /// Only those that the caller registered.
    pub own: bool,
    /// How many to leave out at the beginning.
    pub offset: u64,
    /// At most so many.
    pub limit: usize,
}

/// What an asset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssetKind {
    /// Something that can be invoked.
    Operation,
    /// Anything else.
    Data,
}

/// One line of a list.
#[derive(Debug, Clone)]
pub struct ListedAsset {
    /// Its ID.
    pub id: ValueId,
    /// `name` of its metadata.
    pub name: Option<String>,
    /// `type` of its metadata.
    pub kind: Option<String>,
    /// `description` of its metadata.
    pub description: Option<String>,
}

/// Content on its way in.
pub struct ContentUpload {}

impl ContentUpload {
    /// Takes the next piece.
    pub async fn write(&mut self, _data: bytes::Bytes) -> Result<(), AssetError> { unimplemented!() }
    /// Ends the content and compares it with what the metadata says. Its SHA-256 in hex.
    pub async fn finish(self) -> Result<String, AssetError> { unimplemented!() }
}

/// Content on its way out.
pub struct Content {
    /// The bytes, in pieces.
    pub download: Download,
    /// How many there are.
    pub len: u64,
    /// What they are, as the metadata says.
    pub content_type: Option<String>,
    /// Their SHA-256 in hex.
    pub sha256: String,
}

impl Engine {
    /// Registers an asset. Its ID, and whether an earlier request with the same key had done so.
    pub async fn register(&self, caller: &Caller, text: &str, key: Option<IdempotencyKey>) -> Result<(ValueId, bool), AssetError> { unimplemented!() }
    /// The asset that a reference leads to.
    pub async fn asset(&self, caller: &Caller, reference: &str) -> Result<Asset, AssetError> { unimplemented!() }
    /// Assets, in the order of IDs, and how many there are in all.
    pub async fn assets(&self, caller: &Caller, query: ListAssets) -> Result<(Vec<ListedAsset>, u64), StoreTrouble> { unimplemented!() }
    /// Begins to take an asset's content.
    pub async fn put_content(&self, caller: &Caller, reference: &str) -> Result<ContentUpload, AssetError> { unimplemented!() }
    /// An asset's content.
    pub async fn content(&self, caller: &Caller, reference: &str) -> Result<Content, AssetError> { unimplemented!() }
}
