//! `catena env`: environments with packages for code that executors run.

use std::path::PathBuf;

use catena_executor::install::{Installed, RECIPES, Recipe, install};
use catena_executor::version_of_installed;
use catena_value::{Map, Value, Vector};

use crate::commands::executor::interpreters;
use crate::exit::Exit;
use crate::format::table;
use crate::output::{Failure, Output};

/// Install and list environments with packages, for executors on this machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// The folder of environments [default: catena/environments in the user's data folder]
    #[arg(long, global = true, env = "CATENA_ENVIRONMENTS", value_name = "DIR")]
    environments: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Install an environment, or replace it. Executors use it when they are started again.
    Install {
        /// The environment: sci (numpy, pandas, matplotlib).
        #[arg(value_parser = parse_recipe)]
        name: Recipe,

        /// The Python interpreter; the first `python3` that can be used by default.
        #[arg(long, value_name = "FILE")]
        python: Option<PathBuf>,
    },
    /// List the environments that are installed.
    Ls,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let folder = folder(args.environments.as_ref())?;
    match &args.command {
        Command::Install { name, python } => {
            output.note(&format!("installing {} into {}", name.profile, folder.display()));
            let installed = install(*name, &folder, &interpreters(python.as_ref()));
            let installed = installed
                .map_err(|error| Failure::new(Exit::JobFailed, "environment_failed", error))?;
            show(&[installed], output);
        }
        Command::Ls => {
            let mut found = Vec::new();
            for recipe in RECIPES {
                let one = Installed::find(recipe, &folder);
                let one =
                    one.map_err(|error| Failure::new(Exit::Invalid, "environment_invalid", error))?;
                found.extend(one);
            }
            show(&found, output);
        }
    }
    Ok(())
}

fn parse_recipe(name: &str) -> Result<Recipe, String> {
    let found = RECIPES.into_iter().find(|recipe| recipe.profile == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.profile).collect();
        format!("there is no such environment; there is {}", names.join(", "))
    })
}

/// The folder of environments: the one that is named, else one in the user's data folder.
pub(crate) fn folder(stated: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(folder) = stated {
        return Ok(folder.clone());
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").filter(|folder| folder.is_absolute());
    let data = data.or_else(|| Some(variable("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| {
        let text = "there is no home folder; name a folder with --environments";
        Failure::new(Exit::Invalid, "no_environments_folder", text)
    })?;
    Ok(data.join("catena").join("environments"))
}

fn show(found: &[Installed], output: &mut Output) {
    let version = |one: &Installed| version_of_installed(one).unwrap_or_else(|reason| reason);
    if output.is_json() {
        output.value(
            &found.iter().map(|one| described(one, &version(one))).collect::<Vector>().into(),
        );
        return;
    }
    let heads = ["VERSION", "PYTHON", "PACKAGES"].map(str::to_owned).to_vec();
    let row = |one: &Installed| {
        let package = |package: &catena_executor::install::Package| {
            format!("{} {}", package.name, package.version)
        };
        let packages: Vec<String> = one.packages.iter().map(package).collect();
        vec![version(one), one.python.display().to_string(), packages.join(", ")]
    };
    let rows: Vec<_> = [heads].into_iter().chain(found.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
}

fn described(one: &Installed, version: &str) -> Value {
    let package = |package: &catena_executor::install::Package| {
        let members = [
            ("name", Value::from(package.name.as_str())),
            ("version", package.version.as_str().into()),
            ("sha256", package.sha256.as_str().into()),
        ];
        Value::from(members.into_iter().collect::<Map>())
    };
    let members = [
        ("profile", Value::from(one.recipe.profile)),
        ("version", version.into()),
        ("python", one.python.display().to_string().into()),
        ("folder", one.folder.display().to_string().into()),
        ("packages", one.packages.iter().map(package).collect::<Vector>().into()),
    ];
    members.into_iter().collect::<Map>().into()
}
