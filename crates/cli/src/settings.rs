//! The settings of a venue as flags: one per setting, from the table that also defines environment
//! variables, the configuration file and the defaults.

use std::path::PathBuf;

use catena_server::config::{Config, Flags, SETTINGS, SettingInfo};
use clap::builder::Str;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::exit::Exit;
use crate::output::Failure;

/// Settings that are lists, and the flag for one entry, which may be given several times.
const LISTS: [(&str, &str); 7] = [
    ("members", "member"),
    ("allow_hosts", "allow-host"),
    ("allow_venues", "allow-venue"),
    ("cors_origins", "cors-origin"),
    ("hostnames", "hostname"),
    ("admins", "admin"),
    ("mcp.tools", "mcp-tool"),
];

/// The settings on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    flags: Flags,
    file: Option<PathBuf>,
}

impl Settings {
    /// Combines flags, environment and file.
    pub(crate) fn load(&self) -> Result<Config, Failure> {
        let config = Config::load(&self.flags, self.file.as_deref());
        config.map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let text = format!("{error}{}", cause.unwrap_or_default());
            Failure::new(Exit::Invalid, "config_invalid", text)
        })
    }
}

/// The name of a flag. It is leaked once per flag and process, because clap needs static names.
fn flag(about: &SettingInfo) -> Str {
    Str::from(&*Box::leak(about.flag().trim_start_matches('-').to_owned().into_boxed_str()))
}

fn entry_of(name: &str) -> Option<&'static str> {
    LISTS.iter().find(|(list, _)| *list == name).map(|(_, entry)| *entry)
}

fn add(command: Command) -> Command {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Read settings from this file [default: catena.toml, if it exists]");
    let command = command.arg(file);
    SETTINGS.iter().fold(command, |command, about| {
        let default = match about.default {
            "" => String::new(),
            text => format!(" [default: {text}]"),
        };
        let help = format!("{} [env: {}]{default}", about.about, about.variable());
        let arg = Arg::new(about.name).value_name("VALUE").help(help);
        command.arg(match entry_of(about.name) {
            // One entry per flag. A comma-separated list works too.
            Some(entry) => arg.long(entry).visible_alias(flag(about)).action(ArgAction::Append),
            None => arg.long(flag(about)),
        })
    })
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        add(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Settings::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>("config").cloned();
        for about in SETTINGS {
            let values: Option<Vec<&String>> =
                matches.get_many::<String>(about.name).map(Iterator::collect);
            if let Some(values) = values {
                let text: Vec<&str> = values.into_iter().map(String::as_str).collect();
                self.flags.set(about.name, text.join(","));
            }
        }
        Ok(())
    }
}
