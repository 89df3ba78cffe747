//! Assets: metadata by its Value ID, content by its SHA-256.
//!
//! Metadata is kept as the text that was registered, so that it can be given back exactly. Lists
//! are roots too: one of all assets, one per kind, one per owner.

use std::sync::Arc;

use bytes::Bytes;
use catena_store::blob::{Digest, Download, KeepError, Upload};
use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, NoCells, Value, ValueId, json};

use crate::caller::{Caller, Role};
use crate::catalogue::{Form, form_of, text_member};
use crate::engine::{Engine, StartError};
use crate::error::{AssetError, InvokeError, StoreError};
use crate::idempotency::{Known, uncommitted};
use crate::limits::{METADATA_BYTES_MAX, PAGE_MAX};
use crate::operation::member;
use crate::request::IdempotencyKey;

/// The list of all assets, and the place of their metadata.
const ALL: &str = "all";

/// The place of the digests of content whose metadata does not name one.
const CONTENT: &str = "content";

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

impl AssetKind {
    fn list(self) -> &'static str {
        match self {
            AssetKind::Operation => "kind:operation",
            AssetKind::Data => "kind:data",
        }
    }

    fn of(metadata: &Value) -> Self {
        match member(metadata, "adapter") {
            Some(_) => AssetKind::Operation,
            None => AssetKind::Data,
        }
    }
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
pub struct ContentUpload {
    engine: Engine,
    hex: String,
    upload: Upload,
    declared: Option<String>,
    taken: u64,
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

fn key(list: &str, hex: &str) -> RootKey {
    RootKey { space: RootSpace::Asset, owner: list.to_owned(), name: hex.to_owned() }
}

fn by(did: &str) -> String {
    format!("by:{did}")
}

fn hex_of(id: &ValueId) -> String {
    id.to_string().trim_start_matches("0x").to_owned()
}

impl Engine {
    /// Registers an asset. Its ID, and whether an earlier request with the same key had done so.
    pub async fn register(
        &self,
        caller: &Caller,
        text: &str,
        key: Option<IdempotencyKey>,
    ) -> Result<(ValueId, bool), AssetError> {
        self.admit(caller).map_err(|error| match error {
            InvokeError::RateLimited(too_fast) => AssetError::RateLimited(too_fast),
            other => AssetError::Malformed(other.to_string()),
        })?;
        let metadata = self.acceptable(text).map_err(AssetError::Invalid)?;
        let claimed = match &key {
            None => None,
            Some(key) => match self.look_up::<AssetError>(caller, key).await? {
                Known::First(claimed) => Some(claimed),
                Known::Answered(_) => return Ok((metadata.id(), true)),
            },
        };
        let id = metadata.id();
        let mut effects = self.keeping(&caller.did, &metadata, text).await?;
        if let Some(claimed) = &claimed {
            let answer: Map = [("asset", Value::from(hex_of(&id)))].into_iter().collect();
            effects.push(claimed.remember(answer.into()));
        }
        match self.0.store.commit(Effects(effects)).await {
            // Somebody registered the same meanwhile: that is what was wanted.
            Ok(_) | Err(CommitError::RootMoved { .. }) => Ok((id, false)),
            Err(error) => Err(uncommitted(error)),
        }
    }

    /// The effects that keep an asset, as far as it is not kept.
    async fn keeping(
        &self,
        owner: &str,
        metadata: &Value,
        text: &str,
    ) -> Result<Vec<Effect>, StoreError> {
        let hex = hex_of(&metadata.id());
        let mut effects = Vec::new();
        let mut put = |key, value| {
            effects.push(Effect::Root { key, expected: None, value: Some(value) });
        };
        if self.0.store.root(&key(ALL, &hex)).await?.is_none() {
            let kept = [
                ("text", Value::from(text)),
                ("owner", owner.into()),
                ("created", self.now().into()),
            ];
            put(key(ALL, &hex), kept.into_iter().collect::<Map>().into());
            put(key(AssetKind::of(metadata).list(), &hex), true.into());
        }
        let own = key(&by(owner), &hex);
        if self.0.store.root(&own).await?.is_none() {
            put(own, true.into());
        }
        Ok(effects)
    }

