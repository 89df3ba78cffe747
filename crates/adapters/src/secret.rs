//! `secret`: the caller's secrets.
//!
//! **What it does:** stores, removes, lists and grants the use of secrets, and shows one to a caller who
//! is expressly allowed to see it. A value is encrypted for its owner and its name before it is stored,
//! and no record ever contains it.
//!
//! **Cost:** a change is one commit with its job.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe: a change is committed together with its job, so it is made once.

use catena_engine::operations::HostReply;
use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Need, Operation, Registration, RootId, Roots,
    SecretPurpose, Turn, TurnFuture, secret_entry,
};
use catena_value::{Map, NoCells, Value};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, array, invalid_input, object, text};
use crate::limits::{SECRET_BYTES_MAX, SECRET_HOSTS_MAX, SECRET_NAME_BYTES_MAX, USER_SECRETS_MAX};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secret;

// Operations.

const NAME: &str =
    r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}"#;

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "set",
        title: "Store a secret",
        description: "Stores a secret of the caller, encrypted. With `hosts` it can only be sent to these.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["name","value"],"properties":{
                "name":{"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"},
                "value":{"type":"string","minLength":1,"maxLength":65536,"writeOnly":true},
                "overwrite":{"type":["boolean","null"],"description":"If false, an existing secret is kept; true by default"},
                "hosts":{"type":["array","null"],"maxItems":32,"items":{"type":"string"},
                    "description":"Hosts to which it may be sent, such as `api.example` or `api.example:8443`"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["name","stored"],"properties":{
                "name":{"type":"string"},
                "stored":{"type":"boolean","description":"False if there was one and `overwrite` is false"},
                "existed":{"type":"boolean"}}}"#,
        ),
    },
    Definition {
        name: "delete",
        title: "Delete a secret",
        description: "Removes a secret of the caller.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent],
        input: Some(NAME),
        output: Some(
            r#"{"type":"object","required":["name","deleted"],"properties":{
                "name":{"type":"string"},
                "deleted":{"type":"boolean","description":"Whether there was one"}}}"#,
        ),
    },
    Definition {
        name: "list",
        title: "List secrets",
        description: "Lists the names of the caller's secrets.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(r#"{"type":["object","null"]}"#),
        output: Some(
            r#"{"type":"object","required":["items","total"],"properties":{
                "items":{"type":"array","items":{"type":"string"}},
                "total":{"type":"integer"},
                "secrets":{"type":"array","description":"The same with `hosts`, `grants`, `created` and `updated`",
                    "items":{"type":"object"}}}}"#,
        ),
    },
    Definition {
        name: "grant",
        title: "Grant the use of a secret",
        description: "Lets a definition that somebody else registered use a secret of the caller, or, with \
                      `revoke`, no longer.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["name","operation"],"properties":{
                "name":{"type":"string"},
                "operation":{"type":"string","description":"The asset ID of the definition"},
                "can":{"enum":["secret/use",null]},
                "revoke":{"type":["boolean","null"]}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["name","grants"],"properties":{
                "name":{"type":"string"},"grants":{"type":"array","items":{"type":"string"}}}}"#,
        ),
    },
    Definition {
        name: "extract",
        title: "Show a secret",
        description: "Returns the value of a secret. The request must carry a delegation of \
                      `secret/extract` or `secret/decrypt`, and must not be recorded: use POST /run.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(NAME),
        output: Some(
            r#"{"type":"object","required":["name","value"],"properties":{
                "name":{"type":"string"},"value":{"type":"string"}}}"#,
        ),
    },
];

// Input.

fn name(fields: &Fields<'_>) -> Result<String, Failure> {
    let name = fields.text("name")?;
    if is_secret_name(&name) {
        return Ok(name);
    }
    Err(invalid_input(format!(
        "`name` must have 1 to {SECRET_NAME_BYTES_MAX} letters, digits and `_.-`, and begin with a \
         letter or `_`"
    )))
}

/// Returns true if a text can be the name of a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.len() <= SECRET_NAME_BYTES_MAX && name.starts_with(is_start) && name.chars().all(is_part)
}

fn secret_value(fields: &Fields<'_>) -> Result<String, Failure> {
    // The error of the general function is fine: it names the type and not the value.
    let value = fields.text("value")?;
    if value.is_empty() || value.len() > SECRET_BYTES_MAX {
        return Err(invalid_input(format!("`value` must have 1 to {SECRET_BYTES_MAX} bytes")));
    }
    Ok(value)
}

