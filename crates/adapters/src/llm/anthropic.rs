//! The wire format of Anthropic.

use catena_engine::Failure;
use catena_value::{Map, Value, json};

use super::sse::Event;
use super::wire::{
    Answer, Format, Message, Question, Role, Tool, ToolCall, invalid_reply, to_json,
};
use crate::fields::{array, integer, items, object, text};
use crate::limits::{MODEL_REPLY_CALLS_MAX, RESPONSE_EXCERPT_CHARS_MAX};

/// The version of the API, which every request names.
pub(super) const VERSION: &str = "2023-06-01";

/// Tokens of an answer if the question says nothing; the API needs a number.
const MAX_TOKENS: i64 = 4_096;

/// Returns the body of a request.
pub(super) fn body(question: &Question) -> Result<Value, Failure> {
    let mut system: Vec<String> = Vec::new();
    let mut messages: Vec<(Role, Vec<Value>)> = Vec::new();
    for message in &question.messages {
        let (role, blocks) = match message.role {
            Role::System => {
                system.push(message.text());
                continue;
            }
            Role::Tool => (Role::User, vec![tool_result(message)]),
            Role::User => (Role::User, content_blocks(message)),
            Role::Assistant => (Role::Assistant, assistant_blocks(message)),
        };
        // Roles must alternate, so the results of several tools are one message.
        match messages.last_mut() {
            Some((last, known)) if *last == role => known.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    match &question.format {
        Format::Text => {}
        Format::Json => system.push("Answer with JSON and nothing else.".to_owned()),
        Format::Schema { schema, .. } => system.push(format!(
            "Answer with JSON that fits this JSON Schema and with nothing else: {}",
            to_json(schema)?
        )),
    }
    let message = |(role, blocks): (Role, Vec<Value>)| {
        object([("role", role.word().into()), ("content", array(blocks))])
    };
    let mut members = vec![
        ("model", Value::from(question.model.as_str())),
        ("max_tokens", question.max_tokens.unwrap_or(MAX_TOKENS).into()),
        ("messages", array(messages.into_iter().map(message).collect())),
        ("stream", true.into()),
    ];
    if !system.is_empty() {
        members.push(("system", system.join("\n\n").into()));
    }
    if !question.tools.is_empty() {
        let tool = |tool: &Tool| {
            object([
                ("name", tool.name.as_str().into()),
                ("description", tool.description.as_str().into()),
                ("input_schema", tool.parameters.clone()),
            ])
        };
        members.push(("tools", array(question.tools.iter().map(tool).collect())));
    }
    members.extend(question.temperature.clone().map(|value| ("temperature", value)));
    Ok(members.into_iter().collect::<Map>().into())
}

fn text_block(text: &str) -> Value {
    object([("type", "text".into()), ("text", text.into())])
}

fn content_blocks(message: &Message) -> Vec<Value> {
    match &message.content {
        Value::Vector(parts) => items(parts).unwrap_or_default(),
        _ => vec![text_block(&message.text())],
    }
}

fn tool_result(message: &Message) -> Value {
    object([
        ("type", "tool_result".into()),
        ("tool_use_id", message.call_id.as_deref().unwrap_or_default().into()),
        ("content", message.text().into()),
    ])
}

fn assistant_blocks(message: &Message) -> Vec<Value> {
    let text = message.text();
    let mut blocks = Vec::new();
    if !text.is_empty() {
        blocks.push(text_block(&text));
    }
    for call in &message.calls {
        // What a model wrote need not be JSON, but the API needs an object.
        let input = json::read(call.arguments.as_bytes()).ok();
        let input = input.filter(|input| input.as_map().is_some());
        blocks.push(object([
            ("type", "tool_use".into()),
            ("id", call.id.as_str().into()),
            ("name", call.name.as_str().into()),
            ("input", input.unwrap_or_else(|| Map::new().into())),
        ]));
    }
    blocks
}

/// Reads a reply that is one JSON document.
pub(super) fn read(reply: &Value) -> Result<Answer, Failure> {
    let map = reply.as_map().ok_or_else(|| invalid_reply("the reply is not an object"))?;
    check_error(map)?;
    let mut answer = Answer::default();
    add_figures(&mut answer, map);
    answer.finish = map.field("stop_reason").and_then(text);
    let content = map.field("content").and_then(Value::as_vector);
    let content = content.ok_or_else(|| invalid_reply("the reply has no `content`"))?;
    for block in items(content)? {
        let Some(block) = block.as_map() else { continue };
        begin_block(&mut answer, block)?;
        if let (Some(input), Some(call)) = (tool_input(block), answer.calls.last_mut()) {
            call.arguments = to_json(input)?;
        }
    }
    Ok(answer)
}

fn tool_input(block: &Map) -> Option<&Value> {
    let is_call = block.field("type").and_then(Value::as_str) == Some("tool_use");
    block.field("input").filter(|_| is_call)
}

/// Adds a block of text, or a tool call.
fn begin_block(answer: &mut Answer, block: &Map) -> Result<(), Failure> {
    match block.field("type").and_then(Value::as_str) {
        Some("text") => {
            answer.content.push_str(&block.field("text").and_then(text).unwrap_or_default());
        }
        Some("tool_use") => {
            if answer.calls.len() >= MODEL_REPLY_CALLS_MAX {
                return Err(invalid_reply("the reply has too many tool calls"));
            }
            let member = |name: &str| block.field(name).and_then(text).unwrap_or_default();
            let arguments = String::new();
            answer.calls.push(ToolCall { id: member("id"), name: member("name"), arguments });
        }
        _ => {}
    }
    Ok(())
}

/// Reads a reply that is a stream of events.
pub(super) fn read_stream(events: &[Event]) -> Result<Answer, Failure> {
    let mut answer = Answer::default();
    let mut is_complete = false;
    for event in events {
        let Some(map) = event.data.as_ref().and_then(Value::as_map) else { continue };
        check_error(map)?;
        let part = |name: &str| map.field(name).and_then(Value::as_map);
        match map.field("type").and_then(Value::as_str) {
            Some("message_start") => {
                if let Some(message) = part("message") {
                    add_figures(&mut answer, message);
                }
            }
            Some("content_block_start") => {
                if let Some(block) = part("content_block") {
                    begin_block(&mut answer, block)?;
                }
            }
            Some("content_block_delta") => {
                let Some(delta) = part("delta") else { continue };
                let member = |name: &str| delta.field(name).and_then(text).unwrap_or_default();
                answer.content.push_str(&member("text"));
                if let Some(call) = answer.calls.last_mut() {
                    call.arguments.push_str(&member("partial_json"));
                }
            }
            Some("message_delta") => {
                add_figures(&mut answer, map);
                let finish = part("delta").and_then(|delta| delta.field("stop_reason"));
                answer.finish = finish.and_then(text).or(answer.finish);
            }
            Some("message_stop") => is_complete = true,
            _ => {}
        }
    }
    if !is_complete {
        return Err(invalid_reply("the stream ended before the answer was complete"));
    }
    for call in &mut answer.calls {
        if call.arguments.is_empty() {
            call.arguments = "{}".to_owned();
        }
    }
    Ok(answer)
}

fn check_error(map: &Map) -> Result<(), Failure> {
    if map.field("type").and_then(Value::as_str) != Some("error") {
        return Ok(());
    }
    let error = map.field("error").and_then(Value::as_map);
    let message = error.and_then(|error| error.field("message")).and_then(text);
    let message = message.unwrap_or_else(|| "no reason".to_owned());
    let message: String = message.chars().take(RESPONSE_EXCERPT_CHARS_MAX).collect();
    Err(invalid_reply(format!("the model reports an error: {message}")))
}

fn add_figures(answer: &mut Answer, map: &Map) {
    if let Some(model) = map.field("model").and_then(text) {
        answer.model = Some(model);
    }
    let Some(usage) = map.field("usage").and_then(Value::as_map) else { return };
    let number = |name: &str| usage.field(name).and_then(integer).map(|number| number.max(0));
    answer.input_tokens = number("input_tokens").unwrap_or(answer.input_tokens);
    answer.output_tokens = number("output_tokens").unwrap_or(answer.output_tokens);
}

#[cfg(test)]
mod tests {
    use super::super::sse;
    use super::*;
    use crate::fields::value;

    #[test]
    fn a_stream_and_a_document_are_the_same_answer() {
        let document = value(
            r#"{"type":"message","model":"c","stop_reason":"tool_use","content":[
                {"type":"text","text":"Hello"},
                {"type":"tool_use","id":"1","name":"f","input":{"a":1}}],
                "usage":{"input_tokens":3,"output_tokens":4}}"#,
        );
        let stream = [
            r#"{"type":"message_start","message":{"model":"c","usage":{"input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"1","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}"#,
            r#"{"type":"message_stop"}"#,
        ];
        let text: String =
            stream.iter().map(|data| format!("event: x\ndata: {data}\n\n")).collect();
        let answer = read_stream(&sse::parse(&text).unwrap()).unwrap();
        assert_eq!(read(&document).unwrap(), answer);
        let cut: String = stream[..4].iter().map(|data| format!("data: {data}\n\n")).collect();
        assert_eq!(read_stream(&sse::parse(&cut).unwrap()).unwrap_err().code, "model_reply");
    }

    #[test]
    fn results_of_tools_are_one_message() {
        let input = value(
            r#"{"model":"c","messages":[{"role":"system","content":"Be brief."},
                {"role":"user","content":"go"},
                {"role":"assistant","content":"","toolCalls":[
                    {"id":"1","name":"f","arguments":"{}"},{"id":"2","name":"g","arguments":"broken"}]},
                {"role":"tool","toolCallId":"1","content":"one"},
                {"role":"tool","toolCallId":"2","content":"two"}]}"#,
        );
        let body = body(&Question::parse(&input, "").unwrap()).unwrap();
        let expected = value(
            r#"{"model":"c","max_tokens":4096,"stream":true,"system":"Be brief.","messages":[
                {"role":"user","content":[{"type":"text","text":"go"}]},
                {"role":"assistant","content":[
                    {"type":"tool_use","id":"1","name":"f","input":{}},
                    {"type":"tool_use","id":"2","name":"g","input":{}}]},
                {"role":"user","content":[
                    {"type":"tool_result","tool_use_id":"1","content":"one"},
                    {"type":"tool_result","tool_use_id":"2","content":"two"}]}]}"#,
        );
        assert_eq!(body, expected);
    }
}
