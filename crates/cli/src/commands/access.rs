//! `catena access`: who may use a venue.
//!
//! Works on the data folder, whether the venue is running or not. A running venue applies a change
//! within a few seconds, and ends the event streams and the schedules of an identity that it concerns.

use std::path::{Path, PathBuf};

use catena_server::config::{Config, Flags};
use catena_server::key;
use catena_server::lists::{self, List};
use catena_store::embedded::permissions::{self, Sharing};
use catena_value::{Map, Value, Vector};

use crate::exit::Exit;
use crate::format::table;
use crate::output::{Failure, Output};

/// List, add, remove and block the identities that may use a venue.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// The venue's data folder [env: CATENA_DATA] [default: catena-data]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Read settings from this file [default: catena.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Put an identity on the access list, which counts with access = "listed".
    Add {
        /// Its DID.
        #[arg(value_name = "DID")]
        did: String,
    },
    /// Take an identity off the access list.
    Rm {
        /// Its DID.
        #[arg(value_name = "DID")]
        did: String,
    },
    /// List the identities that are on the access list or blocked.
    Ls,
    /// Refuse an identity, whatever the access setting is, and end its streams and schedules.
    Block {
        /// Its DID.
        #[arg(value_name = "DID")]
        did: String,
    },
    /// Accept a blocked identity again.
    Unblock {
        /// Its DID.
        #[arg(value_name = "DID")]
        did: String,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    permissions::restrict_new_files(Sharing::Owner);
    let data = args.data.as_ref().map(|data| data.display().to_string());
    let flags = Flags { data, ..Flags::default() };
    let config = Config::load(&flags, args.config.as_deref()).map_err(|error| failed(&error))?;
    let data = config.data.as_path();
    if !matches!(key::load(data), Ok(Some(_))) {
        let message = format!("there is no venue in {}", data.display());
        return Err(Failure::new(Exit::NotFound, "no_venue", message).hint(
            "Pass its data folder with --data. A venue creates its key when it is first started.",
        ));
    }
    let (list, did, is_added) = match &args.command {
        Command::Ls => return show(&config, output),
        Command::Add { did } => (List::Members, did, true),
        Command::Rm { did } => (List::Members, did, false),
        Command::Block { did } => (List::Blocked, did, true),
        Command::Unblock { did } => (List::Blocked, did, false),
    };
    change(data, list, did, is_added, output)
}

fn change(
    data: &Path,
    list: List,
    did: &str,
    is_added: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    if !did.starts_with("did:") {
        let message = format!("{did:?} is not a DID");
        return Err(Failure::new(Exit::Invalid, "invalid_did", message));
    }
    let changed =
        if is_added { lists::add(data, list, did) } else { lists::remove(data, list, did) };
    let is_changed = changed.map_err(|error| failed(&error))?;
    if !is_changed && !is_added {
        let message = format!("{did} is not on the list");
        return Err(Failure::new(Exit::NotFound, "not_on_list", message)
            .hint("`catena access ls` shows the lists."));
    }
    if output.is_json() {
        let members = [("did", Value::from(did)), ("changed", is_changed.into())];
        output.value(&members.into_iter().collect::<Map>().into());
    } else {
        let what = match (list, is_added) {
            (List::Blocked, true) => "blocked",
            (List::Blocked, false) => "unblocked",
            (_, true) => "added",
            (_, false) => "removed",
        };
        let note = if is_changed { "" } else { " (it already was)" };
        output.note(&format!("{what} {did}{note}"));
    }
    Ok(())
}

fn show(config: &Config, output: &mut Output) -> Result<(), Failure> {
    let data = config.data.as_path();
    let read = |list| lists::read(data, list).map_err(|error| failed(&error));
    let from_list = read(List::Members)?.into_iter().map(|did| (did, "listed"));
    let configured = config.members.iter().map(|did| (did.clone(), "configured"));
    let admins = config.admins.iter().map(|did| (did.clone(), "admin"));
    let blocked = read(List::Blocked)?.into_iter().map(|did| (did, "blocked"));
    let all: Vec<(String, &str)> =
        admins.chain(configured).chain(from_list).chain(blocked).collect();
    if output.is_json() {
        let entry = |(did, state): &(String, &str)| -> Value {
            let members = [("did", Value::from(did.as_str())), ("state", (*state).into())];
            members.into_iter().collect::<Map>().into()
        };
        output.value(&all.iter().map(entry).collect::<Vector>().into());
        return Ok(());
    }
    let heads = vec!["STATE".to_owned(), "DID".to_owned()];
    let rows = all.into_iter().map(|(did, state)| vec![state.to_owned(), did]);
    let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

fn failed(error: &dyn std::error::Error) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(Exit::Invalid, "access_failed", format!("{error}{cause}"))
}
