//! The configuration of a venue.
//!
//! Flags take precedence over environment variables, these over `catena.toml`, and that over
//! defaults; every value records its origin. There is one table of settings: a name such as
//! `limits.live_jobs` is a key of the file, the variable `CATENA_LIMITS_LIVE_JOBS` and the flag
//! `--limits-live-jobs`, and the same parser reads all of them. An invalid value prevents the start.
//!
//! Apart from the command line, this is the only module that reads environment variables.

mod parse;
mod value;
mod variables;

pub use parse::{Bytes, List, Time};
pub use value::{
    AccessMode, LogFormat, McpRecord, QuotaSetting, RateSetting, Switch, UnboundTokens,
};
pub use variables::{unknown_variables, warn_about_variable};

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catena_engine::Limits;
use catena_engine::limits::Rate;
use catena_job::agent::AgentPolicy;
use catena_job::contract::Plan;
use catena_job::limits::AGENT_DELIVERIES_PER_SECOND;
use catena_job::members;

use crate::limits::{
    CONFIG_BYTES_MAX, RATE_BEYOND_LOOPBACK, STORED_BYTES_BEYOND_LOOPBACK,
    STORED_BYTES_TOTAL_BEYOND_LOOPBACK,
};

/// The file that is read if none is named.
pub const FILE: &str = "catena.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The setting has its default value.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// The environment variable with this name.
    Environment(String),
    /// The command-line flag with this name.
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

/// A setting's value, its text and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The parsed value.
    pub value: T,
    /// The text from which the value was parsed.
    pub text: String,
    /// Where the text comes from.
    pub origin: Origin,
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Why a configuration is invalid.
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
    /// The file is not valid TOML.
    #[error("{} is not valid TOML: {reason}", .file.display())]
    Toml {
        /// The file.
        file: PathBuf,
        /// The message of the TOML parser.
        reason: String,
    },
    /// The file has a key that is not a setting.
    #[error("{} has an unknown setting: {name}; the nearest is {nearest}", .file.display())]
    Unknown {
        /// The file.
        file: PathBuf,
        /// The key.
        name: String,
        /// The most similar setting.
        nearest: &'static str,
    },
    /// A value is invalid.
    #[error("{name} = {text:?} ({origin}): {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The invalid text.
        text: String,
        /// Where the text comes from.
        origin: Origin,
        /// What was expected.
        reason: String,
    },
}

/// A setting's name, default and description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingInfo {
    /// The key in the file.
    pub name: &'static str,
    /// The text of the default value; empty if there is none.
    pub default: &'static str,
    /// The description.
    pub about: &'static str,
}

impl SettingInfo {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("CATENA_{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// The flag that sets it. The flag of a list is in the singular, sets one entry, and may be repeated.
    pub fn flag(&self) -> String {
        let is_list = LISTS.contains(&self.name);
        let name = if is_list { self.name.trim_end_matches('s') } else { self.name };
        format!("--{}", name.replace(['.', '_'], "-"))
    }
}

/// The settings whose values are lists.
const LISTS: [&str; 6] =
    ["admins", "members", "cors_origins", "hostnames", "allow_hosts", "allow_venues"];

/// A setting as `catena config show` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSetting {
    /// The setting.
    pub about: SettingInfo,
    /// The text of its value.
    pub text: String,
    /// Where the text comes from.
    pub origin: Origin,
}

