//! `test`: operations that behave in one known way each, for trying a venue out and for tests.
//!
//! **What it does:** echoes, sleeps, fails, waits, asks for input, reports progress. Nothing leaves
//! the venue.
//!
//! **Cost:** one commit for an inline operation; a sleeping task for the others.
//!
//! **Cancellation:** its future is dropped. An operation that `delay` runs is cancelled with it.
//!
//! **Repetition:** safe. `delay` runs its operation again, which is as safe as that operation.

use std::time::Duration;

use catena_engine::{
    Adapter, Call, Cause, ExecutionMode, Failure, Operation, Registration, Turn, TurnFuture,
};
use catena_job::state::Ask;
use catena_value::Value;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, array, integer, invalid_input, object, text};
use crate::limits::{DELAY_MS_MAX, ITEMS_MAX, PRETENDED_BYTES_MAX, RANDOM_BYTES_MAX};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test;

// Operations.

const MARKS: &[Mark] = &[Mark::Pure, Mark::Idempotent];

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "echo",
        title: "Echo",
        description: "Returns its input, whatever it is.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "delay",
        title: "Delay",
        description: "Sleeps, then runs an operation and returns its output; without an operation it \
                      returns `input`.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["delay"],"properties":{
                "delay":{"type":"integer","minimum":0,"maximum":86400000,"description":"How long to sleep, in milliseconds"},
                "operation":{"type":["string","null"],"description":"What to run after that"},
                "input":{"description":"Its input"}}}"#,
        ),
        output: None,
    },
    Definition {
        name: "error",
        title: "Error",
        description: "Fails with the given message.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["message"],"properties":{
                "message":{"type":"string","description":"The error of the job"}}}"#,
        ),
        output: None,
    },
    Definition {
        name: "never",
        title: "Never",
        description: "Never ends by itself.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "random",
        title: "Random bytes",
        description: "Returns random bytes in hex.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["length"],"properties":{
                "length":{"type":["integer","string"],"minimum":1,"maximum":1024,"pattern":"^[0-9]{1,4}$",
                          "description":"How many bytes, 1 to 1024"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["bytes"],"properties":{
                "bytes":{"type":"string","pattern":"^([0-9a-f]{2})+$"}}}"#,
        ),
    },
    Definition {
        name: "chat",
        title: "Chat",
        description: "Answers each message with itself. A message `{\"content\":\"done\"}` ends it.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: None,
        output: Some(
            r#"{"type":"object","properties":{
                "echo":{"description":"The message"},"message":{"description":"Its content"}}}"#,
        ),
    },
    Definition {
        name: "pause",
        title: "Pause",
        description: "Pauses itself. Resumed, it returns its input.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "auth",
        title: "Authorisation",
        description: "Waits for a message of type `auth/complete`. What it contains is not shown.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: None,
        output: Some(r#"{"type":"object","properties":{"authorised":{"type":"boolean"}}}"#),
    },
    Definition {
        name: "progress",
        title: "Progress",
        description: "Pretends to process items one after the other, and reports progress after each.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: Some(
            r#"{"type":"object","required":["totalItems"],"properties":{
                "totalItems":{"type":"integer","minimum":0,"maximum":1000000},
                "itemMs":{"type":["integer","null"],"minimum":0,"maximum":86400000,"description":"How long each item takes, in milliseconds"},
                "outputStats":{"type":["object","null"],"properties":{
                    "bytesTotal":{"type":["integer","null"],"minimum":0},
                    "bytesPerItem":{"type":["integer","null"],"minimum":0}}}}}"#,
        ),
        output: Some(
            r#"{"type":"object","properties":{
                "processedItems":{"type":"integer"},
                "totalItems":{"type":"integer"},
                "outputStats":{"type":"object","properties":{
                    "bytesProcessed":{"type":"integer"},"bytesTotal":{"type":"integer"}}}}}"#,
        ),
    },
    Definition {
        name: "tally",
        title: "Tally",
        description: "A transition of an agent: counts messages in `state.n` and returns what they contain. A \
                      message `{\"fail\":true}` fails the turn.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "slowtally",
        title: "Slow tally",
        description: "The same as `tally`, and sleeps for the `delay` of each message, in milliseconds.",
        mode: ExecutionMode::Task,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "llm",
        title: "Language model",
        description: "Stands in for a language model: takes the input of `llm:chat` and repeats the last message.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: None,
        output: None,
    },
    Definition {
        name: "toolllm",
        title: "Language model with tools",
        description: "The same as `llm`, and a message `tool NAME ARGUMENTS` makes it call that tool and then \
                      repeat the result.",
        mode: ExecutionMode::Inline,
        marks: MARKS,
        input: None,
        output: None,
    },
];

