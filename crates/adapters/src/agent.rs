//! `agent`: persistent processes with a state, an inbox and a timeline.
//!
//! **What it does:** creates, reads, changes and ends the agents of the caller, delivers messages to them,
//! and runs them. An agent is one record at `g/<agentId>`. A run passes its state and its messages to
//! another operation, the transition, and records what that returns.
//!
//! **Cost:** a change is one commit with its job. A run is a job that waits for the job of the transition:
//! the record is written with the record that starts the run and with the one that ends it. No cost
//! grows with the timeline.
//!
//! **Cancellation:** a run that is cancelled or takes too long cancels its transition and suspends the
//! agent, which keeps its state and its messages.
//!
//! **Repetition:** safe: a change is committed together with its job, and a repeated run finds the
//! transition that it called before.

use catena_engine::operations::HostReply;
use catena_engine::{
    Adapter, BoundEnd, BoundJob, BoundStart, Call, ExecutionMode, Failure, Operation, Registration,
    RootId, Roots, Turn, TurnFuture,
};
use catena_job::agent::AgentPolicy;
use catena_value::Value;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::Fields;
use crate::nested;

mod ask;
mod attach;
mod authority;
mod change;
mod config;
mod conversation;
mod deliver;
mod lifecycle;
mod query;
mod run;
mod secrets;
mod session;
mod stored;
mod wake;

use stored::{agent_id, agent_roots};

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agents {
    policy: AgentPolicy,
}

impl Agents {
    pub(crate) fn new(policy: AgentPolicy) -> Self {
        Agents { policy }
    }
}

/// Failures that refuse a request before anything is done.
const REFUSALS: &[&str] = &["agent_not_found", "agent_terminated"];

// Operations.

const READ: &[Mark] = &[Mark::Idempotent, Mark::ReadOnly];
const OVERWRITE: &[Mark] = &[Mark::Idempotent];

/// A definition of an operation that changes agents.
const CHANGE: Definition = Definition {
    name: "",
    title: "",
    description: "",
    mode: ExecutionMode::Roots,
    marks: &[],
    input: None,
    output: STATUS,
};

/// A definition of an operation that runs an agent.
const RUN: Definition = Definition { mode: ExecutionMode::Task, marks: OVERWRITE, ..CHANGE };

/// A definition of an operation that only reads.
const QUERY: Definition = Definition { marks: READ, ..CHANGE };

const AGENT_ID: &str = r#"{"type":"object","required":["agentId"],"properties":{
    "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"}}}"#;

const STATUS: Option<&str> = Some(
    r#"{"type":"object","required":["agentId","status"],"properties":{
        "agentId":{"type":"string"},
        "status":{"type":"string","enum":["SLEEPING","RUNNING","SUSPENDED","TERMINATED"]}}}"#,
);

const RAN: Option<&str> = Some(
    r#"{"type":"object","required":["agentId","status"],"properties":{
        "agentId":{"type":"string"},"status":{"type":"string"},
        "result":{"description":"What the transition returned as `result`"},
        "messages":{"type":"integer","description":"How many messages the turn processed"}}}"#,
);

const TASK: Option<&str> = Some(
    r#"{"type":"object","required":["agentId","taskId","status"],"properties":{
        "agentId":{"type":"string"},"taskId":{"type":"string"},"status":{"type":"string"}}}"#,
);