macro_rules! settings {
    ($($field:ident: $type:ty, $name:literal, $default:literal, $about:literal;)*) => {
        /// All settings.
        pub const SETTINGS: &[SettingInfo] =
            &[$(SettingInfo { name: $name, default: $default, about: $about },)*];

        /// The settings given on the command line. Lists are one text with commas.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Flags {
            $(#[doc = $about] pub $field: Option<String>,)*
        }

        impl Flags {
            /// Sets the setting with this name. Returns false if there is none.
            pub fn set(&mut self, name: &str, text: String) -> bool {
                match name {
                    $($name => self.$field = Some(text),)*
                    _ => return false,
                }
                true
            }
        }

        /// The configuration.
        #[derive(Debug, Clone)]
        pub struct Config {
            $(#[doc = $about] pub $field: Setting<$type>,)*
            /// Environment variables that look like settings and are none.
            pub unknown_variables: Vec<String>,
        }

        impl Config {
            /// Combines flags, environment variables and a file, in this order of precedence.
            pub fn layered(
                flags: &Flags,
                environment: &dyn Fn(&str) -> Option<String>,
                file: Option<&FileSettings>,
            ) -> Result<Config, ConfigError> {
                Ok(Config {
                    $($field: layer(
                        SettingInfo { name: $name, default: $default, about: $about },
                        flags.$field.as_deref(),
                        environment,
                        file,
                    )?,)*
                    unknown_variables: Vec::new(),
                })
            }

            /// All settings with their values and origins.
            pub fn resolved(&self) -> Vec<ResolvedSetting> {
                vec![$(ResolvedSetting {
                    about: SettingInfo { name: $name, default: $default, about: $about },
                    text: self.$field.text.clone(),
                    origin: self.$field.origin.clone(),
                },)*]
            }
        }
    };
}

settings! {
    listen: SocketAddr, "listen", "127.0.0.1:8787",
        "The address and port to listen on. Port 0 selects a free port.";
    data: PathBuf, "data", "catena-data",
        "The folder in which the venue stores all its data.";
    name: String, "name", "catena",
        "The display name of the venue.";
    public_url: Option<String>, "public_url", "",
        "The URL under which clients reach the venue, if it differs from the listen address. An https URL without a path also makes the venue's DID a did:web.";
    access: Option<AccessMode>, "access", "auto",
        "Who may use the venue: anyone (also without a token; such requests share one anonymous identity), keys (everyone with a token of their own key or of the venue), listed (the identities that `catena access add` lists), or auto (anyone when listening on loopback without a public URL, otherwise listed).";
    public_access: Switch, "public_access", "auto",
        "Replaced by `access`: on means anyone, off means keys. Still read, with a warning.";
    members: List, "members", "",
        "DIDs that may use a venue with access = \"listed\", in addition to those that `catena access add` lists.";
    unbound_tokens: UnboundTokens, "unbound_tokens", "auto",
        "Whether identity tokens that name no audience are accepted, which can be replayed at other venues: allow, refuse, or auto (allow if anyone may use the venue and it listens on loopback, because the Java client sends such tokens).";
    admins: List, "admins", "",
        "DIDs of admins, who can see and control all jobs.";
    cors_origins: List, "cors_origins", "",
        "Origins of web pages that may use the venue from a browser, in addition to its own; * allows all.";
    hostnames: List, "hostnames", "",
        "Host names of this venue, in addition to the listen address. A name with a port is valid on that port only.";
    allow_hosts: List, "allow_hosts", "",
        "Private or loopback addresses, as HOST:PORT, to which operations may send requests.";
    allow_venues: List, "allow_venues", "",
        "Other venues, as URLs or DIDs, on which steps may run. URL=DID states the identity of a venue whose DID does not name its host; URL,shared allows steps with delegations on a venue at which all users of this one share an account.";
    tls_cert: Option<PathBuf>, "tls_cert", "",
        "A file with the certificate chain in PEM. With tls_key, the venue serves HTTPS. Both are read again on SIGHUP.";
    tls_key: Option<PathBuf>, "tls_key", "",
        "A file with the private key of the certificate in PEM.";
    shared_data: bool, "shared_data", "false",
        "Whether the group of the data folder may use it: its modes are then 0770 and 0660 instead of 0700 and 0600.";
    key_file: Option<PathBuf>, "key_file", "",
        "The file with the key that encrypts secrets at rest: 32 bytes. If empty, it is secrets.key in the data folder. It is not part of a backup.";
    body_bytes: Bytes, "body_bytes", "10MB",
        "The maximum size of a request body. The content of assets has its own limit.";
    grace: Time, "grace", "5s",
        "The maximum time that the venue takes to stop.";
    sse_by_job_id: bool, "sse_by_job_id", "false",
        "Whether a job's ID alone authorises a client to follow the job by SSE. The Python SDK sends no token for that request.";
    metrics_public: Switch, "metrics_public", "auto",
        "Whether /metrics can be read without being an admin: on, off, or auto (on if anyone may use the venue and it has no public URL).";
    bench: bool, "bench", "false",
        "Whether to mount POST /bench/noop, which does nothing, as a baseline for benchmarks.";
    executors: u8, "executors", "1",
        "The number of executors that `catena serve` starts on this machine: processes that run code in a sandbox. With 0, code runs only on executors that join with `catena executor`.";
    default_environment: String, "default_environment", "bare",
        "The kind of environment in which code runs that names none: bare, sci, or another one that an executor announces.";
    environments: Option<PathBuf>, "environments", "",
        "The folder with the environments that `catena env install` installed, for the executors that `catena serve` starts. If empty, it is catena/environments in the user's data folder.";
    mcp_tools: List, "mcp.tools", "*",
        "The operations that are exposed as MCP tools: adapters (json), operations (json:merge), o for named ones, or * for all.";
    mcp_record: McpRecord, "mcp.record", "changes",
        "Which tool calls of MCP clients are recorded as jobs: all, or changes (calls of operations that only read leave no record).";
    log_format: LogFormat, "log.format", "text",
        "The format of log lines: text for people, json for programs.";
    log_level: String, "log.level", "info",
        "The log level: error, warn, info, debug (includes every request) or trace; also per module, as in info,catena_engine=debug.";
    execution: Time, "limits.execution", "10m",
        "The time limit of an operation, if neither it nor the request sets one.";
    interactive: Time, "limits.interactive", "7d",
        "How long a job may wait to be resumed, or for input or authorisation.";
    invoke_grace: Time, "limits.invoke_grace", "20ms",
        "How long an invocation waits for a quick operation to complete.";
    message_bytes: Bytes, "limits.message_bytes", "1MB",
        "The maximum size of a message.";
    live_jobs: usize, "limits.live_jobs", "10000",
        "The maximum number of jobs of one caller that have not ended.";
    live_jobs_total: usize, "limits.live_jobs_total", "1000000",
        "The maximum number of jobs of all callers together that have not ended.";
    stored_bytes: QuotaSetting, "limits.stored_bytes", "auto",
        "The maximum number of bytes stored for one caller, or `off`. `auto` is 10GiB, and no limit on loopback without a public URL.";
    stored_bytes_total: QuotaSetting, "limits.stored_bytes_total", "auto",
        "The maximum number of bytes stored for all callers together, or `off`. `auto` is 100GiB, and no limit on loopback without a public URL.";
    memory: Bytes, "limits.memory", "512MiB",
        "The maximum size of what requests, jobs and responses hold in memory at a time.";
    memory_per_caller: Bytes, "limits.memory_per_caller", "128MiB",
        "The same for one caller.";
    connections_per_address: usize, "limits.connections_per_address", "256",
        "The maximum number of connections from one address. Those from loopback are not counted.";
    sub_jobs: usize, "limits.sub_jobs", "10000",
        "The maximum number of sub-jobs of one root job in total.";
    running: usize, "limits.running", "4096",
        "The maximum number of jobs that run at the same time; others are queued.";
    rate: RateSetting, "limits.rate", "auto",
        "The number of creating requests per second and caller: a number, off, or auto (off when listening on loopback, otherwise 100).";
    burst: u32, "limits.burst", "200",
        "The number of creating requests that may arrive at once.";
    attempts: u32, "limits.attempts", "3",
        "The maximum number of attempts of a job that is interrupted when the venue stops.";
    worker_lease: Time, "limits.worker_lease", "10s",
        "How long a worker keeps its jobs without being heard of.";
    queue_time: Time, "limits.queue_time", "24h",
        "How long a job waits for an executor, pauses excluded. Then it is cancelled with the reason queue_expired.";
    cpu_per_day: Option<Time>, "limits.cpu_per_day", "",
        "The CPU time that executors spend on the jobs of one owner per day (UTC). Queued jobs beyond it are cancelled with the reason quota. If empty, it is unlimited.";
    idempotency: Time, "limits.idempotency", "24h",
        "How long an idempotency key is remembered.";
    content_bytes: Bytes, "limits.content_bytes", "100MiB",
        "The maximum size of an asset's content.";
    agents_per_user: u64, "agents.per_user", "10000",
        "The maximum number of agents of one user.";
    agents_inbox: u64, "agents.inbox", "1000",
        "The maximum number of messages that wait for one agent.";
    agents_inbox_bytes: Bytes, "agents.inbox_bytes", "16MiB",
        "The maximum size of the messages that wait for one agent.";
    agents_timeline: u64, "agents.timeline", "100000",
        "The maximum number of turns in the timeline of one agent, which is suspended then.";
    agents_failures: u64, "agents.failures", "10",
        "The number of turns that fail in a row after which an agent is resumed by force only, if its own configuration does not say.";
    agents_deliveries: RateSetting, "agents.deliveries", "auto",
        "The number of messages per second that one agent accepts: a number, off, or auto (off when listening on loopback, otherwise 50).";
    agents_idle: Option<Time>, "agents.idle", "",
        "How long an agent exists to which nothing happens. Then it is terminated. It applies to an agent from its next change on. If empty, agents are kept.";
    plan_timeout_ms: u64, "plan.timeout_ms", "300000",
        "The highest limits.timeout_ms of a job that runs code.";
    plan_cpu_ms: u64, "plan.cpu_ms", "300000",
        "The highest limits.cpu_ms of a job that runs code.";
    plan_memory_mb: u64, "plan.memory_mb", "4096",
        "The highest limits.memory_mb of a job that runs code.";
    plan_max_output_kb: u64, "plan.max_output_kb", "4096",
        "The highest limits.max_output_kb of a job that runs code.";
    plan_max_artifacts: u64, "plan.max_artifacts", "200",
        "The highest limits.max_artifacts of a job that runs code.";
    retention: Option<Time>, "retention", "",
        "The age at which ended jobs are deleted. If empty, they are kept.";
}

/// The settings of a configuration file.
#[derive(Debug, Clone, Default)]
pub struct FileSettings {
    path: PathBuf,
    values: Vec<(String, String)>,
}

impl FileSettings {
    /// Parses the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = || path.to_path_buf();
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            ConfigError::Toml { file: file(), reason: error.to_string() }
        })?;
        let mut values = Vec::new();
        parse::flatten("", &table, &mut values);
        values.retain(|(name, _)| !members::is_free(name));
        let is_unknown =
            |(name, _): &&(String, String)| !SETTINGS.iter().any(|setting| setting.name == name);
        match values.iter().find(is_unknown) {
            Some((name, _)) => {
                let nearest = members::nearest(name, SETTINGS.iter().map(|setting| setting.name));
                let nearest = nearest.map_or(FILE, |(nearest, _)| nearest);
                Err(ConfigError::Unknown { file: file(), name: name.clone(), nearest })
            }
            None => Ok(FileSettings { path: file(), values }),
        }
    }

    /// Reads a file. `None` if it does not exist and does not have to.
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

