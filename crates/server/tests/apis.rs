//! Every state and every action in every API: where an action is allowed, its effect on the chain is
//! the same, and each API responds with its own statuses.
//!
//! A new API is one more entry of [`APIS`]: how it requests an action, and how it responds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_value::Value;
use support::{Reply, Running, field, items, run_process, venue, venue_in};

/// A state of a job: its name here, and its status in each API.
struct JobState {
    name: &'static str,
    grid: &'static str,
    canvas: &'static str,
}

const STATES: [JobState; 11] = [
    JobState { name: "is queued", grid: "PENDING", canvas: "pending" },
    JobState { name: "runs", grid: "STARTED", canvas: "processing" },
    JobState { name: "was requeued", grid: "STARTED", canvas: "pending" },
    JobState { name: "is paused", grid: "PAUSED", canvas: "paused" },
    JobState { name: "asks for input", grid: "INPUT_REQUIRED", canvas: "paused" },
    JobState { name: "asks for authorisation", grid: "AUTH_REQUIRED", canvas: "paused" },
    JobState { name: "is complete", grid: "COMPLETE", canvas: "completed" },
    JobState { name: "has failed", grid: "FAILED", canvas: "failed" },
    JobState { name: "was rejected", grid: "REJECTED", canvas: "failed" },
    JobState { name: "was cancelled", grid: "CANCELLED", canvas: "cancelled" },
    JobState { name: "timed out", grid: "TIMEOUT", canvas: "failed" },
];

const ACTIONS: [&str; 3] = ["pause", "resume", "cancel"];

/// An API that controls jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Grid,
    Canvas,
}

const APIS: [Api; 2] = [Api::Grid, Api::Canvas];

impl Api {
    async fn act(self, venue: &Running, id: &str, action: &str) -> Reply {
        match self {
            Api::Grid => venue.put(&format!("/api/v1/jobs/{id}/{action}")).await,
            Api::Canvas => {
                let body = format!(r#"{{"action":"{action}"}}"#);
                venue.post(&format!("/canvas/v1/jobs/{id}/control"), &body).await
            }
        }
    }

    /// The job's status in this API.
    async fn status(self, venue: &Running, id: &str) -> Value {
        let root = match self {
            Api::Grid => "/api/v1",
            Api::Canvas => "/canvas/v1",
        };
        venue.get(&format!("{root}/jobs/{id}")).await.field("status")
    }

    fn status_of(self, state: &JobState) -> &'static str {
        match self {
            Api::Grid => state.grid,
            Api::Canvas => state.canvas,
        }
    }

    /// The expected HTTP status, and the statuses that are appended to the chain.
    fn expected(self, state: &JobState, action: &str) -> (u16, &'static [&'static str]) {
        let is_waiting = matches!(state.grid, "INPUT_REQUIRED" | "AUTH_REQUIRED");
        let is_live = matches!(state.grid, "PENDING" | "STARTED" | "PAUSED") || is_waiting;
        match (self, action) {
            // A job that waits for a message continues when it receives one.
            (Api::Canvas, "pause") if is_waiting => (409, &[]),
            (_, "pause") if is_live && state.grid != "PAUSED" => (200, &["PAUSED"]),
            (_, "resume") if state.grid == "PAUSED" => (200, &["STARTED"]),
            (_, "cancel") if is_live => (200, &["CANCELLED"]),
            // A job that has ended is not changed; only the response differs.
            (Api::Grid, "cancel") => (200, &[]),
            _ => (409, &[]),
        }
    }
}

/// The statuses in the chain, without notes.
async fn chain(venue: &Running, id: &str) -> Vec<String> {
    let history = venue.get(&format!("/api/v1/jobs/{id}/history")).await;
    let records = items(&history.field("records"));
    let records = records.iter().map(|line| field(line, "record"));
    let statuses = records.filter(|record| field(record, "note").is_nil());
    statuses.map(|record| field(&record, "status").as_str().unwrap().to_owned()).collect()
}

async fn invoke(venue: &Running, body: &str) -> String {
    let reply = venue.post("/api/v1/invoke", body).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.field("id").as_str().unwrap().to_owned()
}

