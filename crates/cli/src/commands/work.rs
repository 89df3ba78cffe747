//! `catena work`: runs a command for every job of a queue.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use catena_api::client::worker::{End, Retry, WorkerSignal};
use catena_api::worker::{Handler, RunningJob, Worker};
use catena_value::{Map, Value, json};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, Command};

use crate::exit::Exit;
use crate::limits::{WORK_ERROR_BYTES_MAX, WORK_OUTPUT_BYTES_MAX, WORK_PARALLEL_MAX};
use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};
use crate::watch::seconds;

/// How long a command may take to end after SIGTERM.
const TERMINATION: Duration = Duration::from_secs(5);

/// Run a command for every job of a queue.
///
/// The command gets the job's input as JSON on its standard input. Its standard output is the job's
/// output: JSON, or else the text as it is. Its standard error is the log. If it ends with another code
/// than 0, the attempt has failed. The environment has CATENA_JOB, CATENA_ATTEMPT,
/// CATENA_IDEMPOTENCY_KEY and, for each secret that the operation declares, CATENA_SECRET_NAME. A pause
/// stops the command (SIGSTOP) until the job is resumed (SIGCONT); a cancel ends it (SIGTERM).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The queue.
    #[arg(value_name = "QUEUE")]
    queue: String,

    /// The command and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<String>,

    /// How many jobs to run at a time.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=WORK_PARALLEL_MAX))]
    parallel: u64,

    /// Register an operation under this name whose jobs go to the queue: `o/NAME`.
    #[arg(long, value_name = "NAME")]
    define: Option<String>,

    /// How long running commands may take when this process is to stop; then their jobs are given back.
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "60")]
    grace: Duration,

    #[command(flatten)]
    venue: VenueArgs,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let client = args.venue.client()?;
    block_on(async {
        if let Some(name) = &args.define {
            client.put_operation(name, &definition(name, &args.queue), None).await?;
            output.note(&format!("defined o/{name}: its jobs go to the queue {}", args.queue));
        }
        let worker = Worker {
            client,
            name: worker_name()?,
            queues: vec![args.queue.clone()],
            parallel: usize::try_from(args.parallel).unwrap_or(usize::MAX),
            grace: args.grace,
            about: None,
        };
        output.note(&format!("worker {} waits for jobs of {}", worker.name, args.queue));
        let handler = CommandHandler { command: args.command.clone().into() };
        Ok(worker.run(handler, shutdown()).await?)
    })
}

/// The definition of an operation whose jobs go to a queue.
fn definition(name: &str, queue: &str) -> Value {
    let operation = [("adapter", "worker"), ("queue", queue)].into_iter().collect::<Map>();
    [("name", Value::from(name)), ("operation", operation.into())]
        .into_iter()
        .collect::<Map>()
        .into()
}

/// A name that no other worker has.
fn worker_name() -> Result<String, Failure> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::new(Exit::Unreachable, "no_randomness", error.to_string()))?;
    Ok(format!("work-{}-{:016x}", std::process::id(), u64::from_be_bytes(random)))
}

/// Completes when the process is to stop.
async fn shutdown() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

/// Runs a command for each job.
struct CommandHandler {
    command: Arc<[String]>,
}

impl Handler for CommandHandler {
    async fn run(&self, job: RunningJob) -> End {
        match self.run_command(&job).await {
            Ok(end) => end,
            Err(error) => failed(format!("cannot run the command: {error}"), "command_failed"),
        }
    }
}

