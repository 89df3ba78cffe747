//! An operation: the metadata of an asset, parsed and checked once.

use std::sync::Arc;
use std::time::Duration;

use catena_job::plan::{Graph, Plan};
use catena_value::{Extent, Map, NoCells, Value, ValueId, Vector};

use crate::limits::{
    BACKOFF_MAX, INLINE_INPUT_BYTES_MAX, RETRY_ATTEMPTS_MAX, SECRET_FIELDS_MAX, VIOLATIONS_MAX,
};
use crate::operations::adapter::{Adapter, ExecutionMode};
use crate::operations::members;
use crate::operations::queue::{QueueOwner, QueueSpec};
use crate::operations::schema::{Schema, Secret, Violation};

/// An operation that can be invoked.
pub struct Operation {
    id: ValueId,
    id_text: String,
    /// The ID as records carry it.
    id_value: Value,
    metadata: Value,
    adapter_ref: String,
    adapter: Arc<dyn Adapter>,
    mode: ExecutionMode,
    /// How its adapter executes it, even if retries make it a task.
    adapter_mode: ExecutionMode,
    /// False if it was read from a path and may not be an asset yet.
    is_asset: bool,
    needs_compute_thread: bool,
    frees_storage: bool,
    controls_jobs: bool,
    input: Option<Schema>,
    output: Option<Schema>,
    timeout: Option<Duration>,
    recovery: Recovery,
    retry: Option<RetryPolicy>,
    read_only: bool,
    plan: Option<(Arc<Plan>, Arc<Graph>)>,
    queue: Option<QueueSpec>,
    /// Why it cannot be invoked although it was read: its definition has a member by which another one
    /// was probably meant.
    near_miss: Option<String>,
    /// The paths of secret values in its input: those of its schema, and those that flow into secret
    /// fields of its steps.
    secrets: Vec<Secret>,
}

/// What happens to a job that was running when its process stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Run it again.
    Rerun,
    /// Fail it, because its effects are unknown.
    Fail,
    /// Pause it and let a person decide.
    Pause,
}

/// When and how often a failed operation is retried.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub attempts: u32,
    /// The delay before the second attempt.
    pub backoff: Duration,
    /// The factor by which the delay grows with each attempt.
    pub factor: f64,
    /// The fraction of a delay by which it may be longer, at random.
    pub jitter: f64,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// The failure codes that are retried. Empty for all failures that a retry may overcome.
    pub on: Vec<String>,
}

impl RetryPolicy {
    /// Returns the delay after this many failed attempts. `random` is uniformly distributed.
    pub fn delay_after(&self, failed: u32, random: u64) -> Duration {
        let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
        let spread = 1.0 + self.jitter * (random as f64 / u64::MAX as f64);
        let seconds = self.backoff.as_secs_f64() * self.factor.powi(exponent) * spread;
        Duration::try_from_secs_f64(seconds).unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX)
    }
}

/// A problem of a definition: its location as a JSON pointer, and a description.
pub type Problem = (String, String);

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} ({})", self.id_text, self.adapter_ref)
    }
}

