//! Logging to standard error, as text or as JSON.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// Starts logging. Fails if the level is invalid or logging was already started.
pub fn start(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| error.to_string())?;
    let is_terminal = io::stderr().is_terminal();
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(is_terminal);
    let started = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_target(false).try_init(),
    };
    started.map_err(|error| error.to_string())
}
