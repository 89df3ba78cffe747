//! What of a message is secret: what the input schema of the transition, or of an own definition of
//! `agent:message`, marks as `writeOnly`.
//!
//! A message is stored, in the inbox and in the timeline, so it is delivered without its secrets. The paths are
//! resolved when the configuration names the transition, and kept with the agent: a delivery resolves nothing.

use catena_engine::operations::schema::{Place, Schema, Secret};
use catena_engine::{Call, Failure};
use catena_job::agent::{
    SecretPath, SecretStep, secrets_from_value, secrets_to_value, without_secrets,
};
use catena_value::{Map, Value, json};

use super::config::{described, layered_config};

/// The member of what was prepared with the paths of secrets.
const SECRETS: &str = "secrets";

/// Returns the paths of secrets in messages to the transition that a request names. `None` if it names none.
pub(super) fn transition_secrets(call: &Call) -> Option<Vec<SecretPath>> {
    let prepared = call.prepared.as_ref().and_then(Value::as_map)?;
    prepared.field(SECRETS).map(secrets_from_value)
}

/// Adds the paths of secrets in messages to the transition that a request names to what was prepared.
pub(super) async fn add_transition_secrets(call: Call, prepared: Map) -> Result<Map, Failure> {
    let call = Call { prepared: Some(prepared.clone().into()), ..call };
    let config = match call.operation.name() {
        // What is wrong with it is said when it is used.
        "create" => described(&call).map(|described| described.config),
        _ => layered_config(&call),
    };
    let operation = config.ok().and_then(|config| config.field("operation").cloned());
    let Some(reference) = operation.as_ref().and_then(Value::to_text) else {
        return Ok(prepared);
    };
    let secrets = match call.host.asset(&call.caller, &reference).await? {
        Some(metadata) => message_secrets(&metadata),
        None => Vec::new(),
    };
    let secrets = secrets_to_value(&secrets);
    Ok(prepared.insert(SECRETS.into(), secrets, &catena_value::NoCells).unwrap_or_default())
}

/// Returns the paths of secrets in messages, by the metadata of a transition.
fn message_secrets(metadata: &str) -> Vec<SecretPath> {
    let metadata = json::read(metadata.as_bytes()).unwrap_or_default();
    let member = |value: Option<&Value>, name: &str| value?.as_map()?.field(name).cloned();
    let input = member(member(Some(&metadata), "operation").as_ref(), "input");
    let schema = input.and_then(|input| Schema::compile(&input).ok());
    let secrets = schema.iter().flat_map(Schema::secrets);
    secrets.filter_map(|secret| below(secret, &["messages", "*", "content"])).collect()
}

/// Returns the content of a message without what the definition of the operation marks as secret.
pub(super) fn public_message(call: &Call, content: &Value) -> Value {
    let secrets = call.operation.secrets().iter();
    let secrets: Vec<SecretPath> =
        secrets.filter_map(|secret| below(secret, &["message"])).collect();
    without_secrets(content, &secrets)
}

/// Returns the rest of a path below a prefix, in which `*` is any item. It is empty if the path ends within the
/// prefix: then everything below is secret. `None` if it does not lead there.
fn below(secret: &Secret, prefix: &[&str]) -> Option<SecretPath> {
    let mut steps = secret.iter();
    for name in prefix {
        let applies = match steps.next() {
            None => return Some(Vec::new()),
            Some(Place::At(own)) => *name == "*" || own == name,
            Some(Place::Each) => true,
            Some(Place::EachExcept(others)) => !others.iter().any(|other| other == name),
        };
        if !applies {
            return None;
        }
    }
    Some(steps.map(step).collect())
}

fn step(place: &Place) -> SecretStep {
    match place {
        Place::At(name) => SecretStep::At(name.clone()),
        Place::Each => SecretStep::Each,
        Place::EachExcept(names) => SecretStep::EachExcept(names.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_messages_are_found_in_the_schema_of_a_transition() {
        let check = |messages: &str, expected: &[SecretPath]| {
            let text = format!(
                r#"{{"operation":{{"input":{{"properties":{{"messages":{messages},"state":{{"writeOnly":true}}}}}}}}}}"#
            );
            assert_eq!(message_secrets(&text), expected, "{messages}");
        };
        let at = |name: &str| SecretStep::At(name.to_owned());
        check(
            r#"{"items":{"properties":{"content":{"properties":{"a":{"properties":{"b":{"writeOnly":true}}}}}}}}"#,
            &[vec![at("a"), at("b")]],
        );
        check(r#"{"items":{"properties":{"content":{"writeOnly":true}}}}"#, &[Vec::new()]);
        check(r#"{"writeOnly":true}"#, &[Vec::new()]);
        check(r#"{"items":{"properties":{"from":{"writeOnly":true}}}}"#, &[]);
        check("{}", &[]);
        assert!(message_secrets("no metadata").is_empty());
    }
}
