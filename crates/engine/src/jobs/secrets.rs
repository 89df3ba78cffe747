//! Secrets of a job, which are stored encrypted outside its chain until it ends.
//!
//! Fields that the operation's schema marks `writeOnly`, and the credentials of an authorisation
//! message, never enter a record: there they are `{"redacted": true}`, and the record's `redacted`
//! lists their locations. Recovery needs the values to run the job, so they are sealed here and
//! erased in the commit that ends the job. The same holds for the delegations (UCANs) that a caller
//! sent for steps on other venues.

use std::collections::HashSet;

use catena_auth::SealKey;
use catena_job::plan::Source;
use catena_job::{Job, JobId};
use catena_store::{Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, NoCells, Value, ValueId, Vector, json};

use crate::error::StoreError;
use crate::jobs::{Draft, Jobs};
use crate::limits::SECRETS_MAX;
use crate::operations::schema::{Place, Secret};

/// The location of the input in a job's record, as a JSON pointer.
pub(super) const INPUT: &str = "/input";

/// The purpose for which the sealing key is derived.
pub(crate) const JOB_SECRETS_PURPOSE: &str = "job secrets";

/// The name under which the complete input of a job is stored.
pub(super) const COMPLETE_INPUT: &str = "input";

/// The name under which delegations are stored.
const DELEGATIONS: &str = "ucans";

/// The name under which the secrets are stored that the worker of a job was given.
const GIVEN: &str = "given";

/// The member of a first record with the names of the caller's secrets that the worker of the job gets.
pub(crate) const DECLARED: &str = "secrets";

/// The member of a first record that is present if the request carried delegations.
pub(crate) const DELEGATED: &str = "delegated";

/// Returns the key that seals secrets. It also opens what the keys before it sealed.
pub(crate) fn seal_key(
    current: Option<[u8; 32]>,
    previous: Option<&[u8; 32]>,
    identity_key: SealKey,
) -> SealKey {
    let Some(current) = current else { return identity_key };
    let mut key = SealKey::derive(&current, JOB_SECRETS_PURPOSE);
    if let Some(previous) = previous {
        key = key.with_older(SealKey::derive(previous, JOB_SECRETS_PURPOSE));
    }
    key.with_older(identity_key)
}

/// Returns what a record contains in place of a secret.
pub(super) fn redacted() -> Value {
    [("redacted", true)].into_iter().collect::<Map>().into()
}

fn secrets_key(job: JobId) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: SEALED.to_owned(), name: job.to_hex() }
}

/// The owner of the roots with sealed secrets.
const SEALED: &str = "sealed";

/// How many jobs' secrets are read at once when they are sealed again.
const RESEALED_PER_PAGE: usize = 256;

/// A value whose secrets were removed.
pub(crate) struct Redacted {
    /// The value as a record may contain it.
    pub(crate) public: Value,
    /// Where secrets were, as JSON pointers below `under`.
    pub(crate) paths: Vec<Value>,
}

/// Removes the secrets at these paths from a value.
pub(crate) fn redact(value: &Value, secrets: &[Secret], under: &str) -> Redacted {
    let mut public = value.clone();
    let mut paths = Paths::default();
    for secret in secrets {
        public = hide(&public, secret, under, &mut paths).unwrap_or(public);
        if paths.list.len() > SECRETS_MAX {
            // Each secret is named in a record, so a value of many secrets is one.
            return Redacted { public: redacted(), paths: vec![under.into()] };
        }
    }
    Redacted { public, paths: paths.list }
}

/// The paths of the secrets that were found, each once.
#[derive(Default)]
struct Paths {
    list: Vec<Value>,
    known: HashSet<String>,
}

impl Paths {
    fn add(&mut self, path: &str) {
        // More than the maximum are not kept, whatever their number.
        if self.list.len() <= SECRETS_MAX && self.known.insert(path.to_owned()) {
            self.list.push(path.into());
        }
    }
}

/// Returns true if a place leaves a member out that has this name.
fn is_harmless(place: &Place, name: &str) -> bool {
    match place {
        Place::EachExcept(harmless) => {
            harmless.iter().any(|other| other.eq_ignore_ascii_case(name))
        }
        Place::At(_) | Place::Each => false,
    }
}