/// A new job in this state. The venue must have a free slot, unless the job is meant to wait.
async fn job_in_state(venue: &Running, state: &JobState) -> String {
    let id = match state.name {
        "was requeued" | "is queued" | "runs" => venue.invoke("try:never").await,
        "is paused" => {
            let id = venue.invoke("try:never").await;
            venue.put(&format!("/api/v1/jobs/{id}/pause")).await;
            id
        }
        "asks for input" => venue.invoke("try:ask").await,
        "asks for authorisation" => venue.invoke("try:auth").await,
        "is complete" => venue.invoke("try:echo").await,
        "has failed" => venue.invoke("try:fail").await,
        "was rejected" => invoke(venue, r#"{"operation":"try:strict","input":{}}"#).await,
        "was cancelled" => {
            let id = venue.invoke("try:never").await;
            venue.put(&format!("/api/v1/jobs/{id}/cancel")).await;
            id
        }
        "timed out" => invoke(venue, r#"{"operation":"try:never","timeoutMs":1}"#).await,
        other => panic!("{other}"),
    };
    // Polled without a wait, because most of them do not end.
    while Api::Grid.status(venue, &id).await != state.grid.into() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    id
}

/// Applies an action to a job through one API, and checks the response and the chain.
async fn check(venue: &Running, api: Api, at: &JobState, action: &str, id: &str) {
    let what = format!("{action} of a job that {} in {api:?}", at.name);
    assert_eq!(api.status(venue, id).await, api.status_of(at).into(), "{what}");
    let before = chain(venue, id).await;
    let reply = api.act(venue, id, action).await;
    let (status, added) = api.expected(at, action);
    assert_eq!(reply.status, status, "{what}: {}", reply.text());
    let after = chain(venue, id).await;
    assert_eq!(after[..before.len()], before[..], "{what}");
    assert_eq!(&after[before.len()..], added, "{what}");
    if status == 409 {
        reply.assert_error(409, "job_conflict");
        assert_eq!(reply.field("status"), api.status_of(at).into(), "{what}");
        let is_named = !reply.field("allowed").is_nil();
        assert_eq!(is_named, api == Api::Canvas, "{what}: {}", reply.text());
    }
}

#[tokio::test]
async fn every_action_has_the_same_effect_in_every_api() {
    let venue = venue(|_| {}).await;
    for at in &STATES {
        if matches!(at.name, "is queued" | "was requeued") {
            continue;
        }
        for action in ACTIONS {
            for api in APIS {
                let id = job_in_state(&venue, at).await;
                check(&venue, api, at, action, &id).await;
            }
        }
    }
}

#[tokio::test]
async fn a_queued_job_can_be_paused_and_cancelled() {
    let venue = venue(|flags| flags.running = Some("1".to_owned())).await;
    let holder = venue.invoke("try:never").await;
    let at = STATES.iter().find(|at| at.name == "is queued").unwrap();
    for action in ACTIONS {
        for api in APIS {
            let id = job_in_state(&venue, at).await;
            check(&venue, api, at, action, &id).await;
        }
    }
    venue.put(&format!("/api/v1/jobs/{holder}/cancel")).await;
}

#[test]
fn a_requeued_job_can_be_paused_and_cancelled() {
    let (folder, mut ids) = run_process(async || {
        let at = STATES.iter().find(|at| at.name == "was requeued").unwrap();
        let first = venue(|_| {}).await;
        let mut ids = Vec::new();
        // One more than is checked: it takes the only slot after the restart.
        for _ in 0..=ACTIONS.len() * APIS.len() {
            ids.push(job_in_state(&first, at).await);
        }
        (first.stop().await, ids)
    });
    run_process(async || {
        let at = STATES.iter().find(|at| at.name == "was requeued").unwrap();
        let venue = venue_in(folder, |flags| flags.running = Some("1".to_owned())).await;
        let holder = loop {
            let page = venue.get("/canvas/v1/jobs?status=processing").await;
            if let Some(job) = items(&page.field("jobs")).first() {
                break field(job, "id").as_str().unwrap().to_owned();
            }
        };
        ids.retain(|id| *id != holder);
        for action in ACTIONS {
            for api in APIS {
                let id = ids.pop().unwrap();
                check(&venue, api, at, action, &id).await;
            }
        }
    });
}
