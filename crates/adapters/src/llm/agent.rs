//! `llm:agent`: one turn of an agent that is driven by a model.
//!
//! A turn is a function of its input and of what its calls return. Every answer of the model and every
//! tool call is a call of the job, under a key that counts them, so a turn that is repeated after a
//! crash takes what it has and continues where it stopped. The model chooses tools, nothing else: what a
//! tool may do is decided by the capabilities of the agent, and a denial is a result that the model
//! reads.

use catena_engine::requests::CallRequest;
use catena_engine::{Call, Caller, Failure, RetryAdvice};
use catena_job::JobId;
use catena_value::{Map, NoCells, Value, json};

use super::as_text;
use super::config::Config;
use super::conversation::{Entry, Session, Sessions, recent};
use super::tools::{AgentTool, TaskEnd, tools};
use super::wire::{Format, Message, Role, ToolCall};
use crate::fields::{Fields, array, integer, items, load_failure, object, text};
use crate::limits::{STRUCTURED_TRIES_MAX, TOOL_RESULT_BYTES_MAX};
use crate::nested;

/// The session of messages that name none.
const DEFAULT_SESSION: &str = "default";

/// Adapters whose operations ask a model. A call of one of them by the agent itself is part of what an
/// agent is, so that capabilities need not mention it.
const MODELS: [&str; 3] = ["llm:", "langchain:", "test:"];

/// Executes a turn.
pub(super) async fn turn(call: &Call) -> Result<Value, Failure> {
    let job = call
        .job
        .ok_or_else(|| Failure::new("needs_a_job", "an agent with a model needs a recorded job"))?;
    let fields = Fields::from_value(&call.input)?;
    let state = fields.get_or_nil("state");
    let config = Config::from_state(&state)?;
    let tools = tools(call, &config).await?;
    let mut caller = call.caller.for_model();
    if let Some(caps) = &config.caps {
        caller = caller.narrowed(caps.clone());
    }
    let mut turn = Turn {
        call,
        job,
        agent: fields.text("agent-id")?,
        tool_caller: caller,
        tools,
        config,
        model_calls: 0,
        tool_calls: 0,
        checks: 0,
        input_tokens: 0,
        output_tokens: 0,
        stopped: None,
        ended: None,
    };
    let mut sessions = Sessions::from_state(&state)?;
    let mut responses: Vec<(String, Value)> = Vec::new();
    for (id, messages) in by_session(&fields.items("messages")?)? {
        let session = sessions.get(&id);
        session.begin_turn(call.control.now());
        for message in messages {
            session.entries.push(message);
        }
        let response = turn.answer(session).await?;
        responses.push((id, response));
    }
    let state = sessions.into_state(&state)?;
    Ok(object([("state", state), ("result", turn.result(responses))]))
}

/// Groups messages by their session, in the order in which the sessions appear.
fn by_session(messages: &[Value]) -> Result<Vec<(String, Vec<Entry>)>, Failure> {
    let mut sessions: Vec<(String, Vec<Entry>)> = Vec::new();
    for message in messages {
        let member = |name: &str| message.as_map().and_then(|map| map.field(name));
        let id = member("sessionId").and_then(text);
        let id = id.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
        let content = as_text(&member("content").cloned().unwrap_or_default())?;
        let ts = member("ts").and_then(integer).unwrap_or(0);
        let source = member("from").and_then(text);
        let entry = Entry::new(Message::new(Role::User, content), ts, source)?;
        match sessions.iter_mut().find(|(known, _)| *known == id) {
            Some((_, entries)) => entries.push(entry),
            None => sessions.push((id, vec![entry])),
        }
    }
    Ok(sessions)
}

/// What a turn has used so far.
struct Turn<'a> {
    call: &'a Call,
    job: JobId,
    agent: String,
    /// On whose authority tools run.
    tool_caller: Caller,
    tools: Vec<AgentTool>,
    config: Config,
    model_calls: u32,
    tool_calls: i64,
    checks: u32,
    input_tokens: i64,
    output_tokens: i64,
    /// Why the turn ended before the model was done.
    stopped: Option<&'static str>,
    /// The response that the model gave by a tool that ends the turn.
    ended: Option<Value>,
}

/// What the model said.
struct Reply {
    content: String,
    calls: Vec<ToolCall>,
}

