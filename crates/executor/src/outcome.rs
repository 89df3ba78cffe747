//! What the end of a cell means for its job: the end that the venue records, and what the executor says
//! about the execution.

use std::time::{SystemTime, UNIX_EPOCH};

use catena_api::client::worker::{ClaimedJob, End, Retry};
use catena_job::contract::{Category, ContractError, Limits, format_time, uuid_of};
use catena_job::limits::{CONTRACT_LOG_BYTES_MAX, CONTRACT_LOGS_MAX};
use catena_sandbox::{Artifact, Failure, Outcome, Verdict};
use catena_value::{Value, Vector, json};

use crate::environment::Environment;
use crate::executor::Shared;
use crate::job::Work;
use crate::json::object;

/// Everything that is said about an execution.
pub(crate) struct Execution {
    executor: String,
    /// True if the job is one of the operation that runs code alone.
    is_operation: bool,
    /// Language, version and tier.
    environment: Option<(&'static str, String, &'static str)>,
    pub(crate) limits: Option<Limits>,
    /// Unix time in ms.
    pub(crate) started: i64,
    /// Unix time in ms.
    pub(crate) finished: i64,
    logs: Vec<(&'static str, String, i64)>,
    /// Log entries beyond those that are kept.
    dropped: u64,
    /// What a cell that has run used and wrote.
    members: Vec<(&'static str, Value)>,
}

impl Execution {
    pub(crate) fn new(shared: &Shared, job: &ClaimedJob) -> Execution {
        let payload = job.input.as_map();
        Execution {
            executor: shared.name.clone(),
            is_operation: payload.is_some_and(|payload| payload.field("operation").is_some()),
            environment: None,
            limits: None,
            started: now_ms(),
            finished: now_ms(),
            logs: Vec::new(),
            dropped: 0,
            members: Vec::new(),
        }
    }

    pub(crate) fn use_environment(&mut self, environment: &Environment) {
        let tier = environment.sandbox.tier().as_str();
        self.environment = Some((environment.language(), environment.version.clone(), tier));
    }

    /// Returns the end of a job whose cell did not run.
    pub(crate) fn fail(&mut self, error: &ContractError) -> End {
        self.finished = now_ms();
        self.log("error", &error.message);
        self.failed(error, false)
    }

    /// Returns the end of a job whose cell has run.
    pub(crate) fn end(&mut self, plan: &Work, outcome: &Outcome, artifacts: Vec<Value>) -> End {
        for refused in &outcome.refused {
            self.log("warning", &format!("{} is no artifact: {}", refused.name, refused.reason));
        }
        self.dropped += outcome.refused_more;
        let usage = &outcome.usage;
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let peak = i64::try_from(usage.memory_bytes_peak.div_ceil(1 << 20)).unwrap_or(i64::MAX);
        let resources = [("cpu_ms", ms(usage.cpu).into()), ("memory_mb_peak", peak.into())];
        self.members.push(("resource_usage", object(resources)));
        self.members.push(("duration_ms", ms(usage.wall).into()));
        self.members.push(("artifacts", artifacts.iter().cloned().collect::<Vector>().into()));
        let failure = match &outcome.verdict {
            Verdict::Succeeded => {
                self.log("info", "Execution completed");
                let result =
                    outcome.result.as_deref().and_then(|text| json::read(text.as_bytes()).ok());
                let output =
                    self.outputs(plan, outcome, Some(result.unwrap_or_default()), &artifacts);
                return self.finish(End::Output(output));
            }
            // The venue has asked for it and wants no result.
            Verdict::Cancelled => return End::Awaiting(Vec::new()),
            Verdict::Failed(failure) if failure.code == "PAUSE_LIMIT" => {
                return End::Awaiting(Vec::new());
            }
            Verdict::Failed(failure) => failure,
        };
        let outputs = self.outputs(plan, outcome, None, &artifacts);
        self.members.push(("outputs", outputs));
        let mut error = error_of(plan, failure);
        if let Some(block) = &failure.block {
            error = error.with("block", block.as_str());
        }
        if let Some(line) = failure.line {
            let located = match plan {
                Work::Cell(plan) => plan.locate(line),
                Work::Render(_) => None,
            };
            match located {
                Some((block, line)) => {
                    error = error.with("block", block.id.as_str()).with("line", i64::from(line));
                }
                None => error = error.with("line", i64::from(line)),
            }
        }
        if let Some(column) = failure.column {
            error = error.with("column", i64::from(column));
        }
        if let Some(traceback) = &failure.traceback {
            error = error.with("traceback", traceback.as_str());
        }
        if let Some(violation) = outcome.facts.violations.first() {
            error = error.with("syscall", violation.name.as_str());
        }
        self.log("error", &failure.message);
        self.failed(&error, matches!(failure.code, "TIME_LIMIT" | "CPU_LIMIT"))
    }

    fn failed(&mut self, error: &ContractError, is_timeout: bool) -> End {
        self.members.push(("error", error.to_value()));
        if is_timeout {
            return self.finish(End::TimedOut { error: error.message.clone() });
        }
        let retry = if error.category.is_retried() { Retry::May } else { Retry::Never };
        self.finish(End::Error {
            error: error.message.clone(),
            code: Some(error.category.as_str().to_owned()),
            retry,
        })
    }

    /// What the job returns: what its operation promises, or the outputs of the contract.
    fn outputs(
        &self,
        plan: &Work,
        outcome: &Outcome,
        result: Option<Value>,
        artifacts: &[Value],
    ) -> Value {
        let mut members = Vec::new();
        let Work::Cell(plan) = plan else {
            if self.is_operation {
                members.push(("artifacts", artifacts.iter().cloned().collect::<Vector>().into()));
            }
            return object(members);
        };
        members.extend(
            result.map(|result| (if self.is_operation { "result" } else { "result_json" }, result)),
        );
        for (name, flag, is_returned, output) in [
            ("stdout", "stdout_truncated", plan.returns_stdout, &outcome.stdout),
            ("stderr", "stderr_truncated", plan.returns_stderr, &outcome.stderr),
        ] {
            if is_returned {
                members.push((name, output.text.as_str().into()));
            }
            members.push((flag, output.is_truncated.into()));
        }
        if self.is_operation {
            members.push(("artifacts", artifacts.iter().cloned().collect::<Vector>().into()));
        }
        object(members)
    }

    fn log(&mut self, level: &'static str, message: &str) {
        if self.logs.len() >= CONTRACT_LOGS_MAX {
            self.dropped += 1;
            return;
        }
        let end = message.floor_char_boundary(CONTRACT_LOG_BYTES_MAX);
        self.logs.push((level, message[..end].to_owned(), now_ms()));
    }

    fn finish(&mut self, end: End) -> End {
        let mut members = vec![
            ("executor", Value::from(self.executor.as_str())),
            ("started_at", format_time(self.started).into()),
            ("finished_at", format_time(self.finished).into()),
        ];
        if let Some((language, version, tier)) = &self.environment {
            let environment = [
                ("language", (*language).into()),
                ("env_version", version.as_str().into()),
                ("network_access", "disabled".into()),
            ];
            members.push(("environment", object(environment)));
            members.push(("tier", (*tier).into()));
        }
        if let Some(limits) = &self.limits {
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let limits = limits.members().map(|(name, limit)| (name, number(limit).into()));
            members.push(("limits", object(limits)));
        }
        let log = |(level, message, at): &(&str, String, i64)| {
            object([
                ("level", (*level).into()),
                ("message", message.as_str().into()),
                ("timestamp", format_time(*at).into()),
            ])
        };
        members.push(("logs", self.logs.iter().map(log).collect::<Vector>().into()));
        members.push(("logs_dropped", i64::try_from(self.dropped).unwrap_or(i64::MAX).into()));
        members.append(&mut self.members);
        End::Executed { end: Box::new(end), execution: object(members) }
    }
}

/// The error of a cell that failed. A renderer that crashed has run out of stack or memory: it is this binary, and
/// everything else is an error that it reports.
fn error_of(plan: &Work, failure: &Failure) -> ContractError {
    if matches!(plan, Work::Render(_)) && failure.code == "CRASHED" {
        let text = "the renderer needed more memory or a deeper stack than it may have";
        return ContractError::new(Category::ResourceLimit, "RENDER_LIMIT", text);
    }
    let category = Category::parse(failure.category.as_str()).unwrap_or(Category::InternalError);
    ContractError::new(category, failure.code, failure.message.as_str())
}

/// What a renderer may say about a file.
const FACTS: [&str; 8] =
    ["width", "height", "unit", "baseline", "alt", "pages", "title", "standard"];

/// An artifact as results describe it.
///
/// A renderer knows more than the file shows: what it says replaces the rest.
pub(crate) fn artifact_value(job: &str, artifact: &Artifact, facts: Option<&Value>) -> Value {
    let digest = format!("sha256:{}", artifact.sha256);
    let is_image =
        matches!(artifact.format.as_str(), "png" | "jpg" | "jpeg" | "gif" | "webp" | "svg");
    let mut metadata = vec![("name", Value::from(artifact.name.as_str()))];
    metadata.extend(artifact.width.map(|width| ("width", i64::from(width).into())));
    metadata.extend(artifact.height.map(|height| ("height", i64::from(height).into())));
    let facts = facts.and_then(|facts| facts.as_map()?.field(&artifact.name)?.as_map());
    for (name, fact) in facts.map(|facts| facts.fields()).unwrap_or_default() {
        let Some(known) = FACTS.iter().find(|known| name.as_str() == Some(**known)) else {
            continue;
        };
        metadata.retain(|(name, _)| name != known);
        metadata.push((*known, fact.clone()));
    }
    let size = i64::try_from(artifact.size_bytes).unwrap_or(i64::MAX);
    object([
        ("artifact_id", uuid_of(&[job, &digest, &artifact.name]).into()),
        ("kind", (if is_image { "image" } else { "file" }).into()),
        ("format", artifact.format.as_str().into()),
        ("digest", digest.as_str().into()),
        ("size_bytes", size.into()),
        ("uri", format!("blob:{digest}").into()),
        ("content_type", artifact.content_type.into()),
        ("metadata", object(metadata)),
    ])
}

/// Unix time in ms.
pub(crate) fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "results state when a cell started and ended")]
    let now = SystemTime::now();
    let passed = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
}
