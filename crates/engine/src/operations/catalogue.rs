//! The catalogue: what can be invoked, and how references are resolved.
//!
//! Operations of adapters are found by name and stay in memory. Operations of callers are assets,
//! which are read from the store by their ID and cached. A reference may be `adapter:op`, a path
//! (`v/ops/…`, `v/test/ops/…`, `o/…`, `w/…`), an asset ID with or without `0x` or `a/`, or a DID
//! URL that ends in one of these.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Weak};

use catena_job::members::edit_distance;
use catena_store::RootSpace;
use catena_value::path::{Path, PathError};
use catena_value::{Extent, ExtentError, NoCells, Value, ValueId, json};
use parking_lot::Mutex;

use crate::error::{ResolveError, StoreError};
use crate::limits::{
    CACHED_DEFINITION_BYTES_MAX, FLOWING_OPERATIONS_MAX, METADATA_BYTES_MAX, NEAREST_MAX,
    NESTING_MAX, REFERENCE_BYTES_MAX,
};
use crate::operations::Operations;
use crate::operations::adapter::{Adapter, ExecutionMode};
use crate::operations::failure::Failure;
use crate::operations::federation::Federation;
use crate::operations::flow::flowing_secrets;
use crate::operations::operation::{Operation, Problem, member};
use crate::operations::roots::RootId;
use crate::operations::schema::Secret;
use crate::requests::Caller;
use crate::runtime::compute::ComputeError;

/// One entry of the catalogue.
#[derive(Debug, Clone)]
pub struct CatalogueEntry {
    /// The path, such as `v/ops/http/get`.
    pub path: String,
    /// The operation.
    pub operation: Arc<Operation>,
}

/// The operations of all adapters, and a cache of definitions that callers registered.
pub(crate) struct Catalogue {
    adapters: BTreeMap<&'static str, Arc<dyn Adapter>>,
    modes: HashMap<String, ExecutionMode>,
    by_path: BTreeMap<String, Arc<Operation>>,
    by_reference: HashMap<String, Arc<Operation>>,
    cached: Mutex<DefinitionCache>,
    /// Definitions that are being compiled: concurrent requests for one wait for the first.
    compiling: Mutex<HashMap<ValueId, Weak<Turn>>>,
}

/// The right to compile a definition.
type Turn = tokio::sync::Mutex<()>;

/// Compiled definitions. They differ in size by four orders of magnitude, so their bytes are bounded
/// and not their number.
#[derive(Default)]
struct DefinitionCache {
    entries: HashMap<ValueId, CachedDefinition>,
    /// The uses so far, which order the entries by their last use.
    uses: u64,
    bytes: u64,
}

struct CachedDefinition {
    operation: Arc<Operation>,
    bytes: u64,
    last_use: u64,
}

impl DefinitionCache {
    fn get(&mut self, id: &ValueId) -> Option<Arc<Operation>> {
        self.uses += 1;
        let entry = self.entries.get_mut(id)?;
        entry.last_use = self.uses;
        Some(Arc::clone(&entry.operation))
    }

    fn remove(&mut self, id: &ValueId) {
        if let Some(entry) = self.entries.remove(id) {
            self.bytes -= entry.bytes;
        }
    }

    /// Adds a definition. Removes the least recently used half of the bytes if there are too many.
    fn insert(&mut self, operation: &Arc<Operation>, bytes_max: u64) {
        let bytes = operation.bytes();
        // One definition must not replace all others.
        if bytes > bytes_max / 4 || self.entries.contains_key(&operation.id()) {
            return;
        }
        if self.bytes + bytes > bytes_max {
            self.shrink_to(bytes_max / 2);
        }
        self.uses += 1;
        let operation = Arc::clone(operation);
        self.bytes += bytes;
        let entry = CachedDefinition { bytes, last_use: self.uses, operation };
        self.entries.insert(entry.operation.id(), entry);
    }

