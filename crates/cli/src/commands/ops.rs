//! `catena ops`: the operations of a venue.

use std::path::PathBuf;

use catena_api::HttpClient;
use catena_api::wire::{member, text};
use catena_value::{Map, Value, Vector};

use crate::exit::Exit;
use crate::format::{table, text_of};
use crate::input::Input;
use crate::output::{Failure, Output, printable};
use crate::venue::{VenueArgs, block_on};

/// List, show and register operations.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    venue: VenueArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List operations.
    Ls {
        /// Only operations whose reference or path starts with this, such as http: or v/ops/http.
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
    },
    /// Print an operation: its description, input and output.
    Show {
        /// The operation: adapter:name, a path such as v/ops/…, or an asset ID.
        #[arg(value_name = "REF")]
        reference: String,
    },
    /// Register an asset, such as an operation, and print its ID.
    Add {
        /// A file with its metadata, or - for standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let client = args.venue.client()?;
    block_on(async {
        match &args.command {
            Command::Ls { prefix } => list(prefix.as_deref(), &client, output).await,
            Command::Show { reference } => show(reference, &client, output).await,
            Command::Add { file } => add(Input::open(file)?, &client, output).await,
        }
    })
}

async fn list(
    prefix: Option<&str>,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let prefix = prefix.unwrap_or_default();
    let has_prefix = |operation: &Value| {
        ["name", "adapter"].iter().any(|name| text_of(operation, name).starts_with(prefix))
    };
    let operations: Vec<Value> =
        client.operations().await?.into_iter().filter(has_prefix).collect();
    if output.is_json() {
        output.value(&Value::from(Vector::from_items(operations)));
        return Ok(());
    }
    let heads = ["OPERATION", "PATH", "WHAT IT DOES"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(operations.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

fn row(operation: &Value) -> Vec<String> {
    let description = text_of(operation, "description");
    let first = description.split_once(". ").map_or(description.as_str(), |(first, _)| first);
    let first = first.trim_end_matches('.').to_owned();
    vec![text_of(operation, "adapter"), text_of(operation, "name"), first]
}

async fn show(reference: &str, client: &HttpClient, output: &mut Output) -> Result<(), Failure> {
    let operation = client.operation(reference).await?;
    if output.is_json() {
        output.value(&operation);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = ["name", "adapter", "asset", "description"]
        .into_iter()
        .filter_map(|name| Some(vec![format!("{name}:"), text(member(&operation, name)?)?]))
        .collect();
    table(&rows).iter().for_each(|line| output.line(line));
    for side in ["input", "output"] {
        if let Some(schema) = member(&operation, side) {
            output.line(&format!("{side}: {}", printable(&crate::pretty::pretty(schema))));
        }
    }
    Ok(())
}

async fn add(input: Input, client: &HttpClient, output: &mut Output) -> Result<(), Failure> {
    let (metadata, text) = input.document_and_text()?;
    let registered = client.register(text.into()).await?;
    let id = metadata.id().to_string();
    if registered.trim_start_matches("0x") != id.trim_start_matches("0x") {
        let message =
            format!("the venue returned the ID {registered}, but the ID of this metadata is {id}");
        return Err(Failure::new(Exit::VerificationFailed, "wrong_id", message));
    }
    if output.is_json() {
        output.value(&[("id", id.as_str())].into_iter().collect::<Map>().into());
    } else {
        output.line(&id);
    }
    Ok(())
}
