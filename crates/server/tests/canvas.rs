//! The canvas API, by the sections of its specification: states, control actions, progress,
//! creation and recovery; and its other routes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_auth::identity::Grant;
use catena_server::key;
use catena_value::Value;
use support::{
    PATIENCE, Reply, Running, Try, field, items, run_process, value, venue, venue_in, venue_with,
};

const MEMBERS: [&str; 14] = [
    "id",
    "type",
    "status",
    "progress",
    "processedItems",
    "totalItems",
    "outputStats",
    "data",
    "output",
    "errorLog",
    "recovery",
    "createdAt",
    "startedAt",
    "completedAt",
];

async fn start() -> Running {
    venue(|_| {}).await
}

/// Creates a job and returns its ID.
async fn create(venue: &Running, kind: &str, data: &str) -> String {
    let body = format!(r#"{{"type":"{kind}","data":{data}}}"#);
    let reply = venue.post("/canvas/v1/jobs", &body).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.field("id").as_str().unwrap().to_owned()
}

async fn job(venue: &Running, id: &str) -> Reply {
    let reply = venue.get(&format!("/canvas/v1/jobs/{id}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

async fn control(venue: &Running, id: &str, action: &str) -> Reply {
    let body = format!(r#"{{"action":"{action}"}}"#);
    venue.post(&format!("/canvas/v1/jobs/{id}/control"), &body).await
}

/// Reads a job until the condition holds.
async fn until(venue: &Running, id: &str, mut is_done: impl FnMut(&Reply) -> bool) -> Reply {
    let reading = async {
        loop {
            let reply = job(venue, id).await;
            if is_done(&reply) {
                return reply;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap()
}

async fn until_status(venue: &Running, id: &str, status: &str) -> Reply {
    until(venue, id, |reply| reply.field("status") == status.into()).await
}

fn ids(page: &Reply) -> Vec<String> {
    let id = |job: &Value| field(job, "id").as_str().unwrap().to_owned();
    items(&page.field("jobs")).iter().map(id).collect()
}

// "Job States".

#[tokio::test]
async fn pending_is_a_job_record_that_waits_to_run() {
    let venue = venue(|flags| flags.running = Some("1".to_owned())).await;
    let first = create(&venue, "try:never", "1").await;
    let second = create(&venue, "try:never", "2").await;
    assert_eq!(job(&venue, &first).await.field("status"), "processing".into());
    let waiting = job(&venue, &second).await;
    assert_eq!(waiting.field("status"), "pending".into());
    assert_eq!((waiting.field("startedAt"), waiting.field("progress")), (Value::Nil, 0.into()));
    control(&venue, &first, "cancel").await;
    until_status(&venue, &second, "processing").await;
}

#[tokio::test]
async fn processing_is_a_job_that_a_worker_runs() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let running = job(&venue, &id).await;
    assert_eq!(running.field("status"), "processing".into());
    assert!(running.field("startedAt").as_i64() >= running.field("createdAt").as_i64());
    assert_eq!(running.field("completedAt"), Value::Nil);
}

#[tokio::test]
async fn a_private_job_that_runs_is_processing_too() {
    let venue = start().await;
    let body = r#"{"operation":"try:never","input":{},"private":true}"#;
    let invoked = venue.post("/api/v1/invoke", body).await;
    assert_eq!(invoked.field("status"), "STARTED".into(), "{}", invoked.text());
    let id = invoked.field("id").as_str().unwrap().to_owned();
    assert_eq!(job(&venue, &id).await.field("status"), "processing".into());
}

#[tokio::test]
async fn paused_is_suspended_on_purpose_and_can_be_resumed() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let paused = control(&venue, &id, "pause").await;
    assert_eq!((paused.status, paused.field("status")), (200, "paused".into()));
    assert_eq!(paused.field("waitingFor"), Value::Nil);
    let resumed = control(&venue, &id, "resume").await;
    assert_eq!((resumed.status, resumed.field("status")), (200, "processing".into()));
}

#[tokio::test]
async fn completed_is_finished_successfully() {
    let venue = start().await;
    let id = create(&venue, "try:echo", r#"{"a":1}"#).await;
    let done = job(&venue, &id).await;
    assert_eq!(done.field("status"), "completed".into());
    assert_eq!(
        (done.field("data"), done.field("output")),
        (value(r#"{"a":1}"#), value(r#"{"a":1}"#))
    );
    assert_eq!(done.field("progress"), 100.into());
    assert!(done.field("completedAt").as_i64().is_some());
    assert!(items(&done.field("errorLog")).is_empty());
}

#[tokio::test]
async fn failed_is_finished_with_an_error_that_is_in_the_log() {
    let venue = start().await;
    let id = create(&venue, "try:fail", "1").await;
    let failed = until_status(&venue, &id, "failed").await;
    assert_eq!((failed.field("progress"), failed.field("output")), (100.into(), Value::Nil));
    let log = items(&failed.field("errorLog"));
    assert_eq!(log.len(), 1);
    assert_eq!(field(&log[0], "kind"), "failed".into());
    assert_eq!(field(&log[0], "code"), "asked_to".into());
    assert_eq!(field(&log[0], "error"), "it was asked to fail".into());
    assert_eq!(field(&log[0], "at"), failed.field("completedAt"));
    // Rejected input and timeouts are failures too.
    let refused = create(&venue, "try:strict", "{}").await;
    let refused = until_status(&venue, &refused, "failed").await;
    assert_eq!(field(&items(&refused.field("errorLog"))[0], "kind"), "rejected".into());
    let late = r#"{"operation":"try:never","timeoutMs":1}"#;
    let late = venue.post("/api/v1/invoke", late).await.field("id");
    let late = until_status(&venue, late.as_str().unwrap(), "failed").await;
    assert_eq!(field(&items(&late.field("errorLog"))[0], "kind"), "timeout".into());
}

#[tokio::test]
async fn cancelled_is_ended_by_request() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let gone = venue.request("DELETE", &format!("/canvas/v1/jobs/{id}"), &[], "").await;
    assert_eq!((gone.status, gone.field("status")), (200, "cancelled".into()));
    assert_eq!(gone.field("progress"), 100.into());
    assert_eq!(job(&venue, &id).await.field("status"), "cancelled".into());
    let again = venue.request("DELETE", &format!("/canvas/v1/jobs/{id}"), &[], "").await;
    again.assert_error(409, "job_conflict");
}

#[tokio::test]
async fn a_failed_attempt_that_was_retried_is_in_the_log_of_a_completed_job() {
    let venue = start().await;
    let id = create(&venue, "try:flaky", "1").await;
    let done = until_status(&venue, &id, "completed").await;
    let log = items(&done.field("errorLog"));
    assert_eq!(log.len(), 1);
    assert_eq!((field(&log[0], "kind"), field(&log[0], "attempt")), ("attempt".into(), 1.into()));
    assert_eq!(field(&log[0], "error"), "the first attempt always fails".into());
}

// "Control Actions".

#[tokio::test]
async fn an_action_that_is_not_allowed_now_is_409_and_names_those_that_are() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let refused = control(&venue, &id, "resume").await;
    refused.assert_error(409, "job_conflict");
    assert_eq!(refused.field("status"), "processing".into());
    assert_eq!(refused.field("allowed"), value(r#"["pause","cancel"]"#));
    assert!(refused.field("error").as_str().unwrap().contains("pause, cancel"));
    control(&venue, &id, "pause").await;
    let refused = control(&venue, &id, "pause").await;
    assert_eq!(refused.field("allowed"), value(r#"["resume","cancel"]"#));
    control(&venue, &id, "cancel").await;
    for action in ["pause", "resume", "cancel"] {
        let refused = control(&venue, &id, action).await;
        refused.assert_error(409, "job_conflict");
        assert_eq!(refused.field("allowed"), value("[]"));
    }
}

#[tokio::test]
async fn an_unknown_action_is_400() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let path = format!("/canvas/v1/jobs/{id}/control");
    let unknown = control(&venue, &id, "stop").await;
    unknown.assert_error(400, "unknown_action");
    assert_eq!(unknown.field("actions"), value(r#"["pause","resume","cancel"]"#));
    for body in ["{}", "[]", r#"{"action":5}"#] {
        venue.post(&path, body).await.assert_error(400, "bad_request");
    }
    venue.post(&path, "{").await.assert_error(400, "invalid_json");
    assert_eq!(job(&venue, &id).await.field("status"), "processing".into());
    let missing = format!("/canvas/v1/jobs/{}", "0".repeat(32));
    venue.get(&missing).await.assert_error(404, "job_not_found");
    venue
        .post(&format!("{missing}/control"), r#"{"action":"pause"}"#)
        .await
        .assert_error(404, "job_not_found");
    venue.get("/canvas/v1/jobs/zz").await.assert_error(400, "invalid_job_id");
}

#[tokio::test]
async fn a_job_that_waits_for_a_message_is_paused_and_continues_with_one() {
    let venue = start().await;
    for (kind, waiting) in [("try:ask", "input"), ("try:auth", "auth")] {
        let id = create(&venue, kind, "1").await;
        let asking = until_status(&venue, &id, "paused").await;
        assert_eq!(asking.field("waitingFor"), waiting.into());
        for action in ["pause", "resume"] {
            let refused = control(&venue, &id, action).await;
            refused.assert_error(409, "job_conflict");
            assert!(
                refused.field("hint").as_str().unwrap().contains("message"),
                "{}",
                refused.text()
            );
            assert_eq!(refused.field("allowed"), value(r#"["cancel"]"#));
        }
    }
    let id = create(&venue, "try:ask", "1").await;
    until_status(&venue, &id, "paused").await;
    venue.post(&format!("/api/v1/jobs/{id}"), r#"{"content":"done"}"#).await;
    let done = until_status(&venue, &id, "completed").await;
    assert_eq!((done.field("output"), done.field("waitingFor")), ("bye".into(), Value::Nil));
}

// "Progress Semantics".

async fn reporting(venue: &Running, reports: &str) -> String {
    create(venue, "try:report", &format!(r#"{{"reports":{reports}}}"#)).await
}

async fn progress(venue: &Running, id: &str) -> Reply {
    venue.get(&format!("/canvas/v1/jobs/{id}/progress")).await
}

#[tokio::test]
async fn progress_is_derived_from_output_stats_first() {
    let venue = start().await;
    let reports = r#"[{"processedItems":9,"totalItems":10,"outputStats":{"bytesProcessed":25,"bytesTotal":100}}]"#;
    let id = reporting(&venue, reports).await;
    let current = until(&venue, &id, |reply| reply.field("progress") != 0.into()).await;
    assert_eq!(current.field("progress"), 25.into());
    assert_eq!(
        (current.field("processedItems"), current.field("totalItems")),
        (9.into(), 10.into())
    );
    assert_eq!(current.field("outputStats"), value(r#"{"bytesProcessed":25,"bytesTotal":100}"#));
}

#[tokio::test]
async fn progress_falls_back_to_items() {
    let venue = start().await;
    let id = reporting(&venue, r#"[{"processedItems":4,"totalItems":10}]"#).await;
    let current = until(&venue, &id, |reply| reply.field("progress") != 0.into()).await;
    assert_eq!((current.field("progress"), current.field("outputStats")), (40.into(), Value::Nil));
}

#[tokio::test]
async fn progress_of_an_active_job_is_at_most_99() {
    let venue = start().await;
    let id = reporting(&venue, r#"[{"processedItems":10,"totalItems":10}]"#).await;
    until(&venue, &id, |reply| reply.field("progress") == 99.into()).await;
    let paused = control(&venue, &id, "pause").await;
    assert_eq!(paused.field("progress"), 99.into());
    let cancelled = control(&venue, &id, "cancel").await;
    assert_eq!(
        (cancelled.field("progress"), cancelled.field("processedItems")),
        (100.into(), 10.into())
    );
}

#[tokio::test]
async fn progress_never_decreases_within_an_attempt() {
    let venue = start().await;
    let reports = r#"[{"processedItems":5,"totalItems":10},{"processedItems":2,"totalItems":10},{"processedItems":6,"totalItems":100},{"processedItems":7,"totalItems":100}]"#;
    let id = reporting(&venue, reports).await;
    let mut last = 0;
    until(&venue, &id, |reply| {
        let now = reply.field("progress").as_i64().unwrap();
        assert!(now >= last, "{now} after {last}");
        last = now;
        reply.field("processedItems") == 7.into()
    })
    .await;
    assert_eq!(job(&venue, &id).await.field("progress"), 50.into());
}

#[tokio::test]
async fn progress_has_a_route_of_its_own_with_rate_and_remaining_time() {
    let venue = start().await;
    let id = reporting(
        &venue,
        r#"[{"processedItems":1,"totalItems":10},{"processedItems":2,"totalItems":10}]"#,
    )
    .await;
    until(&venue, &id, |reply| reply.field("processedItems") == 2.into()).await;
    let current = progress(&venue, &id).await;
    assert_eq!(
        (current.field("id"), current.field("status")),
        (id.as_str().into(), "processing".into())
    );
    assert_eq!((current.field("progress"), current.field("totalItems")), (20.into(), 10.into()));
    assert!(!current.field("ratePerSecond").is_nil(), "{}", current.text());
    assert!(
        current.field("remainingMs").as_i64().is_some_and(|time| time > 0),
        "{}",
        current.text()
    );
    assert!(current.field("updatedAt").as_i64().is_some());
    control(&venue, &id, "pause").await;
    let paused = progress(&venue, &id).await;
    assert_eq!((paused.field("ratePerSecond"), paused.field("progress")), (Value::Nil, 20.into()));
    venue
        .get(&format!("/canvas/v1/jobs/{}/progress", "0".repeat(32)))
        .await
        .assert_error(404, "job_not_found");
}

#[tokio::test]
async fn an_orchestration_counts_its_steps() {
    let venue = start().await;
    let metadata = r#"{"name":"two steps","operation":{"adapter":"orchestrator","steps":[
        {"op":"try:echo","input":["input"]},
        {"op":"try:never","input":[0]}],"result":[1]}}"#;
    let made = venue.post("/api/v1/assets", metadata).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = create(&venue, made.value().as_str().unwrap(), "1").await;
    let current = until(&venue, &id, |reply| reply.field("processedItems") == 1.into()).await;
    assert_eq!((current.field("totalItems"), current.field("progress")), (2.into(), 50.into()));
    assert_eq!(control(&venue, &id, "cancel").await.field("progress"), 100.into());
}

// "Queue-backed Job Creation".

#[tokio::test]
async fn a_created_job_is_returned_with_202_and_its_location() {
    let venue = start().await;
    let body = r#"{"type":"try:never","data":{"a":1},"isDynamic":true}"#;
    let made = venue.post("/canvas/v1/jobs", body).await;
    assert_eq!(made.status, 202, "{}", made.text());
    let id = made.field("id").as_str().unwrap().to_owned();
    let location = format!("/canvas/v1/jobs/{}", id.strip_prefix("0x").unwrap());
    assert_eq!(made.header("location"), Some(location.as_str()));
    assert_eq!(made.field("type"), "try:never".into());
    let job = venue.get(&location).await.value();
    let names: Vec<_> = job
        .as_map()
        .unwrap()
        .fields()
        .into_iter()
        .map(|(key, _)| key.as_str().unwrap().to_owned())
        .collect();
    assert!(MEMBERS.iter().all(|name| names.iter().any(|own| own == name)), "{names:?}");
    assert_eq!(names.len(), MEMBERS.len(), "{names:?}");
    // The same job in the grid API.
    let grid = venue.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!((grid.field("status"), grid.field("op")), ("STARTED".into(), "try:never".into()));
    // And vice versa.
    let other = venue.invoke("try:never").await;
    assert_eq!(self::job(&venue, &other).await.field("status"), "processing".into());
}

#[tokio::test]
async fn an_invalid_request_creates_no_job() {
    let venue = start().await;
    for (body, code) in [
        ("[]", "bad_request"),
        ("{}", "bad_request"),
        (r#"{"type":5}"#, "bad_request"),
        (r#"{"type":"try:echo","isDynamic":"yes"}"#, "bad_request"),
        (r#"{"type":"try:ecko"}"#, "operation_not_found"),
    ] {
        venue.post("/canvas/v1/jobs", body).await.assert_error(400, code);
    }
    assert_eq!(venue.get("/canvas/v1/jobs").await.field("total"), 0.into());
}

#[tokio::test]
async fn a_repeated_key_gets_the_same_job() {
    let venue = start().await;
    let key = [("idempotency-key", "k1")];
    let body = r#"{"type":"try:never","data":1}"#;
    let first = venue.request("POST", "/canvas/v1/jobs", &key, body).await;
    let again = venue.request("POST", "/canvas/v1/jobs", &key, body).await;
    assert_eq!((again.status, again.field("id")), (202, first.field("id")));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = r#"{"type":"try:never","data":2}"#;
    let reused = venue.request("POST", "/canvas/v1/jobs", &key, other).await;
    reused.assert_error(422, "idempotency_key_reused");
}

// "API Surface": lists.

#[tokio::test]
async fn lists_are_filtered_by_type_status_and_creator() {
    let venue = start().await;
    let mut never = Vec::new();
    for _ in 0..3 {
        never.push(create(&venue, "try:never", "1").await);
    }
    let echo = create(&venue, "try:echo", "1").await;
    let failed = create(&venue, "try:fail", "1").await;
    until_status(&venue, &failed, "failed").await;
    let rejected = create(&venue, "try:strict", "{}").await;
    let asking = create(&venue, "try:ask", "1").await;
    until_status(&venue, &asking, "paused").await;
    control(&venue, &never[0], "pause").await;
    control(&venue, &never[1], "cancel").await;
    let listed = async |query: &str| {
        let page = venue.get(&format!("/canvas/v1/jobs?{query}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        (ids(&page), page.field("total").as_i64().unwrap())
    };
    let [paused, cancelled, running] = [&never[0], &never[1], &never[2]].map(Clone::clone);
    let all = [&asking, &rejected, &failed, &echo, &running, &cancelled, &paused].map(Clone::clone);
    assert_eq!(listed("").await, (all.to_vec(), 7));
    assert_eq!(listed("limit=2&offset=1").await, (all[1..3].to_vec(), 7));
    assert_eq!(listed("type=try:never").await.1, 3);
    assert_eq!(listed("status=processing").await, (vec![running.clone()], 1));
    assert_eq!(listed("status=pending").await.1, 0);
    assert_eq!(listed("status=paused").await, (vec![asking.clone(), paused.clone()], 2));
    assert_eq!(listed("status=failed").await, (vec![rejected, failed], 2));
    assert_eq!(listed("status=failed&limit=1&offset=1").await.0.len(), 1);
    assert_eq!(listed("status=completed").await, (vec![echo], 1));
    assert_eq!(listed("status=cancelled").await, (vec![cancelled.clone()], 1));
    assert_eq!(listed("status=cancelled&type=try:never").await, (vec![cancelled], 1));
    assert_eq!(listed("status=paused&type=try:never").await, (vec![paused], 1));
    assert_eq!(listed("createdById=did:key:somebody").await.1, 0);
    let status = venue.get("/api/v1/status").await;
    let own = format!("{}:public", status.field("did").as_str().unwrap());
    assert_eq!(listed(&format!("createdById={own}&status=processing")).await.0, [running]);
    for bad in ["status=COMPLETE", "status=done", "limit=1001", "offset=-1"] {
        venue.get(&format!("/canvas/v1/jobs?{bad}")).await.assert_error(400, "bad_request");
    }
}

#[tokio::test]
async fn a_list_entry_omits_long_values_and_names_them() {
    let venue = start().await;
    let long = format!("\"{}\"", "x".repeat(20_000));
    let id = create(&venue, "try:echo", &long).await;
    let page = venue.get("/canvas/v1/jobs").await;
    let line = &items(&page.field("jobs"))[0];
    assert_eq!(field(line, "omitted"), value(r#"["data","output"]"#));
    assert_eq!(job(&venue, &id).await.field("data"), value(&long));
}

#[tokio::test]
async fn admins_list_the_jobs_of_others_and_others_see_none_of_them() {
    let venue = start().await;
    let id = create(&venue, "try:never", "1").await;
    let status = venue.get("/api/v1/status").await;
    let public = format!("{}:public", status.field("did").as_str().unwrap());
    let venue_key = key::load(venue.folder.path()).unwrap().unwrap();
    let issuer = catena_auth::Venue { did: venue_key.did(), public: venue_key.public() };
    let token = |subject: &'static str, is_admin: bool| {
        let grant =
            Grant { subject, id: subject, issued: 0, expires: None, is_admin, queues: None };
        format!("Bearer {}", issuer.issue(&venue_key, &grant))
    };
    let path = format!("/canvas/v1/jobs?createdById={public}");
    let as_admin =
        venue.request("GET", &path, &[("authorization", &token("did:key:boss", true))], "").await;
    assert_eq!(ids(&as_admin), std::slice::from_ref(&id));
    let other = token("did:key:other", false);
    let headers = [("authorization", other.as_str())];
    let as_other = venue.request("GET", &path, &headers, "").await;
    assert_eq!(as_other.field("total"), 0.into());
    for (method, path, body) in [
        ("GET", format!("/canvas/v1/jobs/{id}"), ""),
        ("GET", format!("/canvas/v1/jobs/{id}/progress"), ""),
        ("DELETE", format!("/canvas/v1/jobs/{id}"), ""),
        ("POST", format!("/canvas/v1/jobs/{id}/control"), r#"{"action":"pause"}"#),
    ] {
        venue.request(method, &path, &headers, body).await.assert_error(404, "job_not_found");
    }
}

// "Recovery Behavior".

#[test]
fn recovered_jobs_are_back_in_pending_and_on_the_queue() {
    let (folder, processing, pending) = run_process(async || {
        let venue = venue(|flags| flags.running = Some("1".to_owned())).await;
        let processing = create(&venue, "try:never", "1").await;
        let pending = create(&venue, "try:never", "2").await;
        (venue.crash(), processing, pending)
    });
    run_process(async || {
        let venue = venue_in(folder, |flags| flags.running = Some("1".to_owned())).await;
        let summary = venue.get("/canvas/v1/recovery").await;
        for (name, expected) in [("scanned", 2), ("failed", 0), ("skipped", 0)] {
            assert_eq!(summary.field(name), expected.into(), "{}", summary.text());
        }
        // A job on the queue may have started before it was scanned, and is left alone then.
        let counted = |name| summary.field(name).as_i64().unwrap();
        assert_eq!(counted("requeued") + counted("left"), 2, "{}", summary.text());
        assert!(counted("requeued") >= 1, "{}", summary.text());
        assert_eq!(summary.field("status"), "done".into());
        assert!(summary.field("durationMs").as_i64().is_some());
        // There is one slot, so the other job is still pending.
        let (first, second) = (job(&venue, &processing).await, job(&venue, &pending).await);
        let words = [first.field("status"), second.field("status")];
        assert!(words.contains(&"pending".into()), "{words:?}");
        let recovery = first.field("recovery");
        assert_eq!(field(&recovery, "attempt"), 2.into());
        assert_eq!(field(&recovery, "reason"), "the venue was restarted".into());
        assert!(field(&recovery, "at").as_i64().is_some());
        // A job that had not started stayed on the queue.
        assert_eq!(second.field("recovery"), Value::Nil);
        assert_eq!(field(&items(&first.field("errorLog"))[0], "kind"), "interrupted".into());
    });
}

#[test]
fn jobs_that_cannot_be_repeated_fail_and_others_are_left_or_skipped() {
    let (folder, once, paused, asking, gone) = run_process(async || {
        let venue = start().await;
        let once = create(&venue, "try:once", "1").await;
        let paused = create(&venue, "try:never", "1").await;
        control(&venue, &paused, "pause").await;
        let asking = create(&venue, "try:ask", "1").await;
        until_status(&venue, &asking, "paused").await;
        let gone = create(&venue, "try:report", r#"{"reports":[]}"#).await;
        (venue.crash(), once, paused, asking, gone)
    });
    run_process(async || {
        let venue = venue_with(folder, Try { without: "report" }, |_| {}).await;
        let summary = venue.get("/canvas/v1/recovery").await;
        for (name, expected) in
            [("scanned", 4), ("requeued", 0), ("failed", 1), ("skipped", 1), ("left", 2)]
        {
            assert_eq!(summary.field(name), expected.into(), "{}", summary.text());
        }
        let skipped = items(&summary.field("skippedJobs"));
        assert_eq!(field(&skipped[0], "id"), gone.as_str().into());
        assert_eq!(field(&skipped[0], "type"), "try:report".into());
        assert!(field(&skipped[0], "reason").as_str().unwrap().contains("not available"));
        let failed = job(&venue, &once).await;
        assert_eq!(failed.field("status"), "failed".into());
        assert_eq!(field(&items(&failed.field("errorLog"))[0], "code"), "interrupted".into());
        assert_eq!(job(&venue, &paused).await.field("status"), "paused".into());
        assert_eq!(job(&venue, &asking).await.field("waitingFor"), "input".into());
        assert_eq!(control(&venue, &paused, "resume").await.status, 200);
        let verbose = venue.get("/readyz?verbose=1").await;
        assert_eq!(field(&verbose.field("recovery"), "skipped"), 1.into());
    });
}

#[test]
fn the_last_progress_is_kept_over_a_restart() {
    let (folder, id) = run_process(async || {
        let venue = start().await;
        let reports =
            r#"[{"processedItems":1,"totalItems":10},{"processedItems":4,"totalItems":10}]"#;
        let id = reporting(&venue, reports).await;
        until(&venue, &id, |reply| reply.field("processedItems") == 4.into()).await;
        let paused = control(&venue, &id, "pause").await;
        assert_eq!(paused.field("processedItems"), 4.into(), "{}", paused.text());
        (venue.stop().await, id)
    });
    run_process(async || {
        let venue = venue_in(folder, |_| {}).await;
        let kept = job(&venue, &id).await;
        assert_eq!((kept.field("status"), kept.field("progress")), ("paused".into(), 40.into()));
    });
}

// Health.

#[tokio::test]
async fn health_reports_queues_workers_and_the_store() {
    let venue = venue(|flags| flags.running = Some("1".to_owned())).await;
    create(&venue, "try:never", "1").await;
    let waiting = create(&venue, "try:never", "2").await;
    create(&venue, "try:ask", "3").await;
    let health = venue.get("/canvas/v1/health").await;
    assert_eq!((health.status, health.field("status")), (200, "ok".into()));
    let queue = health.field("queue");
    assert_eq!(field(&queue, "total"), 2.into(), "{}", health.text());
    assert_eq!(field(&queue, "byPriority"), value(r#"[{"priority":0,"jobs":2}]"#));
    let types = value(r#"[{"type":"try:ask","jobs":1},{"type":"try:never","jobs":1}]"#);
    assert_eq!(field(&queue, "byType"), types);
    let oldest = health.field("oldestWaiting");
    assert_eq!(field(&oldest, "id"), waiting.as_str().into());
    assert!(field(&oldest, "waitingMs").as_i64().is_some());
    let worker = &items(&health.field("workers"))[0];
    assert_eq!((field(worker, "running"), field(worker, "slots")), (1.into(), 1.into()));
    assert!(field(worker, "lastHeartbeat").as_i64().is_some_and(|at| at > 0));
    let store = health.field("store");
    assert_eq!(field(&store, "status"), "ok".into());
    assert!(field(&store, "syncs").as_i64().is_some_and(|syncs| syncs > 0));
    assert!(!field(&store, "syncMsMean").is_nil());
    control(&venue, &waiting, "cancel").await;
    let health = venue.get("/canvas/v1/health").await;
    assert_eq!(field(&health.field("queue"), "total"), 1.into());
}

#[tokio::test]
async fn health_tells_a_stranger_only_whether_the_venue_works() {
    let venue = venue(|flags| {
        flags.public_url = Some("https://venue.example".to_owned());
        flags.public_access = Some("on".to_owned());
        flags.metrics_public = Some("on".to_owned());
    })
    .await;
    let health = venue.get("/canvas/v1/health").await;
    assert_eq!(health.text(), r#"{"status":"ok"}"#);
}

#[tokio::test]
async fn health_requires_an_admin_where_metrics_do() {
    let venue = venue(|flags| flags.metrics_public = Some("off".to_owned())).await;
    venue.get("/canvas/v1/health").await.assert_error(403, "forbidden");
}
