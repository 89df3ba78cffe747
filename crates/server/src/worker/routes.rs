//! The routes of workers. `docs/reference/worker.md` describes the protocol.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use axum::response::Response;
use catena_engine::limits::{EXECUTION_BYTES_MAX, WORKER_WAIT_MAX};
use catena_engine::requests::{
    Beat, BeatJob, CallIdentity, Claim, EndTurn, Ended, ExecutorAbout, RetryRequest, WorkerCall,
    WorkerEnd, WorkerSignal,
};
use catena_job::{JobId, Status};
use catena_value::limits::JSON_DEPTH_MAX;
use catena_value::{Extent, Map, NoCells, Value};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{JSON, ROUTE, RequestBody, Route, reply};
use crate::limits::TIER_BYTES_MAX;
use crate::values::{list, object};

const ID: &str = "The job's ID: 32 hex digits, with or without `0x`, or a UUID.";

/// The operation that records a step of a worker.
const STEP: &str = "worker:step";

const END_SCHEMA: &str = r#"{"type":"object","required":["fence"],"properties":{
    "fence":{"type":"integer"},"output":{},"error":{"type":"string"},"code":{"type":"string"},
    "retry":{"anyOf":[{"enum":["never","may"]},{"type":"integer","minimum":0}]},
    "ask":{"type":"object","required":["message"],"properties":{"message":{"type":"string"},"schema":{}}},
    "awaiting":{"type":"array","items":{"type":"string"}},
    "signature":{"type":"string","description":"Base64url of the worker's Ed25519 signature over the Value ID of {job, fence, output} or {job, fence, error}"}}}"#;

