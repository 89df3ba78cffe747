//! The tools of an agent with a model: operations by reference, and other agents.

use catena_engine::{Call, Failure, Operation};
use catena_value::{Map, NoCells, Value, json};

use super::config::Config;
use super::wire::Tool;
use crate::fields::{Fields, object, text};
use crate::limits::TOOL_NAME_CHARS_MAX;

/// The operations that every agent may use unless its configuration says otherwise.
const WORKSPACE: [&str; 6] =
    ["covia:read", "covia:write", "covia:delete", "covia:append", "covia:slice", "covia:list"];

/// How long a tool waits for the answer of another agent, in ms. Then the model gets the ID of the job.
const AGENT_WAIT_MS: i64 = 60_000;

/// What a tool does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// Runs an operation.
    Operation(String),
    /// Sends a request to another agent.
    Agent(String),
}

/// How a tool ends the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskEnd {
    Complete,
    Fail,
}

/// A tool and what it does.
#[derive(Debug, Clone)]
pub(super) struct AgentTool {
    pub(super) tool: Tool,
    target: Target,
}

impl AgentTool {
    /// Returns how the tool ends the turn. `None` if it does not.
    pub(super) fn task_end(&self) -> Option<TaskEnd> {
        let Target::Operation(reference) = &self.target else { return None };
        match reference.trim_start_matches('/') {
            "agent:complete-task" | "v/ops/agent/complete-task" => Some(TaskEnd::Complete),
            "agent:fail-task" | "v/ops/agent/fail-task" => Some(TaskEnd::Fail),
            _ => None,
        }
    }

    /// Returns the operation to call, and its input, for these arguments. `own` is the agent whose tool it
    /// is. Fails with a text for the model.
    pub(super) fn request(&self, own: &str, arguments: Value) -> Result<(String, Value), String> {
        match &self.target {
            Target::Agent(id) => {
                let message = arguments.as_map().and_then(|map| map.field("message"));
                let message = message.ok_or("`message` is missing")?.clone();
                let input = object([
                    ("agentId", id.as_str().into()),
                    ("input", message),
                    ("wait", AGENT_WAIT_MS.into()),
                ]);
                refuse_own(own, id)?;
                Ok(("agent:request".to_owned(), input))
            }
            Target::Operation(reference) => {
                let plain = reference.trim_start_matches('/');
                if matches!(plain, "agent:ask" | "v/ops/agent/ask") {
                    // An agent asks for itself.
                    let map = arguments.as_map().cloned().unwrap_or_default();
                    let input = map.insert("agentId".into(), own.into(), &NoCells);
                    return Ok((reference.clone(), input.map_or(arguments, Value::from)));
                }
                let Some(name) = agent_run(reference) else {
                    return Ok((reference.clone(), arguments));
                };
                let map = arguments.as_map().cloned().unwrap_or_default();
                let id = map.field("agentId").and_then(text).unwrap_or_default();
                refuse_own(own, &id)?;
                let takes_wait = matches!(name, "request" | "trigger");
                if !takes_wait || map.field("wait").or(map.field("timeout")).is_some() {
                    return Ok((reference.clone(), arguments));
                }
                // Two agents that wait for each other would wait until their time is up.
                let input = map.insert("wait".into(), AGENT_WAIT_MS.into(), &NoCells);
                Ok((reference.clone(), input.map_or(arguments, Value::from)))
            }
        }
    }
}

fn refuse_own(own: &str, id: &str) -> Result<(), String> {
    if own == id {
        return Err("an agent cannot wait for itself".to_owned());
    }
    Ok(())
}

/// Returns the name of an operation that runs an agent. `None` if it is another one.
fn agent_run(reference: &str) -> Option<&'static str> {
    let reference = reference.trim_start_matches('/');
    let name = reference.strip_prefix("agent:").or(reference.strip_prefix("v/ops/agent/"))?;
    ["request", "trigger", "chat", "run"].into_iter().find(|known| *known == name)
}

/// Returns the name of the tool for a reference: what a name cannot contain becomes `_`.
pub(super) fn tool_name(reference: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let allowed = |c: char| if is_allowed(c) { c } else { '_' };
    reference.trim_start_matches('/').chars().map(allowed).take(TOOL_NAME_CHARS_MAX).collect()
}

/// Returns the tools of an agent.
pub(super) async fn tools(call: &Call, config: &Config) -> Result<Vec<AgentTool>, Failure> {
    let mut tools: Vec<AgentTool> = Vec::new();
    let workspace = WORKSPACE.iter().filter(|_| config.has_workspace);
    for reference in workspace {
        tools.push(operation_tool(call, reference, None).await?);
    }
    for entry in &config.tools {
        let tool = match text(entry) {
            Some(reference) => operation_tool(call, &reference, None).await?,
            None => configured_tool(call, entry).await?,
        };
        match tools.iter().position(|known| known.tool.name == tool.tool.name) {
            Some(known) if tools[known].target == tool.target => tools[known] = tool,
            Some(_) => {
                let text = format!("two tools have the name `{}`", tool.tool.name);
                return Err(Failure::new("invalid_config", text));
            }
            None => tools.push(tool),
        }
    }
    Ok(tools)
}

