//! The catena binary: runs a venue, and is a client for jobs and their verification.
//!
//! Data is written to standard output, everything else to standard error. Every command takes
//! `--json` and ends with one of the exit codes in [`exit`].

mod commands;
mod exit;
mod format;
mod input;
mod issued_tokens;
mod limits;
mod output;
mod pretty;
mod settings;
mod test_operations;
mod venue;
mod watch;

use std::process::ExitCode;

use catena_server::config;
use clap::{CommandFactory as _, Parser, Subcommand};

use exit::Exit;
use output::{Failure, Output};

#[global_allocator]
static ALLOCATOR: catena_sandbox::BlockCache = catena_sandbox::BlockCache;

/// A durable, verifiable job engine.
#[derive(Parser)]
#[command(name = "catena", version, about, disable_help_subcommand = true)]
struct Cli {
    /// Print results and errors as JSON.
    #[arg(long, global = true)]
    json: bool,

    /// Print text without colours.
    #[arg(
        long,
        global = true,
        env = "NO_COLOR",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        hide_possible_values = true,
        value_name = "ANY"
    )]
    no_color: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a shell completion script.
    Completions(commands::completions::Args),
    Agents(commands::agents::Args),
    Config(commands::config::Args),
    Doctor(commands::doctor::Args),
    Env(commands::env::Args),
    Executor(commands::executor::Args),
    Id(commands::id::Args),
    Jobs(commands::jobs::Args),
    Ops(commands::ops::Args),
    Plan(commands::plan::Args),
    Run(commands::run::Args),
    Schedules(commands::schedules::Args),
    Secrets(commands::secrets::Args),
    Work(commands::work::Args),
    Serve(commands::serve::Args),
    Store(commands::store::Args),
    Token(commands::token::Args),
    Access(commands::access::Args),
    /// Run a venue and print how to use it.
    Up(commands::serve::Args),
    Verify(commands::verify::Args),
}

impl Command {
    /// Warns about environment variables that look like ours and have no effect. Commands that load the
    /// configuration of a venue warn with the other warnings about it.
    fn warn_about_variables(&self, output: &Output) {
        if matches!(self, Command::Config(_) | Command::Serve(_) | Command::Up(_)) {
            return;
        }
        for name in config::unknown_variables() {
            output.note(&format!("warning: {}", config::warn_about_variable(&name)));
        }
    }
}

fn main() -> ExitCode {
    #[cfg(feature = "render")]
    if let Some(served) = catena_executor::serve_child() {
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let is_plain = cli.no_color.is_some_and(|value| !value.is_empty());
    let mut output = Output::new(cli.json, is_plain);
    cli.command.warn_about_variables(&output);
    let done = match cli.command {
        Command::Completions(args) => {
            commands::completions::run(&args, &mut Cli::command(), &mut output)
        }
        Command::Agents(args) => commands::agents::run(&args, &mut output),
        Command::Config(args) => commands::config::run(&args, &mut output),
        Command::Doctor(args) => commands::doctor::run(&args, &mut output),
        Command::Env(args) => commands::env::run(&args, &mut output),
        Command::Executor(args) => commands::executor::run(&args, &mut output),
        Command::Id(args) => commands::id::run(&args, &mut output),
        Command::Jobs(args) => commands::jobs::run(&args, &mut output),
        Command::Ops(args) => commands::ops::run(&args, &mut output),
        Command::Plan(args) => commands::plan::run(&args, &mut output),
        Command::Run(args) => commands::run::run(&args, &mut output),
        Command::Work(args) => commands::work::run(&args, &mut output),
        Command::Schedules(args) => commands::schedules::run(&args, &mut output),
        Command::Secrets(args) => commands::secrets::run(&args, &mut output),
        Command::Serve(args) => commands::serve::serve(&args, &mut output),
        Command::Store(args) => commands::store::run(&args, &mut output),
        Command::Token(args) => commands::token::run(&args, &mut output),
        Command::Access(args) => commands::access::run(&args, &mut output),
        Command::Up(args) => commands::serve::up(&args, &mut output),
        Command::Verify(args) => commands::verify::run(&args, &mut output),
    };
    output.finish(&done)
}

/// Prints an error of the arguments, or the help that was requested. If the arguments cannot be
/// parsed, whether JSON is wanted is found by searching them for `--json`.
fn report_usage(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if !error.use_stderr() || !wants_json {
        error.exit();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let message = text.split("\n\n").next().unwrap_or(text).trim_end();
    let failure = Failure::new(Exit::Invalid, "usage", message);
    let hint = "Run `catena --help`, or a command with `--help`, for usage.";
    Output::new(true, true).finish(&Err(failure.hint(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_the_manual() {
        let page = include_str!("../../../docs/reference/cli.md");
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(page.contains(&format!("`catena {name}")), "catena {name}");
            for inner in command.get_subcommands() {
                let inner = format!("{name} {}", inner.get_name());
                assert!(
                    page.contains(&format!("`{inner}"))
                        || page.contains(&format!("catena {inner}"))
                );
            }
        }
    }
}
