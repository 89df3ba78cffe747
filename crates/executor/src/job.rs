//! One job: reading its payload, fetching its data, running its cell and uploading its files.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::Arc;

use catena_api::client::worker::{ClaimedJob, End, WorkerSignal};
use catena_api::worker::RunningJob;
use catena_job::contract::cell::{CellPlan, Entrypoint};
use catena_job::contract::render::RenderPlan;
use catena_job::contract::{self, Category, ContractError, JobType};
use catena_sandbox::limits::INPUTS_BYTES_MAX;
use catena_sandbox::{Cell, Control, Input, Limits, Outcome, Progress, RunError};
use catena_value::{Value, json};

use crate::environment::Environment;
use crate::executor::Shared;
use crate::json::object;
use crate::limits::{PROGRESS_INTERVAL, UPLOAD_RETRY_DELAY, UPLOAD_TRIES_MAX};
use crate::outcome::{Execution, now_ms};

/// Runs a job. What it returns after the job was stopped is discarded.
pub(crate) async fn run(shared: Arc<Shared>, running: RunningJob) -> End {
    let job = running.job.clone();
    let mut execution = Execution::new(&shared, &job);
    match run_cell(&shared, &running, &mut execution).await {
        Ok(end) => end,
        Err(error) => execution.fail(&error),
    }
}

async fn run_cell(
    shared: &Arc<Shared>,
    running: &RunningJob,
    execution: &mut Execution,
) -> Result<End, ContractError> {
    let plan = Work::read(&running.job.input)?;
    execution.limits = Some(plan.limits());
    let at = environment_of(shared, &running.job)?;
    execution.use_environment(&shared.environments[at]);
    let mut cell = match &plan {
        Work::Cell(plan) => cell_of(plan, fetch_inputs(shared, running, plan).await?),
        Work::Render(plan) => rendering_of(plan, fetch_images(shared, running, plan).await?),
    };
    let pause_ms = shared.pause_max.as_millis();
    cell.limits.pause_ms_max = u64::try_from(pause_ms).unwrap_or(u64::MAX);
    let control = Control::new().map_err(|error| internal("SANDBOX_FAILED", error.to_string()))?;
    execution.started = now_ms();
    let outcome = run_watched(shared, at, cell, &control, running).await;
    execution.finished = now_ms();
    let outcome = outcome.map_err(|error| match error {
        RunError::Invalid(error) => ContractError::invalid("INVALID_CELL", error.to_string()),
        error => internal("SANDBOX_FAILED", error.to_string()),
    })?;
    let facts = plan.facts(&outcome);
    let artifacts = upload(running, &outcome, facts.as_ref()).await?;
    Ok(execution.end(&plan, &outcome, artifacts))
}

/// Returns the position of the environment that a job needs.
fn environment_of(shared: &Shared, job: &ClaimedJob) -> Result<usize, ContractError> {
    let environment = job.input.as_map().and_then(|payload| payload.field("environment"));
    let version = environment.and_then(|known| known.as_map()?.field("env_version")?.as_str());
    let is_wanted = |known: &Environment| version.is_none_or(|version| known.version == version);
    shared.environments.iter().position(is_wanted).ok_or_else(|| {
        let text = format!("this executor has no environment {}", version.unwrap_or_default());
        internal("ENVIRONMENT_MISSING", text)
    })
}

