//! Everything that an operator can set.
//!
//! Flags win over the environment, which wins over `catena.toml`, which wins over defaults; every
//! value remembers where it came from. There is one table: a name such as `limits.live_jobs` is a
//! key of the file, the variable `CATENA_LIMITS_LIVE_JOBS` and the flag `--limits-live-jobs`, and
//! all four places are read by the same parser. A value that cannot be understood stops the start.
//!
//! This is the one place outside the command line that reads the environment.

mod parse;
mod value;

pub use parse::{Bytes, List, Time};
pub use value::{LogFormat, Rating, Switch};

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catena_engine::Limits;
use catena_engine::limits::Rate;

use crate::limits::CONFIG_BYTES_MAX;

/// The file that is read when none is named.
pub const FILE: &str = "catena.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A value, as it was written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// The text it was read from.
    pub text: String,
    /// Where that text was.
    pub origin: Origin,
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("could not read {}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not TOML: {reason}", .file.display())]
    Toml {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A key that is none of ours.
    #[error("{} has a setting that does not exist: {name}", .file.display())]
    Unknown {
        /// The file.
        file: PathBuf,
        /// The key.
        name: String,
    },
    /// A value that cannot be understood.
    #[error("{name} = {text:?} ({origin}): {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was written.
        text: String,
        /// Where.
        origin: Origin,
        /// What was expected.
        reason: String,
    },
}

/// What is known of a setting without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its key in the file.
    pub name: &'static str,
    /// What it is when nobody says anything.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

