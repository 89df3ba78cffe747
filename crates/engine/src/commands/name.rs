//! Gives definitions names, and removes names.

use catena_value::{Map, Value, ValueId};

use crate::commands::Commands;
use crate::error::{AssetError, ChangeError};
use crate::limits::{NAME_VERSIONS_MAX, NAMES_MAX};
use crate::operations::{Failure, NameEntry, NameVersion, RootId, Roots, Sharing, is_name};
use crate::requests::Caller;

/// A named operation.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedOperation {
    /// The name, without `o/`.
    pub name: String,
    /// The number of the newest version.
    pub version: usize,
    /// The asset ID of its definition.
    pub id: ValueId,
    /// All versions, and who may use it.
    pub entry: NameEntry,
}

impl Commands {
    /// Makes a definition the newest version of a name of the caller, unless it is already. Without a
    /// definition, only changes who may use the name.
    pub(crate) async fn put_name(
        &self,
        caller: &Caller,
        name: &str,
        definition: Option<&str>,
        shared: Option<Sharing>,
    ) -> Result<NamedOperation, AssetError> {
        if let Some(refusal) = self.anonymous_refusal(caller, "the name of an operation") {
            return Err(AssetError::Forbidden(refusal));
        }
        if !is_name(name) {
            let text = "a name has 1 to 128 letters, digits, dots, underscores or hyphens";
            return Err(AssetError::Malformed(text.to_owned()));
        }
        let metadata = match definition {
            None => None,
            Some(text) => {
                let metadata = self.operations.check_own_definition(caller, text).await?;
                self.operations.register(caller, text, None).await?;
                Some(metadata)
            }
        };
        let owned = name.to_owned();
        let roots = vec![RootId::operations(), RootId::names()];
        let changed = self.change_roots(caller, roots, move |roots| {
            put(roots, &owned, metadata.as_ref(), shared.as_ref())
        });
        changed.await.map_err(change_error)
    }

    /// Removes a name of the caller. Its versions stay available by their asset IDs. Returns false if
    /// there is no such name.
    pub(crate) async fn remove_name(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<bool, AssetError> {
        if let Some(refusal) = self.anonymous_refusal(caller, "the name of an operation") {
            return Err(AssetError::Forbidden(refusal));
        }
        let name = name.to_owned();
        let roots = vec![RootId::operations(), RootId::names()];
        let changed = self.change_roots(caller, roots, move |roots| {
            let is_known = entry(roots, &name)?.is_some();
            if is_known {
                set_member(roots, &RootId::operations(), &name, None)?;
                set_member(roots, &RootId::names(), &name, None)?;
            }
            Ok(is_known)
        });
        changed.await.map_err(change_error)
    }
}

fn put(
    roots: &mut Roots,
    name: &str,
    metadata: Option<&Value>,
    shared: Option<&Sharing>,
) -> Result<NamedOperation, Failure> {
    let known = entry(roots, name)?;
    if known.is_none() && metadata.is_none() {
        return Err(Failure::new("not_found", format!("there is no operation o/{name}")));
    }
    if known.is_none() && names_count(roots)? >= NAMES_MAX {
        return Err(Failure::new(
            "too_many_names",
            format!("a user has at most {NAMES_MAX} names"),
        ));
    }
    let mut changed = known.unwrap_or_default();
    if let Some(shared) = shared {
        changed.shared = shared.clone();
    }
    if let Some(metadata) = metadata {
        let id = metadata.id();
        if changed.versions.last().is_none_or(|version| version.id != id) {
            if changed.versions.len() >= NAME_VERSIONS_MAX {
                let text = format!("a name has at most {NAME_VERSIONS_MAX} versions");
                return Err(Failure::new("too_many_versions", text));
            }
            changed.versions.push(NameVersion { id, at: roots.now() });
        }
        set_member(roots, &RootId::operations(), name, Some(metadata.clone()))?;
    }
    set_member(roots, &RootId::names(), name, Some(changed.to_value()))?;
    let newest = changed.versions.last().copied();
    let newest = newest.ok_or_else(|| Failure::new("not_found", "the name has no versions"))?;
    Ok(NamedOperation {
        name: name.to_owned(),
        version: changed.versions.len(),
        id: newest.id,
        entry: changed,
    })
}

fn load_failure(error: catena_value::LoadError) -> Failure {
    Failure::transient("store", error.to_string())
}

fn entry(roots: &Roots, name: &str) -> Result<Option<NameEntry>, Failure> {
    let Some(map) = roots.get(&RootId::names())?.and_then(Value::as_map) else { return Ok(None) };
    let value = map.get(&name.into(), roots.cells()).map_err(load_failure)?;
    let value = value.map(|value| value.fully_loaded(roots.cells())).transpose();
    Ok(value.map_err(load_failure)?.as_ref().and_then(NameEntry::from_value))
}

fn names_count(roots: &Roots) -> Result<u64, Failure> {
    let names = roots.get(&RootId::names())?;
    Ok(names.and_then(Value::as_map).map_or(0, Map::len))
}

/// Sets or removes a member of a root that is a map.
fn set_member(
    roots: &mut Roots,
    root: &RootId,
    name: &str,
    value: Option<Value>,
) -> Result<(), Failure> {
    let map = roots.get(root)?.and_then(Value::as_map).cloned().unwrap_or_else(Map::new);
    let changed = match value {
        Some(value) => map.insert(name.into(), value, roots.cells()),
        None => map.remove(&name.into(), roots.cells()),
    };
    let changed = changed.map_err(load_failure)?;
    roots.set(root, Some(changed.into()))
}

fn change_error(error: ChangeError) -> AssetError {
    match error {
        ChangeError::Refused { code, error } if code == "not_found" => AssetError::NotFound(error),
        ChangeError::Refused { error, .. } => AssetError::Malformed(error),
        ChangeError::Store(error) => error.into(),
    }
}
