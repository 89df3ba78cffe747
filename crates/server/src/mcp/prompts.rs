//! Prompts: assets of the caller whose metadata has a template.
//!
//! `prompt` in the metadata of an asset has `arguments`, as MCP describes them, and `messages`. In every
//! text of a message `{{name}}` stands for the argument with this name. An embedded resource that has
//! only the URI of an asset of this venue gets its content. A prompt runs nothing and creates no job.

use std::collections::HashSet;

use catena_value::{Map, NoCells, Value, ValueId};

use crate::http::error::ApiError;
use crate::limits::{
    MCP_COMPLETIONS_MAX, MCP_PAGE_MAX, MCP_PROMPT_BYTES_MAX, MCP_PROMPT_RESOURCES_BYTES_MAX,
    MCP_PROMPTS_MAX, MCP_PROMPTS_PAGE_BYTES_MAX,
};
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::params::{map, text};
use crate::mcp::resources::{cached, contents};
use crate::mcp::rpc_result::MethodResult;
use crate::tools::{sanitize_name, unique_name};
use crate::values::{list as list_of, object, with_member};

/// A prompt of a caller.
struct Prompt {
    name: String,
    metadata: Map,
    template: Map,
}

/// Lists the caller's prompts. The cursor is a position.
pub(super) async fn list(context: &RequestContext, params: &Map) -> MethodResult {
    let cursor = text(params, "cursor")?;
    let invalid = |_| RpcError::invalid_params("`cursor` is not valid");
    let offset: usize = cursor.map_or(Ok(0), str::parse).map_err(invalid)?;
    let mut reader = PromptReader::new(context).await?;
    let mut page = Vec::new();
    let mut position = 0;
    let mut bytes = 0;
    let mut next = None;
    while let Some(prompt) = reader.next(context).await? {
        if position >= offset {
            let described = prompt.describe();
            bytes += described.memory_bytes(MCP_PROMPTS_PAGE_BYTES_MAX);
            let is_full = page.len() >= MCP_PAGE_MAX || bytes > MCP_PROMPTS_PAGE_BYTES_MAX;
            if is_full && !page.is_empty() {
                next = Some(position);
                break;
            }
            page.push(described);
        }
        position += 1;
    }
    let mut members = vec![("prompts", list_of(page))];
    members.extend(next.map(|next| ("nextCursor", next.to_string().into())));
    Ok(cached(context, members))
}

/// Returns the messages of a prompt, with its arguments inserted.
pub(super) async fn get(context: &RequestContext, params: &Map) -> MethodResult {
    let prompt = by_name(context, text(params, "name")?).await?;
    let given = map(params, "arguments")?.cloned().unwrap_or_default();
    for argument in prompt.arguments() {
        let name = member_text(&argument, "name").unwrap_or_default();
        let is_required = argument.field("required") == Some(&Value::Bool(true));
        if is_required && given.field(&name).is_none() {
            return Err(RpcError::invalid_params(format!("the argument `{name}` is missing")));
        }
    }
    let mut left = MCP_PROMPT_BYTES_MAX;
    let mut resources_left = MCP_PROMPT_RESOURCES_BYTES_MAX;
    let mut messages = Vec::new();
    for message in items(prompt.template.field("messages")) {
        let message = insert(&message, &given, &mut left)?;
        messages.push(embed(context, message, &mut resources_left).await?);
    }
    let mut members = vec![("messages", list_of(messages))];
    let description = prompt.metadata.field("description").cloned();
    members.extend(description.map(|text| ("description", text)));
    Ok(object(members).into())
}

/// Completes the argument of a prompt from the `values` that the prompt names for it. Other arguments,
/// and the IDs of assets, have no suggestions.
pub(super) async fn complete(context: &RequestContext, params: &Map) -> MethodResult {
    let missing = |name: &str| RpcError::invalid_params(format!("`{name}` is missing"));
    let reference = map(params, "ref")?.ok_or_else(|| missing("ref"))?;
    let argument = map(params, "argument")?.ok_or_else(|| missing("argument"))?;
    let typed = text(argument, "value")?.unwrap_or_default().to_lowercase();
    let values = match text(reference, "type")? {
        Some("ref/prompt") => {
            let prompt = by_name(context, text(reference, "name")?).await?;
            let name = text(argument, "name")?.ok_or_else(|| missing("argument.name"))?;
            prompt.values(name)
        }
        Some("ref/resource") => Vec::new(),
        _ => return Err(RpcError::invalid_params("`ref.type` must be ref/prompt or ref/resource")),
    };
    let matching = values.into_iter().filter(|value| value.to_lowercase().starts_with(&typed));
    let matching: Vec<String> = matching.collect();
    let total = i64::try_from(matching.len()).unwrap_or(i64::MAX);
    let has_more = matching.len() > MCP_COMPLETIONS_MAX;
    let shown = matching.into_iter().take(MCP_COMPLETIONS_MAX).map(Value::from);
    let completion =
        [("values", list_of(shown)), ("total", total.into()), ("hasMore", has_more.into())];
    Ok(object([("completion", object(completion))]).into())
}