    /// Reads metadata and says everything that is wrong with it.
    fn acceptable(&self, text: &str) -> Result<Value, Vec<(String, String)>> {
        let wrong = |place: &str, problem: String| vec![(place.to_owned(), problem)];
        if text.len() > METADATA_BYTES_MAX {
            let problem = format!("metadata has at most {METADATA_BYTES_MAX} bytes");
            return Err(wrong("", problem));
        }
        let metadata = json::read(text.as_bytes())
            .map_err(|error| wrong("", format!("not valid JSON: {error}")))?;
        let Some(map) = metadata.as_map() else {
            return Err(wrong("", "metadata must be an object".to_owned()));
        };
        let field = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
        if let Some(content) = field("content").filter(|content| !content.is_nil()) {
            if content.as_map().is_none() {
                return Err(wrong("/content", "must be an object".to_owned()));
            }
            let sha256 = content_member(&metadata, "sha256");
            if sha256.as_deref().is_some_and(|text| digest(text).is_none()) {
                return Err(wrong("/content/sha256", "must be 64 hex digits".to_owned()));
            }
        }
        match field("operation") {
            None | Some(Value::Nil) => Ok(metadata),
            Some(_) => self.0.catalogue.read(metadata.clone()).map(|_| metadata),
        }
    }

    /// Keeps the definitions that this venue has of its own, so that a job of one can be
    /// recovered and checked even when a later version defines it otherwise.
    pub(crate) async fn keep_own_assets(
        &self,
        assets: Vec<(Value, Option<&'static [u8]>)>,
    ) -> Result<(), StartError> {
        let registered =
            self.0.catalogue.entries().map(|(_, operation)| (operation.metadata().clone(), None));
        let all: Vec<(Value, Option<&'static [u8]>)> = registered.chain(assets).collect();
        let mut effects = Vec::new();
        let owner = self.0.did.to_string();
        for (metadata, content) in all {
            let text = json::to_string(&metadata)
                .map_err(|error| StartError::Definition(error.to_string()))?;
            effects.extend(self.keeping(&owner, &metadata, &text).await?);
            if let (Some(content), Some(declared)) = (content, content_member(&metadata, "sha256"))
            {
                let kept = self.keep_content(content, &declared).await;
                kept.map_err(|error| StartError::Definition(error.to_string()))?;
            }
        }
        if !effects.is_empty() {
            self.0.store.commit(Effects(effects)).await.map_err(StoreError::from)?;
        }
        Ok(())
    }

    async fn keep_content(&self, content: &'static [u8], declared: &str) -> Result<(), AssetError> {
        let expected = digest(declared);
        if let Some(expected) = expected
            && self.0.blobs.open(expected).await.map_err(unkept)?.is_some()
        {
            return Ok(());
        }
        let mut upload = self.0.blobs.begin().await.map_err(unkept)?;
        upload.write(Bytes::from_static(content)).await.map_err(unkept)?;
        upload.finish(expected).await.map_err(unkept)?;
        Ok(())
    }

    /// The metadata of an asset as it was registered.
    pub(crate) async fn asset_text(&self, hex: &str) -> Result<Option<Arc<str>>, StoreError> {
        let Some(root) = self.0.store.root(&key(ALL, hex)).await? else { return Ok(None) };
        let damaged = |error: String| StoreError::Damaged(format!("asset {hex}: {error}"));
        let value = root.value.fully_loaded(&*self.0.store.cells());
        let value = value.map_err(|error| damaged(error.to_string()))?;
        let text = value.as_map().and_then(|map| map.get(&"text".into(), &NoCells).ok()?);
        let Some(Value::String(text)) = text else { return Err(damaged("no text".into())) };
        let bytes = text.to_bytes(&NoCells).map_err(|error| damaged(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(text.into()))
    }

    /// The asset that a reference leads to.
    pub async fn asset(&self, caller: &Caller, reference: &str) -> Result<Asset, AssetError> {
        let not_found = || AssetError::NotFound(reference.to_owned());
        let form = form_of(reference, &self.0.did, &caller.did).map_err(AssetError::Malformed)?;
        match form {
            Form::Asset(id) => {
                let text = self.asset_text(&hex_of(&id)).await?.ok_or_else(not_found)?;
                Ok(Asset { id, text })
            }
            Form::Elsewhere(_) => Err(not_found()),
            Form::Place(space, path) => {
                let value = self.value_at(&caller.did, space, &path).await?;
                described(&value.ok_or_else(not_found)?)
            }
            Form::Name(_) => match self.resolve(caller, reference).await {
                Ok(operation) => described(operation.metadata()),
                Err(crate::error::ResolveError::Store(trouble)) => Err(trouble.into()),
                Err(_) => Err(not_found()),
            },
        }
    }

    /// Assets, in the order of IDs, and how many there are in all.
    pub async fn assets(
        &self,
        caller: &Caller,
        query: ListAssets,
    ) -> Result<(Vec<ListedAsset>, u64), StoreError> {
        let own = by(&caller.did);
        let list = match (query.own, query.kind) {
            (true, _) => own.as_str(),
            (false, Some(kind)) => kind.list(),
            (false, None) => ALL,
        };
        let (mut page, mut total) = (Vec::new(), 0u64);
        let mut after: Option<String> = None;
        let end = query.offset.saturating_add(query.limit.min(PAGE_MAX) as u64);
        loop {
            let store = &self.0.store;
            let names = store.roots(RootSpace::Asset, list, after.as_deref(), PAGE_MAX).await?;
            let Some(last) = names.last() else { break };
            after = Some(last.clone());
            for hex in &names {
                // The list of an owner has all kinds.
                if query.own && !self.is_of_kind(hex, query.kind).await? {
                    continue;
                }
                if (query.offset..end).contains(&total) {
                    page.extend(self.listed_asset(hex).await?);
                }
                total += 1;
            }
        }
        Ok((page, total))
    }

    async fn is_of_kind(&self, hex: &str, kind: Option<AssetKind>) -> Result<bool, StoreError> {
        let Some(kind) = kind else { return Ok(true) };
        let Some(text) = self.asset_text(hex).await? else { return Ok(false) };
        let metadata = json::read(text.as_bytes()).unwrap_or_default();
        Ok(AssetKind::of(&metadata) == kind)
    }

    async fn listed_asset(&self, hex: &str) -> Result<Option<ListedAsset>, StoreError> {
        let Some(text) = self.asset_text(hex).await? else { return Ok(None) };
        let metadata = json::read(text.as_bytes()).unwrap_or_default();
        let text = |name: &str| text_member(&metadata, name);
        let (name, kind, description) = (text("name"), text("type"), text("description"));
        Ok(Some(ListedAsset { id: metadata.id(), name, kind, description }))
    }

    /// How many assets there are.
    pub async fn asset_count(&self) -> Result<u64, StoreError> {
        let query = ListAssets { kind: None, own: false, offset: 0, limit: 0 };
        Ok(self.assets(&Caller::known(""), query).await?.1)
    }

    /// Begins to take an asset's content.
    pub async fn put_content(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<ContentUpload, AssetError> {
        let asset = self.asset(caller, reference).await?;
        let hex = hex_of(&asset.id);
        let metadata = json::read(asset.text.as_bytes()).unwrap_or_default();
        let declared = match content_member(&metadata, "sha256") {
            Some(declared) => Some(declared),
            None => self.content_digest(&hex).await?,
        };
        let own = self.0.store.root(&key(&by(&caller.did), &hex)).await;
        let is_own = own.map_err(StoreError::from)?.is_some();
        if declared.is_none() && !is_own && caller.role != Role::Admin {
            let text = "only who registered the asset may give it content".to_owned();
            return Err(AssetError::Forbidden(text));
        }
        let upload = self.0.blobs.begin().await.map_err(unkept)?;
        Ok(ContentUpload { engine: self.clone(), hex, upload, declared, taken: 0 })
    }

    /// The digest of content that was given to an asset whose metadata does not name one.
    async fn content_digest(&self, hex: &str) -> Result<Option<String>, StoreError> {
        let root = self.0.store.root(&key(CONTENT, hex)).await?;
        Ok(root.and_then(|root| root.value.as_str().map(str::to_owned)))
    }

    /// An asset's content.
    pub async fn content(&self, caller: &Caller, reference: &str) -> Result<Content, AssetError> {
        let asset = self.asset(caller, reference).await?;
        let metadata = json::read(asset.text.as_bytes()).unwrap_or_default();
        let none = || AssetError::NoContent(reference.to_owned());
        let sha256 = match content_member(&metadata, "sha256") {
            Some(declared) => declared,
            None => self.content_digest(&hex_of(&asset.id)).await?.ok_or_else(none)?,
        };
        let name = digest(&sha256).ok_or_else(none)?;
        let download = self.0.blobs.open(name).await.map_err(unkept)?.ok_or_else(none)?;
        let len = download.len();
        let content_type = content_member(&metadata, "contentType");
        Ok(Content { download, len, content_type, sha256: sha256.to_lowercase() })
    }
}

impl ContentUpload {
    /// Takes the next piece.
    pub async fn write(&mut self, data: Bytes) -> Result<(), AssetError> {
        self.taken += data.len() as u64;
        let max = self.engine.0.limits.content_bytes_max;
        if self.taken > max {
            return Err(AssetError::TooLarge { max });
        }
        self.upload.write(data).await.map_err(unkept)
    }

    /// Ends the content and compares it with what the metadata says. Its SHA-256 in hex.
    pub async fn finish(self) -> Result<String, AssetError> {
        let expected = self.declared.as_deref().and_then(digest);
        let finished = self.upload.finish(expected).await;
        let (found, _) = finished.map_err(|error| match (error, &self.declared) {
            (
                KeepError::Write(catena_store::blob::WriteError::Mismatch { found, .. }),
                Some(declared),
            ) => {
                AssetError::WrongContent { declared: declared.to_lowercase(), found: bare(&found) }
            }
            (error, _) => unkept(error),
        })?;
        let sha256 = bare(&found);
        if self.declared.is_none() {
            let effect = Effect::Root {
                key: key(CONTENT, &self.hex),
                expected: None,
                value: Some(sha256.as_str().into()),
            };
            match self.engine.0.store.commit(Effects::one(effect)).await {
                Ok(_) => {}
                Err(CommitError::RootMoved { .. }) => {
                    return Err(StoreError::Contended.into());
                }
                Err(error) => return Err(StoreError::from(error).into()),
            }
        }
        Ok(sha256)
    }
}

fn described(metadata: &Value) -> Result<Asset, AssetError> {
    let text = json::to_string(metadata)
        .map_err(|error| AssetError::Malformed(format!("not metadata: {error}")))?;
    Ok(Asset { id: metadata.id(), text: text.into() })
}

fn bare(digest: &Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}

fn digest(hex: &str) -> Option<Digest> {
    let hex = hex.strip_prefix("0x").unwrap_or(hex).to_lowercase();
    let is_hex = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| format!("sha256:{hex}").parse().ok())?
}

/// One member of the `content` object of an asset's metadata.
fn content_member(metadata: &Value, name: &str) -> Option<String> {
    let content = metadata.as_map()?.get(&"content".into(), &NoCells).ok()??;
    text_member(&content, name)
}

fn unkept(error: KeepError) -> AssetError {
    StoreError::Damaged(error.to_string()).into()
}
