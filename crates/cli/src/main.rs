//! The catena binary: one command line for the venue, its jobs and their proofs.
//!
//! Data goes to the standard output, everything else to the standard error. Every command takes
//! `--json`, and ends with one of the codes in [`exit`].

mod commands;
mod exit;
mod input;
mod output;
mod settings;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Output;

/// A durable, verifiable job engine.
#[derive(Parser)]
#[command(name = "catena", version, about, disable_help_subcommand = true)]
struct Cli {
    /// Write results and errors as JSON.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Id(commands::id::Args),
    Plan(commands::plan::Args),
    Serve(commands::serve::Args),
    Store(commands::store::Args),
    /// Run a venue with friendly defaults, and say how to use it.
    Up(commands::serve::Args),
    Verify(commands::verify::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut output = Output::new(cli.json);
    let done = match cli.command {
        Command::Id(args) => commands::id::run(&args, &mut output),
        Command::Plan(args) => commands::plan::run(&args, &mut output),
        Command::Serve(args) => commands::serve::serve(&args, &mut output),
        Command::Store(args) => commands::store::run(&args, &mut output),
        Command::Up(args) => commands::serve::up(&args, &mut output),
        Command::Verify(args) => commands::verify::run(&args, &mut output),
    };
    output.finish(&done)
}
