//! The wire format of OpenAI and of the many services that imitate it.

use catena_engine::Failure;
use catena_value::{Map, Value};

use super::sse::Event;
use super::wire::{Answer, Format, Message, Question, Role, Tool, ToolCall, invalid_reply};
use crate::fields::{array, integer, items, object, text};
use crate::limits::MODEL_REPLY_CALLS_MAX;

/// Returns the body of a request.
pub(super) fn body(question: &Question) -> Value {
    let messages = question.messages.iter().map(message).collect();
    let mut members = vec![
        ("model", Value::from(question.model.as_str())),
        ("messages", array(messages)),
        ("stream", true.into()),
        ("stream_options", object([("include_usage", true.into())])),
    ];
    if !question.tools.is_empty() {
        members.push(("tools", array(question.tools.iter().map(tool).collect())));
    }
    match &question.format {
        Format::Text => {}
        Format::Json => {
            members.push(("response_format", object([("type", "json_object".into())])));
        }
        Format::Schema { name, schema } => {
            let inner = object([("name", name.as_str().into()), ("schema", schema.clone())]);
            let format = object([("type", "json_schema".into()), ("json_schema", inner)]);
            members.push(("response_format", format));
        }
    }
    members.extend(question.max_tokens.map(|max| ("max_tokens", max.into())));
    members.extend(question.temperature.clone().map(|value| ("temperature", value)));
    members.into_iter().collect::<Map>().into()
}

fn message(message: &Message) -> Value {
    let mut members =
        vec![("role", Value::from(message.role.word())), ("content", message.content.clone())];
    if !message.calls.is_empty() {
        let call = |call: &ToolCall| {
            let function = object([
                ("name", call.name.as_str().into()),
                ("arguments", call.arguments.as_str().into()),
            ]);
            object([
                ("id", call.id.as_str().into()),
                ("type", "function".into()),
                ("function", function),
            ])
        };
        members.push(("tool_calls", array(message.calls.iter().map(call).collect())));
    }
    if message.role == Role::Tool {
        members.extend(message.call_id.as_deref().map(|id| ("tool_call_id", id.into())));
    }
    members.into_iter().collect::<Map>().into()
}

fn tool(tool: &Tool) -> Value {
    object([("type", "function".into()), ("function", tool.to_value())])
}

/// Reads a reply that is one JSON document.
pub(super) fn read(reply: &Value) -> Result<Answer, Failure> {
    let mut answer = Answer::default();
    let map = reply.as_map().ok_or_else(|| invalid_reply("the reply is not an object"))?;
    check_error(map)?;
    add_figures(&mut answer, map);
    let choice = first_choice(map).ok_or_else(|| invalid_reply("the reply has no `choices`"))?;
    answer.finish = choice.field("finish_reason").and_then(text);
    let message = choice.field("message").and_then(Value::as_map);
    let message = message.ok_or_else(|| invalid_reply("the reply has no `message`"))?;
    answer.content = message.field("content").and_then(text).unwrap_or_default();
    let calls = message.field("tool_calls").and_then(Value::as_vector);
    for call in calls.map(items).transpose()?.unwrap_or_default() {
        add_call(&mut answer.calls, None, &call)?;
    }
    Ok(answer)
}

/// Reads a reply that is a stream of events.
pub(super) fn read_stream(events: &[Event]) -> Result<Answer, Failure> {
    let mut answer = Answer::default();
    let mut is_done = false;
    for event in events {
        let Some(data) = &event.data else {
            is_done = true;
            continue;
        };
        let Some(map) = data.as_map() else { continue };
        check_error(map)?;
        add_figures(&mut answer, map);
        let Some(choice) = first_choice(map) else { continue };
        if let Some(delta) = choice.field("delta").and_then(Value::as_map) {
            answer.content.push_str(&delta.field("content").and_then(text).unwrap_or_default());
            let calls = delta.field("tool_calls").and_then(Value::as_vector);
            for call in calls.map(items).transpose()?.unwrap_or_default() {
                let index = call.as_map().and_then(|map| map.field("index")).and_then(integer);
                add_call(&mut answer.calls, index, &call)?;
            }
        }
        if let Some(finish) = choice.field("finish_reason").and_then(text) {
            answer.finish = Some(finish);
        }
    }
    if !is_done && answer.finish.is_none() {
        return Err(invalid_reply("the stream ended before the answer was complete"));
    }
    Ok(answer)
}