// Input.

struct Delay {
    time: Duration,
    operation: Option<String>,
    input: Value,
}

impl Delay {
    fn parse(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::from_value(input)?;
        let delay = fields.integer("delay", 0, DELAY_MS_MAX)?;
        Ok(Delay {
            time: milliseconds(delay.ok_or_else(|| invalid_input("`delay` is missing"))?),
            operation: fields.optional_text("operation")?,
            input: fields.get_or_nil("input"),
        })
    }
}

fn random_length(input: &Value) -> Result<usize, Failure> {
    let fields = Fields::from_value(input)?;
    let length = fields.get("length").ok_or_else(|| invalid_input("`length` is missing"))?;
    let number = integer(length).or_else(|| text(length)?.parse().ok());
    number
        .filter(|number| (1..=RANDOM_BYTES_MAX).contains(number))
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| {
            invalid_input(format!("`length` must be a whole number, 1 to {RANDOM_BYTES_MAX}"))
        })
}

struct Items {
    total: i64,
    time: Duration,
    bytes: Option<Bytes>,
}

struct Bytes {
    total: i64,
    /// If this is `None`, the total is spread evenly.
    per_item: Option<i64>,
}

impl Items {
    fn parse(input: &Value) -> Result<Self, Failure> {
        let fields = Fields::from_value(input)?;
        let total = fields.integer("totalItems", 0, ITEMS_MAX)?;
        let total = total.ok_or_else(|| invalid_input("`totalItems` is missing"))?;
        let time = fields.integer("itemMs", 0, DELAY_MS_MAX)?.unwrap_or(0);
        let bytes =
            fields.get("outputStats").map(|stats| Bytes::parse(stats, total)).transpose()?;
        Ok(Items { total, time: milliseconds(time), bytes: bytes.flatten() })
    }
}

impl Bytes {
    /// Without a total, it is computed from the bytes of one item. `None` if there is neither.
    fn parse(stats: &Value, items: i64) -> Result<Option<Self>, Failure> {
        let fields = Fields::from_value(stats)?;
        let total = fields.integer("bytesTotal", 0, PRETENDED_BYTES_MAX)?;
        let per_item = fields.integer("bytesPerItem", 0, PRETENDED_BYTES_MAX)?;
        let total = total.or(per_item.map(|bytes| bytes.saturating_mul(items)));
        Ok(total.map(|total| Bytes { total, per_item }))
    }
}

fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

// Output.

impl Items {
    fn progress_figures(&self, processed: i64) -> Value {
        let items = [("processedItems", processed.into()), ("totalItems", self.total.into())];
        let Some(bytes) = &self.bytes else { return object(items) };
        let so_far = match bytes.per_item {
            Some(each) => each.saturating_mul(processed).min(bytes.total),
            None => proportion(bytes.total, processed, self.total),
        };
        let stats = object([("bytesProcessed", so_far.into()), ("bytesTotal", bytes.total.into())]);
        let [processed, total] = items;
        object([processed, total, ("outputStats", stats)])
    }
}

