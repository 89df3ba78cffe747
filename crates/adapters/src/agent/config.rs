//! The configuration of an agent: what of it belongs to the framework, and where it comes from.

use catena_engine::operations::HostReply;
use catena_engine::{Call, Failure};
use catena_job::agent::AgentPolicy;
use catena_value::{Map, NoCells, Value, json};

use super::secrets::add_transition_secrets;
use crate::fields::{Fields, array, integer, invalid_input, items, object};

/// The members of `config` that only the framework uses.
const FRAMEWORK: &[&str] = &["operation", "wake", "caps", "limits", "maxFailures", "onFailures"];

/// What a request says about a new agent.
pub(super) struct Described {
    pub(super) config: Map,
    pub(super) state: Value,
    pub(super) caps: Value,
}

/// Returns what a request to create an agent describes. References are resolved already.
pub(super) fn described(call: &Call) -> Result<Described, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let prepared = call.prepared.as_ref().and_then(Value::as_map);
    let definition = prepared.and_then(|map| map.field("definition")).and_then(Value::as_map);
    let mut config = Map::new();
    if let Some(base) = definition.and_then(|map| map.field("config")).and_then(Value::as_map) {
        config = merged(&config, base);
    }
    config = merged(&config, &layered_config(call)?);
    let of_definition = |name: &str| definition.and_then(|map| map.field(name)).cloned();
    let state = fields.get_nullable("state").cloned().or_else(|| of_definition("state"));
    let state = state.unwrap_or_else(|| seeded_state(&config));
    let caps = fields.get("caps").cloned().or_else(|| of_definition("caps"));
    let caps = caps.or_else(|| config.field("caps").cloned()).unwrap_or_default();
    Ok(Described { config, state, caps: checked_caps(caps)? })
}

/// Returns the configuration in a request, with its layers merged.
pub(super) fn layered_config(call: &Call) -> Result<Map, Failure> {
    let prepared = call.prepared.as_ref().and_then(Value::as_map);
    let resolved = prepared.and_then(|map| map.field("config"));
    let fields = Fields::from_value(&call.input)?;
    let Some(config) = resolved.or(fields.get("config")) else { return Ok(Map::new()) };
    let wrong = || invalid_input("`config` must be an object, a reference, or an array of them");
    match config {
        Value::Map(map) => Ok(map.clone()),
        Value::Vector(layers) => {
            let mut config = Map::new();
            for layer in items(layers)? {
                config = merged(&config, layer.as_map().ok_or_else(wrong)?);
            }
            Ok(config)
        }
        _ => Err(wrong()),
    }
}

/// Returns the members of one map replaced by those of another.
pub(super) fn merged(base: &Map, changes: &Map) -> Map {
    let mut merged = base.clone();
    for (name, value) in changes.fields() {
        merged = merged.insert(name.clone(), value.clone(), &NoCells).unwrap_or(merged);
    }
    merged
}

/// Returns the state of an agent that was created without one.
fn seeded_state(config: &Map) -> Value {
    let is_seed = |name: &&Value| name.as_str().is_none_or(|name| !FRAMEWORK.contains(&name));
    let members = config.fields().into_iter().filter(|(name, _)| is_seed(name));
    let seed: Map = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    if seed.is_empty() { Value::Nil } else { object([("config", seed.into())]) }
}

/// Returns capabilities as a record has them: `{grant: […]}`, or nil.
fn checked_caps(caps: Value) -> Result<Value, Failure> {
    let grant = match &caps {
        Value::Nil => return Ok(Value::Nil),
        Value::Vector(_) => caps.clone(),
        Value::Map(map) => map.field("grant").cloned().unwrap_or_default(),
        _ => Value::Nil,
    };
    let wrong = || invalid_input("`caps` must be an array of `{with, can}`");
    for entry in items(grant.as_vector().ok_or_else(wrong)?)? {
        let map = entry.as_map().ok_or_else(wrong)?;
        let is_text = |name: &str| map.field(name).is_some_and(|value| value.to_text().is_some());
        if !is_text("with") || !is_text("can") {
            return Err(wrong());
        }
    }
    Ok(object([("grant", grant)]))
}

/// The limits of one agent: the venue's, unless its configuration has lower ones.
pub(super) struct AgentLimits {
    pub(super) inbox_entries: u64,
    pub(super) inbox_bytes: u64,
    pub(super) timeline: u64,
    pub(super) failures: u64,
    /// `None` if that is not limited.
    pub(super) deliveries_per_second: Option<u64>,
    /// The time after which an agent without any change is terminated, in ms. `None` if it is not.
    pub(super) idle_ms: Option<i64>,
}

impl AgentLimits {
    pub(super) fn new(policy: &AgentPolicy, config: &Value) -> AgentLimits {
        let config = config.as_map();
        let limits = config.and_then(|map| map.field("limits")).and_then(Value::as_map);
        let number = |map: Option<&Map>, name: &str| {
            let number = integer(map?.field(name)?)?;
            u64::try_from(number).ok()
        };
        let lower = |name: &str, max: u64| number(limits, name).map_or(max, |own| own.min(max));
        let own_rate = number(limits, "deliveriesPerSecond");
        let own_idle = number(limits, "idleMs").filter(|ms| *ms > 0);
        let idle_ms = own_idle.into_iter().chain(policy.idle_ms).min();
        AgentLimits {
            inbox_entries: lower("inbox", policy.inbox_entries),
            inbox_bytes: lower("inboxBytes", policy.inbox_bytes),
            timeline: lower("timeline", policy.timeline_entries),
            failures: number(config, "maxFailures").unwrap_or(policy.failures),
            deliveries_per_second: own_rate.into_iter().chain(policy.deliveries_per_second).min(),
            idle_ms: idle_ms.and_then(|ms| i64::try_from(ms).ok()),
        }
    }
}

