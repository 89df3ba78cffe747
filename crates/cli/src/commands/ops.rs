//! `catena ops`: the operations of a venue.

use std::path::PathBuf;

use catena_api::HttpClient;
use catena_api::wire::{member, text};
use catena_value::{Map, NoCells, Value, Vector};

use crate::exit::Exit;
use crate::format::{table, text_of, time_of};
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

        /// Print only the path of each operation, by which it can be invoked.
        #[arg(long)]
        names: bool,
    },
    /// Print an operation: its description, input and output.
    Show {
        /// The operation: adapter:name, a path such as v/ops/…, or an asset ID.
        #[arg(value_name = "REF")]
        reference: String,
    },
    /// Register an asset, such as an operation, and print its ID.
    ///
    /// With a name, the operation becomes the newest version of `o/NAME`.
    Add {
        /// A name, if it is to have one, and a file with its metadata, or - for standard input.
        #[arg(value_names = ["NAME", "FILE"], num_args = 1..=2, required = true)]
        name_and_file: Vec<PathBuf>,

        /// Let others use the name: `everyone`, `nobody`, or DIDs separated by commas. Their jobs go to
        /// your workers.
        #[arg(long, value_name = "WHO")]
        share: Option<String>,
    },
    /// Remove a name. Its versions stay available by their IDs.
    Rm {
        /// The name, with or without `o/`.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let client = args.venue.client()?;
    block_on(async {
        match &args.command {
            Command::Ls { prefix, names } => list(prefix.as_deref(), *names, &client, output).await,
            Command::Show { reference } => show(reference, &client, output).await,
            Command::Add { name_and_file, share } => {
                let share = share.as_deref();
                match &name_and_file[..] {
                    [file] if share.is_none() => add(Input::open(file)?, &client, output).await,
                    [name, file] => {
                        let input = Input::open(file)?;
                        add_named(&name.to_string_lossy(), input, share, &client, output).await
                    }
                    _ => {
                        let message = "`--share` needs a name";
                        Err(Failure::new(Exit::Invalid, "usage", message.to_owned()))
                    }
                }
            }
            Command::Rm { name } => remove(name, &client, output).await,
        }
    })
}

async fn list(
    prefix: Option<&str>,
    names_only: bool,
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
    if names_only {
        operations.iter().for_each(|operation| output.line(&text_of(operation, "name")));
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
    let versions = member(&operation, "versions").and_then(Value::as_vector);
    for version in versions.iter().flat_map(|versions| versions.iter(&NoCells)).flatten() {
        let number = member(&version, "version").and_then(Value::as_i64).unwrap_or(0);
        let created = time_of(&version, "created");
        output.line(&format!("version {number}: {} {created}", text_of(&version, "id")));
    }
    if let Some(shared) = member(&operation, "shared") {
        let with = crate::pretty::pretty(shared);
        output.line(&format!("shared with: {}", printable(&with)));
        output.line("Jobs that others invoke by this name, and their input, go to your workers.");
    }
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

async fn add_named(
    name: &str,
    input: Input,
    share: Option<&str>,
    client: &HttpClient,
    output: &mut Output,
) -> Result<(), Failure> {
    let (metadata, _) = input.document_and_text()?;
    let named = client.put_operation(name, &metadata, share).await?;
    if output.is_json() {
        output.value(&named);
        return Ok(());
    }
    let version = member(&named, "version").and_then(Value::as_i64).unwrap_or(1);
    output.line(&format!("{}@{version}", text_of(&named, "name")));
    output.note(&format!("asset {}", text_of(&named, "id")));
    Ok(())
}

async fn remove(name: &str, client: &HttpClient, output: &mut Output) -> Result<(), Failure> {
    let removed = client.remove_operation(name).await?;
    if output.is_json() {
        output.value(&removed);
    } else {
        output.line(&text_of(&removed, "name"));
    }
    Ok(())
}