/// Reads the caller's prompts one after the other, in the order of their IDs: together they can take much memory.
struct PromptReader {
    ids: std::vec::IntoIter<ValueId>,
    names: HashSet<String>,
}

impl PromptReader {
    async fn new(context: &RequestContext) -> Result<Self, RpcError> {
        let ids = context.state.engine.prompts(&context.caller, MCP_PROMPTS_MAX).await;
        let ids = ids.map_err(ApiError::from)?.into_iter();
        Ok(PromptReader { ids, names: HashSet::new() })
    }

    async fn next(&mut self, context: &RequestContext) -> Result<Option<Prompt>, RpcError> {
        for id in self.ids.by_ref() {
            let metadata = context.state.engine.prompt(&context.caller, &id).await;
            let metadata = metadata.map_err(ApiError::from)?;
            let Some(metadata) = metadata.as_ref().and_then(Value::as_map).cloned() else {
                continue;
            };
            let Some(template) = metadata.field("prompt").and_then(Value::as_map).cloned() else {
                continue;
            };
            let named = member_text(&metadata, "name").unwrap_or_else(|| id.to_string());
            let name = unique_name(&sanitize_name(&named), |name| self.names.contains(name));
            self.names.insert(name.clone());
            return Ok(Some(Prompt { name, metadata, template }));
        }
        Ok(None)
    }
}

async fn by_name(context: &RequestContext, name: Option<&str>) -> Result<Prompt, RpcError> {
    let name = name.ok_or_else(|| RpcError::invalid_params("`name` is missing"))?;
    let mut reader = PromptReader::new(context).await?;
    while let Some(prompt) = reader.next(context).await? {
        if prompt.name == name {
            return Ok(prompt);
        }
    }
    Err(RpcError::invalid_params(format!("there is no prompt named `{name}`")))
}

impl Prompt {
    /// How a list describes it.
    fn describe(&self) -> Value {
        let title = member_text(&self.metadata, "name").unwrap_or_else(|| self.name.clone());
        let arguments = self.arguments().into_iter().map(|argument| {
            let known = ["name", "title", "description", "required"];
            let members = known.into_iter().filter_map(|name| {
                Some((name, argument.field(name).filter(|value| !value.is_nil())?.clone()))
            });
            object(members)
        });
        let mut members = vec![
            ("name", Value::from(self.name.as_str())),
            ("title", title.into()),
            ("arguments", list_of(arguments)),
        ];
        let description = self.metadata.field("description").cloned();
        members.extend(description.map(|text| ("description", text)));
        object(members)
    }

    /// The arguments that are well-formed: objects with a name.
    fn arguments(&self) -> Vec<Map> {
        let arguments = items(self.template.field("arguments")).into_iter();
        let arguments = arguments.filter_map(|argument| argument.as_map().cloned());
        arguments.filter(|argument| member_text(argument, "name").is_some()).collect()
    }

    /// The values that the prompt suggests for an argument.
    fn values(&self, name: &str) -> Vec<String> {
        let mut arguments = self.arguments().into_iter();
        let argument = arguments.find(|one| member_text(one, "name").as_deref() == Some(name));
        let values = argument.map(|argument| items(argument.field("values"))).unwrap_or_default();
        values.iter().filter_map(|value| Some(value.to_text()?.into_owned())).collect()
    }
}