/// The value of a setting from the place with the highest precedence.
fn layer<T: parse::Parse>(
    about: SettingInfo,
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
    /// Combines these flags with the environment variables and the configuration file.
    pub fn load(flags: &Flags, file: Option<&Path>) -> Result<Config, ConfigError> {
        let environment = |name: &str| {
            #[expect(
                clippy::disallowed_methods,
                reason = "this is where environment variables are read"
            )]
            let found = std::env::var(name);
            found.ok()
        };
        let named =
            file.map(Path::to_path_buf).or_else(|| environment("CATENA_CONFIG").map(PathBuf::from));
        let file = match &named {
            Some(path) => FileSettings::read(path, true)?,
            None => FileSettings::read(Path::new(FILE), false)?,
        };
        let mut config = Self::layered(flags, &environment, file.as_ref())?;
        config.unknown_variables = unknown_variables();
        Ok(config)
    }

    /// Who may use the venue.
    pub fn access(&self) -> AccessMode {
        match (self.access.value, self.public_access.value) {
            (Some(mode), _) => mode,
            (None, Switch::On) => AccessMode::Anyone,
            (None, Switch::Off) => AccessMode::Keys,
            (None, Switch::Auto) if self.is_local() => AccessMode::Anyone,
            (None, Switch::Auto) => AccessMode::Listed,
        }
    }

    /// Whether the operator has said that anyone may use the venue.
    pub fn is_anyone_explicit(&self) -> bool {
        match self.access.value {
            Some(mode) => mode == AccessMode::Anyone,
            None => self.public_access.value == Switch::On,
        }
    }

    /// Whether requests without a token are accepted.
    pub fn is_anonymous_on(&self) -> bool {
        self.access() == AccessMode::Anyone
    }

    /// Whether identity tokens that name no audience are accepted.
    pub fn allows_unbound_tokens(&self) -> bool {
        match self.unbound_tokens.value {
            UnboundTokens::Allow => true,
            UnboundTokens::Refuse => false,
            UnboundTokens::Auto => self.is_anonymous_on() && self.listen.ip().is_loopback(),
        }
    }

    /// Whether the venue is meant for this machine only.
    fn is_local(&self) -> bool {
        self.listen.ip().is_loopback() && self.public_url.is_none()
    }

    /// Whether metrics can be read without being an admin.
    pub fn has_public_metrics(&self) -> bool {
        self.metrics_public.or_auto(self.is_anonymous_on() && self.public_url.is_none())
    }

    /// Whether the venue serves HTTPS itself.
    pub fn has_tls(&self) -> bool {
        self.tls_cert.is_some() && self.tls_key.is_some()
    }

    /// What follows from the settings about who may use the venue, as names and values.
    pub fn resolved_access(&self) -> Vec<(&'static str, String)> {
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let unbound = if self.allows_unbound_tokens() { "allow" } else { "refuse" };
        vec![
            ("access", self.access().as_str().to_owned()),
            ("anonymous", on(self.is_anonymous_on())),
            ("unbound_tokens", unbound.to_owned()),
            ("metrics_public", on(self.has_public_metrics())),
            ("tls", on(self.has_tls())),
            ("public_url", self.public_url.value.clone().unwrap_or_else(|| "none".to_owned())),
        ]
    }

    /// Sentences about settings that are still read but were replaced, and about environment variables
    /// that are not settings.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.public_access.origin != Origin::Default {
            let origin = &self.public_access.origin;
            let access = self.access().as_str();
            warnings.push(format!(
                "`public_access` ({origin}) was replaced by `access`; set access = \"{access}\""
            ));
        }
        warnings.extend(self.unknown_variables.iter().map(|name| warn_about_variable(name)));
        warnings
    }

    /// The venue's DID: a did:web if its public URL is https without a path, otherwise that of its key.
    pub fn did(&self, of_key: &str) -> String {
        let host = self.public_url.as_deref().and_then(|url| url.strip_prefix("https://"));
        match host.filter(|host| !host.contains('/')) {
            Some(host) => format!("did:web:{}", host.replace(':', "%3A")),
            None => of_key.to_owned(),
        }
    }

    /// All host names of the venue in lower case: those configured, and that of its public URL.
    pub fn all_hostnames(&self) -> Vec<String> {
        let host = self.public_url.as_deref().and_then(|url| url.split_once("://"));
        let host = host.map(|(_, rest)| rest.split('/').next().unwrap_or_default().to_owned());
        self.hostnames.iter().cloned().chain(host).map(|name| name.to_lowercase()).collect()
    }

    /// The limits of the engine.
    pub fn engine_limits(&self) -> Limits {
        Limits {
            execution: *self.execution.value,
            interactive: *self.interactive.value,
            grace: *self.invoke_grace.value,
            message_bytes_max: *self.message_bytes.value,
            live_jobs_per_caller_max: self.live_jobs.value,
            live_jobs_max: self.live_jobs_total.value,
            memory_bytes_max: *self.memory.value as u64,
            memory_per_caller_bytes_max: *self.memory_per_caller.value as u64,
            stored_bytes_per_caller_max: self
                .quota(self.stored_bytes.value, STORED_BYTES_BEYOND_LOOPBACK),
            stored_bytes_max: self
                .quota(self.stored_bytes_total.value, STORED_BYTES_TOTAL_BEYOND_LOOPBACK),
            sub_jobs_per_root_max: self.sub_jobs.value as u64,
            running_max: self.running.value,
            rate: self.rate(),
            attempts_max: self.attempts.value,
            worker_lease: *self.worker_lease.value,
            queue_time: *self.queue_time.value,
            cpu_per_day: self.cpu_per_day.value.map(|time| *time),
            idempotency: *self.idempotency.value,
            retention: self.retention.value.map(|time| *time),
            content_bytes_max: *self.content_bytes.value as u64,
            anonymous_owns: self.is_local(),
            tree_commit_max: catena_engine::limits::TREE_COMMIT_MAX,
        }
    }

    fn quota(&self, setting: QuotaSetting, beyond_loopback: u64) -> Option<u64> {
        match setting {
            QuotaSetting::Off => None,
            QuotaSetting::Auto if self.is_local() => None,
            QuotaSetting::Auto => Some(beyond_loopback),
            QuotaSetting::Bytes(max) => Some(max),
        }
    }

    /// The highest limits of jobs that run code.
    pub fn plan(&self) -> Plan {
        let ceilings = catena_job::contract::Limits {
            timeout_ms: self.plan_timeout_ms.value,
            cpu_ms: self.plan_cpu_ms.value,
            memory_mb: self.plan_memory_mb.value,
            max_output_kb: self.plan_max_output_kb.value,
            max_artifacts: self.plan_max_artifacts.value,
        };
        Plan { ceilings, is_enforced: true }
    }

    /// The limits of agents.
    pub fn agents(&self) -> AgentPolicy {
        let deliveries_per_second = match self.agents_deliveries.value {
            RateSetting::Off => None,
            RateSetting::Auto if self.listen.ip().is_loopback() => None,
            RateSetting::Auto => Some(AGENT_DELIVERIES_PER_SECOND),
            RateSetting::PerSecond(rate) => Some((rate as u64).max(1)),
        };
        AgentPolicy {
            per_user: self.agents_per_user.value,
            inbox_entries: self.agents_inbox.value,
            inbox_bytes: *self.agents_inbox_bytes.value as u64,
            timeline_entries: self.agents_timeline.value,
            failures: self.agents_failures.value,
            deliveries_per_second,
            idle_ms: self
                .agents_idle
                .value
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
        }
    }

    fn rate(&self) -> Option<Rate> {
        let per_second = match self.rate.value {
            RateSetting::Off => return None,
            RateSetting::Auto if self.listen.ip().is_loopback() => return None,
            RateSetting::Auto => RATE_BEYOND_LOOPBACK,
            RateSetting::PerSecond(rate) => rate,
        };
        Some(Rate { per_second, burst: self.burst.value })
    }

    /// The maximum time that the venue takes to stop.
    pub fn grace(&self) -> Duration {
        *self.grace.value
    }
}

#[cfg(test)]
mod tests;