    fn shrink_to(&mut self, bytes_max: u64) {
        let mut by_use: Vec<(u64, ValueId)> =
            self.entries.iter().map(|(id, entry)| (entry.last_use, *id)).collect();
        by_use.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, id) in by_use {
            if self.bytes <= bytes_max {
                return;
            }
            if let Some(removed) = self.entries.remove(&id) {
                self.bytes -= removed.bytes;
            }
        }
    }
}

impl Catalogue {
    /// Reads the definitions that adapters register. Fails with the problems of a definition.
    pub(crate) fn new(adapters: Vec<Arc<dyn Adapter>>) -> Result<Catalogue, Vec<Problem>> {
        let mut catalogue = Catalogue {
            adapters: adapters
                .iter()
                .map(|adapter| (adapter.name(), Arc::clone(adapter)))
                .collect(),
            modes: HashMap::new(),
            by_path: BTreeMap::new(),
            by_reference: HashMap::new(),
            cached: Mutex::default(),
            compiling: Mutex::default(),
        };
        let mut registered = Vec::new();
        for adapter in &adapters {
            // Definitions refer to an adapter without operations of its own by its name alone.
            catalogue.modes.insert(adapter.name().to_owned(), ExecutionMode::Task);
            for registration in adapter.operations() {
                let reference = format!("{}:{}", adapter.name(), registration.name);
                catalogue.modes.insert(reference.clone(), registration.mode);
                let path = format!("{}/{}", adapter.folder(), registration.name);
                registered.push((reference, path, registration.metadata));
            }
        }
        for (reference, path, metadata) in registered {
            let operation = Arc::new(catalogue.parse(metadata)?);
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

    fn parse(&self, metadata: Value) -> Result<Operation, Vec<Problem>> {
        Operation::read(metadata, |reference| {
            let mode = *self.modes.get(reference)?;
            let name = reference.split_once(':').map_or(reference, |(name, _)| name);
            Some((Arc::clone(self.adapters.get(name)?), mode))
        })
    }

    /// Parses a definition for this venue.
    pub(super) fn read(&self, metadata: Value) -> Result<Operation, Vec<Problem>> {
        let operation = self.parse(metadata)?;
        let own = self.by_reference.get(operation.adapter_ref());
        // What is read-only leaves no record, so only the adapter may say that an operation is.
        if operation.is_read_only() && !own.is_some_and(|own| own.is_read_only()) {
            let problem = format!("{} is not read-only", operation.adapter_ref());
            return Err(vec![("/operation/readOnly".to_owned(), problem)]);
        }
        Ok(match own {
            Some(own) => operation.with_recovery_of(own),
            None => operation,
        })
    }

    /// Returns the operations of adapters, ordered by path.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Arc<Operation>)> {
        self.by_path.iter()
    }

    /// Returns the path of an adapter's operation. `None` if it is a definition of a caller.
    pub(super) fn path_of(&self, operation: &Operation) -> Option<&str> {
        let own = self.by_path.iter().find(|(_, own)| own.id() == operation.id());
        own.map(|(path, _)| path.as_str())
    }

    /// Returns true if this is the ID (64 hex digits) of an adapter's operation.
    pub(super) fn has_id(&self, hex: &str) -> bool {
        self.by_reference.contains_key(hex)
    }

    /// Returns true if this is the ID (64 hex digits) of an adapter's operation without steps.
    pub(super) fn has_no_steps(&self, hex: &str) -> bool {
        self.by_reference.get(hex).is_some_and(|operation| operation.plan().is_none())
    }

    /// Returns true if metadata defines an operation that consists of steps.
    pub(super) fn has_plan(&self, metadata: &Value) -> bool {
        let reference = member(metadata, "adapter");
        let reference = reference.as_ref().and_then(Value::as_str).unwrap_or_default();
        let name = reference.split_once(':').map_or(reference, |(name, _)| name);
        self.adapters.get(name).is_some_and(|adapter| adapter.has_plans())
    }

    /// Returns the access to other venues, if an adapter provides it.
    fn federation(&self) -> Option<Arc<dyn Federation>> {
        self.adapters.values().find_map(|adapter| adapter.federation())
    }

    fn cached(&self, id: &ValueId) -> Option<Arc<Operation>> {
        self.cached.lock().get(id)
    }

    /// Returns the right to compile a definition, which is to be acquired.
    fn turn(&self, id: &ValueId) -> Arc<Turn> {
        let mut compiling = self.compiling.lock();
        if let Some(turn) = compiling.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        compiling.retain(|_, turn| turn.strong_count() > 0);
        let turn: Arc<Turn> = Arc::default();
        compiling.insert(*id, Arc::downgrade(&turn));
        turn
    }

    pub(super) fn cache(&self, operation: &Arc<Operation>) {
        self.cached.lock().insert(operation, CACHED_DEFINITION_BYTES_MAX);
    }

    /// Forgets a definition that is no longer stored.
    pub(super) fn forget(&self, id: &ValueId) {
        self.cached.lock().remove(id);
    }

    /// Returns the registered names that are most similar to a reference.
    fn nearest(&self, reference: &str) -> Vec<String> {
        let wanted = reference.to_lowercase();
        let names = self.by_path.iter().flat_map(|(path, operation)| {
            [path.as_str(), operation.adapter_ref()].map(str::to_owned)
        });
        let mut found: Vec<(usize, String)> =
            names.map(|name| (edit_distance(&wanted, &name), name)).collect();
        found.sort();
        found.dedup();
        let bound = (wanted.chars().count() / 2).max(2);
        let near = found.into_iter().filter(|(distance, _)| *distance <= bound);
        near.map(|(_, name)| name).take(NEAREST_MAX).collect()
    }
}

/// The forms of a reference.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An asset ID.
    Asset(ValueId),
    /// A path in the caller's workspace or operations.
    Path(RootSpace, Path),
    /// A name that may be in the catalogue.
    Name(String),
    /// A DID URL of another venue.
    OtherVenue(String),
}

