//! `catena secrets`: the caller's secrets, and the key that encrypts all of them.
//!
//! A value is read from a prompt or from standard input, never from an argument, which other users of the
//! machine can see and which the shell remembers.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use catena_api::wire::member;
use catena_engine::offline::Offline;
use catena_engine::runtime::SystemEnv;
use catena_server::config::{Config, Flags};
use catena_server::key;
use catena_store::embedded::permissions::{self, Sharing};
use catena_value::{Map, NoCells, Value, Vector};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::commands::store::{folder_failure, open};
use crate::exit::Exit;
use crate::limits::SECRET_BYTES_MAX;
use crate::output::{Failure, Output};
use crate::venue::{VenueArgs, block_on};

/// Store, list and remove secrets, and change the key that encrypts them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    venue: VenueArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Store a secret. The value is asked for, or read from standard input.
    Set {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,

        /// A host to which it may be sent, such as api.example; repeatable.
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// List the names of secrets.
    Ls,
    /// Remove a secret.
    Rm {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Let a definition that somebody else registered use a secret.
    Grant {
        /// The name of the secret.
        #[arg(value_name = "NAME")]
        name: String,

        /// The asset ID of the definition.
        #[arg(value_name = "ID")]
        operation: String,

        /// Take the grant back.
        #[arg(long)]
        revoke: bool,
    },
    /// Encrypt all secrets of a stopped venue with a new key, and remove the old one.
    Rotate(RotateArgs),
}

#[derive(clap::Args)]
struct RotateArgs {
    /// The venue's data folder [env: CATENA_DATA] [default: catena-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Read settings from this file [default: catena.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    if let Command::Rotate(rotate_args) = &args.command {
        return rotate(rotate_args, output);
    }
    let (operation, input) = match &args.command {
        Command::Set { name, hosts } => ("secret:set", new_secret(name, hosts)?),
        Command::Rm { name } => ("secret:delete", object(vec![("name", name.as_str().into())])),
        Command::Grant { name, operation, revoke } => {
            let members = vec![
                ("name", name.as_str().into()),
                ("operation", operation.as_str().into()),
                ("revoke", (*revoke).into()),
            ];
            ("secret:grant", object(members))
        }
        Command::Ls | Command::Rotate(_) => ("secret:list", object(Vec::new())),
    };
    let client = args.venue.client()?;
    let answer = block_on(async { Ok(client.run(operation, input).await?) })?;
    print(&args.command, &answer, output)
}

fn print(command: &Command, answer: &Value, output: &mut Output) -> Result<(), Failure> {
    if let Command::Rm { name } = command
        && member(answer, "deleted") != Some(&Value::Bool(true))
    {
        let message = format!("there is no secret {name}");
        let hint = "`catena secrets ls` lists your secrets.";
        return Err(Failure::new(Exit::NotFound, "secret_not_found", message).hint(hint));
    }
    if output.is_json() {
        output.value(answer);
        return Ok(());
    }
    match command {
        Command::Set { name, .. } => output.line(&format!("{name}  stored")),
        Command::Rm { name } => output.line(&format!("{name}  deleted")),
        Command::Grant { name, revoke, .. } => {
            let done = if *revoke { "grant revoked" } else { "granted" };
            output.line(&format!("{name}  {done}"));
        }
        Command::Ls | Command::Rotate(_) => {
            let names = member(answer, "items").and_then(Value::as_vector).cloned();
            for name in names.unwrap_or_default().iter(&NoCells).flatten() {
                output.line(name.as_str().unwrap_or_default());
            }
        }
    }
    Ok(())
}

fn object(members: Vec<(&str, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}

fn new_secret(name: &str, hosts: &[String]) -> Result<Value, Failure> {
    let value = read_value(name)
        .map_err(|error| Failure::new(Exit::Invalid, "input", format!("no value: {error}")))?;
    if value.is_empty() {
        return Err(Failure::new(Exit::Invalid, "input", "the value is empty".to_owned()));
    }
    let mut members = vec![("name", Value::from(name)), ("value", value.into())];
    if !hosts.is_empty() {
        let hosts = hosts.iter().map(|host| Value::from(host.as_str()));
        members.push(("hosts", hosts.collect::<Vector>().into()));
    }
    Ok(object(members))
}

/// Reads a value: from a prompt that does not show it, or everything on standard input without the last
/// line break.
fn read_value(name: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let mut value = String::new();
    if stdin.is_terminal() {
        let mut terminal = io::stderr();
        write!(terminal, "Value of {name}: ")?;
        terminal.flush()?;
        let read = without_echo(|| stdin.lock().take(SECRET_BYTES_MAX).read_line(&mut value));
        writeln!(terminal)?;
        read?;
    } else {
        stdin.lock().take(SECRET_BYTES_MAX).read_to_string(&mut value)?;
    }
    let trimmed = value.strip_suffix('\n').unwrap_or(&value);
    Ok(trimmed.strip_suffix('\r').unwrap_or(trimmed).to_owned())
}

/// Reads from the terminal while it does not show what is typed.
fn without_echo<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let stdin = io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let result = read();
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    result
}

/// Encrypts everything with a new key. If it is interrupted, both keys are there, and the next rotation or
/// start of the venue continues.
fn rotate(args: &RotateArgs, output: &mut Output) -> Result<(), Failure> {
    permissions::restrict_new_files(Sharing::Owner);
    let data = args.data.as_ref().map(|data| data.display().to_string());
    let flags = Flags { data, ..Flags::default() };
    let config = Config::load(&flags, args.config.as_deref())
        .map_err(|error| Failure::new(Exit::Invalid, "config_invalid", error.to_string()))?;
    let data = config.data.as_path();
    let folder = open(data)?;
    let key_failure = |error: key::KeyError| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        let message = format!("{error}{}", source.unwrap_or_default());
        Failure::new(Exit::Invalid, "key_invalid", message)
    };
    let identity = key::load_or_create(data).map_err(key_failure)?;
    let file = key::secrets_file(data, config.key_file.as_deref());
    let keys = key::begin_rotation(&file).map_err(key_failure)?;
    let previous = keys.previous.unwrap_or(keys.current);
    let secrets = block_on(async {
        let env = Arc::new(SystemEnv::new());
        let offline =
            Offline::with_keys(folder.store.clone(), env, &identity, keys.current, previous);
        offline.reseal().await.map_err(|error| folder_failure(&error))
    })?;
    key::finish_rotation(&file).map_err(key_failure)?;
    if output.is_json() {
        let count = i64::try_from(secrets).unwrap_or(i64::MAX);
        output.value(&object(vec![("rotated", true.into()), ("secrets", count.into())]));
    } else {
        output.line("rotated");
        output.note(&format!("encrypted {secrets} secrets with a new key; the old one is gone"));
    }
    Ok(())
}
