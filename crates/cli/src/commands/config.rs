//! `catena config`: the settings of a venue and their origins.

use catena_server::config::{Config, ResolvedSetting};
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
    let config = settings.load()?;
    config.warnings().iter().for_each(|warning| output.note(&format!("warning: {warning}")));
    let shown = config.resolved();
    if output.is_json() {
        output.value(&shown.iter().map(|one| described(one, &config)).collect::<Vector>().into());
        return Ok(());
    }
    let heads = ["SETTING", "VALUE", "FROM"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heads).chain(shown.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    // What follows from the settings together, as it is printed when a venue starts.
    let resolved = config.resolved_access();
    let resolved: Vec<_> = resolved.iter().map(|(name, value)| format!("{name}={value}")).collect();
    output.line("");
    output.line(&resolved.join(" "));
    Ok(())
}

fn row(setting: &ResolvedSetting) -> Vec<String> {
    let text = if setting.text.is_empty() { "–" } else { &setting.text };
    vec![setting.about.name.to_owned(), text.to_owned(), setting.origin.to_string()]
}

fn described(setting: &ResolvedSetting, config: &Config) -> Value {
    let name = setting.about.name;
    let resolved = config.resolved_access().into_iter().find(|(own, _)| *own == name);
    let mut members = vec![
        ("name", Value::from(setting.about.name)),
        ("value", setting.text.as_str().into()),
        ("origin", setting.origin.to_string().into()),
        ("default", setting.about.default.into()),
        ("about", setting.about.about.into()),
    ];
    members.extend(resolved.map(|(_, value)| ("resolved", value.into())));
    members.into_iter().collect::<Map>().into()
}
