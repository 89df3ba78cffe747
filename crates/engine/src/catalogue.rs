//! What can be invoked, and how a reference leads to it.
//!
//! What adapters register is known by name and never leaves memory. What people register is an
//! asset, read from the store by its ID and kept for a while. A reference may be `adapter:op`, a
//! path (`v/ops/…`, `v/test/ops/…`, `o/…`, `w/…`), an asset ID with or without `0x` or `a/`, or a
//! DID URL that ends in one of these.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use catena_store::{RootKey, RootSpace};
use catena_value::path::Path;
use catena_value::{NoCells, Value, ValueId, json};
use parking_lot::Mutex;

use crate::adapter::{Adapter, ExecutionMode};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{ResolveError, StoreError};
use crate::federation::Federation;
use crate::limits::REFERENCE_BYTES_MAX;
use crate::operation::{Operation, Problem, member};

/// Definitions of people's that are kept in memory, compiled.
const KEPT_MAX: usize = 1_024;

/// Names that are offered when a reference leads nowhere.
const NEAREST_MAX: usize = 3;

/// One entry of the catalogue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its path, such as `v/ops/http/get`.
    pub path: String,
    /// The operation.
    pub operation: Arc<Operation>,
}

/// Everything that adapters registered, and what people registered as far as it was used.
pub(crate) struct Catalogue {
    adapters: BTreeMap<&'static str, Arc<dyn Adapter>>,
    modes: HashMap<String, ExecutionMode>,
    by_path: BTreeMap<String, Arc<Operation>>,
    by_reference: HashMap<String, Arc<Operation>>,
    kept: Mutex<HashMap<ValueId, Arc<Operation>>>,
}

impl Catalogue {
    /// The catalogue of these adapters. What is wrong with a definition of theirs, if something is.
    pub(crate) fn new(adapters: Vec<Arc<dyn Adapter>>) -> Result<Catalogue, Vec<Problem>> {
        let mut catalogue = Catalogue {
            adapters: adapters
                .iter()
                .map(|adapter| (adapter.name(), Arc::clone(adapter)))
                .collect(),
            modes: HashMap::new(),
            by_path: BTreeMap::new(),
            by_reference: HashMap::new(),
            kept: Mutex::default(),
        };
        let mut registered = Vec::new();
        for adapter in &adapters {
            // An adapter without operations of its own is named by definitions as a whole.
            catalogue.modes.insert(adapter.name().to_owned(), ExecutionMode::Task);
            for registration in adapter.operations() {
                let reference = format!("{}:{}", adapter.name(), registration.name);
                catalogue.modes.insert(reference.clone(), registration.mode);
                let path = format!("{}/{}", adapter.folder(), registration.name);
                registered.push((reference, path, registration.metadata));
            }
        }
        for (reference, path, metadata) in registered {
            let operation = Arc::new(catalogue.read(metadata)?);
            let id = operation.id_text().to_owned();
            let names = [reference, format!("/{path}"), format!("0x{id}"), format!("a/{id}"), id];
            for name in names {
                catalogue.by_reference.insert(name, Arc::clone(&operation));
            }
            catalogue.by_reference.insert(path.clone(), Arc::clone(&operation));
            catalogue.by_path.insert(path, operation);
        }
        Ok(catalogue)
    }

    /// Reads a definition for this venue.
    pub(crate) fn read(&self, metadata: Value) -> Result<Operation, Vec<Problem>> {
        let operation = Operation::read(metadata, |reference| {
            let mode = *self.modes.get(reference)?;
            let name = reference.split_once(':').map_or(reference, |(name, _)| name);
            Some((Arc::clone(self.adapters.get(name)?), mode))
        })?;
        Ok(match self.by_reference.get(operation.adapter()) {
            Some(own) => operation.recovering_like(own),
            None => operation,
        })
    }

    /// What adapters registered, in the order of paths.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&String, &Arc<Operation>)> {
        self.by_path.iter()
    }

    /// Whether this is an operation of an adapter's own, which has no steps.
    pub(crate) fn is_plain(&self, hex: &str) -> bool {
        self.by_reference.get(hex).is_some_and(|operation| operation.plan().is_none())
    }

    /// The way to other venues, when an adapter has one.
    pub(crate) fn federation(&self) -> Option<Arc<dyn Federation>> {
        self.adapters.values().find_map(|adapter| adapter.federation())
    }

    fn kept(&self, id: &ValueId) -> Option<Arc<Operation>> {
        self.kept.lock().get(id).cloned()
    }

    fn keep(&self, operation: &Arc<Operation>) {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(operation.id(), Arc::clone(operation));
    }

    /// The registered names that are most like this one.
    fn nearest(&self, reference: &str) -> Vec<String> {
        let wanted = reference.to_lowercase();
        let names = self
            .by_path
            .iter()
            .flat_map(|(path, operation)| [path.as_str(), operation.adapter()].map(str::to_owned));
        let mut found: Vec<(usize, String)> =
            names.map(|name| (distance(&wanted, &name), name)).collect();
        found.sort();
        found.dedup();
        let bound = (wanted.chars().count() / 2).max(2);
        let near = found.into_iter().filter(|(distance, _)| *distance <= bound);
        near.map(|(_, name)| name).take(NEAREST_MAX).collect()
    }
}