/// Parses a reference, for the venue and the caller with these DIDs.
pub(super) fn parse_reference(reference: &str, venue: &str, caller: &str) -> Result<Form, String> {
    if reference.is_empty() || reference.len() > REFERENCE_BYTES_MAX {
        return Err(format!("a reference must have 1 to {REFERENCE_BYTES_MAX} bytes"));
    }
    if reference.starts_with("did:") {
        for own in [venue, caller] {
            if let Some(rest) = reference.strip_prefix(own).and_then(|rest| rest.strip_prefix('/'))
            {
                return parse_reference(rest, "\0", "\0");
            }
        }
        return Ok(Form::OtherVenue(reference.to_owned()));
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
            return Ok(Form::Path(space, path));
        }
    }
    Ok(Form::Name(bare.to_owned()))
}

impl Operations {
    /// Returns the operations of all adapters, ordered by path.
    pub(crate) fn entries(&self) -> Vec<CatalogueEntry> {
        let entries = self.catalogue.entries();
        entries
            .map(|(path, operation)| CatalogueEntry {
                path: path.clone(),
                operation: Arc::clone(operation),
            })
            .collect()
    }

    /// Returns true if a reference names an operation of an adapter, which every caller can list.
    pub(crate) fn is_listed(&self, reference: &str) -> bool {
        self.catalogue.by_reference.contains_key(reference)
    }

    /// Returns the operations of one adapter. `None` if there is no such adapter.
    pub(crate) fn entries_of(&self, adapter: &str) -> Option<Vec<CatalogueEntry>> {
        self.catalogue.adapters.get(adapter)?;
        let is_own = |entry: &CatalogueEntry| entry.operation.adapter().name() == adapter;
        Some(self.entries().into_iter().filter(is_own).collect())
    }

    /// Returns the name and description of each adapter.
    pub(crate) fn adapters(&self) -> Vec<(&'static str, &'static str)> {
        let adapters = self.catalogue.adapters.values();
        adapters.map(|adapter| (adapter.name(), adapter.description())).collect()
    }

    /// Returns the access to other venues, or a failure if no adapter provides it.
    pub(crate) fn federation(&self) -> Result<Arc<dyn Federation>, Failure> {
        let text = "this venue cannot reach others";
        let missing = || Failure::new("federation_unavailable", text);
        self.catalogue.federation().ok_or_else(missing)
    }

