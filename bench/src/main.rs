//! Workloads of the complete system and long simulations, run by hand. `bench/README.md` lists them.
#![allow(clippy::print_stdout, reason = "a benchmark reports on the standard output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod agents;
mod backlog;
mod bare;
mod blob_crash;
mod cells;
mod compare;
mod consoles;
mod crash;
mod http;
mod http_crash;
mod http_million;
mod json;
mod measure;
mod million;
mod orchestrations;
mod pause_tree;
mod recovery;
#[cfg(feature = "render")]
mod render;
mod sse;
mod store;
mod trees;
mod waits;
mod web;
mod worker_crash;
mod workers;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Any error ends a benchmark.
type Fault = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Workloads of the complete system and long simulations.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agents(agents::Args),
    Store(store::Args),
    StoreCrash(crash::Args),
    StoreMillion(million::Args),
    BlobCrash(blob_crash::Args),
    Cells(cells::Args),
    Compare(compare::Args),
    Recovery(recovery::Args),
    #[cfg(feature = "render")]
    Render(render::Args),
    Http(http::Args),
    HttpMillion(http_million::Args),
    HttpCrash(http_crash::Args),
    Sse(sse::Args),
    Consoles(consoles::Args),
    Orchestrations(orchestrations::Args),
    Workers(workers::Args),
    WorkerCrash(worker_crash::Args),
    Backlog(backlog::Args),
    PauseTree(pause_tree::Args),
    Trees(trees::Args),
    Waits(waits::Args),
    Workspace(workspace::Args),
}

fn main() -> ExitCode {
    // The workload `render` executes this program again, in the sandbox.
    #[cfg(feature = "render")]
    if let Some(served) = catena_executor::serve_child() {
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let done = match Cli::parse().command {
        Command::Agents(args) => agents::run(&args),
        Command::Store(args) => store::run(&args),
        Command::StoreCrash(args) => crash::run(&args),
        Command::StoreMillion(args) => million::run(&args),
        Command::BlobCrash(args) => blob_crash::run(&args),
        Command::Cells(args) => cells::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        #[cfg(feature = "render")]
        Command::Render(args) => render::run(&args),
        Command::Http(args) => http::run(&args),
        Command::HttpMillion(args) => http_million::run(&args),
        Command::HttpCrash(args) => http_crash::run(&args),
        Command::Sse(args) => sse::run(&args),
        Command::Consoles(args) => consoles::run(&args),
        Command::Orchestrations(args) => orchestrations::run(&args),
        Command::Workers(args) => workers::run(&args),
        Command::WorkerCrash(args) => worker_crash::run(&args),
        Command::Backlog(args) => backlog::run(&args),
        Command::PauseTree(args) => pause_tree::run(&args),
        Command::Trees(args) => trees::run(&args),
        Command::Waits(args) => waits::run(&args),
        Command::Workspace(args) => workspace::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