impl Operation {
    /// Parses a definition. `find` returns the adapter of an adapter reference and how its operation
    /// is executed.
    pub(crate) fn read(
        metadata: Value,
        find: impl Fn(&str) -> Option<(Arc<dyn Adapter>, ExecutionMode)>,
    ) -> Result<Operation, Vec<Problem>> {
        let mut problems = Vec::new();
        let reference = match member(&metadata, "adapter") {
            Some(Value::String(text)) => text.as_str().unwrap_or_default().to_owned(),
            _ => return Err(vec![at("adapter", "must be text, `adapter:operation`")]),
        };
        let Some((adapter, mode)) = find(&reference) else {
            let problem = format!("this venue has no adapter operation {reference}");
            return Err(vec![at("adapter", problem)]);
        };
        let secret_fields = secret_fields(&metadata, &mut problems);
        let input = schema("input", input_schema(&metadata, &secret_fields), &mut problems);
        let output = schema("output", member(&metadata, "output"), &mut problems);
        let timeout = milliseconds(&metadata, "timeoutMs", &mut problems);
        let is_repeatable = flag(&metadata, "pure", &mut problems)
            | flag(&metadata, "idempotent", &mut problems)
            | flag(&metadata, "readOnly", &mut problems);
        // What an operation on roots changes is committed with its outcome, so a job without an
        // outcome has changed nothing.
        let is_repeatable = is_repeatable | (mode == ExecutionMode::Roots);
        let default = if is_repeatable { Recovery::Rerun } else { Recovery::Fail };
        let default = adapter.default_recovery().unwrap_or(default);
        let recovery = recovery(&metadata, default, &mut problems);
        let retry = retry(&metadata, &mut problems);
        // A retry needs a record and a delay of its own.
        let adapter_mode = mode;
        let mode = if retry.is_some() { ExecutionMode::Task } else { mode };
        let name = reference.split_once(':').map_or("", |(_, name)| name);
        let needs_compute_thread =
            adapter_mode == ExecutionMode::Inline && adapter.needs_compute_thread(name);
        let frees_storage = adapter.frees_storage(name);
        let controls_jobs = adapter.controls_jobs(name);
        if !problems.is_empty() {
            return Err(problems);
        }
        let id = metadata.id();
        let near_miss = members::near_miss(&metadata);
        let read_only = member(&metadata, "readOnly") == Some(Value::Bool(true));
        let id_text = id.to_string().trim_start_matches("0x").to_owned();
        let secrets = input.as_ref().map_or_else(Vec::new, |schema| schema.secrets().to_vec());
        let mut operation = Operation {
            id,
            id_value: id_text.as_str().into(),
            id_text,
            metadata,
            adapter_ref: reference,
            adapter: Arc::clone(&adapter),
            mode,
            adapter_mode,
            is_asset: true,
            needs_compute_thread,
            frees_storage,
            controls_jobs,
            input,
            output,
            timeout,
            recovery,
            retry,
            read_only,
            plan: None,
            queue: None,
            near_miss,
            secrets,
        };
        if let Some(plan) = adapter.plan(&operation) {
            let plan = plan?;
            let graph = Arc::new(plan.graph());
            operation.plan = Some((Arc::new(plan), graph));
            // The chains say which steps have run, so an orchestration can always continue.
            operation.recovery = Recovery::Rerun;
        }
        if let Some(queue) = adapter.queue(&operation) {
            operation.queue = Some(queue?);
        }
        match adapter.check(&operation) {
            problems if problems.is_empty() => Ok(operation),
            problems => Err(problems),
        }
    }

    /// Takes the recovery rule from the adapter's own operation, unless the definition says whether
    /// it can be repeated: it is the same operation under another name.
    pub(crate) fn with_recovery_of(mut self, own: &Operation) -> Operation {
        let declares =
            |name: &&str| member(&self.metadata, name).is_some_and(|value| !value.is_nil());
        if self.plan.is_none()
            && !["recovery", "pure", "idempotent", "readOnly"].iter().any(declares)
        {
            self.recovery = own.recovery;
        }
        self
    }

    /// Returns the asset ID of its metadata.
    pub fn id(&self) -> ValueId {
        self.id
    }

    /// Returns the asset ID as 64 hex digits.
    pub fn id_text(&self) -> &str {
        &self.id_text
    }

    /// Returns the asset ID as records carry it.
    pub(crate) fn id_value(&self) -> Value {
        self.id_value.clone()
    }

    /// Returns the metadata of its asset.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// Returns a member of the metadata's `operation` object.
    pub fn member(&self, name: &str) -> Option<Value> {
        member(&self.metadata, name)
    }

    /// Returns `operation.adapter`: `name:operation`, or `name` alone.
    pub fn adapter_ref(&self) -> &str {
        &self.adapter_ref
    }

    /// Returns the part of [`Operation::adapter_ref`] after the colon. Empty if there is none.
    pub fn name(&self) -> &str {
        self.adapter_ref.split_once(':').map_or("", |(_, name)| name)
    }

    /// Returns true if the operation changes nothing, so that running it needs no job.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns what happens to a job that was running when its process stopped.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns the schema of its input, if it has one.
    pub fn input_schema(&self) -> Option<&Schema> {
        self.input.as_ref()
    }

    /// Returns the schema of its output, if it has one.
    pub fn output_schema(&self) -> Option<&Schema> {
        self.output.as_ref()
    }