/// Returns a tool that is configured as an object: `{operation, name?, description?}` or
/// `{agent, name?, description?}`.
async fn configured_tool(call: &Call, entry: &Value) -> Result<AgentTool, Failure> {
    let fields = Fields::from_value(entry)?;
    if let Some(agent) = fields.optional_text("agent")? {
        let own = format!("Sends a message to the agent `{agent}` and returns its response.");
        let parameters = json::read(
            br#"{"type":"object","required":["message"],"properties":{"message":{"type":"string"}}}"#,
        );
        let name = fields.optional_text("name")?.unwrap_or_else(|| format!("agent_{agent}"));
        return Ok(AgentTool {
            tool: Tool {
                name: tool_name(&name),
                description: fields.optional_text("description")?.unwrap_or(own),
                parameters: parameters.unwrap_or_default(),
            },
            target: Target::Agent(agent),
        });
    }
    let reference = match fields.optional_text("operation")? {
        Some(reference) => reference,
        None => fields.text("op")?,
    };
    operation_tool(call, &reference, Some(fields)).await
}

/// Returns the tool for an operation, with its description and its schema.
async fn operation_tool(
    call: &Call,
    reference: &str,
    fields: Option<Fields<'_>>,
) -> Result<AgentTool, Failure> {
    let metadata = metadata(call, reference).await?;
    let fields = fields.unwrap_or(Fields::from_value(&Value::Nil)?);
    let member = |name: &str| metadata.as_map().and_then(|map| map.field(name));
    let description = fields.optional_text("description")?;
    let own = member("description").or(member("name")).and_then(text);
    let operation = member("operation").and_then(Value::as_map);
    let schema = operation.and_then(|operation| operation.field("input"));
    let given = fields.optional_text("name")?;
    Ok(AgentTool {
        tool: Tool {
            name: tool_name(given.as_deref().unwrap_or(reference)),
            description: description.or(own).unwrap_or_default(),
            parameters: parameters(schema),
        },
        target: Target::Operation(reference.to_owned()),
    })
}

/// Returns the metadata of an operation.
async fn metadata(call: &Call, reference: &str) -> Result<Value, Failure> {
    let plain = reference.trim_start_matches('/');
    let is_named = |operation: &Operation| operation.adapter_ref() == plain;
    let known = call.host.operations().into_iter();
    let mut known = known.filter(|(path, operation)| path == plain || is_named(operation));
    if let Some((_, operation)) = known.next() {
        return Ok(operation.metadata().clone());
    }
    let missing = || {
        let text = format!("there is no operation `{reference}`, which is a tool of the agent");
        Failure::new("invalid_config", text)
    };
    let metadata = call.host.asset(&call.caller, reference).await?.ok_or_else(missing)?;
    let metadata = json::read(metadata.as_bytes()).map_err(|_| missing())?;
    let is_operation = metadata.as_map().is_some_and(|map| map.field("operation").is_some());
    if is_operation { Ok(metadata) } else { Err(missing()) }
}

/// Returns the schema of a tool's arguments, which are always an object.
fn parameters(schema: Option<&Value>) -> Value {
    let plain = || object([("type", "object".into()), ("properties", Map::new().into())]);
    let Some(map) = schema.and_then(Value::as_map) else { return plain() };
    match map.insert("type".into(), "object".into(), &NoCells) {
        Ok(map) => map.into(),
        Err(_) => plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn tool(target: Target) -> AgentTool {
        let tool = Tool { name: String::new(), description: String::new(), parameters: Value::Nil };
        AgentTool { tool, target }
    }

    #[test]
    fn a_name_is_the_reference_without_separators() {
        assert_eq!(tool_name("covia:read"), "covia_read");
        assert_eq!(tool_name("/v/ops/http/get"), "v_ops_http_get");
        assert_eq!(tool_name("o/né@3"), "o_n__3");
        assert_eq!(tool_name(&"x".repeat(100)).len(), 64);
    }

    #[test]
    fn an_agent_does_not_wait_for_itself_nor_forever_for_others() {
        let other = tool(Target::Agent("b".to_owned()));
        let (operation, input) = other.request("a", value(r#"{"message":"hi"}"#)).unwrap();
        assert_eq!(operation, "agent:request");
        assert_eq!(input, value(r#"{"agentId":"b","input":"hi","wait":60000}"#));
        assert!(other.request("b", value(r#"{"message":"hi"}"#)).is_err());
        assert!(other.request("a", value("{}")).is_err());
        let request = tool(Target::Operation("agent:request".to_owned()));
        let (_, input) = request.request("a", value(r#"{"agentId":"b","input":1}"#)).unwrap();
        assert_eq!(input, value(r#"{"agentId":"b","input":1,"wait":60000}"#));
        let chat = tool(Target::Operation("v/ops/agent/chat".to_owned()));
        assert!(chat.request("a", value(r#"{"agentId":"a","message":1}"#)).is_err());
        let echo = tool(Target::Operation("test:echo".to_owned()));
        assert_eq!(echo.request("a", 1.into()).unwrap(), ("test:echo".to_owned(), 1.into()));
    }

    #[test]
    fn arguments_are_objects() {
        let schema = value(r#"{"type":["object","null"],"properties":{"a":{}}}"#);
        assert_eq!(parameters(Some(&schema)), value(r#"{"type":"object","properties":{"a":{}}}"#));
        assert_eq!(parameters(None), value(r#"{"type":"object","properties":{}}"#));
    }
}
