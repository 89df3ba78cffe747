//! Secrets of a job, kept sealed beside its chain for as long as it lives.
//!
//! A field that the operation's schema marks `writeOnly`, and the credentials of an authorisation
//! message, never enter a record: there they are `{"redacted": true}`, and the record says where in
//! `redacted`. So that recovery can still run the job they are kept here, encrypted, and erased in
//! the commit that ends it. So are the delegations (UCANs) that a caller sent for steps on other
//! venues.

use catena_job::plan::Source;
use catena_job::{Job, JobId};
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{Map, NoCells, Value, Vector, json};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::schema::{Place, Secret};

/// Where the input of a job stands in its record, as a JSON pointer.
pub(crate) const INPUT: &str = "/input";

/// The purpose of the key that seals.
pub(crate) const PURPOSE: &str = "job secrets";

/// The name that the input of a job is kept under.
pub(crate) const WHOLE_INPUT: &str = "input";

/// The name that delegations are kept under.
const DELEGATIONS: &str = "ucans";

/// The member of a first record that says that delegations came along.
pub(crate) const DELEGATED: &str = "delegated";

/// What stands in a record instead of a secret.
pub(crate) fn redacted() -> Value {
    [("redacted", true)].into_iter().collect::<Map>().into()
}

fn root(job: JobId) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: "sealed".to_owned(), name: job.to_hex() }
}

/// A value with secrets taken out.
pub(crate) struct Parted {
    /// The value as a record may have it.
    pub(crate) open: Value,
    /// Where secrets were, as JSON pointers below `under`.
    pub(crate) places: Vec<Value>,
}

/// Takes the secrets at these places out of a value.
pub(crate) fn part(value: &Value, secrets: &[Secret], under: &str) -> Parted {
    let mut parted = Parted { open: value.clone(), places: Vec::new() };
    for secret in secrets {
        if let Some(open) = hide(&parted.open, secret, under, &mut parted.places) {
            parted.open = open;
        }
    }
    parted
}

/// A value with what is at a place hidden; nothing when there is nothing at it.
fn hide(value: &Value, secret: &[Place], at: &str, places: &mut Vec<Value>) -> Option<Value> {
    let Some((first, rest)) = secret.split_first() else {
        let place = Value::from(at);
        if !places.contains(&place) {
            places.push(place);
        }
        return Some(redacted());
    };
    let is_meant = |name: &str| match first {
        Place::At(own) => own == name,
        Place::Each => true,
    };
    let mut has_hidden = false;
    let mut hidden = |name: &str, held: &Value| {
        let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        let hidden = is_meant(name).then(|| hide(held, rest, &below, places)).flatten();
        has_hidden |= hidden.is_some();
        hidden.unwrap_or_else(|| held.clone())
    };
    let open: Value = match value {
        Value::Map(members) => {
            let entries = members.iter(&NoCells).flatten();
            let hide_entry = |(key, held): (Value, Value)| {
                let open = hidden(&key.to_text().unwrap_or_default(), &held);
                (key, open)
            };
            entries.map(hide_entry).collect::<Map>().into()
        }
        Value::Vector(items) => {
            let items = items.iter(&NoCells).flatten().enumerate();
            let open = items.map(|(number, held)| hidden(&number.to_string(), &held)).collect();
            Vector::from_items(open).into()
        }
        _ => return None,
    };
    has_hidden.then_some(open)
}

/// The places of secrets in the input of a job.
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

/// Where in the input of a step secrets of the whole's input come to stand.
pub(crate) fn passed_on(source: &Source, secrets: &[Secret]) -> Vec<Secret> {
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
        // A text that a secret is a part of is one.
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

/// Seals a value for a job.
pub(crate) fn seal(engine: &Engine, job: JobId, value: &Value) -> Result<String, StoreError> {
    let text =
        json::to_string(value).map_err(|error| StoreError::TooLarge(format!("secret: {error}")))?;
    let mut nonce = [0; catena_auth::seal::NONCE_BYTES];
    engine.0.env.random(&mut nonce);
    let sealed = engine.0.seal_key.seal(&job.to_hex(), text.as_bytes(), nonce);
    sealed.ok_or_else(|| StoreError::TooLarge("a secret cannot be sealed".into()))
}

/// Opens what was sealed for a job.
pub(crate) fn open(engine: &Engine, job: JobId, sealed: &str) -> Option<Value> {
    json::read(&engine.0.seal_key.open(&job.to_hex(), sealed)?).ok()
}

/// What a new job has that only this venue may read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    /// Its whole input, when secrets were taken out of it.
    pub(crate) input: Option<Value>,
    /// The delegations that its steps on other venues may show.
    pub(crate) delegations: Vec<String>,
}

