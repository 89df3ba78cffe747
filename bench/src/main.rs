//! Workloads of the complete system and long simulations, run by hand. `bench/README.md` lists them.
#![allow(clippy::print_stdout, reason = "a benchmark reports on the standard output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod bare;
mod blob_crash;
mod crash;
mod http;
mod http_crash;
mod http_million;
mod measure;
mod million;
mod orchestrations;
mod recovery;
mod sse;
mod store;
mod web;

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
    Store(store::Args),
    StoreCrash(crash::Args),
    StoreMillion(million::Args),
    BlobCrash(blob_crash::Args),
    Recovery(recovery::Args),
    Http(http::Args),
    HttpMillion(http_million::Args),
    HttpCrash(http_crash::Args),
    Sse(sse::Args),
    Orchestrations(orchestrations::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Store(args) => store::run(&args),
        Command::StoreCrash(args) => crash::run(&args),
        Command::StoreMillion(args) => million::run(&args),
        Command::BlobCrash(args) => blob_crash::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        Command::Http(args) => http::run(&args),
        Command::HttpMillion(args) => http_million::run(&args),
        Command::HttpCrash(args) => http_crash::run(&args),
        Command::Sse(args) => sse::run(&args),
        Command::Orchestrations(args) => orchestrations::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