fn proportion(bytes: i64, processed: i64, items: i64) -> i64 {
    let share = i128::from(bytes) * i128::from(processed) / i128::from(items.max(1));
    i64::try_from(share).unwrap_or(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// Execution.

impl Adapter for Test {
    fn name(&self) -> &'static str {
        "test"
    }

    fn description(&self) -> &'static str {
        "Operations that behave in one known way each, for trying a venue out and for tests."
    }

    fn folder(&self) -> String {
        "v/test/ops".to_owned()
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        match call.operation.name() {
            "echo" => Ok(call.input.clone()),
            "error" => Err(error(&call.input)),
            "tally" => tally(&call.input),
            "llm" => language_model(&call.input, false),
            "toolllm" => language_model(&call.input, true),
            "random" => {
                let mut bytes = vec![0; random_length(&call.input)?];
                call.host.env().random(&mut bytes);
                Ok(object([("bytes", hex(&bytes).into())]))
            }
            _ => Err(nested::unsupported_operation(call)),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        match call.operation.name() {
            "delay" => Box::pin(async move { delay(call).await.into() }),
            "never" => Box::pin(std::future::pending()),
            "chat" => Box::pin(std::future::ready(chat(&call.cause))),
            "pause" => Box::pin(std::future::ready(pause(&call.cause, call.input))),
            "auth" => Box::pin(std::future::ready(auth(&call.cause))),
            "progress" => Box::pin(async move { progress(call).await.into() }),
            "slowtally" => Box::pin(async move { slow_tally(call).await.into() }),
            _ => Box::pin(std::future::ready(self.run_inline(&call).into())),
        }
    }
}

fn error(input: &Value) -> Failure {
    match Fields::from_value(input).and_then(|fields| fields.text("message")) {
        // Transient, so that the handling of any failure, retries included, can be tested.
        Ok(message) => Failure::transient("test_error", message),
        Err(failure) => failure,
    }
}

/// Returns the contents of the messages that a transition received.
fn contents(input: &Value) -> Result<Vec<Value>, Failure> {
    let messages = Fields::from_value(input)?.items("messages")?;
    let content = |message: Value| match message.as_map() {
        Some(map) => map.field("content").cloned().unwrap_or_default(),
        None => Value::Nil,
    };
    Ok(messages.into_iter().map(content).collect())
}

fn tally(input: &Value) -> Result<Value, Failure> {
    let seen = contents(input)?;
    let is_failing =
        |content: &Value| content.as_map().and_then(|map| map.field("fail")) == Some(&true.into());
    if seen.iter().any(is_failing) {
        return Err(Failure::new("test_error", "a message says that the turn fails"));
    }
    let state = Fields::from_value(input)?.get_or_nil("state");
    let before = state.as_map().and_then(|map| map.field("n")).and_then(integer).unwrap_or(0);
    let count = before.saturating_add(i64::try_from(seen.len()).unwrap_or(i64::MAX));
    Ok(object([
        ("state", object([("n", count.into())])),
        ("result", object([("seen", array(seen))])),
    ]))
}

/// Answers as a language model would: repeats the last message, or calls the tool that it names.
fn language_model(input: &Value, has_tools: bool) -> Result<Value, Failure> {
    let fields = Fields::from_value(input)?;
    let messages = match fields.get("messages") {
        Some(_) => fields.items("messages")?,
        None => Vec::new(),
    };
    let content = |message: &Value| message.as_map()?.field("content").and_then(text);
    let last = messages.last().and_then(content);
    let last = last.or(fields.optional_text("prompt")?).unwrap_or_default();
    let mut members: Vec<(&str, Value)> =
        vec![("role", "assistant".into()), ("model", "test".into())];
    let mut call = last.strip_prefix("tool ").filter(|_| has_tools).into_iter();
    match call.next().map(|call| call.split_once(' ').unwrap_or((call, "{}"))) {
        Some((name, arguments)) => {
            let id = format!("call-{}", messages.len());
            let call =
                object([("id", id.into()), ("name", name.into()), ("arguments", arguments.into())]);
            members.extend([("content", "".into()), ("toolCalls", array(vec![call]))]);
        }
        None => members.push(("content", last.as_str().into())),
    }
    let tokens = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    let usage = [("inputTokens", tokens(messages.len())), ("outputTokens", tokens(1))];
    members.push(("usage", object(usage)));
    Ok(members.into_iter().collect::<catena_value::Map>().into())
}

async fn slow_tally(call: Call) -> Result<Value, Failure> {
    for content in contents(&call.input)? {
        let delay = content.as_map().and_then(|map| map.field("delay")).and_then(integer);
        let delay = delay.unwrap_or(0).clamp(0, DELAY_MS_MAX);
        call.control.sleep(milliseconds(delay)).await;
    }
    tally(&call.input)
}

async fn delay(call: Call) -> Result<Value, Failure> {
    let Delay { time, operation, input } = Delay::parse(&call.input)?;
    call.control.sleep(time).await;
    match operation {
        Some(operation) => nested::run(&call, operation, input).await,
        None => Ok(input),
    }
}

fn chat(cause: &Cause) -> Turn {
    let ask = |output| Ask {
        message: Some("Send a message; {\"content\":\"done\"} ends the chat.".to_owned()),
        output,
    };
    let Cause::Message(message) = cause else { return Turn::NeedsInput(ask(None)) };
    let content = match message {
        Value::Map(map) => map.field("content").cloned().unwrap_or(Value::Nil),
        other => other.clone(),
    };
    let is_done = content.as_str() == Some("done");
    let output = object([("echo", message.clone()), ("message", content)]);
    if is_done { Turn::Complete(output) } else { Turn::NeedsInput(ask(Some(output))) }
}

fn pause(cause: &Cause, input: Value) -> Turn {
    match cause {
        Cause::Start | Cause::Retry => Turn::Pause,
        Cause::Resume | Cause::Message(_) => Turn::Complete(input),
    }
}

fn auth(cause: &Cause) -> Turn {
    let kind = match cause {
        Cause::Message(Value::Map(message)) => message.field("type").and_then(Value::as_str),
        _ => None,
    };
    if kind == Some("auth/complete") {
        return Turn::Complete(object([("authorised", true.into())]));
    }
    let message = "Send a message of type auth/complete.".to_owned();
    Turn::NeedsAuth(Ask { message: Some(message), output: None })
}

async fn progress(call: Call) -> Result<Value, Failure> {
    let items = Items::parse(&call.input)?;
    for processed in 1..=items.total {
        call.control.sleep(items.time).await;
        call.control.report(items.progress_figures(processed));
    }
    Ok(items.progress_figures(items.total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_error_has_exactly_its_message() {
        let failure = error(&value(r#"{"message":"Out of cheese","extra":1}"#));
        assert_eq!(failure, Failure::transient("test_error", "Out of cheese"));
        assert_eq!(error(&value("{}")).code, "invalid_input");
    }

    #[test]
    fn a_delay_is_bounded_and_keeps_its_input() {
        let delay = Delay::parse(&value(r#"{"delay":5,"input":[1]}"#)).unwrap();
        assert_eq!(delay.time, Duration::from_millis(5));
        assert_eq!((delay.operation, delay.input), (None, value("[1]")));
        for refused in [r#"{"delay":-1}"#, r#"{"delay":86400001}"#, r#"{"delay":"1"}"#, "{}"] {
            assert!(Delay::parse(&value(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_length_may_be_a_number_or_its_text() {
        let check = |input: &str, expected: Option<usize>| {
            assert_eq!(random_length(&value(input)).ok(), expected, "{input}");
        };
        check(r#"{"length":16}"#, Some(16));
        check(r#"{"length":"16"}"#, Some(16));
        check(r#"{"length":16.0}"#, Some(16));
        check(r#"{"length":1024}"#, Some(1024));
        check(r#"{"length":0}"#, None);
        check(r#"{"length":1025}"#, None);
        check(r#"{"length":"many"}"#, None);
        check("{}", None);
        assert_eq!(hex(&[0, 0xa, 0xff]), "000aff");
    }

    fn message(text: &str) -> Cause {
        Cause::Message(value(text))
    }

    #[test]
    fn a_chat_answers_until_it_is_done() {
        let asks = |cause: &Cause| match chat(cause) {
            Turn::NeedsInput(ask) => ask.output,
            other => panic!("{other:?}"),
        };
        assert_eq!(asks(&Cause::Start), None);
        assert_eq!(
            asks(&message(r#"{"content":"hi","id":1}"#)),
            Some(value(r#"{"echo":{"content":"hi","id":1},"message":"hi"}"#))
        );
        assert_eq!(asks(&message(r#"{"a":1}"#)), Some(value(r#"{"echo":{"a":1},"message":null}"#)));
        assert_eq!(
            chat(&message(r#"{"content":"done"}"#)),
            Turn::Complete(value(r#"{"echo":{"content":"done"},"message":"done"}"#))
        );
    }

    #[test]
    fn a_pause_ends_with_its_input_when_resumed() {
        assert_eq!(pause(&Cause::Start, value("[1]")), Turn::Pause);
        assert_eq!(pause(&Cause::Resume, value("[1]")), Turn::Complete(value("[1]")));
    }

    #[test]
    fn authorisation_is_complete_by_its_type_alone_and_shows_nothing() {
        for cause in [Cause::Start, message(r#"{"content":"done"}"#), message(r#"{"type":"auth"}"#)]
        {
            assert!(matches!(auth(&cause), Turn::NeedsAuth(_)), "{cause:?}");
        }
        let complete = auth(&message(r#"{"type":"auth/complete","credentials":{"key":"hidden"}}"#));
        assert_eq!(complete, Turn::Complete(value(r#"{"authorised":true}"#)));
    }

    #[test]
    fn progress_ends_at_its_totals() {
        let figures =
            |input: &str, done: i64| Items::parse(&value(input)).unwrap().progress_figures(done);
        assert_eq!(
            figures(r#"{"totalItems":4,"itemMs":1}"#, 3),
            value(r#"{"processedItems":3,"totalItems":4}"#)
        );
        let given = r#"{"totalItems":4,"outputStats":{"bytesTotal":100,"bytesPerItem":30}}"#;
        let bytes = |done: i64, processed: i64| {
            let stats = object([("bytesProcessed", processed.into()), ("bytesTotal", 100.into())]);
            let items = [("processedItems", done.into()), ("totalItems", 4.into())];
            assert_eq!(
                figures(given, done),
                object([items[0].clone(), items[1].clone(), ("outputStats", stats)])
            );
        };
        bytes(1, 30);
        bytes(4, 100);
        let rounded = figures(r#"{"totalItems":3,"outputStats":{"bytesTotal":100}}"#, 3);
        assert!(format!("{rounded:?}").contains("\"bytesProcessed\": 100"), "{rounded:?}");
        let derived = figures(r#"{"totalItems":3,"outputStats":{"bytesPerItem":7}}"#, 2);
        assert!(format!("{derived:?}").contains("\"bytesTotal\": 21"), "{derived:?}");
    }

    #[test]
    fn a_tally_counts_messages_and_fails_if_one_says_so() {
        let input = value(
            r#"{"agent-id":"a","state":{"n":2},"messages":[{"content":1},{"content":{"x":2}}]}"#,
        );
        assert_eq!(tally(&input), Ok(value(r#"{"state":{"n":4},"result":{"seen":[1,{"x":2}]}}"#)));
        let failing = value(r#"{"state":null,"messages":[{"content":{"fail":true}}]}"#);
        assert_eq!(tally(&failing).unwrap_err().code, "test_error");
    }

    #[test]
    fn progress_is_bounded() {
        for refused in ["{}", r#"{"totalItems":1000001}"#, r#"{"totalItems":1,"itemMs":-1}"#] {
            assert!(Items::parse(&value(refused)).is_err(), "{refused}");
        }
    }
}
