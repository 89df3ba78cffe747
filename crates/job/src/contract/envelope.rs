//! The payload of a contract job: reading what a caller sent, and completing it.
//!
//! Members that this version does not know are kept: a newer minor version may have added them. What it
//! knows is checked strictly, and an error names the member.

use catena_value::{Map, NoCells, Value};

use super::SCHEMA_VERSION;
use super::cell::{Dataset, check_dataset_names};
use super::error::ContractError;
use super::key::{KeyParts, execution_key, input_hash};
use super::read::{is_digest, is_uuid, items, object, present, text, texts, uuid_of};
use crate::JobId;
use crate::limits::{CONTRACT_ENTRIES_MAX, CONTRACT_NAME_BYTES_MAX};

/// The kind of environment that renders.
pub const RENDER_PROFILE: &str = "render";

/// What a contract job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobType {
    /// Executes a compute-capable object, such as a Python cell.
    ObjectExecute,
    /// Renders derived outputs, such as LaTeX as SVG.
    ObjectRender,
    /// Exports a document.
    DocumentExport,
    /// Generates thumbnails.
    ThumbnailGenerate,
}

impl JobType {
    /// All types.
    pub const ALL: [JobType; 4] = [
        JobType::ObjectExecute,
        JobType::ObjectRender,
        JobType::DocumentExport,
        JobType::ThumbnailGenerate,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            JobType::ObjectExecute => "object_execute",
            JobType::ObjectRender => "object_render",
            JobType::DocumentExport => "document_export",
            JobType::ThumbnailGenerate => "thumbnail_generate",
        }
    }

    /// The kind of environment that runs it; `default` for code.
    pub fn profile(self, default: &str) -> &str {
        match self {
            JobType::ObjectExecute => default,
            _ => RENDER_PROFILE,
        }
    }

    /// Whether it names a target object.
    const fn needs_target(self) -> bool {
        matches!(self, JobType::ObjectExecute | JobType::ObjectRender)
    }

    /// The language of its environment.
    pub const fn language(self) -> &'static str {
        match self {
            JobType::ObjectExecute => "python",
            _ => RENDER_PROFILE,
        }
    }
}

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// No head start.
    Low,
    /// A head start of one minute.
    #[default]
    Normal,
    /// A head start of two minutes.
    High,
}

impl Priority {
    /// All priorities.
    pub const ALL: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        }
    }

    /// The priority on a queue, of which each level is a head start of 12 s and -10 is the lowest.
    pub const fn level(self) -> i64 {
        match self {
            Priority::Low => -10,
            Priority::Normal => -5,
            Priority::High => 0,
        }
    }
}

/// What a job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Wall time in ms, from the first instruction of the cell.
    pub timeout_ms: u64,
    /// CPU time in ms.
    pub cpu_ms: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// What is kept of stdout, and of stderr, in KiB each.
    pub max_output_kb: u64,
    /// The number of artifacts.
    pub max_artifacts: u64,
}

impl Limits {
    /// The limits of a job that states none.
    pub const DEFAULT: Limits = Limits {
        timeout_ms: 30_000,
        cpu_ms: 30_000,
        memory_mb: 512,
        max_output_kb: 256,
        max_artifacts: 50,
    };

