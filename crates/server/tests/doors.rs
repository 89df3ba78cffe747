//! Every state and every action, at every door: the effect on the chain is the same wherever it is
//! allowed, and each door answers in its own words.
//!
//! A new door is one more row in [`DOORS`]: how it asks, and what it answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_value::Value;
use support::{Reply, Running, field, items, life, venue, venue_in};

/// Where a job stands: its name here, and the words of the doors.
struct Role {
    name: &'static str,
    grid: &'static str,
    canvas: &'static str,
}

const STANDINGS: [Role; 11] = [
    Role { name: "waits on the queue", grid: "PENDING", canvas: "pending" },
    Role { name: "runs", grid: "STARTED", canvas: "processing" },
    Role { name: "was put back on the queue", grid: "STARTED", canvas: "pending" },
    Role { name: "is paused", grid: "PAUSED", canvas: "paused" },
    Role { name: "asks for input", grid: "INPUT_REQUIRED", canvas: "paused" },
    Role { name: "asks for authority", grid: "AUTH_REQUIRED", canvas: "paused" },
    Role { name: "is complete", grid: "COMPLETE", canvas: "completed" },
    Role { name: "has failed", grid: "FAILED", canvas: "failed" },
    Role { name: "was refused", grid: "REJECTED", canvas: "failed" },
    Role { name: "was cancelled", grid: "CANCELLED", canvas: "cancelled" },
    Role { name: "was too late", grid: "TIMEOUT", canvas: "failed" },
];

const ACTIONS: [&str; 3] = ["pause", "resume", "cancel"];

/// A door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Grid,
    Canvas,
}

const DOORS: [Door; 2] = [Door::Grid, Door::Canvas];

impl Door {
    async fn act(self, venue: &Running, id: &str, action: &str) -> Reply {
        match self {
            Door::Grid => venue.put(&format!("/api/v1/jobs/{id}/{action}")).await,
            Door::Canvas => {
                let body = format!(r#"{{"action":"{action}"}}"#);
                venue.post(&format!("/canvas/v1/jobs/{id}/control"), &body).await
            }
        }
    }

    /// The job's status in the door's words.
    async fn status(self, venue: &Running, id: &str) -> Value {
        let root = match self {
            Door::Grid => "/api/v1",
            Door::Canvas => "/canvas/v1",
        };
        venue.get(&format!("{root}/jobs/{id}")).await.field("status")
    }

    fn word(self, role: &Role) -> &'static str {
        match self {
            Door::Grid => role.grid,
            Door::Canvas => role.canvas,
        }
    }

    /// What it answers: the status, and the statuses that the chain gets.
    fn expected(self, role: &Role, action: &str) -> (u16, &'static [&'static str]) {
        let waits = matches!(role.grid, "INPUT_REQUIRED" | "AUTH_REQUIRED");
        let is_live = matches!(role.grid, "PENDING" | "STARTED" | "PAUSED") || waits;
        match (self, action) {
            // Whoever waits for a message goes on by a message.
            (Door::Canvas, "pause") if waits => (409, &[]),
            (_, "pause") if is_live && role.grid != "PAUSED" => (200, &["PAUSED"]),
            (_, "resume") if role.grid == "PAUSED" => (200, &["STARTED"]),
            (_, "cancel") if is_live => (200, &["CANCELLED"]),
            // A job that has ended stays as it is; only the answer differs.
            (Door::Grid, "cancel") => (200, &[]),
            _ => (409, &[]),
        }
    }
}

/// Statuses of the chain, notes left out.
async fn chain(venue: &Running, id: &str) -> Vec<String> {
    let history = venue.get(&format!("/api/v1/jobs/{id}/history")).await;
    let records = items(&history.field("records"));
    let records = records.iter().map(|line| field(line, "record"));
    let statuses = records.filter(|record| field(record, "note").is_nil());
    statuses.map(|record| field(&record, "status").as_str().unwrap().to_owned()).collect()
}

async fn invoked(venue: &Running, body: &str) -> String {
    let reply = venue.post("/api/v1/invoke", body).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.field("id").as_str().unwrap().to_owned()
}

