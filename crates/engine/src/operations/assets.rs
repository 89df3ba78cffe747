//! Assets: metadata by its Value ID, content by its SHA-256.
//!
//! Metadata is stored as the text that was registered, so that it can be returned exactly. Lists
//! are roots too: one of all assets, one per kind, one per owner, and one of the prompts of each owner.

use std::sync::Arc;

use bytes::Bytes;
use catena_store::blob::{BlobError, Digest, Download, Upload};
use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace, Store};
use catena_value::{Map, NoCells, Value, ValueId, json};

use crate::error::{AssetError, StartError, StoreError};
use crate::limits::{
    LISTED_TEXT_BYTES_MAX, METADATA_BYTES_MAX, METADATA_INLINE_BYTES_MAX, PAGE_MAX,
    PROMPT_METADATA_BYTES_MAX,
};
use crate::operations::Operations;
use crate::operations::catalogue::{Form, parse_reference, text_member};
use crate::operations::members::{misplaced_members, unknown_members};
use crate::operations::operation::Problem;
use crate::operations::operation::member;
use crate::requests::{Caller, IdempotencyKey, KeyLookup, Role, commit_error};

/// The list of all assets, which also holds their metadata.
const ALL: &str = "all";

/// The digests of content whose metadata does not name one.
const CONTENT: &str = "content";

/// An asset.
#[derive(Debug, Clone)]
pub struct Asset {
    /// The asset ID.
    pub id: ValueId,
    /// The metadata, exactly as it was registered.
    pub text: Arc<str>,
}

/// Which assets to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListAssets {
    /// Only assets of this kind.
    pub kind: Option<AssetKind>,
    /// Only assets that the caller registered.
    pub own: bool,
    /// The number of assets to skip.
    pub offset: u64,
    /// The page size.
    pub limit: usize,
}

/// The kinds of assets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssetKind {
    /// An operation that can be invoked.
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

    fn from_metadata(metadata: &Value) -> Self {
        match member(metadata, "adapter") {
            Some(_) => AssetKind::Operation,
            None => AssetKind::Data,
        }
    }
}

/// One entry of a list of assets.
#[derive(Debug, Clone)]
pub struct ListedAsset {
    /// The asset ID.
    pub id: ValueId,
    /// `name` in its metadata.
    pub name: Option<String>,
    /// `type` in its metadata.
    pub kind: Option<String>,
    /// `description` in its metadata.
    pub description: Option<String>,
}

/// An upload of an asset's content.
pub struct ContentUpload {
    store: Arc<dyn Store>,
    bytes_max: u64,
    hex: String,
    /// The caller that uploads it, for whom its bytes count.
    owner: String,
    upload: Upload,
    declared: Option<String>,
    received: u64,
}

/// The content of an asset.
pub struct Content {
    /// The bytes, in chunks.
    pub download: Download,
    /// The number of bytes.
    pub len: u64,
    /// The content type in the metadata.
    pub content_type: Option<String>,
    /// The SHA-256 of the bytes in hex.
    pub sha256: String,
}

fn key(list: &str, hex: &str) -> RootKey {
    RootKey { space: RootSpace::Asset, owner: list.to_owned(), name: hex.to_owned() }
}

fn owner_list(did: &str) -> String {
    format!("by:{did}")
}

/// The list of an owner's assets that are prompts: those whose metadata has an object `prompt` and is not long.
fn prompt_list(did: &str) -> String {
    format!("prompts:{did}")
}

fn is_prompt(metadata: &Value) -> bool {
    let prompt = metadata.as_map().and_then(|map| map.get(&"prompt".into(), &NoCells).ok()?);
    prompt.is_some_and(|prompt| prompt.as_map().is_some())
}

/// Returns the beginning of a text that is too long for a list.
fn shortened(text: String) -> String {
    if text.len() <= LISTED_TEXT_BYTES_MAX {
        return text;
    }
    let end = text.floor_char_boundary(LISTED_TEXT_BYTES_MAX);
    format!("{}…", text.get(..end).unwrap_or_default())
}

fn hex_of(id: &ValueId) -> String {
    id.to_string().trim_start_matches("0x").to_owned()
}