impl Turn<'_> {
    /// Asks the model until it answers without asking for tools. Returns the answer.
    async fn answer(&mut self, session: &mut Session) -> Result<Value, Failure> {
        let mut tries = 0;
        loop {
            if self.tokens() >= self.config.tokens_max {
                return self.stop(session, "token_budget");
            }
            let may_call = self.tool_calls < self.config.tool_calls_max;
            let reply = self.ask(session, may_call).await?;
            let mut message = Message::new(Role::Assistant, reply.content.as_str());
            message.calls.clone_from(&reply.calls);
            if reply.calls.is_empty() {
                self.add(session, message)?;
                let Some(problem) = self.check_answer(&reply.content).await? else {
                    return Ok(self.parsed(&reply.content));
                };
                tries += 1;
                if tries >= STRUCTURED_TRIES_MAX {
                    let text = format!("the model's answer does not fit its schema: {problem}");
                    return Err(Failure::new("invalid_answer", text));
                }
                let text = format!("Your answer does not fit the required JSON: {problem}");
                self.add(session, Message::new(Role::User, text))?;
                continue;
            }
            if !may_call {
                return self.stop(session, "tool_calls");
            }
            self.add(session, message)?;
            for call in &reply.calls {
                let result = self.use_tool(call).await?;
                let mut message = Message::new(Role::Tool, result);
                message.call_id = Some(call.id.clone());
                self.add(session, message)?;
            }
            if let Some(response) = self.ended.take() {
                self.add(session, Message::new(Role::Assistant, as_text(&response)?))?;
                return Ok(response);
            }
        }
    }

    fn add(&self, session: &mut Session, message: Message) -> Result<(), Failure> {
        session.entries.push(Entry::new(message, self.call.control.now(), None)?);
        Ok(())
    }

    fn tokens(&self) -> i64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Ends the turn although the model is not done.
    fn stop(&mut self, session: &mut Session, why: &'static str) -> Result<Value, Failure> {
        self.stopped = Some(why);
        let text = match why {
            "token_budget" => "I stopped: the token budget of this turn is used up.",
            _ => "I stopped: the tool calls of this turn are used up.",
        };
        self.add(session, Message::new(Role::Assistant, text))?;
        Ok(text.into())
    }

    /// Asks the model.
    async fn ask(&mut self, session: &Session, may_call: bool) -> Result<Reply, Failure> {
        let mut messages = vec![Message::new(Role::System, self.system_prompt()).to_value()];
        let conversation = recent(&session.entries, self.config.context_bytes);
        messages.extend(conversation.into_iter().map(|entry| entry.message.to_value()));
        let mut members = self.config.passed.clone();
        members.push(("messages", array(messages)));
        if may_call && !self.tools.is_empty() {
            let tools = self.tools.iter().map(|tool| tool.tool.to_value()).collect();
            members.push(("tools", array(tools)));
        }
        match &self.config.format {
            Format::Text => {}
            Format::Json => members.push(("responseFormat", "json".into())),
            Format::Schema { name, schema } => {
                let format = object([("name", name.as_str().into()), ("schema", schema.clone())]);
                members.push(("responseFormat", format));
            }
        }
        self.model_calls = self.model_calls.saturating_add(1);
        let key = format!("model-{}", self.model_calls);
        let input = members.into_iter().collect::<Map>().into();
        let operation = self.config.operation.clone();
        let reply = self.call_own(key, operation, input).await?;
        self.read_reply(&reply)
    }

    /// Calls an operation that is part of what the agent is, not something that the model chose. The
    /// capabilities of the agent need not permit it if it is an operation of the venue.
    async fn call_own(
        &self,
        key: String,
        operation: String,
        input: Value,
    ) -> Result<Value, Failure> {
        let adapter = operation.trim_start_matches('/').replacen("v/ops/", "", 1);
        let adapter = adapter.replacen("v/test/ops/", "test/", 1).replacen('/', ":", 1);
        let is_model = MODELS.iter().any(|prefix| adapter.starts_with(prefix));
        let is_own = is_model || adapter == "schema:validate";
        let request = CallRequest {
            job: self.job,
            caller: self.call.caller.clone(),
            authority: is_own.then(|| self.call.caller.without_caps()),
            key,
            operation,
            input,
            is_detached: false,
        };
        let called = self.call.host.call(request).await?;
        nested::outcome(&called.job, called.cells())
    }

    fn read_reply(&mut self, reply: &Value) -> Result<Reply, Failure> {
        let wrong = |text: &str| Failure::new("model_reply", text.to_owned());
        let map = reply.as_map();
        let map =
            map.ok_or_else(|| wrong("the operation that asks the model returned no object"))?;
        let usage = map.field("usage").and_then(Value::as_map);
        let number = |name: &str| {
            usage.and_then(|usage| usage.field(name)).and_then(integer).unwrap_or(0).max(0)
        };
        self.input_tokens = self.input_tokens.saturating_add(number("inputTokens"));
        self.output_tokens = self.output_tokens.saturating_add(number("outputTokens"));
        let content = map.field("content").map(as_content).transpose()?.unwrap_or_default();
        // A message of the conversation is read as it would be from a request.
        let mut message =
            vec![("role", Value::from("assistant")), ("content", content.as_str().into())];
        message.extend(map.field("toolCalls").map(|calls| ("toolCalls", calls.clone())));
        let message = Message::parse(&message.into_iter().collect::<Map>().into())?;
        Ok(Reply { content, calls: message.calls })
    }

    fn system_prompt(&self) -> String {
        let mut prompt = self.config.system_prompt.clone().unwrap_or_default();
        let mut lists: Vec<String> = Vec::new();
        let restriction = self.tool_caller.restriction.as_deref();
        for caps in restriction.map(|restriction| restriction.caps.as_slice()).unwrap_or_default() {
            let caps: Vec<String> = caps.iter().map(ToString::to_string).collect();
            lists.push(if caps.is_empty() { "nothing".to_owned() } else { caps.join(", ") });
        }
        if !lists.is_empty() {
            if !prompt.is_empty() {
                prompt.push_str("\n\n");
            }
            prompt.push_str("Your tools may do this and nothing else: ");
            prompt.push_str(&lists.join("; and of that only: "));
            prompt.push('.');
        }
        if prompt.is_empty() {
            prompt = format!("You are the agent {}.", self.agent);
        }
        prompt
    }

    /// Runs a tool. Whatever goes wrong is a result that the model reads.
    async fn use_tool(&mut self, call: &ToolCall) -> Result<String, Failure> {
        if self.tool_calls >= self.config.tool_calls_max {
            let max = self.config.tool_calls_max;
            return Ok(error_text("tool_limit", &format!("a turn has at most {max} tool calls")));
        }
        self.tool_calls += 1;
        let Some(tool) = self.tools.iter().find(|tool| tool.tool.name == call.name) else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.tool.name.as_str()).collect();
            let text = format!("there is no tool `{}`; there are {}", call.name, names.join(", "));
            return Ok(error_text("unknown_tool", &text));
        };
        let written = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.as_str() };
        let arguments = match json::read(written.as_bytes()) {
            Ok(arguments) => arguments,
            Err(error) => {
                let text = format!("the arguments are not valid JSON: {error}");
                return Ok(error_text("invalid_arguments", &text));
            }
        };
        if let Some(end) = tool.task_end() {
            let member = |name: &str| arguments.as_map().and_then(|map| map.field(name)).cloned();
            self.ended = Some(match end {
                TaskEnd::Complete => member("result").unwrap_or(arguments),
                TaskEnd::Fail => object([("error", member("error").unwrap_or_default())]),
            });
            return Ok("The task has ended.".to_owned());
        }
        let (operation, input) = match tool.request(&self.agent, arguments) {
            Ok(request) => request,
            Err(text) => return Ok(error_text("invalid_arguments", &text)),
        };
        let request = CallRequest {
            job: self.job,
            caller: self.tool_caller.clone(),
            authority: None,
            key: format!("tool-{}", self.tool_calls),
            operation,
            input,
            is_detached: false,
        };
        let called = match self.call.host.call(request).await {
            Ok(called) => called,
            // The venue has a problem, not the tool.
            Err(failure) if failure.retry == RetryAdvice::MaySucceed => return Err(failure),
            Err(failure) if matches!(failure.code.as_str(), "call_changed" | "call_gone") => {
                return Err(failure);
            }
            Err(failure) => return Ok(error_text(&failure.code, &failure.error)),
        };
        match nested::outcome(&called.job, called.cells()) {
            Ok(output) => Ok(shortened(as_text(&output)?)),
            Err(failure) => {
                let code = called.job.field("errorCode").and_then(text);
                let code = code.unwrap_or(failure.code);
                Ok(error_text(&code, &failure.error))
            }
        }
    }

    /// Returns what is wrong with an answer. `None` if it has the form that the configuration asks for.
    async fn check_answer(&mut self, content: &str) -> Result<Option<String>, Failure> {
        let schema = match &self.config.format {
            Format::Text => return Ok(None),
            Format::Json => None,
            Format::Schema { schema, .. } => Some(schema.clone()),
        };
        let value = match json::read(content.trim().as_bytes()) {
            Ok(value) => value,
            Err(error) => return Ok(Some(format!("it is not JSON: {error}"))),
        };
        let Some(schema) = schema else { return Ok(None) };
        self.checks += 1;
        let input = object([("value", value), ("schema", schema)]);
        let key = format!("check-{}", self.checks);
        let checked = self.call_own(key, "schema:validate".to_owned(), input).await?;
        let member = |name: &str| checked.as_map().and_then(|map| map.field(name));
        if member("valid") == Some(&true.into()) {
            return Ok(None);
        }
        let problem = member("error").and_then(text);
        Ok(Some(problem.unwrap_or_else(|| "it does not fit the schema".to_owned())))
    }

    /// Returns an answer as a value, if the configuration asks for JSON.
    fn parsed(&self, content: &str) -> Value {
        if self.config.format == Format::Text {
            return content.into();
        }
        json::read(content.trim().as_bytes()).unwrap_or_else(|_| content.into())
    }

    fn result(&self, responses: Vec<(String, Value)>) -> Value {
        let last = responses.last().map(|(_, response)| response.clone()).unwrap_or_default();
        let responses: Map =
            responses.iter().map(|(id, response)| (id.as_str(), response.clone())).collect();
        let usage = object([
            ("inputTokens", self.input_tokens.into()),
            ("outputTokens", self.output_tokens.into()),
            ("totalTokens", self.tokens().into()),
            ("modelCalls", i64::from(self.model_calls).into()),
        ]);
        let mut members = vec![
            ("response", last),
            ("responses", responses.into()),
            ("toolCalls", self.tool_calls.into()),
            ("usage", usage),
        ];
        members.extend(self.stopped.map(|why| ("stopped", why.into())));
        members.into_iter().collect::<Map>().into()
    }
}