    /// The limits with their names.
    pub fn members(&self) -> [(&'static str, u64); 5] {
        [
            ("timeout_ms", self.timeout_ms),
            ("cpu_ms", self.cpu_ms),
            ("memory_mb", self.memory_mb),
            ("max_output_kb", self.max_output_kb),
            ("max_artifacts", self.max_artifacts),
        ]
    }

    fn from_numbers(
        [timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts]: [u64; 5],
    ) -> Self {
        Limits { timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts }
    }

    /// Reads limits. Missing members take the defaults; values above the plan are refused.
    pub fn read(limits: &Map, plan: &Plan) -> Result<Limits, ContractError> {
        let mut numbers = [0; 5];
        let defaults = Limits::DEFAULT.members();
        for (at, (name, ceiling)) in plan.ceilings.members().into_iter().enumerate() {
            let field = format!("limits.{name}");
            let Some(value) = present(limits, name) else {
                numbers[at] = defaults[at].1.min(ceiling);
                continue;
            };
            let number = value.as_i64().and_then(|number| u64::try_from(number).ok());
            let least = u64::from(!name.starts_with("max_"));
            let number = number.filter(|number| *number >= least).ok_or_else(|| {
                ContractError::at(&field, format!("must be a whole number, at least {least}"))
            })?;
            if number > ceiling && plan.is_enforced {
                let text = format!("`{field}` is {number}; the plan allows at most {ceiling}");
                let ceiling = i64::try_from(ceiling).unwrap_or(i64::MAX);
                let error = ContractError::invalid("LIMIT_ABOVE_PLAN", text);
                return Err(error.with("field", field.as_str()).with("maximum", ceiling));
            }
            numbers[at] = number;
        }
        Ok(Limits::from_numbers(numbers))
    }
}

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The highest limits.
    pub ceilings: Limits,
    /// Whether higher limits are refused. They are not when something is read again that was accepted.
    pub is_enforced: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let ceilings = Limits {
            timeout_ms: 300_000,
            cpu_ms: 300_000,
            memory_mb: 4_096,
            max_output_kb: 4_096,
            max_artifacts: 200,
        };
        Plan { ceilings, is_enforced: true }
    }
}

impl Plan {
    /// The same plan, to read again what was accepted before: missing limits take the same values.
    #[must_use]
    pub fn accepting(self) -> Plan {
        Plan { is_enforced: false, ..self }
    }

    /// A plan without ceilings, to read limits that are complete.
    pub const UNLIMITED: Plan = Plan {
        ceilings: Limits {
            timeout_ms: i64::MAX as u64,
            cpu_ms: i64::MAX as u64,
            memory_mb: i64::MAX as u64,
            max_output_kb: i64::MAX as u64,
            max_artifacts: i64::MAX as u64,
        },
        is_enforced: false,
    };
}

/// Members of a request that are not part of the payload.
const OPTIONS: [&str; 2] = ["reuse_failed", "supersede"];

/// Members that the platform sets, whatever the caller wrote.
const PLATFORM: [&str; 4] = ["job_id", "created_at", "execution_key", "requested_by"];

/// The identity that every contract job has.
const IDENTITY: [&str; 4] = ["workspace_id", "project_id", "document_id", "document_revision_id"];

/// The formats of the source's example.
const FORMATS: [&str; 3] = ["json", "png", "svg"];

/// A payload that was read and found valid.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// What the job does.
    pub job_type: JobType,
    /// How urgent it is.
    pub priority: Priority,
    /// What it may use.
    pub limits: Limits,
    /// The environment that the caller asks for. `None` for the venue's default.
    pub env_version: Option<String>,
    /// The target objects.
    pub object_ids: Vec<String>,
    /// True if the failure of an earlier job with the same key is good enough.
    pub reuse_failed: bool,
    /// True if earlier jobs of the same objects that have not ended are cancelled.
    pub supersede: bool,
    /// The members of the payload, completed with defaults.
    members: Map,
}

/// A payload whose environment is decided.
#[derive(Debug, Clone)]
pub struct Keyed {
    /// The members of the payload.
    pub members: Map,
    /// The hash of its inputs.
    pub input_hash: String,
    /// Its key.
    pub execution_key: String,
}

impl Envelope {
    /// Reads the body of a request.
    pub fn read(body: &Map, plan: &Plan) -> Result<Envelope, ContractError> {
        check_version(body)?;
        let job_type = read_job_type(body)?;
        for name in IDENTITY {
            check_uuid(body, name, name)?;
        }
        let object_ids = read_targets(body, job_type)?;
        let priority = read_priority(body)?;
        let limits = Limits::read(&optional_map(body, "limits")?, plan)?;
        let environment = read_environment(&optional_map(body, "environment")?, job_type)?;
        let output_spec = optional_map(body, "output_spec")?;
        let output_spec = match job_type {
            JobType::ObjectExecute => read_output_spec(&output_spec)?,
            _ => output_spec,
        };
        let inputs = body.field("inputs").and_then(Value::as_map);
        let inputs = inputs.ok_or_else(|| ContractError::at("inputs", "must be an object"))?;
        if job_type == JobType::ObjectExecute {
            check_object(inputs)?;
            check_snapshots(inputs)?;
        } else {
            super::render::check(job_type, body)?;
        }
        let mut members = body.clone();
        for name in OPTIONS.into_iter().chain(PLATFORM) {
            members = removed(&members, name);
        }
        let env_version = text(&environment, "env_version");
        let given = optional_map(body, "limits")?;
        for (name, value) in [
            (
                "schema_version",
                text(body, "schema_version").unwrap_or(SCHEMA_VERSION.into()).into(),
            ),
            ("priority", priority.as_str().into()),
            ("limits", limits_value(&given, &limits)),
            ("environment", environment.into()),
            ("output_spec", output_spec.into()),
        ] {
            members = with(&members, name, value);
        }
        Ok(Envelope {
            job_type,
            priority,
            limits,
            env_version,
            object_ids,
            reuse_failed: flag(body, "reuse_failed")?,
            supersede: flag(body, "supersede")?,
            members,
        })
    }

