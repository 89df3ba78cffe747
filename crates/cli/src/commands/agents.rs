//! `catena agents`: lists, shows, runs and controls the agents of a venue.

use catena_api::HttpClient;
use catena_api::client::jobs::Invocation;
use catena_api::limits::WAIT_MAX;
use catena_api::wire::{JobOutcome, member};
use catena_value::{Map, NoCells, Value};

use crate::exit::Exit;
use crate::format::{id_of, reason_of, status_of, table, text_of};
use crate::input::Input;
use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};

/// List, show, run and control agents.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    venue: VenueArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List agents.
    Ls {
        /// Also list agents that have ended.
        #[arg(long)]
        all: bool,
    },
    /// Show an agent.
    Get(Agent),
    /// Deliver a message, which waits for the next run.
    Send(Message),
    /// Run an agent and print the result of its turn.
    Run {
        #[command(flatten)]
        agent: Agent,

        /// The transition, if it is not the agent's own.
        #[arg(long, value_name = "OP")]
        operation: Option<String>,
    },
    /// Deliver a message, run the agent, and print its response.
    Chat {
        #[command(flatten)]
        message: Message,

        /// The session to continue.
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Suspend an agent and cancel its run.
    Suspend(Agent),
    /// Resume a suspended agent.
    Resume {
        #[command(flatten)]
        agent: Agent,

        /// Also if too many turns have failed in a row.
        #[arg(long)]
        force: bool,
    },
    /// Run an agent at a time, or now.
    Wake {
        #[command(flatten)]
        agent: Agent,

        /// The time, such as 2026-01-31T09:00:00Z.
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
    },
    /// List the questions of agents and jobs that wait for an answer.
    Requests {
        /// Also list those that were answered or closed.
        #[arg(long)]
        all: bool,
    },
    /// Answer a question of an agent or a job.
    Answer {
        /// The ID of the request.
        #[arg(value_name = "REQUEST")]
        request: String,

        /// The answer: JSON, a text, @FILE, or - for standard input.
        #[arg(value_name = "ANSWER", allow_hyphen_values = true)]
        answer: String,
    },
    /// Terminate an agent.
    Rm {
        #[command(flatten)]
        agent: Agent,

        /// Delete its record as well.
        #[arg(long)]
        remove: bool,
    },
}

#[derive(clap::Args)]
struct Agent {
    /// The agent's ID.
    #[arg(value_name = "AGENT")]
    id: String,
}

#[derive(clap::Args)]
struct Message {
    #[command(flatten)]
    agent: Agent,

    /// The message: JSON, a text, @FILE, or - for standard input.
    #[arg(value_name = "MESSAGE", allow_hyphen_values = true)]
    message: String,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let client = args.venue.client()?;
    block_on(async {
        match &args.command {
            Command::Ls { all } => ls(*all, &client, output).await,
            Command::Get(agent) => {
                let info = operate(&client, "agent:info", input(agent, [])).await?;
                output.value(&info);
                Ok(())
            }
            Command::Send(message) => {
                let content = content(message)?;
                let sent = input(&message.agent, [("message", content)]);
                let sent = operate(&client, "agent:message", sent).await?;
                print(&sent, "messageId", output)
            }
            Command::Run { agent, operation } => {
                let operation = operation.as_deref().map_or(Value::Nil, Value::from);
                let ran =
                    operate(&client, "agent:run", input(agent, [("operation", operation)])).await?;
                print_part(&ran, "result", output)
            }
            Command::Chat { message, session } => chat(message, session, &client, output).await,
            Command::Suspend(agent) => {
                let changed = operate(&client, "agent:suspend", input(agent, [])).await?;
                print(&changed, "status", output)
            }
            Command::Resume { agent, force } => {
                let request = input(agent, [("force", (*force).into())]);
                print(&operate(&client, "agent:resume", request).await?, "status", output)
            }
            Command::Wake { agent, at } => {
                let mut request = vec![("agentId", Value::from(agent.id.as_str()))];
                request.extend(at.as_deref().map(|at| ("at", at.into())));
                let request: Map = request.into_iter().collect();
                print(&operate(&client, "agent:wake", request.into()).await?, "status", output)
            }
            Command::Requests { all } => requests(*all, &client, output).await,
            Command::Answer { request, answer } => {
                let answer = Input::from_argument(answer, "the answer")?.document_or_text()?;
                let request = [("requestId", Value::from(request.as_str())), ("answer", answer)];
                let request: Map = request.into_iter().collect();
                print(&operate(&client, "agent:answer", request.into()).await?, "status", output)
            }
            Command::Rm { agent, remove } => {
                let request = input(agent, [("remove", (*remove).into())]);
                print(&operate(&client, "agent:delete", request).await?, "status", output)
            }
        }
    })
}