    /// Resolves a reference to an operation.
    pub(crate) async fn resolve(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        if let Some(operation) = self.catalogue.by_reference.get(reference) {
            return Ok(Arc::clone(operation));
        }
        let operation = Box::pin(self.resolve_other(caller, reference)).await?;
        match operation.near_miss() {
            Some(reason) => Err(ResolveError::Unusable {
                reference: reference.to_owned(),
                reason: reason.to_owned(),
            }),
            None => Ok(operation),
        }
    }

    async fn resolve_other(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        let named = || reference.to_owned();
        if let Some(operation) = self.resolve_name(caller, reference).await? {
            return Ok(operation);
        }
        let form = parse_reference(reference, &self.did, &caller.did)
            .map_err(|reason| ResolveError::Malformed { reference: named(), reason })?;
        match form {
            Form::Asset(id) => self.operation_by_id(&caller.did, &id, reference).await,
            Form::Path(space, path) => {
                let mut budget = FLOWING_OPERATIONS_MAX;
                let caller = &caller.did;
                let at = (space, &path);
                self.operation_at_path(caller, at, reference, NESTING_MAX, &mut budget).await
            }
            Form::Name(name) => self.by_name(&name, reference),
            Form::OtherVenue(_) => Err(ResolveError::Unusable {
                reference: named(),
                reason: "it belongs to another venue; use `grid:run` to run it there".to_owned(),
            }),
        }
    }

    fn by_name(&self, name: &str, reference: &str) -> Result<Arc<Operation>, ResolveError> {
        let found = self.catalogue.by_reference.get(name);
        found.cloned().ok_or_else(|| self.unknown(reference))
    }

    fn unknown(&self, reference: &str) -> ResolveError {
        let nearest = self.catalogue.nearest(reference);
        ResolveError::Unknown { reference: reference.to_owned(), nearest }
    }

    /// Returns the operation with this asset ID, on behalf of a caller.
    pub(crate) async fn operation_by_id(
        &self,
        caller: &str,
        id: &ValueId,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        let mut budget = FLOWING_OPERATIONS_MAX;
        self.operation_with_flow(caller, id, reference, NESTING_MAX, &mut budget).await
    }

    /// Returns the operation at a path of the caller: its metadata, or a reference to it.
    async fn operation_at_path(
        &self,
        caller: &str,
        (space, path): (RootSpace, &Path),
        reference: &str,
        depth: usize,
        budget: &mut usize,
    ) -> Result<Arc<Operation>, ResolveError> {
        let metadata = match self.value_at(caller, space, path).await? {
            Some(Value::String(text)) => {
                let other = text.as_str().unwrap_or_default();
                return match parse_reference(other, &self.did, caller) {
                    Ok(Form::Asset(id)) => {
                        self.operation_with_flow(caller, &id, reference, depth, budget).await
                    }
                    Ok(Form::Name(name)) => self.by_name(&name, reference),
                    _ => Err(self.unknown(reference)),
                };
            }
            Some(metadata) => metadata,
            None => return Err(self.unknown(reference)),
        };
        let id = metadata.id();
        let hex = id.to_string().trim_start_matches("0x").to_owned();
        let known = self.catalogue.by_reference.get(&hex).cloned();
        if let Some(known) = known.or_else(|| self.catalogue.cached(&id)) {
            return Ok(known);
        }
        let mut operation = self.parse_definition(caller, metadata, reference).await?;
        operation.mark_unregistered();
        let is_complete = self.add_flowing_secrets(caller, &mut operation, depth, budget).await?;
        let operation = Arc::new(operation);
        if is_complete {
            self.catalogue.cache(&operation);
        }
        Ok(operation)
    }

