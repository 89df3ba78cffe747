//! Environment variables that begin with `CATENA_`: which are known, and what is said about others.

use catena_job::members;

use super::{SETTINGS, SettingInfo};

/// Environment variables that are not settings of a venue: the file to read, what the command line
/// reads as a client, and what `catena work` tells its command.
const OTHER_VARIABLES: [&str; 9] = [
    "CATENA_CONFIG",
    "CATENA_KEY",
    "CATENA_KNOWN_VENUES",
    "CATENA_TOKEN",
    "CATENA_VENUE",
    "CATENA_VENUE_DID",
    "CATENA_JOB",
    "CATENA_ATTEMPT",
    "CATENA_IDEMPOTENCY_KEY",
];

/// Whether an environment variable is known, or not ours. Names that begin with `CATENA_X_` are free to
/// use.
pub(super) fn is_known_variable(name: &str) -> bool {
    let Some(own) = name.strip_prefix("CATENA_") else { return true };
    own.starts_with("X_")
        || OTHER_VARIABLES.contains(&name)
        || SETTINGS.iter().any(|setting| setting.variable() == name)
}

/// The environment variables of this process that look like ours and are unknown, sorted.
pub fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unknown: Vec<String> = names.filter(|name| !is_known_variable(name)).collect();
    unknown.sort();
    unknown
}

/// The sentence that warns about an unknown variable and names the nearest known one.
pub fn warn_about_variable(name: &str) -> String {
    let variables: Vec<String> = SETTINGS.iter().map(SettingInfo::variable).collect();
    let known = variables.iter().map(String::as_str).chain(OTHER_VARIABLES);
    let nearest = members::nearest(name, known).map_or("", |(nearest, _)| nearest);
    format!(
        "the environment variable {name} is unknown and has no effect; the nearest is {nearest}"
    )
}