    /// Returns its plan, if it consists of steps.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref().map(|(plan, _)| plan)
    }

    pub(crate) fn graph(&self) -> Option<Arc<Graph>> {
        self.plan.as_ref().map(|(_, graph)| Arc::clone(graph))
    }

    /// Returns true if attempts that failed and attempts whose worker was lost count together: those of
    /// executors do.
    pub(crate) fn counts_all_attempts(&self) -> bool {
        self.queue.as_ref().is_some_and(|spec| spec.owner == QueueOwner::Venue)
    }

    /// Returns how often a job may be attempted because of failures.
    pub(crate) fn attempts_max(&self) -> u32 {
        self.retry.as_ref().map_or(1, |policy| policy.attempts)
    }

    /// Returns how its jobs are queued for workers. `None` if this venue runs it itself.
    pub fn queue(&self) -> Option<&QueueSpec> {
        self.queue.as_ref()
    }

    /// Returns why it cannot be invoked although its definition can be read. `None` if it can.
    pub(super) fn near_miss(&self) -> Option<&str> {
        self.near_miss.as_deref()
    }

    pub(crate) fn adapter(&self) -> &Arc<dyn Adapter> {
        &self.adapter
    }

    pub(crate) fn mode(&self) -> ExecutionMode {
        self.mode
    }

    /// Returns true if its adapter executes it inline, at once and without effects.
    pub(crate) fn is_instant(&self) -> bool {
        self.adapter_mode == ExecutionMode::Inline
    }

    /// Returns true if its adapter executes it on roots.
    pub(crate) fn uses_roots(&self) -> bool {
        self.adapter_mode == ExecutionMode::Roots
    }

    /// Returns what a job with this input is bound to, as its first record names it. `None` if it is
    /// bound to nothing.
    pub(crate) fn binding(&self, input: &Value) -> Option<String> {
        if self.adapter_mode != ExecutionMode::Task {
            return None;
        }
        let name = self.adapter.binding(self.name(), input)?;
        Some(format!("{}/{name}", self.adapter.name()))
    }

    /// Returns false if it was read from a path, so that no asset may hold its definition yet.
    pub(crate) fn is_asset(&self) -> bool {
        self.is_asset
    }

    /// Marks a definition that was read from a path.
    pub(super) fn mark_unregistered(&mut self) {
        self.is_asset = false;
    }

    /// Returns true if it may be executed on a thread of the runtime with this input.
    pub(crate) fn runs_inline(&self, input: &Value) -> bool {
        self.mode == ExecutionMode::Inline && !self.needs_compute_thread && is_small(input)
    }

    /// Returns true if it deletes what is stored.
    pub(crate) fn frees_storage(&self) -> bool {
        self.frees_storage
    }

    /// Returns true if it controls other jobs.
    pub(crate) fn controls_jobs(&self) -> bool {
        self.controls_jobs
    }

    /// Returns true if an input is so large that only a compute thread may process it.
    pub(crate) fn needs_compute_thread(&self, input: &Value) -> bool {
        self.needs_compute_thread || !is_small(input)
    }

    /// Returns an upper bound of the bytes that it uses in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let schemas = [&self.input, &self.output].into_iter().flatten().map(Schema::bytes);
        // The parsed metadata, and the plan that is made of it, are a few times as large as their JSON.
        let limit = Extent { bytes: u64::MAX, depth: usize::MAX };
        let metadata = limit.measure(&self.metadata, &NoCells).unwrap_or(0);
        schemas.sum::<u64>() + metadata * 8 + 4_096
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns true if parts of its input are secret.
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Returns the paths of secret values in its input.
    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Marks further parts of the input as secret.
    pub(super) fn add_secrets(&mut self, secrets: Vec<Secret>) {
        for secret in secrets {
            if !self.secrets.contains(&secret) {
                self.secrets.push(secret);
            }
        }
    }

    pub(crate) fn retry(&self) -> Option<&RetryPolicy> {
        self.retry.as_ref()
    }

    /// Checks an input on a compute thread.
    pub(crate) fn check_input(&self, input: &Value) -> Conformity {
        let schema = self.input.as_ref();
        conformity(schema.map(|schema| schema.violations(input, VIOLATIONS_MAX)))
    }

    /// Checks an input on a thread of the runtime. `None` if that would take too long.
    pub(crate) fn check_input_inline(&self, input: &Value) -> Option<Conformity> {
        let Some(schema) = &self.input else { return Some(Ok(())) };
        Some(conformity(Some(schema.violations_inline(input, VIOLATIONS_MAX)?)))
    }

    /// Checks an output on a compute thread.
    pub(crate) fn check_output(&self, output: &Value) -> Conformity {
        let schema = self.output.as_ref();
        conformity(schema.map(|schema| schema.violations(output, VIOLATIONS_MAX)))
    }

    /// Checks an output on a thread of the runtime. `None` if that would take too long.
    pub(crate) fn check_output_inline(&self, output: &Value) -> Option<Conformity> {
        let Some(schema) = &self.output else { return Some(Ok(())) };
        Some(conformity(Some(schema.violations_inline(output, VIOLATIONS_MAX)?)))
    }
}