/// How many letters must change to make one word of another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.chars().take(256).enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (place, other) in b.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[place + 1];
            row[place + 1] = change.min(row[place] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// What a reference is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An asset, by its ID.
    Asset(ValueId),
    /// A value in the caller's workspace or among their operations.
    Place(RootSpace, Path),
    /// A name of the catalogue, or nothing.
    Name(String),
    /// Something of another venue's, by its DID.
    Elsewhere(String),
}

/// What a reference is, for the venue with this DID.
pub(crate) fn form_of(reference: &str, venue: &str, caller: &str) -> Result<Form, String> {
    if reference.is_empty() || reference.len() > REFERENCE_BYTES_MAX {
        return Err(format!("a reference has 1 to {REFERENCE_BYTES_MAX} bytes"));
    }
    if reference.starts_with("did:") {
        for own in [venue, caller] {
            if let Some(rest) = reference.strip_prefix(own).and_then(|rest| rest.strip_prefix('/'))
            {
                return form_of(rest, "\0", "\0");
            }
        }
        return Ok(Form::Elsewhere(reference.to_owned()));
    }
    let bare = reference.strip_prefix('/').unwrap_or(reference);
    let hex = bare.strip_prefix("a/").unwrap_or(bare);
    let hex = hex.strip_prefix("0x").or(hex.strip_prefix("0X")).unwrap_or(hex);
    if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let id = format!("0x{}", hex.to_ascii_lowercase()).parse::<ValueId>();
        return id.map(Form::Asset).map_err(|error| error.to_string());
    }
    for (prefix, space) in [("o/", RootSpace::Operation), ("w/", RootSpace::Workspace)] {
        if let Some(path) = bare.strip_prefix(prefix) {
            let path = Path::parse(path).map_err(|error| error.to_string())?;
            return Ok(Form::Place(space, path));
        }
    }
    Ok(Form::Name(bare.to_owned()))
}

impl Engine {
    /// Everything that adapters registered, in the order of paths.
    pub fn operations(&self) -> Vec<Entry> {
        let entries = self.0.catalogue.entries();
        entries
            .map(|(path, operation)| Entry { path: path.clone(), operation: Arc::clone(operation) })
            .collect()
    }

    /// The operations of one adapter; nothing when there is no such adapter.
    pub fn adapter_operations(&self, adapter: &str) -> Option<Vec<Entry>> {
        self.0.catalogue.adapters.get(adapter)?;
        let is_own = |entry: &Entry| entry.operation.carrier().name() == adapter;
        Some(self.operations().into_iter().filter(is_own).collect())
    }

    /// The adapters: name and description.
    pub fn adapters(&self) -> Vec<(&'static str, &'static str)> {
        let adapters = self.0.catalogue.adapters.values();
        adapters.map(|adapter| (adapter.name(), adapter.description())).collect()
    }

    /// The operation that a reference leads to, in any form.
    pub async fn resolve(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        if let Some(operation) = self.0.catalogue.by_reference.get(reference) {
            return Ok(Arc::clone(operation));
        }
        Box::pin(self.resolve_form(caller, reference)).await
    }

    async fn resolve_form(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        let named = || reference.to_owned();
        let form = form_of(reference, &self.0.did, &caller.did)
            .map_err(|reason| ResolveError::Malformed { reference: named(), reason })?;
        match form {
            Form::Asset(id) => self.operation_by_id(&id, reference).await,
            Form::Place(space, path) => {
                let metadata = self.value_at(&caller.did, space, &path).await?;
                match metadata {
                    // A value may be the metadata itself, or a reference to it.
                    Some(Value::String(text)) => {
                        let other = text.as_str().unwrap_or_default().to_owned();
                        match form_of(&other, &self.0.did, &caller.did) {
                            Ok(Form::Asset(id)) => self.operation_by_id(&id, reference).await,
                            Ok(Form::Name(name)) => self.by_name(&name, reference),
                            _ => Err(self.unknown(reference)),
                        }
                    }
                    Some(metadata) => self.usable(metadata, reference).map(Arc::new),
                    None => Err(self.unknown(reference)),
                }
            }
            Form::Name(name) => self.by_name(&name, reference),
            Form::Elsewhere(_) => Err(ResolveError::Unusable {
                reference: named(),
                reason: "it is another venue's; run it there with `grid:run`".to_owned(),
            }),
        }
    }