/// Returns a value with the secret at a path hidden. `None` if there is nothing at the path.
fn hide(value: &Value, secret: &[Place], at: &str, paths: &mut Paths) -> Option<Value> {
    let Some((first, rest)) = secret.split_first() else {
        paths.add(at);
        return Some(redacted());
    };
    let below = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
    match (first, value) {
        (Place::At(name), Value::Map(members)) => {
            let key = Value::from(name.as_str());
            let member = members.get(&key, &NoCells).ok()??;
            let hidden = hide(&member, rest, &below(name), paths)?;
            members.insert(key, hidden, &NoCells).ok().map(Value::from)
        }
        (Place::At(index), Value::Vector(items)) => {
            let at = index.parse().ok()?;
            let item = items.get(at, &NoCells).ok()??;
            let hidden = hide(&item, rest, &below(index), paths)?;
            items.set(at, hidden, &NoCells).ok().flatten().map(Value::from)
        }
        (Place::Each | Place::EachExcept(_), Value::Map(members)) => {
            let mut has_hidden = false;
            let hide_entry = |(key, member): (Value, Value)| {
                let name = key.to_text().unwrap_or_default();
                if is_harmless(first, &name) {
                    return (key.clone(), member);
                }
                let hidden = hide(&member, rest, &below(&name), paths);
                has_hidden |= hidden.is_some();
                (key, hidden.unwrap_or(member))
            };
            let public: Map = members.iter(&NoCells).flatten().map(hide_entry).collect();
            has_hidden.then(|| public.into())
        }
        (Place::Each | Place::EachExcept(_), Value::Vector(items)) => {
            let mut has_hidden = false;
            let hide_item = |(index, item): (usize, Value)| {
                let hidden = hide(&item, rest, &below(&index.to_string()), paths);
                has_hidden |= hidden.is_some();
                hidden.unwrap_or(item)
            };
            let public = items.iter(&NoCells).flatten().enumerate().map(hide_item).collect();
            has_hidden.then(|| Vector::from_items(public).into())
        }
        _ => None,
    }
}

/// Returns the paths of secrets in the input of a job.
pub(crate) fn input_secrets(job: &Job) -> Vec<Secret> {
    let below = |place: &Value| {
        let place = place.to_text()?.into_owned();
        let names = place.strip_prefix(INPUT)?.split('/').skip(1);
        let name = |name: &str| Place::At(name.replace("~1", "/").replace("~0", "~"));
        Some(names.map(name).collect())
    };
    job.field("redacted").and_then(Value::as_vector).map_or_else(Vec::new, |places| {
        places.iter(&NoCells).flatten().filter_map(|place| below(&place)).collect()
    })
}

/// Returns where the secrets of the parent job's input end up in the input of a step.
pub(crate) fn passed_on_secrets(source: &Source, secrets: &[Secret]) -> Vec<Secret> {
    let mut found = Vec::new();
    if !secrets.is_empty() {
        pass_on(source, secrets, &mut Vec::new(), &mut found);
    }
    found
}

fn pass_on(source: &Source, secrets: &[Secret], at: &mut Secret, found: &mut Vec<Secret>) {
    let below = |name: String, part: &Source, at: &mut Secret, found: &mut Vec<Secret>| {
        at.push(Place::At(name));
        pass_on(part, secrets, at, found);
        at.pop();
    };
    match source {
        Source::Const(_) | Source::Step { .. } => {}
        Source::Input(path) => {
            let path: Vec<_> = path.segments().iter().cloned().map(Place::At).collect();
            for secret in secrets {
                if let Some(rest) = secret.strip_prefix(path.as_slice()) {
                    found.push([at.as_slice(), rest].concat());
                } else if path.starts_with(secret) {
                    found.push(at.clone());
                }
            }
        }
        // A text that contains a secret is a secret.
        Source::Concat(parts) => {
            let mut within = Vec::new();
            parts.iter().for_each(|part| pass_on(part, secrets, &mut Vec::new(), &mut within));
            found.extend((!within.is_empty()).then(|| at.clone()));
        }
        Source::Array(parts) => {
            let parts = parts.iter().enumerate();
            parts.for_each(|(number, part)| below(number.to_string(), part, at, found));
        }
        Source::Object(members) => {
            members.iter().for_each(|(name, part)| below(name.clone(), part, at, found));
        }
    }
}

/// The secrets of a new job, which only this venue may read.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewSecrets {
    /// The complete input, if secrets were removed from it.
    pub(crate) input: Option<Value>,
    /// The delegations that its remote steps may present.
    pub(crate) delegations: Vec<String>,
}

/// Returns true if a job may have sealed secrets.
pub(super) fn has_secrets(job: &Job) -> bool {
    ["redacted", DELEGATED, DECLARED].iter().any(|name| job.field(name).is_some())
}

/// Returns true if secrets were removed from the input of a job.
pub(super) fn has_secret_input(job: &Job) -> bool {
    !input_secrets(job).is_empty()
}