/// Whether a value conforms to a schema. If not, the violations as a text.
pub(crate) type Conformity = Result<(), String>;

fn conformity(violations: Option<Vec<Violation>>) -> Conformity {
    match violations {
        Some(violations) if !violations.is_empty() => Err(join(&violations)),
        _ => Ok(()),
    }
}

/// Returns true if a thread of the runtime may process a value.
fn is_small(value: &Value) -> bool {
    // Deeper values do not exist.
    let limit = Extent { bytes: INLINE_INPUT_BYTES_MAX, depth: usize::MAX };
    limit.measure(value, &NoCells).is_ok()
}

fn join(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns a member of the `operation` object of an asset's metadata.
pub(crate) fn member(metadata: &Value, name: &str) -> Option<Value> {
    let operation = metadata.as_map()?.get(&"operation".into(), &NoCells).ok()??;
    operation.as_map()?.get(&name.into(), &NoCells).ok()?
}

fn at(name: &str, problem: impl Into<String>) -> Problem {
    (format!("/operation/{name}"), problem.into())
}

fn schema(name: &str, schema: Option<Value>, problems: &mut Vec<Problem>) -> Option<Schema> {
    let schema = schema?;
    // A schema that allows everything needs no check.
    if matches!(schema, Value::Bool(true)) || schema.as_map().is_some_and(|map| map.is_empty()) {
        return None;
    }
    match Schema::compile(&schema) {
        Ok(schema) => Some(schema),
        Err(problem) => {
            problems.push(at(name, format!("not a JSON Schema: {problem}")));
            None
        }
    }
}

fn milliseconds(metadata: &Value, name: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
    let value = member(metadata, name).filter(|value| !value.is_nil())?;
    match value.as_i64().and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0) {
        Some(ms) => Some(Duration::from_millis(ms)),
        None => {
            problems.push(at(name, "must be a whole number of milliseconds above 0"));
            None
        }
    }
}

fn flag(metadata: &Value, name: &str, problems: &mut Vec<Problem>) -> bool {
    match member(metadata, name) {
        None | Some(Value::Nil) => false,
        Some(Value::Bool(flag)) => flag,
        Some(_) => {
            problems.push(at(name, "must be true or false"));
            false
        }
    }
}

fn recovery(metadata: &Value, default: Recovery, problems: &mut Vec<Problem>) -> Recovery {
    let Some(value) = member(metadata, "recovery").filter(|value| !value.is_nil()) else {
        return default;
    };
    match value.as_str() {
        Some("rerun") => Recovery::Rerun,
        Some("fail") => Recovery::Fail,
        Some("pause") => Recovery::Pause,
        _ => {
            problems.push(at("recovery", "must be `rerun`, `fail` or `pause`"));
            default
        }
    }
}

/// Returns the names of input members in `secretFields`: the reference implementation's way to mark them
/// `writeOnly`.
fn secret_fields(metadata: &Value, problems: &mut Vec<Problem>) -> Vec<Value> {
    let Some(value) = member(metadata, "secretFields").filter(|value| !value.is_nil()) else {
        return Vec::new();
    };
    let names: Option<Vec<Value>> = value
        .as_vector()
        .filter(|names| names.len() <= SECRET_FIELDS_MAX)
        .and_then(|names| names.iter(&NoCells).collect::<Result<_, _>>().ok())
        .filter(|names: &Vec<Value>| names.iter().all(|name| matches!(name, Value::String(_))));
    names.unwrap_or_else(|| {
        let text = format!("must be a list of at most {SECRET_FIELDS_MAX} names of input members");
        problems.push(at("secretFields", text));
        Vec::new()
    })
}