/// Runs an operation and returns its output.
async fn operate(client: &HttpClient, operation: &str, input: Value) -> Result<Value, Failure> {
    let invocation = Invocation {
        operation: operation.to_owned(),
        input: Some(input),
        wait: Some(WAIT_MAX),
        ..Invocation::default()
    };
    let job = client.invoke(&invocation).await?;
    let status = status_of(&job);
    let outcome = JobOutcome::from_status(&status);
    if outcome == JobOutcome::Done {
        return Ok(member(&job, "output").cloned().unwrap_or_default());
    }
    let id = id_of(&job);
    let reason = reason_of(&job).map(|reason| format!(": {reason}")).unwrap_or_default();
    let exit = match text_of(&job, "errorCode").as_str() {
        "agent_not_found" | "request_not_found" => Exit::NotFound,
        _ => Exit::from_outcome(outcome).unwrap_or(Exit::Timeout),
    };
    Err(Failure::new(exit, "job_failed", format!("job {id} is {status}{reason}")))
}

/// Returns the input of an operation on an agent.
fn input<const N: usize>(agent: &Agent, more: [(&str, Value); N]) -> Value {
    let id = ("agentId", Value::from(agent.id.as_str()));
    std::iter::once(id).chain(more).collect::<Map>().into()
}

fn content(message: &Message) -> Result<Value, Failure> {
    Input::from_argument(&message.message, "the message")?.document_or_text()
}

/// Prints a member of the result.
fn print(result: &Value, name: &str, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        output.value(result);
    } else {
        output.line(&text_of(result, name));
    }
    Ok(())
}

/// Prints a member of the result that can be any value.
fn print_part(result: &Value, name: &str, output: &mut Output) -> Result<(), Failure> {
    let part = member(result, name).unwrap_or(&Value::Nil);
    output.value(if output.is_json() { result } else { part });
    Ok(())
}

async fn chat(
    message: &Message,
    session: &Option<String>,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let session = session.as_deref().map_or(Value::Nil, Value::from);
    let request = [("message", content(message)?), ("sessionId", session)];
    let answer = operate(client, "agent:chat", input(&message.agent, request)).await?;
    output.note(&format!("session {}", text_of(&answer, "sessionId")));
    print_part(&answer, "response", output)
}

async fn ls(all: bool, client: &HttpClient, output: &mut Output) -> Result<(), Failure> {
    let request: Map = [("includeTerminated", all)].into_iter().collect();
    let list = operate(client, "agent:list", request.into()).await?;
    if output.is_json() {
        output.value(&list);
        return Ok(());
    }
    let agents = member(&list, "agents").and_then(Value::as_vector);
    let mut rows = Vec::new();
    for agent in agents.into_iter().flat_map(|agents| agents.iter(&NoCells)).flatten() {
        let tasks = member(&agent, "tasks").and_then(Value::as_i64).unwrap_or(0);
        let row = [text_of(&agent, "agentId"), text_of(&agent, "status"), tasks.to_string()];
        let error = text_of(&agent, "error");
        rows.push(row.into_iter().chain([error]).collect::<Vec<String>>());
    }
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

async fn requests(all: bool, client: &HttpClient, output: &mut Output) -> Result<(), Failure> {
    let request: Map = [("all", all)].into_iter().collect();
    let list = operate(client, "agent:requests", request.into()).await?;
    if output.is_json() {
        output.value(&list);
        return Ok(());
    }
    let requests = member(&list, "requests").and_then(Value::as_vector);
    let mut rows = Vec::new();
    for request in requests.into_iter().flat_map(|requests| requests.iter(&NoCells)).flatten() {
        let question = member(&request, "question").cloned().unwrap_or_default();
        let question = match question.to_text() {
            Some(text) => text.into_owned(),
            None => catena_value::json::to_string(&question).unwrap_or_default(),
        };
        rows.push(vec![text_of(&request, "id"), text_of(&request, "status"), question]);
    }
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}
