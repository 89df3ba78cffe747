//! An operation: the metadata of an asset, read and checked once.

use std::sync::Arc;
use std::time::Duration;

use catena_job::plan::{Graph, Plan};
use catena_value::{NoCells, Value, ValueId};

use crate::adapter::{Adapter, ExecutionMode};
use crate::schema::{Schema, Secret};

/// Most tries that `operation.retry` may ask for.
const ATTEMPTS_MAX: i64 = 100;

/// Longest wait between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(24 * 3600);

/// An operation that can be invoked.
pub struct Operation {
    id: ValueId,
    id_text: String,
    /// The same as records carry it.
    id_value: Value,
    metadata: Value,
    reference: String,
    adapter: Arc<dyn Adapter>,
    mode: ExecutionMode,
    input: Option<Schema>,
    output: Option<Schema>,
    timeout: Option<Duration>,
    recovery: Recovery,
    retry: Option<Retry>,
    read_only: bool,
    plan: Option<(Arc<Plan>, Arc<Graph>)>,
}

/// What to do with a job that was running when the venue stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Run it again.
    Rerun,
    /// Fail it: its effects are unknown.
    Fail,
    /// Pause it, and let somebody decide.
    Pause,
}

/// When and how often a failed operation is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub attempts: u32,
    /// How long to wait before the second try.
    pub backoff: Duration,
    /// By how much that grows each time.
    pub factor: f64,
    /// The codes of failures that are tried again; empty for all that may pass.
    pub on: Vec<String>,
}

impl Retry {
    /// How long to wait before this try, the second being 2.
    pub fn backoff_before(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(2)).unwrap_or(i32::MAX);
        let seconds = self.backoff.as_secs_f64() * self.factor.powi(exponent);
        Duration::try_from_secs_f64(seconds).unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX)
    }
}

/// What is wrong with a definition, and where, as a JSON pointer.
pub type Problem = (String, String);

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} ({})", self.id_text, self.reference)
    }
}

impl Operation {
    /// Reads a definition. `find` gives the adapter with a name, and the mode of one of its
    /// operations.
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
        let input = schema(&metadata, "input", &mut problems);
        let output = schema(&metadata, "output", &mut problems);
        let timeout = milliseconds(&metadata, "timeoutMs", &mut problems);
        let is_repeatable = flag(&metadata, "pure", &mut problems)
            | flag(&metadata, "idempotent", &mut problems)
            | flag(&metadata, "readOnly", &mut problems);
        let recovery = recovery(&metadata, is_repeatable, &mut problems);
        let retry = retry(&metadata, &mut problems);
        // Another try is another record and a wait before it.
        let mode = if retry.is_some() { ExecutionMode::Task } else { mode };
        if !problems.is_empty() {
            return Err(problems);
        }
        let id = metadata.id();
        let read_only = member(&metadata, "readOnly") == Some(Value::Bool(true));
        let id_text = id.to_string().trim_start_matches("0x").to_owned();
        let operation = Operation {
            id,
            id_value: id_text.as_str().into(),
            id_text,
            metadata,
            reference,
            adapter: Arc::clone(&adapter),
            mode,
            input,
            output,
            timeout,
            recovery,
            retry,
            read_only,
            plan: None,
        };
        let mut operation = operation;
        if let Some(plan) = adapter.plan(&operation) {
            let plan = plan?;
            let graph = Arc::new(plan.graph());
            operation.plan = Some((Arc::new(plan), graph));
            // What has run is in the chains: it always goes on with what has not.
            operation.recovery = Recovery::Rerun;
        }
        match adapter.check(&operation) {
            problems if problems.is_empty() => Ok(operation),
            problems => Err(problems),
        }
    }

    /// The same, recovering like the adapter's own operation unless the definition says whether it
    /// can be repeated: what is run is the same under another name.
    pub(crate) fn recovering_like(mut self, own: &Operation) -> Operation {
        let says = |name: &&str| member(&self.metadata, name).is_some_and(|value| !value.is_nil());
        if self.plan.is_none() && !["recovery", "pure", "idempotent", "readOnly"].iter().any(says) {
            self.recovery = own.recovery;
        }
        self
    }

    /// The asset ID of its metadata.
    pub fn id(&self) -> ValueId {
        self.id
    }

    /// The asset ID as 64 hex digits.
    pub fn id_text(&self) -> &str {
        &self.id_text
    }

    /// The same as records carry it.
    pub(crate) fn id_value(&self) -> Value {
        self.id_value.clone()
    }

    /// The metadata of its asset.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// One member of the metadata's `operation` object.
    pub fn member(&self, name: &str) -> Option<Value> {
        member(&self.metadata, name)
    }

    /// `operation.adapter`: `name:operation`, or `name` alone.
    pub fn adapter(&self) -> &str {
        &self.reference
    }

    /// The part of [`Operation::adapter`] after the colon; empty when there is none.
    pub fn name(&self) -> &str {
        self.reference.split_once(':').map_or("", |(_, name)| name)
    }

    /// Whether it changes nothing, so that running it needs no job.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What to do with a job of it that was running when the venue stopped.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The schema of its input, when it has one.
    pub fn input_schema(&self) -> Option<&Schema> {
        self.input.as_ref()
    }

    /// The schema of its output, when it has one.
    pub fn output_schema(&self) -> Option<&Schema> {
        self.output.as_ref()
    }

    /// Its steps, when it is carried out as steps.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref().map(|(plan, _)| plan)
    }

    pub(crate) fn graph(&self) -> Option<Arc<Graph>> {
        self.plan.as_ref().map(|(_, graph)| Arc::clone(graph))
    }

    pub(crate) fn carrier(&self) -> &Arc<dyn Adapter> {
        &self.adapter
    }

    pub(crate) fn mode(&self) -> ExecutionMode {
        self.mode
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The places in its input that are secret.
    pub(crate) fn secrets(&self) -> &[Secret] {
        self.input.as_ref().map_or(&[], |schema| schema.secrets())
    }

    pub(crate) fn retry(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }
}

/// One member of the `operation` object of an asset's metadata.
pub(crate) fn member(metadata: &Value, name: &str) -> Option<Value> {
    let operation = metadata.as_map()?.get(&"operation".into(), &NoCells).ok()??;
    operation.as_map()?.get(&name.into(), &NoCells).ok()?
}

fn at(name: &str, problem: impl Into<String>) -> Problem {
    (format!("/operation/{name}"), problem.into())
}

fn schema(metadata: &Value, name: &str, problems: &mut Vec<Problem>) -> Option<Schema> {
    let schema = member(metadata, name)?;
    // A schema that allows everything is not worth a check.
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

fn recovery(metadata: &Value, is_repeatable: bool, problems: &mut Vec<Problem>) -> Recovery {
    let default = if is_repeatable { Recovery::Rerun } else { Recovery::Fail };
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

fn retry(metadata: &Value, problems: &mut Vec<Problem>) -> Option<Retry> {
    let value = member(metadata, "retry").filter(|value| !value.is_nil())?;
    let mut wrong = |name: &str, problem: &str| {
        problems.push(at(&format!("retry{name}"), problem));
    };
    let Some(map) = value.as_map() else {
        wrong("", "must be an object");
        return None;
    };
    let field = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
    let attempts = field("attempts").and_then(|value| value.as_i64());
    let attempts = attempts.filter(|attempts| (1..=ATTEMPTS_MAX).contains(attempts));
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
    Some(Retry { attempts, backoff, factor, on })
}
