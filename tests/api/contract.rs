//! The contract API `/contract/v1`, section by section of its source (`job-contracts.md`). In most tests
//! the test itself is the executor; those in `cells` run a real one with its sandbox.
//!
//! Each file quotes the sections that its tests check:
//!
//! | Section | Where |
//! |---|---|
//! | 1 Principles | this file |
//! | 2 Job Types | `sections` |
//! | 3 Status Model | `states`, `lifecycle`; under kills `tests/crash/executors.rs` |
//! | 4 Identity & Traceability | `sections` |
//! | 5 Idempotency & Deduplication | `sections` (5.1), `dedupe` (5.2, 5.3) |
//! | 6 Job Payload Contract | `sections` (6.1, 6.2, 6.4), `envelope`, `shares` (6.3) |
//! | 7 Job-Specific Payloads | `cells`, `sections` (7.1) |
//! | 8 Result Contract | `cells` (8.1, 8.3), `artifacts` (8.2) |
//! | 9 Failure Semantics | `cells` (9.1, 9.2), `lifecycle` (9.3) |
//! | 10 Cancellation | `lifecycle`, `dedupe`, `shares` (10.1), `cells` (10.2) |
//! | 11 Security Requirements | `envelope`, `artifacts`, `cells`; the attacks are in `crates/sandbox/tests` |
//! | 12 Compatibility & Versioning | `sections` |
//! | 13 Minimal Implementation Checklist | the sections above, each item with its test in this list |
//!
//! Section 1: "Platform orchestrates, executor computes": the server does not depend on the sandbox
//! (`tests/tidy.rs::dependencies_point_down`). "Deterministic, traceable execution: Every job references a
//! specific document revision and object(s)" (section 4). "Immutable artifacts" (8.2). "Idempotent by
//! design" (5). "Bounded outputs: Logs, stdout/stderr, and error payloads must be size-limited" (8.3).
//!
//! Section 13, "Platform must implement": "execution_key computation" (5.1), "idempotency keys at API
//! boundary" (5.3), "job persistence + lifecycle transitions" (3.2), "dedupe lookup + reuse on hit" (5.2),
//! "signed URL generation for artifact retrieval" (8.2), "bounded output storage" (8.3). "Executor must
//! implement": "schema validation" (12.1), "sandbox enforcement" (11), "limits enforcement" (6.3, 9.2),
//! "artifact upload + digest reporting" (8.2), "bounded logs/stdout/stderr" (8.3), "structured failure
//! categories" (9.2).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "contract/artifacts.rs"]
mod artifacts;
#[path = "contract/cells.rs"]
mod cells;
#[path = "contract/dedupe.rs"]
mod dedupe;
#[path = "contract/envelope.rs"]
mod envelope;
#[path = "contract/executors.rs"]
mod executors;
#[path = "contract/lifecycle.rs"]
mod lifecycle;
#[path = "contract/sections.rs"]
mod sections;
#[path = "contract/shares.rs"]
mod shares;
#[path = "contract/states.rs"]
mod states;

use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

/// The environment that the executor of a test announces.
const ENVIRONMENT: &str = "py-bare@0123456789ab";

/// A venue, its owner, and an executor that the test plays.
struct Bench {
    site: Site,
    owner: Client,
    executor: Client,
}

impl Bench {
    async fn start() -> Bench {
        Bench::with_lease("10s").await
    }

    async fn with_lease(lease: &str) -> Bench {
        Bench::with(|flags| flags.worker_lease = Some(lease.to_owned())).await
    }

    async fn with(change: impl FnOnce(&mut catena_server::config::Flags)) -> Bench {
        let site = Site::with(change).await;
        let did = site.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned();
        let executor = site.worker(&did, &["exec.*"]);
        let owner = site.caller(1).await;
        Bench { site, owner, executor }
    }

    /// A venue whose executor has announced an environment.
    async fn ready() -> Bench {
        let bench = Bench::start().await;
        bench.announce().await;
        bench
    }

    async fn announce(&self) {
        let environment =
            json!({"version": ENVIRONMENT, "profile": "bare", "job_types": ["object_execute"]});
        let body = json!({"worker": "e1", "slots": 1, "environments": [environment]});
        self.executor.post("/contract/v1/executor/announce", &body).await.expect(200);
    }

    async fn submit(&self, body: &Json) -> Json {
        self.owner.post("/contract/v1/jobs", body).await.expect(202).json()
    }

    /// Submits a job and claims it.
    async fn claimed(&self, body: &Json) -> (String, Json) {
        let id = text(&self.submit(body).await, "job_id");
        (id, self.claim("e1").await)
    }

    async fn claim(&self, worker: &str) -> Json {
        let reply = self.try_claim(worker, 20_000).await;
        assert_eq!(reply["jobs"].as_array().unwrap().len(), 1, "{reply}");
        reply["jobs"][0].clone()
    }

    async fn try_claim(&self, worker: &str, wait_ms: u64) -> Json {
        let queue = format!("exec.{}", ENVIRONMENT.replace('@', "."));
        let body = json!({"worker": worker, "queues": [queue], "max": 1, "waitMs": wait_ms,
                          "about": {"tier": "T2"}});
        self.executor.post("/worker/v1/claim", &body).await.expect(200).json()
    }

    async fn end(&self, job: &Json, end: Json) -> catena_tests::http::Reply {
        let mut body = json!({"fence": job["fence"]});
        for (name, value) in end.as_object().unwrap() {
            body[name] = value.clone();
        }
        let path = format!("/worker/v1/jobs/{}/end", job["id"].as_str().unwrap());
        self.executor.post(&path, &body).await
    }

    /// Ends a job as an executor does after a cell that printed `1`.
    async fn succeed(&self, job: &Json) {
        let end = json!({"output": {"result_json": null, "stdout": "1\n", "stderr": ""},
                         "execution": {"tier": "T2", "executor": "e1", "duration_ms": 5}});
        self.end(job, end).await.expect(200);
    }

    async fn fail(&self, job: &Json, category: &str) {
        let error = json!({"category": category, "code": "X", "message": "why", "details": {}});
        let end = json!({"error": "why", "code": category, "execution": {"error": error}});
        self.end(job, end).await.expect(200);
    }

    async fn read(&self, id: &str) -> Json {
        self.owner.get(&format!("/contract/v1/jobs/{id}")).await.expect(200).json()
    }
}

fn text(value: &Json, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}

/// A UUID that ends with this number.
fn uuid(number: u32) -> String {
    format!("018f4d2e-0000-7000-8000-0000{number:08x}")
}

/// The payload of section 7.1 with this source.
fn payload(source: &str) -> Json {
    json!({
        "schema_version": "1.0",
        "job_type": "object_execute",
        "workspace_id": uuid(1), "project_id": uuid(2),
        "document_id": uuid(3), "document_revision_id": uuid(4),
        "target": {"object_id": uuid(5)},
        "inputs": {"object": {
            "type": "code",
            "content": {"format": "python", "value": source},
            "dependencies": [],
            "runtime": {"language": "python", "parameters": {}},
        }},
    })
}

/// The payload with some members replaced, by JSON pointer.
fn changed(source: &str, changes: &[(&str, Json)]) -> Json {
    let mut body = payload(source);
    for (pointer, value) in changes {
        match body.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => {
                let (parent, name) = pointer.rsplit_once('/').unwrap();
                body.pointer_mut(parent).unwrap()[name] = value.clone();
            }
        }
    }
    body
}