/// Parses metadata, or returns all of its problems but those of an operation's definition.
fn parse_metadata(text: &str) -> Result<Value, Vec<(String, String)>> {
    let wrong = |location: &str, problem: String| vec![(location.to_owned(), problem)];
    if text.len() > METADATA_BYTES_MAX {
        let problem = format!("metadata must have at most {METADATA_BYTES_MAX} bytes");
        return Err(wrong("", problem));
    }
    let metadata = json::read(text.as_bytes())
        .map_err(|error| wrong("", format!("not valid JSON: {error}")))?;
    let Some(map) = metadata.as_map() else {
        return Err(wrong("", "metadata must be an object".to_owned()));
    };
    let content = map.get(&"content".into(), &NoCells).ok().flatten();
    if let Some(content) = content.filter(|content| !content.is_nil()) {
        if content.as_map().is_none() {
            return Err(wrong("/content", "must be an object".to_owned()));
        }
        let sha256 = content_member(&metadata, "sha256");
        if sha256.as_deref().is_some_and(|text| parse_digest(text).is_none()) {
            return Err(wrong("/content/sha256", "must be 64 hex digits".to_owned()));
        }
    }
    Ok(metadata)
}

/// Returns the effects that store metadata as an asset of an owner, unless it is stored already.
/// `now` is Unix time in ms.
pub(crate) fn definition_effects(owner: &str, metadata: &Value, now: i64) -> Vec<Effect> {
    // A value that cannot be written as JSON was not read from JSON: it is no metadata.
    let Ok(text) = json::to_string(metadata) else { return Vec::new() };
    let hex = hex_of(&metadata.id());
    let kind = AssetKind::from_metadata(metadata).list();
    let roots = [
        (key(ALL, &hex), stored_asset(&text, owner, now)),
        (key(kind, &hex), true.into()),
        (key(&owner_list(owner), &hex), true.into()),
    ];
    roots.map(|(key, value)| Effect::SetRootIfAbsent { key, value }).into()
}

fn stored_asset(text: &str, owner: &str, now: i64) -> Value {
    let members = [("text", Value::from(text)), ("owner", owner.into()), ("created", now.into())];
    members.into_iter().collect::<Map>().into()
}

fn has_operation(metadata: &Value) -> bool {
    let operation =
        metadata.as_map().and_then(|map| map.get(&"operation".into(), &NoCells).ok()?);
    operation.is_some_and(|operation| !operation.is_nil())
}

impl Operations {
    /// Returns true if a definition (64 hex digits) is an adapter's, or a user registered it.
    pub(crate) async fn owns_definition(&self, user: &str, hex: &str) -> Result<bool, StoreError> {
        if self.catalogue.has_id(hex) {
            return Ok(true);
        }
        Ok(self.store.root(&key(&owner_list(user), hex)).await?.is_some())
    }

    /// Registers an asset. Returns its ID, and true if an earlier request with the same idempotency
    /// key registered it.
    pub(crate) async fn register(
        &self,
        caller: &Caller,
        text: &str,
        key: Option<IdempotencyKey>,
    ) -> Result<(ValueId, bool), AssetError> {
        self.admission.admit(caller).map_err(AssetError::RateLimited)?;
        self.check_stored_bytes(&caller.did).await?;
        let metadata = parse_metadata(text).map_err(AssetError::Invalid)?;
        if has_operation(&metadata) {
            match self.read_definition(&caller.did, metadata.clone()).await? {
                // What is secret in an orchestration depends on its steps, which are not known yet.
                Ok(operation) if operation.plan().is_none() => {
                    self.catalogue.cache(&Arc::new(operation));
                }
                Err(problems) if self.catalogue.has_plan(&metadata) => {
                    return Err(AssetError::Invalid(problems));
                }
                // Any other definition is kept, and refused when it is invoked: it may be meant for
                // another venue, or for a later version of this one.
                Ok(_) | Err(_) => {}
            }
        }
        let claimed = match &key {
            None => None,
            Some(key) => match self.keys.look_up::<AssetError>(caller, key).await? {
                KeyLookup::First(claimed) => Some(claimed),
                KeyLookup::Answered(_) => return Ok((metadata.id(), true)),
            },
        };
        let id = metadata.id();
        let mut effects = self.asset_effects(&caller.did, &metadata, text).await?;
        if let Some(claimed) = &claimed {
            let answer: Map = [("asset", Value::from(hex_of(&id)))].into_iter().collect();
            effects.push(claimed.remember(answer.into()));
        }
        match self.store.commit(Effects(effects)).await {
            // The same asset was registered concurrently, which is the result the caller wants.
            Ok(_) | Err(CommitError::RootMoved { .. }) => Ok((id, false)),
            Err(error) => match key.filter(|_| matches!(error, CommitError::KeyTaken(_))) {
                Some(key) => {
                    drop(claimed);
                    // Another process received the same request and committed it first.
                    match self.keys.look_up::<AssetError>(caller, &key).await? {
                        KeyLookup::Answered(_) => Ok((id, true)),
                        KeyLookup::First(_) => Err(commit_error(error)),
                    }
                }
                None => Err(commit_error(error)),
            },
        }
    }

