//! Conversations with a model in a form that no service determines, and their parts as JSON.

use catena_engine::Failure;
use catena_value::{Map, Value, json};

use crate::fields::{Fields, array, invalid_input, items, object, text};
use crate::limits::{MODEL_MESSAGES_MAX, MODEL_TOOLS_MAX};

/// Who says something in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub(super) fn word(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }

    fn parse(word: &str) -> Option<Role> {
        match word {
            "system" | "developer" => Some(Role::System),
            "user" => Some(Role::User),
            "assistant" => Some(Role::Assistant),
            "tool" => Some(Role::Tool),
            _ => None,
        }
    }
}

/// A tool call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments as the model wrote them, which need not be JSON.
    pub(super) arguments: String,
}

impl ToolCall {
    pub(super) fn to_value(&self) -> Value {
        object([
            ("id", self.id.as_str().into()),
            ("name", self.name.as_str().into()),
            ("arguments", self.arguments.as_str().into()),
        ])
    }

    /// Reads a tool call in this form, or in that of OpenAI.
    fn parse(value: &Value) -> Result<ToolCall, Failure> {
        let fields = Fields::from_value(value)?;
        let function = fields.map("function")?.map(|map| Value::from(map.clone()));
        let of_function = match &function {
            Some(function) => Fields::from_value(function)?,
            None => fields,
        };
        let arguments = match of_function.get("arguments") {
            None => "{}".to_owned(),
            Some(arguments) => match text(arguments) {
                Some(text) => text,
                None => to_json(arguments)?,
            },
        };
        Ok(ToolCall { id: fields.text("id")?, name: of_function.text("name")?, arguments })
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) role: Role,
    /// A text, or parts in the form of the service.
    pub(super) content: Value,
    pub(super) calls: Vec<ToolCall>,
    /// Of the result of a tool: the call that it belongs to.
    pub(super) call_id: Option<String>,
}

impl Message {
    pub(super) fn new(role: Role, content: impl Into<Value>) -> Message {
        Message { role, content: content.into(), calls: Vec::new(), call_id: None }
    }

    /// Returns the content as text.
    pub(super) fn text(&self) -> String {
        match (&self.content, text(&self.content)) {
            (_, Some(text)) => text,
            (Value::Nil, None) => String::new(),
            (parts, None) => json::to_string(parts).unwrap_or_default(),
        }
    }

    /// Reads a message: `{role, content, toolCalls?, toolCallId?}`, also with the names that OpenAI uses.
    pub(super) fn parse(value: &Value) -> Result<Message, Failure> {
        let fields = Fields::from_value(value)?;
        let role = fields.text("role")?;
        let role = Role::parse(&role)
            .ok_or_else(|| invalid_input(format!("there is no role `{role}` in a conversation")))?;
        let calls = fields.get("toolCalls").or(fields.get("tool_calls"));
        let calls = match calls.and_then(Value::as_vector) {
            Some(calls) => {
                items(calls)?.iter().map(ToolCall::parse).collect::<Result<Vec<_>, _>>()?
            }
            None => Vec::new(),
        };
        let call_id = fields.optional_text("toolCallId")?;
        let call_id = call_id.or(fields.optional_text("tool_call_id")?);
        if role == Role::Tool && call_id.is_none() {
            return Err(invalid_input("a message with the role `tool` needs `toolCallId`"));
        }
        Ok(Message { role, content: fields.get_or_nil("content"), calls, call_id })
    }

    /// Returns the message as [`Message::parse`] reads it.
    pub(super) fn to_value(&self) -> Value {
        let mut members =
            vec![("role", Value::from(self.role.word())), ("content", self.content.clone())];
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(ToolCall::to_value).collect();
            members.push(("toolCalls", array(calls)));
        }
        members.extend(self.call_id.as_deref().map(|id| ("toolCallId", id.into())));
        members.into_iter().collect::<Map>().into()
    }
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    /// A JSON Schema.
    pub(super) parameters: Value,
}

impl Tool {
    /// Reads a tool: `{name, description?, parameters?}`, also in the forms of OpenAI and Anthropic.
    fn parse(value: &Value) -> Result<Tool, Failure> {
        let outer = Fields::from_value(value)?;
        let function = outer.map("function")?.map(|map| Value::from(map.clone()));
        let fields = match &function {
            Some(function) => Fields::from_value(function)?,
            None => outer,
        };
        let parameters = ["parameters", "inputSchema", "input_schema"];
        let parameters = parameters.iter().find_map(|name| fields.get(name)).cloned();
        Ok(Tool {
            name: fields.text("name")?,
            description: fields.optional_text("description")?.unwrap_or_default(),
            parameters: parameters.unwrap_or_else(|| object([("type", "object".into())])),
        })
    }

    pub(super) fn to_value(&self) -> Value {
        object([
            ("name", self.name.as_str().into()),
            ("description", self.description.as_str().into()),
            ("parameters", self.parameters.clone()),
        ])
    }
}

/// The form that an answer must have.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Format {
    Text,
    /// Any JSON.
    Json,
    /// JSON that fits a schema.
    Schema {
        name: String,
        schema: Value,
    },
}

