//! `catena config`: the settings of a venue and their origins.

use catena_server::config::ResolvedSetting;
use catena_value::{Map, Value, Vector};

use crate::format::table;
use crate::output::{Failure, Output};
use crate::settings::Settings;

/// Show the settings of a venue.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print every setting with its value and origin.
    ///
    /// Takes the flags of `catena serve` and reads the same environment variables and file, but does
    /// not start a venue.
    Show {
        #[command(flatten)]
        settings: Box<Settings>,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let Command::Show { settings } = &args.command;
    let shown = settings.load()?.resolved();
    if output.is_json() {
        output.value(&shown.iter().map(described).collect::<Vector>().into());
        return Ok(());
    }
    let heads = ["SETTING", "VALUE", "FROM"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(shown.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

fn row(setting: &ResolvedSetting) -> Vec<String> {
    let text = if setting.text.is_empty() { "–" } else { &setting.text };
    vec![setting.about.name.to_owned(), text.to_owned(), setting.origin.to_string()]
}

fn described(setting: &ResolvedSetting) -> Value {
    let members = [
        ("name", Value::from(setting.about.name)),
        ("value", setting.text.as_str().into()),
        ("origin", setting.origin.to_string().into()),
        ("default", setting.about.default.into()),
        ("about", setting.about.about.into()),
    ];
    members.into_iter().collect::<Map>().into()
}
