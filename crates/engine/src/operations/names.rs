//! Names of operations: `o/<name>`, with versions, and who may use them.
//!
//! The definition that a name stands for is at `o/<name>` of its owner, where workspace operations see
//! it. The history of the name and who it is shared with are in a second root: a map from names to
//! [`NameEntry`]. Both change in one commit. A user refers to a name of another user with the owner's
//! DID in front; the jobs of such an operation go to the queues of that owner.

// The names of the root's members are part of the data format.

use std::sync::Arc;

use catena_value::{Map, NoCells, Value, ValueId, Vector};

use crate::error::{ResolveError, StoreError};
use crate::operations::operation::Operation;
use crate::operations::queue::is_name;
use crate::operations::{Operations, RootId};
use crate::requests::Caller;

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NameEntry {
    /// The versions, oldest first; the first is version 1.
    pub versions: Vec<NameVersion>,
    /// Who may use it besides its owner.
    pub shared: Sharing,
}

/// One version of a named operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameVersion {
    /// The asset ID of its definition.
    pub id: ValueId,
    /// When it was made, as Unix time in ms.
    pub at: i64,
}

/// Who may use a name besides its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Nobody.
    #[default]
    Nobody,
    /// Everyone who may use the venue.
    Everyone,
    /// The callers with these DIDs.
    With(Vec<String>),
}

impl Sharing {
    fn covers(&self, did: &str) -> bool {
        match self {
            Sharing::Nobody => false,
            Sharing::Everyone => true,
            Sharing::With(dids) => dids.iter().any(|other| other == did),
        }
    }
}

impl NameEntry {
    pub(crate) fn from_value(value: &Value) -> Option<NameEntry> {
        let map = value.as_map()?;
        let mut versions = Vec::new();
        for version in map.field("versions")?.as_vector()?.iter(&NoCells).flatten() {
            let version = version.as_map()?;
            let id = version.field("id")?.to_text()?.parse().ok()?;
            versions.push(NameVersion { id, at: version.field("at")?.as_i64()? });
        }
        let shared = match map.field("shared") {
            Some(Value::Bool(true)) => Sharing::Everyone,
            Some(dids) => {
                let dids = dids.as_vector()?.iter(&NoCells).flatten();
                Sharing::With(dids.filter_map(|did| Some(did.to_text()?.into_owned())).collect())
            }
            None => Sharing::Nobody,
        };
        Some(NameEntry { versions, shared })
    }

    pub(crate) fn to_value(&self) -> Value {
        let versions: Vector = self
            .versions
            .iter()
            .map(|version| {
                let members =
                    [("id", Value::from(version.id.to_string())), ("at", version.at.into())];
                Value::from(members.into_iter().collect::<Map>())
            })
            .collect();
        let mut members = vec![("versions", Value::from(versions))];
        match &self.shared {
            Sharing::Nobody => {}
            Sharing::Everyone => members.push(("shared", true.into())),
            Sharing::With(dids) => {
                let dids: Vector = dids.iter().map(|did| Value::from(did.as_str())).collect();
                members.push(("shared", dids.into()));
            }
        }
        members.into_iter().collect::<Map>().into()
    }
}

/// A reference to a name: `o/<name>`, `o/<name>@<version>`, each with or without an owner in front.
#[derive(Debug, PartialEq, Eq)]
struct NameReference<'a> {
    owner: Option<&'a str>,
    name: &'a str,
    version: Option<usize>,
}

impl<'a> NameReference<'a> {
    fn parse(reference: &'a str) -> Option<NameReference<'a>> {
        let (owner, rest) = match reference.strip_prefix("did:") {
            Some(_) => {
                let (owner, rest) = reference.split_once("/o/")?;
                (Some(owner), rest)
            }
            None => {
                let bare = reference.strip_prefix('/').unwrap_or(reference);
                (None, bare.strip_prefix("o/")?)
            }
        };
        let (name, version) = match rest.rsplit_once('@') {
            Some((name, version)) => (name, Some(version.parse().ok().filter(|v| *v > 0)?)),
            None => (rest, None),
        };
        is_name(name).then_some(NameReference { owner, name, version })
    }
}

impl Operations {
    /// Resolves a reference to a version of a name, or to a name of another user. `None` if the
    /// reference is neither.
    pub(super) async fn resolve_name(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Option<Arc<Operation>>, ResolveError> {
        let Some(NameReference { owner, name, version }) = NameReference::parse(reference) else {
            return Ok(None);
        };
        let owner = owner.unwrap_or(&caller.did);
        let is_own = *owner == *caller.did;
        if is_own && version.is_none() {
            // What is at the path now.
            return Ok(None);
        }
        let Some(entry) = self.name_entry(owner, name).await? else { return Ok(None) };
        if !is_own && !entry.shared.covers(&caller.did) {
            return Ok(None);
        }
        let version = version.unwrap_or(entry.versions.len());
        let Some(version) = entry.versions.get(version.wrapping_sub(1)) else { return Ok(None) };
        self.operation_by_id(&caller.did, &version.id, reference).await.map(Some)
    }

    /// Returns what is known of a name of a user.
    pub(crate) async fn name_entry(
        &self,
        owner: &str,
        name: &str,
    ) -> Result<Option<NameEntry>, StoreError> {
        Ok(self.names(owner).await?.into_iter().find(|(known, _)| known == name).map(|(_, e)| e))
    }

    /// Returns the names of a user, in order.
    pub(crate) async fn names(&self, owner: &str) -> Result<Vec<(String, NameEntry)>, StoreError> {
        let root = RootId::names();
        let Some(stored) = self.store.root(&root.key(owner)).await? else { return Ok(Vec::new()) };
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let value = stored.value.fully_loaded(&*self.store.cells()).map_err(damaged)?;
        let Some(map) = value.as_map() else { return Ok(Vec::new()) };
        let mut names: Vec<(String, NameEntry)> = map
            .iter(&NoCells)
            .flatten()
            .filter_map(|(name, entry)| {
                Some((name.to_text()?.into_owned(), NameEntry::from_value(&entry)?))
            })
            .collect();
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_a_name_may_have_an_owner_and_a_version() {
        let parse = NameReference::parse;
        let name = |owner, name, version| Some(NameReference { owner, name, version });
        assert_eq!(parse("o/mail"), name(None, "mail", None));
        assert_eq!(parse("/o/mail@3"), name(None, "mail", Some(3)));
        assert_eq!(parse("did:key:z1/o/mail@1"), name(Some("did:key:z1"), "mail", Some(1)));
        for other in ["o/", "o/a/b", "mail", "o/mail@0", "o/mail@x", "w/mail", "did:key:z1/w/x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_entry_is_stored_and_read() {
        let id = Value::from(1i64).id();
        for shared in
            [Sharing::Nobody, Sharing::Everyone, Sharing::With(vec!["did:key:z1".to_owned()])]
        {
            let versions = vec![NameVersion { id, at: 5 }, NameVersion { id, at: 6 }];
            let entry = NameEntry { versions, shared };
            assert_eq!(NameEntry::from_value(&entry.to_value()), Some(entry));
        }
    }
}