/// A job that stands there, in a venue with room for it, unless it is to wait.
async fn role(venue: &Running, role: &Role) -> String {
    let id = match role.name {
        "was put back on the queue" | "waits on the queue" | "runs" => {
            venue.invoke("try:never").await
        }
        "is paused" => {
            let id = venue.invoke("try:never").await;
            venue.put(&format!("/api/v1/jobs/{id}/pause")).await;
            id
        }
        "asks for input" => venue.invoke("try:ask").await,
        "asks for authority" => venue.invoke("try:auth").await,
        "is complete" => venue.invoke("try:echo").await,
        "has failed" => venue.invoke("try:fail").await,
        "was refused" => invoked(venue, r#"{"operation":"try:strict","input":{}}"#).await,
        "was cancelled" => {
            let id = venue.invoke("try:never").await;
            venue.put(&format!("/api/v1/jobs/{id}/cancel")).await;
            id
        }
        "was too late" => invoked(venue, r#"{"operation":"try:never","timeoutMs":1}"#).await,
        other => panic!("{other}"),
    };
    // Not with a wait: most of them have not ended.
    while Door::Grid.status(venue, &id).await != role.grid.into() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    id
}

/// Does every action at one door to a job of its own, and checks the answer and the chain.
async fn check(venue: &Running, door: Door, at: &Role, action: &str, id: &str) {
    let what = format!("{action} of a job that {} at {door:?}", at.name);
    assert_eq!(door.status(venue, id).await, door.word(at).into(), "{what}");
    let before = chain(venue, id).await;
    let reply = door.act(venue, id, action).await;
    let (status, added) = door.expected(at, action);
    assert_eq!(reply.status, status, "{what}: {}", reply.text());
    let after = chain(venue, id).await;
    assert_eq!(after[..before.len()], before[..], "{what}");
    assert_eq!(&after[before.len()..], added, "{what}");
    if status == 409 {
        reply.is_error(409, "job_conflict");
        assert_eq!(reply.field("status"), door.word(at).into(), "{what}");
        let is_named = !reply.field("allowed").is_nil();
        assert_eq!(is_named, door == Door::Canvas, "{what}: {}", reply.text());
    }
}

#[tokio::test]
async fn every_state_and_action_has_the_same_effect_at_every_door() {
    let venue = venue(|_| {}).await;
    for at in &STANDINGS {
        if at.name.ends_with("the queue") {
            continue;
        }
        for action in ACTIONS {
            for door in DOORS {
                let id = role(&venue, at).await;
                check(&venue, door, at, action, &id).await;
            }
        }
    }
}

#[tokio::test]
async fn a_job_that_waits_for_its_turn_can_be_paused_and_cancelled() {
    let venue = venue(|flags| flags.running = Some("1".to_owned())).await;
    let holder = venue.invoke("try:never").await;
    let at = STANDINGS.iter().find(|at| at.name == "waits on the queue").unwrap();
    for action in ACTIONS {
        for door in DOORS {
            let id = role(&venue, at).await;
            check(&venue, door, at, action, &id).await;
        }
    }
    venue.put(&format!("/api/v1/jobs/{holder}/cancel")).await;
}

#[test]
fn a_job_that_was_put_back_on_the_queue_can_be_paused_and_cancelled() {
    let (folder, mut ids) = life(async || {
        let at = STANDINGS.iter().find(|at| at.name == "was put back on the queue").unwrap();
        let first = venue(|_| {}).await;
        let mut ids = Vec::new();
        // One more than is asked about: somebody takes the only place of the next life.
        for _ in 0..=ACTIONS.len() * DOORS.len() {
            ids.push(role(&first, at).await);
        }
        (first.stop().await, ids)
    });
    life(async || {
        let at = STANDINGS.iter().find(|at| at.name == "was put back on the queue").unwrap();
        let venue = venue_in(folder, |flags| flags.running = Some("1".to_owned())).await;
        let holder = loop {
            let page = venue.get("/canvas/v1/jobs?status=processing").await;
            if let Some(job) = items(&page.field("jobs")).first() {
                break field(job, "id").as_str().unwrap().to_owned();
            }
        };
        ids.retain(|id| *id != holder);
        for action in ACTIONS {
            for door in DOORS {
                let id = ids.pop().unwrap();
                check(&venue, door, at, action, &id).await;
            }
        }
    });
}