/// Returns the content of an answer as text. Some operations return a list of parts.
fn as_content(content: &Value) -> Result<String, Failure> {
    match content {
        Value::Nil => Ok(String::new()),
        Value::Vector(parts) => {
            let mut all = String::new();
            for part in items(parts)? {
                let of_part = match part.as_map() {
                    Some(map) => map.get(&"text".into(), &NoCells).map_err(load_failure)?,
                    None => Some(part),
                };
                all.push_str(&of_part.as_ref().and_then(text).unwrap_or_default());
            }
            Ok(all)
        }
        other => as_text(other),
    }
}

/// The result of a tool that failed.
fn error_text(code: &str, error: &str) -> String {
    let error = object([("error", error.into()), ("code", code.into())]);
    shortened(json::to_string(&error).unwrap_or_default())
}

/// Cuts a result that is too long for a model.
fn shortened(result: String) -> String {
    if result.len() <= TOOL_RESULT_BYTES_MAX {
        return result;
    }
    let mut end = TOOL_RESULT_BYTES_MAX;
    while !result.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in all; the rest was left out)", &result[..end], result.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn messages_are_grouped_by_session() {
        let messages = value(
            r#"[{"id":"1","ts":1,"from":"did:a","content":"one","sessionId":"s"},
                {"id":"2","ts":2,"from":"did:a","content":{"text":"two"}},
                {"id":"3","ts":3,"from":"did:a","content":"three","sessionId":"s"}]"#,
        );
        let groups = by_session(&items(messages.as_vector().unwrap()).unwrap()).unwrap();
        let shown: Vec<(&str, Vec<String>)> = groups
            .iter()
            .map(|(id, entries)| {
                (id.as_str(), entries.iter().map(|entry| entry.message.text()).collect())
            })
            .collect();
        let two = r#"{"text":"two"}"#.to_owned();
        let expected = [("s", vec!["one".to_owned(), "three".to_owned()]), ("default", vec![two])];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_long_result_is_cut_at_a_character() {
        let cut = shortened("é".repeat(TOOL_RESULT_BYTES_MAX));
        assert!(cut.len() < TOOL_RESULT_BYTES_MAX + 100 && cut.contains("131072 bytes in all"));
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