    /// Parses a definition that its author gives a name. Unlike an asset, which may be meant for another
    /// venue, it must be one that this venue can run, without members that mean nothing.
    pub(crate) async fn check_own_definition(
        &self,
        caller: &Caller,
        text: &str,
    ) -> Result<Value, AssetError> {
        let metadata = parse_metadata(text).map_err(AssetError::Invalid)?;
        if !has_operation(&metadata) {
            let problem = "is missing: only an operation can have a name".to_owned();
            return Err(AssetError::Invalid(vec![("/operation".to_owned(), problem)]));
        }
        let mut problems: Vec<Problem> = unknown_members(&metadata)
            .into_iter()
            .map(|member| (format!("/operation/{}", member.name), member.to_string()))
            .collect();
        let misplaced = misplaced_members(&metadata).into_iter().map(|name| {
            (format!("/{name}"), format!("unknown member `{name}`; write it into `operation`"))
        });
        problems.extend(misplaced);
        if let Err(found) = self.read_definition(&caller.did, metadata.clone()).await? {
            problems.extend(found);
        }
        if problems.is_empty() { Ok(metadata) } else { Err(AssetError::Invalid(problems)) }
    }

    /// Returns the effects that store an asset, as far as it is not stored yet.
    async fn asset_effects(
        &self,
        owner: &str,
        metadata: &Value,
        text: &str,
    ) -> Result<Vec<Effect>, StoreError> {
        let hex = hex_of(&metadata.id());
        let mut effects = Vec::new();
        let mut put = |key, value| {
            effects.push(Effect::SetRoot { key, expected: None, value: Some(value) });
        };
        if self.store.root(&key(ALL, &hex)).await?.is_none() {
            put(key(ALL, &hex), stored_asset(text, owner, self.runtime.now()));
            put(key(AssetKind::from_metadata(metadata).list(), &hex), true.into());
        }
        let own = key(&owner_list(owner), &hex);
        if self.store.root(&own).await?.is_none() {
            put(own, true.into());
        }
        let prompt = key(&prompt_list(owner), &hex);
        let is_short = text.len() <= PROMPT_METADATA_BYTES_MAX;
        if is_short && is_prompt(metadata) && self.store.root(&prompt).await?.is_none() {
            put(prompt, true.into());
        }
        Ok(effects)
    }