/// Returns the texts in an array; `None` if it is absent or null.
fn texts(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<String>>, Failure> {
    if fields.get(name).is_none() {
        return Ok(None);
    }
    let wrong = || invalid_input(format!("`{name}` must be an array of strings"));
    let texts = fields.items(name)?;
    texts.iter().map(|item| text(item).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
}

fn hosts(fields: &Fields<'_>) -> Result<Option<Vec<String>>, Failure> {
    let Some(hosts) = texts(fields, "hosts")? else { return Ok(None) };
    let is_host = |host: &String| {
        !host.is_empty() && host.len() <= 255 && !host.contains(['/', '@', ' ', '*', '?', '#'])
    };
    if hosts.len() > SECRET_HOSTS_MAX || !hosts.iter().all(is_host) {
        return Err(invalid_input(format!(
            "`hosts` must have at most {SECRET_HOSTS_MAX} hosts, such as `api.example` or \
             `api.example:8443`"
        )));
    }
    Ok(Some(hosts))
}

fn definition_id(fields: &Fields<'_>) -> Result<String, Failure> {
    let id = fields.text("operation")?;
    let hex = id.strip_prefix("a/").unwrap_or(&id);
    let hex = hex.strip_prefix("0x").unwrap_or(hex).to_ascii_lowercase();
    if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(hex);
    }
    Err(invalid_input("`operation` must be an asset ID: 64 hex digits"))
}

// Output.

fn load_failure(error: &catena_value::LoadError) -> Failure {
    Failure::new("internal", format!("stored data cannot be read: {error}"))
}

/// Returns the caller's secrets.
fn stored(roots: &Roots) -> Result<Map, Failure> {
    Ok(roots.get(&RootId::secrets())?.and_then(Value::as_map).cloned().unwrap_or_default())
}

/// Returns the entry of a secret, if there is one.
fn entry(roots: &Roots, name: &str) -> Result<Option<Value>, Failure> {
    let found = stored(roots)?.get(&name.into(), roots.cells());
    let Some(entry) = found.map_err(|error| load_failure(&error))? else { return Ok(None) };
    entry.fully_loaded(roots.cells()).map(Some).map_err(|error| load_failure(&error))
}

/// Returns the texts in a member of an entry.
fn list_of(entry: Option<&Value>, name: &str) -> Vec<String> {
    let list = entry.and_then(Value::as_map).and_then(|map| map.field(name)?.as_vector());
    let list = list.map(|list| list.iter(&NoCells).flatten().filter_map(|item| text(&item)));
    list.map(Iterator::collect).unwrap_or_default()
}

fn describe(name: &Value, entry: &Value) -> Value {
    let mut members = vec![("name", name.clone())];
    for member in ["hosts", "grants", "created", "updated"] {
        let value = entry.as_map().and_then(|map| map.field(member));
        members.extend(value.map(|value| (member, value.clone())));
    }
    members.into_iter().collect::<Map>().into()
}

fn list(roots: &Roots) -> Result<Value, Failure> {
    let mut found = Vec::new();
    for item in stored(roots)?.iter(roots.cells()) {
        let (name, entry) = item.map_err(|error| load_failure(&error))?;
        let entry = entry.fully_loaded(roots.cells()).map_err(|error| load_failure(&error))?;
        found.push((text(&name).unwrap_or_default(), describe(&name, &entry)));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let items = found.iter().map(|(name, _)| Value::from(name.as_str())).collect();
    let secrets = found.into_iter().map(|(_, secret)| secret).collect();
    Ok(object([("items", array(items)), ("total", total.into()), ("secrets", array(secrets))]))
}

// Execution.

/// Changes the entry of a secret; `None` removes it.
fn put(roots: &mut Roots, name: &str, entry: Option<Value>) -> Result<(), Failure> {
    let map = stored(roots)?;
    let changed = match entry {
        Some(entry) => map.insert(name.into(), entry, roots.cells()),
        None => map.remove(&name.into(), roots.cells()),
    };
    let changed = changed.map_err(|error| load_failure(&error))?;
    let value = (!changed.is_empty()).then(|| changed.into());
    roots.set(&RootId::secrets(), value)
}

fn set(call: &Call, fields: &Fields<'_>, roots: &mut Roots) -> Result<Value, Failure> {
    let name = name(fields)?;
    let sealed = call.prepared.as_ref().and_then(text);
    let sealed = sealed.ok_or_else(|| Failure::new("internal", "the secret was not sealed"))?;
    let existing = entry(roots, &name)?;
    let existed = existing.is_some();
    let keeps = fields.get("overwrite") == Some(&false.into());
    if !existed && stored(roots)?.len() >= USER_SECRETS_MAX {
        let text = format!("a user has at most {USER_SECRETS_MAX} secrets");
        return Err(Failure::new("too_many_secrets", text));
    }
    if !(existed && keeps) {
        let hosts = hosts(fields)?.unwrap_or_else(|| list_of(existing.as_ref(), "hosts"));
        let grants = list_of(existing.as_ref(), "grants");
        let created =
            existing.as_ref().and_then(|entry| entry.as_map()?.field("created")?.as_i64());
        let now = roots.now();
        let new = secret_entry(&sealed, &hosts, &grants, created.unwrap_or(now), now);
        put(roots, &name, Some(new))?;
    }
    Ok(object([
        ("name", name.into()),
        ("stored", (!(existed && keeps)).into()),
        ("existed", existed.into()),
    ]))
}

fn grant(fields: &Fields<'_>, roots: &mut Roots) -> Result<Value, Failure> {
    let name = name(fields)?;
    let id = definition_id(fields)?;
    let Some(existing) = entry(roots, &name)? else {
        return Err(Failure::new("not_found", format!("there is no secret {name}")));
    };
    let mut grants = list_of(Some(&existing), "grants");
    grants.retain(|known| *known != id);
    if fields.get("revoke") != Some(&true.into()) {
        grants.push(id);
    }
    if grants.len() > SECRET_HOSTS_MAX {
        let text = format!("a secret is granted to at most {SECRET_HOSTS_MAX} definitions");
        return Err(Failure::new("too_many_grants", text));
    }
    let shown = array(grants.iter().map(|id| Value::from(id.as_str())).collect());
    let changed =
        existing.as_map().and_then(|map| map.insert("grants".into(), shown.clone(), &NoCells).ok());
    put(roots, &name, changed.map(Value::from))?;
    Ok(object([("name", name.into()), ("grants", shown)]))
}

async fn extract(call: &Call) -> Result<Value, Failure> {
    if call.job.is_some() {
        let text =
            "the value of a secret is never recorded; use POST /run, which creates no job here";
        return Err(Failure::new("secret_refused", text));
    }
    let fields = Fields::from_value(&call.input)?;
    let name = name(&fields)?;
    // Not `Call::secret`: the output is the value itself.
    let request = catena_engine::operations::SecretRequest {
        caller: call.caller.clone(),
        definition: call.operation.id_text().to_owned(),
        job: None,
        name: name.clone(),
        purpose: SecretPurpose::Show,
    };
    let value = call.host.keyring().secret(request).await?;
    let missing = || Failure::new("not_found", format!("there is no secret {name}"));
    Ok(object([("value", value.ok_or_else(missing)?.into()), ("name", name.as_str().into())]))
}

impl Adapter for Secret {
    fn name(&self) -> &'static str {
        "secret"
    }

    fn description(&self) -> &'static str {
        "The caller's secrets, encrypted at rest and never recorded."
    }

    fn frees_storage(&self, name: &str) -> bool {
        matches!(name, "delete")
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn needs(&self, operation: &Operation, input: &Value) -> Vec<Need> {
        let name = Fields::from_value(input).and_then(|fields| fields.text("name"));
        let resource = name.map_or_else(|_| "s".to_owned(), |name| format!("s/{name}"));
        let ability = match operation.name() {
            "set" => "crud/write",
            "delete" => "crud/delete",
            "list" => "crud/read",
            "grant" => "ucan/delegate",
            _ => {
                let alternative = Some("secret/decrypt");
                let ability = "secret/extract";
                return vec![Need { ability, alternative, resource, is_explicit: true }];
            }
        };
        vec![Need::new(ability, resource)]
    }

    fn roots(&self, _call: &Call) -> Result<Vec<RootId>, Failure> {
        Ok(vec![RootId::secrets()])
    }

    fn prepare(&self, call: &Call) -> Option<HostReply<Value, Failure>> {
        if call.operation.name() == "extract" {
            let call = call.clone();
            return Some(Box::pin(async move { extract(&call).await }));
        }
        if call.operation.name() != "set" {
            return None;
        }
        let sealed = Fields::from_value(&call.input).and_then(|fields| {
            let sealed = call.host.keyring().seal_secret(
                &call.caller,
                &name(&fields)?,
                &secret_value(&fields)?,
            );
            sealed.map(Value::from)
        });
        Some(Box::pin(std::future::ready(sealed)))
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        let fields = Fields::from_value(&call.input)?;
        match call.operation.name() {
            "set" => set(call, &fields, roots),
            "delete" => {
                let name = name(&fields)?;
                let deleted = entry(roots, &name)?.is_some();
                if deleted {
                    put(roots, &name, None)?;
                }
                Ok(object([("name", name.into()), ("deleted", deleted.into())]))
            }
            "list" => list(roots),
            "grant" => grant(&fields, roots),
            "extract" => Ok(call.prepared.clone().unwrap_or_default()),
            _ => Err(nested::unsupported_operation(call)),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        let failure = nested::unsupported_operation(&call);
        Box::pin(std::future::ready(Turn::Failed(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn names_hosts_and_ids_are_checked() {
        let check = |input: &str| {
            let input = value(input);
            let fields = Fields::from_value(&input).unwrap();
            (name(&fields).is_ok(), hosts(&fields).is_ok(), definition_id(&fields).is_ok())
        };
        let id = "0xAB".to_owned() + &"cd".repeat(31);
        let good =
            format!(r#"{{"name":"API_KEY.v-2","hosts":["api.example:8443"],"operation":"{id}"}}"#);
        assert_eq!(check(&good), (true, true, true));
        let bad = r#"{"name":"2fast","hosts":["https://x/"],"operation":"o/mine"}"#;
        assert_eq!(check(bad), (false, false, false));
        for wrong in ["", "a b", "a/b", "ä", &"a".repeat(129)] {
            assert!(!check(&format!(r#"{{"name":"{wrong}"}}"#)).0, "{wrong}");
        }
        assert!(!check(r#"{"name":"A","hosts":["*.example"]}"#).1);
    }
}