/// Runs a cell on a thread of its own, and passes signals of the venue on to it.
async fn run_watched(
    shared: &Arc<Shared>,
    at: usize,
    cell: Cell,
    control: &Control,
    running: &RunningJob,
) -> Result<Outcome, RunError> {
    let (shared, held) = (Arc::clone(shared), control.clone());
    let work = move || shared.environments[at].sandbox.run(&cell, &held);
    let mut done = tokio::task::spawn_blocking(work);
    let mut signal = running.signal.clone();
    let start = tokio::time::Instant::now() + PROGRESS_INTERVAL;
    let mut ticks = tokio::time::interval_at(start, PROGRESS_INTERVAL);
    let mut reported = None;
    loop {
        tokio::select! {
            outcome = &mut done => {
                let lost = |_| RunError::Unavailable("the thread of the cell ended".to_owned());
                return outcome.map_err(lost).and_then(|outcome| outcome);
            }
            _ = ticks.tick() => {
                let progress = control.progress();
                if let Some(now) = progress.filter(|_| progress != reported) {
                    reported = progress;
                    running.report_progress(progress_value(now));
                }
            }
            changed = signal.changed() => {
                let wanted = *signal.borrow_and_update();
                match wanted {
                    WorkerSignal::Go => control.resume(),
                    WorkerSignal::Pause => control.pause(),
                    WorkerSignal::Stop => control.cancel(),
                }
                if changed.is_err() {
                    control.cancel();
                    let lost = |_| RunError::Unavailable("the thread of the cell ended".to_owned());
                    return done.await.map_err(lost).and_then(|outcome| outcome);
                }
            }
        }
    }
}

/// Progress as jobs have it.
fn progress_value(progress: Progress) -> Value {
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let mut members = vec![("processedItems", number(progress.done))];
    members.extend(progress.total.map(|total| ("totalItems", number(total))));
    object(members)
}

/// What a job asks for.
pub(crate) enum Work {
    /// Code.
    Cell(CellPlan),
    /// An image or a document.
    Render(RenderPlan),
}

impl Work {
    fn read(payload: &Value) -> Result<Work, ContractError> {
        let kind = payload.as_map().and_then(|payload| payload.field("job_type")?.as_str());
        let renders = JobType::ALL
            .into_iter()
            .filter(|known| *known != JobType::ObjectExecute)
            .any(|known| kind == Some(known.as_str()));
        if renders {
            return RenderPlan::read(payload).map(Work::Render);
        }
        CellPlan::read(payload).map(Work::Cell)
    }

    fn limits(&self) -> contract::Limits {
        match self {
            Work::Cell(plan) => plan.limits,
            Work::Render(plan) => plan.limits,
        }
    }

    /// What a renderer says about its files, by name. Code says nothing of the kind.
    fn facts(&self, outcome: &Outcome) -> Option<Value> {
        match self {
            Work::Cell(_) => None,
            Work::Render(_) => json::read(outcome.result.as_deref()?.as_bytes()).ok(),
        }
    }
}

fn limits_of(limits: &contract::Limits) -> Limits {
    Limits {
        timeout_ms: limits.timeout_ms,
        cpu_ms: limits.cpu_ms,
        memory_mb: limits.memory_mb,
        max_output_kb: limits.max_output_kb,
        max_artifacts: usize::try_from(limits.max_artifacts).unwrap_or(usize::MAX),
        ..Limits::default()
    }
}

/// A request of the renderer as a cell: its parameters are the request.
fn rendering_of(plan: &RenderPlan, inputs: Vec<Input>) -> Cell {
    Cell {
        source: String::new(),
        entrypoint: catena_sandbox::Entrypoint::None,
        parameters: plan.request.clone(),
        inputs,
        limits: limits_of(&plan.limits),
        formats: None,
    }
}

/// Fetches the images of a request. One that the owner does not have is an error of dependencies.
async fn fetch_images(
    shared: &Shared,
    running: &RunningJob,
    plan: &RenderPlan,
) -> Result<Vec<Input>, ContractError> {
    let mut inputs = Vec::new();
    for digest in &plan.images {
        let file = fetch(shared, running, digest, "FIGURE_MISSING").await?;
        let name = digest.trim_start_matches("sha256:").to_owned();
        inputs.push(Input { name, file });
    }
    Ok(inputs)
}

