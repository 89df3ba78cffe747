//! `catena id`: Value IDs of JSON documents.

use std::path::PathBuf;

use catena_value::{Map, Value, json};

use crate::input::Input;
use crate::output::{Failure, Output};

/// Print the Value ID of a JSON document.
///
/// The ID depends only on the value: white space, member order and character escapes do not matter,
/// but 1 and 1.0 are different values.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A JSON file, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Read one document per line and print one ID for each; stop at the first invalid line.
    #[arg(long)]
    lines: bool,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let mut input = Input::open(&args.file)?;
    if !args.lines {
        print(&input.document()?, output);
        return Ok(());
    }
    let mut number = 1;
    while let Some(line) = input.line(number)? {
        print(&input.line_document(&line, number)?, output);
        if output.is_broken() {
            return Ok(());
        }
        number += 1;
    }
    Ok(())
}

fn print(value: &Value, output: &mut Output) {
    let id = value.id().to_string();
    if !output.is_json() {
        return output.line(&id);
    }
    let fields: Map = [("id", id.as_str())].into_iter().collect();
    output.line(&json::to_string(&fields.into()).unwrap_or_default());
}