    /// Returns a member that is a text.
    pub fn text(&self, name: &str) -> String {
        text(&self.members, name).unwrap_or_default()
    }

    /// Decides the environment, and computes the key.
    pub fn keyed(&self, env_version: &str) -> Keyed {
        let environment = self.members.field("environment").and_then(Value::as_map);
        let environment =
            with(&environment.cloned().unwrap_or_default(), "env_version", env_version.into());
        let members = with(&self.members, "environment", environment.into());
        let input_hash = input_hash(&members);
        let execution_key = execution_key(&KeyParts {
            job_type: self.job_type.as_str(),
            document_revision_id: &self.text("document_revision_id"),
            target_object_ids: &self.object_ids,
            input_hash: &input_hash,
            env_version,
        });
        Keyed { members, input_hash, execution_key }
    }
}

/// Returns the body of a request without what is not part of the payload: the input of the job.
pub fn input_of_body(body: &Map) -> Map {
    OPTIONS.into_iter().fold(body.clone(), |body, name| removed(&body, name))
}

/// Returns who asked for a job, as payloads say it.
pub fn requested_by(caller: &str) -> Value {
    object([("user_id", uuid_of(&[caller]).into()), ("did", caller.into())])
}

/// Returns the payload that an executor gets: what was completed, and what the platform sets.
pub fn payload(
    members: &Map,
    job: JobId,
    created: i64,
    caller: &str,
    execution_key: Option<&str>,
) -> Value {
    let platform = [
        ("job_id", Value::from(job.to_uuid())),
        ("created_at", super::format_time(created).into()),
        ("requested_by", requested_by(caller)),
        ("execution_key", execution_key.map_or(Value::Nil, Value::from)),
    ];
    platform.into_iter().fold(members.clone(), |map, (name, value)| with(&map, name, value)).into()
}

fn with(map: &Map, name: &str, value: Value) -> Map {
    map.insert(name.into(), value, &NoCells).unwrap_or_else(|_| map.clone())
}

fn removed(map: &Map, name: &str) -> Map {
    map.remove(&name.into(), &NoCells).unwrap_or_else(|_| map.clone())
}

fn flag(body: &Map, name: &str) -> Result<bool, ContractError> {
    match present(body, name) {
        None => Ok(false),
        Some(value) => {
            value.as_bool().ok_or_else(|| ContractError::at(name, "must be true or false"))
        }
    }
}

fn optional_map(body: &Map, name: &str) -> Result<Map, ContractError> {
    match present(body, name) {
        None => Ok(Map::new()),
        Some(value) => {
            let map = value.as_map().cloned();
            map.ok_or_else(|| ContractError::at(name, "must be an object"))
        }
    }
}

fn check_version(body: &Map) -> Result<(), ContractError> {
    let Some(version) = present(body, "schema_version") else { return Ok(()) };
    let version = version.to_text().unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((&version, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if major == "1" && is_number(minor) {
        return Ok(());
    }
    let text = format!("`schema_version` {version:?} is not supported; this venue supports 1.x");
    let error = ContractError::invalid("UNSUPPORTED_SCHEMA_VERSION", text);
    Err(error.with("field", "schema_version").with("supported", texts([SCHEMA_VERSION])))
}

fn read_job_type(body: &Map) -> Result<JobType, ContractError> {
    let name = text(body, "job_type")
        .ok_or_else(|| ContractError::at("job_type", "is missing or not a string"))?;
    JobType::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
        let text = format!("there is no job type {name:?}");
        ContractError::invalid("UNSUPPORTED_JOB_TYPE", text).with("field", "job_type")
    })
}