impl About {
    /// The variable of the environment that sets it.
    pub fn variable(&self) -> String {
        format!("CATENA_{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// The flag that sets it. That of a list names one entry and may be repeated.
    pub fn flag(&self) -> String {
        let name = match LISTS.contains(&self.name) {
            true => self.name.trim_end_matches('s'),
            false => self.name,
        };
        format!("--{}", name.replace(['.', '_'], "-"))
    }
}

/// Settings that are lists.
const LISTS: [&str; 5] = ["admins", "cors_origins", "hostnames", "allow_hosts", "allow_venues"];

/// One line of `catena config show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The setting.
    pub about: About,
    /// Its value, as it was written.
    pub text: String,
    /// Where.
    pub origin: Origin,
}

macro_rules! settings {
    ($($field:ident: $type:ty, $name:literal, $default:literal, $about:literal;)*) => {
        /// Every setting.
        pub const SETTINGS: &[About] =
            &[$(About { name: $name, default: $default, about: $about },)*];

        /// What the command line says; nothing where it says nothing. Lists are one text with
        /// commas.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Flags {
            $(#[doc = $about] pub $field: Option<String>,)*
        }

        impl Flags {
            /// Says a setting by its name; whether there is one.
            pub fn set(&mut self, name: &str, text: String) -> bool {
                match name {
                    $($name => self.$field = Some(text),)*
                    _ => return false,
                }
                true
            }
        }

        /// Everything that is set.
        #[derive(Debug, Clone)]
        pub struct Config {
            $(#[doc = $about] pub $field: Setting<$type>,)*
        }

        impl Config {
            /// Puts flags, environment and file together.
            pub fn layered(
                flags: &Flags,
                environment: &dyn Fn(&str) -> Option<String>,
                file: Option<&FileSettings>,
            ) -> Result<Config, ConfigError> {
                Ok(Config {
                    $($field: layer(
                        About { name: $name, default: $default, about: $about },
                        flags.$field.as_deref(),
                        environment,
                        file,
                    )?,)*
                })
            }

            /// All values and where they came from.
            pub fn shown(&self) -> Vec<Shown> {
                vec![$(Shown {
                    about: About { name: $name, default: $default, about: $about },
                    text: self.$field.text.clone(),
                    origin: self.$field.origin.clone(),
                },)*]
            }
        }
    };
}

settings! {
    listen: SocketAddr, "listen", "127.0.0.1:8787",
        "Address and port to listen on; port 0 takes any that is free.";
    data: PathBuf, "data", "catena-data",
        "The data folder: everything that the venue keeps.";
    name: String, "name", "catena",
        "What the venue calls itself.";
    public_url: Option<String>, "public_url", "",
        "Where clients reach the venue, when that is not the address it listens on. An https URL without a path also makes the venue's DID a did:web.";
    public_access: Switch, "public_access", "auto",
        "Whether requests without a token are answered, as the anonymous identity that all of them share: on, off, or auto (on when listening on loopback).";
    admins: List, "admins", "",
        "DIDs that see and control everybody's jobs.";
    cors_origins: List, "cors_origins", "",
        "Origins of web pages that may ask from a browser, besides the venue's own; * for all.";
    hostnames: List, "hostnames", "",
        "Names of this venue in the Host header, besides the address it listens on; with a port, only on that port.";
    allow_hosts: List, "allow_hosts", "",
        "Private or loopback addresses, as HOST:PORT, that operations may send requests to.";
    allow_venues: List, "allow_venues", "",
        "Other venues, as URLs or DIDs, that steps may run on.";
    body_bytes: Bytes, "body_bytes", "10MB",
        "The most bytes of one request's body. Content of assets has its own bound.";
    grace: Time, "grace", "5s",
        "How long the venue may take to stop.";
    sse_by_job_id: bool, "sse_by_job_id", "false",
        "Whether knowing a job's ID is enough to follow it by SSE. The Python SDK sends no token there.";
    metrics_public: Switch, "metrics_public", "auto",
        "Whether anybody may read /metrics: on, off (admins only), or auto (as public_access).";
    bench: bool, "bench", "false",
        "Whether to mount POST /bench/noop, which does nothing, to compare others with.";
    mcp_tools: List, "mcp.tools", "*",
        "Operations that are shown as MCP tools: adapters (json), operations (json:merge), or * for all.";
    log_format: LogFormat, "log.format", "text",
        "Log lines for people (text) or machines (json).";
    log_level: String, "log.level", "info",
        "What to log: error, warn, info, debug (every request) or trace; also per module, as in info,catena_engine=debug.";
    execution: Time, "limits.execution", "10m",
        "How long an operation may run, when neither it nor the request says.";
    interactive: Time, "limits.interactive", "7d",
        "How long a job may wait for somebody.";
    invoke_grace: Time, "limits.invoke_grace", "20ms",
        "How long an invocation waits for an operation that may be quick.";
    message_bytes: Bytes, "limits.message_bytes", "1MB",
        "The most bytes of one message.";
    live_jobs: usize, "limits.live_jobs", "10000",
        "The most jobs of one caller that have not ended.";
    running: usize, "limits.running", "4096",
        "The most jobs that run at a time; others wait.";
    rate: Rating, "limits.rate", "auto",
        "Requests per second and caller that may create something: a number, off, or auto (off when listening on loopback, else 100).";
    burst: u32, "limits.burst", "200",
        "How many of those may come at once.";
    attempts: u32, "limits.attempts", "3",
        "The most tries of a job that was running when the venue stopped.";
    idempotency: Time, "limits.idempotency", "24h",
        "How long an idempotency key is remembered.";
    content_bytes: Bytes, "limits.content_bytes", "100MiB",
        "The most bytes of one asset's content.";
    retention: Option<Time>, "retention", "",
        "Age at which jobs that have ended are deleted; empty keeps them.";
}

/// The settings of one file.
#[derive(Debug, Clone, Default)]
pub struct FileSettings {
    path: PathBuf,
    values: Vec<(String, String)>,
}

impl FileSettings {
    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = || path.to_path_buf();
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            ConfigError::Toml { file: file(), reason: error.to_string() }
        })?;
        let mut values = Vec::new();
        parse::flatten("", &table, &mut values);
        let is_unknown =
            |(name, _): &&(String, String)| !SETTINGS.iter().any(|setting| setting.name == name);
        match values.iter().find(is_unknown) {
            Some((name, _)) => Err(ConfigError::Unknown { file: file(), name: name.clone() }),
            None => Ok(FileSettings { path: file(), values }),
        }
    }

    /// Reads a file; nothing when it need not be there and is not.
    fn read(path: &Path, must_exist: bool) -> Result<Option<Self>, ConfigError> {
        let failed = |source| ConfigError::Io { file: path.to_path_buf(), source };
        let file = match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {
                return Ok(None);
            }
            other => other.map_err(failed)?,
        };
        let mut text = String::new();
        file.take(CONFIG_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(path, &text).map(Some)
    }
}