const REQUEST: Option<&str> = Some(
    r#"{"type":"object","required":["requestId","status"],"properties":{
        "agentId":{"type":"string"},"job":{"type":"string"},"requestId":{"type":"string"},
        "status":{"type":"string","enum":["OPEN","ANSWERED"]}}}"#,
);

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "create",
        title: "Create an agent",
        description: "Creates an agent that sleeps. If there is one with this ID, nothing happens.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "config":{"type":["object","array","string","null"],"description":"For the framework: `operation`, `wake`, `limits`, `maxFailures`, `onFailures`. Without `state`, the other members become `state.config`"},
                "state":{"description":"What the transition receives first"},
                "caps":{"type":["array","object","null"],"description":"What the agent may do; null if it is not restricted"},
                "definition":{"type":["string","null"],"description":"A reference to an asset with `config`, `state` and `caps`"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","status","created"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},
                "created":{"type":"boolean"},"updated":{"type":"boolean"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "message",
        title: "Send a message to an agent",
        description: "Appends a message to the inbox of an agent. It is processed by the next run.",
        input: Some(
            r#"{"type":"object","required":["agentId","message"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "message":{"description":"The content, at most 1 MB"},
                "messageId":{"type":["string","null"],"maxLength":256,"description":"A message with the same ID that still waits is not delivered again"},
                "sessionId":{"type":["string","null"],"maxLength":128}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","delivered"],"properties":{
                "agentId":{"type":"string"},"delivered":{"type":"boolean"},
                "messageId":{"type":"string"},"sessionId":{"type":"string"},
                "inbox":{"type":"integer","description":"How many messages wait"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "run",
        title: "Run an agent",
        description: "Passes the messages in the inbox to the transition and records what it returns. Without \
                      messages nothing happens. A run waits while another one is in progress.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "operation":{"type":["string","null"],"description":"The transition; `config.operation` by default"}}}"#,
        ),
        output: RAN,
        ..RUN
    },
    Definition {
        name: "trigger",
        title: "Trigger an agent",
        description: "The same as `run`, which may also be started without waiting for its end.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "operation":{"type":["string","null"]},
                "force":{"type":["boolean","null"]},
                "wake":{"type":["boolean","null"],"description":"If there are no messages, the agent gets one that says so"},
                "wait":{"type":["boolean","integer","null"],"minimum":0,"maximum":120000,"description":"False or a number of milliseconds: how long to wait for the end"}}}"#,
        ),
        output: RAN,
        ..RUN
    },
    Definition {
        name: "request",
        title: "Send a request to an agent",
        description: "Delivers `input` as a message, runs the agent, and returns the result of that turn.",
        input: Some(
            r#"{"type":"object","required":["agentId","input"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "input":{"description":"The content of the message, at most 1 MB"},
                "operation":{"type":["string","null"],"description":"The transition; `config.operation` by default"},
                "wait":{"type":["boolean","integer","null"],"minimum":0,"maximum":120000,"description":"False or a number of milliseconds: how long to wait for the end"},
                "timeout":{"type":["integer","null"],"minimum":0,"maximum":120000,"description":"The same, in milliseconds"},
                "sessionId":{"type":["string","null"],"maxLength":128}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["id","status"],"properties":{
                "id":{"type":"string","description":"The job of the run"},
                "agentId":{"type":"string"},"status":{"type":"string","description":"The status of that job"},
                "output":{"description":"The result of the turn"},"sessionId":{"type":"string"}}}"#,
        ),
        ..RUN
    },
    Definition {
        name: "chat",
        title: "Chat with an agent",
        description: "Delivers a message, runs the agent, and returns its response. Without `sessionId` a new \
                      session begins.",
        input: Some(
            r#"{"type":"object","required":["agentId","message"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "message":{"description":"The content of the message, at most 1 MB"},
                "operation":{"type":["string","null"]},
                "sessionId":{"type":["string","null"],"maxLength":128}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","sessionId"],"properties":{
                "agentId":{"type":"string"},"sessionId":{"type":"string"},"response":{}}}"#,
        ),
        ..RUN
    },
    Definition {
        name: "attach",
        title: "Show an agent as a job",
        description: "A job that takes messages: each is delivered to the agent, which then runs. The job waits for the \
                      next message while the agent sleeps.",
        input: Some(AGENT_ID),
        output: Some(
            r#"{"type":"object","required":["agentId","status"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},
                "result":{"description":"What the transition returned as `result`"},
                "turns":{"type":"integer"}}}"#,
        ),
        ..RUN
    },
    Definition {
        name: "info",
        title: "Describe an agent",
        description: "Returns the status, the configuration and the figures of an agent.",
        input: Some(AGENT_ID),
        ..QUERY
    },
    Definition {
        name: "query",
        title: "Read a part of an agent",
        description: "Returns the value at a path below the record of an agent, such as `timeline/0/result`.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "path":{"type":["string","null"],"description":"The record itself by default"},
                "maxSize":{"type":["integer","null"],"minimum":0,"maximum":16777216,"description":"Bytes; 1,000,000 by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["exists","type"],"properties":{
                "exists":{"type":"boolean"},"type":{"type":"string"},"value":{},
                "valueBytes":{"type":"integer"},"truncated":{"type":"boolean"}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "list",
        title: "List agents",
        description: "Lists the agents of the caller, ordered by ID.",
        input: Some(
            r#"{"type":["object","null"],"properties":{"includeTerminated":{"type":["boolean","null"]}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agents"],"properties":{"agents":{"type":"array","items":{
                "type":"object","required":["agentId","status","tasks"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},
                "tasks":{"type":"integer","description":"Runs that are in progress or wait"},
                "error":{"type":"string"}}}}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "update",
        title: "Update an agent",
        description: "Replaces members of the configuration, and of the state while the agent does not run.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "config":{"type":["object","array","string","null"]},
                "state":{"description":"The members of an object replace those of the state; any other value replaces it"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "suspend",
        title: "Suspend an agent",
        description: "Suspends an agent and cancels its run. State, inbox and timeline are kept.",
        marks: OVERWRITE,
        input: Some(AGENT_ID),
        ..CHANGE
    },
    Definition {
        name: "resume",
        title: "Resume an agent",
        description: "Clears the error of a suspended agent, which then sleeps.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "force":{"type":["boolean","null"],"description":"Also if too many turns have failed in a row"},
                "autoWake":{"type":["boolean","null"],"description":"Whether messages that wait are processed now; by default as `config.wake` says"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "wake",
        title: "Wake an agent",
        description: "Runs an agent at a time, or now. If it has no messages then, it gets one that says that it \
                      was woken. `at` null removes the time that was set before.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "at":{"type":["string","integer","null"],"description":"A time in RFC 3339, or Unix time in ms; now by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","status"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},"at":{"type":"integer"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "delete",
        title: "Terminate an agent",
        description: "Terminates an agent: its run and the runs that wait are cancelled, and it takes no more \
                      messages. With `remove`, its record is deleted as well.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "remove":{"type":["boolean","null"]},
                "ifIdle":{"type":["boolean","null"],"description":"Only if nothing has happened for `config.limits.idleMs`"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","status"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},"removed":{"type":"boolean"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "fork",
        title: "Copy an agent",
        description: "Creates an agent with the configuration, the state and the capabilities of another one.",
        input: Some(
            r#"{"type":"object","required":["sourceId","agentId"],"properties":{
                "sourceId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "config":{"type":["object","array","string","null"],"description":"Members that replace those of the source"},
                "includeTimeline":{"type":["boolean","null"]},
                "overwrite":{"type":["boolean","null"],"description":"Replaces an agent that does not run"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","status","created","forkedFrom"],"properties":{
                "agentId":{"type":"string"},"status":{"type":"string"},
                "created":{"type":"boolean"},"forkedFrom":{"type":"string"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "cancel-task",
        title: "Cancel a run of an agent",
        description: "Cancels a run that is in progress, which suspends the agent, or one that waits.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId","taskId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "taskId":{"type":"string","description":"The job of the run"},
                "reason":{"type":["string","null"],"maxLength":1000}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","taskId","cancelled"],"properties":{
                "agentId":{"type":"string"},"taskId":{"type":"string"},"cancelled":{"type":"boolean"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "sessions",
        title: "List sessions",
        description: "Lists the sessions of an agent, the one used last first.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "offset":{"type":["integer","null"],"minimum":0},
                "limit":{"type":["integer","null"],"minimum":0,"maximum":1000,"description":"100 by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["sessions","total"],"properties":{
                "sessions":{"type":"array","items":{"type":"object","required":["sessionId"],"properties":{
                    "sessionId":{"type":"string"},"title":{"type":"string"},"created":{"type":"integer"},
                    "updated":{"type":"integer"},"turnCount":{"type":"integer"}}}},
                "count":{"type":"integer"},"total":{"type":"integer"},"offset":{"type":"integer"}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "rename-session",
        title: "Rename a session",
        description: "Gives a session a title, or removes it.",
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["agentId","sessionId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "sessionId":{"type":"string","maxLength":128},
                "title":{"type":["string","null"],"maxLength":256}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","sessionId"],"properties":{
                "agentId":{"type":"string"},"sessionId":{"type":"string"},"title":{"type":"string"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "session-read",
        title: "Read a session",
        description: "Returns the conversation of a session: the one that was used last, unless `sessionId` names another.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "sessionId":{"type":["string","null"],"maxLength":128},
                "maxTurns":{"type":["integer","null"],"minimum":0},
                "maxChars":{"type":["integer","null"],"minimum":0},
                "archiveDepth":{"type":["integer","null"],"minimum":0}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["found","messages"],"properties":{
                "found":{"type":"boolean"},"sessionId":{"type":"string"},"title":{"type":"string"},
                "created":{"type":"integer"},"updated":{"type":"integer"},"messages":{"type":"array"},
                "turnCount":{"type":"integer"},"truncated":{"type":"boolean"}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "compact-session",
        title: "Compact a session",
        description: "Replaces the conversation of a session by a summary. The timeline keeps what was said.",
        input: Some(
            r#"{"type":"object","required":["agentId","sessionId","summary"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "sessionId":{"type":"string","maxLength":128},
                "summary":{"type":"string","maxLength":100000}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","sessionId","compacted"],"properties":{
                "agentId":{"type":"string"},"sessionId":{"type":"string"},"compacted":{"type":"boolean"},
                "archivedTurns":{"type":"integer"},"turnCount":{"type":"integer"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "reload-context",
        title: "Reload the context of a session",
        description: "Every turn reads the configuration and the tools again, so nothing has to be done. Returns what \
                      the session consists of.",
        input: Some(
            r#"{"type":"object","required":["agentId","sessionId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "sessionId":{"type":"string","maxLength":128}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","sessionId","reloaded"],"properties":{
                "agentId":{"type":"string"},"sessionId":{"type":"string"},"reloaded":{"type":"boolean"},
                "frames":{"type":"integer"}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "delete-session",
        title: "Delete a session",
        description: "Removes a session and its conversation. The timeline keeps what was said.",
        input: Some(
            r#"{"type":"object","required":["agentId","sessionId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "sessionId":{"type":"string","maxLength":128}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["agentId","sessionId","deleted"],"properties":{
                "agentId":{"type":"string"},"sessionId":{"type":"string"},"deleted":{"type":"boolean"}}}"#,
        ),
        ..CHANGE
    },
    Definition {
        name: "context",
        title: "Show the context of an agent",
        description: "Describes what the model of an agent would be told: system prompt, tools and conversation.",
        input: Some(
            r#"{"type":"object","required":["agentId"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "task":{"description":"A task to show with it"}}}"#,
        ),
        output: Some(r#"{"type":"string"}"#),
        ..QUERY
    },
    Definition {
        name: "complete-task",
        title: "Complete the task",
        description: "A tool of an agent with a model: ends the turn with `result`. Outside a turn there is no task, \
                      and it fails.",
        input: Some(
            r#"{"type":["object","null"],"properties":{"result":{"description":"The response of the turn"}}}"#,
        ),
        output: TASK,
        ..CHANGE
    },
    Definition {
        name: "fail-task",
        title: "Fail the task",
        description: "A tool of an agent with a model: ends the turn with an error as its response. Outside a turn \
                      there is no task, and it fails.",
        input: Some(
            r#"{"type":"object","required":["error"],"properties":{"error":{"type":"string","maxLength":10000}}}"#,
        ),
        output: TASK,
        ..CHANGE
    },
    Definition {
        name: "ask",
        title: "Ask a person",
        description: "Asks the owner of an agent a question, which is at `h/<requestId>`. The answer is a message to \
                      the agent.",
        input: Some(
            r#"{"type":"object","required":["agentId","question"],"properties":{
                "agentId":{"type":"string","minLength":1,"maxLength":128,"pattern":"^[A-Za-z0-9._-]+$"},
                "question":{"description":"A text, or anything that a client can show"},
                "options":{"type":["array","null"],"maxItems":100,"description":"The answers that are accepted"},
                "schema":{"type":["object","boolean","null"],"description":"A JSON Schema that the answer must fit"},
                "sessionId":{"type":["string","null"],"maxLength":128,"description":"The session that the answer belongs to"}}}"#,
        ),
        output: REQUEST,
        ..CHANGE
    },
    Definition {
        name: "requests",
        title: "List requests to people",
        description: "Lists the questions of the caller's agents and jobs that wait for an answer, oldest first.",
        input: Some(
            r#"{"type":["object","null"],"properties":{
                "agentId":{"type":["string","null"],"description":"Those of one agent"},
                "all":{"type":["boolean","null"],"description":"Also those that were answered or closed"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["requests"],"properties":{"hasMore":{"type":"boolean"},"requests":{"type":"array","items":{
                "type":"object","required":["id","status","question"],"properties":{
                "id":{"type":"string"},"agentId":{"type":"string"},"job":{"type":"string"},"question":{},
                "options":{"type":"array"},"schema":{},
                "status":{"type":"string","enum":["OPEN","ANSWERED","CLOSED"]},
                "created":{"type":"integer"},"answered":{"type":"integer"},"answer":{}}}}}}"#,
        ),
        ..QUERY
    },
    Definition {
        name: "answer",
        title: "Answer a request",
        description: "Answers a question of an agent or a job, once. The agent gets a message `{request, question, \
                      answer}`, the job one with `request` and `answer`.",
        input: Some(
            r#"{"type":"object","required":["requestId","answer"],"properties":{
                "requestId":{"type":"string","maxLength":256},
                "answer":{"description":"One of the options, if there are any, or what fits the schema"}}}"#,
        ),
        output: REQUEST,
        ..CHANGE
    },
];

// Input.

// Each operation reads its own input; what they share is in `agent/stored.rs`.

// Output.

// Each operation builds its own output.

// Execution.

impl Adapter for Agents {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn description(&self) -> &'static str {
        "Creates, changes and runs persistent agents."
    }

    fn frees_storage(&self, name: &str) -> bool {
        matches!(name, "delete" | "delete-session")
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    /// An answer may have to fit a schema, which is compiled for it.
    fn needs_compute_thread(&self, name: &str) -> bool {
        matches!(name, "ask" | "answer")
    }

    fn is_refusal(&self, failure: &Failure) -> bool {
        REFUSALS.contains(&failure.code.as_str())
    }

    fn roots(&self, call: &Call) -> Result<Vec<RootId>, Failure> {
        let fields = Fields::from_value(&call.input)?;
        let mut roots = vec![RootId::agent_controls()];
        let id = match call.operation.name() {
            "list" | "requests" | "complete-task" | "fail-task" => None,
            "answer" => ask::agent_of(&fields.text("requestId")?)?.map(str::to_owned),
            _ => Some(agent_id(&fields, "agentId")?),
        };
        if matches!(call.operation.name(), "answer" | "requests") {
            roots.push(RootId::requests());
        }
        if let Some(id) = id {
            roots.extend(agent_roots(&id));
        }
        if call.operation.name() == "fork" {
            roots.extend(agent_roots(&agent_id(&fields, "sourceId")?));
        }
        Ok(roots)
    }

    fn prepare(&self, call: &Call) -> Option<HostReply<Value, Failure>> {
        config::resolve_references(call)
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        if call.operation.has_secrets() && call.operation.name() != "message" {
            let text = "what an agent receives is stored, so it cannot have `writeOnly` members";
            return Err(Failure::new("unsupported", text));
        }
        match call.operation.name() {
            "create" => change::create(call, &self.policy, roots),
            "message" => change::message(call, &self.policy, roots),
            "update" => change::update(call, &self.policy, roots),
            "suspend" => lifecycle::suspend(call, &self.policy, roots),
            "resume" => lifecycle::resume(call, &self.policy, roots),
            "delete" => lifecycle::delete(call, &self.policy, roots),
            "fork" => change::fork(call, &self.policy, roots),
            "wake" => wake::wake(call, &self.policy, roots),
            "cancel-task" => lifecycle::cancel_task(call, roots),
            "rename-session" => session::rename(call, &self.policy, roots),
            "info" => query::info(call, roots),
            "query" => query::query(call, roots),
            "list" => query::list(call, roots),
            "sessions" => session::list(call, roots),
            "session-read" => conversation::read(call, roots),
            "compact-session" => conversation::compact(call, &self.policy, roots),
            "reload-context" => conversation::reload(call, roots),
            "delete-session" => conversation::delete(call, &self.policy, roots),
            "context" => conversation::context(call, roots),
            "ask" => ask::ask(call, &self.policy, roots),
            "requests" => ask::list(call, roots),
            "answer" => ask::answer(call, &self.policy, roots),
            "complete-task" | "fail-task" => Err(no_task()),
            _ => Err(nested::unsupported_operation(call)),
        }
    }

    fn binding(&self, operation: &str, input: &Value) -> Option<String> {
        run::binding(operation, input)
    }

    fn bound_roots(&self, name: &str) -> Vec<RootId> {
        agent_roots(name)
    }

    fn start_bound(
        &self,
        job: BoundJob<'_>,
        operation: &Operation,
        input: &Value,
        roots: &mut Roots,
    ) -> Result<BoundStart, Failure> {
        run::start(job, operation.name(), input, &self.policy, roots)
    }

    fn end_bound(
        &self,
        job: BoundJob<'_>,
        end: &BoundEnd<'_>,
        roots: &mut Roots,
    ) -> Result<(), Failure> {
        run::end(job, end, &self.policy, roots)
    }

    fn resumes_bound(&self, job: BoundJob<'_>, roots: &Roots) -> bool {
        attach::resumes(job.name, roots)
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            match call.operation.name() {
                "attach" => attach::turn(&call).await,
                _ => Turn::from(run::turn(&call).await),
            }
        })
    }
}

fn no_task() -> Failure {
    let text = "there is no task: only the model of an agent can end its turn, as a tool call";
    Failure::new("no_task", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_executed_as_their_definitions_say() {
        for definition in OPERATIONS {
            let input = crate::fields::value(r#"{"agentId":"a"}"#);
            let is_run = definition.name == "attach"
                || Agents::new(AgentPolicy::default()).binding(definition.name, &input).is_some();
            assert_eq!(definition.mode == ExecutionMode::Task, is_run, "{}", definition.name);
        }
    }
}