/// Returns the input schema of a definition in which the secret fields are marked `writeOnly`.
fn input_schema(metadata: &Value, secret_fields: &[Value]) -> Option<Value> {
    let declared = member(metadata, "input");
    if secret_fields.is_empty() {
        return declared;
    }
    let map = match &declared {
        None | Some(Value::Nil | Value::Bool(true)) => Map::new(),
        Some(Value::Map(map)) => map.clone(),
        Some(_) => return declared,
    };
    let secret = || Value::from([("writeOnly", Value::Bool(true))].into_iter().collect::<Map>());
    let fields: Map = secret_fields.iter().map(|name| (name.clone(), secret())).collect();
    let marks: Map = [("properties", Value::from(fields))].into_iter().collect();
    // Added next to the other rules, so that references within the schema keep their meaning.
    let rules = map.field("allOf").and_then(Value::as_vector);
    let rules = rules.into_iter().flat_map(|rules| rules.iter(&NoCells).flatten());
    let rules: Vector = rules.chain([marks.into()]).collect();
    map.insert("allOf".into(), rules.into(), &NoCells).ok().map(Value::from)
}

/// The jitter of a policy that declares none: enough that jobs that failed together are not retried
/// together.
const JITTER_DEFAULT: f64 = 0.1;

fn retry(metadata: &Value, problems: &mut Vec<Problem>) -> Option<RetryPolicy> {
    let value = member(metadata, "retry").filter(|value| !value.is_nil())?;
    let mut wrong = |name: &str, problem: &str| {
        problems.push(at(&format!("retry{name}"), problem));
    };
    let Some(map) = value.as_map() else {
        wrong("", "must be an object");
        return None;
    };
    for unknown in members::RETRY.unknown(map) {
        wrong("", &unknown.to_string());
    }
    let field = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
    let attempts = field("attempts").and_then(|value| value.as_i64());
    let attempts = attempts.filter(|attempts| (1..=RETRY_ATTEMPTS_MAX).contains(attempts));
    let Some(attempts) = attempts else {
        wrong("/attempts", "must be a whole number from 1 to 100");
        return None;
    };
    let backoff = match field("backoffMs") {
        None => Some(1_000),
        Some(value) => value.as_i64().filter(|ms| *ms >= 0),
    };
    let Some(backoff) = backoff else {
        wrong("/backoffMs", "must be a whole number of milliseconds");
        return None;
    };
    let factor = match field("factor") {
        None => 2.0,
        Some(Value::Double(factor)) => factor.get(),
        Some(value) => value.as_i64().map_or(f64::NAN, |factor| factor as f64),
    };
    if !(1.0..=100.0).contains(&factor) {
        wrong("/factor", "must be a number from 1 to 100");
        return None;
    }
    let fraction = match field("jitter") {
        None => JITTER_DEFAULT,
        Some(Value::Double(fraction)) => fraction.get(),
        Some(value) => value.as_i64().map_or(f64::NAN, |fraction| fraction as f64),
    };
    if !(0.0..=1.0).contains(&fraction) {
        wrong("/jitter", "must be a number from 0 to 1");
        return None;
    }
    let timeout = match field("timeoutMs") {
        None => None,
        Some(value) => match value.as_i64().and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) if ms > 0 => Some(Duration::from_millis(ms)),
            _ => {
                wrong("/timeoutMs", "must be a whole number of milliseconds, 1 or more");
                return None;
            }
        },
    };
    let mut on = Vec::new();
    if let Some(codes) = field("on") {
        let Some(codes) = codes.as_vector() else {
            wrong("/on", "must be a list of failure codes");
            return None;
        };
        for code in codes.iter(&NoCells).flatten() {
            on.extend(code.as_str().map(str::to_owned));
        }
    }
    let backoff = Duration::from_millis(u64::try_from(backoff).unwrap_or(0));
    let attempts = u32::try_from(attempts).unwrap_or(1);
    Some(RetryPolicy { attempts, backoff, factor, jitter: fraction, timeout, on })
}
