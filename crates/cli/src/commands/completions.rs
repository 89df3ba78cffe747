//! `catena completions`: shell completion scripts.

use clap::Command;
use clap_complete::Shell;

use crate::output::{Failure, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to print the script for.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, command: &mut Command, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "catena", &mut script);
    output.bytes(&script);
    Ok(())
}
