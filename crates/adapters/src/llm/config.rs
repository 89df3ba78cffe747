//! The configuration of an agent with a model: `state.config`.

use catena_engine::Failure;
use catena_engine::capability::Capability;
use catena_engine::requests::capabilities;
use catena_value::{Map, Value};

use super::wire::Format;
use crate::fields::Fields;
use crate::limits::{
    CONTEXT_BYTES, CONTEXT_BYTES_MAX, MODEL_TOOLS_MAX, TURN_TOKENS, TURN_TOKENS_MAX,
    TURN_TOOL_CALLS, TURN_TOOL_CALLS_MAX,
};

/// The operation that asks a model, unless the configuration names another one.
const CHAT: &str = "llm:chat";

/// Members that are passed to the operation that asks the model.
const PASSED: [&str; 6] = ["url", "model", "provider", "temperature", "maxTokens", "timeoutMs"];

/// The configuration.
#[derive(Debug)]
pub(super) struct Config {
    /// The operation that asks the model.
    pub(super) operation: String,
    /// What it is passed besides the conversation.
    pub(super) passed: Vec<(&'static str, Value)>,
    pub(super) system_prompt: Option<String>,
    /// The tools as they are configured.
    pub(super) tools: Vec<Value>,
    /// True if the model may use the workspace without further configuration.
    pub(super) has_workspace: bool,
    /// What the tools may do. `None` if that is everything that the agent may do.
    pub(super) caps: Option<Vec<Capability>>,
    pub(super) tool_calls_max: i64,
    pub(super) tokens_max: i64,
    pub(super) context_bytes: usize,
    pub(super) format: Format,
}

impl Config {
    /// Reads `config` of a state. Without one, everything has its default.
    pub(super) fn from_state(state: &Value) -> Result<Config, Failure> {
        let none = Map::new();
        let config = state.as_map().and_then(|map| map.field("config")).and_then(Value::as_map);
        Config::parse(config.unwrap_or(&none)).map_err(|failure| {
            let text = format!("`state.config` of the agent is invalid: {}", failure.error);
            Failure::new("invalid_config", text)
        })
    }

    fn parse(config: &Map) -> Result<Config, Failure> {
        let config = Value::from(config.clone());
        let fields = Fields::from_value(&config)?;
        let passed = PASSED.iter().filter_map(|name| Some((*name, fields.get(name)?.clone())));
        let caps = match fields.get("caps") {
            None => None,
            Some(caps) => {
                let list = caps.as_map().and_then(|map| map.field("grant")).unwrap_or(caps);
                let wrong =
                    || crate::fields::invalid_input("`caps` must be a list of `{with, can}`");
                Some(capabilities(list).ok_or_else(wrong)?)
            }
        };
        let tools = match fields.get("tools") {
            Some(_) => fields.items("tools")?,
            None => Vec::new(),
        };
        if tools.len() > MODEL_TOOLS_MAX {
            let text = format!("`tools` has more than {MODEL_TOOLS_MAX} items");
            return Err(crate::fields::invalid_input(text));
        }
        let number = |name: &str, default: i64, max: i64| -> Result<i64, Failure> {
            Ok(fields.integer(name, 0, max)?.unwrap_or(default))
        };
        let context = number("contextBytes", CONTEXT_BYTES, CONTEXT_BYTES_MAX)?;
        Ok(Config {
            operation: fields.optional_text("llmOperation")?.unwrap_or_else(|| CHAT.to_owned()),
            passed: passed.collect(),
            system_prompt: fields.optional_text("systemPrompt")?,
            tools,
            has_workspace: fields.get("defaultTools") != Some(&false.into()),
            caps,
            tool_calls_max: number("maxToolCalls", TURN_TOOL_CALLS, TURN_TOOL_CALLS_MAX)?,
            tokens_max: number("tokenBudget", TURN_TOKENS, TURN_TOKENS_MAX)?,
            context_bytes: usize::try_from(context).unwrap_or(usize::MAX),
            format: Format::parse(fields.get("responseFormat"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn everything_has_a_default() {
        let config = Config::from_state(&Value::Nil).unwrap();
        assert_eq!((config.operation.as_str(), config.tool_calls_max), (CHAT, 32));
        assert!(config.has_workspace && config.caps.is_none());
    }

    #[test]
    fn capabilities_are_a_list_or_a_grant() {
        let caps = |text: &str| Config::from_state(&value(text)).map(|config| config.caps);
        let list = r#"[{"with":"w/a","can":"crud/read"}]"#;
        let one = caps(&format!(r#"{{"config":{{"caps":{list}}}}}"#)).unwrap();
        assert_eq!(caps(&format!(r#"{{"config":{{"caps":{{"grant":{list}}}}}}}"#)).unwrap(), one);
        assert_eq!(one.unwrap().len(), 1);
        assert_eq!(caps(r#"{"config":{"caps":[]}}"#).unwrap(), Some(Vec::new()));
        assert_eq!(caps(r#"{"config":{"caps":"all"}}"#).unwrap_err().code, "invalid_config");
    }
}
