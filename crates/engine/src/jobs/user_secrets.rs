//! Secrets of users, encrypted at rest.
//!
//! The secrets of a user are a root: a map from names to `{sealed, hosts?, grants?, created, updated}`.
//! A value is sealed for its owner and its name, so that it cannot be moved to another. Records contain
//! names only.

use catena_store::{Effect, Effects, RootSpace};
use catena_value::{Map, NoCells, Value, Vector};

use crate::error::StoreError;
use crate::jobs::Jobs;
use crate::operations::{SECRET_OWNERS, user_secrets_key};

/// How many users' secrets are read at once when they are sealed again.
const RESEALED_PER_PAGE: usize = 256;

/// The member of an entry with the sealed value.
const SEALED_VALUE: &str = "sealed";

/// A secret of a user as it was read.
#[derive(Debug, Clone)]
pub(crate) struct UserSecret {
    sealed: String,
    /// The hosts to which it may be sent. Empty if it is not bound.
    pub(crate) hosts: Vec<String>,
    /// The IDs of others' definitions that may use it, as 64 hex digits.
    pub(crate) grants: Vec<String>,
}

impl UserSecret {
    fn from_value(value: &Value) -> Option<UserSecret> {
        let map = value.as_map()?;
        let text = |value: &Value| value.to_text().map(|text| text.into_owned());
        let texts = |name: &str| {
            let list = map.field(name).and_then(Value::as_vector);
            let list =
                list.map(|list| list.iter(&NoCells).flatten().filter_map(|item| text(&item)));
            list.map(Iterator::collect).unwrap_or_default()
        };
        let sealed = text(map.field(SEALED_VALUE)?)?;
        Some(UserSecret { sealed, hosts: texts("hosts"), grants: texts("grants") })
    }
}

/// Returns the context for which a secret of a user is sealed.
fn context(owner: &str, name: &str) -> String {
    // Neither a DID nor a name contains a line break, and no job ID begins like this.
    format!("secret\n{owner}\n{name}")
}

impl Jobs {
    /// Seals a secret for its owner and name.
    pub(crate) fn seal_user_secret(
        &self,
        owner: &str,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        let mut nonce = [0; catena_auth::seal::NONCE_BYTES];
        self.runtime.env.random(&mut nonce);
        let sealed = self.seal_key.seal(&context(owner, name), value.as_bytes(), nonce);
        sealed.ok_or_else(|| StoreError::TooLarge("a secret cannot be sealed".into()))
    }

    /// Returns a secret of a user, still sealed. `None` if there is none with this name.
    pub(crate) async fn user_secret(
        &self,
        owner: &str,
        name: &str,
    ) -> Result<Option<UserSecret>, StoreError> {
        let Some(root) = self.store.root(&user_secrets_key(owner)).await? else { return Ok(None) };
        let cells = self.store.cells();
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let Some(map) = root.value.as_map() else { return Ok(None) };
        let Some(entry) = map.get(&name.into(), &*cells).map_err(damaged)? else { return Ok(None) };
        let entry = entry.fully_loaded(&*cells).map_err(damaged)?;
        Ok(UserSecret::from_value(&entry))
    }

    /// Decrypts a secret. `None` if it was sealed with a key that is not at hand.
    pub(crate) fn open_user_secret(
        &self,
        owner: &str,
        name: &str,
        secret: &UserSecret,
    ) -> Option<String> {
        let bytes = self.seal_key.open(&context(owner, name), &secret.sealed)?;
        String::from_utf8(bytes).ok()
    }

    /// Seals the secrets of all users again that were sealed with an older key. Returns their number.
    pub(crate) async fn reseal_user_secrets(&self) -> Result<u64, StoreError> {
        let mut after: Option<String> = None;
        let mut resealed = 0;
        loop {
            let page = self.store.roots(
                RootSpace::Secret,
                SECRET_OWNERS,
                after.as_deref(),
                RESEALED_PER_PAGE,
            );
            let owners = page.await?;
            let Some(last) = owners.last().cloned() else { return Ok(resealed) };
            for owner in owners {
                resealed += self.reseal_secrets_of_user(&owner).await?;
            }
            after = Some(last);
        }
    }

    async fn reseal_secrets_of_user(&self, owner: &str) -> Result<u64, StoreError> {
        let key = user_secrets_key(owner);
        let Some(root) = self.store.root(&key).await? else { return Ok(0) };
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let value = root.value.fully_loaded(&*self.store.cells()).map_err(damaged)?;
        let Some(map) = value.as_map() else { return Ok(0) };
        let mut changed = map.clone();
        let mut resealed = 0;
        for (name, entry) in map.iter(&NoCells).flatten() {
            if let Some(entry) = self.resealed_entry(owner, &name, &entry)? {
                changed = changed.insert(name, entry, &NoCells).map_err(damaged)?;
                resealed += 1;
            }
        }
        if resealed > 0 {
            let value = Some(changed.into());
            let effect = Effect::SetRoot { key, expected: Some(root.id), value };
            self.store.commit(Effects::one(effect)).await?;
        }
        Ok(resealed)
    }

    /// Returns an entry with its value sealed with the current key. `None` if it is already, or cannot
    /// be decrypted.
    fn resealed_entry(
        &self,
        owner: &str,
        name: &Value,
        entry: &Value,
    ) -> Result<Option<Value>, StoreError> {
        let (Some(name), Some(secret)) = (name.to_text(), UserSecret::from_value(entry)) else {
            return Ok(None);
        };
        if !self.seal_key.is_outdated(&secret.sealed) {
            return Ok(None);
        }
        let Some(value) = self.open_user_secret(owner, &name, &secret) else { return Ok(None) };
        let sealed = self.seal_user_secret(owner, &name, &value)?;
        let entry = entry
            .as_map()
            .and_then(|entry| entry.insert(SEALED_VALUE.into(), sealed.into(), &NoCells).ok());
        Ok(entry.map(Value::from))
    }
}

/// Returns the entry of a secret in the root of its owner.
pub fn secret_entry(
    sealed: &str,
    hosts: &[String],
    grants: &[String],
    created: i64,
    updated: i64,
) -> Value {
    let texts = |list: &[String]| -> Value {
        list.iter().map(|text| Value::from(text.as_str())).collect::<Vector>().into()
    };
    let mut members = vec![
        (SEALED_VALUE, Value::from(sealed)),
        ("created", created.into()),
        ("updated", updated.into()),
    ];
    if !hosts.is_empty() {
        members.push(("hosts", texts(hosts)));
    }
    if !grants.is_empty() {
        members.push(("grants", texts(grants)));
    }
    members.into_iter().collect::<Map>().into()
}