/// Fetches data of the job's owner.
async fn fetch(
    shared: &Shared,
    running: &RunningJob,
    digest: &str,
    code: &str,
) -> Result<File, ContractError> {
    let file = shared.spool_file();
    let file = file.map_err(|error| internal("INPUT_FAILED", error.to_string()))?;
    let target = (&file, INPUTS_BYTES_MAX);
    let size = running.client.dataset(&running.job, digest, target).await;
    let size = size.map_err(|error| internal("VENUE_UNREACHABLE", error.to_string()))?;
    size.ok_or_else(|| {
        let text = format!("the owner of the job has no data with the digest {digest}");
        ContractError::new(Category::DependencyError, code, text).with("digest", digest)
    })?;
    Ok(file)
}

fn cell_of(plan: &CellPlan, inputs: Vec<Input>) -> Cell {
    let limits = limits_of(&plan.limits);
    let entrypoint = match &plan.entrypoint {
        Entrypoint::None => catena_sandbox::Entrypoint::None,
        Entrypoint::IfDefined(name) => catena_sandbox::Entrypoint::IfDefined(name.clone()),
        Entrypoint::Required(name) => catena_sandbox::Entrypoint::Required(name.clone()),
    };
    Cell {
        source: plan.source.clone(),
        entrypoint,
        parameters: plan.parameters.clone(),
        inputs,
        limits,
        formats: plan.formats.clone(),
    }
}

/// Fetches what the cell reads. A dataset that the owner does not have is an error of dependencies.
async fn fetch_inputs(
    shared: &Shared,
    running: &RunningJob,
    plan: &CellPlan,
) -> Result<Vec<Input>, ContractError> {
    let failed = |error: std::io::Error| internal("INPUT_FAILED", error.to_string());
    let mut inputs: Vec<Input> = Vec::new();
    // A dataset may have several names, and an object may be named more than once.
    let mut fetched: HashMap<&str, File> = HashMap::new();
    let mut names = HashSet::new();
    for dataset in &plan.datasets {
        let digest = dataset.digest.as_str();
        let file = match fetched.entry(digest) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                free.insert(fetch(shared, running, digest, "DATASET_MISSING").await?)
            }
        };
        let digits = digest.trim_start_matches("sha256:").to_owned();
        for name in std::iter::once(digits).chain(dataset.name.clone()) {
            if names.insert(name.clone()) {
                inputs.push(Input { name, file: file.try_clone().map_err(failed)? });
            }
        }
    }
    for object in &plan.objects {
        let Some(content) = &object.content else { continue };
        let name = format!("objects/{}.json", object.id);
        if names.insert(name.clone()) {
            inputs.push(Input { name, file: in_memory(content.as_bytes()).map_err(failed)? });
        }
    }
    Ok(inputs)
}

/// Returns a file in memory with this content, positioned at the beginning.
fn in_memory(content: &[u8]) -> std::io::Result<File> {
    let memory = rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Uploads the files that a cell left. Returns their contents' descriptions without the job.
async fn upload(
    running: &RunningJob,
    outcome: &Outcome,
    facts: Option<&Value>,
) -> Result<Vec<Value>, ContractError> {
    let mut described = Vec::new();
    for artifact in &outcome.artifacts {
        let digest = format!("sha256:{}", artifact.sha256);
        let mut tries = 0;
        loop {
            tries += 1;
            let file = artifact.file.try_clone();
            let file = file.map_err(|error| internal("UPLOAD_FAILED", error.to_string()))?;
            let content = (file, artifact.size_bytes);
            match running.client.store_artifact(&running.job, &digest, content).await {
                Ok(()) => break,
                Err(error) if tries >= UPLOAD_TRIES_MAX || !error.is_transient() => {
                    return Err(internal("UPLOAD_FAILED", error.to_string()));
                }
                Err(_) => tokio::time::sleep(UPLOAD_RETRY_DELAY).await,
            }
        }
        described.push(crate::outcome::artifact_value(&running.job.id, artifact, facts));
    }
    Ok(described)
}

/// An error of the platform. The job is attempted again.
pub(crate) fn internal(code: &str, text: String) -> ContractError {
    ContractError::new(Category::InternalError, code, text)
}