fn layer<T: parse::Parse>(
    about: About,
    flag: Option<&str>,
    environment: &dyn Fn(&str) -> Option<String>,
    file: Option<&FileSettings>,
) -> Result<Setting<T>, ConfigError> {
    let from_file = || {
        let file = file?;
        let (_, text) = file.values.iter().find(|(name, _)| name == about.name)?;
        Some((text.clone(), Origin::File(file.path.clone())))
    };
    let from_environment = || {
        let variable = about.variable();
        Some((environment(&variable)?, Origin::Environment(variable)))
    };
    let from_flag = flag.map(|text| (text.to_owned(), Origin::Flag(about.flag())));
    let found = from_flag.or_else(from_environment).or_else(from_file);
    let (text, origin) = found.unwrap_or_else(|| (about.default.to_owned(), Origin::Default));
    match T::parse(text.trim()) {
        Ok(value) => Ok(Setting { value, text, origin }),
        Err(reason) => Err(ConfigError::Value { name: about.name, text, origin, reason }),
    }
}

impl Config {
    /// Reads the environment and the file, named or not, under these flags.
    pub fn load(flags: &Flags, file: Option<&Path>) -> Result<Config, ConfigError> {
        let environment = |name: &str| {
            #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
            let found = std::env::var(name);
            found.ok()
        };
        let named =
            file.map(Path::to_path_buf).or_else(|| environment("CATENA_CONFIG").map(PathBuf::from));
        let file = match &named {
            Some(path) => FileSettings::read(path, true)?,
            None => FileSettings::read(Path::new(FILE), false)?,
        };
        Self::layered(flags, &environment, file.as_ref())
    }

    /// Whether requests without a token are answered.
    pub fn has_public_access(&self) -> bool {
        self.public_access.or_auto(self.listen.ip().is_loopback())
    }

    /// Whether anybody may read metrics.
    pub fn has_public_metrics(&self) -> bool {
        self.metrics_public.or_auto(self.has_public_access())
    }

    /// The venue's DID: a did:web when it is publicly reached by https, else that of its key.
    pub fn did(&self, of_key: &str) -> String {
        let host = self.public_url.as_deref().and_then(|url| url.strip_prefix("https://"));
        match host.filter(|host| !host.contains('/')) {
            Some(host) => format!("did:web:{}", host.replace(':', "%3A")),
            None => of_key.to_owned(),
        }
    }

    /// Every name of the venue, in lower case: those configured, and that of its public URL.
    pub fn all_hostnames(&self) -> Vec<String> {
        let host = self.public_url.as_deref().and_then(|url| url.split_once("://"));
        let host = host.map(|(_, rest)| rest.split('/').next().unwrap_or_default().to_owned());
        self.hostnames.iter().cloned().chain(host).map(|name| name.to_lowercase()).collect()
    }

    /// The bounds of the engine.
    pub fn engine_limits(&self) -> Limits {
        Limits {
            execution: *self.execution.value,
            interactive: *self.interactive.value,
            grace: *self.invoke_grace.value,
            message_bytes_max: *self.message_bytes.value,
            live_jobs_per_caller_max: self.live_jobs.value,
            running_max: self.running.value,
            rate: self.rate(),
            attempts_max: self.attempts.value,
            idempotency: *self.idempotency.value,
            retention: self.retention.value.map(|time| *time),
            content_bytes_max: *self.content_bytes.value as u64,
        }
    }

    fn rate(&self) -> Option<Rate> {
        let per_second = match self.rate.value {
            Rating::Off => return None,
            Rating::Auto if self.listen.ip().is_loopback() => return None,
            Rating::Auto => RATE_BEYOND_LOOPBACK,
            Rating::PerSecond(rate) => rate,
        };
        Some(Rate { per_second, burst: self.burst.value })
    }

    /// How long the venue may take to stop.
    pub fn grace(&self) -> Duration {
        *self.grace.value
    }
}

/// Creating requests per second and caller, when the venue is reached from elsewhere and nobody
/// set a rate: far above what people do, far below what a runaway program does.
const RATE_BEYOND_LOOPBACK: f64 = 100.0;

#[cfg(test)]
mod tests;