impl CommandHandler {
    async fn run_command(&self, job: &RunningJob) -> std::io::Result<End> {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .env("CATENA_JOB", &job.job.id)
            .env("CATENA_ATTEMPT", job.job.attempt.to_string())
            .env("CATENA_IDEMPOTENCY_KEY", &job.job.id)
            .envs(job.job.secrets().into_iter().map(|(name, value)| (variable(&name), value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = json::to_string(&job.job.input).unwrap_or_default();
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input closes it.
            tokio::spawn(async move {
                let _ = stdin.write_all(input.as_bytes()).await;
            });
        }
        let stdout = tokio::spawn(read_output(child.stdout.take()));
        let stderr = tokio::spawn(read_log(child.stderr.take(), job.clone()));
        let status = follow(&mut child, job).await?;
        let output = stdout.await.unwrap_or_default();
        let log = stderr.await.unwrap_or_default();
        Ok(end_of(status, output, &log))
    }
}

/// The environment variable with a secret. The prefix keeps names such as `PATH` from having an effect.
fn variable(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("CATENA_SECRET_{}", name.chars().map(plain).collect::<String>())
}

/// Waits for the end of a command, and passes on what the venue wants of its job.
async fn follow(child: &mut Child, job: &RunningJob) -> std::io::Result<ExitStatus> {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let send = |signal: Signal| {
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
    };
    let mut signal = job.signal.clone();
    loop {
        tokio::select! {
            status = child.wait() => return status,
            Ok(()) = signal.changed() => {
                let wanted = *signal.borrow_and_update();
                match wanted {
                    WorkerSignal::Pause => send(Signal::STOP),
                    WorkerSignal::Go => send(Signal::CONT),
                    WorkerSignal::Stop => {
                        send(Signal::TERM);
                        // A stopped process acts on a signal only when it continues.
                        send(Signal::CONT);
                        break;
                    }
                }
            }
        }
    }
    match tokio::time::timeout(TERMINATION, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            send(Signal::KILL);
            child.wait().await
        }
    }
}

/// Reads the output of a command. `None` if it is too long.
async fn read_output(stdout: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut stdout = stdout?;
    let mut output = Vec::new();
    let most = WORK_OUTPUT_BYTES_MAX as u64;
    (&mut stdout).take(most + 1).read_to_end(&mut output).await.ok()?;
    if output.len() > WORK_OUTPUT_BYTES_MAX {
        // The rest is read, so that the command does not wait for it.
        let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        return None;
    }
    Some(output)
}

/// Shows the log of a command, reports it to the venue, and returns its end.
async fn read_log(stderr: Option<impl AsyncRead + Unpin>, job: RunningJob) -> String {
    let Some(stderr) = stderr else { return String::new() };
    let mut lines = BufReader::new(stderr);
    let mut tail: Vec<u8> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read =
            (&mut lines).take(WORK_ERROR_BYTES_MAX as u64).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(count) if count > 0) {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        crate::output::log_line(&format!("{} {}", job.job.id, text.trim_end()));
        job.log(&text);
        tail.extend_from_slice(&line);
        if tail.len() > WORK_ERROR_BYTES_MAX {
            tail.drain(..tail.len() - WORK_ERROR_BYTES_MAX);
        }
    }
    String::from_utf8_lossy(&tail).trim().to_owned()
}

fn end_of(status: ExitStatus, output: Option<Vec<u8>>, log: &str) -> End {
    if !status.success() {
        let text =
            if log.is_empty() { format!("the command ended with {status}") } else { log.into() };
        let code = status.code().map_or_else(|| "killed".to_owned(), |code| format!("exit_{code}"));
        return failed(text, &code);
    }
    let Some(output) = output else {
        let text = format!("the output is longer than {WORK_OUTPUT_BYTES_MAX} bytes");
        return failed(text, "output_too_large");
    };
    let text = String::from_utf8_lossy(&output);
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return End::Output(Value::Nil);
    }
    End::Output(json::read(text.as_bytes()).unwrap_or_else(|_| text.into()))
}

fn failed(error: String, code: &str) -> End {
    End::Error { error, code: Some(code.to_owned()), retry: Retry::May }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn end(code: i32, output: &str, log: &str) -> String {
        let status = ExitStatus::from_raw(code << 8);
        match end_of(status, Some(output.as_bytes().to_vec()), log) {
            End::Output(output) => json::to_string(&output).unwrap(),
            End::Error { error, code, .. } => format!("{}: {error}", code.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn standard_output_is_the_output() {
        assert_eq!(end(0, "{\"a\":1}\n", "some log"), "{\"a\":1}");
        assert_eq!(end(0, "plain text\n", ""), "\"plain text\"");
        assert_eq!(end(0, "\n", ""), "null");
    }

    #[test]
    fn another_exit_code_than_0_is_a_failure() {
        assert_eq!(end(3, "", "no route\n"), "exit_3: no route\n");
        assert_eq!(end(1, "", ""), "exit_1: the command ended with exit status: 1");
    }
}