/// Returns true if an agent is terminated when too many of its turns have failed.
pub(super) fn terminates_on_failures(config: &Value) -> bool {
    let action = config.as_map().and_then(|map| map.field("onFailures"));
    action.and_then(Value::as_str) == Some("terminate")
}

/// Returns the work that resolves references in a request: `definition`, layers of `config` that are text, and the
/// transition. Its result is `{definition?, config?, secrets?}`.
pub(super) fn resolve_references(call: &Call) -> Option<HostReply<Value, Failure>> {
    let fields = Fields::from_value(&call.input).ok()?;
    let has_text = |value: &Value| match value {
        Value::Vector(layers) => items(layers).is_ok_and(|layers| layers.iter().any(is_text)),
        value => is_text(value),
    };
    let definition = fields.optional_text("definition").ok().flatten();
    let config = fields.get("config").filter(|config| has_text(config)).cloned();
    if definition.is_none() && fields.get("config").is_none() {
        return None;
    }
    let call = call.clone();
    Some(Box::pin(async move {
        let mut resolved = Vec::new();
        if let Some(reference) = definition {
            let metadata = asset(&call, &reference).await?;
            let agent = metadata.as_map().and_then(|map| map.field("agent")).cloned();
            resolved.push(("definition", agent.unwrap_or(metadata)));
        }
        if let Some(config) = config {
            resolved.push(("config", resolved_config(&call, &config).await?));
        }
        let prepared = add_transition_secrets(call, resolved.into_iter().collect()).await?;
        Ok(prepared.into())
    }))
}

fn is_text(value: &Value) -> bool {
    value.to_text().is_some()
}

async fn resolved_config(call: &Call, config: &Value) -> Result<Value, Failure> {
    let layers = match config {
        Value::Vector(layers) => items(layers)?,
        single => vec![single.clone()],
    };
    let mut resolved = Vec::new();
    for layer in layers {
        let reference = layer.to_text().map(std::borrow::Cow::into_owned);
        let Some(reference) = reference else {
            resolved.push(layer);
            continue;
        };
        let metadata = asset(call, &reference).await?;
        let agent = metadata.as_map().and_then(|map| map.field("agent")).cloned();
        let of_agent = agent.as_ref().and_then(Value::as_map).and_then(|map| map.field("config"));
        let own = metadata.as_map().and_then(|map| map.field("config"));
        resolved.push(of_agent.or(own).unwrap_or(&metadata).clone());
    }
    Ok(array(resolved))
}

/// Returns the metadata that a reference names.
async fn asset(call: &Call, reference: &str) -> Result<Value, Failure> {
    let text = call.host.asset(&call.caller, reference).await?;
    let text = text.ok_or_else(|| {
        Failure::new("asset_not_found", format!("there is no asset `{reference}`"))
    })?;
    json::read(text.as_bytes())
        .map_err(|error| Failure::new("invalid_input", format!("`{reference}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn a_state_is_seeded_from_what_the_framework_does_not_use() {
        let seeded = |config: &str| seeded_state(value(config).as_map().unwrap());
        assert_eq!(
            seeded(r#"{"operation":"llm:agent","model":"m","wake":"message"}"#),
            value(r#"{"config":{"model":"m"}}"#)
        );
        assert_eq!(seeded(r#"{"operation":"test:tally","limits":{}}"#), Value::Nil);
    }

    #[test]
    fn capabilities_are_a_list_of_pairs() {
        let caps = |text: &str| checked_caps(value(text)).ok();
        assert_eq!(caps("null"), Some(Value::Nil));
        let granted = value(r#"{"grant":[{"with":"w/","can":"crud/read"}]}"#);
        assert_eq!(caps(r#"[{"with":"w/","can":"crud/read"}]"#), Some(granted.clone()));
        assert_eq!(caps(r#"{"grant":[{"with":"w/","can":"crud/read"}]}"#), Some(granted));
        for refused in ["1", r#"[{"with":"w/"}]"#, r#"{"grants":[]}"#, r#"["w/"]"#] {
            assert_eq!(caps(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_configuration_can_only_lower_limits() {
        let policy = AgentPolicy {
            deliveries_per_second: Some(50),
            idle_ms: Some(1_000),
            ..AgentPolicy::default()
        };
        let config = value(
            r#"{"limits":{"inbox":2,"timeline":999999,"deliveriesPerSecond":60,"idleMs":2000},"maxFailures":99}"#,
        );
        let limits = AgentLimits::new(&policy, &config);
        assert_eq!(limits.inbox_entries, 2);
        assert_eq!(limits.timeline, policy.timeline_entries);
        assert_eq!(limits.deliveries_per_second, Some(50));
        assert_eq!(limits.idle_ms, Some(1_000));
        let lower = value(r#"{"limits":{"idleMs":500}}"#);
        assert_eq!(AgentLimits::new(&policy, &lower).idle_ms, Some(500));
        assert_eq!(AgentLimits::new(&AgentPolicy::default(), &Value::Nil).idle_ms, None);
        assert_eq!(limits.failures, 99, "this one is the agent's own");
        assert_eq!(AgentLimits::new(&policy, &Value::Nil).failures, policy.failures);
    }
}