/// Returns the `redacted` member of a record: the paths it has, and more.
pub(crate) fn redacted_paths(present: Option<&Value>, more: Vec<Value>) -> Value {
    let present = present.and_then(Value::as_vector).map(|paths| paths.iter(&NoCells).flatten());
    let mut all: Vec<Value> = present.into_iter().flatten().collect();
    for path in more {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    Vector::from_items(all).into()
}

impl Jobs {
    /// Seals a value for a job.
    pub(super) fn seal(&self, job: JobId, value: &Value) -> Result<String, StoreError> {
        let text = json::to_string(value)
            .map_err(|error| StoreError::TooLarge(format!("secret: {error}")))?;
        let mut nonce = [0; catena_auth::seal::NONCE_BYTES];
        self.runtime.env.random(&mut nonce);
        let sealed = self.seal_key.seal(&job.to_hex(), text.as_bytes(), nonce);
        sealed.ok_or_else(|| StoreError::TooLarge("a secret cannot be sealed".into()))
    }

    /// Decrypts what was sealed for a job. `None` if the key or the job is another.
    pub(super) fn unseal(&self, job: JobId, sealed: &str) -> Option<Value> {
        json::read(&self.seal_key.open(&job.to_hex(), sealed)?).ok()
    }

    /// Returns the effect that stores the secrets of a new job. `None` if it has none.
    pub(crate) fn store_secrets(
        &self,
        job: JobId,
        secrets: &NewSecrets,
    ) -> Result<Option<Effect>, StoreError> {
        let mut sealed = Vec::new();
        if let Some(input) = &secrets.input {
            sealed.push((COMPLETE_INPUT, Value::from(self.seal(job, input)?)));
        }
        if !secrets.delegations.is_empty() {
            let tokens = secrets.delegations.iter().map(|token| Value::from(token.as_str()));
            let tokens = tokens.collect::<Vector>().into();
            sealed.push((DELEGATIONS, Value::from(self.seal(job, &tokens)?)));
        }
        if sealed.is_empty() {
            return Ok(None);
        }
        let value = Some(sealed.into_iter().collect::<Map>().into());
        Ok(Some(Effect::SetRoot { key: secrets_key(job), expected: None, value }))
    }

    /// Returns the effect that adds a sealed secret to those of a job.
    pub(crate) async fn store_more_secrets(
        &self,
        job: JobId,
        name: &str,
        sealed: &str,
    ) -> Result<Effect, StoreError> {
        let root = self.store.root(&secrets_key(job)).await?;
        let expected = root.as_ref().map(|root| root.id);
        let secrets = match root.as_ref().and_then(|root| root.value.as_map()) {
            Some(map) => map.clone(),
            None => Map::new(),
        };
        let secrets = secrets.insert(name.into(), sealed.into(), &*self.store.cells());
        let secrets = secrets.map_err(|error| StoreError::Damaged(error.to_string()))?;
        Ok(Effect::SetRoot { key: secrets_key(job), expected, value: Some(secrets.into()) })
    }

    /// Returns the effect that seals the secrets which a worker is given with a job, so that they can be
    /// removed from what it reports even if this process does not live until then.
    pub(crate) async fn store_given_secrets(
        &self,
        job: JobId,
        values: &[(String, String)],
    ) -> Result<Effect, StoreError> {
        let texts: Vector = values.iter().map(|(_, value)| Value::from(value.as_str())).collect();
        let sealed = self.seal(job, &texts.into())?;
        self.store_more_secrets(job, GIVEN, &sealed).await
    }

    /// Returns the values of the secrets that the worker of a job was given.
    pub(crate) async fn given_secrets(&self, job: &Job) -> Result<Vec<String>, StoreError> {
        if job.field(DECLARED).is_none() {
            return Ok(Vec::new());
        }
        let texts = self.find_secret(job.id(), GIVEN).await?;
        let texts = texts.as_ref().and_then(Value::as_vector);
        let text = |value: Value| value.to_text().map(|text| text.into_owned());
        let texts = texts.map(|texts| texts.iter(&NoCells).flatten().filter_map(text).collect());
        Ok(texts.unwrap_or_default())
    }

    /// Returns true if a secret of a job was sealed with a key that is not at hand.
    pub(crate) async fn lacks_key_of(&self, job: &Job) -> Result<bool, StoreError> {
        if !has_secrets(job) {
            return Ok(false);
        }
        let sealed = self.sealed_texts(&secrets_key(job.id())).await?;
        let mut texts = sealed.iter().flat_map(|(_, texts)| texts);
        Ok(texts.any(|(_, text)| self.seal_key.lacks_key_of(text)))
    }

    /// Seals again what was sealed with an older key, once: afterwards nothing is left to do.
    pub(crate) async fn reseal_secrets(&self) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        let mut resealed = 0;
        loop {
            let names =
                self.store.roots(RootSpace::Venue, SEALED, after.as_deref(), RESEALED_PER_PAGE);
            let names = names.await?;
            let Some(last) = names.last().cloned() else { break };
            for name in names {
                resealed += u64::from(self.reseal_secrets_of(name).await?);
            }
            after = Some(last);
        }
        if resealed > 0 {
            tracing::info!(jobs = resealed, "sealed secrets of jobs again, with the current key");
        }
        Ok(())
    }

    async fn reseal_secrets_of(&self, name: String) -> Result<bool, StoreError> {
        let key = RootKey { space: RootSpace::Venue, owner: SEALED.to_owned(), name };
        let (Some((expected, texts)), Ok(job)) =
            (self.sealed_texts(&key).await?, key.name.parse::<JobId>())
        else {
            return Ok(false);
        };
        if !texts.iter().any(|(_, text)| self.seal_key.is_outdated(text)) {
            return Ok(false);
        }
        let mut resealed = Vec::new();
        for (name, text) in texts {
            let text = match self.unseal(job, &text) {
                Some(secret) => self.seal(job, &secret)?,
                None => text,
            };
            resealed.push((name, Value::from(text)));
        }
        let value = Some(resealed.into_iter().collect::<Map>().into());
        let effect = Effect::SetRoot { key, expected: Some(expected), value };
        self.store.commit(Effects::one(effect)).await?;
        Ok(true)
    }

    /// Returns the sealed texts under a key, by name, and the ID of their root.
    async fn sealed_texts(
        &self,
        key: &RootKey,
    ) -> Result<Option<(ValueId, Vec<(String, String)>)>, StoreError> {
        let Some(root) = self.store.root(key).await? else { return Ok(None) };
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let value = root.value.fully_loaded(&*self.store.cells()).map_err(damaged)?;
        let mut texts = Vec::new();
        let entries = value.as_map().map(|map| map.iter(&NoCells).flatten());
        for (name, sealed) in entries.into_iter().flatten() {
            if let (Some(name), Some(text)) = (name.to_text(), sealed.to_text()) {
                texts.push((name.into_owned(), text.into_owned()));
            }
        }
        Ok(Some((root.id, texts)))
    }

    /// Returns a secret of a job by its name.
    pub(super) async fn find_secret(
        &self,
        job: JobId,
        name: &str,
    ) -> Result<Option<Value>, StoreError> {
        let Some(root) = self.store.root(&secrets_key(job)).await? else { return Ok(None) };
        let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
        let value = root.value.fully_loaded(&*self.store.cells()).map_err(damaged)?;
        let sealed = value.as_map().and_then(|map| map.get(&name.into(), &NoCells).ok()?);
        let Some(Value::String(sealed)) = sealed else { return Ok(None) };
        let sealed = sealed.to_bytes(&NoCells).map_err(damaged)?;
        Ok(std::str::from_utf8(&sealed).ok().and_then(|sealed| self.unseal(job, sealed)))
    }

    /// Returns the delegations that came with the request of a job. `None` if they cannot be
    /// decrypted.
    pub(crate) async fn delegations_of(
        &self,
        job: JobId,
    ) -> Result<Option<Vec<String>>, StoreError> {
        let Some(tokens) = self.find_secret(job, DELEGATIONS).await? else { return Ok(None) };
        let text = |token: Value| token.to_text().map(|text| text.into_owned());
        let tokens = tokens.as_vector();
        let tokens = tokens.map(|tokens| tokens.iter(&NoCells).flatten().filter_map(text));
        Ok(tokens.map(Iterator::collect))
    }

    /// Erases the secrets of a job, in the commit that ends it.
    pub(super) async fn erase_secrets(&self, draft: &mut Draft) {
        if !has_secrets(draft.job()) {
            return;
        }
        let key = secrets_key(draft.job().id());
        if draft.is_new() {
            // The job starts and ends in one commit: nothing needs to be stored.
            draft.remove_effects(
                |effect| matches!(effect, Effect::SetRoot { key: other, .. } if *other == key),
            );
        } else if let Ok(Some(root)) = self.store.root(&key).await {
            draft.add(Effect::SetRoot { key, expected: Some(root.id), value: None });
        }
    }
}