/// The value with every `{{name}}` in its texts replaced by the argument with this name. Names of members
/// stay. `left` is the number of bytes that the texts may still have.
fn insert(value: &Value, arguments: &Map, left: &mut usize) -> Result<Value, RpcError> {
    Ok(match value {
        Value::String(_) => {
            let text = value.to_text().unwrap_or_default();
            let filled = fill(&text, arguments, *left).ok_or_else(|| {
                let error = format!("the prompt has more than {MCP_PROMPT_BYTES_MAX} bytes");
                RpcError::invalid_params(error)
            })?;
            *left = left.saturating_sub(filled.len());
            filled.into()
        }
        Value::Map(map) => {
            let mut filled = map.clone();
            for entry in map.iter(&NoCells).flatten() {
                let (name, member) = entry;
                let member = insert(&member, arguments, left)?;
                filled = with_member(&filled, &name.to_text().unwrap_or_default(), member);
            }
            filled.into()
        }
        Value::Vector(_) => {
            let filled: Result<Vec<Value>, RpcError> =
                items(Some(value)).iter().map(|item| insert(item, arguments, left)).collect();
            list_of(filled?)
        }
        other => other.clone(),
    })
}

/// Replaces the arguments in a text. What is inserted is not searched again, so that an argument cannot
/// refer to another one. A name that is not given stands for nothing. `None` if the result would be longer than
/// `bytes_max`, which is found out before it is built.
fn fill(text: &str, arguments: &Map, bytes_max: usize) -> Option<String> {
    let mut filled = String::new();
    let mut push = |part: &str| {
        let fits = filled.len() + part.len() <= bytes_max;
        fits.then(|| filled.push_str(part))
    };
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, following)) = after.split_once("}}") else { break };
        push(before)?;
        match arguments.field(name.trim()) {
            Some(argument @ Value::String(_)) => push(&argument.to_text().unwrap_or_default())?,
            Some(argument) => {
                let mut json = String::new();
                let written = catena_value::json::write(argument, &NoCells, bytes_max, &mut json);
                written.ok().and_then(|()| push(&json))?;
            }
            None => {}
        }
        rest = following;
    }
    push(rest)?;
    Some(filled)
}

/// A message whose embedded resource has its content: that of an asset, if the message names only one.
/// A content that is a text is short for one of type `text`.
/// `left` is the number of bytes that resources may still have.
async fn embed(
    context: &RequestContext,
    message: Value,
    left: &mut u64,
) -> Result<Value, RpcError> {
    let Some(message) = message.as_map().cloned() else { return Ok(message) };
    let content = match message.field("content") {
        Some(text @ Value::String(_)) => object([("type", "text".into()), ("text", text.clone())]),
        Some(content) => content.clone(),
        None => return Ok(message.into()),
    };
    let resource = content.as_map().and_then(|content| content.field("resource")?.as_map());
    let uri = resource
        .filter(|resource| resource.field("text").is_none() && resource.field("blob").is_none());
    let uri = uri.and_then(|resource| member_text(resource, "uri"));
    let content = match (uri, content.as_map()) {
        (Some(uri), Some(members)) => {
            let contents = contents(context, &uri).await?;
            *left = left.checked_sub(contents.memory_bytes(u64::MAX)).ok_or_else(|| {
                let max = MCP_PROMPT_RESOURCES_BYTES_MAX;
                RpcError::invalid_params(format!(
                    "the prompt has resources of more than {max} bytes"
                ))
            })?;
            with_member(members, "resource", contents).into()
        }
        _ => content,
    };
    Ok(with_member(&message, "content", content).into())
}

fn items(value: Option<&Value>) -> Vec<Value> {
    let items = value.and_then(Value::as_vector);
    items.map_or_else(Vec::new, |items| items.iter(&NoCells).flatten().collect())
}

fn member_text(map: &Map, name: &str) -> Option<String> {
    Some(map.field(name)?.to_text()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Map {
        let value = catena_value::json::read(br#"{"a":"one","b":[1,2],"c":"{{a}}"}"#).unwrap();
        value.as_map().unwrap().clone()
    }

    #[test]
    fn arguments_are_inserted_once() {
        for (text, expected) in [
            ("{{a}} and {{ b }}", "one and [1,2]"),
            ("{{c}}", "{{a}}"),
            ("[{{missing}}]", "[]"),
            ("{{a", "{{a"),
            ("{a}", "{a}"),
        ] {
            assert_eq!(fill(text, &arguments(), 100).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_prompt_that_grows_too_large_is_refused() {
        let text = Value::from("{{a}}".repeat(8).as_str());
        assert!(insert(&text, &arguments(), &mut 24).is_ok());
        assert!(insert(&text, &arguments(), &mut 23).is_err());
        assert_eq!(fill("{{b}}", &arguments(), 4), None, "JSON that is too long");
    }
}