fn first_choice(map: &Map) -> Option<Map> {
    let choices = map.field("choices")?.as_vector()?;
    items(choices).ok()?.first()?.as_map().cloned()
}

fn check_error(map: &Map) -> Result<(), Failure> {
    let Some(error) = map.field("error").filter(|error| !error.is_nil()) else { return Ok(()) };
    let message = error.as_map().and_then(|error| error.field("message")).unwrap_or(error);
    let message = text(message).unwrap_or_else(|| "no reason".to_owned());
    let message: String = message.chars().take(crate::limits::RESPONSE_EXCERPT_CHARS_MAX).collect();
    Err(invalid_reply(format!("the model reports an error: {message}")))
}

fn add_figures(answer: &mut Answer, map: &Map) {
    if let Some(model) = map.field("model").and_then(text) {
        answer.model = Some(model);
    }
    let Some(usage) = map.field("usage").and_then(Value::as_map) else { return };
    let number = |name: &str| usage.field(name).and_then(integer).unwrap_or(0).max(0);
    answer.input_tokens = number("prompt_tokens");
    answer.output_tokens = number("completion_tokens");
}

/// Adds a tool call, or a part of the one with this index.
fn add_call(calls: &mut Vec<ToolCall>, index: Option<i64>, value: &Value) -> Result<(), Failure> {
    let index = match index {
        Some(index) => usize::try_from(index).unwrap_or(usize::MAX),
        None => calls.len(),
    };
    if index >= MODEL_REPLY_CALLS_MAX || index > calls.len() {
        return Err(invalid_reply("the reply has too many tool calls, or one with a wrong index"));
    }
    if index == calls.len() {
        calls.push(ToolCall::default());
    }
    let (Some(map), Some(call)) = (value.as_map(), calls.get_mut(index)) else {
        return Err(invalid_reply("a tool call of the reply is not an object"));
    };
    if let Some(id) = map.field("id").and_then(text) {
        call.id = id;
    }
    if let Some(function) = map.field("function").and_then(Value::as_map) {
        call.name.push_str(&function.field("name").and_then(text).unwrap_or_default());
        call.arguments.push_str(&function.field("arguments").and_then(text).unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sse;
    use super::*;
    use crate::fields::value;

    #[test]
    fn a_stream_and_a_document_are_the_same_answer() {
        let document = value(
            r#"{"model":"m","choices":[{"finish_reason":"tool_calls","message":{"content":"Hello",
                "tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]}}],
                "usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
        );
        let stream = concat!(
            "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"lo\",\"tool_calls\":[{\"index\":0,\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\r\n\r\n",
            ": comment\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n",
            "data: [DONE]\n\n",
        );
        let answer = read_stream(&sse::parse(stream).unwrap()).unwrap();
        assert_eq!(read(&document).unwrap(), answer);
        assert_eq!((answer.content.as_str(), answer.calls.len()), ("Hello", 1));
        assert_eq!(answer.calls[0].arguments, r#"{"a":1}"#);
        let cut = read_stream(&sse::parse(&stream[..200]).unwrap());
        assert_eq!(cut.unwrap_err().code, "model_reply");
    }

    #[test]
    fn replies_that_are_not_answers_are_failures() {
        for reply in
            ["1", "{}", r#"{"choices":[]}"#, r#"{"choices":[{}]}"#, r#"{"error":{"message":"no"}}"#]
        {
            assert_eq!(read(&value(reply)).unwrap_err().code, "model_reply", "{reply}");
        }
    }
}