fn check_uuid(map: &Map, name: &str, field: &str) -> Result<String, ContractError> {
    match text(map, name) {
        Some(id) if is_uuid(&id) => Ok(id),
        Some(_) => Err(ContractError::at(field, "must be a UUID")),
        None => Err(ContractError::at(field, "is missing or not a UUID")),
    }
}

fn read_targets(body: &Map, job_type: JobType) -> Result<Vec<String>, ContractError> {
    let target = optional_map(body, "target")?;
    let ids = match present(&target, "object_ids") {
        None if !job_type.needs_target() && present(&target, "object_id").is_none() => Vec::new(),
        None => vec![check_uuid(&target, "object_id", "target.object_id")?],
        Some(ids) => {
            let field = "target.object_ids";
            let ids = items(ids).filter(|ids| !ids.is_empty());
            let ids = ids.filter(|ids| ids.len() <= CONTRACT_ENTRIES_MAX);
            let ids = ids.ok_or_else(|| ContractError::at(field, "must be an array of UUIDs"))?;
            let ids =
                ids.iter().map(|id| Some(id.to_text()?.into_owned()).filter(|id| is_uuid(id)));
            let ids: Option<Vec<String>> = ids.collect();
            ids.ok_or_else(|| ContractError::at(field, "must be an array of UUIDs"))?
        }
    };
    Ok(ids)
}

fn read_priority(body: &Map) -> Result<Priority, ContractError> {
    let Some(value) = present(body, "priority") else { return Ok(Priority::Normal) };
    let name = value.to_text().unwrap_or_default();
    let known = Priority::ALL.into_iter().find(|known| known.as_str() == name);
    known.ok_or_else(|| ContractError::at("priority", "must be low, normal or high"))
}

fn limits_value(given: &Map, limits: &Limits) -> Value {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).into();
    let members = limits.members();
    members
        .into_iter()
        .fold(given.clone(), |map, (name, limit)| with(&map, name, number(limit)))
        .into()
}

fn read_environment(given: &Map, job_type: JobType) -> Result<Map, ContractError> {
    let word = |name: &str, default: &str| match present(given, name) {
        None => Ok(default.to_owned()),
        Some(value) => {
            let field = format!("environment.{name}");
            let text = value.to_text().map(std::borrow::Cow::into_owned);
            text.ok_or_else(|| ContractError::at(&field, "must be a string"))
        }
    };
    let supported = job_type.language();
    let language = word("language", supported)?;
    if language != supported {
        let text = format!("the language {language:?} is not supported; {supported} is");
        let error = ContractError::invalid("UNSUPPORTED_LANGUAGE", text);
        return Err(error.with("field", "environment.language"));
    }
    let network = word("network_access", "disabled")?;
    if network != "disabled" {
        let text = "no plan of this venue allows network access; use `disabled`";
        let error = ContractError::invalid("NETWORK_NOT_ALLOWED", text);
        return Err(error.with("field", "environment.network_access"));
    }
    word("env_version", "")?;
    let environment = with(given, "language", language.into());
    Ok(with(&environment, "network_access", network.into()))
}

fn read_output_spec(given: &Map) -> Result<Map, ContractError> {
    let mut spec = given.clone();
    for name in ["return_stdout", "return_stderr"] {
        let is_returned = match present(given, name) {
            None => true,
            Some(value) => {
                let field = format!("output_spec.{name}");
                let flag = value.as_bool();
                flag.ok_or_else(|| ContractError::at(&field, "must be true or false"))?
            }
        };
        spec = with(&spec, name, is_returned.into());
    }
    match present(given, "formats") {
        None => spec = with(&spec, "formats", texts(FORMATS)),
        Some(formats) => check_formats(formats)?,
    }
    Ok(spec)
}