impl Secrets {
    /// The effect that keeps them, when there are some.
    pub(crate) fn keep(&self, engine: &Engine, job: JobId) -> Result<Option<Effect>, StoreError> {
        let mut kept = Vec::new();
        if let Some(input) = &self.input {
            kept.push((WHOLE_INPUT, Value::from(seal(engine, job, input)?)));
        }
        if !self.delegations.is_empty() {
            let tokens = self.delegations.iter().map(|token| Value::from(token.as_str()));
            let tokens = tokens.collect::<Vector>().into();
            kept.push((DELEGATIONS, Value::from(seal(engine, job, &tokens)?)));
        }
        let kept = (!kept.is_empty()).then(|| Value::from(kept.into_iter().collect::<Map>()));
        Ok(kept.map(|kept| Effect::Root { key: root(job), expected: None, value: Some(kept) }))
    }
}

/// The delegations of a job's caller, as they were kept; nothing when they cannot be opened.
pub(crate) async fn delegations(
    engine: &Engine,
    job: JobId,
) -> Result<Option<Vec<String>>, StoreError> {
    let Some(tokens) = find(engine, job, DELEGATIONS).await? else { return Ok(None) };
    let text = |token: Value| token.to_text().map(|text| text.into_owned());
    let tokens = tokens.as_vector().map(|tokens| tokens.iter(&NoCells).flatten().filter_map(text));
    Ok(tokens.map(Iterator::collect))
}

/// Whether something of a job may be kept sealed.
pub(crate) fn has_secrets(job: &Job) -> bool {
    job.field("redacted").is_some() || job.field(DELEGATED).is_some()
}

/// The effect that adds a secret to those of a job.
pub(crate) async fn keep_more(
    engine: &Engine,
    job: JobId,
    name: &str,
    sealed: &str,
) -> Result<Effect, StoreError> {
    let held = engine.0.store.root(&root(job)).await?;
    let expected = held.as_ref().map(|root| root.id);
    let kept = match held.as_ref().and_then(|root| root.value.as_map()) {
        Some(map) => map.clone(),
        None => Map::new(),
    };
    let kept = kept.insert(name.into(), sealed.into(), &*engine.0.store.cells());
    let kept = kept.map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(Effect::Root { key: root(job), expected, value: Some(kept.into()) })
}

/// A secret of a job, by its name.
pub(crate) async fn find(
    engine: &Engine,
    job: JobId,
    name: &str,
) -> Result<Option<Value>, StoreError> {
    let Some(root) = engine.0.store.root(&root(job)).await? else { return Ok(None) };
    let damaged = |error: catena_value::LoadError| StoreError::Damaged(error.to_string());
    let value = root.value.fully_loaded(&*engine.0.store.cells()).map_err(damaged)?;
    let sealed = value.as_map().and_then(|map| map.get(&name.into(), &NoCells).ok()?);
    let Some(Value::String(sealed)) = sealed else { return Ok(None) };
    let sealed = sealed.to_bytes(&NoCells).map_err(damaged)?;
    Ok(std::str::from_utf8(&sealed).ok().and_then(|sealed| open(engine, job, sealed)))
}

/// Whether the input of a job had secrets taken out.
pub(crate) fn has_secret_input(job: &Job) -> bool {
    !input_secrets(job).is_empty()
}

/// Whether an effect keeps secrets of a job.
pub(crate) fn is_kept(job: JobId, effect: &Effect) -> bool {
    matches!(effect, Effect::Root { key, .. } if *key == root(job))
}

/// The effect that erases all secrets of a job, when it has some.
pub(crate) async fn erase(engine: &Engine, job: JobId) -> Option<Effect> {
    let held = engine.0.store.root(&root(job)).await.ok()??;
    Some(Effect::Root { key: root(job), expected: Some(held.id), value: None })
}

/// The places of a record's `redacted`, with those that are added.
pub(crate) fn places(held: Option<&Value>, more: Vec<Value>) -> Value {
    let held = held.and_then(Value::as_vector).map(|held| held.iter(&NoCells).flatten());
    let mut all: Vec<Value> = held.into_iter().flatten().collect();
    for place in more {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    Vector::from_items(all).into()
}
