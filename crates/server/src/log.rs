//! Logs: lines for people, or JSON for machines, on the standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// Begins to log. Says so if somebody has begun already.
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
