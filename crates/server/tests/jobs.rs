//! Jobs over HTTP: invoke, run, read, list, control, messages, history, idempotency.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_value::{NoCells, Value};
use support::{Running, field, value, venue};

async fn start() -> Running {
    venue(|_| {}).await
}

const ECHO: &str = r#"{"operation":"try:echo","input":{"text":"hello"}}"#;

#[tokio::test]
async fn an_inline_operation_is_complete_in_the_201() {
    let venue = start().await;
    let reply = venue.post("/api/v1/invoke", ECHO).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(reply.field("status"), "COMPLETE".into());
    assert_eq!(reply.field("output"), value(r#"{"text":"hello"}"#));
    let id = reply.field("id").as_str().unwrap().to_owned();
    let hex = id.strip_prefix("0x").unwrap();
    assert_eq!(reply.header("location"), Some(&*format!("/api/v1/jobs/{hex}")));
    for form in [id.clone(), hex.to_owned(), hex.to_uppercase()] {
        let read = venue.get(&format!("/api/v1/jobs/{form}")).await;
        assert_eq!(read.value(), reply.value(), "{form}");
    }
}

#[tokio::test]
async fn a_wait_for_a_completed_job_is_200_and_otherwise_201() {
    let venue = start().await;
    let reply = venue.post("/api/v1/invoke?wait=true", ECHO).await;
    assert_eq!((reply.status, reply.field("status")), (200, "COMPLETE".into()));
    let reply = venue.post("/api/v1/invoke", r#"{"operation":"try:never","wait":50}"#).await;
    assert_eq!(reply.status, 201);
    assert_ne!(reply.field("status"), "COMPLETE".into());
    let reply = venue.request("POST", "/api/v1/invoke", &[("prefer", "wait=5")], ECHO).await;
    assert_eq!((reply.status, reply.header("preference-applied")), (200, Some("wait=5")));
    venue.post("/api/v1/invoke?wait=soon", ECHO).await.assert_error(400, "bad_request");
}

#[tokio::test]
async fn an_invalid_request_creates_no_job() {
    let venue = start().await;
    for (body, code) in [
        ("[]", "bad_request"),
        ("{}", "bad_request"),
        (r#"{"operation":5}"#, "bad_request"),
        (r#"{"operation":"try:ecko"}"#, "operation_not_found"),
    ] {
        venue.post("/api/v1/invoke", body).await.assert_error(400, code);
    }
    let unknown = venue.post("/api/v1/invoke", r#"{"operation":"try:ecko"}"#).await;
    assert!(unknown.field("nearest").as_vector().is_some());
    assert_eq!(venue.get("/api/v1/jobs").await.field("total"), 0.into());
}

#[tokio::test]
async fn input_that_violates_the_schema_creates_a_rejected_job() {
    let venue = start().await;
    let body = r#"{"operation":"try:strict","input":{}}"#;
    let reply = venue.post("/api/v1/invoke", body).await;
    assert_eq!((reply.status, reply.field("status")), (201, "REJECTED".into()));
    let reply = venue.post("/api/v1/run", body).await;
    reply.assert_error(400, "job_rejected");
    assert!(reply.field("job").as_str().is_some());
}

#[tokio::test]
async fn a_run_returns_the_output_alone() {
    let venue = start().await;
    let reply = venue.post("/api/v1/run", ECHO).await;
    assert_eq!((reply.status, reply.value()), (200, value(r#"{"text":"hello"}"#)));
    let failed = venue.post("/api/v1/run", r#"{"operation":"try:fail"}"#).await;
    failed.assert_error(422, "job_failed");
    assert_eq!(failed.field("error"), "it was asked to fail".into());
    let before = venue.get("/api/v1/jobs").await.field("total");
    venue.post("/api/v1/run", r#"{"operation":"try:peek","input":1}"#).await;
    assert_eq!(venue.get("/api/v1/jobs").await.field("total"), before, "read-only: no job");
}

#[tokio::test]
async fn a_private_job_is_not_listed() {
    let venue = start().await;
    let body = r#"{"operation":"try:echo","input":1,"private":true,"wait":true}"#;
    let reply = venue.post("/api/v1/invoke", body).await;
    assert_eq!(reply.field("output"), 1.into());
    assert_eq!(venue.get("/api/v1/jobs").await.field("total"), 0.into());
}

#[tokio::test]
async fn lists_are_pages_of_bare_hex() {
    let venue = start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(venue.invoke("try:echo").await);
    }
    let page = venue.get("/api/v1/jobs?offset=1&limit=1").await;
    let bare = Value::from(ids[1].strip_prefix("0x").unwrap());
    assert_eq!(page.field("items"), Value::Vector([bare].into_iter().collect()));
    for (name, expected) in [("total", 3), ("offset", 1), ("limit", 1)] {
        assert_eq!(page.field(name), expected.into(), "{name}");
    }
    let newest = venue.get("/api/v1/jobs?order=newest&limit=1&expand=1").await.field("items");
    let first = newest.as_vector().unwrap().get(0, &NoCells).unwrap().unwrap();
    assert_eq!(field(&first, "id"), ids[2].as_str().into());
    assert_eq!(venue.get("/api/v1/jobs?status=FAILED").await.field("total"), 0.into());
    for bad in ["limit=1001", "limit=-1", "offset=x", "status=done", "order=up"] {
        venue.get(&format!("/api/v1/jobs?{bad}")).await.assert_error(400, "bad_request");
    }
}

#[tokio::test]
async fn an_unknown_job_is_404_and_an_invalid_id_400() {
    let venue = start().await;
    venue.get("/api/v1/jobs/42322").await.assert_error(400, "invalid_job_id");
    let missing = format!("/api/v1/jobs/{}", "0".repeat(32));
    venue.get(&missing).await.assert_error(404, "job_not_found");
    for action in ["cancel", "pause", "resume", "delete"] {
        venue.put(&format!("{missing}/{action}")).await.assert_error(404, "job_not_found");
    }
    venue.post(&missing, "{}").await.assert_error(404, "job_not_found");
}

#[tokio::test]
async fn an_unchanged_job_is_304() {
    let venue = start().await;
    let id = venue.invoke("try:echo").await;
    let path = format!("/api/v1/jobs/{id}");
    let tag = venue.get(&path).await.header("etag").unwrap().to_owned();
    let head = venue.get(&path).await.field("head");
    assert!(tag.starts_with(&format!("\"{}-", head.as_str().unwrap())), "{tag}");
    let again = venue.request("GET", &path, &[("if-none-match", &tag)], "").await;
    assert_eq!((again.status, again.text()), (304, ""));
}

#[tokio::test]
async fn a_running_job_is_paused_resumed_and_cancelled() {
    let venue = start().await;
    let id = venue.invoke("try:never").await;
    let path = format!("/api/v1/jobs/{id}");
    venue.until(&id, "STARTED").await;
    assert_eq!(venue.put(&format!("{path}/pause")).await.field("status"), "PAUSED".into());
    venue.put(&format!("{path}/pause")).await.assert_error(409, "job_conflict");
    assert_eq!(venue.put(&format!("{path}/resume")).await.field("status"), "STARTED".into());
    venue.put(&format!("{path}/resume")).await.assert_error(409, "job_conflict");
    let body = r#"{"reason":"enough"}"#;
    let ended = venue.request("PUT", &format!("{path}/cancel"), &[], body).await;
    assert_eq!((ended.status, ended.field("status")), (200, "CANCELLED".into()));
    let again = venue.put(&format!("{path}/cancel")).await;
    assert_eq!((again.status, again.value()), (200, ended.value()));
    assert_eq!(venue.put(&format!("{path}/delete")).await.status, 200);
    venue.get(&path).await.assert_error(410, "job_deleted");
}

#[tokio::test]
async fn messages_are_queued_and_answered() {
    let venue = start().await;
    let id = venue.invoke("try:ask").await;
    let path = format!("/api/v1/jobs/{id}");
    venue.until(&id, "INPUT_REQUIRED").await;
    let sent = venue.post(&path, r#"{"content":"hi","messageId":"m1"}"#).await;
    assert_eq!((sent.status, sent.field("queued")), (202, true.into()), "{}", sent.text());
    assert_eq!((sent.field("id"), sent.field("messageId")), (id.as_str().into(), "m1".into()));
    let again = venue.post(&path, r#"{"content":"hi","messageId":"m1"}"#).await;
    assert_eq!((again.status, again.field("duplicate")), (202, true.into()));
    assert_eq!(venue.post(&path, "\"done\"").await.status, 202, "a bare value becomes content");
    assert_eq!(venue.until(&id, "COMPLETE").await.field("output"), "bye".into());
    let late = venue.post(&path, "{}").await;
    late.assert_error(409, "job_ended");
    assert_eq!((late.field("id"), late.field("status")), (id.as_str().into(), "COMPLETE".into()));
}

#[tokio::test]
async fn a_history_has_the_ids_of_its_records() {
    let venue = start().await;
    let id = venue.invoke("try:echo").await;
    let page = venue.get(&format!("/api/v1/jobs/{id}/history")).await;
    let records = page.field("records");
    let records: Vec<Value> =
        records.as_vector().unwrap().iter(&NoCells).map(Result::unwrap).collect();
    assert_eq!(page.field("total"), i64::try_from(records.len()).unwrap().into());
    let mut before = Value::Nil;
    for entry in &records {
        let record = field(entry, "record");
        assert_eq!(field(entry, "id"), record.id().to_string().into());
        assert_eq!(field(&record, "prev"), before);
        before = field(entry, "id");
    }
    let first = venue.get(&format!("/api/v1/jobs/{id}/history?limit=1")).await;
    assert_eq!(first.field("next"), 1.into());
}

#[tokio::test]
async fn the_same_key_and_body_create_one_job() {
    let venue = start().await;
    let key = [("idempotency-key", "k1")];
    let first = venue.request("POST", "/api/v1/invoke", &key, ECHO).await;
    let again = venue.request("POST", "/api/v1/invoke", &key, ECHO).await;
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!((again.status, again.field("id")), (first.status, first.field("id")));
    assert_eq!(again.header("location"), first.header("location"));
    let other = r#"{"operation":"try:echo","input":2}"#;
    let reused = venue.request("POST", "/api/v1/invoke", &key, other).await;
    reused.assert_error(422, "idempotency_key_reused");
    let bad = [("idempotency-key", "")];
    venue.request("POST", "/api/v1/invoke", &bad, ECHO).await.assert_error(400, "bad_request");
}

#[tokio::test]
async fn the_catalogue_lists_what_adapters_registered() {
    let venue = start().await;
    let list = venue.get("/api/v1/operations").await.value();
    let entries: Vec<Value> =
        list.as_vector().unwrap().iter(&NoCells).map(Result::unwrap).collect();
    assert!(entries.iter().any(|entry| field(entry, "name") == "v/ops/try/echo".into()));
    let one = venue.get("/api/v1/operations/v/ops/try/echo").await;
    assert_eq!(one.field("name"), "v/ops/try/echo".into());
    let asset = one.field("asset");
    let metadata = venue.get("/api/v1/assets/v/ops/try/echo").await;
    let tag = format!("\"0x{}\"", asset.as_str().unwrap());
    assert_eq!(metadata.header("etag"), Some(tag.as_str()));
    assert_eq!(metadata.value().id().to_hex(), asset.as_str().unwrap());
    let by_adapter = venue.get("/api/v1/adapters/try/operations").await;
    assert!(by_adapter.field("v/ops/try/echo").as_map().is_some());
    venue.get("/api/v1/adapters/none/operations").await.assert_error(404, "adapter_not_found");
    venue.get("/api/v1/operations/v/ops/none").await.assert_error(404, "operation_not_found");
}

#[tokio::test]
async fn content_is_stored_by_its_digest() {
    let venue = start().await;
    // The SHA-256 of `hello`.
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let metadata = format!(
        r#"{{"name":"greeting","content":{{"sha256":"{digest}","contentType":"text/plain"}}}}"#
    );
    let registered = venue.post("/api/v1/assets", &metadata).await;
    assert_eq!(registered.status, 201, "{}", registered.text());
    let id = registered.value().as_str().unwrap().to_owned();
    assert_eq!(registered.header("location"), Some(&*format!("/api/v1/assets/{id}")));
    assert_eq!(venue.get(&format!("/api/v1/assets/{id}")).await.text(), metadata);
    let path = format!("/api/v1/assets/{id}/content");
    venue.get(&path).await.assert_error(404, "content_not_found");
    venue.request("PUT", &path, &[], "other").await.assert_error(400, "content_mismatch");
    let sent = venue.request("PUT", &path, &[], "hello").await;
    assert_eq!((sent.status, sent.value()), (200, digest.into()));
    for path in [path, format!("/api/v1/assets/content/a/{id}")] {
        let read = venue.get(&path).await;
        assert_eq!((read.text(), read.header("content-type")), ("hello", Some("text/plain")));
    }
    let own = venue.get("/api/v1/assets?scope=own").await;
    assert_eq!(own.field("total"), 1.into());
    venue
        .get(&format!("/api/v1/assets/{}", "0".repeat(64)))
        .await
        .assert_error(404, "asset_not_found");
}
