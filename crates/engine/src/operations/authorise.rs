//! Decides whether a caller may do what an operation needs.
//!
//! A caller may do everything with what belongs to it, unless its request is restricted (`caps` of an
//! agent). With what belongs to others it may do what their delegations permit. The common case, a
//! caller without restrictions that runs an operation which touches no stored data, costs two
//! comparisons.

use std::sync::Arc;

use catena_auth::Delegation;
use catena_auth::capability::{Capability, owner_of};
use catena_value::Value;

use crate::error::StoreError;
use crate::limits::SHOWN_CAPABILITIES_MAX;
use crate::operations::Operations;
use crate::operations::need::Need;
use crate::operations::operation::Operation;
use crate::operations::roots::RootId;
use crate::requests::Caller;

/// Whether a caller may do something. If not, the text of the denial.
pub(crate) type Permission = Result<(), String>;

impl Operations {
    /// Decides whether a caller may run an operation with an input.
    pub(crate) async fn authorise(
        &self,
        caller: &Caller,
        operation: &Arc<Operation>,
        reference: &str,
        input: &Value,
    ) -> Result<Permission, StoreError> {
        if caller.restriction.is_none() && !operation.uses_roots() {
            return Ok(Ok(()));
        }
        Box::pin(self.authorise_needs(caller, operation, reference, input)).await
    }

    /// Decides whether a caller may run an operation that touches no stored data.
    pub(crate) fn authorise_inline(
        &self,
        caller: &Caller,
        operation: &Arc<Operation>,
        reference: &str,
        input: &Value,
    ) -> Permission {
        if caller.restriction.is_none() {
            return Ok(());
        }
        for need in self.needs_of(operation, reference, input) {
            let resource = need.qualified(&caller.did);
            let is_within = |ability| is_within_caps(caller, ability, &resource);
            if owner_of(&resource) != &*caller.did || !need.abilities().any(is_within) {
                return Err(denial(caller, operation, &need, &resource));
            }
        }
        Ok(())
    }

    /// Returns what running an operation needs.
    fn needs_of(&self, operation: &Operation, reference: &str, input: &Value) -> Vec<Need> {
        let mut needs = operation.adapter().needs(operation, input);
        if needs.is_empty() {
            needs.push(Need::new("invoke", self.resource_of(operation, reference)));
        }
        needs
    }

    async fn authorise_needs(
        &self,
        caller: &Caller,
        operation: &Arc<Operation>,
        reference: &str,
        input: &Value,
    ) -> Result<Permission, StoreError> {
        for need in self.needs_of(operation, reference, input) {
            let resource = need.qualified(&caller.did);
            if !self.check_need(caller, &need, &resource).await? {
                return Ok(Err(denial(caller, operation, &need, &resource)));
            }
        }
        Ok(Ok(()))
    }

    /// Returns the resource that invoking an operation touches: its path, or its ID.
    fn resource_of(&self, operation: &Operation, reference: &str) -> String {
        let reference = reference.trim_start_matches('/');
        if let Some(path) = self.catalogue.path_of(operation) {
            return path.to_owned();
        }
        if reference.starts_with("o/") || reference.starts_with("w/") {
            return reference.to_owned();
        }
        format!("a/{}", operation.id_text())
    }

    async fn check_need(
        &self,
        caller: &Caller,
        need: &Need,
        resource: &str,
    ) -> Result<bool, StoreError> {
        let is_granted = !need.is_explicit || !caps_of(caller).is_empty();
        for ability in need.abilities() {
            if !is_within_caps(caller, ability, resource) {
                continue;
            }
            if owner_of(resource) == &*caller.did && is_granted
                || self.find_delegation(caller, ability, resource).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if a delegation that the caller presented permits an ability on a resource.
    async fn find_delegation(
        &self,
        caller: &Caller,
        ability: &str,
        resource: &str,
    ) -> Result<bool, StoreError> {
        let now = self.runtime.now().div_euclid(1_000);
        let is_own = owner_of(resource) == &*caller.did;
        for text in &caller.delegations {
            // One that has expired since the request permits nothing any more.
            let Ok(delegation) = Delegation::verify(text, now) else { continue };
            let audience = delegation.audience.as_str();
            let is_for_venue = audience == &*self.did || audience == self.key_did;
            let is_for_caller = audience == caller.identity() || is_own && is_for_venue;
            if is_for_caller
                && delegation.permits(ability, resource, &self.key_did)
                && !self.find_revocation(&delegation).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if a delegation, or one on which it is based, was revoked by whoever issued it.
    pub(crate) async fn find_revocation(
        &self,
        delegation: &Delegation,
    ) -> Result<bool, StoreError> {
        let cells = self.store.cells();
        for (_, part) in delegation.chain() {
            for issuer in delegation.chain().into_iter().map(|(_, part)| part) {
                let by = issuer.delegator(&self.key_did);
                let Some(root) = self.store.root(&RootId::revocations().key(by)).await? else {
                    continue;
                };
                let Some(map) = root.value.as_map() else { continue };
                let found = map.get(&part.digest.as_str().into(), &*cells);
                let damaged =
                    |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
                if found.map_err(damaged)?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Returns the capabilities to which a caller is restricted.
fn caps_of(caller: &Caller) -> &[Vec<Capability>] {
    caller.restriction.as_ref().map_or(&[], |restriction| &restriction.caps)
}

/// Returns true if every list of capabilities of a caller covers an ability on a resource.
fn is_within_caps(caller: &Caller, ability: &str, resource: &str) -> bool {
    let covers = |capability: &Capability| capability.covers(&caller.did, ability, resource);
    caps_of(caller).iter().all(|caps| caps.iter().any(covers))
}

/// Returns the text of a denial. A model reads it, so it says what the caller may do instead.
fn denial(caller: &Caller, operation: &Operation, need: &Need, resource: &str) -> String {
    let ability = need.abilities().collect::<Vec<_>>().join(" or ");
    let lists = caps_of(caller);
    let mut has: Vec<String> = Vec::new();
    for capability in lists.iter().flatten().take(SHOWN_CAPABILITIES_MAX) {
        has.push(capability.to_string());
    }
    let has = match (lists.is_empty(), has.is_empty(), caller.delegations.is_empty()) {
        (true, _, true) => "everything of its own and no delegation".to_owned(),
        (true, _, false) => {
            "everything of its own, and delegations that do not permit this".to_owned()
        }
        (false, true, _) => "no capabilities".to_owned(),
        (false, false, _) => has.join(", "),
    };
    format!(
        "Capability denied: {} needs {ability} on {resource}; the caller {} has {has}; a retry will \
         not help",
        operation.adapter_ref(),
        caller.did
    )
}