impl Format {
    /// Reads `responseFormat`: `"text"`, `"json"`, `{name?, schema}`, or the form of OpenAI.
    pub(super) fn parse(value: Option<&Value>) -> Result<Format, Failure> {
        let wrong =
            || invalid_input("`responseFormat` must be \"text\", \"json\" or `{name?, schema}`");
        let Some(value) = value else { return Ok(Format::Text) };
        if let Some(word) = text(value) {
            return match word.as_str() {
                "text" => Ok(Format::Text),
                "json" | "json_object" => Ok(Format::Json),
                _ => Err(wrong()),
            };
        }
        let mut map = value.as_map().ok_or_else(wrong)?;
        match map.field("type").and_then(Value::as_str) {
            Some("text") => return Ok(Format::Text),
            Some("json_object") => return Ok(Format::Json),
            Some("json_schema") => {
                let inner = map.field("json_schema").or(map.field("jsonSchema"));
                map = inner.and_then(Value::as_map).unwrap_or(map);
            }
            _ => {}
        }
        let schema = map.field("schema").filter(|schema| schema.as_map().is_some());
        let name = map.field("name").and_then(text);
        Ok(Format::Schema {
            name: name.unwrap_or_else(|| "answer".to_owned()),
            schema: schema.ok_or_else(wrong)?.clone(),
        })
    }
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    pub(super) model: String,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<Tool>,
    pub(super) format: Format,
    pub(super) max_tokens: Option<i64>,
    pub(super) temperature: Option<Value>,
}

impl Question {
    /// Reads the input of `llm:chat`.
    pub(super) fn parse(input: &Value, default_model: &str) -> Result<Question, Failure> {
        let fields = Fields::from_value(input)?;
        let mut messages = Vec::new();
        if let Some(prompt) = fields.optional_text("systemPrompt")? {
            messages.push(Message::new(Role::System, prompt));
        }
        if fields.get("messages").is_some() {
            for message in fields.items("messages")? {
                messages.push(Message::parse(&message)?);
            }
        }
        if let Some(prompt) = fields.optional_text("prompt")? {
            messages.push(Message::new(Role::User, prompt));
        }
        if messages.iter().all(|message| message.role == Role::System) {
            return Err(invalid_input("`messages` or `prompt` is needed"));
        }
        if messages.len() > MODEL_MESSAGES_MAX {
            let text = format!("`messages` has more than {MODEL_MESSAGES_MAX} items");
            return Err(invalid_input(text));
        }
        let tools = match fields.get("tools") {
            Some(_) => fields.items("tools")?,
            None => Vec::new(),
        };
        if tools.len() > MODEL_TOOLS_MAX {
            return Err(invalid_input(format!("`tools` has more than {MODEL_TOOLS_MAX} items")));
        }
        let model = fields.optional_text("model")?.unwrap_or_else(|| default_model.to_owned());
        if model.is_empty() {
            return Err(invalid_input("`model` is missing"));
        }
        Ok(Question {
            model,
            messages,
            tools: tools.iter().map(Tool::parse).collect::<Result<_, _>>()?,
            format: Format::parse(fields.get("responseFormat"))?,
            max_tokens: fields.integer("maxTokens", 1, 10_000_000)?,
            temperature: fields.get("temperature").cloned(),
        })
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answer {
    pub(super) content: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) finish: Option<String>,
    pub(super) model: Option<String>,
    pub(super) input_tokens: i64,
    pub(super) output_tokens: i64,
}

/// The JSON of a value.
pub(super) fn to_json(value: &Value) -> Result<String, Failure> {
    json::to_string(value).map_err(|error| invalid_input(error.to_string()))
}

/// The failure of a call whose reply cannot be understood.
pub(super) fn invalid_reply(text: impl Into<String>) -> Failure {
    Failure::new("model_reply", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn messages_are_read_in_both_spellings() {
        let own = value(
            r#"{"role":"assistant","content":null,
                "toolCalls":[{"id":"1","name":"f","arguments":"{\"a\":1}"}]}"#,
        );
        let other = value(
            r#"{"role":"assistant","content":null,
                "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}"#,
        );
        let message = Message::parse(&own).unwrap();
        assert_eq!(Message::parse(&other).unwrap(), message);
        assert_eq!(message.to_value(), own);
        assert!(Message::parse(&value(r#"{"role":"tool","content":"x"}"#)).is_err());
        assert!(Message::parse(&value(r#"{"role":"wizard","content":"x"}"#)).is_err());
    }

    #[test]
    fn a_format_is_read_in_several_forms() {
        let parse = |text: &str| Format::parse(Some(&value(text))).ok();
        assert_eq!(Format::parse(None), Ok(Format::Text));
        assert_eq!(parse(r#""json""#), Some(Format::Json));
        let schema = Format::Schema { name: "n".to_owned(), schema: value(r#"{"type":"object"}"#) };
        assert_eq!(parse(r#"{"name":"n","schema":{"type":"object"}}"#), Some(schema.clone()));
        let native =
            r#"{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}"#;
        assert_eq!(parse(native), Some(schema));
        assert_eq!(parse("1"), None);
    }
}