    /// The same. At most `depth` levels of nested orchestrations are searched for secret fields, and at
    /// most `budget` operations.
    async fn operation_with_flow(
        &self,
        caller: &str,
        id: &ValueId,
        reference: &str,
        depth: usize,
        budget: &mut usize,
    ) -> Result<Arc<Operation>, ResolveError> {
        if let Some(operation) = self.catalogue.cached(id) {
            return Ok(operation);
        }
        let hex = id.to_string().trim_start_matches("0x").to_owned();
        if let Some(operation) = self.catalogue.by_reference.get(&hex) {
            return Ok(Arc::clone(operation));
        }
        let turn = self.catalogue.turn(id);
        let turn = turn.lock().await;
        if let Some(operation) = self.catalogue.cached(id) {
            return Ok(operation);
        }
        let Some(text) = self.asset_text(&hex).await? else { return Err(self.unknown(reference)) };
        let metadata = json::read(text.as_bytes())
            .map_err(|error| StoreError::Damaged(format!("asset {hex}: {error}")))?;
        let mut operation = self.parse_definition(caller, metadata, reference).await?;
        // A path may lead back to this definition, which nobody may wait for then.
        let turn = (!self.has_path_steps(&operation, caller)).then_some(turn);
        let is_complete = self.add_flowing_secrets(caller, &mut operation, depth, budget).await?;
        let operation = Arc::new(operation);
        if is_complete {
            self.catalogue.cache(&operation);
        }
        drop(turn);
        Ok(operation)
    }

    /// Returns true if a step of an operation is found by a path.
    fn has_path_steps(&self, operation: &Operation, caller: &str) -> bool {
        let is_path = |reference: &str| {
            !self.catalogue.by_reference.contains_key(reference)
                && matches!(parse_reference(reference, &self.did, caller), Ok(Form::Path(..)))
        };
        operation.plan().is_some_and(|plan| plan.steps.iter().any(|step| is_path(&step.op)))
    }