const CALLED: &str = r#"{"type":"object","required":["job","status"],"properties":{
    "job":{"type":"string"},"status":{"type":"string"},"output":{},"error":{"type":"string"}}}"#;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/worker/v1/claim",
        tag: "Workers",
        summary: "Claim jobs",
        about: "Waits until there is a job on one of the queues, for at most `waitMs` and 30 s. Ends \
                the jobs in `done` first, and says for each whether that succeeded. Renews the lease \
                of the worker.",
        body: Some(RequestBody {
            about: "The worker, the queues of its owner, and what it has finished.",
            media: JSON,
            schema: r#"{"type":"object","required":["worker","queues"],"properties":{
                "worker":{"type":"string"},"queues":{"type":"array","items":{"type":"string"}},
                "max":{"type":"integer","minimum":0,"maximum":256},
                "waitMs":{"type":"integer","minimum":0},
                "done":{"type":"array","items":{"type":"object"}}}}"#,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "The jobs that the worker holds now, and when its lease ends.",
            r#"{"type":"object","required":["jobs","leaseUntil","done"],"properties":{
                "jobs":{"type":"array","items":{"type":"object"}},
                "leaseUntil":{"type":"integer"},
                "done":{"type":"array","items":{"type":"object"}}}}"#,
        )],
        errors: &[Code::BadRequest, Code::InvalidJson, Code::QueueNotFound, Code::BodyTooLarge],
        handler: |request| Box::pin(claim(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/worker/v1/beat",
        tag: "Workers",
        summary: "Report jobs and receive signals",
        about: "Covers all jobs of a worker and renews its lease. Answers as soon as a job was paused, \
                resumed or ended, else after `waitMs` or 30 s.",
        body: Some(RequestBody {
            about: "The worker and all jobs that it holds.",
            media: JSON,
            schema: r#"{"type":"object","required":["worker"],"properties":{
                "worker":{"type":"string"},"waitMs":{"type":"integer","minimum":0},
                "jobs":{"type":"array","items":{"type":"object","required":["id","fence"],"properties":{
                    "id":{"type":"string"},"fence":{"type":"integer"},"progress":{},"log":{"type":"string"}}}}}}"#,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "What to do with the jobs, and when the lease ends.",
            r#"{"type":"object","required":["leaseUntil","signals"],"properties":{
                "leaseUntil":{"type":"integer"},
                "signals":{"type":"array","items":{"type":"object"}}}}"#,
        )],
        errors: &[Code::BadRequest, Code::InvalidJson, Code::BodyTooLarge],
        handler: |request| Box::pin(beat(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/worker/v1/jobs/{id}/end",
        path_parameter: ID,
        tag: "Workers",
        summary: "End a job",
        about: "With an output, an error, a question for a person, or by giving the job back until \
                calls have ended. The same end again is 200 with `repeated`.",
        body: Some(RequestBody {
            about: "The fence, and one of `output`, `error`, `ask` and `awaiting`.",
            media: JSON,
            schema: END_SCHEMA,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "The end is durable.",
            r#"{"type":"object","required":["id","ok"],"properties":{
                "id":{"type":"string"},"ok":{"type":"boolean"},"repeated":{"type":"boolean"}}}"#,
        )],
        errors: &[
            Code::BadRequest,
            Code::InvalidJson,
            Code::InvalidJobId,
            Code::JobNotFound,
            Code::Fenced,
            Code::BodyTooLarge,
        ],
        handler: |request| Box::pin(end(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/worker/v1/jobs/{id}/step",
        path_parameter: ID,
        tag: "Workers",
        summary: "Record a step of a job",
        about: "The result of a step is a sub-job to which the job's chain commits. It is sent along \
                when the job is claimed again. If a step with this key is recorded already, its output \
                is returned and the new one is ignored.",
        body: Some(RequestBody {
            about: "The fence, the key of the step within the job, and its output.",
            media: JSON,
            schema: r#"{"type":"object","required":["fence","key"],"properties":{
                "fence":{"type":"integer"},"key":{"type":"string"},"input":{},"output":{}}}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The recorded step.", CALLED)],
        errors: CALL_ERRORS,
        handler: |request| Box::pin(step(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/worker/v1/jobs/{id}/call",
        path_parameter: ID,
        tag: "Workers",
        summary: "Invoke an operation for a job",
        about: "The called job is a sub-job to which the job's chain commits. A repeated call with the \
                same key finds the first one. Waits for its end for at most `waitMs` and 30 s.",
        body: Some(RequestBody {
            about: "The fence, the key of the call within the job, the operation and its input.",
            media: JSON,
            schema: r#"{"type":"object","required":["fence","key","operation"],"properties":{
                "fence":{"type":"integer"},"key":{"type":"string"},"operation":{"type":"string"},
                "input":{},"waitMs":{"type":"integer","minimum":0}}}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The called job.", CALLED)],
        errors: CALL_ERRORS,
        handler: |request| Box::pin(call(request)),
        ..ROUTE
    },
];

const CALL_ERRORS: &[Code] = &[
    Code::BadRequest,
    Code::InvalidJson,
    Code::InvalidJobId,
    Code::JobNotFound,
    Code::Fenced,
    Code::JobPaused,
    Code::CallFailed,
    Code::BodyTooLarge,
];

async fn claim(mut request: ApiRequest) -> ApiResult<Response> {
    let body = Body::read(&mut request).await?;
    body.refuse_unknown(&["worker", "queues", "max", "waitMs", "done", "about"])?;
    let caller = request.caller.clone();
    let about = parse_about(&request, &body)?;
    let done = match body.0.field("done").filter(|done| !done.is_nil()) {
        None => Vec::new(),
        Some(done) => parse_done(done)?,
    };
    for turn in &done {
        check_executor_end(&request, turn)?;
    }
    let claim = Claim {
        caller,
        worker: body.text("worker")?,
        queues: body.texts("queues")?,
        max: usize::try_from(body.number("max")?.unwrap_or(1)).unwrap_or(usize::MAX),
        wait: body.wait()?,
        done,
        about,
    };
    let (state, _memory) = request.into_state();
    let claimed = state.engine.claim(claim).await?;
    let mut text = String::from("{\"jobs\":[");
    for (index, job) in claimed.jobs.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_value(&job.document([]), &NoCells, &mut text)?;
    }
    let done = claimed.done.into_iter().map(|(job, result)| done_value(job, result));
    text.push_str("],\"done\":");
    write_value(&list(done), &NoCells, &mut text)?;
    text.push_str(&format!(",\"leaseUntil\":{}}}", claimed.lease_until));
    Ok(response::json(StatusCode::OK, text))
}

async fn beat(mut request: ApiRequest) -> ApiResult<Response> {
    let body = Body::read(&mut request).await?;
    body.refuse_unknown(&["worker", "waitMs", "jobs"])?;
    let mut jobs = Vec::new();
    if let Some(listed) = body.0.field("jobs").filter(|jobs| !jobs.is_nil()) {
        let error = || ApiError::bad_request("`jobs` must be an array of objects");
        for job in listed.as_vector().ok_or_else(error)?.iter(&NoCells).flatten() {
            let job = Body(job.as_map().ok_or_else(error)?.clone());
            jobs.push(BeatJob {
                job: job.job("id")?,
                fence: job.fence()?,
                progress: job.0.field("progress").filter(|value| !value.is_nil()).cloned(),
                log: job.optional_text("log")?,
            });
        }
    }
    let beat = Beat {
        caller: request.caller.clone(),
        worker: body.text("worker")?,
        wait: body.wait()?,
        jobs,
    };
    let (state, _memory) = request.into_state();
    let reply = state.engine.beat(beat).await?;
    let signals = reply.signals.into_iter().map(|(job, signal)| {
        let word = match signal {
            WorkerSignal::Go => "go",
            WorkerSignal::Pause => "pause",
            WorkerSignal::Stop => "stop",
        };
        object([("id", job.to_string().into()), ("signal", word.into())])
    });
    let value = object([("signals", list(signals)), ("leaseUntil", reply.lease_until.into())]);
    Ok(response::value(StatusCode::OK, &value))
}

async fn end(mut request: ApiRequest) -> ApiResult<Response> {
    let job = request.job_id()?;
    let body = Body::read(&mut request).await?;
    let turn = parse_turn(job, &body)?;
    let caller = request.caller.clone();
    check_executor_end(&request, &turn)?;
    let (state, _memory) = request.into_state();
    let ended = state.engine.end_turn(&caller, turn).await?;
    Ok(response::value(StatusCode::OK, &ended_value(job, ended)))
}

async fn step(mut request: ApiRequest) -> ApiResult<Response> {
    let job = request.job_id()?;
    let body = Body::read(&mut request).await?;
    body.refuse_unknown(&["fence", "key", "input", "output"])?;
    let member = |name: &'static str| body.0.field(name).map(|value| (name, value.clone()));
    let call = WorkerCall {
        caller: request.caller.clone(),
        job,
        fence: body.fence()?,
        key: body.text("key")?,
        operation: STEP.to_owned(),
        input: object([member("input"), member("output")].into_iter().flatten()),
        wait: Duration::ZERO,
        identity: CallIdentity::Key,
    };
    respond_called(request, call).await
}

async fn call(mut request: ApiRequest) -> ApiResult<Response> {
    let job = request.job_id()?;
    let body = Body::read(&mut request).await?;
    body.refuse_unknown(&["fence", "key", "operation", "input", "waitMs"])?;
    let call = WorkerCall {
        caller: request.caller.clone(),
        job,
        fence: body.fence()?,
        key: body.text("key")?,
        operation: body.text("operation")?,
        input: body.0.field("input").cloned().unwrap_or_default(),
        wait: body.wait()?,
        identity: CallIdentity::KeyAndInput,
    };
    respond_called(request, call).await
}

async fn respond_called(request: ApiRequest, call: WorkerCall) -> ApiResult<Response> {
    let (state, _memory) = request.into_state();
    let view = state.engine.worker_call(call).await?;
    let output = view.job.field("output").filter(|_| view.status() == Status::Complete);
    let mut members = vec![
        ("job", Value::from(view.job.id().to_string())),
        ("status", view.status().as_str().into()),
    ];
    members.extend(view.job.field("error").map(|error| ("error", error.clone())));
    members.extend(output.map(|output| ("output", output.clone())));
    let mut text = String::new();
    write_value(&object(members), view.cells(), &mut text)?;
    Ok(response::json(StatusCode::OK, text))
}

/// The members of a request body.
struct Body(Map);

impl Body {
    async fn read(request: &mut ApiRequest) -> ApiResult<Body> {
        let bytes = request.read_body().await?;
        let value = json::parse(&bytes)?;
        let map = value.as_map().cloned();
        map.map(Body).ok_or_else(|| ApiError::bad_request("the body must be an object"))
    }

    /// Fails if there is a member that is not known.
    fn refuse_unknown(&self, known: &[&str]) -> ApiResult<()> {
        for (name, _) in self.0.fields() {
            let name = name.to_text().unwrap_or_default();
            if !known.contains(&&*name) {
                return Err(ApiError::bad_request(format!("unknown member `{name}`")));
            }
        }
        Ok(())
    }

    fn text(&self, name: &str) -> ApiResult<String> {
        let text = self.0.field(name).and_then(Value::to_text);
        let error = || ApiError::bad_request(format!("`{name}` must be a string"));
        Ok(text.ok_or_else(error)?.into_owned())
    }

    fn optional_text(&self, name: &str) -> ApiResult<Option<String>> {
        self.0.field(name).filter(|value| !value.is_nil()).map(|_| self.text(name)).transpose()
    }

    fn texts(&self, name: &str) -> ApiResult<Vec<String>> {
        let error = || ApiError::bad_request(format!("`{name}` must be an array of strings"));
        let items = self.0.field(name).and_then(Value::as_vector).ok_or_else(error)?;
        let text = |item: Value| Some(item.to_text()?.into_owned());
        items.iter(&NoCells).map(|item| item.ok().and_then(text).ok_or_else(error)).collect()
    }

    fn number(&self, name: &str) -> ApiResult<Option<u64>> {
        let Some(value) = self.0.field(name).filter(|value| !value.is_nil()) else {
            return Ok(None);
        };
        let number = value.as_i64().and_then(|number| u64::try_from(number).ok());
        let error = || ApiError::bad_request(format!("`{name}` must be a whole number, 0 or more"));
        number.map(Some).ok_or_else(error)
    }

    fn fence(&self) -> ApiResult<u64> {
        self.number("fence")?.ok_or_else(|| ApiError::bad_request("`fence` is missing"))
    }

    fn job(&self, name: &str) -> ApiResult<JobId> {
        let text = self.text(name)?;
        text.parse().map_err(|_| ApiError::bad_request(format!("`{name}` is not a job ID")))
    }

    fn wait(&self) -> ApiResult<Duration> {
        let wait = self.number("waitMs")?.unwrap_or(0);
        Ok(Duration::from_millis(wait).min(WORKER_WAIT_MAX))
    }
}

fn parse_done(done: &Value) -> ApiResult<Vec<EndTurn>> {
    let error = || ApiError::bad_request("`done` must be an array of objects");
    let mut turns = Vec::new();
    for entry in done.as_vector().ok_or_else(error)?.iter(&NoCells) {
        let entry = entry.map_err(|_| error())?;
        let body = Body(entry.as_map().ok_or_else(error)?.clone());
        turns.push(parse_turn(body.job("id")?, &body)?);
    }
    Ok(turns)
}

fn parse_turn(job: JobId, body: &Body) -> ApiResult<EndTurn> {
    let signature = body.optional_text("signature")?;
    let execution = body.0.field("execution").filter(|value| !value.is_nil()).cloned();
    if let Some(execution) = &execution {
        let bounds = Extent { bytes: EXECUTION_BYTES_MAX, depth: JSON_DEPTH_MAX };
        let is_bounded = bounds.measure(execution, &NoCells).is_ok();
        if execution.as_map().is_none() || !is_bounded {
            let text =
                format!("`execution` must be an object of at most {EXECUTION_BYTES_MAX} bytes");
            return Err(ApiError::bad_request(text));
        }
    }
    Ok(EndTurn { job, fence: body.fence()?, end: parse_end(body)?, signature, execution })
}

/// Whether the caller is an executor: a worker of the venue itself.
pub(crate) fn is_executor(request: &ApiRequest) -> bool {
    request.caller.queues.is_some() && *request.caller.did == *request.state.engine.did()
}

/// What an executor says about itself.
fn parse_about(request: &ApiRequest, body: &Body) -> ApiResult<Option<ExecutorAbout>> {
    let Some(about) = body.0.field("about").filter(|about| !about.is_nil()) else {
        return Ok(None);
    };
    if !is_executor(request) {
        return Err(ApiError::bad_request("only executors may send `about`"));
    }
    let tier = about.as_map().and_then(|about| about.field("tier")?.to_text());
    let tier = tier.filter(|tier| tier.len() <= TIER_BYTES_MAX);
    let error = || ApiError::bad_request("`about.tier` must be a short string");
    Ok(Some(ExecutorAbout { tier: tier.ok_or_else(error)?.into_owned() }))
}

/// Refuses what only executors may say about the end of a job.
fn check_executor_end(request: &ApiRequest, turn: &EndTurn) -> ApiResult<()> {
    let needs_executor = turn.execution.is_some() || matches!(turn.end, WorkerEnd::TimedOut { .. });
    if needs_executor && !is_executor(request) {
        let text = "only executors may send `execution` and `timedOut`";
        return Err(ApiError::bad_request(text));
    }
    Ok(())
}

const END_MEMBERS: &[&str] = &[
    "id",
    "fence",
    "output",
    "error",
    "code",
    "retry",
    "ask",
    "awaiting",
    "signature",
    "timedOut",
    "execution",
];

fn parse_end(body: &Body) -> ApiResult<WorkerEnd> {
    body.refuse_unknown(END_MEMBERS)?;
    let kinds = ["output", "error", "ask", "awaiting", "timedOut"];
    let mut given = kinds.into_iter().filter(|kind| body.0.field(kind).is_some());
    let (Some(kind), None) = (given.next(), given.next()) else {
        let text = "give exactly one of `output`, `error`, `ask` and `awaiting`";
        return Err(ApiError::bad_request(text));
    };
    Ok(match kind {
        "output" => WorkerEnd::Output(body.0.field("output").cloned().unwrap_or_default()),
        "error" => WorkerEnd::Error {
            error: body.text("error")?,
            code: body.0.field("code").map(|_| body.text("code")).transpose()?,
            retry: parse_retry(body)?,
        },
        "timedOut" => WorkerEnd::TimedOut { error: body.text("timedOut")? },
        "ask" => {
            let ask = body.0.field("ask").and_then(Value::as_map).cloned().map(Body);
            let ask = ask.ok_or_else(|| ApiError::bad_request("`ask` must be an object"))?;
            ask.refuse_unknown(&["message", "schema"])?;
            WorkerEnd::Ask {
                message: ask.text("message")?,
                schema: ask.0.field("schema").filter(|schema| !schema.is_nil()).cloned(),
            }
        }
        _ => WorkerEnd::Awaiting(body.texts("awaiting")?),
    })
}

fn parse_retry(body: &Body) -> ApiResult<RetryRequest> {
    match body.0.field("retry") {
        None | Some(Value::Nil) => Ok(RetryRequest::May),
        Some(value) => match (value.as_str(), value.as_i64()) {
            (Some("never"), _) => Ok(RetryRequest::Never),
            (Some("may"), _) => Ok(RetryRequest::May),
            (_, Some(ms)) if ms >= 0 => {
                Ok(RetryRequest::After(Duration::from_millis(ms.unsigned_abs())))
            }
            _ => {
                let text = "`retry` must be `never`, `may` or a number of milliseconds";
                Err(ApiError::bad_request(text))
            }
        },
    }
}

fn ended_value(job: JobId, ended: Ended) -> Value {
    let mut members = vec![("id", Value::from(job.to_string())), ("ok", true.into())];
    if ended.is_repeated {
        members.push(("repeated", true.into()));
    }
    object(members)
}

fn done_value(job: JobId, result: Result<Ended, catena_engine::error::WorkerError>) -> Value {
    match result {
        Ok(ended) => ended_value(job, ended),
        Err(error) => {
            let error = ApiError::from(error);
            object([
                ("id", Value::from(job.to_string())),
                ("code", error.code().as_str().into()),
                ("error", error.text().into()),
            ])
        }
    }
}