    fn by_name(&self, name: &str, reference: &str) -> Result<Arc<Operation>, ResolveError> {
        let found = self.0.catalogue.by_reference.get(name);
        found.cloned().ok_or_else(|| self.unknown(reference))
    }

    fn unknown(&self, reference: &str) -> ResolveError {
        let nearest = self.0.catalogue.nearest(reference);
        ResolveError::Unknown { reference: reference.to_owned(), nearest }
    }

    /// The operation with this asset ID.
    pub(crate) async fn operation_by_id(
        &self,
        id: &ValueId,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        if let Some(operation) = self.0.catalogue.kept(id) {
            return Ok(operation);
        }
        let hex = id.to_string().trim_start_matches("0x").to_owned();
        if let Some(operation) = self.0.catalogue.by_reference.get(&hex) {
            return Ok(Arc::clone(operation));
        }
        let Some(text) = self.asset_text(&hex).await? else { return Err(self.unknown(reference)) };
        let metadata = json::read(text.as_bytes())
            .map_err(|error| StoreError::Damaged(format!("asset {hex}: {error}")))?;
        let operation = Arc::new(self.usable(metadata, reference)?);
        self.0.catalogue.keep(&operation);
        Ok(operation)
    }

    fn usable(&self, metadata: Value, reference: &str) -> Result<Operation, ResolveError> {
        let reference = reference.to_owned();
        if member(&metadata, "adapter").is_none() {
            return Err(ResolveError::NotAnOperation { reference });
        }
        self.0.catalogue.read(metadata).map_err(|problems| {
            let reasons: Vec<String> = problems
                .into_iter()
                .map(|(place, problem)| format!("{place}: {problem}"))
                .collect();
            ResolveError::Unusable { reference, reason: reasons.join("; ") }
        })
    }

    /// The value at a place of somebody's.
    pub(crate) async fn value_at(
        &self,
        owner: &str,
        space: RootSpace,
        path: &Path,
    ) -> Result<Option<Value>, StoreError> {
        let key = RootKey { space, owner: owner.to_owned(), name: String::new() };
        let Some(root) = self.0.store.root(&key).await? else { return Ok(None) };
        let cells = self.0.store.cells();
        let damaged = |error: String| StoreError::Damaged(format!("{key}: {error}"));
        let found = path.get(&root.value, &*cells);
        let Some(value) = found.map_err(|error| damaged(error.to_string()))? else {
            return Ok(None);
        };
        value.fully_loaded(&*cells).map(Some).map_err(|error| damaged(error.to_string()))
    }
}

/// A member of a metadata map that is text.
pub(crate) fn text_member(metadata: &Value, name: &str) -> Option<String> {
    let value = metadata.as_map()?.get(&name.into(), &NoCells).ok()??;
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_in_every_form() {
        let hex = "7a8b9c0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b";
        let id: ValueId = format!("0x{hex}").parse().unwrap();
        let own = "did:key:venue";
        let form = |text: &str| form_of(text, own, "did:key:me").unwrap();
        let of_an_asset = [
            hex.to_owned(),
            hex.to_uppercase(),
            format!("0x{hex}"),
            format!("a/{hex}"),
            format!("/a/{hex}"),
            format!("{own}/a/{hex}"),
        ];
        for text in of_an_asset {
            assert_eq!(form(&text), Form::Asset(id), "{text}");
        }
        let place = Path::parse("mine/echo").unwrap();
        assert_eq!(form("o/mine/echo"), Form::Place(RootSpace::Operation, place.clone()));
        assert_eq!(form("/w/mine/echo"), Form::Place(RootSpace::Workspace, place.clone()));
        assert_eq!(form("did:key:me/o/mine/echo"), Form::Place(RootSpace::Operation, place));
        assert_eq!(form("test:echo"), Form::Name("test:echo".into()));
        assert_eq!(form("/v/ops/http/get"), Form::Name("v/ops/http/get".into()));
        let other = format!("did:web:elsewhere.example/a/{hex}");
        assert_eq!(form(&other), Form::Elsewhere(other.clone()));
        assert!(form_of("", own, "").is_err());
        assert!(form_of(&"x".repeat(3_000), own, "").is_err());
    }

    #[test]
    fn distance_counts_changes() {
        assert_eq!(distance("test:echo", "test:echo"), 0);
        assert_eq!(distance("test:ecko", "test:echo"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