fn check_formats(formats: &Value) -> Result<(), ContractError> {
    let error = || {
        let text = "must be an array of file extensions: 1 to 16 lower-case letters and digits";
        ContractError::at("output_spec.formats", text)
    };
    let formats = items(formats).filter(|formats| formats.len() <= CONTRACT_ENTRIES_MAX);
    for format in formats.ok_or_else(error)? {
        let format = format.to_text().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if format.is_empty() || format.len() > 16 || !format.chars().all(is_plain) {
            return Err(error());
        }
    }
    Ok(())
}

/// Checks the object that is executed.
fn check_object(inputs: &Map) -> Result<(), ContractError> {
    let map = |map: &Map, name: &str, field: &str| {
        let found = map.field(name).and_then(Value::as_map).cloned();
        found.ok_or_else(|| ContractError::at(field, "must be an object"))
    };
    let target = map(inputs, "object", "inputs.object")?;
    if let Some(kind) = text(&target, "type").filter(|kind| kind != "code") {
        let text = format!("objects of type {kind:?} cannot be executed; `code` can");
        let error = ContractError::invalid("UNSUPPORTED_OBJECT_TYPE", text);
        return Err(error.with("field", "inputs.object.type"));
    }
    let content = map(&target, "content", "inputs.object.content")?;
    super::cell::check_content(&content)?;
    check_dependencies(&target)?;
    let Some(runtime) = present(&target, "runtime") else { return Ok(()) };
    let field = "inputs.object.runtime";
    let runtime = runtime.as_map().ok_or_else(|| ContractError::at(field, "must be an object"))?;
    super::cell::check_runtime(runtime)
}

fn check_dependencies(target: &Map) -> Result<(), ContractError> {
    let Some(given) = present(target, "dependencies") else { return Ok(()) };
    let field = "inputs.object.dependencies";
    let mut datasets = Vec::new();
    let list = items(given).filter(|list| list.len() <= CONTRACT_ENTRIES_MAX);
    let list = list.ok_or_else(|| ContractError::at(field, "must be an array of objects"))?;
    for (at, entry) in list.iter().enumerate() {
        let field = format!("{field}.{at}");
        let entry = entry.as_map().ok_or_else(|| ContractError::at(&field, "must be an object"))?;
        match text(entry, "kind").as_deref() {
            Some("object") => {
                check_uuid(entry, "id", &format!("{field}.id"))?;
            }
            Some("dataset") => {
                check_digest(entry, "digest", &format!("{field}.digest"))?;
                check_name(entry, &format!("{field}.name"))?;
                datasets.extend(Dataset::read(entry).map(|dataset| (field, dataset)));
            }
            _ => {
                return Err(ContractError::at(
                    &format!("{field}.kind"),
                    "must be object or dataset",
                ));
            }
        }
    }
    check_dataset_names(field, &datasets)
}

/// Checks the name under which a dataset appears: one path component.
pub(super) fn check_name(entry: &Map, field: &str) -> Result<(), ContractError> {
    let Some(name) = present(entry, "name") else { return Ok(()) };
    let name = name.to_text().unwrap_or_default();
    let is_plain = !name.is_empty()
        && name.len() <= CONTRACT_NAME_BYTES_MAX
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control)
        && name != "."
        && name != ".."
        && name != "objects";
    if is_plain { Ok(()) } else { Err(ContractError::at(field, "must be a plain file name")) }
}

fn check_digest(map: &Map, name: &str, field: &str) -> Result<(), ContractError> {
    let digest = text(map, name).filter(|digest| is_digest(digest));
    let error = || ContractError::at(field, "must be `sha256:` and 64 lower-case hex digits");
    digest.map(drop).ok_or_else(error)
}

fn check_snapshots(inputs: &Map) -> Result<(), ContractError> {
    let Some(given) = present(inputs, "dependency_snapshots") else { return Ok(()) };
    let field = "inputs.dependency_snapshots";
    let list = items(given).filter(|list| list.len() <= CONTRACT_ENTRIES_MAX);
    let list = list.ok_or_else(|| ContractError::at(field, "must be an array of objects"))?;
    for (at, entry) in list.iter().enumerate() {
        let field = format!("{field}.{at}");
        let entry = entry.as_map().ok_or_else(|| ContractError::at(&field, "must be an object"))?;
        if text(entry, "kind").as_deref() == Some("object") {
            check_uuid(entry, "id", &format!("{field}.id"))?;
            check_digest(entry, "content_digest", &format!("{field}.content_digest"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