    /// Marks the parts of an orchestration's input as secret that flow into secret fields of its steps.
    /// Returns false if the result must not be cached: a step is found by a path, whose value may change,
    /// or not all steps could be searched; then all of the input is secret.
    fn add_flowing_secrets<'a>(
        &'a self,
        caller: &'a str,
        operation: &'a mut Operation,
        depth: usize,
        budget: &'a mut usize,
    ) -> Pin<Box<dyn Future<Output = Result<bool, ResolveError>> + Send + 'a>> {
        Box::pin(self.search_steps(caller, operation, depth, budget))
    }

    async fn search_steps(
        &self,
        caller: &str,
        operation: &mut Operation,
        depth: usize,
        budget: &mut usize,
    ) -> Result<bool, ResolveError> {
        let Some(plan) = operation.plan().cloned() else { return Ok(true) };
        let mut known: HashMap<&str, Option<Arc<Operation>>> = HashMap::new();
        let mut is_complete = true;
        for step in plan.steps.iter().filter(|step| step.venue.is_none()) {
            if known.contains_key(step.op.as_str()) {
                continue;
            }
            let found = match self.catalogue.by_reference.get(&step.op) {
                Some(operation) => Some(Arc::clone(operation)),
                None => match parse_reference(&step.op, &self.did, caller) {
                    Ok(form @ (Form::Asset(_) | Form::Path(..))) => {
                        let (Some(below), Some(left)) =
                            (depth.checked_sub(1), budget.checked_sub(1))
                        else {
                            operation.add_secrets(vec![Vec::new()]);
                            return Ok(false);
                        };
                        *budget = left;
                        let found = if let Form::Path(space, path) = &form {
                            is_complete = false;
                            let at = (*space, path);
                            self.operation_at_path(caller, at, &step.op, below, budget).await
                        } else if let Form::Asset(id) = &form {
                            self.operation_with_flow(caller, id, &step.op, below, budget).await
                        } else {
                            Err(self.unknown(&step.op))
                        };
                        match found {
                            Ok(operation) => Some(operation),
                            Err(ResolveError::Store(error)) => {
                                return Err(ResolveError::Store(error));
                            }
                            // The job will be rejected for it.
                            Err(_) => None,
                        }
                    }
                    _ => None,
                },
            };
            known.insert(&step.op, found);
        }
        let secrets_of = |index: usize| -> &[Secret] {
            let step = plan.steps.get(index).map(|step| step.op.as_str()).unwrap_or_default();
            known.get(step).and_then(Option::as_ref).map_or(&[], |operation| operation.secrets())
        };
        let flowing = flowing_secrets(&plan, secrets_of);
        operation.add_secrets(flowing);
        Ok(is_complete)
    }

    async fn parse_definition(
        &self,
        caller: &str,
        metadata: Value,
        reference: &str,
    ) -> Result<Operation, ResolveError> {
        let reference = reference.to_owned();
        if member(&metadata, "adapter").is_none() {
            return Err(ResolveError::NotAnOperation { reference });
        }
        self.read_definition(caller, metadata).await?.map_err(|problems| {
            let reasons: Vec<String> = problems
                .into_iter()
                .map(|(location, problem)| format!("{location}: {problem}"))
                .collect();
            ResolveError::Unusable { reference, reason: reasons.join("; ") }
        })
    }

    /// Parses a definition of a caller and compiles its schemas, on a compute thread.
    pub(super) async fn read_definition(
        &self,
        caller: &str,
        metadata: Value,
    ) -> Result<Result<Operation, Vec<Problem>>, StoreError> {
        let catalogue = Arc::clone(&self.catalogue);
        match self.runtime.compute.run(caller, move || catalogue.read(metadata)).await {
            Ok(read) => Ok(read),
            Err(ComputeError::Busy) => Err(StoreError::Busy),
            Err(error) => {
                let problem = format!("the definition could not be compiled: {error}");
                Ok(Err(vec![("/operation".to_owned(), problem)]))
            }
        }
    }

    /// Returns the value at a path of an owner. `None` if there is none, or if it is longer than the metadata of an
    /// asset may be: then it is not loaded, because a workspace can be larger than the memory.
    pub(crate) async fn value_at(
        &self,
        owner: &str,
        space: RootSpace,
        path: &Path,
    ) -> Result<Option<Value>, StoreError> {
        let root = match space {
            RootSpace::Operation => RootId::operations(),
            _ => RootId::workspace(),
        };
        let key = root.key(owner);
        let Some(root) = self.store.root(&key).await? else { return Ok(None) };
        let cells = self.store.cells();
        let damaged = |error: String| StoreError::Damaged(format!("{key}: {error}"));
        let value = match path.get(&root.value, &*cells) {
            Ok(Some(value)) => value,
            Ok(None) | Err(PathError::NotAContainer { .. }) => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let bounds = Extent { bytes: METADATA_BYTES_MAX as u64, depth: usize::MAX };
        if matches!(bounds.measure(&value, &*cells), Err(ExtentError::Bytes(_))) {
            return Ok(None);
        }
        value.fully_loaded(&*cells).map(Some).map_err(|error| damaged(error.to_string()))
    }
}

/// Returns a member of a metadata map, if it is text.
pub(super) fn text_member(metadata: &Value, name: &str) -> Option<String> {
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
        let form = |text: &str| parse_reference(text, own, "did:key:me").unwrap();
        let asset_forms = [
            hex.to_owned(),
            hex.to_uppercase(),
            format!("0x{hex}"),
            format!("a/{hex}"),
            format!("/a/{hex}"),
            format!("{own}/a/{hex}"),
        ];
        for text in asset_forms {
            assert_eq!(form(&text), Form::Asset(id), "{text}");
        }
        let path = Path::parse("mine/echo").unwrap();
        assert_eq!(form("o/mine/echo"), Form::Path(RootSpace::Operation, path.clone()));
        assert_eq!(form("/w/mine/echo"), Form::Path(RootSpace::Workspace, path.clone()));
        assert_eq!(form("did:key:me/o/mine/echo"), Form::Path(RootSpace::Operation, path));
        assert_eq!(form("test:echo"), Form::Name("test:echo".into()));
        assert_eq!(form("/v/ops/http/get"), Form::Name("v/ops/http/get".into()));
        let other = format!("did:web:other.example/a/{hex}");
        assert_eq!(form(&other), Form::OtherVenue(other.clone()));
        assert!(parse_reference("", own, "").is_err());
        assert!(parse_reference(&"x".repeat(3_000), own, "").is_err());
    }
}