    /// Stores the venue's own definitions as assets, so that a job of one can be recovered and
    /// verified even after a later version of the program defines it differently.
    pub(crate) async fn store_own_assets(
        &self,
        assets: Vec<(Value, Option<&'static [u8]>)>,
    ) -> Result<(), StartError> {
        let registered =
            self.catalogue.entries().map(|(_, operation)| (operation.metadata().clone(), None));
        let all: Vec<(Value, Option<&'static [u8]>)> = registered.chain(assets).collect();
        let mut effects = Vec::new();
        let owner = self.did.to_string();
        for (metadata, content) in all {
            let text = json::to_string(&metadata)
                .map_err(|error| StartError::Definition(error.to_string()))?;
            effects.extend(self.asset_effects(&owner, &metadata, &text).await?);
            if let (Some(content), Some(declared)) = (content, content_member(&metadata, "sha256"))
            {
                let stored = self.store_content(content, &declared).await;
                stored.map_err(|error| StartError::Definition(error.to_string()))?;
            }
        }
        if !effects.is_empty() {
            self.store.commit(Effects(effects)).await.map_err(StoreError::from)?;
        }
        Ok(())
    }

    async fn store_content(
        &self,
        content: &'static [u8],
        declared: &str,
    ) -> Result<(), AssetError> {
        let expected = parse_digest(declared);
        if let Some(expected) = expected
            && self.blobs.keep_blob(expected).await.map_err(blob_error)?
        {
            return Ok(());
        }
        let mut upload = self.blobs.begin().await.map_err(blob_error)?;
        upload.write(Bytes::from_static(content)).await.map_err(blob_error)?;
        upload.finish(expected).await.map_err(blob_error)?;
        Ok(())
    }

    /// Returns the metadata of an asset as it was registered.
    pub(crate) async fn asset_text(&self, hex: &str) -> Result<Option<Arc<str>>, StoreError> {
        let Some(root) = self.store.root(&key(ALL, hex)).await? else { return Ok(None) };
        let damaged = |error: String| StoreError::Damaged(format!("asset {hex}: {error}"));
        let value = root.value.fully_loaded(&*self.store.cells());
        let value = value.map_err(|error| damaged(error.to_string()))?;
        let text = value.as_map().and_then(|map| map.get(&"text".into(), &NoCells).ok()?);
        let Some(Value::String(text)) = text else { return Err(damaged("no text".into())) };
        let bytes = text.to_bytes(&NoCells).map_err(|error| damaged(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(text.into()))
    }

    /// Returns the asset that a reference names.
    pub(crate) async fn asset(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Asset, AssetError> {
        let not_found = || AssetError::NotFound(reference.to_owned());
        let form =
            parse_reference(reference, &self.did, &caller.did).map_err(AssetError::Malformed)?;
        match form {
            Form::Asset(id) => {
                let text = self.asset_text(&hex_of(&id)).await?.ok_or_else(not_found)?;
                Ok(Asset { id, text })
            }
            Form::OtherVenue(_) => Err(not_found()),
            Form::Path(space, path) => {
                let value = self.value_at(&caller.did, space, &path).await?;
                asset_from_metadata(&value.ok_or_else(not_found)?)
            }
            Form::Name(_) => match self.resolve(caller, reference).await {
                Ok(operation) => asset_from_metadata(operation.metadata()),
                Err(crate::error::ResolveError::Store(error)) => Err(error.into()),
                Err(_) => Err(not_found()),
            },
        }
    }

    /// Returns a page of assets, ordered by ID, and the number of assets on all pages.
    pub(crate) async fn assets(
        &self,
        caller: &Caller,
        query: ListAssets,
    ) -> Result<(Vec<ListedAsset>, u64), StoreError> {
        let own = owner_list(&caller.did);
        let list = match (query.own, query.kind) {
            (true, _) => own.as_str(),
            (false, Some(kind)) => kind.list(),
            (false, None) => ALL,
        };
        let mut page = Vec::new();
        let mut total = 0u64;
        let mut after: Option<String> = None;
        let end = query.offset.saturating_add(query.limit.min(PAGE_MAX) as u64);
        loop {
            let store = &self.store;
            let names = store.roots(RootSpace::Asset, list, after.as_deref(), PAGE_MAX).await?;
            let Some(last) = names.last() else { break };
            after = Some(last.clone());
            for hex in &names {
                // The list of an owner contains all kinds.
                if query.own && !self.matches_kind(caller, hex, query.kind).await? {
                    continue;
                }
                if (query.offset..end).contains(&total) {
                    page.extend(self.listed_asset(caller, hex).await?);
                }
                total += 1;
            }
        }
        Ok((page, total))
    }

    /// Returns the IDs of the first `limit` prompts that the caller registered, in their order.
    pub(crate) async fn prompts(
        &self,
        caller: &Caller,
        limit: usize,
    ) -> Result<Vec<ValueId>, StoreError> {
        let list = prompt_list(&caller.did);
        let names = self.store.roots(RootSpace::Asset, &list, None, limit.min(PAGE_MAX)).await?;
        Ok(names.iter().filter_map(|hex| hex.parse().ok()).collect())
    }

    /// Returns the metadata of a prompt. `None` if it is too long for one, or if an admin has removed the asset.
    pub(crate) async fn prompt(
        &self,
        caller: &Caller,
        id: &ValueId,
    ) -> Result<Option<Value>, StoreError> {
        let Some(text) = self.asset_text(&hex_of(id)).await? else { return Ok(None) };
        if text.len() > PROMPT_METADATA_BYTES_MAX {
            return Ok(None);
        }
        self.find_in_metadata(caller, text, Value::clone).await.map(Some)
    }

    /// Parses metadata and returns what `find` finds in it: on a compute thread if it is long. Lists do this for
    /// many assets, so others have their turn in between.
    async fn find_in_metadata<T: Send + 'static>(
        &self,
        caller: &Caller,
        text: Arc<str>,
        find: impl FnOnce(&Value) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let is_long = text.len() > METADATA_INLINE_BYTES_MAX;
        let work = move || find(&json::read(text.as_bytes()).unwrap_or_default());
        if is_long {
            return self.runtime.compute.run(&caller.did, work).await.map_err(|_| StoreError::Busy);
        }
        tokio::task::yield_now().await;
        Ok(work())
    }

    async fn matches_kind(
        &self,
        caller: &Caller,
        hex: &str,
        kind: Option<AssetKind>,
    ) -> Result<bool, StoreError> {
        let Some(kind) = kind else { return Ok(true) };
        let Some(text) = self.asset_text(hex).await? else { return Ok(false) };
        self.find_in_metadata(caller, text, move |it| AssetKind::from_metadata(it) == kind).await
    }

    async fn listed_asset(
        &self,
        caller: &Caller,
        hex: &str,
    ) -> Result<Option<ListedAsset>, StoreError> {
        let Ok(id) = hex.parse::<ValueId>() else { return Ok(None) };
        let Some(text) = self.asset_text(hex).await? else { return Ok(None) };
        let listed = move |metadata: &Value| {
            let text = |name: &str| text_member(metadata, name).map(shortened);
            ListedAsset {
                id,
                name: text("name"),
                kind: text("type"),
                description: text("description"),
            }
        };
        self.find_in_metadata(caller, text, listed).await.map(Some)
    }

    /// Returns the number of assets.
    pub(crate) async fn asset_count(&self) -> Result<u64, StoreError> {
        let query = ListAssets { kind: None, own: false, offset: 0, limit: 0 };
        Ok(self.assets(&Caller::known(""), query).await?.1)
    }

    /// Starts an upload of an asset's content.
    pub(crate) async fn put_content(
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
        let own = self.store.root(&key(&owner_list(&caller.did), &hex)).await;
        let is_own = own.map_err(StoreError::from)?.is_some();
        if declared.is_none() && !is_own && caller.role != Role::Admin {
            let text =
                "only the caller that registered the asset may upload its content".to_owned();
            return Err(AssetError::Forbidden(text));
        }
        self.check_stored_bytes(&caller.did).await?;
        let upload = self.blobs.begin().await.map_err(blob_error)?;
        let store = Arc::clone(&self.store);
        let bytes_max = self.runtime.limits.content_bytes_max;
        let owner = caller.did.text().to_string();
        Ok(ContentUpload { store, bytes_max, hex, owner, upload, declared, received: 0 })
    }

    /// Removes an asset: its metadata, its entries in lists and its link to content. Content stays with
    /// those who uploaded it. Jobs that run a definition which is removed cannot be recovered.
    pub(crate) async fn remove_asset(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<ValueId, AssetError> {
        if caller.role != Role::Admin {
            return Err(AssetError::Forbidden("only an admin may remove assets".to_owned()));
        }
        let not_found = || AssetError::NotFound(reference.to_owned());
        let form =
            parse_reference(reference, &self.did, &caller.did).map_err(AssetError::Malformed)?;
        let Form::Asset(id) = form else { return Err(not_found()) };
        let hex = hex_of(&id);
        let metadata = self.store.root(&key(ALL, &hex)).await.map_err(StoreError::from)?;
        let metadata = metadata.ok_or_else(not_found)?.value;
        let owner = metadata.as_map().and_then(|map| map.get(&"owner".into(), &NoCells).ok()?);
        let owner = owner.as_ref().and_then(Value::as_str).unwrap_or_default();
        let mut effects = Vec::new();
        let (own, prompts) = (owner_list(owner), prompt_list(owner));
        let kinds = [AssetKind::Operation.list(), AssetKind::Data.list()];
        let lists = [ALL, CONTENT, kinds[0], kinds[1], &own, &prompts];
        for list in lists {
            let key = key(list, &hex);
            if let Some(root) = self.store.root(&key).await.map_err(StoreError::from)? {
                effects.push(Effect::SetRoot { key, expected: Some(root.id), value: None });
            }
        }
        self.store.commit(Effects(effects)).await.map_err(StoreError::from)?;
        self.catalogue.forget(&id);
        Ok(id)
    }

    /// Returns the digest of uploaded content, for an asset whose metadata does not name one.
    async fn content_digest(&self, hex: &str) -> Result<Option<String>, StoreError> {
        let root = self.store.root(&key(CONTENT, hex)).await?;
        Ok(root.and_then(|root| root.value.as_str().map(str::to_owned)))
    }

    /// Returns an asset's content.
    pub(crate) async fn content(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Content, AssetError> {
        let asset = self.asset(caller, reference).await?;
        let metadata = json::read(asset.text.as_bytes()).unwrap_or_default();
        let none = || AssetError::NoContent(reference.to_owned());
        let sha256 = match content_member(&metadata, "sha256") {
            Some(declared) => declared,
            None => self.content_digest(&hex_of(&asset.id)).await?.ok_or_else(none)?,
        };
        let name = parse_digest(&sha256).ok_or_else(none)?;
        let download = self.blobs.open(name).await.map_err(blob_error)?.ok_or_else(none)?;
        let len = download.len();
        let content_type = content_member(&metadata, "contentType");
        Ok(Content { download, len, content_type, sha256: sha256.to_lowercase() })
    }
}

impl ContentUpload {
    /// Appends the next chunk.
    pub async fn write(&mut self, data: Bytes) -> Result<(), AssetError> {
        self.received += data.len() as u64;
        if self.received > self.bytes_max {
            return Err(AssetError::TooLarge { max: self.bytes_max });
        }
        self.upload.write(data).await.map_err(blob_error)
    }

    /// Ends the upload and compares the content with its metadata. Returns its SHA-256 in hex.
    pub async fn finish(self) -> Result<String, AssetError> {
        let expected = self.declared.as_deref().and_then(parse_digest);
        let finished = self.upload.finish(expected).await;
        let (found, _) = finished.map_err(|error| match (error, &self.declared) {
            (
                BlobError::Write(catena_store::blob::WriteError::Mismatch { found, .. }),
                Some(declared),
            ) => AssetError::WrongContent {
                declared: declared.to_lowercase(),
                found: hex_digest(&found),
            },
            (error, _) => blob_error(error),
        })?;
        let sha256 = hex_digest(&found);
        let had = super::blobs::ownership_effect(&self.owner, found);
        self.store.commit(Effects::one(had)).await.map_err(StoreError::from)?;
        if self.declared.is_none() {
            let effect = Effect::SetRoot {
                key: key(CONTENT, &self.hex),
                expected: None,
                value: Some(sha256.as_str().into()),
            };
            match self.store.commit(Effects::one(effect)).await {
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

fn asset_from_metadata(metadata: &Value) -> Result<Asset, AssetError> {
    let text = json::to_string(metadata)
        .map_err(|error| AssetError::Malformed(format!("not metadata: {error}")))?;
    Ok(Asset { id: metadata.id(), text: text.into() })
}

fn hex_digest(digest: &Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}

fn parse_digest(hex: &str) -> Option<Digest> {
    let hex = hex.strip_prefix("0x").unwrap_or(hex).to_lowercase();
    let is_hex = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| format!("sha256:{hex}").parse().ok())?
}

/// Returns a member of the `content` object of an asset's metadata.
fn content_member(metadata: &Value, name: &str) -> Option<String> {
    let content = metadata.as_map()?.get(&"content".into(), &NoCells).ok()??;
    text_member(&content, name)
}

fn blob_error(error: BlobError) -> AssetError {
    StoreError::Damaged(error.to_string()).into()
}
