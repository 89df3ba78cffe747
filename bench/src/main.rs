//! Whole-system workloads and long simulations, run by hand. `bench/README.md` says what each is.
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
mod sse;
mod store;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What can go wrong in a benchmark: anything, and then it stops.
type Fault = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Whole-system workloads and long simulations.")]
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
    Http(http::Args),
    HttpMillion(http_million::Args),
    HttpCrash(http_crash::Args),
    Sse(sse::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Store(args) => store::run(&args),
        Command::StoreCrash(args) => crash::run(&args),
        Command::StoreMillion(args) => million::run(&args),
        Command::BlobCrash(args) => blob_crash::run(&args),
        Command::Http(args) => http::run(&args),
        Command::HttpMillion(args) => http_million::run(&args),
        Command::HttpCrash(args) => http_crash::run(&args),
        Command::Sse(args) => sse::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
